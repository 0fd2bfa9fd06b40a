//! Log buffers in mapped memory: nothing fenced is lost, whatever happens to the memory and the
//! segments, and with whatever settings the database is opened next.

use crate::support::test_database::{TestDatabase, tiny};
use crate::support::{await_that, content, difference, rows};
use quenchdb::internals::base::depth::{depth, is_deep, spread};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::{CrashKind, Fault, FaultKind, OperationKind, SimulatedStorage};
use quenchdb::{
    Acknowledger, Builder, Database, Durability, ErrorKind, MemoryCache, MemoryFence, Preset, Settings,
    Survives, Writer, WriterOptions,
};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const OWN: &str = "mapped-memory";

/// Buffers fill up every few transactions, so they are de-staged all the time.
fn settings(logs: usize) -> Settings {
    tiny(4 << 20).with(|s| {
        s.preset = Preset::Passive;
        s.logs = logs;
        s.log_bytes_max = 8 << 20;
        s.log_memory = Some(OWN.into());
        s.lab.log_memory_bytes = 1 << 20;
        s.lab.flush_unit_bytes = 0;
    })
}

/// Without log memory.
fn plain() -> Settings {
    settings(1).with(|s| {
        s.preset = Preset::Group;
        s.log_memory = None;
        s.lab.log_memory_bytes = 0;
        s.logs = 0;
    })
}

fn key(thread: u64, n: u64) -> [u8; 16] {
    ((u128::from(thread) << 64) | u128::from(n)).to_be_bytes()
}

/// Writes rows of about `bytes` bytes in threads that read one another's rows. Returns acknowledged
/// ones with the number of operations at that time.
fn work(
    db: &Database,
    disk: &SimulatedStorage,
    threads: u64,
    each: u64,
    bytes: u64,
) -> Vec<(usize, [u8; 16])> {
    let table = db.table_or_create("t").expect("made");
    let acknowledged = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (acknowledged, table) = (&acknowledged, &table);
            scope.spawn(move || {
                let mut random = Random::from_seed(thread);
                for n in 0..each {
                    let kind = random.below(4);
                    let level = if kind == 0 { Durability::BoundedLoss } else { Durability::Durable };
                    let mut tx = db.begin_with(level).expect("free");
                    // Reads another thread's newest row: a dependency across logs.
                    let other = random.below(threads);
                    let seen = tx.get(table, key(other, n.saturating_sub(1))).expect("readable");
                    let mut row = vec![u8::from(seen.is_some())];
                    row.extend_from_slice(&key(other, n.saturating_sub(1)));
                    row.resize(20 + random.below(bytes) as usize, n as u8);
                    tx.insert(table, key(thread, n), row).expect("fits");
                    let told = match kind {
                        0 => tx.commit().map(|_| false),
                        1 => tx.commit_async().and_then(|handle| handle.wait()).map(|()| true),
                        _ => tx.commit().map(|_| true),
                    };
                    if told.expect("the disk is whole") {
                        acknowledged.lock().expect("no panic").push((disk.operations(), key(thread, n)));
                    }
                }
            });
        }
    });
    acknowledged.into_inner().expect("no panic")
}

/// Returns an error unless all of `must` is there, and with each row the one that it observed.
fn is_whole(db: &Database, must: &BTreeSet<[u8; 16]>) -> std::result::Result<(), String> {
    let rows = content(db);
    let has = |key: &[u8]| rows.contains_key(&("t".to_string(), key.to_vec()));
    if let Some(lost) = must.iter().find(|key| !has(&key[..])) {
        return Err(format!("acknowledged {lost:?} is lost"));
    }
    for ((_, key), row) in &rows {
        if row[0] == 1 && !has(&row[1..17]) {
            return Err(format!("{key:?} saw {:?}, which is lost", &row[1..17]));
        }
    }
    let report = db.verify(None).expect("runs");
    if report.problems.is_empty() { Ok(()) } else { Err(format!("{:?}", report.problems)) }
}

