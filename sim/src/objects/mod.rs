//! The history of one seed of a database in a store of objects: a first run, crashed between many
//! pairs of changes of the store. Further runs and crashes follow each crash.
//!
//! A crash ends all machines. Nothing of them is left: the next run has another client, and what
//! the store has. Requests that were in flight take effect then, later, or never. In some runs a
//! second machine takes the database over while the first one works. In some seeds a standby
//! follows, and the second machine promotes one. In some seeds the log's objects take appends over
//! streams, which a store may fail to revoke.
//!
//! Threads do not panic here: a panic inside the device may leave a write without an outcome.

mod zones;
mod config;
mod standby;
mod run;

use crate::config::PlannedFault;
use crate::figures::Figures;
use crate::history::{Printer, run_and_print, say};
use crate::known::Known;
use crate::run::{RunRecord, Script};
use crate::trace::Trace;
use config::ObjectsConfig;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::objects::simulated::SimulatedStore;
pub use run::{FAULTS, TAKEOVERS, TROUBLES};
use run::{Takeover, execute};
pub use standby::{PROMOTIONS, SNAPSHOTS};
use std::ops::Range;

/// Seeds from this one on run on a store of objects.
pub const FIRST_SEED: u64 = 1_000_000_000;
/// Seeds from this one on run in three buckets.
pub const SEVERAL_SEED: u64 = 2_000_000_000;
/// Seeds from this one on have a standby: the even ones in a bucket, the odd ones in three.
pub const FOLLOWED_SEED: u64 = 3_000_000_000;
/// Seeds from this one on run on a store whose log objects take appends over streams; the odd ones
/// have a standby.
pub const STREAMED_SEED: u64 = 4_000_000_000;
/// For this many seeds on a disk one runs on a store of objects, in several buckets, with a
/// standby, or over streams.
const SEEDS_ON_A_DISK: u64 = 8;
const SEEDS_IN_ONE: u64 = 32;
/// The figure of crashes.
pub const CRASHES: &str = "crashes of all machines of a store";
/// Changes printed before and after a crash.
const SHOWN: usize = 6;

/// Returns the seeds on a store of objects that go with seeds on a disk.
pub fn seeds_beside(seeds: &Range<u64>) -> Range<u64> {
    FIRST_SEED + seeds.start / SEEDS_ON_A_DISK..FIRST_SEED + seeds.end / SEEDS_ON_A_DISK
}

/// Returns the seeds in several buckets that go with seeds on a disk.
pub fn several_beside(seeds: &Range<u64>) -> Range<u64> {
    SEVERAL_SEED + seeds.start / SEEDS_IN_ONE..SEVERAL_SEED + seeds.end / SEEDS_IN_ONE
}

/// Returns the seeds with a standby that go with seeds on a disk.
pub fn followed_beside(seeds: &Range<u64>) -> Range<u64> {
    FOLLOWED_SEED + seeds.start / SEEDS_IN_ONE..FOLLOWED_SEED + seeds.end / SEEDS_IN_ONE
}

/// Returns the seeds over streams that go with seeds on a disk.
pub fn streamed_beside(seeds: &Range<u64>) -> Range<u64> {
    STREAMED_SEED + seeds.start / SEEDS_IN_ONE..STREAMED_SEED + seeds.end / SEEDS_IN_ONE
}

/// Runs a seed, with `points` crashes of its first run.
///
/// # Panics
/// If something was lost or broken; the message says what.
pub fn run(seed: u64, points: u64, printer: Printer<'_>) -> Figures {
    let config = ObjectsConfig::of(seed, points);
    let random = Random::from_seed(seed.wrapping_mul(0x9e37));
    let figures = Figures { seeds: 1, ..Figures::default() };
    let mut history = History { config, random, figures, printer };
    say(&mut history.printer, || format!("{:?}", history.config));
    history.run();
    history.figures
}

struct History<'a> {
    config: ObjectsConfig,
    random: Random,
    figures: Figures,
    printer: Printer<'a>,
}

/// A store after a crash, with the knowledge about its content.
struct Crashed {
    store: SimulatedStore,
    known: Known,
    depth: u64,
    context: String,
}

