//! The Nth operation fails, for every N, in everything that the engine does with a disk.
//!
//! Each scenario runs again and again. In run N its Nth operation fails, once or from then on, with
//! EIO or ENOSPC. The last run ends before the fault can strike, so every operation is covered. One
//! run without a fault is recorded, and crashed after each of its operations, by a power cut and by
//! a kill. In every case:
//!
//! 1. Nothing panics, and everything returns within a deadline.
//! 2. Refused calls return the failure with its place, and no unaffected call fails.
//! 3. The database continues when the disk is healthy again, or says that it must be reopened.
//! 4. After reopening nothing acknowledged is missing and nothing refused is there. Transactions
//!    are whole and in order, `verify` finds nothing, and writes succeed.
//!
//! `FAIL_NTH=name` runs the scenarios that have this in their name, `FAIL_FROM=N` begins with the
//! Nth operation, `FAIL_WITH=28` fails only for lack of space.

mod copies;
mod databases;
mod outcomes;

use crate::support::in_time;
use crate::support::test_database::TestDatabase;
use outcomes::{Deed, How, Size, Writer, as_of};
use quenchdb::internals::base::depth::{depth, is_deep};
use quenchdb::internals::device::simulated::{CrashKind, Fault, FaultKind, OperationKind, SimulatedStorage};
use quenchdb::{Database, Error, ErrorKind, Settings, Table};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
/// For one run of a scenario with its checks.
const DEADLINE_SECONDS: u64 = 120;

/// Something that the engine does with one disk or several.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) settings: fn() -> Settings,
    /// Returns healthy disks, and what is on the first one.
    pub(crate) prepare: fn(&Settings) -> (Vec<SimulatedStorage>, Vec<Deed>),
    pub(crate) run: fn(&mut Stage),
    /// Checks the disks afterwards.
    pub(crate) judge: fn(&After, &str),
    /// The scenario writes nothing: the disk cannot be full, and crashes do not matter.
    pub(crate) reads_only: bool,
    /// Returns whether a run did what the scenario is named for, if that can be observed. The run
    /// without a fault must.
    pub(crate) took_its_path: Option<fn(&Stage, &Database) -> bool>,
}

/// The state of one run of a scenario.
pub(crate) struct Stage {
    pub(crate) settings: Settings,
    pub(crate) disks: Vec<SimulatedStorage>,
    fault: Option<(usize, Fault)>,
    /// Operations of each disk when faults were armed.
    armed_at: Vec<usize>,
    /// Still open at the end of the run.
    pub(crate) db: Option<Database>,
    pub(crate) writer: Writer,
    /// Operations of each disk when the scenario's call reported success.
    pub(crate) done: Option<Vec<usize>>,
    /// The scenario itself fills the disk.
    pub(crate) fills_up: bool,
    /// A count of the run for [`Scenario::took_its_path`].
    pub(crate) seen: u64,
}

/// The database after a run, or recovered from a crash in the run.
pub(crate) struct After<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) disks: Vec<SimulatedStorage>,
    pub(crate) deeds: Vec<Deed>,
    pub(crate) done: bool,
}

impl Stage {
    fn new(settings: &Settings, disks: Vec<SimulatedStorage>, deeds: Vec<Deed>) -> Stage {
        let writer = Writer::new(&disks[0], 0, deeds);
        let (settings, armed_at) = (settings.clone(), Vec::new());
        Stage {
            settings,
            disks,
            fault: None,
            armed_at,
            db: None,
            writer,
            done: None,
            fills_up: false,
            seen: 0,
        }
    }

    /// The fault counts operations from now on.
    pub(crate) fn arm(&mut self) {
        self.armed_at = self.disks.iter().map(SimulatedStorage::operations).collect();
        if let Some((disk, fault)) = self.fault {
            self.disks[disk].inject(fault);
        }
    }

    /// Returns the value, or records the error.
    pub(crate) fn attempt<T>(&mut self, result: quenchdb::Result<T>) -> Option<T> {
        self.writer.attempt(result)
    }

