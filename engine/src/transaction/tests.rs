//! Tests of transactions that need internals; `engine/tests` tests what users can see.
#![cfg(not(any(loom, feature = "shuttle")))]

use super::active::ActiveTransaction;
use super::*;
use crate::base::clock::Clock;
use crate::base::settings::{Acknowledger, Dependency, Preset, Settings};
use crate::base::{Csn, DatabaseId, Epoch, Error, ErrorKind, LogId, PageId, Result};
use crate::buffer::{PageSource, Pool};
use crate::commit::{Commit, Hooks, Start};
use crate::device::Storage;
use crate::device::memory::MemoryStorage;
use crate::device::simulated::{Mishap, MishapKind, OperationKind, SimulatedStorage};
use crate::device::topology::NumaNodes;
use crate::log::{BufferSize, Log, SegmentPool};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bound of the memory for versions.
const VERSION_BYTES: u64 = 1 << 20;

struct NoImages;

impl PageSource for NoImages {
    fn read_page(&self, page: PageId, _: bool, _: &mut [u8]) -> Result<()> {
        Err(Error::corruption(format!("{page:?} has no image")))
    }
}

/// Transactions in memory, and a table.
pub(super) fn system() -> (Arc<TransactionSystem>, Arc<TableState>) {
    system_on(Arc::new(MemoryStorage::new()), &Settings { logs: 1, ..Settings::default() })
}

fn system_on(storage: Arc<dyn Storage>, settings: &Settings) -> (Arc<TransactionSystem>, Arc<TableState>) {
    let clock = Clock::real();
    let pool = Pool::new(4096, 16 << 20, Arc::new(NoImages)).expect("small");
    let limits = Limits::for_page(4096, 1 << 20, Duration::from_millis(50));
    let system = Arc::new(TransactionSystem::new(pool, limits, VERSION_BYTES, clock.clone()));
    // Never full: no checkpoint frees any of it.
    let segments = SegmentPool::new(storage.clone(), 64 << 10, 4 << 30, 2).expect("memory");
    segments.start().expect("a thread");
    segments.await_ready(2).expect("memory");
    let log = |id| {
        let (database, buffer) = (DatabaseId(1), BufferSize::fixed(64 << 10));
        Arc::new(Log::new(LogId(id), database, Epoch(1), buffer, segments.clone(), Arc::default()))
    };
    let (first_csn, hooks) = (Csn(1), Hooks::default());
    let start = Start {
        storage,
        logs: (0..settings.logs as u32).map(log).collect(),
        memory: None,
        segments: segments.clone(),
        first_csn,
        epoch: Epoch(1),
        clock,
        hooks,
    };
    let commit = Commit::start(settings, start).expect("a thread");
    // As on a machine of one node.
    system.connect(commit, settings.logs, &NumaNodes::default());
    let table = system.create_table("t").expect("new");
    (system, table)
}

fn begin(system: &Arc<TransactionSystem>) -> Box<ActiveTransaction> {
    ActiveTransaction::begin(system, TransactionOptions::new()).expect("free")
}

fn put(system: &Arc<TransactionSystem>, table: &Arc<TableState>, key: &[u8], value: &[u8]) -> Result<()> {
    let mut tx = begin(system);
    tx.insert(table, key, value)?;
    tx.commit_async().map(drop)
}

fn get(system: &Arc<TransactionSystem>, table: &Arc<TableState>, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    begin(system).get(table, key, &mut value).expect("readable").then_some(value)
}

/// A page that a transaction had changed was evicted and could not be read when the transaction
/// aborted. Its entries kept the stamp of an ended transaction, and readers retried for ever.
#[test]
fn an_orphaned_change_is_invisible_and_blocks_no_writer() {
    let (system, table) = system();
    put(&system, &table, b"changed", b"old").expect("free row");
    put(&system, &table, b"deleted", b"old").expect("free row");
    put(&system, &table, b"locked", b"old").expect("free row");
    let mut tx = begin(&system);
    tx.insert(&table, b"changed", b"new").expect("free row");
    tx.savepoint();
    tx.insert(&table, b"changed", b"newer").expect("own row");
    assert!(tx.remove(&table, b"deleted").expect("free row"));
    tx.insert(&table, b"inserted", b"new").expect("free row");
    assert!(tx.get_for_update(&table, b"locked", &mut Vec::new()).expect("free row"));
    for change in &tx.writes.changes {
        system.versions.slots.set_stamp(change.version, descriptor::Stamp::ORPHANED);
    }
    // As if no page could be read: no change is left to be taken back.
    tx.writes.changes.clear();
    drop(tx);
    let old = Some(b"old".to_vec());
    for _ in 0..2 {
        assert_eq!(get(&system, &table, b"changed"), old);
        assert_eq!(get(&system, &table, b"deleted"), old);
        assert_eq!(get(&system, &table, b"locked"), old);
        assert_eq!(get(&system, &table, b"inserted"), None);
    }
    for key in [b"changed".as_slice(), b"deleted", b"locked", b"inserted"] {
        put(&system, &table, key, b"again").expect("the row is free");
        assert_eq!(get(&system, &table, key), Some(b"again".to_vec()));
    }
    system.commit().waits().flush_all().expect("memory");
    // The next writers gave the orphaned versions back.
    must_give_all_back(&system);
}

