//! A standby of a database in a simulated store of objects: what its snapshots show, at each CSN,
//! beside checkpoints, takeovers, removed log, lost pins and damage; and what a promoted one holds.

use crate::objects::{Kind, check, connect, count, open, settings, store};
use crate::support::{Content, await_that, content_of, in_time};
use quenchdb::internals::base::depth::{depth, is_deep};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::Storage;
use quenchdb::internals::device::objects::simulated::SimulatedStore;
use quenchdb::{Csn, Database, ErrorKind, Place, Preset, Result, Settings, Standby, StandbySnapshot};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn standby_in(storage: Arc<dyn Storage>, settings: &Settings) -> Result<Standby> {
    let settings = settings.clone().with(|s| s.memory_bytes = 2 << 20);
    Database::builder().settings(settings).storage(storage).open_standby("objects")
}

pub fn standby(store: &SimulatedStore, settings: &Settings) -> Standby {
    standby_in(connect(store).1, settings).expect("a database")
}

/// Returns every row that a snapshot shows, and a row for each table.
fn rows_and_tables(snapshot: &StandbySnapshot) -> Content {
    let names = snapshot.tables().into_iter();
    let tables = names.clone().map(|name| (snapshot.table(&name).expect("listed"), name));
    let mut content = content_of(snapshot, tables).expect("readable");
    content.extend(names.map(|name| ((name, b"\0table".to_vec()), Vec::new())));
    content
}

/// A database that is changed at random, and its content at each CSN.
pub struct Primary {
    pub db: Database,
    pub model: Content,
    pub history: BTreeMap<Csn, Content>,
    random: Random,
}

impl Primary {
    pub fn new(db: Database, seed: u64) -> Primary {
        let mut primary =
            Primary { db, model: Content::new(), history: BTreeMap::new(), random: Random::from_seed(seed) };
        primary.note();
        primary
    }

    pub fn note(&mut self) {
        self.history.insert(self.db.statistics().newest_csn, self.model.clone());
    }

    pub fn names(&self) -> Vec<String> {
        self.db.tables()
    }

    pub fn step(&mut self) {
        let names = self.names();
        let at = self.random.below(names.len().max(1) as u64) as usize;
        let choice = if names.is_empty() { 0 } else { self.random.below(40) };
        match choice {
            0 if names.len() < 5 => self.create(),
            1 => self.drop(&names[at]),
            2 => self.clear(&names[at]),
            3 => self.rename(&names[at]),
            4 => drop(self.db.checkpoint().expect("no fault")),
            _ => self.change_rows(&names[at]),
        }
        self.note();
    }

    pub fn create(&mut self) {
        let name = format!("t{}", self.random.below(1000));
        if self.db.create_table(&name).is_ok() {
            self.model.insert((name, b"\0table".to_vec()), Vec::new());
        }
    }

    fn drop(&mut self, name: &str) {
        self.db.drop_table(name).expect("no user");
        self.model.retain(|(table, _), _| table != name);
    }

    fn clear(&mut self, name: &str) {
        self.db.clear_table(name).expect("no user");
        self.model.retain(|(table, key), _| table != name || key == b"\0table");
    }

    fn rename(&mut self, name: &str) {
        let new = format!("t{}", self.random.below(1000));
        if self.db.rename_table(name, &new).is_ok() {
            let renamed = std::mem::take(&mut self.model).into_iter().map(|((table, key), value)| {
                if table == name { ((new.clone(), key), value) } else { ((table, key), value) }
            });
            self.model = renamed.collect();
        }
    }

    pub fn change_rows(&mut self, name: &str) {
        let table = self.db.table(name).expect("listed");
        let rows = if self.random.below(20) == 0 { 400 } else { 1 + self.random.below(6) };
        let mut tx = self.db.begin().expect("free");
        for _ in 0..rows {
            let key = vec![b'k', self.random.below(60) as u8];
            let named = (name.to_string(), key.clone());
            match self.random.below(10) {
                0 => {
                    tx.remove(&table, &key).expect("alone");
                    self.model.remove(&named);
                }
                1..4 => {
                    // A few bytes of a row: the log has a patch.
                    let mut value = self.model.get(&named).cloned().unwrap_or_else(|| vec![1; 600]);
                    let at = self.random.below(value.len() as u64) as usize;
                    value[at] ^= 0x55;
                    tx.insert(&table, &key, &value).expect("alone");
                    self.model.insert(named, value);
                }
                _ => {
                    let len = if self.random.below(30) == 0 { 60_000 } else { 1 + self.random.below(900) };
                    let value = vec![self.random.below(256) as u8; len as usize];
                    tx.insert(&table, &key, &value).expect("alone");
                    self.model.insert(named, value);
                }
            }
        }
        tx.commit().expect("no fault");
    }

