//! What to run, for all workloads.

use crate::arrivals::Rate;
use crate::requests::Prices;
use crate::rows::Shape;
use quenchdb::Durability;
use std::time::Duration;

/// How a worker ends its transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitMode {
    /// Waits for each commit.
    Blocking,
    /// Does not wait for the commit.
    Async,
}

impl CommitMode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            CommitMode::Blocking => "blocking",
            CommitMode::Async => "async",
        }
    }
}

/// The checkpoints during the warm-up and the measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checkpoints {
    /// Automatic checkpoints of the engine.
    Automatic,
    /// No checkpoints; the caller opened the database without automatic ones.
    None,
    /// Automatic ones, and one at this interval after the begin of the previous one. Zero: back to
    /// back.
    Every(Duration),
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Worker threads, at least 1.
    pub threads: usize,
    /// Each worker runs on one processor only, round robin.
    pub pins: bool,
    /// Measured time.
    pub duration: Duration,
    /// Warm-up before the measured time; default: a tenth of it, at most 1 s.
    pub warm_up: Option<Duration>,
    /// Length of an interval of the series.
    pub interval: Duration,
    /// How transactions commit.
    pub commit: CommitMode,
    /// Prices of a store of objects.
    pub prices: Prices,
    /// Arrivals of an open loop. `None`: a closed loop.
    pub rate: Option<Rate>,
    /// Durability level of each transaction.
    pub level: Durability,
    /// Transactions that only read use a read-only snapshot.
    pub snapshots: bool,
    /// Checkpoints beside the workload.
    pub checkpoints: Checkpoints,
    /// Rows loaded before the run.
    pub rows: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Bytes of a field, if rows have fields that are updated one by one.
    pub field_bytes: Option<usize>,
    /// Operations in one transaction.
    pub operations: usize,
    /// Percentage of operations that read.
    pub read_percent: u32,
    /// Skew of row choice; 0 is uniform.
    pub zipf: f64,
    /// Memory of the database in bytes, for the report.
    pub memory_bytes: u64,
    /// Seed of every random choice.
    pub seed: u64,
}

impl Plan {
    /// Returns the shape of values.
    #[must_use]
    pub fn shape(&self) -> Shape {
        Shape { bytes: self.value_bytes, field_bytes: self.field_bytes }
    }

    /// Returns the length of the warm-up.
    #[must_use]
    pub fn warm_up(&self) -> Duration {
        self.warm_up.unwrap_or_else(|| (self.duration / 10).min(Duration::from_secs(1)))
    }

    /// Returns the time of the measurement of a floor.
    #[must_use]
    pub fn floor_time(&self) -> Duration {
        (self.duration / 10).clamp(Duration::from_millis(200), Duration::from_secs(1))
    }

    /// Returns true if a transaction is durable when its commit returns.
    #[must_use]
    pub fn promises(&self) -> bool {
        self.commit == CommitMode::Blocking && self.level == Durability::Durable
    }

    /// Returns the name of the durability level in reports.
    #[must_use]
    pub fn level_name(&self) -> &'static str {
        match self.level {
            Durability::BoundedLoss => "bounded",
            Durability::Written => "written",
            Durability::Lazy => "lazy",
            _ => "durable",
        }
    }
}
