//! Transactions whose redo does not fit in memory: it goes to the log in chunks while they run.

use crate::support::test_database::{TestDatabase, tiny};
use crate::support::{Model, rows};
use quenchdb::internals::base::depth::is_deep;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::memory::MemoryStorage;
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::{Database, Durability, ErrorKind, Preset, Settings, Table, Transaction};
use std::sync::Arc;

fn settings() -> Settings {
    tiny(16 << 20).with(|s| {
        s.lab.chunk_bytes = 512;
        s.lab.flush_unit_bytes = 0;
    })
}

fn crashed(storage: &SimulatedStorage, kind: CrashKind, seed: u64) -> SimulatedStorage {
    storage.crash(kind, storage.operations(), seed)
}

fn check(db: &Database, expected: &Model, context: &str) {
    assert!(rows(db, "t") == *expected, "{context}: the content is not what was committed");
    let report = db.verify(None).expect("runs");
    assert_eq!(report.problems, Vec::<String>::new(), "{context}");
}

/// Makes random changes in a transaction and in its model, with savepoints and large values.
fn long_transaction(tx: &mut Transaction, table: &Table, model: &mut Model, random: &mut Random, steps: u64) {
    let mut savepoints = Vec::new();
    for _ in 0..steps {
        let key = vec![b'k', random.below(200) as u8];
        match random.below(12) {
            0 => savepoints.push((tx.savepoint(), model.clone())),
            1 if !savepoints.is_empty() => {
                let at = random.below(savepoints.len() as u64) as usize;
                savepoints.truncate(at + 1);
                let (savepoint, then) = savepoints.pop().expect("one at least");
                tx.rollback_to(savepoint).expect("its own");
                *model = then;
            }
            2 => {
                tx.remove(table, &key).expect("room");
                model.remove(&key);
            }
            3 => {
                let value = vec![random.below(256) as u8; 3000 + random.below(9000) as usize];
                tx.insert_from(table, &key, &value[..]).expect("room");
                model.insert(key, value);
            }
            _ => {
                let len = random.below(300) as usize;
                let value = vec![random.below(256) as u8; len];
                tx.insert(table, &key, &value).expect("room");
                model.insert(key, value);
            }
        }
    }
}

#[test]
fn long_transactions_survive_whole_or_not_at_all() {
    for seed in 0..24 {
        let mut random = Random::from_seed(seed);
        let preset = Preset::ALL[seed as usize % Preset::ALL.len()];
        let settings = settings().with(|s| s.preset = preset);
        let context = format!("seed {seed}, {preset:?}");
        let (storage, db) = settings.create(seed);
        let table = db.create_table("t").expect("new");
        let mut model = Model::new();
        for round in 0..6 {
            let mut tx = db.begin().expect("free");
            let mut then = model.clone();
            long_transaction(&mut tx, &table, &mut then, &mut random, 60);
            if random.chance(1, 2) {
                db.checkpoint().expect("a whole disk");
            }
            // Commits beside the long transaction, in the same logs, before and after its next
            // chunks.
            let mut beside = db.begin().expect("free");
            beside.insert(&table, [b'n', round], [round]).expect("room");
            beside.commit().expect("commits");
            model.insert(vec![b'n', round], vec![round]);
            then.insert(vec![b'n', round], vec![round]);
            long_transaction(&mut tx, &table, &mut then, &mut random, 30);
            if random.chance(1, 4) {
                tx.abort();
            } else {
                tx.commit().expect("commits");
                model = then;
            }
        }
        check(&db, &model, &context);
        // A transaction that is in progress when the power fails.
        let mut tx = db.begin().expect("free");
        long_transaction(&mut tx, &table, &mut model.clone(), &mut random, 60);
        db.flush().expect("a whole disk");
        let kind = if random.chance(1, 2) { CrashKind::PowerCut } else { CrashKind::Kill };
        let disk = crashed(&storage, kind, seed);
        storage.stop();
        drop((tx, db));
        let db = settings.open(&disk);
        check(&db, &model, &context);
        // Long transactions are appended again too; the first checkpoint releases their chunks.
        let table = db.table("t").expect("there");
        let mut tx = db.begin().expect("free");
        long_transaction(&mut tx, &table, &mut model, &mut random, 60);
        tx.commit().expect("commits");
        let again = crashed(&disk, CrashKind::PowerCut, seed);
        disk.stop();
        drop(db);
        let db = settings.open(&again);
        check(&db, &model, &format!("{context}, again"));
        db.checkpoint().expect("a whole disk");
        assert!(db.statistics().log_bytes_in_use <= 8 * settings.segment_bytes, "{context}: the log is kept");
        db.close().expect("closes");
        check(&settings.open(&again), &model, &format!("{context}, closed"));
    }
}

