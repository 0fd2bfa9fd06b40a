//! Refuses flags that contradict each other, with one sentence that names them.

use super::engine_options::EngineArgs;
use super::options::{BenchArgs, Checkpoint, Reopen};
use super::workload_name::Workload;
use anyhow::{Result, bail};
use quench_bench::engine::Engine;
use quench_bench::peers::Peers;
use quench_bench::plan::{Checkpoints, CommitMode};
use quenchdb::Durability;

/// Returns the sentence that names the program with the missing engine.
pub(super) fn missing(engine: Engine) -> String {
    let arguments: Vec<String> =
        std::env::args().skip_while(|argument| argument != "bench").skip(1).collect();
    let command = format!("cargo run --release --manifest-path peers/Cargo.toml -- {}", arguments.join(" "));
    format!(
        "{engine} is not part of this program; run `{}` instead (see docs/guide/benchmark.md)",
        command.trim_end()
    )
}

impl BenchArgs {
    /// Refuses flags that contradict each other.
    pub(super) fn check(&self, peers: &impl Peers) -> Result<()> {
        self.check_engines(peers)?;
        self.check_concurrency()?;
        if self.checkpoint == Some(Checkpoint::None) && self.checkpoint_every.is_some() {
            bail!("--checkpoint none contradicts --checkpoint-every");
        }
        if self.checkpoint == Some(Checkpoint::None) && self.workload == Workload::Scan {
            bail!("a scan begins with a checkpoint; --checkpoint none contradicts it");
        }
        self.check_devices()?;
        let workload = self.workload.name();
        let special = matches!(
            self.workload,
            Workload::Put
                | Workload::Scan
                | Workload::Soak
                | Workload::Device
                | Workload::Model
                | Workload::Instructions
        );
        let load = self.workload == Workload::Load;
        for (flag, given) in [
            ("--check", self.check && special),
            ("--reuse", self.reuse && (special || load)),
            ("--runs", self.runs > 1 && (special || load)),
            ("--reopen", self.reopen.is_some() && (load || self.workload == Workload::Instructions)),
            ("--engine", self.engines.engine.is_some() && self.workload == Workload::Instructions),
        ] {
            if given {
                bail!("{flag} does not go with {workload}");
            }
        }
        self.check_flags_of_one()?;
        if self.workload == Workload::Mixed && self.threads < 2 {
            bail!("mixed needs at least two threads");
        }
        if self.runs > 1 && self.reopen == Some(Reopen::Kill) {
            bail!("--runs contradicts --reopen kill");
        }
        let driven = !matches!(
            self.workload,
            Workload::Device
                | Workload::Scan
                | Workload::Load
                | Workload::Figures
                | Workload::Model
                | Workload::Instructions
        );
        for (flag, given) in
            [("--plot", self.plot.is_some()), ("--report", self.report.is_some()), ("--live", self.live)]
        {
            if given && !driven {
                bail!("{flag} does not go with {workload}");
            }
        }
        if self.live && self.counts_rows() {
            bail!("--live needs a measured time, and put with --reopen and --rows has none");
        }
        Ok(())
    }
}

impl BenchArgs {
    /// Refuses flags of one or two workloads with others.
    fn check_flags_of_one(&self) -> Result<()> {
        let workload = self.workload.name();
        let name = self.workload;
        let mixed = name == Workload::Mixed;
        for (given, fits) in [
            (self.ycsb.given(), mixed || name == Workload::Ycsb),
            (self.load.given(), name == Workload::Load),
            (self.tpcc.given(), mixed || matches!(name, Workload::Tpcc | Workload::Instructions)),
            (self.tpcb.given(), name == Workload::Tpcb),
            (self.tatp.given(), name == Workload::Tatp),
            (self.counter.given(), name == Workload::Counter),
            (self.queue.given(), name == Workload::Queue),
            (self.figures.given(), name == Workload::Figures),
            (self.model.given(), name == Workload::Model),
            (self.instructions.given(), name == Workload::Instructions),
        ] {
            if let Some(flag) = given.filter(|_| !fits) {
                bail!("{flag} does not go with {workload}");
            }
        }
        if self.only.is_some() && !matches!(self.workload, Workload::Tpcc | Workload::Tatp) {
            bail!("--only goes with tpcc and tatp");
        }
        if self.as_published && self.workload != Workload::Ablation {
            bail!("--as-published goes with ablation");
        }
        if self.sweep && self.workload != Workload::Device {
            bail!("--sweep goes with device");
        }
        Ok(())
    }

