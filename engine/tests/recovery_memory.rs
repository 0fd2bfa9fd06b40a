//! Recovery of a log far larger than memory: the peak memory of the process, measured from outside.
//!
//! Uses a process of its own, because otherwise other tests would be measured, too. A second
//! process makes the log and kills itself.

use crate::support::processes::{in_own_process, one_test};
use quenchdb::{Database, Durability, Settings};
use std::path::Path;

const NAME: &str = "recovery_of_a_log_larger_than_memory_takes_what_it_says";
const DIRECTORY: &str = "QUENCH_MEMORY_TEST_DIRECTORY";
const ROWS: u64 = 1000;
const VALUE_BYTES: usize = 300;
const TRANSACTIONS: u64 = 160_000;

/// For pages and recovery together.
const MEMORY_BYTES: u64 = 8 << 20;
/// For stacks, the allocator itself, and delayed accounting by the system.
const SLACK_BYTES: u64 = 6 << 20;

fn settings() -> Settings {
    Settings::default().with(|s| {
        s.memory_bytes = MEMORY_BYTES;
        s.segment_bytes = 1 << 20;
        s.lab.log_buffer_bytes = 64 << 10;
        s.log_bytes_max = 1 << 30;
        s.lab.checkpoint_log_bytes = 0;
    })
}

/// Overwrites the same rows again and again.
fn load(directory: &Path) -> ! {
    let db = Database::builder().settings(settings()).open(directory).expect("a new database");
    let table = db.create_table("t").expect("new");
    for n in 0..TRANSACTIONS {
        let mut tx = db.begin_with(Durability::Lazy).expect("begins");
        let mut value = vec![0; VALUE_BYTES];
        value.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&n.to_le_bytes()));
        tx.insert(&table, (n % ROWS).to_be_bytes(), &value).expect("room");
        drop(tx.commit_async().expect("commits"));
    }
    db.flush().expect("a whole disk");
    std::process::abort();
}

/// Returns a line of `/proc/self/status` in bytes.
fn status(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

#[test]
fn recovery_of_a_log_larger_than_memory_takes_what_it_says() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        load(Path::new(&directory));
    }
    in_own_process(module_path!(), NAME, recover_and_measure);
}

fn recover_and_measure() {
    if std::fs::write("/proc/self/clear_refs", "5").is_err() || status("VmHWM").is_none() {
        println!("not measured: the system does not tell how much memory a process had");
        return;
    }
    let directory = tempfile::tempdir_in(".").expect("a directory");
    let path = directory.path().join("db");
    let child = one_test(module_path!(), NAME).env(DIRECTORY, &path).output().expect("starts");
    assert!(!child.status.success(), "the child kills itself");

    std::fs::write("/proc/self/clear_refs", "5").expect("worked before");
    let before = status("VmRSS").expect("readable before");
    let db = Database::builder().settings(settings()).open(&path).expect("recovers");
    let most = status("VmHWM").expect("readable before") - before;
    let report = db.recovery();
    println!("{report:?}; at most {most} bytes");
    assert_eq!(report.replayed, TRANSACTIONS + 1);
    let bound = MEMORY_BYTES + SLACK_BYTES;
    assert!(report.log_bytes > 6 * bound, "the log is too small to tell: {report:?}");
    assert!(most <= bound, "{most} bytes, more than {bound}");
    let table = db.table("t").expect("recovered");
    let snapshot = db.begin_read().expect("free");
    for row in 0..ROWS {
        let value = snapshot.get(&table, row.to_be_bytes()).expect("readable").expect("recovered");
        assert_eq!(value[..8], (TRANSACTIONS - ROWS + row).to_le_bytes());
    }
}