#[test]
fn readable_changes_are_taken_back_when_others_are_orphaned() {
    let (system, table) = system();
    put(&system, &table, b"a", b"old").expect("free row");
    let mut tx = begin(&system);
    tx.insert(&table, b"a", b"new").expect("free row");
    tx.insert(&table, b"b", b"new").expect("free row");
    tx.orphan_changes();
    tx.writes.changes.clear();
    drop(tx);
    assert_eq!(get(&system, &table, b"a"), Some(b"old".to_vec()));
    assert_eq!(get(&system, &table, b"b"), None);
    // The page itself holds the old value.
    let mut value = Vec::new();
    table.tree.lookup(b"a", &mut value).expect("readable").expect("there");
    assert_eq!(value, b"old");
    assert!(table.tree.lookup(b"b", &mut value).expect("readable").is_none());
}

#[test]
fn after_a_failed_rollback_a_transaction_can_only_abort() {
    let (system, table) = system();
    let mut tx = begin(&system);
    tx.insert(&table, b"a", b"new").expect("free row");
    tx.broken = Some(Error::new(ErrorKind::Io, "a page cannot be read"));
    assert_eq!(tx.commit_async().expect_err("half of it may be gone").kind(), ErrorKind::Io);
    assert_eq!(get(&system, &table, b"a"), None);
    put(&system, &table, b"a", b"other").expect("the row is free");
}

/// A rollback failed half-way. The next write of an own row looked for a change to overwrite behind
/// a savepoint that had more changes before it than were left. The engine panicked, and
/// acknowledged no commit any more.
#[test]
fn after_a_failed_rollback_writes_are_refused_and_others_run() {
    let (system, table) = system();
    let mut tx = begin(&system);
    tx.insert(&table, b"a", b"1").expect("free row");
    let first = tx.savepoint();
    tx.insert(&table, b"b", b"1").expect("free row");
    tx.insert(&table, b"c", b"1").expect("free row");
    let second = tx.savepoint();
    tx.insert(&table, b"d", b"1").expect("free row");
    // The state after a rollback to the first that cannot read the page of the second row.
    tx.take_back(2, 0).expect("readable");
    tx.broken = Some(Error::new(ErrorKind::Io, "a page cannot be read"));
    let answers = [
        tx.guarded_mut(|tx| tx.insert(&table, b"a", b"2")),
        tx.guarded_mut(|tx| tx.insert(&table, b"a", &[2; 10_000])),
        tx.guarded_mut(|tx| tx.insert_from(&table, b"a", &mut &[2; 10_000][..]).map(drop)),
        tx.guarded_mut(|tx| tx.remove(&table, b"a").map(drop)),
        tx.guarded_mut(|tx| tx.get_for_update(&table, b"a", &mut Vec::new()).map(drop)),
        tx.guarded_mut(|tx| tx.rollback_to(second)),
        tx.guarded_mut(|tx| tx.rollback_to(first)),
    ];
    for answer in answers {
        assert_eq!(answer.expect_err("it can only abort").kind(), ErrorKind::Io);
    }
    drop(tx);
    for key in [b"a", b"b", b"c", b"d"] {
        assert_eq!(get(&system, &table, key), None);
        put(&system, &table, key, b"other").expect("the row is free");
    }
    system.commit().waits().flush_all().expect("no panic");
}

