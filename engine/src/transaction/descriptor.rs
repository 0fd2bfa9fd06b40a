//! Descriptors: the public state of every transaction and snapshot.
//!
//! Versions written by a transaction in progress carry a [`Stamp`] that names its descriptor and
//! generation. A thread that reads such a stamp asks the descriptor.
//!
//! ```text
//!            begin          CSN about to be drawn     drawn, published      versions stamped
//!  FREE(g) ────────▶ ACTIVE(g+1) ────────▶ PREPARING ────────▶ READY ────────▶ FREE(g+1)
//!                        │ abort: every entry restored, then                       ▲
//!                        └─────────────────────────────────────────────────────────┘
//! ```
//!
//! 1. PREPARING is stored before the CSN is drawn, READY after it is known (both sequentially
//!    consistent). A thread that reads PREPARING waits for the number. Otherwise a snapshot taken
//!    between draw and READY would miss a transaction that is older than the snapshot.
//! 2. A snapshot is pinned in three steps: announce 0, read the counter (or the watermark), publish
//!    the number, all sequentially consistent. The collector reads its bound first and scans the
//!    pins afterwards. So the collector either sees the pin or has a bound below the number.
//! 3. A generation is never reused within a slot. So a stamp whose generation has passed belongs to
//!    a finished transaction, whose versions carry a CSN by then, or are gone.
//! 4. A pin can be copied, and its original may move afterwards. A scan that reads the slot of the
//!    copy before and the slot of the original after that sees neither. So copies are counted, each
//!    before its original moves, and a scan is repeated if the count rose meanwhile.
//! 5. A transaction that rolls back to a savepoint raises a counter after the rows are restored,
//!    and wakes the transactions that wait for it. A waiting transaction read the counter under the
//!    latch under which it saw the row held. So the row may be free once the counter has changed.

use crate::base::planted::{self, Bug};
use crate::base::{Csn, Error, ErrorKind, Result, TableId};
use crate::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Backoff, Event, Mutex};
use crossbeam_utils::CachePadded;
use std::cell::Cell;
use std::fmt;
use std::sync::OnceLock;

/// Descriptors in one chunk of the table.
const CHUNK: usize = 64;
/// Chunks: 65,536 open transactions and snapshots at most.
const CHUNKS: usize = 1024;

/// Tables that a descriptor names as changed; a transaction that changes more may change any.
const TABLES_NAMED: usize = 4;

const PHASE_BITS: u32 = 2;
const PHASE_MASK: u64 = (1 << PHASE_BITS) - 1;
const FREE: u64 = 0;
const ACTIVE: u64 = 1;
const PREPARING: u64 = 2;
const READY: u64 = 3;

const NO_PIN: u64 = u64::MAX;

/// The writer of a version: a CSN, or a descriptor in a certain generation.
///
/// ```text
///   bit 63 = 0   CSN
///   bit 63 = 1   bits 62..16 generation, bits 15..0 slot
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp(pub u64);

const IN_PROGRESS: u64 = 1 << 63;
/// The version was taken back: the reader reads the page again.
const ABORTED: u64 = u64::MAX;
/// The transaction aborted, but the page could not be read to take the version back.
const ORPHANED: u64 = u64::MAX - 1;

impl Stamp {
    /// The writer took its change back.
    pub const ABORTED: Stamp = Stamp(ABORTED);
    /// The writer aborted and could not take its change back. Every reader sees the value before
    /// the change, and the next writer of the row takes the change back.
    pub const ORPHANED: Stamp = Stamp(ORPHANED);

    /// Returns the stamp of a transaction that has pre-committed with `csn`.
    #[must_use]
    pub fn committed(csn: Csn) -> Stamp {
        debug_assert!(csn.0 & IN_PROGRESS == 0, "a CSN leaves the bit of running transactions free");
        Stamp(csn.0)
    }

    /// Returns the CSN of a committed version.
    pub(super) fn csn(self) -> Option<Csn> {
        (self.0 & IN_PROGRESS == 0).then_some(Csn(self.0))
    }

    fn in_progress(slot: usize, generation: u64) -> Stamp {
        debug_assert!(slot <= 0xffff && generation < 1 << 47, "slot and generation fit a stamp's word");
        Stamp(IN_PROGRESS | generation << 16 | slot as u64)
    }

