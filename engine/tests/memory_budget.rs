//! Resident memory, measured from outside: the process may use `memory_bytes` and a twentieth.
//!
//! Every act runs in a process of its own, which this program starts, so that nothing else is
//! measured. The test compares the peak memory with the memory before the database was opened. The
//! pages of the program file itself do not count, because they belong to the file system's cache.

use crate::support::processes::one_test;
use quenchdb::internals::base::random::Random;
use quenchdb::{BackupOptions, Database, Durability, ErrorKind, Settings, Table};
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Environment variables of a process that runs an act: the database's directory, the act's name.
const DIRECTORY: &str = "QUENCH_MEMORY_BUDGET_DIRECTORY";
const ACT: &str = "QUENCH_MEMORY_BUDGET_ACT";

const MEMORY_BYTES: u64 = 32 << 20;
const VALUE_BYTES: usize = 600;
/// When versions fill their memory, they take at least one part in this many of the memory that is
/// then for pages.
const VERSIONS_PAGES_PART: u64 = 4;
/// Four times the memory.
const ROWS: u64 = 4 * MEMORY_BYTES / 660;

/// What a process does with the database in a directory. The last value is the maximum number of
/// measurements. One within the bound is enough: a descheduled reader delays the freeing of memory.
type Act = (&'static str, fn(&Path), u32);

fn settings() -> Settings {
    Settings::default().with(|s| {
        s.memory_bytes = MEMORY_BYTES;
        s.segment_bytes = 4 << 20;
        s.log_bytes_max = 256 << 20;
        s.lab.checkpoint_log_bytes = 64 << 20;
    })
}

fn open(directory: &Path) -> Database {
    Database::builder().settings(settings()).open(directory).expect("opens")
}

/// Returns a line of `/proc/self/status` in bytes.
fn status(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// Resets the process's peak memory. Returns false if the system does not count it.
fn forget_most() -> bool {
    std::fs::write("/proc/self/clear_refs", "5").is_ok() && status("VmHWM").is_some()
}

/// Runs acts in turn on one database, each in a process of its own, and checks the measured ones.
fn judge(test: &str, acts: &[Act]) {
    if let (Some(directory), Some(act)) = (std::env::var_os(DIRECTORY), std::env::var_os(ACT)) {
        let (_, run, _) = acts.iter().find(|(name, ..)| *name == act).expect("named by the parent");
        measure(Path::new(&directory), *run);
        return;
    }
    if !forget_most() {
        println!("not measured: the system does not count the peak memory of a process");
        return;
    }
    let directory = tempfile::tempdir_in(".").expect("a directory");
    let bound = MEMORY_BYTES + MEMORY_BYTES / 20;
    let mut failures = Vec::new();
    let mut runs: Vec<(&str, u32)> = acts.iter().rev().map(|(name, _, most)| (*name, *most)).collect();
    while let Some((name, most)) = runs.pop() {
        let output = one_test(module_path!(), test)
            .env(DIRECTORY, directory.path().join("db"))
            .env(ACT, name)
            .output()
            .expect("starts");
        let said = String::from_utf8_lossy(&output.stdout);
        let complaint = String::from_utf8_lossy(&output.stderr);
        if most == 0 {
            continue;
        }
        assert!(output.status.success(), "{name}: {said}{complaint}");
        let bytes = said.lines().find_map(|line| line.split_once("most bytes ")?.1.parse::<u64>().ok());
        let bytes = bytes.unwrap_or_else(|| panic!("{name} does not say how much memory it took: {said}"));
        println!("{name}: {:.2} of the memory", bytes as f64 / MEMORY_BYTES as f64);
        if bytes > bound && most > 1 {
            runs.push((name, most - 1));
        } else if bytes > bound {
            failures.push(format!("{name}: {bytes} bytes, more than {bound}\n{said}"));
        }
        assert!(
            bytes > MEMORY_BYTES / 2,
            "{name}: {bytes} bytes: what does not need the memory shows nothing"
        );
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Prints the peak memory of `act`.
fn measure(directory: &Path, act: fn(&Path)) {
    let program = status("RssFile").expect("readable before");
    assert!(forget_most(), "worked before");
    let before = status("VmRSS").expect("readable before");
    act(directory);
    let most = status("VmHWM").expect("readable before") - before;
    let program = status("RssFile").expect("readable before").saturating_sub(program);
    println!("most bytes {}", most - program);
}

fn note(what: &str, db: &Database) {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let s = db.statistics();
    println!(
        "{what}: {:.2} MiB now; pages {:.2} of {:.2} MiB, versions {:.2} MiB",
        mib(status("VmRSS").expect("readable before")),
        mib(s.pages * s.page_bytes),
        mib(s.pages_max * s.page_bytes),
        mib(s.version_bytes)
    );
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

fn fill(value: &mut [u8], random: &mut Random) {
    value
        .chunks_mut(8)
        .for_each(|chunk| chunk.copy_from_slice(&random.next_u64().to_le_bytes()[..chunk.len()]));
}

/// Writes rows, `per` in a transaction. Retries while a checkpoint needs the memory for versions.
fn put(db: &Database, table: &Table, rows: &[u64], random: &mut Random) {
    let mut value = [0; VALUE_BYTES];
    for _ in 0..1000 {
        let mut tx = db.begin_with(Durability::Lazy).expect("begins");
        let done = rows.iter().try_for_each(|row| {
            fill(&mut value, random);
            tx.insert(table, key(*row), value)
        });
        match done {
            Ok(()) => return tx.commit_async().map(drop).expect("commits"),
            Err(error) => {
                assert!(error.kind() == ErrorKind::OutOfMemory || error.is_retryable(), "{error}")
            }
        }
        drop(tx);
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("there is never room");
}

fn load(directory: &Path) {
    let db = open(directory);
    let table = db.create_table("t").expect("new");
    let mut random = Random::from_seed(1);
    for first in (0..ROWS).step_by(20) {
        let rows: Vec<u64> = (first..(first + 20).min(ROWS)).collect();
        put(&db, &table, &rows, &mut random);
        if first % 40_000 == 0 {
            note("load", &db);
        }
    }
    note("loaded", &db);
    db.close().expect("closes");
}

fn update(directory: &Path) {
    let db = open(directory);
    let table = db.table("t").expect("loaded");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                let mut random = Random::from_seed(thread);
                for round in 0..1500 {
                    let rows: Vec<u64> = (0..4).map(|_| random.below(ROWS)).collect();
                    put(db, table, &rows, &mut random);
                    if round % 500 == 100 {
                        note("updates", db);
                        db.checkpoint().expect("a whole disk");
                    }
                }
            });
        }
    });
    note("updated", &db);
    db.close().expect("closes");
}

/// A snapshot keeps versions until their memory is full. Afterwards pages get the memory back.
fn update_beside_a_snapshot(directory: &Path) {
    let db = open(directory);
    let table = db.table("t").expect("loaded");
    let snapshot = db.begin_read().expect("begins");
    let full = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (db, table, full) = (&db, &table, &full);
            scope.spawn(move || {
                let mut random = Random::from_seed(thread);
                let mut value = [0; VALUE_BYTES];
                while !full.load(Ordering::Relaxed) {
                    let mut tx = db.begin_with(Durability::Lazy).expect("begins");
                    fill(&mut value, &mut random);
                    // Few pages, and each row only rarely.
                    match tx.insert(table, key(random.below(ROWS / 8)), value) {
                        Ok(()) => drop(tx.commit_async().expect("commits")),
                        Err(error) if error.is_retryable() => {}
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
                            full.store(true, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    note("versions full", &db);
    let rows = snapshot.range(&table, ..).inspect(|row| assert!(row.is_ok(), "readable")).count();
    assert_eq!(rows as u64, ROWS);
    note("read", &db);
    let short = db.statistics().pages_max;
    drop(snapshot);
    let mut random = Random::from_seed(7);
    let begun = Instant::now();
    // The memory goes back to pages, which use it.
    while db.statistics().pages_max * VERSIONS_PAGES_PART < short * (VERSIONS_PAGES_PART + 1) {
        put(&db, &table, &[random.below(ROWS)], &mut random);
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", db.statistics());
    }
    for _ in 0..10_000 {
        put(&db, &table, &[random.below(ROWS)], &mut random);
    }
    note("afterwards", &db);
    db.close().expect("closes");
}

fn scan(directory: &Path) {
    let db = open(directory);
    let table = db.table("t").expect("loaded");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                let snapshot = db.begin_read().expect("begins");
                let range = snapshot.range(table, ..);
                let rows = if thread % 2 == 0 {
                    range.inspect(|row| assert!(row.is_ok(), "readable")).count()
                } else {
                    range.rev().inspect(|row| assert!(row.is_ok(), "readable")).count()
                };
                assert_eq!(rows as u64, ROWS);
            });
        }
    });
    note("read", &db);
}

fn back_up_beside_updates(directory: &Path) {
    let db = open(directory);
    let table = db.table("t").expect("loaded");
    let done = AtomicBool::new(false);
    let full = directory.with_extension("full");
    // A copy may be complete before the updates have used all of the memory.
    let rows = db.begin_read().expect("begins").range(&table, ..).count();
    assert_eq!(rows as u64, ROWS);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::from_seed(7);
            while !done.load(Ordering::Relaxed) {
                put(&db, &table, &[random.below(ROWS)], &mut random);
            }
        });
        let one = db.backup(&full, BackupOptions::default());
        let options = BackupOptions::default().with(|s| s.base = Some(full.clone().into()));
        let other = db.backup(directory.with_extension("increment"), options);
        done.store(true, Ordering::Relaxed);
        one.and(other).expect("copies");
    });
    note("backed up", &db);
    db.close().expect("closes");
}

