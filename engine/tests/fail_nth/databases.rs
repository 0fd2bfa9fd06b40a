//! Scenarios of one database on one disk.

use super::outcomes::{Deed, How, Outcome, Size, Writer};
use super::{Scenario, Stage, judge_database};
use crate::support::await_that;
use crate::support::modes::Mode;
use crate::support::test_database::TestDatabase;
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::{Acknowledger, Compression, Database, Layout, Preset, Settings, Table, Writer as Who};
use std::io::Read;
use std::ops::RangeInclusive;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, RwLock};
use std::time::Duration;

/// Minimum number of rounds of two threads, and the maximum if the expected event does not happen.
const ROUNDS: RangeInclusive<usize> = 3..=12;

fn small(preset: Preset, logs: usize) -> Settings {
    Settings::default().with(|s| {
        s.preset = preset;
        s.logs = logs;
        s.memory_bytes = 2 << 20;
        s.version_bytes = 256 << 10;
        s.segment_bytes = 64 << 10;
        s.lab.log_buffer_bytes = 64 << 10;
        s.log_bytes_max = 1 << 20;
        s.lab.checkpoint_log_bytes = 0;
        s.lab.flush_unit_bytes = 4096;
        s.log_memory = (preset == Preset::Passive).then(|| "mapped-memory".into());
        s.lab.log_memory_bytes = if preset == Preset::Passive { 1 << 20 } else { 0 };
    })
}

pub fn group() -> Settings {
    small(Preset::Group, 1)
}

/// Settings for a pool of few pages.
fn tight() -> Settings {
    group().with(|s| s.memory_bytes = 1 << 20)
}

/// Settings for a pool of few pages, of which few are read and written again.
fn tight_with_long_pages() -> Settings {
    tight().with(|s| {
        s.page_bytes = 32768;
        s.segment_bytes = 1 << 20;
        s.log_bytes_max = 8 << 20;
    })
}

type Before = (Vec<SimulatedStorage>, Vec<Deed>);

fn nothing(_: &Settings) -> Before {
    (vec![SimulatedStorage::new(1)], Vec::new())
}

/// Creates a database with a table, runs `work`, and closes or crashes it.
pub fn database(
    settings: &Settings,
    close: bool,
    work: impl FnOnce(&Database, &Table, &mut Writer),
) -> Before {
    let disk = SimulatedStorage::new(1);
    let mut writer = Writer::new(&disk, 0, Vec::new());
    let db = settings.open(&disk);
    writer.create(&db, "t");
    let table = db.table("t").expect("created");
    work(&db, &table, &mut writer);
    writer.wait_all();
    writer.flush(&db);
    assert!(writer.errors.is_empty(), "{:?}", writer.errors);
    if close {
        db.close().expect("a well disk");
    } else {
        disk.stop();
        drop((db, table));
        let crashed = disk.crash(CrashKind::Kill, disk.operations(), 1);
        crashed.hold_late_writes(false);
        return (vec![crashed.duplicate()], writer.deeds);
    }
    (vec![disk.duplicate()], writer.deeds)
}

/// A closed database with three transactions.
pub fn closed(settings: &Settings) -> Before {
    database(settings, true, |db, table, writer| {
        (0..3).for_each(|_| writer.put(db, table, Size(2, 300), How::Wait));
    })
}

/// A few leaves and a checkpoint, then transactions in the log.
fn crashed(settings: &Settings) -> Before {
    database(settings, false, |db, table, writer| {
        (0..4).for_each(|_| writer.put(db, table, Size(6, 500), How::Wait));
        db.checkpoint().expect("a well disk");
        for how in [How::Wait, How::Async, How::Loss, How::Wait] {
            writer.put(db, table, Size(3, 600), how);
        }
        writer.create(db, "second");
        writer.put(db, table, Size(1, 9000), How::Wait);
    })
}

fn create(stage: &mut Stage) {
    stage.arm();
    let Some(db) = stage.open() else { return };
    stage.writer.create(&db, "t");
    let Ok(table) = db.table("t") else { return };
    stage.writer.put(&db, &table, Size(2, 100), How::Wait);
}

fn reopen(stage: &mut Stage) {
    stage.arm();
    let Some(db) = stage.open() else { return };
    let Ok(table) = db.table("t") else { return };
    stage.writer.put(&db, &table, Size(2, 100), How::Wait);
}

/// Commits in every way, and writes enough bytes to need another segment.
fn commit(stage: &mut Stage) {
    let (db, table) = stage.open_well();
    stage.arm();
    commit_some(stage, &db, &table, 2500);
}

