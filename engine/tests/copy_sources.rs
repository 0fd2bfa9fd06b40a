//! Sources of backups and restores: logs in mapped memory, logs of an open database, several
//! directories of which one has an error, and read-only directories.

use crate::support::test_database::TestDatabase;
use crate::support::{content, place, small};
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::{
    BackupOptions, Csn, Database, Error, ErrorKind, Preset, RestoreOptions, RestoreReport, Result, Settings,
    Table,
};
use std::path::Path;
use std::process::Command;

fn passive() -> Settings {
    small(Preset::Passive, 1).with(|s| s.lab.log_memory_bytes = 1 << 20)
}

fn put(db: &Database, table: &Table, keys: std::ops::Range<u32>) {
    for key in keys {
        db.transact(|tx| tx.insert(table, key.to_be_bytes(), "a row")).expect("commits");
    }
}

fn back_up(db: &Database, base: Option<&SimulatedStorage>) -> Result<SimulatedStorage> {
    let target = SimulatedStorage::new(2);
    let options = BackupOptions::default().with(|s| s.base = base.map(place));
    db.backup(place(&target), options).map(|_| target)
}

fn restore(
    backups: &[&SimulatedStorage],
    log: Option<&SimulatedStorage>,
    to: Option<Csn>,
) -> Result<(SimulatedStorage, RestoreReport)> {
    crate::support::restore(backups, log, to, passive())
}

fn rows(disk: &SimulatedStorage) -> usize {
    content(&small(Preset::Group, 1).open(disk)).len()
}

#[track_caller]
fn expect_said<T>(result: Result<T>, kind: ErrorKind, what: &str) -> Error {
    let error = result.err().unwrap_or_else(|| panic!("it worked, expected: {what}"));
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(what), "{error}");
    error
}

/// Returns the same files without the mapped memory.
fn without_memory(disk: &SimulatedStorage) -> SimulatedStorage {
    let copy = SimulatedStorage::new(7);
    disk.files().iter().for_each(|path| copy.write_file(path, &disk.read_file(path).expect("listed")));
    copy
}

/// Regression: commits acknowledged by a fence, whose blocks were not written yet, were missing
/// from the restored database without an error.
#[test]
fn log_in_mapped_memory_of_the_source_is_restored_or_missed() {
    let (disk, db) = passive().create(1);
    let table = db.create_table("t").expect("new");
    put(&db, &table, 0..10);
    let full = back_up(&db, None).expect("sound");
    let at = db.statistics().newest_csn;
    put(&db, &table, 10..30);
    let end = db.statistics().newest_csn;
    let killed = disk.crash(CrashKind::Kill, disk.operations(), 5);
    let log_only = killed.duplicate();
    log_only.remove_file("MANIFEST");
    for original in [&killed, &log_only] {
        let before = original.operations();
        let (restored, report) = restore(&[&full], Some(original), None).expect("all of it is there");
        assert_eq!((report.csn, report.replayed), (end, 20));
        assert_eq!(rows(&restored), 30);
        assert_eq!(original.operations(), before, "the original is only read");
        let (_, report) = restore(&[&full], Some(original), Some(Csn(end.0 - 5))).expect("also a part");
        assert_eq!(report.csn, Csn(end.0 - 5));
        let moved = without_memory(original);
        let error = expect_said(restore(&[&full], Some(&moved), None), ErrorKind::NotFound, "mapped-memory");
        assert!(error.to_string().contains("CSN"), "a way out: {error}");
        let (restored, report) = restore(&[&full], Some(&moved), Some(at)).expect("what the files have");
        assert_eq!((report.csn, rows(&restored)), (at, 10));
        let text = format!("reach up to CSN {at}");
        expect_said(restore(&[&full], Some(&moved), Some(end)), ErrorKind::Corruption, &text);
    }
}

/// Only the mapped memory has records of the later run.
#[test]
fn a_later_run_in_mapped_memory_needs_only_its_manifest() {
    let (disk, db) = passive().create(1);
    let table = db.create_table("t").expect("new");
    put(&db, &table, 0..10);
    let full = back_up(&db, None).expect("sound");
    let disk = disk.crash(CrashKind::Kill, disk.operations(), 5);
    // Recovery appended nothing again.
    let db = passive().open(&disk);
    let table = db.table("t").expect("there");
    put(&db, &table, 10..20);
    let killed = disk.crash(CrashKind::Kill, disk.operations(), 6);
    let (_, report) = restore(&[&full], Some(&killed), None).expect("all of it is there");
    assert_eq!(report.replayed, 10);
    killed.remove_file("MANIFEST");
    expect_said(
        restore(&[&full], Some(&killed), None),
        ErrorKind::InvalidArgument,
        "copy the newest MANIFEST",
    );
}

