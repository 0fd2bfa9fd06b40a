//! A process that forks while it has a database open: the child can do nothing with the database,
//! nothing that the child does or drops reaches the parent, and the child never hangs.

use crate::support::processes::{in_own_process, one_test};
use crate::support::rows;
use quenchdb::internals::base::depth::some;
use quenchdb::{Csn, Database, Durability, ErrorKind, HealthState, Preset, Result, Table, TypedTable};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn builder() -> quenchdb::Builder {
    Database::builder()
        .memory_bytes(8 << 20)
        .segment_bytes(1 << 20)
        .log_bytes_max(64 << 20)
        .lab(|lab| lab.checkpoint_log_bytes = 0)
}

fn put(db: &Database, table: &Table, key: &str) {
    db.transact(|tx| tx.insert(table, key, "parent")).expect("commits");
}

/// A forked child.
#[must_use]
struct Child(i32);

impl Child {
    /// Runs `body` in a child, which then ends as a program ends, with the destructors of the
    /// thread. A child that hangs is killed after half a minute.
    fn fork(body: impl FnOnce()) -> Child {
        // SAFETY: the other threads of this process hold no lock that `body` takes, except those of
        // the engine, which is what these tests are about.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "no process left");
        if child == 0 {
            // SAFETY: sets a timer.
            unsafe { libc::alarm(30) };
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            std::process::exit(if done.is_ok() { 0 } else { 101 });
        }
        Child(child)
    }

    /// Waits for the end of the child, and fails if a panic or a signal was it.
    fn wait(self) {
        let mut status = 0;
        // SAFETY: a child of this process.
        assert_eq!(unsafe { libc::waitpid(self.0, &raw mut status, 0) }, self.0);
        assert!(!libc::WIFSIGNALED(status), "the child was killed by signal {}", libc::WTERMSIG(status));
        assert_eq!(libc::WEXITSTATUS(status), 0, "the child panicked");
    }
}

#[track_caller]
fn assert_refused<T>(result: Result<T>) {
    let Err(error) = result else { panic!("a forked child was allowed a call") };
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("forked"), "{error}");
}

/// All that may refer to an open database.
struct Handles<'a> {
    db: Database,
    table: Table,
    typed: TypedTable<String, u64>,
    snapshot: quenchdb::Snapshot,
    tx: quenchdb::Transaction,
    range: quenchdb::Range<'a, quenchdb::Snapshot>,
    value: quenchdb::ValueReader<'a>,
    handle: quenchdb::CommitHandle,
    changes: quenchdb::Changes,
    watch: quenchdb::Watch,
    committed: quenchdb::CommittedTransaction,
}

fn calls_of_the_database_are_refused(db: &Database, table: &Table) {
    assert_refused(db.begin());
    assert_refused(db.begin_read());
    assert_refused(db.transact(|tx| tx.insert(table, "child", "child")));
    assert_refused(db.create_table("child"));
    assert_refused(db.table("t"));
    assert_refused(db.table_or_create("t"));
    assert_refused(db.rename_table("t", "child"));
    assert_refused(db.clear_table("t"));
    assert_refused(db.drop_table("t"));
    assert_refused(db.checkpoint());
    assert_refused(db.checkpoint_paced());
    assert_refused(db.compact(None));
    assert_refused(db.verify(None));
    assert_refused(db.flush());
    assert_refused(db.changes(Csn::ZERO));
    assert_refused(db.watch(table, ""));
    assert_refused(db.table_report(table));
    assert_refused(db.backup("/nowhere/backup", quenchdb::BackupOptions::default()));
    assert_refused(db.typed_table::<String, u64>("typed"));
}

/// None of these may wait for a lock.
fn calls_that_cannot_fail_return(db: &Database, table: &Table) {
    assert!(db.tables().is_empty() && db.locks().is_empty() && db.checkpoint_readers().is_empty());
    assert_eq!(db.statistics().committed, 0);
    assert_eq!(db.checkpoints().count, 0);
    assert_eq!(db.health().state, HealthState::Failed);
    assert!(db.health().reasons[0].contains("forked"), "{:?}", db.health());
    db.reset_statistics();
    let _ = (db.recovery(), db.open_line(), db.checkpoint_csn(), db.space_map(10), table.name());
    let _ = (format!("{db:?}"), db.max_key_bytes(), db.max_entry_bytes());
}