    /// Opens the database of the first disk, or returns `None` and records the error.
    pub(crate) fn open(&mut self) -> Option<Database> {
        let opened = self.settings.try_open(&self.disks[0]);
        let db = self.attempt(opened)?;
        self.db = Some(db.clone());
        Some(db)
    }

    /// Opens the database and its table before faults are armed.
    pub(crate) fn open_well(&mut self) -> (Database, Table) {
        assert!(self.armed_at.is_empty(), "the disk is well");
        let db = self.open().expect("the disk is well");
        let table = db.table("t").expect("prepared");
        (db, table)
    }

    /// Records that the scenario's call reported success.
    pub(crate) fn note_done(&mut self) {
        self.done = Some(self.disks.iter().map(SimulatedStorage::operations).collect());
    }

    /// See [`Scenario::took_its_path`].
    fn took(&self, scenario: &Scenario) -> bool {
        let took = |took: fn(&Stage, &Database) -> bool| self.db.as_ref().is_some_and(|db| took(self, db));
        scenario.took_its_path.is_none_or(took)
    }

    fn struck(&self) -> bool {
        self.disks.iter().any(|disk| disk.faults_struck() > 0)
    }

    /// Checks point 2 of the module's text.
    fn judge_errors(&self, context: &str) {
        assert!(
            self.struck() || self.fills_up || self.writer.errors.is_empty(),
            "{context}: nothing failed, but {:?}",
            self.writer.errors
        );
        for error in &self.writer.errors {
            judge_error(error, self.fills_up, context);
        }
    }

    /// Checks point 3 of the module's text.
    fn goes_on(&mut self, context: &str) {
        let Some(db) = self.db.take() else { return };
        let Ok(table) = db.table("t") else { return };
        // The engine asks a full disk only once in a while.
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let before = self.writer.errors.len();
            self.writer.put(&db, &table, Size(1, 10), How::Wait);
            let Some(error) = self.writer.errors.get(before) else { break };
            judge_error(error, self.fills_up, context);
            match error.kind() {
                ErrorKind::Poisoned => break,
                ErrorKind::OutOfSpace if Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(10))
                }
                other => panic!("{context}: the disk is well again, but {other:?}: {error}"),
            }
        }
    }
}

fn judge_error(error: &Error, fills_up: bool, context: &str) {
    let text = error.to_string();
    let kinds = [ErrorKind::Io, ErrorKind::OutOfSpace, ErrorKind::Poisoned, ErrorKind::OutcomeUnknown];
    assert!(kinds.contains(&error.kind()), "{context}: {:?}: {text}", error.kind());
    let says_why = text.contains("simulated failure") || text.contains("the disk is full") || fills_up;
    assert!(says_why, "{context}: does not say why: {text}");
    assert!(error.location().is_some(), "{context}: does not say where: {text}");
}

/// Opens the first disk's database, checks it, and uses it.
pub(crate) fn judge_database(after: &After, context: &str) {
    let disk = &after.disks[0];
    let db =
        after.settings.try_open(disk).unwrap_or_else(|error| panic!("{context}: does not open: {error}"));
    outcomes::judge(&db, &after.deeds, context);
    let report = db.verify(None).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert!(report.problems.is_empty(), "{context}: {:?}", report.problems);
    let mut writer = Writer::new(disk, 200, Vec::new());
    let used = db.table_or_create("t").and_then(|table| {
        writer.put(&db, &table, Size(1, 100), How::Wait);
        writer.errors.pop().map_or(Ok(()), Err)
    });
    used.and_then(|()| db.close()).unwrap_or_else(|error| panic!("{context}: cannot be used: {error}"));
}

/// Numbers of runs and crashes of a scenario.
#[derive(Debug, Default)]
struct Counts {
    name: &'static str,
    /// For each disk the highest N that struck, plus 1.
    operations: Vec<u64>,
    runs: u64,
    /// Runs that took the path that the scenario is named for, or `None` if that cannot be
    /// observed.
    on_path: Option<u64>,
    crashes: u64,
    seconds: f64,
}

