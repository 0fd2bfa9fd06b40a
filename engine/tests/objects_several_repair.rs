//! Repair of a database in several buckets: a bucket that was away, came back old or empty, or
//! takes the place of another has everything again. So buckets may be lost one after the other.

use crate::objects_several::{Machine, Objects, Written, Zones, keys};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::objects::{ObjectStorage, ObjectStore};
use quenchdb::{BucketStatistics, Database, ErrorKind, Result};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A repair takes at most so long in a test.
const MOST: Duration = Duration::from_secs(60);

fn repaired_zones(count: usize, seed: u64) -> Zones {
    Zones { repair_pause: Duration::from_millis(2), ..Zones::new(count, seed) }
}

/// Waits until the database says this of its buckets.
fn wait_for(db: &Database, context: &str, holds: impl Fn(&[BucketStatistics]) -> bool) {
    let begun = Instant::now();
    loop {
        let buckets = db.statistics().buckets;
        if holds(&buckets) {
            return;
        }
        assert!(begun.elapsed() < MOST, "{context}: not within {MOST:?}: {buckets:#?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn wait_until_whole(db: &Database, context: &str) {
    wait_for(db, context, |buckets| buckets.iter().all(|bucket| bucket.is_whole));
}

/// Returns the names of a bucket's objects that each bucket must have.
fn names(objects: &Objects) -> BTreeSet<&str> {
    let is_data = |name: &&str| ["log/", "pages/", "files/"].iter().any(|prefix| name.starts_with(prefix));
    objects.iter().map(|(name, _)| name.as_str()).filter(is_data).collect()
}

/// Each object in the first of these buckets is in the second, when deletions have ended.
fn assert_has_all_of(zones: &Zones, whole: usize, repaired: usize, context: &str) {
    let begun = Instant::now();
    loop {
        let (all, there) = (zones.objects(whole), zones.objects(repaired));
        let missing: Vec<_> = names(&all).difference(&names(&there)).copied().collect();
        if missing.is_empty() {
            return;
        }
        assert!(begun.elapsed() < MOST / 20, "{context}: bucket {repaired} lacks {missing:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn fill(db: &Database, name: &str) {
    let table = db.table_or_create("big").expect("a table");
    for n in 0..60_u32 {
        let value = [n as u8; 3000];
        db.transact(|tx| tx.insert(&table, format!("{name}-{n}"), value)).expect("commits");
    }
}

fn open_without(zones: &Zones, missing: usize, context: &str) -> (Machine, Database) {
    let machine = zones.connect();
    machine.clients[missing].partition();
    let db = machine.open().unwrap_or_else(|error| panic!("{context}: without {missing}: {error}"));
    (machine, db)
}

#[test]
fn what_a_bucket_missed_is_copied_when_it_is_back() {
    let (zones, mut written) = (repaired_zones(3, 50), Written::default());
    let machine = zones.connect();
    let db = machine.open().expect("opens");
    written.add_all(&db, "a", 3, "all there");
    machine.clients[2].partition();
    written.add_all(&db, "b", 10, "without it");
    fill(&db, "x");
    db.checkpoint().expect("a majority is there");
    written.add_all(&db, "c", 10, "without it");
    // Longer than a request is sent again.
    std::thread::sleep(Duration::from_millis(600));
    assert!(!db.statistics().buckets[2].is_whole, "it lacks something");
    machine.clients[2].reconnect();
    wait_until_whole(&db, "it is back");
    let copied = db.statistics().buckets[2].clone();
    assert!(copied.copied_objects > 0 && copied.copied_bytes > 1000, "{copied:?}");
    assert_has_all_of(&zones, 0, 2, "it is back");
    machine.kill();
    drop(db);
    let (_, db) = open_without(&zones, 0, "later");
    written.check(&db, "later");
}

/// The segment in which a bucket was away takes it again: two of three are enough, whichever.
#[test]
fn a_bucket_that_is_back_takes_blocks_of_the_same_segment() {
    let (zones, mut written) = (repaired_zones(3, 51), Written::default());
    let machine = zones.connect();
    let db = machine.open().expect("opens");
    for round in 0..3 {
        for zone in 0..3 {
            let context = format!("round {round}, without {zone}");
            machine.clients[zone].partition();
            written.add_all(&db, &format!("{round}-{zone}"), 4, &context);
            machine.clients[zone].reconnect();
            wait_until_whole(&db, &context);
        }
    }
    machine.kill();
    drop(db);
    for missing in 0..3 {
        let zones = zones.fork(missing as u64);
        let (_, db) = open_without(&zones, missing, "later");
        written.check(&db, &format!("later, without {missing}"));
    }
}

/// Empties a bucket of a running writer, or puts an old copy in its place, and then loses another.
fn lose_one_after_the_other(seed: u64, old: bool) {
    let context = format!("old {old}");
    let (zones, mut written) = (repaired_zones(3, seed), Written::default());
    let machine = zones.connect();
    let db = machine.open().expect("opens");
    written.add_all(&db, "a", 5, &context);
    let before = zones.objects(2);
    fill(&db, "x");
    for _ in 0..2 {
        db.checkpoint().expect("no fault");
    }
    written.add_all(&db, "b", 5, &context);
    zones.restore(2, &if old { before } else { Vec::new() });
    // The next manifest finds it.
    db.checkpoint().expect("a majority is there");
    wait_until_whole(&db, &context);
    assert_has_all_of(&zones, 0, 2, &context);
    written.add_all(&db, "c", 5, &context);
    machine.clients[0].partition();
    written.add_all(&db, "d", 5, &context);
    db.checkpoint().expect("two accept");
    machine.kill();
    drop(db);
    let (_, db) = open_without(&zones, 0, &context);
    written.check(&db, &context);
    let problems = db.verify(None).expect("runs").problems;
    assert!(problems.is_empty(), "{context}: {problems:?}");
}

#[test]
fn an_emptied_bucket_is_filled_and_counts_again() {
    lose_one_after_the_other(52, false);
}

#[test]
fn a_bucket_that_came_back_old_is_filled_and_counts_again() {
    lose_one_after_the_other(53, true);
}

/// O35: what was acknowledged with the bucket before it was emptied is in the others when it joins.
#[test]
fn a_bucket_that_joins_has_what_it_confirmed_before() {
    for seed in 0..8 {
        let (zones, mut written) = (repaired_zones(3, 60 + seed), Written::default());
        let machine = zones.connect();
        let db = machine.open().expect("opens");
        written.add_all(&db, "a", 5, "all there");
        // From here on the second bucket confirms nothing, and the third is needed.
        machine.clients[1].hold_requests();
        written.add_all(&db, "b", 5, "two");
        fill(&db, "x");
        zones.restore(2, &Vec::new());
        machine.clients[1].release();
        db.checkpoint().expect("the first and the second accept");
        wait_until_whole(&db, "filled");
        machine.kill();
        drop(db);
        let (_, db) = open_without(&zones, 0, "the first is lost");
        written.check(&db, "with the two that were troubled before");
        assert_eq!(db.verify(None).expect("runs").problems.len(), 0);
    }
}

/// O23: the fences of a writer lie in a majority of the buckets, which are emptied one by one.
#[test]
fn a_writer_that_was_ended_reports_nothing_after_repairs() {
    let (zones, mut written) = (repaired_zones(3, 58), Written::default());
    let first = zones.connect();
    let db = first.open().expect("opens");
    written.add_all(&db, "a", 5, "first");
    let second = zones.connect();
    let theirs = second.open().expect("takes over");
    written.add_all(&theirs, "b", 5, "second");
    for zone in 0..3 {
        zones.restore(zone, &Vec::new());
        theirs.checkpoint().expect("a majority is there");
        wait_until_whole(&theirs, &format!("{zone} was emptied"));
    }
    let table = db.table("t").expect("is there");
    let error = written.add(&db, &table, "zombie").expect_err("it was taken over");
    assert!(error.to_string().contains("another process has opened the database"), "{error}");
    written.unknown.remove("zombie");
    second.kill();
    first.kill();
    drop((table, db, theirs));
    for missing in 0..3 {
        let zones = zones.fork(missing as u64);
        let (_, db) = open_without(&zones, missing, "at the end");
        written.check(&db, &format!("without {missing}"));
    }
}

/// Connects to some of the buckets, of which one may take the place of another.
fn connect_to(zones: &Zones, list: &[usize], replace: Option<(usize, usize)>) -> Arc<ObjectStorage> {
    let name = |zone: usize| format!("sim://zone{zone}");
    let store = |zone: &usize| (name(*zone), zones.stores[*zone].client() as Arc<dyn ObjectStore>);
    let replace = replace.map(|(old, new)| (name(old), name(new)));
    let stores = list.iter().map(store).collect();
    Arc::new(ObjectStorage::several(stores, replace.as_ref(), zones.options(), true))
}

fn open_list(zones: &Zones, list: &[usize], replace: Option<(usize, usize)>) -> Result<Database> {
    let storage = connect_to(zones, list, replace);
    Database::builder().memory_bytes(4 << 20).storage(storage).open("several")
}

#[test]
fn a_bucket_takes_the_place_of_a_lost_one() {
    let (zones, mut written) = (repaired_zones(5, 70), Written::default());
    let db = open_list(&zones, &[0, 1, 2], None).expect("opens");
    written.add_all(&db, "a", 10, "first");
    fill(&db, "x");
    db.close().expect("closes");
    for (old, new, list) in [(2, 3, [0, 1, 3]), (0, 4, [4, 1, 3])] {
        zones.restore(old, &Vec::new());
        let db = open_list(&zones, &list, Some((old, new))).expect("a majority is left");
        written.add_all(&db, &format!("during-{old}"), 5, "during the replacement");
        wait_until_whole(&db, "replaced");
        written.add_all(&db, &format!("after-{old}"), 5, "after it");
        db.close().expect("closes");
        let db = open_list(&zones, &list, Some((old, new))).expect("it was done before");
        written.check(&db, "again");
        db.close().expect("closes");
    }
    let error = open_list(&zones, &[0, 1, 2], None).expect_err("the first list").to_string();
    assert!(error.contains("missing sim://zone3, sim://zone4"), "{error}");
    for missing in [4, 1, 3] {
        let zones = zones.fork(missing as u64);
        zones.stores[missing].objects().keys().for_each(|name| zones.stores[missing].remove_object(name));
        let db = open_list(&zones, &[4, 1, 3], None).expect("a majority is left");
        written.check(&db, &format!("without {missing}"));
        assert_eq!(db.verify(None).expect("runs").problems.len(), 0);
    }
}

#[test]
fn a_replacement_that_was_not_completed_leaves_the_old_list() {
    let zones = Zones::new(4, 71);
    let mut written = Written::default();
    let db = open_list(&zones, &[0, 1, 2], None).expect("opens");
    written.add_all(&db, "a", 10, "first");
    db.close().expect("closes");
    let db = open_list(&zones, &[0, 1, 3], Some((2, 3))).expect("a majority is left");
    written.add_all(&db, "b", 10, "during the replacement");
    assert!(!db.statistics().buckets[2].is_counted, "the repair begins late");
    db.close().expect("closes");
    let error = open_list(&zones, &[0, 1, 3], None).expect_err("the new list").to_string();
    assert!(error.contains("missing sim://zone2, not of the database sim://zone3"), "{error}");
    let db = open_list(&zones, &[0, 1, 2], None).expect("the old list");
    written.check(&db, "the old list");
}

#[test]
fn a_bucket_that_holds_something_else_is_not_filled() {
    let zones = repaired_zones(5, 72);
    open_list(&zones, &[0, 1, 2], None).expect("opens").create_table("t").expect("new");
    zones.stores[3].set_object("notes.txt", b"mine".to_vec());
    let client = zones.stores[4].client();
    let other = Arc::new(ObjectStorage::new(client.clone(), client.facts(), zones.options()));
    let of_other = Database::builder().memory_bytes(4 << 20).storage(other).open("other");
    of_other.expect("another database").close().expect("closes");
    for (new, expected) in [(3, "notes.txt"), (4, "a database of one bucket")] {
        let before = zones.objects(new);
        let db = open_list(&zones, &[0, 1, new], Some((2, new))).expect("a majority is left");
        wait_for(&db, "refused", |buckets| {
            buckets[2].problem.as_ref().is_some_and(|problem| problem.contains(expected))
        });
        db.close().expect("closes");
        assert_eq!(zones.objects(new), before, "bucket {new} is as it was");
    }
    open_list(&zones, &[0, 1, 2], None).expect("the old list");
}

#[test]
fn wrong_replacements_are_refused_with_a_sentence() {
    let at = |name: &str| format!("file:///tmp/no-such-{name}");
    let (a, b, c, d) = (at("a"), at("b"), at("c"), at("d"));
    let refused = |old: &str, new: &str, list: &[&str]| {
        let opened = Database::builder().replace_bucket(old, new).open(list.join(","));
        let error = opened.expect_err("wrong");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        error.to_string()
    };
    assert!(refused(&c, &d, &[&a, &b, &c]).contains("does not name"));
    assert!(refused(&c, &d, &[&a, &c, &d]).contains("which is to be replaced"));
    assert!(refused(&c, &c, &[&a, &b, &c]).contains("another one"));
    assert!(refused(&a, &d, &[&d]).contains("several buckets"));
}

#[derive(Clone, Copy, Debug)]
enum Trouble {
    Away,
    Slow,
    Emptied,
    Old,
}

/// Buckets have troubles one after the other, each when all are whole again, beside writers that
/// end, are killed, or are taken over.
fn troubles(seed: u64) {
    let count = if seed.is_multiple_of(3) { 5 } else { 3 };
    let (zones, mut written) = (repaired_zones(count, 1000 + seed), Written::default());
    let mut random = Random::from_seed(seed);
    let mut zombies = Vec::new();
    let mut old: Vec<Objects> = Vec::new();
    for round in 0..6 {
        let trouble =
            [Trouble::Away, Trouble::Slow, Trouble::Emptied, Trouble::Old][random.below(4) as usize];
        let zone = random.below(count as u64) as usize;
        let context = format!("seed {seed}, round {round}: {trouble:?} of {zone}");
        let machine = zones.connect();
        let db = machine.open().unwrap_or_else(|error| panic!("{context}: {error}"));
        if round > 0 {
            written.check(&db, &context);
            written.settle(&db, &context);
        }
        wait_until_whole(&db, &context);
        written.add_all(&db, &format!("{round}-a"), 3, &context);
        match trouble {
            Trouble::Away => machine.clients[zone].partition(),
            Trouble::Slow => machine.clients[zone].hold_requests(),
            Trouble::Emptied => zones.restore(zone, &Vec::new()),
            Trouble::Old => zones.restore(zone, old.get(zone).unwrap_or(&Vec::new())),
        }
        written.add_all(&db, &format!("{round}-b"), 3, &context);
        if random.chance(1, 2) {
            fill(&db, &format!("{round}"));
        }
        db.checkpoint().unwrap_or_else(|error| panic!("{context}: {error}"));
        written.add_all(&db, &format!("{round}-c"), 3, &context);
        match trouble {
            Trouble::Away => machine.clients[zone].reconnect(),
            Trouble::Slow => machine.clients[zone].release(),
            Trouble::Emptied | Trouble::Old => {}
        }
        if random.chance(1, 2) {
            wait_until_whole(&db, &context);
            written.add_all(&db, &format!("{round}-d"), 3, &context);
        }
        old = (0..count).map(|zone| zones.objects(zone)).collect();
        // A copy from this moment is found to be old after two manifests.
        for _ in 0..2 {
            db.checkpoint().unwrap_or_else(|error| panic!("{context}: {error}"));
        }
        match random.below(3) {
            0 => db.close().unwrap_or_else(|error| panic!("{context}: {error}")),
            1 => {
                machine.kill();
                drop(db);
            }
            _ => zombies.push((machine, db)),
        }
    }
    let last = zones.connect();
    let db = last.open().unwrap_or_else(|error| panic!("seed {seed}: at the end: {error}"));
    written.check(&db, &format!("seed {seed}, at the end"));
    written.settle(&db, "at the end");
    wait_until_whole(&db, &format!("seed {seed}, at the end"));
    last.kill();
    drop(db);
    for (_, db) in &zombies {
        let added = db.table("t").and_then(|table| written.add(db, &table, "zombie"));
        added.expect_err("it was taken over");
    }
    zombies.iter().for_each(|(machine, _)| machine.kill());
    drop(zombies);
    for missing in 0..count {
        let zones = zones.fork(missing as u64);
        let (_, db) = open_without(&zones, missing, &format!("seed {seed}"));
        written.check(&db, &format!("seed {seed}, at the end, without {missing}"));
        assert!(!keys(&db, "at the end").is_empty());
    }
}

#[test]
fn buckets_troubled_one_after_the_other_lose_nothing() {
    let seeds = if std::env::var_os("QUENCH_DEEP").is_some() { 300 } else { 12 };
    for seed in 0..seeds {
        troubles(seed);
    }
}
