//! Opens a database that a run left behind, killed or closed, times it, and looks for a sample of
//! the rows.

use crate::place::Place;
use crate::plan::Plan;
use crate::process::MemoryWatch;
use crate::progress::Progress;
use crate::reopened::Reopened;
use crate::{put, ycsb};
use anyhow::Result;
use quenchdb::internals::base::random::Random;
use quenchdb::{Builder, Database};
use std::time::Instant;

/// Most rows of a sample.
const SAMPLE: u64 = 10_000;

/// How the previous run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The process was killed while it worked.
    Killed,
    /// The database was closed.
    Closed,
}

impl Ending {
    fn name(self) -> &'static str {
        match self {
            Ending::Killed => "killed",
            Ending::Closed => "closed",
        }
    }
}

/// The rows that the database must contain.
#[derive(Clone, Copy, Debug)]
pub enum Expected<'a> {
    /// Unknown: takes no sample.
    Unknown,
    /// The loaded rows of the plan, with any value.
    Loaded,
    /// Rows inserted by each worker.
    Inserted {
        /// Number of rows of each worker.
        by_worker: &'a [u64],
        /// True if all were durable; otherwise they may be missing.
        durable: bool,
    },
}

/// The expected rows by number.
struct Numbered<'a> {
    expected: Expected<'a>,
    rows: u64,
}

impl Numbered<'_> {
    fn of<'a>(expected: Expected<'a>, plan: &Plan) -> Numbered<'a> {
        let rows = match expected {
            Expected::Unknown => 0,
            Expected::Loaded => plan.rows,
            Expected::Inserted { by_worker, .. } => by_worker.iter().sum(),
        };
        Numbered { expected, rows }
    }

    fn key(&self, mut number: u64) -> u64 {
        let Expected::Inserted { by_worker, .. } = self.expected else { return number };
        for (index, count) in by_worker.iter().enumerate() {
            if number < *count {
                return put::key(index, number);
            }
            number -= count;
        }
        unreachable!("numbers are below the sum of all counts")
    }

    fn table(&self) -> &'static str {
        match self.expected {
            Expected::Unknown | Expected::Loaded => ycsb::TABLE,
            Expected::Inserted { .. } => put::TABLE,
        }
    }

    fn absence_is_loss(&self) -> bool {
        matches!(self.expected, Expected::Loaded | Expected::Inserted { durable: true, .. })
    }
}

/// Reads a sample of the rows, and counts found, missing and wrong ones.
fn check_sample(
    database: &Database,
    plan: &Plan,
    expected: Expected<'_>,
    reopened: &mut Reopened,
) -> Result<()> {
    let rows = Numbered::of(expected, plan);
    if rows.rows == 0 {
        return Ok(());
    }
    let table = database.table(rows.table())?;
    let snapshot = database.begin_read()?;
    let mut random = Random::from_seed(plan.seed ^ 0x5a);
    let mut value = Vec::with_capacity(plan.value_bytes);
    let began = Instant::now();
    reopened.sampled = rows.rows.min(SAMPLE);
    for _ in 0..reopened.sampled {
        let key = rows.key(random.below(rows.rows));
        if !snapshot.get_into(&table, key.to_be_bytes(), &mut value)? {
            reopened.missing += u64::from(rows.absence_is_loss());
        } else if plan.shape().is_value_of(key, &value) {
            reopened.found += 1;
        } else {
            reopened.wrong += 1;
        }
    }
    reopened.sample_reads_per_second = reopened.sampled as f64 / began.elapsed().as_secs_f64();
    Ok(())
}

/// Opens the database in `place` and checks a sample of what is `expected`.
///
/// # Errors
/// Those of opening and reading; what is absent or wrong is in the result.
pub fn reopen(
    builder: Builder,
    place: &Place,
    plan: &Plan,
    ending: Ending,
    expected: Expected<'_>,
    progress: Progress<'_>,
) -> Result<(Database, Reopened)> {
    progress("reopening", 0, 1);
    let watch = MemoryWatch::start()?;
    let began = Instant::now();
    let database = place.open(builder)?;
    let open_seconds = began.elapsed().as_secs_f64();
    let recovery = database.recovery();
    let mut reopened = Reopened {
        after: ending.name().into(),
        open_seconds,
        clean: recovery.clean,
        replayed: recovery.replayed,
        discarded: recovery.discarded,
        replay_log_bytes: recovery.log_bytes,
        ..Reopened::default()
    };
    progress("reading a sample", 0, 1);
    check_sample(&database, plan, expected, &mut reopened)?;
    reopened.rss_bytes_max = watch.bytes_max();
    Ok((database, reopened))
}

#[cfg(test)]
mod tests;