    fn parts(self) -> Option<(usize, u64)> {
        if self.0 & IN_PROGRESS == 0 || self == Stamp::ABORTED || self == Stamp::ORPHANED {
            return None;
        }
        Some(((self.0 & 0xffff) as usize, (self.0 & !IN_PROGRESS) >> 16))
    }
}

/// What a stamp means at this moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Pre-committed or committed with this CSN.
    Committed(Csn),
    /// Written by a transaction in progress; the descriptor to wait for.
    InProgress(DescriptorId),
    /// The transaction finished after the stamp was read: read the stamp again.
    Finished,
    /// See [`Stamp::ORPHANED`].
    Orphaned,
}

/// A descriptor in a certain generation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct DescriptorId {
    slot: usize,
    generation: u64,
}

/// How errors and reports name a transaction in progress.
impl fmt::Display for DescriptorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot, self.generation)
    }
}

/// The transaction that held a row when another one looked.
#[derive(Clone, Copy, Debug)]
pub struct RowHolder {
    /// The transaction.
    pub id: DescriptorId,
    /// How often the holder had released rows by then (invariant 5).
    releases: u64,
}

#[derive(Debug)]
struct Descriptor {
    /// generation << 2 | phase. Written by the owner; FREE -> ACTIVE by the thread that takes the
    /// slot.
    state: AtomicU64,
    /// Valid in READY. Written by the owner before READY (release); read between two looks at the
    /// state (acquire).
    csn: AtomicU64,
    /// The pinned snapshot; 0 while it is being chosen; `NO_PIN` without one. Written by the owner,
    /// read by collectors.
    pin: AtomicU64,
    /// How often transactions of this slot have released rows and continued. Written by the owner.
    releases: AtomicU64,
    /// Token of the thread that wrote last in the transaction, or began it. Written by that thread
    /// (release). Cycle searches read the token (acquire).
    thread: AtomicU64,
    /// How many tables the transaction has begun to change. Written by the owner.
    tables_changed: AtomicUsize,
    /// Their identifiers, as far as there is room. Written before the count, by the owner.
    changed: [AtomicU32; TABLES_NAMED],
    /// Happens when the transaction of this slot, which waits for others, is to look again.
    wake: Event,
}

impl Default for Descriptor {
    fn default() -> Self {
        Descriptor {
            state: AtomicU64::new(FREE),
            csn: AtomicU64::new(0),
            pin: AtomicU64::new(NO_PIN),
            releases: AtomicU64::new(0),
            thread: AtomicU64::new(0),
            tables_changed: AtomicUsize::new(0),
            changed: std::array::from_fn(|_| AtomicU32::new(0)),
            wake: Event::new(),
        }
    }
}

type Chunk = Box<[CachePadded<Descriptor>]>;

/// All descriptors of a database.
#[derive(Debug)]
pub struct Descriptors {
    chunks: Box<[OnceLock<Chunk>]>,
    /// Slots below this were used at least once.
    high_water: AtomicUsize,
    /// Pins that were copied so far (invariant 4). Raised by the thread that copies one.
    copied: AtomicU64,
    grow: Mutex<()>,
}

static NEXT_THREAD: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);

thread_local! {
    /// The slot this thread used last: most likely free again, and its cache line is here.
    static LAST_SLOT: Cell<usize> = const { Cell::new(usize::MAX) };
    static THREAD_TOKEN: u64 = NEXT_THREAD.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
}

fn thread_token() -> u64 {
    THREAD_TOKEN.try_with(|t| *t).unwrap_or(0)
}

impl Default for Descriptors {
    fn default() -> Self {
        Descriptors {
            chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            high_water: AtomicUsize::new(0),
            copied: AtomicU64::new(0),
            grow: Mutex::new(()),
        }
    }
}

/// How far a transaction is with its commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    Active,
    /// The transaction draws its CSN, or has drawn it.
    Preparing,
    /// The transaction is visible to others.
    Ready(Csn),
}

impl Descriptors {
    fn get(&self, slot: usize) -> &Descriptor {
        &self.chunks[slot / CHUNK].get_or_init(|| (0..CHUNK).map(|_| CachePadded::default()).collect())
            [slot % CHUNK]
    }

    /// Returns whether a transaction or snapshot still holds `id`.
    fn is_taken_as(&self, id: DescriptorId) -> bool {
        let state = self.get(id.slot).state.load(Ordering::SeqCst);
        state >> PHASE_BITS == id.generation && state & PHASE_MASK != FREE
    }

