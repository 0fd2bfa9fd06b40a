//! Runs of the engine that the model is calibrated with and held against: updates of single rows.

use crate::driver::Run;
use crate::modelled::Figures;
use crate::place::Place;
use crate::plan::{Checkpoints, CommitMode, Plan};
use crate::report::Report;
use crate::requests::Prices;
use crate::ycsb::{self, Ycsb};
use anyhow::{Result, anyhow};
use quenchdb::{Database, DeviceTrust, Durability, Preset};
use std::collections::BTreeMap;
use std::time::Duration;

/// A run of the engine.
#[derive(Clone, Debug)]
pub(super) struct EngineRun {
    pub preset: Preset,
    pub blocking: bool,
    pub threads: usize,
    pub device: String,
    pub seconds: f64,
}

/// Rows of the table.
const ROWS: u64 = 100_000;
/// Memory of the database.
const MEMORY_BYTES: u64 = 1 << 30;
/// No checkpoint disturbs the run.
const LOG_BYTES_MAX: u64 = 1 << 50;

/// Runs the engine and returns its report.
///
/// # Errors
/// Those of the engine.
pub(super) fn run_engine(wanted: &EngineRun) -> Result<Report> {
    let figures = Figures::parse(&wanted.device).map_err(|error| anyhow!(error))?;
    let place = Place::modelled(figures, None, DeviceTrust::Auto, 1)?;
    let mut builder = Database::builder()
        .preset(wanted.preset)
        .memory_bytes(MEMORY_BYTES)
        .checkpoint_log_bytes(0)
        .log_bytes_max(LOG_BYTES_MAX);
    if matches!(wanted.preset, Preset::Autonomous | Preset::Restricted) {
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

/// Returns the logs of a preset that has several.
pub(super) fn logs_of(preset: Preset, threads: usize) -> usize {
    let logs = if preset == Preset::Restricted { threads.div_ceil(2) } else { threads };
    logs.clamp(1, 16)
}
