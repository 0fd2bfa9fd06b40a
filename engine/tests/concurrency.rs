//! What transactions of many threads may and may not see of each other.

use crate::support::test_database::TestDatabase;
use crate::support::{Model, in_time};
use quenchdb::internals::base::depth::is_deep;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::{
    Database, Durability, ErrorKind, Isolation, Preset, Result, Settings, Snapshot, Table, Transaction,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};

fn settings(preset: Preset) -> Settings {
    Settings::default().with(|s| {
        s.preset = preset;
        // Memory for versions that a descheduled reader keeps.
        s.memory_bytes = 64 << 20;
        s.segment_bytes = 256 << 10;
        s.log_bytes_max = 16 << 20;
        s.lab.checkpoint_log_bytes = 0;
        s.lock_wait = Duration::from_millis(50);
    })
}

fn number(bytes: Option<Vec<u8>>) -> u64 {
    bytes.map_or(0, |bytes| u64::from_be_bytes(bytes[..].try_into().expect("eight bytes")))
}

/// Runs `step` until it commits, and retries conflicts.
fn until_committed(db: &Database, durability: Durability, step: impl Fn(&mut Transaction) -> Result<()>) {
    loop {
        let mut tx = db.begin_with(durability).expect("free");
        match step(&mut tx).and_then(|()| tx.commit().map(drop)) {
            Ok(()) => return,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
}

pub fn no_update_is_lost_with_threads_on_one_counter(preset: Preset) {
    in_time("the test", 300, move || {
        let db = settings(preset).open(&SimulatedStorage::new(1));
        let table = db.create_table("t").expect("new");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (db, table) = (&db, &table);
                scope.spawn(move || {
                    for n in 0..250 {
                        let durability =
                            if n % 4 == 0 { Durability::Durable } else { Durability::BoundedLoss };
                        until_committed(db, durability, |tx| {
                            let key = [(n % 3) as u8];
                            let old = number(if thread % 2 == 0 {
                                tx.get(table, key)?
                            } else {
                                tx.get_for_update(table, key)?
                            });
                            tx.insert(table, key, (old + 1).to_be_bytes())
                        });
                    }
                });
            }
        });
        let snapshot = db.begin_read().expect("free");
        let sum: u64 = (0..3u8).map(|key| number(snapshot.get(&table, [key]).expect("readable"))).sum();
        assert_eq!(sum, 1000, "{preset:?}");
    });
}

#[test]
fn snapshot_isolation_allows_write_skew_and_locks_prevent_it() {
    let db = settings(Preset::Group).open_in_memory();
    let table = db.create_table("on duty").expect("new");
    for lock in [false, true] {
        db.transact(|tx| ["anna", "bert"].iter().try_for_each(|who| tx.insert(&table, who, "yes")))
            .expect("commits");
        let both = Barrier::new(2);
        let left: u32 = std::thread::scope(|scope| {
            let leave = |who: &'static str, other: &'static str| {
                let (db, table, both) = (&db, &table, &both);
                scope.spawn(move || {
                    let mut tx = db.begin().expect("free");
                    assert!(tx.get(table, other).expect("readable").is_some());
                    both.wait();
                    if lock {
                        tx.get_for_update(table, other)?;
                    }
                    tx.remove(table, who)?;
                    tx.commit().map(drop)
                })
            };
            let threads = [leave("anna", "bert"), leave("bert", "anna")];
            threads
                .into_iter()
                .map(|thread| match thread.join().expect("no panic") {
                    Ok(()) => 1,
                    Err(error) => {
                        assert!(error.is_retryable(), "{error}");
                        0
                    }
                })
                .sum()
        });
        let there = db.begin_read().expect("free").range(&table, ..).count() as u32;
        assert_eq!(there, 2 - left, "what was committed is what is there");
        if lock {
            assert!(there >= 1, "a read that was locked cannot change")
        } else {
            assert_eq!(there, 0, "skew is allowed")
        }
    }
}

const ACCOUNTS: u32 = 40;
const MONEY: u64 = 1000;

