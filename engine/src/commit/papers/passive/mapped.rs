//! Log buffers in mapped memory: what is stored there is durable when it is fenced.
//!
//! A thread that did not fence what it stored leaves its log *dirty*. Others **drain** such a log:
//! `membarrier(2)` makes every running thread of the process execute a barrier, which ends the
//! stores it has under way, and a thread that is not running has executed one. So the stores of a
//! thread are fenced for it, without its help. A thread that fences beside the latch is usually
//! just doing that, so a drain gives it a moment first.
//!
//! With **durable caches** (eADR) a record is durable when it is stored. No log is ever dirty, so
//! nothing is fenced or drained. A commit still waits for records of other logs that are being
//! stored, because recovery takes a record only if its DSN is below the first missing CSN.

use crate::base::Csn;
use crate::base::clock::Nanos;
use crate::base::planted::{self, Bug};
use crate::base::scale::SCALE;
use crate::base::settings::{Axes, Durability as Level, MemoryFence, WriterOptions};
use crate::commit::core::acknowledge::Acknowledgments;
use crate::commit::core::durability::Durability;
use crate::commit::core::environment::Environment;
use crate::commit::core::levels::{self, NEVER, Waits};
use crate::commit::core::log_writer::LogWriter;
use crate::commit::core::medium::Medium;
use crate::commit::core::pending::{Pending, Ticket};
use crate::device::mapped::MemoryFacts;
use crate::log::memory::LogMemory;
use crate::log::{Fenced, LogGuard};
use crate::sync::Backoff;
use std::sync::Arc;

/// W is computed again at the latest after so many transactions of a log that did not need it.
const SCAN_AT_LEAST: u64 = 1024;

/// Pauses, about a microsecond in all, in which a thread that fences beside the latch may finish
/// before a barrier interrupts all threads.
const PAUSES: u32 = SCALE.fence_pauses;

/// See the module's text.
pub struct MappedLogs {
    environment: Arc<Environment>,
    durability: Arc<Durability>,
    acknowledgments: Arc<Acknowledgments>,
    memory: Arc<LogMemory>,
    waits: Waits,
    /// With durable caches a stored record is durable, at each level.
    needs_no_fence: bool,
    /// Committers fence beside the latch.
    fences_beside: bool,
}

impl MappedLogs {
    pub fn new(
        environment: Arc<Environment>,
        durability: Arc<Durability>,
        acknowledgments: Arc<Acknowledgments>,
        memory: Arc<LogMemory>,
        axes: &Axes,
        waits: Waits,
    ) -> MappedLogs {
        let needs_no_fence = memory.mapped().is_durable_when_stored();
        let fences_beside =
            !needs_no_fence && axes.writer != WriterOptions::Memory { fence: MemoryFence::Latched };
        MappedLogs { environment, durability, acknowledgments, memory, waits, needs_no_fence, fences_beside }
    }

    /// Hardens everything in `log`'s mapped buffers. Under its latch.
    fn fence(&self, log: &LogWriter, latch: &mut LogGuard<'_>) {
        match latch.fence() {
            Fenced::Nothing => return,
            Fenced::ByFence => self.environment.metrics.fences.add(1),
            Fenced::ByBarrier => self.environment.metrics.drained.add(1),
            Fenced::WhenStored => {}
        }
        self.durability.settle(log, latch);
    }

    /// Returns whether a transaction is to be hardened as soon as its record is stored.
    fn hardens_at_once(&self, pending: &Pending) -> bool {
        self.needs_no_fence || pending.waits || pending.durability == Level::Durable
    }

    /// Hardens what a transaction of the calling thread has stored in `logs`, without their
    /// latches: one fence comes first, and then, under the latch of each log, the log notes it.
    /// Until then the log's slot stays at or below the record, so W does not pass it.
    fn fence_beside(&self, logs: &[&LogWriter]) {
        if !planted::is(Bug::FenceSkipped) {
            self.memory.mapped().fence();
        }
        let mut by_fence = false;
        for log in logs {
            let mut latch = log.log.lock();
            if self.environment.poison.is_raised() {
                // The last holder of the latch may have left a record half in the log.
                return;
            }
            match latch.fenced_own() {
                Fenced::ByFence => by_fence = true,
                Fenced::ByBarrier => self.environment.metrics.drained.add(1),
                Fenced::Nothing | Fenced::WhenStored => continue,
            }
            self.durability.settle(log, &latch);
        }
        if by_fence {
            self.environment.metrics.fences.add(1);
        }
    }

    /// After a commit: brings W up to date if that is needed to acknowledge `ticket`, or was not
    /// done for long.
    fn scan_for(&self, ticket: Ticket) {
        let late = ticket.csn.0 >= self.durability.watermark.get().0 + SCAN_AT_LEAST;
        if late || !self.durability.are_satisfied(ticket) {
            self.durability.rescan();
        }
    }

