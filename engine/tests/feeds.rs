//! Change feeds: a replica that follows a feed has what the database has, whatever happened.

use crate::objects;
use crate::support::test_database::{TestDatabase, tiny};
use crate::support::{Content, any_protocol, content, difference, in_time, small};
use quenchdb::internals::base::depth::spread;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::{
    Change, Changes, CommittedTransaction, Csn, Database, Durability, Error, ErrorKind, Preset, Result,
    Settings, Transaction,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The tables of the reader, made from changes.
#[derive(Clone, Default, PartialEq, Debug)]
struct Replica {
    rows: Content,
    /// Everything up to it is in the rows.
    csn: Csn,
}

impl Replica {
    /// Reads the tables of a database. A crash takes nothing of it back.
    fn of(db: &Database) -> Replica {
        db.flush().expect("a healthy disk");
        // In this order: rows that are committed in between are applied again.
        let csn = db.begin_read().expect("free").csn();
        Replica { rows: content(db), csn }
    }

    fn apply(&mut self, transaction: &CommittedTransaction) -> Result<()> {
        assert!(transaction.csn() > self.csn, "{:?} after {:?}", transaction.csn(), self.csn);
        self.csn = transaction.csn();
        for change in transaction.changes() {
            self.apply_change(change?);
        }
        Ok(())
    }

    fn apply_change(&mut self, change: Change) {
        let table = change.table().name().to_string();
        match change {
            Change::Put { key, value, .. } => drop(self.rows.insert((table, key), value)),
            Change::Delete { key, .. } => drop(self.rows.remove(&(table, key))),
            Change::Patch { key, offset, bytes, .. } => {
                let value = self.rows.get_mut(&(table, key)).expect("a patch is of a row");
                value[offset..offset + bytes.len()].copy_from_slice(&bytes);
            }
            Change::DropTable { .. } => self.rows.retain(|(name, _), _| *name != table),
            Change::CreateTable { .. } => {
                assert!(self.rows.keys().all(|(name, _)| *name != table), "a new table has no rows");
            }
            other => panic!("{other:?}"),
        }
    }

    /// Applies what the feed returns until there is nothing left.
    fn catch_up(&mut self, db: &Database, changes: &mut Changes) -> Result<()> {
        db.flush()?;
        while let Some(transaction) = changes.try_next()? {
            self.apply(&transaction)?;
        }
        // Behind the last transaction may be chunks of one that was rolled back.
        self.csn = changes.csn();
        Ok(())
    }
}

#[track_caller]
fn assert_same(context: &str, replica: &Replica, db: &Database) {
    let there = content(db);
    assert!(replica.rows == there, "{context}: {}", difference(&replica.rows, &there));
}

/// One transaction of the workload.
fn change_rows(tx: &mut Transaction, db: &Database, random: &mut Random) -> Result<()> {
    let table = db.table("rows")?;
    for _ in 0..1 + random.below(4) {
        let key = format!("{:02}", random.below(40));
        match random.below(8) {
            0 => drop(tx.take(&table, &key)?),
            1 => drop(tx.remove_range(&table, key.as_str()..format!("{key}z").as_str())?),
            // Longer than an entry, and at times longer than a chunk.
            2 => tx.insert(&table, &key, vec![random.next_u64() as u8; 500 + random.below(9000) as usize])?,
            3 => {
                let savepoint = tx.savepoint();
                tx.insert(&table, &key, vec![1; 2000])?;
                tx.rollback_to(savepoint)?;
            }
            // Of the same length, so that it could be logged as a patch.
            _ => {
                let mut value = [7; 64];
                value[random.below(64) as usize] = random.next_u64() as u8;
                tx.insert(&table, &key, value)?;
            }
        }
    }
    Ok(())
}

fn work(db: &Database, random: &mut Random, transactions: u64) {
    for _ in 0..transactions {
        let durability = [Durability::Durable, Durability::BoundedLoss][random.below(2) as usize];
        let outcome: Result<()> = match random.below(30) {
            0 => db.checkpoint().map(drop),
            1 => db.clear_table("rows").map(drop),
            2 => {
                // Rolled back, after it may have written chunks.
                let mut tx = db.begin().expect("free");
                let changed = change_rows(&mut tx, db, random);
                tx.abort();
                changed
            }
            _ => db.transact_with(durability, |tx| change_rows(tx, db, random)),
        };
        if let Err(error) = outcome {
            let other_cleared =
                matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Busy | ErrorKind::AlreadyExists);
            assert!(other_cleared || error.is_retryable(), "{error}");
        }
    }
}