    /// Checks that a snapshot shows what was committed up to its CSN.
    pub fn check(&self, snapshot: &StandbySnapshot, context: &str) {
        let (csn, content) = (snapshot.csn(), rows_and_tables(snapshot));
        let (_, expected) = self.history.range(..=csn).next_back().expect("begins at the creation");
        assert!(content == *expected, "{context}: a snapshot at CSN {csn} shows something else");
    }

    /// Returns what a standby shows, after a check. `last` is the CSN that it showed before.
    pub fn see(&self, standby: &Standby, last: &mut Csn, context: &str) -> StandbySnapshot {
        let snapshot = standby.snapshot().expect("free");
        assert!(snapshot.csn() >= *last, "{context}: the CSN never falls");
        *last = snapshot.csn();
        self.check(&snapshot, context);
        snapshot
    }

    pub fn newest(&self) -> Csn {
        *self.history.keys().next_back().expect("begins at the creation")
    }
}

#[test]
fn each_snapshot_of_a_standby_shows_its_csn_exactly() {
    in_time("a standby", 300, || {
        for seed in 0..depth(80) {
            follow_a_random_primary(seed, Kind::ALL[seed as usize % 4], 1 + seed as usize / 2 % 2);
        }
    });
}

fn follow_a_random_primary(seed: u64, kind: Kind, logs: usize) {
    let context = format!("seed {seed}");
    let settings = settings(Preset::Auto).with(|s| s.logs = logs);
    let store = store(seed, kind);
    let (mut client, db) = open(&settings, &store).expect("opens");
    let mut primary = Primary::new(db, seed);
    for _ in 0..20 {
        primary.step();
    }
    let standby = standby(&store, &settings);
    let mut kept = Vec::new();
    let mut last = Csn::ZERO;
    for round in 0..if is_deep() { 600 } else { 120 } {
        primary.step();
        let snapshot = primary.see(&standby, &mut last, &context);
        if round % 7 == 0 {
            kept.push(snapshot);
        }
        if round % 40 == 39 {
            // A new epoch: after a close, or after the end of the process.
            if round % 80 == 39 {
                primary.db.clone().close().expect("no fault");
            } else {
                client.stop();
            }
            let (again, db) = open(&settings, &store).expect("opens");
            (client, primary.db) = (again, db);
            primary.note();
        }
        if round % 25 == 24 {
            let newest = primary.newest();
            let reached = standby.wait_for(newest, PATIENCE).expect("follows");
            assert!(reached, "{context}: {:?} after CSN {newest}", standby.statistics());
            primary.check(&standby.snapshot().expect("free"), &context);
        }
    }
    for snapshot in &kept {
        primary.check(snapshot, &context);
    }
    assert!(standby.wait_for(primary.newest(), PATIENCE).expect("follows"), "{context}");
    let statistics = standby.statistics();
    assert_eq!((statistics.lag_csns, statistics.lag), (0, Duration::ZERO), "{context}: {statistics:?}");
    drop(kept);
    client.stop();
    let promoted = standby.promote().expect("is there");
    assert!(crate::support::content(&promoted) == without_marks(&primary.model), "{context}: promoted");
    promoted.close().expect("no fault");
}

