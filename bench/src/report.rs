//! The figures of one run, and how they are printed.

use crate::checked::Checked;
use crate::contention::Contention;
use crate::coordination::Coordination;
use crate::engine::Engine;
use crate::group_model::GroupModel;
use crate::latencies::Latency;
use crate::reopened::Reopened;
use crate::requests::RequestReport;
use crate::series::{CheckpointMark, Interval};
pub use crate::stages::Stages;
use crate::time_shares::TimeShares;
use crate::traffic::Traffic;
use quenchdb::Preset;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A raw durable write in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    #[serde(default)]
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    #[serde(default)]
    pub p999: f64,
    /// 99.99th percentile.
    #[serde(default)]
    pub p9999: f64,
}

/// One type of transaction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KindReport {
    /// Name of the type.
    pub kind: String,
    /// Committed in the measured time.
    pub committed: u64,
    /// Rolled back as specified in the measured time.
    pub rolled_back: u64,
    /// Conflicts in the measured time; each was retried.
    pub conflicts: u64,
    /// From the end of the worker's previous transaction (closed loop), the end of its rest, or the
    /// arrival (open loop) to the acknowledgment, as the worker saw it.
    pub latency_us: Latency,
}

/// Several measurements on one database, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Runs {
    /// Throughput of each, in order.
    pub throughput_tps: Vec<f64>,
    /// 99th percentile of the commit latency of each.
    pub commit_p99_us: Vec<f64>,
    /// Largest throughput minus smallest, in percent of the median.
    pub spread_percent: f64,
}

