//! How far a standby is behind its writer, and how fast it answers reads. By the clock, so these
//! tests run only when they are asked for, on a machine that does nothing else:
//! `cargo test -p quenchdb --test engine -- --ignored --nocapture standby_speed::`.

use crate::objects::{connect, settings};
use crate::objects_several::Zones;
use crate::standby::PATIENCE;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::Storage;
use quenchdb::internals::device::objects::simulated::{SimulatedClient, SimulatedStore, StoreOptions};
use quenchdb::internals::device::objects::{MANIFEST_NAME, Request, perform};
use quenchdb::{Database, Preset, Settings};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Of each request.
const LATENCY: Duration = Duration::from_millis(5);
const COMMITS: usize = 400;
const ROWS: u64 = 100_000;
const READS: u64 = 1_000_000;

fn open(storage: Arc<dyn Storage>) -> Database {
    Database::builder().settings(in_memory()).storage(storage).open("speed").expect("opens")
}

fn in_memory() -> Settings {
    settings(Preset::Auto).with(|s| {
        (s.memory_bytes, s.segment_bytes, s.log_bytes_max) = (256 << 20, 16 << 20, 256 << 20);
    })
}

fn at(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times[times.len() * percent / 100]
}

/// Returns how long reads of an object take, one after the other.
fn reads(client: &SimulatedClient) -> Vec<Duration> {
    let read = |_| {
        let begun = Instant::now();
        let name = MANIFEST_NAME.to_string();
        perform(client, Request::Get { name, range: Some(0..64) }).expect("is there");
        begun.elapsed()
    };
    (0..COMMITS).map(read).collect()
}

/// Commits now and then, and prints how long after its acknowledgment a commit is shown, beside
/// what an append and a read of the store take.
fn lag(name: &str, client: &SimulatedClient, writer: Arc<dyn Storage>, follower: Arc<dyn Storage>) {
    let db = open(writer);
    let table = db.create_table("t").expect("new");
    let builder = Database::builder().settings(in_memory()).storage(follower);
    let standby = builder.open_standby("speed").expect("follows");
    let (mut random, mut lags, mut commits) = (Random::from_seed(1), Vec::new(), Vec::new());
    for number in 0..COMMITS as u64 {
        std::thread::sleep(Duration::from_micros(random.below(30_000)));
        let begun = Instant::now();
        let mut tx = db.begin().expect("free");
        tx.insert(&table, number.to_be_bytes(), vec![7; 200]).expect("alone");
        let csn = tx.commit().expect("no fault");
        commits.push(begun.elapsed());
        let begun = Instant::now();
        assert!(standby.wait_for(csn, PATIENCE).expect("follows"));
        lags.push(begun.elapsed());
    }
    let mut reads = reads(client);
    for percent in [50, 99] {
        let (commit, read) = (at(&mut commits, percent), at(&mut reads, percent));
        let (lag, request) = (at(&mut lags, percent), commit + read);
        let ratio = lag.as_secs_f64() / request.as_secs_f64();
        println!("{name}, p{percent}: lag {lag:?}, append {commit:?}, read {read:?}: {ratio:.1} x");
        assert!(ratio < 10.0, "{name}: the lag is {ratio} x an append and a read");
    }
}

#[test]
#[ignore = "by the clock"]
fn a_commit_is_shown_soon_after_it_is_acknowledged() {
    for appends in [true, false] {
        let options = StoreOptions { latency: LATENCY, journal_max: 0, appends, ..StoreOptions::new(1) };
        let store = SimulatedStore::with(options);
        let (client, follower) = connect(&store);
        lag(&format!("one bucket, appends {appends}"), &client, connect(&store).1, follower);
    }
    let zones = Zones::with_latency(3, 1, LATENCY);
    let follower = zones.connect();
    lag("three buckets", &follower.clients[0], zones.connect().storage, follower.storage.clone());
}

#[test]
#[ignore = "by the clock"]
fn a_standby_reads_as_fast_as_its_writer() {
    let store = SimulatedStore::with(StoreOptions { journal_max: 0, ..StoreOptions::new(2) });
    let db = open(connect(&store).1);
    let table = db.create_table("t").expect("new");
    for first in (0..ROWS).step_by(1000) {
        let mut tx = db.begin().expect("free");
        for row in first..first + 1000 {
            tx.insert(&table, row.to_be_bytes(), vec![7; 100]).expect("alone");
        }
        tx.commit().expect("no fault");
    }
    let builder = Database::builder().settings(in_memory()).storage(connect(&store).1);
    let standby = builder.open_standby("speed").expect("follows");
    let newest = db.begin_read().expect("free").csn();
    assert!(standby.wait_for(newest, PATIENCE).expect("follows"));
    let (own, shown) = (db.begin_read().expect("free"), standby.snapshot().expect("free"));
    let of_standby = shown.table("t").expect("is there");
    let (mut of_writer, mut of_follower) = (Duration::MAX, Duration::MAX);
    for _ in 0..3 {
        let time = |snapshot: &quenchdb::Snapshot, table| {
            let (mut random, begun) = (Random::from_seed(3), Instant::now());
            for _ in 0..READS {
                black_box(snapshot.get(table, random.below(ROWS).to_be_bytes()).expect("readable"));
            }
            begun.elapsed()
        };
        of_writer = of_writer.min(time(&own, &table));
        of_follower = of_follower.min(time(&shown, &of_standby));
    }
    let ratio = of_writer.as_secs_f64() / of_follower.as_secs_f64();
    println!("{READS} reads: writer {of_writer:?}, standby {of_follower:?}, {ratio:.2} x");
    assert!(ratio > 0.5, "{ratio}");
}