#[test]
fn a_database_larger_than_memory_stays_within_its_budget() {
    judge(
        "a_database_larger_than_memory_stays_within_its_budget",
        &[
            ("load", load, 1),
            ("update", update, 3),
            ("update beside a snapshot", update_beside_a_snapshot, 3),
            ("scan", scan, 3),
            ("back up beside updates", back_up_beside_updates, 1),
        ],
    );
}

const LARGE_BYTES: usize = 512 << 10;

/// The caller's own bytes are on the stack and the heap of this function; a value is read in
/// pieces.
fn put_and_read_large_values(directory: &Path) {
    let db = open(directory);
    let table = db.create_table("t").expect("new");
    let mut random = Random::from_seed(1);
    for n in 0..200u64 {
        let mut tx = db.begin().expect("begins");
        let mut reader = std::io::repeat(random.next_u64() as u8).take(LARGE_BYTES as u64);
        let written = tx.insert_from(&table, key(n % 150), &mut reader).expect("room");
        assert_eq!(written, LARGE_BYTES as u64);
        tx.commit().expect("commits");
        if n % 50 == 0 {
            note("large", &db);
        }
    }
    let snapshot = db.begin_read().expect("begins");
    for n in 0..150 {
        let mut value = snapshot.read_value(&table, key(n)).expect("readable").expect("there");
        let read = std::io::copy(&mut value, &mut std::io::sink()).expect("readable");
        assert_eq!(read, LARGE_BYTES as u64);
    }
    note("read", &db);
    drop(snapshot);
    db.close().expect("closes");
}

