//! What goes wrong with requests, and how often.

use crate::ending::End;
use quenchdb::internals::device::objects::simulated::FaultKind;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Something that happens to a request: to the request itself, as in a simulated store, and to
/// its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fault {
    name: &'static str,
    kind: Option<FaultKind>,
    end: End,
    /// How much later the request takes effect, or its answer comes.
    pub time: Duration,
}

/// All faults. The last two have a time.
const FAULTS: [Fault; 10] = [
    fault("throttle", Some(FaultKind::ThrottledBefore), End::Answer),
    fault("deny", Some(FaultKind::Forbidden), End::Answer),
    fault("error-before", Some(FaultKind::LostRequest), End::Answer),
    fault("error-after", Some(FaultKind::LostReply), End::Answer),
    fault("reset", Some(FaultKind::LostRequest), End::Close),
    fault("lost", Some(FaultKind::LostReply), End::Close),
    fault("cut", None, End::Cut),
    fault("twice", Some(FaultKind::Repeated), End::Answer),
    fault(LATE, Some(FaultKind::Late), End::Close),
    fault(SLOW, None, End::Answer),
];
const LATE: &str = "late";
const SLOW: &str = "slow";

const fn fault(name: &'static str, kind: Option<FaultKind>, end: End) -> Fault {
    Fault { name, kind, end, time: Duration::ZERO }
}

impl Fault {
    fn has_time(&self) -> bool {
        [LATE, SLOW].contains(&self.name)
    }

    /// Returns how much longer the answer takes.
    pub fn delay(&self) -> Duration {
        if self.name == SLOW { self.time } else { Duration::ZERO }
    }

    /// Returns what happens to a request, and to its connection. A write whose answer would be cut,
    /// and a read that would be late, are lost.
    pub fn of(&self, writes: bool) -> (Option<FaultKind>, End) {
        match (self.kind, self.end) {
            (None, End::Cut) if writes => (Some(FaultKind::LostRequest), End::Close),
            (Some(FaultKind::Late), end) if !writes => (Some(FaultKind::LostRequest), end),
            usual => usual,
        }
    }
}

/// How often each fault happens: `throttle=0.01,error-after=0.02,late=0.01:2s`. Probabilities are
/// between 0 and 1, and their sum is at most 1. Only requests for objects are affected.
///
/// | fault | what happens |
/// |---|---|
/// | `throttle` | 503 SlowDown; nothing happened |
/// | `deny` | 403 AccessDenied; nothing happened |
/// | `error-before` | 500; nothing happened |
/// | `error-after` | 500; the request took effect |
/// | `reset` | the connection is closed; nothing happened |
/// | `lost` | the connection is closed; the request took effect |
/// | `cut` | the connection is closed in the middle of a read's answer; a write has no effect |
/// | `late:TIME` | the connection is closed; a write takes effect after TIME |
/// | `twice` | the request is carried out twice; the second answer counts |
/// | `slow:TIME` | the answer takes TIME longer |
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Faults {
    odds: Vec<(f64, Fault)>,
}

impl Faults {
    /// Returns whether nothing goes wrong.
    #[must_use]
    pub fn are_none(&self) -> bool {
        self.odds.is_empty()
    }

    /// Returns what happens to the request that drew `number`, from 0 to below 1.
    pub(crate) fn draw(&self, number: f64) -> Option<Fault> {
        let mut sum = 0.0;
        self.odds.iter().find_map(|(odds, fault)| {
            sum += odds;
            (number < sum).then_some(*fault)
        })
    }
}

impl FromStr for Faults {
    type Err = String;

    fn from_str(text: &str) -> Result<Faults, String> {
        let mut faults = Faults::default();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (name, value) = item
                .split_once('=')
                .ok_or_else(|| format!("`{item}` is no fault: write name=probability"))?;
            let (odds, time) = match value.split_once(':') {
                Some((odds, time)) => (odds, Some(parse_time(time)?)),
                None => (value, None),
            };
            let odds = odds.parse::<f64>().ok().filter(|odds| (0.0..=1.0).contains(odds));
            let odds = odds.ok_or_else(|| format!("`{item}` has no probability between 0 and 1"))?;
            let Some(fault) = FAULTS.into_iter().find(|fault| fault.name == name) else {
                let names = FAULTS.map(|fault| fault.name).join(", ");
                return Err(format!("there is no fault `{name}`: use {names}"));
            };
            let fault = match time {
                Some(time) if fault.has_time() => Fault { time, ..fault },
                None if !fault.has_time() => fault,
                Some(_) => return Err(format!("`{item}` takes no time")),
                None => return Err(format!("`{item}` lacks its time: write {name}=probability:2s")),
            };
            faults.odds.push((odds, fault));
        }
        if faults.odds.iter().map(|(odds, _)| odds).sum::<f64>() > 1.0 + 1e-9 {
            return Err(format!("the probabilities of `{text}` are more than 1 together"));
        }
        Ok(faults)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (odds, fault)) in self.odds.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}={odds}", fault.name)?;
            if fault.has_time() {
                write!(f, ":{}ms", fault.time.as_millis())?;
            }
        }
        Ok(())
    }
}

/// Parses `500ms` or `2s`.
fn parse_time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time: write 500ms or 2s");
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s').ok_or_else(wrong)?, 1000),
    };
    let number = number.parse::<u64>().map_err(|_| wrong())?;
    Ok(Duration::from_millis(number.saturating_mul(unit)))
}

#[cfg(test)]
mod tests;
