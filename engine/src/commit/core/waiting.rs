//! How does a waiter cause the writes that it needs?
//!
//! A waiter needs two things: its own record durable, which is the protocol's business, and what
//! the dependency rule says. The writes of other logs that it needs are started before its own, so
//! that they run side by side.
//!
//! ```text
//!   own record    protocol.wait: lead, follow, or sleep
//!   other logs    dependencies satisfied? -- no -- one log behind: advance it       \
//!                                                  several: their flushers, at once   } look again
//! ```
//!
//! No waiter is stranded: it takes its event ticket before it looks, and a leader resigns before it
//! notifies.

use super::acknowledge::Acknowledgments;
use super::durability::Durability;
use super::environment::Environment;
use super::levels::{self, NOW};
use super::log_writer::LogWriter;
use super::medium::Medium;
use super::pending::{Pending, Ticket};
use super::protocol::Protocol;
use super::rule::Obstacle;
use super::waiters::WakerPlace;
use super::writes::Writes;
use super::written::Written;
use crate::base::clock::Nanos;
use crate::base::planted::{self, Bug};
use crate::base::settings::Durability as Level;
use crate::base::{Csn, Error, ErrorKind, LogId, Result};
use crate::sync::atomic::Ordering;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// Time between two looks of a thread that waits without causing a write.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// See the module's text.
pub struct Waiting {
    pub(in crate::commit) environment: Arc<Environment>,
    pub(in crate::commit) durability: Arc<Durability>,
    pub(in crate::commit) acknowledgments: Arc<Acknowledgments>,
    pub(in crate::commit) writes: Arc<Writes>,
    pub(in crate::commit) medium: Arc<dyn Medium>,
    pub(in crate::commit) protocol: Arc<dyn Protocol>,
    pub(in crate::commit) written: Written,
    /// A waiting committer has an entry in the queue, too, with which it is counted.
    pub(in crate::commit) queues_waiters: bool,
}

impl Waiting {
    /// Waits until a transaction of level written, whose thread has just appended it, is written,
    /// and once in `durable_every` commits until it is durable. Returns the time.
    ///
    /// # Errors
    /// `OutcomeUnknown` if a write or flush failed.
    pub fn finish_written(&self, ticket: Ticket) -> Result<Nanos> {
        if self.written.wait(ticket)? {
            self.await_committed(ticket, None)?;
        }
        Ok(self.environment.clock.now())
    }

    /// Waits until a transaction whose thread has just appended it is committed, and counts it. A
    /// thread that holds locks waits for no group-commit cohort, which may be blocked by the locks.
    /// Returns the time.
    ///
    /// # Errors
    /// `OutcomeUnknown` if a write or flush failed.
    pub fn finish(&self, ticket: Ticket, pending: &Pending) -> Result<Nanos> {
        self.demand_others(ticket);
        self.protocol.wait(ticket, !pending.holds_locks, None)?;
        if !self.acknowledgments.is_committed(ticket) {
            if !self.queues_waiters {
                self.acknowledgments.count_rule_wait(ticket, pending);
            }
            self.await_others(ticket, None)?;
        }
        Ok(match self.queues_waiters {
            // The acknowledger counts it.
            true => self.environment.clock.now(),
            false => self.acknowledgments.count_one(self.durability.log(ticket.log), pending, ticket.csn),
        })
    }

    /// Waits at level durable until everything that a transaction without writes read is committed,
    /// and counts it.
    ///
    /// # Errors
    /// `Poisoned` if a write or flush failed.
    pub fn finish_read_only(&self, pending: &Pending) -> Result<()> {
        self.acknowledge_observed(pending)?;
        if matches!(pending.durability, Level::Durable | Level::Written) {
            self.acknowledgments.count_one(&self.durability.logs[0], pending, Csn::ZERO);
        }
        Ok(())
    }

    /// Waits at level durable until everything that a transaction observed is committed, because
    /// its caller learns something of it. From then on that counts as acknowledged.
    ///
    /// # Errors
    /// `Poisoned` if that can no longer become durable.
    pub fn acknowledge_observed(&self, pending: &Pending) -> Result<()> {
        if pending.durability == Level::Written && !planted::is(Bug::ReaderNotAwaited) {
            self.written.await_up_to(pending.dsn)?;
        }
        if pending.durability == Level::Durable {
            match pending.predecessors.all() {
                _ if planted::is(Bug::ReaderNotAwaited) => {}
                Some(read) if self.durability.lists_predecessors() => {
                    read.iter().try_for_each(|csn| self.await_version(*csn))?;
                }
                _ => self.await_settled(pending.dsn, ErrorKind::Poisoned)?,
            }
        }
        // The caller knows what this transaction read, although the committer of those versions may
        // not have been acknowledged yet. A transaction that begins after this call must see them,
        // too.
        self.acknowledgments.acknowledged_up_to(pending.dsn);
        Ok(())
    }

