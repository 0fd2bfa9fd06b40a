//! Recovery at its limits: little memory, interrupted, and the progress that it reports.

use crate::support::test_database::{TestDatabase, tiny};
use crate::support::{Content, content};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::{Compression, Database, Durability, Preset, Settings, Table};
use std::sync::{Arc, Barrier, Mutex};

const SEGMENT_BYTES: u64 = 64 << 10;

fn settings(preset: Preset) -> Settings {
    tiny(32 << 20).with(|s| {
        s.preset = preset;
        s.logs = if preset == Preset::Group { 1 } else { 3 };
        s.segment_bytes = SEGMENT_BYTES;
        s.log_bytes_max = 64 << 20;
    })
}

/// So little memory that the log does not fit: recovery uses windows of some tens of KiB.
fn tight(preset: Preset) -> Settings {
    settings(preset).with(|s| s.memory_bytes = 1 << 20)
}

/// Inserts, patches and deletes some of a few hundred rows, in a transaction of its own thread.
fn change(db: &Database, table: &Table, random: &mut Random) -> quenchdb::Result<()> {
    let mut tx = db.begin_with(Durability::Lazy)?;
    for _ in 0..1 + random.below(4) {
        let key = (random.below(400) as u32).to_be_bytes();
        match tx.get(table, key)? {
            Some(mut value) if random.chance(1, 2) => {
                let at = random.below(value.len() as u64) as usize;
                value[at] = random.below(256) as u8;
                tx.insert(table, key, value)?;
            }
            Some(_) if random.chance(1, 4) => drop(tx.remove(table, key)?),
            _ => tx.insert(table, key, vec![random.below(256) as u8; 100 + random.below(100) as usize])?,
        }
    }
    tx.commit_async().map(drop)
}

/// Returns a disk with some MiB of log from four threads, with created and dropped tables, and no
/// checkpoint of it.
fn crashed(preset: Preset) -> SimulatedStorage {
    let (disk, db) = settings(preset).create(7);
    for round in 0..4u32 {
        let tables: Vec<Table> = (0..2)
            .map(|n| db.table_or_create(&format!("t{}", (round + n) % 3)).expect("room for a table"))
            .collect();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (db, tables) = (&db, &tables);
                scope.spawn(move || {
                    let mut random = Random::from_seed(thread * 100 + u64::from(round));
                    for n in 0..700 {
                        let done = change(db, &tables[n % 2], &mut random);
                        assert!(done.is_ok() || done.is_err_and(|error| error.is_retryable()));
                    }
                });
            }
        });
        drop(tables);
        if round > 1 {
            db.drop_table(&format!("t{}", round % 3)).expect("no transaction uses it");
        }
    }
    db.flush().expect("a whole disk");
    disk.stop();
    disk.crash(CrashKind::PowerCut, disk.operations(), 1)
}

/// Changes one byte of each of some long rows, several times. Returns the bytes of log records that
/// took, and the rows after a power cut.
fn overwrite_bytes(delta_logging: bool) -> (u64, Content) {
    const ROWS: u64 = 50;
    let settings = settings(Preset::Group).with(|s| s.lab.delta_logging = delta_logging);
    let (disk, db) = settings.create(3);
    let table = db.create_table("rows").expect("a new table");
    let key = |n: u64| (n % ROWS).to_be_bytes();
    let put = |n: u64, value: &[u8]| {
        let mut tx = db.begin().expect("open");
        tx.insert(&table, key(n), value).expect("room");
        tx.commit().expect("a whole disk");
    };
    (0..ROWS).for_each(|n| put(n, &[0; 400]));
    let before = db.statistics().log_bytes;
    for n in 0..4 * ROWS {
        let mut value = vec![0; 400];
        value[n as usize] = 1 + n as u8;
        put(n, &value);
    }
    let logged = db.statistics().log_bytes - before;
    disk.stop();
    let left = disk.crash(CrashKind::PowerCut, disk.operations(), 1);
    // Recovery reads either kind of record, whatever the setting is now.
    let db = settings.with(|s| s.lab.delta_logging = !delta_logging).open(&left);
    (logged, content(&db))
}

