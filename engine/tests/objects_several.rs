//! Databases in several buckets: what was acknowledged survives every loss of a minority.
//!
//! A pattern is a trouble of as many buckets as may fail, a moment at which it begins, and an end
//! of the writer. After it, the database is opened with every minority of the buckets missing.

use quenchdb::internals::device::objects::simulated::{SimulatedClient, SimulatedStore, StoreOptions};
use quenchdb::internals::device::objects::{ObjectStorage, ObjectStore, Options};
use quenchdb::{Database, ErrorKind, Result, Settings, Table};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const COUNTER: &str = "counter";

/// Names and bytes of objects.
pub type Objects = Vec<(String, Vec<u8>)>;

/// Buckets, each with its store.
pub struct Zones {
    pub stores: Vec<SimulatedStore>,
    pub all: bool,
    /// How soon a writer repairs a bucket; late enough for tests of what is not repaired.
    pub repair_pause: Duration,
}

/// A process with its connections to the buckets.
pub struct Machine {
    pub clients: Vec<Arc<SimulatedClient>>,
    pub storage: Arc<ObjectStorage>,
}

pub fn options() -> Options {
    let (patience, claim_rest) = (Duration::from_millis(400), Duration::from_millis(1));
    Options { patience, claim_rest, watch: Duration::from_millis(20), ..Options::default() }
}

impl Zones {
    pub fn new(count: usize, seed: u64) -> Zones {
        Zones::with_latency(count, seed, Duration::ZERO)
    }

    pub fn with_latency(count: usize, seed: u64, latency: Duration) -> Zones {
        let store = |zone| {
            let options = StoreOptions { latency, journal_max: 0, ..StoreOptions::new(seed * 16 + zone) };
            SimulatedStore::with(options)
        };
        let repair_pause = Duration::from_secs(3600);
        Zones { stores: (0..count as u64).map(store).collect(), all: false, repair_pause }
    }

    pub fn connect(&self) -> Machine {
        let clients: Vec<_> = self.stores.iter().map(SimulatedStore::client).collect();
        let named = |(zone, client): (usize, &Arc<SimulatedClient>)| {
            (format!("sim://zone{zone}"), client.clone() as Arc<dyn ObjectStore>)
        };
        let stores = clients.iter().enumerate().map(named).collect();
        Machine { storage: Arc::new(ObjectStorage::several(stores, None, self.options(), true)), clients }
    }

    pub fn options(&self) -> Options {
        Options { all_buckets: self.all, repair_pause: self.repair_pause, ..options() }
    }

    /// Copies of the buckets, in which every process is dead.
    pub fn fork(&self, seed: u64) -> Zones {
        let stores = self.stores.iter().enumerate().map(|(zone, store)| store.fork(seed * 16 + zone as u64));
        Zones { stores: stores.collect(), all: self.all, repair_pause: self.repair_pause }
    }

    pub fn objects(&self, zone: usize) -> Objects {
        self.stores[zone].objects().into_iter().map(|(name, body)| (name, body.to_vec())).collect()
    }

    /// Replaces all objects of a bucket.
    pub fn restore(&self, zone: usize, objects: &Objects) {
        let store = &self.stores[zone];
        store.objects().keys().for_each(|name| store.remove_object(name));
        objects.iter().for_each(|(name, body)| store.set_object(name, body.clone()));
    }
}

pub fn settings() -> Settings {
    Settings::default().with(|s| {
        s.memory_bytes = 4 << 20;
        s.segment_bytes = 64 << 10;
        s.log_bytes_max = 16 << 20;
        s.lab.checkpoint_log_bytes = 8 << 20;
    })
}

impl Machine {
    pub fn open(&self) -> Result<Database> {
        Database::builder().settings(settings()).storage(self.storage.clone()).open("several")
    }

    /// The process dies.
    pub fn kill(&self) {
        self.clients.iter().for_each(|client| client.stop());
    }
}

/// Rows that were written, and how their commits ended.
#[derive(Clone, Default)]
pub struct Written {
    pub acknowledged: BTreeSet<String>,
    pub unknown: BTreeSet<String>,
}

impl Written {
    /// Inserts a row and raises the counter in one transaction.
    pub fn add(&mut self, db: &Database, table: &Table, key: &str) -> Result<()> {
        let mut tx = db.begin()?;
        let before = tx.get(table, COUNTER)?.map_or(0, |value| number(&value));
        tx.insert(table, COUNTER, (before + 1).to_le_bytes())?;
        tx.insert(table, key, "x")?;
        match tx.commit() {
            Ok(_) => drop(self.acknowledged.insert(key.into())),
            Err(error) => {
                self.unknown.insert(key.into());
                return Err(error);
            }
        }
        Ok(())
    }

