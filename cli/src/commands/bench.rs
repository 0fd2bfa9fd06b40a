//! `bench`: workloads of the crate `quench-bench` with a database opened as the flags say.

use crate::output::{Outcome, Progress, print_json, print_text};
use crate::scratch::Scratch;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use quench_bench::driver::{self, CommitMode, Plan};
use quench_bench::{device, put, ycsb};
use quenchdb::{Builder, Database, DeviceTrust, Durability, Preset};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Workload {
    /// Reads and whole-value updates of loaded rows
    Ycsb,
    /// Inserts of new rows in random key order
    Put,
    /// The raw device: aligned durable writes, no database
    Device,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Commit {
    Blocking,
    Async,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Level {
    Durable,
    Bounded,
    Lazy,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Trust {
    /// Flush when the device's cache is volatile
    Auto,
    /// Always flush
    Flush,
    /// Trust completed writes (power-loss-protected drives)
    Device,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Reopen {
    /// Kill a child with --rows one-put transactions in its log, and time the open
    Kill,
}

/// A preset by name.
pub fn parse_preset(name: &str) -> Result<Preset, String> {
    Preset::from_name(name).map_err(|error| error.to_string())
}

fn percent(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(percent) if percent <= 100 => Ok(percent),
        _ => Err("a number from 0 to 100".into()),
    }
}

fn theta(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(theta) if (0.0..10.0).contains(&theta) && (theta - 1.0).abs() > 1e-6 => Ok(theta),
        _ => Err("a number from 0 (uniform) to below 10, other than 1 (try 0.99)".into()),
    }
}

pub fn positive_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 1e6 => Ok(seconds),
        _ => Err("a number of seconds above 0".into()),
    }
}

/// `quench bench`
#[derive(clap::Args)]
#[command(after_help = "Examples:
  quench bench device --threads 16
  quench bench put --threads 1                        one durable put at a time: near the floor
  quench bench ycsb --threads 16 --ops 10 --read-percent 50
  quench bench ycsb --threads 2 --rows 5000000 --commit async --preset autonomous --json
  quench bench put --reopen kill --rows 1000000       time recovery after a kill")]
pub struct BenchArgs {
    #[arg(value_enum)]
    workload: Workload,
    /// Directory for the database; default: a temporary one in the current directory, removed afterwards
    #[arg(long)]
    path: Option<PathBuf>,
    #[command(flatten)]
    run: RunArgs,
    /// Put: what to measure instead of inserts
    #[arg(long, value_enum)]
    reopen: Option<Reopen>,
    /// Ycsb: write a checkpoint between load and run
    #[arg(long)]
    checkpoint: bool,
}

/// What a parent passes on to its child.
#[derive(clap::Args, Clone)]
pub struct RunArgs {
    /// Worker threads
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1024))]
    threads: u64,
    /// Measured time; a warm-up of a tenth of it (at most 1 s) comes before
    #[arg(long, default_value_t = 10.0, value_parser = positive_seconds)]
    seconds: f64,
    /// Rows of the ycsb table, or transactions before the kill; default 100000
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..1 << 40))]
    rows: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,
    /// Operations in one transaction
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..1_000_000))]
    ops: u64,
    /// Ycsb: percentage of operations that read
    #[arg(long, default_value_t = 50, value_parser = percent)]
    read_percent: u32,
    /// Ycsb: skew of the choice of rows, 0 = uniform
    #[arg(long, default_value_t = 0.0, value_parser = theta)]
    zipf: f64,
    /// Wait for each commit, or go on
    #[arg(long, value_enum, default_value = "blocking")]
    commit: Commit,
    /// Durability level of each transaction
    #[arg(long, value_enum, default_value = "durable")]
    level: Level,
    /// Commit protocol: per-transaction, group, autonomous
    #[arg(long, default_value = "group", value_parser = parse_preset)]
    preset: Preset,
    /// Logs; 0 chooses
    #[arg(long, default_value_t = 0)]
    logs: usize,
    /// Bytes waiting in a log at which it is flushed although nobody waits
    #[arg(long, value_name = "BYTES")]
    flush_unit: Option<usize>,
    /// What completed writes are worth
    #[arg(long, value_enum, default_value = "auto")]
    durability: Trust,
    /// Memory for pages, in bytes; default: enough for the rows
    #[arg(long)]
    memory_bytes: Option<u64>,
    /// Seed of the random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The hidden child of `--reopen kill`.
