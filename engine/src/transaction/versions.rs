//! Versions: what an entry was before its newest change.
//!
//! A page holds the newest value of a key and a stamp word. The word is 0 for a value that every
//! snapshot sees, or the [`VersionHandle`] of a version slot, which names the writer of the value
//! and holds the value before:
//!
//! ```text
//!  page entry            version slot            undo
//!  ┌───────┬───────┐     ┌────────────────┐      ┌───────────────┬──────────────────┐
//!  │ word ─┼─ value│ ──▶ │ stamp (CSN 90) │ ───▶ │ prior word ─┐ │ value before 90  │
//!  └───────┴───────┘     └────────────────┘      └─────────────┼─┴──────────────────┘
//!                                                              └──▶ version slot (CSN 70) ──▶ …
//! ```
//!
//! 1. A slot is reused under a new generation. A handle whose generation has passed means "every
//!    snapshot sees the value". So no page or chain is ever searched for handles to unlink; stale
//!    handles vanish when the page is written out.
//! 2. A slot is given back at once only when its CSN is at or below every snapshot that is or will
//!    be pinned, and below the watermark. A reader that finds its handle stale would have seen the
//!    value anyway, and depends on nothing.
//! 3. In every other case (abort, rollback to a savepoint, pruning below a long snapshot) the slot
//!    is given back only after an epoch. A reader that copied the handle from a page finds the slot
//!    intact, possibly marked ABORTED, and then reads the page again.
//! 4. Before-images that were given back stay in memory until no reader can be looking at them:
//!    their free is *deferred*. Until then they count as memory, but not against the bound for
//!    versions.
//! 5. Generations have 37 bits: a stale handle is mistaken for a live one only after 2^37 reuses of
//!    one slot between two checkpoints, each of which clears the stale handles of the pages it
//!    writes.

use super::descriptor::Stamp;
use crate::base::{Account, Charge, Csn, Error, ErrorKind, PooledCharge, Result, allocation_failure};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use crate::sync::epoch::{EpochBytes, Guard};
use crate::tree::{LargeReference, REFERENCE_BYTES};
use std::sync::{Arc, OnceLock};

const CHUNK: usize = 1 << 12;
const CHUNKS: usize = 1 << 14;
const INDEX_BITS: u32 = 26;
const GENERATION_BITS: u32 = 37;
const GENERATION_MASK: u64 = (1 << GENERATION_BITS) - 1;

const _: () = assert!(CHUNK * CHUNKS == 1 << INDEX_BITS);
const _: () = assert!(1 + INDEX_BITS + GENERATION_BITS == 64);

/// The stamp word of an entry with a version: bit 63 set, 37 bits generation, 26 bits index. 0 is
/// "settled".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct VersionHandle(u64);

impl VersionHandle {
    fn new(index: usize, generation: u64) -> VersionHandle {
        debug_assert!(index < 1 << INDEX_BITS, "a version's index fits its word");
        VersionHandle(1 << 63 | (generation & GENERATION_MASK) << INDEX_BITS | index as u64)
    }

    /// Returns the handle in a page's stamp word, if the word holds one.
    #[must_use]
    pub fn from_word(word: u64) -> Option<VersionHandle> {
        (word >> 63 == 1).then_some(VersionHandle(word))
    }

    /// Returns the word for a page.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before<'a> {
    /// There was no entry.
    Absent,
    /// A deleted entry, whose deletion may still be a dependency.
    Tombstone,
    /// A value in the entry.
    Value(&'a [u8]),
    /// A large value. Its pages are freed by the garbage collector, or stay with the entry if the
    /// change is taken back.
    Reference(LargeReference),
    /// The same as after: the row was only locked.
    Unchanged,
}

impl Before<'_> {
    /// Returns the reference to a large value.
    #[must_use]
    pub fn reference(&self) -> Option<LargeReference> {
        if let Before::Reference(reference) = self { Some(*reference) } else { None }
    }
}

/// The before-image of one change.
#[derive(Clone, Copy, Debug)]
pub struct Undo<'a> {
    /// The entry's stamp word before.
    pub prior: u64,
    /// The entry's content before.
    pub before: Before<'a>,
}

