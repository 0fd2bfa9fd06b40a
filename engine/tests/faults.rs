//! A failing device: every operation of a small workload fails in turn, once or forever, with EIO
//! and with ENOSPC, with every preset. So does every read of a database that has to read its pages
//! first.
//!
//! Whatever fails, nothing panics or hangs, nothing acknowledged is lost, transactions stay whole,
//! and committed rows can still be read. After a failed log write nothing commits until the
//! database is reopened. After a failed checkpoint everything continues.

pub mod space;

use crate::support::in_time;
use crate::support::test_database::{TestDatabase, tiny};
use quenchdb::internals::base::depth::is_deep;
use quenchdb::internals::device::simulated::{CrashKind, Fault, FaultKind, OperationKind, SimulatedStorage};
use quenchdb::{Database, Durability, Error, ErrorKind, Preset, Result, Settings, Table};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

fn settings(preset: Preset) -> Settings {
    tiny(4 << 20).with(|s| {
        s.preset = preset;
        s.logs = if preset == Preset::Group { 1 } else { 2 };
        s.page_bytes = 32768;
        s.log_bytes_max = 1 << 20;
        s.log_memory = (preset == Preset::Passive).then(|| "mapped-memory".into());
        s.lab.log_memory_bytes = if preset == Preset::Passive { 1 << 20 } else { 0 };
    })
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Acknowledged,
    Unknown,
    /// Refused before it could take effect.
    No,
}

/// Transaction number to its outcome. Each transaction wrote rows `[n, 0]` and `[n, 1]`.
type Outcomes = BTreeMap<u8, Outcome>;

struct Work {
    outcomes: Outcomes,
    checkpoints: Vec<Result<()>>,
}

fn value(n: u8) -> Vec<u8> {
    vec![n; 3000 + usize::from(n)]
}

fn outcome(error: &Error, context: &str) -> Outcome {
    match error.kind() {
        ErrorKind::OutcomeUnknown => Outcome::Unknown,
        ErrorKind::Poisoned | ErrorKind::OutOfSpace | ErrorKind::Io => Outcome::No,
        other => panic!("{context}: a commit failed with {other:?}: {error}"),
    }
}

/// Commits in every way, makes two checkpoints, and writes enough bytes for several segments.
fn work(db: &Database, table: &Table, first: u8, context: &str) -> Work {
    let mut work = Work { outcomes: Outcomes::new(), checkpoints: Vec::new() };
    let mut handles = Vec::new();
    for n in first..first + 24 {
        let durability = if n % 5 == 1 { Durability::BoundedLoss } else { Durability::Durable };
        let tx = db.begin_with(durability).and_then(|mut tx| {
            tx.insert(table, [n, 0], value(n))?;
            tx.insert(table, [n, 1], value(n))?;
            Ok(tx)
        });
        let mut tx = match tx {
            Ok(tx) => tx,
            Err(error) => {
                work.outcomes.insert(n, outcome(&error, context));
                continue;
            }
        };
        // Each transaction depends on the one before.
        let chained = tx.get_for_update(table, "chain").and_then(|_| tx.insert(table, "chain", [n]));
        let committed = chained.and_then(|()| match n % 5 {
            0 | 2 => {
                handles.push((n, tx.commit_async()?));
                Ok(Outcome::Unknown)
            }
            1 => tx.commit().map(|_| Outcome::Unknown),
            _ => tx.commit().map(|_| Outcome::Acknowledged),
        });
        work.outcomes.insert(n, committed.unwrap_or_else(|error| outcome(&error, context)));
        if n % 5 == 3 {
            wait_all(&mut handles, &mut work.outcomes, context);
        }
        if n % 10 == 9 {
            work.checkpoints.push(db.checkpoint().map(drop));
        }
    }
    wait_all(&mut handles, &mut work.outcomes, context);
    work
}