fn must_at(acknowledged: &[(usize, [u8; 16])], at: usize) -> BTreeSet<[u8; 16]> {
    acknowledged.iter().filter(|(then, _)| *then <= at).map(|(_, key)| *key).collect()
}

fn crashes_wanted() -> u64 {
    let wanted =
        std::env::var("QUENCH_CRASHES").ok().and_then(|n| n.parse().ok()).unwrap_or_else(|| depth(6_000));
    wanted.min(20_000)
}

/// De-staged buffers. Not every run has some, because this depends on the flusher's timing.
static DE_STAGED: AtomicU64 = AtomicU64::new(0);

/// The memory of a run that crashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Memory {
    /// As the preset does it, beside the log's latch.
    Fenced,
    /// Under the log's latch.
    FencedLatched,
    FencesIgnored,
    FencesLatchedIgnored,
    /// Caches are durable, and fences are ignored.
    DurableCache,
}

/// Returns how often a crash lost something, and the number of crashes.
fn crash(seed: u64, memory: Memory) -> (u64, u64) {
    let mut random = Random::from_seed(seed);
    let disk = SimulatedStorage::new(seed);
    let settings = settings(1 + random.below(3) as usize);
    let is_durable = memory == Memory::DurableCache;
    let cache = if is_durable { MemoryCache::Durable } else { MemoryCache::Volatile };
    let is_latched = matches!(memory, Memory::FencedLatched | Memory::FencesLatchedIgnored);
    let fence = if is_latched { MemoryFence::Latched } else { MemoryFence::Beside };
    let settings = settings.with_protocol(|axes| axes.writer = WriterOptions::Memory { fence });
    let db = settings.with(|s| s.lab.memory_cache = cache).open(&disk);
    if !matches!(memory, Memory::Fenced | Memory::FencedLatched) {
        disk.ignore_fences();
    }
    let ignore_fences = matches!(memory, Memory::FencesIgnored | Memory::FencesLatchedIgnored);
    let acknowledged = work(&db, &disk, 2, 60, 6_000);
    if !ignore_fences {
        let (fences, drained) = (db.statistics().fences, db.statistics().stragglers_drained);
        assert!(if is_durable { fences + drained == 0 } else { fences > 50 }, "{fences} and {drained}");
        DE_STAGED.fetch_add(db.statistics().device_writes, Ordering::Relaxed);
        let report = db.verify(None).expect("runs");
        assert!(report.problems.is_empty(), "while it runs: {:?}", report.problems);
    }
    let end = disk.operations();
    let (mut lost, mut crashes) = (0, 0);
    for _ in 0..20 {
        let at = random.below(end as u64 + 1) as usize;
        let kind = if random.chance(2, 3) { CrashKind::PowerCut } else { CrashKind::Kill };
        let must = must_at(&acknowledged, at);
        let left = disk.crash(kind, at, random.next_u64());
        // Another number of logs divides the memory again; another preset empties it.
        let next = if random.chance(1, 3) { plain() } else { self::settings(1 + random.below(3) as usize) };
        let context = format!("seed {seed}, {kind:?} after {at} of {end}, then {}", next.preset);
        crashes += 1;
        let again = match next.try_open(&left) {
            Ok(db) => db,
            Err(_) if ignore_fences => {
                lost += 1;
                continue;
            }
            Err(error) => panic!("{context}: {error}"),
        };
        match is_whole(&again, &must) {
            Ok(()) => {}
            Err(_) if ignore_fences => lost += 1,
            Err(what) => panic!("{context}: {what}"),
        }
        if ignore_fences {
            left.stop();
            continue;
        }
        // A second crash, anywhere from the beginning of that recovery on.
        let served = left.operations();
        let more = work_again(&again, &left);
        left.stop();
        drop(again);
        let at = random.below(left.operations() as u64 + 1) as usize;
        let mut must = must;
        if at >= served {
            must.extend(must_at(&more, at));
        }
        let kind = if random.chance(2, 3) { CrashKind::PowerCut } else { CrashKind::Kill };
        let context = format!("{context}; {kind:?} after {at}, served from {served} on");
        let last = left.crash(kind, at, random.next_u64());
        let next = if random.chance(1, 2) { next } else { self::settings(2) };
        let db = next.try_open(&last).unwrap_or_else(|error| panic!("{context}: {error}"));
        is_whole(&db, &must).unwrap_or_else(|what| panic!("{context}: {what}"));
        crashes += 1;
        last.stop();
    }
    disk.stop();
    (lost, crashes)
}

