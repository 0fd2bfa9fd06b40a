//! The flags that choose engines, and what does not go with engines other than QuenchDB.

use super::options::{BenchArgs, Workload};
use anyhow::{Result, bail};
use clap::ValueEnum;
use quench_bench::engine::Engine;
use quench_bench::peers::Peers;
use quench_bench::plan::{Checkpoints, CommitMode};
use quenchdb::Durability;
use std::path::PathBuf;

/// Returns the sentence that names the program with the missing engines.
fn missing(engine: Engine) -> String {
    let how = "run `cargo run --release --manifest-path peers/Cargo.toml --` with the arguments after `bench` instead";
    format!("{engine} is not part of this program: {how} (see docs/benchmark.md)")
}

fn engine(name: &str) -> Result<Engine, String> {
    Engine::named(name).ok_or_else(|| {
        let names = Engine::ALL.map(Engine::name).join(", ");
        format!("one of {names}")
    })
}

/// Of every workload that can run on several engines
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "engines")]
pub struct EngineArgs {
    /// Compare: the workload
    #[arg(value_enum, index = 2, value_name = "COMPARED")]
    of: Option<Workload>,
    /// The engine to measure: quenchdb, rocksdb, sqlite, lmdb, redb, fjall (all but the first need a build with them); then what the
    /// block device wrote is counted too
    #[arg(long, value_name = "NAME", value_parser = engine)]
    engine: Option<Engine>,
    /// Compare: the engines; default: all
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = engine)]
    engines: Vec<Engine>,
    /// Compare: how often each engine is measured, in turn, on a new directory
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: Option<u64>,
    /// This process is one turn of a comparison, with this engine
    #[arg(long, hide = true, value_parser = engine, requires = "turn_path")]
    turn: Option<Engine>,
    /// In this directory
    #[arg(long, hide = true)]
    turn_path: Option<PathBuf>,
}

const ROUNDS: u64 = 3;

impl EngineArgs {
    /// The engine, if one was chosen.
    pub fn chosen(&self) -> Option<Engine> {
        self.engine
    }

    /// Returns the engines of a comparison, each once. Without `--engines`: all that the program contains.
    pub fn compared(&self, peers: &impl Peers) -> Vec<Engine> {
        let wanted = |engine: &Engine| match self.engines[..] {
            [] => *engine == Engine::QuenchDb || peers.contains(*engine),
            _ => self.engines.contains(engine),
        };
        Engine::ALL.into_iter().filter(wanted).collect()
    }

    pub fn rounds(&self) -> u64 {
        self.rounds.unwrap_or(ROUNDS)
    }

    pub fn is_turn(&self) -> bool {
        self.turn.is_some()
    }
}

fn name_of(workload: Workload) -> String {
    workload.to_possible_value().map_or_else(String::new, |name| name.get_name().to_string())
}

impl BenchArgs {
    /// The same for one engine of a comparison, as a run of its own. What only reads uses snapshots, with every engine: where there
    /// is one writer, a transaction that might write would wait for others.
    pub(super) fn turn_of(&self, engine: Engine, directory: Option<PathBuf>) -> Result<BenchArgs> {
        let Some(workload @ (Workload::Put | Workload::Ycsb | Workload::Tpcc)) = self.engines.of else {
            bail!("compare needs the workload: `quench bench compare put`, ycsb or tpcc");
        };
        let engines = EngineArgs {
            of: None,
            engine: Some(engine),
            engines: Vec::new(),
            rounds: None,
            turn: None,
            turn_path: None,
        };
        let mut turn = self.clone();
        (turn.workload, turn.engines, turn.path, turn.plot) = (workload, engines, directory, None);
        turn.snapshots = true;
        Ok(turn)
    }

    /// In a process that is one turn of a comparison: what it does. Otherwise the same as before.
    pub(super) fn in_its_turn(self) -> Result<BenchArgs> {
        match self.engines.turn {
            Some(engine) => self.turn_of(engine, self.engines.turn_path.clone()),
            None => Ok(self),
        }
    }

    /// Refuses what a comparison cannot do.
    pub(super) fn check_compare(&self, peers: &impl Peers) -> Result<()> {
        for (flag, given) in [
            ("--engine", self.engines.engine.is_some()),
            ("--keep", self.keep),
            ("--reuse", self.reuse),
            ("--runs", self.runs() > 1),
            ("--reopen", self.reopen.is_some()),
            ("--live", self.live),
        ] {
            if given {
                bail!("{flag} does not go with compare");
            }
        }
        if !Engine::ALL.into_iter().any(|engine| peers.contains(engine)) {
            bail!("compare needs other engines: {}", missing(Engine::RocksDb));
        }
        for engine in self.engines.compared(peers) {
            self.turn_of(engine, self.path.clone())?.check(peers)?;
        }
        Ok(())
    }

    /// Refuses flags about engines where they mean nothing, and what the chosen one cannot do.
    pub(super) fn check_engines(&self, peers: &impl Peers) -> Result<()> {
        let workload = name_of(self.workload);
        let EngineArgs { of, engines, rounds, .. } = &self.engines;
        if let Some(of) = of {
            bail!("{workload} takes no second workload ({})", name_of(*of));
        }
        for (flag, given) in [("--engines", !engines.is_empty()), ("--rounds", rounds.is_some())] {
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
            Workload::Scan | Workload::Soak | Workload::Load | Workload::Device | Workload::Ablation
        ) {
            bail!(
                "{workload} runs on quenchdb only; put, ycsb, tpcc, tpcb, tatp and mixed run on {engine} too"
            );
        }
        let plan = self.plan();
        for (what, given) in [
            ("--commit async", plan.commit == CommitMode::Async),
            ("--level bounded", plan.level == Durability::BoundedLoss),
            ("--checkpoint-every or --checkpoint none", plan.checkpoints != Checkpoints::Automatic),
            ("--reopen", self.reopen.is_some()),
            ("--device", self.device.is_some()),
            ("--reuse", self.reuse),
            ("--live", self.live),
        ] {
            if given {
                bail!("{engine} has no {what}: that is quenchdb's alone");
            }
        }
        Ok(())
    }
}
