//! Versions: what an entry was before its newest change.
//!
//! A page holds the newest value of a key and a stamp word. The word is 0 for a value that everybody sees, or the
//! [`VersionHandle`] of a version slot, which says who wrote the value and what was there before:
//!
//! ```text
//!  page entry            version slot            undo
//!  ┌───────┬───────┐     ┌────────────────┐      ┌───────────────┬──────────────────┐
//!  │ word ─┼─ value│ ──▶ │ stamp (CSN 90) │ ───▶ │ prior word ─┐ │ value before 90  │
//!  └───────┴───────┘     └────────────────┘      └─────────────┼─┴──────────────────┘
//!                                                              └──▶ version slot (CSN 70) ──▶ …
//! ```
//!
//! 1. A slot is reused under a new generation. A handle whose generation has passed means "everybody sees the value",
//!    so nothing in pages or chains is ever unlinked; stale handles vanish when the page is written out.
//! 2. A slot is given back at once only when its CSN is at or below every snapshot that is or will be pinned, and below
//!    the watermark: whoever finds its handle stale would have seen the value anyway, and depends on nothing.
//! 3. In every other case (abort, rollback to a savepoint, pruning below a long snapshot) the slot is given back only
//!    after an epoch: a reader that copied the handle from a page finds the slot intact, marked ABORTED if need be, and
//!    looks again.
//! 4. Before-images that were given back stay in memory until no reader can be looking at them. Until then they are
//!    *retired*: they count as memory, but not against the bound for versions.
//! 5. Generations have 37 bits: a stale handle is mistaken for a live one only after 2^37 reuses of one slot between
//!    two checkpoints, each of which clears the stale handles of the pages it writes.

use super::descriptor::Stamp;
use crate::base::{Account, Charge, Csn, Error, ErrorKind, PooledCharge, Result, allocation_failure};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use crate::sync::epoch::{EpochCell, Guard};
use crate::tree::LargeReference;
use std::sync::{Arc, OnceLock};

const CHUNK: usize = 1 << 12;
const CHUNKS: usize = 1 << 14;
const INDEX_BITS: u32 = 26;
const GENERATION_BITS: u32 = 37;
const GENERATION_MASK: u64 = (1 << GENERATION_BITS) - 1;

const _: () = assert!(CHUNK * CHUNKS == 1 << INDEX_BITS);
const _: () = assert!(1 + INDEX_BITS + GENERATION_BITS == 64);

/// The stamp word of an entry with a version: bit 63 set, 37 bits generation, 26 bits index. 0 is "settled".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct VersionHandle(u64);

impl VersionHandle {
    fn new(index: usize, generation: u64) -> VersionHandle {
        VersionHandle(1 << 63 | (generation & GENERATION_MASK) << INDEX_BITS | index as u64)
    }

    /// The handle in a page's stamp word, if there is one.
    #[must_use]
    pub fn from_word(word: u64) -> Option<VersionHandle> {
        (word >> 63 == 1).then_some(VersionHandle(word))
    }

    /// The word that a page keeps.
    #[must_use]
    pub fn word(self) -> u64 {
        self.0
    }

    fn index(self) -> usize {
        (self.0 & ((1 << INDEX_BITS) - 1)) as usize
    }

    fn generation(self) -> u64 {
        self.0 >> INDEX_BITS & GENERATION_MASK
    }
}

/// What an entry was before a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Before {
    /// There was no entry.
    Absent,
    /// A deleted entry, whose deletion may still be a dependency.
    Tombstone,
    /// This value.
    Value(Box<[u8]>),
    /// A large value. Its pages are freed by the garbage collector, or stay with the entry if the change is taken back.
    Reference(Box<LargeReference>),
    /// The same as after: the row was only locked.
    Unchanged,
}

/// The before-image of one change.
#[derive(Clone, Debug)]
pub struct Undo {
    /// The entry's stamp word before.
    pub prior: u64,
    /// The entry's content before.
    pub before: Before,
}

impl Undo {
    /// Bytes that this before-image and its slot count against the version budget.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let image = match &self.before {
            Before::Value(value) => value.len() + ALLOCATION_BYTES,
            Before::Reference(_) => size_of::<LargeReference>() + ALLOCATION_BYTES,
            Before::Absent | Before::Tombstone | Before::Unchanged => 0,
        };
        (LEAST_BYTES + image) as u64
    }
}

