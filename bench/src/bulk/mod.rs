//! Loads rows as fast as possible: 8 bytes of key and a value, by several threads, many rows a
//! transaction.
//!
//! ```text
//!   threads claim parts ─▶ lazy transactions of --batch rows ─▶ flush: all durable ─▶ checkpoint
//!   └─────────────── seconds, rows_per_second ────────────────────────────────────┘            │
//!   └─────────────── with_checkpoint_seconds ──────────────────────────────────────────────────┘
//! ```
//! A row counts as loaded when the flush at the end has made it durable in the log. The checkpoint
//! that follows writes the rows to the file of pages; its time is separate. Automatic checkpoints
//! during the load are part of the time.

use crate::checked::Checked;
use crate::distribution::scrambled;
use crate::parallel::in_parallel;
use crate::plan::Plan;
use crate::process::cpu_seconds;
use crate::progress::Progress;
use crate::rows::{KEY_BYTES, Shape};
use crate::store::{Error, Level, Reader, Session, Step, Store, Transaction};
use anyhow::{Context, Result};
use quenchdb::internals::base::random::Random;
use serde::Serialize;
use std::fmt;
use std::time::Instant;

/// The table of the rows.
pub const TABLE: &str = "load";

/// The order of the keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Ascending within a part, and the parts ascending: big-endian row numbers.
    Key,
    /// Random: the row numbers, permuted.
    Random,
}

impl Order {
    /// Returns the key of row `number`.
    #[must_use]
    pub fn key(self, number: u64) -> u64 {
        match self {
            Order::Key => number,
            Order::Random => scrambled(number),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Order::Key => "key",
            Order::Random => "random",
        }
    }
}

/// Parameters of a load besides the plan.
#[derive(Clone, Copy, Debug)]
pub struct Bulk {
    /// Order of the keys.
    pub order: Order,
    /// Rows of one transaction, at least 1.
    pub batch: u64,
}

/// Default number of rows of a transaction.
pub const BATCH: u64 = 500;
/// Approximate rows of a part: one range of keys, so that threads load into different leaves.
const PART_ROWS: u64 = 50_000;

/// The result of a load.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BulkReport {
    /// `load`.
    pub workload: &'static str,
    /// Name of the device.
    pub device: String,
    /// `key` or `random`.
    pub order: &'static str,
    /// Threads.
    pub threads: usize,
    /// Rows of a transaction.
    pub batch: u64,
    /// Commit protocol.
    pub preset: String,
    /// How writes became durable.
    pub durability: String,
    /// Memory that the database was opened with.
    pub memory_bytes: u64,
    /// Rows.
    pub rows: u64,
    /// Bytes of a value; a key has 8.
    pub value_bytes: usize,
    /// Seconds until all rows were durable in the log.
    pub seconds: f64,
    /// Seconds of the flush at the end.
    pub flush_seconds: f64,
    /// Rows loaded per second.
    pub rows_per_second: f64,
    /// Bytes of keys and values loaded per second.
    pub bytes_per_second: f64,
    /// Seconds until a checkpoint contained all rows.
    pub with_checkpoint_seconds: f64,
    /// Rows per second until then.
    pub with_checkpoint_rows_per_second: f64,
    /// Conflicts; the batch was loaded again.
    pub conflicts: u64,
    /// Automatic checkpoints during the load.
    pub checkpoints: u64,
    /// Time of these checkpoints in seconds.
    pub checkpoint_seconds: f64,
    /// Bytes of log records.
    pub log_bytes: u64,
    /// Bytes written to the log's device.
    pub device_bytes: u64,
    /// Writes of the log.
    pub device_writes: u64,
    /// Bytes written to the file of pages, the checkpoint at the end included.
    pub store_bytes_written: u64,
    /// Processor time until all rows were durable.
    pub cpu_seconds: f64,
    /// Processor time of a row in microseconds.
    pub cpu_us_per_row: f64,
    /// Most memory of the process.
    pub rss_bytes_max: u64,
    /// A durable 4 KiB write of one thread, just before.
    pub floor_us: crate::report::Floor,
    /// With `--check`: whether the table contains all rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<Checked>,
}

fn load_batch<S: Session>(
    session: &mut S,
    table: &S::Table,
    (shape, order): (Shape, Order),
    rows: std::ops::Range<u64>,
    random: &mut Random,
    value: &mut [u8],
) -> crate::store::Result<()> {
    let mut transaction = session.begin()?;
    if order == Order::Random {
        let keys: Vec<_> = rows.clone().map(|row| order.key(row).to_be_bytes()).collect();
        transaction.prefetch(table, &keys)?;
    }
    for row in rows {
        let key = order.key(row);
        shape.fill(random, key, value);
        transaction.insert(table, &key.to_be_bytes(), value)?;
    }
    transaction.commit()
}

