//! `bench instructions`: single operations, each in a process of its own under Callgrind.
//!
//! ```text
//!   each engine and operation   valgrind --tool=callgrind ─▶ this program: fill, run
//!                                 └─ its count ÷ operations ─▶ a number
//! ```
//! With `--time` the same processes run without valgrind, and say how long they took.

use super::checks::missing;
use super::child::{self, Ended};
use super::instructions_options::InstructionsArgs;
use super::options::BenchArgs;
use super::work::{outcome, print};
use crate::output::{Outcome, Progress, print_json};
use crate::scratch::Scratch;
use anyhow::{Context, Result, bail};
use quench_bench::engine::Engine;
use quench_bench::instructions::report::Compared;
use quench_bench::instructions::{self, Instructions, Measured, Operation, Rows, TOGGLE, Unit};
use quench_bench::peers::{Peers, Settings, Visit};
use quench_bench::store::Store;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_millis(50);
/// File systems in memory: only the processor works.
const IN_MEMORY: &str = "/dev/shm";
/// Tables that the engines fill, in the file system in memory.
const DIRECTORY: &str = "database";
const COUNTS: &str = "callgrind.out";

/// Measures all operations, and prints the table.
pub(super) fn run(args: &BenchArgs, json: bool, peers: &impl Peers) -> Result<Outcome> {
    if let Some(operation) = args.instructions.operation {
        return run_one(args, operation, peers);
    }
    args.check(peers)?;
    let InstructionsArgs { time, recorded: file, renew, .. } = &args.instructions;
    let operations = InstructionsArgs::named(&args.engines.names).map_err(anyhow::Error::msg)?;
    let unit = if *time { Unit::Nanoseconds } else { Unit::Instructions };
    let (engines, plan) = (args.engines.compared(peers), args.plan());
    if let Some(absent) = engines.iter().find(|e| **e != Engine::QuenchDb && !peers.contains(**e)) {
        bail!("{}", missing(*absent));
    }
    if unit == Unit::Instructions {
        check_valgrind()?;
    }
    let mut report = Instructions::new(unit, plan.rows, plan.value_bytes as u64);
    let recorded = file.as_deref().map(|file| read(file, &report, *renew)).transpose()?;
    let bar = Progress::new();
    let counting = Counting { args, unit, bar: &bar };
    let all: Vec<_> = engines.iter().flat_map(|e| operations.iter().map(move |o| (*e, *o))).collect();
    let all: Vec<_> = all.into_iter().filter(|(engine, operation)| operation.is_of(*engine)).collect();
    for (number, (engine, operation)) in all.iter().enumerate() {
        let done = (number as u64, all.len() as u64);
        report.set(*operation, engine.name(), counting.count(*engine, *operation, done)?);
        // Each at once: all of them take long.
        if let (Some(file), Some(recorded), true) = (file, &recorded, *renew) {
            write(file, &report.over(recorded))?;
        }
    }
    bar.finish();
    let Some(recorded) = recorded.filter(|_| !renew) else {
        print(&report, json)?;
        return Ok(Outcome::Done);
    };
    let compared = Compared::new(report, &recorded);
    print(&compared, json)?;
    Ok(outcome(compared.is_sound()))
}

fn write(file: &Path, report: &Instructions) -> Result<()> {
    let text = serde_json::to_string_pretty(report)? + "\n";
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn check_valgrind() -> Result<()> {
    let said = Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if said.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    bail!(
        "valgrind counts the instructions and cannot be started: install it (apt-get install valgrind), or give --time"
    )
}

/// Returns the recorded numbers; without a file to renew, those of `report`, which has none.
fn read(file: &Path, report: &Instructions, renew: bool) -> Result<Instructions> {
    if cfg!(debug_assertions) {
        bail!(
            "{} has numbers of a release build, and this program is none: build it with --release",
            file.display()
        );
    }
    if renew && !file.exists() {
        return Ok(report.clone());
    }
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let recorded: Instructions =
        serde_json::from_str(&text).with_context(|| format!("{} has no such numbers", file.display()))?;
    if !recorded.has_table_of(report) {
        bail!("{} has numbers of another table or unit; see its rows, value_bytes and unit", file.display());
    }
    Ok(recorded)
}

struct Counting<'a> {
    args: &'a BenchArgs,
    unit: Unit,
    bar: &'a Progress,
}

