//! The latch of a page: one atomic word, which also says whether the page is in memory.
//!
//! ```text
//!   63      56 55                                   0
//!  +----------+--------------------------------------+
//!  |  state   |               version                |
//!  +----------+--------------------------------------+
//!
//!    Free      <---2---                 ---5--->             ---6--->
//!     (0)      ---1--->                 <--4----             <--6----
//!                         Exclusive (2)           Unlocked (4)         Shared 1 .. 250 (5 ..= 254)
//!   Evicted    <---2---         ^                   |   ^
//!     (1)      ---3--->         |                   7   8
//!                               |                   v   |
//!                               +--------9-------- Marked (3)
//! ```
//!
//! | | transition | by |
//! |---|---|---|
//! | 1 | Free to Exclusive | `claim_free`: the page is allocated |
//! | 2 | Exclusive to Free, to Evicted | `release_to`: freed; evicted, or could not be brought in |
//! | 3 | Evicted to Exclusive | `claim_evicted`: being brought in |
//! | 4 | Unlocked to Exclusive | `try_exclusive`, `upgrade` |
//! | 5 | Exclusive to Unlocked | `release` |
//! | 6 | Unlocked to Shared 1, n to n + 1; back | `try_shared` and others; `release_shared` |
//! | 7 | Unlocked to Marked | `mark`: first candidate for eviction |
//! | 8 | Marked to Unlocked, to Shared 1 | `begin_read_slow` (a touch); as 6 |
//! | 9 | Marked to Exclusive | `claim_marked`: being evicted; as 4 |
//!
//! *Free*: no such page. *Evicted*: the page has an image in the store and no memory. *Marked*: in
//! memory, chosen for eviction unless a thread touches it first (second chance). *Shared n*: n
//! readers exclude writers. Zero is Free, so fresh memory is a valid table of latches. Every state
//! from Unlocked up means "in memory and no writer", so the hot path is one load and one
//! comparison.
//!
//! Invariants:
//! 1. Page memory is written only in state Exclusive, by the thread that entered it.
//! 2. The version never falls, not even when a page is freed and its id used again. It changes only
//!    when a holder leaves Exclusive, and always unless the holder wrote nothing. So equal versions
//!    seen in a readable state (Marked, Unlocked, Shared) mean equal bytes.
//! 3. Shared n is left for Exclusive only by way of Unlocked.
//! 4. In state Exclusive only the holder changes the word. Leaving is therefore a plain store.
//!
//! # Why a validated read was not torn
//!
//! A reader loads the word (acquire), then page words (relaxed), then, behind an acquire fence, the
//! word again. A writer enters Exclusive (read-modify-write), then, behind a *release fence*,
//! stores page words (relaxed), then stores the new word (release).
//!
//! * The reader sees all stores of earlier writers: its acquire load reads from the release store
//!   of the last of them, or from a later read-modify-write in that store's release sequence.
//! * Suppose the reader reads a page word stored by a later writer. Then that writer's release
//!   fence, which is before the store, synchronises with the reader's acquire fence, which is after
//!   the load. Entering Exclusive happened before the writer's fence, so it happened before the
//!   reader's second load. That load must see Exclusive or a newer word, which has a writing state
//!   or another version. Validation fails.
//!
//! Without the writer's release fence the processor could make a page store visible before the word
//! says Exclusive (the acquire of entering keeps later *loads and stores* after its load, not after
//! its store). Without the reader's fence the second load could be done before the page loads. The
//! loom tests fail without either fence.
//!
//! Upgrading validates too, without a fence. A writer that comes after the upgraded hold has seen
//! the hold end (acquire of release), so no load before the upgrade can have read a store of that
//! writer. A writer that came before the upgrade has left another version, so the upgrade fails.

use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::{Backoff, thread};
use std::time::Duration;

/// Says that bytes read optimistically may be torn: the reader discards them and starts over.
/// Callers of the engine never see this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restart;

/// Bits of the version.
const VERSION_BITS: u32 = 56;
const VERSION_MASK: u64 = (1 << VERSION_BITS) - 1;
/// One step of the state.
const STATE_UNIT: u64 = 1 << VERSION_BITS;