fn calls_of_handles_are_refused(handles: &mut Handles<'_>) {
    let Handles { table, snapshot, tx, range, value, handle, changes, watch, committed, typed, .. } = handles;
    assert_refused(snapshot.get(table, "0"));
    assert_refused(snapshot.contains_key(table, "0"));
    assert_refused(snapshot.prefetch(table, ["0"]));
    assert_refused(snapshot.first(table));
    assert_refused(typed.get(snapshot, "0"));
    assert_refused(range.next().expect("an error"));
    assert_refused(value.read_at(0, &mut [0; 10]));
    assert_refused(tx.get(table, "0"));
    assert_refused(tx.insert(table, "child", "child"));
    assert_refused(tx.remove(table, "0"));
    assert_refused(tx.get_for_update(table, "0"));
    assert_refused(typed.insert(tx, "child", &1));
    assert_refused(handle.wait());
    assert_refused(handle.wait_timeout(Duration::ZERO));
    assert!(!handle.is_committed());
    assert_refused(changes.try_next());
    assert_refused(changes.next_timeout(Duration::ZERO));
    assert_refused(watch.next_timeout(Duration::ZERO));
    // What it returned is in memory.
    assert!(committed.changes().count() > 0);
    let _ = (snapshot.csn(), handle.csn(), changes.csn(), value.len());
}

#[test]
fn a_forked_child_is_refused_every_call_and_drops_nothing() {
    in_own_process(module_path!(), "a_forked_child_is_refused_every_call_and_drops_nothing", || {
        let directory = tempfile::tempdir().expect("space");
        let path = directory.path();
        let db = builder().monitor(true).open(path).expect("opens");
        let table = db.create_table("t").expect("new");
        let typed = db.typed_table::<String, u64>("typed").expect("new");
        let mut changes = db.changes(db.begin_read().expect("free").csn()).expect("begins");
        db.transact(|tx| tx.insert(&table, "large", vec![7; 100_000])).expect("commits");
        (0..10).for_each(|row| put(&db, &table, &row.to_string()));
        let committed = changes.next().expect("waits").expect("readable");
        let snapshots = [(); 3].map(|()| db.begin_read().expect("free"));
        let [snapshot, ranged, read] = snapshots;
        let mut range = ranged.range(&table, ..);
        assert!(range.next().is_some());
        let value = read.read_value(&table, "large").expect("readable").expect("there");
        let watch = db.watch(&table, "").expect("begins");
        let mut tx = db.begin().expect("free");
        tx.insert(&table, "open", "parent").expect("free row");
        let mut lazy = db.begin_with(Durability::Lazy).expect("free");
        lazy.insert(&table, "lazy", "parent").expect("free row");
        let handle = lazy.commit_async().expect("commits");
        let clone = db.clone();
        let handles =
            Handles { db, table, typed, snapshot, tx, range, value, handle, changes, watch, committed };
        let mut handles = Some(handles);

        Child::fork(|| {
            let mut handles = handles.take().expect("there");
            calls_of_the_database_are_refused(&handles.db, &handles.table);
            calls_that_cannot_fail_return(&handles.db, &handles.table);
            calls_of_handles_are_refused(&mut handles);
            let Handles { db, tx, .. } = handles;
            assert_refused(tx.commit());
            assert_refused(db.close());
            drop(clone);
        })
        .wait();

        let Handles { db, table, tx, mut range, mut value, handle, mut changes, .. } =
            handles.expect("there");
        assert!(path.join("monitor.sock").exists() && Database::ask_statistics(path).is_ok());
        assert_eq!(builder().open(path).expect_err("locked").kind(), ErrorKind::Busy);
        tx.commit().expect("nothing was taken back");
        handle.wait().expect("commits");
        assert!(range.next().expect("more").is_ok() && value.read_at(0, &mut [0; 10]).is_ok());
        assert!(changes.next_timeout(Duration::ZERO).expect("readable").is_some());
        put(&db, &table, "after");
        let keys = rows(&db, "t").len();
        assert_eq!(keys, 14);
        drop((range, value, changes));
        db.close().expect("closes");
        let db = builder().open(path).expect("free");
        assert!(db.recovery().clean && db.verify(None).expect("works").problems.is_empty());
        assert_eq!(rows(&db, "t").len(), keys);
    });
}

