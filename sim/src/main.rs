//! `quench-sim`: whole runs of QuenchDB on a simulated disk, clock and scheduler, each from one
//! seed.

mod repeated_recovery;
mod cargo;
mod config;
mod backups;
mod early_end;
mod figures;
mod history;
mod isolation;
mod known;
mod medium;
mod objects;
mod run;
mod read_only;
mod processes;
mod planted;
mod scorecard;
mod schedule;
mod trace;
mod traces;
mod suites;
#[path = "../../engine/tests/support/mod.rs"]
mod support;
mod broken_promise;
mod work;

use clap::{Parser, Subcommand};
use scorecard::{Options, Scorecard};

/// Runs QuenchDB's engine on a simulated disk, clock and scheduler: crashes it, breaks its device,
/// and judges the recovered database.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs many seeds and the measured tests, and prints a row for each; exit code 1 if a target
    /// is missed.
    Scorecard {
        /// Run for this many minutes, and compare with the targets of a long run.
        #[arg(long)]
        minutes: Option<u64>,
        /// File that keeps the totals; if it exists, this run continues it.
        #[arg(long)]
        record: Option<std::path::PathBuf>,
        /// Leave out the tests of other packages, which need cargo and the sources.
        #[arg(long)]
        simulation_only: bool,
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        first_seed: u64,
        /// Number of seeds at a time.
        #[arg(long, default_value_t = 2_000)]
        seeds: u64,
        /// Crashes of each seed's first run; further crashes follow each.
        #[arg(long, default_value_t = POINTS)]
        points: u64,
        /// Number of processes at a time.
        #[arg(long, default_value_t = std::thread::available_parallelism().map_or(1, |n| n.get()))]
        processes: usize,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Runs one seed again and prints its trace: the disk operations of each run, the actions of
    /// threads among them, and each crash.
    Replay {
        /// The seed.
        seed: u64,
        /// Crashes of the first run, as when the seed failed.
        #[arg(long, default_value_t = POINTS)]
        points: u64,
        /// Never interrupt a thread, as `traces --uninterrupted`.
        #[arg(long)]
        uninterrupted: bool,
    },
    /// Prints for each seed the number of its disk operations and a hash over them, to compare two
    /// builds with diff; exit code 1 if a seed failed.
    Traces(traces::Options),
    /// Plants bugs in the engine, one at a time, and names their detectors; exit code 1 if one is
    /// missed.
    Planted(planted::Options),
    /// Runs one seed and prints its figures as JSON.
    Run {
        /// The seed.
        seed: u64,
        /// Crashes of its first run.
        #[arg(long, default_value_t = POINTS)]
        points: u64,
        /// The processor to stay on, counted from 0.
        #[arg(long, default_value_t = 0)]
        processor: usize,
        /// Never interrupt a thread.
        #[arg(long)]
        uninterrupted: bool,
    },
}

const POINTS: u64 = 12;

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Scorecard {
            minutes,
            record,
            simulation_only,
            first_seed,
            seeds,
            points,
            processes,
            json,
        } => {
            let options = Options { minutes, first_seed, seeds, points, processes, simulation_only, record };
            let scorecard = Scorecard::make(&options)?;
            if json {
                println!("{}", serde_json::to_string_pretty(&scorecard)?);
            } else {
                print!("{}", scorecard.table());
            }
            if !scorecard.is_met() {
                std::process::exit(1);
            }
        }
        Command::Replay { seed, points, uninterrupted } => {
            if uninterrupted {
                schedule::leave_uninterrupted();
            }
            quenchdb::internals::sync::simulation::remember_places();
            let figures = history::run(seed, points, Some(&mut |line| println!("{line}")));
            println!("{}", serde_json::to_string_pretty(&figures)?);
        }
        Command::Planted(options) => {
            let report = planted::Report::make(&options)?;
            if options.json {
                println!("{}", serde_json::to_string_pretty(&report)?);
            } else {
                print!("{}", report.summary());
            }
            if !report.is_met() {
                std::process::exit(1);
            }
        }
        Command::Traces(options) => {
            if !traces::print(&options)? {
                std::process::exit(1);
            }
        }
        Command::Run { seed, points, processor, uninterrupted } => {
            stay_on(processor);
            if uninterrupted {
                schedule::leave_uninterrupted();
            }
            let figures = history::run(seed, points, None);
            println!("{}", serde_json::to_string(&figures)?);
        }
    }
    Ok(())
}

/// Keeps this process on one of its processors: its threads run one at a time, and passing the
/// baton to another processor takes four times as long. Without it the run is only slower.
fn stay_on(processor: usize) {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let usable: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    if usable.is_empty() {
        return;
    }
    let mut one = CpuSet::new();
    one.set(usable[processor % usable.len()]);
    let _ = sched_setaffinity(None, &one);
}
