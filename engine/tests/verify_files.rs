//! `verify` on files: those that cannot be read.

use crate::support::test_database::{TestDatabase, tiny};
use quenchdb::internals::device::simulated::{Fault, FaultKind, OperationKind, SimulatedStorage};
use quenchdb::{Database, Result, Settings, VerifyClass, VerifyReport};
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
