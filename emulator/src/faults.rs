//! What goes wrong with requests, and how often.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Something that happens to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// 503 SlowDown. Nothing happened.
    Throttle,
    /// 403 AccessDenied. Nothing happened.
    Deny,
    /// 500 InternalError. Nothing happened.
    ErrorBefore,
    /// 500 InternalError, although the request took effect.
    ErrorAfter,
    /// The connection is closed. Nothing happened.
    Reset,
    /// The connection is closed without an answer. The request took effect.
    Lost,
    /// The connection is closed in the middle of the answer to a read. A write ends as by `Reset`.
    Cut,
    /// The connection is closed at once, and the write takes effect after so long.
    Late(Duration),
    /// The request is carried out twice, as by a proxy that repeats it. The second answer counts.
    Twice,
    /// The answer takes so much longer.
    Slow(Duration),
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
            let fault = match (name, time) {
                ("throttle", None) => Fault::Throttle,
                ("deny", None) => Fault::Deny,
                ("error-before", None) => Fault::ErrorBefore,
                ("error-after", None) => Fault::ErrorAfter,
                ("reset", None) => Fault::Reset,
                ("lost", None) => Fault::Lost,
                ("cut", None) => Fault::Cut,
                ("twice", None) => Fault::Twice,
                ("late", Some(time)) => Fault::Late(time),
                ("slow", Some(time)) => Fault::Slow(time),
                ("late" | "slow", None) => {
                    return Err(format!("`{item}` lacks its time: write {name}=probability:2s"));
                }
                (_, None) => {
                    return Err(format!(
                        "there is no fault `{name}`: use throttle, deny, error-before, error-after, reset, \
                         lost, cut, twice, late or slow"
                    ));
                }
                (_, Some(_)) => return Err(format!("`{item}` takes no time")),
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
            write!(f, "{comma}{}={odds}", fault.name())?;
            if let Fault::Late(time) | Fault::Slow(time) = fault {
                write!(f, ":{}ms", time.as_millis())?;
            }
        }
        Ok(())
    }
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Fault::Throttle => "throttle",
            Fault::Deny => "deny",
            Fault::ErrorBefore => "error-before",
            Fault::ErrorAfter => "error-after",
            Fault::Reset => "reset",
            Fault::Lost => "lost",
            Fault::Cut => "cut",
            Fault::Late(_) => "late",
            Fault::Twice => "twice",
            Fault::Slow(_) => "slow",
        }
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
