//! Restoring a backup and the log that was written after it: to the end, to a CSN, and as far as
//! possible.

use crate::support::test_database::{TestDatabase, tiny};
use crate::support::{Content, content, place};
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use quenchdb::{
    BackupOptions, Csn, Database, Error, ErrorKind, RestoreOptions, RestoreReport, Result, Settings,
    Transaction,
};
use std::collections::{BTreeMap, BTreeSet};

fn settings() -> Settings {
    tiny(1 << 20).with(|s| {
        // The longer half of the transactions is in chunks.
        s.lab.chunk_bytes = 512;
    })
}

/// A database whose content is recorded at every CSN.
struct Original {
    disk: SimulatedStorage,
    db: Option<Database>,
    history: BTreeMap<Csn, Content>,
    steps: u32,
}

impl Original {
    fn new() -> Original {
        let (disk, db) = settings().create(1);
        let mut original = Original { disk, db: Some(db), history: BTreeMap::new(), steps: 0 };
        original.note();
        original
    }

    fn db(&self) -> &Database {
        self.db.as_ref().expect("open")
    }

    fn csn(&self) -> Csn {
        self.db().statistics().newest_csn
    }

    fn note(&mut self) {
        let (csn, content) = (self.csn(), content(self.db()));
        self.history.insert(csn, content);
    }

    /// Runs transactions of all kinds: creations, drops, changes, deletions.
    fn work(&mut self, transactions: u32) {
        for _ in 0..transactions {
            self.steps += 1;
            let n = self.steps;
            let db = self.db();
            match n % 10 {
                3 => drop(db.create_table(&format!("table {n}")).expect("new")),
                9 if n > 20 => db.drop_table(&format!("table {}", n - 16)).expect("no transaction uses it"),
                _ => {
                    let table = db.table_or_create("rows").expect("a table");
                    db.transact(|tx| -> quenchdb::Result<()> {
                        for i in 0..4 {
                            let key = format!("key {:04}", (n * 37 + i * 11) % 300);
                            if i == 3 && n.is_multiple_of(3) {
                                tx.remove(&table, &key)?;
                            } else {
                                tx.insert(
                                    &table,
                                    &key,
                                    format!("{n} {i} {}", "v".repeat((n % 200) as usize)),
                                )?;
                            }
                        }
                        Ok(())
                    })
                    .expect("commits");
                }
            }
            self.note();
        }
    }

    fn back_up(&self, base: Option<&SimulatedStorage>) -> SimulatedStorage {
        let target = SimulatedStorage::new(2);
        let options = BackupOptions::default().with(|s| s.base = base.map(place));
        self.db().backup(place(&target), options).expect("sound");
        target
    }

    fn crash(&mut self) {
        self.disk.stop();
        self.db = None;
        self.disk = self.disk.crash(CrashKind::PowerCut, self.disk.operations(), 5);
    }

    fn reopen(&mut self) {
        self.db = Some(settings().open(&self.disk));
    }

    /// Returns the disk without the pages, and without the manifest if `log_only`.
    fn remains(&self, log_only: bool) -> SimulatedStorage {
        let remains = self.disk.duplicate();
        remains.remove_file("pages/data");
        if log_only {
            remains.remove_file("MANIFEST");
        }
        remains
    }
}

fn restore(
    backups: &[&SimulatedStorage],
    log: Option<&SimulatedStorage>,
    to: Option<Csn>,
) -> Result<(SimulatedStorage, RestoreReport)> {
    let (target, report) = crate::support::restore(backups, log, to, settings())?;
    Ok((target.crash(CrashKind::PowerCut, target.operations(), 4), report))
}

/// Restores, checks everything, and uses the result.
#[track_caller]
fn expect_content(
    backups: &[&SimulatedStorage],
    log: Option<&SimulatedStorage>,
    to: Option<Csn>,
    expected: (&Csn, &Content),
) {
    let (disk, report) = restore(backups, log, to).expect("it can be restored");
    assert_eq!(report.csn, *expected.0);
    let db = settings().open(&disk);
    assert!(db.recovery().clean);
    assert_eq!(&content(&db), expected.1);
    assert_eq!(db.verify(None).expect("can be checked").problems, Vec::<String>::new());
    let table = db.table_or_create("new").expect("it works");
    db.transact(|tx| tx.insert(&table, "key", "value")).expect("it works");
    assert!(db.statistics().newest_csn > report.csn, "CSNs continue");
    disk.stop();
    drop(db);
    let db = settings().open(&disk.crash(CrashKind::PowerCut, disk.operations(), 9));
    assert_eq!(content(&db).len(), expected.1.len() + 1);
}

