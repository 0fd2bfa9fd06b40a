//! The view of a checkpoint: exactly the transactions up to its CSN.

use super::descriptor::{DescriptorId, Stamp, Status};
use super::system::TransactionSystem;
use super::uncommitted_pages::{ORPHANED, UncommittedLocked};
use super::versions::VersionHandle;
use super::view::{Outcome, View, Visibility};
use crate::base::planted::{self, Bug};
use crate::base::{Csn, PageId, Result};
use crate::sync::epoch::{Guard, pin};
use crate::tree::Held;
use std::sync::Arc;

/// A pinned view at the CSN of a checkpoint.
#[derive(Debug)]
pub struct CheckpointView {
    system: Arc<TransactionSystem>,
    id: DescriptorId,
    csn: Csn,
}

impl CheckpointView {
    /// Takes a descriptor and announces its pin.
    ///
    /// # Errors
    /// `Busy` when all descriptors are taken.
    pub fn begin(system: &Arc<TransactionSystem>) -> Result<CheckpointView> {
        let id = system.descriptors.take()?;
        let csn = system.descriptors.pin(id, || Csn::ZERO);
        system.versions.view_begins();
        Ok(CheckpointView { system: system.clone(), id, csn })
    }

    /// Chooses the CSN: everything drawn so far. The pin has been announced since the view began,
    /// so no version that it needs is collected.
    pub fn choose(&mut self) -> Csn {
        let committed = self.system.committed.clone();
        self.csn = self.system.descriptors.pin(self.id, || committed.newest_drawn());
        self.csn
    }

    /// # Errors
    /// `Poisoned` after a panic inside the engine: what an entry refers to may never be settled.
    pub fn check_whole(&self) -> Result<()> {
        self.system.committed.check_whole()
    }

    /// Notes progress of the checkpoint, for writers that wait for its end.
    pub fn made_progress(&self) {
        self.system.versions.view_made_progress();
    }

    /// Returns the chosen CSN.
    #[must_use]
    pub fn csn(&self) -> Csn {
        self.csn
    }

    /// Writes what an entry held at the CSN to `value`. Returns what that is, and whether a
    /// transaction in progress has changed or locked the entry since; `None` if the entry must be
    /// read again. With the entry's page latched, `None` does not last: retry in place.
    pub fn resolve(&self, word: u64, held: Held, value: &mut Vec<u8>, guard: &Guard) -> Option<(Held, bool)> {
        let (system, view) = (&self.system, View { snapshot: self.csn, own: Stamp(0) });
        let (visibility, _) = view.visibility(word, &system.versions.slots, &system.descriptors, guard);
        if let Visibility::Visible(_) = visibility {
            return Some((held, false));
        }
        let held = match system.resolve(view, word, held, value, guard) {
            Outcome::Value(_) => Held::Value,
            Outcome::Reference(_) => Held::Reference,
            Outcome::Absent(_) => Held::Nothing,
            Outcome::Retry => return None,
        };
        Some((held, matches!(visibility, Visibility::InProgress(_))))
    }

    /// Returns the pages, ascending, that have images and belong to values that were not committed
    /// at the chosen CSN. Forgets the others.
    pub fn list_uncommitted(&self, locked: &mut UncommittedLocked<'_>) -> Vec<PageId> {
        self.system.large_values.list_uncommitted(locked, &mut |owner| {
            self.contains_value(owner) || planted::is(Bug::UnfinishedNotListed)
        })
    }

    /// Returns whether the large value of `owner` was committed at the CSN.
    fn contains_value(&self, owner: u64) -> bool {
        if owner == ORPHANED {
            return false;
        }
        let (system, guard) = (&self.system, pin());
        loop {
            let version =
                VersionHandle::from_word(owner).and_then(|handle| system.versions.slots.read(handle, &guard));
            // The owner was given back: every snapshot sees the value.
            let Some(version) = version else { return true };
            match system.descriptors.status(version.stamp) {
                Status::Committed(csn) => return csn <= self.csn,
                Status::InProgress(_) | Status::Orphaned => return false,
                Status::Finished if version.stamp == Stamp::ABORTED => return false,
                // Between two steps of the commit of its transaction.
                Status::Finished => crate::sync::thread::yield_now(),
            }
        }
    }
}

impl Drop for CheckpointView {
    fn drop(&mut self) {
        self.system.descriptors.release(self.id);
        self.system.versions.view_ended();
    }
}