    /// Returns the level that a transaction of `level` has: written is durable where it would save
    /// nothing.
    #[inline]
    #[must_use]
    pub fn effective_level(&self, level: Level) -> Level {
        self.written.effective(level)
    }

    /// Returns the tickets that a transaction without a record, queued from `log`, waits for.
    #[must_use]
    pub fn tickets_of_reader(&self, log: LogId, pending: &Pending) -> Vec<Ticket> {
        let ticket = |dsn, is_exact| Ticket { log, csn: Csn::ZERO, dsn, is_exact };
        match pending.predecessors.all() {
            Some(read) if self.durability.lists_predecessors() => {
                read.iter().map(|csn| ticket(*csn, true)).collect()
            }
            _ => vec![ticket(pending.dsn, false)],
        }
    }

    /// Waits until the transactions of all `tickets` are committed, at most `timeout`.
    ///
    /// # Errors
    /// `OutcomeUnknown` if a write or flush failed; `Timeout`: then it may be waited for again.
    pub fn wait(&self, tickets: impl IntoIterator<Item = Ticket>, timeout: Option<Duration>) -> Result<()> {
        let deadline = self.environment.deadline(timeout);
        let _inside = self.writes.failure.guard("a thread that waited for a commit");
        tickets.into_iter().try_for_each(|ticket| self.await_committed(ticket, deadline))
    }

    /// Waits until `csn`, whose version a transaction read, is committed. Causes the writes this
    /// needs (rule 5). From then on it counts as acknowledged.
    ///
    /// # Errors
    /// `Poisoned` if a write or flush failed; `InvalidArgument` if it was never drawn.
    pub fn wait_committed(&self, csn: Csn) -> Result<()> {
        self.await_version(csn)?;
        self.acknowledgments.acknowledged_up_to(csn);
        Ok(())
    }

    /// Waits until every CSN up to `csn` is durable, causing the writes that takes. From then on
    /// they count as acknowledged.
    ///
    /// # Errors
    /// `Poisoned` if a write or flush failed.
    pub fn wait_watermark(&self, csn: Csn) -> Result<()> {
        self.await_settled(csn, ErrorKind::Poisoned)?;
        self.acknowledgments.acknowledged_up_to(csn);
        if self.medium.is_durable_memory() {
            // A thread that fences for others acknowledges nothing.
            self.acknowledgments.publish();
        }
        Ok(())
    }

    /// Waits until the transaction of `ticket` is committed.
    pub(in crate::commit) fn await_committed(&self, ticket: Ticket, deadline: Option<Nanos>) -> Result<()> {
        self.demand_others(ticket);
        self.protocol.wait(ticket, false, deadline)?;
        self.await_others(ticket, deadline)
    }

    /// Waits until the dependency rule is satisfied.
    fn await_others(&self, ticket: Ticket, deadline: Option<Nanos>) -> Result<()> {
        let done = || self.acknowledgments.is_committed(ticket);
        if done() {
            return Ok(());
        }
        self.await_progress(ErrorKind::OutcomeUnknown, deadline, &done, &|| self.advance_others(ticket))
    }

    /// Waits until W is above `csn`, and causes the writes this needs.
    pub(in crate::commit) fn await_settled(&self, csn: Csn, kind: ErrorKind) -> Result<()> {
        let done = || csn < self.durability.watermark.get();
        self.await_progress(kind, None, &done, &|| self.advance_watermark(csn))
    }

