//! Readers of checkpoints of a database in a store of objects, on other machines than the writer:
//! each step of one beside each request of the other, takeovers, crashes, and pins that end early.

use crate::objects::{Kind, check, connect, count, open, settings, store};
use crate::support::{Content, await_that, content, in_time};
use quenchdb::internals::base::depth::{depth, is_deep};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::Storage;
use quenchdb::internals::device::objects::simulated::{Fault, FaultKind, SimulatedClient, SimulatedStore};
use quenchdb::internals::device::objects::{
    Done, ObjectStorage, ObjectStore, Options, Request, RequestKind, StoreFacts,
};
use quenchdb::{BackupOptions, Csn, Database, ErrorKind, Place, Preset, RestoreOptions, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Action = Box<dyn FnOnce() + Send>;

/// A connection that performs something before one of its requests.
struct Interrupted {
    client: Arc<SimulatedClient>,
    /// The requests that count. A delete may be started by the network's thread, which must not
    /// wait.
    kinds: &'static [RequestKind],
    /// How many of these requests go before; then the action.
    action: Mutex<(usize, Option<Action>)>,
}

impl std::fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.client.fmt(f)
    }
}

impl ObjectStore for Interrupted {
    fn start(&self, request: Request, done: Done) {
        if self.kinds.contains(&request.kind()) {
            let action = {
                let mut action = self.action.lock().expect("no panic");
                action.0 = action.0.wrapping_sub(1);
                if action.0 == usize::MAX { action.1.take() } else { None }
            };
            action.into_iter().for_each(|action| action());
        }
        self.client.start(request, done);
    }

    fn facts(&self) -> StoreFacts {
        self.client.facts()
    }
}

impl Interrupted {
    fn new(store: &SimulatedStore, kinds: &'static [RequestKind]) -> Arc<Interrupted> {
        Arc::new(Interrupted { client: store.client(), kinds, action: Mutex::new((0, None)) })
    }

    fn before(&self, requests: usize, action: impl FnOnce() + Send + 'static) {
        *self.action.lock().expect("no panic") = (requests, Some(Box::new(action)));
    }

    /// Forgets the action; returns whether it was still to come.
    fn forget(&self) -> bool {
        self.action.lock().expect("no panic").1.take().is_some()
    }

    fn storage(self: &Arc<Self>, options: Options) -> Arc<ObjectStorage> {
        Arc::new(ObjectStorage::new(self.clone(), self.facts(), options))
    }
}

fn options() -> Options {
    let (patience, watch) = (Duration::from_secs(20), Duration::from_millis(20));
    Options { patience, watch, lanes: 2, extent_bytes: 64 << 10, ..Options::default() }
}

fn read(storage: Arc<dyn Storage>) -> Result<Database> {
    // A pool of a dozen pages, so that reads go to the store.
    let settings = settings(Preset::Auto).with(|s| s.memory_bytes = 1 << 20);
    Database::builder().settings(settings).storage(storage).open_checkpoint("objects")
}

/// A database, and the content of each of its checkpoints.
#[derive(Clone)]
struct Writer {
    db: Database,
    history: Arc<Mutex<BTreeMap<Csn, Content>>>,
    random: Arc<Mutex<Random>>,
}

impl Writer {
    fn new(db: Database, seed: u64) -> Writer {
        let random = Arc::new(Mutex::new(Random::from_seed(seed)));
        db.table_or_create("rows").expect("free");
        let writer = Writer { db, history: Arc::default(), random };
        writer.checkpoint().expect("no fault");
        writer
    }

    /// Replaces many of few rows and makes a checkpoint, so that extents die.
    fn step(&self) {
        self.try_step().expect("no fault");
    }

    /// As [`Writer::step`]. If it fails, the writer has ended.
    fn try_step(&self) -> Result<()> {
        let table = self.db.table("rows").expect("is there");
        let mut random = self.random.lock().expect("no panic");
        let change = |tx: &mut quenchdb::Transaction| {
            for _ in 0..150 {
                let (key, byte) = ((random.below(400) as u16).to_be_bytes(), random.below(256) as u8);
                match random.below(8) {
                    0 => drop(tx.remove(&table, key)?),
                    _ => tx.insert(&table, key, vec![byte; 200 + random.below(1500) as usize])?,
                }
            }
            Ok(())
        };
        self.db.transact(change)?;
        drop(random);
        self.checkpoint()
    }

