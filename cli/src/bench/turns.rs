//! One engine of a comparison as a run of its own.

use super::engine_options::EngineArgs;
use super::options::BenchArgs;
use super::workload_name::Workload;
use anyhow::{Result, bail};
use clap::ValueEnum;
use quench_bench::engine::Engine;
use std::path::PathBuf;

impl BenchArgs {
    /// Returns the flags of the run of one engine. Transactions that only read use snapshots with
    /// every engine: an engine with a single writer would make them wait otherwise.
    pub(super) fn turn_of(&self, engine: Engine, directory: Option<PathBuf>) -> Result<BenchArgs> {
        let named = match &self.engines.names[..] {
            [name] => Workload::from_str(name, false).ok(),
            _ => None,
        };
        let Some(workload @ (Workload::Put | Workload::Ycsb | Workload::Tpcc)) = named else {
            bail!("compare needs the workload: `quench bench compare put`, ycsb or tpcc");
        };
        let engines = EngineArgs {
            names: Vec::new(),
            engine: Some(engine),
            engines: Vec::new(),
            rounds: None,
            turn: None,
            turn_path: None,
        };
        let mut turn = self.clone();
        (turn.workload, turn.engines, turn.path, turn.plot, turn.report) =
            (workload, engines, directory, None, None);
        turn.snapshots = true;
        Ok(turn)
    }

    /// Returns the flags of the turn, if this process is a turn of a comparison; otherwise the
    /// flags themselves.
    pub(super) fn in_its_turn(self) -> Result<BenchArgs> {
        match self.engines.turn {
            Some(engine) => self.turn_of(engine, self.engines.turn_path.clone()),
            None => Ok(self),
        }
    }
}
