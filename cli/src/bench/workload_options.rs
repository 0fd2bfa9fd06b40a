//! The flags of single workloads.

use anyhow::{Result, bail};
use clap::ValueEnum;
use quench_bench::bulk::{self, Bulk, Order};
use quench_bench::counter::Counter;
use quench_bench::distribution::Access;
use quench_bench::plan::Plan;
use quench_bench::queue::Queue;
use quench_bench::tatp::{self, Tatp};
use quench_bench::tpcb::{BranchUpdate, Tpcb};
use quench_bench::tpcc::schema::Scale;
use quench_bench::tpcc::{self, Home, Selection, Tpcc};
use quench_bench::ycsb::{self, Mix, Ycsb};
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Distribution {
    Uniform,
    Zipfian,
    Latest,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum MixPer {
    Operation,
    Transaction,
}

/// The skew of zipfian choices if none is given.
pub const THETA: f64 = 0.99;

/// Of `ycsb`
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "ycsb")]
pub struct YcsbArgs {
    /// Operations: a to f as in the paper, rmw: only read-modify-writes; default: reads and updates
    /// by --read-percent
    #[arg(long, value_parser = ["a", "b", "c", "d", "e", "f", "rmw"])]
    pub mix: Option<String>,
    /// How rows are chosen; default: as the mix says; without one zipfian if there is a --zipf,
    /// otherwise uniform
    #[arg(long, value_enum)]
    pub distribution: Option<Distribution>,
    /// Whether the mix is of operations or of transactions, whose --ops are then all of one kind;
    /// default: operation
    #[arg(long, value_enum, value_name = "UNIT")]
    mix_per: Option<MixPer>,
    /// Updates read the row and change one field of this size
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(8..=1 << 20))]
    pub field_bytes: Option<u64>,
    /// Each worker chooses the rows of this many transactions in advance and announces them to the
    /// engine, which reads missing pages with many reads at a time; not with inserts, and only for
    /// quenchdb
    #[arg(long, value_name = "TRANSACTIONS", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub ahead: Option<u16>,
}

/// The first of some flags that was given.
fn first_given<const N: usize>(flags: [(&'static str, bool); N]) -> Option<&'static str> {
    flags.into_iter().find(|flag| flag.1).map(|flag| flag.0)
}

impl YcsbArgs {
    /// Returns one of these flags, if any was given.
    pub fn given(&self) -> Option<&'static str> {
        first_given([
            ("--mix", self.mix.is_some()),
            ("--mix-per", self.mix_per.is_some()),
            ("--distribution", self.distribution.is_some()),
            ("--ahead", self.ahead.is_some()),
        ])
    }

    fn named(&self) -> Option<(Mix, Access)> {
        Mix::named(self.mix.as_deref()?)
    }

    /// How rows are chosen, with the skew that was given.
    fn access(&self, zipf: Option<f64>) -> Access {
        match (self.distribution, zipf) {
            (Some(Distribution::Uniform), _) => Access::Uniform,
            (Some(Distribution::Zipfian), _) => Access::Zipfian,
            (Some(Distribution::Latest), _) => Access::Latest,
            (None, Some(0.0)) => Access::Uniform,
            (None, _) => match self.named() {
                Some((_, Access::Uniform)) | None if zipf.is_some() => Access::Zipfian,
                Some((_, access)) => access,
                None => Access::Uniform,
            },
        }
    }

    /// The skew of a plan: 0 is uniform.
    pub fn skew(&self, zipf: Option<f64>) -> f64 {
        match (self.access(zipf), zipf) {
            (Access::Uniform, _) => 0.0,
            (_, Some(theta)) if theta > 0.0 => theta,
            _ => THETA,
        }
    }

    pub fn workload(&self, plan: &Plan, zipf: Option<f64>) -> Result<Ycsb> {
        ycsb::check_fields(plan)?;
        let (name, mix) = match (&self.mix, self.named()) {
            (Some(name), Some((mix, _))) => (name.as_str(), mix),
            _ => ("", Mix::reads_and_updates(plan.read_percent)),
        };
        let ahead = usize::from(self.ahead.unwrap_or(0));
        Ok(Ycsb::new(plan, name, mix, self.access(zipf))
            .with_ahead(ahead)
            .with_mix_per_transaction(self.mix_per == Some(MixPer::Transaction)))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum HomeArg {
    /// Worker i at warehouse i, from the first again when there are more workers
    Fixed,
    /// At another warehouse for each transaction
    Random,
}

/// Of `tpcc`
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "tpcc, mixed")]
pub struct TpccArgs {
    /// Warehouses; default: one for each thread
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    warehouses: Option<u16>,
    /// The warehouse of a worker's terminal; default: fixed
    #[arg(long, value_enum)]
    home: Option<HomeArg>,
    /// Deal transactions from decks of 23 cards instead of drawing them by weight
    #[arg(long, conflicts_with = "only")]
    deck: bool,
    /// Keying and think times of the specification, multiplied by this factor; default: none
    #[arg(
        long,
        value_name = "FACTOR",
        num_args = 0..=1,
        default_missing_value = "1",
        value_parser = pace,
        conflicts_with = "rate"
    )]
    think_times: Option<f64>,
    /// A hundredth of the specification's customers, orders and items, for tests
    #[arg(long)]
    small: bool,
}