/// Bytes of an undo in memory before those of a value: the prior word, and the kind of content.
const HEAD_BYTES: usize = 9;

const ABSENT: u8 = 0;
const TOMBSTONE: u8 = 1;
const VALUE: u8 = 2;
const REFERENCE: u8 = 3;
const UNCHANGED: u8 = 4;

impl<'a> Undo<'a> {
    /// Calls `f` with the bytes of the undo in memory: the head, and the value.
    #[inline]
    fn with_bytes(&self, f: impl FnOnce(&[u8], &[u8])) {
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(&self.prior.to_le_bytes());
        let reference;
        let (kind, value): (u8, &[u8]) = match &self.before {
            Before::Absent => (ABSENT, &[]),
            Before::Tombstone => (TOMBSTONE, &[]),
            Before::Value(value) => (VALUE, value),
            Before::Reference(large) => {
                reference = large.encode();
                (REFERENCE, &reference)
            }
            Before::Unchanged => (UNCHANGED, &[]),
        };
        head[8] = kind;
        f(&head, value);
    }

    /// Returns the undo with these bytes, which [`Undo::with_bytes`] made.
    #[inline]
    fn of_bytes(bytes: &'a [u8]) -> Undo<'a> {
        let (head, value) = bytes.split_first_chunk::<HEAD_BYTES>().expect("an undo has a head");
        let (prior, kind) = head.split_first_chunk().expect("a head begins with a word");
        let before = match kind[0] {
            ABSENT => Before::Absent,
            TOMBSTONE => Before::Tombstone,
            VALUE => Before::Value(value),
            UNCHANGED => Before::Unchanged,
            _ => Before::Reference(LargeReference::decode(value).expect("it was encoded here")),
        };
        Undo { prior: u64::from_le_bytes(*prior), before }
    }

    /// Returns the bytes that this before-image and its slot count against the version budget.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let value = match &self.before {
            Before::Value(value) => value.len(),
            Before::Reference(_) => REFERENCE_BYTES,
            Before::Absent | Before::Tombstone | Before::Unchanged => 0,
        };
        Undo::bytes_of(HEAD_BYTES + value)
    }

    /// Returns what an undo of `len` bytes in memory counts against the version budget.
    fn bytes_of(len: usize) -> u64 {
        (OVERHEAD_BYTES + len) as u64
    }
}

/// Bytes that an allocator adds to a piece of memory, rounding included.
pub(super) const ALLOCATION_BYTES: usize = 24;
/// Bytes of a version's places in lists that grow by doubling: of its transaction, of the garbage,
/// of the free slots.
const LISTED_BYTES: usize = 2 * (size_of::<(Csn, VersionHandle)>() + size_of::<u32>());
/// Bytes of a version besides those of its undo: the number of these is in memory, too.
const OVERHEAD_BYTES: usize = size_of::<Slot>() + size_of::<usize>() + ALLOCATION_BYTES + LISTED_BYTES;
/// Bytes of a free slot, its place in the free list included.
const FREE_SLOT_BYTES: usize = size_of::<Slot>() + 2 * size_of::<u32>();

#[derive(Debug, Default)]
struct Slot {
    generation: AtomicU64,
    stamp: AtomicU64,
    undo: EpochBytes,
}

/// A version as a reader sees it.
#[derive(Clone, Copy, Debug)]
pub struct Version<'g> {
    /// The writer of the newer value.
    pub stamp: Stamp,
    /// The entry before.
    pub undo: Undo<'g>,
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
    /// Bytes whose free is deferred (invariant 4). Raised before `bytes` is lowered, so that the
    /// sum is never too low.
    deferred: AtomicU64,
    /// Slots that wait for an epoch (invariant 3).
    frees_pending: AtomicU64,
    /// For `bytes` and `deferred`.
    pieces: PooledCharge,
    /// For slots that were free when the charge for pieces was last lowered; slots stay allocated.
    /// A slot that is reused is charged twice until the charge is lowered again.
    free_slots: Charge,
}