#[test]
fn delta_logging_changes_the_log_and_not_the_rows() {
    let ((deltas, rows), (whole, same)) = (overwrite_bytes(true), overwrite_bytes(false));
    assert_eq!(rows.len(), 50);
    assert!(rows == same, "the rows depend on how they were logged");
    assert!(whole > 200 * 400, "200 values of 400 bytes took {whole} bytes of log");
    // Each value differs from the one before in two bytes, 50 apart.
    assert!(deltas < whole / 2, "{deltas} bytes with deltas, {whole} without");
}

#[test]
fn a_log_larger_than_memory_recovers_to_the_same() {
    for preset in [Preset::Group, Preset::Autonomous] {
        let disk = crashed(preset);
        let (plenty, little) = (disk.duplicate(), disk.duplicate());
        let db = settings(preset).open(&plenty);
        let (expected, first) = (content(&db), db.recovery());
        assert!(expected.len() > 300 && first.replayed > 8000, "{first:?}");
        let db = tight(preset).open(&little);
        let second = db.recovery();
        assert_eq!(content(&db), expected);
        assert_eq!((second.replayed, second.discarded), (first.replayed, first.discarded));
        assert!(second.log_bytes > first.log_bytes, "nothing was read twice: {second:?}");
        assert!(db.verify(None).expect("runs").problems.is_empty());
    }
}

#[test]
fn progress_has_phases_that_begin_go_on_and_end() {
    for settings in [settings(Preset::Autonomous), tight(Preset::Autonomous)] {
        let disk = crashed(Preset::Autonomous);
        let heard = Arc::new(Mutex::new(Vec::<(String, u64, u64)>::new()));
        let hears = heard.clone();
        let db = settings
            .on(&disk)
            .on_recovery(Box::new(move |what, done, total| {
                hears.lock().expect("not poisoned").push((what.to_string(), done, total));
            }))
            .open("simulated")
            .expect("opens");
        let heard = heard.lock().expect("not poisoned");
        let phases: Vec<_> = heard.chunk_by(|a, b| a.0 == b.0).collect();
        let names: Vec<&str> = phases.iter().map(|phase| phase[0].0.as_str()).collect();
        assert_eq!(names, ["log bytes scanned", "transactions replayed", "log segments prepared"]);
        for phase in &phases {
            assert!(phase.iter().all(|(_, done, total)| done <= total && *total == phase[0].2), "{phase:?}");
            assert!(phase.is_sorted_by_key(|(_, done, _)| *done), "{phase:?}");
            let (_, done, total) = &phase[phase.len() - 1];
            assert_eq!(done, total);
        }
        assert!(phases[1].len() > 3, "replay was heard of only {} times", phases[1].len());
        assert!(phases[1][0].2 >= db.recovery().replayed);
    }
}

#[test]
fn interrupted_recoveries_cost_no_more_than_the_first() {
    for preset in [Preset::Group, Preset::Autonomous] {
        let start = crashed(preset);
        let whole = start.duplicate();
        let db = settings(preset).open(&whole);
        let (expected, first) = (content(&db), db.recovery());
        whole.stop();
        drop(db);
        let mut random = Random::from_seed(3);
        for _ in 0..4 {
            // Crashes inside one recovery after another, each at a random operation.
            let mut disk = start.duplicate();
            for attempt in 0..5 {
                let db = settings(preset).open(&disk);
                let (operations, report) = (disk.operations(), db.recovery());
                assert_eq!(content(&db), expected);
                disk.stop();
                drop(db);
                if attempt > 0 {
                    assert!(report.replayed <= first.replayed, "{report:?}, at first {first:?}");
                    // Plus the segments that the previous recovery created for what it appended
                    // again.
                    let bound = first.log_bytes + 6 * SEGMENT_BYTES;
                    assert!(report.log_bytes <= bound, "{report:?}, at first {first:?}");
                }
                let kind = if random.chance(1, 2) { CrashKind::Kill } else { CrashKind::PowerCut };
                disk = disk.crash(kind, random.below(operations as u64) as usize, random.next_u64());
            }
        }
    }
}

