//! Settings as texts, and options of transactions.

use crate::boundary::{Answer, array, sized, terminated};
use quenchdb::{Settings, TransactionOptions};
use quenchdb_bindings::{Value, option, set};
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

/// Returns the options of a caller.
///
/// # Errors
/// `InvalidArgument`.
pub fn options(given: *const Options) -> Answer<TransactionOptions> {
    if given.is_null() {
        return Ok(TransactionOptions::new());
    }
    let given = sized(given, "options")?;
    let mut all = TransactionOptions::new();
    let places = [
        ("isolation", given.isolation),
        ("durability", given.durability),
        ("locking", given.pessimistic),
        ("lock_release", given.release_at_commit),
        ("no_wait", given.no_wait),
        ("read_only", given.read_only),
    ];
    for (name, place) in places {
        all = option(all, name, Value::Place(place.into())).map_err(quenchdb::Error::from)?;
    }
    all = option(all, "priority", Value::Number(given.priority.into())).map_err(quenchdb::Error::from)?;
    let timeout = Duration::from_micros(given.lock_timeout_us);
    Ok(if timeout.is_zero() { all } else { all.lock_timeout(timeout) })
}

/// Returns settings of a caller.
///
/// # Errors
/// `InvalidArgument` that names the setting.
pub fn settings(given: *const Setting, count: usize) -> Answer<Settings> {
    let mut all = Settings::default();
    for setting in array(given, count, "settings")? {
        let (name, value) = (terminated(setting.name, "name")?, terminated(setting.value, "value")?);
        set(&mut all, name, Value::Text(value)).map_err(quenchdb::Error::from)?;
    }
    Ok(all)
}