#[derive(clap::Args)]
pub struct ChildArgs {
    directory: PathBuf,
    #[command(flatten)]
    run: RunArgs,
}

impl RunArgs {
    fn trust(&self) -> DeviceTrust {
        match self.durability {
            Trust::Auto => DeviceTrust::Auto,
            Trust::Flush => DeviceTrust::Flush,
            Trust::Device => DeviceTrust::Device,
        }
    }

    fn plan(&self) -> Plan {
        Plan {
            threads: self.threads as usize,
            duration: Duration::from_secs_f64(self.seconds),
            commit: match self.commit {
                Commit::Blocking => CommitMode::Blocking,
                Commit::Async => CommitMode::Async,
            },
            level: match self.level {
                Level::Durable => Durability::Durable,
                Level::Bounded => Durability::BoundedLoss,
                Level::Lazy => Durability::Lazy,
            },
            rows: self.rows,
            value_bytes: self.value_bytes,
            operations: self.ops as usize,
            read_percent: self.read_percent,
            zipf: self.zipf,
            seed: self.seed,
        }
    }

    fn builder(&self) -> Builder {
        // Random inserts leave leaves two thirds full; the rest is room for what a run adds.
        let rows_bytes = self.rows.saturating_mul(self.value_bytes as u64 + 64).saturating_mul(2);
        let builder = Database::builder()
            .preset(self.preset)
            .logs(self.logs)
            .device_trust(self.trust())
            .memory_bytes(self.memory_bytes.unwrap_or(rows_bytes.max(4 << 30)));
        match self.flush_unit {
            Some(bytes) => builder.flush_unit_bytes(bytes),
            None => builder,
        }
    }

    /// The same flags for the child.
    fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> = Vec::new();
        let mut add = |flag: &str, value: String| arguments.extend([format!("--{flag}"), value]);
        let name = |value: Option<clap::builder::PossibleValue>| {
            value.map(|v| v.get_name().to_string()).unwrap_or_default()
        };
        add("threads", self.threads.to_string());
        add("rows", self.rows.to_string());
        add("value-bytes", self.value_bytes.to_string());
        add("level", name(self.level.to_possible_value()));
        add("preset", self.preset.name().to_string());
        add("logs", self.logs.to_string());
        add("durability", name(self.durability.to_possible_value()));
        add("seed", self.seed.to_string());
        if let Some(bytes) = self.flush_unit {
            add("flush-unit", bytes.to_string());
        }
        if let Some(bytes) = self.memory_bytes {
            add("memory-bytes", bytes.to_string());
        }
        arguments
    }
}

/// Refuses to measure on top of something else.
fn require_empty(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let mut entries =
        std::fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    if entries.next().is_some() {
        bail!("{} is not empty; give a new directory", directory.display());
    }
    Ok(())
}

