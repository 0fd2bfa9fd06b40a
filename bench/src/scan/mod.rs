//! Reads a whole table once, in key order, by several threads with a range each.

use crate::driver::{Finished, WhileWorking};
use crate::place::Place;
use crate::plan::Plan;
use crate::process::{MemoryWatch, cpu_seconds};
use crate::progress::Progress;
use crate::reads::ReadLine;
use crate::rows::Shape;
use crate::ycsb;
use anyhow::{Result, anyhow};
use quenchdb::{Builder, Database, Snapshot, Table};
use serde::Serialize;
use std::fmt;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The rows of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Scanned {
    /// Rows.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Rows with a value that no transaction wrote. Counted only if the scan checks values.
    pub wrong: u64,
}

impl Scanned {
    fn and(self, other: Scanned) -> Scanned {
        Scanned {
            rows: self.rows + other.rows,
            bytes: self.bytes + other.bytes,
            wrong: self.wrong + other.wrong,
        }
    }
}

/// Rows between two updates of the progress.
const STEP: u64 = 4096;

fn scan_range(
    snapshot: &Snapshot,
    table: &Table,
    range: (Bound<[u8; 8]>, Bound<[u8; 8]>),
    check: Option<Shape>,
    scanned_more: impl Fn(u64),
) -> quenchdb::Result<Scanned> {
    let mut scanned = Scanned::default();
    let mut rows = snapshot.range(table, range);
    while let Some(row) = rows.next_row() {
        let (key, value) = row?;
        scanned.rows += 1;
        scanned.bytes += (key.len() + value.len()) as u64;
        if let Some(shape) = check {
            let key = <[u8; 8]>::try_from(key).map(u64::from_be_bytes);
            scanned.wrong += u64::from(!key.is_ok_and(|key| shape.is_value_of(key, value)));
        }
        if scanned.rows.is_multiple_of(STEP) {
            scanned_more(STEP);
        }
    }
    Ok(scanned)
}

/// Scans the table of loaded rows once. With `check`, compares every value with its key.
///
/// # Errors
/// Those of the engine.
pub fn scan(database: &Database, plan: &Plan, check: bool, progress: Progress<'_>) -> Result<Scanned> {
    let table = database.table(ycsb::TABLE)?;
    let snapshot = database.begin_read()?;
    let share = plan.rows.div_ceil(plan.threads as u64).max(1);
    let (done, check) = (AtomicU64::new(0), check.then_some(plan.shape()));
    let scan_part = |index: u64| {
        let from = Bound::Included((index * share).to_be_bytes());
        let last = index + 1 == plan.threads as u64;
        let to = if last { Bound::Unbounded } else { Bound::Excluded(((index + 1) * share).to_be_bytes()) };
        scan_range(&snapshot, &table, (from, to), check, |rows| {
            let done = done.fetch_add(rows, Ordering::Relaxed);
            if index == 0 {
                progress("scanning", done, plan.rows);
            }
        })
    };
    std::thread::scope(|scope| {
        let scan_part = &scan_part;
        let threads: Vec<_> =
            (0..plan.threads as u64).map(|index| scope.spawn(move || scan_part(index))).collect();
        threads.into_iter().try_fold(Scanned::default(), |sum, thread| {
            Ok(sum.and(thread.join().map_err(|_| anyhow!("a scanner panicked"))??))
        })
    })
}

/// Loads the rows and checkpoints; then calls `while_working`, if given, before anything is closed.
///
/// # Errors
/// Those of the engine, and of `while_working`.
pub fn prepare(
    database: &Database,
    plan: &Plan,
    while_working: Option<WhileWorking<'_>>,
    progress: Progress<'_>,
) -> Result<Finished> {
    ycsb::prepare(database, plan, true, progress)?;
    let finished = Finished::default();
    if let Some(report_to) = while_working {
        report_to(&finished)?;
    }
    Ok(finished)
}