/// Regression: each recovery wrote the aborted CSNs of all earlier ones again in each of their
/// entries, until the manifest was too long.
#[test]
fn a_manifest_lists_aborted_csns_once_across_crashes() {
    // So many logs that the two threads hardly ever share one, whatever other threads live.
    let settings = crate::support::patient_workers(16);
    let mut disk = SimulatedStorage::new(1);
    let mut lengths = Vec::new();
    for life in 0..12u64 {
        let db = settings.open(&disk);
        let table = db.table_or_create("t").expect("free");
        let (ping, pong) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            let (db, table, ping, pong) = (&db, &table, &ping, &pong);
            for (thread, durability) in [Durability::Durable, Durability::Lazy].into_iter().enumerate() {
                scope.spawn(move || {
                    for n in 0..100u8 {
                        if thread == 1 {
                            ping.wait();
                        }
                        let mut tx = db.begin_with(durability).expect("free");
                        tx.insert(table, [thread as u8, n], [life as u8]).expect("fits");
                        tx.commit().expect("a whole disk");
                        if thread == 0 {
                            ping.wait();
                        }
                        pong.wait();
                    }
                });
            }
        });
        let bytes = disk.read_file("MANIFEST").expect("there");
        lengths.push(u32::from_le_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]));
        let killed = disk.crash(CrashKind::PowerCut, disk.operations(), life);
        disk.stop();
        disk = killed;
    }
    let grown = |from: usize, to: usize| f64::from(lengths[to] - lengths[from]);
    assert!(grown(0, 4) > 400.0, "nothing was void: {lengths:?}");
    assert!(grown(7, 11) < 1.5 * grown(0, 4), "{lengths:?}");
}

fn puts(db: &Database, table: &Table, from: u64, to: u64) {
    for n in from..to {
        let mut tx = db.begin_with(Durability::Lazy).expect("begins");
        let key = n.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
        tx.insert(table, key, [n as u8; 100]).expect("room");
        drop(tx.commit_async().expect("commits"));
    }
    db.flush().expect("a whole disk");
}

#[test]
fn the_replay_estimate_follows_commits_and_checkpoints() {
    let (disk, db) = settings(Preset::Group).create(5);
    let table = db.create_table("t").expect("new");
    db.checkpoint().expect("a whole disk");
    let empty = db.statistics().replay;
    assert_eq!(empty.work.operations, 0);
    let mut redo_seconds = Vec::new();
    for round in 0..3u64 {
        puts(&db, &table, round * 2000, (round + 1) * 2000);
        let now = db.statistics();
        assert_eq!(now.replay.work.operations, (round + 1) * 2000);
        assert!(now.replay_seconds_estimate > empty.seconds);
        redo_seconds.push(now.replay.redo_seconds);
    }
    assert!((redo_seconds[2] / redo_seconds[0] - 3.0).abs() < 0.01, "linear: {redo_seconds:?}");
    let before = db.statistics().replay;
    assert!(before.work.pages > 100 && before.work.log_bytes > 6000 * 160, "{before:?}");
    disk.stop();
    drop((table, db));

    // Until there is a checkpoint, a second crash would cause the same recovery again.
    let (_disk, db) = settings(Preset::Group).crash(&disk, CrashKind::Kill, 1);
    let after = db.statistics().replay;
    assert_eq!(after.work.operations, db.recovery().operations);
    assert_eq!((after.work.operations, after.work.record_bytes), (6000, before.work.record_bytes));
    assert!(after.work.log_bytes >= before.work.log_bytes);
    db.checkpoint().expect("a whole disk");
    let covered = db.statistics().replay;
    assert_eq!((covered.work.operations, covered.work.record_bytes, covered.work.pages), (0, 0, 0));
    assert!(covered.seconds < after.seconds);
    // Replay will have to read pages that the checkpoint has.
    let table = db.table("t").expect("recovered");
    puts(&db, &table, 0, 500);
    let again = db.statistics().replay;
    assert!(again.work.stored_pages > 50 && again.read_seconds > 0.0, "{again:?}");
}