/// Commits a few more rows.
fn work_again(db: &Database, disk: &SimulatedStorage) -> Vec<(usize, [u8; 16])> {
    let table = db.table_or_create("t").expect("made");
    let rows = (0..6).map(|n| {
        let mut tx = db.begin().expect("free");
        let mut row = vec![0];
        row.resize(3_000, 7);
        tx.insert(&table, key(77, n), row).expect("fits");
        tx.commit().expect("the disk is whole");
        (disk.operations(), key(77, n))
    });
    rows.collect()
}

#[test]
fn no_power_cut_and_no_kill_loses_what_was_fenced() {
    let (wanted, next) = (crashes_wanted(), AtomicU64::new(1));
    let done: u64 = std::thread::scope(|scope| {
        let worker = || {
            let mut done = 0;
            while done * 2 < wanted {
                done += crash(next.fetch_add(1, Ordering::Relaxed), Memory::Fenced).1;
            }
            done
        };
        let workers = [scope.spawn(worker), scope.spawn(worker)];
        workers.into_iter().map(|worker| worker.join().expect("no violation")).sum()
    });
    let de_staged = DE_STAGED.load(Ordering::Relaxed);
    println!("{done} crashes, {de_staged} buffers de-staged");
    assert!(done >= wanted && de_staged > 0);
}

#[test]
fn without_fences_the_same_crashes_lose_something() {
    for memory in [Memory::FencesIgnored, Memory::FencesLatchedIgnored] {
        let runs = (1..if is_deep() { 12 } else { 6 }).map(|seed| crash(seed, memory));
        let (lost, crashes) = runs.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        assert!(lost > crashes / 20, "{memory:?}: {lost} of {crashes}: no test above would find out");
    }
}

#[test]
fn fences_under_the_latch_lose_nothing() {
    for seed in 1..=depth(6_000) / 40 {
        assert_eq!(crash(seed, Memory::FencedLatched).0, 0);
    }
}

#[test]
fn a_durable_cache_loses_nothing_without_fences() {
    for seed in 1..=depth(6_000) / 40 {
        assert_eq!(crash(seed, Memory::DurableCache).0, 0);
    }
}

#[test]
fn a_commit_writes_nothing_to_the_device() {
    let (disk, db) = settings(1).create(1);
    let table = db.create_table("t").expect("new");
    // Spare segments are prepared and flushed beside the first commits.
    let commit_some = |round: u8| {
        let before = disk.flushes();
        for n in 0..20u8 {
            let mut tx = db.begin().expect("free");
            tx.insert(&table, [round, n], [n; 100]).expect("fits");
            if n % 2 == 0 {
                tx.commit().map(drop)
            } else {
                tx.commit_async().and_then(|handle| handle.wait())
            }
            .expect("fenced");
        }
        disk.flushes() - before
    };
    let mut rounds = 0;
    let quiet = (0..12).any(|_| {
        rounds += 1;
        commit_some(rounds) == 0
    });
    assert!(quiet, "each time something was flushed");
    let statistics = db.statistics();
    assert_eq!(statistics.device_writes, 0);
    assert_eq!((statistics.fences, statistics.commit_sleeps), (1 + 20 * u64::from(rounds), 0));
    let memory = statistics.log_memory.expect("in mapped memory");
    assert_eq!((memory.survives, memory.bytes), (Survives::PowerCut, 1 << 20));
    assert!(db.open_line().contains("commits survive a power cut"), "{}", db.open_line());
}