/// The report of a scan with no page in memory at the begin.
#[derive(Clone, Debug, Serialize)]
pub struct ScanReport {
    /// `scan`.
    pub workload: &'static str,
    /// Name of the device.
    pub device: String,
    /// Threads, each with a range of its own.
    pub threads: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Memory for pages that the database was opened with.
    pub memory_bytes: u64,
    /// Rows and bytes of the scan.
    #[serde(flatten)]
    pub scanned: Scanned,
    /// Loaded rows; must equal `rows`.
    pub rows_loaded: u64,
    /// Time of the open in seconds.
    pub open_seconds: f64,
    /// Transactions that the open replayed.
    pub replayed: u64,
    /// Time of the scan in seconds.
    pub seconds: f64,
    /// Rows per second.
    pub rows_per_second: f64,
    /// Bytes of keys and values per second.
    pub bytes_per_second: f64,
    /// Reads of pages from the device.
    pub device_reads: u64,
    /// Bytes of these reads.
    pub device_read_bytes: u64,
    /// Processor time of the scan.
    pub cpu_seconds: f64,
    /// Most memory of this process from the open on. Includes what the allocator kept of the load,
    /// if one process did both.
    pub rss_bytes_max: u64,
    /// Sequential reads of 1 MiB of the same file by as many threads, measured just after.
    pub floor: ReadLine,
}

impl ScanReport {
    /// Returns whether the scan found every loaded row.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.scanned.rows == self.rows_loaded && self.scanned.wrong == 0
    }
}

/// Opens the database in `place` and scans it once, then calls `floor`.
///
/// # Errors
/// Those of the engine and the device.
pub fn run(
    builder: Builder,
    place: &Place,
    plan: &Plan,
    floor: impl FnOnce() -> Result<ReadLine>,
    progress: Progress<'_>,
) -> Result<ScanReport> {
    let watch = MemoryWatch::start()?;
    let opened = Instant::now();
    let database = place.open(builder)?;
    let (open_seconds, replayed) = (opened.elapsed().as_secs_f64(), database.recovery().replayed);
    let (before, cpu, began) = (database.statistics(), cpu_seconds(), Instant::now());
    let scanned = scan(&database, plan, false, progress)?;
    let (seconds, cpu_seconds) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let (s, rss_bytes_max) = (database.statistics(), watch.bytes_max());
    database.close()?;
    Ok(ScanReport {
        workload: "scan",
        device: place.device_name()?,
        threads: plan.threads,
        value_bytes: plan.value_bytes,
        memory_bytes: plan.memory_bytes,
        scanned,
        rows_loaded: plan.rows,
        open_seconds,
        replayed,
        seconds,
        rows_per_second: scanned.rows as f64 / seconds,
        bytes_per_second: scanned.bytes as f64 / seconds,
        device_reads: s.store_reads - before.store_reads,
        device_read_bytes: s.store_read_bytes - before.store_read_bytes,
        cpu_seconds,
        rss_bytes_max,
        floor: floor()?,
    })
}

impl fmt::Display for ScanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mb = |bytes: f64| bytes / 1e6;
        writeln!(
            f,
            "scan: {} threads, device {}, {} of {} rows in {:.2} s ({:.2} s of processor time)",
            self.threads, self.device, self.scanned.rows, self.rows_loaded, self.seconds, self.cpu_seconds
        )?;
        writeln!(
            f,
            "  {:.0} rows/s, {:.1} MB/s of keys and values",
            self.rows_per_second,
            mb(self.bytes_per_second)
        )?;
        writeln!(
            f,
            "  pages: {} reads, {:.1} MB, {:.1} MB/s; floor {:.1} MB/s (1 MiB reads, {} threads)",
            self.device_reads,
            mb(self.device_read_bytes as f64),
            mb(self.device_read_bytes as f64) / self.seconds,
            mb(self.floor.bytes_per_second),
            self.floor.readers
        )?;
        writeln!(
            f,
            "  opened in {:.3} s, {} replayed; memory {:.0} MB (pages: {:.0} MB allowed)",
            self.open_seconds,
            self.replayed,
            mb(self.rss_bytes_max as f64),
            mb(self.memory_bytes as f64)
        )
    }
}
