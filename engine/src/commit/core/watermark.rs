//! Which CSNs are durable, everywhere? CSNs are drawn here, and W is computed here.
//!
//! **W**: every CSN strictly below it is durable, in whichever log it lies. A transaction whose own
//! record is durable is committed when everything it depends on is: when its DSN is below W (rules
//! 1, 7, 13).
//!
//! Each log has a **slot**: a CSN at or below every CSN that the log owns and that is not yet
//! durable; infinity when there is none. W is the minimum over `next_csn` and all slots.
//!
//! ```text
//!   drawing, under the log's latch            scanning, any thread, no latch
//!   1  if slot = infinity: slot := next_csn   a  G0 := next_csn
//!   2  csn := next_csn++                      b  m  := min over all slots
//!   3  if 1 stored: slot := csn               c  W  := max(W, min(G0, m))
//!   completing, under the same latch
//!   4  slot := first CSN not yet durable, or infinity
//! ```
//!
//! Why c never lets W pass a CSN `c` that is not durable:
//! - *Step 2 not yet seen by a*: then G0 <= c, and W <= c.
//! - *Step 2 seen by a*: 2 is a release, a an acquire (and read-modify-writes carry a release on),
//!   so the scanner sees the slot as step 1 left it, or a later value. It was <= c then: `next_csn`
//!   had not passed c. It becomes greater than c only by 4, which happens when c is durable.
//! - *Without step 1* the log looks idle between 2 and the append: another log's reader of c's
//!   version would be acknowledged, and a crash loses c but keeps the reader. This is the
//!   interleaving that the model found.
//! - *a after b* would be wrong: a log that announces after its slot was read could draw below G0.
//! - *4 without the latch* could overwrite an announcement made since it looked at the log. Hence
//!   the latch, and the witness in the signatures.
//! - *Late scans*: a scanner that was off the CPU computes an old value. `fetch_max` keeps W from
//!   falling.
//!
//! # The ring
//! A version whose CSN is at or above W may be committed all the same: its own record is durable
//! and its DSN is below W, while an unrelated straggler holds W back. `ring[csn % N] = csn`
//! remembers such CSNs, so that a reader does not wait for the straggler (rule 7). An overwritten
//! entry only costs a wait that was not necessary. Draws are held up while N CSNs are undecided
//! ([`Watermark::has_room`]), so in practice no entry is overwritten.

use crate::base::planted::{self, Bug};
use crate::base::scale::SCALE;
use crate::base::{Csn, LogId};
use crate::sync::atomic::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

/// CSNs that may be drawn and undecided at a time, at least.
const RING_SIZE_MIN: u64 = SCALE.ring_size_min;
/// Draws that may be between the look at [`Watermark::has_room`] and the draw: at most one per log.
const DRAWS_IN_PROGRESS: u64 = SCALE.draws_in_progress;
/// CSNs that are drawn at once, at most.
pub const DRAWN_AT_ONCE_MAX: usize = 256;
const INFINITY: u64 = u64::MAX;

/// How many CSNs may be drawn and undecided at a time, a power of two; and so the length of rings
/// with a place for each of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingSize {
    /// The size is two to the power of this.
    bits: u32,
}

impl RingSize {
    /// The smallest, and that of tests.
    pub const MIN: RingSize = RingSize { bits: RING_SIZE_MIN.trailing_zeros() };

    /// Half of the ring is for transactions in queues, the other for committers that wait.
    pub fn for_queued(transactions: usize) -> RingSize {
        let wanted = (2 * transactions).next_power_of_two().trailing_zeros();
        RingSize { bits: wanted.max(RingSize::MIN.bits) }
    }

    pub fn get(self) -> u64 {
        1 << self.bits
    }

    /// The place of `csn` in a ring.
    #[inline]
    pub fn place(self, csn: Csn) -> usize {
        (csn.0 & (self.get() - 1)) as usize
    }

    /// Distinguishes CSNs of one place: how often the ring was filled before `csn`.
    #[inline]
    pub fn round(self, csn: Csn) -> u64 {
        csn.0 >> self.bits
    }
}

/// Implemented by whatever proves that the caller holds a log's latch.
pub trait Latched {}

impl Latched for crate::log::LogGuard<'_> {}

/// See the module's text.
#[derive(Debug)]
pub struct Watermark {
    /// The next CSN to be drawn. Written by the holder of any log's latch.
    next: CachePadded<AtomicU64>,
    /// W. Raised by every scanner.
    settled: CachePadded<AtomicU64>,
    /// Per log. Written under that log's latch only, read by scanners.
    slots: Box<[CachePadded<AtomicU64>]>,
    /// Written by acknowledging threads; empty for one log, where W alone decides.
    ring: Box<[AtomicU64]>,
    size: RingSize,
}