/// What an allocator keeps for a piece of memory, rounding included.
pub(super) const ALLOCATION_BYTES: usize = 24;
/// Places of a version in lists that grow by doubling: its transaction's, the garbage's, the free slots'.
const LISTED_BYTES: usize = 2 * (size_of::<(Csn, VersionHandle)>() + size_of::<u32>());
/// What the smallest version takes.
const LEAST_BYTES: usize = size_of::<Slot>() + size_of::<Undo>() + ALLOCATION_BYTES + LISTED_BYTES;
/// What a slot takes that is free: its place among the free ones included.
const FREE_SLOT_BYTES: usize = size_of::<Slot>() + 2 * size_of::<u32>();

/// There are as many as changes that somebody may look behind.
const _: () = assert!(std::mem::size_of::<Undo>() <= 32);

#[derive(Debug, Default)]
struct Slot {
    generation: AtomicU64,
    stamp: AtomicU64,
    undo: EpochCell<Undo>,
}

/// A version as a reader sees it.
#[derive(Clone, Copy, Debug)]
pub struct Version<'g> {
    /// Who wrote the newer value.
    pub stamp: Stamp,
    /// What was there before.
    pub undo: &'g Undo,
}

/// All version slots of a database.
#[derive(Debug)]
pub struct Versions {
    chunks: Box<[OnceLock<Box<[Slot]>>]>,
    free: [Mutex<Vec<u32>>; SHARDS],
    next_unused: AtomicUsize,
    /// Bytes held by live versions, and by deleted keys that wait for theirs to go.
    bytes: AtomicU64,
    bytes_max: u64,
    /// Bytes that are retired (invariant 4). Added to before `bytes` is taken from, so that the sum is never too low.
    retired: AtomicU64,
    given_back_later: AtomicU64,
    /// For `bytes` and `retired`.
    pieces: PooledCharge,
    /// For slots that were free when the charge for pieces last fell: they are never given back. One that is used again is
    /// charged twice until it falls again.
    free_slots: Charge,
}

/// Part of the memory for versions that may be retired before somebody hastens to free it.
const RETIRED_PART: u64 = 32;

/// Free lists, so that threads rarely meet at one.
const SHARDS: usize = 16;

impl Versions {
    /// An empty table that refuses to hold more than `bytes_max` bytes, charged to `memory`.
    #[must_use]
    pub fn new(bytes_max: u64, memory: &Arc<Account>) -> Versions {
        Versions {
            // As many as can be live, and some for each shard that has none left while others have.
            chunks: (0..(bytes_max as usize / LEAST_BYTES / CHUNK + 2).min(CHUNKS))
                .map(|_| OnceLock::new())
                .collect(),
            free: std::array::from_fn(|_| Mutex::new(Vec::new())),
            next_unused: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            bytes_max,
            retired: AtomicU64::new(0),
            given_back_later: AtomicU64::new(0),
            pieces: PooledCharge::new(memory),
            free_slots: memory.charge(0),
        }
    }

    fn slot(&self, index: usize) -> &Slot {
        &self.chunks[index / CHUNK].get_or_init(|| (0..CHUNK).map(|_| Slot::default()).collect())
            [index % CHUNK]
    }

    /// The slot of a handle that may have been in a page, if it was ever used.
    fn slot_of(&self, handle: VersionHandle) -> Option<&Slot> {
        Some(&self.chunks.get(handle.index() / CHUNK)?.get()?[handle.index() % CHUNK])
    }

    /// A new version; `shard` is a hint that is equal for calls of one thread.
    ///
    /// # Errors
    /// `OutOfMemory` at the version budget: long snapshots or large transactions hold too many versions.
    pub fn create(&self, shard: usize, stamp: Stamp, undo: Undo, guard: &Guard) -> Result<VersionHandle> {
        let size = undo.bytes();
        if self.bytes.load(Ordering::Relaxed) + size > self.bytes_max || allocation_failure::is_injected() {
            return Err(Error::new(
                ErrorKind::OutOfMemory,
                format!(
                    "versions fill version_bytes = {}; a long snapshot or a large transaction holds them",
                    self.bytes_max
                ),
            ));
        }
        let index = self.take_slot(shard)?;
        self.keep(size);
        let slot = self.slot(index);
        // Release: who takes this stamp for that of the slot's version before sees that its generation has passed.
        slot.stamp.store(stamp.0, Ordering::Release);
        slot.undo.replace(Some(undo), guard);
        // The handle becomes reachable through a page latch, which orders these stores before any reader's loads.
        Ok(VersionHandle::new(index, slot.generation.load(Ordering::Relaxed)))
    }