/// A call panicked after it had changed the page and before it had noted the change. Ending the
/// transaction after catching the panic freed its descriptor, and readers of the row got an error
/// instead of the value before.
#[test]
fn after_a_panic_in_a_call_others_see_the_value_before() {
    for commits in [true, false] {
        let (system, table) = system();
        put(&system, &table, b"a", b"old").expect("free row");
        let mut tx = begin(&system);
        let half_done = std::panic::AssertUnwindSafe(|| {
            tx.guarded_mut(|tx| {
                tx.insert(&table, b"a", b"new").expect("free row");
                tx.writes.changes.pop();
                panic!("in the middle of a change");
            });
        });
        std::panic::catch_unwind(half_done).expect_err("it panics");
        // While it is still there.
        system.commit().failure().check_whole().expect_err("nothing is acknowledged, and no checkpoint made");
        if commits {
            assert_eq!(tx.commit_async().expect_err("the outcome is unknown").kind(), ErrorKind::Poisoned);
        } else {
            drop(tx);
        }
        assert_eq!(get(&system, &table, b"a"), Some(b"old".to_vec()));
        system.commit().failure().check_whole().expect_err("nothing is acknowledged after that");
    }
}

/// A checkpoint holds every version that ends while it is made. A writer that found no memory for
/// another version got an error, even if the checkpoint was about to end.
#[test]
fn a_writer_without_memory_waits_for_a_checkpoint() {
    let (system, table) = system();
    put(&system, &table, b"k", &[0; 500]).expect("free row");
    let mut view = CheckpointView::begin(&system).expect("free");
    view.choose();
    let mut n = 0u32;
    std::thread::scope(|scope| {
        let versions = &system.versions;
        let held = scope.spawn(move || {
            let begun = std::time::Instant::now();
            // Not nearly all: the writer gives back what it can, and this thread may not be running
            // when there is most.
            while versions.bytes().0 < VERSION_BYTES / 2 {
                assert!(begun.elapsed().as_secs() < 60, "no writer runs");
                std::thread::yield_now();
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
            drop(view);
        });
        while !held.is_finished() {
            n += 1;
            put(&system, &table, b"k", &n.to_le_bytes().repeat(125)).expect("it waits");
            // No other thread holds versions that are not durable.
            system.commit().waits().flush_all().expect("memory");
        }
    });
    // A snapshot may live for ever, so no writer waits for one. It keeps a version of every row.
    let snapshot = ReadSnapshot::begin(&system).expect("free");
    let waits = || system.counters.version_waits.get();
    let before = waits();
    let (error, took) = loop {
        n += 1;
        let begun = std::time::Instant::now();
        if let Err(error) = put(&system, &table, &n.to_le_bytes(), b"") {
            break (error, begun.elapsed());
        }
    };
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("version_bytes"), "{error}");
    // A wait for a checkpoint would take a minute, and each transaction that begins beside one
    // would wait, too: thousands.
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert!(waits() - before < 500, "{} waited", waits() - before);
    drop(snapshot);
}

/// A thread remembers its last leaf by page id and version, also from one transaction to the next.
/// These are the same in another database, or in a new table with the root of a dropped one: a row
/// went into the wrong table.
#[test]
fn the_leaf_hint_is_not_used_in_another_database() {
    let (one, table) = system();
    let (other, also_t) = system();
    assert_eq!(table.tree.root(), also_t.tree.root(), "made in the same way");
    let others: Vec<_> = (0..8).map(|n| other.create_table(&format!("t{n}")).expect("new")).collect();
    // So many rows that the root is no leaf.
    (0..20u8).for_each(|n| put(&one, &table, &[n], &[n; 500]).expect("free row"));
    for n in 0..200u8 {
        put(&one, &table, &[255], &[n]).expect("free row");
        put(&other, &also_t, &[255], &[n]).expect("free row");
        assert_eq!(get(&other, &also_t, &[255]), Some(vec![n]));
        for another in &others {
            assert_eq!(get(&other, another, &[255]), None, "in {}, of the other database", another.name);
            put(&other, another, &[1], &[n]).expect("free row");
            put(&other, another, &[2], &[n]).expect("free row");
        }
    }
}

#[test]
fn the_leaf_hint_is_not_used_after_a_drop_of_the_table() {
    let (system, table) = system();
    let root = table.tree.root();
    (0..20u8).for_each(|n| put(&system, &table, &[n], &[n; 500]).expect("free row"));
    drop(table);
    system.drop_table("t").expect("it has no users");
    // The checkpoint that frees the pages begins with the root.
    let pool = &system.pool;
    pool.free(pool.exclusive(root).expect("in memory"));
    let created = (0..100).map(|n| system.create_table(&format!("t{n}")).expect("new"));
    let table =
        created.into_iter().find(|table| table.tree.root() == root).expect("its number is used again");
    put(&system, &table, &[255], b"new").expect("free row");
    assert_eq!(get(&system, &table, &[255]), Some(b"new".to_vec()));
}

