//! Points inside a transaction to roll back to.
//!
//! A transaction keeps the serials of the savepoints that it can be rolled back to, oldest first. Rolling back to one makes those after it void:
//! they are of a state that is gone, though as many changes and as much redo may come again.

use super::active::ActiveTransaction;
use super::descriptor::DescriptorId;
use crate::base::planted::{self, Bug};
use crate::base::{Error, Result};
use crate::log::RedoMark;

/// A point to roll back to. Belongs to the transaction that made it.
#[derive(Clone, Copy, Debug)]
pub struct Savepoint {
    /// The system's number: transactions of another have the same identifiers.
    system: u64,
    owner: DescriptorId,
    serial: u64,
    changes: usize,
    values: usize,
    redo: RedoMark,
}

impl ActiveTransaction {
    /// A point to roll back to.
    pub fn savepoint(&mut self) -> Savepoint {
        let changes = self.scratch.changes.len();
        // Without a change since the last one it is the same point: there are no more points than changes.
        if self.scratch.savepoints.is_empty() || self.savepoint_changes != changes {
            self.last_savepoint += 1;
            self.scratch.savepoints.push(self.last_savepoint);
        }
        self.savepoint_changes = changes;
        Savepoint {
            system: self.system.number,
            owner: self.id,
            serial: self.scratch.savepoints.last().copied().unwrap_or_default(),
            changes,
            values: self.scratch.values.len(),
            redo: self.scratch.redo.mark(),
        }
    }

    /// Takes back everything since `savepoint`. What was read since stays a dependency.
    ///
    /// # Errors
    /// `InvalidArgument` for a savepoint of another transaction or of a state that was rolled back itself. I/O, `Corruption` or
    /// `OutOfMemory` if a page cannot be had: then the transaction can only abort.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        self.check_unbroken()?;
        let own = savepoint.system == self.system.number && savepoint.owner == self.id;
        let (true, Ok(at)) = (own, self.scratch.savepoints.binary_search(&savepoint.serial)) else {
            return Err(Error::invalid("the savepoint does not belong to this state of this transaction"));
        };
        let first = savepoint.changes + usize::from(planted::is(Bug::RollbackLeavesRow));
        let before = self.scratch.changes.len();
        let taken_back = self.take_back(first, savepoint.values);
        if self.scratch.changes.len() < before {
            self.system.descriptors.gave_rows_back(self.id);
        }
        if let Err(error) = taken_back {
            // Some of it is taken back in the pages, and none in the redo; there may be fewer changes than before the newest savepoint.
            // Only an abort makes sense of that.
            self.broken = Some(error.duplicate());
            return Err(error);
        }
        if !planted::is(Bug::RollbackKeepsRedo) {
            self.scratch.redo.truncate(savepoint.redo);
        }
        self.savepoint_changes = savepoint.changes;
        self.scratch.savepoints.truncate(at + 1);
        Ok(())
    }

    /// To be called by whatever changes something.
    ///
    /// # Errors
    /// Those of a rollback that failed half-way: then the transaction can only abort.
    #[inline]
    pub(super) fn check_unbroken(&self) -> Result<()> {
        self.broken.as_ref().map_or(Ok(()), |error| Err(error.duplicate()))
    }
}