/// Loads the rows of the plan into [`TABLE`].
///
/// # Errors
/// Those of the store.
pub fn run<S: Store>(store: &S, plan: &Plan, bulk: Bulk, progress: Progress<'_>) -> Result<BulkReport> {
    let (table, shape) = (store.table(TABLE)?, plan.shape());
    let (before, cpu, began) = (store.figures(), cpu_seconds(), Instant::now());
    let part_rows = PART_ROWS.div_ceil(bulk.batch) * bulk.batch;
    let load_part = |part: u64| -> Result<u64> {
        let mut random = Random::from_seed(plan.seed ^ ((part + 1) << 32));
        let (mut session, mut value) = (store.session(Level::Lazy)?, vec![0; plan.value_bytes]);
        let (end, mut conflicts) = (((part + 1) * part_rows).min(plan.rows), 0);
        for row in (part * part_rows..end).step_by(bulk.batch as usize) {
            let rows = row..(row + bulk.batch).min(end);
            loop {
                match load_batch(
                    &mut session,
                    &table,
                    (shape, bulk.order),
                    rows.clone(),
                    &mut random,
                    &mut value,
                ) {
                    Err(Error::Conflict) => conflicts += 1,
                    other => break other.map_err(Error::into_failure).context("loading failed")?,
                }
            }
        }
        Ok(conflicts)
    };
    let parts = plan.rows.div_ceil(part_rows);
    let conflicts = in_parallel(plan.threads, parts, crate::load::LOADING, progress, load_part)?;
    let inserted = began.elapsed().as_secs_f64();
    store.make_durable()?;
    let (seconds, cpu_seconds, loaded) =
        (began.elapsed().as_secs_f64(), cpu_seconds() - cpu, store.figures());
    progress("checkpoint", 0, 1);
    store.checkpoint(false)?;
    let (with_checkpoint_seconds, after) = (began.elapsed().as_secs_f64(), store.figures());
    let rows = plan.rows as f64;
    Ok(BulkReport {
        workload: TABLE,
        order: bulk.order.name(),
        threads: plan.threads,
        batch: bulk.batch,
        preset: after.preset,
        durability: after.durability,
        memory_bytes: plan.memory_bytes,
        rows: plan.rows,
        value_bytes: plan.value_bytes,
        seconds,
        flush_seconds: seconds - inserted,
        rows_per_second: rows / seconds,
        bytes_per_second: rows * (KEY_BYTES + plan.value_bytes) as f64 / seconds,
        with_checkpoint_seconds,
        with_checkpoint_rows_per_second: rows / with_checkpoint_seconds,
        conflicts: conflicts.into_iter().sum(),
        checkpoints: loaded.checkpoints - before.checkpoints,
        checkpoint_seconds: loaded.checkpoint_seconds - before.checkpoint_seconds,
        log_bytes: loaded.log_bytes - before.log_bytes,
        device_bytes: loaded.device_bytes - before.device_bytes,
        device_writes: loaded.device_writes - before.device_writes,
        store_bytes_written: after.written_bytes - before.written_bytes,
        cpu_seconds,
        cpu_us_per_row: cpu_seconds * 1e6 / rows,
        ..BulkReport::default()
    })
}

/// Checks that the table contains exactly the rows of the plan, each with a value of its key.
///
/// # Errors
/// Those of the store.
pub fn check<S: Store>(store: &S, plan: &Plan, order: Order, progress: Progress<'_>) -> Result<Checked> {
    let (table, shape, began) = (store.table(TABLE)?, plan.shape(), Instant::now());
    let mut checked = Checked::default();
    let mut session = store.session(Level::Durable)?;
    let mut each = |key: &[u8], value: &[u8]| {
        checked.rows += 1;
        let key_number = <[u8; 8]>::try_from(key).map(u64::from_be_bytes);
        if !key_number.is_ok_and(|key| shape.is_value_of(key, value)) {
            checked.problem(|| format!("row {key:x?} has a value that no transaction wrote"));
        }
        if checked.rows.is_multiple_of(1 << 16) {
            progress("checking rows", checked.rows, plan.rows);
        }
        Step::Continue(())
    };
    let scanned =
        session.begin_read().and_then(|mut snapshot| snapshot.scan(&table, &[], &[u8::MAX; 9], &mut each));
    scanned.map_err(Error::into_failure)?;
    let (mut value, last) = (Vec::new(), order.key(plan.rows - 1).to_be_bytes());
    let there = session.begin_read().and_then(|mut snapshot| snapshot.get(&table, &last, &mut value));
    checked.same(there.map_err(Error::into_failure)?, true, || "the last row is there, and has to be".into());
    checked.same(checked.rows, plan.rows, || "rows there, and loaded".into());
    checked.seconds = began.elapsed().as_secs_f64();
    Ok(checked)
}

impl fmt::Display for BulkReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BulkReport { order, threads, batch, preset, durability, device, .. } = self;
        let mb = |bytes: u64| bytes as f64 / 1e6;
        writeln!(
            f,
            "load: {order} order, {threads} threads, {batch} rows a transaction, preset {preset}, {durability}, device {device}"
        )?;
        writeln!(
            f,
            "  {:.0} rows/s ({:.1} MB/s): {} rows of 8 + {} bytes durable in the log after {:.2} s, {:.4} s of them the flush at the end",
            self.rows_per_second,
            self.bytes_per_second / 1e6,
            self.rows,
            self.value_bytes,
            self.seconds,
            self.flush_seconds
        )?;
        writeln!(
            f,
            "  {:.0} rows/s with the checkpoint at the end, {:.2} s",
            self.with_checkpoint_rows_per_second, self.with_checkpoint_seconds
        )?;
        writeln!(
            f,
            "  log {:.1} MB in {} writes; pages {:.1} MB written; {} checkpoints before in {:.2} s",
            mb(self.device_bytes),
            self.device_writes,
            mb(self.store_bytes_written),
            self.checkpoints,
            self.checkpoint_seconds
        )?;
        writeln!(
            f,
            "  {:.2} us of processor time a row; memory {:.0} MB; floor {:.0} us, p99 {:.0} us (raw durable 4 KiB write)",
            self.cpu_us_per_row,
            mb(self.rss_bytes_max),
            self.floor_us.p50,
            self.floor_us.p99
        )?;
        self.check.as_ref().map_or(Ok(()), |checked| write!(f, "{checked}"))
    }
}

#[cfg(test)]
mod tests;
