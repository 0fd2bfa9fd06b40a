//! Databases that do not fit in their memory: every answer is the same, only slower.

use crate::support::Model;
use crate::support::test_database::TestDatabase;
use quenchdb::internals::base::depth::{is_deep, spread};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::{Compression, Database, Durability, ErrorKind, Preset, Settings, Snapshot, Table};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A few dozen pages: the smallest possible pool.
fn settings(preset: Preset) -> Settings {
    Settings::default().with(|s| {
        s.preset = preset;
        s.memory_bytes = 1 << 20;
        s.lab.log_buffer_bytes = 64 << 10;
        s.segment_bytes = 256 << 10;
        s.log_bytes_max = 32 << 20;
        s.lab.checkpoint_log_bytes = 2 << 20;
        s.compression = if preset == Preset::Autonomous { Compression::None } else { Compression::Lz4 };
    })
}

fn key(n: u64) -> Vec<u8> {
    format!("key {n:08}").into_bytes()
}

fn value(random: &mut Random) -> Vec<u8> {
    let len = 20 + random.below(200) as usize;
    let word = random.next_u64().to_le_bytes();
    word.iter().copied().cycle().take(len).collect()
}

type Change = (Vec<u8>, Option<Vec<u8>>);

/// Makes random changes in `db` and in `model`, committed with bounded loss.
fn change(db: &Database, table: &Table, model: &mut Model, random: &mut Random, transactions: u64) {
    for _ in 0..transactions {
        let changes: Vec<Change> = (0..1 + random.below(6))
            .map(|_| {
                let key = key(random.below(12_000));
                let value = if random.chance(1, 5) { None } else { Some(value(random)) };
                (key, value)
            })
            .collect();
        if apply(db, table, &changes, random.chance(1, 10)) {
            for (key, value) in changes {
                match value {
                    Some(value) => model.insert(key, value),
                    None => model.remove(&key),
                };
            }
        }
    }
}

