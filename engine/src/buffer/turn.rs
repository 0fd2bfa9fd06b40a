//! Turns: one starved descent at a time has what it brings into memory kept for it.
//!
//! A descent holds nothing, so where memory is very short the page that it needs next may push out the one it has come from, or
//! others do, before it has arrived. Then it starts over, for ever. A descent to which that happened often gets in line:
//!
//! ```text
//!   starved ──▶ line ──▶ has the turn: pages it touches stay ──▶ arrives, or is told that memory is too small
//!                 │        and the last frame is for nobody else       │
//!                 ▼                                                    ▼
//!         the line does not move: goes on without               the next in line
//! ```
//!
//! 1. One thread has the turn: the first in line. Whoever comes gets in at the end.
//! 2. What it comes to by the slow path (marked or evicted) does not leave memory before the turn ends, at most [`KEPT`] pages. So it comes to each page
//!    of its way at most twice.
//! 3. Others leave one frame free. They wait for a frame as ever, and a little longer before they give up.
//! 4. Who waits for a turn may hold a latch that the one who has it waits for. So a line that does not move is left after a bounded time;
//!    and no lock is held while a turn lasts.
//! 5. Where memory is not short nobody has a turn, and only who has to bring in a page or allocates one looks.

use super::pool::Pool;
use crate::base::PageId;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Event, Mutex, thread};
use std::collections::VecDeque;
use std::time::Duration;

/// Pages that are kept for who has the turn, at most: more than a path is long.
const KEPT: usize = 16;
/// A line that has not moved after so many looks, each after so long, is left.
const STUCK_LOOKS: u32 = 10;
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Passes that could free nothing after which somebody gives up who waits for a frame while another has the turn.
pub(super) const FUTILE_PASSES_BESIDE_A_TURN: u64 = 20;

/// Who has the turn, and who comes next.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The thread that has it, 0 if nobody. Written under `line`; read by anybody.
    holder: AtomicU64,
    /// Threads, the first has the turn.
    line: Mutex<VecDeque<u64>>,
    /// Turns that have ended. Written under `line`; read by anybody.
    ended: AtomicU64,
    moved: Event,
    /// Pages that stay, 0 for none. Written by who has the turn; read by who evicts.
    kept: [AtomicU64; KEPT],
    /// Where the next of these goes. Used by who has the turn.
    next: AtomicUsize,
}

/// The calling thread's turn, until it is dropped.
#[derive(Debug)]
pub struct Turn<'p>(&'p Pool);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.turns.end();
        // Others may have the last frame again.
        self.0.budget_grew();
    }
}

/// Of the calling thread, which leaves the line if it unwinds there.
struct PlaceInLine<'t>(&'t Turns);

impl Drop for PlaceInLine<'_> {
    fn drop(&mut self) {
        if !self.0.leave_line(thread::number()) {
            self.0.end();
        }
    }
}

impl Pool {
    /// Waits until it is the calling thread's turn. `None` if that cannot be waited for: it has one, or nobody's ends.
    #[must_use]
    pub fn take_turn(&self) -> Option<Turn<'_>> {
        self.turns.take().then(|| Turn(self))
    }
}

impl Turns {
    fn take(&self) -> bool {
        let me = thread::number();
        if self.is_of(me) {
            return false;
        }
        self.get_in_line(me);
        let place = PlaceInLine(self);
        let has_turn = self.await_turn(me);
        std::mem::forget(place);
        has_turn
    }

    /// For a thread in the line. False if it has left it, because it does not move.
    fn await_turn(&self, me: u64) -> bool {
        let (mut looks, mut ended) = (0, self.ended());
        loop {
            let ticket = self.moved.ticket();
            if self.is_of(me) {
                return true;
            }
            let now = self.ended();
            if now != ended {
                (looks, ended) = (0, now);
            }
            if looks == STUCK_LOOKS {
                return !self.leave_line(me);
            }
            looks += 1;
            self.moved.wait(ticket, Some(LOOK_AGAIN));
        }
    }

    fn is_of(&self, thread: u64) -> bool {
        self.holder.load(Ordering::SeqCst) == thread
    }

    fn get_in_line(&self, me: u64) {
        let mut line = self.line.lock();
        line.push_back(me);
        self.call_first(&line);
    }

    /// False if the turn has come meanwhile.
    fn leave_line(&self, me: u64) -> bool {
        let mut line = self.line.lock();
        let leaves = line.front() != Some(&me);
        if leaves {
            line.retain(|thread| *thread != me);
        }
        leaves
    }

    fn end(&self) {
        self.kept.iter().for_each(|page| page.store(0, Ordering::SeqCst));
        let mut line = self.line.lock();
        line.pop_front();
        self.ended.fetch_add(1, Ordering::SeqCst);
        self.call_first(&line);
        drop(line);
        self.moved.notify_all();
    }

    fn call_first(&self, line: &VecDeque<u64>) {
        self.holder.store(line.front().copied().unwrap_or(0), Ordering::SeqCst);
    }

    /// Turns that have ended.
    pub(super) fn ended(&self) -> u64 {
        self.ended.load(Ordering::SeqCst)
    }

