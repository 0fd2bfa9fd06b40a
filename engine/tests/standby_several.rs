//! A standby of a database in several buckets: what a majority of the buckets has is shown, and
//! nothing else, whatever becomes of a minority; and a promoted one has everything.

use crate::objects_several::{Machine, Objects, Written, Zones, keys, settings};
use crate::standby::{PATIENCE, Primary, without_marks};
use crate::support::{await_that, content, in_time};
use quenchdb::internals::base::depth::depth;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::objects::simulated::SimulatedStore;
use quenchdb::{Database, ErrorKind, Standby};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longer than a standby needs to look everywhere.
const LOOKS: Duration = Duration::from_millis(600);

fn follow(machine: &Machine) -> quenchdb::Result<Standby> {
    let settings = settings().with(|s| s.memory_bytes = 2 << 20);
    Database::builder().settings(settings).storage(machine.storage.clone()).open_standby("several")
}

/// Returns the keys that a new snapshot shows.
fn shown(standby: &Standby) -> BTreeSet<String> {
    let snapshot = standby.snapshot().expect("free");
    let Ok(table) = snapshot.table("t") else { return BTreeSet::new() };
    let rows = snapshot.range(&table, ..).map(|row| row.expect("readable").0);
    rows.map(|key| String::from_utf8_lossy(&key).into_owned()).filter(|key| key != "counter").collect()
}

fn reach(standby: &Standby, db: &Database, context: &str) {
    let newest = db.statistics().newest_csn;
    let reached = standby.wait_for(newest, PATIENCE).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert!(reached, "{context}: {:?} of CSN {newest}", standby.statistics());
}

