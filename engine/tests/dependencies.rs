//! A transaction is acknowledged only when every unwritten change that it observed is durable, too.
//! This holds for changes in another log and for every way to observe them.
//!
//! ```text
//!   log of thread 1   changes a row, lazily: the record is in the log buffer, not written
//!   log of thread 2     observes the change (directly, or through a third transaction) ──▶ is acknowledged
//!   power cut                                                                                          ▲ here
//! ```
//!
//! Each way to observe a change has its own code: a value, a deleted row, a scan across it, an
//! insert where a row was deleted, with and without a record of the observer.

use crate::support::test_database::TestDatabase;
use crate::support::{Content, beside, beside_others, content, small};
use quenchdb::internals::device::simulated::{
    CrashKind, Fault, FaultKind, Mishap, MishapKind, OperationKind, SimulatedStorage,
};
use quenchdb::{
    Axes, Database, Dependency, Durability, ErrorKind, Preset, Result, Settings, Table, Transaction,
};
use std::time::Duration;

const LOGS: usize = 3;

/// How the second transaction observes the change of the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meeting {
    ReadsValue,
    ReadsAbsence,
    ScansPastAbsence,
    SkipsAbsence,
    OverwritesValue,
    InsertsWhereDeleted,
    LocksWhereDeleted,
    LooksOnly,
    LooksOnlyAtAbsence,
    Snapshot,
    SnapshotOfAbsence,
    SnapshotScans,
    SnapshotSkips,
}

use Meeting::*;

const ALL: [Meeting; 13] = [
    ReadsValue,
    ReadsAbsence,
    ScansPastAbsence,
    SkipsAbsence,
    OverwritesValue,
    InsertsWhereDeleted,
    LocksWhereDeleted,
    LooksOnly,
    LooksOnlyAtAbsence,
    Snapshot,
    SnapshotOfAbsence,
    SnapshotScans,
    SnapshotSkips,
];

/// Rows that are deleted with the row, where the observer skips all of them.
const DEAD_ROWS: u8 = 40;

impl Meeting {
    /// Returns whether the first transaction deletes the row instead of changing it.
    fn is_of_deletion(self) -> bool {
        !matches!(self, ReadsValue | OverwritesValue | LooksOnly | Snapshot)
    }

    /// Returns whether the second transaction writes, so that others can observe it in turn.
    fn writes(self) -> bool {
        !matches!(self, LooksOnly | LooksOnlyAtAbsence) && !self.is_by_snapshot()
    }

    fn is_by_snapshot(self) -> bool {
        matches!(self, Snapshot | SnapshotOfAbsence | SnapshotScans | SnapshotSkips)
    }

    fn skips(self) -> bool {
        matches!(self, SkipsAbsence | SnapshotSkips)
    }
}

fn settings(preset: Preset, rule: Dependency) -> Settings {
    small(preset, LOGS).with_protocol(|axes| axes.dependency = Some(rule))
}

fn commit(
    db: &Database,
    durability: Durability,
    work: impl Fn(&mut Transaction) -> Result<()> + Send,
) -> Result<()> {
    let mut tx = db.begin_with(durability)?;
    work(&mut tx)?;
    tx.commit().map(drop)
}

/// Observes the change in a transaction; `mark` is what the observer writes.
fn meet(tx: &mut Transaction, table: &Table, meeting: Meeting, mark: &str) -> Result<()> {
    match meeting {
        ReadsValue => assert_eq!(tx.get(table, "row")?.as_deref(), Some(&b"new"[..])),
        ReadsAbsence => assert_eq!(tx.get(table, "row")?, None),
        ScansPastAbsence | SkipsAbsence => {
            let rows: Result<Vec<_>> = tx.range(table, "r".."s").collect();
            assert_eq!(rows?, []);
        }
        OverwritesValue => tx.insert(table, "row", "newer")?,
        InsertsWhereDeleted => tx.insert(table, "row", "again")?,
        LocksWhereDeleted => assert_eq!(tx.get_for_update(table, "row")?, None),
        LooksOnly => assert_eq!(tx.get(table, "row")?.as_deref(), Some(&b"new"[..])),
        LooksOnlyAtAbsence => assert_eq!(tx.get(table, "row")?, None),
        _ => unreachable!("of another kind"),
    }
    if meeting.writes() { tx.insert(table, mark, "x") } else { Ok(()) }
}

