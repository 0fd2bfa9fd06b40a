//! Descriptors: the public state of every transaction and snapshot.
//!
//! Versions written by an unfinished transaction carry a [`Stamp`] that names its descriptor and generation. Whoever
//! meets such a stamp asks the descriptor.
//!
//! ```text
//!            begin                  CSN about to be drawn       drawn, published           every version stamped
//!  FREE(g) ────────▶ ACTIVE(g+1) ─────────────▶ PREPARING ─────────────▶ READY ───────────────▶ FREE(g+1)
//!                        │ abort: every entry restored, then                                       ▲
//!                        └─────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! 1. PREPARING is stored before the CSN is drawn, READY after it is known (both sequentially consistent). Whoever
//!    meets PREPARING waits for the number: a snapshot taken between draw and READY would otherwise miss a transaction
//!    that is older than itself.
//! 2. A snapshot is pinned in three steps: announce 0, read the counter (or W, of what is committed), publish the number, all
//!    sequentially consistent. The collector reads its bound first and scans the pins afterwards, so it either sees the pin or has a bound below
//!    the number.
//! 3. A generation is never reused within a slot, so a stamp whose generation has passed belongs to a finished
//!    transaction: its versions carry a CSN by then, or are gone.
//! 4. A pin can be copied, and its original move on then. A scan that looked at the copy's place before and at the original's after has
//!    seen neither. So copies are counted, each before its original moves, and a scan during which the count rose is done again.
//! 5. A transaction that rolls back to a savepoint counts that, after the rows are back, and wakes who waits for it. Who waits for a row took
//!    the count under the latch under which it saw the row held: once the count has moved, the row may be free.

use crate::base::clock::{Clock, Nanos};
use crate::base::planted::{self, Bug};
use crate::base::{Csn, Error, ErrorKind, Result};
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Backoff, Event, Mutex};
use crossbeam_utils::CachePadded;
use std::cell::Cell;
use std::sync::OnceLock;
use std::time::Duration;

/// Descriptors in one chunk of the table.
const CHUNK: usize = 64;
/// Chunks: 65,536 open transactions and snapshots at most.
const CHUNKS: usize = 1024;

const PHASE_BITS: u32 = 2;
const PHASE_MASK: u64 = (1 << PHASE_BITS) - 1;
const FREE: u64 = 0;
const ACTIVE: u64 = 1;
const PREPARING: u64 = 2;
const READY: u64 = 3;

const NO_PIN: u64 = u64::MAX;

/// Who wrote a version: a CSN, or a descriptor in a certain generation.
///
/// ```text
///   bit 63 = 0   CSN
///   bit 63 = 1   bits 62..16 generation, bits 15..0 slot
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp(pub u64);

const IN_PROGRESS: u64 = 1 << 63;
/// The version was taken back: look at the page again.
const ABORTED: u64 = u64::MAX;
/// Its transaction aborted, but the page could not be read to take the version back.
const LEFT_BEHIND: u64 = u64::MAX - 1;

impl Stamp {
    /// The writer took its change back.
    pub const ABORTED: Stamp = Stamp(ABORTED);
    /// The writer aborted and could not take its change back: what was before the change counts, for everybody. Whoever writes
    /// the row next takes it back.
    pub const LEFT_BEHIND: Stamp = Stamp(LEFT_BEHIND);

    /// The stamp of a transaction that has committed, at least in memory.
    #[must_use]
    pub fn committed(csn: Csn) -> Stamp {
        Stamp(csn.0)
    }

    /// The CSN, if that is what it is.
    pub(super) fn csn(self) -> Option<Csn> {
        (self.0 & IN_PROGRESS == 0).then_some(Csn(self.0))
    }

    fn in_progress(slot: usize, generation: u64) -> Stamp {
        Stamp(IN_PROGRESS | generation << 16 | slot as u64)
    }

