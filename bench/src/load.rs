//! Loads the rows that a workload works on.

use crate::Progress;
use crate::plan::Plan;
use crate::rows::fill_value;
use anyhow::{Context, Result, anyhow};
use quenchdb::base::random::Random;
use quenchdb::{Database, Durability, Isolation, Table};
use std::sync::atomic::{AtomicU64, Ordering};

/// What is said while it lasts.
pub(crate) const LOADING: &str = "loading rows";

/// Rows of one transaction.
const BATCH: u64 = 500;

/// Loads `rows` rows with big-endian row numbers as keys, `threads` threads, and makes them durable.
///
/// # Errors
/// Those of the engine.
pub fn load(database: &Database, table: &Table, plan: &Plan, progress: Progress<'_>) -> Result<()> {
    let done = AtomicU64::new(0);
    let share = plan.rows.div_ceil(plan.threads as u64).max(1);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for index in 0..plan.threads as u64 {
            let done = &done;
            threads.push(scope.spawn(move || -> quenchdb::Result<()> {
                let mut random = Random::from_seed(plan.seed ^ ((index + 1) << 32));
                let mut value = vec![0; plan.value_bytes];
                let mut next = (index * share).min(plan.rows);
                let end = (next + share).min(plan.rows);
                while next < end {
                    let batch = BATCH.min(end - next);
                    let mut transaction = database.begin_with(Isolation::Snapshot, Durability::Lazy)?;
                    for row in next..next + batch {
                        fill_value(&mut random, row, &mut value);
                        transaction.insert(table, row.to_be_bytes(), &value)?;
                    }
                    transaction.commit()?;
                    next += batch;
                    let done = done.fetch_add(batch, Ordering::Relaxed) + batch;
                    if index == 0 {
                        progress(LOADING, done, plan.rows);
                    }
                }
                Ok(())
            }));
        }
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a loader panicked"))?.context("loading failed")?;
        }
        database.flush()?;
        Ok(())
    })
}
