//! What the model is asked: workers, processors, a protocol, a device, and the costs of each step.

use super::costs::Costs;
use quenchdb::internals::commit::constants;
use quenchdb::{Acknowledger, Dependency, LockRelease, Queue, Writer};
use serde::{Deserialize, Serialize};

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
        Protocol {
            name: "group".into(),
            logs: 1,
            writer: Writer::Leader,
            acknowledger: Acknowledger::Leader,
            dependency: Dependency::LogOrder,
            queue: Queue::LockFree,
            blocking: true,
            unit_bytes: 16 << 10,
            interval_us: 200.0,
            window_after_arrival: false,
            window_us: 0.0,
            siblings: 5,
            cohort: true,
            buffer_bytes: 1 << 20,
            buffers: constants::BUFFERS as u64,
            in_flight: 2,
            steal_group: 1,
            ack_group: 2,
            ack_odds: 0,
            idle_us: 50.0,
            queue_entries: constants::QUEUE_ENTRIES,
            pace_us: Some(constants::PACE.as_secs_f64() * 1e6),
        }
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

    /// Returns the protocol of a name for `workers` threads, with asynchronous commits if the
    /// protocol is about them.
    #[must_use]
    pub fn named(name: &str, workers: usize) -> Option<Protocol> {
        let base = Protocol { name: name.into(), ..Protocol::default() };
        let background = Protocol {
            writer: Writer::Background,
            acknowledger: Acknowledger::Leader,
            blocking: false,
            cohort: false,
            ..base.clone()
        };
        let own_logs = Protocol { logs: workers, dependency: Dependency::GsnRfa, ..background.clone() };
        let worker = Protocol {
            logs: workers,
            writer: Writer::Worker,
            acknowledger: Acknowledger::Workers,
            dependency: Dependency::Dsn,
            steal_group: workers.min(8),
            ..background.clone()
        };
        // As published: no timer, and rules by clocks.
        let ours = Protocol { dependency: Dependency::GsnRfa, interval_us: 1e6, ..worker.clone() };
        Some(match name {
            "per-transaction" => Protocol { writer: Writer::Committer, cohort: false, ..base },
            "group" => base,
            "queued" => Protocol { interval_us: 1000.0, window_after_arrival: true, ..background },
            "pipelined" | "central" => background,
            "autonomous" => worker,
            "restricted" => Protocol::restricted(workers, 2, name),
            "passive" => Protocol {
                logs: workers,
                writer: Writer::Memory,
                acknowledger: Acknowledger::Workers,
                dependency: Dependency::Dsn,
                ack_odds: 1,
                ..background
            },
            "flush" => Protocol { queue: Queue::Latched, acknowledger: Acknowledger::Background, ..own_logs },
            "flush-queue" => Protocol { acknowledger: Acknowledger::Background, ..own_logs },
            "our-4k" => Protocol { unit_bytes: 4 << 10, ..ours },
            "our-16k" => Protocol { unit_bytes: 16 << 10, ..ours },
            _ => return None,
        })
    }

    /// Returns restricted decentralized logging: `k` workers share a log, whose buffers have 512
    /// KiB for each.
    #[must_use]
    pub fn restricted(workers: usize, k: usize, name: &str) -> Protocol {
        let buffer_bytes = (512 << 10) * k as u64;
        let logs = workers.div_ceil(k);
        Protocol {
            name: name.into(),
            logs,
            writer: Writer::FlusherPerLog,
            dependency: if logs > 1 { Dependency::Dsn } else { Dependency::LogOrder },
            blocking: false,
            cohort: false,
            interval_us: 1000.0,
            unit_bytes: buffer_bytes,
            buffer_bytes,
            buffers: 2,
            ..Protocol::default()
        }
    }
}
