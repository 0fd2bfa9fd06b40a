//! Writes of a killed process that reach the disk after the next process has opened the database.

use crate::support::configurations::{self, Configuration};
use crate::support::test_database::TestDatabase;
use quenchdb::internals::base::depth::{depth, is_deep};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::{CrashKind, Fault, FaultKind, OperationKind, SimulatedStorage};
use quenchdb::{Database, Settings, Writer};

/// How the killed database is set up, and how many kills there are.
struct Kind {
    configuration: Configuration,
    kills: u64,
    /// Kill at any time, instead of mostly while a write is in flight.
    any_time: bool,
    /// Minimum number of late writes.
    late: usize,
}

const fn in_flight(configuration: Configuration) -> Kind {
    Kind { configuration, kills: 40, any_time: false, late: 4 }
}

/// With the first kind, unfixed code fails at the first seed.
const KINDS: &[Kind] = &[
    Kind { configuration: configurations::WORKERS_LOG, kills: 200, any_time: true, late: 15 },
    in_flight(configurations::AUTONOMOUS),
    in_flight(configurations::RESTRICTED),
    in_flight(configurations::GROUP),
    in_flight(configurations::PIPELINED),
    in_flight(configurations::AUTO),
];

/// Kills the process and checks that the content is the same after that.
#[track_caller]
fn must_outlive_a_kill(db: Database, disk: &SimulatedStorage, settings: &Settings, fate: u64, context: &str) {
    let there = crate::support::content(&db);
    let kill = disk.crash(CrashKind::Kill, disk.operations(), fate);
    disk.stop();
    drop(db);
    let db = settings.try_open(&kill).unwrap_or_else(|error| panic!("{context}: {error}"));
    let now = crate::support::content(&db);
    assert!(now == there, "{context}: {}", crate::support::difference(&there, &now));
}

/// Commits rows `from..to` in three threads without waiting.
fn write(db: &Database, from: u32, to: u32) {
    let table = db.table_or_create("rows").expect("free");
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let table = &table;
            scope.spawn(move || {
                for n in (from + thread..to).step_by(3) {
                    let mut tx = db.begin().expect("free");
                    tx.insert(table, n.to_be_bytes(), vec![n as u8; 900]).expect("fits");
                    drop(tx.commit_async().expect("a whole disk"));
                }
            });
        }
    });
}

#[test]
fn a_segment_is_not_reused_while_late_writes_may_reach_it() {
    for kind in KINDS {
        let late = kill_again_and_again(kind);
        println!("{}: {} kills, {late} late writes", kind.configuration.name, kind.kills);
        assert!(late >= least(kind), "{}: only {late} writes were late", kind.configuration.name);
    }
}

/// Returns when to kill. If few writes are ever in flight, mostly while one is.
fn moment(disk: &SimulatedStorage, kind: &Kind, random: &mut Random) -> usize {
    let lines = disk.describe(0);
    let submitted = lines.iter().enumerate().filter(|(_, line)| line.starts_with("submitted log/"));
    let moments: Vec<usize> = submitted.map(|(at, _)| at + 1).collect();
    if kind.any_time || moments.is_empty() || random.chance(1, 8) {
        return random.below(disk.operations() as u64) as usize;
    }
    moments[random.below(moments.len() as u64) as usize]
}

/// Returns how many writes of this kind have to be late.
fn least(kind: &Kind) -> usize {
    depth(kind.late as u64) as usize
}

fn kill_again_and_again(kind: &Kind) -> usize {
    let (settings, mut random, mut late) = ((kind.configuration.settings)(), Random::from_seed(1), 0);
    let least = least(kind);
    for seed in 0.. {
        // The number of writes in flight depends on thread scheduling.
        if seed >= depth(kind.kills) && late >= least || seed >= 10 * kind.kills {
            break;
        }
        let context = format!("{}, seed {seed}", kind.configuration.name);
        let (disk, db) = settings.create(seed);
        write(&db, 0, 150);
        let at = moment(&disk, kind, &mut random);
        disk.stop();
        drop(db);

        let disk = disk.crash(CrashKind::Kill, at, random.next_u64());
        disk.hold_late_writes(true);
        late += disk.late_writes();
        let db = settings.try_open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
        // The checkpoint covers everything, and its segments are free for what follows.
        for from in [1000, 2000, 3000] {
            db.checkpoint().expect("a whole disk");
            write(&db, from, from + 200);
            db.flush().expect("a whole disk");
        }
        disk.hold_late_writes(false);
        must_outlive_a_kill(db, &disk, &settings, random.next_u64(), &context);
    }
    late
}

/// Regression: a block was in mapped memory. Its write to a segment landed after recovery had
/// flushed the segments and before recovery read them. The block was taken for durable, and the
/// memory was reused.
#[test]
fn cached_blocks_also_in_mapped_memory_survive_a_power_cut() {
    let settings = (configurations::PASSIVE.settings)();
    let (mut random, mut late) = (Random::from_seed(2), 0);
    // The number of writes in flight depends on thread scheduling.
    for seed in 0..600 {
        if u64::from(late) >= depth(20) {
            break;
        }
        let context = format!("seed {seed}");
        let (disk, db) = settings.create(seed);
        write(&db, 0, 600);
        let lines = disk.describe(0);
        let submitted = lines.iter().enumerate().filter(|(_, line)| line.starts_with("submitted log/"));
        let moments: Vec<usize> = submitted.map(|(at, _)| at + 1).collect();
        disk.stop();
        drop(db);
        if moments.is_empty() {
            continue;
        }
        let at = moments[random.below(moments.len() as u64) as usize];
        let disk = disk.crash(CrashKind::Kill, at, random.next_u64());
        disk.hold_late_writes(true);
        late += u32::from(disk.late_writes() > 0);
        let meanwhile = disk.clone();
        let builder = settings.on(&disk);
        let scanning = Box::new(move |what: &str, _, _| {
            if what == "log bytes scanned" {
                meanwhile.hold_late_writes(false);
            }
        });
        let db = builder.on_recovery(scanning).open("simulated").unwrap_or_else(|e| panic!("{context}: {e}"));
        let there = crate::support::content(&db);
        let cut = disk.crash(CrashKind::PowerCut, disk.operations(), random.next_u64());
        disk.stop();
        drop(db);

        let db = settings.try_open(&cut).unwrap_or_else(|error| panic!("{context}: {error}"));
        let now = crate::support::content(&db);
        assert!(now == there, "{context}: {}", crate::support::difference(&there, &now));
    }
    assert!(late > 0, "no kill had late writes");
}