    /// Takes a free descriptor, which is then ACTIVE and has no pin.
    ///
    /// # Errors
    /// `Busy` when all are taken.
    pub fn take(&self) -> Result<DescriptorId> {
        let last = LAST_SLOT.try_with(Cell::get).unwrap_or(usize::MAX);
        if last < self.high_water.load(Ordering::Acquire)
            && let Some(id) = self.try_take(last)
        {
            return Ok(id);
        }
        let id = self.take_any()?;
        let _ = LAST_SLOT.try_with(|cell| cell.set(id.slot));
        Ok(id)
    }

    pub(super) fn take_any(&self) -> Result<DescriptorId> {
        let _grow = self.grow.lock();
        let used = self.high_water.load(Ordering::Acquire);
        if let Some(id) = (0..used).find_map(|slot| self.try_take(slot)) {
            return Ok(id);
        }
        if used == CHUNK * CHUNKS {
            return Err(Error::new(
                ErrorKind::Busy,
                format!("{used} transactions and snapshots are open, which is the limit"),
            )
            .with_advice("end some of them"));
        }
        // The slot must be initialised before the collector can scan it, and taken before another
        // thread can take it.
        let id = self.try_take(used);
        self.high_water.store(used + 1, Ordering::SeqCst);
        id.ok_or_else(|| Error::new(ErrorKind::Busy, "a new descriptor was taken before it was published"))
    }

    fn try_take(&self, slot: usize) -> Option<DescriptorId> {
        let descriptor = self.get(slot);
        let state = descriptor.state.load(Ordering::Relaxed);
        if state & PHASE_MASK != FREE {
            return None;
        }
        let generation = (state >> PHASE_BITS) + 1;
        descriptor
            .state
            .compare_exchange(state, generation << PHASE_BITS | ACTIVE, Ordering::AcqRel, Ordering::Relaxed)
            .ok()?;
        descriptor.thread.store(thread_token(), Ordering::Release);
        Some(DescriptorId { slot, generation })
    }

    /// Pins the snapshot that `choose` returns. `choose` runs after the pin is announced (invariant
    /// 2).
    pub fn pin(&self, id: DescriptorId, choose: impl FnOnce() -> Csn) -> Csn {
        let pin = &self.get(id.slot).pin;
        pin.store(0, Ordering::SeqCst);
        debug_assert!(self.is_taken_as(id), "only the holder of a descriptor pins with it");
        let csn = choose();
        pin.store(csn.0, Ordering::SeqCst);
        csn
    }

    /// Notes that the calling thread works for the transaction, which may have been moved from
    /// another thread.
    #[inline]
    pub(super) fn set_thread(&self, id: DescriptorId) {
        let (thread, token) = (&self.get(id.slot).thread, thread_token());
        if thread.load(Ordering::Relaxed) != token {
            thread.store(token, Ordering::Release);
        }
    }

    /// Takes a free descriptor with the pin of `original`, which the caller owns and may move or
    /// release afterwards (invariant 4).
    pub(super) fn take_pinned_like(&self, original: DescriptorId) -> Result<DescriptorId> {
        let copy = self.take()?;
        self.get(copy.slot).pin.store(self.get(original.slot).pin.load(Ordering::SeqCst), Ordering::SeqCst);
        self.copied.fetch_add(1, Ordering::SeqCst);
        Ok(copy)
    }

    /// Returns the stamp that versions of this transaction carry until it commits.
    #[must_use]
    pub fn stamp(&self, id: DescriptorId) -> Stamp {
        Stamp::in_progress(id.slot, id.generation)
    }

    /// Announces that the transaction is about to draw a CSN (invariant 1).
    pub fn set_preparing(&self, id: DescriptorId) {
        if planted::is(Bug::PreparingNotAnnounced) {
            return;
        }
        debug_assert!(self.is_taken_as(id), "only the holder of a descriptor prepares with it");
        self.get(id.slot).state.store(id.generation << PHASE_BITS | PREPARING, Ordering::SeqCst);
    }

    /// Publishes the CSN, whose record is in the log buffer.
    pub fn set_ready(&self, id: DescriptorId, csn: Csn) {
        let descriptor = self.get(id.slot);
        debug_assert!(self.is_taken_as(id), "only the holder of a descriptor has a CSN in it");
        descriptor.csn.store(csn.0, Ordering::Release);
        descriptor.state.store(id.generation << PHASE_BITS | READY, Ordering::SeqCst);
    }