impl Counting<'_> {
    /// Returns the number of one operation.
    fn count(&self, engine: Engine, operation: Operation, (done, total): (u64, u64)) -> Result<u64> {
        let place = self.args.path.clone().or_else(|| {
            let memory = PathBuf::from(IN_MEMORY);
            memory.is_dir().then_some(memory)
        });
        let scratch = Scratch::within(&place.unwrap_or_else(|| ".".into()), "instructions")?;
        let directory = scratch.path().join(DIRECTORY);
        std::fs::create_dir(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        let (program, counts) = (std::env::current_exe()?, scratch.path().join(COUNTS));
        let mut command = match self.unit {
            Unit::Nanoseconds => Command::new(program),
            Unit::Instructions => {
                let mut valgrind = Command::new("valgrind");
                // Threads take turns, so that background threads come as far in each run.
                valgrind
                    .args(["-q", "--tool=callgrind", "--fair-sched=yes"])
                    .arg(format!("--toggle-collect={TOGGLE}"));
                valgrind.arg(format!("--callgrind-out-file={}", counts.display())).arg(program);
                valgrind
            }
        };
        command.args(std::env::args_os().skip(1)).args(["--turn", engine.name(), "--turn-path"]);
        command.arg(&directory).args(["--operation", operation.name()]);
        let name = operation.name();
        let ended = child::run(&mut command, LOOK_EVERY, |passed| {
            self.bar.counting(format!("{engine}: {name}, {} s", passed.as_secs()), done, total);
            Ok(())
        });
        let Ended { status, out, errors } = ended.with_context(|| format!("cannot run {name}"))?;
        let measured: Measured = match serde_json::from_str(&out) {
            Ok(measured) if status.success() => measured,
            _ => {
                let line = errors.lines().rfind(|line| !line.starts_with("==")).unwrap_or("");
                bail!("{engine}: {name} ended without a number ({status}): {line}")
            }
        };
        let sum = match self.unit {
            Unit::Nanoseconds => measured.nanoseconds,
            Unit::Instructions => counted(&counts)?,
        };
        if sum == 0 {
            bail!("{engine}: valgrind has seen no {name}; was this program built without its symbols?");
        }
        Ok((sum + measured.operations / 2) / measured.operations.max(1))
    }
}

/// Returns the sum in a file of Callgrind.
fn counted(file: &Path) -> Result<u64> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let total = text.lines().rev().find_map(|line| line.strip_prefix("totals: "));
    let total = total.and_then(|total| total.trim().parse().ok());
    total.with_context(|| format!("{} has no total", file.display()))
}

/// An operation on an engine that is open.
struct Run {
    engine: Engine,
    operation: Operation,
    rows: Rows,
}

impl Visit for Run {
    type Output = Measured;

    fn visit<S: Store>(self, store: &S) -> Result<Measured> {
        let Run { engine, operation, rows } = self;
        instructions::run(store, operation, operation.level(engine), rows)
    }
}

/// Runs one operation in this process, and prints how often and how long.
fn run_one(args: &BenchArgs, operation: Operation, peers: &impl Peers) -> Result<Outcome> {
    let (Some(engine), Some(directory)) = (args.engines.turn, args.engines.turn_path.as_deref()) else {
        bail!("--operation needs --turn and --turn-path");
    };
    let plan = args.plan();
    let rows = Rows { count: plan.rows, value_bytes: plan.value_bytes };
    let measured = if engine == Engine::QuenchDb {
        let database = args.open(&args.place(Some(directory))?)?;
        let tpcc = args.tpcc.workload(1, args.seed, None)?;
        let measured = instructions::run_own(&database, operation, rows, &tpcc)?;
        // The directory is removed: closing would only write its pages.
        std::mem::forget(database);
        measured
    } else {
        let (memory_bytes, bounded) = (plan.memory_bytes, args.bounds_memory());
        let settings = Settings { memory_bytes, bounded, threads: 1, tables: 1 };
        peers.open(engine, directory, &settings, Run { engine, operation, rows })?
    };
    print_json(&measured)?;
    Ok(Outcome::Done)
}