const FREE: u64 = 0;
const EVICTED: u64 = 1;
const EXCLUSIVE: u64 = 2;
const MARKED: u64 = 3;
const UNLOCKED: u64 = 4;
const SHARED_LAST: u64 = UNLOCKED + SHARED_HOLDERS_MAX as u64;

/// How many shared holders a latch can count; the next one waits.
pub const SHARED_HOLDERS_MAX: u8 = 250;

const _: () = assert!(SHARED_LAST < 256 && MARKED + 1 == UNLOCKED && FREE == 0);

/// The version of a page's bytes: equal versions of one page mean equal bytes (invariant 2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Version(u64);

impl Version {
    /// The version as a number below 2^56.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns the version whose number [`Version::to_bits`] returned.
    #[must_use]
    pub fn from_bits(bits: u64) -> Version {
        Version(bits & VERSION_MASK)
    }

    fn next(self) -> Version {
        debug_assert!(self.0 < VERSION_MASK, "the version never falls");
        Version((self.0 + 1) & VERSION_MASK)
    }
}

/// The state of a page; see the diagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// No such page.
    Free,
    /// Only in the store.
    Evicted,
    /// One thread may write.
    Exclusive,
    /// In memory, not latched, first candidate for eviction.
    Marked,
    /// In memory, not latched.
    Unlocked,
    /// In memory, this many readers.
    Shared(u8),
}

/// Why a latch was not entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// Another thread is using the page: wait.
    Busy,
    /// The page has to be brought into memory first.
    Evicted,
    /// There is no such page.
    Free,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Word(u64);

impl Word {
    #[inline]
    fn new(state: u64, version: Version) -> Word {
        debug_assert!(state <= SHARED_LAST && version.0 <= VERSION_MASK, "each has its own bits");
        Word(state << VERSION_BITS | version.0)
    }

    #[inline]
    fn state(self) -> u64 {
        self.0 >> VERSION_BITS
    }

    #[inline]
    fn version(self) -> Version {
        Version(self.0 & VERSION_MASK)
    }

    #[inline]
    fn is_readable(self) -> bool {
        self.state() >= MARKED
    }

    fn obstacle(self) -> Obstacle {
        match self.state() {
            FREE => Obstacle::Free,
            EVICTED => Obstacle::Evicted,
            _ => Obstacle::Busy,
        }
    }
}

/// A page's latch. `Default` is Free.
#[derive(Debug)]
pub struct Latch {
    /// Written by every thread that changes the state; read by all. Orderings: see the module.
    word: AtomicU64,
}

impl Default for Latch {
    fn default() -> Latch {
        Latch { word: AtomicU64::new(0) }
    }
}

impl Latch {
    #[inline]
    fn load(&self, order: Ordering) -> Word {
        Word(self.word.load(order))
    }

    /// Returns the word, which the caller changes in the next step. Loom notices a conflict only
    /// between a change and the *last* access to the same atomic. A load just before the change
    /// would hide the loads of other threads, and with them nearly all interleavings. So under loom
    /// a read-modify-write that changes nothing replaces the load.
    #[inline]
    fn peek(&self) -> Word {
        if cfg!(loom) {
            Word(self.word.fetch_add(0, Ordering::Relaxed))
        } else {
            self.load(Ordering::Relaxed)
        }
    }