fn look(db: &Database, table: &Table, meeting: Meeting) -> Result<()> {
    let snapshot = db.begin_read()?;
    match meeting {
        Snapshot => assert_eq!(snapshot.get(table, "row")?.as_deref(), Some(&b"new"[..])),
        SnapshotOfAbsence => assert_eq!(snapshot.get(table, "row")?, None),
        _ => assert_eq!(snapshot.range(table, "r".."s").count(), 0),
    }
    Ok(())
}

/// Returns the content after a power cut at the moment when the last transaction was acknowledged.
fn after_power_cut(
    settings: &Settings,
    meeting: Meeting,
    by_way_of_another: bool,
    (salt, others): (u64, u64),
) -> Content {
    let disk = SimulatedStorage::new(salt);
    let operations = {
        let db = settings.open(&disk);
        let table = db.table_or_create("t").expect("new");
        for n in 0..=salt % 4 {
            db.transact(|tx| tx.insert(&table, "row", [n as u8])).expect("a whole disk");
        }
        let (db, table) = (&db, &table);
        let dead = |n: u8| [b'r', n];
        if meeting.skips() {
            let rows = |tx: &mut Transaction| (0..DEAD_ROWS).try_for_each(|n| tx.insert(table, dead(n), "x"));
            db.transact(rows).expect("a whole disk");
        }
        let change = |tx: &mut Transaction| {
            tx.insert(table, "first", "x")?;
            if meeting.skips() {
                tx.remove(table, "row")?;
                (0..DEAD_ROWS).try_for_each(|n| tx.remove(table, dead(n)).map(drop))?;
                // From now on scans skip the range of these rows.
                assert_eq!(tx.range(table, "r".."s").count(), 0);
            }
            // So many rows that a transaction's end would free old versions; these have to stay.
            (0..100_u8).try_for_each(|n| tx.insert(table, [n], "x"))?;
            match meeting.is_of_deletion() {
                true => tx.remove(table, "row").map(drop),
                false => tx.insert(table, "row", "new"),
            }
        };
        let last = |tx: &mut Transaction| {
            assert!(tx.get(table, "between")?.is_some());
            tx.insert(table, "last", "x")
        };
        let meets = || match meeting {
            _ if meeting.is_by_snapshot() => look(db, table, meeting),
            _ if by_way_of_another => {
                let between = || commit(db, Durability::Lazy, |tx| meet(tx, table, meeting, "between"));
                let (between, last) = beside(between, || commit(db, Durability::Durable, last));
                between.and(last)
            }
            _ => commit(db, Durability::Durable, |tx| meet(tx, table, meeting, "last")),
        };
        let (changed, (met, operations)) = beside_others(others, db, || {
            beside(|| commit(db, Durability::Lazy, change), || (meets(), disk.operations()))
        });
        changed.and(met).expect("commits");
        disk.stop();
        operations
    };
    let cut = disk.crash(CrashKind::PowerCut, operations, salt);
    let db = settings.open(&cut);
    let content = content(&db);
    cut.stop();
    content
}

fn judge(settings: &Settings, meeting: Meeting, by_way_of_another: bool, salt: (u64, u64)) {
    let after = after_power_cut(settings, meeting, by_way_of_another, salt);
    let has = |key: &str| after.contains_key(&("t".to_string(), key.into()));
    let context =
        format!("{}, {:?}, {meeting:?}, {by_way_of_another}", settings.preset, Axes::of(settings).rule());
    assert!(has("first"), "{context}: what was met is gone");
    assert!(has("last") || !meeting.writes(), "{context}: what was acknowledged is gone");
    assert!(has("between") || !by_way_of_another, "{context}: the transaction in between is gone");
    let row = after.get(&("t".to_string(), b"row".to_vec())).map(Vec::as_slice);
    let expected: Option<&[u8]> = match meeting {
        OverwritesValue => Some(b"newer"),
        InsertsWhereDeleted => Some(b"again"),
        _ if meeting.is_of_deletion() => None,
        _ => Some(b"new"),
    };
    assert_eq!(row, expected, "{context}");
}

fn judge_all(preset: Preset) {
    let mut salt = 0;
    for rule in Dependency::ALL.into_iter().filter(|rule| *rule != Dependency::LogOrder) {
        let settings = settings(preset, rule);
        for meeting in ALL {
            for by_way_of_another in [false, true] {
                if by_way_of_another && !meeting.writes() {
                    continue;
                }
                salt += 1;
                // Other living threads decide which logs these threads get. At least once in two
                // times the logs differ.
                for others in [salt % 3, (salt + 1) % 3] {
                    judge(&settings, meeting, by_way_of_another, (salt, others));
                }
            }
        }
    }
}