fn commit_some(stage: &mut Stage, db: &Database, table: &Table, len: usize) {
    use How::{Async, Lazy, Loss, Wait};
    for how in [Wait, Async, Loss, Async, Wait, Lazy, Wait, Wait, Async, Async, Wait] {
        stage.writer.put(db, table, Size(2, len), how);
    }
    stage.writer.wait_all();
    stage.writer.flush(db);
}

/// Runs long transactions, which are written in chunks.
fn chunks(stage: &mut Stage) {
    let (db, table) = stage.open_well();
    stage.arm();
    for how in [How::Wait, How::Async, How::Wait] {
        stage.writer.put(&db, &table, Size(12, 900), how);
    }
    stage.writer.wait_all();
    let before = db.statistics().log_bytes;
    let taken_back = db.begin().and_then(|mut tx| {
        (0..12u8).try_for_each(|row| tx.insert(&table, [250, row], vec![row; 900]))?;
        tx.abort();
        Ok(())
    });
    stage.attempt(taken_back);
    stage.seen = db.statistics().log_bytes - before;
    stage.writer.put(&db, &table, Size(2, 100), How::Wait);
}

/// Writes rows of many leaves in each transaction.
fn fragments(stage: &mut Stage) {
    let (db, table) = stage.open_well();
    stage.arm();
    for how in [How::Wait, How::Async, How::Wait, How::Loss, How::Wait] {
        stage.writer.put(&db, &table, Size(40, 250), how);
    }
    stage.writer.wait_all();
    stage.writer.flush(&db);
}

/// Returns two functions that wait for each other, and panic if the other thread has ended.
fn both() -> [impl Fn() + Send; 2] {
    let ((to_another, from_one), (to_one, from_another)) = (mpsc::channel(), mpsc::channel());
    let meets = |to: Sender<()>, from: Receiver<()>| {
        move || {
            let _ = to.send(());
            from.recv().expect("the other is there");
        }
    };
    [meets(to_another, from_another), meets(to_one, from_one)]
}

/// Runs `round` in two threads [some times](ROUNDS), until `taken`. The second thread is new each
/// time, and all live to the end, because the living threads decide which log a thread gets.
fn two_threads(
    stage: &mut Stage,
    db: &Database,
    taken: fn(&Database) -> bool,
    round: impl Fn(&mut Writer, &dyn Fn()) + Sync,
) {
    let other = Mutex::new(Writer::new(&stage.disks[0], 1, Vec::new()));
    let end = RwLock::new(());
    let until_the_end = end.write().expect("no panic");
    std::thread::scope(|scope| {
        let until_the_end = until_the_end;
        for times in 1..=*ROUNDS.end() {
            let ([one, another], other, round, end) = (both(), &other, &round, &end);
            scope.spawn(move || {
                round(&mut other.lock().expect("no panic"), &another);
                another();
                drop(end.read());
            });
            round(&mut stage.writer, &one);
            one();
            if ROUNDS.contains(&times) && taken(db) {
                break;
            }
        }
        drop(until_the_end);
    });
    let mut other = other.into_inner().expect("no panic");
    stage.writer.deeds.append(&mut other.deeds);
    stage.writer.errors.append(&mut other.errors);
    stage.writer.flush(db);
}

/// One thread has unwritten bytes when the other writes; then both commit in any order.
fn steal(stage: &mut Stage) {
    let (db, table) = stage.open_well();
    stage.arm();
    two_threads(stage, &db, stole, |writer, meet| {
        let thief = writer.thread == 0;
        meet();
        writer.put(&db, &table, Size(1, 600), How::Async);
        meet();
        if thief {
            writer.put(&db, &table, Size(1, 600), How::Wait);
        }
        meet();
        writer.put(&db, &table, Size(2, 1200), if thief { How::Loss } else { How::Async });
        writer.put(&db, &table, Size(2, 1200), How::Wait);
        writer.wait_all();
    });
}

/// Both threads commit without waiting, then wait at the same time.
fn together(stage: &mut Stage) {
    let (db, table) = stage.open_well();
    stage.arm();
    two_threads(stage, &db, shared_a_flush, |writer, meet| {
        meet();
        writer.put(&db, &table, Size(2, 600), How::Async);
        writer.put(&db, &table, Size(2, 600), How::Async);
        meet();
        writer.wait_all();
    });
}