#[test]
fn a_checkpoint_keeps_the_log_for_an_open_transaction() {
    let (storage, db) = settings().create(5);
    let table = db.create_table("t").expect("new");
    let mut tx = db.begin().expect("free");
    let value = vec![7; 200];
    let mut model = Model::new();
    let mut row = |model: &mut Model, n: u32| {
        tx.insert(&table, n.to_be_bytes(), &value).expect("room");
        model.insert(n.to_be_bytes().to_vec(), value.clone());
    };
    (0..100).for_each(|n| row(&mut model, n));
    for n in 0..2000u32 {
        db.transact(|tx| tx.insert(&table, [&[9], &n.to_be_bytes()[..]].concat(), vec![1; 300]))
            .expect("commits");
        model.insert([&[9], &n.to_be_bytes()[..]].concat(), vec![1; 300]);
        if n % 500 == 0 {
            db.checkpoint().expect("a whole disk");
        }
    }
    (100..200).for_each(|n| row(&mut model, n));
    db.checkpoint().expect("a whole disk");
    let kept = db.statistics().log_bytes_in_use;
    assert!(kept > 1 << 20, "the chunks of a transaction in progress are kept: {kept}");
    tx.commit().expect("commits");
    // No checkpoint contains any of it.
    let disk = crashed(&storage, CrashKind::PowerCut, 1);
    check(&settings().open(&disk), &model, "recovered");
    db.checkpoint().expect("a whole disk");
    let left = db.statistics().log_bytes_in_use;
    assert!(left < kept / 2, "{left} of {kept} bytes are still kept");
    let disk = crashed(&storage, CrashKind::PowerCut, 2);
    check(&settings().open(&disk), &model, "in the checkpoint");
}

#[test]
fn a_transaction_that_pins_too_much_log_is_given_up_alone() {
    let storage = Arc::new(MemoryStorage::default());
    let settings = settings().with(|s| {
        s.log_bytes_max = 1 << 20;
        s.lab.checkpoint_log_bytes = 256 << 10;
    });
    let db = Database::builder().settings(settings).storage(storage).open("memory").expect("opens");
    let table = db.create_table("t").expect("new");
    let mut tx = db.begin().expect("free");
    for n in 0..20u8 {
        tx.insert(&table, [n], vec![n; 200]).expect("room");
    }
    for n in 0..3_000u32 {
        db.transact(|tx| tx.insert(&table, n.to_be_bytes(), vec![1; 100]))
            .expect("no transaction waits for the other");
    }
    let error = tx.commit().expect_err("given up");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("log_bytes_max"), "{error}");
    let there = db.begin_read().expect("free").get(&table, [3]).expect("readable");
    assert_eq!(there, None, "it is aborted");
    // The same for a transaction that finds out while it runs.
    let mut tx = db.begin().expect("free");
    let mut refused = None;
    for n in 0..4_000u32 {
        if let Err(error) = tx.insert(&table, (n % 100 + 1_000_000).to_be_bytes(), vec![n as u8; 1000]) {
            refused = Some(error);
            break;
        }
    }
    let error = refused.expect("more than the log has room for");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    tx.abort();
    db.transact(|tx| tx.insert(&table, "k", "v")).expect("others continue");
    assert_eq!(db.verify(None).expect("runs").problems, Vec::<String>::new());
}

pub fn levels_and_asynchronous_commits_work_with_chunks(preset: Preset) {
    let storage = SimulatedStorage::new(11);
    let settings = settings().with(|s| s.preset = preset);
    let db = settings.open(&storage);
    let table = db.create_table("t").expect("new");
    let mut model = Model::new();
    let mut handles = Vec::new();
    for n in 0..30u32 {
        let durability = [Durability::Durable, Durability::BoundedLoss, Durability::Lazy][n as usize % 3];
        let mut tx = db.begin_with(durability).expect("free");
        for row in 0..n {
            let key = [n.to_be_bytes(), row.to_be_bytes()].concat();
            tx.insert(&table, &key, vec![n as u8; 150]).expect("room");
            model.insert(key, vec![n as u8; 150]);
        }
        handles.push(tx.commit_async().expect("commits"));
    }
    handles.iter().for_each(|handle| handle.wait().expect("a whole disk"));
    let disk = crashed(&storage, CrashKind::PowerCut, 3);
    check(&settings.open(&disk), &model, &format!("{preset:?}"));
}

