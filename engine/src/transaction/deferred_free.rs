//! Large values that a committed transaction replaced or deleted, until no snapshot can see them.
//!
//! A value was *created* by the transaction with one CSN and *removed* by that with another. A
//! snapshot between the two needs the value. It is freed when no pin is between them and none can
//! come: when the CSN of its removal is at or below the collector's bound, and all pins are known.
//!
//! 1. Freeing needs the lock `freeing`. Threads that free only try it, and return it soon to a
//!    checkpoint that waits for it. A checkpoint holds this lock from before it chooses C until
//!    it has listed the values that are in its images although no entry in them refers to them
//!    ([`DeferredFrees::as_of`]), and has closed its epoch, so that the values are in its mapping.
//!    After a crash the listed values are queued again: no page is lost.
//! 2. A value that cannot be freed, because a page cannot be read or finds no memory, is not lost.
//!    If its index pages cannot be read, nothing of it was freed: it waits for the next thorough
//!    collection, which each checkpoint starts, and is listed until then. A single page that could
//!    not be freed is listed with the pages that are free after the next open
//!    ([`UncommittedPages`]).
//! 3. A transaction queues values before it releases its descriptor. So once all descriptors with a
//!    CSN at or below C are gone, the list is complete.

use super::garbage::Horizon;
use super::uncommitted_pages::UncommittedPages;
use crate::base::Csn;
use crate::base::planted::{self, Bug};
use crate::buffer::{EmergencyReserve, Pool};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard, PriorityLock};
use crate::tree::{LargeReference, overflow};

/// A large value that no entry refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DeferredFree {
    /// Snapshots below do not see the value; 0 if the CSN is not known.
    pub created: Csn,
    /// Snapshots from this CSN on do not see the value.
    pub removed: Csn,
    pub reference: LargeReference,
}

#[derive(Debug, Default)]
struct Queue {
    values: Vec<DeferredFree>,
    /// Values that no snapshot sees and that could not be freed.
    failed: Vec<DeferredFree>,
    /// Values that the last collection kept, and the oldest pin it saw. Until one of the two
    /// changes much, another collection frees nothing.
    kept: usize,
    oldest: Csn,
}

impl Queue {
    fn all(&self) -> impl Iterator<Item = &DeferredFree> {
        self.values.iter().chain(&self.failed)
    }
}

/// The deferred frees of a database.
#[derive(Debug, Default)]
pub(super) struct DeferredFrees {
    queue: Mutex<Queue>,
    /// Length of the queue. Written under its lock.
    count: AtomicUsize,
    freeing: PriorityLock,
}

/// While it lives no replaced value is freed.
pub struct FreesPaused<'a> {
    _freeing: MutexGuard<'a, ()>,
}

impl DeferredFrees {
    /// Queues values that a committed transaction replaced or deleted.
    pub fn push(&self, values: impl Iterator<Item = DeferredFree>) {
        let mut queue = self.queue.lock();
        let first_new = queue.values.len();
        queue.values.extend(values);
        debug_assert!(
            queue.values[first_new..].iter().all(|value| value.created <= value.removed),
            "a value is created before it is replaced"
        );
        self.count.store(queue.all().count(), Ordering::Release);
    }