    /// Changes the word from `seen` to `to`; on success ordered as an acquire, and in one order
    /// with the locks of tables (`transaction::locks`, rule 1).
    #[inline]
    fn exchange(&self, seen: Word, to: Word) -> bool {
        self.word.compare_exchange(seen.0, to.0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Enters Exclusive from `seen`.
    #[inline]
    fn enter(&self, seen: Word) -> bool {
        debug_assert!(
            seen.state() <= UNLOCKED && seen.state() != EXCLUSIVE,
            "Shared is left for Exclusive only by way of Unlocked"
        );
        if !self.exchange(seen, Word::new(EXCLUSIVE, seen.version())) {
            return false;
        }
        // Forbids that a page store becomes visible before the word says Exclusive; pairs with the
        // fence in `validate`.
        fence(Ordering::Release);
        true
    }

    /// Returns the version of an evicted page. The image equals the page as long as state and
    /// version stay.
    #[must_use]
    pub fn evicted_version(&self) -> Option<Version> {
        let word = self.load(Ordering::Acquire);
        (word.state() == EVICTED).then(|| word.version())
    }

    /// The state at some recent moment.
    #[must_use]
    pub fn state(&self) -> State {
        match self.load(Ordering::Acquire).state() {
            FREE => State::Free,
            EVICTED => State::Evicted,
            EXCLUSIVE => State::Exclusive,
            MARKED => State::Marked,
            UNLOCKED => State::Unlocked,
            shared => State::Shared((shared - UNLOCKED) as u8),
        }
    }

    /// Begins an optimistic read if the page is in memory, unmarked and without a writer: the hot
    /// path.
    #[inline]
    #[must_use]
    pub fn begin_read(&self) -> Option<Version> {
        // Acquire: the page loads that follow see at least what the writer of this version stored.
        let word = self.load(Ordering::Acquire);
        (word.state() >= UNLOCKED).then(|| word.version())
    }

    /// Begins an optimistic read, touching the page if it is marked.
    ///
    /// # Errors
    /// Why the page cannot be read now.
    pub fn begin_read_slow(&self) -> Result<Version, Obstacle> {
        let word = self.load(Ordering::Acquire);
        match word.state() {
            MARKED if self.exchange(word, Word::new(UNLOCKED, word.version())) => Ok(word.version()),
            MARKED => Err(Obstacle::Busy),
            _ if word.is_readable() => Ok(word.version()),
            _ => Err(word.obstacle()),
        }
    }

    /// Begins an optimistic read of a marked page without touching it: for the evictor.
    #[must_use]
    pub fn begin_read_marked(&self) -> Option<Version> {
        let word = self.load(Ordering::Acquire);
        (word.state() == MARKED).then(|| word.version())
    }

    /// Ends an optimistic read: `Ok` means that every load since it began saw the bytes of
    /// `version`.
    ///
    /// # Errors
    /// A writer has changed or holds the page: the bytes read may be torn.
    #[inline]
    pub fn validate(&self, version: Version) -> Result<(), Restart> {
        // Forbids that the load below is done before the page loads above; pairs with the fence in
        // `enter`.
        fence(Ordering::Acquire);
        let word = self.load(Ordering::Relaxed);
        if word.version() == version && word.is_readable() { Ok(()) } else { Err(Restart) }
    }

    /// Enters Exclusive if the page's bytes are still those of `version` and the page is not
    /// latched. Never waits.
    ///
    /// # Errors
    /// The page was changed, or is latched.
    #[inline]
    pub fn upgrade(&self, version: Version) -> Result<(), Restart> {
        let word = self.peek();
        let free = word.state() == UNLOCKED || word.state() == MARKED;
        if free && word.version() == version && self.enter(word) { Ok(()) } else { Err(Restart) }
    }

    /// Enters Shared if the page's bytes are still those of `version`.
    ///
    /// # Errors
    /// The page was changed, or is being changed, or has too many readers.
    pub fn upgrade_shared(&self, version: Version) -> Result<(), Restart> {
        loop {
            let word = self.peek();
            if word.version() != version || !word.is_readable() || word.state() >= SHARED_LAST {
                return Err(Restart);
            }
            if self.add_reader(word) {
                return Ok(());
            }
        }
    }

    /// Tries to enter Exclusive.
    ///
    /// # Errors
    /// Why not.
    #[inline]
    pub fn try_exclusive(&self) -> Result<Version, Obstacle> {
        let word = self.peek();
        let free = word.state() == UNLOCKED || word.state() == MARKED;
        if free && self.enter(word) { Ok(word.version()) } else { Err(word.obstacle()) }
    }

    /// Tries to become one more shared holder.
    ///
    /// # Errors
    /// Why not.
    pub fn try_shared(&self) -> Result<(), Obstacle> {
        let word = self.peek();
        let room = word.is_readable() && word.state() < SHARED_LAST;
        if room && self.add_reader(word) { Ok(()) } else { Err(word.obstacle()) }
    }

    /// Adds a shared holder to `seen`, which is readable and not full.
    #[inline]
    fn add_reader(&self, seen: Word) -> bool {
        debug_assert!(seen.is_readable() && seen.state() < SHARED_LAST, "no reader enters here");
        self.exchange(seen, Word::new(seen.state().max(UNLOCKED) + 1, seen.version()))
    }

    /// Ends one shared hold.
    pub fn release_shared(&self) {
        // Release: the next writer's acquire comes after the loads made under this hold.
        let old = Word(self.word.fetch_sub(STATE_UNIT, Ordering::Release));
        debug_assert!(old.state() > UNLOCKED && old.state() <= SHARED_LAST, "not held shared");
    }

    /// Enters Exclusive from Free. Returns false if the page is not free.
    #[must_use]
    pub fn claim_free(&self) -> bool {
        self.claim(FREE)
    }

    /// Enters Exclusive from Evicted, to bring the page in. Returns false if another thread did or
    /// does.
    #[must_use]
    pub fn claim_evicted(&self) -> bool {
        self.claim(EVICTED)
    }

    /// Enters Exclusive from Marked, to evict the page. Returns false if the page was touched or
    /// changed since `version`.
    #[must_use]
    pub fn claim_marked(&self, version: Version) -> bool {
        let word = self.peek();
        word.state() == MARKED && word.version() == version && self.enter(word)
    }

    fn claim(&self, state: u64) -> bool {
        let word = self.peek();
        word.state() == state && self.enter(word)
    }

    /// Marks an unlatched page for eviction. Returns false if it is not in state Unlocked.
    #[must_use]
    pub fn mark(&self) -> bool {
        let word = self.peek();
        word.state() == UNLOCKED && self.exchange(word, Word::new(MARKED, word.version()))
    }

    /// The version that [`Latch::release`] will leave behind. Only for a holder.
    #[inline]
    #[must_use]
    pub fn version_after(&self, changed: bool) -> Version {
        let version = self.peek().version();
        if changed { version.next() } else { version }
    }

    /// Leaves Exclusive for Unlocked. Only for its holder; `changed` if page memory may have been
    /// written.
    #[inline]
    pub fn release(&self, changed: bool) {
        self.leave(UNLOCKED, changed);
    }

    /// Leaves Exclusive for Evicted or Free, with a new version. Only for its holder.
    ///
    /// # Panics
    /// If `state` is another one.
    pub fn release_to(&self, state: State) {
        match state {
            State::Free => self.leave(FREE, true),
            State::Evicted => self.leave(EVICTED, true),
            other => panic!("a page cannot go from Exclusive to {other:?} here"),
        }
    }

    #[inline]
    fn leave(&self, state: u64, changed: bool) {
        debug_assert_eq!(self.state(), State::Exclusive, "not held exclusively");
        let word = Word::new(state, self.version_after(changed));
        // A plain store: no other thread changes the word now (invariant 4). Release: a reader of
        // the word sees the page stores.
        if cfg!(loom) {
            // Loom would take the stores of `peek` for concurrent with this one.
            self.word.swap(word.0, Ordering::Release);
        } else {
            self.word.store(word.0, Ordering::Release);
        }
    }

    /// Makes a free page of which the store has an image Evicted. Returns false if the page is not
    /// free.
    #[must_use]
    pub fn set_evicted(&self) -> bool {
        let claimed = self.claim_free();
        if claimed {
            self.release_to(State::Evicted);
        }
        claimed
    }
}

/// Pauses before waiting for a latch becomes sleeping for it.
const PAUSES_BEFORE_SLEEP: u32 = 100;
/// Latches are held for microseconds, or for one read of a page from the device.
const SLEEP: Duration = Duration::from_micros(50);

/// The wait for a latch: spin, yield, and, if the holder has lost the CPU or waits for a device,
/// sleep. There is no deadline: a holder waits only for another latch (in order) or the device.
#[derive(Debug, Default)]
pub struct LatchWait {
    backoff: Backoff,
}

impl LatchWait {
    /// Waits a little, longer each time.
    pub fn pause(&mut self) {
        if self.backoff.steps() < PAUSES_BEFORE_SLEEP {
            self.backoff.pause();
        } else {
            thread::sleep(SLEEP);
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
