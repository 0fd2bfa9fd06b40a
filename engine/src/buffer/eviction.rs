//! Choosing pages to leave memory, and waiting for memory.
//!
//! A hand goes round over the page ids (*second chance*): it marks what it passes, and what it finds marked, because
//! nobody touched it for a whole round, is a candidate. Readers pay nothing for that unless they meet a marked page.
//!
//! ```text
//!   threads that need memory                       the one thread that evicts
//!   take_memory: nearly full ──want──────────────▶ sleeps until somebody wants; then rounds of the hand
//!                full ───────wait◀──────freed────── each page given back
//!                            error ◀────futile───── a whole pass, and nothing could leave
//! ```
//!
//! 1. Who evicts waits for no latch and for no lock that is held while memory is waited for. So threads may wait for
//!    memory with latches held.
//! 2. A waiter gives up only after two passes that began after it and freed nothing: what cannot leave memory belongs to
//!    changes that are not committed. Beside another's turn it waits longer, and when a turn ends it counts anew.

use super::guard::ExclusiveGuard;
use super::latch::{State, Version};
use super::pool::{DIRTY, Pool, STAMPED, STAMPED_IMAGE};
use super::turn::{FUTILE_PASSES_BESIDE_A_TURN, Turns};
use crate::base::metrics::Counter;
use crate::base::planted::{self, Bug};
use crate::base::{Error, PageId};
use crate::buffer::PageBytes;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Event, Mutex};
use std::time::Duration;

/// Eviction begins when less than this part of the budget is left, and goes on until twice that is.
const HEADROOM: u64 = 32;
/// Passes without success after which a waiter gives up: one that may have been under way when it came, and two.
const FUTILE_PASSES: u64 = 1 + 2;
/// A waiter looks again after this long even if nobody woke it; the wake-up that a full pool relies on is never lost, this
/// only bounds what a defect could do.
const WAIT_AT_MOST: Duration = Duration::from_millis(100);

/// What the pool's users and whoever evicts tell each other.
#[derive(Default)]
pub(super) struct Eviction {
    /// Where the hand is. Only who evicts uses it.
    hand: AtomicU64,
    /// Somebody evicts: waiting makes sense.
    attached: AtomicBool,
    /// Somebody needs pages to leave. Set by users, cleared by who evicts.
    wanted: AtomicBool,
    asked: Event,
    pub(super) freed: Event,
    /// Passes in which nothing could be freed.
    futile: AtomicU64,
    /// What kept pages in memory in the last of these.
    hindrance: Mutex<Option<Error>>,
    /// Pages that left memory.
    evicted: Counter,
}

impl Eviction {
    /// Asks for pages to leave. Cheap if that was asked already.
    pub(super) fn want(&self) {
        if !self.wanted.load(Ordering::Relaxed) && !self.wanted.swap(true, Ordering::SeqCst) {
            self.asked.notify_all();
        }
    }

    /// Waits until `got` is true; false if there is no hope. What another's turn keeps in memory may leave it soon.
    pub(super) fn wait(&self, turns: &Turns, got: impl Fn() -> bool) -> bool {
        let mut ended = turns.ended();
        let mut counted_from = self.futile.load(Ordering::SeqCst);
        let longest = counted_from + FUTILE_PASSES_BESIDE_A_TURN;
        loop {
            let ticket = self.freed.ticket();
            if got() {
                return true;
            }
            let beside_a_turn = turns.is_of_another();
            if turns.ended() != ended {
                // No pass has looked at what was kept. Turns that follow each other keep nobody waiting for ever.
                ended = turns.ended();
                counted_from = self.futile.load(Ordering::SeqCst).min(longest);
            }
            let most = if beside_a_turn { longest } else { counted_from + FUTILE_PASSES };
            let hopeless = self.futile.load(Ordering::SeqCst) >= most;
            if hopeless || !self.attached.load(Ordering::SeqCst) {
                return false;
            }
            self.want();
            self.freed.wait(ticket, Some(WAIT_AT_MOST));
        }
    }
}