/// Runs it.
pub fn run(args: &BenchArgs, json: bool) -> Result<Outcome> {
    if args.reopen.is_some() && args.workload != Workload::Put {
        bail!("--reopen goes with the workload put");
    }
    let scratch = if args.path.is_none() { Some(Scratch::new("bench")?) } else { None };
    let directory = match (&args.path, &scratch) {
        (Some(path), _) => path.as_path(),
        (None, Some(scratch)) => scratch.path(),
        (None, None) => bail!("no directory"),
    };
    if args.workload != Workload::Device {
        require_empty(directory)?;
    } else if !directory.is_dir() {
        bail!("{} is not a directory", directory.display());
    }
    let bar = Progress::new();
    let progress = |what: &str, done: u64, total: u64| bar.at(what, done, total);
    let plan = args.run.plan();
    if args.workload == Workload::Device {
        let report = device::measure(directory, args.run.trust(), plan.threads, plan.duration, &progress)?;
        bar.finish();
        if json {
            print_json(&report)?
        } else {
            print_text(&report.to_string())?
        }
        return Ok(Outcome::Done);
    }
    let floor = driver::floor(directory, args.run.trust(), &plan, &progress)?;
    let report = if args.reopen.is_some() {
        reopen_after_kill(args, directory, &plan, floor, &bar)?
    } else {
        let database = args.run.builder().open(directory)?;
        let report = match args.workload {
            Workload::Ycsb => ycsb::run(&database, &plan, floor, args.checkpoint, &progress)?,
            _ => put::run(&database, &plan, floor, &progress)?,
        };
        database.close()?;
        report
    };
    bar.finish();
    if json {
        print_json(&report)?
    } else {
        print_text(&report.to_string())?
    }
    Ok(Outcome::Done)
}

/// What the child writes when all its rows are durable.
const READY: &str = "durable";

fn reopen_after_kill(
    args: &BenchArgs,
    directory: &Path,
    plan: &Plan,
    floor: quench_bench::report::Floor,
    bar: &Progress,
) -> Result<quench_bench::report::Report> {
    bar.at("loading rows in a child", 0, 1);
    let mut child = Command::new(std::env::current_exe()?)
        .arg("bench-child")
        .arg(directory)
        .args(args.run.arguments())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the child")?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    child.kill().context("cannot kill the child")?;
    child.wait()?;
    let Some(report) = line.trim().strip_prefix(READY) else {
        bail!("the child could not load the rows");
    };
    let loaded: serde_json::Value = serde_json::from_str(report)?;
    bar.at("recovering", 0, 1);
    let began = Instant::now();
    let database = args.run.builder().open(directory)?;
    let recovery_seconds = began.elapsed().as_secs_f64();
    let replayed = database.recovery().replayed;
    let s = database.statistics();
    let number = |name: &str| loaded[name].as_f64().unwrap_or(0.0);
    let seconds = number("seconds");
    Ok(quench_bench::report::Report {
        workload: "put".into(),
        preset: s.preset.name().into(),
        threads: plan.threads,
        logs: s.logs,
        commit: "async".into(),
        durability: s.durability_method.clone(),
        level: driver::level_name(plan.level).into(),
        rows: plan.rows,
        value_bytes: plan.value_bytes,
        operations: 1,
        read_percent: 0,
        zipf: 0.0,
        seconds,
        committed: plan.rows,
        aborted: 0,
        throughput_tps: plan.rows as f64 / seconds,
        commit_latency_us: Default::default(),
        total_latency_us: Default::default(),
        log_bytes: number("log_bytes") as u64,
        device_bytes: number("device_bytes") as u64,
        device_writes: number("device_writes") as u64,
        device_flushes: number("device_flushes") as u64,
        cpu_seconds: number("cpu_seconds"),
        floor_us: floor,
        recovery_seconds: Some(recovery_seconds),
        replayed: Some(replayed),
    })
}

/// Runs the hidden child: loads, says so, waits to be killed.
pub fn child(args: &ChildArgs) -> Result<Outcome> {
    let database = args.run.builder().open(&args.directory)?;
    let began = Instant::now();
    put::fill_log(&database, &args.run.plan(), &|_, _, _| {})?;
    let s = database.statistics();
    let report = serde_json::json!({
        "seconds": began.elapsed().as_secs_f64(),
        "cpu_seconds": driver::cpu_seconds(),
        "log_bytes": s.log_bytes,
        "device_bytes": s.device_bytes,
        "device_writes": s.device_writes,
        "device_flushes": s.device_flushes,
    });
    let mut out = std::io::stdout().lock();
    writeln!(out, "{READY}{report}")?;
    out.flush()?;
    // Standard input is the parent's: do not read it. The parent kills us; if it is gone, do not stay for ever.
    std::thread::sleep(Duration::from_secs(60));
    bail!("nobody killed this child")
}
