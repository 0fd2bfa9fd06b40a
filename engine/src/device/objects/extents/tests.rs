//! Unit tests of `extents`.

use super::super::tests::memory_store::MemoryStore;
use super::*;
use crate::base::random::Random;

const PATIENCE: Duration = Duration::from_secs(5);
const EXTENT: u64 = 4096;
const LEN: u64 = 64 << 10;

fn open(store: &MemoryStore, body: &Body) -> Arc<Extents> {
    let next = Arc::new(crate::sync::atomic::AtomicU64::new(1));
    Extents::new(Arc::new(store.clone()), body, next, EXTENT, PATIENCE)
}

/// Puts the state into a body, and deletes what it no longer names.
fn publish(store: &MemoryStore, extents: &Extents, body: &mut Body) {
    for id in extents.describe(body) {
        assert!(body.runs.iter().all(|run| run.object != id), "{id:?} is dead and named");
        store.remove(&id.pages_name());
    }
}

#[test]
fn random_writes_are_read_back_and_survive() {
    for seed in 0..20 {
        let (store, mut random) = (MemoryStore::new(true), Random::from_seed(seed));
        let mut body = Body { epoch: WriterEpoch(1), ..Body::default() };
        let mut extents = open(&store, &body);
        let (mut now, mut flushed) = (vec![0; LEN as usize], vec![0; LEN as usize]);
        extents.extend(LEN);
        extents.upload_all().expect("no fault");
        publish(&store, &extents, &mut body);
        for step in 0..400_u64 {
            let (a, b) = (random.below(LEN / 64) * 64, random.below(LEN / 64) * 64);
            let range = a.min(b)..(a.max(b) + 64).min(a.min(b) + 3000).min(LEN);
            let (from, to) = (range.start as usize, range.end as usize);
            match random.below(20) {
                0 => {
                    extents.upload_all().expect("no fault");
                    publish(&store, &extents, &mut body);
                    flushed.clone_from(&now);
                }
                1 => {
                    // A crash: what was not flushed may be gone.
                    body.epoch = WriterEpoch(step + 2);
                    extents = open(&store, &body);
                    now.clone_from(&flushed);
                }
                2..=7 => {
                    let mut found = vec![1; to - from];
                    extents.read(range.start, &mut found).expect("there");
                    assert!(found == now[from..to], "seed {seed}, step {step}, {range:?}");
                }
                _ => {
                    now[from..to].fill(step as u8);
                    extents.write(range.start, &now[from..to]).expect("no fault");
                }
            }
        }
        extents.upload_all().expect("no fault");
        publish(&store, &extents, &mut body);
        let mut found = vec![1; LEN as usize];
        open(&store, &body).read(0, &mut found).expect("there");
        assert!(found == now, "seed {seed}");
    }
}

#[test]
fn what_is_cut_or_discarded_is_not_kept() {
    let store = MemoryStore::new(true);
    let mut body = Body { epoch: WriterEpoch(1), ..Body::default() };
    let extents = open(&store, &body);
    extents.write(0, &[1; 3 * EXTENT as usize]).expect("no fault");
    extents.upload_all().expect("no fault");
    publish(&store, &extents, &mut body);
    assert_eq!(store.names().len(), 1);
    extents.discard(0..EXTENT);
    extents.set_len(2 * EXTENT);
    let mut found = vec![7; EXTENT as usize];
    extents.read(EXTENT, &mut found).expect("there");
    assert!(found == vec![1; EXTENT as usize]);
    let error = extents.read(2 * EXTENT, &mut found).expect_err("it is cut");
    assert_eq!(error.kind(), ErrorKind::Corruption);
    extents.discard(EXTENT..2 * EXTENT);
    publish(&store, &extents, &mut body);
    assert_eq!(store.names(), [""; 0]);
}