fn total(snapshot: &Snapshot, tables: &[Table; 2]) -> u64 {
    let mut sum = 0;
    let mut rows = 0;
    for table in tables {
        for row in snapshot.range(table, ..) {
            sum += number(Some(row.expect("readable").1));
            rows += 1;
        }
    }
    assert_eq!(rows, 2 * ACCOUNTS);
    sum
}

/// Moves money from an account in one table to an account in the other.
fn transfer(db: &Database, tables: &[Table; 2], durability: Durability, random: &mut Random) {
    let [a, b] = [0; 2].map(|_| (random.below(ACCOUNTS.into()) as u32).to_be_bytes());
    let (amount, way) = (random.below(20), random.below(2) as usize);
    let (source, target) = (&tables[way], &tables[1 - way]);
    until_committed(db, durability, |tx| {
        let from = number(tx.get(source, a)?);
        let to = number(tx.get(target, b)?);
        let amount = amount.min(from);
        tx.insert(source, a, (from - amount).to_be_bytes())?;
        tx.insert(target, b, (to + amount).to_be_bytes())
    });
}

pub fn readers_see_transfers_whole_beside_checkpoints(preset: Preset) {
    in_time("the test", 300, move || {
        let (disk, db) = settings(preset).create(9);
        let tables = ["a", "b"].map(|name| db.create_table(name).expect("new"));
        db.transact(|tx| {
            (0..ACCOUNTS).try_for_each(|i| {
                tables.iter().try_for_each(|table| tx.insert(table, i.to_be_bytes(), MONEY.to_be_bytes()))
            })
        })
        .expect("commits");
        let expected = 2 * u64::from(ACCOUNTS) * MONEY;
        let end = Instant::now() + Duration::from_millis(if is_deep() { 1500 } else { 300 });
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let (db, tables) = (&db, &tables);
                scope.spawn(move || {
                    let mut random = Random::from_seed(thread);
                    while Instant::now() < end {
                        let durability =
                            if thread == 0 { Durability::Durable } else { Durability::BoundedLoss };
                        transfer(db, tables, durability, &mut random);
                    }
                });
            }
            for _ in 0..2 {
                let (db, tables) = (&db, &tables);
                scope.spawn(move || {
                    while Instant::now() < end {
                        let snapshot = db.begin_read().expect("free");
                        assert_eq!(total(&snapshot, tables), expected, "{preset:?}");
                        assert_eq!(total(&snapshot, tables), expected, "{preset:?}, a second time");
                    }
                });
            }
            let db = &db;
            scope.spawn(move || {
                for made in 0.. {
                    if made > 2 && Instant::now() >= end {
                        return;
                    }
                    db.checkpoint().expect("a whole disk");
                }
            });
        });
        disk.stop();
        drop(db);
        for seed in 0..6 {
            let kind = if seed % 2 == 0 { CrashKind::PowerCut } else { CrashKind::Kill };
            let at = disk.operations() - seed as usize * disk.operations() / 20;
            let crashed = disk.crash(kind, at, seed);
            let db = settings(preset).open(&crashed);
            let tables = ["a", "b"].map(|name| db.table(name).expect("there"));
            assert_eq!(
                total(&db.begin_read().expect("free"), &tables),
                expected,
                "{preset:?}, {kind:?} at {at}"
            );
            crashed.stop();
        }
    });
}