    /// Whether somebody else has the turn.
    #[inline]
    pub(super) fn is_of_another(&self) -> bool {
        // Acquire: who sees that nobody has it sees the last one among those that have ended.
        let holder = self.holder.load(Ordering::Acquire);
        holder != 0 && holder != thread::number()
    }

    /// The calling thread comes to a page that is not in memory, or may leave it next: it stays, if it is this thread's turn.
    #[inline]
    pub(super) fn come_to(&self, page: PageId) {
        if self.holder.load(Ordering::Relaxed) != 0 {
            self.keep(page);
        }
    }

    #[cold]
    fn keep(&self, page: PageId) {
        if self.is_of(thread::number()) && !self.keeps(page) {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            self.kept[next % KEPT].store(page.0, Ordering::SeqCst);
        }
    }

    /// Whether the page has to stay. Who asks has looked at its state before: what was kept before it came into memory is seen.
    #[inline]
    pub(super) fn keeps(&self, page: PageId) -> bool {
        self.holder.load(Ordering::SeqCst) != 0
            && self.kept.iter().any(|kept| kept.load(Ordering::SeqCst) == page.0)
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;
    use crate::buffer::test_sources::Zeros;
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Instant;

    fn pool(pages: u64) -> Arc<Pool> {
        let pool = Pool::new(4096, pages << 12, Arc::new(Zeros)).expect("small");
        pool.restore((1..100).map(PageId)).expect("each id once");
        pool
    }

    fn in_line(pool: &Pool) -> usize {
        pool.turns.line.lock().len()
    }

    #[test]
    fn turns_are_had_one_at_a_time_in_the_order_of_the_line() {
        // Who stands for a second leaves the line and comes back at its end.
        let in_order = (0..20).find_map(|_| Some(turns_of_four()).filter(|(left, _)| *left == 0));
        assert_eq!(in_order.expect("in one of 20 times nobody leaves the line").1, [0, 1, 2, 3]);
    }

    /// How often one of four threads left the line for a turn, and the order in which they had it.
    fn turns_of_four() -> (u32, Vec<usize>) {
        let pool = pool(20);
        let (send, order) = channel();
        let first = pool.take_turn().expect("nobody has it");
        assert!(pool.take_turn().is_none(), "a thread does not wait for itself");
        let threads: Vec<_> = (0..4)
            .map(|n| {
                let (other, send) = (pool.clone(), send.clone());
                let thread = std::thread::spawn(move || {
                    let mut left = 0;
                    while other.take_turn().map(|_turn| send.send(n).expect("listens")).is_none() {
                        left += 1;
                    }
                    left
                });
                while in_line(&pool) < 2 + n {
                    std::thread::yield_now();
                }
                thread
            })
            .collect();
        drop(first);
        let left = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
        assert_eq!((in_line(&pool), pool.turns.holder.load(Ordering::SeqCst)), (0, 0));
        (left, order.try_iter().collect())
    }

    #[test]
    fn a_line_that_does_not_move_is_left() {
        let pool = pool(20);
        let _never_ends = pool.take_turn().expect("nobody has it");
        let begun = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(pool.take_turn().is_none()));
        });
        assert!(begun.elapsed() >= LOOK_AGAIN);
        assert_eq!(in_line(&pool), 1);
    }

    #[test]
    fn who_unwinds_in_the_line_leaves_it_and_gives_its_turn_up() {
        let pool = pool(20);
        let unwinds = || {
            let waits = || {
                pool.turns.get_in_line(thread::number());
                let _place = PlaceInLine(&pool.turns);
                std::panic::resume_unwind(Box::new("a defect"));
            };
            std::thread::scope(|scope| assert!(scope.spawn(waits).join().is_err()));
        };
        let first = pool.take_turn().expect("nobody has it");
        unwinds();
        assert_eq!(in_line(&pool), 1);
        drop(first);
        unwinds();
        assert_eq!((in_line(&pool), pool.turns.holder.load(Ordering::SeqCst)), (0, 0));
    }

    #[test]
    fn the_last_frame_is_for_whose_turn_it_is_and_what_it_brings_in_stays() {
        let pool = pool(20);
        let pages = pool.resident_pages_max();
        let turn = pool.take_turn().expect("nobody has it");
        std::thread::scope(|scope| {
            let others = || {
                (1..pages).for_each(|page| assert!(pool.optimistic(PageId(page)).is_ok(), "room"));
                assert!(pool.optimistic(PageId(pages)).is_err(), "nobody evicts, and one is left");
            };
            scope.spawn(others);
        });
        pool.optimistic(PageId(50)).expect("it is its turn");
        let candidates = || {
            let mut candidates = Vec::new();
            pool.next_candidates(1000, 2 * pool.page_count(), &mut candidates);
            candidates
        };
        let (first, kept) = (candidates(), PageId(50));
        assert!(first.contains(&PageId(1)) && !first.contains(&kept), "{first:?}");
        drop(turn);
        assert!(candidates().contains(&kept), "the turn is over");
    }
}