/// Runs one transaction; returns whether it committed. Retries while a checkpoint needs the memory
/// for versions.
fn apply(db: &Database, table: &Table, changes: &[Change], abort: bool) -> bool {
    for _ in 0..1000 {
        let mut tx = db.begin_with(Durability::BoundedLoss).expect("free");
        let done = changes.iter().try_for_each(|(key, value)| match value {
            Some(value) => tx.insert(table, key, value),
            None => tx.remove(table, key).map(drop),
        });
        match done {
            Ok(()) if abort => {
                tx.abort();
                return false;
            }
            Ok(()) => {
                tx.commit().expect("commits");
                return true;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("there is never room");
}

fn content(snapshot: &Snapshot, table: &Table) -> Model {
    snapshot.range(table, ..).map(|row| row.expect("readable")).collect()
}

fn assert_same(snapshot: &Snapshot, table: &Table, model: &Model, what: &str) {
    assert!(content(snapshot, table) == *model, "{what}: not what was committed");
}

pub fn content_is_right_with_a_pool_of_a_few_dozen_pages(preset: Preset) {
    let disk = SimulatedStorage::new(1);
    let mut random = Random::from_seed(preset as u64);
    let mut model = Model::new();
    let db = settings(preset).open(&disk);
    let table = db.create_table("t").expect("new");
    for round in 0..6 {
        change(&db, &table, &mut model, &mut random, 1500);
        assert_same(&db.begin_read().expect("free"), &table, &model, "running");
        if round % 2 == 1 {
            db.checkpoint().expect("a whole disk");
        }
    }
    let statistics = db.statistics();
    assert!(statistics.pages < 250, "{} pages are in memory", statistics.pages);
    assert!(statistics.pages_evicted > 1000, "{} pages were evicted", statistics.pages_evicted);
    db.close().expect("closes");
    let db = settings(preset).open(&disk);
    assert_same(&db.begin_read().expect("free"), &db.table("t").expect("there"), &model, "reopened");
    assert_eq!(db.verify(None).expect("runs").problems, Vec::<String>::new());
}

#[test]
fn snapshots_keep_what_they_see_while_its_pages_leave_memory() {
    let disk = SimulatedStorage::new(2);
    let mut random = Random::from_seed(2);
    let mut model = Model::new();
    let db = settings(Preset::Group).open(&disk);
    let table = db.create_table("t").expect("new");
    change(&db, &table, &mut model, &mut random, 2000);
    let mut seen: Vec<(Snapshot, Model)> = Vec::new();
    for round in 0..4 {
        // So few that the versions for the snapshots fit in their memory.
        change(&db, &table, &mut model, &mut random, 40);
        db.flush().expect("a whole disk");
        seen.push((db.begin_read().expect("free"), model.clone()));
        if round % 2 == 0 {
            db.checkpoint().expect("a whole disk");
        }
        for (snapshot, model) in &seen {
            assert_same(snapshot, &table, model, "an older snapshot");
        }
    }
    assert!(db.statistics().pages_evicted > 1000, "{} pages left memory", db.statistics().pages_evicted);
}

#[test]
fn a_crash_loses_nothing_that_left_memory() {
    // An even and an odd seed, so that both kinds of crashes occur.
    for seed in 0..if is_deep() { 12 } else { 2 } {
        let disk = SimulatedStorage::new(seed);
        let mut random = Random::from_seed(seed);
        let mut model = Model::new();
        let db = settings(Preset::Group).open(&disk);
        let table = db.create_table("t").expect("new");
        change(&db, &table, &mut model, &mut random, 2000);
        db.checkpoint().expect("a whole disk");
        change(&db, &table, &mut model, &mut random, 1000 + 100 * seed);
        db.flush().expect("a whole disk");
        disk.stop();
        drop(db);
        let kind = if seed % 2 == 0 { CrashKind::PowerCut } else { CrashKind::Kill };
        let db = settings(Preset::Group).crash(&disk, kind, seed).1;
        let table = db.table("t").expect("there");
        assert_same(&db.begin_read().expect("free"), &table, &model, "after a crash");
        assert_eq!(db.verify(None).expect("runs").problems, Vec::<String>::new());
        change(&db, &table, &mut model, &mut random, 500);
        assert_same(&db.begin_read().expect("free"), &table, &model, "and continues");
    }
}

#[test]
fn continuous_checkpoints_are_exact_while_pages_are_evicted() {
    for seed in spread(4, 1) {
        let (disk, db) = settings(Preset::Autonomous).create(seed);
        let table = db.create_table("t").expect("new");
        let (stop, made) = (AtomicBool::new(false), AtomicU64::new(0));
        let mut model = Model::new();
        std::thread::scope(|scope| {
            let (db, stop, made) = (&db, &stop, &made);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    db.checkpoint().expect("a whole disk");
                    made.fetch_add(1, Ordering::Relaxed);
                }
            });
            let (mut random, few) = (Random::from_seed(seed), || made.load(Ordering::Relaxed) < 2);
            change(db, &table, &mut model, &mut random, 1500);
            (0..100).take_while(|_| few()).for_each(|_| change(db, &table, &mut model, &mut random, 100));
            stop.store(true, Ordering::Relaxed);
            assert!(!few(), "no checkpoints beside so many changes");
        });
        db.flush().expect("a whole disk");
        disk.stop();
        drop(db);
        let db = settings(Preset::Autonomous).crash(&disk, CrashKind::PowerCut, seed).1;
        assert_eq!(db.verify(None).expect("runs").problems, Vec::<String>::new());
        let table = db.table("t").expect("there");
        assert_same(&db.begin_read().expect("free"), &table, &model, "after a crash");
    }
}

