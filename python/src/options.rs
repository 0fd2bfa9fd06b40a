//! Settings and options of transactions, from keyword arguments.

use crate::error::{invalid, raise};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDelta, PyDict};
use quenchdb::{
    Compression, DeviceTrust, Durability, Isolation, LockRelease, Locking, Preset, Settings,
    TransactionOptions,
};
use std::path::PathBuf;
use std::time::Duration;

/// Returns the value of a setting, or an exception that names the setting.
fn value<'a, 'py, T: FromPyObject<'a, 'py, Error = PyErr>>(
    name: &str,
    object: &'a Bound<'py, PyAny>,
) -> PyResult<T> {
    object.extract().map_err(|error| refuse(object.py(), name, &error))
}

fn refuse(py: Python<'_>, name: &str, error: &PyErr) -> PyErr {
    PyTypeError::new_err(format!("{name}: {}", error.value(py)))
}

/// Returns a duration: a `timedelta`, or seconds.
pub fn duration(name: &str, object: &Bound<'_, PyAny>) -> PyResult<Duration> {
    if object.is_instance_of::<PyDelta>() {
        return value(name, object);
    }
    let seconds: f64 = value(name, object)?;
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| invalid(format!("{name}: {seconds} is no number of seconds"), "give 0 or more seconds"))
}

/// Returns one of the choices, each of which has a name.
fn choice<T: Copy>(name: &str, object: &Bound<'_, PyAny>, choices: &[(&str, T)]) -> PyResult<T> {
    let chosen: String = value(name, object)?;
    choices.iter().find(|(other, _)| *other == chosen).map(|(_, choice)| *choice).ok_or_else(|| {
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        invalid(format!("{name}: there is no `{chosen}`, but {}", names.join(", ")), "choose one of these")
    })
}

fn unknown(kind: &str, name: &str, known: &[&str]) -> PyErr {
    PyTypeError::new_err(format!("no {kind} is called `{name}`; there are {}", known.join(", ")))
}

/// The level of a commit, by its name.
pub const DURABILITIES: [(&str, Durability); 4] = [
    ("durable", Durability::Durable),
    ("written", Durability::Written),
    ("bounded-loss", Durability::BoundedLoss),
    ("lazy", Durability::Lazy),
];

/// What a device flush is expected to do, by its name.
const TRUSTS: [(&str, DeviceTrust); 3] =
    [("auto", DeviceTrust::Auto), ("flush", DeviceTrust::Flush), ("device", DeviceTrust::Device)];

/// Reads keyword arguments: the name of each decides where its value goes.
macro_rules! keywords {
    ($kind:literal, $given:expr, |$name:ident, $object:ident| { $($field:literal => $set:expr,)* }) => {
        for ($name, $object) in $given.iter() {
            let $name: String = $name.extract()?;
            let ($name, $object) = ($name.as_str(), &$object);
            match $name {
                $($field => $set,)*
                _ => return Err(unknown($kind, $name, &[$($field),*])),
            }
        }
    };
}

/// Returns the settings that keyword arguments set.
///
/// # Errors
/// `TypeError` for an unknown name or a value of another type; `InvalidArgumentError`.
pub fn settings(given: &Bound<'_, PyDict>) -> PyResult<Settings> {
    let mut all = Settings::default();
    keywords!("setting", given, |name, object| {
        "create" => all.create = value(name, object)?,
        "read_only" => all.read_only = value(name, object)?,
        "memory_bytes" => all.memory_bytes = value(name, object)?,
        "page_bytes" => all.page_bytes = value(name, object)?,
        "compression" => {
            all.compression = Compression::from_name(&value::<String>(name, object)?).map_err(raise)?;
        },
        "preset" => all.preset = Preset::from_name(&value::<String>(name, object)?).map_err(raise)?,
        "recovery_seconds" => all.recovery_seconds = value(name, object)?,
        "log_bytes_max" => all.log_bytes_max = value(name, object)?,
        "loss_window" => all.loss_window = duration(name, object)?,
        "lock_wait" => all.lock_wait = duration(name, object)?,
        "transact_wait" => all.transact_wait = Some(duration(name, object)?),
        "slow_commit_log" => all.slow_commit_log = Some(duration(name, object)?),
        "monitor" => all.monitor = value(name, object)?,
        "version_bytes" => all.version_bytes = value(name, object)?,
        "logs" => all.logs = value(name, object)?,
        "segment_bytes" => all.segment_bytes = value(name, object)?,
        "trim_log" => all.trim_log = value(name, object)?,
        "change_history_bytes" => all.change_history_bytes = value(name, object)?,
        "write_deadline" => all.write_deadline = duration(name, object)?,
        "device_trust" => all.device_trust = choice(name, object, &TRUSTS)?,
        "io_uring" => all.io_uring = value(name, object)?,
        "object_cache" => all.object_cache = Some(value::<PathBuf>(name, object)?),
        "object_cache_bytes" => all.object_cache_bytes = value(name, object)?,
        "log_memory" => all.log_memory = Some(value::<PathBuf>(name, object)?),
    });
    Ok(all)
}

/// Returns the options of a transaction that keyword arguments set.
///
/// # Errors
/// As [`settings`].
pub fn transaction(given: Option<&Bound<'_, PyDict>>) -> PyResult<TransactionOptions> {
    let mut all = TransactionOptions::new();
    let Some(given) = given else { return Ok(all) };
    let isolations = [
        ("read-committed", Isolation::ReadCommitted),
        ("snapshot", Isolation::Snapshot),
        ("serializable", Isolation::Serializable),
    ];
    let lockings = [("optimistic", Locking::Optimistic), ("pessimistic", Locking::Pessimistic)];
    let releases = [("pre-commit", LockRelease::PreCommit), ("commit", LockRelease::Commit)];
    keywords!("option", given, |name, object| {
        "isolation" => all = all.isolation(choice(name, object, &isolations)?),
        "locking" => all = all.locking(choice(name, object, &lockings)?),
        "durability" => all = all.durability(choice(name, object, &DURABILITIES)?),
        "lock_release" => all = all.lock_release(choice(name, object, &releases)?),
        "lock_timeout" => all = all.lock_timeout(duration(name, object)?),
        "no_wait" => if value(name, object)? { all = all.no_wait() },
        "read_only" => if value(name, object)? { all = all.read_only() },
        "priority" => all = all.priority(value(name, object)?),
    });
    Ok(all)
}
