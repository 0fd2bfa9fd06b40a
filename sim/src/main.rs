//! `quench-sim`: whole runs of QuenchDB on a simulated disk, clock and scheduler, each from one seed.

mod config;
mod figures;
mod history;
mod life;
#[path = "../../engine/tests/support/mod.rs"]
mod support;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs one seed, and prints its figures as JSON.
    Run { seed: u64 },
    /// Runs one seed, and prints what happens.
    Replay { seed: u64 },
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Run { seed } => {
            let figures = history::run(seed, &mut |_| ());
            println!("{}", serde_json::to_string(&figures)?);
        }
        Command::Replay { seed } => {
            let figures = history::run(seed, &mut |line| println!("{line}"));
            println!("{}", serde_json::to_string_pretty(&figures)?);
        }
    }
    Ok(())
}
