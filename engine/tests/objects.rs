//! Databases in a simulated store of objects: crashes between any two changes of the store,
//! requests whose outcome is unknown, takeovers beside writers that do not know of them.
//!
//! A transaction reads a counter, raises it, and inserts a row with the new number. So the rows
//! that a database holds must be those from 1 to the counter, and none that was acknowledged may be
//! missing.

use crate::support::in_time;
use crate::support::test_database::{TestDatabase, tiny};
use quenchdb::internals::base::depth::{depth, is_deep, some, spread};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::objects::simulated::{
    Fault, FaultKind, SimulatedClient, SimulatedStore, StoreOptions,
};
use quenchdb::internals::device::objects::{ObjectStorage, ObjectStore, Options, RequestKind};
use quenchdb::{Database, ErrorKind, HealthState, Preset, Result, Settings, Table};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

static CONNECTIONS: AtomicUsize = AtomicUsize::new(0);
const COUNTER: &[u8] = b"counter";
/// Every preset but the one that needs mapped memory.
const PRESETS: [Preset; 7] = [
    Preset::Auto,
    Preset::PerTransaction,
    Preset::Group,
    Preset::Queued,
    Preset::Pipelined,
    Preset::Autonomous,
    Preset::Restricted,
];

/// How a store takes blocks of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Numbered,
    Appends,
    Streams,
    /// Streams that are not revoked when another one takes over.
    UnrevokedStreams,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Appends, Kind::Numbered, Kind::Streams, Kind::UnrevokedStreams];

    fn is_stream(self) -> bool {
        matches!(self, Kind::Streams | Kind::UnrevokedStreams)
    }
}

impl From<bool> for Kind {
    fn from(appends: bool) -> Kind {
        if appends { Kind::Appends } else { Kind::Numbered }
    }
}

pub fn store(seed: u64, kind: impl Into<Kind>) -> SimulatedStore {
    let kind = kind.into();
    SimulatedStore::with(StoreOptions {
        appends: kind != Kind::Numbered,
        streams: kind.is_stream(),
        revokes: kind != Kind::UnrevokedStreams,
        ..StoreOptions::new(seed)
    })
}

pub fn settings(preset: Preset) -> Settings {
    tiny(4 << 20).with(|s| {
        s.preset = preset;
        s.logs = if preset == Preset::Auto { 1 } else { 2 };
    })
}

/// Connects another machine.
pub fn connect(store: &SimulatedStore) -> (Arc<SimulatedClient>, Arc<ObjectStorage>) {
    let client = store.client();
    let (patience, watch) = (Duration::from_secs(20), Duration::from_millis(20));
    // Without appends, every other writer looks at the manifest before it reports.
    let fences_max = if CONNECTIONS.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) { 16 } else { 0 };
    let extent_bytes = 64 << 10;
    let options = Options { patience, watch, fences_max, lanes: 2, extent_bytes, ..Options::default() };
    let storage = ObjectStorage::new(client.clone(), client.facts(), options);
    (client, Arc::new(storage))
}

/// Opens the database on another machine.
pub fn open(settings: &Settings, store: &SimulatedStore) -> Result<(Arc<SimulatedClient>, Database)> {
    let (client, storage) = connect(store);
    let opened = Database::builder().settings(settings.clone()).storage(storage).open("objects");
    Ok((client, opened?))
}