    /// Keeps all queued values until the result is dropped.
    pub fn pause(&self) -> FreesPaused<'_> {
        FreesPaused { _freeing: self.freeing.lock() }
    }

    /// Returns the values that were removed at or before `csn`. `_paused` proves that none was
    /// freed meanwhile.
    pub fn as_of(&self, csn: Csn, _paused: &FreesPaused<'_>) -> Vec<LargeReference> {
        let queue = self.queue.lock();
        let listed = |value: &&DeferredFree| value.removed <= csn && !planted::is(Bug::RetiredNotListed);
        queue.all().filter(listed).map(|value| value.reference).collect()
    }

    /// Returns all queued values.
    pub fn all(&self) -> Vec<LargeReference> {
        self.queue.lock().all().map(|value| value.reference).collect()
    }

    /// Frees what no snapshot can see, unless another thread is freeing or a checkpoint has paused
    /// it, or until a checkpoint wants to or `is_over`. `thorough` looks even if nothing is likely
    /// to be found.
    pub fn collect(
        &self,
        pool: &Pool,
        uncommitted: &UncommittedPages,
        horizon: &Horizon<'_>,
        thorough: bool,
        is_over: &dyn Fn() -> bool,
    ) {
        if self.count.load(Ordering::Acquire) == 0 && !(thorough && uncommitted.has_orphaned()) {
            return;
        }
        let Some(_alone) = self.freeing.try_lock() else { return };
        // The pages are read one at a time to be freed, and freeing must not be refused memory.
        let _reserve = EmergencyReserve::begin();
        if thorough {
            uncommitted.free_orphaned(pool);
        }
        let mut pins = horizon.descriptors.pins();
        pins.sort_unstable();
        let oldest = pins.first().copied().unwrap_or(Csn::MAX).min(horizon.bound);
        if oldest == Csn::ZERO && !pins.is_empty() {
            // A snapshot is being chosen.
            return;
        }
        let mut orphaned = Vec::new();
        let mut unseen = self.take_unseen(&pins, oldest, horizon.bound, thorough).into_iter();
        while let Some(value) = unseen.next() {
            if self.freeing.is_wanted() || is_over() {
                self.put_back(std::iter::once(value).chain(unseen));
                break;
            }
            let root = value.reference.root.0;
            match overflow::free_or_keep(pool, &value.reference, &mut orphaned) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(%error, root, "pages of a replaced value stay allocated"),
                Err(error) => {
                    tracing::warn!(%error, root, "a replaced value is freed later");
                    self.keep(value);
                }
            }
        }
        if !orphaned.is_empty() {
            tracing::warn!(pages = orphaned.len(), "pages of replaced values are freed later");
            uncommitted.note_orphaned(pool, &orphaned);
        }
    }

    /// Queues values again that another collection frees.
    fn put_back(&self, values: impl Iterator<Item = DeferredFree>) {
        let mut queue = self.queue.lock();
        queue.values.extend(values);
        // The next collection looks again.
        queue.kept = 0;
        self.count.store(queue.all().count(), Ordering::Release);
    }

    fn keep(&self, value: DeferredFree) {
        let mut queue = self.queue.lock();
        queue.failed.push(value);
        self.count.store(queue.all().count(), Ordering::Release);
    }

    fn take_unseen(&self, pins: &[Csn], oldest: Csn, bound: Csn, thorough: bool) -> Vec<DeferredFree> {
        let mut queue = self.queue.lock();
        debug_assert!(pins.is_sorted(), "pins are searched by halving");
        debug_assert!(oldest <= bound, "no pin raises the horizon");
        if !thorough && queue.oldest == oldest && queue.values.len() < 2 * queue.kept {
            return Vec::new();
        }
        let unseen = |value: &mut DeferredFree| value.removed <= bound && !is_seen(value, pins);
        let mut free: Vec<DeferredFree> = queue.values.extract_if(.., unseen).collect();
        if thorough {
            free.append(&mut queue.failed);
        }
        (queue.kept, queue.oldest) = (queue.values.len(), oldest);
        debug_assert!(!thorough || queue.failed.is_empty(), "a thorough look tries all again");
        self.count.store(queue.all().count(), Ordering::Release);
        free
    }
}

/// Returns whether one of the pins, which ascend, is between the creation and the removal of the
/// value.
fn is_seen(value: &DeferredFree, pins: &[Csn]) -> bool {
    let first = pins.partition_point(|pin| *pin < value.created);
    pins.get(first).is_some_and(|pin| *pin < value.removed) && !planted::is(Bug::ValueFreedEarly)
}

#[cfg(test)]
mod tests;