pub fn without_marks(model: &Content) -> Content {
    model
        .iter()
        .filter(|((_, key), _)| key != b"\0table")
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

#[test]
fn a_standby_that_fell_behind_takes_a_newer_checkpoint() {
    in_time("a standby that falls behind", 120, || {
        for appends in [true, false] {
            let (settings, store) = (settings(Preset::Auto), store(1, appends));
            let (_, db) = open(&settings, &store).expect("opens");
            let mut primary = Primary::new(db, 1);
            (0..30).for_each(|_| primary.step());
            let (client, storage) = connect(&store);
            let standby = standby_in(storage, &settings).expect("a database");
            assert!(standby.wait_for(primary.newest(), PATIENCE).expect("follows"));
            let kept = standby.snapshot().expect("free");
            client.partition();
            for _ in 0..3 {
                (0..60).for_each(|_| primary.step());
                primary.db.checkpoint().expect("no fault");
            }
            primary.db.clone().close().expect("no fault");
            (_, primary.db) = open(&settings, &store).expect("opens");
            primary.note();
            primary.check(&standby.snapshot().expect("free"), "cut off");
            client.reconnect();
            assert!(standby.wait_for(primary.newest(), PATIENCE).expect("follows"));
            primary.check(&standby.snapshot().expect("free"), "after that");
            primary.check(&kept, "the old copy");
            let statistics = standby.statistics();
            assert!(statistics.new_bases >= 1, "{statistics:?}");
            (0..10).for_each(|_| primary.step());
            assert!(standby.wait_for(primary.newest(), PATIENCE).expect("follows"));
            drop(kept);
            standby.close();
        }
    });
}

#[test]
fn a_standby_without_its_pin_takes_a_newer_checkpoint() {
    in_time("a standby without its pin", 120, || {
        let (settings, store) = (settings(Preset::Auto), store(2, true));
        let (_, db) = open(&settings, &store).expect("opens");
        let mut primary = Primary::new(db, 2);
        (0..60).for_each(|_| primary.step());
        primary.db.checkpoint().expect("no fault");
        let (_, storage) = connect(&store);
        let standby = standby_in(storage.clone(), &settings).expect("a database");
        let place = Place::storage(storage);
        for pin in place.pins().expect("no fault") {
            place.remove_pin(&pin.name).expect("is there");
        }
        for _ in 0..8 {
            (0..40).for_each(|_| primary.step());
            primary.db.checkpoint().expect("no fault");
            let snapshot = standby.snapshot().expect("free");
            let is_lost = |error: &quenchdb::Error| error.kind() == ErrorKind::Poisoned;
            for name in snapshot.tables() {
                let table = snapshot.table(&name).expect("listed");
                // Either the page that was read before, or an error that says what happened.
                let read = snapshot.range(&table, ..).collect::<Result<Vec<_>>>();
                assert!(read.as_ref().err().is_none_or(is_lost), "{:?}", read.err());
            }
        }
        assert!(standby.wait_for(primary.newest(), PATIENCE).expect("follows"));
    });
}

#[test]
fn what_cannot_be_followed_is_refused() {
    let (settings, store) = (settings(Preset::Auto), store(3, true));
    let refused = |result: Result<Standby>| result.map(drop).expect_err("cannot be followed").kind();
    assert_eq!(refused(standby_in(connect(&store).1, &settings)), ErrorKind::NotFound);
    let directory = tempfile::tempdir().expect("space");
    let opened = Database::builder().open_standby(directory.path().join("none"));
    assert_eq!(refused(opened), ErrorKind::NotFound);
}

#[test]
fn another_database_at_the_place_is_never_shown() {
    in_time("another database", 60, || {
        let (settings, store) = (settings(Preset::Auto), store(4, true));
        let (client, db) = open(&settings, &store).expect("opens");
        let table = db.create_table("t").expect("new");
        let mut last = None;
        (0..5).for_each(|_| last = Some(count(&db, &table, 100).expect("no fault")));
        let standby = standby(&store, &settings);
        assert!(standby.wait_for(db.begin_read().expect("free").csn(), PATIENCE).expect("follows"));
        client.stop();
        for name in store.objects().keys().filter(|name| !name.starts_with("pins/")) {
            store.remove_object(name);
        }
        let (_, other) = open(&settings, &store).expect("opens");
        let table = other.create_table("t").expect("new");
        (0..40).for_each(|_| assert!(count(&other, &table, 100).is_ok()));
        await_that("the standby notices", || standby.statistics().failure.is_some());
        let failure = standby.statistics().failure.expect("was there");
        assert_eq!(failure.kind(), ErrorKind::InvalidArgument, "{failure}");
        let snapshot = standby.snapshot().expect("free");
        let shown = snapshot.get(&snapshot.table("t").expect("is there"), b"counter").expect("in memory");
        assert_eq!(shown.map(|value| value[3]), last.map(|last| last as u8));
    });
}

#[test]
fn a_damaged_block_ends_what_is_shown_and_is_reported() {
    in_time("a damaged block", 120, || {
        let (settings, store) = (settings(Preset::Auto), store(5, false));
        let (writer, db) = open(&settings, &store).expect("opens");
        let table = db.create_table("t").expect("new");
        count(&db, &table, 100).expect("no fault");
        let (client, storage) = connect(&store);
        let standby = standby_in(storage, &settings).expect("a database");
        let before = db.begin_read().expect("free").csn();
        assert!(standby.wait_for(before, PATIENCE).expect("follows"));
        client.partition();
        let known = store.objects();
        (0..10).for_each(|_| assert!(count(&db, &table, 100).is_ok()));
        writer.stop();
        let objects = store.objects();
        let new: Vec<_> =
            objects.keys().filter(|name| name.starts_with("log/") && !known.contains_key(*name)).collect();
        let (damaged, mut bytes) = (new[new.len() / 2], objects[new[new.len() / 2]].to_vec());
        bytes[100] ^= 1;
        store.set_object(damaged, bytes);
        client.reconnect();
        await_that("the standby reports it", || {
            standby.statistics().failure.is_some_and(|failure| failure.kind() == ErrorKind::Corruption)
        });
        let statistics = standby.statistics();
        assert!(statistics.csn >= before && statistics.lag_csns > 0, "{statistics:?}");
        let snapshot = standby.snapshot().expect("free");
        let table = snapshot.table("t").expect("is there");
        let rows = snapshot.range(&table, ..).count();
        assert!((2..12).contains(&rows), "{rows} rows: a prefix");
    });
}

#[test]
fn takeovers_lose_nothing_and_double_nothing() {
    in_time("takeovers", 900, || {
        for seed in 0..if is_deep() { 20 } else { 3 } {
            take_over(seed, [Kind::Appends, Kind::Streams, Kind::Numbered][seed as usize % 3], 25);
        }
    });
}

/// Promotes standbys one after the other, each while the writer before is at work, or dead.
fn take_over(seed: u64, kind: Kind, takeovers: u32) {
    let (settings, store) = (settings(Preset::Auto), store(seed, kind));
    let mut random = Random::from_seed(seed);
    let (mut client, mut db) = open(&settings, &store).expect("opens");
    db.create_table("t").expect("new");
    let mut zombies = Vec::new();
    for takeover in 0..takeovers {
        let context = format!("seed {seed}, takeover {takeover}");
        let (next, storage) = connect(&store);
        let standby = standby_in(storage, &settings).unwrap_or_else(|error| panic!("{context}: {error}"));
        let acknowledged = Arc::new(AtomicU32::new(0));
        let writing = std::thread::spawn({
            let (db, acknowledged) = (db.clone(), acknowledged.clone());
            move || {
                let table = db.table("t").expect("is there");
                loop {
                    match count(&db, &table, 300) {
                        Ok(number) => acknowledged.store(number, Ordering::SeqCst),
                        Err(error) => return error,
                    }
                    if number_of_checkpoint(&acknowledged) {
                        drop(db.checkpoint());
                    }
                }
            }
        });
        std::thread::sleep(Duration::from_millis(random.below(60)));
        let is_killed = random.below(2) == 0;
        if is_killed {
            client.stop();
        }
        let shown = standby.snapshot().expect("free");
        let before = acknowledged.load(Ordering::SeqCst);
        db = standby.promote().unwrap_or_else(|error| panic!("{context}: {error}"));
        let found = check(&db, &context);
        assert!(found >= before, "{context}: {found} of {before}");
        // A zombie learns of its end at its next commit, and what it has acknowledged is there.
        let error = writing.join().expect("no panic");
        let last = acknowledged.load(Ordering::SeqCst);
        assert!(found >= last, "{context}: {found} of {last}, the writer ended with {error}");
        assert!(is_killed || error.kind() != ErrorKind::Corruption, "{context}: {error}");
        assert!(db.begin_read().expect("free").csn() >= shown.csn(), "{context}");
        zombies.push(std::mem::replace(&mut client, next));
    }
    let table = db.table("t").expect("is there");
    count(&db, &table, 10).expect("no fault");
    db.close().expect("no fault");
}

/// One of two standbys is promoted: the other one follows the new writer.
#[test]
fn a_second_standby_follows_the_writer_that_was_promoted() {
    in_time("two standbys", 120, || {
        for (seed, kind) in (0..).zip(Kind::ALL) {
            let (settings, store) = (settings(Preset::Auto), store(30 + seed, kind));
            let (client, db) = open(&settings, &store).expect("opens");
            let mut primary = Primary::new(db, seed);
            (0..30).for_each(|_| primary.step());
            let (first, second) = (standby(&store, &settings), standby(&store, &settings));
            (0..20).for_each(|_| primary.step());
            if seed % 2 == 0 {
                client.stop();
            }
            primary.db = first.promote().expect("is there");
            primary.note();
            let last = second.csn();
            (0..40).for_each(|_| primary.step());
            assert!(
                second.wait_for(primary.newest(), PATIENCE).expect("follows"),
                "{:?}",
                second.statistics()
            );
            let snapshot = second.snapshot().expect("free");
            assert!(snapshot.csn() >= last);
            primary.check(&snapshot, "the second one");
            let again = second.promote().expect("is there");
            assert!(crate::support::content(&again) == without_marks(&primary.model), "promoted, too");
            let error = primary.db.create_table("late").expect_err("it was ended");
            assert!(matches!(error.kind(), ErrorKind::Fenced | ErrorKind::OutcomeUnknown), "{error}");
        }
    });
}

fn number_of_checkpoint(acknowledged: &AtomicU32) -> bool {
    acknowledged.load(Ordering::SeqCst).is_multiple_of(40)
}
