//! Backups, checks and numbers. Reports are texts in JSON, for quench_free; their address may be
//! NULL.

use crate::boundary::{Answer, array, call, give, give_copy};
use crate::database::{self, Database, ProgressFunction, path, progress};
use crate::error::Error;
use crate::read::Bytes;
use crate::settings::{Setting, settings};
use quenchdb::Csn;
use quenchdb_bindings::reports::{self, Restore};
use serde_json::Value;
use std::ffi::{c_char, c_int, c_void};

/// Gives a report.
pub fn give_json(value: &Value, to: *mut *mut c_char) -> Answer {
    give_copy(value.to_string().as_bytes(), to.cast(), std::ptr::null_mut())
}

/// Runs the body of a function that gives a report.
pub fn report_of(
    to: *mut *mut c_char, error: *mut *mut Error, make: impl FnOnce() -> Answer<Value>,
) -> c_int {
    give(to, std::ptr::null_mut());
    call(error, || give_json(&make()?, to))
}

/// Makes everything committed so far durable, of all levels and threads.
/// Threads: any; so for all functions of this section.
#[unsafe(no_mangle)]
pub extern "C" fn quench_flush(database: Option<&Database>, error: *mut *mut Error) -> c_int {
    call(error, || Ok(database::of(database)?.flush()?))
}

/// Makes a checkpoint now: the next recovery starts there. Report: csn, pages_written,
/// bytes_written, pages_rewritten, seconds.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_checkpoint(
    database: Option<&Database>, report: *mut *mut c_char, error: *mut *mut Error,
) -> c_int {
    report_of(report, error, || Ok(reports::checkpoint(database::of(database)?)?))
}

/// Gives space of the file of pages back. Report: bytes_before, bytes_after, bytes_used,
/// pages_moved, seconds.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_compact(
    database: Option<&Database>, progress: ProgressFunction, context: *mut c_void, report: *mut *mut c_char,
    error: *mut *mut Error,
) -> c_int {
    report_of(report, error, || {
        Ok(reports::compact(database::of(database)?, self::progress(progress, context))?)
    })
}

/// Copies the database to an empty directory while transactions continue. With `base`, an earlier
/// backup, copies only what has changed since; it may be NULL. Report: csn, pages, pages_copied,
/// bytes, base_csn, seconds.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_backup(
    database: Option<&Database>, target: *const c_char, target_bytes: usize, base: *const c_char,
    base_bytes: usize, progress: ProgressFunction, context: *mut c_void, report: *mut *mut c_char,
    error: *mut *mut Error,
) -> c_int {
    report_of(report, error, || {
        let (target, progress) = (path(target, target_bytes, "target")?, self::progress(progress, context));
        let base = if base.is_null() { None } else { Some(path(base, base_bytes, "base")?) };
        Ok(reports::backup(database::of(database)?, target, base, false, progress)?)
    })
}

/// Makes a database of a full backup and the increments that follow it. With `log`, the directory
/// of the original, what came after the last backup is replayed, up to the CSN `to` if it is not 0;
/// `log` may be NULL. Report: csn, pages, bytes, replayed, seconds.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_restore(
    backups: *const Bytes, backups_count: usize, target: *const c_char, target_bytes: usize,
    log: *const c_char, log_bytes: usize, to: u64, settings: *const Setting, settings_count: usize,
    report: *mut *mut c_char, error: *mut *mut Error,
) -> c_int {
    report_of(report, error, || {
        let own = |data, size, name| Ok(path(data, size, name)?.to_path_buf());
        let backups = array(backups, backups_count, "backups")?.iter();
        let backups = backups.map(|backup| own(backup.data.cast(), backup.size, "backups"));
        let log = if log.is_null() { None } else { Some(own(log, log_bytes, "log")?) };
        let (to, settings) = ((to > 0).then_some(Csn(to)), self::settings(settings, settings_count)?);
        let given = Restore { log, to, settings, progress: None };
        Ok(reports::restore(backups.collect::<Answer<_>>()?, path(target, target_bytes, "target")?, given)?)
    })
}

/// Checks the whole database while transactions continue. Returns 1 if nothing is wrong. Report:
/// result, advice, problems, weaknesses, and numbers of what was checked.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_verify(
    database: Option<&Database>, progress: ProgressFunction, context: *mut c_void, report: *mut *mut c_char,
    error: *mut *mut Error,
) -> c_int {
    give(report, std::ptr::null_mut());
    call(error, || {
        let made = reports::verify(database::of(database)?, self::progress(progress, context))?;
        give_json(&made, report)?;
        Ok(reports::is_sound(&made))
    })
}

/// Checks a database that no process has open for writing, as quench_verify. Damage because of
/// which an open is refused is part of the report.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_verify_path(
    path: *const c_char, path_bytes: usize, settings: *const Setting, settings_count: usize,
    report: *mut *mut c_char, error: *mut *mut Error,
) -> c_int {
    give(report, std::ptr::null_mut());
    call(error, || {
        let (path, settings) =
            (self::path(path, path_bytes, "path")?, self::settings(settings, settings_count)?);
        let made = reports::verify_path(path, settings, None)?;
        give_json(&made, report)?;
        Ok(reports::is_sound(&made))
    })
}

/// Returns the statistics in JSON, for quench_free.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_statistics(
    database: Option<&Database>, json: *mut *mut c_char, error: *mut *mut Error,
) -> c_int {
    report_of(json, error, || Ok(reports::statistics(database::of(database)?)))
}

/// Returns the statistics in the format of Prometheus, for quench_free.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_prometheus(
    database: Option<&Database>, text: *mut *mut c_char, error: *mut *mut Error,
) -> c_int {
    give(text, std::ptr::null_mut());
    call(error, || {
        let lines = database::of(database)?.statistics().prometheus();
        give_copy(lines.as_bytes(), text.cast(), std::ptr::null_mut())
    })
}

/// Resets latencies and some counters, between a warm-up and a measurement.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_reset_statistics(database: Option<&Database>, error: *mut *mut Error) -> c_int {
    call(error, || {
        database::of(database)?.reset_statistics();
        Ok(())
    })
}

/// Returns whether the database works, in JSON, for quench_free: state, reasons, seconds.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_health(
    database: Option<&Database>, json: *mut *mut c_char, error: *mut *mut Error,
) -> c_int {
    report_of(json, error, || Ok(reports::health(database::of(database)?)))
}

/// Returns limits and numbers of the open database in JSON, for quench_free: max_key_bytes,
/// max_value_bytes, checkpoint_csn, open_line.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_facts(
    database: Option<&Database>, json: *mut *mut c_char, error: *mut *mut Error,
) -> c_int {
    report_of(json, error, || Ok(reports::facts(database::of(database)?)))
}

/// Asks the process that has a database open for its statistics, in JSON, for quench_free.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_ask_statistics(
    path: *const c_char, path_bytes: usize, json: *mut *mut c_char, error: *mut *mut Error,
) -> c_int {
    give(json, std::ptr::null_mut());
    call(error, || {
        let answer = quenchdb::Database::ask_statistics(self::path(path, path_bytes, "path")?)?;
        give_copy(answer.as_bytes(), json.cast(), std::ptr::null_mut())
    })
}
