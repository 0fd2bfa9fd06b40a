//! What a monitoring system sees: statistics in several forms, health, and the log of slow commits.

use crate::support::interleaved::{Interleaved, set_interrupt};
use crate::support::test_database::{TestDatabase, tiny};
use quenchdb::internals::device::memory::MemoryStorage;
use quenchdb::internals::device::simulated::{Fault, FaultKind, OperationKind};
use quenchdb::{Database, ErrorKind, HealthState, LatencySummary, Statistics, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};

fn put(db: &Database, table: &Table, rows: std::ops::Range<u32>) {
    for n in rows {
        db.transact(|tx| tx.insert(table, n.to_be_bytes(), "value")).expect("commits");
    }
}

fn database() -> (Database, Table) {
    let db = tiny(4 << 20).open_in_memory();
    let table = db.create_table("rows").expect("new");
    (db, table)
}

/// Returns the samples of a text by name and labels. Checks its form.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let (mut samples, mut types) = (BTreeMap::new(), BTreeMap::new());
    for line in text.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            let (name, kind) = declared.split_once(' ').expect("a name and a type");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(types.insert(name.to_string(), kind.to_string()).is_none(), "declared twice: {line}");
            continue;
        }
        if line.starts_with("# HELP ") {
            continue;
        }
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        let plain = name.split('{').next().expect("a name");
        let declared = ["_bucket", "_sum", "_count"].iter().find_map(|end| plain.strip_suffix(end));
        assert!(
            types.contains_key(plain) || declared.is_some_and(|plain| types[plain] == "histogram"),
            "not declared: {line}"
        );
        assert!(plain.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'), "{line}");
        let value: f64 = value.parse().expect("a number");
        assert!(samples.insert(name.to_string(), value).is_none(), "twice: {line}");
    }
    samples
}

#[test]
fn prometheus_text_has_the_numbers_of_the_statistics() {
    let (db, table) = database();
    put(&db, &table, 0..100);
    db.checkpoint().expect("memory");
    let statistics = db.statistics();
    let samples = parse(&statistics.prometheus());
    assert_eq!(samples["quenchdb_committed_total"], statistics.committed as f64);
    assert_eq!(samples["quenchdb_log_bytes_total"], statistics.log_bytes as f64);
    assert_eq!(samples["quenchdb_newest_csn"], statistics.newest_csn.0 as f64);
    assert_eq!(samples["quenchdb_disk_full"], 0.0);
    assert_eq!(samples["quenchdb_commit_seconds_count"], statistics.commit.count as f64);
    assert_eq!(samples["quenchdb_commit_seconds_bucket{le=\"+Inf\"}"], statistics.commit.count as f64);
    let buckets = LatencySummary::bounds_us()
        .map(|us| samples[&format!("quenchdb_commit_seconds_bucket{{le=\"{}\"}}", us / 1e6)]);
    let buckets: Vec<f64> = buckets.collect();
    assert!(buckets.is_sorted() && buckets[buckets.len() - 1] == statistics.commit.count as f64);
    let info = samples.keys().find(|name| name.starts_with("quenchdb_info{")).expect("it is there");
    assert!(info.contains("preset=\"auto\""), "{info}");
}

#[test]
fn statistics_can_be_serialized_with_their_names() {
    let (db, table) = database();
    put(&db, &table, 0..10);
    let statistics = db.statistics();
    let json = serde_json::to_value(&statistics).expect("all can be serialized");
    assert_eq!(json["preset"], "auto");
    assert_eq!(json["committed"], statistics.committed);
    assert_eq!(json["newest_csn"], statistics.newest_csn.0);
    assert_eq!(json["commit"]["count"], statistics.commit.count);
    assert_eq!(json["packs"]["images_packed"], 0);
    assert_eq!(json["object_requests"], serde_json::Value::Null);
}

#[test]
fn a_difference_counts_what_happened_in_between() {
    let (db, table) = database();
    put(&db, &table, 0..100);
    let before = db.statistics();
    put(&db, &table, 100..130);
    let after = db.statistics();
    let between = after.since(&before);
    assert_eq!(between.committed, 30);
    assert_eq!(between.commit.count, 30);
    assert_eq!(between.commit.buckets.as_flattened().iter().sum::<u64>(), 30);
    assert_eq!(between.newest_csn, after.newest_csn, "a level");
    db.reset_statistics();
    assert_eq!(db.statistics().since(&after).commit.count, 0);
}

