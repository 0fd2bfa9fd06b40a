//! Engines side by side: the same workload on each, in turn, several rounds, and one table.
//!
//! Each measurement is a run of its own, in a new directory on the same disk. The table shows the
//! median of each figure over the rounds, and the smallest and largest throughput. It marks an
//! engine whose tier is not that of the first, and does not compare it.

use crate::engine::Engine;
use crate::report::Report;
use anyhow::{Result, bail};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// A figure over the rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The median; of an even number, the mean of the middle two.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    fn of(reports: &[Report], figure: impl Fn(&Report) -> f64) -> Spread {
        let mut all: Vec<f64> = reports.iter().map(figure).collect();
        all.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (all.first(), all.last()) else { return Spread::default() };
        let middle = all.len() / 2;
        let median =
            if all.len().is_multiple_of(2) { (all[middle - 1] + all[middle]) / 2.0 } else { all[middle] };
        Spread { median, min, max }
    }
}

/// The figures of one engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Line {
    /// Name of the engine.
    pub engine: String,
    /// What an acknowledged commit survives.
    pub tier: String,
    /// True if the tier is not that of the first engine: the numbers are not comparable.
    pub tier_differs: bool,
    /// How the engine makes commits durable.
    pub durability: String,
    /// Transactions per second.
    pub throughput_tps: Spread,
    /// Median latency of transactions that wrote, measured by the worker, in microseconds.
    pub p50_us: Spread,
    /// 90th percentile.
    pub p90_us: Spread,
    /// 99th percentile.
    pub p99_us: Spread,
    /// 99.9th percentile.
    pub p999_us: Spread,
    /// 99th percentile of transactions that only read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_p99_us: Option<Spread>,
    /// Retried conflicts per transaction.
    pub conflicts_per_transaction: f64,
    /// Processor time of the process per transaction, in microseconds.
    pub cpu_us_per_transaction: Spread,
    /// Bytes that the block device wrote per transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_bytes_per_transaction: Option<Spread>,
    /// Writes of the block device per transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_writes_per_transaction: Option<Spread>,
    /// Flushes of the block device per transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_flushes_per_transaction: Option<Spread>,
    /// Most memory of the process.
    pub rss_bytes_max: u64,
}

/// A comparison of several engines.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// The workload.
    pub workload: String,
    /// Parameters of the workload.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Worker threads.
    pub threads: usize,
    /// Durability level.
    pub level: String,
    /// Rows at the start.
    pub rows: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Operations in a transaction.
    pub operations: usize,
    /// Percentage of operations that read.
    pub read_percent: u32,
    /// Memory that each engine was given.
    pub memory_bytes: u64,
    /// The disk.
    pub device: String,
    /// True if the disk has a volatile cache.
    pub volatile_cache: bool,
    /// Median of a raw durable 4 KiB write, beside the rounds of QuenchDB, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor_us: Option<f64>,
    /// Measured time of each run.
    pub seconds: f64,
    /// Rounds.
    pub rounds: usize,
    /// The figures of each engine.
    pub engines: Vec<Line>,
}

fn line(engine: Engine, reports: &[Report], first_tier: &str) -> Line {
    let of = |figure: fn(&Report) -> f64| Spread::of(reports, figure);
    let latency = |figure: fn(&crate::latencies::Latency) -> f64| {
        Spread::of(reports, |report| report.write_latency_us.as_ref().map_or(0.0, figure))
    };
    let traffic = |figure: fn(&crate::traffic::Traffic) -> f64| {
        let known = reports.iter().all(|report| report.traffic.is_some());
        known.then(|| Spread::of(reports, |report| report.traffic.as_ref().map_or(0.0, figure)))
    };
    let (tier, durability) = match reports.first() {
        Some(report) => (report.tier.clone(), report.durability.clone()),
        None => Default::default(),
    };
    let reads = reports.iter().all(|report| report.read_latency_us.is_some());
    Line {
        engine: engine.name().into(),
        tier_differs: tier != first_tier,
        tier,
        durability,
        throughput_tps: of(|report| report.throughput_tps),
        p50_us: latency(|latency| latency.p50),
        p90_us: latency(|latency| latency.p90),
        p99_us: latency(|latency| latency.p99),
        p999_us: latency(|latency| latency.p999),
        read_p99_us: reads
            .then(|| of(|report| report.read_latency_us.as_ref().map_or(0.0, |reads| reads.p99))),
        conflicts_per_transaction: of(|report| {
            report.aborted as f64 / (report.committed + report.rolled_back).max(1) as f64
        })
        .median,
        cpu_us_per_transaction: of(|report| report.cpu_us_per_transaction),
        device_bytes_per_transaction: traffic(|traffic| traffic.bytes_per_transaction),
        device_writes_per_transaction: traffic(|traffic| traffic.writes_per_transaction),
        device_flushes_per_transaction: traffic(|traffic| traffic.flushes_per_transaction),
        rss_bytes_max: reports.iter().map(|report| report.rss_bytes_max).max().unwrap_or(0),
    }
}

