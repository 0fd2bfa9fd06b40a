//! Tests of transactions that need to reach inside; what users can see is tested in `engine/tests`.
#![cfg(not(any(loom, feature = "shuttle")))]

use super::active::ActiveTransaction;
use super::descriptor::RowWait;
use super::*;
use crate::base::clock::Clock;
use crate::base::settings::{Acknowledger, Dependency, Durability, Preset, Settings};
use crate::base::{Csn, DatabaseId, Epoch, Error, ErrorKind, LogId, PageId, Result};
use crate::buffer::{PageSource, Pool};
use crate::commit::{Commit, Hooks, Start};
use crate::device::Storage;
use crate::device::memory::MemoryStorage;
use crate::device::simulated::{Mishap, MishapKind, OperationKind, SimulatedStorage};
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
    system.connect(Commit::start(settings, start).expect("a thread"), settings.logs);
    let table = system.create_table("t").expect("new");
    (system, table)
}

fn begin(system: &Arc<TransactionSystem>) -> ActiveTransaction {
    ActiveTransaction::begin(system, Isolation::Snapshot, Durability::Durable).expect("free")
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

/// The story: a page that a transaction had changed was evicted and could not be read when the transaction aborted. Its
/// entries kept the stamp of a transaction that had ended, and whoever read them looked again for ever.
#[test]
fn a_change_that_cannot_be_taken_back_is_seen_by_nobody_and_in_nobodys_way() {
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
    // As if every page had failed: nothing is left to be taken back.
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
    system.commit().flush_all().expect("memory");
    // What was left behind was given back by the next writers.
    must_give_all_back(&system);
}

#[test]
fn what_can_be_taken_back_is_when_the_rest_is_left_behind() {
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
    // Not only seen as before: the page holds the old value.
    let mut value = Vec::new();
    table.tree.lookup(b"a", &mut value).expect("readable").expect("there");
    assert_eq!(value, b"old");
    assert!(table.tree.lookup(b"b", &mut value).expect("readable").is_none());
}

#[test]
fn after_a_rollback_that_failed_a_transaction_can_only_abort() {
    let (system, table) = system();
    let mut tx = begin(&system);
    tx.insert(&table, b"a", b"new").expect("free row");
    tx.broken = Some(Error::new(ErrorKind::Io, "a page cannot be read"));
    assert_eq!(tx.commit_async().expect_err("half of it may be gone").kind(), ErrorKind::Io);
    assert_eq!(get(&system, &table, b"a"), None);
    put(&system, &table, b"a", b"other").expect("the row is free");
}

/// The story: a rollback failed half-way, and the next write of an own row looked for a change to overwrite behind a savepoint that had more
/// changes before it than were left: a panic inside the engine, so that no commit of anybody was acknowledged any more.
#[test]
fn after_a_rollback_that_failed_writes_are_refused_and_others_go_on() {
    let (system, table) = system();
    let mut tx = begin(&system);
    tx.insert(&table, b"a", b"1").expect("free row");
    let first = tx.savepoint();
    tx.insert(&table, b"b", b"1").expect("free row");
    tx.insert(&table, b"c", b"1").expect("free row");
    let second = tx.savepoint();
    tx.insert(&table, b"d", b"1").expect("free row");
    // What a rollback to the first leaves that cannot read the page of the second row.
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
    system.commit().flush_all().expect("nobody panicked");
}

/// The story: a call panicked when it had changed the page and not noted that yet. Who caught the panic and ended the transaction freed its
/// descriptor, and whoever met the row got an error instead of what was there before.
#[test]
fn after_a_panic_inside_a_call_others_see_what_was_before_however_the_transaction_ends() {
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
        system.commit().check_whole().expect_err("nothing is acknowledged, and no checkpoint made");
        if commits {
            assert_eq!(tx.commit_async().expect_err("nobody knows what").kind(), ErrorKind::Poisoned);
        } else {
            drop(tx);
        }
        assert_eq!(get(&system, &table, b"a"), Some(b"old".to_vec()));
        system.commit().check_whole().expect_err("nothing is acknowledged after that");
    }
}

