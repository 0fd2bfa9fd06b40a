//! Passive group commit: when log buffers are in memory that keeps what is in it.
//!
//! A committer stores its record, fences it, and is hardened: no device, no thread to wait for. What is left of group commit is to know that
//! everything it depends on is fenced too:
//!
//! ```text
//!   draw: slot := CSN     store record     fence     slot := infinity     queue     W := min(slots)     tell all with DSN < W
//!   └ the log is dirty ───────────────────────────┘  └ published: clean
//! ```
//!
//! The log's slot of the [watermark](super::watermark) is both things that the protocol keeps for each thread: its dirty bit (a CSN: dirty
//! since that; infinity: clean) and how far it is durable. It is set before the record is stored and cleared after the fence, so
//! whoever takes the minimum finds nothing at or below it that a crash could take away.
//!
//! **Stragglers.** A transaction that need not be durable when its commit returns does not fence, and leaves its log dirty: others that
//! read what it wrote are held up. Whoever waits drains such logs: `membarrier(2)` makes every running thread of the process execute
//! a barrier, which ends what they have under way, and one that is not running has executed one. One thread's stores are fenced
//! for it, and it does not notice. For those that nobody waits with the first flusher does the same after [`GRACE`], or when the
//! loss window is about to end.
//!
//! **De-staging.** A full buffer is sealed like any block, and the flusher writes it. Until that is done its mapped buffer stays; if all
//! buffers of a log are full, committers write one themselves. Nobody who commits waits for it otherwise.
//!
//! A record longer than a buffer is not in mapped memory: it is durable when its block is written, and waiters see to that as ever.
//!
//! With one log or several the order of these steps under the log's latch is all the protection there is; a model checker has
//! explored it (`watermark.rs`), since a fence is to it what a device write is.

use super::flusher::GRACE;
use super::levels::{self, NEVER};
use super::precommit::Pending;
use super::writer::LogWriter;
use super::{Core, Ticket};
use crate::base::clock::Nanos;
use crate::base::planted::{self, Bug};
use crate::base::settings::{Acknowledger, Durability};
use crate::base::{Csn, LogId};
use crate::log::LogGuard;
use crate::log::memory::Fenced;

/// W is computed again at the latest after so many transactions of a log that did not need it.
const SCAN_AT_LEAST: u64 = 1024;

impl Core {
    /// True if log buffers are in mapped memory.
    pub(super) fn is_passive(&self) -> bool {
        self.memory.is_some()
    }

    /// Hardens everything in `writer`'s mapped buffers. Under its latch.
    pub(super) fn fence(&self, writer: &LogWriter, latch: &mut LogGuard<'_>) {
        match latch.fence() {
            Fenced::Nothing => return,
            Fenced::ByFence => self.metrics.fences.add(1),
            Fenced::ByBarrier => self.metrics.drained.add(1),
        }
        self.settle(writer, latch);
    }

    /// Whether a transaction is to be hardened as soon as its record is stored.
    pub(super) fn hardens_at_once(&self, pending: &Pending) -> bool {
        self.is_passive() && (pending.waits || pending.durability == Durability::Durable)
    }

    /// When a log is due that nobody waits for: only for what is not fenced.
    pub(super) fn passive_due(&self, latch: &LogGuard<'_>, level: Durability, ready: Nanos) -> Nanos {
        match (latch.first_volatile_csn(), level) {
            (None, _) => NEVER,
            // Not in mapped memory: soon, as ever.
            (Some(_), Durability::Durable) => ready,
            (Some(_), level) => levels::due(level, ready, ready, self.axes.flush_interval, &self.axes),
        }
    }

    /// After a commit: W as far as it takes to acknowledge `ticket`.
    pub(super) fn scan_for(&self, ticket: Ticket) {
        let late = ticket.csn.0 >= self.watermark.get().0 + SCAN_AT_LEAST;
        if late || !self.are_ticket_dependencies_satisfied(ticket) {
            self.rescan();
        }
    }

    /// At the end of a transaction of `log`: tells whoever can be told.
    pub(super) fn acknowledge_passively(&self, log: LogId) {
        let writer = self.writer(log);
        if !writer.has_pending() {
            return;
        }
        match self.axes.acknowledger {
            Acknowledger::Workers => {
                self.acknowledge_group(log);
            }
            Acknowledger::Leader => {
                self.acknowledge_all(false);
            }
            Acknowledger::Background => return self.schedule_acknowledgment(levels::NOW),
        }
        self.wakers.wake(|ticket| self.is_committed_ticket(ticket));
        if writer.has_pending() {
            // Held up by a straggler, or somebody else is telling.
            self.schedule_acknowledgment(levels::after(self.clock.now(), GRACE));
        }
    }

    /// Fences every log that holds W back at or below `csn`, whoever stored there. False if there is nothing to be done in memory: what
    /// holds W back is a block that has to be written.
    pub(super) fn drain_behind(&self, csn: Csn) -> bool {
        if csn < self.rescan() {
            return true;
        }
        let behind = self.writers.iter().filter(|writer| self.watermark.holds_back(writer.id, csn));
        self.drain(behind)
    }

    /// Fences what the transaction of `ticket` depends on, if the rule is not content with it. True if nobody has to write for it.
    pub(super) fn drain_for(&self, ticket: Ticket) -> bool {
        let content = || self.are_ticket_dependencies_satisfied(ticket);
        self.is_passive()
            && (content() || {
                self.drain_behind(ticket.csn.max(ticket.dsn));
                content()
            })
    }

    /// Fences these logs. False if each of them holds W back with a block that has to be written.
    pub(super) fn drain<'a>(&self, writers: impl Iterator<Item = &'a LogWriter>) -> bool {
        let Some(memory) = &self.memory else { return false };
        let (mut any, mut all_blocked) = (false, true);
        let mut dirty: Vec<(&LogWriter, Csn)> = Vec::new();
        for writer in writers {
            any = true;
            // Whoever is just storing there has the latch, and fences before letting go of it.
            let latch = writer.log.lock();
            match latch.last_unfenced_csn() {
                Some(last) => dirty.push((writer, last)),
                None if latch.first_volatile_csn().is_none() => all_blocked = false,
                None => {}
            }
        }
        if !dirty.is_empty() {
            if !planted::is(Bug::StragglersNotDrained) {
                memory.mapped().barrier();
            }
            self.metrics.drained.add(1);
            all_blocked = false;
        }
        for (writer, last) in dirty {
            let mut latch = writer.log.lock();
            if self.poison.is_raised() {
                // As in `complete_block`.
                return false;
            }
            latch.fenced_up_to(last);
            self.settle(writer, &latch);
        }
        self.rescan();
        !(any && all_blocked)
    }

    /// The flusher's share: logs due until `horizon`.
    pub(super) fn drain_due(&self, number: usize, horizon: Nanos, needed: Option<Csn>) {
        let due: Vec<&LogWriter> =
            self.served_by(number).filter(|writer| self.effective_due(writer, needed) <= horizon).collect();
        if self.drain(due.iter().copied()) {
            self.acknowledge_all(true);
            self.wakers.wake(|ticket| self.is_committed_ticket(ticket));
            self.progress.notify_all();
        }
    }

    /// Every CSN below is in a segment, durably.
    pub(super) fn watermark_in_segments(&self) -> Csn {
        if !self.is_passive() {
            return self.watermark.get();
        }
        // As for W: the counter first.
        let bound = self.watermark.newest_drawn().next();
        let first = self.writers.iter().filter_map(|writer| writer.log.lock().first_unwritten_csn()).min();
        first.map_or(bound, |first| first.min(bound)).min(self.rescan())
    }
}