    fn checkpoint(&self) -> Result<()> {
        let (table, snapshot) = (self.db.table("rows")?, self.db.begin_read()?);
        let named = |(key, value)| (("rows".to_string(), key), value);
        let rows = snapshot.range(&table, ..);
        let expected = rows.map(|row| row.map(named)).collect::<Result<Content>>()?;
        // The content does not change meanwhile, whichever of two checkpoints a reader finds.
        let csn = self.db.statistics().newest_csn;
        self.history.lock().expect("no panic").insert(csn, expected);
        self.db.checkpoint()?;
        assert_eq!(self.db.checkpoint_csn(), csn);
        Ok(())
    }

    /// Continues on another machine. The writer before is not closed.
    fn take_over(&self, store: &SimulatedStore, seed: u64) -> (Arc<SimulatedClient>, Writer) {
        let (client, db) = open(&settings(Preset::Auto), store).expect("opens");
        let (history, random) = (self.history.clone(), Arc::new(Mutex::new(Random::from_seed(seed))));
        let writer = Writer { db, history, random };
        writer.checkpoint().expect("no fault");
        (client, writer)
    }

    fn check(&self, reader: &Database, context: &str) {
        let history = self.history.lock().expect("no panic");
        let expected = history.get(&reader.checkpoint_csn());
        assert_eq!(Some(&content(reader)), expected, "{context}");
    }
}

/// Stops the machine of a writer, which does not close the database.
fn stop(client: &Arc<SimulatedClient>, writer: Writer) {
    client.stop();
    drop(writer);
    client.kill();
}

fn names(store: &SimulatedStore, prefix: &str) -> Vec<String> {
    store.objects().into_keys().filter(|name| name.starts_with(prefix)).collect()
}

fn settle(store: &SimulatedStore) {
    await_that("no request is in flight", || store.requests_in_flight().is_empty());
}

#[test]
fn a_reader_opens_beside_each_request_of_a_checkpoint() {
    in_time("readers beside checkpoints", 200, || {
        for kind in Kind::ALL {
            let store = store(11, kind);
            let machine = Interrupted::new(&store, &[RequestKind::Put, RequestKind::List]);
            let builder = Database::builder().settings(settings(Preset::Auto));
            let db = builder.storage(machine.storage(options())).open("objects").expect("opens");
            let writer = Writer::new(db, 1);
            (0..4).for_each(|_| writer.step());
            let readers = Arc::new(Mutex::new(Vec::new()));
            for at in (0..).step_by(if is_deep() { 1 } else { 7 }) {
                let (other, kept) = (store.clone(), readers.clone());
                machine.before(at, move || {
                    let (client, storage) = connect(&other);
                    kept.lock().expect("no panic").push((client, read(storage).expect("opens"), at));
                });
                writer.step();
                if machine.forget() {
                    break;
                }
                let mut readers = readers.lock().expect("no panic");
                for (_, reader, at) in &*readers {
                    writer.check(reader, &format!("{kind:?}, before request {at}"));
                }
                if readers.len() > 4 {
                    readers.drain(..3);
                }
            }
            let opened = readers.lock().expect("no panic").drain(..).map(|(.., at)| at).max();
            assert!(opened > Some(5), "{opened:?}");
            drop(writer);
            machine.client.kill();
        }
    });
}

#[test]
fn a_checkpoint_beside_each_request_of_an_opening_reader() {
    in_time("checkpoints beside readers", 200, || {
        for kind in Kind::ALL {
            let store = store(12, kind);
            let (client, db) = open(&settings(Preset::Auto), &store).expect("opens");
            let writer = Writer::new(db, 2);
            (0..4).for_each(|_| writer.step());
            for at in 0.. {
                let machine =
                    Interrupted::new(&store, &[RequestKind::Put, RequestKind::Get, RequestKind::List]);
                let (beside, other) = (writer.clone(), store.clone());
                machine.before(at, move || {
                    (0..3).for_each(|_| beside.step());
                    settle(&other);
                });
                let reader = read(machine.storage(options())).expect("opens");
                if machine.forget() {
                    break;
                }
                let context = format!("{kind:?}, before request {at}");
                writer.check(&reader, &context);
                (0..3).for_each(|_| writer.step());
                settle(&store);
                writer.check(&reader, &context);
                assert_eq!(names(&store, "pins/").len(), 1, "{context}");
            }
            drop(writer);
            client.kill();
        }
    });
}