impl Watermark {
    /// Everything below `first` is durable; `first` is the next CSN to be drawn.
    pub fn new(logs: usize, first: Csn, size: RingSize) -> Watermark {
        let ring = if logs > 1 { size.get() as usize } else { 0 };
        Watermark {
            next: CachePadded::new(AtomicU64::new(first.0)),
            settled: CachePadded::new(AtomicU64::new(first.0)),
            slots: (0..logs).map(|_| CachePadded::new(AtomicU64::new(INFINITY))).collect(),
            ring: (0..ring).map(|_| AtomicU64::new(0)).collect(),
            size,
        }
    }

    fn slot(&self, log: LogId) -> &AtomicU64 {
        &self.slots[log.0 as usize]
    }

    /// Draws a CSN for a record of `log` (steps 1 to 3). The caller appends the record before it
    /// releases the latch.
    pub fn draw(&self, log: LogId, _latch: &impl Latched) -> Csn {
        let slot = self.slot(log);
        let idle = slot.load(Ordering::Relaxed) == INFINITY && !planted::is(Bug::SlotNotAnnounced);
        if idle && !planted::is(Bug::AnnouncedAfterDraw) {
            slot.store(self.next.load(Ordering::SeqCst), Ordering::SeqCst);
        }
        let csn = self.next.fetch_add(1, Ordering::SeqCst);
        debug_assert!(csn < Csn::LIMIT.0, "all CSNs are drawn");
        planted::linger(Bug::AnnouncedAfterDraw);
        if idle {
            slot.store(csn, Ordering::SeqCst);
        }
        Csn(csn)
    }

    /// Draws a CSN for a record in each of `logs`, none between them; returns the first. Steps 1 to
    /// 3, each for all logs, under all their latches. The argument above holds for each log: its
    /// slot is at or below its CSN before that is drawn.
    pub fn draw_all(&self, logs: impl Iterator<Item = LogId> + Clone, _latches: &[impl Latched]) -> Csn {
        let mut idle = [0_u64; DRAWN_AT_ONCE_MAX / 64];
        let mut count = 0;
        for log in logs.clone() {
            let slot = self.slot(log);
            if slot.load(Ordering::Relaxed) == INFINITY {
                idle[count / 64] |= 1 << (count % 64);
                slot.store(self.next.load(Ordering::SeqCst), Ordering::SeqCst);
            }
            count += 1;
        }
        let first = self.next.fetch_add(count as u64, Ordering::SeqCst);
        debug_assert!(count > 0 && count <= DRAWN_AT_ONCE_MAX, "some CSNs are drawn, and not too many");
        for (at, log) in logs.enumerate() {
            if idle[at / 64] >> (at % 64) & 1 == 1 {
                self.slot(log).store(first + at as u64, Ordering::SeqCst);
            }
        }
        Csn(first)
    }

    /// Step 4: what `log` still has to make durable.
    pub fn settle(&self, log: LogId, first_volatile: Option<Csn>, _latch: &impl Latched) {
        let to = first_volatile.map_or(INFINITY, |csn| csn.0);
        debug_assert!(to >= self.slot(log).load(Ordering::Relaxed), "a slot is only raised here");
        self.slot(log).store(to, Ordering::SeqCst);
    }

    /// Steps a to c; returns W.
    pub fn rescan(&self) -> Csn {
        let bound = self.next.load(Ordering::SeqCst);
        let lowest = self.slots.iter().map(|s| s.load(Ordering::SeqCst)).min().unwrap_or(INFINITY);
        planted::linger(Bug::SlotsBeforeCounter);
        let late = planted::is(Bug::SlotsBeforeCounter);
        let bound = if late { self.next.load(Ordering::SeqCst) } else { bound };
        let fresh = bound.min(lowest);
        Csn(self.settled.fetch_max(fresh, Ordering::SeqCst).max(fresh))
    }

    /// W as of the last scan.
    pub fn get(&self) -> Csn {
        Csn(self.settled.load(Ordering::Acquire))
    }

    /// The newest CSN up to which everything is durable, in one order with the pins of snapshots:
    /// see `descriptor`.
    pub fn newest_settled(&self) -> Csn {
        Csn(self.settled.load(Ordering::SeqCst) - 1)
    }

    /// The newest CSN that was drawn.
    pub fn newest_drawn(&self) -> Csn {
        Csn(self.next.load(Ordering::SeqCst) - 1)
    }

    /// False while too many CSNs are undecided; to be asked, under the latch, before a draw.
    pub fn has_room(&self) -> bool {
        let undecided =
            self.next.load(Ordering::Relaxed).saturating_sub(self.settled.load(Ordering::Relaxed));
        undecided < self.size.get() - DRAWS_IN_PROGRESS
    }

