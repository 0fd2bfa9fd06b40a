//! What is durable, and what is committed: all logs, the watermark W, and the dependency rule over
//! them.
//!
//! This object writes nothing and wakes no thread. It answers questions, and [`Durability::rescan`]
//! brings its answers up to date.

use super::axes::Axes;
use super::dependency::{Clocks, DependsOn, Facts, Known, Obstacle, Rule, Undecided, rule_named};
use super::log_writer::LogWriter;
use super::pending::{Pending, Ticket};
use super::predecessors::Predecessors;
use super::stragglers::Stragglers;
use super::watermark::{RingSize, Watermark};
use crate::base::clock::Nanos;
use crate::base::planted::{self, Bug};
use crate::base::settings::Dependency;
use crate::base::{Csn, LogId};
use crate::log::{DependencyRule, LogGuard};
use crate::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// See the module's text.
pub(super) struct Durability {
    pub logs: Box<[LogWriter]>,
    pub watermark: Watermark,
    pub undecided: Undecided,
    pub stragglers: Stragglers,
    rule: Box<dyn Rule>,
    dependency: Dependency,
    lists_predecessors: bool,
    is_by_page: bool,
    /// Blocks that became durable.
    completions: AtomicU64,
}

impl Facts for Durability {
    fn watermark(&self) -> Csn {
        self.watermark.get()
    }

    fn durable(&self, log: LogId) -> Csn {
        self.log(log).log.durable_csn()
    }
}

impl Durability {
    /// Returns the log with a write that has not completed for `patience`, and since when.
    pub fn standing_write(&self, now: Nanos, patience: Duration) -> Option<(LogId, Nanos)> {
        let standing = self.logs.iter().filter_map(|log| Some((log.id, log.stands_since()?)));
        let oldest = standing.min_by_key(|(_, since)| *since);
        oldest.filter(|(_, since)| now.since(*since) >= patience)
    }

    pub(super) fn new(logs: Box<[LogWriter]>, axes: &Axes, first_csn: Csn, ring: RingSize) -> Durability {
        let (count, dependency) = (logs.len(), axes.dependency);
        let rule = rule_named(dependency, count, ring);
        let undecided_logs = if dependency == Dependency::LogOrder { 0 } else { count };
        Durability {
            logs,
            watermark: Watermark::new(count, first_csn, ring),
            undecided: Undecided::new(undecided_logs, ring),
            stragglers: Stragglers::new(axes.idle_logs, count),
            lists_predecessors: rule.lists_predecessors(),
            rule,
            dependency,
            is_by_page: axes.is_by_page(),
            completions: AtomicU64::new(0),
        }
    }

    pub(super) fn log(&self, log: LogId) -> &LogWriter {
        &self.logs[log.0 as usize]
    }