#[test]
fn a_closed_database_leaves_its_mapped_memory_to_the_next() {
    let directory = tempfile::tempdir().expect("space");
    let settings = settings(1).with(|s| s.log_memory = Some(directory.path().join("memory")));
    let open =
        || Database::builder().settings(settings.clone()).open(directory.path().join("db")).expect("free");
    let db = open();
    let table = db.create_table("t").expect("new");
    db.transact(|tx| tx.insert(&table, "a", "1")).expect("commits");
    let clone = db.clone();
    db.close().expect("closes");
    let next = open();
    drop(clone);
    next.transact(|tx| tx.insert(&next.table("t").expect("there"), "b", "2")).expect("commits");
    assert_eq!(rows(&next, "t").len(), 2);
}

#[test]
fn whoever_acknowledges_everybody_is_told() {
    for acknowledger in Acknowledger::ALL {
        let disk = SimulatedStorage::new(1);
        let settings = settings(2).with_protocol(|axes| axes.set_acknowledger(acknowledger));
        let db = settings.open(&disk);
        let table = db.create_table("t").expect("new");
        let before = db.statistics().committed;
        std::thread::scope(|scope| {
            for thread in 0..3u8 {
                let (db, table) = (&db, &table);
                scope.spawn(move || {
                    for n in 0..200u8 {
                        let mut tx = db.begin().expect("free");
                        tx.insert(table, [thread, n], [n; 30]).expect("fits");
                        drop(tx.commit_async().expect("room"));
                    }
                });
            }
        });
        await_that(acknowledger.name(), || db.statistics().committed >= before + 600);
    }
}

#[test]
fn a_straggler_is_drained_by_whoever_depends_on_it() {
    let (disk, db) = settings(2).create(1);
    let table = db.create_table("t").expect("new");
    for n in 0..20u8 {
        std::thread::scope(|scope| {
            let lazy = scope.spawn(|| {
                let mut tx = db.begin_with(Durability::Lazy).expect("free");
                tx.insert(&table, [n], [1]).expect("fits");
                tx.commit().map(drop)
            });
            lazy.join().expect("no panic").expect("acknowledged before it is durable");
        });
        // In this thread's log. The observed row is in another log, not fenced, and its thread has
        // ended.
        let mut tx = db.begin().expect("free");
        assert_eq!(tx.get(&table, [n]).expect("readable"), Some(vec![1]));
        tx.insert(&table, [n, 1], [2]).expect("fits");
        tx.commit().expect("durable");
        let left = disk.crash(CrashKind::PowerCut, disk.operations(), n.into());
        let again = settings(2).open(&left);
        let rows = content(&again);
        let has = |key: &[u8]| rows.contains_key(&("t".to_string(), key.to_vec()));
        assert!(has(&[n]) && has(&[n, 1]), "{n}");
        left.stop();
    }
    assert!(db.statistics().stragglers_drained > 0);
}

#[test]
fn commits_write_a_buffer_themselves_if_all_are_full() {
    let disk = SimulatedStorage::new(1);
    let db = settings(3).with(|s| s.lab.log_memory_bytes = 1 << 20).open(&disk);
    // Writing a buffer takes far longer than filling it.
    disk.set_delay(std::time::Duration::from_millis(5));
    let acknowledged = work(&db, &disk, 3, 120, 12_000);
    disk.set_delay(std::time::Duration::ZERO);
    await_that("few buffers are written", || db.statistics().device_writes > 20);
    let left = disk.crash(CrashKind::PowerCut, disk.operations(), 5);
    let again = plain().open(&left);
    is_whole(&again, &must_at(&acknowledged, usize::MAX)).expect("whole");
}

