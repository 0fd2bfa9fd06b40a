//! The flags of `bench model`.

use quench_bench::event_model::Protocol;
use std::path::PathBuf;

/// Of `model`
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "model")]
pub struct ModelArgs {
    /// Protocol to run: a preset, or central, flush, flush-queue, our-4k, our-16k;
    /// default: all presets
    #[arg(long, value_name = "NAME", value_parser = protocol_name)]
    pub protocol: Option<String>,
    /// JSON file with the costs of the steps, as --calibrate writes it; default: those measured on
    /// one machine
    #[arg(long, value_name = "FILE")]
    pub costs: Option<PathBuf>,
    /// JSON file with an input: workers, cores, protocol, device, costs; replaces the other flags
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Processors; 0: one for each thread
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(0..=4096))]
    pub cores: Option<u64>,
    /// Measure the costs with the engine and the disk on this machine, with one worker and with
    /// several, and print them as JSON
    #[arg(long, conflicts_with_all = ["against", "figure"])]
    pub calibrate: bool,
    /// Run the engine, too, with 1, 2, 8 and 16 workers, and compare; on modelled devices, in
    /// mapped memory, and with --costs on the calibrated disk
    #[arg(long, conflicts_with = "figure")]
    pub against: bool,
    /// A figure of a paper whose machine is larger than this one, such as AC-F12; --seconds below 1
    /// shortens the simulated time
    #[arg(long, value_name = "ID")]
    pub figure: Option<String>,
}

fn protocol_name(name: &str) -> Result<String, String> {
    match Protocol::named(name, 2) {
        Some(_) => Ok(name.into()),
        None => Err(format!("no protocol is called `{name}`; the names are {}", Protocol::NAMES.join(", "))),
    }
}

impl ModelArgs {
    /// Returns the first flag that was given.
    pub fn given(&self) -> Option<&'static str> {
        let flags = [
            ("--protocol", self.protocol.is_some()),
            ("--costs", self.costs.is_some()),
            ("--input", self.input.is_some()),
            ("--cores", self.cores.is_some()),
            ("--calibrate", self.calibrate),
            ("--against", self.against),
            ("--figure", self.figure.is_some()),
        ];
        flags.into_iter().find(|flag| flag.1).map(|flag| flag.0)
    }
}
