//! Lamport clocks: how far are all logs durable, by their clocks?
//!
//! A **GSN** is a Lamport clock. Each page, transaction and log has one (the clocks of pages are in
//! the layer `transaction`, which sees pages):
//!
//! ```text
//!   read a page     transaction := max(transaction, page)
//!   write a page    both        := max(transaction, page) + 1
//!   draw            record      := max(transaction, log) + 1;   log, transaction and the pages that it wrote get that
//! ```
//!
//! So if a transaction saw another's change, its record has the higher GSN, in whichever log, and
//! GSNs rise with position within a log. **Reach** is a GSN up to which everything is durable in
//! every log. A transaction is committed when its own GSN is at or below the reach. Then all that
//! it depends on is durable, and much that it does not depend on, because rows share pages and
//! transactions share clocks.
//!
//! **Remote flush avoidance** (RFA). A transaction that only met what was last changed through its
//! own log, or is at or below the reach, need not wait for other logs. It is not alone with that,
//! though: it waits for those before it in its own log that do have to wait, since it may have read
//! from them. So a log keeps the GSN of its newest transaction that needs others; that is what each
//! waits for, its own included.
//!
//! # The reach
//!
//! Each log has a **clock** and a **floor**: every record of the log that is not durable has a GSN
//! above the floor; infinity when there is none.
//!
//! ```text
//!   drawing, under the log's latch            scanning, any thread, no latch
//!   1  if floor = infinity: floor := clock    a  B := the highest clock
//!   2  clock := max(clock, gsn) + 1           b  every clock := max(clock, B)
//!   completing, under the same latch          c  m := min over all floors
//!   3  floor := first volatile GSN - 1,       d  reach := max(reach, min(B, m))
//!      or infinity
//! ```
//!
//! Why d never lets the reach pass the GSN of a record that is not durable: if step 2 comes after b
//! it draws above B. If it comes before, so does step 1, and c sees a floor below the record's GSN
//! until 3 raises it, when the record is durable. Step b is also what keeps logs from holding the
//! reach back: one that is idle has no floor, and one whose clock is behind draws above B from now
//! on. That is the barrier of the literature, without a transaction for it.
//!
//! Recovery does not use clocks. Records list their predecessors as by the exact rule, and the set
//! that the exact rule recovers contains every transaction that this rule commits, because a
//! predecessor always has a lower GSN. A transaction that cannot list its predecessors also needs W
//! above its DSN; so does each transaction that depends on it before it is committed.

use crate::base::planted::{self, Bug};
use crate::base::{Csn, Gsn, LogId};
use crate::commit::core::watermark::{Latched, RingSize};
use crate::sync::atomic::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

const INFINITY: u64 = u64::MAX;

/// See the module's text.
#[derive(Debug)]
pub struct Clocks {
    logs: Box<[CachePadded<LogClock>]>,
    /// Everything at or below is durable. Raised by every scanner.
    reach: CachePadded<AtomicU64>,
    /// By CSN, for those that W has not passed: the record's GSN, and what it waits for. Written
    /// under the latch.
    drawn: Box<[[AtomicU64; 2]]>,
    size: RingSize,
}

#[derive(Debug)]
struct LogClock {
    /// Raised under the latch and by scanners.
    clock: AtomicU64,
    /// Written under the latch, read by scanners.
    floor: AtomicU64,
    /// GSN of the newest transaction that waits for other logs. Read and written under the latch.
    needs: AtomicU64,
}

impl Clocks {
    pub fn new(logs: usize, size: RingSize) -> Clocks {
        let log = || LogClock {
            clock: AtomicU64::new(1),
            floor: AtomicU64::new(INFINITY),
            needs: AtomicU64::new(0),
        };
        Clocks {
            logs: (0..logs).map(|_| CachePadded::new(log())).collect(),
            reach: CachePadded::new(AtomicU64::new(1)),
            drawn: (0..size.get()).map(|_| [AtomicU64::new(0), AtomicU64::new(0)]).collect(),
            size,
        }
    }

    fn drawn(&self, csn: Csn) -> &[AtomicU64; 2] {
        &self.drawn[self.size.place(csn)]
    }