#[test]
fn an_acknowledged_reader_keeps_what_it_observed_autonomous() {
    judge_all(Preset::Autonomous);
}

#[test]
fn an_acknowledged_reader_keeps_what_it_observed_restricted() {
    judge_all(Preset::Restricted);
}

#[test]
fn an_acknowledged_reader_keeps_what_it_observed_passive() {
    judge_all(Preset::Passive);
}

/// The first transaction drops a table while the device does not answer. The second observes the
/// drop. It must not be acknowledged before the first, and must not survive a power cut without it.
fn judge_drop(preset: Preset, rule: Dependency, salt: u64) {
    let settings = settings(preset, rule);
    let context = format!("{preset}, {rule:?}");
    let (disk, db) = settings.create(salt);
    let (gone, table) = (db.create_table("gone").expect("new"), db.create_table("t").expect("new"));
    disk.inject_mishap(Mishap { operation: OperationKind::DurableWrite, after: 0, kind: MishapKind::Stuck });
    std::thread::scope(|scope| {
        let dropping = scope.spawn(|| db.drop_table("gone"));
        while disk.fault_counts().of("stuck") == 0 {
            assert!(!dropping.is_finished(), "{context}: written in another way");
            std::thread::sleep(Duration::from_millis(1));
        }
        let (told, answer) = std::sync::mpsc::channel();
        let (db, table) = (&db, &table);
        let meeting = scope.spawn(move || {
            let outcome = commit(db, Durability::Durable, |tx| {
                let error = tx.get(&gone, "row").expect_err("it is dropped");
                assert_eq!(error.kind(), ErrorKind::NotFound);
                tx.insert(table, "last", "x")
            });
            told.send(()).expect("the receiver lives");
            outcome
        });
        let early = answer.recv_timeout(Duration::from_millis(50)).is_ok();
        let cut = disk.crash(CrashKind::PowerCut, disk.operations(), salt);
        disk.heal();
        dropping.join().expect("no panic").expect("no transaction uses it");
        meeting.join().expect("no panic").expect("commits");
        assert!(!early, "{context}: acknowledged before the drop was durable");
        let after = settings.open(&cut);
        let last = content(&after).contains_key(&("t".to_string(), b"last".to_vec()));
        assert!(!last || after.table("gone").is_err(), "{context}: without what it met");
        cut.stop();
    });
    disk.stop();
}

#[test]
fn observing_a_dropped_table_waits_until_the_drop_is_durable() {
    let mut salt = 0;
    for preset in [Preset::Autonomous, Preset::Restricted] {
        for rule in Dependency::ALL.into_iter().filter(|rule| *rule != Dependency::LogOrder) {
            salt += 1;
            judge_drop(preset, rule, salt);
        }
    }
}

/// A refused commit has no record and no crash keeps it, so no other transaction may observe it.
#[test]
fn what_is_in_no_log_is_seen_by_nobody() {
    let old = Some(b"old".to_vec());
    for preset in [Preset::Autonomous, Preset::Restricted, Preset::Group] {
        let disk = SimulatedStorage::new(1);
        let settings = small(preset, LOGS);
        let db = settings.open(&disk);
        let table = db.create_table("t").expect("new");
        let insert = |key, value| commit(&db, Durability::Durable, |tx| tx.insert(&table, key, value));
        insert("row", "old").expect("a whole disk");
        disk.inject(Fault { operation: OperationKind::Any, after: 0, kind: FaultKind::ForEver, error: 5 });
        insert("lost", "x").expect_err("the device fails");
        let refused = insert("row", "new").expect_err("the log has failed");
        assert_eq!(refused.kind(), ErrorKind::Poisoned, "{preset}: {refused}");
        let met = db.begin().and_then(|tx| tx.get(&table, "row")).expect("in memory");
        assert_eq!(met, old, "{preset}: a transaction");
        let seen = db.begin_read().and_then(|snapshot| snapshot.get(&table, "row"));
        assert_eq!(seen.expect("durable, and in memory"), old, "{preset}: a snapshot");
        drop(db);
        disk.stop();
        let cut = disk.crash(CrashKind::PowerCut, disk.operations(), 1);
        let after = content(&settings.open(&cut)).remove(&("t".to_string(), b"row".to_vec()));
        cut.stop();
        assert_eq!(after, old, "{preset}: after a power cut");
    }
}