pub fn asynchronous_commits_may_be_waited_for_in_other_threads(preset: Preset) {
    in_time("the test", 300, move || {
        let (disk, db) = settings(preset).create(2);
        let table = db.create_table("t").expect("new");
        let waited = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let (send, receive) = mpsc::channel::<(u64, quenchdb::CommitHandle)>();
            let receive = Arc::new(Mutex::new(receive));
            for writer in 0..2u64 {
                let (db, table, send) = (&db, &table, send.clone());
                scope.spawn(move || {
                    for n in 0..400 {
                        let id = n * 2 + writer;
                        let mut tx = db.begin().expect("free");
                        tx.insert(table, id.to_be_bytes(), "x").expect("free row");
                        send.send((id, tx.commit_async().expect("commits"))).expect("received");
                    }
                });
            }
            drop(send);
            for _ in 0..3 {
                let (receive, waited, disk) = (receive.clone(), &waited, &disk);
                scope.spawn(move || {
                    loop {
                        let next = receive.lock().expect("no panic").recv();
                        let Ok((id, handle)) = next else { return };
                        if id % 3 == 0 {
                            while !handle.wait_timeout(Duration::from_millis(1)).expect("a whole disk") {}
                        } else {
                            handle.wait().expect("a whole disk");
                        }
                        assert!(handle.is_committed());
                        waited.lock().expect("no panic").push((disk.operations(), id));
                    }
                });
            }
        });
        disk.stop();
        drop(db);
        let waited = waited.into_inner().expect("no panic");
        assert_eq!(waited.len(), 800);
        for seed in 0..5 {
            let at = disk.operations() * (seed as usize + 1) / 5;
            let crashed = disk.crash(CrashKind::PowerCut, at, seed);
            let db = settings(preset).open(&crashed);
            let Ok(table) = db.table("t") else { continue };
            let snapshot = db.begin_read().expect("free");
            for (_, id) in waited.iter().filter(|(operations, _)| *operations <= at) {
                assert!(
                    snapshot.get(&table, id.to_be_bytes()).expect("readable").is_some(),
                    "{preset:?}: {id} is lost"
                );
            }
            crashed.stop();
        }
    });
}

/// A value ends in `!` only if its transaction is going to abort.
pub fn nobody_reads_what_is_aborted(preset: Preset) {
    in_time("the test", 300, move || {
        let (disk, db) = settings(preset).create(5);
        let table = db.create_table("t").expect("new");
        let end = Instant::now() + Duration::from_millis(if is_deep() { 1200 } else { 300 });
        let check = |row: Option<Vec<u8>>| {
            assert!(row.is_none_or(|row| !row.ends_with(b"!")), "{preset:?}: an aborted value was read")
        };
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let (db, table) = (&db, &table);
                scope.spawn(move || {
                    let mut random = Random::from_seed(thread);
                    while Instant::now() < end {
                        let mut tx = db.begin_with(Durability::BoundedLoss).expect("free");
                        let aborts = random.chance(2, 3);
                        let savepoint = random.chance(1, 3).then(|| tx.savepoint());
                        let mut wrote = Ok(());
                        for _ in 0..random.below(5) {
                            let key = [random.below(30) as u8];
                            let mark = if aborts || savepoint.is_some() { "!" } else { "" };
                            let value = "v".repeat(random.below(120) as usize) + mark;
                            wrote = wrote.and_then(|()| {
                                if random.chance(1, 5) {
                                    tx.remove(table, key).map(drop)
                                } else {
                                    tx.insert(table, key, value)
                                }
                            });
                        }
                        match wrote {
                            Err(error) => assert!(error.is_retryable(), "{error}"),
                            Ok(()) if aborts => {
                                if random.chance(1, 2) {
                                    tx.abort()
                                }
                            }
                            Ok(()) => {
                                savepoint
                                    .map_or(Ok(()), |savepoint| tx.rollback_to(savepoint))
                                    .expect("own savepoint");
                                tx.commit().expect("commits");
                            }
                        }
                    }
                });
            }
            for reader in 0..2u64 {
                let (db, table) = (&db, &table);
                scope.spawn(move || {
                    let mut random = Random::from_seed(100 + reader);
                    while Instant::now() < end {
                        let key = [random.below(30) as u8];
                        match random.below(4) {
                            0 => check(db.begin_read().expect("free").get(table, key).expect("readable")),
                            1 => db
                                .begin_read()
                                .expect("free")
                                .range(table, ..)
                                .for_each(|row| check(Some(row.expect("readable").1))),
                            2 => {
                                let tx = db.begin_with(Isolation::ReadCommitted).expect("free");
                                check(tx.get(table, key).expect("readable"));
                                tx.range(table, ..)
                                    .rev()
                                    .for_each(|row| check(Some(row.expect("readable").1)));
                            }
                            _ => drop(db.checkpoint().expect("a whole disk")),
                        }
                    }
                });
            }
        });
        disk.stop();
        drop((db, table));
        let db = settings(preset).crash(&disk, CrashKind::Kill, 1).1;
        let table = db.table("t").expect("there");
        db.begin_read()
            .expect("free")
            .range(&table, ..)
            .for_each(|row| check(Some(row.expect("readable").1)));
    });
}