/// A checkpoint holds every version that ends while it is made. A writer that found no memory for another got an error, however soon
/// the checkpoint would have ended.
#[test]
fn a_writer_without_memory_for_versions_waits_for_the_checkpoint_that_holds_them() {
    let (system, table) = system();
    put(&system, &table, b"k", &[0; 500]).expect("free row");
    let mut view = CheckpointView::begin(&system).expect("free");
    view.choose();
    let mut n = 0u32;
    std::thread::scope(|scope| {
        let versions = &system.versions;
        let held = scope.spawn(move || {
            let begun = std::time::Instant::now();
            // Not nearly all: the writer gives back what it can, and this thread may not be running when there is most.
            while versions.bytes().0 < VERSION_BYTES / 2 {
                assert!(begun.elapsed().as_secs() < 60, "nobody writes");
                std::thread::yield_now();
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
            drop(view);
        });
        while !held.is_finished() {
            n += 1;
            put(&system, &table, b"k", &n.to_le_bytes().repeat(125)).expect("it waits");
            // What is not durable is held by nobody else.
            system.commit().flush_all().expect("memory");
        }
    });
    // A snapshot may live for ever: nobody waits for one. It keeps a version of every row.
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
    // For a checkpoint it would be a minute, and each that begins beside one waits, too: thousands.
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert!(waits() - before < 500, "{} waited", waits() - before);
    drop(snapshot);
}

/// A thread remembers where it wrote last, also from one transaction to the next, by pages' numbers and versions. Those are the same in
/// another database, or in one that was created where a table was dropped: a row went into the wrong table.
#[test]
fn where_a_thread_wrote_last_is_forgotten_in_another_database() {
    let (one, table) = system();
    let (other, also_t) = system();
    assert_eq!(table.tree.root(), also_t.tree.root(), "made in the same way");
    let others: Vec<_> = (0..8).map(|n| other.create_table(&format!("t{n}")).expect("new")).collect();
    // So much that its root is no leaf.
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
fn where_a_thread_wrote_last_is_forgotten_when_the_table_is_dropped() {
    let (system, table) = system();
    let root = table.tree.root();
    (0..20u8).for_each(|n| put(&system, &table, &[n], &[n; 500]).expect("free row"));
    drop(table);
    system.drop_table("t").expect("nobody uses it");
    // The checkpoint that frees the pages begins with the root.
    let pool = &system.pool;
    pool.free(pool.exclusive(root).expect("in memory"));
    let created = (0..100).map(|n| system.create_table(&format!("t{n}")).expect("new"));
    let table =
        created.into_iter().find(|table| table.tree.root() == root).expect("its number is used again");
    put(&system, &table, &[255], b"new").expect("free row");
    assert_eq!(get(&system, &table, &[255]), Some(b"new".to_vec()));
}

/// A drop that found a user had marked the table already, for a moment: others who came in that moment were told that it was gone.
#[test]
fn a_drop_that_is_refused_is_seen_by_nobody() {
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
        assert!(all_came, "somebody was told that it was dropped");
    });
    drop(user);
    system.drop_table("t").expect("nobody uses it");
    assert!(table.hold().is_none());
    assert_eq!(table.begin_use().expect_err("dropped").kind(), ErrorKind::NotFound);
}

/// The same with a drop that nobody is in the way of, and that the log has no room for.
#[test]
fn whoever_comes_while_a_drop_is_undecided_waits() {
    let (system, table) = system();
    let dropping = system.catalog.lock().prepare_drop("t").expect("nobody uses it");
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
    system.drop_table("t").expect("nobody uses it");
}

/// A call that panicked leaves its transaction in progress for good.
#[test]
fn who_waits_for_a_row_looks_whether_the_database_check_whole() {
    let all = descriptor::Descriptors::default();
    let (a, b) = (all.take().expect("free"), all.take().expect("free"));
    let asked = std::cell::Cell::new(0);
    let check_whole = || {
        asked.set(asked.get() + 1);
        if asked.get() < 3 { Ok(()) } else { Err(Error::new(ErrorKind::Poisoned, "a panic")) }
    };
    std::thread::scope(|scope| scope.spawn(|| all.set_thread(b)).join().expect("no panic"));
    let error = all
        .wait_for(a, all.holder(b), &RowWait::begin(Duration::from_secs(3600)), &check_whole)
        .expect_err("it has asked");
    assert_eq!(error.kind(), ErrorKind::Poisoned);
}