fn wait_all(handles: &mut Vec<(u8, quenchdb::CommitHandle)>, outcomes: &mut Outcomes, context: &str) {
    for (n, handle) in handles.drain(..) {
        match handle.wait() {
            Ok(()) => {
                assert!(handle.is_committed(), "{context}: {n} was waited for");
                outcomes.insert(n, Outcome::Acknowledged);
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{context}: {error}"),
        }
    }
}

/// Checks that acknowledged rows can be read in the database that met the failure.
fn reads_go_on(db: &Database, table: &Table, outcomes: &Outcomes, context: &str) {
    let snapshot = db.begin_read().unwrap_or_else(|error| panic!("{context}: no snapshot: {error}"));
    for (n, outcome) in outcomes {
        for half in 0..2 {
            match (snapshot.get(table, [*n, half]), outcome) {
                (Ok(found), Outcome::Acknowledged) => assert_eq!(found, Some(value(*n)), "{context}: {n}"),
                (Ok(found), Outcome::No) => assert_eq!(found, None, "{context}: {n} was refused and is seen"),
                (Ok(_), Outcome::Unknown) => {}
                (Err(error), Outcome::Unknown) => {
                    assert_eq!(error.kind(), ErrorKind::Poisoned, "{context}: {error}")
                }
                (Err(error), _) => panic!("{context}: {n} is {outcome:?} and cannot be read: {error}"),
            }
        }
    }
}

/// Reopens and checks that everything acknowledged is there, whole and in order. Then writes again.
fn judge(disk: &SimulatedStorage, preset: Preset, outcomes: &Outcomes, context: &str) {
    let db =
        settings(preset).try_open(disk).unwrap_or_else(|error| panic!("{context}: does not open: {error}"));
    let table = db.table("t").unwrap_or_else(|error| panic!("{context}: {error}"));
    let snapshot = db.begin_read().expect("free");
    let mut newest = None;
    for (n, outcome) in outcomes {
        let halves: Vec<bool> = (0..2)
            .map(|half| {
                let found =
                    snapshot.get(&table, [*n, half]).unwrap_or_else(|error| panic!("{context}: {error}"));
                assert!(found.is_none() || found == Some(value(*n)), "{context}: {n} has a wrong value");
                found.is_some()
            })
            .collect();
        assert_eq!(halves[0], halves[1], "{context}: half of {n} is there");
        match outcome {
            Outcome::Acknowledged => assert!(halves[0], "{context}: acknowledged {n} is lost"),
            Outcome::No => assert!(!halves[0], "{context}: {n} was refused and is there"),
            Outcome::Unknown => {}
        }
        if halves[0] {
            newest = Some(*n);
        }
    }
    let chain = snapshot.get(&table, "chain").expect("readable").map(|value| value[0]);
    assert_eq!(chain, newest, "{context}: the chain row names the last writer");
    let report = db.verify(None).expect("runs");
    assert!(report.problems.is_empty(), "{context}: {:?}", report.problems);
    db.transact(|tx| tx.insert(&table, [255, 0], "more"))
        .unwrap_or_else(|error| panic!("{context}: {error}"));
    disk.stop();
}

fn after_the_failure(
    disk: &SimulatedStorage,
    db: Database,
    preset: Preset,
    outcomes: &Outcomes,
    context: &str,
    seed: u64,
) {
    disk.stop();
    drop(db);
    judge(&disk.duplicate(), preset, outcomes, &format!("{context}, reopened"));
    let kind = if seed.is_multiple_of(2) { CrashKind::PowerCut } else { CrashKind::Kill };
    let crashed = disk.crash(kind, disk.operations(), seed);
    judge(&crashed, preset, outcomes, &format!("{context}, reopened after {kind:?}"));
}

const VARIANTS: [(FaultKind, i32); 4] = [
    (FaultKind::Once, EIO),
    (FaultKind::ForEver, EIO),
    (FaultKind::Once, ENOSPC),
    (FaultKind::ForEver, ENOSPC),
];
/// The engine's threads perform operations in varying order, so some runs may have one or two
/// fewer.
fn misses_most() -> u64 {
    if is_deep() { 3 } else { 1 }
}

/// Runs once with one fault. Returns false if the workload ended before the fault struck.
fn one_fault(preset: Preset, fault: Fault, context: &str) -> bool {
    let (disk, db) = settings(preset).create(fault.after);
    let table = db.create_table("t").expect("a whole disk");
    disk.inject(fault);
    let work = work(&db, &table, 0, context);
    reads_go_on(&db, &table, &work.outcomes, context);
    let struck = disk.faults_struck() > 0;
    let lost_log = work.outcomes.iter().any(|(n, outcome)| *outcome == Outcome::Unknown && n % 5 != 1);
    if lost_log {
        let error = db.transact(|tx| tx.insert(&table, [200, 0], "x")).expect_err("poisoned");
        assert_eq!(error.kind(), ErrorKind::Poisoned, "{context}: {error}");
        assert_eq!(db.flush().expect_err("poisoned").kind(), ErrorKind::Poisoned, "{context}");
        let error = db.checkpoint().expect_err("poisoned");
        // A device on which every open fails refuses the checkpoint's own writes first.
        let opens_nothing = fault.operation == OperationKind::Open && fault.kind == FaultKind::ForEver;
        let refused = opens_nothing && matches!(error.kind(), ErrorKind::Io | ErrorKind::OutOfSpace);
        assert!(refused || error.kind() == ErrorKind::Poisoned, "{context}: {error}");
        reads_go_on(&db, &table, &work.outcomes, context);
    }
    if fault.operation == OperationKind::Write {
        // Only checkpoints write without asking for durability. But no commit is accepted that a
        // checkpoint would have no space for.
        let no_space = fault.kind == FaultKind::ForEver && fault.error == ENOSPC;
        let goes_on = |outcome| outcome == Outcome::Acknowledged || no_space && outcome == Outcome::No;
        let all = work.outcomes.iter().all(|(n, outcome)| goes_on(*outcome) || n % 5 == 1);
        assert!(all, "{context}: a failed checkpoint stopped commits: {:?}", work.outcomes);
        if struck && fault.kind == FaultKind::Once {
            // A manifest that may have been published, or not, ends checkpoints until the next
            // open.
            let is_manifest =
                |error: &Error| error.kind() == ErrorKind::Poisoned && error.to_string().contains("MANIFEST");
            if let Err(error) = db.checkpoint() {
                assert!(is_manifest(&error), "{context}: no checkpoint after a failed one: {error}");
            }
        }
        if struck && no_space {
            disk.heal();
            // The engine asks a full disk only once in a while.
            let end = Instant::now() + Duration::from_secs(30);
            while let Err(error) = db.transact(|tx| tx.insert(&table, [201, 0], "x")) {
                assert!(Instant::now() < end, "{context}: there is space again, but {error}");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
    if !struck {
        assert!(work.checkpoints.iter().all(Result::is_ok) && !lost_log, "{context}");
    }
    let mut outcomes = work.outcomes;
    if db.flush().is_ok() {
        outcomes
            .values_mut()
            .filter(|outcome| **outcome == Outcome::Unknown)
            .for_each(|outcome| *outcome = Outcome::Acknowledged);
    }
    after_the_failure(&disk, db, preset, &outcomes, context, fault.after);
    struck
}

/// The same for a closed database, whose pages are only on the disk: the reader that needs the page
/// gets the error, and nothing else is affected.
fn one_read(preset: Preset, fault: Fault, context: &str) -> bool {
    let (disk, db) = settings(preset).create(fault.after);
    let table = db.create_table("t").expect("a whole disk");
    let mut outcomes = work(&db, &table, 0, context).outcomes;
    drop(table);
    db.close().expect("a whole disk");
    outcomes.values_mut().for_each(|outcome| *outcome = Outcome::Acknowledged);
    let db = settings(preset).open(&disk);
    let table = db.table("t").expect("it was made");
    disk.inject(fault);
    let mut failed = 0;
    for n in 0..24 {
        let snapshot = db.begin_read().expect("it reads nothing");
        match snapshot.get(&table, [n, 0]) {
            Ok(found) => assert_eq!(found, Some(value(n)), "{context}: {n}"),
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::OutOfSpace), "{context}: {error}");
                assert!(error.location().is_some(), "{context}: does not say where: {error}");
                failed += 1;
            }
        }
    }
    let work = work(&db, &table, 24, context);
    let struck = disk.faults_struck() > 0;
    let refused = work.outcomes.values().filter(|outcome| **outcome == Outcome::No).count();
    let no_checkpoint = work.checkpoints.iter().filter(|made| made.is_err()).count();
    assert!(
        struck || failed + refused + no_checkpoint == 0,
        "{context}: nothing failed, but {:?}",
        work.outcomes
    );
    if fault.kind == FaultKind::Once {
        assert!(
            failed + refused + no_checkpoint <= 1,
            "{context}: one read failed, and several were outcomes"
        );
    }
    outcomes.extend(work.outcomes);
    disk.heal();
    db.flush().unwrap_or_else(|error| panic!("{context}: a read is no reason to stop: {error}"));
    outcomes
        .values_mut()
        .filter(|outcome| **outcome == Outcome::Unknown)
        .for_each(|outcome| *outcome = Outcome::Acknowledged);
    reads_go_on(&db, &table, &outcomes, context);
    db.checkpoint().unwrap_or_else(|error| panic!("{context}: the disk is well: {error}"));
    after_the_failure(&disk, db, preset, &outcomes, context, fault.after);
    struck
}

/// Runs every N of each kind of operation. Some faults of each kind have to strike.
fn every_fault(preset: Preset) {
    use OperationKind::{DurableWrite, Flush, Open, Read, Write, ZeroExtend};
    // Minimum number of faults for each variant. For `ZeroExtend` over all four variants, because a
    // segment may be ready before faults are armed. A log in mapped memory is written by the two
    // checkpoints alone.
    let durable_writes = if preset == Preset::Passive { 2 } else { 3 };
    let operations =
        [(Read, 4), (Write, 6), (DurableWrite, durable_writes), (Flush, 2), (ZeroExtend, 0), (Open, 3)];
    let mut runs = 0;
    for (number, (operation, least)) in operations.into_iter().enumerate() {
        let mut struck = 0;
        // Not at its whole depth, a preset takes one variant of each operation, and its neighbours
        // take the others.
        let first = (number + preset as usize) % VARIANTS.len();
        let variants = if is_deep() { &VARIANTS[..] } else { &VARIANTS[first..=first] };
        for &(kind, error) in variants {
            let (mut misses, mut hits) = (0, 0);
            for after in (0..).step_by(if is_deep() { 1 } else { 8 }) {
                let fault = Fault { operation, after, kind, error };
                let context = format!("{preset:?}, {fault:?}");
                let for_thread = context.clone();
                runs += 1;
                let run = if operation == Read { one_read } else { one_fault };
                if in_time(&context, 120, move || run(preset, fault, &for_thread)) {
                    (misses, hits) = (0, hits + 1);
                } else {
                    misses += 1;
                }
                if misses == misses_most() {
                    break;
                }
                assert!(after < 500, "{context}: the workload never ends");
            }
            let least = if is_deep() { least } else { least.min(1) };
            assert!(hits >= least, "{preset:?}: {hits} of {operation:?} failed, {kind:?} with error {error}");
            struck += hits;
        }
        let may_be_none = operation == ZeroExtend && !is_deep();
        assert!(struck > 0 || may_be_none, "{preset:?}: no {operation:?} failed");
        println!("{preset:?}, {operation:?}: {struck} failed");
    }
    println!("{preset:?}: {runs} runs");
}

#[test]
fn any_operation_may_fail_per_transaction() {
    every_fault(Preset::PerTransaction);
}

#[test]
fn any_operation_may_fail_group() {
    every_fault(Preset::Group);
}

#[test]
fn any_operation_may_fail_queued() {
    every_fault(Preset::Queued);
}

#[test]
fn any_operation_may_fail_autonomous() {
    every_fault(Preset::Autonomous);
}

#[test]
fn any_operation_may_fail_pipelined() {
    every_fault(Preset::Pipelined);
}

#[test]
fn any_operation_may_fail_restricted() {
    every_fault(Preset::Restricted);
}

#[test]
fn any_operation_may_fail_passive() {
    every_fault(Preset::Passive);
}

#[test]
fn any_operation_may_fail_auto() {
    every_fault(Preset::Auto);
}

/// Any operation of opening may fail, for a new, a crashed and a closed database. The next attempt
/// succeeds.
///
/// Regression: the thread that prepares segments kept its pool alive. So each open that failed
/// after its start leaked the thread and all its files.
pub fn a_failed_open_can_be_repeated(preset: Preset) {
    use OperationKind::{DurableWrite, Flush, Open, Read, Write, ZeroExtend};
    let (crashed, db) = settings(preset).create(7);
    let table = db.create_table("t").expect("a whole disk");
    let mut outcomes = work(&db, &table, 0, "whole").outcomes;
    db.flush().expect("a whole disk");
    outcomes.values_mut().for_each(|outcome| *outcome = Outcome::Acknowledged);
    crashed.stop();
    drop((db, table));
    let crashed = crashed.duplicate();
    let closed = crashed.duplicate();
    settings(preset).open(&closed).close().expect("closes");
    for (name, start) in [("new", SimulatedStorage::new(3)), ("crashed", crashed), ("closed", closed)] {
        for operation in [Read, Write, DurableWrite, Flush, ZeroExtend, Open] {
            for after in 0.. {
                let fault = Fault { operation, after, kind: FaultKind::Once, error: EIO };
                let context = format!("{preset:?}, {name}, {fault:?}");
                let disk = start.duplicate();
                disk.inject(fault);
                let opened = {
                    let disk = disk.clone();
                    in_time(&context, 120, move || {
                        let storage = Arc::new(disk.clone());
                        let left = Arc::downgrade(&storage);
                        let opened =
                            Database::builder().settings(settings(preset)).storage(storage).open("simulated");
                        disk.stop();
                        let end = Instant::now() + Duration::from_secs(30);
                        while opened.is_err() && left.strong_count() > 0 {
                            assert!(Instant::now() < end, "a failed open keeps the storage");
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        opened.map(drop).map_err(|error| (error.kind(), error.to_string()))
                    })
                };
                let struck = disk.faults_struck() > 0;
                if let Err((kind, error)) = opened {
                    assert!(struck, "{context}: {error}");
                    assert_eq!(kind, ErrorKind::Io, "{context}: {error}");
                }
                let again = disk.crash(CrashKind::PowerCut, disk.operations(), after);
                if name == "new" {
                    let opened = settings(preset).try_open(&again);
                    opened.unwrap_or_else(|error| panic!("{context}: {error}")).close().expect("closes");
                } else {
                    judge(&again, preset, &outcomes, &context);
                }
                if !struck {
                    break;
                }
                assert!(after < 500, "{context}: opening never ends");
            }
        }
    }
}

pub fn a_full_disk_refuses_work_loses_nothing_and_resumes(preset: Preset) {
    let context = format!("{preset:?}");
    in_time(&context.clone(), 120, move || fill_up(preset, &context));
}

fn fill_up(preset: Preset, context: &str) {
    let (disk, db) = settings(preset).create(1);
    let table = db.create_table("t").expect("a whole disk");
    // Spare segments are made in the background; from here on no file grows by itself.
    std::thread::sleep(Duration::from_millis(300));
    let size: usize =
        disk.files().iter().filter_map(|path| disk.read_file(path)).map(|bytes| bytes.len()).sum();
    disk.set_capacity(Some(size as u64 + (100 << 10)));
    let mut outcomes = Outcomes::new();
    let mut refused = 0;
    for n in 0..100u8 {
        let start = Instant::now();
        let committed = db.transact(|tx| {
            (0..2)
                .try_for_each(|half| tx.insert(&table, [n, half], value(n)))
                .and_then(|()| tx.insert(&table, "chain", [n]))
        });
        match committed {
            Ok(()) => drop(outcomes.insert(n, Outcome::Acknowledged)),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{context}: {error}");
                outcomes.insert(n, Outcome::No);
                refused += 1;
            }
        }
        assert!(start.elapsed() < Duration::from_secs(8), "{context}: {n} took {:?}", start.elapsed());
        if refused > 0 {
            break;
        }
    }
    assert!(refused > 0, "{context}: the disk never was full");
    reads_go_on(&db, &table, &outcomes, context);
    if let Err(error) = db.checkpoint() {
        assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{context}: {error}");
    }
    reads_go_on(&db, &table, &outcomes, context);
    let full = disk.duplicate();
    full.set_capacity(None);
    judge(&full, preset, &outcomes, &format!("{context}, reopened with space"));
    disk.set_capacity(None);
    let end = Instant::now() + Duration::from_secs(30);
    for n in 101..120u8 {
        let commit = || {
            db.transact(|tx| {
                (0..2)
                    .try_for_each(|half| tx.insert(&table, [n, half], value(n)))
                    .and_then(|()| tx.insert(&table, "chain", [n]))
            })
        };
        while let Err(error) = commit() {
            assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{context}: {error}");
            // The engine asks a full disk only once in a while. Once it continues, it must not fail
            // again.
            let may_be_full = n == 101 && Instant::now() < end;
            assert!(may_be_full, "{context}: there is space again, but {n}: {error}");
            std::thread::sleep(Duration::from_millis(5));
        }
        outcomes.insert(n, Outcome::Acknowledged);
    }
    db.checkpoint().unwrap_or_else(|error| panic!("{context}: there is space again: {error}"));
    after_the_failure(&disk, db, preset, &outcomes, context, 4);
}

/// Waiters in all threads get the error.
pub fn every_waiter_learns_of_a_failed_write(preset: Preset) {
    // With `passive` no commit waits for a write.
    if preset == Preset::Passive {
        return;
    }
    for after in 0..6 {
        let context = format!("{preset:?}, after {after}");
        in_time(&context.clone(), 120, move || {
            let (disk, db) = settings(preset).create(after);
            let table = db.create_table("t").expect("a whole disk");
            disk.set_delay(Duration::from_millis(2));
            disk.inject(Fault {
                operation: OperationKind::DurableWrite,
                after,
                kind: FaultKind::ForEver,
                error: EIO,
            });
            let outcomes = std::sync::Mutex::new(BTreeMap::new());
            std::thread::scope(|scope| {
                for thread in 0..8u8 {
                    let (db, table, outcomes, context) = (&db, &table, &outcomes, &context);
                    scope.spawn(move || {
                        for n in 0..20u8 {
                            let mut tx = db.begin().expect("free");
                            let key = [thread, n];
                            tx.insert(table, key, "x").expect("free row");
                            let done = if n % 2 == 0 {
                                tx.commit().map(drop)
                            } else {
                                tx.commit_async().and_then(|handle| handle.wait())
                            };
                            let failed = done.is_err();
                            let outcome = done
                                .map_or_else(|error| outcome(&error, context), |()| Outcome::Acknowledged);
                            outcomes.lock().expect("no panic").insert(key, outcome);
                            if failed && outcome == Outcome::No {
                                return;
                            }
                        }
                        panic!("{context}: nothing failed");
                    });
                }
            });
            disk.stop();
            drop(db);
            let db = settings(preset).open(&disk.crash(CrashKind::PowerCut, disk.operations(), after));
            let table = db.table("t").expect("there");
            let snapshot = db.begin_read().expect("free");
            for (key, outcome) in outcomes.into_inner().expect("no panic") {
                let there = snapshot.get(&table, key).expect("readable").is_some();
                assert!(there || outcome != Outcome::Acknowledged, "{context}: {key:?} is lost");
                assert!(!there || outcome != Outcome::No, "{context}: {key:?} was refused and is there");
            }
        });
    }
}
