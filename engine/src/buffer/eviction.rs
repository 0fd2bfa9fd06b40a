//! Eviction: candidates for leaving memory, and the signals between threads that need memory and
//! the evictor.
//!
//! A hand moves over the page ids (*second chance*, the CLOCK algorithm). The hand marks the pages
//! it passes. A page that it finds marked was not touched since the hand last passed, and is a
//! candidate. Readers pay for that only when they meet a marked page.
//!
//! ```text
//!   threads that need memory                  the evictor, one thread
//!   take: nearly full ──want────────────────▶ sleeps until it is wanted; then moves the hand
//!         full ─────────wait◀────freed─────── each page given back
//!                       error◀──pass_failed─── a whole pass, and no page could leave
//! ```
//!
//! 1. The evictor waits for no latch and for no lock that is held during a wait for memory. So
//!    threads may wait for memory with latches held.
//! 2. A waiter gives up only after two passes that began after it came and freed nothing: pages
//!    that cannot leave memory belong to changes that are not committed. If another thread holds
//!    the fairness ticket a waiter waits longer, and it starts counting again when a ticket is
//!    returned.

use super::fairness::Fairness;
use super::frames::FrameTable;
use super::latch::State;
use crate::base::metrics::Counter;
use crate::base::{Error, PageId};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Event, Mutex};
use std::time::Duration;

/// Failed passes after which a waiter gives up: one that may have been under way when it came, and
/// two.
const FAILED_PASSES: u64 = 1 + 2;
/// As `FAILED_PASSES`, if another thread holds the fairness ticket.
const FAILED_PASSES_BESIDE_A_TICKET: u64 = 20;
/// A waiter looks again after this long even without a wake-up. No wake-up that a full pool relies
/// on is lost; this only bounds the effect of a bug.
const WAIT_AT_MOST: Duration = Duration::from_millis(100);

/// The hand, and the signals between the pool's users and the evictor.
#[derive(Default)]
pub struct Eviction {
    /// Where the hand is. Used by the evictor only.
    hand: AtomicU64,
    /// True if an evictor runs: waiting for memory makes sense.
    attached: AtomicBool,
    /// True if pages should leave. Set by threads that need memory, cleared by the evictor.
    wanted: AtomicBool,
    /// Raised when pages should leave.
    asked: Event,
    /// Raised when a thread that waits for memory should look again.
    pub(super) freed: Event,
    /// Passes in which no page could leave.
    failed_passes: AtomicU64,
    /// The error that kept pages in memory in the last failed pass.
    error: Mutex<Option<Error>>,
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

    /// Waits until `got` is true. Returns false if no page is going to leave. Pages kept for a
    /// fairness ticket may leave soon.
    pub(super) fn wait(&self, fairness: &Fairness, got: impl Fn() -> bool) -> bool {
        let mut returned = fairness.returned();
        let mut counted_from = self.failed_passes.load(Ordering::SeqCst);
        let longest = counted_from + FAILED_PASSES_BESIDE_A_TICKET;
        loop {
            let ticket = self.freed.ticket();
            if got() {
                return true;
            }
            let beside_a_ticket = fairness.is_held_by_another();
            if fairness.returned() != returned {
                // No pass has looked at the pages that were kept. `longest` bounds the wait beside
                // a series of tickets.
                returned = fairness.returned();
                counted_from = self.failed_passes.load(Ordering::SeqCst).min(longest);
            }
            let most = if beside_a_ticket { longest } else { counted_from + FAILED_PASSES };
            let is_hopeless = self.failed_passes.load(Ordering::SeqCst) >= most;
            if is_hopeless || !self.attached.load(Ordering::SeqCst) {
                return false;
            }
            self.want();
            self.freed.wait(ticket, Some(WAIT_AT_MOST));
        }
    }

    /// Returns the error that kept pages from being written (a full disk, one that fails), if one
    /// did in the last pass.
    pub(super) fn error(&self) -> Option<Error> {
        self.error.lock().as_ref().map(Error::duplicate)
    }

    /// Counts pages that left memory.
    pub(super) fn count_evicted(&self, pages: u64) {
        self.evicted.add(pages);
    }

    /// Pages that left memory since open.
    #[must_use]
    pub fn pages_evicted(&self) -> u64 {
        self.evicted.get()
    }

    /// Passes since open in which no page could leave memory.
    #[must_use]
    pub fn failed_passes(&self) -> u64 {
        self.failed_passes.load(Ordering::Relaxed)
    }

    /// Notes whether an evictor runs. Without one full memory is an error at once.
    pub fn set_attached(&self, attached: bool) {
        self.attached.store(attached, Ordering::SeqCst);
        self.freed.notify_all();
        self.asked.notify_all();
    }

    /// Sleeps until pages should leave memory, or `timeout` has passed. For the evictor.
    pub fn wait_for_pressure(&self, timeout: Option<Duration>) {
        let ticket = self.asked.ticket();
        let attached = self.attached.load(Ordering::SeqCst);
        if attached && !self.wanted.load(Ordering::SeqCst) {
            self.asked.wait(ticket, timeout);
        }
        self.wanted.store(false, Ordering::SeqCst);
    }

    /// Notes the end of a pass in which no page could leave memory, because of `error` if that is
    /// known.
    pub fn pass_failed(&self, error: Option<Error>) {
        *self.error.lock() = error;
        self.failed_passes.fetch_add(1, Ordering::SeqCst);
        self.freed.notify_all();
    }

    /// Notes that there is enough memory again, and forgets the last error.
    pub fn succeeded(&self) {
        *self.error.lock() = None;
    }

    /// Returns whether an error, and not the content of the pages, kept pages in memory.
    #[must_use]
    pub fn has_error(&self) -> bool {
        self.error.lock().is_some()
    }

    /// Wakes threads that wait for memory, because pages may have more of it.
    pub fn budget_grew(&self) {
        self.freed.notify_all();
    }

    /// Moves the hand over at most `steps` pages and appends candidates, at most `most`. Returns
    /// how many pages it passed.
    pub(super) fn next_candidates(
        &self,
        frames: &FrameTable,
        fairness: &Fairness,
        most: usize,
        steps: u64,
        candidates: &mut Vec<PageId>,
    ) -> u64 {
        let (end, enough) = (frames.page_count(), candidates.len() + most);
        let mut hand = self.hand.load(Ordering::Relaxed);
        let mut passed = 0;
        while passed < steps && candidates.len() < enough {
            hand = if hand + 1 < end { hand + 1 } else { 1 };
            passed += 1;
            if hand >= end {
                break;
            }
            let latch = &frames.entry(PageId(hand)).latch;
            match latch.state() {
                State::Marked | State::Unlocked if fairness.keeps(PageId(hand)) => {}
                State::Marked => candidates.push(PageId(hand)),
                State::Unlocked => {
                    let _ = latch.mark();
                }
                _ => {}
            }
        }
        self.hand.store(hand, Ordering::Relaxed);
        passed
    }
}

#[cfg(all(test, not(any(loom, miri, feature = "shuttle"))))]
mod tests;