#[test]
fn a_forked_child_is_refused_every_call_of_a_standby() {
    in_own_process(module_path!(), "a_forked_child_is_refused_every_call_of_a_standby", || {
        let directory = tempfile::tempdir().expect("space");
        let path = directory.path().join("db");
        let db = builder().open(&path).expect("opens");
        let table = db.create_table("t").expect("new");
        let follow = || Database::builder().memory_bytes(4 << 20).open_standby(&path).expect("a database");
        let mut standby = Some(follow());
        let wait = |standby: &quenchdb::Standby| {
            let newest = db.begin_read().expect("free").csn();
            assert!(standby.wait_for(newest, Duration::from_secs(60)).expect("follows"));
        };
        for round in 0..20 {
            put(&db, &table, &round.to_string());
            wait(standby.as_ref().expect("there"));
            let mut snapshot = standby.as_ref().and_then(|standby| standby.snapshot().ok());
            std::thread::sleep(Duration::from_millis(round % 5));
            Child::fork(|| {
                let (standby, snapshot) = (standby.take().expect("there"), snapshot.take().expect("free"));
                assert_refused(standby.snapshot());
                assert_refused(standby.wait_for(Csn(1), Duration::ZERO));
                assert_eq!((standby.csn(), standby.statistics().csn), (Csn::ZERO, Csn::ZERO));
                let of_then = snapshot.table("t").expect("the names are in memory");
                assert_refused(snapshot.get(&of_then, "0"));
                drop(snapshot);
                match round % 3 {
                    0 => assert_refused(standby.promote()),
                    1 => standby.close(),
                    _ => drop(standby),
                }
            })
            .wait();
            // Nothing that the child has dropped was the parent's.
            let snapshot = snapshot.expect("free");
            let of_then = snapshot.table("t").expect("is there");
            assert_eq!(snapshot.range(&of_then, ..).count(), round as usize + 1);
        }
        put(&db, &table, "last");
        wait(standby.as_ref().expect("there"));
        db.close().expect("closes");
        let promoted = standby.take().expect("there").promote().expect("the writer is gone");
        assert_eq!(rows(&promoted, "t").len(), 21);
        assert!(promoted.verify(None).expect("works").problems.is_empty());
    });
}

/// Changes, reads and renames until `stop`, so that locks of all kinds are held now and then.
fn be_busy(db: &Database, own: usize, stop: &AtomicBool) {
    let table = db.table_or_create(&format!("table {own}")).expect("works");
    for round in 0u32.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let value = vec![own as u8; 2000];
        db.transact(|tx| tx.insert(&table, (round % 500).to_be_bytes(), &value)).expect("commits");
        let _ = (db.statistics(), db.tables(), db.locks(), table.name());
        if round % 50 == 0 {
            db.begin_read().expect("free").len(&table).expect("readable");
            let (one, other) = (format!("table {own}"), format!("other {own}"));
            db.rename_table(&one, &other).expect("works");
            db.rename_table(&other, &one).expect("works");
            db.checkpoint().expect("works");
        }
    }
}

#[test]
fn a_child_forked_beside_busy_threads_does_not_hang() {
    in_own_process(module_path!(), "a_child_forked_beside_busy_threads_does_not_hang", || {
        let directory = tempfile::tempdir().expect("space");
        let db = builder().memory_bytes(2 << 20).open(directory.path()).expect("opens");
        let table = db.create_table("t").expect("new");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for own in 0..3 {
                let (db, stop) = (&db, &stop);
                scope.spawn(move || be_busy(db, own, stop));
            }
            for round in 0..40 {
                std::thread::sleep(Duration::from_millis(round % 7));
                let (mut own, mut snapshot) = (Some(db.clone()), db.begin_read().ok());
                let mut tx = db.begin().ok();
                Child::fork(|| {
                    let (db, tx) = (own.take().expect("there"), tx.take().expect("there"));
                    calls_of_the_database_are_refused(&db, &table);
                    calls_that_cannot_fail_return(&db, &table);
                    drop((tx, snapshot.take(), db));
                })
                .wait();
            }
            stop.store(true, Ordering::Relaxed);
        });
        db.close().expect("closes");
    });
}