    /// Returns how far the transaction is with its commit.
    pub(super) fn progress(&self, id: DescriptorId) -> Progress {
        let descriptor = self.get(id.slot);
        match descriptor.state.load(Ordering::SeqCst) & PHASE_MASK {
            PREPARING => Progress::Preparing,
            READY => Progress::Ready(Csn(descriptor.csn.load(Ordering::Acquire))),
            _ => Progress::Active,
        }
    }

    /// Withdraws a commit that stopped before it was ready: the transaction is going to be taken
    /// back.
    pub(super) fn set_active_again(&self, id: DescriptorId) {
        debug_assert!(self.is_taken_as(id), "only the holder of a descriptor goes back");
        self.get(id.slot).state.store(id.generation << PHASE_BITS | ACTIVE, Ordering::SeqCst);
    }

    /// Ends the transaction, whose stamp no version carries any more. The caller then wakes the
    /// transactions that wait for it.
    pub fn release(&self, id: DescriptorId) {
        let descriptor = self.get(id.slot);
        debug_assert!(self.is_taken_as(id), "a descriptor is released once, by its holder");
        descriptor.pin.store(NO_PIN, Ordering::Release);
        descriptor.tables_changed.store(0, Ordering::Relaxed);
        descriptor.state.store(id.generation << PHASE_BITS | FREE, Ordering::SeqCst);
    }

    /// Notes that rows of the transaction, which continues, are restored (invariant 5). The caller
    /// then wakes the transactions that wait for one.
    pub(super) fn rows_released(&self, id: DescriptorId) {
        self.get(id.slot).releases.fetch_add(1, Ordering::SeqCst);
        debug_assert!(self.is_taken_as(id), "a transaction gives up rows before it ends");
    }

    /// Returns whether the transaction that `holder` names may still hold the row.
    pub(super) fn still_holds(&self, holder: RowHolder) -> bool {
        matches!(self.status(self.stamp(holder.id)), Status::InProgress(_))
            && self.releases(holder.id.slot) == holder.releases
    }

    /// Returns the event on which the transaction sleeps while it waits for others.
    pub(super) fn wake_event(&self, id: DescriptorId) -> &Event {
        &self.get(id.slot).wake
    }

    /// Returns whether the transaction is in progress and the calling thread worked for it last.
    pub(super) fn is_of_this_thread(&self, id: DescriptorId) -> bool {
        let descriptor = self.get(id.slot);
        let is_own = descriptor.thread.load(Ordering::Acquire) == thread_token();
        is_own && descriptor.state.load(Ordering::SeqCst) == id.generation << PHASE_BITS | ACTIVE
    }

    /// Notes that the transaction is about to change rows of `table` for the first time. The caller
    /// looks for locks on the table afterwards.
    pub(super) fn note_change_in(&self, id: DescriptorId, table: TableId) {
        let descriptor = self.get(id.slot);
        debug_assert!(self.is_taken_as(id), "a running transaction notes what it changes");
        let count = descriptor.tables_changed.load(Ordering::Relaxed);
        if let Some(place) = descriptor.changed.get(count) {
            place.store(table.0, Ordering::Relaxed);
        }
        descriptor.tables_changed.store(count + 1, Ordering::SeqCst);
    }

    /// Returns the other transactions in progress that may have changed rows of `table`.
    pub(super) fn changers_of(&self, table: TableId, me: DescriptorId) -> Vec<DescriptorId> {
        let mut changers = Vec::new();
        for slot in 0..self.high_water.load(Ordering::SeqCst) {
            let descriptor = self.get(slot);
            let state = descriptor.state.load(Ordering::SeqCst);
            let count = descriptor.tables_changed.load(Ordering::SeqCst);
            let named = &descriptor.changed[..count.min(TABLES_NAMED)];
            let changes =
                count > TABLES_NAMED || named.iter().any(|id| id.load(Ordering::Relaxed) == table.0);
            let id = DescriptorId { slot, generation: state >> PHASE_BITS };
            if changes && id != me && matches!(state & PHASE_MASK, ACTIVE | PREPARING) {
                changers.push(id);
            }
        }
        changers
    }

