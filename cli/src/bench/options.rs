//! The flags of `quench bench`, and the plan and settings that follow from them.

use super::concurrency_options::ConcurrencyArgs;
use super::engine_options::EngineArgs;
use super::figures_options::FiguresArgs;
use super::instructions_options::InstructionsArgs;
use super::model_options::ModelArgs;
use super::protocol_options::{AblationOf, ProtocolArgs};
use super::workload_name::Workload;
use super::workload_options::{CounterArgs, LoadArgs, QueueArgs, TatpArgs, TpcbArgs, TpccArgs, YcsbArgs};
use crate::commands::is_url;
use crate::parse::prices;
use crate::parse::{
    DeviceParser, bytes, every, parse_compression, parse_preset, percent, positive_seconds, rate, seconds,
    theta, value_bytes,
};
use anyhow::{Result, bail};
use clap::ValueEnum;
use quench_bench::arrivals::{Clients, Gaps, Rate};
use quench_bench::modelled::Figures;
use quench_bench::place::Place;
use quench_bench::plan::{Checkpoints, CommitMode, Plan};
use quench_bench::requests::Prices;
use quench_bench::store::{Configured, Release};
use quenchdb::{Builder, Compression, Database, DeviceTrust, Durability, Preset, Settings};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Commit {
    Blocking,
    Async,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Arrivals {
    Poisson,
    Fixed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum OpenLoop {
    /// Clients learn by a callback that their commits are durable, and cause no write
    Callback,
    /// An idle worker waits for its oldest commit, which causes its write
    Wait,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Level {
    /// Survives a power cut
    Durable,
    /// Written without a flush: survives the end of the process
    Written,
    /// A crash loses the last `--loss-window` at most
    Bounded,
    /// Written when half a log buffer is full
    Lazy,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Trust {
    /// When flushed, if the cache of the device is volatile; otherwise when written
    Auto,
    /// When flushed
    Flush,
    /// When written (drives with power-loss protection)
    Device,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Reopen {
    /// A child runs the workload and is killed at the end of the measured time
    Kill,
    /// The database is closed
    Close,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Checkpoint {
    /// One checkpoint between load and warm-up
    Loaded,
    /// No checkpoint until the close, however long the log becomes
    None,
}

/// Memory of the machine.
fn physical_memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(info.mem_unit.into())
}

const EXAMPLES: &str = "\
Examples:
  quench bench device --threads 16                    the raw floor of this disk
  quench bench put --threads 1                        one durable put at a time: close to the floor
  quench bench ycsb --threads 16 --ops 10 --read-percent 50
  quench bench ycsb --threads 2 --rows 5000000 --commit async --preset autonomous --json
  quench bench live                                   show a run; q ends it
  quench bench tpcc --warehouses 2 --reopen kill --check        kill, recover, check all conditions

`quench bench WORKLOAD --help` has all options of one workload. docs/guide/benchmark.md explains them.
Sizes are bytes; k, m, g and t are powers of 1024.";

/// `quench bench`
#[derive(clap::Args, Clone)]
#[command(after_help = EXAMPLES)]
pub struct BenchArgs {
    #[arg(value_enum, index = 1)]
    pub(super) workload: Workload,
    /// Worker threads
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1024), help_heading = "Run")]
    pub(super) threads: u64,
    /// Run each worker on one processor only, round robin over those that the process may use
    #[arg(long, help_heading = "Run")]
    pin: bool,
    /// Measured time; default 10, of live unlimited
    #[arg(long, value_parser = positive_seconds, help_heading = "Run")]
    seconds: Option<f64>,
    /// Warm-up before the measured time; default: a tenth of it, at most 1 s
    #[arg(long, value_name = "SECONDS", value_parser = seconds, help_heading = "Run")]
    warmup: Option<f64>,
    /// Length of an interval of the series
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = positive_seconds, help_heading = "Run")]
    interval: f64,
    /// Open loop: this many transactions arrive per second, and latency counts from the arrival
    #[arg(long, value_name = "PER SECOND", value_parser = rate, help_heading = "Run")]
    rate: Option<f64>,
    /// Open loop: the distribution of the gaps between arrivals
    #[arg(long, value_enum, default_value = "poisson", requires = "rate", help_heading = "Run")]
    arrivals: Arrivals,
    /// Open loop with asynchronous commits: how clients learn that a commit is durable
    #[arg(long, value_enum, default_value = "callback", requires = "rate", help_heading = "Run")]
    open_loop: OpenLoop,
    /// Number of measurements on the same database; prints the report of the median, and the spread
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000), help_heading = "Run")]
    pub(super) runs: u64,
    /// Seed of the random choices
    #[arg(long, default_value_t = 1, help_heading = "Run")]
    pub(super) seed: u64,
    /// Rows loaded before the run; default 100000, of instructions 300000. Put with --reopen: the
    /// number of transactions, instead of --seconds
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..1 << 40), help_heading = "Rows")]
    rows: Option<u64>,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value = "100", value_parser = value_bytes, help_heading = "Rows")]
    value_bytes: usize,
    /// Operations in one transaction
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..1_000_000), help_heading = "Rows")]
    ops: u64,
    /// Ycsb: percentage of operations that read
    #[arg(long, default_value_t = 50, value_parser = percent, help_heading = "Rows")]
    read_percent: u32,
    /// Ycsb: skew of the choice of rows, 0 = uniform; default 0.99 where the choice is not uniform
    #[arg(long, value_parser = theta, help_heading = "Rows")]
    pub(super) zipf: Option<f64>,
    /// Transactions that only read use read-only snapshots
    #[arg(long, help_heading = "Rows")]
    pub(super) snapshots: bool,
    /// Tpcc, tatp: only transactions of this type (payment, update-location)
    #[arg(long, value_name = "TYPE", help_heading = "Rows")]
    pub(super) only: Option<String>,
    /// Ablation: the workload
    #[arg(long = "of", value_enum, value_name = "WORKLOAD", default_value = "ycsb", help_heading = "Rows")]
    pub(super) ablation_of: AblationOf,
    /// Ablation: the rows of the paper on autonomous commit, with a log for each thread, GSN with
    /// RFA, units of 4 KiB and no timer in all of them
    #[arg(long, help_heading = "Commit")]
    pub(super) as_published: bool,
    /// Device: random writes of 4 KiB to 512 MiB by 1 to 64 threads
    #[arg(long, help_heading = "Run")]
    pub(super) sweep: bool,
    #[command(flatten)]
    pub(super) ycsb: YcsbArgs,
    #[command(flatten)]
    pub(super) load: LoadArgs,
    #[command(flatten)]
    pub(super) tpcc: TpccArgs,
    #[command(flatten)]
    pub(super) tpcb: TpcbArgs,
    #[command(flatten)]
    pub(super) tatp: TatpArgs,
    #[command(flatten)]
    pub(super) counter: CounterArgs,
    #[command(flatten)]
    pub(super) queue: QueueArgs,
    #[command(flatten)]
    pub(super) model: ModelArgs,
    /// Wait for each commit, or continue at once
    #[arg(long, value_enum, default_value = "blocking", help_heading = "Commit")]
    commit: Commit,
    /// Durability level of each transaction
    #[arg(long, value_enum, default_value = "durable", help_heading = "Commit")]
    level: Level,
    /// Commit protocol: per-transaction, group, queued, pipelined, autonomous, restricted, passive,
    /// auto
    #[arg(long, default_value = "auto", value_parser = parse_preset, help_heading = "Commit")]
    preset: Preset,
    /// Number of logs; 0: the preset chooses
    #[arg(long, default_value_t = 0, help_heading = "Commit")]
    logs: usize,
    /// Write a log when it has this many bytes, even if no thread waits
    #[arg(long, value_name = "BYTES", value_parser = value_bytes, help_heading = "Commit")]
    flush_unit: Option<usize>,
    /// Directory of the database; default: a temporary one in the current directory, removed at the
    /// end
    #[arg(long, help_heading = "Database")]
    pub(super) path: Option<PathBuf>,
    /// Keep the database; without --path, prints its directory at the end
    #[arg(long, help_heading = "Database")]
    pub(super) keep: bool,
    /// Use the database in --path of an earlier run; load rows only if it is empty
    #[arg(long, requires = "path", help_heading = "Database")]
    pub(super) reuse: bool,
    /// Memory for pages, versions and log buffers; default: enough for all rows, at least 4g, at
    /// most three quarters of the machine's memory
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = "Database")]
    memory_bytes: Option<u64>,
    /// Compression of pages that are not expected to change soon: none, lz4, zstd (if built in)
    #[arg(long, default_value = "lz4", value_parser = parse_compression, help_heading = "Database")]
    compression: Compression,
    /// Keep pages of a database in a store of objects in this local directory
    #[arg(long, value_name = "DIRECTORY", help_heading = "Database")]
    object_cache: Option<PathBuf>,
    /// Model the speed of this device, on top of the directory --path, or of memory without --path
    #[arg(long, value_name = "sim:NAME", value_parser = DeviceParser, help_heading = "Device")]
    pub(super) device: Option<String>,
    /// Put the log on a device of its own, with the modelled speed of this one; the data stays
    /// where it is
    #[arg(long, value_name = "sim:NAME", value_parser = DeviceParser, help_heading = "Device")]
    pub(super) log_device: Option<String>,
    /// When completed writes count as durable
    #[arg(long, value_enum, default_value = "auto", help_heading = "Device")]
    durability: Trust,
    /// Checkpoints in addition to automatic ones
    #[arg(long, value_enum, value_name = "WHEN", num_args = 0..=1, default_missing_value = "loaded", help_heading = "Checkpoints and recovery")]
    pub(super) checkpoint: Option<Checkpoint>,
    /// Make checkpoints beside the workload, at this interval or back to back; soak: every 10 s
    #[arg(long, value_name = "SECONDS|continuous", value_parser = every, help_heading = "Checkpoints and recovery")]
    pub(super) checkpoint_every: Option<f64>,
    /// Open the database again after the run, measure that, and look for a sample of the rows
    #[arg(long, value_enum, help_heading = "Checkpoints and recovery")]
    pub(super) reopen: Option<Reopen>,
    /// Check the consistency conditions of the workload after the run, or after --reopen; exit code
    /// 1 if one is violated
    #[arg(long, help_heading = "Checkpoints and recovery")]
    pub(super) check: bool,
    /// Show the run in the terminal: throughput, latency, stages, pages, log, checkpoints; q, Esc
    /// or Ctrl-C ends it early
    #[arg(long, help_heading = "Output")]
    pub(super) live: bool,
    /// Draw throughput, latency and checkpoints over time
    #[arg(long, value_name = "FILE.svg", help_heading = "Output")]
    pub(super) plot: Option<PathBuf>,
    /// Write a page that shows the run: percentiles beside the device's, latency over time, stages,
    /// memory, log
    #[arg(long, value_name = "FILE.html", help_heading = "Output")]
    pub(super) report: Option<PathBuf>,
    /// JSON file with prices of a store of objects in dollars (million_puts, million_gets,
    /// million_deletes, gigabyte_sent, gigabyte_received); default: those of S3 Express One Zone
    #[arg(long, value_name = "FILE", value_parser = prices, help_heading = "Output")]
    prices: Option<Prices>,
    #[command(flatten)]
    pub(super) protocol: ProtocolArgs,
    #[command(flatten)]
    pub(super) concurrency: ConcurrencyArgs,
    #[command(flatten)]
    pub(super) engines: EngineArgs,
    #[command(flatten)]
    pub(super) figures: FiguresArgs,
    #[command(flatten)]
    pub(super) instructions: InstructionsArgs,
    /// Makes this process the child of a run with --reopen kill, with this database
    #[arg(long, hide = true)]
    pub(super) child: Option<PathBuf>,
    /// Makes the child record acknowledgments in this directory
    #[arg(long, hide = true)]
    pub(super) ledger: Option<PathBuf>,
}

