//! Faults of requests, by odds or armed one by one, and counts of what went wrong.

use crate::base::random::Random;
use crate::device::fault_counts::FaultCounts;
use crate::device::objects::{FailureKind, Request, RequestKind};
use std::collections::BTreeMap;

/// What goes wrong with a request.
///
/// | fault | effect | the client's reply |
/// |---|---|---|
/// | `ThrottledBefore` | none | `Throttled` |
/// | `ThrottledAfter` | as if nothing were wrong | `Throttled` |
/// | `LostRequest` | none | `Unknown` |
/// | `LostReply` | as if nothing were wrong | `Unknown` |
/// | `Late` | at some later step, even if the client is dead by then | `Unknown`, before the effect |
/// | `Again` | none | `Again` |
/// | `Denied` | none | `Denied` |
/// | `Forbidden` | none | `Forbidden` |
/// | `Duplicated` | a second copy takes effect at some later step | that of the first copy |
/// | `Repeated` | twice, one directly after the other | that of the second copy |
/// | `Torn` | the beginning of an append | `Unknown` |
/// | `Expired` | none: the handle of a stream is no longer known | `Refused` |
///
/// The last two strike streams only.
///
/// A copy obeys the condition of its request. So a second copy of most requests is refused, and
/// `Repeated` makes a put that took effect look refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs, reason = "the table above")]
pub enum FaultKind {
    ThrottledBefore,
    ThrottledAfter,
    LostRequest,
    LostReply,
    Late,
    Again,
    Denied,
    Duplicated,
    Repeated,
    Forbidden,
    Torn,
    Expired,
}

impl FaultKind {
    /// All faults.
    pub const ALL: [FaultKind; 10] = [
        FaultKind::ThrottledBefore,
        FaultKind::ThrottledAfter,
        FaultKind::LostRequest,
        FaultKind::LostReply,
        FaultKind::Late,
        FaultKind::Again,
        FaultKind::Denied,
        FaultKind::Duplicated,
        FaultKind::Repeated,
        FaultKind::Forbidden,
    ];

    /// The faults of streams.
    pub const OF_STREAMS: [FaultKind; 2] = [FaultKind::Torn, FaultKind::Expired];

    /// Returns the name in [`FaultCounts`].
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::ThrottledBefore => "throttled before the effect",
            FaultKind::ThrottledAfter => "throttled after the effect",
            FaultKind::LostRequest => "lost request",
            FaultKind::LostReply => "lost reply",
            FaultKind::Late => "late request",
            FaultKind::Again => "again",
            FaultKind::Denied => "denied",
            FaultKind::Duplicated => "duplicated request",
            FaultKind::Repeated => "repeated request",
            FaultKind::Forbidden => "forbidden",
            FaultKind::Torn => "torn append",
            FaultKind::Expired => "expired handle",
        }
    }

    /// Returns the failure of which the client hears, if the fault alone decides.
    fn reply(self) -> Option<FailureKind> {
        match self {
            FaultKind::ThrottledBefore | FaultKind::ThrottledAfter => Some(FailureKind::Throttled),
            FaultKind::LostRequest | FaultKind::LostReply | FaultKind::Late | FaultKind::Torn => {
                Some(FailureKind::Unknown)
            }
            FaultKind::Expired => Some(FailureKind::Refused),
            FaultKind::Again => Some(FailureKind::Again),
            FaultKind::Denied => Some(FailureKind::Denied),
            FaultKind::Forbidden => Some(FailureKind::Forbidden),
            FaultKind::Duplicated | FaultKind::Repeated => None,
        }
    }

    /// Returns how often the request takes effect at its turn.
    pub(super) fn effects(self) -> usize {
        match self {
            FaultKind::Repeated => 2,
            FaultKind::ThrottledAfter | FaultKind::LostReply | FaultKind::Duplicated => 1,
            _ => 0,
        }
    }

    /// Lets a request meet the fault: calls `effect` as often as the request takes effect at its
    /// turn. Returns the answer that the client hears, or the failure in its place.
    ///
    /// # Errors
    /// What the client hears, if it is not the store's answer.
    pub fn meet<T>(self, mut effect: impl FnMut() -> T) -> Result<T, FailureKind> {
        let mut answer = None;
        (0..self.effects()).for_each(|_| answer = Some(effect()));
        match (self.reply(), answer) {
            (None, Some(answer)) => Ok(answer),
            (kind, _) => Err(kind.unwrap_or(FailureKind::Unknown)),
        }
    }

    /// Returns whether requests of this kind can have the fault.
    #[must_use]
    pub fn fits(self, request: RequestKind) -> bool {
        use FaultKind::{Denied, Expired, Forbidden, LostReply, LostRequest, ThrottledBefore, Torn};
        use RequestKind::{Append, Delete, Finalize, Open, Put};
        match self {
            Torn => return request == Append,
            Expired => return request == Open,
            _ => {}
        }
        let changes = matches!(request, Put | Append | Open | Finalize | Delete);
        changes || matches!(self, ThrottledBefore | LostRequest | LostReply | Denied | Forbidden)
    }
}

