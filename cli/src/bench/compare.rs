//! `bench compare`: several engines in turn, each run in a process and a directory of its own.
//!
//! ```text
//!   round 1: quenchdb, rocksdb, sqlite, …    round 2: rocksdb, sqlite, …, quenchdb    round 3: …
//!            └ a child: new directory, load, warm-up, measure, one line of JSON
//! ```
//!
//! The order moves on by one each round, so that what a run leaves to the disk does not always meet
//! the same engine. A process of its own has its own memory, counters and background threads.

use super::child::{self, Ended};
use super::options::BenchArgs;
use super::work::print;
use crate::output::{Outcome, Progress};
use crate::scratch::Scratch;
use anyhow::{Context, Result, bail};
use quench_bench::comparison::Comparison;
use quench_bench::engine::Engine;
use quench_bench::peers::Peers;
use quench_bench::place::Place;
use quench_bench::plot;
use quench_bench::report::Report;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// One turn of a comparison.
struct Turn {
    engine: Engine,
    round: u64,
    number: u64,
}

struct Compare<'a> {
    args: &'a BenchArgs,
    rounds: u64,
    turns: u64,
    bar: &'a Progress,
}

impl Compare<'_> {
    fn show(&self, turn: &Turn, passed: Duration) {
        let (round, seconds) = (turn.round + 1, passed.as_secs());
        let text = format!("round {round} of {}: {}, {seconds} s", self.rounds, turn.engine);
        self.bar.counting(text, turn.number, self.turns);
    }

    /// Measures one engine once.
    fn take(&self, turn: &Turn, directory: &Path) -> Result<Report> {
        std::fs::create_dir(directory).with_context(|| format!("cannot create {}", directory.display()))?;
        let mut program = Command::new(std::env::current_exe()?);
        program.args(std::env::args_os().skip(1)).args(["--turn", turn.engine.name(), "--turn-path"]);
        let ended = child::run(program.arg(directory), LOOK_EVERY, |passed| {
            self.show(turn, passed);
            Ok(())
        });
        let Ended { status, out, errors } = ended.context("cannot measure a turn")?;
        std::fs::remove_dir_all(directory)
            .with_context(|| format!("cannot remove {}", directory.display()))?;
        let complaint = errors.lines().last().unwrap_or("").trim_start_matches("quench: ").to_string();
        match (status.code(), serde_json::from_str::<Report>(&out)) {
            (Some(0), Ok(report)) => Ok(report),
            (Some(1), Ok(report)) => {
                let problems = report.check.map_or_else(Vec::new, |check| check.problems);
                bail!("{}: something does not hold: {}", turn.engine, problems.join("; "))
            }
            (_, _) if !complaint.is_empty() => bail!("{}: {complaint}", turn.engine),
            _ => bail!("{} ended without a report ({status})", turn.engine),
        }
    }
}

/// Measures all engines, and prints the table.
pub(super) fn run(args: &BenchArgs, json: bool, peers: &impl Peers) -> Result<Outcome> {
    args.check_compare(peers)?;
    let (engines, rounds) = (args.engines.compared(peers), args.engines.rounds());
    let parent = args.path.as_deref().unwrap_or(Path::new("."));
    if !parent.is_dir() {
        bail!("{} is not a directory", parent.display());
    }
    let scratch = Scratch::within(&parent.canonicalize()?, "compare")?;
    let facts = Place::directory(scratch.path(), args.trust()).storage()?.facts();
    let bar = Progress::new();
    let turns = rounds * engines.len() as u64;
    let compare = Compare { args, rounds, turns, bar: &bar };
    let mut all: Vec<(Engine, Vec<Report>)> = engines.iter().map(|engine| (*engine, Vec::new())).collect();
    let mut number = 0;
    for round in 0..rounds {
        for place in 0..engines.len() {
            let place = (place + round as usize) % engines.len();
            let turn = Turn { engine: engines[place], round, number };
            let directory = scratch.path().join(format!("{}-{}", round + 1, turn.engine));
            all[place].1.push(compare.take(&turn, &directory)?);
            number += 1;
        }
    }
    bar.finish();
    let comparison = Comparison::of(&all, facts.volatile_cache)?;
    if let Some(path) = &compare.args.plot {
        plot::draw_comparison(&comparison, path)?;
    }
    print(&comparison, json)?;
    Ok(Outcome::Done)
}
