//! Writers that never end: what they leave behind does not grow with their number.

use super::*;
use std::collections::BTreeSet;

/// Opens, commits a row, and ends without a close.
fn write(store: &MemoryStore, fences_max: usize, number: u32) {
    let options = Options { patience: Duration::from_secs(2), fences_max, ..Options::default() };
    let storage = Arc::new(ObjectStorage::new(Arc::new(store.clone()), store.facts(), options));
    let settings = Settings::default().with(|s| s.memory_bytes = 2 << 20);
    let db = Database::builder().settings(settings).storage(storage).open("objects").expect("opens");
    let table = db.table_or_create("t").expect("is there or new");
    db.transact(|tx| tx.insert(&table, number.to_be_bytes(), "x")).expect("commits");
    let rows = db.begin_read().expect("free").range(&table, ..).count();
    assert_eq!(rows, number as usize + 1, "every row of the writers before");
    std::mem::forget((db, table));
}

fn fences(store: &MemoryStore, lens: &[u64]) -> BTreeSet<String> {
    let list = ObjectStorage::new(Arc::new(store.clone()), store.facts(), Options::default());
    let objects = list.list_objects().expect("a database").objects;
    let fences = objects.into_iter().filter(|object| lens.contains(&object.bytes));
    fences.map(|object| object.name).collect()
}

#[test]
fn fences_do_not_grow_with_writers_that_never_close() {
    let store = MemoryStore::new(false);
    (0..6).for_each(|number| write(&store, 6, number));
    let before = fences(&store, &[48]);
    assert!(before.len() >= 6, "{before:?}");
    (6..16).for_each(|number| write(&store, 6, number));
    // Those of the last writer that left some may have come in between.
    let after = fences(&store, &[48]);
    assert!(after.len() <= before.len() + 4 && before.is_subset(&after), "{before:?}, {after:?}");
    // The others go with their segments.
    let db = open(&store).expect("opens");
    db.checkpoint().expect("no fault");
    db.close().expect("closes");
    assert_eq!(fences(&store, &[56]), BTreeSet::new());
    assert!(store.names().len() < after.len() + 10, "{:?}", store.names());
}

#[test]
fn removed_fences_are_those_that_no_manifest_names() {
    let store = MemoryStore::new(false);
    (0..4).for_each(|number| write(&store, 100, number));
    let storage = ObjectStorage::new(Arc::new(store.clone()), store.facts(), Options::default());
    let before = fences(&store, &[48]);
    let removed = storage.remove_fences().expect("no fault");
    let after = fences(&store, &[48]);
    assert_eq!(before.len() as u64, after.len() as u64 + removed);
    assert!(removed >= 3, "{before:?}, {after:?}");
    write(&store, 100, 4);
    let db = open(&store).expect("opens");
    assert!(db.verify(None).expect("runs").problems.is_empty());
}

/// A writer that looks at the manifest needs no fence: its late creation succeeds, and it reports
/// nothing.
#[test]
fn late_block_without_a_fence_is_not_reported() {
    let store = MemoryStore::new(false);
    let options = Options { fences_max: 0, ..Options::default() };
    let connect = || ObjectStorage::new(Arc::new(store.clone()), store.facts(), options);
    let zombie = connect();
    let lock = zombie.lock(true).expect("free");
    let file = zombie.segments().create(SegmentId(1)).expect("new");
    file.zero_extend(64 << 10, &mut |_| ()).expect("no fault");
    zombie.flush_names(Names::Segments).expect("no fault");
    file.write_durable_at(0, &[1; 4096]).expect("still the writer");
    let successor = connect();
    let _theirs = successor.lock(true).expect("claims it");
    let fence = fences(&store, &[56]).pop_first().expect("a fence that passes");
    successor.segments().remove(SegmentId(1)).expect("no fault");
    successor.flush_names(Names::Segments).expect("no fault");
    let begun = std::time::Instant::now();
    while store.names().contains(&fence) {
        assert!(begun.elapsed() < Duration::from_secs(20), "the fence goes with its segment");
        std::thread::sleep(Duration::from_millis(1));
    }
    let error = file.write_durable_at(4096, &[2; 4096]).expect_err("it has ended");
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    assert!(store.names().contains(&fence), "the block took the place of the fence");
    drop((file, lock));
}