const KEYS: u32 = 600;

/// Each thread owns the keys of one residue and knows their exact content. Ranges run over all keys
/// in both directions.
pub fn deletes_and_inserts_and_ranges_agree_with_an_exact_model(preset: Preset) {
    in_time("the test", 300, move || {
        let db = settings(preset).open(&SimulatedStorage::new(6));
        let table = db.create_table("t").expect("new");
        let threads = 3u32;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|me| {
                    let (db, table) = (&db, &table);
                    scope.spawn(move || owner(db, table, me, threads))
                })
                .collect();
            let (db, table, stop) = (&db, &table, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    // Both directions, and both ends at once, give the same rows in one
                    // snapshot.
                    let snapshot = db.begin_read().expect("free");
                    let all = |rows: &mut dyn Iterator<Item = Result<(Vec<u8>, Vec<u8>)>>| {
                        rows.map(|row| row.expect("readable")).collect::<Vec<_>>()
                    };
                    let forward = all(&mut snapshot.range(table, ..));
                    let mut backward = all(&mut snapshot.range(table, ..).rev());
                    backward.reverse();
                    assert!(forward == backward, "{preset:?}: the two directions disagree");
                    assert!(forward.is_sorted_by(|a, b| a.0 < b.0));
                    let mut ends = snapshot.range(table, ..);
                    let (mut low, mut high) = (Vec::new(), Vec::new());
                    while let Some(row) = ends.next() {
                        low.push(row.expect("readable"));
                        high.extend(ends.next_back().map(|row| row.expect("readable")));
                    }
                    low.extend(high.into_iter().rev());
                    assert!(low == forward, "{preset:?}: both ends at once disagree");
                    for (key, value) in forward.iter().step_by(37) {
                        assert_eq!(snapshot.get(table, key).expect("readable").as_ref(), Some(value));
                    }
                    if forward.len() % 7 == 0 {
                        db.checkpoint().expect("a whole disk");
                    }
                }
            });
            let models: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            stop.store(true, Ordering::Relaxed);
            let mut expected = BTreeMap::new();
            models.into_iter().for_each(|model| expected.extend(model.expect("no panic")));
            let found: BTreeMap<_, _> =
                db.begin_read().expect("free").range(table, ..).map(|row| row.expect("readable")).collect();
            assert!(found == expected, "{preset:?}: not what was committed");
        });
        assert!(db.verify(None).expect("runs").problems.is_empty());
    });
}

fn owner(db: &Database, table: &Table, me: u32, threads: u32) -> Model {
    let mut random = Random::from_seed(me.into());
    let mut model = Model::new();
    let mine = |key: &[u8]| u32::from_be_bytes(key[..4].try_into().expect("four bytes")) % threads == me;
    let end = Instant::now() + Duration::from_millis(if is_deep() { 1500 } else { 300 });
    let mut round = 0;
    // Runs longer if the machine is busy.
    while Instant::now() < end || round <= 10 {
        round += 1;
        let mut tx = db.begin_with(Durability::BoundedLoss).expect("free");
        let mut next = model.clone();
        let emptying = round / 20 % 2 == 1;
        for _ in 0..1 + random.below(20) {
            let key = (random.below((KEYS / threads).into()) as u32 * threads + me).to_be_bytes().to_vec();
            if random.chance(if emptying { 4 } else { 1 }, 5) {
                assert_eq!(tx.remove(table, &key).expect("own row"), next.remove(&key).is_some());
            } else {
                let value = vec![round as u8; random.below(300) as usize];
                tx.insert(table, &key, &value).expect("own row");
                next.insert(key, value);
            }
        }
        // A transaction sees its own changes in both directions before it commits.
        let start = (random.below(KEYS.into()) as u32).to_be_bytes();
        let back = random.chance(1, 2);
        let range = tx.range(table, &start[..]..);
        let rows: Vec<_> = if back { range.rev().collect() } else { range.collect() };
        let mut rows: Vec<_> =
            rows.into_iter().map(|row| row.expect("readable")).filter(|row| mine(&row.0)).collect();
        if back {
            rows.reverse();
        }
        let expected: Vec<_> =
            next.range(start.to_vec()..).map(|(key, value)| (key.clone(), value.clone())).collect();
        assert!(
            rows == expected,
            "thread {me}, round {round}, back {back}: {} rows, expected {}",
            rows.len(),
            expected.len()
        );
        if random.chance(1, 5) {
            tx.abort();
        } else {
            tx.commit().expect("own rows");
            model = next;
        }
    }
    model
}

