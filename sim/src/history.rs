//! The history of one seed: a first run of the database, crashed at many points. Further runs and
//! crashes follow each crash.

use crate::config::{Config, PlannedFault};
use crate::figures::{Crash, Figures, Place};
use crate::known::Known;
use crate::medium::Medium;
use crate::objects;
use crate::run::{RunRecord, Script, execute};
use crate::trace::Trace;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::simulated::{CrashKind, SimulatedStorage};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Prints the lines of a history, if a reader asked for them.
pub type Printer<'a> = Option<&'a mut dyn FnMut(String)>;

/// Prints a line, if a reader asked for them.
pub fn say(printer: &mut Printer<'_>, line: impl FnOnce() -> String) {
    if let Some(print) = printer {
        print(line());
    }
}

/// Executes a run and prints its trace, also if the run fails.
pub fn run_and_print<T>(
    printer: &mut Printer<'_>,
    trace: &Trace,
    medium: &dyn Medium,
    run: impl FnOnce() -> T,
) -> T {
    let from = medium.changes();
    let ended = catch_unwind(AssertUnwindSafe(run));
    say(printer, || trace.lines(medium, from..medium.changes(), None).join("\n"));
    ended.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Runs a seed, with `points` crashes of its first run: on a disk, or from
/// [`objects::FIRST_SEED`] on, on a store of objects.
///
/// # Panics
/// If something was lost or broken; the message says what.
pub fn run(seed: u64, points: u64, printer: Printer<'_>) -> Figures {
    if seed >= objects::FIRST_SEED {
        return objects::run(seed, points, printer);
    }
    let config = Config::of(seed, points);
    let mut history = History {
        random: Random::from_seed(seed.wrapping_mul(0x9e37)),
        figures: Figures { seeds: 1, ..Figures::default() },
        config,
        printer,
    };
    say(&mut history.printer, || format!("{:?}", history.config));
    history.run();
    history.figures
}

struct History<'a> {
    config: Config,
    random: Random,
    figures: Figures,
    printer: Printer<'a>,
}

/// Most runs in a row on a device that has broken a promise.
const BROKEN_RUNS_MAX: u64 = 3;
/// Crashes of a nested history, each in the run after the previous crash.
const NESTED_DEPTH: u64 = 4;
/// Disk operations printed before and after a crash.
const SHOWN: usize = 6;

/// Whether the next run judges the crashed disk. A run on a device that breaks its promises does
/// not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Judged {
    Yes,
    No,
}

/// A disk after a crash, with the knowledge about its content.
struct Crashed {
    disk: SimulatedStorage,
    known: Known,
    depth: u64,
    /// Every run is crashed inside its recovery or a checkpoint, if possible.
    nested: bool,
    /// The crashes so far.
    chain: Vec<Crash>,
    /// The kinds of faults that fired in earlier runs.
    faults: BTreeSet<String>,
    context: String,
}

