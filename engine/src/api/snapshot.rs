//! A read-only snapshot as a user holds it. Its reads are in `reads`.

use super::range::Source;
use super::table::Table;
use crate::base::{Csn, Result};
use crate::commit::PoisonOnPanic;
use crate::transaction::{OpenValue, RangeCursor, ReadSnapshot, USER};

/// A consistent read-only view of the database. `Send` and `Sync`, owned. What a snapshot returns
/// cannot be lost in a crash, so a read may wait for the commit of what it found.
///
/// While a snapshot lives, the versions that it may need are kept. After the database is closed the
/// snapshot stays readable until the database is opened again for writing; then reading a page that
/// is not in memory is an error (`InvalidArgument`).
#[derive(Debug)]
#[must_use = "a snapshot keeps old versions while it lives: read from it, then drop it"]
pub struct Snapshot {
    snapshot: ReadSnapshot,
}

impl Source for Snapshot {
    fn read(&self, table: &Table, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let _inside = self.inside();
        self.snapshot.get(&table.state, key, value)
    }

    fn open(&self, table: &Table, key: &[u8]) -> Result<Option<OpenValue>> {
        let _inside = self.inside();
        self.snapshot.open_value(&table.state, key)
    }

    fn prefetch_keys(&self, table: &Table, keys: &[&[u8]]) -> Result<()> {
        let _inside = self.inside();
        self.snapshot.prefetch(&table.state, keys.iter().copied())
    }

    fn step(&self, cursor: &mut RangeCursor, back: bool) -> Result<bool> {
        let _inside = self.inside();
        self.snapshot.step(cursor, back)
    }
}

impl Snapshot {
    pub(super) fn new(snapshot: ReadSnapshot) -> Snapshot {
        Snapshot { snapshot }
    }

    fn inside(&self) -> Option<PoisonOnPanic<'_>> {
        self.snapshot.system().committed.inside(USER)
    }

    /// Returns the CSN of the newest transaction that the snapshot sees.
    #[must_use]
    pub fn csn(&self) -> Csn {
        self.snapshot.csn()
    }
}