/// Ends the other threads when a test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Runs the workload, and a reader beside it, which returns what it had after how many operations
/// of the disk.
fn run(
    db: &Database,
    disk: &SimulatedStorage,
    replica: &Replica,
    random: &mut Random,
) -> Result<Vec<(usize, Replica)>> {
    let (done, begun) = (AtomicBool::new(false), disk.operations());
    let mut changes = db.changes(replica.csn)?;
    let seeds: Vec<u64> = (0..2).map(|_| random.next_u64()).collect();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut states = vec![(begun, replica.clone())];
            let mut mine = replica.clone();
            loop {
                let last = done.load(Ordering::SeqCst);
                match changes.next_timeout(Duration::from_millis(5))? {
                    Some(transaction) => {
                        mine.apply(&transaction)?;
                        states.push((disk.operations(), mine.clone()));
                    }
                    None if last => return Ok(states),
                    None => {}
                }
            }
        });
        let stop = Stop(&done);
        let writers: Vec<_> = seeds
            .into_iter()
            .map(|seed| scope.spawn(move || work(db, &mut Random::from_seed(seed), 25)))
            .collect();
        for writer in writers {
            writer.join().expect("no panic");
        }
        drop(stop);
        reader.join().expect("no panic")
    })
}

/// The replica after a crash that followed `operations`: what the reader had by then.
fn replica_at(states: Vec<(usize, Replica)>, operations: usize) -> Replica {
    let by_then = states.into_iter().rev().find(|(at, _)| *at <= operations);
    by_then.expect("the first state is there at the begin").1
}

static FELL_BEHIND: AtomicU64 = AtomicU64::new(0);

/// Begins again from a snapshot if the feed has fallen behind, which `may_fall_behind` allows.
fn begin_again(context: &str, db: &Database, error: &Error, may_fall_behind: bool) -> Replica {
    assert!(may_fall_behind && error.kind() == ErrorKind::FellBehind, "{context}: {error}");
    FELL_BEHIND.fetch_add(1, Ordering::Relaxed);
    Replica::of(db)
}

/// Several lives of a database and a reader that continues in each; each life ends with a crash or
/// a close.
fn lives(seed: u64) {
    let mut random = Random::from_seed(seed);
    let mut history = random.chance(2, 3);
    let mut settings = any_protocol(seed, &mut random).with(|s| {
        (s.memory_bytes, s.segment_bytes, s.lab.log_buffer_bytes) = (8 << 20, 64 << 10, 64 << 10);
        (s.log_bytes_max, s.lab.checkpoint_log_bytes, s.lab.flush_unit_bytes) = (8 << 20, 0, 4096);
        s.lab.chunk_bytes = if random.chance(1, 2) { 512 } else { 0 };
        s.change_history_bytes = if history { 64 << 20 } else { 0 };
    });
    let mut disk = SimulatedStorage::new(seed);
    let mut db = settings.open(&disk);
    db.create_table("rows").expect("new");
    let mut replica = Replica::default();
    for life in 0..5 {
        let context = format!("seed {seed}, life {life}, {:?}, history {history}", settings.preset);
        let states = match run(&db, &disk, &replica, &mut random) {
            Ok(states) => states,
            Err(error) => {
                // The database may have made a checkpoint since the last feed ended.
                replica = begin_again(&context, &db, &error, !history);
                vec![(disk.operations(), replica.clone())]
            }
        };
        replica = states.last().expect("never empty").1.clone();
        if random.chance(1, 3) {
            // The reader may not have everything.
            db.close().expect("a healthy disk");
        } else {
            let kind = if random.chance(1, 2) { CrashKind::PowerCut } else { CrashKind::Kill };
            let all = disk.operations();
            let begun = states[0].0;
            let any = |random: &mut Random| begun + random.below((all - begun) as u64 + 1) as usize;
            let operations = if random.chance(1, 2) { all } else { any(&mut random) };
            replica = replica_at(states, operations);
            let left = disk.crash(kind, operations, random.next_u64());
            drop(db);
            disk = left;
        }
        if random.chance(1, 3) {
            let other = any_protocol(random.next_u64(), &mut random);
            settings = settings.with(|s| {
                (s.preset, s.logs, s.log_memory) = (other.preset, other.logs, other.log_memory);
                s.lab.protocol = other.lab.protocol;
            });
        }
        // The log of the life before may be gone if that or this one retains none.
        let retained = history;
        history = if random.chance(1, 4) { !history } else { history };
        settings.change_history_bytes = if history { 64 << 20 } else { 0 };
        db = settings.open(&disk);
        let followed = db.changes(replica.csn).and_then(|mut changes| replica.catch_up(&db, &mut changes));
        if let Err(error) = followed {
            replica = begin_again(&context, &db, &error, !(retained && history));
        }
        assert_same(&context, &replica, &db);
        let report = db.verify(None).expect("readable");
        assert!(report.problems.is_empty(), "{context}: {:?}", report.problems);
    }
}

