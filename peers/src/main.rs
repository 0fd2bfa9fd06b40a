//! `quench bench` with other engines: the same flags, and also `--engine NAME` and `compare`.

use clap::Parser;
use quench_cli::{BenchArgs, Outcome};
use quench_peers::BuiltIn;
use quench_peers::durability::{self, Durability};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "quench-peers", about = "Run the workloads of `quench bench` on several engines")]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Program {
    /// Print one JSON object instead of text
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    durability: Option<Durability>,
    #[command(flatten)]
    bench: Option<BenchArgs>,
}

fn main() -> ExitCode {
    let Program { json, durability, bench } = Program::parse();
    quench_cli::exit_code(|| match (durability, bench) {
        (Some(command), _) => durability::run(command, json).map(|()| Outcome::Done),
        (None, Some(bench)) => quench_cli::run_bench(bench, json, &BuiltIn),
        (None, None) => anyhow::bail!("name a workload; --help lists them"),
    })
}
