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

/// Holds back the puts, and then answers each.
#[derive(Debug)]
struct HeldPuts {
    inner: MemoryStore,
    held: Mutex<Vec<(Request, HeldDone)>>,
}

struct HeldDone(super::super::Done);

impl std::fmt::Debug for HeldDone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HeldDone")
    }
}

impl ObjectStore for HeldPuts {
    fn start(&self, request: Request, done: super::super::Done) {
        self.held.lock().push((request, HeldDone(done)));
    }

    fn facts(&self) -> super::super::StoreFacts {
        self.inner.facts()
    }
}

#[test]
fn pending_bytes_and_their_copies_are_charged() {
    let store = Arc::new(HeldPuts { inner: MemoryStore::new(true), held: Mutex::default() });
    let (body, next) = (Body { epoch: WriterEpoch(1), ..Body::default() }, Arc::default());
    let extents = Extents::new(store.clone(), &body, next, EXTENT, PATIENCE);
    let account = Arc::new(Account::default());
    extents.write(0, &[1; 100]).expect("no fault");
    extents.charge_to(&account, 1 << 30);
    assert_eq!(account.bytes(), 100);
    extents.write(50, &[1; 100]).expect("no fault");
    assert_eq!(account.bytes(), 150, "a write shadows what it overlaps");
    extents.discard(0..50);
    assert_eq!(account.bytes(), 100);
    extents.write(EXTENT, &[2; EXTENT as usize]).expect("no fault");
    let held = store.held.lock().len();
    let all = 100 + EXTENT;
    assert_eq!((held, account.bytes()), (1, all + 100), "the upload has a copy of the first 100");
    for (request, done) in std::mem::take(&mut *store.held.lock()) {
        store.inner.start(request, done.0);
    }
    assert_eq!(account.bytes(), EXTENT);
    drop(extents);
    assert_eq!(account.bytes(), 0);
}

#[test]
fn pending_bytes_have_a_part_of_a_small_memory() {
    let store = Arc::new(HeldPuts { inner: MemoryStore::new(true), held: Mutex::default() });
    let (body, next) = (Body { epoch: WriterEpoch(1), ..Body::default() }, Arc::default());
    let extents = Extents::new(store.clone(), &body, next, EXTENT, PATIENCE);
    let (account, memory) = (Arc::new(Account::default()), 16 << 10);
    extents.charge_to(&account, memory);
    let writer = extents.clone();
    let writes = std::thread::spawn(move || {
        for block in 0..64 {
            writer.write(block * 256, &[block as u8; 256]).expect("no fault");
        }
    });
    let mut most = 0;
    while !writes.is_finished() || !store.held.lock().is_empty() {
        most = account.bytes().max(most);
        // Answers only when the writer waits, or has ended.
        if writes.is_finished() || account.bytes() >= memory / MEMORY_PART {
            for (request, done) in std::mem::take(&mut *store.held.lock()) {
                store.inner.start(request, done.0);
            }
        }
    }
    writes.join().expect("no panic");
    assert!((memory / MEMORY_PART..=2 * memory / MEMORY_PART).contains(&most), "{most} bytes charged");
    let held = std::thread::spawn(move || extents.upload_all());
    while !held.is_finished() {
        for (request, done) in std::mem::take(&mut *store.held.lock()) {
            store.inner.start(request, done.0);
        }
    }
    held.join().expect("no panic").expect("no fault");
    assert_eq!(account.bytes(), 0);
}