const ROWS: u64 = 100_000;
/// Of `instructions`: a tree of three levels.
const ROWS_COUNTED: u64 = 300_000;
const SECONDS: f64 = 10.0;
/// Days: the user ends the run before.
const SECONDS_WITHOUT_END: f64 = 1e6;
const SOAK_CHECKPOINT_SECONDS: f64 = 10.0;
/// More log than any disk has, so that its length causes no checkpoint.
const LOG_WITHOUT_END: u64 = 1 << 50;

impl BenchArgs {
    /// Returns the flags with those that the name `live` implies.
    pub(super) fn resolved(self) -> BenchArgs {
        if self.workload != Workload::Live {
            return self;
        }
        let seconds = self.seconds.or(Some(SECONDS_WITHOUT_END));
        BenchArgs { workload: Workload::Ycsb, live: true, seconds, ..self }
    }

    /// Returns the title for `--live`.
    pub(super) fn title(&self) -> String {
        let name = self.workload.name();
        let plan = self.plan();
        let (threads, preset) = (plan.threads, self.preset.name());
        let commit = if plan.commit == CommitMode::Blocking { "blocking" } else { "async" };
        format!("{name}, {threads} threads, {commit}, {}, preset {preset}", plan.level_name())
    }

    /// Returns whether the killed child records acknowledgments for a check.
    pub(super) fn keeps_ledger(&self) -> bool {
        self.check && self.reopen == Some(Reopen::Kill)
    }

