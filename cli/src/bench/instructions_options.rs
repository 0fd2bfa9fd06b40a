//! The flags of `quench bench instructions`.

use quench_bench::instructions::Operation;
use std::path::PathBuf;

/// Of `instructions`
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "instructions")]
pub struct InstructionsArgs {
    /// Measure nanoseconds by the clock instead, without valgrind
    #[arg(long)]
    pub(super) time: bool,
    /// JSON file with the numbers of an earlier run; exit code 1 if a number is more than 3 %
    /// above the one in there
    #[arg(long, value_name = "FILE")]
    pub(super) recorded: Option<PathBuf>,
    /// Write the numbers into the file of --recorded, instead of comparing them; keeps those of
    /// engines and operations that were not measured
    #[arg(long, requires = "recorded")]
    pub(super) renew: bool,
    /// Makes this process run one operation, in --turn-path, on the engine --turn
    #[arg(long, hide = true, value_parser = operation, requires = "turn")]
    pub(super) operation: Option<Operation>,
}

fn operation(name: &str) -> Result<Operation, String> {
    Operation::named(name).ok_or_else(|| {
        let names = Operation::ALL.map(Operation::name).join(", ");
        format!("no operation is called `{name}`; the operations are {names}")
    })
}

impl InstructionsArgs {
    /// Returns one of these flags, if any was given.
    pub fn given(&self) -> Option<&'static str> {
        let flags = [("--time", self.time), ("--recorded", self.recorded.is_some()), ("--renew", self.renew)];
        flags.into_iter().find(|flag| flag.1).map(|flag| flag.0)
    }

    /// Returns the operations with these names, each once; without names: all.
    pub(super) fn named(names: &[String]) -> Result<Vec<Operation>, String> {
        let named = names.iter().map(|name| operation(name)).collect::<Result<Vec<_>, _>>()?;
        let wanted = |operation: &Operation| named.is_empty() || named.contains(operation);
        Ok(Operation::ALL.into_iter().filter(wanted).collect())
    }
}