#[test]
fn a_replica_follows_through_crashes_and_closes() {
    let fell_behind = || FELL_BEHIND.load(Ordering::Relaxed) > 0;
    let first = spread(600, 15).map(|seed| (seed, true));
    // Whether a reader falls behind depends on threads that meet: more seeds, until one has.
    for (seed, always) in first.chain((600..700).map(|seed| (seed, false))) {
        if always || !fell_behind() {
            in_time(&format!("seed {seed}"), 120, move || lives(seed));
        }
    }
    assert!(fell_behind(), "no reader ever fell behind");
}

/// A database with a table "rows" and retained history.
fn with_history(history_bytes: u64) -> (SimulatedStorage, Database, Settings) {
    let settings = tiny(8 << 20).with(|s| s.change_history_bytes = history_bytes);
    let (disk, db) = settings.create(1);
    db.create_table("rows").expect("new");
    (disk, db, settings)
}

fn insert(db: &Database, key: &str, value: &[u8]) -> Csn {
    let rows = db.table("rows").expect("exists");
    db.transact(|tx| tx.insert(&rows, key, value)).expect("a healthy disk");
    db.begin_read().expect("free").csn()
}

fn log_bytes(db: &Database) -> u64 {
    let statistics = db.statistics();
    statistics.log_bytes_in_use + statistics.log_history_bytes
}

#[test]
fn feed_continues_after_clean_closes() {
    let (disk, mut db, settings) = with_history(1 << 20);
    let mut replica = Replica::default();
    for round in 0..4 {
        for n in 0..20 {
            insert(&db, &format!("{round} {n}"), &[n; 100]);
        }
        db.close().expect("a healthy disk");
        db = settings.open(&disk);
        let mut changes = db.changes(replica.csn).expect("history is retained");
        replica.catch_up(&db, &mut changes).expect("history is retained");
        assert_same(&format!("round {round}"), &replica, &db);
        // From the beginning, too.
        let mut other = Replica::default();
        let mut changes = db.changes(Csn::ZERO).expect("history is retained");
        other.catch_up(&db, &mut changes).expect("history is retained");
        assert_eq!(other.rows, replica.rows);
    }
}

#[test]
fn history_has_its_bound_and_says_where_it_begins() {
    let (disk, db, settings) = with_history(256 << 10);
    let first = insert(&db, "first", b"row");
    for n in 0..200_u32 {
        insert(&db, "row", &n.to_le_bytes().repeat(1000));
        if n % 10 == 0 {
            db.checkpoint().expect("a healthy disk");
        }
    }
    db.checkpoint().expect("a healthy disk");
    assert!(log_bytes(&db) < 800 << 10, "{}", log_bytes(&db));
    let behind = |db: &Database| db.changes(first).expect_err("it was dropped");
    let error = behind(&db);
    assert_eq!(error.kind(), ErrorKind::FellBehind);
    assert!(error.to_string().contains(&format!("above CSN {first}")), "{error}");
    db.close().expect("a healthy disk");
    let db = settings.open(&disk);
    assert_eq!(behind(&db).kind(), ErrorKind::FellBehind);
}