/// Returns the settings of a preset for a database below `path`.
fn preset_builder(preset: Preset, path: &Path) -> quenchdb::Builder {
    let builder = builder().preset(preset);
    match preset {
        Preset::Passive => builder.log_memory(path.join("memory")).lab(|lab| lab.log_memory_bytes = 1 << 20),
        _ => builder,
    }
}

/// Not a test: a parent that is killed, beside its child.
#[test]
fn parent() {
    let Some(path) = std::env::var_os("QUENCH_PARENT") else { return };
    let number = std::env::var("QUENCH_PRESET").ok().and_then(|number| number.parse::<usize>().ok());
    let (path, preset) = (Path::new(&path), Preset::ALL[number.expect("set with the path")]);
    let db = preset_builder(preset, path).open(path.join("db")).expect("opens");
    let table = db.create_table("t").expect("new");
    (0..100).for_each(|row| put(&db, &table, &row.to_string()));
    let child = Child::fork(|| {
        for row in 0..20 {
            assert_refused(db.transact(|tx| tx.insert(&table, format!("child {row}"), "child")));
        }
        println!("CHILD {}", std::process::id());
        // Longer than the test.
        std::thread::sleep(Duration::from_secs(25));
    });
    (100..600).for_each(|row| put(&db, &table, &row.to_string()));
    println!("PARENT {}", child.0);
    std::thread::sleep(Duration::from_secs(60));
}

/// Runs the parent until all its rows are acknowledged and its child has tried, and kills it.
/// Returns the number of the child, which lives.
fn killed_parent(preset: usize, path: &Path) -> i32 {
    let mut command = one_test(module_path!(), "parent");
    command.env("QUENCH_PARENT", path).env("QUENCH_PRESET", preset.to_string());
    let mut parent = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().expect("starts");
    let lines = BufReader::new(parent.stdout.take().expect("piped")).lines();
    let said: Vec<String> = lines
        .map_while(std::result::Result::ok)
        .filter(|line| line.contains("CHILD ") || line.contains("PARENT "))
        .take(2)
        .collect();
    parent.kill().expect("ours");
    parent.wait().expect("ours");
    let child = said.iter().find_map(|line| line.split_once("CHILD ")?.1.trim().parse().ok());
    assert_eq!(said.len(), 2, "parent and child did their part");
    child.expect("the child says its number")
}

/// Regression: commits of a child returned `Ok`, were written over blocks of its parent, and took
/// acknowledged commits away. And the child kept the locks of a parent that was killed.
#[test]
fn a_killed_parent_leaves_its_commits_and_no_lock_to_its_child() {
    let numbered: Vec<(usize, Preset)> = Preset::ALL.into_iter().enumerate().collect();
    for (number, preset) in some(&numbered, 3) {
        let directory = tempfile::tempdir().expect("space");
        let child = killed_parent(number, directory.path());
        // SAFETY: signal 0 only asks.
        assert_eq!(unsafe { libc::kill(child, 0) }, 0, "the child lives");
        let db = preset_builder(preset, directory.path()).open(directory.path().join("db"));
        // SAFETY: a process of this test.
        unsafe { libc::kill(child, libc::SIGKILL) };
        let db = db.unwrap_or_else(|error| panic!("{preset:?}: the locks end with the parent: {error}"));
        let found = rows(&db, "t");
        let missing = (0..600).filter(|row| !found.contains_key(row.to_string().as_bytes())).count();
        assert_eq!((missing, found.len()), (0, 600), "{preset:?}");
        assert!(db.verify(None).expect("works").problems.is_empty());
    }
}