#[test]
fn a_transaction_larger_than_memory_is_refused_alone() {
    let db = settings(Preset::Group).open(&SimulatedStorage::new(4));
    let table = db.create_table("t").expect("new");
    let begun = Instant::now();
    let mut tx = db.begin().expect("free");
    let mut random = Random::from_seed(4);
    let refused = (0..20_000).find_map(|_| tx.insert(&table, key(random.below(1 << 40)), [7; 600]).err());
    let error = refused.expect("a pool of a few dozen pages");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    tx.abort();
    db.transact(|tx| tx.insert(&table, "small", "fits")).expect("memory is free again");
    assert_eq!(db.begin_read().expect("free").range(&table, ..).count(), 1);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

/// Regression: while no page could be evicted, the evictor scanned every page each millisecond,
/// even if no thread needed memory.
#[test]
fn who_evicts_sleeps_while_nothing_can_leave_and_nobody_asks() {
    let db = settings(Preset::Group).open(&SimulatedStorage::new(7));
    let table = db.create_table("t").expect("new");
    let mut tx = db.begin().expect("free");
    let mut random = Random::from_seed(4);
    let refused = (0..20_000).find_map(|_| tx.insert(&table, key(random.below(1 << 40)), [7; 600]).err());
    assert_eq!(refused.expect("a pool of a few dozen pages").kind(), ErrorKind::OutOfMemory);
    let passes = || db.statistics().evictions_in_vain;
    assert!(passes() > 0);
    // Without the fix there are hundreds each time. Occasional requests cause a few, and a
    // checkpoint in progress causes many.
    let quiet = (0..30).any(|_| {
        let before = passes();
        std::thread::sleep(Duration::from_millis(300));
        passes() - before <= 20
    });
    assert!(quiet, "{} passes", passes());
}

#[test]
fn a_long_scan_reads_many_pages_at_once_in_both_directions() {
    let disk = SimulatedStorage::new(5);
    // One page per block, so that bytes read show the number of pages.
    let compression = Compression::None;
    let settings = || {
        settings(Preset::Group).with(|s| {
            s.memory_bytes = 8 << 20;
            s.compression = compression;
        })
    };
    let open = || settings().open(&disk);
    {
        let db = open();
        let table = db.create_table("t").expect("new");
        for n in (0..40_000).step_by(100) {
            db.transact(|tx| (n..n + 100).try_for_each(|n| tx.insert(&table, key(n), [7; 400])))
                .expect("room");
        }
        db.close().expect("closes");
    }
    for back in [false, true] {
        let db = open();
        let table = db.table("t").expect("there");
        let snapshot = db.begin_read().expect("free");
        let before = db.statistics();
        let mut range = snapshot.range(&table, ..);
        let mut found = Vec::new();
        while let Some(row) = if back { range.next_back() } else { range.next() } {
            found.push(row.expect("readable").0);
        }
        if back {
            found.reverse();
        }
        assert!(found == (0..40_000).map(key).collect::<Vec<_>>());
        let after = db.statistics();
        let pages = (after.store_read_bytes - before.store_read_bytes) / after.page_bytes;
        let reads = after.store_reads - before.store_reads;
        assert!(pages > 3000, "{pages} pages of more than the memory");
        // How many pages are read ahead depends on thread scheduling.
        assert!(reads < pages - pages / 10, "{reads} reads of {pages} pages");
    }
}

#[test]
fn a_long_scan_evicts_few_pages_and_sees_one_moment() {
    let disk = SimulatedStorage::new(21);
    let settings = settings(Preset::Group).with(|s| s.memory_bytes = 4 << 20);
    let db = settings.open(&disk);
    let table = db.create_table("t").expect("new");
    // Every row holds the number of the round in which all rows were last written.
    let rows = 60_000u64;
    let write = |round: u64, step: usize| {
        for first in (0..rows).step_by(600) {
            let rows = (first..first + 600).step_by(step);
            let value = |n: u64| [&n.to_le_bytes()[..], &round.to_le_bytes(), &[7; 150]].concat();
            let written =
                db.transact(|tx| rows.clone().try_for_each(|n| tx.insert(&table, key(n), value(n))));
            // The scan's snapshot keeps the versions that are replaced meanwhile.
            assert!(
                written.is_ok() || round > 0 && written.is_err_and(|e| e.kind() == ErrorKind::OutOfMemory)
            );
        }
    };
    write(0, 1);
    db.checkpoint().expect("runs");
    let scan = |back: bool| {
        let snapshot = db.begin_read().expect("free");
        let mut range = snapshot.range(&table, ..);
        let mut count = 0;
        while let Some(row) = if back { range.next_back() } else { range.next() } {
            let (found, value) = row.expect("readable");
            let n = if back { rows - 1 - count } else { count };
            assert_eq!(found, key(n), "no row is left out or there twice");
            assert_eq!(value[..8], n.to_le_bytes());
            assert!(n % 3 == 0 || value[8..16] == [0; 8]);
            count += 1;
        }
        assert_eq!(count, rows);
    };
    let before = db.statistics();
    scan(false);
    scan(true);
    let after = db.statistics();
    let (copied, left) =
        (after.pages_copied - before.pages_copied, after.pages_evicted - before.pages_evicted);
    assert!(copied > 2000 && left < copied / 2, "{copied} copied, and {left} pages had to leave memory");
    // Now beside a thread that writes every third row again and again.
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                write(round, 3);
            }
        });
        let scans = catch_unwind(AssertUnwindSafe(|| (0..6).for_each(|round| scan(round % 2 == 0))));
        over.store(true, Ordering::Relaxed);
        scans.unwrap_or_else(|panic| resume_unwind(panic));
    });
    assert!(db.statistics().pages_copied > after.pages_copied + 1000);
    assert_eq!(db.verify(None).expect("runs").problems, Vec::<String>::new());
}

