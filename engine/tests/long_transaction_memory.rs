//! Transactions longer than memory, measured from outside: the most memory that the process ever had.
//!
//! Alone in its file, since other tests of the same process would be measured too.

use quenchdb::{Database, Settings};
use std::io::Read;

const MEMORY_BYTES: u64 = 32 << 20;
/// Stacks, the allocator's own, what the system counts late.
const SLACK_BYTES: u64 = 8 << 20;
const VALUE_BYTES: u64 = 256 << 20;

/// A line of `/proc/self/status` in bytes.
fn status(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

fn begin_measuring() -> Option<u64> {
    std::fs::write("/proc/self/clear_refs", "5").ok()?;
    status("VmRSS")
}

/// Bytes in which no page is like another.
struct Pattern(u64);

impl Pattern {
    fn fill(&mut self, into: &mut [u8]) {
        for byte in into {
            *byte = (self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
            self.0 += 1;
        }
    }
}

impl Read for Pattern {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = into.len().min((VALUE_BYTES - self.0) as usize);
        self.fill(&mut into[..count]);
        Ok(count)
    }
}

fn check_value(db: &Database) {
    let table = db.table("t").expect("there");
    let snapshot = db.begin_read().expect("free");
    let mut value = snapshot.read_value(&table, "large").expect("readable").expect("there");
    assert_eq!(value.len(), VALUE_BYTES);
    let (mut expected, mut there, mut wanted) = (Pattern(0), vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let count = value.read(&mut there).expect("readable");
        if count == 0 {
            break;
        }
        expected.fill(&mut wanted[..count]);
        assert!(there[..count] == wanted[..count], "before byte {}", expected.0);
    }
    assert_eq!(expected.0, VALUE_BYTES);
}

#[test]
fn a_transaction_longer_than_memory_takes_what_it_says_and_so_does_its_recovery() {
    let Some(before) = begin_measuring() else {
        println!("not measured: the system does not tell how much memory a process had");
        return;
    };
    let settings = Settings { memory_bytes: MEMORY_BYTES, checkpoint_log_bytes: 0, ..Settings::default() };
    let open = |path| Database::builder().settings(settings.clone()).open(path).expect("opens");
    let directory = tempfile::tempdir_in(".").expect("a directory");
    let path = directory.path().join("db");
    let within = |what: &str| {
        let most = status("VmHWM").expect("told before") - before;
        println!("{what}: at most {most} bytes");
        assert!(most <= MEMORY_BYTES + SLACK_BYTES, "{what}: {most} bytes");
    };

    let db = open(&path);
    let table = db.create_table("t").expect("new");
    let mut tx = db.begin().expect("free");
    assert_eq!(tx.insert_from(&table, "large", Pattern(0)).expect("streams"), VALUE_BYTES);
    within("a value of 256 MiB");
    // Redo of many small changes of the same rows.
    let mut small = db.begin().expect("free");
    for n in 0..1_000_000u64 {
        small.insert(&table, (n % 8).to_be_bytes(), [n as u8; 100]).expect("room");
    }
    within("a million changes");
    small.commit().expect("commits");
    db.checkpoint().expect("a whole disk");
    tx.commit().expect("commits");
    let copy = directory.path().join("copy");
    copy_directory(&path, &copy);
    check_value(&db);
    assert_eq!(db.verify(None).expect("runs").problems, Vec::<String>::new());
    within("reading and verifying");
    db.close().expect("closes");

    // As after a kill: the value is in the log only, and the checkpoint has pages of it that are free.
    let db = open(&copy);
    within("recovery");
    assert_eq!(db.recovery().replayed, 1);
    check_value(&db);
    assert_eq!(db.verify(None).expect("runs").problems, Vec::<String>::new());
    within("after recovery");
    db.close().expect("closes");
}

fn copy_directory(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir(to).expect("new");
    for entry in std::fs::read_dir(from).expect("readable") {
        let entry = entry.expect("readable");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("readable").is_dir() {
            copy_directory(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("copies");
        }
    }
}
