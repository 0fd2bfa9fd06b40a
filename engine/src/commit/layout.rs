//! How many logs are there, and which threads share one?
//!
//! | layout | logs |
//! |---|---|
//! | one | 1 |
//! | per thread | as many as cores |
//! | threads per log | cores / threads, rounded up; at least two with threads in a row |
//! | by page | as many as cores, at least two |
//!
//! `logs` overrides the number. Threads are spread over the logs in the order of their first use;
//! in a row (`restricted`) the first threads share the first log, and so on. A
//! transaction has all its records in its thread's log, except by page: then each change is in the
//! log of the page that it changed (`papers::by_page`). A log takes its first segment and buffer
//! when it is first used.
//!
//! On a machine with several NUMA nodes each node has as many of the logs, side by side, so that
//! logs that steal from each other are mostly of one node:
//!
//! ```text
//!   6 logs, 2 nodes    0 1 2 | 3 4 5        threads of node 0: logs 0, 1, 2, 0 ...; of node 1: 3, 4, 5, 3 ...
//!   2 logs, 4 nodes      0   |   1          nodes 0 and 1 share log 0; nodes 2 and 3 share log 1
//! ```
//!
//! A thread keeps its log although the system may move the thread to another node. A log's buffers
//! lie on its node: one in ordinary memory is first touched by a thread that appends to it, and
//! mapped memory is placed when the database opens. After T. Wang and R. Johnson, *Scalable Logging
//! through Emerging Non-Volatile Memory*, VLDB 2014, where each node has a log.

use crate::base::settings::{Axes, LayoutOptions, Settings};
use crate::base::{Error, Location, LogId, Result};
use crate::device::topology::NumaNodes;
use std::ops::Range;

const LOGS_MOST: usize = 256;

/// Returns the number of logs of a database with `settings` on a machine with `cores` cores.
#[must_use]
pub fn log_count(settings: &Settings, cores: usize) -> usize {
    if settings.logs > 0 {
        return settings.logs;
    }
    let wanted = match Axes::of(settings).layout {
        LayoutOptions::One => return 1,
        LayoutOptions::PerThread => cores,
        LayoutOptions::ByPage => cores.max(2),
        LayoutOptions::ThreadsPerLog { threads, in_a_row } => {
            // With one log it would be another protocol.
            cores.div_ceil(threads.max(1)).max(if in_a_row { 2 } else { 1 })
        }
    };
    wanted.clamp(1, LOGS_MOST).min(logs_with_room(settings))
}

/// How the threads of each NUMA node share the logs of a database.
#[derive(Debug)]
pub struct Shares {
    logs: usize,
    threads_in_a_row: usize,
    nodes: NumaNodes,
}

impl Shares {
    /// Divides `logs` logs among `nodes`. On each node, `threads_in_a_row` threads that begin one
    /// after the other share a log.
    #[must_use]
    pub fn new(logs: usize, threads_in_a_row: usize, nodes: &NumaNodes) -> Shares {
        Shares { logs: logs.max(1), threads_in_a_row: threads_in_a_row.max(1), nodes: nodes.clone() }
    }

    /// Returns the log of a thread: the `nth`, from 0, whose first use was on the node at this
    /// position.
    #[must_use]
    pub fn log_of(&self, node: usize, nth: usize) -> LogId {
        let logs = self.logs_of(node);
        debug_assert!(!logs.is_empty() && logs.end <= self.logs, "each node has a log that exists");
        LogId((logs.start + nth / self.threads_in_a_row % logs.len()) as u32)
    }

    /// Returns the kernel's number of the node that `log` belongs to, if there are several nodes.
    /// A log that several nodes share belongs to the first of them.
    #[must_use]
    pub fn node_of(&self, log: LogId) -> Option<u32> {
        let is_own = |node: &usize| self.logs_of(*node).contains(&(log.0 as usize));
        self.nodes.number((0..self.nodes.count()).find(is_own)?)
    }

    /// Returns the logs of the node at this position, at least one.
    fn logs_of(&self, node: usize) -> Range<usize> {
        let (logs, nodes) = (self.logs, self.nodes.count());
        let node = node.min(nodes - 1);
        let first = node * logs / nodes;
        first..((node + 1) * logs / nodes).max(first + 1)
    }
}

/// As many as have room in the log beside a large transaction.
fn logs_with_room(settings: &Settings) -> usize {
    let transaction = match settings.lab.transaction_bytes_max as u64 {
        0 => settings.log_bytes_max / 16,
        said => said,
    };
    let room = settings.log_bytes_max.saturating_sub(transaction.max(settings.segment_bytes));
    (room / settings.bytes_of_segments_in_use(1).max(1)).max(1) as usize
}

/// Refuses more logs than the log has segments for.
pub(super) fn check_room(settings: &Settings, logs: usize) -> Result<()> {
    let needed = settings.bytes_of_segments_in_use(logs) + settings.segment_bytes;
    if settings.log_bytes_max >= needed {
        return Ok(());
    }
    let what = format!("{} is too little for {logs} logs, which need {needed}", settings.log_bytes_max);
    Err(Error::invalid(what).at(Location::Setting("log_bytes_max")))
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
