//! What the model is asked: workers, processors, a protocol, a device, and the costs of each step.

use super::costs::Costs;
use quenchdb::internals::commit::constants;
use quenchdb::{
    Acknowledger, Dependency, LayoutOptions, LockRelease, Preset, Queue, WorkerOptions, Writer, WriterOptions,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A point on the axes of commit protocols.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Protocol {
    /// Name in reports.
    pub name: String,
    /// Number of logs; workers are spread over them in turn.
    pub logs: usize,
    /// Which thread writes.
    pub writer: Writer,
    /// Which thread acknowledges.
    pub acknowledger: Acknowledger,
    /// The dependency rule.
    pub dependency: Dependency,
    /// The queue of asynchronous commits.
    pub queue: Queue,
    /// Workers wait for each commit.
    pub blocking: bool,
    /// Bytes at which a log is written although no thread waits.
    pub unit_bytes: u64,
    /// Microseconds between two writes of a log that no thread waits for.
    pub interval_us: f64,
    /// The interval counts from the first record that waits, not from the last write.
    pub window_after_arrival: bool,
    /// Microseconds that a leader waits for followers.
    pub window_us: f64,
    /// The leader waits only if at least so many other workers are there.
    pub siblings: usize,
    /// A write waits for the committers that the one before it released.
    pub cohort: bool,
    /// Bytes of a buffer: the most that a write takes.
    pub buffer_bytes: u64,
    /// Buffers of a log; if all are full, workers wait.
    pub buffers: u64,
    /// Most writes of one log in flight, of logs that workers write.
    pub in_flight: usize,
    /// Logs that workers write for each other; 1 for none.
    pub steal_group: usize,
    /// Logs that a worker acknowledges.
    pub ack_group: usize,
    /// A worker acknowledges after one in so many transactions; 0: log2 of the workers.
    pub ack_odds: u64,
    /// Longest idle time of which a worker has its log written at once; 0: never.
    pub idle_us: f64,
    /// Most asynchronous commits of one log that wait to be acknowledged.
    pub queue_entries: usize,
    /// Microseconds after which a log that holds others back is written; none: only by its own
    /// rules.
    pub pace_us: Option<f64>,
}

/// Rows with locks that are held to the commit request or to the commit.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowLocks {
    /// Number of rows; each transaction locks one of them.
    pub rows: u64,
    /// Self-similar skew: the share of rows that gets the share 1 - h of the locks; 0.5 is uniform.
    pub h: f64,
    /// When locks are released.
    pub release: LockRelease,
    /// The share of a transaction's execution that follows the lock.
    pub locked_share: f64,
}

/// See the module. All times of the simulated machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelInput {
    /// Worker threads.
    pub workers: usize,
    /// Processors; 0: one for each thread.
    pub cores: usize,
    /// Open loop: transactions that arrive per second, at random.
    pub rate_tps: Option<f64>,
    /// The commit protocol.
    pub protocol: Protocol,
    /// Locks on rows, if they matter.
    pub locks: Option<RowLocks>,
    /// Share of transactions that only read.
    pub read_share: f64,
    /// Share of transactions that the dependency rule makes wait for another log.
    pub dependency_share: f64,
    /// Bytes of a transaction's log record.
    pub log_bytes: u64,
    /// Name of a modelled device, such as `sim:nvme-enterprise` or `sim:custom:write=500us`.
    pub device: String,
    /// Factor of the times of the device's writes.
    pub write_factor: f64,
    /// Factor of the times of the device's flushes.
    pub flush_factor: f64,
    /// Factor of the bytes per second and requests per second of the device.
    pub rate_factor: f64,
    /// The costs of each step.
    pub costs: Costs,
    /// Simulated seconds that are measured.
    pub seconds: f64,
    /// Simulated seconds before them.
    pub warm_up_seconds: f64,
    /// Seed of every random choice.
    pub seed: u64,
}

impl Default for Protocol {
    fn default() -> Protocol {
        Protocol::of(Preset::Group, 1)
    }
}

impl Default for ModelInput {
    fn default() -> ModelInput {
        ModelInput {
            workers: 1,
            cores: 0,
            rate_tps: None,
            protocol: Protocol::default(),
            locks: None,
            read_share: 0.0,
            dependency_share: 0.0,
            log_bytes: 150,
            device: "sim:nvme-enterprise".into(),
            write_factor: 1.0,
            flush_factor: 1.0,
            rate_factor: 1.0,
            costs: Costs::default(),
            seconds: 0.5,
            warm_up_seconds: 0.1,
            seed: 1,
        }
    }
}