/// The writer reaches one bucket only: a standby that reaches all of them does not show what is
/// there, because another writer may discard it.
#[test]
fn a_block_of_a_minority_is_not_shown() {
    in_time("a block of a minority", 120, || {
        for seed in 0..3 {
            let (zones, mut written) = (Zones::new(3, 100 + seed), Written::default());
            let machine = zones.connect();
            let db = machine.open().expect("opens");
            written.add_all(&db, "a", 5, "all there");
            let standby = follow(&zones.connect()).expect("follows");
            reach(&standby, &db, "all there");
            let cut = [seed as usize, (seed as usize + 1) % 3];
            cut.iter().for_each(|zone| machine.clients[*zone].hold_requests());
            let table = db.table("t").expect("is there");
            let mut tx = db.begin().expect("free");
            tx.insert(&table, "b", "x").expect("alone");
            let commit = tx.commit_async().expect("begins");
            std::thread::sleep(LOOKS);
            let seen = shown(&standby);
            if seen != written.acknowledged {
                // Its end would wait for the buckets.
                machine.kill();
            }
            assert_eq!(seen, written.acknowledged, "a block in one bucket is not shown");
            assert!(!commit.is_committed());
            let other = zones.connect();
            other.clients[(seed as usize + 2) % 3].partition();
            let theirs = other.open().expect("takes over");
            written.settle(&theirs, "taken over");
            written.add_all(&theirs, "c", 5, "taken over");
            reach(&standby, &theirs, "taken over");
            assert_eq!(shown(&standby), written.acknowledged, "the second writer");
            machine.kill();
            zones.stores.iter().for_each(SimulatedStore::lose_late);
            drop((commit, table, db, theirs));
        }
    });
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trouble {
    None,
    Lost,
    Slow,
    Partitioned,
    Old,
    Emptied,
}

const TROUBLES: [Trouble; 6] =
    [Trouble::None, Trouble::Lost, Trouble::Slow, Trouble::Partitioned, Trouble::Old, Trouble::Emptied];

impl Trouble {
    /// Begins for these machines.
    fn begin(self, zones: &Zones, machines: &[&Machine], zone: usize, old: &Objects) {
        match self {
            Trouble::None => {}
            Trouble::Slow => machines.iter().for_each(|machine| machine.clients[zone].hold_requests()),
            Trouble::Lost | Trouble::Partitioned => {
                machines.iter().for_each(|machine| machine.clients[zone].partition());
            }
            Trouble::Old => zones.restore(zone, old),
            Trouble::Emptied => zones.restore(zone, &Vec::new()),
        }
    }

    fn end(self, machines: &[&Machine], zone: usize) {
        match self {
            Trouble::Slow => machines.iter().for_each(|machine| machine.clients[zone].release()),
            Trouble::Partitioned => machines.iter().for_each(|machine| machine.clients[zone].reconnect()),
            _ => {}
        }
    }
}

#[test]
fn each_snapshot_of_several_buckets_shows_its_csn_exactly() {
    in_time("standbys of several buckets", 600, || {
        for seed in 0..depth(24) {
            follow_a_random_primary(seed);
        }
    });
}

fn follow_a_random_primary(seed: u64) {
    let trouble = TROUBLES[seed as usize % TROUBLES.len()];
    let count = if seed % 4 == 3 { 5 } else { 3 };
    let context = format!("seed {seed}: {trouble:?} of {count}");
    let mut random = Random::from_seed(seed);
    let zones = Zones { repair_pause: Duration::from_millis(5), ..Zones::new(count, 200 + seed) };
    let mut machine = zones.connect();
    let mut primary = Primary::new(machine.open().expect("opens"), seed);
    (0..20).for_each(|_| primary.step());
    let zone = random.below(count as u64) as usize;
    let follower = zones.connect();
    let standby = follow(&follower).unwrap_or_else(|error| panic!("{context}: {error}"));
    let (mut kept, mut last, mut old) = (Vec::new(), standby.csn(), zones.objects(zone));
    for round in 0..60 {
        primary.step();
        let snapshot = primary.see(&standby, &mut last, &context);
        if round % 7 == 0 {
            kept.push(snapshot);
        }
        match round {
            5 => old = zones.objects(zone),
            // An old bucket is found out by two manifests since.
            10 => (0..3).for_each(|_| {
                primary.db.checkpoint().expect("no fault");
            }),
            15 => trouble.begin(&zones, &[&machine, &follower], zone, &old),
            40 => trouble.end(&[&machine, &follower], zone),
            30 | 50 => {
                if round == 30 {
                    machine.kill();
                } else {
                    primary.db.clone().close().unwrap_or_else(|error| panic!("{context}: {error}"));
                }
                machine = zones.connect();
                if round == 30 && !matches!(trouble, Trouble::Old | Trouble::Emptied) {
                    trouble.begin(&zones, &[&machine], zone, &old);
                }
                primary.db = machine.open().unwrap_or_else(|error| panic!("{context}: {error}"));
                primary.note();
            }
            _ => {}
        }
        if round % 20 == 19 {
            reach(&standby, &primary.db, &context);
            primary.check(&standby.snapshot().expect("free"), &context);
        }
    }
    kept.iter().for_each(|snapshot| primary.check(snapshot, &context));
    reach(&standby, &primary.db, &context);
    drop(kept);
    machine.kill();
    let promoted = standby.promote().unwrap_or_else(|error| panic!("{context}: {error}"));
    assert!(content(&promoted) == without_marks(&primary.model), "{context}: promoted");
    promoted.close().unwrap_or_else(|error| panic!("{context}: {error}"));
}

/// A writer at work, killed or not, under each trouble of each bucket; then a standby takes over,
/// and after it a process without another bucket.
fn take_over_in_trouble(seed: u64, trouble: Trouble, zone: usize) {
    let context = format!("seed {seed}: {trouble:?} of bucket {zone}");
    let mut random = Random::from_seed(seed);
    let (zones, mut written) = (Zones::new(3, 300 + seed), Written::default());
    let first = zones.connect();
    let db = first.open().expect("opens");
    written.add_all(&db, "a", 4, &context);
    let old = zones.objects(zone);
    (0..3).for_each(|_| {
        db.checkpoint().expect("no fault");
    });
    written.add_all(&db, "b", 2, &context);
    let second = zones.connect();
    let standby = follow(&second).unwrap_or_else(|error| panic!("{context}: {error}"));
    reach(&standby, &db, &context);
    let stop = Arc::new(AtomicBool::new(false));
    let writing = std::thread::spawn({
        let (db, stop, mut written) = (db.clone(), stop.clone(), written.clone());
        move || {
            let table = db.table("t").expect("is there");
            for n in 0.. {
                if stop.load(Ordering::SeqCst) || written.add(&db, &table, &format!("c-{n}")).is_err() {
                    break;
                }
            }
            written
        }
    });
    let mut seen = BTreeSet::new();
    let mut look = || {
        let now = shown(&standby);
        assert!(seen.is_subset(&now), "{context}: what was shown is taken back");
        seen = now;
    };
    (0..5).for_each(|_| look());
    trouble.begin(&zones, &[&first, &second], zone, &old);
    std::thread::sleep(Duration::from_millis(random.below(80)));
    (0..5).for_each(|_| look());
    if random.below(2) == 0 {
        first.kill();
    }
    look();
    let promoted = standby.promote().unwrap_or_else(|error| panic!("{context}: {error}"));
    stop.store(true, Ordering::SeqCst);
    written = writing.join().expect("no panic");
    written.check(&promoted, &context);
    let there = keys(&promoted, &context);
    assert!(seen.is_subset(&there), "{context}: {:?} was shown", seen.difference(&there));
    written.settle(&promoted, &context);
    written.add_all(&promoted, "d", 3, &context);
    second.kill();
    drop((promoted, db));
    trouble.end(&[&second], zone);
    // Later, without any one bucket, if that one is well.
    let is_back = matches!(trouble, Trouble::None | Trouble::Slow | Trouble::Partitioned);
    for missing in if is_back { (0..3).collect() } else { vec![zone] } {
        let zones = zones.fork(missing as u64);
        let third = zones.connect();
        third.clients[missing].partition();
        let db = third.open().unwrap_or_else(|error| panic!("{context}: without {missing}: {error}"));
        written.check(&db, &format!("{context}: without {missing}"));
    }
}

#[test]
fn a_takeover_by_a_standby_loses_nothing_in_any_trouble() {
    in_time("takeovers in trouble", 600, || {
        for seed in 0..depth(36) {
            let trouble = TROUBLES[seed as usize % TROUBLES.len()];
            take_over_in_trouble(seed, trouble, seed as usize / TROUBLES.len() % 3);
        }
    });
}

/// A bucket that was emptied and filled again is as good as the others.
#[test]
fn a_bucket_that_joined_again_is_followed() {
    in_time("a bucket that joined again", 120, || {
        let zones = Zones { repair_pause: Duration::from_millis(5), ..Zones::new(3, 400) };
        let mut written = Written::default();
        let machine = zones.connect();
        let db = machine.open().expect("opens");
        let follower = zones.connect();
        let standby = follow(&follower).expect("follows");
        for zone in 0..3 {
            let context = format!("bucket {zone}");
            written.add_all(&db, &format!("a-{zone}"), 5, &context);
            zones.restore(zone, &Vec::new());
            db.checkpoint().expect("a majority is there");
            written.add_all(&db, &format!("b-{zone}"), 5, &context);
            reach(&standby, &db, &context);
            await_that("it is whole", || db.statistics().buckets.iter().all(|bucket| bucket.is_whole));
            // Now with this bucket and one of the others.
            let other = (zone + 1) % 3;
            follower.clients[other].partition();
            written.add_all(&db, &format!("c-{zone}"), 5, &context);
            reach(&standby, &db, &context);
            follower.clients[other].reconnect();
        }
        assert_eq!(shown(&standby), written.acknowledged);
        let statistics = standby.statistics();
        assert!(statistics.failure.is_none(), "{statistics:?}");
    });
}

#[test]
fn a_standby_says_when_too_few_buckets_answer() {
    in_time("too few buckets", 120, || {
        let (zones, mut written) = (Zones::new(3, 500), Written::default());
        let machine = zones.connect();
        let db = machine.open().expect("opens");
        written.add_all(&db, "a", 5, "all there");
        let follower = zones.connect();
        let standby = follow(&follower).expect("follows");
        reach(&standby, &db, "all there");
        follower.clients[0].partition();
        follower.clients[2].partition();
        written.add_all(&db, "b", 5, "cut off");
        await_that("it is reported", || standby.statistics().failure.is_some());
        let failure = standby.statistics().failure.expect("was there");
        assert_eq!(failure.kind(), ErrorKind::Io, "{failure}");
        follower.clients[0].reconnect();
        reach(&standby, &db, "two are back");
        assert_eq!(shown(&standby), written.acknowledged);
        assert!(standby.statistics().failure.is_none());
        let alone = zones.connect();
        alone.clients[0].partition();
        alone.clients[1].partition();
        assert_eq!(follow(&alone).expect_err("one is not enough").kind(), ErrorKind::Io);
        let empty = Zones::new(3, 501);
        assert_eq!(follow(&empty.connect()).expect_err("nothing there").kind(), ErrorKind::NotFound);
    });
}