fn numbered(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Runs the next transaction, and returns its number.
pub fn count(db: &Database, table: &Table, bytes: usize) -> Result<u32> {
    let mut tx = db.begin()?;
    let last = tx.get_for_update(table, COUNTER)?;
    let next = last.map_or(0, |last| u32::from_be_bytes(last[..].try_into().expect("four bytes"))) + 1;
    tx.insert(table, numbered(next), vec![next as u8; bytes])?;
    tx.insert(table, COUNTER, numbered(next))?;
    tx.commit()?;
    Ok(next)
}

/// Checks that the rows are those from 1 to the counter, and returns the counter.
pub fn check(db: &Database, context: &str) -> u32 {
    let Ok(table) = db.table("t") else { return 0 };
    let snapshot = db.begin_read().expect("free");
    let counter = snapshot.get(&table, COUNTER).expect("readable");
    let counter = counter.map_or(0, |last| u32::from_be_bytes(last[..].try_into().expect("four bytes")));
    let rows: Vec<Vec<u8>> = snapshot
        .range(&table, ..)
        .map(|row| row.unwrap_or_else(|error| panic!("{context}: {error}")).0.to_vec())
        .filter(|key| key != COUNTER)
        .collect();
    let expected: Vec<Vec<u8>> = (1..=counter).map(|number| numbered(number).to_vec()).collect();
    assert_eq!(rows, expected, "{context}");
    counter
}

pub fn verify(db: &Database, context: &str) {
    let problems = db.verify(None).expect("runs").problems;
    assert!(problems.is_empty(), "{context}: {problems:?}");
}

#[test]
fn a_crash_between_any_two_changes_loses_nothing_acknowledged() {
    in_time("crashes of a store of objects", 300, || {
        for (at, preset) in some(&PRESETS, 3).into_iter().enumerate() {
            for kind in Kind::ALL {
                crashes(at as u64, preset, kind);
            }
        }
    });
}

fn crashes(seed: u64, preset: Preset, kind: Kind) {
    let (settings, store) = (settings(preset), store(seed, kind));
    let (client, db) = open(&settings, &store).expect("opens");
    let table = db.create_table("t").expect("new");
    // Each number with the changes of the store when it was acknowledged.
    let mut acknowledged = vec![(0, store.changes())];
    for round in 0..60_u32 {
        let number = count(&db, &table, 500 + 100 * round as usize).expect("commits");
        acknowledged.push((number, store.changes()));
        if [12, 55].contains(&round) {
            db.checkpoint().expect("no fault");
        }
    }
    let all = store.changes();
    for changes in spread(all as u64 + 1, 16) {
        let changes = changes as usize;
        let context = format!("{preset}, {kind:?}, {changes} of {all} changes");
        let left = store.crash(changes, seed);
        let known = acknowledged.iter().filter(|(_, at)| *at <= changes).map(|(number, _)| *number).max();
        let (client, db) = open(&settings, &left).unwrap_or_else(|error| panic!("{context}: {error}"));
        let found = check(&db, &context);
        assert!(known.is_none_or(|known| found >= known), "{context}: {found} of {known:?}");
        verify(&db, &context);
        let table = db.table_or_create("t").expect("free");
        let next = count(&db, &table, 100).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!(next, found + 1, "{context}");
        drop(table);
        db.close().unwrap_or_else(|error| panic!("{context}: {error}"));
        let (again, db) = open(&settings, &left).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!(check(&db, &context), next, "{context}: after a close");
        drop(db);
        [client, again].iter().for_each(|client| client.kill());
    }
    drop((table, db));
    client.kill();
}

#[test]
fn requests_of_unknown_outcome_lose_and_repeat_nothing() {
    in_time("ambiguous outcomes", 300, || {
        let mut struck = 0;
        for (at, preset) in some(&PRESETS, 3).into_iter().enumerate() {
            for kind in Kind::ALL {
                struck += ambiguous(at as u64, preset, kind);
            }
        }
        println!("{struck} requests failed or were repeated");
        assert!(struck > if is_deep() { 100_000 } else { 600 }, "{struck}");
    });
}

/// Commits while requests fail in all ways that prove nothing. Returns how many did.
fn ambiguous(seed: u64, preset: Preset, kind: Kind) -> u64 {
    let (settings, store) = (settings(preset), store(seed, kind));
    let context = format!("{preset}, {kind:?}");
    let (client, db) = open(&settings, &store).expect("opens");
    let table = db.create_table("t").expect("new");
    let streams = FaultKind::OF_STREAMS.into_iter().filter(|_| kind.is_stream());
    for fault in FaultKind::ALL.into_iter().chain(streams).filter(|fault| *fault != FaultKind::Denied) {
        store.set_odds(fault, 60);
    }
    for round in 0..if is_deep() { 20_000 } else { 150 } {
        let number = count(&db, &table, 300).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!(number, round + 1, "{context}");
        if round % 20 == 10 {
            db.checkpoint().unwrap_or_else(|error| panic!("{context}: {error}"));
        }
    }
    let struck = store.faults_struck();
    store.heal();
    let last = check(&db, &context);
    verify(&db, &context);
    client.kill();
    std::mem::forget((table, db));
    store.finish_late();
    let (other, db) = open(&settings, &store).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(check(&db, &context), last, "{context}: after the takeover");
    verify(&db, &context);
    drop(db);
    other.kill();
    struck
}

#[test]
fn a_takeover_loses_nothing_that_was_acknowledged() {
    in_time("takeovers", 300, || {
        for kind in Kind::ALL {
            takeovers(7, kind, depth(2000) as u32);
        }
    });
}

/// A writer commits until another one ends it, which then is the writer. No writer is closed.
fn takeovers(seed: u64, kind: Kind, rounds: u32) {
    let store = store(seed, kind);
    let mut random = Random::from_seed(seed);
    let mut newest = 0;
    let (mut client, mut db) = open(&settings(Preset::Auto), &store).expect("opens");
    db.create_table("t").expect("new");
    for round in 0..rounds {
        let settings = settings(PRESETS[round as usize % PRESETS.len()]);
        let context = format!("{kind:?}, takeover {round}, {}", settings.preset);
        let zombie = {
            let db = db.clone();
            std::thread::spawn(move || {
                let (table, mut last) = (db.table("t").expect("is there"), 0);
                loop {
                    match count(&db, &table, 200) {
                        Ok(number) => last = number,
                        Err(error) => return (last, error),
                    }
                }
            })
        };
        std::thread::sleep(Duration::from_micros(random.below(4000)));
        let (other, next) = open(&settings, &store).unwrap_or_else(|error| panic!("{context}: {error}"));
        let found = check(&next, &context);
        if random.chance(1, 3) {
            next.checkpoint().unwrap_or_else(|error| panic!("{context}: {error}"));
        }
        let (last, error) = zombie.join().expect("no panic");
        assert!(last <= found, "{context}: {last} was acknowledged, {found} is there");
        assert!(found >= newest, "{context}: {found} after {newest}");
        let kinds = [ErrorKind::Fenced, ErrorKind::OutcomeUnknown];
        assert!(kinds.contains(&error.kind()), "{context}: {error}");
        let later = db.table("t").and_then(|table| count(&db, &table, 200)).expect_err("it has ended");
        assert!(kinds.contains(&later.kind()), "{context}: {later}");
        let table = next.table("t").expect("is there");
        newest = count(&next, &table, 200).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!(newest, found + 1, "{context}");
        drop(std::mem::replace(&mut db, next));
        std::mem::replace(&mut client, other).kill();
    }
    verify(&db, "the last writer");
    drop(db);
    client.kill();
}

/// The writer is frozen with requests in flight, of a commit or of a checkpoint. They arrive when
/// another writer has worked, and perhaps has made a checkpoint and deleted the log.
#[test]
fn requests_that_arrive_after_a_takeover_change_nothing() {
    in_time("frozen writers", 300, || {
        for seed in 0..depth(640) {
            Kind::ALL.into_iter().for_each(|kind| frozen(seed, kind));
        }
    });
}

fn frozen(seed: u64, kind: Kind) {
    let (settings, store) = (settings(PRESETS[seed as usize % PRESETS.len()]), store(seed, kind));
    let [commits, checkpoints, closes] = [0, 1, 2].map(|bit| seed >> bit & 1 == 0);
    let context = format!("seed {seed}, {kind:?}, {}, commits {commits}", settings.preset);
    let (client, db) = open(&settings, &store).expect("opens");
    let table = db.create_table("t").expect("new");
    for _ in 0..5 {
        count(&db, &table, 300).expect("commits");
    }
    client.hold_requests();
    let frozen = {
        let (db, table) = (db.clone(), table.clone());
        std::thread::spawn(move || match commits {
            true => count(&db, &table, 300).map(drop),
            false => db.checkpoint().map(drop),
        })
    };
    while store.requests_in_flight().is_empty() {
        std::thread::yield_now();
    }
    let (other, next) = open(&settings, &store).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(check(&next, &context), 5, "{context}");
    let theirs = next.table("t").expect("is there");
    for _ in 0..3 {
        count(&next, &theirs, 300).expect("commits");
    }
    if checkpoints {
        next.checkpoint().expect("no fault");
    }
    client.release();
    let error = frozen.join().expect("no panic").expect_err("another writer has the database");
    let kinds = [ErrorKind::Fenced, ErrorKind::OutcomeUnknown];
    assert!(kinds.contains(&error.kind()), "{context}: {error}");
    assert_eq!(check(&next, &context), 8, "{context}");
    drop((table, db, theirs));
    if closes {
        next.close().unwrap_or_else(|error| panic!("{context}: {error}"));
    } else {
        other.stop();
        drop(next);
    }
    let (last, db) = open(&settings, &store).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(check(&db, &context), 8, "{context}: opened again");
    verify(&db, &context);
    drop(db);
    [client, other, last].iter().for_each(|client| client.kill());
}

/// A writer dies when an append was torn, beside others that were not: the torn block is the end of
/// its lane, and hides no block of the lanes behind it.
#[test]
fn torn_block_at_the_end_of_a_lane_is_its_end() {
    in_time("torn blocks", 120, || (0..depth(320)).for_each(torn));
}

fn torn(seed: u64) {
    let (settings, store) = (settings(PRESETS[seed as usize % PRESETS.len()]), store(seed, Kind::Streams));
    let (client, db) = open(&settings, &store).expect("opens");
    let table = db.create_table("t").expect("new");
    // No stream is opened again, so the torn block stays where it is.
    let open_again = Some(RequestKind::Open);
    client.inject(Fault { request: open_again, for_ever: true, ..Fault::once(FaultKind::LostRequest) });
    let torn = Fault { prefix: "log/".into(), after: 8 + seed % 16, ..Fault::once(FaultKind::Torn) };
    client.inject(torn);
    let committer = |committer: u8| {
        let (db, table) = (db.clone(), table.clone());
        std::thread::spawn(move || {
            let insert = |row: u8| db.transact(|tx| tx.insert(&table, [committer, row], vec![row; 300]));
            (0..=255).take_while(|row| insert(*row).is_ok()).count()
        })
    };
    let committers: Vec<_> = (0..4).map(committer).collect();
    while store.faults_struck() == 0 {
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(2));
    client.stop();
    let acknowledged: Vec<usize> = committers.into_iter().map(|it| it.join().expect("no panic")).collect();
    drop((table, db));
    let (other, db) = open(&settings, &store).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let (table, snapshot) = (db.table("t").expect("is there"), db.begin_read().expect("free"));
    for (committer, rows) in acknowledged.into_iter().enumerate() {
        for row in 0..rows {
            let found = snapshot.get(&table, [committer as u8, row as u8]).expect("readable");
            assert!(found.is_some(), "seed {seed}: row {row} of {rows} of committer {committer} is lost");
        }
    }
    drop((snapshot, table, db));
    [client, other].iter().for_each(|client| client.kill());
}

/// Regression: while a store did not answer, and commits waited, the health of the database was
/// good.
#[test]
fn a_store_that_does_not_answer_is_a_degraded_health() {
    in_time("a store that does not answer", 120, || {
        let store = store(1, true);
        let (client, db) = open(&settings(Preset::Auto), &store).expect("opens");
        let table = db.create_table("t").expect("new");
        assert_eq!(db.health().state, HealthState::Healthy);
        client.hold_requests();
        let committer = {
            let (db, table) = (db.clone(), table.clone());
            std::thread::spawn(move || db.transact(|tx| tx.insert(&table, "a", "1")))
        };
        while db.health().state == HealthState::Healthy {
            std::thread::sleep(Duration::from_millis(20));
        }
        let health = db.health();
        assert_eq!(health.state, HealthState::Degraded);
        assert!(health.reasons[0].contains("store of objects"), "{health:?}");
        client.release();
        committer.join().expect("no panic").expect("the store answers again");
        assert_eq!(db.health().state, HealthState::Healthy);
        drop((table, db));
        client.kill();
    });
}

#[test]
fn wrong_objects_give_one_clear_error() {
    let settings = settings(Preset::Auto);
    let foreign = store(1, true);
    foreign.set_object("photos/1.jpg", vec![1; 10]);
    let error = open(&settings, &foreign).map(drop).expect_err("the prefix is in use");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("photos/1.jpg"), "{error}");
    assert_eq!(foreign.objects().len(), 1, "nothing was written");

    let damaged = store(2, true);
    let (client, db) = open(&settings, &damaged).expect("opens");
    let table = db.create_table("t").expect("new");
    count(&db, &table, 100).expect("commits");
    client.kill();
    std::mem::forget((table, db));
    let (whole, mut refused) = (damaged.objects(), 0);
    for name in whole.keys().filter(|name| name.starts_with("log/")) {
        let left = damaged.fork(1);
        left.remove_object(name);
        // An object that no manifest names yet is not missed.
        let Err(error) = open(&settings, &left).map(drop) else { continue };
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        assert!(error.to_string().contains(&name[..]), "{error}");
        refused += 1;
    }
    assert!(refused >= 2, "a segment has two lanes");
    let left = damaged.fork(1);
    left.remove_object("manifest");
    let error = open(&settings, &left).map(drop).expect_err("the manifest is missing");
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    let mut manifest = whole["manifest"].to_vec();
    *manifest.last_mut().expect("not empty") ^= 1;
    damaged.set_object("manifest", manifest);
    let error = open(&settings, &damaged).map(drop).expect_err("the manifest is damaged");
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert!(error.to_string().contains("manifest"), "{error}");
}