const VARIANTS: [(FaultKind, i32, OperationKind); 4] = [
    (FaultKind::Once, EIO, OperationKind::Any),
    (FaultKind::ForEver, EIO, OperationKind::Any),
    (FaultKind::Once, ENOSPC, OperationKind::AnyThatGrows),
    (FaultKind::ForEver, ENOSPC, OperationKind::AnyThatGrows),
];
/// Threads perform operations in varying order, so some runs may have fewer than others.
fn misses_most() -> u64 {
    if is_deep() { 3 } else { 1 }
}

/// Returns the distance between failing operations: 1 at the whole depth.
fn stride() -> usize {
    if is_deep() { 1 } else { 32 }
}

struct Prepared {
    scenario: &'static Scenario,
    settings: Settings,
    disks: Vec<SimulatedStorage>,
    deeds: Vec<Deed>,
}

impl Prepared {
    fn stage(&self) -> Stage {
        let disks = self.disks.iter().map(SimulatedStorage::duplicate).collect();
        Stage::new(&self.settings, disks, self.deeds.clone())
    }

    /// Runs once with a fault. Returns whether the fault struck, and whether the run took its path.
    fn one_fault(&self, side: usize, fault: Fault, context: &str) -> (bool, bool) {
        let mut stage = self.stage();
        stage.fault = Some((side, fault));
        (self.scenario.run)(&mut stage);
        assert!(!stage.armed_at.is_empty(), "{context}: the scenario arms no fault");
        stage.judge_errors(context);
        let (struck, took) = (stage.struck(), stage.took(self.scenario));
        stage.disks.iter().for_each(SimulatedStorage::heal);
        stage.goes_on(context);
        stage.disks.iter().for_each(SimulatedStorage::stop);
        let left = stage.disks.iter().map(|disk| match fault.after % 3 {
            0 => disk.duplicate(),
            1 => disk.crash(CrashKind::PowerCut, disk.operations(), fault.after),
            _ => disk.crash(CrashKind::Kill, disk.operations(), fault.after),
        });
        let after = After {
            settings: &self.settings,
            disks: left.collect(),
            deeds: stage.writer.deeds,
            done: stage.done.is_some(),
        };
        (self.scenario.judge)(&after, context);
        (struck, took)
    }

    /// Crashes one run after each operation of one of its disks.
    fn crashes(self: &Arc<Self>, side: usize, counts: &mut Counts) {
        let context = format!("{}, no fault", self.scenario.name);
        let prepared = self.clone();
        let stage = in_time(&context.clone(), DEADLINE_SECONDS, move || {
            let mut stage = prepared.stage();
            (prepared.scenario.run)(&mut stage);
            stage.judge_errors(&context);
            stage
        });
        let stage = Arc::new(stage);
        let last = stage.disks[side].operations();
        for operations in (stage.armed_at[side]..=last).step_by(stride()) {
            for kind in [CrashKind::PowerCut, CrashKind::Kill] {
                let context =
                    format!("{}, disk {side}, {kind:?} after {operations} of {last}", self.scenario.name);
                let (prepared, stage, for_thread) = (self.clone(), stage.clone(), context.clone());
                counts.crashes += 1;
                in_time(&context, DEADLINE_SECONDS, move || {
                    prepared.one_crash(&stage, side, kind, operations, &for_thread)
                });
            }
        }
        stage.disks.iter().for_each(SimulatedStorage::stop);
    }

    fn one_crash(&self, stage: &Stage, side: usize, kind: CrashKind, operations: usize, context: &str) {
        let crash = |(index, disk): (usize, &SimulatedStorage)| {
            if index == side { disk.crash(kind, operations, operations as u64) } else { disk.duplicate() }
        };
        let done = stage.done.as_ref().is_some_and(|done| done[side] <= operations);
        let after = After {
            settings: &self.settings,
            disks: stage.disks.iter().enumerate().map(crash).collect(),
            deeds: if side == 0 {
                as_of(&stage.writer.deeds, operations)
            } else {
                stage.writer.deeds.clone()
            },
            done,
        };
        (self.scenario.judge)(&after, context);
    }
}