    pub fn add_all(&mut self, db: &Database, name: &str, count: usize, context: &str) {
        let table = db.table_or_create("t").unwrap_or_else(|error| panic!("{context}: {error}"));
        for n in 0..count {
            let added = self.add(db, &table, &format!("{name}-{n}"));
            added.unwrap_or_else(|error| panic!("{context}: {name}-{n}: {error}"));
        }
    }

    /// Every acknowledged row is there once, and nothing that was never written.
    pub fn check(&self, db: &Database, context: &str) {
        let keys = keys(db, context);
        let lost: Vec<_> = self.acknowledged.difference(&keys).collect();
        assert!(lost.is_empty(), "{context}: lost {lost:?} of {}", self.acknowledged.len());
        let is_foreign = |key: &&String| !self.acknowledged.contains(*key) && !self.unknown.contains(*key);
        let foreign: Vec<_> = keys.iter().filter(is_foreign).collect();
        assert!(foreign.is_empty(), "{context}: foreign {foreign:?}");
        let table = db.table("t").expect("is there");
        let counter = db.begin_read().expect("free").get(&table, COUNTER).expect("readable");
        let counter = counter.map_or(0, |value| number(&value));
        assert_eq!(counter, keys.len() as u64, "{context}: each transaction counts once");
    }

    /// What was served is durable, and what was not there will never be.
    pub fn settle(&mut self, db: &Database, context: &str) {
        self.acknowledged = keys(db, context);
        self.unknown.clear();
    }
}

pub fn keys(db: &Database, context: &str) -> BTreeSet<String> {
    let table = db.table("t").unwrap_or_else(|error| panic!("{context}: {error}"));
    let snapshot = db.begin_read().expect("free");
    let rows = snapshot.range(&table, ..).map(|row| row.unwrap_or_else(|error| panic!("{context}: {error}")));
    let keys = rows.map(|(key, _)| String::from_utf8_lossy(&key).into_owned());
    keys.filter(|key| key != COUNTER).collect()
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().expect("eight bytes"))
}

#[test]
fn a_database_in_three_buckets_survives_its_close() {
    let zones = Zones::new(3, 1);
    let mut written = Written::default();
    for round in 0..3 {
        let db = zones.connect().open().expect("opens");
        written.add_all(&db, &format!("{round}"), 10, "first");
        db.checkpoint().expect("no fault");
        written.add_all(&db, &format!("{round}-last"), 1, "then");
        written.check(&db, "same process");
        db.close().expect("closes");
    }
    let db = zones.connect().open().expect("opens");
    written.check(&db, "opened again");
}

#[test]
fn fewer_buckets_than_a_majority_are_refused() {
    let zones = Zones::new(3, 2);
    zones.connect().open().expect("opens").close().expect("closes");
    let machine = zones.connect();
    machine.clients[0].partition();
    machine.clients[2].partition();
    let error = machine.open().expect_err("two are missing");
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    zones.connect().open().expect("all are there");
}

#[test]
fn a_new_database_needs_all_of_its_buckets() {
    let zones = Zones::new(3, 3);
    let machine = zones.connect();
    machine.clients[1].partition();
    machine.open().expect_err("one is missing");
    let mut written = Written::default();
    let db = zones.connect().open().expect("what was begun is completed");
    written.add_all(&db, "a", 3, "new");
    written.check(&db, "new");
}

#[test]
fn another_list_of_buckets_is_refused_by_name() {
    let zones = Zones::new(4, 4);
    let named = |names: &[usize]| {
        let store = |zone: &usize| {
            (format!("sim://zone{zone}"), zones.stores[*zone].client() as Arc<dyn ObjectStore>)
        };
        let storage = ObjectStorage::several(names.iter().map(store).collect(), None, options(), true);
        Database::builder().memory_bytes(4 << 20).storage(Arc::new(storage)).open("several")
    };
    named(&[0, 1, 2]).expect("opens").close().expect("closes");
    let error = named(&[0, 1, 3]).expect_err("another bucket").to_string();
    assert!(error.contains("missing sim://zone2, not of the database sim://zone3"), "{error}");
    let error = named(&[0, 1]).expect_err("a bucket less").to_string();
    assert!(error.contains("missing sim://zone2"), "{error}");
    named(&[2, 0, 1]).expect("the order does not matter");
}