fn pace(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if (0.0..=1000.0).contains(&factor) => Ok(factor),
        _ => Err("a factor from 0 to 1000".into()),
    }
}

/// Seed of every population, so that any later run can use a kept one.
const POPULATION_SEED: u64 = 1;

/// Returns the index of `only` in `kinds`.
fn only_of(only: Option<&str>, kinds: &[&str]) -> Result<Option<usize>> {
    let Some(only) = only else { return Ok(None) };
    match kinds.iter().position(|kind| *kind == only) {
        Some(place) => Ok(Some(place)),
        None => bail!("--only {only} names no transaction; choose one of {}", kinds.join(", ")),
    }
}

impl TpccArgs {
    /// Returns one of these flags, if any was given.
    pub fn given(&self) -> Option<&'static str> {
        first_given([
            ("--warehouses", self.warehouses.is_some()),
            ("--home", self.home.is_some()),
            ("--deck", self.deck),
            ("--think-times", self.think_times.is_some()),
            ("--small", self.small),
        ])
    }

    pub fn warehouses(&self, threads: u64) -> u16 {
        self.warehouses.unwrap_or(threads as u16)
    }

    pub fn workload(&self, threads: usize, seed: u64, only: Option<&str>) -> Result<Tpcc> {
        let selection = match only_of(only, tpcc::input::KINDS)? {
            Some(place) => Selection::Only(tpcc::Kind::ALL[place]),
            None if self.deck => Selection::Deck,
            None => Selection::Weighted,
        };
        Ok(Tpcc {
            warehouses: self.warehouses(threads as u64),
            scale: if self.small { Scale::SMALL } else { Scale::SPECIFICATION },
            selection,
            home: if self.home == Some(HomeArg::Random) { Home::Random } else { Home::Fixed },
            pace: self.think_times.unwrap_or(0.0),
            population_seed: POPULATION_SEED,
            run_seed: seed,
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum BranchArg {
    /// As the transaction profile of the specification has it (clause 1.2)
    Last,
    /// Before the history, as the sample program of the specification has it
    Early,
    /// Before everything else
    First,
}

/// Of `tpcb`
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "tpcb")]
pub struct TpcbArgs {
    /// Branches; default 10
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    branches: Option<u32>,
    /// Accounts of a branch; default 100000
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    accounts: Option<u32>,
    /// Self-similar choice of branches: the first share H of them gets the share 1 - H of the
    /// transactions; default 0.5: uniform
    #[arg(long, value_name = "H", value_parser = skew)]
    skew: Option<f64>,
    /// When a transaction updates its branch, the hot row; default: last
    #[arg(long, value_enum, value_name = "WHEN")]
    branch_update: Option<BranchArg>,
}

fn skew(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(h) if h > 0.0 && h <= 0.5 => Ok(h),
        _ => Err("a number above 0 and at most 0.5, which is uniform".into()),
    }
}