impl History<'_> {
    fn run(&mut self) {
        let base = self.config.base.clone();
        let store = SimulatedStore::with(self.config.store.clone());
        let script = Script {
            seed: self.random.next_u64(),
            settings: base.settings,
            tight: base.tight,
            number: 0,
            threads: base.threads,
            each: base.each,
            kinds: base.kinds,
            fault: base.fault,
            threads_end_early: base.threads_end_early,
            checkpoint_odds: 3,
            known: Known::default(),
            close: self.random.chance(1, 4),
            judged: true,
            trace: Trace::default(),
            context: format!("seed {}, first run", base.seed),
        };
        let known = Known::default();
        let records = self.execute(&store, script);
        for point in 0..base.points {
            let context = format!("seed {}, point {point}", base.seed);
            let crashed = self.crash(&store, &records, &known, 0, &context);
            self.continue_after(crashed);
        }
    }

    /// Executes a run, perhaps with a takeover.
    fn execute(&mut self, store: &SimulatedStore, mut script: Script) -> Vec<RunRecord> {
        let is_taken_over =
            matches!(script.fault, PlannedFault::None) && script.threads > 0 && self.random.chance(1, 3);
        let takeover = is_taken_over.then(|| {
            script.fault = PlannedFault::Takeover;
            let settings = self.config.other_protocol(&mut self.random);
            let takeover = Takeover::any(&script, settings, &mut self.random);
            let promotes = self.config.is_followed && takeover.script.seed.is_multiple_of(2);
            Takeover { promotes, ..takeover }
        });
        say(&mut self.printer, || format!("run: {script:?}\n{takeover:?}"));
        let trace = script.trace.clone();
        run_and_print(&mut self.printer, &trace, store, || {
            execute(store, &self.config, script, takeover, &mut self.figures)
        })
    }

    /// Chooses after how many changes a run ends: inside its recovery or a checkpoint, or anywhere.
    fn end_of(&mut self, store: &SimulatedStore, records: &[RunRecord], depth: u64) -> usize {
        let (end, random) = (store.changes(), &mut self.random);
        let opened: Vec<usize> = records.iter().filter_map(|record| record.opened_at).collect();
        let checkpoints: Vec<_> =
            records.iter().flat_map(|record| &record.checkpoints).filter(|range| !range.is_empty()).collect();
        match random.below(6) {
            0 if depth > 0 && opened.first().is_some_and(|at| *at > 0) => {
                random.below(opened[0] as u64 + 1) as usize
            }
            1 if !checkpoints.is_empty() => {
                let range = checkpoints[random.below(checkpoints.len() as u64) as usize];
                range.start + random.below(range.len() as u64) as usize
            }
            // Around the claim of the second machine.
            2 if opened.len() > 1 => opened[1].saturating_sub(random.below(8) as usize),
            3 => end,
            _ => random.below(end as u64 + 1) as usize,
        }
    }

    /// Ends all machines of a run.
    fn crash(
        &mut self,
        store: &SimulatedStore,
        records: &[RunRecord],
        before: &Known,
        depth: u64,
        context: &str,
    ) -> Crashed {
        let (at, end) = (self.end_of(store, records, depth), store.changes());
        let context = format!("{context}; crash after {at} of {end} changes");
        say(&mut self.printer, || {
            let around = at.saturating_sub(SHOWN)..end.min(at + SHOWN);
            let lines = records[0].trace.lines(store, around, Some((at, "crash".into())));
            format!("{context}\n{}", lines.join("\n"))
        });
        self.figures.passed(CRASHES, 1);
        let known = records.iter().fold(before.clone(), |known, record| known.after(record, at));
        let store = store.crash(at, self.random.next_u64());
        Crashed { store, known, depth: depth + 1, context }
    }

    /// Runs the database after a crash, and crashes it again up to the planned depth. Sometimes
    /// opens the last store once more.
    fn continue_after(&mut self, crashed: Crashed) {
        let Crashed { store, known, depth, context } = crashed;
        let base = self.config.base.clone();
        let last = depth >= base.depth;
        let same = self.random.chance(1, 4);
        let settings = if same { base.settings } else { self.config.other_protocol(&mut self.random) };
        let seed = self.random.next_u64();
        let script = Script {
            seed,
            settings,
            tight: base.tight,
            // A takeover has a number of its own.
            number: 2 * depth as u8,
            threads: if last { 0 } else { 1 + self.random.below(2) as u8 },
            each: 1 + self.random.below(4) as u8,
            kinds: base.kinds,
            fault: PlannedFault::None,
            threads_end_early: self.random.chance(1, 12),
            checkpoint_odds: 6,
            known: known.clone(),
            close: last && self.random.chance(1, 2),
            judged: true,
            trace: Trace::default(),
            context: context.clone(),
        };
        let records = self.execute(&store, script.clone());
        if !last {
            let next = self.crash(&store, &records, &known, depth, &context);
            return self.continue_after(next);
        }
        if self.random.chance(1, 4) {
            let again = store.crash(store.changes(), self.random.next_u64());
            self.figures.passed("opened again", 1);
            let context = format!("{context}; opened again");
            let script = Script {
                seed: self.random.next_u64(),
                context: context.clone(),
                trace: Trace::default(),
                ..script
            };
            let second = self.execute(&again, script);
            assert!(second[0].found == records[0].found, "{context}: opening again finds other rows");
        }
    }
}
