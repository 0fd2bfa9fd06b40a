//! What goes wrong, at which step.

use std::str::FromStr;

/// The steps at which something can go wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RapidStep {
    /// The first message of a stream that creates an object.
    Create,
    /// The first message of a stream with a handle.
    Resume,
    /// The first message of a stream without a handle.
    TakeOver,
    /// A message with data.
    Append,
    /// The message that finalizes an object.
    Finalize,
    /// The first message of a stream of reads.
    Read,
    /// A part of a list.
    List,
    /// A delete.
    Delete,
}

impl RapidStep {
    /// All steps.
    pub const ALL: [RapidStep; 8] = [
        RapidStep::Create,
        RapidStep::Resume,
        RapidStep::TakeOver,
        RapidStep::Append,
        RapidStep::Finalize,
        RapidStep::Read,
        RapidStep::List,
        RapidStep::Delete,
    ];

    /// Returns whether the step changes something.
    #[must_use]
    pub fn changes(self) -> bool {
        !matches!(self, RapidStep::Read | RapidStep::List)
    }

    fn opens(self) -> bool {
        matches!(self, RapidStep::Create | RapidStep::Resume | RapidStep::TakeOver)
    }
}

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RapidFault {
    /// The stream or the request ends before the effect.
    Before,
    /// It ends after the effect, before the answer.
    After,
    /// It ends, and the effect comes later, if nothing prevents it then.
    Late,
    /// A part of the data becomes durable, and the stream ends.
    Torn,
    /// The service asks for fewer requests.
    Throttle,
    /// The stream is to be opened elsewhere. A creation may have taken effect.
    Redirect,
    /// The handle is no longer known.
    Expire,
    /// The service refuses the credentials. Nothing happens.
    Deny,
}

impl RapidFault {
    /// All faults, with their names on the command line.
    pub const ALL: [(&'static str, RapidFault); 8] = [
        ("before", RapidFault::Before),
        ("after", RapidFault::After),
        ("late", RapidFault::Late),
        ("torn", RapidFault::Torn),
        ("throttle", RapidFault::Throttle),
        ("redirect", RapidFault::Redirect),
        ("expire", RapidFault::Expire),
        ("deny", RapidFault::Deny),
    ];

    /// Returns whether the fault can strike a step.
    #[must_use]
    pub fn fits(self, step: RapidStep) -> bool {
        match self {
            RapidFault::Before | RapidFault::After | RapidFault::Deny => true,
            RapidFault::Late => step.changes(),
            RapidFault::Torn => step == RapidStep::Append,
            RapidFault::Throttle => !matches!(step, RapidStep::Append | RapidStep::Finalize),
            RapidFault::Redirect => step.opens() || step == RapidStep::Read,
            RapidFault::Expire => step == RapidStep::Resume,
        }
    }
}

/// How often each fault happens to a step that it fits: `before=0.01,torn=0.02`. Probabilities are
/// between 0 and 1, and their sum is at most 1. Armed ones happen once.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RapidFaults {
    odds: Vec<(f64, RapidFault)>,
    armed: Vec<(RapidStep, RapidFault, u64)>,
}

impl RapidFaults {
    /// Lets a fault happen once, at a step, after `after` of its kind.
    pub fn arm(&mut self, step: RapidStep, fault: RapidFault, after: u64) {
        self.armed.push((step, fault, after));
    }

    /// Returns what happens to a step.
    pub(super) fn draw(&mut self, step: RapidStep, random: &mut fastrand::Rng) -> Option<RapidFault> {
        let mut struck = None;
        self.armed.retain_mut(|(of, fault, after)| {
            if *of != step || struck.is_some() {
                return true;
            }
            if *after > 0 {
                *after -= 1;
                return true;
            }
            struck = Some(*fault);
            false
        });
        let (mut sum, number) = (0.0, random.f64());
        struck.or_else(|| {
            let drawn = self.odds.iter().find(|(odds, _)| {
                sum += odds;
                number < sum
            });
            drawn.map(|(_, fault)| *fault).filter(|fault| fault.fits(step))
        })
    }
}

impl FromStr for RapidFaults {
    type Err = String;

    fn from_str(text: &str) -> Result<RapidFaults, String> {
        let mut faults = RapidFaults::default();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (name, odds) = item
                .split_once('=')
                .ok_or_else(|| format!("`{item}` is no fault: write name=probability"))?;
            let odds = odds.parse::<f64>().ok().filter(|odds| (0.0..=1.0).contains(odds));
            let odds = odds.ok_or_else(|| format!("`{item}` has no probability between 0 and 1"))?;
            let Some((_, fault)) = RapidFault::ALL.into_iter().find(|(known, _)| *known == name) else {
                let names = RapidFault::ALL.map(|(name, _)| name).join(", ");
                return Err(format!("there is no fault `{name}`: use {names}"));
            };
            faults.odds.push((odds, fault));
        }
        if faults.odds.iter().map(|(odds, _)| odds).sum::<f64>() > 1.0 + 1e-9 {
            return Err(format!("the probabilities of `{text}` are more than 1 together"));
        }
        Ok(faults)
    }
}
