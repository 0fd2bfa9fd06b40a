//! The scorecard: a row for each measure, with its figure, what it should be, and whether it is.
//!
//! One round is what a run in CI does: some thousand seeds, then each test of other packages that has a measure of its own. A long run goes
//! on until its time is over, each time with what is furthest from its target, and can go on where an earlier one ended.

use crate::figures::Figures;
use crate::many::{self, Failure, Wanted};
use crate::suites::{SUITES, Suite};
use anyhow::{Context, Result};
use quenchdb::device::simulated::HAPPENINGS;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// On and on until this time is over; without it one round.
    pub minutes: Option<u64>,
    pub first_seed: u64,
    /// At a time.
    pub seeds: u64,
    pub points: u64,
    pub processes: usize,
    /// Without the tests of other packages.
    pub simulation_only: bool,
    /// Where the sums are kept, and gone on with.
    pub record: Option<PathBuf>,
}

impl Asked {
    fn suites(&self) -> &'static [Suite] {
        if self.simulation_only { &[] } else { SUITES }
    }
}

/// One measure.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub measure: &'static str,
    pub figure: u64,
    pub target: u64,
    pub met: bool,
}

/// What was done, of which the rows are made.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sums {
    pub seconds: f64,
    /// The first that has not been run.
    pub next_seed: u64,
    /// Of the simulation.
    pub figures: Figures,
    /// Of tests of other packages.
    pub suites: BTreeMap<String, u64>,
    /// How often each of them was run.
    pub runs: BTreeMap<String, u64>,
    /// Seeds that were run twice, and went the same way.
    pub twice: u64,
    /// Seeds and tests that failed, with what they said.
    pub failed: Vec<(String, String)>,
    /// Tests that were left out, because this machine lacks something, and why.
    #[serde(default)]
    pub skipped: BTreeSet<String>,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Scorecard {
    pub rows: Vec<Row>,
    #[serde(flatten)]
    pub sums: Sums,
}

/// Of the seeds of a round so many are run twice.
const TWICE: u64 = 50;
/// Seeds of a long run.
const LONG_SEEDS: u64 = 100_000;
/// Between the first seeds of two runs of a suite: more than it takes in one.
const SEEDS_OF_A_SUITE: u64 = 100_000;
/// Faults that the device knows nothing of: see `life`.
const OTHER_FAULTS: u64 = 6;

impl Sums {
    fn of(asked: &Asked) -> Result<Sums> {
        let fresh = Sums { next_seed: asked.first_seed, ..Sums::default() };
        match &asked.record {
            Some(path) if path.exists() => {
                let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
                serde_json::from_slice(&text).with_context(|| {
                    format!("{} is no record of a scorecard; name another file, or remove it", path.display())
                })
            }
            _ => Ok(fresh),
        }
    }