    /// Waits until `csn`, which may not be drawn yet, is durable in a segment. Returns false at the
    /// deadline, or when the database is closed.
    pub(in crate::commit) fn await_durable(&self, csn: Csn, deadline: Option<Nanos>) -> Result<bool> {
        let environment = &self.environment;
        loop {
            let woken = environment.progress.ticket();
            if environment.closing.load(Ordering::SeqCst) {
                return Ok(false);
            }
            if csn < self.durability.rescan() {
                if csn < self.watermark_in_segments() {
                    return Ok(true);
                }
                if self.write_to_segments() {
                    continue;
                }
            }
            environment.poison.check()?;
            // Not each rise of W wakes a thread that caused no write.
            let now = environment.clock.now();
            let look_again = levels::after(now, LOOK_EVERY);
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Ok(false);
            }
            let until = deadline.map_or(look_again, |deadline| deadline.min(look_again));
            match environment.sleep(&environment.progress, woken, Some(until)) {
                Err(error) if error.kind() != ErrorKind::Timeout => return Err(error),
                _ => {}
            }
        }
    }

    /// Waits until everything up to `csn`, which is durable, is durable in segments.
    pub(in crate::commit) fn await_in_segments(&self, csn: Csn) -> Result<()> {
        debug_assert!(csn <= self.durability.watermark.newest_drawn(), "nobody has drawn what is awaited");
        let environment = &self.environment;
        loop {
            let woken = environment.progress.ticket();
            if csn < self.watermark_in_segments() {
                return Ok(());
            }
            environment.poison.check()?;
            if !self.write_to_segments() {
                environment.progress.wait(woken, Some(LOOK_EVERY));
            }
        }
    }

    /// Returns a CSN below which everything is durable in segments.
    pub(in crate::commit) fn watermark_in_segments(&self) -> Csn {
        self.medium.watermark_in_segments().unwrap_or_else(|| self.durability.watermark.get())
    }

    /// Writes what only mapped memory has to segments. Returns false if there is nothing to write,
    /// or other threads are at it.
    fn write_to_segments(&self) -> bool {
        let leaders = self.durability.logs.iter().filter_map(|log| self.writes.try_become_leader(log));
        let counter = &self.environment.metrics.leader_flushes;
        leaders.fold(false, |wrote, leader| {
            let mut latch = leader.log().log.lock();
            if latch.is_in_memory() {
                leader.log().seal_ahead(&mut latch);
            }
            drop(latch);
            self.writes.write_as_leader(&leader, counter) || wrote
        })
    }

    /// Waits until everything that was drawn is durable. From then on it counts as acknowledged.
    ///
    /// # Errors
    /// `Poisoned` if a write or flush failed, now or earlier.
    pub fn flush_all(&self) -> Result<()> {
        self.await_settled(self.durability.watermark.newest_drawn(), ErrorKind::Poisoned)?;
        self.environment.poison.check()
    }

    /// Waits until `csn`, whose version a transaction read, is committed.
    pub(in crate::commit) fn await_version(&self, csn: Csn) -> Result<()> {
        let done = || self.durability.is_committed(csn);
        if done() {
            return Ok(());
        }
        if csn > self.durability.watermark.newest_drawn() {
            return Err(Error::invalid("waits for a transaction that does not exist"));
        }
        self.await_progress(ErrorKind::Poisoned, None, &done, &|| self.advance_commit(csn))
    }

    fn await_progress(
        &self,
        kind: ErrorKind,
        deadline: Option<Nanos>,
        done: &dyn Fn() -> bool,
        advance: &dyn Fn() -> bool,
    ) -> Result<()> {
        loop {
            let woken = self.environment.progress.ticket();
            if done() {
                return Ok(());
            }
            // W may be out of date: it is computed once per write, and not after a failure.
            self.durability.rescan();
            if done() {
                return Ok(());
            }
            if self.environment.poison.is_raised() {
                return Err(self.environment.poison.error(kind));
            }
            if !advance() {
                self.environment.sleep(&self.environment.progress, woken, deadline)?;
            }
        }
    }

    /// Tries to advance W past `csn`. Returns false if other threads are at it.
    pub(in crate::commit) fn advance_watermark(&self, csn: Csn) -> bool {
        if self.medium.drain_behind(csn) {
            return true;
        }
        let is_behind =
            |log: &&LogWriter| self.durability.watermark.holds_back(log.id, csn) && !log.is_only_carried();
        let mut behind = self.durability.logs.iter().filter(is_behind);
        // A log that had announced itself below has drawn above since, or did so while its latch
        // was waited for, and no thread is woken for that: W may have passed.
        let Some(first) = behind.next() else {
            return csn < self.durability.rescan()
                || self.writes.queued.complete_carried_below(&self.writes, csn);
        };
        if self.writes.flushers.are_running() && behind.next().is_some() {
            // Side by side instead of one after the other.
            self.demand(csn, None);
            // They may have drawn above meanwhile, too.
            return csn < self.durability.rescan();
        }
        self.protocol.advance(first, csn, NOW) || csn < self.durability.rescan()
    }

    /// Does one step towards the commit of `csn`, by the rule in force. Returns false if other
    /// threads are at it.
    fn advance_commit(&self, csn: Csn) -> bool {
        if self.medium.drain_behind(csn) {
            return true;
        }
        let (mut volatile, mut several, mut watermark) = (None, false, Csn::ZERO);
        self.durability.obstacles(csn, &mut |obstacle| match obstacle {
            Obstacle::Watermark(csn) => watermark = watermark.max(csn),
            Obstacle::Volatile(log, csn) => {
                several |= volatile.is_some_and(|(other, _)| other != log);
                volatile = Some((log, csn));
            }
        });
        match volatile {
            _ if watermark > Csn::ZERO => self.advance_watermark(watermark.max(csn)),
            // Side by side instead of one after the other.
            Some(_) if several && self.writes.flushers.are_running() => {
                self.demand_others(Ticket { log: LogId(0), csn: Csn::ZERO, dsn: csn, is_exact: true });
                false
            }
            Some((log, csn)) => self.protocol.advance(self.durability.log(log), csn, NOW),
            None => {
                self.durability.rescan();
                self.durability.is_committed(csn)
            }
        }
    }

    /// Does one step for the transaction of `ticket`, whose record is durable. Returns false if
    /// other threads are at it.
    fn advance_others(&self, ticket: Ticket) -> bool {
        if self.durability.is_judged_exactly(ticket) {
            return self.advance_commit(ticket.root());
        }
        if self.durability.has_fragments()
            && let Some((log, csn)) = self.durability.volatile_fragment(ticket.csn)
        {
            return self.protocol.advance(log, csn, NOW);
        }
        self.advance_watermark(self.durability.required_watermark(ticket.csn, ticket.dsn))
    }

    /// Has the flushers write, now, what the transaction of `ticket` needs besides its own record.
    pub(in crate::commit) fn demand_others(&self, ticket: Ticket) {
        if self.medium.drain_for(ticket) {
            return;
        }
        if self.durability.is_judged_exactly(ticket) {
            self.durability.obstacles(ticket.root(), &mut |obstacle| match obstacle {
                Obstacle::Volatile(log, _) if log == ticket.log && ticket.csn != Csn::ZERO => {}
                Obstacle::Volatile(log, csn) => {
                    self.writes.queued.hasten_carriers(&self.writes, csn);
                    self.writes.flushers.delegate(self.durability.log(log), NOW);
                }
                Obstacle::Watermark(csn) => self.demand(csn, Some(ticket)),
            });
            return;
        }
        if self.durability.has_fragments() {
            let fragments = self.durability.fragments_before(ticket.csn);
            for (log, _) in fragments.filter(|(log, csn)| *csn > log.log.durable_csn()) {
                self.writes.flushers.delegate(log, NOW);
            }
        }
        let required = self.durability.required_watermark(ticket.csn, ticket.dsn);
        if required >= self.durability.watermark.get() {
            self.demand(required, Some(ticket));
        }
    }

    /// Has the flushers write, now, every log that holds W back at or below `csn`, except the one
    /// of `own`, which its committer sees to.
    fn demand(&self, csn: Csn, own: Option<Ticket>) {
        let mut demanded = self.writes.queued.hasten_carriers(&self.writes, csn);
        for log in self.durability.logs.iter().filter(|log| own.is_none_or(|own| own.log != log.id)) {
            if self.durability.watermark.holds_back(log.id, csn) {
                log.flush_request.lower_due(NOW);
                demanded = true;
            }
        }
        if demanded {
            self.acknowledgments.wake_flushers_behind(csn);
        }
    }

    /// Has the flushers write, now, every log that holds W back at or below `csn`. Logs that are
    /// left to their own writers are written early only if that is urgent. Returns whether it does.
    pub fn hasten(&self, csn: Csn, is_urgent: bool) -> bool {
        let hastens = is_urgent || !self.durability.leaves_writes_to_owners();
        if hastens {
            self.demand(csn, None);
        }
        hastens
    }

    /// For a future: returns the outcome if it is known. Otherwise wakes `waker` when it is,
    /// instead of the one that was left at `place`, and causes the writes that are needed.
    pub fn poll(&self, ticket: Ticket, waker: &Waker, place: &mut WakerPlace) -> Option<Result<()>> {
        if let Some(outcome) = self.outcome(ticket) {
            return Some(outcome);
        }
        // A user's code, which may panic.
        self.writes.wakers.put(ticket, waker, place);
        let _guard = self.writes.failure.guard("a thread that polled a future");
        self.medium.drain_behind(ticket.csn);
        let log = self.durability.log(ticket.log);
        if log.log.durable_csn() < ticket.csn {
            self.writes.queued.hasten_carriers(&self.writes, ticket.csn);
            self.writes.flushers.delegate(log, NOW);
        }
        self.durability.rescan();
        self.demand_others(ticket);
        // A thread that acknowledged before the waker was there did not see it, nor does one that
        // has drawn above since.
        self.durability.rescan();
        self.outcome(ticket)
    }

    fn outcome(&self, ticket: Ticket) -> Option<Result<()>> {
        if self.acknowledgments.is_committed(ticket) {
            return Some(Ok(()));
        }
        let poison = &self.environment.poison;
        poison.is_raised().then(|| Err(poison.outcome(ticket.log, ticket.csn)))
    }
}