    /// Draws a GSN above `gsn` for the record of `csn`, which was just drawn. `alone`: it does not
    /// wait for other logs.
    pub fn draw(&self, log: LogId, csn: Csn, gsn: Gsn, alone: bool, _latch: &dyn Latched) -> Gsn {
        let log = &self.logs[log.0 as usize];
        if log.floor.load(Ordering::Relaxed) == INFINITY {
            log.floor.store(log.clock.load(Ordering::SeqCst), Ordering::SeqCst);
        }
        let after = if planted::is(Bug::GsnNotAbovePredecessors) { 0 } else { gsn.0 };
        let next = |clock: u64| clock.max(after) + 1;
        let before = log.clock.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |clock| Some(next(clock)));
        let drawn = next(before.unwrap_or_else(|clock| clock));
        debug_assert!(
            drawn > gsn.0 || planted::is(Bug::GsnNotAbovePredecessors),
            "a record's clock is above those of what its transaction met"
        );
        if !alone {
            log.needs.store(drawn, Ordering::Relaxed);
        }
        let [place, needs] = self.drawn(csn);
        place.store(drawn, Ordering::Relaxed);
        let others =
            if alone && planted::is(Bug::OwnLogIsEnough) { 0 } else { log.needs.load(Ordering::Relaxed) };
        needs.store(others, Ordering::Release);
        Gsn(drawn)
    }

    /// Sets the floor of `log`, whose first record that is not durable is `first_volatile`.
    pub fn settle(&self, log: LogId, first_volatile: Option<Csn>, _latch: &dyn Latched) {
        let floor = first_volatile.map_or(INFINITY, |csn| self.drawn(csn)[0].load(Ordering::Relaxed) - 1);
        self.logs[log.0 as usize].floor.store(floor, Ordering::SeqCst);
    }

    /// Steps a to d.
    pub fn rescan(&self) {
        let bound = self.logs.iter().map(|log| log.clock.load(Ordering::SeqCst)).max().unwrap_or(0);
        for log in &self.logs {
            log.clock.fetch_max(bound, Ordering::SeqCst);
        }
        let lowest = self.logs.iter().map(|log| log.floor.load(Ordering::SeqCst)).min().unwrap_or(INFINITY);
        self.reach.fetch_max(bound.min(lowest), Ordering::SeqCst);
    }

    /// Everything at or below is durable.
    pub fn reach(&self) -> Gsn {
        Gsn(self.reach.load(Ordering::Acquire))
    }

    /// The GSN of a record that W has not passed.
    pub fn of(&self, csn: Csn) -> Gsn {
        Gsn(self.drawn(csn)[0].load(Ordering::Acquire))
    }

    /// The GSN that the reach has to come to for a transaction that W has not passed. A place that
    /// was used again says more than is needed, and then W has passed it.
    pub fn needed_by(&self, csn: Csn) -> Gsn {
        Gsn(self.drawn(csn)[1].load(Ordering::Acquire))
    }

    /// Returns true if `log` has a volatile record at or below `gsn`.
    pub fn holds_back(&self, log: LogId, gsn: Gsn) -> bool {
        self.logs[log.0 as usize].floor.load(Ordering::SeqCst) < gsn.0
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::commit::core::watermark::tests::Held;
    use loom::sync::atomic::AtomicBool;
    use loom::sync::{Arc, Mutex};
    use loom::thread::spawn;

    struct World {
        clocks: Clocks,
        latches: [Mutex<()>; 2],
        /// By CSN.
        durable: [AtomicBool; 8],
    }

    fn world() -> Arc<World> {
        Arc::new(World {
            clocks: Clocks::new(2, RingSize::MIN),
            latches: [Mutex::new(()), Mutex::new(())],
            durable: std::array::from_fn(|_| AtomicBool::new(false)),
        })
    }

    impl World {
        fn draw(&self, log: u32, csn: u64, met: Gsn, alone: bool) -> Gsn {
            let _latch = self.latches[log as usize].lock().expect("no panic");
            self.clocks.draw(LogId(log), Csn(csn), met, alone, &Held)
        }

        /// All of `log` becomes durable, of which `csns` were not.
        fn write(&self, log: u32, csns: &[u64]) {
            csns.iter().for_each(|csn| self.durable[*csn as usize].store(true, Ordering::SeqCst));
            let _latch = self.latches[log as usize].lock().expect("no panic");
            self.clocks.settle(LogId(log), None, &Held);
        }

        /// The newest reach there is, not one of those that a load may still see.
        fn newest_reach(&self) -> Gsn {
            Gsn(self.clocks.reach.fetch_max(0, Ordering::AcqRel))
        }

        /// A whole commit in `log`, beside scanning threads.
        fn commit(&self, log: u32, csn: u64) {
            let gsn = self.draw(log, csn, Gsn(0), false);
            assert!(self.newest_reach() < gsn, "the reach passed {csn}, which is volatile");
            self.write(log, &[csn]);
        }

        fn is_acknowledged(&self, csn: u64) -> bool {
            self.clocks.rescan();
            self.clocks.needed_by(Csn(csn)) <= self.clocks.reach()
        }
    }

    #[test]
    fn the_reach_passes_durable_records_only_and_all_of_them() {
        loom::model(|| {
            let world = world();
            // One log is ahead of the other.
            world.commit(1, 1);
            let theirs = world.clone();
            let other = spawn(move || theirs.commit(0, 2));
            world.clocks.rescan();
            world.commit(1, 3);
            world.clocks.rescan();
            other.join().expect("no panic");
            assert!((1..=3).all(|csn| world.is_acknowledged(csn)), "an idle log holds the others back");
        });
    }

    /// 4 in log 1, which is ahead; 5 in log 0 met it; 6 in log 0 met 5, and is alone.
    #[test]
    fn a_dependent_is_committed_after_its_predecessor() {
        loom::model(|| {
            let world = world();
            (1..=3).for_each(|csn| world.commit(1, csn));
            let page = Arc::new(AtomicU64::new(0));
            let (theirs, clock) = (world.clone(), page.clone());
            let other = spawn(move || {
                let gsn = theirs.draw(1, 4, Gsn(0), false);
                clock.store(gsn.0, Ordering::Release);
                theirs.write(1, &[4]);
            });
            let met = Gsn(page.load(Ordering::Acquire));
            if met > Gsn(0) {
                let first = world.draw(0, 5, met, false);
                let alone = world.draw(0, 6, first, true);
                assert!(met < first && first < alone);
                world.write(0, &[5, 6]);
                for csn in [5, 6] {
                    if world.is_acknowledged(csn) {
                        assert!(
                            world.durable[4].load(Ordering::SeqCst),
                            "{csn} is acknowledged before its predecessor is durable"
                        );
                    }
                }
                other.join().expect("no panic");
                assert!(world.is_acknowledged(5) && world.is_acknowledged(6));
            }
        });
    }
}
