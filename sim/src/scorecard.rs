//! The scorecard: a row for each measure, with its figure, what it should be, and whether it is.
//!
//! It is made in rounds: some thousand seeds, then each test of other packages that has a measure of its own. One round is what a run in
//! CI does; a long run goes on with rounds of other seeds until its time is over, and can go on where an earlier one ended.

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
    /// Rounds until this time is over; without it one.
    pub minutes: Option<u64>,
    pub first_seed: u64,
    /// Of a round.
    pub seeds: u64,
    pub points: u64,
    pub processes: usize,
    /// Without the tests of other packages.
    pub simulation_only: bool,
    /// Where the sums are kept, and gone on with.
    pub record: Option<PathBuf>,
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
    pub rounds: u64,
    pub seconds: f64,
    /// Where the next round begins.
    pub next_seed: u64,
    /// Of the simulation.
    pub figures: Figures,
    /// Of tests of other packages.
    pub suites: BTreeMap<String, u64>,
    /// Those of them that are run once, and have been.
    #[serde(default)]
    pub ran: BTreeSet<String>,
    /// Seeds that were run twice to see whether they go the same way.
    pub replayed: u64,
    pub replayed_otherwise: u64,
    /// Seeds and tests that failed, with what they said.
    pub failed: Vec<(String, String)>,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Scorecard {
    pub rows: Vec<Row>,
    #[serde(flatten)]
    pub sums: Sums,
}

/// Of the seeds of a round so many are run twice more.
const REPLAYED: u64 = 50;
/// Faults that the device knows nothing of: see `life`.
const OTHER_FAULTS: u64 = 5;

impl Sums {
    fn of(asked: &Asked) -> Result<Sums> {
        let fresh = Sums { next_seed: asked.first_seed, ..Sums::default() };
        match &asked.record {
            Some(path) if path.exists() => {
                let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
                let kept: Sums = serde_json::from_slice(&text).with_context(|| {
                    format!("{} is no record of a scorecard; name another file, or remove it", path.display())
                })?;
                Ok(kept.with_what_ran())
            }
            _ => Ok(fresh),
        }
    }

    /// A record that does not say which suites have been run says what they have counted.
    fn with_what_ran(mut self) -> Sums {
        let counted = |suite: &&Suite| suite.once.is_some_and(|figure| self.suites.contains_key(figure));
        let ran: Vec<String> = SUITES.iter().filter(counted).map(|suite| suite.name.to_string()).collect();
        self.ran.extend(ran);
        self
    }

    /// Suites that are run once and have not been.
    fn left(&self) -> Vec<Suite> {
        let left = |suite: &&Suite| suite.once.is_some() && !self.ran.contains(suite.name);
        SUITES.iter().filter(left).copied().collect()
    }

