//! Loads the rows of a workload.

use crate::parallel::in_parallel;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::store::{Error, Level, Session, Store, Transaction};
use anyhow::{Context, Result};
use quenchdb::internals::base::random::Random;

/// The name of the work for the progress.
pub(crate) const LOADING: &str = "loading rows";

/// Rows of one transaction.
const BATCH: u64 = 500;
/// Transactions of a part. A part is one range of keys, so threads load into different leaves.
const PART: u64 = 100;

/// Loads the rows in parallel, with big-endian row numbers as keys, and makes them durable.
///
/// # Errors
/// Those of the store.
pub fn load<S: Store>(store: &S, table: &S::Table, plan: &Plan, progress: Progress<'_>) -> Result<()> {
    let (rows_of_part, shape) = (BATCH * PART, plan.shape());
    let load_part = |part: u64| -> Result<()> {
        let mut random = Random::from_seed(plan.seed ^ ((part + 1) << 32));
        let mut session = store.session(Level::Lazy)?;
        let mut value = vec![0; plan.value_bytes];
        let end = ((part + 1) * rows_of_part).min(plan.rows);
        let mut load_batch = |rows: std::ops::Range<u64>| -> crate::store::Result<()> {
            let mut transaction = session.begin()?;
            for row in rows {
                shape.fill(&mut random, row, &mut value);
                transaction.insert(table, &row.to_be_bytes(), &value)?;
            }
            transaction.commit()
        };
        for row in (part * rows_of_part..end).step_by(BATCH as usize) {
            load_batch(row..(row + BATCH).min(end)).map_err(Error::into_failure).context("loading failed")?;
        }
        Ok(())
    };
    in_parallel(plan.threads, plan.rows.div_ceil(rows_of_part), LOADING, progress, load_part)?;
    store.make_durable()
}