    /// What a long run goes on with: a suite, or seeds, whichever is furthest from its target.
    fn most_behind(&self, asked: &Asked) -> Option<Suite> {
        let mut most = (self.figures.seeds as f64 / LONG_SEEDS as f64, None);
        for suite in asked.suites().iter() {
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

    /// A figure of the suites, with what the simulation adds to it.
    fn count(&self, figure: &str) -> u64 {
        let simulated = match figure {
            "crashes" => self.figures.power_cuts + self.figures.kills,
            "judged" => self.figures.judged,
            _ => 0,
        };
        self.suites.get(figure).copied().unwrap_or(0) + simulated
    }

    fn keep(&self, path: &Path) -> Result<()> {
        let new = path.with_extension("new");
        let written = std::fs::write(&new, serde_json::to_string_pretty(self)?);
        written
            .and_then(|()| std::fs::rename(&new, path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Seeds, the first of them twice.
    fn simulate(&mut self, asked: &Asked, until: Option<Instant>) -> Result<()> {
        let wanted = Wanted {
            seeds: self.next_seed..self.next_seed + asked.seeds,
            until,
            processes: asked.processes,
            twice: TWICE,
            points: asked.points,
            patience: Duration::from_secs(120),
            planted: None,
        };
        let done = many::run(&wanted)?;
        self.next_seed = wanted.seeds.end;
        self.figures.merge(&done.figures);
        self.twice += done.twice;
        let named = |Failure { seed, said }| (format!("seed {seed} (quench-sim replay {seed})"), said);
        self.failed.extend(done.failures.into_iter().map(named));
        Ok(())
    }

    fn test(&mut self, suite: &Suite) -> Result<()> {
        let runs = self.runs.entry(suite.name.into()).or_default();
        let outcome = suite.run(1 + *runs * SEEDS_OF_A_SUITE)?;
        *runs += 1;
        for (what, count) in outcome.figures {
            *self.suites.entry(what).or_default() += count;
        }
        self.skipped.extend(outcome.skipped);
        self.failed.extend(outcome.failure.map(|said| (suite.name.to_string(), said)));
        Ok(())
    }

    fn one_round(&mut self, asked: &Asked) -> Result<()> {
        self.simulate(asked, None)?;
        asked.suites().iter().try_for_each(|suite| self.test(suite))
    }

    fn rows(&self, asked: &Asked) -> Vec<Row> {
        let figures = &self.figures;
        let at_least = |measure, figure, (short, long)| {
            let target = if asked.minutes.is_some() { long } else { short };
            Row { measure, figure, target, met: figure >= target }
        };
        let none = |measure, figure| Row { measure, figure, target: 0, met: figure == 0 };
        let deep = |depth: u64| figures.crashes_by_depth.range(depth..).map(|(_, count)| count).sum();
        let long = |figure| SUITES.iter().find(|suite| suite.figure == figure).and_then(|suite| suite.long);
        let of_suites = |measure, figure, short| {
            at_least(measure, self.count(figure), (short, long(figure).unwrap_or(short)))
        };
        let each_pair = figures.protocols.values().copied().min().unwrap_or(0);
        let kinds = HAPPENINGS.len() as u64 + OTHER_FAULTS;
        let mut rows = vec![
            at_least("seeds with random configuration", figures.seeds, (2_000, LONG_SEEDS)),
            at_least("crashes inside recovery", figures.crashes_in_recovery, (5_000, 250_000)),
            at_least("crashes inside a checkpoint", figures.crashes_in_checkpoint, (5_000, 250_000)),
            at_least("crashes of a life after a crash", deep(2), (5_000, 250_000)),
            at_least("crashes three lives deep or deeper", deep(3), (1_000, 250_000)),
            at_least("crashes of devices that break promises", figures.crashes_unjudged, (500, 25_000)),
            at_least("kinds of faults that fired", figures.happenings.len() as u64, (24, kinds)),
            at_least("pairs of kinds, one in a later life", figures.pairs.len() as u64, (500, kinds * kinds)),
            at_least("pairs of preset and rule", figures.protocols.len() as u64, (48, 48)),
            at_least("crashes of each of these pairs", each_pair, (500, 20_000)),
            at_least("seeds that went the same way twice", self.twice, (TWICE.min(asked.seeds), TWICE)),
        ];
        let crashes = if asked.simulation_only { 50_000 } else { 100_000 };
        rows.insert(0, of_suites("simulated power cuts and kills", "crashes", crashes));
        if !asked.simulation_only {
            let planted = self.count("planted").max(40);
            rows.extend([
                of_suites("SIGKILLs of the real program", "kills", 300),
                of_suites("transactions judged for isolation", "judged", 4_000_000),
                of_suites("states of the model", "model_states", 5_000_000),
                of_suites("planted bugs caught", "planted_caught", planted),
            ]);
        }
        rows.push(none("seeds and tests that failed", self.failed.len() as u64));
        rows
    }
}

impl Scorecard {
    /// Runs everything.
    ///
    /// # Errors
    /// This program cannot be started again; there is no cargo; the record cannot be read or written.
    pub fn make(asked: &Asked) -> Result<Scorecard> {
        let (begun, mut sums) = (Instant::now(), Sums::of(asked)?);
        let before = sums.seconds;
        let until = asked.minutes.map(|minutes| begun + Duration::from_secs(60 * minutes));
        loop {
            match (until, sums.most_behind(asked)) {
                (None, _) => sums.one_round(asked)?,
                (_, Some(suite)) => sums.test(&suite)?,
                (_, None) => sums.simulate(asked, until)?,
            }
            sums.seconds = before + begun.elapsed().as_secs_f64();
            if let Some(path) = &asked.record {
                sums.keep(path)?;
            }
            if until.is_none_or(|until| Instant::now() > until) {
                return Ok(Scorecard { rows: sums.rows(asked), sums });
            }
        }
    }

    /// Whether every measure is met.
    #[must_use]
    pub fn is_met(&self) -> bool {
        self.rows.iter().all(|row| row.met)
    }

    /// For people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!("{:<44}{:>12}{:>12}\n", "measure", "figure", "target");
        for row in &self.rows {
            let verdict = if row.met { "" } else { "  missed" };
            text += &format!("{:<44}{:>12}{:>12}{verdict}\n", row.measure, row.figure, row.target);
        }
        let figures = &self.sums.figures;
        for (what, counts) in [("faults", &figures.happenings), ("paths", &figures.paths)] {
            let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
            text += &format!("\n{what}: {}\n", counts.join(", "));
        }
        let Figures { lives, transactions, acknowledged, decisions, switches, .. } = figures;
        text += &format!(
            "\n{lives} lives, {transactions} transactions, {acknowledged} acknowledged; {decisions} decisions of the scheduler, {switches} switches; \
             {:.0} s\n",
            self.sums.seconds
        );
        for (what, said) in &self.sums.failed {
            text += &format!("\n{what}: {said}\n");
        }
        for what in &self.sums.skipped {
            text += &format!("\nnot run here: {what}\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Asked {
        let (minutes, record) = (Some(1), None);
        Asked { minutes, first_seed: 1, seeds: 10, points: 1, processes: 1, simulation_only: false, record }
    }

    #[test]
    fn a_long_run_goes_on_with_what_is_furthest_from_its_target() {
        let next = |sums: &Sums| sums.most_behind(&asked()).map(|suite| suite.name);
        let mut sums = Sums::default();
        assert_eq!(next(&sums), None, "seeds");
        sums.figures.seeds = 10_000;
        assert_eq!(next(&sums), Some("crashes"));
        // What the simulation does counts.
        sums.figures.power_cuts = 600_000;
        assert_eq!(next(&sums), Some("isolation"));
        sums.suites.insert("judged".into(), 20_000_000);
        assert_eq!(next(&sums), Some("real kills"));
        sums.suites.insert("kills".into(), 5_000);
        assert_eq!(next(&sums), Some("model"));
        sums.runs = [("model".to_string(), 1), ("planted bugs".to_string(), 1)].into();
        assert_eq!(next(&sums), None, "what is run once has been");
        sums.figures.seeds = 15_000;
        assert_eq!(next(&sums), Some("crashes"));
        assert_eq!(
            sums.most_behind(&Asked { simulation_only: true, ..asked() }).map(|suite| suite.name),
            None
        );
    }

    #[test]
    fn what_was_left_out_is_told() {
        let skipped = BTreeSet::from(["a: there is no strace".to_string()]);
        let sums = Sums { skipped, ..Sums::default() };
        let scorecard = Scorecard { rows: sums.rows(&asked()), sums };
        assert!(scorecard.table().contains("not run here: a: there is no strace"), "{}", scorecard.table());
    }

    #[test]
    fn a_record_is_gone_on_with() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("soak.json");
        let sums = Sums { seconds: 60.0, next_seed: 2_001, twice: 50, ..Sums::default() };
        sums.keep(&path).expect("it is written");
        let asked = Asked { record: Some(path.clone()), ..asked() };
        let again = Sums::of(&asked).expect("it is read");
        assert_eq!((again.seconds, again.next_seed, again.twice), (60.0, 2_001, 50));
        std::fs::write(&path, "{}").expect("written");
        let error = Sums::of(&asked).expect_err("no record");
        assert!(error.to_string().contains("soak.json"), "{error}");
    }
}
