//! Inserts of new rows in random key order, for a time or for a number of rows.

use crate::distribution::scrambled;
use crate::driver::{Finished, Run, WhileWorking};
use crate::load;
use crate::plan::Plan;
use crate::process::cpu_seconds;
use crate::progress::Progress;
use crate::report::Report;
use crate::rows::{KEY_BYTES, fill_value};
use crate::store::{self, Reader, Session, Store, Transaction};
use crate::workload::{Ending, Intent, Worker};
use anyhow::{Result, anyhow};
use quenchdb::internals::base::random::Random;
use quenchdb::{Database, Table};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The table of the rows.
pub const TABLE: &str = "put";

/// Every thread counts in a range of its own, so that no two keys are equal.
const RANGE_BITS: u32 = 40;

/// The key of the `n`th row that worker `index` inserts.
#[must_use]
pub fn key(index: usize, n: u64) -> u64 {
    scrambled(((index as u64) << RANGE_BITS) + n)
}

struct PutWorker<T> {
    table: T,
    index: usize,
    /// Rows inserted by the transactions before the one in progress: a retry inserts the same keys.
    first: u64,
    next: u64,
    random: Random,
    operations: u64,
    value: Vec<u8>,
}

impl<T> PutWorker<T> {
    fn new(table: T, plan: &Plan, index: usize) -> PutWorker<T> {
        PutWorker {
            table,
            index,
            first: 0,
            next: 0,
            random: Random::from_seed(plan.seed.wrapping_add(index as u64 + 1)),
            operations: plan.operations as u64,
            value: vec![0; plan.value_bytes],
        }
    }
}

impl<T: Clone + Send + Sync> Worker<T> for PutWorker<T> {
    fn prepare(&mut self) -> Intent {
        self.first = self.next;
        self.next += self.operations;
        Intent::default()
    }

    fn run<X: Transaction<Table = T>>(&mut self, transaction: &mut X) -> store::Result<Ending> {
        for n in self.first..self.first + self.operations {
            let key = key(self.index, n);
            fill_value(&mut self.random, key, &mut self.value);
            transaction.insert(&self.table, &key.to_be_bytes(), &self.value)?;
        }
        let row = (KEY_BYTES + self.value.len()) as u64;
        Ok(Ending::Commit { written_bytes: self.operations * row })
    }

    fn read<R: Reader<Table = T>>(&mut self, _: &mut R) -> store::Result<()> {
        Err(store::Error::wrong("this workload does not read"))
    }
}

/// Types of its transactions.
pub const KINDS: &[&str] = &["put"];

/// Measures inserts.
///
/// # Errors
/// Those of the store.
pub fn run<S: Store>(run: &Run<'_, S>) -> Result<Finished> {
    let table = run.store.table(TABLE)?;
    run.drive((0..run.plan.threads).map(|index| PutWorker::new(table.clone(), run.plan, index)).collect())
}

/// Inserts one row a transaction without waiting for each, in threads that claim runs of rows, so
/// that fast ones insert more of them. Returns how many.
fn insert_claimed(
    database: &Database,
    plan: &Plan,
    worker: &mut PutWorker<Table>,
    claims: &AtomicU64,
    progress: Progress<'_>,
) -> Result<u64> {
    const RUN: u64 = 64;
    let mut session = database.session(plan.level)?;
    loop {
        let claimed = claims.fetch_add(RUN, Ordering::Relaxed);
        if claimed >= plan.rows {
            return Ok(worker.next);
        }
        for _ in 0..RUN.min(plan.rows - claimed) {
            worker.prepare();
            loop {
                let outcome = session.begin().and_then(|mut transaction| {
                    worker.run(&mut transaction)?;
                    Transaction::commit_async(transaction)
                });
                match outcome {
                    Err(store::Error::Conflict) => {}
                    other => break other.map(drop).map_err(store::Error::into_failure)?,
                }
            }
        }
        if worker.index == 0 {
            progress(load::LOADING, claimed.min(plan.rows), plan.rows);
        }
    }
}

/// Inserts exactly `plan.rows` rows, one a transaction, without waiting for each. Then makes all
/// rows durable and calls `while_working`.
///
/// # Errors
/// Those of the engine, and of `while_working`.
pub fn fill_log(
    database: &Database,
    plan: &Plan,
    while_working: Option<WhileWorking<'_>>,
    progress: Progress<'_>,
) -> Result<Finished> {
    let table = database.table_or_create(TABLE)?;
    let (before, cpu, began) = (database.statistics(), cpu_seconds(), Instant::now());
    let plan = &Plan { operations: 1, ..plan.clone() };
    let claims = &AtomicU64::new(0);
    let inserted: Result<Vec<u64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.threads)
            .map(|index| {
                let mut worker = PutWorker::new(table.clone(), plan, index);
                scope.spawn(move || insert_claimed(database, plan, &mut worker, claims, progress))
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<u64>>| {
            thread.join().map_err(|_| anyhow!("a loader panicked"))?
        };
        threads.into_iter().map(join).collect()
    });
    let committed_by_worker = inserted?;
    database.flush()?;
    let (seconds, s) = (began.elapsed().as_secs_f64(), database.statistics());
    let report = Report {
        workload: TABLE.into(),
        preset: s.preset.name().into(),
        threads: plan.threads,
        logs: s.logs,
        commit: "async".into(),
        durability: s.durability_method.clone(),
        level: plan.level_name().into(),
        rows: plan.rows,
        value_bytes: plan.value_bytes,
        operations: 1,
        memory_bytes: plan.memory_bytes,
        seconds,
        committed: plan.rows,
        throughput_tps: plan.rows as f64 / seconds,
        log_bytes: s.log_bytes - before.log_bytes,
        device_bytes: s.device_bytes - before.device_bytes,
        device_writes: s.device_writes - before.device_writes,
        device_flushes: s.device_flushes - before.device_flushes,
        store_bytes_written: s.store_bytes_written - before.store_bytes_written,
        logical_bytes_written: plan.rows * (KEY_BYTES + plan.value_bytes) as u64,
        checkpoints: s.checkpoints - before.checkpoints,
        checkpoint_seconds: s.checkpoint_seconds - before.checkpoint_seconds,
        cpu_seconds: cpu_seconds() - cpu,
        ..Report::default()
    }
    .with_costs();
    let written_bytes = report.logical_bytes_written;
    let finished = Finished { report, committed_by_worker, written_bytes, ..Finished::default() };
    if let Some(report_to) = while_working {
        report_to(&finished)?;
    }
    Ok(finished)
}
