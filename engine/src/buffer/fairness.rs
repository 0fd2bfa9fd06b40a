//! The fairness ticket: one starved descent at a time keeps what it brings into memory.
//!
//! A descent holds nothing. So where memory is very short, the page that the descent needs next may
//! push out the page it has come from, or other threads push it out before the descent has arrived.
//! Then the descent starts over, possibly for ever. A descent to which that happened often asks for
//! the fairness ticket:
//!
//! ```text
//!   starved ──▶ queue ──▶ holds the ticket: pages it touches   ──▶ arrives, or fails,
//!                 │         stay, and the last frame is its own      because memory is too small
//!                 ▼                                               │
//!     the queue does not move:                                    ▼
//!     continues without                               the next in the queue
//! ```
//!
//! 1. One thread holds the ticket: the first in the queue. A new thread joins the queue at its end.
//! 2. Pages that the holder reaches by the slow path (marked or evicted) stay in memory until it
//!    returns the ticket, at most [`KEPT`] of them. So the holder comes to each page of its way at
//!    most twice.
//! 3. Other threads leave one frame free. They wait for a frame as always, and a little longer
//!    before they give up.
//! 4. The ticket is not a lock: a thread that waits for it may hold a latch that the holder waits
//!    for. So a thread leaves a queue that does not move after a bounded time, and no lock is held
//!    as long as a thread has the ticket.
//! 5. Where memory is not short no thread has the ticket. Only threads that bring in or allocate a
//!    page look at it.

use crate::base::PageId;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Event, Mutex, thread};
use std::collections::VecDeque;
use std::time::Duration;

/// Pages kept in memory for the holder, at most: more than a path is long.
const KEPT: usize = 16;
/// A thread leaves a queue that has not moved after this many looks, each after [`LOOK_AGAIN`].
const STUCK_LOOKS: u32 = 10;
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The holder of the fairness ticket, and the wait queue.
#[derive(Debug, Default)]
pub(super) struct Fairness {
    /// The thread that holds the ticket, 0 if none does. Written under `queue`; read by any thread.
    holder: AtomicU64,
    /// Waiting threads; the first holds the ticket.
    queue: Mutex<VecDeque<u64>>,
    /// Tickets returned. Written under `queue`; read by any thread.
    returned: AtomicU64,
    moved: Event,
    /// Pages that stay in memory, 0 for none. Written by the holder; read by the evictor.
    kept: [AtomicU64; KEPT],
    /// Where the next page goes in `kept`. Used by the holder.
    next: AtomicUsize,
}

/// The calling thread's fairness ticket; dropping it returns the ticket.
#[derive(Debug)]
pub struct FairnessTicket<'p> {
    fairness: &'p Fairness,
    /// Raised for threads that wait for memory.
    freed: &'p Event,
}

impl Drop for FairnessTicket<'_> {
    fn drop(&mut self) {
        self.fairness.return_ticket();
        // Other threads may have the last frame again.
        self.freed.notify_all();
    }
}

/// The calling thread's place in the queue. Dropping it, when the thread unwinds, leaves the queue.
struct PlaceInQueue<'t>(&'t Fairness);

impl Drop for PlaceInQueue<'_> {
    fn drop(&mut self) {
        if !self.0.leave_queue(thread::number()) {
            self.0.return_ticket();
        }
    }
}

impl Fairness {
    /// Waits for the ticket. Returns `None` if the calling thread holds it already, or the queue
    /// does not move. Raises `freed` when the ticket is returned.
    pub(super) fn take_ticket<'p>(&'p self, freed: &'p Event) -> Option<FairnessTicket<'p>> {
        let me = thread::number();
        if self.is_held_by(me) {
            return None;
        }
        self.join_queue(me);
        let place = PlaceInQueue(self);
        let has_ticket = self.await_ticket(me);
        std::mem::forget(place);
        has_ticket.then(|| FairnessTicket { fairness: self, freed })
    }

    /// Waits until a thread in the queue holds the ticket. Returns false if it has left the queue,
    /// which did not move.
    fn await_ticket(&self, me: u64) -> bool {
        let (mut looks, mut returned) = (0, self.returned());
        loop {
            let ticket = self.moved.ticket();
            if self.is_held_by(me) {
                return true;
            }
            let now = self.returned();
            if now != returned {
                (looks, returned) = (0, now);
            }
            if looks == STUCK_LOOKS {
                return !self.leave_queue(me);
            }
            looks += 1;
            self.moved.wait(ticket, Some(LOOK_AGAIN));
        }
    }

    fn is_held_by(&self, thread: u64) -> bool {
        self.holder.load(Ordering::SeqCst) == thread
    }

    fn join_queue(&self, me: u64) {
        let mut queue = self.queue.lock();
        debug_assert!(!queue.contains(&me), "a thread has one place in the queue");
        queue.push_back(me);
        self.pass_to_first(&queue);
    }

    /// Leaves the queue. Returns false if the thread holds the ticket by now.
    fn leave_queue(&self, me: u64) -> bool {
        let mut queue = self.queue.lock();
        debug_assert!(queue.contains(&me), "only a thread in the queue leaves it");
        let leaves = queue.front() != Some(&me);
        if leaves {
            queue.retain(|thread| *thread != me);
        }
        leaves
    }

    fn return_ticket(&self) {
        self.kept.iter().for_each(|page| page.store(0, Ordering::SeqCst));
        let mut queue = self.queue.lock();
        let first = queue.pop_front();
        debug_assert_eq!(first, Some(thread::number()), "the first in the queue holds the ticket");
        self.returned.fetch_add(1, Ordering::SeqCst);
        self.pass_to_first(&queue);
        drop(queue);
        self.moved.notify_all();
    }

    fn pass_to_first(&self, queue: &VecDeque<u64>) {
        self.holder.store(queue.front().copied().unwrap_or(0), Ordering::SeqCst);
    }

    /// Tickets returned so far.
    pub(super) fn returned(&self) -> u64 {
        self.returned.load(Ordering::SeqCst)
    }

    /// Returns whether another thread holds the ticket.
    #[inline]
    pub(super) fn is_held_by_another(&self) -> bool {
        // Acquire: a thread that sees no holder sees the last holder's ticket among those returned.
        let holder = self.holder.load(Ordering::Acquire);
        holder != 0 && holder != thread::number()
    }

    /// Keeps a page, evicted or first in line for eviction, in memory if the calling thread holds
    /// the ticket.
    #[inline]
    pub(super) fn reach(&self, page: PageId) {
        if self.holder.load(Ordering::Relaxed) != 0 {
            self.keep(page);
        }
    }

    #[cold]
    fn keep(&self, page: PageId) {
        if self.is_held_by(thread::number()) && !self.keeps(page) {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            self.kept[next % KEPT].store(page.0, Ordering::SeqCst);
        }
    }

    /// Returns whether the page has to stay in memory. The caller has looked at the page's state
    /// before, so it sees pages that were kept before they came into memory.
    #[inline]
    pub(super) fn keeps(&self, page: PageId) -> bool {
        self.holder.load(Ordering::SeqCst) != 0
            && self.kept.iter().any(|kept| kept.load(Ordering::SeqCst) == page.0)
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
