//! A database whose log is on another device than the other files.

use crate::support::skipped::skip;
use crate::support::small;
use quenchdb::{Database, Preset};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

fn open(directory: &Path) -> Database {
    Database::builder().settings(small(Preset::Auto, 1)).open(directory).expect("opens")
}

fn put(db: &Database, key: &str) {
    let table = db.table_or_create("t").expect("free");
    db.transact(|tx| tx.insert(&table, key, "1")).expect("commits");
}

/// Regression: only the device under the directory decided whether writes are flushed. With a
/// volatile cache only on the log's disk, no log write was flushed.
#[test]
fn the_device_under_the_log_is_looked_at_as_well() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let Ok(elsewhere) = tempfile::tempdir_in("/dev/shm") else {
        skip(&"there is no /dev/shm to write to");
        return;
    };
    let device = |path: &Path| std::fs::metadata(path).expect("there").dev();
    if device(directory.path()) == device(elsewhere.path()) {
        skip(&"/dev/shm is no other device");
        return;
    }
    let db = open(directory.path());
    put(&db, "a");
    let alone = db.statistics().device.name;
    db.close().expect("closes");

    let log = directory.path().join("log");
    for entry in std::fs::read_dir(&log).expect("a database has one").flatten() {
        std::fs::copy(entry.path(), elsewhere.path().join(entry.file_name())).expect("there is space");
    }
    std::fs::remove_dir_all(&log).expect("ours");
    std::os::unix::fs::symlink(elsewhere.path(), &log).expect("free");

    let db = open(directory.path());
    put(&db, "b");
    let facts = db.statistics().device;
    assert!(facts.volatile_cache, "nothing is known of the device under /dev/shm");
    let is_named = facts.name.starts_with(&alone) && facts.name.contains(", log on tmpfs (memory");
    assert!(is_named || alone.starts_with("tmpfs"), "{alone}; {}", facts.name);
    db.close().expect("closes");

    let db = open(directory.path());
    assert_eq!(crate::support::content(&db).len(), 2);
    db.close().expect("closes");
}