#[test]
fn the_log_is_printed_with_its_parts() {
    let directory = tempfile::tempdir_in(".").expect("a directory");
    let path = directory.path().join("db");
    let db = settings().open_in(&path);
    let table = db.create_table("t").expect("new");
    let mut tx = db.begin().expect("free");
    for n in 0..8u8 {
        tx.insert(&table, [n], [n; 200]).expect("room");
    }
    tx.insert(&table, "large", vec![3; 5000]).expect("room");
    tx.commit().expect("commits");
    // Copies the files as a kill would leave them. No checkpoint contains the transaction yet.
    let copy = directory.path().join("copy");
    for under in ["", "log", "pages"] {
        std::fs::create_dir(copy.join(under)).expect("new");
        for entry in
            std::fs::read_dir(path.join(under)).expect("readable").map(|entry| entry.expect("readable"))
        {
            if entry.file_type().expect("readable").is_file() {
                std::fs::copy(entry.path(), copy.join(under).join(entry.file_name())).expect("copies");
            }
        }
    }
    let printed = Database::dump_log(&copy, None).expect("readable");
    let parts: Vec<String> = printed.iter().filter_map(|record| record.part.clone()).collect();
    assert!(parts.len() > 3, "{parts:?}");
    assert!(parts[0].starts_with("chunk 0, from byte 0"), "{parts:?}");
    assert!(parts.last().expect("some").starts_with("last part"), "{parts:?}");
    let operations: Vec<&String> = printed.iter().flat_map(|record| &record.operations).collect();
    assert!(
        operations.iter().any(|operation| operation.starts_with("part of large value")),
        "{operations:?}"
    );
}

/// The successive states of a database as one thread commits them. Around the commits, long
/// transactions commit, abort and stay open.
struct Story {
    states: Vec<Model>,
    /// For each state but the first: the number of disk operations when it was acknowledged.
    acknowledged: Vec<usize>,
}

impl Story {
    fn commit(&mut self, storage: &SimulatedStorage, tx: Transaction, rows: Model) {
        tx.commit().expect("a whole disk");
        self.states.push(rows);
        self.acknowledged.push(storage.operations());
    }

    fn now(&self) -> Model {
        self.states.last().expect("one at least").clone()
    }

    /// Commits a short transaction.
    fn short(&mut self, storage: &SimulatedStorage, db: &Database, table: &Table, n: u8) {
        let (mut tx, mut rows) = (db.begin().expect("free"), self.now());
        tx.insert(table, [b's', n], [n; 40]).expect("room");
        rows.insert(vec![b's', n], vec![n; 40]);
        self.commit(storage, tx, rows);
    }

    /// Runs long transactions: with chunks older than checkpoints, aborted, rolled back into a
    /// chunk, and never ended.
    fn tell(&mut self, storage: &SimulatedStorage, db: &Database, name: u8) {
        let table = db.table_or_create("t").expect("room");
        self.short(storage, db, &table, 1);
        let write = |tx: &mut Transaction, rows: &mut Model, kind: u8, range: std::ops::Range<u8>| {
            for n in range {
                let (key, value) = (vec![kind, name, n], vec![n; 90 + usize::from(n)]);
                tx.insert(&table, &key, &value).expect("room");
                rows.insert(key, value);
            }
        };
        let (mut long, mut rows) = (db.begin().expect("free"), Model::new());
        write(&mut long, &mut rows, b'l', 0..12);
        self.short(storage, db, &table, 2);
        let mut aborted = db.begin().expect("free");
        write(&mut aborted, &mut Model::new(), b'a', 0..12);
        db.checkpoint().expect("a whole disk");
        let (savepoint, then) = (long.savepoint(), rows.clone());
        write(&mut long, &mut rows, b'l', 12..30);
        long.rollback_to(savepoint).expect("its own");
        rows = then;
        write(&mut long, &mut rows, b'l', 40..50);
        self.short(storage, db, &table, 3);
        aborted.abort();
        long.insert(&table, [b'v', name], vec![name; 9000]).expect("room");
        rows.insert(vec![b'v', name], vec![name; 9000]);
        db.checkpoint().expect("a whole disk");
        let mut unfinished = db.begin().expect("free");
        write(&mut unfinished, &mut Model::new(), b'u', 0..12);
        write(&mut long, &mut rows, b'l', 50..54);
        rows.extend(self.now());
        self.commit(storage, long, rows);
        self.short(storage, db, &table, 4);
        write(&mut unfinished, &mut Model::new(), b'u', 12..20);
        db.flush().expect("a whole disk");
        // The transaction ends with the disk.
        storage.stop();
    }

    /// Returns the state of a database that was crashed after `at` operations.
    fn judge(&self, db: &Database, at: usize, context: &str) -> usize {
        let least = self.acknowledged.partition_point(|told| *told <= at);
        let found = rows(db, "t");
        let state = self.states.iter().rposition(|state| *state == found);
        let state = state.unwrap_or_else(|| panic!("{context}: {} rows without a commit", found.len()));
        assert!(state >= least, "{context}: state {state}, and {least} was acknowledged");
        assert_eq!(db.verify(None).expect("runs").problems, Vec::<String>::new(), "{context}");
        state
    }
}