/// Copies the files of an open database, as a kill at this moment would leave them.
fn copy_as_killed(from: &Path, to: &Path) {
    for part in ["", "log", "pages"] {
        std::fs::create_dir(to.join(part)).expect("ours");
        for entry in std::fs::read_dir(from.join(part)).expect("there").map(|entry| entry.expect("readable"))
        {
            if entry.file_type().expect("known").is_file() && entry.file_name() != "LOCK" {
                std::fs::copy(entry.path(), to.join(part).join(entry.file_name())).expect("room");
            }
        }
    }
}

/// The settings name the memory's path. The restored database uses the same settings.
#[test]
fn a_moved_mapped_file_is_named_by_settings_and_only_read() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| root.path().join(name);
    let settings = passive().with(|s| s.log_memory = Some(path("memory")));
    let db = settings.open_in(path("db"));
    let table = db.create_table("t").expect("new");
    put(&db, &table, 0..10);
    db.backup(path("full"), BackupOptions::default()).expect("sound");
    put(&db, &table, 10..30);
    copy_as_killed(&path("db"), &path("copy"));
    std::fs::copy(path("memory"), path("moved")).expect("room");
    let restore = |settings: Settings, target: &str| {
        let log = Some((&path("copy")).into());
        let options = RestoreOptions::default().with(|s| {
            s.log = log;
            s.settings = settings;
        });
        Database::restore([&path("full")], path(target), options)
    };
    // The database is open, so its memory is in use.
    expect_said(restore(settings.clone(), "one"), ErrorKind::Busy, "memory");
    assert!(!path("one").exists(), "nothing was made");
    let before = std::fs::read(path("moved")).expect("there");
    let moved = settings.with(|s| s.log_memory = Some(path("moved")));
    assert_eq!(restore(moved, "one").expect("all of it is there").replayed, 20);
    assert!(std::fs::read(path("moved")).expect("there") == before, "it was written to");
    drop((table, db));
    let db = Database::builder().read_only(true).open(path("one")).expect("opens");
    assert_eq!(content(&db).len(), 30);
}

/// Regression: one of ten backups was damaged, and the error named only a byte of "pages/data".
#[test]
fn errors_of_copies_say_which_of_the_directories_they_are_of() {
    let disk = SimulatedStorage::new(1);
    let settings = small(Preset::Group, 1);
    let db = settings.open(&disk);
    let table = db.create_table("t").expect("new");
    let mut chain: Vec<SimulatedStorage> = Vec::new();
    for n in 0..3 {
        put(&db, &table, n * 1000..n * 1000 + 1000);
        chain.push(back_up(&db, chain.last()).expect("sound"));
    }
    let damaged = |disk: &SimulatedStorage, path: &str| {
        let copy = disk.duplicate();
        let mut bytes = copy.read_file(path).expect("there");
        // Damages every block, except the unused end of the file.
        bytes.iter_mut().skip(40).step_by(4096).for_each(|byte| *byte ^= 4);
        copy.write_file(path, &bytes);
        copy
    };
    for path in ["pages/data", "BACKUP"] {
        let second = damaged(&chain[1], path);
        let error = restore(&[&chain[0], &second, &chain[2]], None, None);
        let error = expect_said(error, ErrorKind::Corruption, "backup 2 of the chain");
        assert!(error.to_string().contains(path), "{error}");
    }
    let broken = damaged(&chain[1], "BACKUP");
    expect_said(back_up(&db, Some(&broken)), ErrorKind::Corruption, "the base");
    // One of the two directories is full or fails.
    for capacity in [8 << 10, 64 << 10] {
        let full = || {
            let target = SimulatedStorage::new(9);
            target.set_capacity(Some(capacity));
            place(&target)
        };
        let made = db.backup(full(), BackupOptions::default());
        expect_said(made, ErrorKind::OutOfSpace, "the target");
        let made = Database::restore([place(&chain[0])], full(), RestoreOptions::default());
        expect_said(made, ErrorKind::OutOfSpace, "the target");
    }
    db.close().expect("a whole disk");
    let source = damaged(&disk, "pages/data");
    let settings = settings.with(|s| s.read_only = true);
    let opened = settings.try_open(&source);
    if let Ok(db) = opened {
        expect_said(back_up(&db, None), ErrorKind::Corruption, "the source");
    }
    let root = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| root.path().join(name);
    let db = Database::builder().memory_bytes(8 << 20).open(path("db")).expect("opens");
    db.backup(path("full"), BackupOptions::default()).expect("sound");
    std::fs::write(path("full").join("BACKUP"), b"nothing").expect("ours");
    let error = Database::restore([&path("full")], path("target"), RestoreOptions::default());
    expect_said(error, ErrorKind::Corruption, path("full").to_str().expect("UTF-8"));
}