    /// Waits a moment for threads that fence beside the latches of `dirty` logs, and removes the
    /// logs that are clean then, up to their CSNs.
    fn await_fences(&self, dirty: &mut Vec<(&LogWriter, Csn)>) {
        let mut backoff = Backoff::new();
        while self.fences_beside && !dirty.is_empty() && backoff.steps() < PAUSES {
            backoff.pause();
            dirty.retain(|(log, last)| {
                log.log.lock().first_volatile_csn().is_some_and(|first| first <= *last)
            });
        }
    }
}

impl Medium for MappedLogs {
    #[inline]
    fn is_durable_memory(&self) -> bool {
        true
    }

    fn appended(&self, pending: &Pending, log: &LogWriter, latch: &mut LogGuard<'_>) {
        if self.hardens_at_once(pending) && !self.fences_beside {
            self.fence(log, latch);
        }
    }

    fn harden(&self, log: &LogWriter, latch: &mut LogGuard<'_>) -> bool {
        self.fence(log, latch);
        latch.first_volatile_csn().is_none()
    }

    fn released(&self, ticket: Ticket, pending: &Pending, logs: &[&LogWriter]) {
        if self.fences_beside && self.hardens_at_once(pending) {
            self.fence_beside(logs);
        }
        self.scan_for(ticket);
    }

    fn sealed(&self, log: &LogWriter, latch: &LogGuard<'_>) {
        self.durability.settle(log, latch);
    }

    /// Only for what is not fenced.
    fn due(&self, _log: &LogWriter, latch: &LogGuard<'_>, level: Level, ready: Nanos) -> Option<Nanos> {
        Some(match (latch.first_volatile_csn(), level) {
            (None, _) => NEVER,
            // Its committer fences it next.
            (Some(_), Level::Durable) if self.fences_beside && latch.is_in_memory() => NEVER,
            // Not in mapped memory: soon.
            (Some(_), Level::Durable) => ready,
            (Some(_), level) => levels::due(level, ready, ready, &self.waits),
        })
    }

    /// Whichever thread stored there. Returns false if there is nothing to do in memory: what holds
    /// W back is a block that has to be written.
    fn drain_behind(&self, csn: Csn) -> bool {
        if csn < self.durability.rescan() {
            return true;
        }
        let is_behind = |log: &&LogWriter| self.durability.watermark.holds_back(log.id, csn);
        self.drain(&mut self.durability.logs.iter().filter(is_behind))
    }

    fn drain_for(&self, ticket: Ticket) -> bool {
        let satisfied = || self.durability.are_satisfied(ticket);
        satisfied() || {
            self.drain_behind(ticket.csn.max(ticket.dsn));
            satisfied()
        }
    }

    /// Fences these logs. Returns false if each of them holds W back with a block that has to be
    /// written.
    fn drain(&self, logs: &mut dyn Iterator<Item = &LogWriter>) -> bool {
        let (mut any, mut all_blocked) = (false, true);
        let mut dirty: Vec<(&LogWriter, Csn)> = Vec::new();
        for log in logs {
            any = true;
            // A thread that is just storing there has the latch. One that fences beside it has
            // stored everything.
            let latch = log.log.lock();
            match latch.last_unfenced_csn() {
                Some(last) => dirty.push((log, last)),
                None if latch.first_volatile_csn().is_none() => all_blocked = false,
                None => {}
            }
        }
        all_blocked &= dirty.is_empty();
        self.await_fences(&mut dirty);
        if !dirty.is_empty() {
            if !planted::is(Bug::StragglersNotDrained) {
                self.memory.mapped().barrier();
            }
            self.environment.metrics.drained.add(1);
        }
        for (log, last) in dirty {
            let mut latch = log.log.lock();
            if self.environment.poison.is_raised() {
                // The last holder of the latch may have left a record half in the log.
                return false;
            }
            latch.fenced_up_to(last);
            self.durability.settle(log, &latch);
        }
        self.durability.rescan();
        !(any && all_blocked)
    }

    fn drain_and_acknowledge(&self, logs: &mut dyn Iterator<Item = &LogWriter>) {
        if self.drain(logs) {
            self.acknowledgments.acknowledge_all(true);
            self.acknowledgments.wake_futures();
            self.environment.progress.notify_all();
        }
    }

    fn watermark_in_segments(&self) -> Option<Csn> {
        let durability = &self.durability;
        // As for W: the counter first.
        let bound = durability.watermark.newest_drawn().next();
        let first = durability.logs.iter().filter_map(|log| log.log.lock().first_unwritten_csn()).min();
        Some(first.map_or(bound, |first| first.min(bound)).min(durability.rescan()))
    }

    fn facts(&self) -> Option<MemoryFacts> {
        Some(self.memory.mapped().facts())
    }

    fn release(&self) {
        self.memory.mapped().release();
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
