//! What several buckets cost beside one: the time of a commit, and commits in a second. By the
//! clock, so these tests run only when they are asked for, on a machine that does nothing else:
//! `cargo test -p quenchdb --test engine -- --ignored --nocapture objects_several_speed::`.

use crate::objects::connect;
use crate::objects_several::Zones;
use quenchdb::internals::device::objects::simulated::{SimulatedStore, StoreOptions};
use quenchdb::{Database, Preset, Settings, Table};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Of each request, on average.
const LATENCY: Duration = Duration::from_millis(5);
const COMMITS: usize = 2000;
const THREADS: u64 = 2;
const SECONDS: u64 = 4;
/// Commits of a thread that are not durable yet.
const AHEAD: usize = 2000;
/// Measured in turn, because the machine may be slower at times.
const TURNS: usize = 3;

fn open(buckets: usize) -> (Database, Table) {
    let storage = match buckets {
        1 => {
            let options = StoreOptions { latency: LATENCY, journal_max: 0, ..StoreOptions::new(1) };
            connect(&SimulatedStore::with(options)).1
        }
        _ => Zones::with_latency(buckets, 1, LATENCY).connect().storage,
    };
    let settings = Settings::default().with(|s| {
        (s.memory_bytes, s.segment_bytes, s.log_bytes_max) = (256 << 20, 16 << 20, 1 << 30);
        s.preset = Preset::Auto;
    });
    let builder = Database::builder().settings(settings).storage(storage);
    let db = builder.open("several").expect("opens");
    let table = db.create_table("t").expect("new");
    (db, table)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Returns the median and the 99.9th percentile of commits, one after the other, in seconds.
fn commit_times(buckets: usize) -> [f64; 2] {
    let (db, table) = open(buckets);
    let commit = |number: usize| {
        let begun = Instant::now();
        let mut tx = db.begin().expect("free");
        tx.insert(&table, number.to_be_bytes(), [7; 100]).expect("alone");
        tx.commit().expect("no fault");
        begun.elapsed().as_secs_f64()
    };
    let mut times: Vec<f64> = (0..COMMITS).map(commit).collect();
    times.sort_by(f64::total_cmp);
    [times[COMMITS / 2], times[COMMITS * 999 / 1000]]
}

/// Returns asynchronous commits in a second, each of which became durable.
fn commits_in_a_second(buckets: usize) -> f64 {
    let (db, table) = open(buckets);
    let begun = Instant::now();
    let run = |thread: u64| {
        let (mut ahead, mut number) = (VecDeque::new(), 0u64);
        while begun.elapsed() < Duration::from_secs(SECONDS) {
            let mut tx = db.begin().expect("free");
            tx.insert(&table, (thread << 32 | number).to_be_bytes(), [7; 100]).expect("alone");
            ahead.push_back(tx.commit_async().expect("no fault"));
            number += 1;
            if ahead.len() > AHEAD
                && let Some(first) = ahead.pop_front()
            {
                first.wait().expect("no fault");
            }
        }
        ahead.into_iter().for_each(|commit| commit.wait().expect("no fault"));
        number
    };
    let commits: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    commits as f64 / begun.elapsed().as_secs_f64()
}

#[test]
#[ignore = "by the clock"]
fn a_commit_does_not_wait_for_the_slowest_bucket() {
    let (mut middle, mut last) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let (one, three) = (commit_times(1), commit_times(3));
        println!("p50 and p99.9 in seconds: one bucket {one:.4?}, three {three:.4?}");
        middle.push(three[0] / one[0]);
        last.push(three[1] / one[1]);
    }
    let (middle, last) = (median(middle), median(last));
    println!("three buckets beside one: p50 {middle:.2} x, p99.9 {last:.2} x");
    assert!(middle < 1.5 && last < 1.0, "{middle}, {last}");
}

#[test]
#[ignore = "by the clock"]
fn asynchronous_commits_go_to_three_buckets() {
    let ratios = (0..TURNS).map(|_| {
        let (one, three) = (commits_in_a_second(1), commits_in_a_second(3));
        println!("commits in a second: one bucket {one:.0}, three {three:.0}");
        three / one
    });
    let ratio = median(ratios.collect());
    println!("three buckets beside one: {ratio:.2} x");
    assert!(ratio > 0.4, "{ratio}");
}
