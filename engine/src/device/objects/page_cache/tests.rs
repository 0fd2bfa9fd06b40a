//! Tests of the cache of pages.

use super::super::tests::memory_store::MemoryStore;
use super::super::{ObjectStorage, Options};
use super::*;
use crate::base::settings::Settings;
use crate::{Database, ErrorKind};

const ROWS: u32 = 2000;
/// Of the values, which do not compress.
const ROWS_BYTES: u64 = ROWS as u64 * 1000;
const MOST: u64 = 64 << 20;

fn open(store: &MemoryStore, cache: Option<&Path>, bytes_max: u64) -> Database {
    let storage = ObjectStorage::new(Arc::new(store.clone()), store.facts(), Options::default());
    let storage = match cache {
        Some(directory) => storage.with_cache(PageCache::open(directory, bytes_max).expect("a directory")),
        None => storage,
    };
    let settings = Settings::default().with(|settings| settings.memory_bytes = 16 << 20);
    Database::builder().settings(settings).storage(Arc::new(storage)).open("objects").expect("opens")
}

fn value(key: u32) -> Vec<u8> {
    (0..1000_u32).map(|at| (key.wrapping_mul(2_654_435_761).wrapping_add(at * at) >> 7) as u8).collect()
}

fn filled() -> MemoryStore {
    let store = MemoryStore::new(true);
    let db = open(&store, None, MOST);
    let table = db.create_table("t").expect("new");
    for first in (0..ROWS).step_by(100) {
        let insert = |key: u32, tx: &mut crate::Transaction| tx.insert(&table, key.to_be_bytes(), value(key));
        db.transact(|tx| (first..first + 100).try_for_each(|key| insert(key, tx))).expect("commits");
    }
    drop(table);
    db.close().expect("closes");
    store
}

/// Opens the database, reads all rows, and returns the bytes that the store sent. The number of its
/// answers depends on which reads come together.
fn bytes_to_read_all(store: &MemoryStore, cache: Option<&Path>, bytes_max: u64) -> u64 {
    let db = open(store, cache, bytes_max);
    let table = db.table("t").expect("is there");
    let snapshot = db.begin_read().expect("free");
    for key in 0..ROWS {
        let found = snapshot.get(&table, key.to_be_bytes()).expect("readable");
        assert!(found.as_deref() == Some(&value(key)[..]), "row {key}");
    }
    let bytes = db.statistics().object_requests.expect("a store of objects").received_bytes;
    drop((snapshot, table));
    db.close().expect("closes");
    bytes
}

#[test]
fn a_second_open_reads_from_the_cache() {
    let (store, directory) = (filled(), tempfile::tempdir().expect("a directory"));
    let without = bytes_to_read_all(&store, None, MOST);
    let first = bytes_to_read_all(&store, Some(directory.path()), MOST);
    let second = bytes_to_read_all(&store, Some(directory.path()), MOST);
    assert!(first.min(without) > ROWS_BYTES, "{first} with an empty cache, {without} without one");
    assert!(second * 5 < ROWS_BYTES, "{second} bytes after {first}");
}

#[test]
fn a_damaged_or_lost_cache_is_harmless() {
    let (store, directory) = (filled(), tempfile::tempdir().expect("a directory"));
    let _ = bytes_to_read_all(&store, Some(directory.path()), MOST);
    let files = || {
        let all = fs::read_dir(directory.path()).expect("there").map(|entry| entry.expect("there").path());
        all.filter(|path| path.display().to_string().contains(FILE_PREFIX)).collect::<Vec<_>>()
    };
    assert!(!files().is_empty());
    // Some bytes of each piece, then all bytes with the headers.
    for step in [1000, 1] {
        for path in files() {
            let mut bytes = fs::read(&path).expect("readable");
            bytes.iter_mut().skip(HEADER_BYTES).step_by(step).for_each(|byte| *byte ^= 0x55);
            if step == 1 {
                bytes[..HEADER_BYTES].fill(7);
            }
            fs::write(&path, &bytes[..bytes.len() - 5]).expect("writable");
        }
        let again = bytes_to_read_all(&store, Some(directory.path()), MOST);
        assert!(again > ROWS_BYTES, "{again} bytes with damage at each {step}th byte");
    }
    fs::remove_dir_all(directory.path()).expect("removable");
    let lost = bytes_to_read_all(&store, Some(directory.path()), MOST);
    assert!(lost > ROWS_BYTES, "{lost} bytes without files");
}