/// Regression: the next process covered the killed one's segments with its closing checkpoint. It
/// was killed before it removed them. The third process found a closed database and reused the
/// segments, where a late write could still land.
#[test]
fn a_close_killed_before_removal_does_not_free_old_segments() {
    let (settings, mut random, mut late, mut closes) =
        ((KINDS[0].configuration.settings)(), Random::from_seed(3), 0, 0);
    let wanted = if is_deep() { 4 } else { 2 };
    for seed in 0..400 {
        if late >= wanted {
            break;
        }
        let (disk, db) = settings.create(seed);
        write(&db, 0, 150);
        let at = moment(&disk, &KINDS[0], &mut random);
        disk.stop();
        drop(db);
        let killed = disk.crash(CrashKind::Kill, at, random.next_u64());
        if killed.late_writes() == 0 {
            continue;
        }
        late += 1;
        killed.hold_late_writes(true);
        let db = settings.try_open(&killed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        db.close().expect("a whole disk");
        let end = killed.operations();
        for at in end - 12..=end {
            let context = format!("seed {seed}, close killed after {at} of {end} operations");
            let again = killed.crash(CrashKind::Kill, at, random.next_u64());
            again.hold_late_writes(true);
            let db = settings.try_open(&again).unwrap_or_else(|error| panic!("{context}: {error}"));
            closes += u32::from(db.recovery().clean);
            for from in [1000, 2000] {
                write(&db, from, from + 200);
                db.flush().expect("a whole disk");
                db.checkpoint().expect("a whole disk");
            }
            write(&db, 3000, 3200);
            db.flush().expect("a whole disk");
            again.hold_late_writes(false);
            must_outlive_a_kill(db, &again, &settings, random.next_u64(), &context);
        }
    }
    assert!(late >= wanted && closes > 0, "{late} kills with late writes, {closes} whole closes");
}

/// Regression: a late block of a discarded transaction has a CSN above all later ones, so no
/// checkpoint covers it. A close needs nothing of it, but left the segment, and so the next open
/// recovered the database.
#[test]
fn a_close_is_clean_despite_a_late_block_of_an_old_epoch() {
    let (settings, mut random, mut late) = ((KINDS[0].configuration.settings)(), Random::from_seed(5), 0);
    let wanted = if is_deep() { 8 } else { 3 };
    for seed in 0..400 {
        if late >= wanted {
            break;
        }
        let context = format!("seed {seed}");
        let (disk, db) = settings.create(seed);
        write(&db, 0, 150);
        let at = moment(&disk, &KINDS[0], &mut random);
        disk.stop();
        drop(db);
        let killed = disk.crash(CrashKind::Kill, at, random.next_u64());
        if killed.late_writes() == 0 {
            continue;
        }
        late += 1;
        killed.hold_late_writes(true);
        let db = settings.try_open(&killed).unwrap_or_else(|error| panic!("{context}: {error}"));
        killed.hold_late_writes(false);
        let again = killed.crash(CrashKind::Kill, killed.operations(), random.next_u64());
        killed.stop();
        drop(db);
        let db = settings.try_open(&again).unwrap_or_else(|error| panic!("{context}: {error}"));
        let there = crate::support::content(&db);
        db.close().unwrap_or_else(|error| panic!("{context}: {error}"));
        let db = settings.try_open(&again).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert!(db.recovery().clean, "{context}");
        assert_eq!(crate::support::content(&db), there, "{context}");
    }
    assert!(late >= wanted, "{late} kills with late writes");
}

/// The same if a segment could not be removed. Then the database is not closed cleanly, and the
/// next open tries again.
#[test]
fn old_segments_a_close_cannot_remove_go_at_the_next_open() {
    let settings = (configurations::GROUP.settings)().with(|s| {
        s.logs = 1;
        s.protocol_mut().set_writer(Writer::Leader);
    });
    let (disk, db) = settings.create(1);
    write(&db, 0, 150);
    db.flush().expect("a whole disk");
    let disk = disk.crash(CrashKind::Kill, disk.operations(), 1);
    let left = disk.files();
    let reopened = |clean| {
        let db = settings.open(&disk);
        assert_eq!(db.recovery().clean, clean);
        db
    };
    let db = reopened(false);
    disk.inject(Fault { operation: OperationKind::Remove, after: 0, kind: FaultKind::ForEver, error: 5 });
    db.close().expect("everything is in the checkpoint");
    disk.heal();
    reopened(false).close().expect("a whole disk");
    let segments =
        |files: &[String]| files.iter().filter(|path| path.starts_with("log/")).cloned().collect::<Vec<_>>();
    let files = disk.files();
    assert!(segments(&left).iter().all(|path| !files.contains(path)), "{left:?}, then {files:?}");
    assert_eq!(crate::support::content(&reopened(true)).len(), 150);
}