impl Protocol {
    /// The names that [`Protocol::named`] knows: the presets of the engine, then the variants of
    /// the paper on autonomous commit.
    pub const NAMES: [&'static str; 12] = [
        "per-transaction",
        "group",
        "queued",
        "pipelined",
        "autonomous",
        "restricted",
        "passive",
        "central",
        "flush",
        "flush-queue",
        "our-4k",
        "our-16k",
    ];

    /// Returns the protocol of a preset as the engine runs it for `workers` threads, with
    /// asynchronous commits if the preset is about them.
    fn of(preset: Preset, workers: usize) -> Protocol {
        let axes = preset.axes();
        let logs = match axes.layout {
            LayoutOptions::One => 1,
            LayoutOptions::ThreadsPerLog { threads, .. } => workers.div_ceil(threads),
            LayoutOptions::PerThread | LayoutOptions::ByPage => workers,
        };
        let (works, writing) = match axes.writer {
            WriterOptions::Worker(options) => (true, options),
            _ => (false, WorkerOptions::DEFAULT),
        };
        let blocking = matches!(axes.writer.kind(), Writer::Committer | Writer::Leader);
        let by_order = if logs > 1 { Dependency::Dsn } else { Dependency::LogOrder };
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        Protocol {
            name: preset.name().into(),
            logs,
            writer: axes.writer.kind(),
            acknowledger: axes.acknowledger.kind(),
            dependency: axes.dependency.unwrap_or(by_order),
            queue: axes.queue,
            blocking,
            unit_bytes: axes.flush_unit_bytes() as u64,
            interval_us: micros(axes.flush_interval),
            window_after_arrival: axes.queues_waiters(),
            window_us: micros(axes.gather().window),
            siblings: axes.gather().siblings,
            cohort: blocking && axes.awaits_cohort(),
            buffer_bytes: axes.log_buffer_bytes() as u64,
            buffers: constants::BUFFERS as u64,
            in_flight: writing.writes_in_flight,
            steal_group: if works { writing.stealing_group.unwrap_or(8).min(workers) } else { 1 },
            ack_group: axes.acknowledgment().group,
            ack_odds: axes.acknowledgment().odds.into(),
            idle_us: micros(writing.idle_max),
            queue_entries: constants::QUEUE_ENTRIES,
            pace_us: Some(micros(constants::PACE)),
        }
    }

    /// Returns the protocol of a name for `workers` threads: a preset, or a variant of the paper.
    #[must_use]
    pub fn named(name: &str, workers: usize) -> Option<Protocol> {
        let named = |protocol| Protocol { name: name.into(), ..protocol };
        let central = named(Protocol::of(Preset::Pipelined, workers));
        let own_logs = Protocol {
            logs: workers,
            dependency: Dependency::GsnRfa,
            acknowledger: Acknowledger::Background,
            ..central.clone()
        };
        // As published: no timer, rules by clocks, and acknowledgment by a die with as many sides
        // as the number of threads has bits.
        let worker = Protocol::of(Preset::Autonomous, workers);
        let ours =
            named(Protocol { dependency: Dependency::GsnRfa, interval_us: 1e6, ack_odds: 0, ..worker });
        Some(match name {
            "central" => central,
            "flush" => Protocol { queue: Queue::Latched, ..own_logs },
            "flush-queue" => own_logs,
            "our-4k" => Protocol { unit_bytes: 4 << 10, ..ours },
            "our-16k" => Protocol { unit_bytes: 16 << 10, ..ours },
            _ => Preset::from_name(name)
                .ok()
                .filter(|_| Protocol::NAMES.contains(&name))
                .map(|preset| Protocol::of(preset, workers))?,
        })
    }

    /// Returns restricted decentralized logging: `k` workers share a log, with two buffers of 512
    /// KiB for each of them, as published.
    #[must_use]
    pub fn restricted(workers: usize, k: usize, name: &str) -> Protocol {
        let (buffer_bytes, logs) = ((512 << 10) * k as u64, workers.div_ceil(k));
        Protocol {
            name: name.into(),
            logs,
            dependency: if logs > 1 { Dependency::Dsn } else { Dependency::LogOrder },
            unit_bytes: buffer_bytes,
            buffer_bytes,
            buffers: 2,
            ..Protocol::of(Preset::Restricted, workers)
        }
    }
}