#[test]
fn rows_that_were_announced_need_no_reads_and_are_what_they_are() {
    let disk = SimulatedStorage::new(7);
    let settings = settings(Preset::Group).with(|s| s.memory_bytes = 8 << 20);
    let builder = || settings.on(&disk);
    {
        let db = builder().open("x").expect("opens");
        let table = db.create_table("t").expect("new");
        for first in (0..40_000).step_by(100) {
            let rows = first..first + 100;
            db.transact(|tx| rows.clone().try_for_each(|n| tx.insert(&table, key(n), [n as u8; 400])))
                .expect("room");
        }
        db.close().expect("closes");
    }
    let db = builder().open("x").expect("opens");
    let table = db.table("t").expect("there");
    let mut random = Random::from_seed(7);
    for round in 0..20 {
        // Some do not exist. So many that all their pages fit.
        let wanted: Vec<u64> = (0..60).map(|_| random.below(44_000)).collect();
        let keys: Vec<_> = wanted.iter().map(|n| key(*n)).collect();
        let mut tx = db.begin_with(Durability::Lazy).expect("begins");
        let snapshot = db.begin_read().expect("free");
        if round % 2 == 0 { tx.prefetch(&table, &keys) } else { snapshot.prefetch(&table, &keys) }
            .expect("readable");
        let before = db.statistics().store_reads;
        for n in &wanted {
            let found = tx.get(&table, key(*n)).expect("readable");
            assert_eq!(found.map(|value| value[0]), (*n < 40_000).then_some(*n as u8));
        }
        assert_eq!(db.statistics().store_reads, before, "round {round}");
        if round % 3 == 0 {
            wanted.iter().for_each(|n| tx.insert(&table, key(*n), [*n as u8; 400]).expect("room"));
            wanted.iter().filter(|n| **n >= 40_000).for_each(|n| {
                tx.remove(&table, key(*n)).expect("room");
            });
            tx.commit().expect("commits");
        }
    }
    let snapshot = db.begin_read().expect("free");
    snapshot.prefetch(&table, std::iter::empty::<&[u8]>()).expect("nothing to do");
    // More than memory holds: the rest is read later.
    snapshot.prefetch(&table, (0..40_000).step_by(8).map(key)).expect("readable");
    let statistics = db.statistics();
    assert!(statistics.pages <= statistics.pages_max, "{statistics:?}");
    assert_eq!(snapshot.range(&table, ..).count(), 40_000);
}