/// Both threads lock one row first, in each way to lock. Locks stay only for a commit of which the
/// outcome is unknown.
fn locks(stage: &mut Stage) {
    let (db, table) = stage.open_well();
    stage.arm();
    two_threads(
        stage,
        &db,
        |_| true,
        |writer, meet| {
            for mode in [Mode::SnapshotLocking, Mode::SerializableLocking, Mode::LateRelease] {
                writer.mode = mode;
                meet();
                (0..2).for_each(|_| writer.put_locked(&db, &table, Size(1, 600)));
            }
        },
    );
    let (left, deeds) = (db.locks(), &stage.writer.deeds);
    let is_unknown = deeds.iter().any(|deed| deed.outcome == Outcome::Unknown);
    assert!(left.is_empty() || is_unknown, "no transaction is active: {left:?}");
    stage.seen = db.statistics().lock_waits.count;
}

/// Moves full buffers of mapped memory to segments.
fn destage(stage: &mut Stage) {
    let (db, table) = stage.open_well();
    stage.arm();
    for how in [How::Wait, How::Async, How::Wait, How::Loss, How::Wait, How::Wait, How::Wait] {
        stage.writer.put(&db, &table, Size(6, 3000), how);
    }
    stage.writer.wait_all();
    // Committers do not wait for the thread that writes the buffers.
    await_that("a full buffer is not written", || {
        db.statistics().device_writes > 0 || stage.struck() || !stage.writer.errors.is_empty()
    });
    stage.writer.flush(&db);
}

fn checkpoint(stage: &mut Stage) {
    let (db, table) = stage.open_well();
    (0..3).for_each(|_| stage.writer.put(&db, &table, Size(6, 700), How::Wait));
    stage.arm();
    let made = db.checkpoint();
    stage.attempt(made);
    stage.writer.put(&db, &table, Size(2, 100), How::Wait);
    let made = db.checkpoint();
    stage.attempt(made);
    stage.writer.put(&db, &table, Size(2, 100), How::Wait);
}

/// Reads and writes more pages than memory holds.
fn evict(stage: &mut Stage) {
    let (db, table) = stage.open_well();
    stage.arm();
    for how in [How::Wait, How::Async, How::Wait] {
        stage.writer.put(&db, &table, Size(60, 5000), how);
    }
    stage.writer.wait_all();
    read_all(stage, &db, &table);
}

fn read_all(stage: &mut Stage, db: &Database, table: &Table) {
    let rows =
        db.begin_read().and_then(|snapshot| snapshot.range(table, ..).try_for_each(|row| row.map(drop)));
    stage.attempt(rows);
}

/// Splits leaves, writes them in a checkpoint, empties and merges them.
fn split_and_merge(stage: &mut Stage) {
    let (db, table) = stage.open_well();
    stage.arm();
    for _ in 0..3 {
        stage.writer.put(&db, &table, Size(12, 900), How::Wait);
    }
    let made = db.checkpoint();
    stage.attempt(made);
    // Rows 0 to 2 exist already.
    for n in 3..5 {
        stage.writer.remove(&db, &table, n);
    }
    let made = db.checkpoint();
    stage.attempt(made);
    stage.writer.put(&db, &table, Size(1, 10), How::Wait);
}

/// Writes, reads, replaces and removes values of several pages.
fn overflow(stage: &mut Stage) {
    let (db, table) = stage.open_well();
    stage.arm();
    stage.writer.put(&db, &table, Size(1, 20_000), How::Wait);
    stage.writer.put(&db, &table, Size(2, 9_000), How::Async);
    stage.writer.wait_all();
    let made = db.checkpoint();
    stage.attempt(made);
    read_all(stage, &db, &table);
    stage.writer.remove(&db, &table, 3);
    let made = db.checkpoint();
    stage.attempt(made);
    stage.writer.put(&db, &table, Size(1, 10), How::Wait);
}

/// Writes a value longer than memory, so that pages of it are evicted before the commit. Rolls back
/// another one.
fn uncommitted_value(stage: &mut Stage) {
    let (db, table) = stage.open_well();
    stage.arm();
    let taken_back = db.begin().and_then(|mut tx| {
        tx.insert_from(&table, [9, 9], &mut std::io::repeat(7).take(700 << 10))?;
        tx.abort();
        Ok(())
    });
    stage.attempt(taken_back);
    stage.writer.put(&db, &table, Size(1, 700 << 10), How::Wait);
    let made = db.checkpoint();
    stage.attempt(made);
    stage.writer.put(&db, &table, Size(1, 10), How::Wait);
}

