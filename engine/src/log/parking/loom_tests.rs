//! Concurrent operations under the model checker.

use super::*;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};

struct World {
    lot: Mutex<ParkingLot>,
    /// As of a log: read by acknowledgers without the latch.
    durable: AtomicU64,
    written: [AtomicBool; 4],
    /// The highest acknowledged CSN.
    acknowledged: AtomicU64,
}

impl World {
    fn complete(&self, sequence: u64) {
        self.written[sequence as usize].store(true, Ordering::SeqCst);
        let moved = {
            let mut lot = self.lot.lock().expect("no panic");
            let moved = lot.complete(sequence);
            if let Some(csn) = moved {
                self.durable.store(csn.0, Ordering::SeqCst);
            }
            moved
        };
        if let Some(csn) = moved {
            self.acknowledged.fetch_max(csn.0, Ordering::SeqCst);
        }
    }

    fn check(&self) {
        for csn in 1..=self.durable.load(Ordering::SeqCst) {
            assert!(self.written[csn as usize].load(Ordering::SeqCst), "{csn} counts as durable and is not");
        }
    }
}

/// The owner's own write and those of two peers, in any order: nothing counts early, and the last
/// completion acknowledges all.
#[test]
fn writes_of_owner_and_helpers_complete_in_any_order() {
    loom::model(|| {
        let mut lot = ParkingLot::new();
        (1..=3).for_each(|n| lot.depart(n, Csn(n), Csn(n), None, None));
        let world = Arc::new(World {
            lot: Mutex::new(lot),
            durable: AtomicU64::new(0),
            written: std::array::from_fn(|_| AtomicBool::new(false)),
            acknowledged: AtomicU64::new(0),
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
        assert_eq!(world.acknowledged.load(Ordering::SeqCst), 3, "no notification is lost in the lot");
    });
}