impl TpcbArgs {
    /// Returns one of these flags, if any was given.
    pub fn given(&self) -> Option<&'static str> {
        first_given([
            ("--branches", self.branches.is_some()),
            ("--accounts", self.accounts.is_some()),
            ("--skew", self.skew.is_some()),
            ("--branch-update", self.branch_update.is_some()),
        ])
    }

    /// Of all branches.
    pub fn accounts(&self) -> u64 {
        u64::from(self.branches()) * u64::from(self.accounts_of_branch())
    }

    fn accounts_of_branch(&self) -> u32 {
        self.accounts.unwrap_or(100_000)
    }

    fn branches(&self) -> u32 {
        self.branches.unwrap_or(10)
    }

    pub fn workload(&self, seed: u64) -> Tpcb {
        Tpcb {
            branches: self.branches(),
            accounts: self.accounts_of_branch(),
            skew: self.skew.unwrap_or(0.5),
            branch_update: match self.branch_update {
                None | Some(BranchArg::Last) => BranchUpdate::Last,
                Some(BranchArg::Early) => BranchUpdate::Early,
                Some(BranchArg::First) => BranchUpdate::First,
            },
            seed,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum OrderArg {
    /// Ascending
    Key,
    /// At random
    Random,
}

/// Of `load`
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "load")]
pub struct LoadArgs {
    /// The order of the keys; default: key
    #[arg(long, value_enum)]
    order: Option<OrderArg>,
    /// Rows of one transaction; default 500
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    batch: Option<u64>,
}

impl LoadArgs {
    /// Returns one of these flags, if any was given.
    pub fn given(&self) -> Option<&'static str> {
        first_given([("--order", self.order.is_some()), ("--batch", self.batch.is_some())])
    }

    pub fn bulk(&self) -> Bulk {
        let order = if self.order == Some(OrderArg::Random) { Order::Random } else { Order::Key };
        Bulk { order, batch: self.batch.unwrap_or(bulk::BATCH) }
    }
}

/// Of `counter`
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "counter")]
pub struct CounterArgs {
    /// Rows: thread i adds to row i modulo this; default 1, the hottest row that there can be
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    counters: Option<u64>,
}

impl CounterArgs {
    /// Returns one of these flags, if any was given.
    pub fn given(&self) -> Option<&'static str> {
        first_given([("--counters", self.counters.is_some())])
    }

    pub fn workload(&self) -> Counter {
        Counter { counters: self.counters.unwrap_or(1) }
    }
}

/// Of `queue`
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "queue")]
pub struct QueueArgs {
    /// Queues, all in one table: thread i works on queue i modulo this; default 1
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    queues: Option<u32>,
    /// Rows of each queue at the begin; default 100000
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u64).range(0..=100_000_000))]
    backlog: Option<u64>,
    /// Threads that only put rows, the others only take; default: each thread does both in turn
    #[arg(long, value_name = "THREADS")]
    producers: Option<usize>,
    /// Keep one snapshot open during the whole run
    #[arg(long)]
    long_snapshot: bool,
}

impl QueueArgs {
    /// Returns one of these flags, if any was given.
    pub fn given(&self) -> Option<&'static str> {
        first_given([
            ("--queues", self.queues.is_some()),
            ("--backlog", self.backlog.is_some()),
            ("--producers", self.producers.is_some()),
            ("--long-snapshot", self.long_snapshot),
        ])
    }

    /// Returns the rows of all queues at the begin.
    pub fn rows(&self) -> u64 {
        u64::from(self.queues.unwrap_or(1)) * self.backlog.unwrap_or(100_000)
    }

    pub fn workload(&self, plan: &Plan) -> Queue {
        Queue {
            queues: u64::from(self.queues.unwrap_or(1)),
            backlog: self.backlog.unwrap_or(100_000),
            producers: self.producers,
            value_bytes: plan.value_bytes,
            long_snapshot: self.long_snapshot,
            next: Arc::default(),
        }
    }
}

/// Of `tatp`
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "tatp")]
pub struct TatpArgs {
    /// Subscribers; default 100000
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    subscribers: Option<u32>,
    /// Choose subscribers uniformly instead of as the specification says
    #[arg(long)]
    uniform: bool,
}

impl TatpArgs {
    /// Returns one of these flags, if any was given.
    pub fn given(&self) -> Option<&'static str> {
        first_given([("--subscribers", self.subscribers.is_some()), ("--uniform", self.uniform)])
    }

    pub fn subscribers(&self) -> u32 {
        self.subscribers.unwrap_or(100_000)
    }

    pub fn workload(&self, seed: u64, only: Option<&str>) -> Result<Tatp> {
        let only = only_of(only, tatp::KINDS)?;
        let (subscribers, uniform) = (self.subscribers(), self.uniform);
        Ok(Tatp { subscribers, uniform, only, population_seed: POPULATION_SEED, seed })
    }
}