#[test]
fn stalled_feed_delays_no_commit_and_is_told() {
    let settings =
        tiny(8 << 20).with(|s| (s.log_bytes_max, s.lab.checkpoint_log_bytes) = (1 << 20, 256 << 10));
    let (_disk, db) = settings.create(1);
    let rows = db.create_table("rows").expect("new");
    let mut changes = db.changes(Csn::ZERO).expect("nothing was dropped");
    for n in 0..600_u32 {
        db.transact(|tx| tx.insert(&rows, n.to_be_bytes(), [5; 4000])).expect("the feed holds nobody up");
    }
    assert!(log_bytes(&db) <= 2 << 20, "{}", log_bytes(&db));
    let error = changes.try_next().expect_err("the log is longer than it may be");
    assert_eq!(error.kind(), ErrorKind::FellBehind, "{error}");
    // A feed that begins at a snapshot continues.
    let mut replica = Replica::of(&db);
    let mut changes = db.changes(replica.csn).expect("the newest transactions are there");
    db.transact(|tx| tx.insert(&rows, "more", "rows")).expect("commits");
    replica.catch_up(&db, &mut changes).expect("retained");
    assert_same("from a snapshot", &replica, &db);
}

/// The error was once that of a damaged log.
#[test]
fn chunks_of_a_stalled_feed_tell_that_it_fell_behind() {
    let settings = tiny(8 << 20).with(|s| {
        (s.log_bytes_max, s.lab.checkpoint_log_bytes, s.lab.chunk_bytes) = (1 << 20, 256 << 10, 4096);
    });
    let (_disk, db) = settings.create(1);
    let rows = db.create_table("rows").expect("new");
    let mut changes = db.changes(db.begin_read().expect("free").csn()).expect("the newest");
    let long = |tx: &mut Transaction| (0..9_u8).try_for_each(|n| tx.insert(&rows, [n], [n; 4000]));
    db.transact(long).expect("commits");
    let transaction = changes.try_next().expect("readable").expect("there is one");
    assert_eq!(transaction.changes().filter(Result::is_ok).count(), 9);
    let written = (0..3000_u32).find_map(|n| {
        db.transact(|tx| tx.insert(&rows, n.to_be_bytes(), [5; 4000])).expect("the feed holds nobody up");
        transaction.changes().find_map(Result::err)
    });
    let error = written.expect("the segment is written again");
    assert_eq!(error.kind(), ErrorKind::FellBehind, "{error}");
}

#[test]
fn running_feed_holds_the_log_over_checkpoints() {
    let settings = tiny(8 << 20);
    let (_disk, db) = settings.create(1);
    let rows = db.create_table("rows").expect("new");
    let mut changes = db.changes(Csn::ZERO).expect("nothing was dropped");
    for n in 0..60_u32 {
        db.transact(|tx| tx.insert(&rows, n.to_be_bytes(), [5; 4000])).expect("commits");
        if n % 7 == 0 {
            db.checkpoint().expect("a healthy disk");
        }
    }
    let mut replica = Replica::default();
    replica.catch_up(&db, &mut changes).expect("retained");
    assert_same("all", &replica, &db);
    drop(changes);
    db.transact(|tx| tx.insert(&rows, "last", "row")).expect("commits");
    db.checkpoint().expect("a healthy disk");
    let error = db.changes(Csn::ZERO).expect_err("nothing holds the log");
    assert_eq!(error.kind(), ErrorKind::FellBehind);
}