#[test]
fn a_child_uses_databases_that_it_opens_itself() {
    in_own_process(module_path!(), "a_child_uses_databases_that_it_opens_itself", || {
        let [first, second] = [(); 2].map(|()| tempfile::tempdir().expect("space"));
        let db = builder().open(first.path()).expect("opens");
        let table = db.create_table("t").expect("new");
        put(&db, &table, "a");
        Child::fork(|| {
            assert_eq!(builder().open(first.path()).expect_err("locked").kind(), ErrorKind::Busy);
            let own = builder().open(second.path()).expect("opens");
            let table = own.create_table("t").expect("new");
            put(&own, &table, "b");
            assert_refused(db.begin_read());
            // The child is a parent, too.
            Child::fork(|| {
                assert_refused(own.begin_read());
                assert_refused(db.begin_read());
            })
            .wait();
            assert_eq!(rows(&own, "t").len(), 1);
            own.close().expect("closes");
        })
        .wait();
        put(&db, &table, "c");
        let later = Child::fork(|| {
            // The parent closes the database meanwhile, which is open at the fork.
            let open = || builder().open(first.path());
            let opened = (0..1000).find_map(|_| {
                std::thread::sleep(Duration::from_millis(10));
                open().ok()
            });
            assert_eq!(rows(&opened.expect("free once it is closed"), "t").len(), 2);
        });
        db.close().expect("closes");
        later.wait();
        Child::fork(|| {
            let own = builder().open(first.path()).expect("free");
            assert_eq!(rows(&own, "t").len(), 2);
            put(&own, &own.table("t").expect("there"), "d");
        })
        .wait();
        assert_eq!(rows(&builder().open(first.path()).expect("free"), "t").len(), 3);
        let own = builder().open(second.path()).expect("free");
        assert!(own.recovery().clean);
        assert_eq!(rows(&own, "t").into_keys().collect::<Vec<_>>(), [b"b"]);
    });
}

/// Forks when half of it has been read. The child returns from the call, too.
struct Forks(usize, Option<Child>);

impl Read for Forks {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.0 += 1;
        if self.0 == 5 {
            // SAFETY: the child only returns an error to its caller, and ends.
            let child = unsafe { libc::fork() };
            self.1 = Some(Child(child));
        }
        if self.0 > 10 {
            return Ok(0);
        }
        into.fill(7);
        Ok(into.len())
    }
}

#[test]
fn a_child_forked_inside_a_call_changes_nothing() {
    in_own_process(module_path!(), "a_child_forked_inside_a_call_changes_nothing", || {
        let directory = tempfile::tempdir().expect("space");
        // Every transaction with a large value writes chunks before its commit.
        let db = builder().open(directory.path()).expect("opens");
        let table = db.create_table("t").expect("new");
        (0..3000u32).for_each(|row| {
            db.transact(|tx| tx.insert(&table, row.to_be_bytes(), [1; 500])).expect("commits");
        });
        let mut reader = Forks(0, None);
        let stored = db.transact(|tx| tx.insert_from(&table, "large", &mut reader));
        let child = reader.1.take().expect("forked");
        if child.0 == 0 {
            assert!(stored.is_err());
            assert_refused(db.begin());
            std::process::exit(0);
        }
        stored.expect("the parent goes on");
        child.wait();

        (0..2900u32).for_each(|row| {
            db.transact(|tx| tx.remove(&table, row.to_be_bytes())).expect("commits");
        });
        let forked = std::sync::Arc::new(std::sync::Mutex::new(None));
        let at = forked.clone();
        let progress: quenchdb::Progress = Box::new(move |_, _, _| {
            // SAFETY: as above.
            at.lock().expect("no panic").get_or_insert_with(|| Child(unsafe { libc::fork() }));
        });
        let compacted = db.compact(Some(progress));
        let child = forked.lock().expect("no panic").take().expect("forked");
        if child.0 == 0 {
            assert!(compacted.is_err());
            std::process::exit(0);
        }
        compacted.expect("the parent goes on");
        child.wait();
        db.close().expect("closes");
        let db = builder().open(directory.path()).expect("free");
        assert_eq!(rows(&db, "t").len(), 101);
        assert!(db.verify(None).expect("works").problems.is_empty());
    });
}