#[test]
fn rows_are_counted_by_table() {
    let (db, table) = database();
    let other = db.create_table("a \"quoted\" name").expect("new");
    put(&db, &table, 0..100);
    let before = db.statistics();
    let counts = |statistics: &Statistics| -> Vec<(u64, u64)> {
        statistics.table_counts.iter().map(|table| (table.rows_read, table.rows_changed)).collect()
    };
    assert_eq!(counts(&before), [(0, 0), (0, 100)]);
    // Two reads by key, of which one finds nothing, and a change that is rolled back.
    let mut tx = db.begin().expect("free");
    assert!(tx.get(&table, 5_u32.to_be_bytes()).expect("readable").is_some());
    assert!(tx.get(&table, b"none").expect("readable").is_none());
    tx.insert(&other, "key", "value").expect("room");
    tx.abort();
    // A range in each direction, and a snapshot.
    let snapshot = db.begin_read().expect("free");
    assert_eq!(snapshot.iter(&table).take(7).count(), 7);
    assert_eq!(snapshot.iter(&table).rev().take(3).count(), 3);
    assert!(snapshot.get(&other, "key").expect("readable").is_none());
    drop(snapshot);
    db.transact(|tx| {
        tx.remove(&table, 1_u32.to_be_bytes())?;
        tx.get_for_update(&table, 2_u32.to_be_bytes()).map(drop)
    })
    .expect("commits");
    let after = db.statistics();
    assert_eq!(counts(&after.since(&before)), [(1, 0), (13, 1)]);
    let samples = parse(&after.prometheus());
    assert_eq!(samples["quenchdb_table_rows_changed_total{table=\"rows\"}"], 101.0);
    assert_eq!(samples["quenchdb_table_rows_read_total{table=\"a \\\"quoted\\\" name\"}"], 1.0);
    // A new table of the same name begins at 0.
    let read = |statistics: &Statistics| counts(statistics)[1].0;
    db.clear_table("rows").expect("no user");
    assert_eq!(read(&db.statistics()), 0);
    let rows = db.table("rows").expect("exists");
    assert!(db.begin_read().expect("free").get(&rows, "none").expect("readable").is_none());
    assert_eq!(read(&db.statistics().since(&after)), 1);
}

#[test]
fn cache_hits_are_the_visits_without_a_fault() {
    let settings = tiny(1 << 20);
    let (disk, db) = settings.create(1);
    assert_eq!(db.statistics().page_faults, 0);
    let table = db.create_table("rows").expect("new");
    for batch in 0..40u32 {
        let row = |n: u32| ((batch * 100 + n).to_be_bytes(), vec![n as u8; 600]);
        let mut rows = (0..100).map(row);
        db.transact(|tx| rows.try_for_each(|(key, value)| tx.insert(&table, key, value))).expect("commits");
    }
    let before = db.statistics();
    let snapshot = db.begin_read().expect("free");
    for n in (0..4000u32).step_by(7) {
        assert!(snapshot.get(&table, n.to_be_bytes()).expect("readable").is_some());
    }
    let reads = db.statistics().since(&before);
    assert!(reads.page_faults > 50, "{}", reads.page_faults);
    let ratio = reads.cache_hit_ratio().expect("there were visits");
    assert!((0.1..0.99).contains(&ratio), "{ratio}");
    drop((snapshot, table, db, disk));
}

/// The fields of each slow commit.
#[derive(Clone, Default)]
struct Slow(Arc<Mutex<Vec<BTreeMap<String, u64>>>>);

#[derive(Default)]
struct Fields {
    message: String,
    numbers: BTreeMap<String, u64>,
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.numbers.insert(field.name().to_string(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        }
    }
}