#[test]
fn overwrites_are_whole_while_a_feed_runs() {
    let (_disk, db) = tiny(8 << 20).create(1);
    let rows = db.create_table("rows").expect("new");
    let put = |byte: u8| {
        let mut value = [1; 200];
        value[100] = byte;
        db.transact(|tx| tx.insert(&rows, "row", value)).expect("commits");
    };
    put(1);
    put(2);
    let mut changes = db.changes(Csn::ZERO).expect("nothing was dropped");
    put(3);
    let mut kinds = Vec::new();
    while let Some(transaction) = changes.try_next().expect("readable") {
        for change in transaction.changes() {
            kinds.push(match change.expect("readable") {
                Change::CreateTable { table } => format!("create {}", table.name()),
                Change::Put { value, .. } => format!("put {} bytes", value.len()),
                Change::Patch { offset, bytes, .. } => format!("patch {offset} {bytes:?}"),
                other => format!("{other:?}"),
            });
        }
    }
    assert_eq!(kinds, ["create rows", "put 200 bytes", "patch 100 [2]", "put 200 bytes"]);
    drop(changes);
    put(4);
    let mut changes = db.changes(Csn(db.begin_read().expect("free").csn().0 - 1)).expect("retained");
    let last = changes.try_next().expect("readable").expect("there is one");
    assert!(matches!(last.changes().next(), Some(Ok(Change::Patch { .. }))), "{last:?}");
}

#[test]
fn long_transaction_is_returned_whole_and_once() {
    let settings = tiny(8 << 20).with(|s| (s.lab.chunk_bytes, s.change_history_bytes) = (4096, 4 << 20));
    let (disk, db) = settings.create(1);
    let rows = db.create_table("rows").expect("new");
    let long = |tx: &mut Transaction, from: u32| -> Result<()> {
        for n in from..from + 300 {
            tx.insert(&rows, n.to_be_bytes(), vec![n as u8; 300])?;
        }
        let savepoint = tx.savepoint();
        (0..50_u32).try_for_each(|n| tx.insert(&rows, (9000 + n).to_be_bytes(), [9; 400]))?;
        tx.rollback_to(savepoint)?;
        tx.insert(&rows, "large", vec![from as u8; 100_000])
    };
    let mut open = db.begin().expect("free");
    long(&mut open, 0).expect("room");
    // Chunks of the open transaction are older than these checkpoints.
    for n in 0..3 {
        insert(&db, &format!("other {n}"), &[n; 10]);
        db.checkpoint().expect("a healthy disk");
    }
    let mut middle = db.changes(db.begin_read().expect("free").csn()).expect("the newest");
    open.commit().expect("no conflict");
    db.transact(|tx| long(tx, 1000)).expect("commits");
    let mut aborted = db.begin().expect("free");
    long(&mut aborted, 5000).expect("room");
    aborted.abort();
    insert(&db, "last", b"row");
    let mut seen = Vec::new();
    while let Some(transaction) = middle.try_next().expect("retained") {
        let changes: Result<Vec<Change>> = transaction.changes().collect();
        seen.push(changes.expect("readable").len());
    }
    assert_eq!(seen, [301, 301, 1]);
    let left = disk.crash(CrashKind::PowerCut, disk.operations(), 7);
    drop(db);
    let db = settings.open(&left);
    let mut replica = Replica::default();
    let mut changes = db.changes(Csn::ZERO).expect("retained");
    replica.catch_up(&db, &mut changes).expect("retained");
    assert_same("after a crash", &replica, &db);
}

pub fn iterator_waits_and_ends_with_the_database(preset: Preset) {
    let settings = small(preset, 2);
    in_time(&format!("{preset:?}"), 60, move || wait_and_end(&settings));
}

fn wait_and_end(settings: &Settings) {
    let (_disk, db) = settings.create(1);
    let rows = db.create_table("rows").expect("new");
    let mut changes = db.changes(db.begin_read().expect("free").csn()).expect("the newest");
    assert!(changes.next_timeout(Duration::from_millis(20)).expect("readable").is_none());
    let (sender, receiver) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        for transaction in &mut changes {
            sender.send(transaction.expect("readable").csn()).expect("the test listens");
        }
        changes.csn()
    });
    let mut last = Csn::ZERO;
    for n in 0..10_u32 {
        db.transact(|tx| tx.insert(&rows, n.to_be_bytes(), "row")).expect("commits");
        let csn = receiver.recv_timeout(Duration::from_secs(20)).expect("the feed returns each transaction");
        assert!(csn > last);
        last = csn;
    }
    db.close().expect("a healthy disk");
    let ended = in_time("the reader", 20, move || reader.join().expect("no panic"));
    assert_eq!(ended, last);
}

