//! The `quench` program: calls one module for each command and turns the outcome into an exit code.
//!
//! 0: done. 1: done, and something is wrong (key not found, damage found, a promise broken). 2:
//! could not be done; one line on standard error says why. 3: the same, because the database is
//! busy. With `--json` the line is a JSON object. If the reader of the output closes the pipe, the
//! command ends without an error; what it found wrong is still in the exit code.

mod errors;
mod rows;
mod bank;
mod terminal;
mod signals;
mod scratch;
mod units;
mod live;
mod output;
mod parse;
mod commands;
mod shell;
mod top;
mod manual;
mod torture;
mod demo;
#[cfg(feature = "emulator")]
mod emulate;
mod bench;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use commands::{
    DatabaseArgs, SourceArgs, backup, buckets, dump, follow, inspect, load, objects, pins, probe, rows_at,
    stat, tables, verify,
};
use quench_bench::peers::NoPeers;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;

pub use bench::{BenchArgs, run as run_bench};
pub use output::Outcome;

const EXAMPLES: &str = "\
Examples:
  quench demo                                 the main job, live: commit, kill, recover, prove
  printf 'a\\t1\\nb\\t2\\n' | quench load mydb t -  load two rows
  quench get mydb t a                         print the value of key a
  quench dump mydb t > t.tsv                  every row, in key order
  quench backup mydb /backup/monday           copy it; quench restore makes a database of the copy
  quench bench put --threads 16 --seconds 10  durable commits per second on this disk
  quench torture /tmp/t --seconds 60          kill it again and again, check what it promised

Keys and values on the command line and in TSV files are any bytes: \\t \\n \\r \\\\ and \\xNN are escapes.
With --json an error is one JSON object on standard error: code, message, place, advice.";

#[derive(Parser)]
#[command(name = "quench", version, about = "Run, inspect, measure and torture a QuenchDB database")]
#[command(after_help = format!("{EXAMPLES}\n\n{}", errors::HELP))]
struct Cli {
    /// Print one JSON object (for rows: one per line) instead of text
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Transfers in a child process, killed and recovered live, with commit latency beside the raw
    /// device's
    Demo(demo::DemoArgs),
    /// Create a database, or tables in it
    Create(tables::CreateArgs),
    /// Drop tables with all their rows, durably
    Drop(tables::DropArgs),
    /// Rename a table, durably
    Rename(tables::RenameArgs),
    /// Delete all rows of a table, durably
    Clear(tables::ClearArgs),
    /// Count the rows of tables
    Count(tables::CountArgs),
    /// Read rows (TSV, CSV, JSON lines) into a table or all tables, durably every --batch rows
    Load(load::LoadArgs),
    /// Write a table or all tables as TSV, CSV or JSON lines, in key order
    Dump(dump::DumpArgs),
    /// Print the value of a key (exit code 1 if it is not there)
    Get(rows_at::GetArgs),
    /// Write one row, durably
    Put(rows_at::PutArgs),
    /// Delete one row, durably (exit code 1 if it is not there)
    Delete(rows_at::DeleteArgs),
    /// Print the rows of a range of keys
    Scan(rows_at::ScanArgs),
    /// Type statements, with history and completion, or run a script on standard input
    Shell(shell::ShellArgs),
    /// List the tables
    Tables(inspect::TablesArgs),
    /// Print what is known of a database: device, sizes, log, last recovery
    Stat(stat::StatArgs),
    /// Watch a database that another process has open: a screen, or a line each second
    Top(top::TopArgs),
    /// Check every page, checksum, log record and copy (exit code 1 if not all is sound)
    Verify(SourceArgs),
    /// Make the spare copies of a degraded database whole again
    Repair(verify::RepairArgs),
    /// Write a checkpoint, so that the next open replays nothing before it
    Checkpoint(DatabaseArgs),
    /// Give space back: make the file of pages as short as what is in it
    Compact(DatabaseArgs),
    /// Copy a database while it can be written: everything, or what has changed since an earlier
    /// backup
    Backup(backup::BackupArgs),
    /// Make a new database of a full backup and the increments that follow it
    Restore(backup::RestoreArgs),
    /// Copy what is readable of a damaged database to a new one (exit code 1 if something is lost)
    Salvage(backup::SalvageArgs),
    /// List the readers of checkpoints in a store of objects, or remove what dead ones left
    Pins(pins::PinsArgs),
    /// Show the buckets of a database in several, repair them, or replace one
    Buckets(buckets::BucketsArgs),
    /// Follow the log of a database, and print how far a standby or a kept copy is behind
    Follow(follow::FollowArgs),
    /// List what lies in a store of objects, and why each object is there
    Objects(objects::ObjectsArgs),
    /// Race requests at a store of objects, and find out whether it can keep databases
    Probe(probe::ProbeArgs),
    /// Print the records of the log, readably
    Log(inspect::LogArgs),
    /// Measure commits, reads, scans, recovery, or the raw device
    Bench(Box<bench::BenchArgs>),
    /// Write a page that shows runs of `bench --json` beside each other
    Report(bench::ReportArgs),
    /// Run a server that behaves like an object store, with chosen latency and faults, for trials
    #[cfg(feature = "emulator")]
    Emulate(emulate::EmulateArgs),
    /// Print completions for a shell
    Completions(manual::CompletionsArgs),
    /// Print a man page, or write all of them
    Man(manual::ManArgs),
    /// Kill a working child at random moments and check that nothing acknowledged is lost
    Torture(torture::TortureArgs),
    #[command(hide = true)]
    DemoChild(demo::child::ChildArgs),
    #[command(hide = true)]
    TortureChild(torture::child::ChildArgs),
    #[command(hide = true)]
    TortureCheck(torture::CheckArgs),
}

