//! Fills a database for a workload, or recognizes that an earlier run has filled it the same way.
//!
//! | table | key | value |
//! |---|---|---|
//! | `bench` | `population` | [`Workload::population`], written when everything else is durable |
//! | `bench` | `runs` | runs begun on it, 8 bytes big-endian |

use crate::progress::Progress;
use crate::store::{Error, Level, Reader, Session, Store, Transaction};
use crate::workload::Workload;
use anyhow::{Result, bail};

const TABLE: &str = "bench";
const KEY: &[u8] = b"population";
const RUNS_KEY: &[u8] = b"runs";

/// Returns the population of `store`, if it is complete.
///
/// # Errors
/// Those of the store.
pub fn found<S: Store>(store: &S) -> Result<Option<String>> {
    let table = store.table(TABLE)?;
    let (mut session, mut value) = (store.session(Level::Durable)?, Vec::new());
    let there = session
        .begin_read()
        .and_then(|mut snapshot| snapshot.get(&table, KEY, &mut value))
        .map_err(Error::into_failure)?;
    Ok(there.then(|| String::from_utf8_lossy(&value).into_owned()))
}

fn note<S: Store>(store: &S, population: &str) -> Result<()> {
    let table = store.table(TABLE)?;
    let mut session = store.session(Level::Durable)?;
    let noted = session.begin().and_then(|mut transaction| {
        transaction.insert(&table, KEY, population.as_bytes())?;
        transaction.commit()
    });
    noted.map_err(Error::into_failure)
}

/// Records the begin of `runs` runs. Returns the number of runs before them, over all processes.
///
/// # Errors
/// Those of the store.
pub fn begin_runs<S: Store>(store: &S, runs: u64) -> Result<u64> {
    let table = store.table(TABLE)?;
    let mut session = store.session(Level::Durable)?;
    let mut count = || -> crate::store::Result<u64> {
        let (mut transaction, mut value) = (session.begin()?, Vec::new());
        let there = transaction.get(&table, RUNS_KEY, &mut value)?;
        let before = value.try_into().ok().filter(|_| there).map_or(0, u64::from_be_bytes);
        transaction.insert(&table, RUNS_KEY, &(before + runs).to_be_bytes())?;
        transaction.commit().map(|()| before)
    };
    count().map_err(Error::into_failure)
}

/// Populates `store` for `workload`; with `reuse` only if it is not populated. Returns whether it
/// was populated before.
///
/// # Errors
/// Those of the store; the store has another population.
pub fn prepare<S: Store, W: Workload>(
    workload: &W,
    store: &S,
    threads: usize,
    reuse: bool,
    progress: Progress<'_>,
) -> Result<bool> {
    let wanted = workload.population();
    if reuse && let Some(found) = found(store)? {
        if found != wanted {
            bail!("the database holds another population: {found}; not {wanted}");
        }
        return Ok(true);
    }
    workload.populate(store, threads, progress)?;
    note(store, &wanted)?;
    Ok(false)
}

#[cfg(test)]
mod tests;
