//! `quench bench` with other engines: the same flags, and also `--engine NAME` and `compare`.

use clap::Parser;
use quench_cli::BenchArgs;
use quench_peers::BuiltIn;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "quench-peers", about = "Run the workloads of `quench bench` on several engines")]
struct Program {
    /// Print one JSON object instead of text
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    bench: BenchArgs,
}

fn main() -> ExitCode {
    let Program { json, bench } = Program::parse();
    quench_cli::exit_code(|| quench_cli::run_bench(bench, json, &BuiltIn))
}
