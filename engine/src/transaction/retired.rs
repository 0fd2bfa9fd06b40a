//! Retired values: large values that a committed transaction replaced or deleted, until nobody can see them any more.
//!
//! A value was *born* with the CSN of its transaction and *died* with that of the one that took it away. A snapshot in
//! between needs it; so it is freed when no pin is in between and none can come: when the CSN of its death is at or below
//! the collector's bound, and all pins are known.
//!
//! 1. Whoever frees holds `freeing`, and so does a checkpoint from before it chooses C until it has listed what is retired
//!    ([`RetiredValues::as_of`]), the values that are in its images and that nothing in them refers to, and has closed its round, so that they
//!    are in its mapping. After a crash the list is retired again, so that no page is lost.
//! 2. What cannot be freed because a page cannot be read, or finds no memory, is not lost: a value whose index pages cannot be read, of which nothing was freed, waits for the
//!    next thorough look, which each checkpoint takes, and is listed until then; a page that is left of one is listed with those that are
//!    free after the next open ([`UnfinishedPages`]).
//! 3. A transaction retires values before it gives up its descriptor. So once all descriptors with a CSN at or below C are
//!    gone the list is complete.

use super::garbage::Horizon;
use super::unfinished::UnfinishedPages;
use crate::base::Csn;
use crate::base::planted::{self, Bug};
use crate::buffer::{EmergencyReserve, Pool};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard};
use crate::tree::{LargeReference, overflow};

/// A large value that no entry refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Retired {
    /// Snapshots below do not see it; 0 if that is not known.
    pub birth: Csn,
    /// Nor do those from this one on.
    pub death: Csn,
    pub reference: LargeReference,
}

#[derive(Debug, Default)]
struct Queue {
    values: Vec<Retired>,
    /// Those that nobody sees, and that could not be freed.
    failed: Vec<Retired>,
    /// What the last look kept, and the oldest pin it saw: until one of them changes much another look is in vain.
    kept: usize,
    oldest: Csn,
}

impl Queue {
    fn all(&self) -> impl Iterator<Item = &Retired> {
        self.values.iter().chain(&self.failed)
    }
}

/// All retired values of a database.
#[derive(Debug, Default)]
pub(super) struct RetiredValues {
    queue: Mutex<Queue>,
    /// Length of the queue. Written under its lock.
    count: AtomicUsize,
    freeing: Mutex<()>,
}

/// While it lives no retired value is freed.
pub struct RetiredHeld<'a> {
    _freeing: MutexGuard<'a, ()>,
}

impl RetiredValues {
    /// Takes over values of a transaction that has committed.
    pub fn retire(&self, values: impl Iterator<Item = Retired>) {
        let mut queue = self.queue.lock();
        queue.values.extend(values);
        self.count.store(queue.all().count(), Ordering::Release);
    }