fn tables(stage: &mut Stage) {
    let (db, table) = stage.open_well();
    stage.arm();
    stage.writer.create(&db, "a");
    stage.writer.create(&db, "b");
    stage.writer.put(&db, &table, Size(2, 100), How::Wait);
    if db.table("a").is_ok() {
        stage.writer.drop_table(&db, "a");
    }
    let made = db.checkpoint();
    stage.attempt(made);
    stage.writer.drop_table(&db, "second");
    stage.writer.create(&db, "c");
    let made = db.checkpoint();
    stage.attempt(made);
}

fn with_second_table(settings: &Settings) -> Before {
    database(settings, true, |db, table, writer| {
        writer.create(db, "second");
        let second = db.table("second").expect("created");
        let fill = |tx: &mut quenchdb::Transaction| {
            (0..40u8).try_for_each(|n| tx.insert(&second, [n], vec![n; 700]))
        };
        db.transact(fill).expect("a well disk");
        writer.put(db, table, Size(2, 300), How::Wait);
    })
}

/// A file of pages with holes, for compaction.
fn with_holes(settings: &Settings) -> Before {
    database(settings, true, |db, table, writer| {
        writer.put(db, table, Size(12, 900), How::Wait);
        for _ in 0..3 {
            writer.put(db, table, Size(12, 900), How::Wait);
            db.checkpoint().expect("a well disk");
        }
        writer.remove(db, table, 0);
        writer.remove(db, table, 1);
        db.checkpoint().expect("a well disk");
    })
}

fn compact(stage: &mut Stage) {
    let (db, table) = stage.open_well();
    stage.arm();
    let done = db.compact(None);
    stage.attempt(done);
    stage.writer.put(&db, &table, Size(1, 10), How::Wait);
}

fn close(stage: &mut Stage) {
    let (db, table) = stage.open_well();
    stage.writer.put(&db, &table, Size(4, 600), How::Wait);
    stage.writer.put(&db, &table, Size(4, 600), How::Async);
    stage.arm();
    stage.db = None;
    // Asynchronous commits are durable once the database is closed.
    let closed = db.close();
    if stage.attempt(closed).is_some() {
        stage.writer.wait_all();
    }
}

/// The disk becomes full, and later has space again.
fn full_disk(stage: &mut Stage) {
    let (db, table) = stage.open_well();
    stage.writer.put(&db, &table, Size(12, 900), How::Wait);
    stage.fills_up = true;
    stage.disks[0].set_capacity(Some(0));
    stage.arm();
    stage.writer.put(&db, &table, Size(2, 900), How::Wait);
    let made = db.checkpoint();
    stage.attempt(made);
    stage.writer.put(&db, &table, Size(2, 900), How::Wait);
    stage.disks[0].set_capacity(None);
    // The engine asks a full disk only once in a while.
    std::thread::sleep(Duration::from_millis(120));
    let made = db.checkpoint();
    stage.attempt(made);
    stage.writer.put(&db, &table, Size(2, 900), How::Wait);
}

/// More log than recovery may keep in memory.
fn long_log(settings: &Settings) -> Before {
    database(settings, false, |db, table, writer| {
        for _ in 0..8 {
            writer.put(db, table, Size(40, 1000), How::Async);
        }
    })
}

fn stealing() -> Settings {
    small(Preset::Autonomous, 2).with_protocol(|axes| {
        axes.set_writer(Who::Worker);
        axes.set_acknowledger(Acknowledger::Workers);
        axes.worker_mut().expect("workers write").stealing_group = Some(2);
        // Lazy commits stay unwritten until another worker steals them.
        axes.flush_interval = Duration::from_millis(500);
        axes.worker_mut().expect("workers write").idle_max = Duration::ZERO;
    })
}

/// Returns whether a rolled-back transaction had written chunks.
fn in_chunks(stage: &Stage, _: &Database) -> bool {
    stage.seen > 4096
}

/// Returns whether a block has the version that only fragments need.
fn in_fragments(stage: &Stage, _: &Database) -> bool {
    let disk = &stage.disks[0];
    let segments = disk.files().into_iter().filter(|path| path.starts_with("log/"));
    let has_fragment = |bytes: Vec<u8>| bytes.chunks(4096).any(|block| block[4..10] == *b"QLOG\x04\0");
    segments.filter_map(|path| disk.read_file(&path)).any(has_fragment)
}

/// Returns whether the log exceeded recovery's memory and needed more than one window to be read
/// again.
fn in_windows(stage: &Stage, db: &Database) -> bool {
    let report = db.recovery();
    let window_bytes = stage.settings.memory_bytes / 32;
    report.replayed > 0 && report.log_bytes > report.log_file_bytes + window_bytes
}

