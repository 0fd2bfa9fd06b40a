//! The level written: a commit survives a kill, but no power cut, and costs no flush.

use crate::support::test_database::TestDatabase;
use crate::support::{rows, small};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::{Database, Dependency, Durability, Layout, Preset, Settings, Table};
use std::collections::BTreeMap;
use std::time::Duration;

/// No loss window ends during a test.
const LONG: Duration = Duration::from_secs(60);

/// Every preset whose log is in files, and each dependency rule with several logs.
fn all() -> Vec<Settings> {
    let presets = Preset::ALL.into_iter().filter(|preset| *preset != Preset::Passive);
    let mut all: Vec<Settings> = presets
        .map(|preset| {
            let several = matches!(preset, Preset::Autonomous | Preset::Restricted);
            small(preset, if several { 2 } else { 1 })
        })
        .collect();
    all.extend(
        Dependency::ALL
            .into_iter()
            .filter(|rule| *rule != Dependency::LogOrder)
            .map(|rule| small(Preset::Auto, 3).with_protocol(|axes| axes.dependency = Some(rule))),
    );
    all.push(small(Preset::Auto, 3).with_protocol(|axes| axes.set_layout(Layout::ByPage)));
    all.into_iter().map(|settings| settings.with(|s| s.loss_window = LONG)).collect()
}

fn put(db: &Database, table: &Table, level: Durability, key: u32) {
    let mut tx = db.begin_with(level).expect("free");
    // Depends on the newest row of other threads.
    tx.get(table, "newest").expect("readable");
    tx.insert(table, key.to_be_bytes(), vec![key as u8; 1 + key as usize * 53 % 900]).expect("no conflict");
    tx.insert(table, "newest", key.to_be_bytes()).expect("no conflict");
    tx.commit().expect("a whole disk");
}

/// Runs commits at random levels in turn by several threads. Returns the keys of written and
/// durable commits, with the number of disk operations when they returned.
fn work(db: &Database, disk: &SimulatedStorage, seed: u64) -> Vec<(usize, u32, Durability)> {
    let table = db.create_table("rows").expect("new");
    let mut random = Random::from_seed(seed);
    let mut returned = Vec::new();
    for key in 0..40 {
        let level = match random.below(8) {
            0 => Durability::Durable,
            1 => Durability::Lazy,
            _ => Durability::Written,
        };
        // Each in a thread of its own, so that all logs are used.
        std::thread::scope(|scope| drop(scope.spawn(|| put(db, &table, level, key))));
        returned.push((disk.operations(), key, level));
    }
    returned
}

/// Crashes at each of a few moments, and checks that everything is there that had to survive.
#[track_caller]
fn check(settings: &Settings, kind: CrashKind, survives: impl Fn(Durability) -> bool) {
    for seed in 0..3 {
        let (disk, db) = settings.create(seed);
        let begun = disk.operations();
        let returned = work(&db, &disk, seed);
        let end = disk.operations();
        disk.stop();
        drop(db);
        let mut random = Random::from_seed(seed ^ 0x11);
        let mut moments: Vec<usize> =
            (0..12).map(|_| begun + random.below((end - begun) as u64 + 1) as usize).collect();
        moments.push(end);
        for at in moments {
            let left = disk.crash(kind, at, random.next_u64());
            let db = settings.open(&left);
            let rows = db.table("rows").map_or_else(|_| BTreeMap::new(), |_| rows(&db, "rows"));
            for (operations, key, level) in &returned {
                let must = *operations <= at && survives(*level);
                let is_there = rows.contains_key(&key.to_be_bytes()[..]);
                assert!(
                    !must || is_there,
                    "{kind:?} after {at} of {end}: row {key}, {level:?}, {settings:?}"
                );
            }
            left.stop();
        }
    }
}

#[test]
fn a_written_commit_survives_a_kill() {
    for settings in all() {
        check(&settings, CrashKind::Kill, |level| level != Durability::Lazy);
    }
}

#[test]
fn a_durable_commit_keeps_what_was_written_before() {
    for settings in all() {
        check(&settings, CrashKind::PowerCut, |level| level == Durability::Durable);
    }
}

#[test]
fn written_commits_cost_no_flush() {
    for preset in [Preset::Auto, Preset::Group, Preset::Pipelined, Preset::PerTransaction] {
        let settings = small(preset, 1).with(|s| s.loss_window = LONG);
        let (_disk, db) = settings.create(1);
        let table = db.create_table("rows").expect("new");
        let before = db.statistics();
        (0..20).for_each(|key| put(&db, &table, Durability::Written, key));
        let after = db.statistics();
        assert_eq!(after.device_flushes, before.device_flushes, "{preset}");
        assert_eq!(after.unflushed_writes - before.unflushed_writes, 20, "{preset}");
        assert_eq!(after.written_commits - before.written_commits, 20, "{preset}");
        assert!(after.watermark <= before.newest_csn.next(), "{preset}: nothing is durable");
        db.flush().expect("a whole disk");
        let flushed = db.statistics();
        assert_eq!(flushed.device_flushes, after.device_flushes + 1, "{preset}: one flush for all");
        assert!(flushed.watermark > flushed.newest_csn, "{preset}");
    }
}

#[test]
fn written_commits_become_durable_in_the_loss_window() {
    let settings = small(Preset::Auto, 1).with(|s| s.loss_window = Duration::from_millis(40));
    let (disk, db) = settings.create(1);
    let table = db.create_table("rows").expect("new");
    put(&db, &table, Durability::Written, 1);
    let newest = db.statistics().newest_csn;
    let begun = std::time::Instant::now();
    while db.statistics().watermark <= newest {
        assert!(begun.elapsed() < Duration::from_secs(20), "written, and never flushed");
        std::thread::sleep(Duration::from_millis(1));
    }
    let left = disk.crash(CrashKind::PowerCut, disk.operations(), 1);
    assert_eq!(rows(&settings.open(&left), "rows").len(), 2);
}

#[test]
fn one_of_so_many_written_commits_is_durable() {
    let settings = small(Preset::Auto, 1).with(|s| {
        s.loss_window = LONG;
        s.lab.durable_every = 5;
    });
    let (disk, db) = settings.create(1);
    let table = db.create_table("rows").expect("new");
    for key in 0..23 {
        put(&db, &table, Durability::Written, key);
        let left = disk.crash(CrashKind::PowerCut, disk.operations(), key.into());
        let there = rows(&settings.open(&left), "rows").len();
        let durable = (key as usize + 1) / 5 * 5;
        // Each of these, and the newest one.
        let least = if durable > 0 { durable + 1 } else { 0 };
        assert!(there >= least, "{there} rows after {} commits", key + 1);
    }
}

/// A record in mapped memory is durable when it is fenced.
#[test]
fn where_written_saves_nothing_it_is_durable() {
    let settings = small(Preset::Passive, 1).with(|s| s.loss_window = LONG);
    let (disk, db) = settings.create(1);
    let table = db.create_table("rows").expect("new");
    put(&db, &table, Durability::Written, 1);
    assert_eq!(db.statistics().written_commits, 0);
    let left = disk.crash(CrashKind::PowerCut, disk.operations(), 1);
    assert_eq!(rows(&settings.open(&left), "rows").len(), 2);
}
