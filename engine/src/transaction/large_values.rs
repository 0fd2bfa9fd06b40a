//! Large values, from the first page written until no snapshot sees the value any more.
//!
//! The pages of a value carry the handle of its *owner*: a version of its own, without an entry,
//! that the transaction stamps like its other versions. So a checkpoint knows of each page by
//! itself whether the value was committed at its CSN. Pages of uncommitted values may leave memory
//! all the same (`uncommitted_pages`). A value that a committed transaction replaced or deleted is
//! freed later (`deferred_free`).
//!
//! Pages of a discarded value are freed first, and its owner is marked ABORTED second. So a
//! checkpoint that latches a page never waits for a transaction that waits for the page.

use super::deferred_free::{DeferredFree, DeferredFrees, FreesPaused};
use super::descriptor::{Descriptors, Stamp};
use super::garbage::Horizon;
use super::uncommitted_pages::{UncommittedLocked, UncommittedPages};
use super::versions::{VersionHandle, Versions};
use crate::base::{Csn, PageId, PooledCharge};
use crate::buffer::{ExclusiveGuard, Pool};
use crate::sync::epoch::pin;
use crate::tree::LargeReference;
use crate::tree::overflow::{self, LargeSubtree};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A large value that a transaction in progress wrote.
#[derive(Debug)]
pub(super) struct OwnValue {
    pub owner: VersionHandle,
    pub reference: LargeReference,
}

/// The large values of a database that no committed entry refers to: those in progress, and those
/// to be freed.
#[derive(Debug)]
pub struct LargeValues {
    pool: Arc<Pool>,
    descriptors: Arc<Descriptors>,
    versions: Arc<Versions>,
    pub(super) uncommitted: UncommittedPages,
    deferred: DeferredFrees,
}

impl LargeValues {
    pub(super) fn new(
        pool: Arc<Pool>,
        descriptors: Arc<Descriptors>,
        versions: Arc<Versions>,
    ) -> LargeValues {
        let uncommitted = UncommittedPages::new(PooledCharge::new(pool.account()));
        LargeValues { pool, descriptors, versions, uncommitted, deferred: DeferredFrees::default() }
    }

    /// Queues values that a committed transaction replaced or deleted.
    pub(super) fn defer_frees(&self, values: impl Iterator<Item = DeferredFree>) {
        self.deferred.push(values);
    }

    /// Queues the values that the checkpoint, from which the database was opened, listed as
    /// deferred.
    pub fn defer_frees_again(&self, values: Vec<LargeReference>) {
        let deferred = |reference| DeferredFree { created: Csn::ZERO, removed: Csn::ZERO, reference };
        self.deferred.push(values.into_iter().map(deferred));
    }

    /// Keeps replaced values until the result is dropped: for a checkpoint, from before it chooses
    /// its CSN.
    pub fn pause_frees(&self) -> FreesPaused<'_> {
        self.deferred.pause()
    }

    /// Returns the values that a checkpoint at `csn`, which was drawn, has in its images although
    /// no entry in them refers to them.
    pub fn deferred_as_of(&self, csn: Csn, paused: &FreesPaused<'_>) -> Vec<LargeReference> {
        self.descriptors.await_ended(csn);
        self.deferred.as_of(csn, paused)
    }

    /// Returns the values whose free is deferred now.
    pub fn deferred(&self) -> Vec<LargeReference> {
        self.deferred.all()
    }

    /// Frees values that no snapshot can see, until `is_over`. `thorough` looks even if nothing is
    /// likely to be found.
    pub(super) fn collect(&self, horizon: &Horizon<'_>, thorough: bool, is_over: &dyn Fn() -> bool) {
        self.deferred.collect(&self.pool, &self.uncommitted, horizon, thorough, is_over);
    }

    /// Keeps pages of uncommitted values from being noted or freed: for a checkpoint that is about
    /// to choose its CSN.
    pub fn lock_uncommitted(&self) -> UncommittedLocked<'_> {
        self.uncommitted.lock()
    }

    /// Notes that an image of `page` is about to be recorded, which belongs to the value of `owner`
    /// and is not known to be committed.
    pub fn note_uncommitted(&self, owner: u64, page: PageId) {
        self.uncommitted.note(&self.pool, owner, page);
    }

    /// Returns the pages that have images although they belong to values that may be in progress.
    pub fn uncommitted_pages(&self) -> BTreeSet<PageId> {
        self.uncommitted.all()
    }

    /// Returns the uncommitted pages of which `is_committed` says that the value of their owner was
    /// not committed, and forgets the others.
    pub(super) fn list_uncommitted(
        &self,
        locked: &mut UncommittedLocked<'_>,
        is_committed: &mut dyn FnMut(u64) -> bool,
    ) -> Vec<PageId> {
        self.uncommitted.list(&self.pool, locked, is_committed)
    }

    /// Frees a page of a value that is discarded.
    pub(super) fn free_page(&self, owner: u64, guard: ExclusiveGuard<'_>) {
        self.uncommitted.free(&self.pool, owner, guard);
    }

    /// Frees a value of a transaction in progress to which no entry refers.
    pub(super) fn discard(&self, shard: usize, value: &OwnValue) {
        let owner = value.owner.word();
        let mut release = |guard: ExclusiveGuard<'_>| self.free_page(owner, guard);
        let whole = LargeSubtree::whole(&self.pool, &value.reference);
        if let Err(error) = overflow::free_by(&self.pool, whole, &mut release) {
            // The owner stays, so that no checkpoint contains the pages that could not be read.
            tracing::error!(%error, "pages of a large value that was taken back stay allocated");
            self.versions.set_stamp(value.owner, Stamp::ORPHANED);
            return;
        }
        self.end_owner(shard, value.owner);
    }

    /// Ends an owner to which no page in memory refers any more.
    pub(super) fn end_owner(&self, shard: usize, owner: VersionHandle) {
        if self.uncommitted.has(owner.word()) {
            // Checkpoints have to list the pages that could not be read.
            self.versions.set_stamp(owner, Stamp::ORPHANED);
            return;
        }
        self.versions.abort(shard, owner, &pin());
    }
}
