//! Runs of the engine that the model is calibrated with and held against: updates of single rows.
//! The same as inputs of the model.

use super::costs::Costs;
use super::input::{ModelInput, Protocol, RowLocks};
use crate::driver::Run;
use crate::modelled::Figures;
use crate::place::Place;
use crate::plan::{Checkpoints, CommitMode, Plan};
use crate::report::Report;
use crate::requests::Prices;
use crate::ycsb::{self, Ycsb};
use anyhow::{Result, anyhow};
use quenchdb::internals::commit::constants;
use quenchdb::{Database, Dependency, DeviceTrust, Durability, LockRelease, Preset};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// A run of the engine.
#[derive(Clone, Debug)]
pub(super) struct EngineRun {
    pub preset: Preset,
    pub blocking: bool,
    pub threads: usize,
    /// A modelled device around memory, or around `directory`.
    pub device: String,
    /// The disk of this directory instead, of which `device` is the model.
    pub directory: Option<PathBuf>,
    pub seconds: f64,
}

/// Rows of the table.
const ROWS: u64 = 100_000;
/// Memory of the database.
const MEMORY_BYTES: u64 = 1 << 30;
/// No checkpoint disturbs the run.
const LOG_BYTES_MAX: u64 = 1 << 50;
/// Threads that wait for a modelled device compute the last 50 us of a wait.
const MODELLED_SPIN_NS: f64 = 50_000.0;

/// Runs the engine and returns its report.
///
/// # Errors
/// Those of the engine.
pub(super) fn run_engine(wanted: &EngineRun) -> Result<Report> {
    let figures = Figures::parse(&wanted.device).map_err(|error| anyhow!(error))?;
    let place = match &wanted.directory {
        Some(directory) => Place::directory(directory, DeviceTrust::Auto),
        None => Place::modelled(figures, None, DeviceTrust::Auto, 1)?,
    };
    let mut builder = Database::builder()
        .preset(wanted.preset)
        .memory_bytes(MEMORY_BYTES)
        .lab(|lab| lab.checkpoint_log_bytes = 0)
        .log_bytes_max(LOG_BYTES_MAX);
    if has_several_logs(wanted.preset) {
        builder = builder.logs(logs_of(wanted.preset, wanted.threads));
    }
    let database = place.open(builder)?;
    let plan = Plan {
        threads: wanted.threads,
        pins: false,
        duration: Duration::from_secs_f64(wanted.seconds),
        warm_up: Some(Duration::from_secs_f64(wanted.seconds / 4.0)),
        interval: Duration::from_secs(1),
        commit: if wanted.blocking { CommitMode::Blocking } else { CommitMode::Async },
        prices: Prices::default(),
        rate: None,
        level: Durability::Durable,
        snapshots: false,
        checkpoints: Checkpoints::None,
        rows: ROWS,
        value_bytes: 100,
        field_bytes: None,
        operations: 1,
        read_percent: 0,
        zipf: 0.0,
        memory_bytes: MEMORY_BYTES,
        seed: 1,
    };
    let run = Run {
        workload: "ycsb",
        parameters: &BTreeMap::new(),
        kinds: Ycsb::kinds_of(&plan),
        store: &database,
        plan: &plan,
        progress: &|_, _, _| {},
        block_device: None,
        while_working: None,
        watch: None,
        ledger: None,
    };
    let report = ycsb::run(&run, false)?.report;
    database.close()?;
    Ok(report)
}

/// Returns the run with the highest throughput of `times`: other processes only take time.
///
/// # Errors
/// Those of the engine.
pub(super) fn fastest_of(times: usize, wanted: &EngineRun) -> Result<Report> {
    let mut best = run_engine(wanted)?;
    for _ in 1..times {
        let again = run_engine(wanted)?;
        if again.throughput_tps > best.throughput_tps {
            best = again;
        }
    }
    Ok(best)
}

/// Returns whether a preset is about several logs.
fn has_several_logs(preset: Preset) -> bool {
    matches!(preset, Preset::Autonomous | Preset::Restricted | Preset::Passive)
}

/// Returns the input of the model that stands for a run of the engine on this machine.
pub(super) fn input_of(run: &EngineRun, costs: &Costs, log_bytes: u64) -> ModelInput {
    let EngineRun { preset, blocking, threads, .. } = *run;
    let mut protocol = Protocol::named(preset.name(), threads).unwrap_or_default();
    if has_several_logs(preset) {
        protocol.logs = logs_of(preset, threads);
    }
    let several = protocol.logs > 1;
    if !several {
        protocol.dependency = Dependency::LogOrder;
    }
    protocol.blocking = blocking;
    protocol.cohort = blocking && !matches!(preset, Preset::PerTransaction | Preset::Queued);
    let entries = constants::QUEUE_ENTRIES / protocol.logs;
    protocol.queue_entries = entries.max(constants::QUEUE_ENTRIES_PER_LOG_MIN).next_power_of_two();
    // A transaction depends on the one before it in its row. The costs contain the row's lock.
    let rows = RowLocks { rows: ROWS, h: 0.5, release: LockRelease::PreCommit, locked_share: 0.0 };
    let spin_ns = if run.directory.is_some() { 0.0 } else { MODELLED_SPIN_NS };
    ModelInput {
        workers: threads,
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        protocol,
        locks: several.then_some(rows),
        device: run.device.clone(),
        log_bytes,
        costs: Costs { spin_ns, lock_ns: 0.0, ..*costs },
        seconds: 1.0,
        warm_up_seconds: 0.2,
        ..ModelInput::default()
    }
}

/// Returns the logs of a preset that has several.
fn logs_of(preset: Preset, threads: usize) -> usize {
    let logs = if preset == Preset::Restricted { threads.div_ceil(2) } else { threads };
    logs.clamp(1, 16)
}