#[test]
fn a_reader_outlives_a_writer_that_stops_at_any_request() {
    in_time("writers that stop", 200, || {
        for kind in Kind::ALL {
            let store = store(13, kind);
            let (mut last, db) = open(&settings(Preset::Auto), &store).expect("opens");
            let mut writer = Writer::new(db, 3);
            (0..4).for_each(|_| writer.step());
            let (client, storage) = connect(&store);
            let oldest = read(storage).expect("opens");
            for at in (0..).step_by(if is_deep() { 1 } else { 9 }) {
                let machine = Interrupted::new(&store, &[RequestKind::Put, RequestKind::List]);
                let builder = Database::builder().settings(settings(Preset::Auto));
                let db = builder.storage(machine.storage(options())).open("objects").expect("opens");
                let next = Writer { db, history: writer.history.clone(), random: writer.random.clone() };
                stop(&last, std::mem::replace(&mut writer, next));
                let ends = machine.clone();
                machine.before(at, move || ends.client.stop());
                let _ = writer.try_step();
                let has_worked = machine.forget();
                let (newer, storage) = connect(&store);
                let reader = read(storage).expect("opens");
                let (other, next) = writer.take_over(&store, at as u64);
                stop(&machine.client, std::mem::replace(&mut writer, next));
                last = other;
                (0..3).for_each(|_| writer.step());
                store.finish_late();
                let context = format!("{kind:?}, stopped before request {at}");
                writer.check(&oldest, &context);
                writer.check(&reader, &context);
                drop(reader);
                newer.kill();
                if has_worked {
                    break;
                }
            }
            drop(oldest);
            client.kill();
            stop(&last, writer);
        }
    });
}

#[test]
fn readers_of_any_age_read_their_checkpoints() {
    in_time("readers and takeovers", 300, || {
        for seed in 0..depth(40) {
            mixed(seed, false);
            mixed(seed, true);
        }
    });
}

/// Readers come and go while writers change, end, and take the database from one another. With
/// faults, requests fail in all ways that prove nothing, and some take effect late.
fn mixed(seed: u64, faults: bool) {
    let store = store(seed, seed.is_multiple_of(2));
    for kind in FaultKind::ALL.into_iter().filter(|kind| faults && *kind != FaultKind::Denied) {
        store.set_odds(kind, 20);
    }
    let mut random = Random::from_seed(seed);
    let (mut client, db) = open(&settings(Preset::Auto), &store).expect("opens");
    let mut writer = Writer::new(db, seed);
    let mut readers: Vec<(Arc<SimulatedClient>, Database)> = Vec::new();
    for round in 0..30 {
        let context = format!("seed {seed}, round {round}");
        match random.below(10) {
            0 => drop(writer.db.compact(None).expect("no fault")),
            1 => {
                // The writer before is not closed, and may have deletes in flight.
                let (other, next) = writer.take_over(&store, seed + round);
                stop(&std::mem::replace(&mut client, other), std::mem::replace(&mut writer, next));
            }
            2 | 3 if !readers.is_empty() => {
                let (client, reader) = readers.swap_remove(random.below(readers.len() as u64) as usize);
                drop(reader);
                client.kill();
            }
            4 | 5 => {
                let (client, storage) = connect(&store);
                readers.push((client, read(storage).unwrap_or_else(|error| panic!("{context}: {error}"))));
            }
            _ => writer.step(),
        }
        readers.iter().for_each(|(_, reader)| writer.check(reader, &context));
    }
    readers.drain(..).for_each(|(client, reader)| {
        drop(reader);
        client.kill();
    });
    if faults {
        // The removal of a pin is tried once.
        store.heal();
        store.finish_late();
        let place = Place::storage(connect(&store).1);
        place.pins().expect("no fault").iter().for_each(|pin| place.remove_pin(&pin.name).expect("is there"));
    }
    assert_eq!(names(&store, "pins/"), Vec::<String>::new(), "seed {seed}");
    // A later checkpoint deletes what pins kept. A new writer would find the objects that stay.
    writer.step();
    writer.step();
    settle(&store);
    let before = names(&store, "pages/");
    stop(&client, writer);
    let (client, db) = open(&settings(Preset::Auto), &store).expect("opens");
    settle(&store);
    let orphans = before.iter().filter(|name| store.object(name).is_none()).count();
    assert!(orphans == 0 || faults, "seed {seed}: of {}", before.len());
    drop(db);
    client.kill();
}

