//! Settings as texts, and options of transactions.

use crate::boundary::{Answer, array, sized, terminated};
use quenchdb::{Compression, DeviceTrust, Durability, Error, Isolation, LockRelease, Locking};
use quenchdb::{Preset, Result, Settings, TransactionOptions};
use std::ffi::{c_char, c_int};
use std::time::Duration;

/// A setting by its name, as the guide lists them. Both texts end with NUL. Numbers are decimal,
/// durations are seconds such as "0.5", and switches are "true" or "false".
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Setting {
    /// Such as "memory_bytes".
    name: *const c_char,
    /// Such as "67108864".
    value: *const c_char,
}

/// What a transaction sees of others.
#[allow(non_camel_case_types, dead_code)] // of the header
#[repr(C)]
pub enum quench_isolation {
    /// The state of the moment at which it began; a conflict at the first row that others changed.
    QUENCH_SNAPSHOT = 0,
    /// As if transactions ran one after the other.
    QUENCH_SERIALIZABLE = 1,
    /// For each call what is committed then.
    QUENCH_READ_COMMITTED = 2,
}

/// What a commit waits for.
#[allow(non_camel_case_types, dead_code)] // of the header
#[repr(C)]
pub enum quench_durability {
    /// Until a power cut takes nothing back.
    QUENCH_DURABLE = 0,
    /// Until a crash of the process takes nothing back.
    QUENCH_WRITTEN = 1,
    /// Not at all: durable within the setting `loss_window`.
    QUENCH_BOUNDED_LOSS = 2,
    /// Not at all: durable with another write, a flush or a close.
    QUENCH_LAZY = 3,
}

/// Options of a transaction. Begin with QUENCH_OPTIONS_INIT and set fields.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Options {
    /// sizeof(quench_options).
    size: usize,
    /// A quench_isolation.
    isolation: c_int,
    /// A quench_durability.
    durability: c_int,
    /// 1: waits for rows of others instead of failing.
    pessimistic: c_int,
    /// 1: a pessimistic transaction releases its locks when it is durable, and not before.
    release_at_commit: c_int,
    /// 1: fails instead of waiting for a row or lock.
    no_wait: c_int,
    /// 1: every change is an error.
    read_only: c_int,
    /// From -128 to 127. Of transactions in a deadlock one with the lowest priority ends.
    priority: c_int,
    /// Microseconds to wait for one row or lock; 0: the setting `lock_wait`.
    lock_timeout_us: u64,
}

fn choice<T>(number: c_int, choices: impl IntoIterator<Item = T>, name: &str) -> Result<T> {
    let choice = usize::try_from(number).ok().and_then(|at| choices.into_iter().nth(at));
    choice.ok_or_else(|| Error::invalid(format!("the option `{name}` cannot be {number}")))
}

/// Returns the options of a caller.
///
/// # Errors
/// `InvalidArgument`.
pub fn options(given: *const Options) -> Answer<TransactionOptions> {
    if given.is_null() {
        return Ok(TransactionOptions::new());
    }
    let given = sized(given, "options")?;
    let isolations = [Isolation::Snapshot, Isolation::Serializable, Isolation::ReadCommitted];
    let levels = [Durability::Durable, Durability::Written, Durability::BoundedLoss, Durability::Lazy];
    let lockings = [Locking::Optimistic, Locking::Pessimistic];
    let releases = [LockRelease::PreCommit, LockRelease::Commit];
    let priority = i8::try_from(given.priority);
    let mut all = TransactionOptions::new()
        .isolation(choice(given.isolation, isolations, "isolation")?)
        .durability(choice(given.durability, levels, "durability")?)
        .locking(choice(given.pessimistic, lockings, "pessimistic")?)
        .lock_release(choice(given.release_at_commit, releases, "release_at_commit")?)
        .priority(priority.map_err(|_| Error::invalid("the option `priority` is from -128 to 127"))?);
    if given.lock_timeout_us > 0 {
        all = all.lock_timeout(Duration::from_micros(given.lock_timeout_us));
    }
    if choice(given.no_wait, [false, true], "no_wait")? {
        all = all.no_wait();
    }
    Ok(if choice(given.read_only, [false, true], "read_only")? { all.read_only() } else { all })
}

/// Returns settings of a caller.
///
/// # Errors
/// `InvalidArgument` that names the setting.
pub fn settings(given: *const Setting, count: usize) -> Answer<Settings> {
    let mut all = Settings::default();
    for setting in array(given, count, "settings")? {
        set(&mut all, terminated(setting.name, "name")?, terminated(setting.value, "value")?)?;
    }
    Ok(all)
}

fn wrong(name: &str, value: &str, form: &str) -> Error {
    Error::invalid(format!("the setting `{name}` cannot be `{value}`: it is {form}"))
}

fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T> {
    value.parse().map_err(|_| wrong(name, value, "a decimal number"))
}

fn switch(name: &str, value: &str) -> Result<bool> {
    value.parse().map_err(|_| wrong(name, value, "`true` or `false`"))
}

fn duration(name: &str, value: &str) -> Result<Duration> {
    let seconds = value.parse().ok().map(Duration::try_from_secs_f64);
    seconds.and_then(|seconds| seconds.ok()).ok_or_else(|| wrong(name, value, "a number of seconds"))
}

fn trust(name: &str, value: &str) -> Result<DeviceTrust> {
    match value {
        "auto" => Ok(DeviceTrust::Auto),
        "flush" => Ok(DeviceTrust::Flush),
        "device" => Ok(DeviceTrust::Device),
        _ => Err(wrong(name, value, "`auto`, `flush` or `device`")),
    }
}

fn set(all: &mut Settings, name: &str, value: &str) -> Result<()> {
    match name {
        "create" => all.create = switch(name, value)?,
        "read_only" => all.read_only = switch(name, value)?,
        "memory_bytes" => all.memory_bytes = number(name, value)?,
        "page_bytes" => all.page_bytes = number(name, value)?,
        "compression" => all.compression = Compression::from_name(value)?,
        "preset" => all.preset = Preset::from_name(value)?,
        "recovery_seconds" => all.recovery_seconds = number(name, value)?,
        "log_bytes_max" => all.log_bytes_max = number(name, value)?,
        "loss_window" => all.loss_window = duration(name, value)?,
        "lock_wait" => all.lock_wait = duration(name, value)?,
        "transact_wait" => all.transact_wait = Some(duration(name, value)?),
        "slow_commit_log" => all.slow_commit_log = Some(duration(name, value)?),
        "monitor" => all.monitor = switch(name, value)?,
        "version_bytes" => all.version_bytes = number(name, value)?,
        "logs" => all.logs = number(name, value)?,
        "segment_bytes" => all.segment_bytes = number(name, value)?,
        "trim_log" => all.trim_log = switch(name, value)?,
        "change_history_bytes" => all.change_history_bytes = number(name, value)?,
        "write_deadline" => all.write_deadline = duration(name, value)?,
        "device_trust" => all.device_trust = trust(name, value)?,
        "io_uring" => all.io_uring = switch(name, value)?,
        "object_cache" => all.object_cache = Some(value.into()),
        "object_cache_bytes" => all.object_cache_bytes = number(name, value)?,
        "log_memory" => all.log_memory = Some(value.into()),
        _ => {
            let error = Error::invalid(format!("there is no setting `{name}`"));
            return Err(error.with_advice("see the settings in the guide"));
        }
    }
    Ok(())
}