/// A drop that found a user had already marked the table for a moment. Other users in that moment
/// got the error that the table was dropped.
#[test]
fn a_refused_drop_is_invisible() {
    let (system, table) = system();
    let mut user = begin(&system);
    user.insert(&table, b"a", b"1").expect("free row");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                let refused = system.drop_table("t").expect_err("it is used");
                assert_eq!(refused.kind(), ErrorKind::Busy);
            }
        });
        let mut all_came = true;
        for _ in 0..300_000 {
            all_came &= table.hold().is_some();
            all_came &= table.begin_use().inspect(|()| table.end_use()).is_ok();
        }
        done.store(true, Ordering::SeqCst);
        assert!(all_came, "a user got the error that it was dropped");
    });
    drop(user);
    system.drop_table("t").expect("it has no users");
    assert!(table.hold().is_none());
    assert_eq!(table.begin_use().expect_err("dropped").kind(), ErrorKind::NotFound);
}

/// As above, with a drop that finds no user and no room in the log.
#[test]
fn users_wait_while_a_drop_is_undecided() {
    let (system, table) = system();
    let dropping = system.catalog.lock().prepare_drop("t").expect("it has no users");
    assert!(!table.is_dropped());
    std::thread::scope(|scope| {
        let uses = scope.spawn(|| table.begin_use().map(|()| table.end_use()));
        let holds = scope.spawn(|| table.hold().map(drop));
        std::thread::sleep(Duration::from_millis(10));
        assert!(!uses.is_finished() && !holds.is_finished(), "it is not decided");
        drop(dropping);
        uses.join().expect("no panic").expect("it was not dropped");
        holds.join().expect("no panic").expect("it was not dropped");
    });
    system.drop_table("t").expect("it has no users");
}

/// Runs `f` in a thread that writes to another log than this one.
fn in_another_log<T: Send>(system: &TransactionSystem, than: LogId, f: impl FnOnce() -> T + Send) -> T {
    let run = move || match system.log_of_thread() == than {
        true => in_another_log(system, than, f),
        false => f(),
    };
    std::thread::scope(|scope| scope.spawn(run).join().expect("no panic"))
}

/// A snapshot that sees its own thread's commit waits until the commit is durable. The commit may
/// not be acknowledged by then: a snapshot that another thread began afterwards did not contain
/// what the first had returned.
#[test]
fn a_snapshot_sees_what_an_earlier_snapshot_returned() {
    let disk = SimulatedStorage::new(1);
    let settings =
        Settings { preset: Preset::Autonomous, logs: 2, ..Settings::default() }.with_protocol(|axes| {
            axes.dependency = Some(Dependency::Exact);
            axes.set_acknowledger(Acknowledger::Background);
        });
    let (system, table) = system_on(Arc::new(disk.clone()), &settings);
    // The thread that acknowledges asynchronous commits hangs.
    disk.inject_mishap(Mishap { operation: OperationKind::DurableWrite, after: 0, kind: MishapKind::Stuck });
    put(&system, &table, b"stuck", b"x").expect("free row");
    let begun = std::time::Instant::now();
    while disk.fault_counts().of("stuck") == 0 {
        assert!(begun.elapsed().as_secs() < 60, "it is never written");
        std::thread::sleep(Duration::from_millis(1));
    }
    let read = || {
        let snapshot = ReadSnapshot::begin(&system).expect("free");
        snapshot.get(&table, b"key", &mut Vec::new()).expect("committed")
    };
    let own = in_another_log(&system, system.log_of_thread(), || {
        put(&system, &table, b"key", b"x").expect("free row");
        read()
    });
    let later = read();
    disk.heal();
    assert_eq!((own, later), (true, true), "time went backwards");
}

/// Waits until no version is left; garbage of other tests may be freed first.
#[track_caller]
fn must_give_all_back(system: &TransactionSystem) {
    let is_left = || system.versions.bytes().0 > 0;
    (0..10_000).take_while(|_| is_left()).for_each(|_| {
        system.versions.reclaim();
        std::thread::sleep(Duration::from_millis(1));
    });
    assert!(!is_left(), "{:?}", system.versions.bytes());
}

const KEY_BYTES: usize = 490;

