//! Inserts of new rows in random key order, and the load that a kill interrupts.

use crate::Progress;
use crate::distribution::scrambled;
use crate::driver::{self, Plan, Worker, fill};
use crate::report::{Floor, Report};
use anyhow::{Result, anyhow};
use quenchdb::base::random::Random;
use quenchdb::{Database, Isolation, Table, Transaction};
use std::sync::atomic::{AtomicU64, Ordering};

/// The table of the rows.
pub const TABLE: &str = "put";

/// Every thread counts in a range of its own, so that no two keys are equal.
const RANGE_BITS: u32 = 40;

struct PutWorker {
    table: Table,
    counter: u64,
    /// First counter of the transaction in progress: a retry inserts the same keys.
    first: u64,
    random: Random,
    operations: u64,
    value: Vec<u8>,
}

impl PutWorker {
    fn new(table: Table, plan: &Plan, index: usize) -> PutWorker {
        PutWorker {
            table,
            counter: (index as u64) << RANGE_BITS,
            first: 0,
            random: Random::from_seed(plan.seed.wrapping_add(index as u64 + 1)),
            operations: plan.operations as u64,
            value: vec![0; plan.value_bytes],
        }
    }
}

impl Worker for PutWorker {
    fn prepare(&mut self) {
        self.first = self.counter;
        self.counter += self.operations;
    }

    fn run(&mut self, transaction: &mut Transaction) -> quenchdb::Result<()> {
        for counter in self.first..self.first + self.operations {
            fill(&mut self.random, &mut self.value);
            transaction.insert(&self.table, scrambled(counter).to_be_bytes(), &self.value)?;
        }
        Ok(())
    }
}

/// Measures inserts.
///
/// # Errors
/// Those of the engine.
pub fn run(database: &Database, plan: &Plan, floor: Floor, progress: Progress<'_>) -> Result<Report> {
    let table = database.table_or_create(TABLE)?;
    let workers = (0..plan.threads)
        .map(|index| Box::new(PutWorker::new(table.clone(), plan, index)) as Box<dyn Worker>)
        .collect();
    driver::run("put", database, plan, floor, workers, progress)
}

/// Inserts `plan.rows` rows, one a transaction, without waiting for each; all are durable when it returns.
///
/// # Errors
/// Those of the engine.
pub fn fill_log(database: &Database, plan: &Plan, progress: Progress<'_>) -> Result<()> {
    let table = database.table_or_create(TABLE)?;
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for index in 0..plan.threads {
            let (table, done) = (table.clone(), &done);
            threads.push(scope.spawn(move || -> quenchdb::Result<()> {
                let mut worker = PutWorker::new(table, &Plan { operations: 1, ..plan.clone() }, index);
                // Claims rows in runs, so that fast threads insert more of them.
                const RUN: u64 = 64;
                loop {
                    let claimed = done.fetch_add(RUN, Ordering::Relaxed);
                    if claimed >= plan.rows {
                        return Ok(());
                    }
                    for _ in 0..RUN.min(plan.rows - claimed) {
                        worker.prepare();
                        loop {
                            let mut transaction = database.begin_with(Isolation::Snapshot, plan.level)?;
                            let outcome = worker
                                .run(&mut transaction)
                                .and_then(|()| transaction.commit_async().map(drop));
                            match outcome {
                                Err(error) if error.is_retryable() => {}
                                other => break other?,
                            }
                        }
                    }
                    if index == 0 {
                        progress("loading rows", claimed.min(plan.rows), plan.rows);
                    }
                }
            }));
        }
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a loader panicked"))??;
        }
        database.flush()?;
        Ok(())
    })
}