/// A lane takes 8 parts, of which a header and a fence take two. A segment has 16 sectors.
#[test]
fn a_segment_has_lanes_for_all_its_blocks() {
    in_time("a long segment", 60, || {
        let store = SimulatedStore::with(StoreOptions { parts_max: 8, ..StoreOptions::new(1) });
        let settings = settings(Preset::PerTransaction).with(|s| s.logs = 1);
        let (client, db) = open(&settings, &store).expect("opens");
        let table = db.create_table("t").expect("new");
        for number in 1..=100 {
            assert_eq!(count(&db, &table, 10).expect("commits"), number);
        }
        drop((table, db));
        client.stop();
        let (_client, db) = open(&settings, &store).expect("opens again");
        assert_eq!(check(&db, "opened again"), 100);
    });
}

/// The second writer has moved the pages that the first one needs.
#[test]
fn a_read_of_a_writer_that_has_ended_says_why_it_fails() {
    let (settings, store) = (tiny(1 << 20), store(1, true));
    let (_client, db) = open(&settings, &store).expect("opens");
    let table = db.create_table("t").expect("new");
    let fill = |db: &Database, table: &Table| {
        for batch in 0..40_u8 {
            let insert = |row: u8| db.transact(|tx| tx.insert(table, [batch, row], vec![row; 2000]));
            (0..40).for_each(|row| insert(row).expect("commits"));
        }
        db.checkpoint().expect("no fault");
    };
    fill(&db, &table);
    let (_other, next) = open(&settings, &store).expect("takes over");
    let theirs = next.table("t").expect("is there");
    (0..4).for_each(|_| fill(&next, &theirs));
    let snapshot = db.begin_read().expect("what is durable can be read");
    let read = (0..40).flat_map(|batch| (0..40).map(move |row| [batch, row]));
    let errors: Vec<_> = read.filter_map(|key: [u8; 2]| snapshot.get(&table, key).err()).collect();
    assert!(!errors.is_empty(), "all pages are in memory");
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        assert!(error.to_string().contains("another process has opened the database"), "{error}");
    }
}