    /// So many bytes more are there of versions, or because of them.
    pub(super) fn keep(&self, more: u64) {
        let bytes = self.bytes.fetch_add(more, Ordering::SeqCst) + more;
        self.pieces.note_use(bytes + self.retired.load(Ordering::Relaxed));
    }

    /// So many bytes are gone that were kept because of versions.
    pub(super) fn keep_no_more(&self, less: u64) {
        self.bytes.fetch_sub(less, Ordering::SeqCst);
    }

    fn take_slot(&self, shard: usize) -> Result<usize> {
        if let Some(index) = self.free[shard % SHARDS].lock().pop() {
            return Ok(index as usize);
        }
        let index = self.next_unused.fetch_add(1, Ordering::Relaxed);
        if index < CHUNK * self.chunks.len() {
            return Ok(index);
        }
        self.next_unused.fetch_sub(1, Ordering::Relaxed);
        let stolen = self.free.iter().find_map(|list| list.lock().pop());
        stolen
            .map(|i| i as usize)
            .ok_or_else(|| Error::new(ErrorKind::OutOfMemory, "all version slots are in use"))
    }

    /// The version behind `handle`, or `None` if everybody sees the newer value (invariant 1).
    ///
    /// `guard` must have been pinned before the handle was read from a page or chain (invariant 3).
    #[must_use]
    pub fn read<'g>(&'g self, handle: VersionHandle, guard: &'g Guard) -> Option<Version<'g>> {
        let slot = self.slot_of(handle)?;
        if slot.generation.load(Ordering::Acquire) & GENERATION_MASK != handle.generation() {
            return None;
        }
        let stamp = slot.stamp.load(Ordering::Acquire);
        let undo = slot.undo.load(guard);
        // Pairs with the release increment in `give_back`: fields of a reused slot are not believed.
        fence(Ordering::Acquire);
        if slot.generation.load(Ordering::Relaxed) & GENERATION_MASK != handle.generation() {
            return None;
        }
        undo.map(|undo| Version { stamp: Stamp(stamp), undo })
    }

    /// True if `word` needs nobody's attention any more.
    #[must_use]
    pub fn is_settled(&self, word: u64) -> bool {
        match VersionHandle::from_word(word) {
            None => true,
            Some(handle) => self.slot_of(handle).is_none_or(|slot| {
                slot.generation.load(Ordering::Acquire) & GENERATION_MASK != handle.generation()
            }),
        }
    }

    /// Replaces the in-progress stamp with the CSN, or with ABORTED. Only the writer calls this, and the collector, for a version that
    /// it has pruned.
    pub fn set_stamp(&self, handle: VersionHandle, stamp: Stamp) {
        self.slot(handle.index()).stamp.store(stamp.0, Ordering::Release);
    }

    /// The same if the stamp is still `old`, that of a transaction in progress, which no other transaction ever has.
    pub fn change_stamp(&self, handle: VersionHandle, old: Stamp, new: Stamp) {
        let stamp = &self.slot(handle.index()).stamp;
        let _ = stamp.compare_exchange(old.0, new.0, Ordering::Release, Ordering::Relaxed);
    }

    /// Puts another before-image under a live version (pruning). Only the collector, which alone gives slots back,
    /// calls this.
    pub fn replace_undo(self: &Arc<Self>, handle: VersionHandle, undo: Undo, guard: &Guard) {
        let slot = self.slot(handle.index());
        let old = slot.undo.load(guard).map_or(0, Undo::bytes);
        self.keep(undo.bytes());
        slot.undo.replace(Some(undo), guard);
        self.retire(old, guard);
    }

    /// Gives slots back at once (invariant 2), but those whose handle was stale already.
    pub fn give_back(self: &Arc<Self>, shard: usize, handles: &[VersionHandle], guard: &Guard) {
        let mut bytes = 0;
        let mut given_back = Vec::with_capacity(handles.len());
        for handle in handles {
            if let Some(taken) = self.leave(*handle, guard) {
                bytes += taken;
                given_back.push(handle.index() as u32);
            }
        }
        self.free[shard % SHARDS].lock().append(&mut given_back);
        self.retire(bytes, guard);
    }

