//! The parking lot: blocks of one log that are on their way to the device.
//!
//! ```text
//!   sequences   7         8         9
//!               flying    landed    landed       8 and 9 are parked: nobody is told of them yet
//!               landed                           7 lands: the frontier passes 7, 8 and 9 at once
//! ```
//!
//! Writes of one log complete in any order: its own of different queues, and those of peers that carry its blocks. One that completes
//! before an earlier one of the same log leaves its notification here, and whoever completes the earliest takes all of them along.
//!
//! 1. The frontier is the last CSN of the gap-free prefix of landed blocks. It never falls, and never passes a block that is flying.
//! 2. Blocks are parked in the order of their sequences, under the log's latch, and land under it.
//! 3. A sequence that is not flying is ignored: it cannot move the frontier.

use super::segment::OpenBlock;
use crate::base::Csn;
use crate::base::planted::{self, Bug};
use std::collections::VecDeque;

/// Blocks that may be flying before peers leave a log alone. Its own blocks are bounded by its buffers.
pub(super) const PLACES: usize = 64;

#[derive(Debug)]
struct Flight {
    sequence: u64,
    first_csn: Csn,
    last_csn: Csn,
    landed: bool,
    /// The mapped buffer that holds its records, fenced.
    mapped: Option<u32>,
    /// Its place is kept for it.
    open: Option<OpenBlock>,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct ParkingLot {
    flights: VecDeque<Flight>,
}

impl ParkingLot {
    pub(super) fn new() -> ParkingLot {
        ParkingLot { flights: VecDeque::with_capacity(PLACES) }
    }

    /// A block was sealed. Sequences and CSNs rise from one to the next.
    pub(super) fn depart(
        &mut self,
        sequence: u64,
        (first_csn, last_csn): (Csn, Csn),
        mapped: Option<u32>,
        open: Option<OpenBlock>,
    ) {
        debug_assert!(
            self.flights.back().is_none_or(|last| last.sequence < sequence && last.last_csn < first_csn)
        );
        self.flights.push_back(Flight { sequence, first_csn, last_csn, landed: false, mapped, open });
    }

    /// The write of a block has completed. Returns the frontier if it moved.
    pub(super) fn land(&mut self, sequence: u64) -> Option<Csn> {
        if let Some(flight) = self.flights.iter_mut().find(|flight| flight.sequence == sequence) {
            flight.landed = true;
            flight.open = None;
        }
        let mut frontier = None;
        let passes = |flight: &Flight| planted::is(Bug::FrontierIsHighest) && flight.sequence < sequence;
        while let Some(flight) = self.flights.pop_front_if(|flight| flight.landed || passes(flight)) {
            frontier = Some(flight.last_csn);
        }
        frontier
    }

    /// The mapped buffer of a block whose write has completed, to be used again.
    pub(super) fn take_mapped(&mut self, sequence: u64) -> Option<u32> {
        self.flights.iter_mut().find(|flight| flight.sequence == sequence)?.mapped.take()
    }

    /// The first CSN of a block that is flying and in no mapped buffer.
    pub(super) fn first_unmapped_csn(&self) -> Option<Csn> {
        let flight = self.flights.iter().find(|flight| !flight.landed && flight.mapped.is_none());
        flight.map(|flight| flight.first_csn)
    }

    /// The first CSN that is flying, or parked behind one that is.
    pub(super) fn first_csn(&self) -> Option<Csn> {
        self.flights.front().map(|flight| flight.first_csn)
    }

    /// The first sequence that has not landed, or is parked behind one.
    pub(super) fn first_sequence(&self) -> Option<u64> {
        self.flights.front().map(|flight| flight.sequence)
    }

    /// Blocks flying or parked.
    pub(super) fn len(&self) -> usize {
        self.flights.len()
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_lands_early_waits_for_what_was_before_it() {
        let mut lot = ParkingLot::new();
        (1..=3).for_each(|n| lot.depart(n, (Csn(10 * n), Csn(10 * n + 5)), None, None));
        assert_eq!(lot.land(3), None);
        assert_eq!(lot.land(9), None, "never departed");
        assert_eq!(lot.land(2), None);
        assert_eq!((lot.first_csn(), lot.first_sequence(), lot.len()), (Some(Csn(10)), Some(1), 3));
        assert_eq!(lot.land(1), Some(Csn(35)));
        assert_eq!(lot.land(1), None, "landed before");
        assert_eq!((lot.first_csn(), lot.len()), (None, 0));
    }

    proptest! {
        #[test]
        fn the_frontier_is_the_gap_free_prefix(order in Just((1..=20u64).collect::<Vec<_>>()).prop_shuffle()) {
            let mut lot = ParkingLot::new();
            (1..=20).for_each(|n| lot.depart(n, (Csn(n), Csn(n)), None, None));
            let (mut landed, mut frontier) = (std::collections::BTreeSet::new(), 0);
            for sequence in order {
                landed.insert(sequence);
                let moved = lot.land(sequence);
                let prefix = (1..).take_while(|n| landed.contains(n)).last().unwrap_or(0);
                prop_assert_eq!(moved, (prefix > frontier).then_some(Csn(prefix)));
                frontier = prefix;
            }
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use loom::sync::{Arc, Mutex};

    struct World {
        lot: Mutex<ParkingLot>,
        /// As of a log: read by acknowledgers without the latch.
        durable: AtomicU64,
        written: [AtomicBool; 4],
        /// CSNs of which somebody was told.
        told: AtomicU64,
    }

    impl World {
        fn complete(&self, sequence: u64) {
            self.written[sequence as usize].store(true, Ordering::SeqCst);
            let moved = {
                let mut lot = self.lot.lock().expect("no panic");
                let moved = lot.land(sequence);
                if let Some(csn) = moved {
                    self.durable.store(csn.0, Ordering::SeqCst);
                }
                moved
            };
            if let Some(csn) = moved {
                self.told.fetch_max(csn.0, Ordering::SeqCst);
            }
        }

        fn check(&self) {
            for csn in 1..=self.durable.load(Ordering::SeqCst) {
                assert!(
                    self.written[csn as usize].load(Ordering::SeqCst),
                    "{csn} counts as durable and is not"
                );
            }
        }
    }

    /// The owner's own write and those of two peers, in any order: nothing counts early, and the last to complete tells of all.
    #[test]
    fn flushes_of_owner_and_thieves_land_in_any_order() {
        loom::model(|| {
            let mut lot = ParkingLot::new();
            (1..=3).for_each(|n| lot.depart(n, (Csn(n), Csn(n)), None, None));
            let world = Arc::new(World {
                lot: Mutex::new(lot),
                durable: AtomicU64::new(0),
                written: std::array::from_fn(|_| AtomicBool::new(false)),
                told: AtomicU64::new(0),
            });
            let peers: Vec<_> = [3, 1]
                .into_iter()
                .map(|sequence| {
                    let world = world.clone();
                    loom::thread::spawn(move || world.complete(sequence))
                })
                .collect();
            world.check();
            world.complete(2);
            world.check();
            for peer in peers {
                peer.join().expect("no panic");
            }
            assert_eq!(world.durable.load(Ordering::SeqCst), 3);
            assert_eq!(world.told.load(Ordering::SeqCst), 3, "no notification is lost in the lot");
        });
    }
}