fn exhaust(scenario: &'static Scenario) -> Counts {
    let begun = Instant::now();
    let settings = (scenario.settings)();
    let (disks, deeds) = (scenario.prepare)(&settings);
    let sides = disks.len();
    let prepared = Arc::new(Prepared { scenario, settings, disks, deeds });
    let on_path = scenario.took_its_path.map(|_| 0);
    let mut counts = Counts { name: scenario.name, operations: vec![0; sides], on_path, ..Counts::default() };
    let number = |name| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let (from, with) = (number("FAIL_FROM").unwrap_or(0), number("FAIL_WITH"));
    let variants = if scenario.reads_only { &VARIANTS[..2] } else { &VARIANTS[..] };
    for side in 0..sides {
        for (kind, error, operation) in
            variants.iter().filter(|(_, error, _)| with.is_none_or(|with| with == *error as u64))
        {
            let mut misses = 0;
            for after in (from..).step_by(stride()) {
                let fault = Fault { operation: *operation, after, kind: *kind, error: *error };
                let context = format!("{}, disk {side}, {fault:?}", scenario.name);
                let (runner, for_thread) = (prepared.clone(), context.clone());
                counts.runs += 1;
                let slow = Instant::now();
                let (struck, took) =
                    in_time(&context, DEADLINE_SECONDS, move || runner.one_fault(side, fault, &for_thread));
                counts.on_path = counts.on_path.map(|runs| runs + u64::from(took));
                if struck {
                    misses = 0;
                    counts.operations[side] = counts.operations[side].max(after + 1);
                } else {
                    misses += 1;
                }
                if slow.elapsed() > Duration::from_secs(1) {
                    println!("{context}: {:?}", slow.elapsed());
                }
                if misses == misses_most() {
                    break;
                }
                assert!(after < 2000, "{context}: the scenario never ends");
            }
        }
        if !scenario.reads_only {
            prepared.crashes(side, &mut counts);
        }
    }
    counts.seconds = begun.elapsed().as_secs_f64();
    counts
}

#[test]
fn every_operation_of_every_scenario_may_fail_or_be_the_last() {
    let wanted = std::env::var("FAIL_NTH").unwrap_or_default();
    let scenarios: Vec<&'static Scenario> = databases::SCENARIOS
        .iter()
        .chain(copies::SCENARIOS)
        .filter(|scenario| scenario.name.contains(&wanted))
        .collect();
    let next = AtomicUsize::new(0);
    let table = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        // Threads sleep half of the time.
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(scenario) = scenarios.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let counts = exhaust(scenario);
                    table.lock().expect("no panic").push(counts);
                }
            });
        }
    });
    let mut table = table.into_inner().expect("no panic");
    table.sort_by_key(|counts| scenarios.iter().position(|scenario| scenario.name == counts.name));
    let head = ["scenario", "operations", "runs", "on path", "crashes", "seconds"];
    println!("{:<44} {:>12} {:>6} {:>8} {:>8} {:>8}", head[0], head[1], head[2], head[3], head[4], head[5]);
    for Counts { name, operations, runs, on_path, crashes, seconds } in &table {
        let operations = operations.iter().map(u64::to_string).collect::<Vec<_>>().join("+");
        let on_path = on_path.map_or("-".into(), |runs| runs.to_string());
        println!("{name:<44} {operations:>12} {runs:>6} {on_path:>8} {crashes:>8} {seconds:>8.1}");
    }
    let sum = |of: fn(&Counts) -> u64| table.iter().map(of).sum::<u64>();
    let (runs, crashes) = (sum(|counts| counts.runs), sum(|counts| counts.crashes));
    println!("{} scenarios, {runs} runs with a fault, {crashes} crashes", table.len());
    assert_eq!(table.len(), scenarios.len(), "every scenario is in the table");
    for counts in &table {
        assert!(
            counts.operations.iter().all(|struck| *struck > 0),
            "{}: no operation ever failed",
            counts.name
        );
        let (runs, of_them) = (counts.runs, counts.on_path);
        let name = counts.name;
        assert!(
            !is_deep() || of_them.is_none_or(|of_them| of_them * 8 >= runs),
            "{name}: on its path in {of_them:?} of {runs}"
        );
    }
    assert!(!wanted.is_empty() || table.len() >= 20 && crashes > depth(1000), "that is not everything");
}