/// A fault of request number `after` (from 0) of those that it can strike, counted from the arming
/// in the order in which requests are started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What happens.
    pub kind: FaultKind,
    /// Which requests are counted; `None` = all that the fault fits.
    pub request: Option<RequestKind>,
    /// The beginning of the names that are counted.
    pub prefix: String,
    /// How many of them still succeed.
    pub after: u64,
    /// Whether the fault strikes all later ones, too.
    pub for_ever: bool,
}

impl Fault {
    /// Returns a fault of the first request that it fits, once.
    #[must_use]
    pub fn once(kind: FaultKind) -> Fault {
        Fault { kind, request: None, prefix: String::new(), after: 0, for_ever: false }
    }

    fn fits(&self, request: &Request) -> bool {
        let kind = request.kind();
        self.kind.fits(kind)
            && self.request.is_none_or(|own| own == kind)
            && request.name().starts_with(&self.prefix)
    }
}

/// The number of odds that are certain.
const CERTAIN: u64 = 1000;

/// Armed faults and odds.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Each with the client that it strikes; `None` = all.
    armed: Vec<(Option<usize>, Fault)>,
    odds: BTreeMap<FaultKind, u64>,
    struck: u64,
    pub(super) counts: FaultCounts,
}

impl Faults {
    pub(super) fn arm(&mut self, client: Option<usize>, fault: Fault) {
        self.armed.push((client, fault));
    }

    /// Sets the odds of a fault, out of 1000 requests.
    pub(super) fn set_odds(&mut self, kind: FaultKind, odds: u64) {
        self.odds.insert(kind, odds);
    }

    pub(super) fn disarm(&mut self) {
        self.armed.clear();
        self.odds.clear();
    }

    pub(super) fn struck(&self) -> u64 {
        self.struck
    }

    /// Counts a request and returns its fault. An armed fault precedes one by odds.
    pub(super) fn strike(
        &mut self,
        client: usize,
        request: &Request,
        random: &mut Random,
    ) -> Option<FaultKind> {
        let mut fault = None;
        self.armed.retain_mut(|(of, armed)| {
            if of.is_some_and(|of| of != client) || !armed.fits(request) {
                return true;
            }
            if armed.after > 0 {
                armed.after -= 1;
                return true;
            }
            // Of several due faults the first strikes; the others wait for the next request.
            if fault.is_some() {
                return true;
            }
            fault = Some(armed.kind);
            armed.for_ever
        });
        for (kind, odds) in &self.odds {
            if fault.is_none() && kind.fits(request.kind()) && random.below(CERTAIN) < *odds {
                fault = Some(*kind);
            }
        }
        if let Some(kind) = fault {
            self.struck += 1;
            self.counts.count(kind.name());
        }
        fault
    }
}
