//! A read-only snapshot as a user holds it. Its reads are in `reads`.

use super::range::Source;
use super::table::Table;
use crate::base::{Csn, Result};
use crate::commit::PoisonOnPanic;
use crate::sync::Ours;
use crate::transaction::{OpenValue, RangeCursor, ReadSnapshot};

/// A consistent read-only view of the database. `Send` and `Sync`, owned. What a snapshot returns
/// cannot be lost in a crash, so a read may wait for the commit of what it found.
///
/// While a snapshot lives, the versions that it may need are kept. After
/// [`Database::close`](crate::Database::close) every read is an error (`InvalidArgument`). If the
/// handles of the database are only dropped, the snapshot stays readable until the database is
/// opened again for writing; then reading a page that is not in memory is an error.
#[derive(Debug)]
#[must_use = "a snapshot keeps old versions while it lives: read from it, then drop it"]
pub struct Snapshot {
    snapshot: Ours<ReadSnapshot>,
}

impl Source for Snapshot {
    fn read(&self, table: &Table, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let _inside = self.enter()?;
        self.snapshot.get(&table.state, key, value)
    }

    fn open(&self, table: &Table, key: &[u8]) -> Result<Option<OpenValue>> {
        let _inside = self.enter()?;
        self.snapshot.open_value(&table.state, key)
    }

    fn prefetch_keys(&self, table: &Table, keys: &[&[u8]]) -> Result<()> {
        let _inside = self.enter()?;
        self.snapshot.prefetch(&table.state, keys.iter().copied())
    }

    #[inline]
    fn step(&self, cursor: &mut RangeCursor, back: bool) -> Result<bool> {
        self.snapshot.system().committed.check_usable()?;
        if self.snapshot.advance(cursor, back) {
            return Ok(true);
        }
        let _inside = self.enter()?;
        self.snapshot.step(cursor, back)
    }

    #[inline]
    fn visit_copied(
        &self,
        cursor: &mut RangeCursor,
        each: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.snapshot.visit_copied(cursor, each)
    }
}

impl Snapshot {
    pub(super) fn new(snapshot: ReadSnapshot) -> Snapshot {
        Snapshot { snapshot: Ours::new(snapshot) }
    }

    fn enter(&self) -> Result<Option<PoisonOnPanic<'_>>> {
        self.snapshot.system().committed.enter()
    }

    /// Returns the CSN of the newest transaction that the snapshot sees.
    #[must_use]
    pub fn csn(&self) -> Csn {
        self.snapshot.csn()
    }
}
