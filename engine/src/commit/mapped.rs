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

use super::acknowledge::Acknowledgments;
use super::durability::Durability;
use super::environment::Environment;
use super::log_writer::LogWriter;
use super::pending::{Pending, Ticket};
use crate::base::Csn;
use crate::base::planted::{self, Bug};
use crate::base::settings::{Durability as Level, MemoryFence};
use crate::log::LogGuard;
use crate::log::memory::Fenced;
use crate::sync::Backoff;
use std::sync::Arc;

/// W is computed again at the latest after so many transactions of a log that did not need it.
const SCAN_AT_LEAST: u64 = 1024;

/// Pauses, about a microsecond in all, in which a thread that fences beside the latch may finish
/// before a barrier interrupts all threads.
const PAUSES: u32 = if cfg!(loom) {
    0
} else if cfg!(feature = "shuttle") {
    1
} else {
    6
};

/// See the module's text. Without mapped memory it does nothing.
pub(super) struct MappedLogs {
    environment: Arc<Environment>,
    durability: Arc<Durability>,
    acknowledgments: Arc<Acknowledgments>,
    is_used: bool,
    /// With durable caches a stored record is durable, at each level.
    needs_no_fence: bool,
    /// Committers fence beside the latch.
    fences_beside: bool,
}

impl MappedLogs {
    pub(super) fn new(
        environment: Arc<Environment>,
        durability: Arc<Durability>,
        acknowledgments: Arc<Acknowledgments>,
        fence: MemoryFence,
    ) -> MappedLogs {
        let memory = environment.memory.as_ref();
        let is_used = memory.is_some();
        let needs_no_fence = memory.is_some_and(|memory| memory.mapped().is_durable_when_stored());
        let fences_beside = is_used && !needs_no_fence && fence == MemoryFence::Beside;
        MappedLogs { environment, durability, acknowledgments, is_used, needs_no_fence, fences_beside }
    }

    /// Returns whether log buffers are in mapped memory.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.is_used
    }

    /// Hardens everything in `log`'s mapped buffers. Under its latch.
    pub(super) fn fence(&self, log: &LogWriter, latch: &mut LogGuard<'_>) {
        match latch.fence() {
            Fenced::Nothing => return,
            Fenced::ByFence => self.environment.metrics.fences.add(1),
            Fenced::ByBarrier => self.environment.metrics.drained.add(1),
            Fenced::WhenStored => {}
        }
        self.durability.settle(log, latch);
    }

    /// Returns whether a transaction is to be hardened as soon as its record is stored.
    pub(super) fn hardens_at_once(&self, pending: &Pending) -> bool {
        self.is_used && (self.needs_no_fence || pending.waits || pending.durability == Level::Durable)
    }

    /// Returns whether committers fence beside the latch.
    pub(super) fn fences_beside(&self) -> bool {
        self.fences_beside
    }

    /// Returns whether a transaction is to be hardened by [`MappedLogs::fence_beside`].
    #[inline]
    pub(super) fn hardens_beside(&self, pending: &Pending) -> bool {
        self.fences_beside && self.hardens_at_once(pending)
    }

    /// Hardens what a transaction of the calling thread has stored in `logs`, without their
    /// latches: one fence comes first, and then, under the latch of each log, the log notes it.
    /// Until then the log's slot stays at or below the record, so W does not pass it.
    pub(super) fn fence_beside<'a>(&self, logs: impl Iterator<Item = &'a LogWriter>) {
        let Some(memory) = &self.environment.memory else { return };
        if !planted::is(Bug::FenceSkipped) {
            memory.mapped().fence();
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
    pub(super) fn scan_for(&self, ticket: Ticket) {
        let late = ticket.csn.0 >= self.durability.watermark.get().0 + SCAN_AT_LEAST;
        if late || !self.durability.are_satisfied(ticket) {
            self.durability.rescan();
        }
    }

    /// Fences every log that holds W back at or below `csn`, whichever thread stored there. Returns
    /// false if there is nothing to do in memory: what holds W back is a block that has to be
    /// written.
    pub(super) fn drain_behind(&self, csn: Csn) -> bool {
        if !self.is_used {
            return false;
        }
        if csn < self.durability.rescan() {
            return true;
        }
        let behind =
            self.durability.logs.iter().filter(|log| self.durability.watermark.holds_back(log.id, csn));
        self.drain(behind)
    }

    /// Fences what the transaction of `ticket` depends on, if the rule is not satisfied. Returns
    /// true if nothing has to be written for it.
    pub(super) fn drain_for(&self, ticket: Ticket) -> bool {
        let satisfied = || self.durability.are_satisfied(ticket);
        self.is_used
            && (satisfied() || {
                self.drain_behind(ticket.csn.max(ticket.dsn));
                satisfied()
            })
    }

    /// Fences these logs. Returns false if each of them holds W back with a block that has to be
    /// written.
    pub(super) fn drain<'a>(&self, logs: impl Iterator<Item = &'a LogWriter>) -> bool {
        let Some(memory) = &self.environment.memory else { return false };
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
                memory.mapped().barrier();
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

    /// Fences these logs and acknowledges what that commits.
    pub(super) fn drain_and_acknowledge<'a>(&self, logs: impl Iterator<Item = &'a LogWriter>) {
        if self.drain(logs) {
            self.acknowledgments.acknowledge_all(true);
            self.acknowledgments.wake_futures();
            self.environment.progress.notify_all();
        }
    }

    /// Returns a CSN below which everything is durable in segments.
    pub(super) fn watermark_in_segments(&self) -> Csn {
        let durability = &self.durability;
        if !self.is_used {
            return durability.watermark.get();
        }
        // As for W: the counter first.
        let bound = durability.watermark.newest_drawn().next();
        let first = durability.logs.iter().filter_map(|log| log.log.lock().first_unwritten_csn()).min();
        first.map_or(bound, |first| first.min(bound)).min(durability.rescan())
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