#[test]
fn a_failed_write_of_a_full_buffer_loses_nothing() {
    // Beside the latch, the failure may meet a commit between its record and its fence.
    let latched =
        settings(1).with_protocol(|axes| axes.writer = WriterOptions::Memory { fence: MemoryFence::Latched });
    let (disk, db) = latched.create(1);
    let table = db.create_table("t").expect("new");
    disk.inject(Fault {
        operation: OperationKind::DurableWrite,
        after: 1,
        kind: FaultKind::ForEver,
        error: 5,
    });
    let mut told = 0u64;
    let error = loop {
        let done = db.begin().and_then(|mut tx| {
            tx.insert(&table, key(0, told), [3; 3000])?;
            tx.commit()
        });
        match done {
            Ok(_) => told += 1,
            Err(error) => break error,
        }
        assert!(told < 10_000, "the buffers are full long before");
    };
    assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
    assert!(told > 20, "{told}");
    let left = disk.crash(CrashKind::Kill, disk.operations(), 5);
    let again = plain().open(&left);
    let rows = content(&again);
    assert!((0..told).all(|n| rows.contains_key(&("t".to_string(), key(0, n).to_vec()))), "{told}");
}

/// Returns a database of `rows` rows whose process was killed.
fn killed(directory: &Path, memory: &Path, rows: u64) -> PathBuf {
    let database = directory.join("db");
    let at_work = directory.join("at-work");
    let db = on_files(memory).open(&at_work).expect("opens");
    let table = db.create_table("t").expect("new");
    for n in 0..rows {
        let mut tx = db.begin().expect("free");
        tx.insert(&table, key(0, n), [5; 100]).expect("fits");
        tx.commit().expect("fenced");
    }
    // Copies all files as a kill would leave them. The memory is copied, too, and put back after
    // the close.
    copy(&at_work, &database);
    let bytes = std::fs::read(memory).expect("there");
    db.close().expect("closes");
    std::fs::write(memory, bytes).expect("put back");
    database
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("made");
    for entry in std::fs::read_dir(from).expect("there").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else if entry.path().is_file() {
            std::fs::copy(entry.path(), target).expect("copied");
        }
    }
}

fn on_files(memory: &Path) -> Builder {
    Database::builder().preset(Preset::Passive).logs(2).memory_bytes(16 << 20).log_memory(memory)
}

fn small() -> Builder {
    Database::builder().memory_bytes(16 << 20)
}

fn row_count(db: &Database) -> usize {
    content(db).len()
}

#[test]
fn any_preset_finds_the_needed_log_memory_or_is_refused() {
    let directory = tempfile::tempdir().expect("space");
    let memory = directory.path().join("memory");
    let database = killed(directory.path(), &memory, 300);
    // Reading changes nothing, so it can be repeated.
    for _ in 0..2 {
        let db = small().read_only(true).open(&database).expect("found by itself");
        assert_eq!(row_count(&db), 300);
        assert!(db.verify(None).expect("runs").problems.is_empty());
        assert_eq!(db.statistics().log_memory.expect("needed").survives, Survives::ProcessCrash);
    }
    assert!(Database::dump_log(&database, None).expect("readable").len() >= 300);
    // The memory's file was moved.
    let moved = directory.path().join("moved");
    std::fs::rename(&memory, &moved).expect("renamed");
    for builder in [small(), small().read_only(true), on_files(&memory)] {
        let error = builder.open(&database).expect_err("its newest commits are not there");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        let text = error.to_string();
        assert!(
            text.contains("newest commits") && text.contains("log_memory") && text.contains("memory"),
            "{text}"
        );
    }
    // Another memory is refused.
    let other = directory.path().join("other");
    on_files(&other).open(directory.path().join("db2")).expect("opens").close().expect("closes");
    let error = small().log_memory(&other).open(&database).expect_err("another database's");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    // With the right path, the memory is emptied into the log and no longer needed.
    let elsewhere = small().preset(Preset::Group).log_memory(&moved);
    let db = elsewhere.open(&database).expect("recovers");
    assert_eq!((row_count(&db), db.statistics().log_memory.is_none()), (300, true));
    drop(db);
    std::fs::remove_file(&moved).expect("removed");
    assert_eq!(row_count(&small().open(&database).expect("needs none")), 300);
}

