//! Plants each bug in turn, in processes of its own, and checks that a detector notices.
//!
//! [`mod@detectors`] names the detectors of each bug: tests of the engine, which cargo builds, and
//! seeds of the simulation, which are this program. A detector that hangs has noticed nothing, and
//! a detector must find nothing when the bug is absent.

mod detectors;
mod seeds;
mod table;
mod tests;

use crate::objects;
use anyhow::{Context, Result, bail};
use detectors::{Detector, detectors};
use indicatif::{ProgressBar, ProgressStyle};
use quenchdb::internals::base::planted::Bug;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tests::Binaries;

/// Deadline of a detector. Long, because on a busy machine the run without the bug must end within
/// it, too.
const PATIENCE: Duration = Duration::from_secs(700);

/// The options of a run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The bugs to plant; empty for all.
    names: Vec<String>,
    /// Number of seeds among which to look for the first that notices, whatever else notices.
    #[arg(long, default_value_t = 0)]
    seeds: u64,
    /// Bugs at a time.
    #[arg(long, default_value_t = std::thread::available_parallelism().map_or(1, |n| n.get()))]
    processes: usize,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Write the rows of the bugs into this document's table, behind its marker.
    #[arg(long, requires = "seeds")]
    write: Option<PathBuf>,
}

/// The results of all bugs.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub planted: usize,
    pub caught: usize,
    pub seconds: f64,
    /// Number of seeds among which the first that notices was looked for.
    pub seeds: u64,
    pub bugs: Vec<Row>,
}

/// The result of one bug.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub bug: &'static str,
    pub room: &'static str,
    pub wrong: &'static str,
    pub breaks: &'static str,
    /// The detector that caught it; None if it was missed.
    pub caught: Option<Caught>,
    /// The detectors that noticed nothing.
    pub missed_by: Vec<String>,
    /// The first seed that notices, among the seeds that ran.
    pub first_seed: Option<u64>,
}

/// A detector that caught a bug.
#[derive(Clone, Debug, Serialize)]
pub struct Caught {
    /// Test binary and test, or the seed.
    pub by: String,
    /// Tests or seeds that ran until it was caught.
    pub runs: u64,
    /// Number of attempts. More than one if the tests passed at first, as races may.
    pub tries: u64,
    /// Time since the detector began.
    pub seconds: f64,
    /// The output of the detector.
    pub said: String,
}

/// The finding of a detector.
enum Outcome {
    Noticed(Caught),
    /// Nothing, and why, unless all passed.
    Nothing(&'static str),
}

impl Report {
    /// Runs everything, and prints each bug as it ends.
    ///
    /// # Errors
    /// The bug does not exist; the tests cannot be built or run; a detector fails without a bug.
    pub fn make(options: &Options) -> Result<Report> {
        let begun = Instant::now();
        let bugs = named(&options.names)?;
        let binaries = tests::build(&bugs)?;
        let bar = ProgressBar::new(bugs.len() as u64);
        bar.set_style(ProgressStyle::with_template(
            "{elapsed_precise} {wide_bar} {pos} of {len} bugs {msg}",
        )?);
        let (next, rows) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let worker = |number: usize| -> Result<()> {
            while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let row = row(*bug, &binaries, number, options.seeds).inspect_err(|_| {
                    // The other detectors need not run.
                    next.store(bugs.len(), Ordering::Relaxed);
                })?;
                bar.inc(1);
                bar.suspend(|| eprintln!("{}", table::line(&row)));
                rows.lock().unwrap_or_else(PoisonError::into_inner).push((*bug as usize, row));
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> =
                (0..options.processes.max(1)).map(|number| scope.spawn(move || worker(number))).collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("no panic is planted here"))
        })?;
        bar.finish_and_clear();
        let mut rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
        rows.sort_by_key(|(place, _)| *place);
        let bugs: Vec<Row> = rows.into_iter().map(|(_, row)| row).collect();
        let caught = bugs.iter().filter(|row| row.caught.is_some()).count();
        let seconds = begun.elapsed().as_secs_f64();
        let report = Report { planted: bugs.len(), caught, seconds, seeds: options.seeds, bugs };
        if let Some(file) = &options.write {
            table::write(file, &report)?;
        }
        Ok(report)
    }

    /// Returns true if every bug was caught.
    #[must_use]
    pub fn is_met(&self) -> bool {
        self.caught == self.planted
    }

    /// Prints the summary for people; the bugs are printed already.
    #[must_use]
    pub fn summary(&self) -> String {
        let Report { planted, caught, seconds, .. } = self;
        format!("{planted} planted bugs, {caught} caught, {} missed; {seconds:.0} s\n", planted - caught)
    }
}

fn named(names: &[String]) -> Result<Vec<Bug>> {
    if names.is_empty() {
        return Ok(Bug::ALL.to_vec());
    }
    let named = names.iter().map(|name| {
        Bug::named(name).with_context(|| {
            let all: Vec<String> =
                Bug::ALL.iter().map(|bug| format!("  {:28} {}", bug.name(), bug.wrong())).collect();
            format!("{name}: there is no such planted bug; these are:\n{}", all.join("\n"))
        })
    });
    let mut bugs = named.collect::<Result<Vec<Bug>>>()?;
    bugs.sort_by_key(|bug| *bug as usize);
    bugs.dedup();
    Ok(bugs)
}

/// Runs one detector after the other until one notices.
fn row(bug: Bug, binaries: &Binaries, processor: usize, seeds: u64) -> Result<Row> {
    let (mut caught, mut missed_by, mut first_seed, mut looked_at) = (None, Vec::new(), None, 0);
    for detector in detectors(bug) {
        let outcome = match *detector {
            Detector::Tests { binary, filter } => binaries.ask(binary, filter, bug)?,
            Detector::Seeds(last) => {
                let outcome;
                (outcome, first_seed) = seeds::ask(1..=last, bug, processor)?;
                looked_at = last;
                outcome
            }
            Detector::ObjectsSeeds(last) => {
                let first = objects::FIRST_SEED;
                seeds::ask(first + 1..=first + last, bug, processor)?.0
            }
            Detector::StreamedSeeds(last) => {
                let first = objects::STREAMED_SEED;
                seeds::ask(first + 1..=first + last, bug, processor)?.0
            }
        };
        match outcome {
            Outcome::Noticed(by) => {
                caught = Some(by);
                break;
            }
            Outcome::Nothing(why) => missed_by.push(format!("{}{why}", detector.name())),
        }
    }
    if first_seed.is_none() && seeds > looked_at {
        (_, first_seed) = seeds::ask(looked_at + 1..=seeds, bug, processor)?;
    }
    Ok(Row {
        bug: bug.name(),
        room: bug.room(),
        wrong: bug.wrong(),
        breaks: bug.breaks(),
        caught,
        missed_by,
        first_seed,
    })
}

/// Checks that the detector finds nothing without the bug.
fn must_be_sound(detector: &str, without_a_bug: &Outcome) -> Result<()> {
    match without_a_bug {
        Outcome::Nothing("") => Ok(()),
        Outcome::Nothing(why) => bail!("{detector} does not pass without a planted bug:{why}"),
        Outcome::Noticed(caught) => bail!("{detector} fails without a planted bug, too: {}", caught.said),
    }
}
