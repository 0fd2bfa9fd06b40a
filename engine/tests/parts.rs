//! A database whose log is on another device than the other files, or whose file system journals
//! what is written.

use crate::support::skipped::skip;
use crate::support::small;
use quenchdb::{Database, DeviceTrust, Preset};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// An ext4 in a file that is mounted with `data=journal`; unmounted when it is dropped.
struct Journaled {
    at: PathBuf,
    parent: tempfile::TempDir,
}

impl Journaled {
    /// Returns `None` if it cannot be made or mounted here.
    fn mount() -> Option<Journaled> {
        let parent = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let (image, at) = (parent.path().join("image"), parent.path().join("at"));
        std::fs::create_dir(&at).expect("ours");
        std::fs::File::create(&image).and_then(|file| file.set_len(64 << 20)).expect("there is space");
        let mut make = Command::new("mkfs.ext4");
        let mut mount = Command::new("mount");
        for command in [
            make.args(["-q", "-F"]).arg(&image),
            mount.args(["-o", "loop,data=journal"]).arg(&image).arg(&at),
        ] {
            let why = match command.output() {
                Ok(output) if output.status.success() => continue,
                Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
                Err(error) => error.to_string(),
            };
            skip(&format!("no ext4 can be mounted here: {why}"));
            return None;
        }
        Some(Journaled { at, parent })
    }

    /// Returns whether the device below the file system has these bytes.
    fn has(&self, bytes: &[u8]) -> bool {
        let image = std::fs::read(self.parent.path().join("image")).expect("ours");
        image.windows(bytes.len()).any(|window| window == bytes)
    }
}

impl Drop for Journaled {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.at).output();
    }
}

/// Regression: ext4 with `data=journal` takes `O_DIRECT` and writes to the page cache. Commits were
/// reported as durable there when only the page cache had them.
#[test]
fn commits_reach_the_device_where_data_is_journaled() {
    let Some(disk) = Journaled::mount() else { return };
    // As on a device with a durable cache: nothing else asks for a flush.
    let open = || {
        let settings = small(Preset::Auto, 1);
        Database::builder().settings(settings).device_trust(DeviceTrust::Device).open(disk.at.join("db"))
    };
    let db = open().expect("opens");
    if db.statistics().device.direct_io.is_ok() {
        skip(&"Linux before 6.1 does not say that direct writes are cached");
        return;
    }
    let value = "what was acknowledged is below the file system";
    let table = db.create_table("t").expect("new");
    db.transact(|tx| tx.insert(&table, "k", value)).expect("commits");
    assert!(disk.has(value.as_bytes()), "{}", db.open_line());
    db.close().expect("closes");
}