/// Part of the memory for versions whose free may be deferred before a collector runs deferred
/// frees early.
const DEFERRED_PART: u64 = 32;

/// Free lists, so that threads rarely share one.
const SHARDS: usize = 16;

impl Versions {
    /// Returns an empty table that holds at most `bytes_max` bytes, charged to `memory`.
    #[must_use]
    pub fn new(bytes_max: u64, memory: &Arc<Account>) -> Versions {
        Versions {
            // As many as can be live, and some for shards that run out of free slots before others.
            chunks: (0..(bytes_max as usize / OVERHEAD_BYTES / CHUNK + 2).min(CHUNKS))
                .map(|_| OnceLock::new())
                .collect(),
            free: std::array::from_fn(|_| Mutex::new(Vec::new())),
            next_unused: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            bytes_max,
            deferred: AtomicU64::new(0),
            frees_pending: AtomicU64::new(0),
            pieces: PooledCharge::new(memory),
            free_slots: memory.charge(0),
        }
    }

    fn slot(&self, index: usize) -> &Slot {
        &self.chunks[index / CHUNK].get_or_init(|| (0..CHUNK).map(|_| Slot::default()).collect())
            [index % CHUNK]
    }

    /// Returns the slot of a handle from a page, if the slot was ever used.
    fn slot_of(&self, handle: VersionHandle) -> Option<&Slot> {
        Some(&self.chunks.get(handle.index() / CHUNK)?.get()?[handle.index() % CHUNK])
    }

    /// Creates a version; `shard` is a hint that is equal for calls of one thread.
    ///
    /// # Errors
    /// `OutOfMemory` at the version budget: long snapshots or large transactions hold too many
    /// versions.
    pub fn create(&self, shard: usize, stamp: Stamp, undo: Undo<'_>, guard: &Guard) -> Result<VersionHandle> {
        let size = undo.bytes();
        if self.bytes.load(Ordering::Relaxed) + size > self.bytes_max || allocation_failure::is_injected() {
            return Err(Error::new(
                ErrorKind::OutOfMemory,
                format!("versions fill version_bytes = {}", self.bytes_max),
            )
            .with_advice("end a long snapshot or a large transaction, or raise version_bytes"));
        }
        let index = self.take_slot(shard)?;
        self.add_bytes(size);
        let slot = self.slot(index);
        debug_assert!(slot.undo.load(guard).is_none(), "a free slot has no undo");
        // Release: a reader that takes this stamp for that of the slot's previous version sees the
        // new generation.
        slot.stamp.store(stamp.0, Ordering::Release);
        undo.with_bytes(|head, value| slot.undo.replace(Some((head, value)), guard));
        // The handle becomes reachable through a page latch, which orders these stores before any
        // reader's loads.
        Ok(VersionHandle::new(index, slot.generation.load(Ordering::Relaxed)))
    }

    /// Adds bytes of versions, or of what is kept because of versions.
    pub(super) fn add_bytes(&self, more: u64) {
        let bytes = self.bytes.fetch_add(more, Ordering::SeqCst) + more;
        self.pieces.note_use(bytes + self.deferred.load(Ordering::Relaxed));
    }

    /// Subtracts bytes that were kept because of versions.
    pub(super) fn subtract_bytes(&self, less: u64) {
        let before = self.bytes.fetch_sub(less, Ordering::SeqCst);
        debug_assert!(before >= less, "versions give back at most what they were charged");
    }

    fn take_slot(&self, shard: usize) -> Result<usize> {
        if let Some(index) = self.free[shard % SHARDS].lock().pop() {
            debug_assert!((index as usize) < CHUNK * self.chunks.len(), "a free slot exists");
            return Ok(index as usize);
        }
        let index = self.next_unused.fetch_add(1, Ordering::Relaxed);
        if index < CHUNK * self.chunks.len() {
            return Ok(index);
        }
        self.next_unused.fetch_sub(1, Ordering::Relaxed);
        let taken = self.free.iter().find_map(|list| list.lock().pop());
        taken.map(|i| i as usize).ok_or_else(|| {
            Error::new(ErrorKind::OutOfMemory, "all version slots are in use")
                .with_advice("end a long snapshot or a large transaction")
        })
    }