/// Threads that prefetch and change rows all over the table, with too little memory for all
/// prefetched rows.
#[test]
fn announcing_rows_in_a_tiny_memory_changes_nothing() {
    let disk = SimulatedStorage::new(8);
    // A little more than elsewhere: versions count until they are freed, and threads of other
    // tests, which share the epochs, delay this.
    let settings = settings(Preset::Group).with(|s| s.memory_bytes = 3 << 19);
    let db = settings.open(&disk);
    let table = db.create_table("t").expect("new");
    for first in (0..12_000).step_by(50) {
        let rows = first..first + 50;
        db.transact(|tx| rows.clone().try_for_each(|n| tx.insert(&table, key(n), [1; 200]))).expect("room");
    }
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                let mut random = Random::from_seed(thread);
                for _ in 0..60 {
                    // Each thread has its own rows, so that there is no conflict.
                    let keys: Vec<_> = (0..40).map(|_| key(random.below(3000) * 4 + thread)).collect();
                    let mut tx = db.begin_with(Durability::Lazy).expect("begins");
                    tx.prefetch(table, &keys).expect("readable");
                    for (n, key) in keys.iter().enumerate() {
                        assert!(tx.get(table, key).expect("readable").is_some());
                        // Uncommitted rows have to stay in memory.
                        if n < 8 {
                            tx.insert(table, key, [2; 200]).expect("room");
                        }
                    }
                    tx.commit().expect("commits");
                }
            });
        }
    });
    assert_eq!(db.begin_read().expect("free").range(&table, ..).count(), 12_000);
    assert_eq!(db.verify(None).expect("runs").problems, Vec::<String>::new());
}

/// Regression: one transaction's changes left so little memory that each page of a descent evicted
/// the one before it. The descent never ended. Because pages did come and go, no waiter for memory
/// gave up either.
#[test]
fn a_transaction_that_leaves_no_room_for_a_descent_ends() {
    let disk = SimulatedStorage::new(1);
    let db = Arc::new(settings(Preset::Group).open(&disk));
    let table = db.create_table("t").expect("new");
    // Few rows in a leaf.
    let key = |n: u64| format!("{n:08}").into_bytes();
    for first in (0..3000).step_by(10) {
        let mut tx = db.begin_with(Durability::Lazy).expect("begins");
        (first..first + 10).for_each(|n| tx.insert(&table, key(n), [7; 450]).expect("room"));
        tx.commit().expect("commits");
    }
    let (send, receive) = std::sync::mpsc::channel();
    let thread = {
        let (db, table) = (db.clone(), table.clone());
        std::thread::spawn(move || {
            for step in [100, 37, 11] {
                let mut tx = db.begin().expect("begins");
                let removed = (0..3000).step_by(step).try_for_each(|n| tx.remove(&table, key(n)).map(drop));
                match removed {
                    Err(error) => assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}"),
                    Ok(()) => assert!(step > 11, "more than fits in memory"),
                }
                drop(tx);
                let _ = send.send(step);
            }
        })
    };
    for _ in 0..3 {
        receive.recv_timeout(Duration::from_secs(60)).expect("it waits for ever");
    }
    thread.join().expect("as expected");
    assert_eq!(content(&db.begin_read().expect("free"), &table).len(), 3000, "nothing was removed");
}

/// Writes compressible rows, several times what fits in memory, again and again.
fn bytes_of_rows(compression: Compression) -> (u64, u64) {
    let disk = SimulatedStorage::new(6);
    let settings = || settings(Preset::Group).with(|s| s.compression = compression);
    let open = || settings().open(&disk);
    let db = open();
    let table = db.create_table("t").expect("new");
    let mut random = Random::from_seed(6);
    let mut model = Model::new();
    change(&db, &table, &mut model, &mut random, 3000);
    for _ in 0..if is_deep() { 4 } else { 1 } {
        change(&db, &table, &mut model, &mut random, 1500);
        db.checkpoint().expect("a whole disk");
    }
    let packs = db.statistics().packs;
    assert_eq!(packs.images_packed > 200, compression != Compression::None, "{packs:?}");
    assert!(packs.bytes_after * 3 / 2 <= packs.bytes_before, "{packs:?}");
    db.close().expect("closes");
    // Another compression setting still reads everything.
    let other = if compression == Compression::None { Compression::Lz4 } else { Compression::None };
    let settings = settings().with(|s| s.compression = other);
    let db = settings.open(&disk);
    let table = db.table("t").expect("there");
    let statistics = db.statistics();
    assert_same(&db.begin_read().expect("free"), &table, &model, "reopened");
    db.compact(None).expect("compacts");
    assert_same(&db.begin_read().expect("free"), &table, &model, "compacted");
    assert_eq!(db.verify(None).expect("runs").problems, Vec::<String>::new());
    let logical = model.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum();
    (statistics.store_bytes - statistics.store_free_bytes, logical)
}