#[test]
fn watch_returns_changes_of_its_rows_only() {
    let (_disk, db) = tiny(8 << 20).create(1);
    let (rows, others) = (db.create_table("rows").expect("new"), db.create_table("others").expect("new"));
    let mut watch = db.watch(&rows, "a/").expect("open");
    db.transact(|tx| -> Result<()> {
        tx.insert(&rows, "a/1", "x")?;
        tx.insert(&rows, "b/1", "x")?;
        tx.insert(&others, "a/1", "x")?;
        tx.insert(&rows, "a/2", "y")
    })
    .expect("commits");
    db.transact(|tx| tx.take(&rows, "a/1")).expect("commits");
    db.rename_table("rows", "renamed").expect("free");
    let mut seen = Vec::new();
    while let Some((_, change)) = watch.next_timeout(Duration::from_millis(100)).expect("readable") {
        assert!(rows.is(change.table()));
        let key = change.key().map(|key| String::from_utf8(key.to_vec()).expect("text"));
        seen.push((matches!(change, Change::Delete { .. }), key.unwrap_or_default()));
    }
    let of = |deleted, key: &str| (deleted, key.to_string());
    assert_eq!(seen, [of(false, "a/1"), of(false, "a/2"), of(true, "a/1"), of(false, "")]);
}

#[test]
fn wrong_starts_are_refused() {
    let (disk, db) = tiny(8 << 20).create(1);
    let newest = db.begin_read().expect("free").csn();
    let error = db.changes(Csn(newest.0 + 10)).expect_err("no such transaction");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("another database"), "{error}");
    let other = db.clone();
    db.close().expect("a healthy disk");
    assert_eq!(other.changes(newest).expect_err("closed").kind(), ErrorKind::InvalidArgument);
    drop(other);
    let reader = tiny(8 << 20).with(|s| s.read_only = true).open(&disk);
    assert_eq!(reader.changes(newest).expect_err("read-only").kind(), ErrorKind::InvalidArgument);
}

#[test]
fn replica_follows_a_database_in_a_store_of_objects() {
    for (number, preset) in Preset::ALL.into_iter().filter(|preset| *preset != Preset::Passive).enumerate() {
        for appends in [true, false] {
            in_time(&format!("{preset:?}, appends {appends}"), 120, move || {
                follow_objects(number as u64, preset, appends);
            });
        }
    }
}

/// Crashes between changes of the store, closes, and takeovers of a process that still runs.
fn follow_objects(seed: u64, preset: Preset, appends: bool) {
    let mut random = Random::from_seed(seed);
    let settings = objects::settings(preset).with(|s| s.change_history_bytes = 64 << 20);
    let mut store = objects::store(seed, appends);
    let mut replica = Replica::default();
    for life in 0..4 {
        let context = format!("{preset:?}, appends {appends}, life {life}");
        let (client, db) = objects::open(&settings, &store).expect("opens");
        let rows = db.table_or_create("rows").expect("free");
        let mut changes = db.changes(replica.csn).unwrap_or_else(|error| panic!("{context}: {error}"));
        replica.catch_up(&db, &mut changes).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_same(&context, &replica, &db);
        let mut states = vec![(store.changes(), replica.clone())];
        for n in 0..30_u64 {
            let key = [random.below(20) as u8];
            let value = vec![n as u8; 100 + 100 * n as usize];
            db.transact(|tx| tx.insert(&rows, key, &value)).expect("commits");
            if n % 11 == life {
                db.checkpoint().expect("no fault");
            }
            replica.catch_up(&db, &mut changes).unwrap_or_else(|error| panic!("{context}: {error}"));
            states.push((store.changes(), replica.clone()));
        }
        match life {
            0 => db.close().expect("no fault"),
            1 => {
                // The next life takes the database from this one.
                client.kill();
                std::mem::forget((rows, changes, db));
                continue;
            }
            _ => {
                let begun = states[0].0;
                let at = begun + random.below((store.changes() - begun) as u64 + 1) as usize;
                replica = replica_at(states, at);
                store = store.crash(at, seed);
                drop((rows, changes, db));
            }
        }
        client.kill();
    }
}
