//! Workers that are never idle fill their flush units: a write has about as many bytes as a unit.

use crate::support::test_database::{TestDatabase, tiny};
use quenchdb::{Acknowledger, Axes, Database, Dependency, IdleLogs, Preset, Settings, Statistics, Writer};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Transactions of a worker.
const TRANSACTIONS: u64 = 20_000;

/// Workers that write at a full unit, or when they are idle for 50 us, and at no other time.
fn settings(unit: usize, logs: usize) -> Settings {
    tiny(64 << 20).with(|s| {
        s.preset = Preset::Autonomous;
        s.logs = logs;
        s.protocol_mut().set_writer(Writer::Worker);
        s.protocol_mut().set_acknowledger(Acknowledger::Workers);
        s.protocol_mut().worker_mut().expect("workers write").stealing_group = Some(1);
        s.protocol_mut().flush_interval = Duration::from_secs(1);
        s.protocol_mut().worker_mut().expect("workers write").idle_max = Duration::from_micros(50);
        s.lab.flush_unit_bytes = unit;
        s.segment_bytes = 1 << 20;
        s.log_bytes_max = 64 << 20;
    })
}

/// Runs `threads` workers that change rows of the same pages without a pause. Returns what they
/// cost: log bytes, writes, and writes forced because a worker seemed idle.
fn busy(db: &Database, threads: u64) -> [u64; 3] {
    let table = db.create_table("rows").expect("new");
    db.transact(|tx| tx.insert(&table, "durable", "row")).expect("commits");
    let begun = db.statistics();
    let work = |thread: u64| {
        for n in 0..TRANSACTIONS {
            let mut tx = db.begin().expect("open");
            tx.insert(&table, (n % 50 * 8 + thread).to_be_bytes(), [7; 100]).expect("no conflict");
            drop(tx.commit_async().expect("room"));
            if n % 4 == 0 {
                // Reads and aborts are work, too.
                let snapshot = db.begin_read().expect("open");
                snapshot.get(&table, "durable").expect("readable");
                db.begin().expect("open").abort();
            }
        }
    };
    std::thread::scope(|scope| (0..threads).for_each(|thread| drop(scope.spawn(move || work(thread)))));
    let counts = |s: &Statistics| [s.log_bytes, s.device_writes, s.idle_flushes];
    let (before, after) = (counts(&begun), counts(&db.statistics()));
    std::array::from_fn(|i| after[i] - before[i])
}

/// Checks that the writes of the log have a unit each, within 10 %. On a busy machine a worker may
/// wait for a latch, and so sleep, or a second may pass: then the next of ten runs decides.
#[track_caller]
fn assert_units(unit: usize, run: impl Fn() -> [u64; 3]) {
    let mut seen = Vec::new();
    for _ in 0..10 {
        let [bytes, writes, forced] = run();
        let each = bytes as f64 / writes as f64;
        if (unit as f64 * 0.9..unit as f64 * 1.1).contains(&each) {
            return;
        }
        seen.push(format!("{each:.0} bytes a write, {forced} of {writes} forced"));
    }
    panic!("unit {unit}: {seen:?}");
}

#[test]
fn a_busy_worker_fills_its_flush_units() {
    for unit in [4096, 16 << 10] {
        assert_units(unit, || busy(&settings(unit, 1).open_in_memory(), 1));
    }
}

/// Pre-emption is no idle time: more threads than processors compute meanwhile.
#[test]
fn a_preempted_worker_fills_its_flush_units() {
    assert_units(16 << 10, || {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 * std::thread::available_parallelism().expect("known").get() {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let cost = busy(&settings(16 << 10, 1).open_in_memory(), 1);
            stop.store(true, Ordering::Relaxed);
            cost
        })
    });
}

/// With remote flush avoidance a commit waits for other logs. With `idle_logs = worker` their
/// workers write them, at full units; otherwise a flusher writes them soon.
#[test]
fn logs_that_are_left_to_their_workers_fill_their_units() {
    for unit in [4096, 16 << 10] {
        let settings = settings(unit, 2).with_protocol(|axes| {
            axes.dependency = Some(Dependency::GsnRfa);
            axes.idle_logs = IdleLogs::Worker;
        });
        assert_units(unit, || busy(&settings.open_in_memory(), 2));
    }
}

/// A log that its own flusher writes, for no commit of another log, is written when its buffer is
/// full, by any rule. A buffer that is full has no part of the next one written.
#[test]
fn logs_that_are_left_to_their_flushers_fill_their_buffers() {
    for (buffer, dependency) in [(8 << 10, Dependency::Csn), (32 << 10, Dependency::Dsn)] {
        let settings = settings(buffer, 2).with(|s| {
            s.preset = Preset::Restricted;
            s.lab.protocol = Some(Axes {
                dependency: Some(dependency),
                idle_logs: IdleLogs::Flusher,
                flush_interval: Duration::from_secs(1),
                ..Preset::Restricted.axes()
            });
            s.lab.log_buffer_bytes = buffer;
        });
        assert_units(buffer, || busy(&settings.open_in_memory(), 2));
    }
}

/// A worker that waits for its next request between two transactions has them written soon.
#[test]
fn an_idle_worker_forces_writes() {
    let db = settings(16 << 10, 1).open_in_memory();
    let table = db.create_table("rows").expect("new");
    for n in 0..50_u64 {
        let mut tx = db.begin().expect("open");
        tx.insert(&table, n.to_be_bytes(), [7; 100]).expect("no conflict");
        drop(tx.commit_async().expect("room"));
        std::thread::sleep(Duration::from_millis(2));
    }
    let forced = db.statistics().idle_flushes;
    assert!(forced >= 25, "{forced} of 50");
}
