//! The flags that choose engines.

use quench_bench::engine::Engine;
use quench_bench::peers::Peers;
use std::path::PathBuf;

fn engine(name: &str) -> Result<Engine, String> {
    Engine::named(name).ok_or_else(|| {
        let names = Engine::ALL.map(Engine::name).join(", ");
        format!("one of {names}")
    })
}

/// Flags of workloads that run on several engines
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Engines")]
pub struct EngineArgs {
    /// Compare: the workload. Figures: ids, or their beginnings (AC-F9a, MS). Instructions:
    /// operations. Default: all
    #[arg(index = 2, value_name = "NAME")]
    pub(super) names: Vec<String>,
    /// The engine: quenchdb, rocksdb, sqlite, lmdb, redb, fjall (only the program in peers/ has the
    /// others); also counts the writes of the block device
    #[arg(long, value_name = "NAME", value_parser = engine)]
    pub(super) engine: Option<Engine>,
    /// Compare, instructions: the engines; default: all of the program
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = engine)]
    pub(super) engines: Vec<Engine>,
    /// Compare: measurements of each engine, in turn, each in a new directory
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(super) rounds: Option<u64>,
    /// Makes this process one turn of a comparison, with this engine
    #[arg(long, hide = true, value_parser = engine, requires = "turn_path")]
    pub(super) turn: Option<Engine>,
    /// Directory of the turn
    #[arg(long, hide = true)]
    pub(super) turn_path: Option<PathBuf>,
}

const ROUNDS: u64 = 3;

impl EngineArgs {
    /// Returns the chosen engine.
    pub fn chosen(&self) -> Option<Engine> {
        self.engine
    }

    /// Returns the engines of a comparison, each once. Without `--engines`: all that the program
    /// contains.
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