#[test]
fn statistics_count_the_requests_of_a_database() {
    let (settings, store) = (settings(Preset::PerTransaction), store(1, true));
    let (_client, db) = open(&settings, &store).expect("opens");
    let table = db.create_table("t").expect("new");
    let before = db.statistics().object_requests.expect("there is a store");
    for _ in 0..10 {
        count(&db, &table, 5_000).expect("commits");
    }
    db.checkpoint().expect("no fault");
    let now = db.statistics().object_requests.expect("there is a store");
    let since = now.since(&before);
    assert!(since.appends >= 10 && since.puts >= 2, "{since:?}");
    assert!(since.sent_bytes >= 50_000, "{since:?}");
    assert_eq!((since.throttled, since.unknown), (0, 0));
    let counted = [now.puts, now.appends, 0, 0, now.gets, now.heads, now.lists, now.deletes];
    assert_eq!(counted, RequestKind::ALL.map(|kind| store.requests_of(kind)));
    // A failed request counts, too.
    store.set_odds(FaultKind::ThrottledBefore, 500);
    for _ in 0..20 {
        count(&db, &table, 10).expect("commits");
    }
    let throttled = db.statistics().object_requests.expect("there is a store").throttled;
    assert!(throttled > 3, "{throttled}");
    assert_eq!(tiny(1 << 20).open_in_memory().statistics().object_requests, None);
}