#[test]
fn large_values_take_no_more_than_the_database_was_given() {
    judge(
        "large_values_take_no_more_than_the_database_was_given",
        &[("put and read large values", put_and_read_large_values, 1)],
    );
}

/// Kills the process during its work, with a log several times larger than memory.
fn write_and_kill(directory: &Path) {
    let settings = settings().with(|s| {
        s.lab.checkpoint_log_bytes = 0;
        s.recovery_seconds = 3600;
    });
    let db = Database::builder().settings(settings).open(directory).expect("opens");
    let table = db.create_table("t").expect("new");
    let mut random = Random::from_seed(1);
    for n in 0..8000 {
        let rows: Vec<u64> = (0..20).map(|i| (n * 20 + i) % (ROWS / 2)).collect();
        put(&db, &table, &rows, &mut random);
    }
    db.flush().expect("a whole disk");
    std::process::abort();
}

fn recover(directory: &Path) {
    let db = open(directory);
    let report = db.recovery();
    println!("{report:?}");
    assert!(report.log_bytes > 2 * MEMORY_BYTES, "{report:?}");
    note("recovered", &db);
    let table = db.table("t").expect("recovered");
    let mut random = Random::from_seed(7);
    for _ in 0..2000 {
        put(&db, &table, &[random.below(ROWS / 2)], &mut random);
    }
    note("updated", &db);
    db.close().expect("closes");
}

#[test]
fn recovery_takes_no_more_than_the_database_is_given() {
    judge(
        "recovery_takes_no_more_than_the_database_is_given",
        &[("write and kill", write_and_kill, 0), ("recover", recover, 1)],
    );
}