    /// Takes the before-image out of a slot and makes its handle stale; returns what the version took, `None` if it was stale already.
    fn leave(&self, handle: VersionHandle, guard: &Guard) -> Option<u64> {
        let slot = self.slot(handle.index());
        let generation = slot.generation.load(Ordering::Relaxed);
        if generation & GENERATION_MASK != handle.generation() {
            return None;
        }
        let next = generation + 1;
        slot.generation.compare_exchange(generation, next, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        let bytes = slot.undo.load(guard).map_or(0, Undo::bytes);
        slot.undo.replace(None, guard);
        Some(bytes)
    }

    /// Before-images of `bytes` were taken out of their slots under `guard` (invariant 4).
    fn retire(self: &Arc<Self>, bytes: u64, guard: &Guard) {
        if bytes == 0 {
            return;
        }
        self.retired.fetch_add(bytes, Ordering::SeqCst);
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        let versions = self.clone();
        // A thread's garbage is freed in the order in which it was retired: this is after the images.
        guard.defer(move || versions.retired.fetch_sub(bytes, Ordering::Relaxed));
    }

    /// Gives the slot back when no reader that could hold the handle is left (invariant 3).
    pub fn give_back_later(self: &Arc<Self>, shard: usize, handle: VersionHandle, guard: &Guard) {
        let versions = self.clone();
        versions.given_back_later.fetch_add(1, Ordering::Relaxed);
        guard.defer(move || {
            versions.give_back(shard, &[handle], &crate::sync::epoch::pin());
            versions.given_back_later.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// How much of the last quarter of the bound is used, in 256ths of it; 0 if none is.
    #[inline]
    #[must_use]
    pub fn part_of_last_quarter(&self) -> u64 {
        let (bytes, quarter) = (self.bytes.load(Ordering::Relaxed), self.bytes_max / 4);
        let used = bytes.saturating_sub(self.bytes_max - quarter);
        if used == 0 { 0 } else { (used << 8).div_ceil(quarter.max(1)).min(256) }
    }

    /// Bytes that are charged and free, and all that are charged; slots do not count.
    #[must_use]
    pub fn surplus(&self) -> (u64, u64) {
        let charged = self.pieces.charged();
        (charged.saturating_sub(self.bytes_in_memory()), charged)
    }

    /// The charge is about to fall: see [`PooledCharge`].
    pub fn begin_charge_anew(&self) {
        self.pieces.restart_peak();
        self.pieces.note_use(self.bytes_in_memory());
    }

    /// The allocator has given back what was free: the charge falls.
    pub fn settle_charge(&self) {
        let used = self.next_unused.load(Ordering::SeqCst).min(CHUNK * self.chunks.len()) as u64;
        self.free_slots.set(used.saturating_sub(self.count()) * FREE_SLOT_BYTES as u64);
        self.pieces.lower_to_peak();
    }

    /// Bytes that are kept, and what is retired.
    pub(super) fn bytes_in_memory(&self) -> u64 {
        // In this order: what is retired in between is in both.
        let bytes = self.bytes.load(Ordering::SeqCst);
        bytes + self.retired.load(Ordering::SeqCst)
    }

    /// So much is retired that it is worth the cost of freeing it earlier than by itself.
    #[must_use]
    pub fn has_much_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed) > self.bytes_max / RETIRED_PART
    }

    /// Versions that are given back when no thread is left in an epoch in which it could have seen them.
    #[must_use]
    pub fn given_back_later(&self) -> u64 {
        self.given_back_later.load(Ordering::Relaxed)
    }

    /// Bytes held by live versions, and by deleted keys that wait for theirs to go, and how many may be.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        (self.bytes.load(Ordering::Relaxed), self.bytes_max)
    }

    /// Live versions.
    #[must_use]
    pub fn count(&self) -> u64 {
        let free: usize = self.free.iter().map(|list| list.lock().len()).sum();
        self.next_unused.load(Ordering::Relaxed).saturating_sub(free) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::epoch::pin;

    fn undo(bytes: &[u8]) -> Undo {
        Undo { prior: 0, before: Before::Value(bytes.into()) }
    }

    #[test]
    fn a_stale_handle_reads_as_settled() {
        let versions = Arc::new(Versions::new(1 << 20, &Arc::default()));
        let guard = pin();
        let stamp = Stamp::committed(Csn(5));
        let first = versions.create(0, stamp, undo(b"old"), &guard).expect("room");
        assert_eq!(versions.read(first, &guard).expect("live").stamp, stamp);
        assert!(!versions.is_settled(first.word()));
        versions.give_back(0, &[first], &guard);
        versions.give_back(0, &[first], &guard);
        assert_eq!(versions.count(), 0, "once is enough");
        let second = versions.create(0, stamp, undo(b"other"), &guard).expect("room");
        assert_eq!(first.index(), second.index());
        assert!(versions.read(first, &guard).is_none());
        assert!(versions.is_settled(first.word()) && versions.is_settled(0));
        assert_eq!(versions.count(), 1);
    }

    #[test]
    fn the_budget_is_a_clear_error_and_freed_bytes_come_back() {
        let versions = Arc::new(Versions::new(1000, &Arc::default()));
        let guard = pin();
        let stamp = Stamp::committed(Csn(1));
        let first = versions.create(0, stamp, undo(&[0; 700]), &guard).expect("room");
        let error = versions.create(0, stamp, undo(&[0; 700]), &guard).expect_err("full");
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(error.to_string().contains("version_bytes"));
        versions.give_back(0, &[first], &guard);
        assert_eq!(versions.bytes().0, 0);
        versions.create(0, stamp, undo(&[0; 700]), &guard).expect("room again");
    }

    #[test]
    fn a_deferred_slot_stays_readable_for_those_who_could_have_seen_it() {
        let versions = Arc::new(Versions::new(1 << 20, &Arc::default()));
        let reader = pin();
        let handle = versions.create(0, Stamp::committed(Csn(1)), undo(b"x"), &reader).expect("room");
        versions.set_stamp(handle, Stamp::ABORTED);
        versions.give_back_later(0, handle, &pin());
        assert_eq!(versions.read(handle, &reader).expect("still there").stamp, Stamp::ABORTED);
    }

    /// Once who panicked after its commit stamped its versions again, and they were somebody else's by then.
    #[test]
    fn a_version_that_was_given_back_is_not_stamped_again() {
        let versions = Arc::new(Versions::new(1 << 20, &Arc::default()));
        let (own, other, committed) = (Stamp(1 << 63 | 1), Stamp(1 << 63 | 2), Stamp::committed(Csn(7)));
        let create = |stamp| versions.create(0, stamp, undo(b"x"), &pin()).expect("room");
        let (first, second) = (create(own), create(own));
        versions.give_back(0, &[first], &pin());
        let again = create(other);
        assert_eq!(again.index(), first.index());
        versions.change_stamp(first, own, committed);
        versions.change_stamp(second, own, committed);
        let stamp = |handle| versions.read(handle, &pin()).expect("live").stamp;
        assert_eq!((stamp(again), stamp(second)), (other, committed));
    }

    #[test]
    fn the_charge_falls_when_readers_are_gone_and_the_allocator_gave_back_and_not_before() {
        let account = Arc::new(Account::default());
        let versions = Arc::new(Versions::new(8 << 20, &account));
        let stamp = Stamp::committed(Csn(1));
        let create = || versions.create(0, stamp, undo(&[0; 900]), &pin()).expect("room");
        let handles: Vec<_> = (0..5000).map(|_| create()).collect();
        let full = account.bytes();
        assert!(full >= 5000 * 900);
        let lower = || {
            versions.begin_charge_anew();
            versions.settle_charge();
        };
        let reader = pin();
        versions.give_back(0, &handles, &pin());
        assert_eq!(versions.bytes().0, 0);
        lower();
        assert!(account.bytes() >= full, "somebody may be looking at all of them");
        drop(reader);
        // The library frees some garbage each time; other tests' threads may be in an epoch.
        for _ in 0..10_000 {
            pin().flush();
            if versions.bytes_in_memory() == 0 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(versions.surplus(), (full, full));
        lower();
        // Slots are kept.
        assert_eq!(account.bytes(), 5000 * FREE_SLOT_BYTES as u64);
        create();
        assert!(account.bytes() > 5000 * FREE_SLOT_BYTES as u64, "it rises again");
    }
}
