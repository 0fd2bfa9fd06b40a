//! Tests of a bucket that joins while blocks are in flight.

use super::super::body::{Nonce, WriterEpoch};
use super::super::buckets::BucketSet;
use super::super::frame::{Frame, FrameKind};
use super::super::simulated::{SimulatedClient, SimulatedStore};
use super::super::store::ObjectStore;
use super::super::watch::Watch;
use super::*;
use crate::sync::atomic::{AtomicU64, Ordering};

const ID: ObjectId = ObjectId { epoch: WriterEpoch(1), number: 1 };
const PATIENCE: Duration = Duration::from_secs(20);

/// A segment in five buckets, of which all count.
struct World {
    stores: Vec<SimulatedStore>,
    clients: Vec<Arc<SimulatedClient>>,
    buckets: Buckets,
    segment: Arc<SpreadSegment>,
    durable: Arc<AtomicU64>,
}

impl World {
    fn new(seed: u64) -> World {
        let stores: Vec<_> = (0..5).map(|zone| SimulatedStore::new(8 * seed + zone)).collect();
        let clients: Vec<_> = stores.iter().map(SimulatedStore::client).collect();
        let named = |(zone, client): (usize, &Arc<SimulatedClient>)| {
            (format!("sim://zone{zone}"), client.clone() as Arc<dyn ObjectStore>)
        };
        let named = clients.iter().enumerate().map(named).collect();
        let buckets = Buckets::new(BucketSet::new(named, false, None));
        buckets.all().iter().for_each(|bucket| bucket.count());
        let store: Arc<dyn ObjectStore> = clients[0].clone();
        let header = Frame { kind: FrameKind::Header, identity: 7, epoch: ID.epoch, nonce: Nonce([7; 16]) };
        let watch = Watch::new(store.clone(), ID.epoch, Duration::from_millis(20));
        let (facts, failure) = (store.facts(), OnceLock::new());
        let writer = Writer { store, facts, header, patience: PATIENCE, lanes: 2, watch, failure };
        let segment = SpreadSegment::create("log/1", ID, &writer, &buckets).expect("all count");
        segment.registered();
        World { stores, clients, buckets, segment, durable: Arc::default() }
    }

    fn submit(&self, byte: u8) {
        let durable = self.durable.clone();
        let done = Box::new(move |result: Result<()>| {
            result.expect("no fault");
            durable.fetch_add(1, Ordering::SeqCst);
        });
        self.segment.submit(Write { body: Bytes::from(vec![byte; 4096]), done });
    }

    /// Returns in which buckets the block is.
    fn has(&self, number: u64) -> Vec<usize> {
        let has = |zone: &usize| self.stores[*zone].object(&block_name(ID, number)).is_some();
        (0..5).filter(has).collect()
    }
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Three buckets have a block, and a standby that reaches them has shown it. The writer does not
/// know: two replies are held back. One of the three is excluded, perhaps emptied, and joins again.
/// A takeover that reaches it and the two that never had the block must find the block.
#[test]
fn a_bucket_that_joins_gets_blocks_that_are_not_durable_yet() {
    for (seed, is_emptied) in (0..20).flat_map(|seed| [(seed, true), (seed, false)]) {
        let world = World::new(seed);
        world.submit(1);
        wait_until(|| world.has(1).len() == 5 && world.durable.load(Ordering::SeqCst) == 1);
        assert!(world.segment.wait_idle(), "five confirmations");
        world.clients[..2].iter().for_each(|client| client.hold_requests());
        world.clients[2..4].iter().for_each(|client| client.hold_replies());
        world.submit(2);
        wait_until(|| world.has(2) == [2, 3, 4]);
        world.buckets.all()[4].exclude("it was emptied, perhaps", true);
        let lost = world.stores[4].objects();
        lost.keys().filter(|_| is_emptied).for_each(|name| world.stores[4].remove_object(name));
        // It reads the first block in another bucket.
        world.clients[3].release();
        world.segment.catch_up(4).expect("no fault");
        let context = format!("seed {seed}, emptied: {is_emptied}");
        assert_eq!((world.has(1).len(), world.has(2)), (5, vec![2, 3, 4]), "{context}");
        assert_eq!(world.durable.load(Ordering::SeqCst), 1, "what was lost is not counted");
        world.buckets.all()[4].joined();
        world.segment.catch_up(4).expect("no fault");
        world.clients.iter().for_each(|client| client.release());
        wait_until(|| world.durable.load(Ordering::SeqCst) == 2);
    }
}