#[test]
fn a_cache_keeps_its_limit_and_forgets_the_oldest() {
    let (store, directory) = (filled(), tempfile::tempdir().expect("a directory"));
    let size = || -> u64 {
        let all = fs::read_dir(directory.path()).expect("there").map(|entry| entry.expect("there"));
        all.map(|entry| entry.metadata().expect("there").len()).sum()
    };
    bytes_to_read_all(&store, Some(directory.path()), MOST);
    assert!(size() > 1 << 20, "{} bytes", size());
    bytes_to_read_all(&store, Some(directory.path()), 1 << 20);
    assert!(size() <= 1 << 20, "{} bytes", size());
    assert!(size() > 512 << 10, "{} bytes", size());
}

#[test]
fn pieces_of_several_reads_make_one() {
    let (inner, directory) = (MemoryStore::new(true), tempfile::tempdir().expect("a directory"));
    let content: Vec<u8> = (0..100_000_u32).map(|at| (at % 253) as u8).collect();
    let (name, body) = ("pages/000001-00000002", Bytes::from(content.clone()));
    let condition = super::super::Condition::Always;
    let put = Request::Put { name: name.into(), body, condition };
    super::super::store::perform(&inner, put).expect("no fault");
    let get = |store: &dyn ObjectStore, range: Range<u64>| {
        let get = Request::Get { name: name.into(), range: Some(range) };
        super::super::store::perform(store, get).map(|reply| reply.body)
    };
    {
        let cache = PageCache::open(directory.path(), MOST).expect("opens");
        let error = PageCache::open(directory.path(), MOST).expect_err("is open");
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        let store = cache.before(Arc::new(inner.clone()), 7);
        for range in [10..500, 500..70_000, 60_000..90_000, 92_000..94_000, 93_000..96_000] {
            let (from, to) = (range.start as usize, range.end as usize);
            assert_eq!(get(&*store, range).expect("there"), content[from..to]);
        }
    }
    inner.remove(name);
    let cache = PageCache::open(directory.path(), MOST).expect("opens");
    let store = cache.before(Arc::new(inner.clone()), 7);
    for range in [10..90_000, 499..501, 32_768..32_769, 69_000..80_000, 92_000..96_000, 93_500..94_500] {
        let (from, to) = (range.start as usize, range.end as usize);
        assert_eq!(get(&*store, range).expect("is in the cache"), content[from..to]);
    }
    for range in [9..20, 89_999..90_001] {
        get(&*store, range).expect_err("not all of it is in the cache");
    }
    let other = cache.before(Arc::new(inner), 8);
    get(&*other, 10..20).expect_err("a page of another database");
}

#[test]
fn a_wrong_setting_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let error = Database::builder().object_cache("/cache").open(directory.path()).expect_err("no URL");
    assert_eq!(error.location(), Some(&Location::Setting("object_cache")), "{error}");
    let file = directory.path().join("file");
    fs::write(&file, "x").expect("writable");
    let url = format!("file://{}/db", directory.path().display());
    let error = Database::builder().object_cache(&file).open(&url).expect_err("no directory");
    assert_eq!(error.location(), Some(&Location::Setting("object_cache")), "{error}");
    let small = Database::builder().object_cache(directory.path()).object_cache_bytes(5).open(&url);
    let error = small.expect_err("too small");
    assert_eq!(error.location(), Some(&Location::Setting("object_cache_bytes")), "{error}");
}
