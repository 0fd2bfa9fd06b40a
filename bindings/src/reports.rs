//! Backups, checks and numbers. Each call returns a report in JSON.

use quenchdb::{
    BackupOptions, Builder, Csn, Database, Place, Progress, RestoreOptions, Result, Settings,
    StandbyStatistics, VerifyReport,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Makes a checkpoint now.
///
/// # Errors
/// Those of the engine, as for all functions here.
pub fn checkpoint(db: &Database) -> Result<Value> {
    let made = db.checkpoint()?;
    Ok(json!({
        "csn": made.csn.0, "pages_written": made.pages_written, "pages_rewritten": made.pages_rewritten,
        "bytes_written": made.bytes_written, "seconds": made.seconds,
    }))
}

/// Gives space of the file of pages back.
///
/// # Errors
/// See [`checkpoint`].
pub fn compact(db: &Database, progress: Option<Progress>) -> Result<Value> {
    let made = db.compact(progress)?;
    Ok(json!({
        "bytes_before": made.bytes_before, "bytes_after": made.bytes_after, "bytes_used": made.bytes_used,
        "pages_moved": made.pages_moved, "seconds": made.seconds,
    }))
}

/// Copies the database to an empty directory; with `base`, only what has changed since that backup.
///
/// # Errors
/// See [`checkpoint`].
pub fn backup(
    db: &Database,
    target: &Path,
    base: Option<&Path>,
    newest_checkpoint: bool,
    progress: Option<Progress>,
) -> Result<Value> {
    let options = BackupOptions::default().with(|options| {
        options.base = base.map(Place::from);
        options.newest_checkpoint = newest_checkpoint;
        options.progress = progress;
    });
    let made = db.backup(target, options)?;
    Ok(json!({
        "csn": made.csn.0, "pages": made.pages, "pages_copied": made.pages_copied, "bytes": made.bytes,
        "base_csn": made.base_csn.map(|csn| csn.0), "seconds": made.seconds,
    }))
}

/// What a restore needs beside the backups and the target.
#[derive(Default)]
pub struct Restore {
    /// The directory of the original, whose log is replayed.
    pub log: Option<PathBuf>,
    /// The last transaction that is replayed.
    pub to: Option<Csn>,
    /// Those of the new database.
    pub settings: Settings,
    /// Called now and then.
    pub progress: Option<Progress>,
}

/// Makes a database of a full backup and the increments that follow it.
///
/// # Errors
/// See [`checkpoint`].
pub fn restore(backups: Vec<PathBuf>, target: &Path, given: Restore) -> Result<Value> {
    let options = RestoreOptions::default().with(|options| {
        options.log = given.log.map(Place::from);
        options.to = given.to;
        options.settings = given.settings;
        options.progress = given.progress;
    });
    let made = Database::restore(backups, target, options)?;
    Ok(json!({
        "csn": made.csn.0, "pages": made.pages, "bytes": made.bytes, "replayed": made.replayed,
        "seconds": made.seconds,
    }))
}

fn verified(made: &VerifyReport) -> Value {
    json!({
        "result": made.class().name(), "advice": made.advice(), "tables": made.tables, "pages": made.pages,
        "large_values": made.large_values, "entries": made.entries, "stored_pages": made.stored_pages,
        "log_blocks": made.log_blocks, "log_records": made.log_records,
        "weaknesses": &made.weaknesses, "problems": &made.problems,
    })
}

/// Checks the whole database while transactions continue.
///
/// # Errors
/// See [`checkpoint`].
pub fn verify(db: &Database, progress: Option<Progress>) -> Result<Value> {
    Ok(verified(&db.verify(progress)?))
}

/// Checks a database that no process has open for writing.
///
/// # Errors
/// See [`checkpoint`].
pub fn verify_path(path: &Path, settings: Settings, progress: Option<Progress>) -> Result<Value> {
    Ok(verified(&Builder::default().settings(settings).verify(path, progress)?))
}

/// Returns whether a report of a verification has no problems.
#[must_use]
pub fn is_sound(report: &Value) -> bool {
    report["problems"].as_array().is_some_and(Vec::is_empty)
}

/// Returns the statistics.
#[must_use]
pub fn statistics(db: &Database) -> Value {
    serde_json::to_value(db.statistics()).unwrap_or_default()
}

/// Returns whether the database works.
#[must_use]
pub fn health(db: &Database) -> Value {
    let health = db.health();
    json!({ "state": health.state.name(), "reasons": health.reasons, "seconds": health.seconds })
}

/// Returns limits and numbers of the open database.
#[must_use]
pub fn facts(db: &Database) -> Value {
    json!({
        "max_key_bytes": db.max_key_bytes(), "max_value_bytes": quenchdb::VALUE_BYTES_MAX,
        "checkpoint_csn": db.checkpoint_csn().0, "open_line": db.open_line(),
    })
}

/// Returns how far a standby is.
#[must_use]
pub fn standby(made: &StandbyStatistics) -> Value {
    json!({
        "csn": made.csn.0, "newest_csn": made.newest_csn.0, "lag_csns": made.lag_csns,
        "lag": made.lag.as_secs_f64(), "transactions": made.transactions, "new_bases": made.new_bases,
        "base_csn": made.base_csn.0, "failure": made.failure.as_ref().map(ToString::to_string),
    })
}