#[test]
fn compressed_rows_take_clearly_less_space() {
    let (plain, logical) = bytes_of_rows(Compression::None);
    let (packed, _) = bytes_of_rows(Compression::Lz4);
    println!("{logical} bytes of rows take {plain} bytes plain, {packed} packed");
    assert!(packed < plain / 3 * 2, "{packed} of {plain}");
}

#[test]
fn a_dropped_snapshot_returns_the_memory_for_versions() {
    let disk = SimulatedStorage::new(7);
    let settings = settings(Preset::Group).with(|s| {
        s.memory_bytes = 8 << 20;
        s.log_bytes_max = 128 << 20;
    });
    let db = settings.open(&disk);
    let table = db.create_table("t").expect("new");
    let put = |rows: std::ops::Range<u64>, byte: u8| {
        let mut tx = db.begin_with(Durability::BoundedLoss).expect("free");
        rows.into_iter().try_for_each(|row| tx.insert(&table, key(row), [byte; 300]))?;
        tx.commit().map(drop)
    };
    const ROWS: u64 = 40_000;
    (0..ROWS).step_by(100).for_each(|row| put(row..row + 100, 0).expect("room"));
    let snapshot = db.begin_read().expect("free");
    let refused = (0..ROWS).step_by(20).find_map(|row| put(row..row + 20, 1).err()).expect("2 MiB are full");
    assert_eq!(refused.kind(), ErrorKind::OutOfMemory);
    let full = db.statistics();
    assert!(full.version_bytes > 7 << 18 && full.pages_evicted > 0, "{full:?}");
    drop(snapshot);
    let begun = Instant::now();
    let mut rows = (0..ROWS).step_by(20).cycle();
    loop {
        let row = rows.next().expect("for ever");
        put(row..row + 20, 2).expect("no snapshot needs older versions");
        // At least half: slots stay, and there are new versions.
        let after = db.statistics();
        if after.pages_max >= full.pages_max + (1 << 20) / 4096 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "pages do not get it: {after:?}");
    }
}

/// Regression: several threads change rows all over the table, and uncommitted rows take nearly all
/// memory. A descent that repeatedly lost its pages to other threads read a thousand pages before
/// it was refused. This took seconds.
#[test]
fn threads_that_evict_each_other_progress_or_are_refused() {
    const THREADS: u64 = 4;
    const ROWS: u64 = 8000;
    let db = settings(Preset::Group).open(&SimulatedStorage::new(9));
    let table = db.create_table("t").expect("new");
    for first in (0..ROWS).step_by(20) {
        db.transact(|tx| (first..first + 20).try_for_each(|n| tx.insert(&table, key(n), [1; 700])))
            .expect("room");
    }
    let (db, table) = (&db, &table);
    // Returns the number of calls and the longest call.
    let work = |thread: u64| {
        let mut random = Random::from_seed(thread);
        let (mut calls, mut longest) = (0, Duration::ZERO);
        for _ in 0..40 {
            let mut tx = db.begin_with(Durability::BoundedLoss).expect("begins");
            for _ in 0..20 + random.below(50) {
                let key = key(random.below(ROWS / THREADS) * THREADS + thread);
                let begun = Instant::now();
                let done = match random.below(3) {
                    0 => tx.get(table, &key).map(|value| assert!(value.is_some())),
                    _ => tx.insert(table, &key, [2; 700]),
                };
                (calls, longest) = (calls + 1, longest.max(begun.elapsed()));
                if let Err(error) = done {
                    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
                    break;
                }
            }
            if random.chance(1, 2) {
                tx.commit().expect("commits");
            }
        }
        (calls, longest)
    };
    let before = db.statistics().store_reads;
    let found: Vec<(u64, Duration)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let reads = db.statistics().store_reads - before;
    let calls: u64 = found.iter().map(|(calls, _)| calls).sum();
    println!(
        "{reads} reads for {calls} calls, the longest: {:?}",
        found.iter().map(|(_, longest)| longest).max()
    );
    // About seven each; without fairness tickets more than eighty.
    assert!(reads < 30 * calls, "{reads} reads for {calls} calls");
}