#[track_caller]
fn expect_refusal(result: Result<(SimulatedStorage, RestoreReport)>, kind: ErrorKind, what: &str) {
    match result {
        Ok((_, report)) => panic!("restored {report:?}, expected: {what}"),
        Err(error) => {
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(what), "{error}");
        }
    }
}

/// Damages each block of the log in turn. Returns how far each restore comes, and its error if it
/// has one.
fn with_each_block_damaged(original: &Original, full: &SimulatedStorage) -> Vec<(Csn, String)> {
    let mut reached = Vec::new();
    for path in original.disk.files().iter().filter(|path| path.starts_with("log/")) {
        let whole = original.disk.read_file(path).expect("listed");
        for at in (0..whole.len()).step_by(4096) {
            if whole[at..at + 4096].iter().all(|byte| *byte == 0) {
                continue;
            }
            let remains = original.remains(true);
            let mut bytes = whole.clone();
            bytes[at + 100] ^= 1;
            remains.write_file(path, &bytes);
            let (reach, said) = match restore(&[full], Some(&remains), None) {
                // A damaged last block looks like a torn tail.
                Ok((_, report)) => (report.csn, String::new()),
                Err(error) => (reach(&error), error.to_string()),
            };
            reached.push((reach, said));
            // The CSN of a chunk changes no row.
            let (_, expected) = original.history.range(..=reach).next_back().expect("not before the backup");
            expect_content(&[full], Some(&remains), Some(reach), (&reach, expected));
        }
    }
    reached
}

/// Returns the CSN up to which an error says that a restore is possible.
#[track_caller]
fn reach(error: &Error) -> Csn {
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    let text = error.to_string();
    let number = text.split("reach up to CSN ").nth(1).unwrap_or_else(|| panic!("it says how far: {text}"));
    Csn(number.split(|c: char| !c.is_ascii_digit()).next().expect("a number").parse().expect("one"))
}

#[test]
fn the_log_brings_back_every_moment_after_the_backup() {
    let mut original = Original::new();
    original.work(60);
    let full = original.back_up(None);
    original.work(40);
    let increment = original.back_up(Some(&full));
    let at = original.csn();
    original.work(60);
    original.crash();
    let remains = original.remains(true);
    let (last, _) = original.history.last_key_value().expect("not empty");
    for entry in original.history.range(at..) {
        expect_content(&[&full, &increment], Some(&remains), Some(*entry.0), entry);
    }
    let end = original.history.last_key_value().expect("not empty");
    expect_content(&[&full, &increment], Some(&remains), None, end);
    let beyond = restore(&[&full, &increment], Some(&remains), Some(Csn(last.0 + 1)));
    expect_refusal(beyond, ErrorKind::Corruption, &format!("reach up to CSN {last}"));
    let before = restore(&[&full, &increment], Some(&remains), Some(Csn(at.0 - 1)));
    expect_refusal(before, ErrorKind::InvalidArgument, "before the last backup");
}

#[test]
fn a_csn_without_a_log_is_that_of_the_backup_or_refused() {
    let mut original = Original::new();
    original.work(30);
    let full = original.back_up(None);
    let at = original.csn();
    let end = original.history.last_key_value().expect("not empty");
    expect_content(&[&full], None, Some(at), end);
    expect_refusal(restore(&[&full], None, Some(Csn(at.0 + 1))), ErrorKind::InvalidArgument, "without a log");
    let empty = SimulatedStorage::new(0);
    expect_refusal(restore(&[&full], Some(&empty), None), ErrorKind::NotFound, "no log");
}

#[test]
fn a_gap_in_the_log_says_how_far_it_can_go_and_one_can_go_there() {
    let mut original = Original::new();
    original.work(30);
    let full = original.back_up(None);
    let at = original.csn();
    original.work(60);
    original.crash();
    let reached: BTreeSet<Csn> =
        with_each_block_damaged(&original, &full).into_iter().map(|(reach, _)| reach).collect();
    assert!(reached.len() > 10 && reached.first() == Some(&at), "{reached:?}");
}

#[test]
fn a_log_that_was_recycled_after_the_backup_is_refused() {
    let mut original = Original::new();
    original.work(30);
    let full = original.back_up(None);
    let at = original.csn();
    for _ in 0..30 {
        original.work(40);
        original.db().checkpoint().expect("a whole disk");
    }
    original.work(5);
    original.crash();
    let text = format!("reach up to CSN {at}");
    expect_refusal(restore(&[&full], Some(&original.remains(true)), None), ErrorKind::Corruption, &text);
    expect_refusal(restore(&[&full], Some(&original.remains(false)), None), ErrorKind::Corruption, &text);
}