#[test]
fn auto_that_is_given_a_memory_commits_there() {
    let directory = tempfile::tempdir().expect("space");
    let memory = directory.path().join("memory");
    let database = directory.path().join("db");
    let open = || Database::builder().log_memory(&memory).open(&database).expect("opens");
    let db = open();
    let table = db.create_table("t").expect("new");
    let writes = db.statistics().device_writes;
    (0..100).for_each(|n| db.transact(|tx| tx.insert(&table, key(0, n), "row")).expect("durable in memory"));
    let statistics = db.statistics();
    assert_eq!((statistics.device_writes, statistics.writer), (writes, Writer::Memory));
    drop((db, table));
    let db = open();
    assert_eq!((row_count(&db), db.statistics().log_memory.is_some()), (100, true));
}

#[test]
fn what_contradicts_what_is_there_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().expect("space");
    let memory = directory.path().join("memory");
    let database = directory.path().join("db");
    let refused = |builder: Builder, kind: ErrorKind, words: &[&str]| {
        let error = builder.open(&database).expect_err("refused");
        assert_eq!(error.kind(), kind, "{error}");
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
    };
    let invalid = ErrorKind::InvalidArgument;
    refused(Database::builder().preset(Preset::Passive), invalid, &["`log_memory`", "passive", "/dev/shm"]);
    let group = small().preset(Preset::Group).log_memory(&memory);
    refused(group, invalid, &["`log_memory`", "preset group"]);
    refused(
        small().lab(|lab| lab.memory_cache = MemoryCache::Durable),
        invalid,
        &["`memory_cache`", "preset auto"],
    );
    let tiny = on_files(&memory).logs(16).lab(|lab| lab.log_memory_bytes = 1 << 20);
    refused(tiny, invalid, &["1048576", "16 logs", "are needed"]);
    std::fs::remove_file(&memory).expect("was made");
    let db = on_files(&memory).open(&database).expect("opens");
    db.close().expect("closes");
    refused(
        on_files(&memory).lab(|lab| lab.log_memory_bytes = 1 << 20),
        invalid,
        &["log_memory_bytes", "16777216"],
    );
    let other = on_files(&memory).open(directory.path().join("db2")).expect_err("another database's");
    assert!(other.kind() == invalid && other.to_string().contains("belongs to database"), "{other}");
    let db = on_files(&memory).open(&database).expect("its own");
    let busy = on_files(&memory).open(directory.path().join("db3")).expect_err("in use");
    assert_eq!(busy.kind(), ErrorKind::Busy, "{busy}");
    drop(db);
    std::fs::write(&memory, vec![b'x'; 1 << 20]).expect("written");
    refused(on_files(&memory), invalid, &["no memory-mapped log of QuenchDB"]);
}

/// The first open, which creates the memory, and one that divides it into longer buffers.
#[test]
fn a_killed_open_leaves_nothing_half_durable() {
    let first = SimulatedStorage::new(1);
    drop(settings(2).open(&first));
    killed_wherever_and_opened_again(&first, &settings(2));
    let divided = settings(2).with(|s| s.lab.log_buffer_bytes = 128 << 10);
    let (killed, db) = settings(2).create(2);
    work(&db, &killed, 1, 2, 20);
    let second = killed.crash(CrashKind::Kill, killed.operations(), 1);
    killed.stop();
    drop(divided.open(&second));
    killed_wherever_and_opened_again(&second, &divided);
}