/// The result of one run of a workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name of the workload on the command line.
    pub workload: String,
    /// Parameters of the workload besides the fields below.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub parameters: BTreeMap<String, String>,
    /// The engine that was measured.
    #[serde(default)]
    pub engine: String,
    /// What an acknowledged commit survives: [`crate::engine::Tier`].
    #[serde(default)]
    pub tier: String,
    /// With `--engine`: the writes of the block device.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub traffic: Option<Traffic>,
    /// Name of the device; `sim:` and a name for a modelled one.
    #[serde(default)]
    pub device: String,
    /// Commit protocol.
    pub preset: String,
    /// Worker threads.
    pub threads: usize,
    /// Each worker ran on one processor only, which it may have shared with others.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub pinned: bool,
    /// Logs of the database.
    pub logs: usize,
    /// `blocking` or `async`.
    pub commit: String,
    /// How writes became durable.
    pub durability: String,
    /// Durability level of the transactions: `durable`, `bounded`, `lazy`.
    pub level: String,
    /// Isolation of the transactions: `read-committed`, `snapshot`, `serializable`; empty for other
    /// engines.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub isolation: String,
    /// `optimistic` or `pessimistic`; empty for other engines.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub locking: String,
    /// When locks were released: `pre-commit`, `commit`, `unsafe`; empty for other engines.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub lock_release: String,
    /// What a pessimistic transaction locks before it changes a row: `row` or `table`.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub lock_granularity: String,
    /// In an open loop: transactions per second that arrive.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate_tps: Option<f64>,
    /// In an open loop: `poisson` or `fixed`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub arrivals: Option<String>,
    /// In an open loop: `callback` or `wait`, how clients learned of their commits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub open_loop: Option<String>,
    /// Rows at the start.
    pub rows: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Operations in a transaction.
    pub operations: usize,
    /// Percentage of operations that read.
    pub read_percent: u32,
    /// Skew; 0 is uniform.
    pub zipf: f64,
    /// Memory for pages that the database was opened with.
    pub memory_bytes: u64,
    /// Length of the warm-up.
    pub warm_up_seconds: f64,
    /// Measured time without the warm-up.
    pub seconds: f64,
    /// Transactions committed in the measured time.
    pub committed: u64,
    /// Conflicts in the measured time; each was retried.
    pub aborted: u64,
    /// Transactions rolled back as specified in the measured time.
    #[serde(default)]
    pub rolled_back: u64,
    /// Committed or rolled back as specified, per second.
    pub throughput_tps: f64,
    /// The same for each type of transaction, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub kinds: Vec<KindReport>,
    /// Means of the stages of a transaction.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stages: Option<Stages>,
    /// The time of the workers by category; absent if no transaction ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub time_by_category: Option<TimeShares>,
    /// With several runs: figures of all. The rest of the report is that of the run with the median
    /// throughput.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub runs: Option<Runs>,
    /// Ready to committed, of transactions that wrote.
    pub commit_latency_us: Latency,
    /// Begin to COMMITTED, over all that the engine knows the end of: not read-only snapshots, and
    /// not read-only transactions at a lower level.
    pub total_latency_us: Latency,
    /// Transactions and snapshots that only read, as the worker saw them: from the end of its
    /// previous transaction to the end of this one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub read_latency_us: Option<Latency>,
    /// Transactions that did not only read, with blocking commits: from the end of the worker's
    /// previous transaction to the return of the commit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub write_latency_us: Option<Latency>,
    /// Waits for the log and for locks, failures by reason, repeated attempts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub contention: Option<Contention>,
    /// The longest span of the measured time in which no transaction of any thread ended;
    /// asynchronous ones end when they are handed over. Precision: see [`crate::activity`].
    pub stall_us_max: f64,
    /// Most memory of the process that ran the engine, from open on:
    /// [`crate::process::MemoryWatch`] says what is counted.
    pub rss_bytes_max: u64,
    /// Bytes of log records.
    pub log_bytes: u64,
    /// Bytes written to the log's device, padding included.
    pub device_bytes: u64,
    /// Bytes written to each log; absent with one log.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub device_bytes_by_log: Vec<u64>,
    /// Writes of the log.
    pub device_writes: u64,
    /// Flushes of the log's device.
    pub device_flushes: u64,
    /// Reads of pages from the device.
    pub device_reads: u64,
    /// Bytes of these.
    pub device_read_bytes: u64,
    /// Bytes written to the file of pages, by checkpoints and evictions.
    pub store_bytes_written: u64,
    /// Requests to the store of objects; none if the database lies on a disk.
    pub requests: Option<RequestReport>,
    /// Bytes of keys and values that committed transactions wrote.
    pub logical_bytes_written: u64,
    /// Checkpoints that ended in the measured time.
    pub checkpoints: u64,
    /// Total time of these checkpoints.
    pub checkpoint_seconds: f64,
    /// Sleeps, wake-ups, waits that the dependency rule caused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub coordination: Option<Coordination>,
    /// Processor time, user and system.
    pub cpu_seconds: f64,
    /// Processor time in microseconds per transaction that committed or rolled back as specified.
    #[serde(default)]
    pub cpu_us_per_transaction: f64,
    /// Bytes of log records.
    #[serde(default)]
    pub log_bytes_per_transaction: f64,
    /// Writes of the log.
    #[serde(default)]
    pub device_writes_per_transaction: f64,
    /// Flushes of the log's device.
    #[serde(default)]
    pub device_flushes_per_transaction: f64,
    /// Transactions that committed, for each write of the log; absent without writes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub commits_per_write: Option<f64>,
    /// Transactions that committed, for each flush of the log's device; absent without flushes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub commits_per_flush: Option<f64>,
    /// With the preset `group`: what its model says, to be compared with `commits_per_write` and
    /// the mean of `commit_latency_us`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub group_model: Option<GroupModel>,
    /// A durable 4 KiB write of one thread, measured on the same directory just before.
    pub floor_us: Floor,
    /// A durable 4 KiB write of as many threads as the run has, measured just before, if these are
    /// several.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub floor_of_threads_us: Option<Floor>,
    /// True if the floor lies above durable commits, which is impossible: the device was slower
    /// while the floor was measured.
    #[serde(default)]
    pub floor_is_unreliable: bool,
    /// Random 4 KiB reads per second of the same file by as many threads, measured just after, if
    /// pages were read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub read_floor: Option<f64>,
    /// With `--reopen`: time of the open.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub recovery_seconds: Option<f64>,
    /// With `--reopen`: transactions replayed by the open.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub replayed: Option<u64>,
    /// With `--reopen`: the other figures.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reopened: Option<Reopened>,
    /// With `--check`: the result.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub check: Option<Checked>,
    /// The measured time, interval by interval.
    pub series: Vec<Interval>,
    /// Checkpoints that ended in the measured time; of several within 20 ms only the last.
    pub checkpoint_marks: Vec<CheckpointMark>,
}