    /// Returns true if `log` owns a CSN at or below `csn` that may not be durable.
    pub fn holds_back(&self, log: LogId, csn: Csn) -> bool {
        self.slot(log).load(Ordering::SeqCst) <= csn.0
    }

    /// Remembers that `csn` is committed. Nothing to do if W says so, as it always does for one
    /// log.
    pub fn mark_committed(&self, csn: Csn) {
        if csn >= self.get()
            && let Some(tag) = self.ring_tag(csn)
        {
            tag.store(csn.0, Ordering::Release);
        }
    }

    /// Returns true if `csn` is committed: below W, or in the ring.
    pub fn is_committed(&self, csn: Csn) -> bool {
        csn < self.get() || self.ring_tag(csn).is_some_and(|tag| tag.load(Ordering::Acquire) == csn.0)
    }

    fn ring_tag(&self, csn: Csn) -> Option<&AtomicU64> {
        self.ring.get(self.size.place(csn))
    }
}

#[cfg(test)]
#[cfg_attr(feature = "shuttle", allow(dead_code))]
pub mod tests {
    use super::*;

    pub struct Held;
    impl Latched for Held {}

    #[cfg(not(any(loom, feature = "shuttle")))]
    #[test]
    fn an_idle_log_does_not_hold_w_back_and_a_busy_one_does() {
        let watermark = Watermark::new(2, Csn(1), RingSize::MIN);
        assert_eq!(watermark.rescan(), Csn(1));
        let first = watermark.draw(LogId(0), &Held);
        let second = watermark.draw(LogId(1), &Held);
        assert_eq!((first, second), (Csn(1), Csn(2)));
        watermark.settle(LogId(1), None, &Held);
        assert_eq!(watermark.rescan(), Csn(1), "log 0 has not hardened csn 1");
        watermark.settle(LogId(0), None, &Held);
        assert_eq!(watermark.rescan(), Csn(3));
        assert_eq!(watermark.newest_drawn(), Csn(2));
    }

    #[cfg(not(any(loom, feature = "shuttle")))]
    #[test]
    fn committed_above_w_is_found_in_the_ring() {
        let watermark = Watermark::new(2, Csn(1), RingSize::MIN);
        let straggler = watermark.draw(LogId(0), &Held);
        let other = watermark.draw(LogId(1), &Held);
        watermark.settle(LogId(1), None, &Held);
        watermark.rescan();
        assert!(!watermark.is_committed(other));
        watermark.mark_committed(other);
        assert!(watermark.is_committed(other) && !watermark.is_committed(straggler));
        assert!(!watermark.is_committed(Csn(other.0 + RING_SIZE_MIN)), "an old tag is not the new CSN");
    }