/// It belonged to the thread that began it: that thread got a conflict at once where it met the rows, though another went on with it.
#[test]
fn a_transaction_belongs_to_the_thread_that_works_for_it() {
    let all = descriptor::Descriptors::default();
    let (a, b) = (all.take().expect("free"), all.take().expect("free"));
    std::thread::scope(|scope| {
        scope.spawn(|| all.set_thread(b)).join().expect("no panic");
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(10));
            all.release(b);
        });
        all.wait_for(a, all.holder(b), &RowWait::begin(Duration::from_secs(60)), &|| Ok(()))
            .expect("another thread goes on with it");
    });
}

/// Runs `f` in a thread that writes to another log than this one.
fn in_another_log<T: Send>(system: &TransactionSystem, than: LogId, f: impl FnOnce() -> T + Send) -> T {
    let run = move || match system.log_of_thread() == than {
        true => in_another_log(system, than, f),
        false => f(),
    };
    std::thread::scope(|scope| scope.spawn(run).join().expect("no panic"))
}

/// A snapshot that sees its own thread's commit waits until that is committed. By then nobody else may have been told: what it returned was
/// not in a snapshot that another thread began after that.
#[test]
fn a_snapshot_sees_what_another_snapshot_returned_before_it_began() {
    let disk = SimulatedStorage::new(1);
    let settings = Settings {
        preset: Preset::Autonomous,
        logs: 2,
        dependency: Some(Dependency::Exact),
        acknowledger: Some(Acknowledger::Background),
        ..Settings::default()
    };
    let (system, table) = system_on(Arc::new(disk.clone()), &settings);
    // The thread that acknowledges what nobody waits for does not come back.
    disk.inject_mishap(Mishap { operation: OperationKind::DurableWrite, after: 0, kind: MishapKind::Stuck });
    put(&system, &table, b"stuck", b"x").expect("free row");
    let begun = std::time::Instant::now();
    while disk.fault_counts().of("stuck") == 0 {
        assert!(begun.elapsed().as_secs() < 60, "nobody writes it");
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

/// No version is left, soon: garbage of other tests may be freed first.
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

/// Makes rows whose keys are twice as long as the memory for versions; returns how many.
fn more_rows_than_can_be_deleted(system: &Arc<TransactionSystem>, table: &Arc<TableState>) -> u32 {
    let rows = 2 * (VERSION_BYTES as usize / KEY_BYTES) as u32;
    for n in 0..rows {
        put(system, table, &long_key(n), b"").expect("nobody keeps versions");
        system.commit().flush_all().expect("memory");
    }
    rows
}

/// A deleted key waits to be purged with a copy of the key, which counted nowhere: beside a snapshot deletions of long keys took many times the
/// memory that there is for versions.
#[test]
fn deleted_keys_that_wait_to_be_purged_count_as_memory_for_versions() {
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

/// Deletions counted from the commit on, where nothing is refused any more: after a large one everybody else was refused, or waited.
#[test]
fn what_a_transaction_deletes_counts_while_it_is_in_progress() {
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

/// The first call of a snapshot on a table waited for the table's creation; after it had failed the second answered that there was no row.
#[test]
fn a_snapshot_answers_nothing_of_a_table_that_may_be_lost() {
    let disk = SimulatedStorage::new(1);
    let (system, _) = system_on(Arc::new(disk.clone()), &Settings { logs: 1, ..Settings::default() });
    disk.inject_mishap(Mishap { operation: OperationKind::DurableWrite, after: 0, kind: MishapKind::Stuck });
    std::thread::scope(|scope| {
        scope.spawn(|| drop(system.create_table("u")));
        while disk.fault_counts().of("stuck") == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let table = system.catalog.table("u").expect("it is published");
        // Its own thread sees it.
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

/// They were charged to nobody.
#[test]
fn the_clocks_of_pages_are_charged() {
    let settings = Settings { logs: 2, dependency: Some(Dependency::Gsn), ..Settings::default() };
    let (system, table) = system_on(Arc::new(MemoryStorage::new()), &settings);
    let account = system.pool.account();
    let before = account.bytes();
    put(&system, &table, b"a", b"1").expect("free row");
    assert!(account.bytes() >= before + (256 << 10) + 8 * 4096, "{} after {before}", account.bytes());
}