#[test]
fn a_reader_without_its_pin_fails_and_reads_nothing_wrong() {
    in_time("removed pins", 200, || {
        for (seed, ends_by_itself) in [(1, false), (2, true), (3, false), (4, true)] {
            let store = store(seed, seed.is_multiple_of(2));
            let (client, db) = open(&settings(Preset::Auto), &store).expect("opens");
            let writer = Writer::new(db, seed);
            (0..3).for_each(|_| writer.step());
            let machine = Interrupted::new(&store, &[RequestKind::Put, RequestKind::Get, RequestKind::List]);
            let lifetime = if ends_by_itself { Duration::ZERO } else { Duration::from_secs(3600) };
            let storage = machine.storage(Options { pin_lifetime: lifetime, ..options() });
            let reader = read(storage).expect("opens");
            let place = Place::storage(connect(&store).1);
            let pins = place.pins().expect("no fault");
            assert_eq!(pins.len(), 1);
            assert!(pins[0].owner.starts_with(&format!("process {} on ", std::process::id())), "{pins:?}");
            assert!(pins[0].expires > 0);
            if !ends_by_itself {
                (0..3).for_each(|_| writer.step());
                writer.check(&reader, "the pin is there");
                place.remove_pin(&pins[0].name).expect("is there");
                let error = place.remove_pin(&pins[0].name).expect_err("is gone");
                assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            }
            let mut failed = None;
            for _ in 0..50 {
                writer.step();
                settle(&store);
                let history = writer.history.lock().expect("no panic");
                let expected = &history[&reader.checkpoint_csn()];
                let snapshot = reader.begin_read().expect("free");
                let table = reader.table("rows").expect("is there");
                for row in snapshot.range(&table, ..) {
                    match row {
                        Ok((key, value)) => {
                            assert_eq!(expected.get(&("rows".into(), key.to_vec())), Some(&value), "{key:?}");
                        }
                        Err(error) => failed = Some(error),
                    }
                }
                if failed.is_some() {
                    break;
                }
            }
            let error = failed.expect("every page was replaced");
            assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
            assert!(error.to_string().contains("the pin of this reader"), "{error}");
            assert_eq!(names(&store, "pins/"), Vec::<String>::new());
            drop((reader, writer));
            client.kill();
        }
    });
}

#[test]
fn a_dead_reader_keeps_its_checkpoint_until_its_pin_goes() {
    in_time("dead readers", 120, || {
        let store = store(5, true);
        let (client, db) = open(&settings(Preset::Auto), &store).expect("opens");
        let writer = Writer::new(db, 5);
        (0..4).for_each(|_| writer.step());
        let (dead, storage) = connect(&store);
        std::mem::forget(read(storage).expect("opens"));
        dead.kill();
        let pinned = names(&store, "pages/");
        (0..5).for_each(|_| writer.step());
        settle(&store);
        assert!(pinned.iter().all(|name| store.object(name).is_some()), "they are kept");
        // The next writer keeps them, too.
        let (other, db) = open(&settings(Preset::Auto), &store).expect("opens");
        stop(&client, writer);
        let writer = Writer::new(db, 6);
        (0..5).for_each(|_| writer.step());
        settle(&store);
        assert!(pinned.iter().all(|name| store.object(name).is_some()), "they are kept");
        let place = Place::storage(connect(&store).1);
        assert_eq!(writer.db.checkpoint_readers().len(), 1);
        place.remove_pin(&place.pins().expect("no fault")[0].name).expect("is there");
        // An extent goes when nothing in it is in use.
        writer.db.drop_table("rows").expect("is there");
        writer.db.create_table("rows").expect("was dropped");
        (0..5).for_each(|_| writer.step());
        settle(&store);
        let left = pinned.iter().filter(|name| store.object(name).is_some()).count();
        // The others have blocks in use: the header of the file, parts of the mapping.
        assert!(left < pinned.len(), "{left} of {}", pinned.len());
        drop(writer);
        other.kill();
    });
}

#[test]
fn a_writer_that_cannot_list_pins_deletes_no_extent() {
    in_time("writers without a list", 120, || {
        let store = store(6, true);
        let (client, db) = open(&settings(Preset::Auto), &store).expect("opens");
        let writer = Writer::new(db, 6);
        let mut seen = BTreeSet::new();
        let prefix = "pins/".to_string();
        let request = Some(RequestKind::List);
        store.inject(Fault { kind: FaultKind::Denied, request, prefix, after: 0, for_ever: true });
        settle(&store);
        for _ in 0..5 {
            writer.step();
            settle(&store);
            seen.extend(names(&store, "pages/"));
            assert_eq!(names(&store, "pages/").len(), seen.len(), "none is deleted");
        }
        store.heal();
        (0..2).for_each(|_| writer.step());
        settle(&store);
        let left = seen.iter().filter(|name| store.object(name).is_some()).count();
        assert!(left * 4 < seen.len() * 3, "{left} of {}", seen.len());
        drop(writer);
        client.kill();
    });
}