    /// What loom explores with a few steps, with many: there is a moment between an announcement
    /// and its draw, and one between two looks of a scan, in which a wrong order shows. Two threads
    /// meet it within some thousand rounds.
    #[cfg(not(any(loom, miri, feature = "shuttle")))]
    #[test]
    fn w_never_passes_a_volatile_csn_while_another_thread_scans() {
        const ROUNDS: u64 = 200_000;
        let watermark = Watermark::new(2, Csn(1), RingSize::MIN);
        let durable = AtomicU64::new(0);
        let done = crate::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    // The log is idle before each draw, so each is announced.
                    let csn = watermark.draw(LogId((round % 2) as u32), &Held);
                    // The device takes its time, some hundred nanoseconds here.
                    (0..40).for_each(|_| std::hint::spin_loop());
                    durable.store(csn.0, Ordering::SeqCst);
                    watermark.settle(LogId((round % 2) as u32), None, &Held);
                }
                done.store(true, Ordering::SeqCst);
            });
            while !done.load(Ordering::SeqCst) {
                let w = watermark.rescan();
                let durable = durable.load(Ordering::SeqCst);
                assert!(w.0 <= durable + 1, "W = {w}, but only {durable} is durable");
            }
        });
        assert_eq!(watermark.rescan(), Csn(ROUNDS + 1));
    }

    #[cfg(not(any(loom, feature = "shuttle")))]
    #[test]
    fn draws_are_held_up_before_the_ring_is_full() {
        let watermark = Watermark::new(2, Csn(1), RingSize::MIN);
        while watermark.has_room() {
            watermark.draw(LogId(0), &Held);
        }
        assert!(watermark.newest_drawn().0 < RING_SIZE_MIN);
    }

    #[cfg(not(any(loom, feature = "shuttle")))]
    #[test]
    fn a_ring_has_room_for_twice_the_queued_transactions() {
        assert_eq!(RingSize::for_queued(0), RingSize::MIN);
        let most = RING_SIZE_MIN as usize * 10;
        let size = RingSize::for_queued(most);
        assert!(size.get() >= 2 * most as u64 && size.get() < 4 * most as u64);
        let watermark = Watermark::new(2, Csn(1), size);
        for _ in 0..most {
            assert!(watermark.has_room());
            let csn = watermark.draw(LogId(0), &Held);
            watermark.mark_committed(csn);
        }
        assert!((1..=most).all(|csn| watermark.is_committed(Csn(csn as u64))), "none was overwritten");
        let next = Csn(1 + size.get());
        assert_eq!((size.place(next), size.round(next)), (size.place(Csn(1)), 1));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::tests::Held;
    use super::*;
    use crate::sync::atomic::AtomicBool;
    use loom::sync::{Arc, Mutex};

    struct World {
        watermark: Watermark,
        latches: [Mutex<()>; 2],
        durable: [AtomicBool; 4],
    }

    impl World {
        fn commit(&self, log: u32) {
            let csn = {
                let _latch = self.latches[log as usize].lock().expect("no panic");
                self.watermark.draw(LogId(log), &Held)
            };
            // The device write, then its completion.
            self.durable[csn.0 as usize].store(true, Ordering::SeqCst);
            let _latch = self.latches[log as usize].lock().expect("no panic");
            self.watermark.settle(LogId(log), None, &Held);
        }

        fn check(&self) {
            let settled = self.watermark.rescan();
            for csn in 1..settled.0 {
                assert!(
                    self.durable[csn as usize].load(Ordering::SeqCst),
                    "W = {settled} but {csn} is volatile"
                );
            }
        }
    }

    fn world() -> Arc<World> {
        Arc::new(World {
            watermark: Watermark::new(2, Csn(1), RingSize::MIN),
            latches: [Mutex::new(()), Mutex::new(())],
            durable: std::array::from_fn(|_| AtomicBool::new(false)),
        })
    }

    #[test]
    fn w_never_passes_a_volatile_csn() {
        loom::model(|| {
            let world = world();
            let writers: Vec<_> = (0..2)
                .map(|log| {
                    let world = world.clone();
                    loom::thread::spawn(move || world.commit(log))
                })
                .collect();
            world.check();
            for writer in writers {
                writer.join().expect("no panic");
            }
            world.check();
            assert_eq!(world.watermark.get(), Csn(3));
        });
    }

    /// A transaction with a record in each of both logs, and one in the second.
    #[test]
    fn w_never_passes_a_volatile_fragment() {
        loom::model(|| {
            let world = world();
            let other = world.clone();
            let divided = loom::thread::spawn(move || {
                let first = {
                    let _latches = other.latches.each_ref().map(|latch| latch.lock().expect("no panic"));
                    other.watermark.draw_all([LogId(0), LogId(1)].into_iter(), &[Held, Held])
                };
                for log in [1, 0] {
                    let _latch = other.latches[log].lock().expect("no panic");
                    other.durable[first.0 as usize + log].store(true, Ordering::SeqCst);
                    // What the other thread has drawn in this log meanwhile is its own to settle.
                    let volatile = (first.0..4).map(Csn).find(|csn| {
                        log == 1
                            && *csn > first.next()
                            && *csn <= other.watermark.newest_drawn()
                            && !other.durable[csn.0 as usize].load(Ordering::SeqCst)
                    });
                    other.watermark.settle(LogId(log as u32), volatile, &Held);
                }
            });
            let csn = {
                let _latch = world.latches[1].lock().expect("no panic");
                world.watermark.draw(LogId(1), &Held)
            };
            world.check();
            {
                let _latch = world.latches[1].lock().expect("no panic");
                world.durable[csn.0 as usize].store(true, Ordering::SeqCst);
                // As above: what is left of the log is the fragment, if that came first and is not
                // durable.
                let fragment = Csn(if csn == Csn(1) { 3 } else { 2 });
                let drawn = world.watermark.newest_drawn() >= fragment && csn != fragment;
                let left = drawn && !world.durable[fragment.0 as usize].load(Ordering::SeqCst);
                world.watermark.settle(LogId(1), left.then_some(fragment), &Held);
            }
            divided.join().expect("no panic");
            world.check();
            assert_eq!(world.watermark.get(), Csn(4));
        });
    }

    #[test]
    fn w_never_falls_when_scans_race() {
        loom::model(|| {
            let world = world();
            let other = world.clone();
            let writer = loom::thread::spawn(move || {
                other.commit(0);
                other.commit(0);
                other.check();
            });
            let before = world.watermark.rescan();
            world.check();
            assert!(world.watermark.get() >= before);
            writer.join().expect("no panic");
        });
    }
}
