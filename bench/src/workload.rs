//! What a workload is: how its tables are filled, what one transaction does, and what must be true of them at any time.

use crate::checked::Checked;
use crate::progress::Progress;
use crate::store::{Reader, Result, Store, Transaction};
use std::collections::BTreeMap;
use std::time::Duration;

/// What the next transaction is, as far as counting it needs to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Intent {
    /// Its type: an index of [`Workload::kinds`].
    pub kind: usize,
    /// It only reads.
    pub reads_only: bool,
}

/// How a transaction wants to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// By a commit.
    Commit {
        /// Bytes of the keys and values it wrote.
        written_bytes: u64,
    },
    /// By taking everything back, because its specification says so.
    RollBack,
}

impl Ending {
    /// A commit of something that wrote nothing.
    pub const READ: Ending = Ending::Commit { written_bytes: 0 };
}

/// One thread of a workload, over tables of type `T`.
pub trait Worker<T>: Send {
    /// Chooses what the next transaction does. A retry after a conflict does the same again.
    fn prepare(&mut self) -> Intent;

    /// Does it.
    ///
    /// # Errors
    /// Those of the store.
    fn run<X: Transaction<Table = T>>(&mut self, transaction: &mut X) -> Result<Ending>;

    /// Does it in a read-only snapshot. Called only for an intent that only reads.
    ///
    /// # Errors
    /// Those of the store.
    fn read<R: Reader<Table = T>>(&mut self, snapshot: &mut R) -> Result<()>;

    /// The transaction was committed, and others can see it.
    fn committed(&mut self) {}

    /// How long its terminal rests before the transaction that was prepared last begins.
    fn rest(&mut self) -> Duration {
        Duration::ZERO
    }
}

/// Transactions that were acknowledged as durable, by type.
pub type Acknowledged = BTreeMap<String, u64>;

/// Which thread of which run a worker is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seat {
    /// Number of the run on the same database, from 0.
    pub run: u64,
    /// Number of the thread, from 0.
    pub index: usize,
}

impl Seat {
    /// Thread `index` of the first run.
    #[must_use]
    pub fn of(index: usize) -> Seat {
        Seat { run: 0, index }
    }

    /// The seed of its random choices, of a workload with the seed `seed`: another one for each seat, so that a later run does not
    /// do again what an earlier one has done.
    #[must_use]
    pub fn seed(self, seed: u64) -> u64 {
        seed.wrapping_add(self.index as u64 + 1).wrapping_add(self.run << 40)
    }
}

/// See the module.
pub trait Workload: Sync {
    /// One thread of it.
    type Worker<T: Clone + Send + Sync>: Worker<T>;

    /// Its name on the command line and in reports.
    fn name(&self) -> &'static str;

    /// The types of its transactions.
    fn kinds(&self) -> &'static [&'static str];

    /// What was populated, in words that are equal only if the population can be reused.
    fn population(&self) -> String;

    /// What else was chosen, for the report.
    fn parameters(&self) -> BTreeMap<String, String>;

    /// Fills the tables with `threads` threads, and makes them durable.
    ///
    /// # Errors
    /// Those of the store.
    fn populate<S: Store>(&self, store: &S, threads: usize, progress: Progress<'_>) -> anyhow::Result<()>;

    /// Prepares a run. The tables are filled, by this process or an earlier one; the workers follow.
    ///
    /// # Errors
    /// Those of the store.
    fn begin<S: Store>(&self, _store: &S) -> anyhow::Result<()> {
        Ok(())
    }

    /// The thread of that seat.
    ///
    /// # Errors
    /// Those of the store.
    fn worker<S: Store>(&self, store: &S, seat: Seat) -> anyhow::Result<Self::Worker<S::Table>>;

    /// Checks everything that must hold, with `threads` threads, while no thread writes. Everything `acknowledged` since the
    /// population must be present.
    ///
    /// # Errors
    /// Only what keeps it from checking.
    fn check<S: Store>(
        &self,
        store: &S,
        threads: usize,
        acknowledged: &Acknowledged,
        progress: Progress<'_>,
    ) -> anyhow::Result<Checked>;
}