    /// Returns the measured time, if it was given.
    pub(super) fn given_seconds(&self) -> Option<f64> {
        self.seconds
    }

    pub(super) fn threads(&self) -> u64 {
        self.threads
    }

    pub(super) fn trust(&self) -> DeviceTrust {
        match self.durability {
            Trust::Auto => DeviceTrust::Auto,
            Trust::Flush => DeviceTrust::Flush,
            Trust::Device => DeviceTrust::Device,
        }
    }

    /// Returns whether the database is on a modelled device in memory.
    pub(super) fn is_in_memory(&self) -> bool {
        self.device.is_some() && self.path.is_none()
    }

    /// Returns whether the database needs a temporary directory.
    pub(super) fn needs_scratch(&self) -> bool {
        self.device.is_none() && self.path.is_none()
    }

    /// Returns the place of the database.
    pub(super) fn place(&self, directory: Option<&Path>) -> Result<Place> {
        let named = |name: &Option<String>| name.as_deref().and_then(|name| Figures::parse(name).ok());
        let place = match (named(&self.device), directory) {
            (Some(figures), _) => Place::modelled(figures, directory, self.trust(), self.seed)?,
            (None, Some(url)) if is_url(url) => Place::objects(&url.to_string_lossy()),
            (None, Some(directory)) => Place::directory(directory, self.trust()),
            (None, None) => bail!("no directory"),
        };
        match named(&self.log_device) {
            // Not the noise of the other device.
            Some(figures) => place.with_log_device(figures, self.seed.wrapping_add(1)),
            None => Ok(place),
        }
    }