/// Transactions that a recovery discarded stay discarded, and recovered ones stay, whatever happens
/// next.
#[test]
fn a_crash_at_any_moment_leaves_long_transactions_whole() {
    let mut seen = [0; 6];
    for (seed, preset) in (0..).zip(Preset::ALL) {
        let settings = settings().with(|s| {
            s.preset = preset;
            s.logs = if preset == Preset::Autonomous { 2 } else { 1 };
        });
        let mut random = Random::from_seed(seed);
        let storage = SimulatedStorage::new(seed);
        let mut story = Story { states: vec![Model::new()], acknowledged: Vec::new() };
        story.tell(&storage, &settings.open(&storage), b'1');
        for at in (0..=storage.operations()).step_by(if is_deep() { 1 } else { 7 }) {
            let kind = if random.chance(1, 2) { CrashKind::PowerCut } else { CrashKind::Kill };
            let context = format!("{preset:?}, {kind:?} after {at} of {}", storage.operations());
            let disk = storage.crash(kind, at, random.next_u64());
            let db = settings.open(&disk);
            let state = story.judge(&db, at, &context);
            seen[state] += 1;
            let served = disk.operations();
            let mut next = Story { states: vec![story.states[state].clone()], acknowledged: Vec::new() };
            next.tell(&disk, &db, b'2');
            drop(db);
            // During recovery, or in the commits after it.
            let again = random.below(disk.operations() as u64 + 1) as usize;
            let kind = if random.chance(1, 2) { CrashKind::PowerCut } else { CrashKind::Kill };
            let context = format!("{context}; then {kind:?} after {again} (recovery ended at {served})");
            let disk = disk.crash(kind, again, random.next_u64());
            let db = settings.open(&disk);
            if again < served {
                story.judge(&db, at, &context);
            } else {
                next.judge(&db, again, &context);
            }
            let content = rows(&db, "t");
            disk.stop();
            drop(db);
            let disk = crashed(&disk, CrashKind::PowerCut, random.next_u64());
            assert!(rows(&settings.open(&disk), "t") == content, "{context}: another content the third time");
        }
    }
    assert!(!is_deep() || seen.iter().all(|count| *count > 0), "{seen:?}");
}

/// All of them wait for log space at once, and no checkpoint contains any of them. Even the last
/// one may fail, because the log since its first chunk contains the other transactions' chunks.
pub fn long_transactions_that_fill_the_log_commit_or_fail_clearly(preset: Preset) {
    let storage = Arc::new(MemoryStorage::default());
    let settings = settings().with(|s| {
        s.preset = preset;
        s.log_bytes_max = 1 << 20;
        s.lab.chunk_bytes = 0;
    });
    let db = Database::builder().settings(settings).storage(storage).open("memory").expect("opens");
    let table = db.create_table("t").expect("new");
    let begun = std::time::Instant::now();
    let together = std::sync::Barrier::new(4);
    let committed: Vec<Option<u8>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u8)
            .map(|thread| {
                let (db, table, together) = (&db, &table, &together);
                scope.spawn(move || {
                    let mut tx = db.begin().expect("free");
                    together.wait();
                    // Each transaction alone would have room.
                    let written = (0..600u32).try_for_each(|n| {
                        tx.insert(table, [&[thread], &n.to_be_bytes()[..]].concat(), vec![thread; 500])
                    });
                    // No transaction ends before all have written what they can.
                    together.wait();
                    match written.and_then(|()| tx.commit()) {
                        Ok(_) => Some(thread),
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{preset:?}: {error}");
                            assert!(error.to_string().contains("log_bytes_max"), "{preset:?}: {error}");
                            None
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let took = begun.elapsed();
    assert!(committed.iter().any(Option::is_none), "{preset:?}: the log has no room for all of them");
    assert!(took < std::time::Duration::from_secs(60), "{preset:?}: {took:?}");
    let committed: Vec<u8> = committed.into_iter().flatten().collect();
    assert_eq!(rows_of(&db, &table), committed.len() * 600, "{preset:?}");
    let alone = (0..600u32).map(|n| [&[9], &n.to_be_bytes()[..]].concat());
    db.transact(|tx| alone.clone().try_for_each(|key| tx.insert(&table, key, vec![9; 500])))
        .unwrap_or_else(|error| panic!("{preset:?}: alone it has room: {error}"));
    assert_eq!(db.verify(None).expect("runs").problems, Vec::<String>::new(), "{preset:?}");
}

fn rows_of(db: &Database, table: &Table) -> usize {
    db.begin_read().expect("free").range(table, ..).count()
}