    fn parts(self) -> Option<(usize, u64)> {
        if self.0 & IN_PROGRESS == 0 || self == Stamp::ABORTED || self == Stamp::LEFT_BEHIND {
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
    /// Written by a transaction that has not asked to commit; the descriptor to wait for.
    InProgress(DescriptorId),
    /// Finished since the stamp was read: read it again.
    Finished,
    /// See [`Stamp::LEFT_BEHIND`].
    LeftBehind,
}

/// A descriptor in a certain generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DescriptorId {
    slot: usize,
    generation: u64,
}

/// Who holds a row, as of a moment at which it did.
#[derive(Clone, Copy, Debug)]
pub struct RowHolder {
    id: DescriptorId,
    /// How often it had given rows back (invariant 5).
    given_back: u64,
}

/// How long a change still waits for its row, whoever holds that meanwhile.
#[derive(Debug)]
pub struct RowWait {
    clock: Clock,
    begun: Nanos,
    most: Duration,
}

impl RowWait {
    /// Begins to wait.
    #[must_use]
    pub fn begin(most: Duration) -> RowWait {
        let clock = Clock::real();
        RowWait { begun: clock.now(), clock, most }
    }

    fn left(&self) -> Option<Duration> {
        let waited = self.clock.now().since(self.begun);
        self.most.checked_sub(waited).filter(|left| !left.is_zero())
    }
}

#[derive(Debug)]
struct Descriptor {
    /// generation << 2 | phase. Written by the owner; FREE -> ACTIVE by whoever takes the slot.
    state: AtomicU64,
    /// Valid in READY. Written by the owner before READY (release); read between two looks at the state (acquire).
    csn: AtomicU64,
    /// The pinned snapshot; 0 while it is being chosen; `NO_PIN` without one. Written by the owner, read by collectors.
    pin: AtomicU64,
    /// The stamp of the transaction that this one waits for, 0 if none. Written by the owner, read by cycle searches.
    waits_for: AtomicU64,
    /// How often that one had given rows back when this one saw that it held the row. Written before `waits_for`, by the owner.
    waits_since: AtomicU64,
    /// How often the slot's transactions have given rows back and gone on. Written by the owner.
    given_back: AtomicU64,
    /// Token of the thread that wrote last in the transaction, or began it. Written by that thread (release), read by cycle searches (acquire)
    /// before they look whether the state is of the transaction they mean.
    thread: AtomicU64,
    /// Happens when the descriptor becomes free, or rows do that it held.
    lets_go: Event,
}

impl Default for Descriptor {
    fn default() -> Self {
        Descriptor {
            state: AtomicU64::new(FREE),
            csn: AtomicU64::new(0),
            pin: AtomicU64::new(NO_PIN),
            waits_for: AtomicU64::new(0),
            waits_since: AtomicU64::new(0),
            given_back: AtomicU64::new(0),
            thread: AtomicU64::new(0),
            lets_go: Event::new(),
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
    /// Pins that were copied so far (invariant 4). Raised by who copied one.
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

/// Where a transaction is on its way to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    Active,
    /// It draws its CSN, or has drawn it.
    Preparing,
    /// Everybody sees it.
    Ready(Csn),
}

impl Descriptors {
    fn get(&self, slot: usize) -> &Descriptor {
        &self.chunks[slot / CHUNK].get_or_init(|| (0..CHUNK).map(|_| CachePadded::default()).collect())
            [slot % CHUNK]
    }

    /// Takes a free descriptor, ACTIVE and without a pin.
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

    fn take_any(&self) -> Result<DescriptorId> {
        let _grow = self.grow.lock();
        let used = self.high_water.load(Ordering::Acquire);
        if let Some(id) = (0..used).find_map(|slot| self.try_take(slot)) {
            return Ok(id);
        }
        if used == CHUNK * CHUNKS {
            return Err(Error::new(
                ErrorKind::Busy,
                format!("{used} transactions and snapshots are open, and that is the limit"),
            ));
        }
        // The slot must be initialised before the collector can scan it, and taken before anybody else can.
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

    /// Pins the snapshot that `choose` returns. `choose` runs after the pin is announced (invariant 2).
    pub fn pin(&self, id: DescriptorId, choose: impl FnOnce() -> Csn) -> Csn {
        let pin = &self.get(id.slot).pin;
        pin.store(0, Ordering::SeqCst);
        let csn = choose();
        pin.store(csn.0, Ordering::SeqCst);
        csn
    }

    /// The calling thread is the one that works for the transaction: it may have come from another.
    #[inline]
    pub(super) fn set_thread(&self, id: DescriptorId) {
        let (thread, token) = (&self.get(id.slot).thread, thread_token());
        if thread.load(Ordering::Relaxed) != token {
            thread.store(token, Ordering::Release);
        }
    }

    /// Takes a free descriptor with the pin of another one, which the caller owns and can move or release then (invariant 4).
    pub(super) fn take_pinned_like(&self, original: DescriptorId) -> Result<DescriptorId> {
        let copy = self.take()?;
        self.get(copy.slot).pin.store(self.get(original.slot).pin.load(Ordering::SeqCst), Ordering::SeqCst);
        self.copied.fetch_add(1, Ordering::SeqCst);
        Ok(copy)
    }

    /// The stamp that versions of this transaction carry until it commits.
    #[must_use]
    pub fn stamp(&self, id: DescriptorId) -> Stamp {
        Stamp::in_progress(id.slot, id.generation)
    }

    /// About to draw a CSN (invariant 1).
    pub fn set_preparing(&self, id: DescriptorId) {
        if planted::is(Bug::PreparingNotAnnounced) {
            return;
        }
        self.get(id.slot).state.store(id.generation << PHASE_BITS | PREPARING, Ordering::SeqCst);
    }

    /// The CSN is drawn and its record is in the log buffer.
    pub fn set_ready(&self, id: DescriptorId, csn: Csn) {
        let descriptor = self.get(id.slot);
        descriptor.csn.store(csn.0, Ordering::Release);
        descriptor.state.store(id.generation << PHASE_BITS | READY, Ordering::SeqCst);
    }

    /// Where a transaction is on its way to its end.
    pub(super) fn progress(&self, id: DescriptorId) -> Progress {
        let descriptor = self.get(id.slot);
        match descriptor.state.load(Ordering::SeqCst) & PHASE_MASK {
            PREPARING => Progress::Preparing,
            READY => Progress::Ready(Csn(descriptor.csn.load(Ordering::Acquire))),
            _ => Progress::Active,
        }
    }

    /// Its commit has stopped before it was ready: it is going to be taken back.
    pub(super) fn set_active_again(&self, id: DescriptorId) {
        self.get(id.slot).state.store(id.generation << PHASE_BITS | ACTIVE, Ordering::SeqCst);
    }

    /// Ends the transaction: no version carries its stamp any more. Wakes those who wait for it.
    pub fn release(&self, id: DescriptorId) {
        let descriptor = self.get(id.slot);
        descriptor.pin.store(NO_PIN, Ordering::Release);
        descriptor.state.store(id.generation << PHASE_BITS | FREE, Ordering::SeqCst);
        descriptor.lets_go.notify_all();
    }

    /// Rows of the transaction, which goes on, are what they were before it changed them. Wakes those who wait for one (invariant 5).
    pub(super) fn gave_rows_back(&self, id: DescriptorId) {
        let descriptor = self.get(id.slot);
        descriptor.given_back.fetch_add(1, Ordering::SeqCst);
        descriptor.lets_go.notify_all();
    }

    /// `id` holds a row, whose page the caller has latched (invariant 5).
    pub(super) fn holder(&self, id: DescriptorId) -> RowHolder {
        RowHolder { id, given_back: self.given_back(id.slot) }
    }

    fn given_back(&self, slot: usize) -> u64 {
        self.get(slot).given_back.load(Ordering::SeqCst)
    }

    /// What `stamp` means now. Waits while its transaction draws its CSN, which takes nanoseconds unless that thread
    /// is off the CPU.
    #[must_use]
    pub fn status(&self, stamp: Stamp) -> Status {
        let Some((slot, generation)) = stamp.parts() else {
            return match stamp {
                Stamp::ABORTED => Status::Finished,
                Stamp::LEFT_BEHIND => Status::LeftBehind,
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

    /// Waits until every transaction with a CSN at or below `csn`, which was drawn before, has ended and so has handed over
    /// what it leaves behind. Who is that far waits for nothing any more.
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

    /// The oldest CSN that a pinned snapshot may need, at most `bound`. `bound` must have been read before this call.
    #[must_use]
    pub fn oldest_pin(&self, bound: Csn) -> Csn {
        self.unless_copied(|| self.each_pin().fold(bound, Ord::min))
    }

    /// Whether a snapshot of the calling thread is pinned at `csn`.
    pub fn is_own_pin(&self, csn: Csn) -> bool {
        let me = thread_token();
        let pinned = |descriptor: &Descriptor| descriptor.pin.load(Ordering::SeqCst) == csn.0;
        (0..self.high_water.load(Ordering::SeqCst))
            .map(|slot| self.get(slot))
            .any(|descriptor| descriptor.thread.load(Ordering::Relaxed) == me && pinned(descriptor))
    }

    /// All pinned snapshots, in no order; 0 for one that is being chosen.
    #[must_use]
    pub fn pins(&self) -> Vec<Csn> {
        self.unless_copied(|| self.each_pin().collect())
    }

    /// What `scan` found while no pin was copied (invariant 4). A copy is made for a large value that is opened: there is one soon.
    fn unless_copied<T>(&self, mut scan: impl FnMut() -> T) -> T {
        loop {
            let copied = self.copied.load(Ordering::SeqCst);
            let found = scan();
            if self.copied.load(Ordering::SeqCst) == copied {
                return found;
            }
        }
    }

    /// The pins, as they are when it comes to them.
    fn each_pin(&self) -> impl Iterator<Item = Csn> + '_ {
        (0..self.high_water.load(Ordering::SeqCst))
            .map(|slot| self.get(slot).pin.load(Ordering::SeqCst))
            .filter(|pin| *pin != NO_PIN)
            .map(Csn)
    }

    /// Sleeps until `holder` has finished or given rows back, or `wait` is over. `me` is recorded as waiting, so that others see a
    /// cycle.
    ///
    /// # Errors
    /// `Conflict` if `holder` waits for `me`, directly or not, or belongs to this thread; or at the end of `wait`. That of `is_whole`, which is
    /// asked again and again.
    pub fn wait_for(
        &self,
        me: DescriptorId,
        holder: RowHolder,
        wait: &RowWait,
        is_whole: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        self.set_thread(me);
        let mine = self.get(me.slot);
        mine.waits_since.store(holder.given_back, Ordering::SeqCst);
        mine.waits_for.store(self.stamp(holder.id).0, Ordering::SeqCst);
        let result = self.wait_until_it_lets_go(me, holder, wait, is_whole);
        mine.waits_for.store(0, Ordering::SeqCst);
        result
    }

    fn wait_until_it_lets_go(
        &self,
        me: DescriptorId,
        holder: RowHolder,
        wait: &RowWait,
        is_whole: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let other = holder.id;
        let descriptor = self.get(other.slot);
        loop {
            let ticket = descriptor.lets_go.ticket();
            let is_over = !matches!(self.status(self.stamp(other)), Status::InProgress(_));
            if is_over || self.given_back(other.slot) != holder.given_back {
                return Ok(());
            }
            // One whose call panicked does not finish.
            is_whole()?;
            if self.would_wait_for_ever(me, other) {
                return Err(Error::new(
                    ErrorKind::Conflict,
                    "the row is held by a transaction that waits for this one",
                ));
            }
            let Some(left) = wait.left() else {
                return Err(Error::new(
                    ErrorKind::Conflict,
                    format!("the row is held by other transactions for more than {:?}", wait.most),
                ));
            };
            // A short first sleep bounds the time to see a cycle that closed after the search.
            descriptor.lets_go.wait(ticket, Some(left.min(Duration::from_millis(20))));
        }
    }

    /// Follows the chain of waits from `other`; true if it reaches `me` or a transaction of this thread.
    fn would_wait_for_ever(&self, me: DescriptorId, other: DescriptorId) -> bool {
        let mut current = other;
        // A chain longer than the number of descriptors must be a cycle among others, which they will see.
        for _ in 0..CHUNK * CHUNKS {
            let descriptor = self.get(current.slot);
            if current == me {
                return true;
            }
            let is_own = descriptor.thread.load(Ordering::Acquire) == thread_token();
            let next = Stamp(descriptor.waits_for.load(Ordering::SeqCst));
            let since = descriptor.waits_since.load(Ordering::SeqCst);
            if descriptor.waits_for.load(Ordering::SeqCst) != next.0 {
                // The two are of different waits. It is asked again soon.
                return false;
            }
            // Last: then what was read is not of the next transaction in the slot. One that is over waits for nobody.
            if descriptor.state.load(Ordering::SeqCst) != current.generation << PHASE_BITS | ACTIVE {
                return false;
            }
            if is_own {
                return true;
            }
            match next.parts() {
                // Otherwise it is about to wake up.
                Some((slot, generation)) if self.given_back(slot) == since => {
                    current = DescriptorId { slot, generation };
                }
                _ => return false,
            }
        }
        false
    }

    /// A number below the table's size that is the same for the same slot: an index for per-slot caches.
    #[must_use]
    pub fn slot(id: DescriptorId) -> usize {
        id.slot
    }
}

#[cfg(test)]
mod tests;
