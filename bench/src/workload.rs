//! The interface of a workload: populate tables, run transactions, check conditions.

use crate::checked::Checked;
use crate::progress::Progress;
use crate::store::{Reader, Result, Store, Transaction};
use std::collections::BTreeMap;
use std::time::Duration;

/// The type of the next transaction, for the counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Intent {
    /// The type: an index of [`Workload::kinds`].
    pub kind: usize,
    /// True if the transaction only reads.
    pub reads_only: bool,
}

/// How a transaction must end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// By a commit.
    Commit {
        /// Bytes of the keys and values it wrote.
        written_bytes: u64,
    },
    /// By a rollback, as specified.
    RollBack,
}

impl Ending {
    /// A commit without writes.
    pub const READ: Ending = Ending::Commit { written_bytes: 0 };
}

/// One thread of a workload, over tables of type `T`.
pub trait Worker<T>: Send {
    /// Chooses what the next transaction does. A retry after a conflict does the same again.
    fn prepare(&mut self) -> Intent;

    /// Runs the transaction.
    ///
    /// # Errors
    /// Those of the store.
    fn run<X: Transaction<Table = T>>(&mut self, transaction: &mut X) -> Result<Ending>;

    /// Runs the transaction in a read-only snapshot. Called only if it only reads.
    ///
    /// # Errors
    /// Those of the store.
    fn read<R: Reader<Table = T>>(&mut self, snapshot: &mut R) -> Result<()>;

    /// Called after the commit, when other transactions can see the writes.
    fn committed(&mut self) {}

    /// Returns how long the terminal rests before the prepared transaction begins.
    fn rest(&mut self) -> Duration {
        Duration::ZERO
    }
}

/// Transactions that were acknowledged as durable, by type.
pub type Acknowledged = BTreeMap<String, u64>;

/// The thread and run of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seat {
    /// Number of the run on the same database, from 0.
    pub run: u64,
    /// Number of the thread, from 0.
    pub index: usize,
}

impl Seat {
    /// Returns thread `index` of the first run.
    #[must_use]
    pub fn of(index: usize) -> Seat {
        Seat { run: 0, index }
    }

    /// Returns the seed of the random choices: different for each seat, so that a later run does
    /// not repeat an earlier one.
    #[must_use]
    pub fn seed(self, seed: u64) -> u64 {
        seed.wrapping_add(self.index as u64 + 1).wrapping_add(self.run << 40)
    }
}

/// See the module.
pub trait Workload: Sync {
    /// A thread of the workload.
    type Worker<T: Clone + Send + Sync>: Worker<T>;

    /// Returns the name on the command line and in reports.
    fn name(&self) -> &'static str;

    /// Returns the names of the types of transactions.
    fn kinds(&self) -> &'static [&'static str];

    /// Returns a description of the population; equal descriptions mean equal populations.
    fn population(&self) -> String;

    /// Returns the other parameters, for the report.
    fn parameters(&self) -> BTreeMap<String, String>;

    /// Fills the tables with `threads` threads, and makes them durable.
    ///
    /// # Errors
    /// Those of the store.
    fn populate<S: Store>(&self, store: &S, threads: usize, progress: Progress<'_>) -> anyhow::Result<()>;

    /// Prepares a run. The tables are filled, by this process or an earlier one; the workers
    /// follow.
    ///
    /// # Errors
    /// Those of the store.
    fn begin<S: Store>(&self, _store: &S) -> anyhow::Result<()> {
        Ok(())
    }

    /// Returns the thread of a seat.
    ///
    /// # Errors
    /// Those of the store.
    fn worker<S: Store>(&self, store: &S, seat: Seat) -> anyhow::Result<Self::Worker<S::Table>>;

    /// Calls `run`, which makes all runs on the filled tables. A workload may do something beside
    /// them.
    ///
    /// # Errors
    /// Those of `run` and of the store.
    fn around<S: Store, T>(&self, _store: &S, run: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        run()
    }

    /// Checks everything that must hold, with `threads` threads, while no thread writes. Everything
    /// `acknowledged` since the population must be present.
    ///
    /// # Errors
    /// The check cannot be made. Violations are in the result.
    fn check<S: Store>(
        &self,
        store: &S,
        threads: usize,
        acknowledged: &Acknowledged,
        progress: Progress<'_>,
    ) -> anyhow::Result<Checked>;
}
