//! `quench bench` with other engines: the same flags, and also `--engine NAME` and `compare`.

use clap::Parser;
use quench_cli::{BenchArgs, Outcome};
use quench_peers::BuiltIn;
use quench_peers::durability::{self, Durability};
use std::process::ExitCode;

/// Neither is a part of the other: the flags of a workload are groups, which cannot be optional.
#[derive(Parser)]
#[command(name = "quench-peers", about = "Run the workloads of `quench bench` on several engines")]
#[command(after_help = "`quench-peers durability` measures what engines do for the durability of one row.")]
struct Workload {
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    bench: BenchArgs,
}

#[derive(Parser)]
#[command(name = "quench-peers")]
struct Durable {
    /// Print one JSON object instead of text
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    durability: Durability,
}

fn main() -> ExitCode {
    let first = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    if first.is_some_and(|first| first.starts_with("durability")) {
        let Durable { json, durability } = Durable::parse();
        return quench_cli::exit_code(|| durability::run(durability, json).map(|()| Outcome::Done));
    }
    let Workload { json, bench } = Workload::parse();
    quench_cli::exit_code(|| quench_cli::run_bench(bench, json, &BuiltIn))
}