/// Regression: manifest and segments were read at different moments while another process wrote.
#[test]
fn a_log_is_not_replayed_while_its_database_is_open() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| root.path().join(name);
    let builder = Database::builder().memory_bytes(8 << 20).trim_log(false);
    let db = builder.open(path("db")).expect("opens");
    let table = db.create_table("t").expect("new");
    put(&db, &table, 0..10);
    db.backup(path("full"), BackupOptions::default()).expect("sound");
    put(&db, &table, 10..30);
    let restore = || {
        let options = RestoreOptions::default().with(|s| s.log = Some((&path("db")).into()));
        Database::restore([&path("full")], path("target"), options)
    };
    let error = expect_said(restore(), ErrorKind::Busy, "db is open in this process");
    assert!(error.to_string().contains("close it with trim_log = false, or"), "{error}");
    assert!(!path("target").exists(), "the same call is to work later");
    drop(table);
    db.close().expect("closes");
    // Beside readers the log may be replayed.
    let reader = Database::builder().read_only(true).open(path("db")).expect("opens");
    assert_eq!(restore().expect("no writer is open").replayed, 20);
    drop(reader);
    std::fs::remove_file(path("db/LOCK")).expect("it was there");
    std::fs::remove_dir_all(path("target")).expect("ours");
    assert_eq!(restore().expect("a copy").replayed, 20);
    assert!(!path("db/LOCK").exists(), "the directory is only read");
}

/// A directory mounted read-only; unmounted when it is dropped.
struct ReadOnly<'p>(&'p Path);

fn skip(why: &dyn std::fmt::Display) {
    crate::support::skipped::skip(&format!("no directory can be mounted read-only here: {why}"));
}

impl ReadOnly<'_> {
    fn mount<'p>(directory: &Path, at: &'p Path) -> Option<ReadOnly<'p>> {
        std::fs::create_dir(at).expect("ours");
        let mount = |arguments: &[&str]| Command::new("mount").args(arguments).arg(at).output();
        let directory = directory.to_str().expect("UTF-8");
        let first = mount(&["--bind", directory]);
        let mounted = ReadOnly(at);
        let second = first.and_then(|first| match first.status.success() {
            true => mount(&["-o", "remount,bind,ro"]),
            false => Ok(first),
        });
        match second {
            Ok(output) if output.status.success() => return Some(mounted),
            Ok(output) => skip(&String::from_utf8_lossy(&output.stderr)),
            Err(error) => skip(&error),
        }
        None
    }
}

impl Drop for ReadOnly<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).output();
    }
}

/// Regression: a copy that was never opened has no `LOCK`, and none could be created. The open
/// failed with "cannot open the lock file".
#[test]
fn a_copy_without_a_lock_is_read_where_writing_is_impossible() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| root.path().join(name);
    let builder = || Database::builder().memory_bytes(8 << 20).segment_bytes(1 << 20);
    let db = builder().open(path("db")).expect("opens");
    let table = db.create_table("t").expect("new");
    put(&db, &table, 0..30);
    copy_as_killed(&path("db"), &path("copy"));
    let at = path("mounted");
    let Some(_mounted) = ReadOnly::mount(&path("copy"), &at) else { return };
    let read = builder().read_only(true).open(&at).expect("it can be read");
    assert_eq!(content(&read).len(), 30);
    let again = builder().read_only(true).open(&at).expect("by others, too");
    drop((read, again));
    assert_eq!(builder().verify(&at, None).expect("can be checked").problems, Vec::<String>::new());
    assert!(Database::dump_log(&at, None).expect("can be read").len() >= 30);
    let report = Database::salvage(&at, path("salvaged"), Settings::default(), None).expect("readable");
    assert!(report.is_whole(), "{report:?}");
    expect_said(builder().open(&at), ErrorKind::Io, "cannot open the lock file");
    assert!(!path("copy/LOCK").exists());
}
