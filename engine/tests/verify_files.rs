//! `verify` on files: those that cannot be read, extra ones, and missing ones.

use crate::support::test_database::{TestDatabase, tiny};
use quenchdb::internals::device::simulated::{Fault, FaultKind, OperationKind, SimulatedStorage};
use quenchdb::{Database, ErrorKind, Result, Settings, VerifyClass, VerifyReport};
use std::sync::Arc;

const REFUSED: i32 = 13;
const BROKEN: i32 = 5;

/// Advice that belongs to the report, not to each problem.
const ADVICE: [&str; 3] = ["; check the device", "; restore from a backup", "; let this user"];

fn settings() -> Settings {
    tiny(4 << 20).with(|s| {
        s.logs = 1;
        s.trim_log = false;
    })
}

/// Returns the disk of a database with several log segments that was closed, or killed.
fn database(closed: bool) -> SimulatedStorage {
    let (disk, db) = settings().create(1);
    let table = db.table_or_create("t").expect("a whole disk");
    for n in 0..100u32 {
        let mut tx = db.begin().expect("free");
        tx.insert(&table, n.to_be_bytes(), [n as u8; 200]).expect("free row");
        tx.commit().expect("a whole disk");
    }
    if closed {
        db.close().expect("a whole disk");
        return disk.duplicate();
    }
    let killed = disk.duplicate();
    disk.stop();
    killed
}

fn try_verify(disk: &SimulatedStorage) -> Result<VerifyReport> {
    Database::builder().settings(settings()).storage(Arc::new(disk.duplicate())).verify("simulated", None)
}

/// Returns what `verify` says if the open number `after` fails, and whether it failed.
fn verify_with_failing_open(disk: &SimulatedStorage, after: u64, error: i32) -> (Result<VerifyReport>, bool) {
    let disk = Arc::new(disk.duplicate());
    disk.inject(Fault { operation: OperationKind::Open, after, kind: FaultKind::Once, error });
    let builder = Database::builder().settings(settings()).storage(disk.clone());
    (builder.verify("simulated", None), disk.faults_struck() > 0)
}

/// One open fails, of each file in turn. `verify` never calls the database sound, and checks all
/// else.
#[test]
fn a_file_that_cannot_be_opened_is_reported() {
    for (closed, error) in [(true, REFUSED), (true, BROKEN), (false, REFUSED), (false, BROKEN)] {
        let disk = database(closed);
        assert_eq!(try_verify(&disk).expect("whole").class(), VerifyClass::Sound);
        let (mut segments, mut after) = (0, 0);
        loop {
            let (verified, struck) = verify_with_failing_open(&disk, after, error);
            if !struck {
                break;
            }
            match verified {
                Ok(report) => {
                    assert_eq!(report.class(), VerifyClass::Damaged, "{closed} {error} {after}: {report:#?}");
                    let problem = &report.problems[0];
                    assert!(problem.contains("(at "), "{problem}");
                    segments += u64::from(problem.contains("(at log/"));
                    let advice = report.advice().expect("not sound");
                    assert_eq!(advice.contains("let this user read"), error == REFUSED, "{report:#?}");
                    let advises = |problem: &String| ADVICE.iter().any(|advice| problem.contains(advice));
                    assert!(!report.problems.iter().any(advises), "{report:#?}");
                    // Reading all else needs only the other files.
                    assert!(report.files.as_ref().is_some_and(|files| files.log_segments > 0));
                    assert!(report.stored_pages > 0 || problem.contains("pages/data") || !closed);
                }
                Err(failed) => assert!(failed.to_string().contains("(at "), "{failed}"),
            }
            after += 1;
        }
        assert!(after > 3 && segments > 1, "{closed} {error}: {after} opens, {segments} of segments");
    }
}

/// Returns the paths of the extra files in a report.
fn extra_files(report: &VerifyReport) -> Vec<&str> {
    report.files.iter().flat_map(|files| &files.extra_files).map(|extra| extra.path.as_str()).collect()
}

#[test]
fn extra_files_are_remarks_with_their_lengths() {
    let other = database(true);
    for closed in [true, false] {
        let disk = database(closed);
        assert!(extra_files(&try_verify(&disk).expect("whole")).is_empty());
        let whole = try_verify(&disk).expect("whole").files.expect("at rest");
        for path in ["notes.txt", ".quench-direct-probe", "log/notes.txt", "pages/old", "log/1.seg"] {
            disk.write_file(path, b"1234567");
        }
        // A killed process leaves its socket.
        disk.write_file("monitor.sock", b"");
        let report = try_verify(&disk).expect("whole");
        assert_eq!(report.class(), VerifyClass::Sound, "{report:#?}");
        let files = report.files.as_ref().expect("at rest");
        let named = ["log/1.seg", "log/notes.txt", ".quench-direct-probe", "notes.txt", "pages/old"];
        assert_eq!(extra_files(&report), named);
        assert!(files.extra_files.iter().all(|extra| extra.bytes == 7), "{files:#?}");
        assert_eq!((files.log_segments, files.log_bytes), (whole.log_segments, whole.log_bytes));
        // A segment of another database is no segment of this log.
        disk.write_file("log/00000077.seg", &other.read_file("log/00000001.seg").expect("a segment"));
        let report = try_verify(&disk).expect("whole");
        assert_eq!(report.class(), VerifyClass::Sound, "{report:#?}");
        let files = report.files.as_ref().expect("at rest");
        assert_eq!(extra_files(&report).len(), named.len() + 1);
        assert!(files.extra_files[0].what.contains("another database"), "{files:#?}");
        assert_eq!(files.log_segments, whole.log_segments);
    }
}

/// Each missing file is named, once, in a report or, without a manifest, by the error of the open.
#[test]
fn missing_files_are_named() {
    for closed in [true, false] {
        let disk = database(closed);
        disk.remove_file("pages/data");
        let report = try_verify(&disk).expect("checked");
        assert_eq!(report.class(), VerifyClass::Damaged);
        let named = |report: &VerifyReport, part: &str| {
            report.problems.iter().filter(|problem| problem.contains(part)).count()
        };
        assert_eq!(named(&report, "the file of pages is missing"), 1, "{report:#?}");
        assert_eq!(named(&report, "(at pages/data, byte 0)"), 1, "{report:#?}");

        let disk = database(closed);
        disk.remove_file("MANIFEST");
        let report = try_verify(&disk).expect("checked");
        assert_eq!(named(&report, "the manifest is missing, but pages/data holds data"), 1, "{report:#?}");
        assert_eq!(named(&report, "nothing else was checked"), 1, "{report:#?}");
        assert_eq!(report.problems.len(), 2, "{report:#?}");

        let disk = database(closed);
        let is_segment = |path: &String| path.starts_with("log/");
        disk.files().iter().filter(|path| is_segment(path)).for_each(|path| disk.remove_file(path));
        let report = try_verify(&disk).expect("checked");
        // A closed database does not need its log.
        assert_eq!(report.class() == VerifyClass::Sound, closed, "{report:#?}");
        assert_eq!(named(&report, "all log segments are missing"), usize::from(!closed), "{report:#?}");
        assert_eq!(report.problems.len(), usize::from(!closed), "{report:#?}");
    }
}

#[test]
fn a_directory_without_files_of_a_database_is_not_damaged() {
    let disk = SimulatedStorage::new(1);
    disk.write_file("log/syslog", b"not of a database");
    assert_eq!(try_verify(&disk).expect_err("no database").kind(), ErrorKind::NotFound);
}
