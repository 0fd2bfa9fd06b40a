//! The scorecard: a row for each measure, with its figure, its target, and whether the target is
//! met.
//!
//! One round runs some thousand seeds, and then each test of another package that has a measure of
//! its own. A long run repeats whatever is furthest from its target until its time is over, and can
//! continue an earlier run.

use crate::cargo;
use crate::figures::{DEEP_ORDERS, Figures};
use crate::objects;
use crate::processes::{self, Batch, Failure};
use crate::suites::{Outcome, SUITES, Suite};
use anyhow::{Context, Result};
use quenchdb::internals::device::simulated::EVENT_NAMES;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The options of a scorecard.
#[derive(Clone, Debug)]
pub struct Options {
    /// Minutes of a long run; None for one round.
    pub minutes: Option<u64>,
    pub first_seed: u64,
    /// Seeds at a time.
    pub seeds: u64,
    pub points: u64,
    pub processes: usize,
    /// Leaves out the tests of other packages.
    pub simulation_only: bool,
    /// File that keeps the totals for a later run.
    pub record: Option<PathBuf>,
}

impl Options {
    fn suites(&self) -> &'static [Suite] {
        if self.simulation_only { &[] } else { SUITES }
    }
}

/// One measure, with a lower bound as its target, or an upper bound if it says so.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub measure: &'static str,
    pub figure: u64,
    pub target: u64,
    pub met: bool,
}

/// The totals from which the rows are made.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Totals {
    pub seconds: f64,
    /// Minutes for each commit that was run.
    #[serde(default)]
    pub commits: BTreeMap<String, f64>,
    /// The first seed that has not run.
    pub next_seed: u64,
    /// Figures of the simulation.
    pub figures: Figures,
    /// Figures of tests of other packages.
    pub suites: BTreeMap<String, u64>,
    /// Number of runs of each suite.
    pub runs: BTreeMap<String, u64>,
    /// Number of seeds that ran twice without a difference.
    pub twice: u64,
    /// Number of failed seeds.
    #[serde(default)]
    pub failed_seeds: u64,
    /// Number of failed seeds that failed again in the same way.
    #[serde(default)]
    pub replayed: u64,
    /// Tests that failed, and passed when they ran again.
    #[serde(default)]
    pub flaky: u64,
    /// Failed seeds and tests, with their output.
    pub failed: Vec<(String, String)>,
    /// Skipped tests, and what the machine lacks.
    #[serde(default)]
    pub skipped: BTreeSet<String>,
}

/// The whole scorecard.
#[derive(Clone, Debug, Serialize)]
pub struct Scorecard {
    pub rows: Vec<Row>,
    #[serde(flatten)]
    pub totals: Totals,
}

/// Number of a round's seeds that run twice.
const TWICE: u64 = 50;
/// Target for the seeds of a long run.
const LONG_SEEDS: u64 = 100_000;
/// Target for the seeds of a round; the crash test adds the rest of the 100,000 power cuts.
const SIMULATED_CUTS: u64 = 50_000;
/// Targets of a round, which runs for each change.
const SHORT_MINUTES: u64 = 20;
/// Targets of a long run, of two hours or more.
const LONG_MINUTES: u64 = 120;
/// Distance between the first seeds of two runs of a suite: more than one run uses.
const SEEDS_OF_A_SUITE: u64 = 100_000;
/// Kinds of faults outside of the device: see `run`.
const OTHER_FAULTS: u64 = 6;

impl Totals {
    fn of(options: &Options) -> Result<Totals> {
        let fresh = Totals { next_seed: options.first_seed, ..Totals::default() };
        match &options.record {
            Some(path) if path.exists() => {
                let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
                serde_json::from_slice(&text).with_context(|| {
                    format!("{} is no record of a scorecard; name another file, or remove it", path.display())
                })
            }
            _ => Ok(fresh),
        }
    }

    /// Chooses the next part of a long run: a suite or seeds, whichever is furthest from its
    /// target.
    fn furthest_behind(&self, options: &Options) -> Option<Suite> {
        let mut most = (self.figures.seeds as f64 / LONG_SEEDS as f64, None);
        for suite in options.suites().iter() {
            let share = match suite.long {
                Some(target) => self.count(suite.figure) as f64 / target as f64,
                None if self.runs.contains_key(suite.name) => f64::INFINITY,
                None => 0.0,
            };
            if share < most.0 {
                most = (share, Some(*suite));
            }
        }
        most.1
    }