    /// Returns the version behind `handle`, or `None` if every snapshot sees the newer value
    /// (invariant 1).
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
        // Pairs with the release increment in `give_back`: fields of a reused slot are not used.
        fence(Ordering::Acquire);
        if slot.generation.load(Ordering::Relaxed) & GENERATION_MASK != handle.generation() {
            return None;
        }
        undo.map(|bytes| Version { stamp: Stamp(stamp), undo: Undo::of_bytes(bytes) })
    }

    /// Returns whether every snapshot sees the value with this stamp word.
    #[inline]
    #[must_use]
    pub fn is_settled(&self, word: u64) -> bool {
        match VersionHandle::from_word(word) {
            None => true,
            Some(handle) => self.slot_of(handle).is_none_or(|slot| {
                slot.generation.load(Ordering::Acquire) & GENERATION_MASK != handle.generation()
            }),
        }
    }

    /// Replaces the in-progress stamp with the CSN, or with ABORTED. Only the writer calls this,
    /// and the collector for a version that it has pruned.
    pub fn set_stamp(&self, handle: VersionHandle, stamp: Stamp) {
        debug_assert!(!self.is_settled(handle.word()), "only a version that exists gets a stamp");
        self.slot(handle.index()).stamp.store(stamp.0, Ordering::Release);
    }

    /// Replaces the stamp if it is still `old`, that of a transaction in progress, which no other
    /// transaction ever has.
    pub fn change_stamp(&self, handle: VersionHandle, old: Stamp, new: Stamp) {
        let stamp = &self.slot(handle.index()).stamp;
        let _ = stamp.compare_exchange(old.0, new.0, Ordering::Release, Ordering::Relaxed);
    }

    /// Replaces the before-image of a live version (pruning). Only the collector, which alone gives
    /// slots back, calls this.
    pub fn replace_undo(self: &Arc<Self>, handle: VersionHandle, undo: Undo<'_>, guard: &Guard) {
        let slot = self.slot(handle.index());
        debug_assert!(!self.is_settled(handle.word()), "only a version that exists gets another undo");
        debug_assert!(undo.prior != handle.word(), "a version is not its own predecessor");
        debug_assert!(slot.undo.load(guard).is_some(), "an undo replaces another");
        let old = slot.undo.load(guard).map_or(0, |bytes| Undo::bytes_of(bytes.len()));
        self.add_bytes(undo.bytes());
        undo.with_bytes(|head, value| slot.undo.replace(Some((head, value)), guard));
        self.defer_free(old, guard);
    }

    /// Gives slots back at once (invariant 2), except those whose handle is already stale.
    pub fn give_back(self: &Arc<Self>, shard: usize, handles: &[VersionHandle], guard: &Guard) {
        let mut bytes = 0;
        let mut given_back = Vec::with_capacity(handles.len());
        for handle in handles {
            if let Some(taken) = self.vacate(*handle, guard) {
                bytes += taken;
                given_back.push(handle.index() as u32);
            }
        }
        self.free[shard % SHARDS].lock().append(&mut given_back);
        self.defer_free(bytes, guard);
    }

    /// Removes the before-image from a slot and makes its handle stale. Returns the bytes of the
    /// version, `None` if the handle was stale already.
    fn vacate(&self, handle: VersionHandle, guard: &Guard) -> Option<u64> {
        let slot = self.slot(handle.index());
        let generation = slot.generation.load(Ordering::Relaxed);
        if generation & GENERATION_MASK != handle.generation() {
            return None;
        }
        let next = generation + 1;
        slot.generation.compare_exchange(generation, next, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        let bytes = slot.undo.load(guard).map_or(0, |bytes| Undo::bytes_of(bytes.len()));
        slot.undo.replace(None, guard);
        Some(bytes)
    }

    /// Counts before-images of `bytes` that were removed from their slots under `guard` (invariant
    /// 4).
    fn defer_free(self: &Arc<Self>, bytes: u64, guard: &Guard) {
        if bytes == 0 {
            return;
        }
        self.deferred.fetch_add(bytes, Ordering::SeqCst);
        let before = self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        debug_assert!(before >= bytes, "an undo that is freed was counted");
        let versions = self.clone();
        // A thread's deferred calls run in order: this one after the images are freed.
        guard.defer(move || {
            let before = versions.deferred.fetch_sub(bytes, Ordering::Relaxed);
            debug_assert!(before >= bytes, "bytes are freed once");
        });
    }

    /// Marks a version as taken back, so that readers read the page again, and gives its slot back
    /// later.
    pub(super) fn abort(self: &Arc<Self>, shard: usize, handle: VersionHandle, guard: &Guard) {
        self.set_stamp(handle, Stamp::ABORTED);
        self.give_back_later(shard, handle, guard);
    }

    /// Gives the slot back when no reader can hold the handle any more (invariant 3).
    pub fn give_back_later(self: &Arc<Self>, shard: usize, handle: VersionHandle, guard: &Guard) {
        let versions = self.clone();
        versions.frees_pending.fetch_add(1, Ordering::Relaxed);
        guard.defer(move || {
            versions.give_back(shard, &[handle], &crate::sync::epoch::pin());
            let before = versions.frees_pending.fetch_sub(1, Ordering::Relaxed);
            debug_assert!(before > 0, "each deferred free is counted once");
        });
    }

    /// Returns how much of the last quarter of the bound is used, in 256ths of the quarter; 0 if
    /// none is.
    #[inline]
    #[must_use]
    pub fn part_of_last_quarter(&self) -> u64 {
        let (bytes, quarter) = (self.bytes.load(Ordering::Relaxed), self.bytes_max / 4);
        let used = bytes.saturating_sub(self.bytes_max - quarter);
        if used == 0 { 0 } else { (used << 8).div_ceil(quarter.max(1)).min(256) }
    }

    /// Returns the bytes that are charged and free, and all that are charged; slots do not count.
    #[must_use]
    pub fn surplus(&self) -> (u64, u64) {
        let charged = self.pieces.charged();
        (charged.saturating_sub(self.bytes_in_memory()), charged)
    }

    /// Prepares to lower the charge: see [`PooledCharge`].
    pub fn begin_lowering_charge(&self) {
        self.pieces.restart_peak();
        self.pieces.note_use(self.bytes_in_memory());
    }

    /// Lowers the charge, after the allocator has returned `returned` bytes. Returns by how many
    /// bytes the charge for pieces fell.
    pub fn lower_charge(&self, returned: u64) -> u64 {
        let used = self.next_unused.load(Ordering::SeqCst).min(CHUNK * self.chunks.len()) as u64;
        self.free_slots.set(used.saturating_sub(self.count()) * FREE_SLOT_BYTES as u64);
        self.pieces.lower_to_peak(returned)
    }

    /// Returns the bytes of versions, deferred frees included.
    pub(super) fn bytes_in_memory(&self) -> u64 {
        // In this order: bytes that are deferred in between count twice, not never.
        let bytes = self.bytes.load(Ordering::SeqCst);
        bytes + self.deferred.load(Ordering::SeqCst)
    }

    /// Returns whether so many frees are deferred that running them early is worth its cost.
    #[must_use]
    pub fn has_much_deferred(&self) -> bool {
        self.deferred.load(Ordering::Relaxed) > self.bytes_max / DEFERRED_PART
    }

    /// Returns the number of slots that are given back when no thread is in an epoch in which it
    /// could have seen them.
    #[must_use]
    pub fn frees_pending(&self) -> u64 {
        self.frees_pending.load(Ordering::Relaxed)
    }

    /// Returns the bytes held by live versions and by deleted keys that wait for theirs to go, and
    /// how many may be.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        (self.bytes.load(Ordering::Relaxed), self.bytes_max)
    }

    /// Returns the number of live versions.
    #[must_use]
    pub fn count(&self) -> u64 {
        let free: usize = self.free.iter().map(|list| list.lock().len()).sum();
        self.next_unused.load(Ordering::Relaxed).saturating_sub(free) as u64
    }
}

#[cfg(test)]
mod tests;