impl Pool {
    /// Why a thread that waited for memory got none: what kept pages from being written (a full disk, one that fails), or too much
    /// that is not committed, as `otherwise` says.
    pub(super) fn why_no_memory(&self, otherwise: &str) -> Error {
        let hindrance = self.eviction.hindrance.lock();
        match &*hindrance {
            Some(error) => error.duplicate(),
            None => self.out_of_memory(otherwise),
        }
    }
}

/// What is known of a page besides its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageState {
    /// The bytes that the rest is about.
    pub version: Version,
    /// It differs from its newest image.
    pub dirty: bool,
    /// It may have stamps that are not settled, and its newest image does not have them.
    pub unsaved_stamps: bool,
    /// The checkpoint round in which it was last imaged or born.
    pub round: u32,
}

/// A page that is held exclusively by who evicts, unchanged since it looked.
#[derive(Debug)]
pub struct Claimed<'p> {
    guard: ExclusiveGuard<'p>,
    untouched: bool,
}

impl Claimed<'_> {
    /// Nobody has looked at the page since it was marked: it may leave.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        self.untouched
    }

    /// The newest image shows what the page is; `settled` if its stamps, if any, mean nothing any more.
    #[must_use]
    pub fn needs_no_image(&self, settled: bool) -> bool {
        let flags = self.guard.pool().entry(self.guard.page_id()).flags();
        planted::is(Bug::DirtyPageDropped)
            || flags & DIRTY == 0 && (settled || flags & STAMPED == 0 || flags & STAMPED_IMAGE != 0)
    }

    /// Whether the page differs from its newest image.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.guard.is_dirty()
    }

    /// The checkpoint round in which the page was last imaged or born.
    #[must_use]
    pub fn round(&self) -> u32 {
        self.guard.round()
    }

    /// The page has been imaged in `round`.
    pub fn set_imaged(&self, round: u32) {
        self.guard.set_imaged(round);
    }

    /// The page is what its newest image, just recorded, shows; `stamped` if with its stamps.
    pub fn set_clean(&self, stamped: bool) {
        let image = if stamped { STAMPED_IMAGE } else { 0 };
        let pool = self.guard.pool();
        pool.set_flags(pool.entry(self.guard.page_id()), STAMPED | image);
    }
}

/// Pages that are leaving memory, held exclusively until they all do at once: taking memory away costs the same for many as for
/// one. Who holds one waits for nothing.
#[derive(Debug, Default)]
pub struct Leaving<'p> {
    pages: Vec<ExclusiveGuard<'p>>,
}

impl<'p> Leaving<'p> {
    /// One more. Its newest image shows what it is (invariant 6 of the pool).
    pub fn push(&mut self, claimed: Claimed<'p>) {
        self.pages.push(claimed.guard);
    }

    /// Gives the memory of all of them back; returns how many there were.
    pub fn evict(self) -> u64 {
        let count = self.pages.len() as u64;
        let Some(pool) = self.pages.first().map(ExclusiveGuard::pool) else { return 0 };
        pool.discard(self.pages.iter().map(ExclusiveGuard::page_id));
        self.pages.into_iter().for_each(ExclusiveGuard::release_evicted);
        pool.eviction.evicted.add(count);
        pool.give_memory(count);
        count
    }
}

impl Pool {
    /// Pages that left memory since open.
    #[must_use]
    pub fn pages_evicted(&self) -> u64 {
        self.eviction.evicted.get()
    }

    /// Passes in which nothing could leave memory, since open.
    #[must_use]
    pub fn evictions_in_vain(&self) -> u64 {
        self.eviction.futile.load(Ordering::Relaxed)
    }

    /// Somebody evicts from now on, or not any more: then full memory is an error at once.
    pub fn set_evicting(&self, evicting: bool) {
        self.eviction.attached.store(evicting, Ordering::SeqCst);
        self.eviction.freed.notify_all();
        self.eviction.asked.notify_all();
    }

    /// Pages with memory at which eviction begins.
    pub(super) fn eviction_begins_at(&self, max: u64) -> u64 {
        max - (max / HEADROOM).max(1)
    }

    /// How many pages should leave memory now, 0 if there is enough.
    #[must_use]
    pub fn pages_to_evict(&self) -> u64 {
        let max = self.resident_pages_max();
        self.resident_pages().saturating_sub(max - (2 * max / HEADROOM).max(2).min(max))
    }

