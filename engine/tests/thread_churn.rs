//! A new thread for each of very many transactions: an ended thread leaves nothing behind.
//!
//! Uses a process of its own, because the memory of the whole process is measured. `QUENCH_THREADS`
//! sets the number of threads for each protocol and kind of commit. The default is 7,200, more than
//! 100,000 in all, at the whole depth.

use crate::support::in_time;
use crate::support::processes::in_own_process;
use quenchdb::internals::base::depth::is_deep;
use quenchdb::{Database, Dependency, Layout, Preset, Settings, Writer};
use std::time::Duration;

/// The first threads are not measured: they cause one-time costs, such as pages, allocator caches,
/// and rings that are touched for the first time.
const FIRST: u64 = 1000;
/// Maximum growth of the process while all other threads start and end, however many.
const SLACK_BYTES: u64 = 4 << 20;
const ROWS: u64 = 64;

fn threads_wanted() -> u64 {
    std::env::var("QUENCH_THREADS").ok().and_then(|n| n.parse().ok()).unwrap_or(if is_deep() {
        7200
    } else {
        1600
    })
}

/// Returns every layout that spreads threads over logs, and every per-thread acknowledger.
fn protocols() -> Vec<(&'static str, Settings)> {
    let of = |preset, logs| {
        Settings::default().with(|s| {
            s.preset = preset;
            s.logs = logs;
            s.memory_bytes = 8 << 20;
            s.segment_bytes = 256 << 10;
            s.lab.log_buffer_bytes = 64 << 10;
            s.log_bytes_max = 8 << 20;
            s.lab.checkpoint_log_bytes = 1 << 20;
        })
    };
    let passive = of(Preset::Passive, 3);
    let workers = of(Preset::Autonomous, 3).with_protocol(|axes| axes.set_writer(Writer::Worker));
    vec![
        ("autonomous", of(Preset::Autonomous, 3)),
        ("autonomous, workers write", workers),
        ("restricted", of(Preset::Restricted, 2)),
        ("passive", passive.with(|s| s.log_memory = Some("mapped-memory".into()))),
        ("exact", of(Preset::Autonomous, 3).with_protocol(|axes| axes.dependency = Some(Dependency::Exact))),
        (
            "gsn-rfa",
            of(Preset::Autonomous, 3).with_protocol(|axes| axes.dependency = Some(Dependency::GsnRfa)),
        ),
        ("per thread, auto", of(Preset::Auto, 3).with_protocol(|axes| axes.set_layout(Layout::PerThread))),
    ]
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Returns the number of threads once it is stable: scoped threads may end a little later than
/// their scope.
fn settled_threads() -> usize {
    let alive = || std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    loop {
        let before = alive();
        std::thread::sleep(Duration::from_millis(100));
        if alive() == before {
            return before;
        }
    }
}

/// Runs one transaction per thread. Without `blocking` only the last commit is waited for.
fn churn(db: &Database, from: u64, count: u64, blocking: bool) {
    let table = db.table("t").expect("made");
    for n in from..from + count {
        // Two at a time, so that threads use more than one log.
        let last = n + 1 == from + count;
        std::thread::scope(|scope| {
            for side in 0..2u64 {
                let table = &table;
                scope.spawn(move || {
                    let row = (n % ROWS) * 2 + side;
                    let mut tx = db.begin().expect("a thread that ended holds no transaction");
                    let old = tx.get(table, row.to_be_bytes()).expect("readable");
                    let old = old.map_or(0, |old| u64::from_be_bytes(old[..].try_into().expect("eight")));
                    tx.insert(table, row.to_be_bytes(), (old + 1).to_be_bytes()).expect("fits");
                    if blocking {
                        tx.commit().map(drop).expect("commits");
                    } else {
                        let handle = tx.commit_async().expect("commits");
                        if last {
                            handle.wait().expect("becomes durable");
                        }
                    }
                });
            }
        });
    }
}

#[test]
fn a_thread_that_ended_leaves_nothing_behind() {
    in_own_process(module_path!(), "a_thread_that_ended_leaves_nothing_behind", churn_with_each_protocol);
}

fn churn_with_each_protocol() {
    let wanted = threads_wanted();
    for (number, (name, settings)) in protocols().into_iter().enumerate() {
        let ways = if is_deep() { &[true, false][..] } else { &[number % 2 == 0] };
        for &blocking in ways {
            let settings = settings.clone();
            in_time(name, 300 + wanted / 100, move || {
                let db = Database::builder().settings(settings).open_in_memory().expect("opens");
                db.create_table("t").expect("new");
                churn(&db, 0, FIRST / 2, blocking);
                let alive = settled_threads();
                let memory = resident_bytes();
                churn(&db, FIRST / 2, wanted / 2, blocking);
                let alive_after = settled_threads();
                let grown = resident_bytes().saturating_sub(memory);
                println!("{name}, blocking {blocking}: {wanted} threads, {memory} bytes, grown by {grown}");
                assert!(memory > 0 && grown <= SLACK_BYTES, "{name}: {wanted} threads left {grown} bytes");
                assert!(alive_after <= alive + 2, "{name}: {alive} threads, then {alive_after}");
                db.flush().expect("everything becomes durable");
                let statistics = db.statistics();
                assert!(statistics.watermark > statistics.newest_csn, "{name}: {statistics:?}");
                let table = db.table("t").expect("made");
                let snapshot = db.begin_read().expect("free");
                let rows = snapshot.range(&table, ..).map(|row| row.expect("readable").1);
                let sum: u64 =
                    rows.map(|row| u64::from_be_bytes(row[..].try_into().expect("eight bytes"))).sum();
                assert_eq!(sum, FIRST / 2 * 2 + wanted / 2 * 2, "{name}: each thread counted once");
                drop(snapshot);
                db.close().expect("nothing of a thread is in the way");
            });
        }
    }
}
