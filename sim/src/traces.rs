//! A line for each seed: the number of its disk operations, and a hash over all of them. Two builds
//! with equal lines do the same to their disks: a refactoring between them has changed nothing.

use crate::objects;
use crate::processes::{Batch, Failure, run_each, without_thread_numbers};
use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// The options of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The seeds, as `FIRST..END`. For eight seeds on a disk one more runs on a store of objects.
    #[arg(long, value_parser = parse_range, default_value = "0..2000")]
    seeds: Range<u64>,
    /// Crashes of each seed's first run; further crashes follow each.
    #[arg(long, default_value_t = 2)]
    points: u64,
    /// Never interrupt a thread: it runs until it waits or yields. Then a build with another number
    /// of atomic operations, uncontended locks or allocations has the same lines.
    #[arg(long)]
    uninterrupted: bool,
    /// Number of processes at a time.
    #[arg(long, default_value_t = std::thread::available_parallelism().map_or(1, |n| n.get()))]
    processes: usize,
    /// Print a JSON object for each seed.
    #[arg(long)]
    json: bool,
}

fn parse_range(text: &str) -> Result<Range<u64>> {
    let (first, end) = text.split_once("..").context("seeds are FIRST..END, such as 0..2000")?;
    let range = first.parse().context("the first seed")?..end.parse().context("the end of the seeds")?;
    if range.is_empty() || range.end > objects::FIRST_SEED {
        bail!("seeds are FIRST..END with FIRST below END, and END at most {}", objects::FIRST_SEED);
    }
    Ok(range)
}

/// The trace of a seed.
#[derive(Clone, Debug, Serialize)]
struct Line {
    seed: u64,
    operations: u64,
    hash: String,
    /// What a failed seed said.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

impl Line {
    fn failed(seed: u64, failure: &Failure) -> Line {
        let said = without_thread_numbers(&failure.said).replace('\n', " ");
        Line { seed, operations: 0, hash: String::new(), failed: Some(said) }
    }

    fn text(&self) -> String {
        let Line { seed, operations, hash, failed } = self;
        match failed {
            Some(said) => format!("{seed} failed: {said}"),
            None => format!("{seed} {operations} {hash}"),
        }
    }
}

/// Runs the seeds and prints their lines, in the order of the seeds. Returns whether none failed.
///
/// # Errors
/// This program cannot be started, or JSON cannot be written.
pub fn print(options: &Options) -> Result<bool> {
    let mut lines = BTreeMap::new();
    for seeds in [options.seeds.clone(), objects::seeds_beside(&options.seeds)] {
        let batch = Batch {
            seeds,
            until: None,
            processes: options.processes,
            twice: 0,
            points: options.points,
            patience: Duration::from_secs(300),
            planted: None,
            interrupts: !options.uninterrupted,
        };
        run_each(&batch, |seed, outcome| {
            let line = match outcome {
                Ok(figures) => {
                    let hash = format!("{:016x}", figures.trace);
                    Line { seed, operations: figures.operations, hash, failed: None }
                }
                Err(failure) => Line::failed(seed, &failure),
            };
            lines.insert(seed, line);
        })?;
    }
    for line in lines.values() {
        if options.json {
            println!("{}", serde_json::to_string(line)?);
        } else {
            println!("{}", line.text());
        }
    }
    Ok(lines.values().all(|line| line.failed.is_none()))
}