/// The chunks are older than the backup, and the commit is newer.
#[test]
fn a_transaction_open_at_the_backup_is_restored_or_refused() {
    for checkpoints in [0, 1, 2, 8] {
        let mut original = Original::new();
        original.work(20);
        // So that the oldest segments hold nothing but what follows.
        original.db().checkpoint().expect("a whole disk");
        let table = original.db().table_or_create("long").expect("a table");
        let mut tx = original.db().begin().expect("free");
        let write = |tx: &mut Transaction, rows: std::ops::Range<u8>| {
            rows.for_each(|row| tx.insert(&table, [row], vec![row; 400]).expect("room"));
        };
        write(&mut tx, 0..60);
        original.work(20);
        let full = original.back_up(None);
        original.work(20);
        write(&mut tx, 60..100);
        tx.commit().expect("commits");
        original.note();
        for _ in 0..checkpoints {
            // Segments are recycled from the oldest on, and reused in any order.
            original.db().checkpoint().expect("a whole disk");
            original.work(30);
        }
        original.work(20);
        original.crash();
        let end = original.history.last_key_value().expect("not empty");
        for log_only in [true, false] {
            let remains = original.remains(log_only);
            match restore(&[&full], Some(&remains), None) {
                Ok(_) => expect_content(&[&full], Some(&remains), None, end),
                Err(error) => {
                    assert!(checkpoints > 0, "nothing was recycled: {error}");
                    let reach = reach(&error);
                    // The CSN may be one that changes no row.
                    let (_, content) = original.history.range(..=reach).next_back().expect("the backup's");
                    expect_content(&[&full], Some(&remains), Some(reach), (&reach, content));
                }
            }
        }
    }
}

/// Regression: everything was in the log. But the records that the later checkpoint covered counted
/// as missing, up to the backup.
#[test]
fn a_checkpoint_after_the_backup_removes_no_needed_chunk() {
    let mut original = Original::new();
    original.work(2);
    let table = original.db().table_or_create("long").expect("a table");
    let mut tx = original.db().begin().expect("free");
    (0..4u8).for_each(|row| tx.insert(&table, [row], vec![row; 400]).expect("room"));
    let full = original.back_up(None);
    (4..6u8).for_each(|row| tx.insert(&table, [row], vec![row; 400]).expect("room"));
    tx.commit().expect("commits");
    original.note();
    original.work(1);
    original.db().checkpoint().expect("a whole disk");
    original.crash();
    let end = original.history.last_key_value().expect("not empty");
    for log_only in [true, false] {
        expect_content(&[&full], Some(&original.remains(log_only)), None, end);
    }
    // A missing chunk is noticed when its transaction would be replayed, and the restore reaches
    // this point.
    let reached = with_each_block_damaged(&original, &full);
    let committed = original.history.keys().rev().nth(1).expect("two at least");
    let missed = (Csn(committed.0 - 1), "not all are in the log");
    assert!(reached.iter().any(|(reach, said)| *reach == missed.0 && said.contains(missed.1)), "{reached:?}");
}

#[test]
fn a_log_of_later_runs_needs_the_manifest_that_decided_them() {
    let mut original = Original::new();
    original.work(30);
    let full = original.back_up(None);
    for _ in 0..3 {
        original.work(20);
        original.crash();
        original.reopen();
    }
    original.work(10);
    original.crash();
    let refused = restore(&[&full], Some(&original.remains(true)), None);
    expect_refusal(refused, ErrorKind::InvalidArgument, "copy the newest MANIFEST");
    let remains = original.remains(false);
    let end = original.history.last_key_value().expect("not empty");
    expect_content(&[&full], Some(&remains), None, end);
    let (middle, _) = original.history.iter().rev().nth(25).expect("long enough");
    expect_content(&[&full], Some(&remains), Some(*middle), (middle, &original.history[middle]));
}

#[test]
fn a_log_whose_earlier_runs_are_forgotten_is_refused() {
    let mut original = Original::new();
    original.work(30);
    let full = original.back_up(None);
    original.work(5);
    original.crash();
    original.reopen();
    original.work(5);
    // The source no longer needs anything of its first run.
    original.db().checkpoint().expect("a whole disk");
    original.work(5);
    original.crash();
    let refused = restore(&[&full], Some(&original.remains(false)), None);
    let error = refused.expect_err("what was discarded is not known");
    assert!([ErrorKind::InvalidArgument, ErrorKind::Corruption].contains(&error.kind()), "{error}");
}