fn killed_wherever_and_opened_again(opened: &SimulatedStorage, settings: &Settings) {
    let mut random = Random::from_seed(2);
    for at in spread(opened.operations() as u64 + 1, 6).map(|at| at as usize) {
        let disk = opened.crash(CrashKind::Kill, at, random.next_u64());
        let db = settings.try_open(&disk).unwrap_or_else(|error| panic!("killed after {at}: {error}"));
        work(&db, &disk, 1, 2, 20);
        let there = content(&db);
        disk.stop();
        drop(db);
        for _ in 0..depth(20) {
            let cut = disk.crash(CrashKind::PowerCut, disk.operations(), random.next_u64());
            let db =
                settings.try_open(&cut).unwrap_or_else(|error| panic!("killed after {at}, cut: {error}"));
            let now = content(&db);
            assert!(now == there, "killed after {at}: {}", difference(&there, &now));
        }
        // Also before anything was served.
        for cut_at in 0..disk.operations() {
            let cut = disk.crash(CrashKind::PowerCut, cut_at, random.next_u64());
            settings
                .try_open(&cut)
                .unwrap_or_else(|error| panic!("killed after {at}, cut after {cut_at}: {error}"));
        }
    }
}

/// Regression: the table of buffers survives a new division. With buffers of another length, its
/// entries attributed blocks to the wrong log. Two different blocks were number 1, and no open
/// succeeded.
#[test]
fn table_entries_of_buffers_of_another_length_are_ignored() {
    for (first, then) in [(64 << 10, 128 << 10), (128 << 10, 64 << 10)] {
        let with = |log_buffer_bytes| {
            settings(3).with(|s| {
                s.lab.log_buffer_bytes = log_buffer_bytes;
                s.memory_bytes = 16 << 20;
            })
        };
        let (disk, db) = with(first).create(1);
        // A row in each log.
        let (table, together) = (db.create_table("t").expect("new"), std::sync::Barrier::new(3));
        std::thread::scope(|scope| {
            let (db, table, together) = (&db, &table, &together);
            for n in 0..3u8 {
                scope.spawn(move || {
                    together.wait();
                    db.transact(|tx| tx.insert(table, [n], [n; 100])).expect("fenced");
                    together.wait();
                });
            }
        });
        let killed = disk.crash(CrashKind::Kill, disk.operations(), 1);
        disk.stop();
        let db = with(then).open(&killed);
        let table = db.table("t").expect("there");
        db.transact(|tx| tx.insert(&table, [3], [3; 100])).expect("fenced");
        let again = killed.crash(CrashKind::Kill, killed.operations(), 2);
        killed.stop();
        let db = with(then).try_open(&again).unwrap_or_else(|error| panic!("{first}, then {then}: {error}"));
        assert_eq!(row_count(&db), 4, "{first}, then {then}");
        assert!(db.verify(None).expect("runs").problems.is_empty());
    }
}

/// Regression: the log was verified without the memory, and records only in the memory were
/// reported as lost.
#[test]
fn verify_of_a_refused_database_reads_its_log_memory_too() {
    let (disk, db) = settings(3).create(1);
    let table = db.create_table("t").expect("new");
    db.checkpoint().expect("a whole disk");
    let together = std::sync::Barrier::new(3);
    std::thread::scope(|scope| {
        for n in 0..3u64 {
            let (db, table, together) = (&db, &table, &together);
            scope.spawn(move || {
                let put = |row| db.transact(|tx| tx.insert(table, key(n, row), [1; 3000])).expect("fenced");
                put(0);
                together.wait();
                // One log's buffers are written, with watermarks above the first rows of the other
                // logs.
                (1..100).filter(|_| n == 0).for_each(put);
                together.wait();
            });
        }
    });
    let left = disk.crash(CrashKind::Kill, disk.operations(), 1);
    disk.stop();
    let pages = left.read_file("pages/data").expect("there");
    let header = &pages[..4096];
    left.write_file("pages/data", &[header, &vec![0x55; pages.len() - 4096]].concat());
    let builder = plain().on(&left);
    let report = builder.verify("simulated", None).expect("can be verified");
    let says = |what: &str| report.problems.iter().any(|problem| problem.contains(what));
    assert!(!report.problems.is_empty() && report.log_records > 100, "{report:#?}");
    assert!(!says("committed transactions") && !says("log"), "{report:#?}");
}