    /// Whether there are more pages than the budget allows for: something else has grown.
    #[must_use]
    pub fn is_over_budget(&self) -> bool {
        self.resident_pages() > self.resident_pages_max()
    }

    /// Asks for pages to leave if there are more than the budget allows for: something else has grown.
    pub fn check_budget(&self) {
        let max = self.resident_pages_max();
        if self.resident_pages() >= self.eviction_begins_at(max) {
            self.eviction.want();
        }
    }

    /// Sleeps until pages should leave memory, or `timeout` has passed. For the one thread that evicts.
    pub fn wait_for_pressure(&self, timeout: Option<Duration>) {
        let ticket = self.eviction.asked.ticket();
        let attached = self.eviction.attached.load(Ordering::SeqCst);
        if attached && !self.eviction.wanted.load(Ordering::SeqCst) {
            self.eviction.asked.wait(ticket, timeout);
        }
        self.eviction.wanted.store(false, Ordering::SeqCst);
    }

    /// A pass is over in which nothing could leave memory, because of `hindrance` if that is known.
    pub fn eviction_was_futile(&self, hindrance: Option<Error>) {
        *self.eviction.hindrance.lock() = hindrance;
        self.eviction.futile.fetch_add(1, Ordering::SeqCst);
        self.eviction.freed.notify_all();
    }

    /// Pages did not leave memory when they should have, and something other than what is in them was the reason.
    #[must_use]
    pub fn eviction_is_hindered(&self) -> bool {
        self.eviction.hindrance.lock().is_some()
    }

    /// There is more memory for pages, or others take less of it: who waits for some looks again.
    pub fn budget_grew(&self) {
        self.eviction.freed.notify_all();
    }

    /// There is enough memory again: what hindered eviction before does not any more.
    pub fn eviction_went_well(&self) {
        *self.eviction.hindrance.lock() = None;
    }

    /// Moves the hand on over at most `steps` pages and appends candidates, at most `most`. Returns how many pages it passed;
    /// twice [`Pool::page_count`] are a pass in which every page had its second chance.
    pub fn next_candidates(&self, most: usize, steps: u64, candidates: &mut Vec<PageId>) -> u64 {
        let (end, enough) = (self.page_count(), candidates.len() + most);
        let mut hand = self.eviction.hand.load(Ordering::Relaxed);
        let mut passed = 0;
        while passed < steps && candidates.len() < enough {
            hand = if hand + 1 < end { hand + 1 } else { 1 };
            passed += 1;
            if hand >= end {
                break;
            }
            let latch = &self.entry(PageId(hand)).latch;
            match latch.state() {
                State::Marked | State::Unlocked if self.turns.keeps(PageId(hand)) => {}
                State::Marked => candidates.push(PageId(hand)),
                State::Unlocked => {
                    let _ = latch.mark();
                }
                _ => {}
            }
        }
        self.eviction.hand.store(hand, Ordering::Relaxed);
        passed
    }

    /// Copies a marked page's bytes without touching it; `None` if it is not marked any more. `copy` may be given torn bytes, and
    /// counts only if the result is not `None`.
    pub fn look_at_marked(&self, page: PageId, copy: impl FnOnce(PageBytes<'_>)) -> Option<PageState> {
        let entry = self.entry_of(page)?;
        let version = entry.latch.begin_read_marked()?;
        let flags = entry.flags();
        let round = entry.round();
        copy(PageBytes::new(self.words(page)));
        entry.latch.validate(version).ok()?;
        let unsaved_stamps = flags & STAMPED != 0 && flags & STAMPED_IMAGE == 0;
        Some(PageState { version, dirty: flags & DIRTY != 0, unsaved_stamps, round })
    }

    /// Holds a page exclusively if it is still what it was at `version` and nobody holds it. Never waits.
    #[must_use]
    pub fn claim_unchanged(&self, page: PageId, version: Version) -> Option<Claimed<'_>> {
        let latch = &self.entry_of(page)?.latch;
        let untouched = latch.claim_marked(version);
        if !untouched && latch.upgrade(version).is_err() {
            return None;
        }
        Some(Claimed { guard: ExclusiveGuard::new(self, page), untouched })
    }
}