    /// Returns whether the log is in mapped memory.
    pub(super) fn uses_log_memory(&self) -> bool {
        self.protocol.memory_of(self.preset, Some(Path::new(""))).is_some()
    }

    /// Returns whether `--memory-bytes` limits the memory.
    pub(super) fn bounds_memory(&self) -> bool {
        self.memory_bytes.is_some()
    }

    pub(super) fn runs(&self) -> u64 {
        self.runs
    }

    /// Returns whether the run ends after a number of transactions: put with --reopen and --rows.
    pub(super) fn counts_rows(&self) -> bool {
        self.workload == Workload::Put && self.reopen.is_some() && self.rows.is_some()
    }

    /// Returns whether a checkpoint follows the load.
    pub(super) fn checkpoint_when_loaded(&self) -> bool {
        let wanted = self.checkpoint == Some(Checkpoint::Loaded) || self.workload == Workload::Soak;
        wanted && self.checkpoint != Some(Checkpoint::None)
    }

    fn checkpoints(&self) -> Checkpoints {
        let soak = (self.workload == Workload::Soak).then_some(SOAK_CHECKPOINT_SECONDS);
        match self.checkpoint_every.or(soak) {
            // What a checkpoint beside them does to counted operations depends on its moment.
            _ if self.checkpoint == Some(Checkpoint::None) || self.workload == Workload::Instructions => {
                Checkpoints::None
            }
            Some(seconds) => Checkpoints::Every(Duration::from_secs_f64(seconds)),
            None => Checkpoints::Automatic,
        }
    }

    fn rows(&self) -> u64 {
        let usual = if self.workload == Workload::Instructions { ROWS_COUNTED } else { ROWS };
        self.rows.unwrap_or(usual)
    }

    /// Returns whether --rows, --value-bytes, --ops, --read-percent and --zipf describe the
    /// workload.
    fn has_rows(&self) -> bool {
        use Workload::{Counter, Queue, Tatp, Tpcb, Tpcc};
        !matches!(self.workload, Tpcc | Tpcb | Tatp | Counter | Queue)
    }

    fn memory_bytes(&self) -> u64 {
        // Random inserts fill leaves by two thirds; the rest is for rows that the run inserts.
        let rows_bytes = self.rows().saturating_mul(self.value_bytes as u64 + 64).saturating_mul(2);
        let warehouses = u64::from(self.tpcc.warehouses(self.threads)) * (300 << 20);
        let needed = match self.workload {
            Workload::Tpcc => warehouses,
            Workload::Mixed => warehouses + rows_bytes,
            Workload::Tpcb => self.tpcb.accounts() * 320,
            Workload::Tatp => u64::from(self.tatp.subscribers()) * 1200,
            Workload::Counter => 0,
            Workload::Queue => self.queue.rows() * (self.value_bytes as u64 + 64),
            _ => rows_bytes,
        };
        // A database larger than the machine's memory is read from the device.
        let most = physical_memory_bytes() / 4 * 3;
        self.memory_bytes.unwrap_or(needed.max(4 << 30).min(most))
    }

