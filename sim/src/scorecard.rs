//! The scorecard: a row for each measure, with its figure, what it should be, and whether it is.

use crate::figures::Figures;
use crate::many::{self, Failure, Wanted};
use anyhow::Result;
use serde::Serialize;
use std::time::{Duration, Instant};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Seeds until this time is over; without it as many as one run in CI is to have.
    pub minutes: Option<u64>,
    pub first_seed: u64,
    pub seeds: u64,
    pub points: u64,
    pub processes: usize,
}

/// One measure.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub measure: &'static str,
    pub figure: u64,
    pub target: u64,
    pub met: bool,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Scorecard {
    pub rows: Vec<Row>,
    pub seconds: f64,
    pub figures: Figures,
    /// Seeds that failed, with what their processes said.
    pub failed: Vec<(u64, String)>,
}

/// Of these one is run twice, to see that it goes the same way.
const REPLAYED: u64 = 50;

impl Scorecard {
    /// Runs everything.
    ///
    /// # Errors
    /// This program cannot be started again.
    pub fn make(asked: &Asked) -> Result<Scorecard> {
        let begun = Instant::now();
        let until = asked.minutes.map(|minutes| begun + Duration::from_secs(60 * minutes));
        let end = if asked.minutes.is_some() { u64::MAX } else { asked.first_seed + asked.seeds };
        let wanted = Wanted {
            seeds: asked.first_seed..end,
            until,
            processes: asked.processes,
            points: asked.points,
            patience: Duration::from_secs(120),
            planted: None,
        };
        let (figures, mut failures) = many::run(&wanted)?;
        let (replayed, differ) = replay_some(&wanted, figures.seeds.min(REPLAYED))?;
        failures.extend(differ.iter().cloned());
        let long = asked.minutes.is_some();
        let target = |short: u64, of_a_long_run: u64| if long { of_a_long_run } else { short };
        let crashes_at_least_two_deep: u64 =
            figures.crashes_by_depth.range(2..).map(|(_, count)| count).sum();
        let at_least = |measure, figure, target| Row { measure, figure, target, met: figure >= target };
        let rows = vec![
            at_least("seeds with random configuration", figures.seeds, target(2_000, 100_000)),
            at_least(
                "simulated power cuts and kills",
                figures.power_cuts + figures.kills,
                target(50_000, 5_000_000),
            ),
            at_least("crashes inside recovery", figures.crashes_in_recovery, target(5_000, 250_000)),
            at_least("crashes inside a checkpoint", figures.crashes_in_checkpoint, target(5_000, 250_000)),
            at_least("crashes of a life after a crash", crashes_at_least_two_deep, target(5_000, 250_000)),
            at_least("kinds of faults that fired", figures.happenings.len() as u64, 24),
            at_least("pairs of preset and rule", figures.protocols.len() as u64, 48),
            at_least("seeds that went the same way twice", replayed - differ.len() as u64, replayed),
            Row {
                measure: "seeds that failed",
                figure: failures.len() as u64,
                target: 0,
                met: failures.is_empty(),
            },
        ];
        let failed = failures.into_iter().map(|failure| (failure.seed, failure.said)).collect();
        Ok(Scorecard { rows, seconds: begun.elapsed().as_secs_f64(), figures, failed })
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
        let lists = [("faults", &self.figures.happenings), ("paths", &self.figures.paths)];
        for (what, counts) in lists {
            let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
            text += &format!("\n{what}: {}\n", counts.join(", "));
        }
        let Figures { lives, transactions, acknowledged, judged, decisions, switches, .. } = self.figures;
        text += &format!(
            "\n{lives} lives, {transactions} transactions, {acknowledged} acknowledged, {judged} judged for isolation; {decisions} decisions of the scheduler, \
             {switches} switches; {:.0} s\n",
            self.seconds
        );
        for (seed, said) in &self.failed {
            text += &format!("\nseed {seed} (quench-sim replay {seed}): {said}\n");
        }
        text
    }
}

/// Runs the first seeds twice more; those whose two runs differ.
fn replay_some(wanted: &Wanted, count: u64) -> Result<(u64, Vec<Failure>)> {
    let mut differ = Vec::new();
    let first = wanted.seeds.start;
    for seed in first..first + count {
        let alone = Wanted { seeds: seed..seed + 1, until: None, ..wanted.clone() };
        let ((once, _), (twice, _)) = (many::run(&alone)?, many::run(&alone)?);
        if once != twice {
            let said = format!("goes another way the second time:\n{once:?}\n{twice:?}");
            differ.push(Failure { seed, said });
        }
    }
    Ok((count, differ))
}