impl tracing::Subscriber for Slow {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if fields.message == "slow commit" {
            self.0.lock().expect("no panic").push(fields.numbers);
        }
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn slow_commits_are_reported_with_their_stages() {
    let reported = |slow: Option<Duration>| {
        let all = Slow::default();
        tracing::subscriber::with_default(all.clone(), || {
            let db = tiny(4 << 20).with(|s| s.slow_commit_log = slow).open_in_memory();
            let table = db.create_table("rows").expect("new");
            put(&db, &table, 0..10);
        });
        all.0.lock().expect("no panic").clone()
    };
    assert_eq!(reported(None).len(), 0);
    assert_eq!(reported(Some(Duration::from_secs(3600))).len(), 0);
    let all = reported(Some(Duration::ZERO));
    assert!(all.len() >= 10, "{all:?}");
    let names = ["acknowledge_us", "commit_us", "csn", "execute_us", "flush_us", "wait_us"];
    for slow in &all {
        assert!(slow.keys().map(String::as_str).eq(names), "{slow:?}");
    }
    let csns: BTreeSet<u64> = all.iter().map(|slow| slow["csn"]).collect();
    assert_eq!(csns.len(), all.len(), "each commit once");
}

#[test]
fn health_names_what_is_wrong() {
    let (disk, db) = tiny(4 << 20).create(1);
    let table = db.create_table("rows").expect("new");
    assert_eq!(db.health().state, HealthState::Healthy);
    assert_eq!(db.health().reasons, Vec::<String>::new());
    disk.inject(Fault {
        operation: OperationKind::DurableWrite,
        after: 0,
        kind: FaultKind::ForEver,
        error: 5,
    });
    db.transact(|tx| tx.insert(&table, "key", "value")).expect_err("the device fails");
    let health = db.health();
    assert_eq!(health.state, HealthState::Failed);
    assert!(health.reasons[0].contains("open the database again"), "{health:?}");
    let (db, table) = database();
    let other = db.clone();
    drop(table);
    other.close().expect("closes");
    assert_eq!(db.health().state, HealthState::Failed);
    assert!(db.health().reasons[0].contains("closed"), "{:?}", db.health());
}

#[test]
fn a_full_disk_is_a_degraded_health() {
    let (disk, db) = tiny(4 << 20).create(1);
    let table = db.create_table("rows").expect("new");
    disk.set_capacity(Some(0));
    let mut n = 0u32;
    while db.transact(|tx| tx.insert(&table, n.to_be_bytes(), vec![7; 900])).is_ok() {
        n += 1;
        assert!(n < 100_000, "the disk never was full");
    }
    let health = db.health();
    assert_eq!(health.state, HealthState::Degraded);
    assert!(health.reasons.iter().any(|reason| reason.contains("space")), "{health:?}");
    disk.set_capacity(None);
}

/// Regression: the health of a database was good while none of its commits worked. And the error
/// was `NotFound`, as for a table that does not exist.
#[test]
fn a_moved_directory_degrades_health_and_is_an_io_error() {
    let parent = tempfile::tempdir().expect("space");
    let (here, there) = (parent.path().join("db"), parent.path().join("moved"));
    let settings = tiny(4 << 20).with(|s| s.log_bytes_max = 1 << 20);
    let db = Database::builder().settings(settings).open(&here).expect("opens");
    let table = db.create_table("rows").expect("new");
    std::fs::rename(&here, &there).expect("its own");
    let insert = |n: u32| db.transact(|tx| tx.insert(&table, n.to_be_bytes(), vec![0; 40_000]));
    let error = (0..100).find_map(|n| insert(n).err()).expect("the log needs a new segment");
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(error.to_string().contains("moved or removed"), "{error}");
    let health = db.health();
    assert_eq!(health.state, HealthState::Degraded);
    assert!(health.reasons.iter().any(|reason| reason.contains("moved or removed")), "{health:?}");
    let text = db.statistics().prometheus();
    assert!(text.contains("quenchdb_health 1\n") && text.contains("moved or removed"), "{text}");
    std::fs::rename(&there, &here).expect("its own");
    let begun = Instant::now();
    while insert(1000).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(30), "commits work again");
    }
    db.checkpoint().expect("works");
    assert_eq!(db.health().state, HealthState::Healthy, "{:?}", db.health());
}

#[test]
fn a_write_that_stands_still_is_a_degraded_health_with_its_time() {
    let storage = Arc::new(Interleaved(Arc::new(MemoryStorage::new())));
    let db = Database::builder().settings(tiny(4 << 20)).storage(storage).open("db").expect("opens");
    let table = db.create_table("rows").expect("new");
    let (release, wait) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut wait = Some(wait);
            set_interrupt(Some(Box::new(move |_| {
                if let Some(wait) = wait.take() {
                    let _ = wait.recv();
                }
            })));
            put(&db, &table, 0..1);
            set_interrupt(None);
        });
        let begun = Instant::now();
        let health = loop {
            let health = db.health();
            if health.state != HealthState::Healthy {
                break health;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "it is noticed");
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(begun.elapsed() > Duration::from_secs(1), "a write may take some time");
        assert_eq!(health.state, HealthState::Degraded);
        assert!(health.seconds >= 2 && health.reasons[0].contains("log 0"), "{health:?}");
        drop(release);
    });
    assert_eq!(db.health().state, HealthState::Healthy);
}

#[test]
fn versions_that_fill_their_memory_are_a_degraded_health() {
    let settings = tiny(4 << 20).with(|s| s.version_bytes = 64 << 10);
    let db = settings.open_in_memory();
    let table = db.create_table("rows").expect("new");
    let change = |n: u32| db.transact(|tx| tx.insert(&table, (n % 500).to_be_bytes(), vec![1; 500]));
    (0..500).for_each(|n| change(n).expect("room"));
    let snapshot = db.begin_read().expect("free");
    let error = (0..5000).find_map(|n| change(n).err()).expect("the snapshot keeps all versions");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    let health = db.health();
    assert_eq!(health.state, HealthState::Degraded);
    assert!(health.reasons.iter().any(|reason| reason.contains("version_bytes")), "{health:?}");
    drop(snapshot);
    change(0).expect("the versions can be given back");
    assert_eq!(db.health().state, HealthState::Healthy, "{:?}", db.health());
}

/// Every name in the dashboard and in its page is one that the text has.
#[test]
fn the_dashboard_uses_names_that_exist() {
    let (db, _table) = database();
    let text = db.statistics().prometheus();
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guide/");
    for file in ["grafana.json", "observability.md"] {
        let content = std::fs::read_to_string(format!("{docs}{file}")).expect("it is there");
        if file.ends_with(".json") {
            serde_json::from_str::<serde_json::Value>(&content).expect("it is JSON");
        }
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let names: BTreeSet<&str> = content
            .split(|c| !is_name(c))
            .filter(|word| word.len() > 9 && word.starts_with("quenchdb_"))
            .collect();
        assert!(names.len() > 3, "{file}: {names:?}");
        for name in names {
            let found = text.lines().any(|line| line.split(['{', ' ']).next() == Some(name));
            assert!(found, "{file}: no sample is called {name}");
        }
    }
}