impl History<'_> {
    fn run(&mut self) {
        let rule = crate::support::rule_of(&self.config.settings);
        let protocol = format!("{} {rule}", self.config.settings.preset);
        let disk = SimulatedStorage::on_device(self.config.device, self.config.seed);
        let script = Script {
            seed: self.random.next_u64(),
            settings: self.config.settings.clone(),
            tight: self.config.tight,
            number: 0,
            threads: self.config.threads,
            each: self.config.each,
            kinds: self.config.kinds,
            fault: self.config.fault,
            threads_end_early: self.config.threads_end_early,
            checkpoint_odds: 3,
            known: Known::default(),
            close: self.random.chance(1, 4),
            judged: true,
            trace: Trace::default(),
            context: format!("seed {}, first run", self.config.seed),
        };
        let record = self.execute(&disk, script);
        if let (Some(error), true) = (&record.refused, self.config.fault.allows_work()) {
            panic!("seed {}, first run: {error}", self.config.seed);
        }
        for point in 0..self.config.points {
            let nested = self.random.chance(1, 2);
            let crashed = self.crash(
                &disk,
                &record,
                &Crashed {
                    disk: disk.clone(),
                    known: Known::default(),
                    depth: 0,
                    nested,
                    chain: Vec::new(),
                    faults: BTreeSet::new(),
                    context: format!("seed {}, point {point}", self.config.seed),
                },
                Judged::Yes,
            );
            self.continue_after(crashed);
        }
        let crashes = self.figures.power_cuts + self.figures.kills;
        self.figures.protocols.insert(protocol, crashes);
    }

    fn execute(&mut self, disk: &SimulatedStorage, script: Script) -> RunRecord {
        say(&mut self.printer, || format!("run: {script:?}"));
        let trace = script.trace.clone();
        let record =
            run_and_print(&mut self.printer, &trace, disk, || execute(disk, script, &mut self.figures));
        say(&mut self.printer, || {
            format!(
                "  open after {:?} operations, refused: {:?}, checkpoints {:?}, must be there, after so many operations: {:?}",
                record.opened_at, record.refused, record.checkpoints, record.acknowledged
            )
        });
        record
    }

    /// Chooses after how many disk operations a run ends: inside its recovery, inside a checkpoint,
    /// while several logs are written, or anywhere.
    fn end_of(&mut self, disk: &SimulatedStorage, record: &RunRecord, before: &Crashed) -> usize {
        let end = disk.operations();
        let opened_at = record.opened_at.unwrap_or(end) as u64;
        let random = &mut self.random;
        let inside: Vec<_> = record.checkpoints.iter().filter(|range| !range.is_empty()).collect();
        let choice = match (before.nested, before.depth) {
            (true, 0) => 1,
            (true, _) => random.below(2),
            (false, _) => random.below(6),
        };
        match choice {
            0 if before.depth > 0 && opened_at > 1 => 1 + random.below(opened_at - 1) as usize,
            1 if !inside.is_empty() => {
                let range = inside[random.below(inside.len() as u64) as usize];
                range.start + random.below(range.len() as u64) as usize
            }
            // What the run has not written by its end stays unwritten.
            2 => end,
            3 => {
                let moments = disk.crash_points_between_logs();
                let anywhere = random.below(end as u64 + 1) as usize;
                let chosen = random.below(moments.len().max(1) as u64) as usize;
                moments.get(chosen).copied().unwrap_or(anywhere)
            }
            _ => random.below(end as u64 + 1) as usize,
        }
    }

    /// Crashes a run's disk.
    fn crash(
        &mut self,
        disk: &SimulatedStorage,
        record: &RunRecord,
        before: &Crashed,
        judged: Judged,
    ) -> Crashed {
        let end = disk.operations();
        let at = self.end_of(disk, record, before);
        // Three of four are power cuts, which can lose more.
        let kind = if self.random.chance(3, 4) { CrashKind::PowerCut } else { CrashKind::Kill };
        let place = if before.depth > 0 && (1..record.opened_at.unwrap_or(end)).contains(&at) {
            Place::Recovery
        } else if record.checkpoints.iter().any(|range| range.contains(&at)) {
            Place::Checkpoint
        } else {
            Place::Running
        };
        let crash = Crash { place, kind };
        let chain = [&before.chain[..], &[crash]].concat();
        match judged {
            Judged::Yes => self.figures.note_crash(&chain),
            Judged::No => self.figures.crashes_unjudged += 1,
        }
        let context = format!("{}; {crash} after {at} of {end}", before.context);
        say(&mut self.printer, || {
            let around = at.saturating_sub(SHOWN)..end.min(at + SHOWN);
            let lines = record.trace.lines(disk, around, Some((at, crash.to_string())));
            format!("crash: {context}\n{}", lines.join("\n"))
        });
        let known = before.known.after(record, at);
        let disk = disk.crash(kind, at, self.random.next_u64());
        let faults = before.faults.union(&record.faults).cloned().collect();
        Crashed { disk, known, depth: before.depth + 1, nested: before.nested, chain, faults, context }
    }

    /// Runs the database after a crash, and crashes it again up to the planned depth. Sometimes
    /// opens the last disk once more.
    fn continue_after(&mut self, crashed: Crashed) {
        let deepest = if crashed.nested { NESTED_DEPTH } else { self.config.depth };
        let last = crashed.depth >= deepest;
        let same = self.random.chance(1, 4);
        let settings =
            if same { self.config.settings.clone() } else { self.config.other_protocol(&mut self.random) };
        let fault = if last || self.random.chance(7, 8) {
            PlannedFault::None
        } else {
            PlannedFault::any_tolerable(&mut self.random)
        };
        let seed = self.random.next_u64();
        let fault = if last { fault } else { fault.or_in_process(seed, 8) };
        let script = Script {
            seed,
            settings,
            tight: self.config.tight,
            number: crashed.depth as u8,
            threads: if last { 0 } else { 1 + self.random.below(2) as u8 },
            each: 1 + self.random.below(4) as u8,
            kinds: self.config.kinds,
            fault,
            threads_end_early: self.random.chance(1, 12),
            checkpoint_odds: if crashed.nested { 24 } else { 6 },
            known: crashed.known.clone(),
            close: last && self.random.chance(1, 2),
            judged: true,
            trace: Trace::default(),
            context: crashed.context.clone(),
        };
        let record = self.execute(&crashed.disk, script.clone());
        self.figures.note_pairs(&crashed.faults, &record.faults);
        if let (Some(error), true) = (&record.refused, fault.allows_work()) {
            panic!("{}: {error}", crashed.context);
        }
        if !last {
            let next = self.crash(&crashed.disk, &record, &crashed, Judged::Yes);
            return self.continue_after(next);
        }
        if self.random.chance(1, 8) {
            let next = self.crash(&crashed.disk, &record, &crashed, Judged::No);
            return self.break_promises(next, script);
        }
        if self.random.chance(1, 4) {
            let end = crashed.disk.operations();
            let again = crashed.disk.crash(CrashKind::PowerCut, end, self.random.next_u64());
            // Nothing has happened since the end of the run, so this counts as no crash.
            self.figures.passed("opened again", 1);
            let context = format!("{}; opened again", crashed.context);
            let script = Script { seed: self.random.next_u64(), context, trace: Trace::default(), ..script };
            let second = self.execute(&again, script);
            assert!(second.refused.is_none(), "{}, opened again: {:?}", crashed.context, second.refused);
            assert!(second.found == record.found, "{}: opening again finds other rows", crashed.context);
        }
    }

    /// Runs on a device that breaks a promise, perhaps then with other faults, and once without
    /// any.
    fn break_promises(&mut self, mut crashed: Crashed, script: Script) {
        let mut fault = PlannedFault::any_broken_promise(&mut self.random);
        let deepest = crashed.depth + BROKEN_RUNS_MAX;
        while !matches!(fault, PlannedFault::None) {
            let script = Script {
                seed: self.random.next_u64(),
                number: crashed.depth as u8,
                threads: 2,
                each: 6,
                fault,
                known: crashed.known.clone(),
                judged: false,
                close: self.random.chance(1, 2),
                context: format!("{}; {fault:?}", crashed.context),
                trace: Trace::default(),
                ..script.clone()
            };
            let record = self.execute(&crashed.disk, script);
            self.figures.note_pairs(&crashed.faults, &record.faults);
            crashed = self.crash(&crashed.disk, &record, &crashed, Judged::No);
            fault = match self.random.below(5) {
                _ if crashed.depth == deepest => PlannedFault::None,
                0 => PlannedFault::any_broken_promise(&mut self.random),
                1 => PlannedFault::any_tolerable(&mut self.random),
                2 => PlannedFault::None.or_in_process(self.random.next_u64(), 1),
                _ => PlannedFault::None,
            };
        }
        let after = Script {
            seed: self.random.next_u64(),
            number: crashed.depth as u8,
            fault,
            known: crashed.known.clone(),
            judged: false,
            context: crashed.context.clone(),
            trace: Trace::default(),
            ..script
        };
        let record = self.execute(&crashed.disk, after);
        let outcome = if record.refused.is_some() { "refused" } else { "opened" };
        self.figures.passed(&format!("{outcome} after a broken promise"), 1);
    }
}