impl Report {
    /// Computes the figures per transaction, write and flush.
    #[must_use]
    pub fn with_costs(self) -> Report {
        let ended = (self.committed + self.rolled_back).max(1) as f64;
        let commits_per = |count: u64| (count > 0).then(|| self.committed as f64 / count as f64);
        Report {
            cpu_us_per_transaction: self.cpu_seconds * 1e6 / ended,
            log_bytes_per_transaction: self.log_bytes as f64 / ended,
            device_writes_per_transaction: self.device_writes as f64 / ended,
            device_flushes_per_transaction: self.device_flushes as f64 / ended,
            commits_per_write: commits_per(self.device_writes),
            commits_per_flush: commits_per(self.device_flushes),
            ..self
        }
    }

    /// The one of several runs that has the median throughput (of an even number, the lower middle
    /// one), with the others' figures; nothing for no run.
    #[must_use]
    pub fn median_of(runs: Vec<Report>) -> Option<Report> {
        let throughput_tps: Vec<f64> = runs.iter().map(|run| run.throughput_tps).collect();
        let commit_p99_us = runs.iter().map(|run| run.commit_latency_us.p99).collect();
        let (count, mut sorted) = (runs.len(), runs);
        sorted.sort_by(|a, b| a.throughput_tps.total_cmp(&b.throughput_tps));
        let range = sorted.last()?.throughput_tps - sorted.first()?.throughput_tps;
        let median = sorted.swap_remove((count - 1) / 2);
        let spread_percent = range * 100.0 / median.throughput_tps.max(f64::MIN_POSITIVE);
        let runs = (count > 1).then_some(Runs { throughput_tps, commit_p99_us, spread_percent });
        Some(Report { runs, ..median })
    }

    /// Returns true if no check found a problem.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.check.as_ref().is_none_or(Checked::is_sound)
            && self.reopened.as_ref().is_none_or(Reopened::is_sound)
    }

    /// Adds what the model of group commit says, if the run had such a leader, which waited
    /// `window_us` for followers.
    pub fn add_group_model(&mut self, window_us: f64) {
        let flush_us = self.stages.map_or(0.0, |stages| stages.flush_us.mean);
        if self.preset == Preset::Group.name() && flush_us > 0.0 {
            let rate = self.committed as f64 / self.seconds.max(f64::MIN_POSITIVE);
            self.group_model = Some(GroupModel::of(window_us, flush_us, rate));
        }
    }

    /// Adds the figures of the open after the run.
    pub fn add_reopened(&mut self, reopened: Reopened) {
        self.recovery_seconds = Some(reopened.open_seconds);
        self.replayed = Some(reopened.replayed);
        self.reopened = Some(reopened);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.show_what(f)?;
        writeln!(
            f,
            "  {:.0} transactions/s  ({} committed, {} rolled back as specified, {} conflicts in {:.2} s; {:.2} s of processor time)",
            self.throughput_tps,
            self.committed,
            self.rolled_back,
            self.aborted,
            self.seconds,
            self.cpu_seconds
        )?;
        self.show_latencies(f)?;
        let mb = |bytes: u64| bytes as f64 / 1e6;
        if self.knows_itself() {
            self.show_engine(f)?;
        }
        if let Some(traffic) = &self.traffic {
            writeln!(
                f,
                "  {} wrote {:.1} MB in {} writes, {} flushes: {:.0} bytes, {:.3} writes, {:.3} flushes a transaction",
                traffic.device,
                mb(traffic.written_bytes),
                traffic.writes,
                traffic.flushes,
                traffic.bytes_per_transaction,
                traffic.writes_per_transaction,
                traffic.flushes_per_transaction
            )?;
        }
        writeln!(
            f,
            "  longest stall {:.1} ms; {} checkpoints in {:.2} s; memory {:.0} MB (pages: {:.0} MB allowed)",
            self.stall_us_max / 1e3,
            self.checkpoints,
            self.checkpoint_seconds,
            mb(self.rss_bytes_max),
            mb(self.memory_bytes)
        )?;
        if let Some(coordination) = &self.coordination {
            write!(f, "{coordination}")?;
        }
        if let Some(reopened) = &self.reopened {
            write!(f, "{reopened}")?;
        }
        self.check.as_ref().map_or(Ok(()), |checked| write!(f, "{checked}"))
    }
}