    fn level(&self) -> Durability {
        match self.level {
            Level::Durable => Durability::Durable,
            Level::Written => Durability::Written,
            Level::Bounded => Durability::BoundedLoss,
            Level::Lazy => Durability::Lazy,
        }
    }

    /// Refuses isolation and locks that go neither with the workload nor with the commits.
    pub(super) fn check_concurrency(&self) -> Result<()> {
        use Workload::{Device, Load, Model, Scan};
        if let Some(flag) = self.concurrency.given()
            && (matches!(self.workload, Device | Load | Model | Scan) || self.counts_rows())
        {
            bail!("{flag} does not go with {}, whose transactions are all of one kind", self.workload.name());
        }
        if self.pin && (matches!(self.workload, Device | Load | Scan) || self.counts_rows()) {
            bail!("--pin does not go with {}, which has no measured workers", self.workload.name());
        }
        self.concurrency.check(self.plan().commit, self.level())
    }

    pub(super) fn plan(&self) -> Plan {
        let plan = self.whole_plan();
        if self.has_rows() {
            return plan;
        }
        let value_bytes = if self.workload == Workload::Queue { plan.value_bytes } else { 0 };
        Plan { rows: 0, value_bytes, operations: 0, read_percent: 0, zipf: 0.0, ..plan }
    }

    fn whole_plan(&self) -> Plan {
        Plan {
            threads: self.threads as usize,
            pins: self.pin,
            duration: Duration::from_secs_f64(self.seconds.unwrap_or(SECONDS)),
            warm_up: self.warmup.map(Duration::from_secs_f64),
            interval: Duration::from_secs_f64(self.interval),
            prices: self.prices.unwrap_or_default(),
            commit: match self.commit {
                Commit::Blocking => CommitMode::Blocking,
                Commit::Async => CommitMode::Async,
            },
            rate: self.rate.map(|per_second| {
                let gaps = match self.arrivals {
                    Arrivals::Poisson => Gaps::Poisson,
                    Arrivals::Fixed => Gaps::Fixed,
                };
                let clients = match self.open_loop {
                    OpenLoop::Callback => Clients::Callback,
                    OpenLoop::Wait => Clients::Wait,
                };
                Rate { per_second, gaps, clients }
            }),
            level: match self.concurrency.concurrency().release {
                Release::Unsafe => Durability::Lazy,
                _ => self.level(),
            },
            snapshots: self.snapshots,
            checkpoints: self.checkpoints(),
            rows: self.rows(),
            value_bytes: self.value_bytes,
            field_bytes: self.ycsb.field_bytes.map(|bytes| bytes as usize),
            operations: self.ops as usize,
            read_percent: self.read_percent,
            zipf: self.ycsb.skew(self.zipf),
            memory_bytes: self.memory_bytes(),
            seed: self.seed,
        }
    }

    /// Returns the database with the isolation and locks of the workers.
    pub(super) fn configured<'d>(&self, database: &'d Database) -> Configured<'d> {
        Configured { database, concurrency: self.concurrency.concurrency() }
    }

    /// Opens the database of the workload.
    ///
    /// # Errors
    /// The engine's, and a flag that would do nothing there.
    pub(super) fn open(&self, place: &Place) -> Result<Database> {
        let database = place.open(self.builder(place)?)?;
        self.protocol.check(&database)?;
        Ok(database)
    }

    /// Returns a builder for the database of the workload.
    ///
    /// # Errors
    /// A flag that does not fit the protocol.
    pub(super) fn builder(&self, place: &Place) -> Result<Builder> {
        let mut settings = Settings::default().with(|s| {
            (s.preset, s.logs) = (self.preset, self.logs);
            s.log_memory = self.protocol.memory_of(self.preset, place.path());
            (s.compression, s.device_trust) = (self.compression, self.trust());
            s.memory_bytes = self.memory_bytes();
            s.object_cache.clone_from(&self.object_cache);
            s.lab.flush_unit_bytes = self.flush_unit.unwrap_or(0);
            if self.checkpoints() == Checkpoints::None {
                (s.lab.checkpoint_log_bytes, s.log_bytes_max) = (0, LOG_WITHOUT_END);
            }
        });
        self.protocol.apply(&mut settings)?;
        Ok(Database::builder().settings(settings))
    }
}