    /// Returns `id` as the holder of a row, whose page the caller has latched (invariant 5).
    pub(super) fn holder(&self, id: DescriptorId) -> RowHolder {
        RowHolder { id, releases: self.releases(id.slot) }
    }

    fn releases(&self, slot: usize) -> u64 {
        self.get(slot).releases.load(Ordering::SeqCst)
    }

    /// Returns what `stamp` means now. Waits while its transaction draws its CSN, which takes
    /// nanoseconds unless that thread is off the CPU.
    #[must_use]
    pub fn status(&self, stamp: Stamp) -> Status {
        let Some((slot, generation)) = stamp.parts() else {
            return match stamp {
                Stamp::ABORTED => Status::Finished,
                Stamp::ORPHANED => Status::Orphaned,
                committed => Status::Committed(Csn(committed.0)),
            };
        };
        let descriptor = self.get(slot);
        let mut backoff = Backoff::new();
        loop {
            let state = descriptor.state.load(Ordering::SeqCst);
            if state >> PHASE_BITS != generation {
                return Status::Finished;
            }
            match state & PHASE_MASK {
                ACTIVE => return Status::InProgress(DescriptorId { slot, generation }),
                PREPARING => backoff.pause(),
                READY => {
                    let csn = descriptor.csn.load(Ordering::Acquire);
                    if descriptor.state.load(Ordering::SeqCst) == state {
                        return Status::Committed(Csn(csn));
                    }
                }
                _ => return Status::Finished,
            }
        }
    }

    /// Waits until every transaction with a CSN at or below `csn`, which was drawn before, has
    /// ended and so has queued its garbage. A transaction that has drawn its CSN waits for nothing
    /// any more.
    pub fn await_ended(&self, csn: Csn) {
        for slot in 0..self.high_water.load(Ordering::SeqCst) {
            let descriptor = self.get(slot);
            let mut backoff = Backoff::new();
            loop {
                let state = descriptor.state.load(Ordering::SeqCst);
                let number = descriptor.csn.load(Ordering::Acquire);
                let same = descriptor.state.load(Ordering::SeqCst) == state;
                match state & PHASE_MASK {
                    PREPARING => {}
                    READY if !same || number <= csn.0 => {}
                    _ => break,
                }
                backoff.pause();
            }
        }
    }

    /// Returns the oldest CSN that a pinned snapshot may need, at most `bound`, which must have
    /// been read before this call.
    #[must_use]
    pub fn oldest_pin(&self, bound: Csn) -> Csn {
        debug_assert!(bound.0 != NO_PIN, "a horizon is a CSN");
        self.scan_until_stable(|| self.each_pin().fold(bound, Ord::min))
    }

    /// Returns whether a snapshot of the calling thread is pinned at `csn`.
    pub fn is_own_pin(&self, csn: Csn) -> bool {
        let me = thread_token();
        let pinned = |descriptor: &Descriptor| descriptor.pin.load(Ordering::SeqCst) == csn.0;
        (0..self.high_water.load(Ordering::SeqCst))
            .map(|slot| self.get(slot))
            .any(|descriptor| descriptor.thread.load(Ordering::Relaxed) == me && pinned(descriptor))
    }

    /// Returns all pinned snapshots, in no order; 0 for one that is being chosen.
    #[must_use]
    pub fn pins(&self) -> Vec<Csn> {
        self.scan_until_stable(|| self.each_pin().collect())
    }

    /// Returns what `scan` finds while no pin is copied (invariant 4). Copies are rare: one for
    /// each large value that is opened.
    fn scan_until_stable<T>(&self, mut scan: impl FnMut() -> T) -> T {
        loop {
            let copied = self.copied.load(Ordering::SeqCst);
            let found = scan();
            if self.copied.load(Ordering::SeqCst) == copied {
                return found;
            }
        }
    }

    /// Returns the pins, each as it is when the iterator reads it.
    fn each_pin(&self) -> impl Iterator<Item = Csn> + '_ {
        (0..self.high_water.load(Ordering::SeqCst))
            .map(|slot| self.get(slot).pin.load(Ordering::SeqCst))
            .filter(|pin| *pin != NO_PIN)
            .map(Csn)
    }

    /// Returns the slot of the descriptor: an index for caches per slot.
    #[must_use]
    pub fn slot(id: DescriptorId) -> usize {
        id.slot
    }
}

#[cfg(test)]
mod tests;