fn stole(db: &Database) -> bool {
    db.statistics().stolen_blocks > 0
}

fn shared_a_flush(db: &Database) -> bool {
    db.statistics().shared_flushes > 0
}

fn evicted(_: &Stage, db: &Database) -> bool {
    db.statistics().pages_evicted > 0
}

/// Returns whether buffers of mapped memory were written to the device.
fn destaged(_: &Stage, db: &Database) -> bool {
    db.statistics().device_writes > 0
}

const PLAIN: Scenario = Scenario {
    name: "",
    settings: group,
    prepare: closed,
    run: commit,
    judge: judge_database,
    reads_only: false,
    took_its_path: None,
};

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "create a database", prepare: nothing, run: create, ..PLAIN },
    Scenario { name: "open a closed database", run: reopen, ..PLAIN },
    Scenario { name: "open after a crash", prepare: crashed, run: reopen, ..PLAIN },
    Scenario {
        name: "open after a crash, two logs",
        settings: || small(Preset::Autonomous, 2),
        prepare: crashed,
        run: reopen,
        ..PLAIN
    },
    Scenario {
        name: "recover in windows",
        settings: tight,
        prepare: long_log,
        run: reopen,
        took_its_path: Some(in_windows),
        ..PLAIN
    },
    Scenario { name: "commit: per-transaction", settings: || small(Preset::PerTransaction, 1), ..PLAIN },
    Scenario { name: "commit: group", ..PLAIN },
    Scenario { name: "commit: queued", settings: || small(Preset::Queued, 1), ..PLAIN },
    Scenario { name: "commit: pipelined", settings: || small(Preset::Pipelined, 2), ..PLAIN },
    Scenario { name: "commit: autonomous", settings: || small(Preset::Autonomous, 2), ..PLAIN },
    Scenario { name: "commit: restricted", settings: || small(Preset::Restricted, 2), ..PLAIN },
    Scenario { name: "commit: auto", settings: || small(Preset::Auto, 2), ..PLAIN },
    Scenario {
        name: "commit: passive, full buffers",
        settings: || small(Preset::Passive, 1),
        run: destage,
        took_its_path: Some(destaged),
        ..PLAIN
    },
    Scenario {
        name: "commit in chunks",
        settings: || group().with(|s| s.lab.chunk_bytes = 2048),
        run: chunks,
        took_its_path: Some(in_chunks),
        ..PLAIN
    },
    Scenario {
        name: "commit in fragments by page",
        settings: || small(Preset::Auto, 3).with_protocol(|axes| axes.set_layout(Layout::ByPage)),
        run: fragments,
        took_its_path: Some(in_fragments),
        ..PLAIN
    },
    Scenario {
        name: "stealing",
        settings: stealing,
        run: steal,
        took_its_path: Some(|_, db| stole(db)),
        ..PLAIN
    },
    Scenario {
        name: "shared flush",
        settings: || {
            small(Preset::Autonomous, 2).with_protocol(|axes| {
                axes.set_writer(Who::Background);
                axes.shared_flush = Some(true);
                axes.flush_interval = Duration::from_millis(3);
            })
        },
        run: together,
        took_its_path: Some(|_, db| shared_a_flush(db)),
        ..PLAIN
    },
    Scenario {
        name: "commit with locks",
        run: locks,
        took_its_path: Some(|stage, _| stage.seen > 0),
        ..PLAIN
    },
    Scenario { name: "checkpoint", run: checkpoint, ..PLAIN },
    Scenario {
        name: "eviction",
        settings: tight_with_long_pages,
        run: evict,
        took_its_path: Some(evicted),
        ..PLAIN
    },
    Scenario {
        name: "split and merge",
        settings: || group().with(|s| s.compression = Compression::None),
        run: split_and_merge,
        ..PLAIN
    },
    Scenario { name: "overflow value in and out", run: overflow, ..PLAIN },
    Scenario {
        name: "uncommitted value longer than memory",
        settings: || {
            tight().with(|s| {
                s.log_bytes_max = 32 << 20;
                s.segment_bytes = 4 << 20;
            })
        },
        run: uncommitted_value,
        took_its_path: Some(evicted),
        ..PLAIN
    },
    Scenario { name: "create and drop tables", prepare: with_second_table, run: tables, ..PLAIN },
    Scenario { name: "compact", prepare: with_holes, run: compact, ..PLAIN },
    Scenario { name: "close", run: close, ..PLAIN },
    Scenario { name: "full disk and back", run: full_disk, ..PLAIN },
];