    /// Refuses flags that do not go with the device of the database or of its log.
    fn check_devices(&self) -> Result<()> {
        if self.workload == Workload::Device && self.reopen.is_some() {
            bail!("the device has no database to reopen");
        }
        if self.log_device.is_some() && self.workload == Workload::Device {
            bail!("--log-device does not go with device, which measures one device: give it as --device");
        }
        if self.log_device.is_some() && self.uses_log_memory() {
            bail!("--log-device contradicts a log in mapped memory, which is on no device");
        }
        if self.is_in_memory() && self.child.is_none() {
            for (flag, given) in [("--reopen kill", self.reopen == Some(Reopen::Kill)), ("--keep", self.keep)]
            {
                if given {
                    bail!(
                        "{flag} with --device needs --path: without it the device is in memory, gone with the process"
                    );
                }
            }
        }
        Ok(())
    }

    /// Refuses flags that do not go with a comparison.
    pub(super) fn check_compare(&self, peers: &impl Peers) -> Result<()> {
        for (flag, given) in [
            ("--engine", self.engines.engine.is_some()),
            ("--keep", self.keep),
            ("--reuse", self.reuse),
            ("--runs", self.runs() > 1),
            ("--reopen", self.reopen.is_some()),
            ("--live", self.live),
            ("--report", self.report.is_some()),
        ] {
            if given {
                bail!("{flag} does not go with compare");
            }
        }
        if !Engine::ALL.into_iter().any(|engine| peers.contains(engine)) {
            bail!("compare needs other engines, and {}", missing(Engine::RocksDb));
        }
        for engine in self.engines.compared(peers) {
            self.turn_of(engine, self.path.clone())?.check(peers)?;
        }
        Ok(())
    }

    /// Refuses flags that do not go with the chosen engine.
    pub(super) fn check_engines(&self, peers: &impl Peers) -> Result<()> {
        let workload = self.workload.name();
        let EngineArgs { names, engines, rounds, .. } = &self.engines;
        let named = matches!(self.workload, Workload::Figures | Workload::Instructions);
        if let Some(name) = names.first().filter(|_| !named) {
            bail!("{workload} takes no second name ({name}); compare, figures and instructions do");
        }
        let chosen = !engines.is_empty() && self.workload != Workload::Instructions;
        for (flag, given) in [("--engines", chosen), ("--rounds", rounds.is_some())] {
            if given {
                bail!("{flag} goes with compare");
            }
        }
        match self.engines.engine {
            None | Some(Engine::QuenchDb) => Ok(()),
            Some(engine) => self.check_peer(engine, peers.contains(engine), &workload),
        }
    }

    fn check_peer(&self, engine: Engine, contained: bool, workload: &str) -> Result<()> {
        if !contained {
            bail!("{}", missing(engine));
        }
        if matches!(
            self.workload,
            Workload::Scan
                | Workload::Soak
                | Workload::Load
                | Workload::Device
                | Workload::Ablation
                | Workload::Model
        ) {
            bail!(
                "{workload} runs on quenchdb only; put, ycsb, tpcc, tpcb, tatp, counter, queue and mixed run on {engine} too"
            );
        }
        if let Some(flag) = self.concurrency.given() {
            bail!("{engine} does not support {flag}; only quenchdb does");
        }
        let plan = self.plan();
        for (what, given) in [
            ("--commit async", plan.commit == CommitMode::Async),
            ("--level bounded", plan.level == Durability::BoundedLoss),
            ("--checkpoint-every or --checkpoint none", plan.checkpoints != Checkpoints::Automatic),
            ("--reopen", self.reopen.is_some()),
            ("--device", self.device.is_some()),
            ("--log-device", self.log_device.is_some()),
            ("--reuse", self.reuse),
            ("--live", self.live),
        ] {
            if given {
                bail!("{engine} does not support {what}; only quenchdb does");
            }
        }
        Ok(())
    }
}