    /// Returns a figure of the suites plus the simulation's.
    fn count(&self, figure: &str) -> u64 {
        let simulated = match figure {
            "power_cuts" => self.figures.power_cuts,
            "simulated_kills" => self.figures.kills,
            "judged" => self.figures.judged,
            _ => 0,
        };
        self.suites.get(figure).copied().unwrap_or(0) + simulated
    }

    fn save(&self, path: &Path) -> Result<()> {
        let new = path.with_extension("new");
        let written = std::fs::write(&new, serde_json::to_string_pretty(self)?);
        written
            .and_then(|()| std::fs::rename(&new, path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Runs seeds on a disk, some on a store of objects, some in several buckets, some with a
    /// standby, and some over streams.
    fn simulate(&mut self, options: &Options, until: Option<Instant>) -> Result<()> {
        let seeds = self.next_seed..self.next_seed + options.seeds;
        self.next_seed = seeds.end;
        self.simulate_seeds(seeds.clone(), options, until)?;
        self.simulate_seeds(objects::seeds_beside(&seeds), options, until)?;
        self.simulate_seeds(objects::several_beside(&seeds), options, until)?;
        self.simulate_seeds(objects::followed_beside(&seeds), options, until)?;
        self.simulate_seeds(objects::streamed_beside(&seeds), options, until)
    }

    /// Runs seeds, the first of them twice.
    fn simulate_seeds(&mut self, seeds: Range<u64>, options: &Options, until: Option<Instant>) -> Result<()> {
        let batch = Batch {
            seeds,
            until,
            processes: options.processes,
            twice: TWICE,
            points: options.points,
            patience: Duration::from_secs(120),
            planted: None,
            interrupts: true,
        };
        let done = processes::run(&batch)?;
        self.figures.merge(&done.figures);
        self.twice += done.twice;
        self.note_failures(done.failures);
        Ok(())
    }

    fn note_failures(&mut self, failures: Vec<Failure>) {
        self.failed_seeds += failures.len() as u64;
        self.replayed += failures.iter().filter(|failure| failure.replays).count() as u64;
        let named = |Failure { seed, said, .. }| (format!("seed {seed} (quench-sim replay {seed})"), said);
        self.failed.extend(failures.into_iter().map(named));
    }

    /// Runs a suite; a failed one runs again from the same seed.
    fn test(&mut self, suite: &Suite) -> Result<()> {
        let runs = self.runs.entry(suite.name.into()).or_default();
        let first_seed = 1 + *runs * SEEDS_OF_A_SUITE;
        let outcome = suite.run(first_seed)?;
        *runs += 1;
        let again = if outcome.failure.is_some() { Some(suite.run(first_seed)?) } else { None };
        self.note_outcome(suite.name, outcome, again.as_ref());
        Ok(())
    }

    /// Adds the report of a suite, and of its second run if it failed. A suite that fails once has
    /// failed.
    fn note_outcome(&mut self, suite: &str, outcome: Outcome, again: Option<&Outcome>) {
        self.flaky += u64::from(again.is_some_and(|again| again.failure.is_none()));
        for (what, count) in outcome.figures {
            *self.suites.entry(what).or_default() += count;
        }
        self.skipped.extend(outcome.skipped);
        self.failed.extend(outcome.failure.map(|said| (suite.to_string(), said)));
    }

    fn one_round(&mut self, options: &Options) -> Result<()> {
        self.simulate(options, None)?;
        options.suites().iter().try_for_each(|suite| self.test(suite))
    }

    fn rows(&self, options: &Options) -> Vec<Row> {
        let figures = &self.figures;
        let is_long = options.minutes.is_some();
        let at_least = |measure, figure, (short, long)| {
            let target = if is_long { long } else { short };
            Row { measure, figure, target, met: figure >= target }
        };
        let at_most = |measure, figure, target| Row { measure, figure, target, met: figure <= target };
        let long = |figure| SUITES.iter().find(|suite| suite.figure == figure).and_then(|suite| suite.long);
        let of_suites = |measure, figure, short| {
            at_least(measure, self.count(figure), (short, long(figure).unwrap_or(short)))
        };
        let from =
            |depth: u64, by_depth: &BTreeMap<u64, u64>| by_depth.range(depth..).map(|(_, count)| count).sum();
        let (recovery, checkpoint) = (&figures.in_recovery, &figures.in_checkpoint);
        let of_path = |path| figures.paths.get(path).copied().unwrap_or(0);
        let each_pair = figures.protocols.values().copied().min().unwrap_or(0);
        let kinds = EVENT_NAMES.len() as u64 + OTHER_FAULTS;
        let power_cuts = if options.simulation_only { SIMULATED_CUTS } else { 100_000 };
        let mut rows = vec![
            of_suites("simulated power cuts", "power_cuts", power_cuts),
            // Counted apart, not added.
            of_suites("simulated kills", "simulated_kills", 0),
            at_least("seeds with random configuration", figures.seeds, (2_000, LONG_SEEDS)),
            at_least("kinds of faults that fired", figures.happenings.len() as u64, (24, kinds)),
            at_least("pairs of kinds, one in a later run", figures.pairs.len() as u64, (500, kinds * kinds)),
            at_least("crashes inside recovery", from(1, recovery), (5_000, 250_000)),
            at_least("crashes in recovery, depth 2 or more", from(2, recovery), (5_000, 250_000)),
            at_least("crashes in recovery, depth 3 or more", from(3, recovery), (2_000, 250_000)),
            at_least("crashes inside a checkpoint", from(1, checkpoint), (5_000, 250_000)),
            at_least("crashes in a checkpoint, depth 2 or more", from(2, checkpoint), (5_000, 250_000)),
            at_least("crashes in a checkpoint, depth 3 or more", from(3, checkpoint), (2_000, 250_000)),
            at_least("orders of place and kind, three deep", figures.deep_orders(), (200, DEEP_ORDERS)),
            at_least("crashes of devices that break promises", figures.crashes_unjudged, (500, 25_000)),
            at_least("crashes of stores of objects", of_path(objects::CRASHES), (5_000, 250_000)),
            at_least("troubles of one of several buckets", of_path(objects::TROUBLES), (100, 5_000)),
            at_least("snapshots of standbys", of_path(objects::SNAPSHOTS), (20_000, 1_000_000)),
            at_least("promotions of standbys", of_path(objects::PROMOTIONS), (100, 5_000)),
            at_least("takeovers beside a live writer", of_path(objects::TAKEOVERS), (1_000, 50_000)),
            at_least("faults of requests to objects", of_path(objects::FAULTS), (50_000, 2_500_000)),
            at_least("pairs of preset and rule", figures.protocols.len() as u64, (48, 48)),
            at_least("crashes of each of these pairs", each_pair, (500, 20_000)),
            at_least("seeds that went the same way twice", self.twice, (TWICE.min(options.seeds), TWICE)),
        ];
        if !options.simulation_only {
            let planted = self.count("planted").max(40);
            rows.extend([
                of_suites("SIGKILLs of the real program", "kills", 300),
                of_suites("transactions judged for isolation", "judged", 4_000_000),
                of_suites("states of the model", "model_states", 5_000_000),
                of_suites("planted bugs caught", "planted_caught", planted),
            ]);
        }
        rows.push(at_most("seeds and tests that failed", self.failed.len() as u64, 0));
        let all = self.failed_seeds;
        rows.push(at_least("failing seeds that replay exactly", self.replayed, (all, all)));
        if !options.simulation_only {
            rows.push(at_most("flaky tests", self.flaky, 0));
        }
        let minutes = (self.seconds / 60.0).ceil() as u64;
        rows.push(if is_long {
            at_least("minutes of all runs", minutes, (LONG_MINUTES, LONG_MINUTES))
        } else {
            at_most("minutes of this run, at most", minutes, SHORT_MINUTES)
        });
        rows
    }
}

impl Scorecard {
    /// Runs everything.
    ///
    /// # Errors
    /// This program cannot be started again; cargo is missing; the record cannot be read or
    /// written.
    pub fn make(options: &Options) -> Result<Scorecard> {
        let (begun, mut totals) = (Instant::now(), Totals::of(options)?);
        let (commit, before) = (cargo::commit(), totals.seconds);
        let of_commit = totals.commits.get(&commit).copied().unwrap_or(0.0);
        let until = options.minutes.map(|minutes| begun + Duration::from_secs(60 * minutes));
        loop {
            match (until, totals.furthest_behind(options)) {
                (None, _) => totals.one_round(options)?,
                (_, Some(suite)) => totals.test(&suite)?,
                (_, None) => totals.simulate(options, until)?,
            }
            let seconds = begun.elapsed().as_secs_f64();
            totals.seconds = before + seconds;
            totals.commits.insert(commit.clone(), of_commit + seconds);
            if let Some(path) = &options.record {
                totals.save(path)?;
            }
            if until.is_none_or(|until| Instant::now() > until) {
                return Ok(Scorecard { rows: totals.rows(options), totals });
            }
        }
    }

    /// Returns true if every target is met.
    #[must_use]
    pub fn is_met(&self) -> bool {
        self.rows.iter().all(|row| row.met)
    }

    /// Returns the table for people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!("{:<44}{:>12}{:>12}\n", "measure", "figure", "target");
        for row in &self.rows {
            let verdict = if row.met { "" } else { "  missed" };
            text += &format!("{:<44}{:>12}{:>12}{verdict}\n", row.measure, row.figure, row.target);
        }
        let figures = &self.totals.figures;
        for (what, counts) in [("faults", &figures.happenings), ("paths", &figures.paths)] {
            let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
            text += &format!("\n{what}: {}\n", counts.join(", "));
        }
        let Figures { runs, transactions, acknowledged, decisions, switches, .. } = figures;
        text += &format!(
            "\n{runs} runs, {transactions} transactions, {acknowledged} acknowledged; {decisions} decisions of the scheduler, {switches} switches; \
             {:.0} s\n",
            self.totals.seconds
        );
        for (commit, seconds) in &self.totals.commits {
            text += &format!("commit {commit}: {:.0} minutes\n", seconds / 60.0);
        }
        for (what, said) in &self.totals.failed {
            text += &format!("\n{what}: {said}\n");
        }
        for what in &self.totals.skipped {
            text += &format!("\nnot run here: {what}\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        let (minutes, record) = (Some(1), None);
        Options { minutes, first_seed: 1, seeds: 10, points: 1, processes: 1, simulation_only: false, record }
    }

    #[test]
    fn a_long_run_continues_with_the_measure_furthest_from_target() {
        let next = |totals: &Totals| totals.furthest_behind(&options()).map(|suite| suite.name);
        let mut totals = Totals::default();
        assert_eq!(next(&totals), None, "seeds");
        totals.figures.seeds = 10_000;
        assert_eq!(next(&totals), Some("crashes"));
        // Power cuts of the simulation count, kills do not.
        totals.figures.kills = 600_000;
        assert_eq!(next(&totals), Some("crashes"));
        totals.figures.power_cuts = 600_000;
        assert_eq!(next(&totals), Some("isolation"));
        totals.suites.insert("judged".into(), 20_000_000);
        assert_eq!(next(&totals), Some("real kills"));
        totals.suites.insert("kills".into(), 5_000);
        assert_eq!(next(&totals), Some("model"));
        totals.runs = [("model".to_string(), 1), ("planted bugs".to_string(), 1)].into();
        assert_eq!(next(&totals), None, "a suite without a target runs once");
        totals.figures.seeds = 15_000;
        assert_eq!(next(&totals), Some("crashes"));
        assert_eq!(
            totals.furthest_behind(&Options { simulation_only: true, ..options() }).map(|suite| suite.name),
            None
        );
    }

    #[test]
    fn skipped_tests_and_commits_are_listed() {
        let skipped = BTreeSet::from(["a: there is no strace".to_string()]);
        let commits = BTreeMap::from([("ed3c81d".to_string(), 120.0)]);
        let totals = Totals { skipped, commits, ..Totals::default() };
        let scorecard = Scorecard { rows: totals.rows(&options()), totals };
        assert!(scorecard.table().contains("not run here: a: there is no strace"), "{}", scorecard.table());
        assert!(scorecard.table().contains("commit ed3c81d: 2 minutes"), "{}", scorecard.table());
    }

    #[test]
    fn a_record_is_continued() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("soak.json");
        let totals = Totals { seconds: 60.0, next_seed: 2_001, twice: 50, ..Totals::default() };
        totals.save(&path).expect("it is written");
        let options = Options { record: Some(path.clone()), ..options() };
        let again = Totals::of(&options).expect("it is read");
        assert_eq!((again.seconds, again.next_seed, again.twice), (60.0, 2_001, 50));
        std::fs::write(&path, "{}").expect("written");
        let error = Totals::of(&options).expect_err("no record");
        assert!(error.to_string().contains("soak.json"), "{error}");
    }

    /// An old record called a partly executed write "interrupted", and still does.
    #[test]
    fn an_older_record_with_fewer_kinds_of_faults_is_continued() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("soak.json");
        let mut totals = Totals::default();
        totals.figures.happened("interrupted", 3);
        totals.figures.note_pairs(&["interrupted".into()].into(), &["kill".into()].into());
        totals.save(&path).expect("it is written");
        let options = Options { record: Some(path), ..options() };
        let mut again = Totals::of(&options).expect("it is read");
        again.figures.happened("try again", 1);
        again.figures.happened("interrupted", 1);
        let kinds = row(&again, &options, "kinds of faults that fired");
        assert_eq!((again.figures.happenings["interrupted"], kinds.figure, kinds.target), (4, 2, 37));
        let pairs = row(&again, &options, "pairs of kinds, one in a later run");
        assert_eq!((pairs.figure, pairs.target), (1, 1_369));
        let known = |name: &str| EVENT_NAMES.contains(&name);
        assert!(again.figures.happenings.keys().all(|name| known(name)), "counted as a kind that is none");
    }

    fn row(totals: &Totals, options: &Options, measure: &str) -> Row {
        totals.rows(options).into_iter().find(|row| row.measure == measure).expect(measure)
    }

    fn short() -> Options {
        Options { minutes: None, ..options() }
    }

    #[test]
    fn power_cuts_are_counted_apart_from_kills() {
        let mut totals = Totals::default();
        totals.figures.kills = 1_000_000;
        totals.suites.insert("simulated_kills".into(), 5);
        totals.figures.power_cuts = 30_000;
        totals.suites.insert("power_cuts".into(), 69_999);
        let power_cuts = |totals: &Totals, options: &Options| row(totals, options, "simulated power cuts");
        assert_eq!(power_cuts(&totals, &short()).figure, 99_999);
        assert!(!power_cuts(&totals, &short()).met);
        assert_eq!(row(&totals, &short(), "simulated kills").figure, 1_000_005);
        totals.figures.power_cuts += 1;
        assert!(power_cuts(&totals, &short()).met);
        assert_eq!(power_cuts(&totals, &options()).target, 5_000_000);
        assert!(!power_cuts(&totals, &options()).met);
    }

    #[test]
    fn crashes_that_are_not_deep_enough_are_not_enough() {
        let mut totals = Totals::default();
        totals.figures.in_recovery = [(1, 4_000), (2, 3_000), (3, 1_000), (4, 1_000)].into();
        totals.figures.in_checkpoint = [(1, 1_000_000)].into();
        let rows = totals.rows(&short());
        let deep = |from: &str| {
            let at = rows.iter().position(|row| row.measure == from).expect(from);
            rows[at..at + 3].iter().map(|row| (row.figure, row.met)).collect::<Vec<_>>()
        };
        assert_eq!(deep("crashes inside recovery"), [(9_000, true), (5_000, true), (2_000, true)]);
        assert_eq!(deep("crashes inside a checkpoint"), [(1_000_000, true), (0, false), (0, false)]);
        assert_eq!(row(&totals, &options(), "orders of place and kind, three deep").target, 216);
    }

    #[test]
    fn failing_seeds_must_repeat_and_count_as_failed() {
        let replay = |totals: &Totals| row(totals, &short(), "failing seeds that replay exactly");
        let mut totals = Totals::default();
        assert_eq!((replay(&totals).figure, replay(&totals).target, replay(&totals).met), (0, 0, true));
        let failure = |replays| Failure { seed: 7, said: "lost".into(), replays };
        totals.note_failures(vec![failure(true)]);
        assert_eq!((replay(&totals).figure, replay(&totals).target, replay(&totals).met), (1, 1, true));
        assert!(!row(&totals, &short(), "seeds and tests that failed").met);
        totals.note_failures(vec![failure(false)]);
        assert_eq!((replay(&totals).figure, replay(&totals).target, replay(&totals).met), (1, 2, false));
    }

    #[test]
    fn a_test_that_fails_only_once_is_flaky_and_has_failed() {
        let outcome = |failure: Option<&str>| Outcome {
            figures: [("power_cuts".into(), 3)].into(),
            skipped: BTreeSet::new(),
            failure: failure.map(Into::into),
        };
        let options = Options { simulation_only: false, ..short() };
        let flaky = |totals: &Totals| {
            let row = |measure| row(totals, &options, measure).figure;
            (row("flaky tests"), row("seeds and tests that failed"), row("simulated power cuts"))
        };
        let mut totals = Totals::default();
        totals.note_outcome("crashes", outcome(None), None);
        assert_eq!(flaky(&totals), (0, 0, 3));
        totals.note_outcome("crashes", outcome(Some("lost")), Some(&outcome(Some("lost"))));
        assert_eq!(flaky(&totals), (0, 1, 6));
        totals.note_outcome("crashes", outcome(Some("lost")), Some(&outcome(None)));
        assert_eq!(flaky(&totals), (1, 2, 9));
        assert!(!row(&totals, &options, "flaky tests").met);
    }

    #[test]
    fn a_round_is_not_too_long_and_a_long_run_not_too_short() {
        let mut totals = Totals { seconds: 1_200.0, ..Totals::default() };
        let at_most = |totals: &Totals| row(totals, &short(), "minutes of this run, at most");
        let at_least = |totals: &Totals| row(totals, &options(), "minutes of all runs");
        assert!(at_most(&totals).met && !at_least(&totals).met);
        totals.seconds = 7_200.0;
        assert!(!at_most(&totals).met && at_least(&totals).met);
    }
}