    fn known(&self) -> Known<'_> {
        Known { watermark: &self.watermark, undecided: &self.undecided, facts: self }
    }

    /// Returns the clocks, if the rule goes by clocks.
    #[inline]
    pub(super) fn clocks(&self) -> Option<&Clocks> {
        // Only rules that list predecessors have clocks: this keeps the others from a call.
        if self.lists_predecessors { self.rule.clocks() } else { None }
    }

    /// Returns whether records list their predecessors.
    pub(super) fn lists_predecessors(&self) -> bool {
        self.lists_predecessors
    }

    /// Returns whether a transaction may have a record in several logs.
    #[inline]
    pub(super) fn is_by_page(&self) -> bool {
        self.is_by_page
    }

    /// Brings W, and how far the clocks reach, up to date. Returns W.
    pub(super) fn rescan(&self) -> Csn {
        if let Some(clocks) = self.clocks() {
            clocks.rescan();
        }
        self.watermark.rescan()
    }

    /// Notes what `log` still has to make durable, for W and for the clocks.
    pub(super) fn settle(&self, log: &LogWriter, latch: &LogGuard<'_>) {
        let first_volatile = latch.first_volatile_csn();
        self.watermark.settle(log.id, first_volatile, latch);
        // Behind a drain beside which another thread stored, the first volatile record is not
        // known; its clock is above what was settled before.
        let is_known = latch.knows_first_volatile() || planted::is(Bug::DrainedClockBelieved);
        if let Some(clocks) = self.clocks().filter(|_| is_known) {
            clocks.settle(log.id, first_volatile, latch);
        }
    }

    /// Counts a block that became durable.
    pub(super) fn count_completion(&self) {
        self.completions.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns a number that changes whenever a transaction may be committed now that waited for
    /// another log before.
    pub(super) fn version(&self) -> u64 {
        let (completions, w) = (self.completions.load(Ordering::SeqCst), self.watermark.get().0);
        match self.lists_predecessors {
            true => completions,
            // A fragment in another log.
            false if self.is_by_page => w.wrapping_add(completions),
            false => w,
        }
    }

    /// Returns the rule that the record of a transaction names; what it lists stands at the end of
    /// its body.
    #[inline]
    pub(super) fn rule_of(&self, pending: &Pending) -> DependencyRule {
        match pending.depends_on() {
            DependsOn::Listed(listed) if self.lists_predecessors => {
                DependencyRule::Exact { listed: listed.len() as u8 }
            }
            _ => DependencyRule::Dsn,
        }
    }

    /// Returns whether a transaction waits for no other log, because it is alone in its own.
    #[inline]
    pub(super) fn avoids_other_logs(&self, pending: &Pending, rule: DependencyRule) -> bool {
        self.dependency == Dependency::GsnRfa && rule != DependencyRule::Dsn && pending.alone
    }

    /// Returns whether one log may make a transaction of another one wait.
    #[inline]
    pub(super) fn has_dependencies(&self) -> bool {
        self.dependency != Dependency::LogOrder
    }

    /// Returns whether `csn` is committed by the rule in force (rule 7).
    #[inline]
    pub(super) fn is_committed(&self, csn: Csn) -> bool {
        csn < self.watermark.get() || self.rule.is_committed(csn, &self.known())
    }

    /// Remembers that `csn` is committed by the rule in force, for those above W.
    pub(super) fn mark_committed(&self, csn: Csn) {
        // The other rules have marked what there was to find out; what else is known says enough.
        if !self.lists_predecessors {
            self.watermark.mark_committed(csn);
        }
    }

    /// Returns whether exact dependencies would commit `csn`, a transaction above W whose record is
    /// durable.
    pub(super) fn is_exactly_committed(&self, csn: Csn, predecessors: &Predecessors) -> bool {
        let committed = |csn: &Csn| self.undecided.is_committed(*csn, self);
        match predecessors.all() {
            Some(read) if csn == Csn::ZERO => read.iter().all(committed),
            _ => committed(&csn),
        }
    }

    /// Returns the CSN that W must have passed before a durable transaction is committed.
    pub(super) fn required_watermark(&self, csn: Csn, dsn: Csn) -> Csn {
        if csn == Csn::ZERO { dsn } else { self.rule.required_watermark(csn, dsn) }
    }

    /// Returns the same for a queued transaction; it may be higher than necessary.
    pub(super) fn required_for_queued(&self, csn: Csn, dsn: Csn, on: &DependsOn) -> Csn {
        match on {
            _ if csn != Csn::ZERO => self.rule.required_for_queued(csn, dsn, on),
            DependsOn::Listed(listed) if self.lists_predecessors && self.clocks().is_none() => {
                listed.highest()
            }
            _ => dsn,
        }
    }

    /// A queued, durable transaction of `log` waits for W to pass `csn`: flushers write the logs
    /// that hold W back, unless these logs are left to their own writers.
    pub(super) fn require_watermark(&self, log: &LogWriter, csn: Csn) {
        if !self.stragglers.leave_writes_to_owners() {
            log.flush_request.require_watermark(csn);
        }
    }

    /// Names to `each` what keeps `csn` from being committed.
    pub(super) fn obstacles(&self, csn: Csn, each: &mut dyn FnMut(Obstacle)) {
        self.rule.obstacles(csn, &self.known(), each);
    }

    /// Returns whether the transaction of `ticket` waits for other transactions and not for W.
    pub(super) fn is_judged_exactly(&self, ticket: Ticket) -> bool {
        self.lists_predecessors && (ticket.csn != Csn::ZERO || ticket.is_exact)
    }

    /// Returns whether the dependencies of a transaction whose record is durable are satisfied.
    #[inline]
    pub(super) fn are_satisfied(&self, ticket: Ticket) -> bool {
        if !self.is_judged_exactly(ticket) {
            return self.required_watermark(ticket.csn, ticket.dsn) < self.watermark.get()
                && self.has_durable_fragments(ticket.csn);
        }
        // Without a record it stands for one version that was read.
        self.is_committed(ticket.root())
    }

    /// As [`Durability::are_satisfied`], for a queued transaction, by its predecessors.
    #[inline]
    pub(super) fn are_satisfied_for_queued(
        &self,
        csn: Csn,
        dsn: Csn,
        predecessors: &Predecessors,
        w: Csn,
    ) -> bool {
        if self.lists_predecessors {
            return match predecessors.all() {
                _ if csn != Csn::ZERO => self.is_committed(csn),
                Some(read) => read.iter().all(|csn| self.is_committed(*csn)),
                None => dsn < w,
            };
        }
        self.required_watermark(csn, dsn) < w && self.has_durable_fragments(csn)
    }

    /// Returns whether the record of `ticket` is durable.
    pub(super) fn is_hardened(&self, ticket: Ticket) -> bool {
        ticket.csn <= self.log(ticket.log).log.durable_csn() || planted::is(Bug::AcknowledgedBeforeFlush)
    }

    /// Returns whether the fragments of the transaction `csn` besides its last one are durable;
    /// true if there are none.
    #[inline]
    pub(super) fn has_durable_fragments(&self, csn: Csn) -> bool {
        !self.is_by_page || planted::is(Bug::FragmentsNotAwaited) || self.volatile_fragment(csn).is_none()
    }

    /// Returns a fragment of the transaction `csn` before its last one that is not durable, and its
    /// log.
    pub(super) fn volatile_fragment(&self, csn: Csn) -> Option<(&LogWriter, Csn)> {
        self.fragments_before(csn).find(|(log, csn)| *csn > log.log.durable_csn())
    }

    /// Returns the fragments of the transaction `csn` before its last one that W has not passed,
    /// the newest first.
    pub(super) fn fragments_before(&self, csn: Csn) -> impl Iterator<Item = (&LogWriter, Csn)> {
        let mut at = csn;
        std::iter::from_fn(move || {
            if !self.undecided.follows(at) {
                return None;
            }
            at = Csn(at.0 - 1);
            if at < self.watermark.get() {
                return None;
            }
            // W has passed what the ring has forgotten.
            Some((self.log(self.undecided.log_of(at)?), at))
        })
    }
}
