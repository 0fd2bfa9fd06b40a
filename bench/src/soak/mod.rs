//! The state after hours of updates: space, written bytes, and damage.

use crate::place::Place;
use crate::plan::Plan;
use crate::process;
use crate::progress::Progress;
use crate::report::Report;
use crate::rows::KEY_BYTES;
use crate::scan::{self, Scanned};
use anyhow::Result;
use quenchdb::Database;
use serde::Serialize;
use std::fmt;

/// The report of a run and of the database after it.
#[derive(Clone, Debug, Serialize)]
pub struct SoakReport {
    /// The run.
    #[serde(flatten)]
    pub run: Report,
    /// Bytes of keys and values in the table.
    pub logical_bytes: u64,
    /// Bytes that the file system gives to page files, after the database was closed or killed.
    pub store_bytes_on_disk: u64,
    /// Bytes that it gives to log files.
    pub log_bytes_on_disk: u64,
    /// `store_bytes_on_disk` for each of `logical_bytes`.
    pub space_amplification: f64,
    /// In the measured time: bytes written to log and pages for each byte of keys and values that
    /// was written.
    pub write_amplification: f64,
    /// From the open to the end, loading and closing included: what the kernel counted as written
    /// by the process, for each byte of keys and values that was loaded or written. Preparing log
    /// segments counts here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_amplification_total: Option<f64>,
    /// Pages of trees that were checked.
    pub pages_checked: u64,
    /// Page images that were checked.
    pub stored_pages_checked: u64,
    /// Each damage with its place.
    pub problems: Vec<String>,
}

/// Space on disk, before the database is opened again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Space {
    store: u64,
    log: u64,
}

impl Space {
    /// Reads the space of the database in `place`.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of(place: &Place) -> Result<Space> {
        Ok(Space { store: place.bytes_in("pages")?, log: place.bytes_in("log")? })
    }
}

/// Bytes that the process had written before it opened the database.
#[derive(Clone, Copy, Debug)]
pub struct Written(u64);

impl Written {
    /// Returns the bytes written so far.
    #[must_use]
    pub fn now() -> Written {
        Written(process::written_bytes())
    }

    /// Returns the bytes since then for each of `logical`; `None` if the kernel does not count.
    #[must_use]
    pub fn amplification(self, logical: u64) -> Option<f64> {
        let bytes = process::written_bytes().saturating_sub(self.0);
        (bytes > 0 && logical > 0).then(|| bytes as f64 / logical as f64)
    }
}

fn row_problems(scanned: Scanned, plan: &Plan) -> impl Iterator<Item = String> {
    let absent = (scanned.rows != plan.rows).then(|| format!("{} rows, not {}", scanned.rows, plan.rows));
    let wrong =
        (scanned.wrong > 0).then(|| format!("{} rows with a value that no transaction wrote", scanned.wrong));
    absent.into_iter().chain(wrong)
}

/// Checks the whole reopened `database`, and completes the report of the `run`.
///
/// # Errors
/// The check cannot be made. Damage is in the report.
pub fn judge(
    database: &Database,
    plan: &Plan,
    run: Report,
    space: Space,
    write_amplification_total: Option<f64>,
    verify_progress: Option<quenchdb::Progress>,
    progress: Progress<'_>,
) -> Result<SoakReport> {
    let scanned = scan::scan(database, plan, true, progress)?;
    let verified = database.verify(verify_progress)?;
    let sampled = run.reopened.iter().filter(|reopened| !reopened.is_sound());
    let problems = verified
        .problems
        .into_iter()
        .chain(row_problems(scanned, plan))
        .chain(
            sampled.map(|r| format!("of a sample {} rows are missing and {} are wrong", r.missing, r.wrong)),
        )
        .collect();
    let written = (run.device_bytes + run.store_bytes_written) as f64;
    Ok(SoakReport {
        logical_bytes: scanned.bytes,
        store_bytes_on_disk: space.store,
        log_bytes_on_disk: space.log,
        space_amplification: space.store as f64 / scanned.bytes.max(1) as f64,
        write_amplification: written / run.logical_bytes_written.max(1) as f64,
        write_amplification_total,
        pages_checked: verified.pages,
        stored_pages_checked: verified.stored_pages,
        problems,
        run,
    })
}

/// Returns the bytes of keys and values that the plan loads.
#[must_use]
pub fn loaded_bytes(plan: &Plan) -> u64 {
    plan.rows * (KEY_BYTES + plan.value_bytes) as u64
}

impl fmt::Display for SoakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        write!(f, "{}", self.run)?;
        writeln!(
            f,
            "  on disk: pages {:.1} MB, log {:.1} MB; {:.1} MB of rows: {:.2} bytes of pages for each",
            mb(self.store_bytes_on_disk),
            mb(self.log_bytes_on_disk),
            mb(self.logical_bytes),
            self.space_amplification
        )?;
        write!(f, "  written to the device: {:.2} bytes for each byte of a row", self.write_amplification)?;
        match self.write_amplification_total {
            Some(total) => writeln!(f, " ({total:.2} with load, log segments and close)")?,
            None => writeln!(f)?,
        }
        for problem in &self.problems {
            writeln!(f, "  damaged: {problem}")?;
        }
        writeln!(
            f,
            "  {}: {} pages, {} stored pages checked",
            if self.problems.is_empty() { "sound" } else { "NOT SOUND" },
            self.pages_checked,
            self.stored_pages_checked
        )
    }
}