/// Compares the counted parts of the estimate with the counts of the next recovery. The estimated
/// time depends on the machine's load.
#[test]
fn the_replay_estimate_is_exact_behind_a_partial_checkpoint() {
    for (preset, in_progress) in [(Preset::Group, false), (Preset::Group, true), (Preset::Autonomous, true)] {
        let disk = SimulatedStorage::new(6);
        let compression = Compression::None;
        let settings = settings(preset).with(|s| {
            s.lab.chunk_bytes = 4096;
            s.compression = compression;
        });
        let db = settings.open(&disk);
        let table = db.create_table("t").expect("new");
        puts(&db, &table, 0, 5000);
        // The checkpoint contains nothing of the transaction, so the log keeps its chunks.
        let mut long = in_progress.then(|| db.begin().expect("free"));
        if let Some(long) = &mut long {
            (0..3000u32).for_each(|n| long.insert(&table, n.to_be_bytes(), [1; 100]).expect("room"));
        }
        db.checkpoint().expect("a whole disk");
        puts(&db, &table, 2000, 4000);
        if let Some(long) = long {
            long.commit().expect("commits");
        }
        puts(&db, &table, 6000, 8000);
        let estimate = db.statistics().replay;
        disk.stop();
        drop((table, db));
        let db = settings.open(&disk.crash(CrashKind::Kill, disk.operations(), 1));
        let (work, report) = (estimate.work, db.recovery());
        assert_eq!(report.chunks_before_checkpoint > 50, in_progress, "{report:?}");
        assert_eq!(work.operations, report.operations, "{report:?}");
        let is_near = |estimated: u64, actual: u64, factor: f64| {
            let ratio = estimated as f64 / actual as f64;
            assert!((1.0 / factor..=factor).contains(&ratio), "{estimate:?}\n{report:?}");
        };
        is_near(work.record_bytes, report.record_bytes, 1.05);
        is_near(work.log_bytes, report.log_file_bytes, 1.5);
        // Each page is read once, because the rows fit in memory.
        is_near(work.stored_pages, report.pages_read, 2.0);
    }
}

/// Measures real time, so the machine should be idle.
#[test]
#[ignore = "measures real time"]
fn the_replay_estimate_is_within_a_factor_of_two() {
    let directory = tempfile::tempdir_in(".").expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let open = |name: &str| {
        let settings = Settings::default().with(|s| {
            s.memory_bytes = 2 << 30;
            s.lab.checkpoint_log_bytes = 0;
        });
        settings.open_in(at(name))
    };
    // A copy of the files of an open database is what a kill leaves.
    let copy = |from: &str, to: &str| {
        let done = std::process::Command::new("cp").arg("-r").args([at(from), at(to)]).status();
        assert!(done.expect("runs").success());
    };
    let db = open("first");
    puts(&db, &db.create_table("t").expect("new"), 0, 600_000);
    let constants = db.statistics().replay;
    copy("first", "second");
    drop(db);
    let db = open("second");
    let first = db.recovery();
    println!("estimated {constants:?}\nmeasured {first:?}");
    puts(&db, &db.table("t").expect("recovered"), 600_000, 900_000);
    let learned = db.statistics().replay;
    copy("second", "third");
    drop(db);
    let second = open("third").recovery();
    println!("estimated {learned:?}\nmeasured {second:?}");
    assert!(second.seconds > 0.2, "too short to tell");
    for (estimate, recovery) in [(constants, first), (learned, second)] {
        let ratio = estimate.seconds / recovery.seconds;
        assert!(
            (0.5..=2.0).contains(&ratio),
            "estimated {} s, took {} s",
            estimate.seconds,
            recovery.seconds
        );
    }
}