#[test]
fn a_reader_is_backed_up_while_the_writer_continues() {
    in_time("backups of checkpoints", 120, || {
        let store = store(7, true);
        let (client, db) = open(&settings(Preset::Auto), &store).expect("opens");
        let writer = Writer::new(db, 7);
        (0..5).for_each(|_| writer.step());
        let (other, storage) = connect(&store);
        let reader = read(storage).expect("opens");
        let problems = reader.verify(None).expect("runs").problems;
        assert!(problems.is_empty(), "{problems:?}");
        (0..5).for_each(|_| writer.step());
        let target = SimulatedStore::new(8);
        let (third, storage) = connect(&target);
        let report = reader.backup(Place::storage(storage), BackupOptions::default()).expect("sound");
        assert_eq!(report.csn, reader.checkpoint_csn());
        writer.step();
        let (fourth, storage) = connect(&target);
        let restored = SimulatedStore::new(9);
        let (fifth, onto) = connect(&restored);
        let (backup, onto) = (Place::storage(storage), Place::storage(onto));
        Database::restore([backup], onto, RestoreOptions::default()).expect("sound");
        let (sixth, copy) = open(&settings(Preset::Auto), &restored).expect("opens");
        assert_eq!(content(&copy), content(&reader));
        drop((reader, writer, copy));
        [client, other, third, fourth, fifth, sixth].iter().for_each(|client| client.kill());
    });
}

#[test]
fn there_is_no_checkpoint_where_there_is_no_database() {
    let store = store(1, true);
    let (client, storage) = connect(&store);
    let error = read(storage).map(drop).expect_err("nothing is there");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(store.objects().is_empty());
    client.kill();
}

/// A reader without a pin reads the log of a writer that continues.
#[test]
fn a_read_beside_a_busy_writer_is_right_or_refused() {
    in_time("reads beside a writer", 200, || {
        let (mut refused, mut reads) = (0, 0);
        for (preset, appends) in [(Preset::Auto, true), (Preset::Autonomous, true), (Preset::Group, false)] {
            let store = store(1, appends);
            let (client, db) = open(&settings(preset), &store).expect("opens");
            let table = db.create_table("t").expect("new");
            let has_stopped = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        while !has_stopped.load(Ordering::Relaxed) {
                            match count(&db, &table, 100) {
                                Ok(number) if number < 3000 => {}
                                Ok(_) => std::thread::sleep(Duration::from_millis(1)),
                                Err(error) => assert!(error.is_retryable(), "{error}"),
                            }
                        }
                    });
                }
                for _ in 0..depth(200) {
                    reads += 1;
                    if let Err(error) = read_newest(&store, preset) {
                        assert!([ErrorKind::Busy, ErrorKind::Poisoned].contains(&error.kind()), "{error}");
                        refused += 1;
                    }
                }
                has_stopped.store(true, Ordering::Relaxed);
            });
            settle(&store);
            let last = read_newest(&store, preset).expect("nothing is written now");
            assert_eq!(last, check(&db, "the writer"));
            drop((table, db));
            client.kill();
        }
        println!("{refused} of {reads} reads were refused");
        // How many depends on the machine: a slow read meets more writes.
        assert!(refused < reads, "no read came through beside a writer");
    });
}

/// Opens the database to read it, with its log, and returns the number of its rows.
fn read_newest(store: &SimulatedStore, preset: Preset) -> Result<u32> {
    let (client, storage) = connect(store);
    let settings = settings(preset).with(|s| (s.read_only, s.memory_bytes) = (true, 64 << 20));
    let read = Database::builder().settings(settings).storage(storage).open("objects").and_then(|db| {
        let problems = db.verify(None)?.problems;
        assert!(problems.is_empty(), "{problems:?}");
        let (table, snapshot) = (db.table("t")?, db.begin_read()?);
        let keys = snapshot.range(&table, ..).map(|row| row.map(|(key, _)| key));
        let keys = keys.collect::<Result<Vec<_>>>()?;
        let rows: Vec<_> = keys.into_iter().filter(|key| key.len() == 4).collect();
        let expected: Vec<_> = (1..=rows.len() as u32).map(|number| number.to_be_bytes().to_vec()).collect();
        assert_eq!(rows, expected);
        Ok(rows.len() as u32)
    });
    client.kill();
    read
}