#[test]
fn a_deadlock_ends_for_one_of_two_transactions() {
    in_time("the test", 300, || {
        let db = settings(Preset::Group).open_in_memory();
        let table = db.create_table("t").expect("new");
        let both = Barrier::new(2);
        let won: u32 = std::thread::scope(|scope| {
            let threads = [("a", "b"), ("b", "a")].map(|(first, second)| {
                let (db, table, both) = (&db, &table, &both);
                scope.spawn(move || {
                    let mut tx = db.begin().expect("free");
                    tx.insert(table, first, "x").expect("free row");
                    both.wait();
                    match tx.insert(table, second, "x").and_then(|()| tx.commit().map(drop)) {
                        Ok(()) => 1,
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}");
                            0
                        }
                    }
                })
            });
            threads.map(|thread| thread.join().expect("no panic")).iter().sum()
        });
        assert_eq!(won, 1, "one of the two is aborted, and no more");
    });
}

#[test]
fn waits_for_rows_and_the_way_into_the_log_are_counted() {
    in_time("the test", 300, || {
        let db = settings(Preset::Group).open_in_memory();
        let table = db.create_table("t").expect("new");
        for _ in 0..64 {
            until_committed(&db, Durability::Lazy, |tx| tx.insert(&table, "row", "0"));
        }
        let alone = db.statistics();
        assert_eq!((alone.row_waits, alone.row_wait_seconds), (0, 0.0));
        assert!(alone.log_insert_us_mean > 0.0);
        let mut holder = db.begin().expect("free");
        holder.insert(&table, "row", "1").expect("free row");
        let waited = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| db.begin().expect("free").insert(&table, "row", "2"));
            waiter.join().expect("no panic")
        });
        assert_eq!(waited.expect_err("the row is held").kind(), ErrorKind::LockTimeout);
        let statistics = db.statistics();
        assert_eq!((statistics.row_waits, statistics.conflicts), (1, 1));
        assert!(statistics.row_wait_seconds >= 0.05, "{}", statistics.row_wait_seconds);
        db.reset_statistics();
        let forgotten = db.statistics();
        assert_eq!((forgotten.row_waits, forgotten.log_insert_us_mean), (0, 0.0));
    });
}

/// The log is so small that a transaction is aborted if its thread is off the CPU while others fill
/// the log.
fn insert_again_if_given_up(db: &Database, table: &Table, key: [u8; 2], value: &[u8]) {
    for _ in 0..100 {
        match db.transact(|tx| tx.insert(table, key, value)) {
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {}
            ended => return ended.expect("room comes"),
        }
    }
    panic!("given up a hundred times");
}

/// Regression: a record larger than a log buffer gets a buffer of its own. While it waited for
/// space, small records used that buffer up, and the large record waited forever.
#[test]
fn large_records_and_small_ones_share_a_log_that_is_often_full() {
    in_time("the test", 300, || {
        let settings = settings(Preset::Group).with(|s| {
            s.memory_bytes = 16 << 20;
            s.lab.log_buffer_bytes = 64 << 10;
            s.segment_bytes = 64 << 10;
            s.log_bytes_max = 1 << 20;
            s.lab.transaction_bytes_max = 128 << 10;
            s.lab.checkpoint_log_bytes = 128 << 10;
        });
        let storage = Arc::new(SimulatedStorage::new(7));
        let db = Database::builder().settings(settings).storage(storage).open("x").expect("opens");
        let table = db.create_table("t").expect("new");
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let (db, table) = (&db, &table);
                scope.spawn(move || {
                    for n in 0..120u8 {
                        let len = if thread % 2 == 0 { 80 << 10 } else { 300 };
                        insert_again_if_given_up(db, table, [thread, n % 4], &vec![n; len]);
                    }
                });
            }
        });
        assert_eq!(db.begin_read().expect("free").range(&table, ..).count(), 16);
    });
}
