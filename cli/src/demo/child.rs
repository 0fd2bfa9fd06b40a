//! The child of the demo: durable transfers in several threads until it is killed.
//!
//! Lines on standard output, one `write` each: `S` the accounts are durable; `T writer sequence` a
//! transfer whose `commit()` returned; `L {json}` commit latency so far; `R {json}` requests to the
//! store of objects so far.

use crate::bank::{Bank, Entry};
use crate::output::Outcome;
use crate::torture::child::say;
use anyhow::{Result, anyhow};
use quench_bench::latencies::Latency;
use quench_bench::requests::{Prices, RequestReport};
use quenchdb::Database;
use quenchdb::internals::base::random::Random;
use std::path::PathBuf;
use std::time::Duration;

/// Threads of one child are numbered from `round` times this.
const WRITERS_A_ROUND: u32 = 4096;

/// The arguments of the child.
#[derive(clap::Args)]
pub struct ChildArgs {
    directory: PathBuf,
    #[arg(long)]
    threads: u32,
    #[arg(long)]
    round: u32,
    /// Seconds between lines with latency and requests
    #[arg(long)]
    interval: f64,
}

fn transfers(database: &Database, bank: &Bank, writer: u32) -> Result<()> {
    let mut random = Random::from_entropy();
    for sequence in 1.. {
        let entry = Entry { writer, sequence };
        loop {
            let mut transaction = database.begin()?;
            let done =
                bank.transfer(&mut transaction, entry, &mut random).and_then(|()| transaction.commit());
            match done {
                Ok(_) => break,
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(error.into()),
            }
        }
        say(&format!("T {writer} {sequence}\n"))?;
    }
    Ok(())
}

fn figures(database: &Database, interval: Duration) -> Result<()> {
    loop {
        std::thread::sleep(interval);
        let statistics = database.statistics();
        let latency: Latency = statistics.commit.into();
        say(&format!("L {}\n", serde_json::to_string(&latency)?))?;
        if let Some(requests) = statistics.object_requests {
            // The parent knows the prices.
            let report = RequestReport::of(&requests, &Prices::default(), 0);
            say(&format!("R {}\n", serde_json::to_string(&report)?))?;
        }
    }
}

/// Works until the parent kills it. Returns only after an error.
pub fn run(args: &ChildArgs) -> Result<Outcome> {
    let database = Database::open(&args.directory)?;
    let bank = Bank::open(&database)?;
    say("S\n")?;
    let (failed, failure) = std::sync::mpsc::channel();
    for thread in 0..args.threads {
        let (database, bank, failed) = (database.clone(), bank.clone(), failed.clone());
        let writer = args.round * WRITERS_A_ROUND + thread;
        std::thread::spawn(move || {
            let work = std::panic::AssertUnwindSafe(|| transfers(&database, &bank, writer));
            let result = std::panic::catch_unwind(work);
            let _ = failed.send(result.unwrap_or_else(|_| Err(anyhow!("a thread panicked"))));
        });
    }
    let interval = Duration::from_secs_f64(args.interval);
    std::thread::spawn(move || {
        let _ = failed.send(figures(&database, interval));
    });
    failure.recv()??;
    Ok(Outcome::Done)
}
