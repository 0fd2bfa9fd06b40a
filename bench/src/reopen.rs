//! Opens a database that a run left behind, killed or closed, times it, and looks whether a sample of the rows is there.

use crate::place::Place;
use crate::plan::Plan;
use crate::process::MemoryWatch;
use crate::{Progress, put, ycsb};
use anyhow::Result;
use quenchdb::internals::base::random::Random;
use quenchdb::{Builder, Database};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Instant;

/// Rows of a sample, at most.
const SAMPLE: u64 = 10_000;

/// How the run before ended.
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

/// Which rows must be there.
#[derive(Clone, Copy, Debug)]
pub enum Expected<'a> {
    /// No sample is taken: the workload has checks of its own.
    Unknown,
    /// The plan's loaded rows, whatever their values have become.
    Loaded,
    /// So many rows inserted by each worker.
    Inserted {
        /// One number a worker.
        by_worker: &'a [u64],
        /// All of them were durable. If not, their absence means nothing.
        durable: bool,
    },
}

/// What opening found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reopened {
    /// `killed` or `closed`.
    pub after: String,
    /// How long the close took, its checkpoint included.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub close_seconds: Option<f64>,
    /// How long the open took, until transactions could begin.
    pub open_seconds: f64,
    /// There was nothing to recover.
    pub clean: bool,
    /// Transactions replayed.
    pub replayed: u64,
    /// Records discarded, none of them acknowledged.
    pub discarded: u64,
    /// Log bytes read.
    pub replay_log_bytes: u64,
    /// Most memory of this process while it opened the database and read the sample; of a database closed and opened by one
    /// process what the allocator still keeps of before is included.
    pub rss_bytes_max: u64,
    /// Rows looked for.
    pub sampled: u64,
    /// Of these, found, with a value that belongs to the key.
    pub found: u64,
    /// Of these, absent although they were durable: 0 unless something is broken.
    pub missing: u64,
    /// Of these, with a value that nobody wrote there: 0 unless something is broken.
    pub wrong: u64,
    /// Point reads of the sample per second by one thread, pages coming from the device as they are needed.
    pub sample_reads_per_second: f64,
}

impl Reopened {
    /// Nothing that had to be there is absent or wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.missing == 0 && self.wrong == 0
    }
}

/// The rows that are expected, by number.
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

/// Reads a sample of the rows and counts what is there.
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

impl fmt::Display for Reopened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {}", self.after)?;
        if let Some(seconds) = self.close_seconds {
            write!(f, " in {seconds:.3} s")?;
        }
        writeln!(
            f,
            ", then reopened in {:.3} s, {} transactions replayed from {:.1} MB of log",
            self.open_seconds,
            self.replayed,
            self.replay_log_bytes as f64 / 1e6
        )?;
        if self.sampled == 0 {
            return Ok(());
        }
        writeln!(
            f,
            "  sample of {}: {} found, {} missing, {} wrong; {:.0} reads/s by one thread",
            self.sampled, self.found, self.missing, self.wrong, self.sample_reads_per_second
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Checkpoints, CommitMode};
    use quenchdb::Durability;
    use std::time::Duration;

    fn plan(rows: u64) -> Plan {
        Plan {
            threads: 1,
            duration: Duration::from_millis(1),
            warm_up: None,
            interval: Duration::from_secs(1),
            commit: CommitMode::Blocking,
            rate: None,
            level: Durability::Durable,
            snapshots: false,
            checkpoints: Checkpoints::Automatic,
            rows,
            value_bytes: 40,
            field_bytes: None,
            operations: 1,
            read_percent: 50,
            zipf: 0.0,
            memory_bytes: 64 << 20,
            seed: 1,
        }
    }

    fn database() -> Database {
        Database::builder().memory_bytes(64 << 20).open_in_memory().expect("memory")
    }

    #[test]
    fn a_sample_finds_rows_that_are_absent_and_rows_that_are_wrong() {
        let (database, plan) = (database(), plan(2000));
        let table = ycsb::prepare(&database, &plan, false, &|_, _, _| {}).expect("loaded");
        let check = || {
            let mut reopened = Reopened::default();
            check_sample(&database, &plan, Expected::Loaded, &mut reopened).expect("read");
            reopened
        };
        let before = check();
        assert_eq!((before.sampled, before.found, before.missing, before.wrong), (2000, 2000, 0, 0));
        assert!(before.is_sound());
        let change = |transaction: &mut quenchdb::Transaction| {
            for row in 0..1000u64 {
                transaction.remove(&table, row.to_be_bytes())?;
                let other = transaction.get(&table, (row + 1000).to_be_bytes())?.unwrap_or_default();
                let place = (row + 1000) ^ 1;
                transaction.insert(&table, place.to_be_bytes(), other)?;
            }
            Ok(())
        };
        database.transact(change).expect("changed");
        let after = check();
        assert!(after.missing > 800 && after.wrong > 300 && !after.is_sound(), "{after:?}");
        assert_eq!(after.found + after.missing + after.wrong, after.sampled);
    }

    #[test]
    fn inserted_rows_count_as_lost_only_if_they_were_durable() {
        let (database, plan) = (database(), plan(1));
        database.table_or_create(put::TABLE).expect("created");
        let missing = |durable| {
            let expected = Expected::Inserted { by_worker: &[3, 0, 4], durable };
            let mut reopened = Reopened::default();
            check_sample(&database, &plan, expected, &mut reopened).expect("read");
            (reopened.sampled, reopened.missing)
        };
        assert_eq!((missing(true), missing(false)), ((7, 7), (7, 0)));
        let rows = Numbered::of(Expected::Inserted { by_worker: &[3, 0, 4], durable: true }, &plan);
        assert_eq!((rows.key(2), rows.key(3)), (put::key(0, 2), put::key(2, 0)));
    }

    #[test]
    fn a_soak_names_rows_that_are_absent_or_wrong() {
        let (database, plan) = (database(), plan(500));
        let table = ycsb::prepare(&database, &plan, true, &|_, _, _| {}).expect("loaded");
        let judge = || {
            let (run, space) = (crate::report::Report::default(), crate::soak::Space::default());
            crate::soak::judge(&database, &plan, run, space, None, None, &|_, _, _| {}).expect("checked")
        };
        let before = judge();
        assert!(before.problems.is_empty(), "{:?}", before.problems);
        assert_eq!(before.logical_bytes, crate::soak::loaded_bytes(&plan));
        let change = |transaction: &mut quenchdb::Transaction| {
            transaction.remove(&table, 7u64.to_be_bytes())?;
            transaction.insert(&table, 8u64.to_be_bytes(), [0; 40])
        };
        database.transact(change).expect("changed");
        let problems = judge().problems;
        assert_eq!(problems, ["499 rows, not 500", "1 rows with a value that nobody wrote"]);
    }
}
