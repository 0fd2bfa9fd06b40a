//! Settings and options of transactions by their names, from texts or from typed values.

use quenchdb::{Acknowledge, Compression, DeviceTrust, Durability, Error, Isolation, LockRelease};
use quenchdb::{Locking, Preset, Settings, TransactionOptions};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// A value as a caller gives it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// A text that stands for a value of any type: a decimal number, seconds, `true`, a name.
    Text(&'a str),
    /// A name or a path.
    Name(&'a str),
    /// A switch.
    Switch(bool),
    /// A number.
    Number(i64),
    /// A duration in seconds.
    Seconds(f64),
    /// One of the names by its place in the interface of C.
    Place(i64),
}

/// Why a value is refused.
#[derive(Debug)]
pub enum Refused {
    /// No setting has this name, or the value is of another type.
    Kind(String),
    /// The value is wrong.
    Value(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Value(error)
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Error {
        match refused {
            Refused::Kind(what) => Error::invalid(what).with_advice("see the settings in the guide"),
            Refused::Value(error) => error,
        }
    }
}

type Result<T> = std::result::Result<T, Refused>;

/// A value beside its name.
struct Given<'a>(&'a str, Value<'a>);

impl Given<'_> {
    fn wrong<T>(&self, form: &str) -> Result<T> {
        let Given(name, value) = self;
        let text = match value {
            Value::Text(text) => {
                return Err(Error::invalid(format!("`{name}` cannot be `{text}`: it is {form}")).into());
            }
            Value::Name(_) => "a text",
            Value::Switch(_) => "a switch",
            Value::Number(_) | Value::Place(_) => "an integer",
            Value::Seconds(_) => "a number with a fraction",
        };
        Err(Refused::Kind(format!("{name}: {text} was given, and it is {form}")))
    }

    fn number<T: FromStr + TryFrom<i64>>(&self) -> Result<T> {
        let form = "an integer in the range of the setting";
        let parsed = match self.1 {
            Value::Text(text) => text.parse().ok(),
            Value::Number(number) => match T::try_from(number) {
                Ok(number) => Some(number),
                Err(_) => return Err(Error::invalid(format!("{}: {number} is not {form}", self.0)).into()),
            },
            _ => None,
        };
        parsed.map_or_else(|| self.wrong(form), Ok)
    }

    fn switch(&self) -> Result<bool> {
        match self.1 {
            Value::Switch(switch) => Ok(switch),
            Value::Text(text) => text.parse().or_else(|_| self.wrong("`true` or `false`")),
            Value::Place(_) => self.choice(&[("false", false), ("true", true)]),
            _ => self.wrong("true or false"),
        }
    }

    fn duration(&self) -> Result<Duration> {
        let seconds = match self.1 {
            Value::Seconds(seconds) => seconds,
            Value::Number(seconds) => seconds as f64,
            Value::Text(text) => text.parse().or_else(|_| self.wrong("a number of seconds"))?,
            _ => return self.wrong("a number of seconds"),
        };
        let refused = |_| {
            Error::invalid(format!("{}: {seconds} is no number of seconds", self.0))
                .with_advice("give 0 or more seconds")
        };
        Ok(Duration::try_from_secs_f64(seconds).map_err(refused)?)
    }

    fn name(&self) -> Result<&str> {
        match self.1 {
            Value::Text(name) | Value::Name(name) => Ok(name),
            _ => self.wrong("a text"),
        }
    }

    fn path(&self) -> Result<Option<PathBuf>> {
        Ok(Some(self.name()?.into()))
    }

    fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T> {
        let (found, given) = match self.1 {
            Value::Place(place) => {
                (usize::try_from(place).ok().and_then(|at| choices.get(at)), place.to_string())
            }
            _ => {
                let chosen = self.name()?;
                (choices.iter().find(|(name, _)| *name == chosen), chosen.to_string())
            }
        };
        let names = || choices.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let refused = || Error::invalid(format!("`{}` cannot be {given}: there are {}", self.0, names()));
        Ok(found.map(|(_, choice)| *choice).ok_or_else(refused)?)
    }
}

/// Finds the line of a name, and runs what it says.
macro_rules! by_name {
    ($kind:literal, $name:expr, { $($known:literal => $set:expr,)* }) => {
        match $name {
            $($known => $set,)*
            unknown => {
                let known = [$($known),*].join(", ");
                return Err(Refused::Kind(format!("no {} is called `{unknown}`; there are {known}", $kind)));
            }
        }
    };
}

const TRUSTS: [(&str, DeviceTrust); 3] =
    [("auto", DeviceTrust::Auto), ("flush", DeviceTrust::Flush), ("device", DeviceTrust::Device)];
const ACKNOWLEDGE: [(&str, Acknowledge); 2] =
    [("majority", Acknowledge::Majority), ("all", Acknowledge::All)];

/// Sets a setting by its name.
///
/// # Errors
/// [`Refused`], which names the setting.
pub fn set(all: &mut Settings, name: &str, value: Value<'_>) -> Result<()> {
    let given = Given(name, value);
    by_name!("setting", name, {
        "create" => all.create = given.switch()?,
        "read_only" => all.read_only = given.switch()?,
        "memory_bytes" => all.memory_bytes = given.number()?,
        "page_bytes" => all.page_bytes = given.number()?,
        "compression" => all.compression = Compression::from_name(given.name()?)?,
        "preset" => all.preset = Preset::from_name(given.name()?)?,
        "recovery_seconds" => all.recovery_seconds = given.number()?,
        "log_bytes_max" => all.log_bytes_max = given.number()?,
        "loss_window" => all.loss_window = given.duration()?,
        "lock_wait" => all.lock_wait = given.duration()?,
        "transact_wait" => all.transact_wait = Some(given.duration()?),
        "slow_commit_log" => all.slow_commit_log = Some(given.duration()?),
        "monitor" => all.monitor = given.switch()?,
        "version_bytes" => all.version_bytes = given.number()?,
        "logs" => all.logs = given.number()?,
        "segment_bytes" => all.segment_bytes = given.number()?,
        "trim_log" => all.trim_log = given.switch()?,
        "change_history_bytes" => all.change_history_bytes = given.number()?,
        "write_deadline" => all.write_deadline = given.duration()?,
        "device_trust" => all.device_trust = given.choice(&TRUSTS)?,
        "io_uring" => all.io_uring = given.switch()?,
        "object_cache" => all.object_cache = given.path()?,
        "object_cache_bytes" => all.object_cache_bytes = given.number()?,
        "acknowledge" => all.acknowledge = given.choice(&ACKNOWLEDGE)?,
        "log_memory" => all.log_memory = given.path()?,
    });
    Ok(())
}

// The places are those of the header for C.
const ISOLATIONS: [(&str, Isolation); 3] = [
    ("snapshot", Isolation::Snapshot),
    ("serializable", Isolation::Serializable),
    ("read-committed", Isolation::ReadCommitted),
];
const DURABILITIES: [(&str, Durability); 4] = [
    ("durable", Durability::Durable),
    ("written", Durability::Written),
    ("bounded-loss", Durability::BoundedLoss),
    ("lazy", Durability::Lazy),
];
const LOCKINGS: [(&str, Locking); 2] =
    [("optimistic", Locking::Optimistic), ("pessimistic", Locking::Pessimistic)];
const RELEASES: [(&str, LockRelease); 2] =
    [("pre-commit", LockRelease::PreCommit), ("commit", LockRelease::Commit)];

/// Sets an option of a transaction by its name.
///
/// # Errors
/// As [`set`].
pub fn option(all: TransactionOptions, name: &str, value: Value<'_>) -> Result<TransactionOptions> {
    let given = Given(name, value);
    Ok(by_name!("option", name, {
        "isolation" => all.isolation(given.choice(&ISOLATIONS)?),
        "locking" => all.locking(given.choice(&LOCKINGS)?),
        "durability" => all.durability(given.choice(&DURABILITIES)?),
        "lock_release" => all.lock_release(given.choice(&RELEASES)?),
        "lock_timeout" => all.lock_timeout(given.duration()?),
        "no_wait" => if given.switch()? { all.no_wait() } else { all },
        "read_only" => if given.switch()? { all.read_only() } else { all },
        "priority" => all.priority(given.number()?),
    }))
}