impl Report {
    /// Returns true for QuenchDB, which counts its log, pages and commits.
    fn knows_itself(&self) -> bool {
        self.engine.is_empty() || self.engine == Engine::QuenchDb.name()
    }

    fn show_what(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { workload, threads, commit, level, preset, logs, durability, device, .. } = self;
        let pinned = if self.pinned { ", each pinned to a processor" } else { "" };
        write!(f, "{workload}: {threads} threads{pinned}, {commit} commits, level {level}, ")?;
        match self.knows_itself() {
            true => writeln!(f, "preset {preset}, {logs} logs, {durability}, device {device}")?,
            false => {
                let Report { engine, tier, .. } = self;
                writeln!(f, "{engine}, {durability}, survives: {tier}, device {device}")?;
            }
        }
        let Report { isolation, locking, lock_release, lock_granularity, .. } = self;
        if isolation.is_empty() {
            return Ok(());
        }
        let coarse = if lock_granularity == "table" { ", whole tables locked" } else { "" };
        writeln!(f, "  isolation {isolation}, {locking}, locks released at {lock_release}{coarse}")
    }

    /// Prints the figures of the engine.
    fn show_engine(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        writeln!(
            f,
            "  log {:.1} MB; device {:.1} MB in {} writes, {} flushes",
            mb(self.log_bytes),
            mb(self.device_bytes),
            self.device_writes,
            self.device_flushes
        )?;
        write!(
            f,
            "  pages: {} reads ({:.1} MB), {:.1} MB written",
            self.device_reads,
            mb(self.device_read_bytes),
            mb(self.store_bytes_written)
        )?;
        match self.read_floor {
            Some(floor) => writeln!(f, "; floor {floor:.0} random reads/s")?,
            None => writeln!(f)?,
        }
        self.requests.iter().try_for_each(|requests| writeln!(f, "  {requests}"))
    }

