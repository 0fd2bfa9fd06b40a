//! Backups, checks and numbers. Reports are texts in JSON, for quench_free; their address may be
//! NULL.

use crate::boundary::{Answer, array, borrow, call, give, give_copy};
use crate::database::{Database, ProgressFunction, path, progress};
use crate::error::{Error, Failure};
use crate::read::Bytes;
use crate::settings::{Setting, settings};
use quenchdb::{BackupOptions, Builder, Csn, Place, RestoreOptions, VerifyReport};
use serde_json::{Value, json};
use std::ffi::{c_char, c_int, c_void};
use std::path::PathBuf;

fn give_json(value: &Value, to: *mut *mut c_char) -> Answer {
    give_copy(value.to_string().as_bytes(), to.cast(), std::ptr::null_mut())
}

/// Makes everything committed so far durable, of all levels and threads.
/// Threads: any; so for all functions of this section.
#[unsafe(no_mangle)]
pub extern "C" fn quench_flush(database: Option<&Database>, error: *mut *mut Error) -> c_int {
    call(error, || Ok(borrow(database, "database")?.database.flush()?))
}

/// Makes a checkpoint now: the next recovery starts there. Report: csn, pages_written,
/// bytes_written, pages_rewritten, seconds.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_checkpoint(
    database: Option<&Database>, report: *mut *mut c_char, error: *mut *mut Error,
) -> c_int {
    give(report, std::ptr::null_mut());
    call(error, || {
        let made = borrow(database, "database")?.database.checkpoint()?;
        let json = json!({
            "csn": made.csn.0, "pages_written": made.pages_written, "pages_rewritten": made.pages_rewritten,
            "bytes_written": made.bytes_written, "seconds": made.seconds,
        });
        give_json(&json, report)
    })
}

/// Gives space of the file of pages back. Report: bytes_before, bytes_after, bytes_used,
/// pages_moved, seconds.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_compact(
    database: Option<&Database>, progress: ProgressFunction, context: *mut c_void, report: *mut *mut c_char,
    error: *mut *mut Error,
) -> c_int {
    give(report, std::ptr::null_mut());
    call(error, || {
        let made = borrow(database, "database")?.database.compact(self::progress(progress, context))?;
        let json = json!({
            "bytes_before": made.bytes_before, "bytes_after": made.bytes_after, "bytes_used": made.bytes_used,
            "pages_moved": made.pages_moved, "seconds": made.seconds,
        });
        give_json(&json, report)
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
    give(report, std::ptr::null_mut());
    call(error, || {
        let target = path(target, target_bytes, "target")?;
        let base = if base.is_null() { None } else { Some(path(base, base_bytes, "base")?) };
        let options = BackupOptions::default().with(|options| {
            options.base = base.map(Place::from);
            options.progress = self::progress(progress, context);
        });
        let made = borrow(database, "database")?.database.backup(target, options)?;
        let json = json!({
            "csn": made.csn.0, "pages": made.pages, "pages_copied": made.pages_copied, "bytes": made.bytes,
            "base_csn": made.base_csn.map(|csn| csn.0), "seconds": made.seconds,
        });
        give_json(&json, report)
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
    give(report, std::ptr::null_mut());
    call(error, || {
        let backups = array(backups, backups_count, "backups")?.iter();
        let backups =
            backups.map(|backup| Ok(path(backup.data.cast(), backup.size, "backups")?.to_path_buf()));
        let backups = backups.collect::<Answer<Vec<PathBuf>>>()?;
        let log = if log.is_null() { None } else { Some(path(log, log_bytes, "log")?) };
        let settings = self::settings(settings, settings_count)?;
        let options = RestoreOptions::default().with(|options| {
            options.log = log.map(Place::from);
            options.to = (to > 0).then_some(Csn(to));
            options.settings = settings;
        });
        let made = quenchdb::Database::restore(backups, path(target, target_bytes, "target")?, options)?;
        let json = json!({
            "csn": made.csn.0, "pages": made.pages, "bytes": made.bytes, "replayed": made.replayed,
            "seconds": made.seconds,
        });
        give_json(&json, report)
    })
}

fn verified(made: &VerifyReport, report: *mut *mut c_char) -> Answer<bool> {
    let json = json!({
        "result": made.class().name(), "advice": made.advice(), "tables": made.tables, "pages": made.pages,
        "large_values": made.large_values, "entries": made.entries, "stored_pages": made.stored_pages,
        "log_blocks": made.log_blocks, "log_records": made.log_records,
        "weaknesses": &made.weaknesses, "problems": &made.problems,
    });
    give_json(&json, report)?;
    Ok(made.problems.is_empty())
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
        verified(&borrow(database, "database")?.database.verify(self::progress(progress, context))?, report)
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
        let builder = Builder::default().settings(self::settings(settings, settings_count)?);
        verified(&builder.verify(self::path(path, path_bytes, "path")?, None)?, report)
    })
}

/// Returns the statistics in JSON, for quench_free.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_statistics(
    database: Option<&Database>, json: *mut *mut c_char, error: *mut *mut Error,
) -> c_int {
    give(json, std::ptr::null_mut());
    call(error, || {
        let statistics = borrow(database, "database")?.database.statistics();
        let value = serde_json::to_value(&statistics).map_err(|error| Failure::Panic(error.to_string()))?;
        give_json(&value, json)
    })
}

/// Returns the statistics in the format of Prometheus, for quench_free.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_prometheus(
    database: Option<&Database>, text: *mut *mut c_char, error: *mut *mut Error,
) -> c_int {
    give(text, std::ptr::null_mut());
    call(error, || {
        let lines = borrow(database, "database")?.database.statistics().prometheus();
        give_copy(lines.as_bytes(), text.cast(), std::ptr::null_mut())
    })
}

/// Resets latencies and some counters, between a warm-up and a measurement.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_reset_statistics(database: Option<&Database>, error: *mut *mut Error) -> c_int {
    call(error, || {
        borrow(database, "database")?.database.reset_statistics();
        Ok(())
    })
}

/// Returns whether the database works, in JSON, for quench_free: state, reasons, seconds.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_health(
    database: Option<&Database>, json: *mut *mut c_char, error: *mut *mut Error,
) -> c_int {
    give(json, std::ptr::null_mut());
    call(error, || {
        let health = borrow(database, "database")?.database.health();
        let (state, reasons, seconds) = (health.state.name(), health.reasons, health.seconds);
        give_json(&json!({ "state": state, "reasons": reasons, "seconds": seconds }), json)
    })
}

/// Returns limits and numbers of the open database in JSON, for quench_free: max_key_bytes,
/// max_value_bytes, checkpoint_csn, open_line.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn quench_facts(
    database: Option<&Database>, json: *mut *mut c_char, error: *mut *mut Error,
) -> c_int {
    give(json, std::ptr::null_mut());
    call(error, || {
        let database = &borrow(database, "database")?.database;
        let facts = json!({
            "max_key_bytes": database.max_key_bytes(), "max_value_bytes": quenchdb::VALUE_BYTES_MAX,
            "checkpoint_csn": database.checkpoint_csn().0, "open_line": database.open_line(),
        });
        give_json(&facts, json)
    })
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