    /// Keeps everything that is retired until the result is dropped.
    pub fn hold(&self) -> RetiredHeld<'_> {
        RetiredHeld { _freeing: self.freeing.lock() }
    }

    /// The values that were dead at `csn`. Proof that they were not freed meanwhile: `_held`.
    pub fn as_of(&self, csn: Csn, _held: &RetiredHeld<'_>) -> Vec<LargeReference> {
        let queue = self.queue.lock();
        let listed = |value: &&Retired| value.death <= csn && !planted::is(Bug::RetiredNotListed);
        queue.all().filter(listed).map(|value| value.reference).collect()
    }

    /// All values that are retired now.
    pub fn all(&self) -> Vec<LargeReference> {
        self.queue.lock().all().map(|value| value.reference).collect()
    }

    /// Frees what nobody can see, unless somebody else does or a checkpoint is running. `thorough` looks even if it is
    /// likely to be in vain.
    pub fn collect(&self, pool: &Pool, unfinished: &UnfinishedPages, horizon: &Horizon<'_>, thorough: bool) {
        if self.count.load(Ordering::Acquire) == 0 && !(thorough && unfinished.has_left()) {
            return;
        }
        let Some(_alone) = self.freeing.try_lock() else { return };
        // Their pages are read one at a time to be freed: nobody is to be refused memory for that.
        let _reserve = EmergencyReserve::begin();
        if thorough {
            unfinished.free_left(pool);
        }
        let mut pins = horizon.descriptors.pins();
        pins.sort_unstable();
        let oldest = pins.first().copied().unwrap_or(Csn::MAX).min(horizon.bound);
        if oldest == Csn::ZERO && !pins.is_empty() {
            // A snapshot is being chosen.
            return;
        }
        let mut left = Vec::new();
        for value in self.take_unseen(&pins, oldest, horizon.bound, thorough) {
            let root = value.reference.root.0;
            match overflow::free_or_keep(pool, &value.reference, &mut left) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(%error, root, "pages of a retired value stay allocated"),
                Err(error) => {
                    tracing::warn!(%error, root, "a retired value is freed later");
                    self.keep(value);
                }
            }
        }
        if !left.is_empty() {
            tracing::warn!(pages = left.len(), "pages of retired values are freed later");
            unfinished.note_left(pool, &left);
        }
    }

    fn keep(&self, value: Retired) {
        let mut queue = self.queue.lock();
        queue.failed.push(value);
        self.count.store(queue.all().count(), Ordering::Release);
    }

    fn take_unseen(&self, pins: &[Csn], oldest: Csn, bound: Csn, thorough: bool) -> Vec<Retired> {
        let mut queue = self.queue.lock();
        if !thorough && queue.oldest == oldest && queue.values.len() < 2 * queue.kept {
            return Vec::new();
        }
        let unseen = |value: &mut Retired| value.death <= bound && !is_seen(value, pins);
        let mut free: Vec<Retired> = queue.values.extract_if(.., unseen).collect();
        if thorough {
            free.append(&mut queue.failed);
        }
        (queue.kept, queue.oldest) = (queue.values.len(), oldest);
        self.count.store(queue.all().count(), Ordering::Release);
        free
    }
}

/// Whether one of the pins, which ascend, is between birth and death.
fn is_seen(value: &Retired, pins: &[Csn]) -> bool {
    let first = pins.partition_point(|pin| *pin < value.birth);
    pins.get(first).is_some_and(|pin| *pin < value.death) && !planted::is(Bug::ValueFreedEarly)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::PageId;

    fn value(birth: u64, death: u64) -> Retired {
        let reference = LargeReference { root: PageId(death), len: 1, crc: 0 };
        Retired { birth: Csn(birth), death: Csn(death), reference }
    }

    #[test]
    fn a_value_goes_when_no_pin_is_between_its_birth_and_its_death() {
        let retired = RetiredValues::default();
        retired.retire([value(0, 10), value(10, 20), value(20, 30), value(30, 40)].into_iter());
        let roots = |values: Vec<Retired>| values.iter().map(|v| v.reference.root.0).collect::<Vec<_>>();
        // A snapshot at 10 sees the second; one above the bound may still be taken at 35.
        assert_eq!(roots(retired.take_unseen(&[Csn(10)], Csn(10), Csn(35), false)), [10, 30]);
        assert_eq!(roots(retired.take_unseen(&[Csn(10)], Csn(10), Csn(40), true)), [40]);
        assert_eq!(retired.all(), [value(10, 20).reference]);
        assert!(retired.take_unseen(&[Csn(19)], Csn(19), Csn(40), true).is_empty());
        assert_eq!(roots(retired.take_unseen(&[Csn(20)], Csn(20), Csn(40), true)), [20]);
    }

    #[test]
    fn what_could_not_be_freed_is_listed_and_tried_again_by_a_thorough_look() {
        let retired = RetiredValues::default();
        retired.keep(value(0, 10));
        let take = |thorough| retired.take_unseen(&[], Csn(50), Csn(50), thorough).len();
        assert_eq!((take(false), retired.all().len()), (0, 1));
        assert_eq!(retired.as_of(Csn(10), &retired.hold()).len(), 1);
        assert_eq!((take(true), retired.all().len()), (1, 0));
    }

    #[test]
    fn a_checkpoint_lists_what_was_dead_then() {
        let retired = RetiredValues::default();
        retired.retire([value(0, 10), value(5, 20)].into_iter());
        let held = retired.hold();
        assert_eq!(retired.as_of(Csn(15), &held).len(), 1);
        assert_eq!(retired.as_of(Csn(20), &held).len(), 2);
    }
}