    fn keep(&self, path: &Path) -> Result<()> {
        let new = path.with_extension("new");
        let written = std::fs::write(&new, serde_json::to_string_pretty(self)?);
        written
            .and_then(|()| std::fs::rename(&new, path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn fail(&mut self, failures: impl IntoIterator<Item = Failure>) {
        let named = |Failure { seed, said }| (format!("seed {seed} (quench-sim replay {seed})"), said);
        self.failed.extend(failures.into_iter().map(named));
    }

    /// Seeds, and the first of them once more.
    fn simulate(&mut self, asked: &Asked, until: Option<Instant>) -> Result<()> {
        let wanted = Wanted {
            seeds: self.next_seed..self.next_seed + asked.seeds,
            until,
            processes: asked.processes,
            points: asked.points,
            patience: Duration::from_secs(120),
            planted: None,
        };
        let (figures, failures) = many::run(&wanted)?;
        self.replay_some(&wanted, figures.seeds.min(REPLAYED))?;
        self.next_seed = wanted.seeds.end;
        self.figures.merge(&figures);
        self.fail(failures);
        Ok(())
    }

    fn replay_some(&mut self, wanted: &Wanted, count: u64) -> Result<()> {
        for seed in wanted.seeds.start..wanted.seeds.start + count {
            let alone = Wanted { seeds: seed..seed + 1, until: None, ..wanted.clone() };
            let ((once, _), (twice, _)) = (many::run(&alone)?, many::run(&alone)?);
            self.replayed += 1;
            if once != twice {
                self.replayed_otherwise += 1;
                let said = format!("goes another way the second time:\n{once:?}\n{twice:?}");
                self.fail([Failure { seed, said }]);
            }
        }
        Ok(())
    }

    /// Runs them as long as there is time.
    fn test(&mut self, suites: &[Suite], until: Option<Instant>) -> Result<()> {
        for suite in suites {
            if until.is_some_and(|until| Instant::now() > until) {
                break;
            }
            let outcome = suite.run(self.next_seed)?;
            if suite.once.is_some() {
                self.ran.insert(suite.name.to_string());
            }
            for (what, count) in outcome.figures {
                *self.suites.entry(what).or_default() += count;
            }
            self.failed.extend(outcome.failure.map(|said| (suite.name.to_string(), said)));
        }
        Ok(())
    }

    fn rows(&self, asked: &Asked) -> Vec<Row> {
        let figures = &self.figures;
        let at_least = |measure, figure, (short, long)| {
            let target = if asked.minutes.is_some() { long } else { short };
            Row { measure, figure, target, met: figure >= target }
        };
        let none = |measure, figure| Row { measure, figure, target: 0, met: figure == 0 };
        let deep = |depth: u64| figures.crashes_by_depth.range(depth..).map(|(_, count)| count).sum();
        let suite = |what: &str| self.suites.get(what).copied().unwrap_or(0);
        let crashes = figures.power_cuts + figures.kills + suite("crashes");
        let each_pair = figures.protocols.values().copied().min().unwrap_or(0);
        let kinds = HAPPENINGS.len() as u64 + OTHER_FAULTS;
        let mut rows = vec![
            at_least("seeds with random configuration", figures.seeds, (2_000, 100_000)),
            at_least("crashes inside recovery", figures.crashes_in_recovery, (5_000, 250_000)),
            at_least("crashes inside a checkpoint", figures.crashes_in_checkpoint, (5_000, 250_000)),
            at_least("crashes of a life after a crash", deep(2), (5_000, 250_000)),
            at_least("crashes three lives deep or deeper", deep(3), (1_000, 250_000)),
            at_least("kinds of faults that fired", figures.happenings.len() as u64, (24, kinds)),
            at_least("pairs of kinds, one in a later life", figures.pairs.len() as u64, (500, kinds * kinds)),
            at_least("pairs of preset and rule", figures.protocols.len() as u64, (48, 48)),
            at_least("crashes of each of these pairs", each_pair, (500, 20_000)),
            at_least(
                "seeds that went the same way twice",
                self.replayed - self.replayed_otherwise,
                (self.replayed, self.replayed),
            ),
        ];
        let crashes_wanted = if asked.simulation_only { (50_000, 5_000_000) } else { (100_000, 5_000_000) };
        rows.insert(0, at_least("simulated power cuts and kills", crashes, crashes_wanted));
        if !asked.simulation_only {
            let (planted, caught) = (suite("planted"), suite("planted_caught"));
            rows.extend([
                at_least("SIGKILLs of the real program", suite("kills"), (300, 10_000)),
                at_least(
                    "transactions judged for isolation",
                    figures.judged + suite("judged"),
                    (4_000_000, 100_000_000),
                ),
                at_least("states of the model", suite("model_states"), (5_000_000, 5_000_000)),
                at_least("planted bugs caught", caught, (planted.max(40), planted.max(40))),
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
            if !asked.simulation_only && sums.rounds > 0 {
                // The round before had no time for them.
                sums.test(&sums.left(), until)?;
            }
            sums.simulate(asked, until)?;
            if !asked.simulation_only {
                let varying = SUITES.iter().filter(|suite| suite.once.is_none()).copied();
                sums.test(&varying.chain(sums.left()).collect::<Vec<_>>(), until)?;
            }
            sums.rounds += 1;
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
             {} rounds, {:.0} s\n",
            self.sums.rounds, self.sums.seconds
        );
        for (what, said) in &self.sums.failed {
            text += &format!("\n{what}: {said}\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_that_is_run_once_is_left_until_it_was_run_in_whichever_round_and_call() {
        let names = |sums: &Sums| sums.left().iter().map(|suite| suite.name).collect::<Vec<_>>();
        let mut sums = Sums { rounds: 3, ..Sums::default() };
        assert_eq!(names(&sums), ["model", "planted bugs"]);
        let over = Instant::now().checked_sub(Duration::from_millis(1)).expect("the clock is older");
        sums.test(&sums.left(), Some(over)).expect("nothing is run");
        assert_eq!(names(&sums), ["model", "planted bugs"], "there was no time");
        sums.ran.insert("model".into());
        let kept = serde_json::to_value(&sums).expect("numbers and names");
        let again: Sums = serde_json::from_value(kept.clone()).expect("what was written");
        assert_eq!(names(&again.with_what_ran()), ["planted bugs"]);
        // Records of before do not say it.
        let mut old = kept;
        old.as_object_mut().expect("an object").remove("ran");
        old["suites"] = serde_json::json!({"planted": 78, "crashes": 5});
        let old: Sums = serde_json::from_value(old).expect("still readable");
        assert_eq!(names(&old.with_what_ran()), ["model"]);
    }
}