#[test]
fn a_bucket_alone_is_refused() {
    let zones = Zones::new(3, 5);
    zones.connect().open().expect("opens").close().expect("closes");
    let client = zones.stores[0].client();
    let storage = ObjectStorage::new(client.clone(), client.facts(), options());
    let opened = Database::builder().memory_bytes(4 << 20).storage(Arc::new(storage)).open("one");
    let error = opened.expect_err("one of three");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[test]
fn with_all_a_missing_bucket_stops_commits_and_loses_nothing() {
    let zones = Zones { all: true, ..Zones::new(3, 6) };
    let mut written = Written::default();
    let machine = zones.connect();
    let db = machine.open().expect("opens");
    written.add_all(&db, "a", 5, "all there");
    machine.clients[2].partition();
    let table = db.table("t").expect("is there");
    written.add(&db, &table, "b").expect_err("one copy is missing");
    machine.kill();
    drop((table, db));
    let db = zones.connect().open().expect("opens");
    written.check(&db, "opened again");
}

/// The writer is cut off from two of three buckets: nothing is acknowledged, and another writer
/// that reaches these two continues.
#[test]
fn a_writer_with_one_of_three_buckets_acknowledges_nothing() {
    let zones = Zones::new(3, 7);
    let mut written = Written::default();
    let machine = zones.connect();
    let db = machine.open().expect("opens");
    written.add_all(&db, "a", 5, "all there");
    machine.clients[0].partition();
    machine.clients[1].partition();
    let table = db.table("t").expect("is there");
    let error = written.add(&db, &table, "b").expect_err("two copies are missing");
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    let other = zones.connect();
    other.clients[2].partition();
    let theirs = other.open().expect("takes over");
    written.check(&theirs, "taken over");
    written.settle(&theirs, "taken over");
    written.add_all(&theirs, "c", 5, "taken over");
    other.kill();
    drop((table, db, theirs));
    // Now with the bucket to which only the first writer wrote.
    for missing in 0..3 {
        let zones = zones.fork(missing as u64);
        let machine = zones.connect();
        machine.clients[missing].partition();
        written.check(&machine.open().expect("opens"), &format!("without {missing}"));
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trouble {
    /// Out of reach, for ever.
    Lost,
    /// Requests take effect when the trouble ends.
    Slow,
    /// Requests fail, and take effect then, later, or never.
    Partitioned,
    /// The content of some time before.
    Old,
    Emptied,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moment {
    Writing,
    Checkpoint,
    /// Between two manifests, with a segment that is new.
    Segment,
    /// After the first writer's end.
    Takeover,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Killed,
    Closed,
    /// It continues, and learns of the takeover late.
    Zombie,
}

#[derive(Clone, Debug)]
struct Pattern {
    zones: usize,
    troubled: Vec<usize>,
    trouble: Trouble,
    moment: Moment,
    end: End,
}

impl Pattern {
    fn all() -> Vec<Pattern> {
        let mut all = Vec::new();
        let troubles = [Trouble::Lost, Trouble::Slow, Trouble::Partitioned, Trouble::Old, Trouble::Emptied];
        let moments = [Moment::Writing, Moment::Checkpoint, Moment::Segment, Moment::Takeover];
        for trouble in troubles {
            for moment in moments {
                for end in [End::Killed, End::Closed, End::Zombie] {
                    let of = |zones, troubled: &[usize]| Pattern {
                        zones,
                        troubled: troubled.to_vec(),
                        trouble,
                        moment,
                        end,
                    };
                    all.extend((0..3).map(|zone| of(3, &[zone])));
                    if end != End::Closed {
                        all.push(of(5, &[all.len() % 5, (all.len() + 2) % 5]));
                    }
                }
            }
        }
        all
    }
}

struct Run {
    pattern: Pattern,
    zones: Zones,
    written: Written,
    old: Vec<Objects>,
    context: String,
}

impl Run {
    fn of(seed: u64, pattern: Pattern) -> Run {
        let (zones, context) = (Zones::new(pattern.zones, seed), format!("pattern {seed}: {pattern:?}"));
        Run { pattern, zones, written: Written::default(), old: Vec::new(), context }
    }

    fn begin(&self, machine: &Machine) {
        for &zone in &self.pattern.troubled {
            let client = &machine.clients[zone];
            match self.pattern.trouble {
                Trouble::Slow => client.hold_requests(),
                Trouble::Lost | Trouble::Partitioned => client.partition(),
                Trouble::Old => self.zones.restore(zone, &self.old[zone]),
                Trouble::Emptied => self.zones.restore(zone, &Vec::new()),
            }
        }
    }

    /// What is troubled stays so for a later process.
    fn stay(&self, machine: &Machine) {
        for &zone in &self.pattern.troubled {
            match self.pattern.trouble {
                Trouble::Slow => machine.clients[zone].hold_requests(),
                Trouble::Lost | Trouble::Partitioned => machine.clients[zone].partition(),
                Trouble::Old | Trouble::Emptied => {}
            }
        }
    }

    fn run(mut self) {
        let context = self.context.clone();
        let first = self.zones.connect();
        let db = first.open().unwrap_or_else(|error| panic!("{context}: {error}"));
        self.written.add_all(&db, "a", 4, &context);
        self.old = (0..self.pattern.zones).map(|zone| self.zones.objects(zone)).collect();
        // A bucket that confirmed two manifests since is found to be old.
        db.checkpoint().unwrap_or_else(|error| panic!("{context}: {error}"));
        self.written.add_all(&db, "b", 2, &context);
        db.checkpoint().unwrap_or_else(|error| panic!("{context}: {error}"));
        db.checkpoint().unwrap_or_else(|error| panic!("{context}: {error}"));
        self.written.add_all(&db, "c", 2, &context);
        if self.pattern.moment == Moment::Segment {
            let table = db.table("t").expect("is there");
            let mut tx = db.begin().expect("free");
            tx.insert(&table, COUNTER, 8_u64.to_le_bytes()).expect("no conflict");
            tx.commit().unwrap_or_else(|error| panic!("{context}: {error}"));
        }
        if self.pattern.moment != Moment::Takeover {
            self.begin(&first);
        }
        if self.pattern.moment == Moment::Checkpoint {
            db.checkpoint().unwrap_or_else(|error| panic!("{context}: {error}"));
        }
        self.written.add_all(&db, "d", 4, &context);
        let mut zombie = None;
        match self.pattern.end {
            End::Killed => {
                first.kill();
                drop(db);
            }
            End::Closed => db.close().unwrap_or_else(|error| panic!("{context}: {error}")),
            End::Zombie => zombie = Some(db),
        }
        if self.pattern.moment == Moment::Takeover {
            self.begin(&first);
        }
        // Of copies, before a takeover.
        self.open_again();
        let second = self.take_over("e");
        if let Some(db) = zombie {
            let table = db.table("t").expect("is there");
            self.written.add(&db, &table, "zombie").expect_err("it was taken over");
            first.kill();
            drop((table, db));
        }
        let (machine, db) = second;
        self.written.add_all(&db, "f", 2, &context);
        machine.kill();
        drop(db);
        self.open_again();
    }

    /// Another process opens the database under the trouble, writes, and checks.
    fn take_over(&mut self, name: &str) -> (Machine, Database) {
        let machine = self.zones.connect();
        self.stay(&machine);
        let db = machine.open().unwrap_or_else(|error| panic!("{}: {name}: {error}", self.context));
        self.written.check(&db, &format!("{}: {name}", self.context));
        self.written.settle(&db, &self.context);
        self.written.add_all(&db, name, 3, &self.context);
        (machine, db)
    }

    /// Copies the buckets that are left, and opens each copy with other buckets missing.
    fn open_again(&self) {
        let f = (self.pattern.zones - 1) / 2;
        let is_back = matches!(self.pattern.trouble, Trouble::Slow | Trouble::Partitioned);
        let minorities: Vec<Vec<usize>> = match is_back {
            true => minorities(self.pattern.zones, f),
            false => vec![Vec::new(), self.pattern.troubled.clone()],
        };
        for (seed, missing) in (0..).zip(minorities) {
            let zones = self.zones.fork(seed);
            zones
                .stores
                .iter()
                .for_each(|store| if seed % 2 == 0 { store.finish_late() } else { store.lose_late() });
            let machine = zones.connect();
            missing.iter().for_each(|zone| machine.clients[*zone].partition());
            let context = format!("{}: without {missing:?}", self.context);
            let db = machine.open().unwrap_or_else(|error| panic!("{context}: {error}"));
            let mut written = self.written.clone();
            written.check(&db, &context);
            written.add_all(&db, "g", 1, &context);
            machine.kill();
            drop(db);
        }
    }
}

/// Returns all sets of `f` of `count` buckets.
fn minorities(count: usize, f: usize) -> Vec<Vec<usize>> {
    let sets = (0_u32..1 << count).filter(|set| set.count_ones() as usize == f);
    sets.map(|set| (0..count).filter(|zone| set >> zone & 1 == 1).collect()).collect()
}

/// Each pattern without repairs, and, because they take turns with everything else, with repairs.
fn run_part(part: usize, parts: usize) {
    let all = Pattern::all();
    assert!(all.len() >= 200, "{}", all.len());
    for (seed, pattern) in all.into_iter().enumerate() {
        if seed % parts == part {
            Run::of(seed as u64, pattern.clone()).run();
            let mut repaired = Run::of(seed as u64, pattern);
            repaired.zones.repair_pause = Duration::from_millis(1);
            repaired.context.push_str(", with repairs");
            repaired.run();
        }
    }
}

#[test]
fn every_pattern_of_failed_buckets_loses_nothing_1() {
    run_part(0, 4);
}

#[test]
fn every_pattern_of_failed_buckets_loses_nothing_2() {
    run_part(1, 4);
}

#[test]
fn every_pattern_of_failed_buckets_loses_nothing_3() {
    run_part(2, 4);
}

#[test]
fn every_pattern_of_failed_buckets_loses_nothing_4() {
    run_part(3, 4);
}
