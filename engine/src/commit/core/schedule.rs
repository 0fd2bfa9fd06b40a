//! When does a flusher write a log? And does a waiter write, or leave that to a flusher?
//!
//! A log is due because of its own records ([`super::levels`]), because a transaction of another
//! log requires W to pass it, or because its worker left writes in flight.

use super::acknowledge::GRACE;
use super::durability::Durability;
use super::levels::{self, NEVER, NOW, PACE};
use super::log_writer::LogWriter;
use super::processor_load::ProcessorLoad;
use crate::base::Csn;
use crate::base::clock::{Clock, Nanos};
use crate::base::scale::SCALE;
use crate::base::settings::{Axes, Writer, WriterOptions};
use crate::sync::thread;
use std::sync::Arc;

/// Threads that wait, for each processor, above which a thread that only writes does better than a
/// leader. Measured, see `docs/guide/commit.md`.
const LEADER_WAITERS_MAX: usize = SCALE.leader_waiters_max;

/// See the module's text.
pub struct Schedule {
    axes: Axes,
    clock: Clock,
    durability: Arc<Durability>,
    /// More waiters of a log than this leave writing to its flusher.
    max_leader_waiters: usize,
    /// None: an interval passes between two writes of a log, whatever the load.
    load: Option<ProcessorLoad>,
}

impl Schedule {
    pub fn new(axes: &Axes, clock: Clock, durability: Arc<Durability>) -> Schedule {
        let adapts = matches!(axes.writer, WriterOptions::Leader { adapts_to_load: true, .. });
        let max_leader_waiters = if adapts { LEADER_WAITERS_MAX * thread::processors() } else { usize::MAX };
        let load = adapts.then(|| ProcessorLoad::new(clock.clone(), thread::processors()));
        Schedule { axes: *axes, clock, durability, max_leader_waiters, load }
    }

    /// Returns when the interval between two writes of `log` began. While processors are idle that
    /// was long ago, so that the interval delays no write.
    #[inline]
    pub fn interval_began(&self, log: &LogWriter) -> Nanos {
        match &self.load {
            Some(load) if load.is_low() => NOW,
            _ => log.last_write_began(),
        }
    }

    /// Samples the use of the processors for a write that begins.
    pub fn write_begins(&self, now: Nanos) {
        if let Some(load) = &self.load {
            load.sample(now);
        }
    }

    /// Returns whether threads that wait for `log` leave writing it to its flusher.
    pub fn delegates_to_flusher(&self, log: &LogWriter) -> bool {
        !self.axes.waiters_write() || log.cohort.peak() > self.max_leader_waiters
    }

    /// Returns until when the write of `log` waits for the others of its cohort. That is about the
    /// next block: while a leader writes there is nothing to decide, and a full block waits for no
    /// commit.
    pub fn cohort_expected_until(&self, log: &LogWriter) -> Option<Nanos> {
        let enough = self.axes.gather().most.is_some_and(|most| log.counted_records() >= most);
        if log.has_leader() || log.has_sealed() || enough {
            return None;
        }
        log.cohort.expected_until(self.clock.now())
    }

    /// Returns when a flusher has to see to `log`: to write it, or to complete what its worker left
    /// in flight. Not while the log has a leader: when a leader resigns, it wakes the flusher for
    /// what is left.
    pub fn due(&self, log: &LogWriter, required: Option<Csn>) -> Nanos {
        if log.has_leader() {
            return NEVER;
        }
        let reap = if log.in_flight() > 0 { levels::after(log.last_write_began(), GRACE) } else { NEVER };
        let mut due = self.write_due(log, required).min(reap);
        // Where committers only sleep, it is the flusher that waits for the cohort.
        if due != NEVER && self.axes.awaits_cohort() && self.delegates_to_flusher(log) {
            due = due.max(self.cohort_expected_until(log).unwrap_or(NOW));
        }
        due
    }

    /// Returns when a flusher has to write what waits in `log`, by its own records and by the CSN
    /// that transactions of any log require W to pass. A worker that was preempted while a write
    /// is in flight has its bytes written no earlier: its flush unit is not full.
    pub fn write_due(&self, log: &LogWriter, required: Option<Csn>) -> Nanos {
        if !(log.in_flight() > 0 || log.has_unwritten() || log.unflushed.count() > 0) {
            return NEVER;
        }
        let is_full = self.axes.flushers_write_sealed() && log.has_sealed();
        let mut due = if is_full { NOW } else { log.flush_request.due() };
        if matches!(self.axes.writer.kind(), Writer::Worker | Writer::Collector) && due != NOW && due != NEVER
        {
            due = levels::after(due, GRACE);
        }
        if required.is_some_and(|csn| self.durability.watermark.holds_back(log.id, csn)) {
            due = due.min(levels::after(self.interval_began(log), self.axes.flush_interval.min(PACE)));
        }
        due
    }
}