    fn show_latencies(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rate) = self.rate_tps {
            let arrivals = self.arrivals.as_deref().unwrap_or_default();
            writeln!(f, "  open loop: {rate:.0} transactions/s arrive, {arrivals}")?;
        }
        if let Some(runs) = &self.runs {
            let all: Vec<_> = runs.throughput_tps.iter().map(|tps| format!("{tps:.0}")).collect();
            let spread = runs.spread_percent;
            writeln!(f, "  median of {} runs: {}; spread {spread:.1} %", all.len(), all.join(", "))?;
        }
        writeln!(f, "  {:<22}{}", "us", Latency::HEADER)?;
        if self.knows_itself() {
            writeln!(f, "  {:<22}{}", "commit", self.commit_latency_us)?;
            writeln!(f, "  {:<22}{}", "total", self.total_latency_us)?;
            self.show_floors(f)?;
        }
        if let Some(writes) = &self.write_latency_us {
            writeln!(f, "  {:<22}{writes}", "that wrote")?;
        }
        if let Some(reads) = &self.read_latency_us {
            writeln!(f, "  {:<22}{reads}", "read only")?;
        }
        if let Some(contention) = &self.contention {
            write!(f, "{contention}")?;
        }
        let happened = |kind: &&KindReport| kind.committed + kind.rolled_back > 0;
        for kind in self.kinds.iter().filter(happened) {
            writeln!(f, "  {:<22}{}", kind.kind, kind.latency_us)?;
        }
        for kind in self.kinds.iter().filter(|kind| kind.rolled_back + kind.conflicts > 0) {
            let KindReport { kind, committed, rolled_back, conflicts, .. } = kind;
            writeln!(f, "  {kind}: {committed} committed, {rolled_back} rolled back, {conflicts} conflicts")?;
        }
        self.show_costs(f)
    }

    fn show_floors(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let several = format!("{} threads", self.threads);
        let floors = [(Some(self.floor_us), "one thread"), (self.floor_of_threads_us, &*several)];
        for (Floor { p50, p90, p99, .. }, by) in
            floors.iter().filter_map(|(floor, by)| Some((floor.as_ref()?, by)))
        {
            let what = format!("raw durable 4 KiB write of {by}");
            writeln!(f, "  {:<22}{:>10} {p50:>10.1} {p90:>10.1} {p99:>10.1}   {what}", "floor", "")?;
        }
        if self.floor_is_unreliable {
            let why = "the device was slower while it was measured";
            writeln!(f, "  the floor lies above the commits, so it is not reliable: {why}")?;
        }
        Ok(())
    }

    /// Compares the floor of one thread with the commits that wrote, if each of them was durable on
    /// the device when it returned.
    pub fn judge_floor(&mut self, is_durable: bool) {
        let commits = self.write_latency_us.as_ref().unwrap_or(&self.commit_latency_us);
        let wrote = self.device_writes > 0 && commits.p50 > 0.0;
        self.floor_is_unreliable = is_durable && wrote && self.floor_us.p50 > commits.p50;
    }

    fn show_costs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.knows_itself();
        if let Some(stages) = &self.stages {
            write!(f, "  mean us: execute {:.1}, conflicts {:.1}", stages.execute_us, stages.conflicts_us)?;
            if known {
                write!(f, " (in both: waits for rows {:.1})", stages.row_wait_us)?;
            }
            write!(f, ", commit call {:.1}", stages.commit_call_us)?;
            if known {
                let Stages { log_insert_us, flush_wait_us, queuing_us, acknowledge_us, .. } = stages;
                write!(f, " (log insert {log_insert_us:.1}); ready to written {flush_wait_us:.1}")?;
                write!(f, " ({queuing_us:.1} of it before the write)")?;
                write!(f, ", to acknowledged {acknowledge_us:.1}")?;
            }
            writeln!(f)?;
        }
        self.time_by_category.iter().filter(|_| known).try_for_each(|shares| writeln!(f, "  {shares}"))?;
        if !known {
            return writeln!(f, "  a transaction: {:.1} us of processor time", self.cpu_us_per_transaction);
        }
        writeln!(
            f,
            "  a transaction: {:.1} us of processor time, {:.0} bytes of log, {:.3} writes, {:.3} flushes",
            self.cpu_us_per_transaction,
            self.log_bytes_per_transaction,
            self.device_writes_per_transaction,
            self.device_flushes_per_transaction
        )?;
        match (self.commits_per_write, self.commits_per_flush) {
            (Some(write), Some(flush)) => writeln!(f, "  {write:.1} commits a write, {flush:.1} a flush")?,
            (Some(write), None) => writeln!(f, "  {write:.1} commits a write, no flushes")?,
            _ => {}
        }
        self.group_model.iter().try_for_each(|model| writeln!(f, "  {model}"))
    }
}

#[cfg(test)]
mod tests;