fn long_key(n: u32) -> Vec<u8> {
    [&[7; KEY_BYTES - 4][..], &n.to_be_bytes()].concat()
}

/// Creates rows whose keys take twice the memory for versions. Returns their number.
fn more_rows_than_can_be_deleted(system: &Arc<TransactionSystem>, table: &Arc<TableState>) -> u32 {
    let rows = 2 * (VERSION_BYTES as usize / KEY_BYTES) as u32;
    for n in 0..rows {
        put(system, table, &long_key(n), b"").expect("no snapshot keeps versions");
        system.commit().waits().flush_all().expect("memory");
    }
    rows
}

/// The copy of a deleted key that waits to be purged was not counted. Beside a snapshot, deletions
/// of long keys took many times the memory for versions.
#[test]
fn deleted_keys_count_as_memory_for_versions_until_purged() {
    let (system, table) = system();
    let (key, rows) = (long_key, more_rows_than_can_be_deleted(&system, &table));
    let snapshot = ReadSnapshot::begin(&system).expect("free");
    let delete = |n| {
        let mut tx = begin(&system);
        tx.remove(&table, &key(n))?;
        tx.commit_async().map(drop)
    };
    let refused = (0..rows).find_map(|n| delete(n).err().map(|error| (n, error)));
    let (deleted, error) = refused.expect("more keys than there is memory for");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert!(deleted > 500, "{deleted}");
    drop(snapshot);
    must_give_all_back(&system);
    assert!(table.tree.lookup(&key(0), &mut Vec::new()).expect("readable").is_none(), "it is purged");
}

/// Deletions counted only from the commit on, where nothing can be refused. After a large
/// transaction all others were refused, or waited.
#[test]
fn deletions_count_while_the_transaction_is_in_progress() {
    let (system, table) = system();
    let (key, rows) = (long_key, more_rows_than_can_be_deleted(&system, &table));
    let mut tx = begin(&system);
    let savepoint = tx.savepoint();
    assert!(tx.remove(&table, &key(0)).expect("memory"));
    let bytes = system.versions.bytes().0;
    for _ in 0..100 {
        tx.insert(&table, &key(0), b"").expect("own row");
        assert!(system.versions.bytes().0 + KEY_BYTES as u64 <= bytes, "it is no deletion any more");
        assert!(tx.remove(&table, &key(0)).expect("own row"));
        assert_eq!(system.versions.bytes().0, bytes, "one row is deleted");
    }
    let refused = (1..rows).find_map(|n| tx.remove(&table, &key(n)).err());
    let error = refused.expect("more keys than there is memory for");
    assert!(error.to_string().contains("version_bytes"), "{error}");
    tx.rollback_to(savepoint).expect("memory");
    drop(tx);
    must_give_all_back(&system);
}

/// The first call of a snapshot on a table waited for the table's creation. After this wait had
/// failed, the second call answered that the row did not exist.
#[test]
fn a_snapshot_gives_no_answer_on_a_table_that_may_be_lost() {
    let disk = SimulatedStorage::new(1);
    let (system, _) = system_on(Arc::new(disk.clone()), &Settings { logs: 1, ..Settings::default() });
    disk.inject_mishap(Mishap { operation: OperationKind::DurableWrite, after: 0, kind: MishapKind::Stuck });
    std::thread::scope(|scope| {
        scope.spawn(|| drop(system.create_table("u")));
        while disk.fault_counts().of("stuck") == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let table = system.catalog.table("u").expect("it is published");
        // The own thread sees the table.
        put(&system, &table, b"a", b"1").expect("free row");
        let snapshot = ReadSnapshot::begin(&system).expect("free");
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            disk.stop();
        });
        for _ in 0..2 {
            let error =
                snapshot.get(&table, b"other", &mut Vec::new()).expect_err("it cannot become durable");
            assert_eq!(error.kind(), ErrorKind::Poisoned);
        }
    });
}

/// Clocks of pages were not charged.
#[test]
fn the_clocks_of_pages_are_charged() {
    let settings = Settings { logs: 2, ..Settings::default() }
        .with_protocol(|axes| axes.dependency = Some(Dependency::Gsn));
    let (system, table) = system_on(Arc::new(MemoryStorage::new()), &settings);
    let account = system.pool.account();
    let before = account.bytes();
    put(&system, &table, b"a", b"1").expect("free row");
    assert!(account.bytes() >= before + (256 << 10) + 8 * 4096, "{} after {before}", account.bytes());
}