impl Comparison {
    /// Compares the reports of each engine, one a round.
    ///
    /// # Errors
    /// Without reports.
    pub fn of(all: &[(Engine, Vec<Report>)], volatile_cache: bool) -> Result<Comparison> {
        let Some(first) = all.first().and_then(|(_, reports)| reports.first()) else {
            bail!("nothing was measured")
        };
        let floors: Vec<Report> =
            all.iter().flat_map(|(_, reports)| reports).filter(|r| r.floor_us.p50 > 0.0).cloned().collect();
        Ok(Comparison {
            workload: first.workload.clone(),
            parameters: first.parameters.clone(),
            threads: first.threads,
            level: first.level.clone(),
            rows: first.rows,
            value_bytes: first.value_bytes,
            operations: first.operations,
            read_percent: first.read_percent,
            memory_bytes: first.memory_bytes,
            device: first.device.clone(),
            volatile_cache,
            floor_us: (!floors.is_empty()).then(|| Spread::of(&floors, |report| report.floor_us.p50).median),
            seconds: first.seconds,
            rounds: all.iter().map(|(_, reports)| reports.len()).max().unwrap_or(0),
            engines: all.iter().map(|(engine, reports)| line(*engine, reports, &first.tier)).collect(),
        })
    }

    /// Returns QuenchDB and the fastest peer of the same tier, if both were measured.
    #[must_use]
    pub fn best_peer(&self) -> Option<(&Line, &Line)> {
        let own = Engine::QuenchDb.name();
        let quenchdb = self.engines.iter().find(|line| line.engine == own)?;
        let peers = self.engines.iter().filter(|line| line.engine != own && line.tier == quenchdb.tier);
        let best = peers.max_by(|a, b| a.throughput_tps.median.total_cmp(&b.throughput_tps.median))?;
        Some((quenchdb, best))
    }
}

/// Formats a figure, or `-` if it is unknown.
fn known(spread: Option<&Spread>, decimals: usize) -> String {
    spread.map_or_else(|| "-".into(), |spread| format!("{:.decimals$}", spread.median))
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cache = if self.volatile_cache { "volatile cache" } else { "no volatile cache" };
        writeln!(
            f,
            "{}: {} threads, blocking commits, level {}; device {}, {cache}; median of {} rounds of {:.1} s",
            self.workload, self.threads, self.level, self.device, self.rounds, self.seconds
        )?;
        writeln!(
            f,
            "  {:<9} {:<15} {:>9} {:>19} {:>9} {:>9} {:>9} {:>9} {:>7} {:>10} {:>8}",
            "engine",
            "survives",
            "tx/s",
            "(min..max)",
            "p50 us",
            "p90 us",
            "p99 us",
            "p99.9 us",
            "cpu us",
            "bytes",
            "flushes"
        )?;
        for line in &self.engines {
            let tier = format!("{}{}", line.tier, if line.tier_differs { " *" } else { "" });
            let range = format!("({:.0}..{:.0})", line.throughput_tps.min, line.throughput_tps.max);
            writeln!(
                f,
                "  {:<9} {tier:<15} {:>9.0} {range:>19} {:>9.0} {:>9.0} {:>9.0} {:>9.0} {:>7.1} {:>10} {:>8}",
                line.engine,
                line.throughput_tps.median,
                line.p50_us.median,
                line.p90_us.median,
                line.p99_us.median,
                line.p999_us.median,
                line.cpu_us_per_transaction.median,
                known(line.device_bytes_per_transaction.as_ref(), 0),
                known(line.device_flushes_per_transaction.as_ref(), 3),
            )?;
        }
        writeln!(
            f,
            "  latency: of transactions that wrote, begin to the return of the commit, as the worker saw it"
        )?;
        writeln!(
            f,
            "  cpu, bytes, flushes: for each transaction, those that only read included; what the block device counted"
        )?;
        if self.engines.iter().any(|line| line.tier_differs) {
            writeln!(
                f,
                "  * another tier than the first engine: numbers of different tiers are not comparable"
            )?;
        }
        if let Some(floor) = self.floor_us {
            writeln!(f, "  floor: {floor:.0} us for a raw durable 4 KiB write of one thread")?;
        }
        let Some((quenchdb, best)) = self.best_peer() else { return Ok(()) };
        let ratio = quenchdb.throughput_tps.median / best.throughput_tps.median.max(f64::MIN_POSITIVE);
        writeln!(f, "  quenchdb: {ratio:.2} x the best peer of its tier ({})", best.engine)
    }
}

#[cfg(test)]
mod tests;