#[test]
fn a_log_of_another_database_is_refused() {
    let mut original = Original::new();
    original.work(30);
    let full = original.back_up(None);
    let mut other = Original::new();
    other.work(60);
    other.crash();
    expect_refusal(
        restore(&[&full], Some(&other.remains(false)), None),
        ErrorKind::InvalidArgument,
        "of database",
    );
    // Without a manifest all blocks are foreign, so nothing is restored from the log.
    let (_, report) = restore(&[&full], Some(&other.remains(true)), None).expect("an empty log");
    assert_eq!((report.csn, report.replayed), (original.csn(), 0));
}

#[test]
fn a_crash_while_the_log_is_replayed_leaves_nothing_that_opens() {
    let mut original = Original::new();
    original.work(30);
    let full = original.back_up(None);
    original.work(30);
    original.crash();
    let remains = original.remains(true);
    let target = SimulatedStorage::new(3);
    let options = RestoreOptions::default().with(|s| {
        s.log = Some(place(&remains));
        s.settings = settings();
    });
    Database::restore([place(&full)], place(&target), options).expect("it can be restored");
    let (_, expected) = original.history.last_key_value().expect("not empty");
    let mut whole = 0;
    for at in 0..=target.operations() {
        let crashed = target.crash(CrashKind::PowerCut, at, at as u64);
        let nothing = crashed.files().is_empty();
        match settings().try_open(&crashed) {
            Ok(db) if !nothing => {
                assert_eq!(&content(&db), expected, "at {at}");
                whole += 1;
            }
            Ok(_) => {}
            Err(error) => assert!(!nothing && error.kind() != ErrorKind::Io, "at {at}: {error}"),
        }
    }
    assert!(whole > 0);
}

/// Regression: a wrong `to` or a wrong directory was noticed only after all pages had been copied,
/// and the target was unusable.
#[test]
fn what_can_be_refused_is_before_the_target_is_touched() {
    let mut original = Original::new();
    original.work(30);
    let full = original.back_up(None);
    original.work(10);
    let increment = original.back_up(Some(&full));
    let at = original.csn();
    original.work(10);
    original.crash();
    let mut other = Original::new();
    other.work(5);
    other.crash();
    let (log, foreign, nothing) = (original.remains(false), other.remains(false), SimulatedStorage::new(0));
    let target = SimulatedStorage::new(3);
    type Attempt = Result<(SimulatedStorage, RestoreReport)>;
    let attempt = |backups: &[&SimulatedStorage], log: Option<&SimulatedStorage>, to, settings| -> Attempt {
        let options = RestoreOptions::default().with(|s| {
            s.log = log.map(place);
            s.to = to;
            s.settings = settings;
        });
        let report = Database::restore(backups.iter().map(|disk| place(disk)), place(&target), options)?;
        Ok((target.clone(), report))
    };
    let chain = [&full, &increment];
    let without_memory = settings().with(|s| s.memory_bytes = 0);
    let wrong = ErrorKind::InvalidArgument;
    for (refused, kind, what) in [
        (attempt(&chain, None, Some(Csn(at.0 + 1)), settings()), wrong, "without a log"),
        (attempt(&chain, Some(&log), Some(Csn(at.0 - 1)), settings()), wrong, "before the last backup"),
        (attempt(&chain, Some(&foreign), None, settings()), wrong, "of database"),
        (attempt(&chain, Some(&nothing), None, settings()), ErrorKind::NotFound, "no log"),
        (attempt(&[&increment], Some(&log), None, settings()), wrong, "begin with the full backup"),
        (attempt(&chain, Some(&log), None, without_memory), wrong, "memory_bytes"),
    ] {
        expect_refusal(refused, kind, what);
    }
    assert_eq!((target.files(), target.operations()), (Vec::new(), 0));
    let (_, report) = attempt(&chain, Some(&log), None, settings()).expect("the same target");
    let (last, expected) = original.history.last_key_value().expect("not empty");
    assert_eq!(report.csn, *last);
    assert_eq!(&content(&settings().open(&target)), expected);
}

/// Regression: with read-only settings the backup was restored without the log, and reported as
/// complete.
#[test]
fn the_log_is_replayed_whatever_the_settings_say_of_opening() {
    let mut original = Original::new();
    original.work(20);
    let full = original.back_up(None);
    original.work(10);
    original.crash();
    let remains = original.remains(true);
    let settings = settings().with(|s| {
        s.read_only = true;
        s.create = false;
    });
    let options = RestoreOptions::default().with(|s| {
        s.log = Some(place(&remains));
        s.settings = settings;
    });
    let target = SimulatedStorage::new(3);
    let report = Database::restore([place(&full)], place(&target), options).expect("it can be restored");
    let (last, expected) = original.history.last_key_value().expect("not empty");
    assert_eq!(report.csn, *last);
    assert_eq!(&content(&self::settings().open(&target)), expected);
}