fn run(cli: Cli) -> anyhow::Result<Outcome> {
    let json = cli.json;
    match cli.command {
        Command::Demo(args) => demo::run(&args, json),
        Command::Create(args) => tables::create(&args, json),
        Command::Drop(args) => tables::drop_tables(&args, json),
        Command::Rename(args) => tables::rename(&args, json),
        Command::Clear(args) => tables::clear(&args, json),
        Command::Count(args) => tables::count(&args, json),
        Command::Load(args) => load::run(&args, json),
        Command::Dump(args) => dump::run(&args, json),
        Command::Get(args) => rows_at::get(&args, json),
        Command::Put(args) => rows_at::put(&args, json),
        Command::Delete(args) => rows_at::delete(&args, json),
        Command::Scan(args) => rows_at::scan(&args, json),
        Command::Shell(args) => shell::run(&args, json),
        Command::Tables(args) => inspect::tables(&args, json),
        Command::Stat(args) => stat::stat(&args, json),
        Command::Top(args) => top::run(&args, json),
        Command::Verify(args) => verify::verify(&args, json),
        Command::Repair(args) => verify::repair(&args, json),
        Command::Checkpoint(args) => inspect::checkpoint(&args, json),
        Command::Compact(args) => backup::compact(&args, json),
        Command::Backup(args) => backup::backup(&args, json),
        Command::Restore(args) => backup::restore(&args, json),
        Command::Salvage(args) => backup::salvage(&args, json),
        Command::Pins(args) => pins::run(&args, json),
        Command::Buckets(args) => buckets::run(&args, json),
        Command::Follow(args) => follow::run(&args, json),
        Command::Objects(args) => objects::run(&args, json),
        Command::Probe(args) => probe::run(&args, json),
        Command::Log(args) => inspect::log(&args, json),
        Command::Bench(args) => bench::run(*args, json, &NoPeers),
        Command::Report(args) => bench::report(&args, json),
        #[cfg(feature = "emulator")]
        Command::Emulate(args) => emulate::run(args, json),
        Command::Torture(args) => torture::run(&args, json),
        Command::Completions(args) => manual::completions(&args, Cli::command()),
        Command::Man(args) => manual::man(&args, Cli::command()),
        Command::DemoChild(args) => demo::child::run(&args),
        Command::TortureChild(args) => torture::run_child(&args),
        Command::TortureCheck(args) => torture::run_check(&args),
    }
}

/// Parses the command line. The help of `bench` is short, with a page for each workload.
fn parse(mut arguments: Vec<String>) -> Result<Cli, clap::Error> {
    let is_given = |name: &str| arguments.iter().any(|argument| argument == name);
    let mut command = Cli::command();
    if let Some(asked) = arguments.iter().position(|argument| argument == "--help-protocol") {
        command = command.mut_subcommand("bench", bench::help::protocol_page);
        arguments[asked] = "--help".into();
        return Cli::from_arg_matches(&command.try_get_matches_from(arguments)?);
    }
    if is_given("bench") && (is_given("--help") || is_given("-h") || is_given("help")) {
        let workload = bench::help::workload_of(&arguments);
        command = command.mut_subcommand("bench", |bench| bench::help::page(bench, workload));
        if arguments.get(1..3).is_some_and(|words| words == ["help", "bench"]) {
            arguments[1..3].swap(0, 1);
            arguments[2] = "--help".into();
        }
        return Cli::from_arg_matches(&command.try_get_matches_from(arguments)?);
    }
    Cli::from_arg_matches(&command.try_get_matches()?)
}

/// Runs the program with the arguments of the process.
pub fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let wants_json = arguments.iter().any(|argument| argument == "--json");
    let cli = match parse(arguments) {
        Err(error) if wants_json && error.use_stderr() => return errors::report_usage(&error),
        parsed => parsed.unwrap_or_else(|error| error.exit()),
    };
    if cli.json {
        errors::use_json();
    }
    exit_code(|| run(cli))
}

/// Runs a command, prints its error as one line, and returns the exit code.
pub fn exit_code(command: impl FnOnce() -> anyhow::Result<Outcome>) -> ExitCode {
    if std::env::var_os("QUENCH_TRACE").is_some() {
        tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    }
    // A panic is a bug of this program; the user still gets one line and the exit code 2.
    std::panic::set_hook(Box::new(|panic| {
        terminal::restore();
        errors::report_bug(&panic.to_string());
    }));
    match std::panic::catch_unwind(AssertUnwindSafe(command)) {
        Ok(Ok(Outcome::Done)) => ExitCode::SUCCESS,
        Ok(Ok(Outcome::Wrong)) => ExitCode::from(1),
        // Only rows fail with a broken pipe: `print_text` ignores it.
        Ok(Err(error)) if errors::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Ok(Err(error)) => errors::report(&error),
        Err(_) => ExitCode::from(2),
    }
}
