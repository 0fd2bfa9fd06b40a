//! What is durable, and what is committed: all logs, the watermark W, and the dependency rule over
//! them.
//!
//! This object writes nothing and wakes no thread. It answers questions, and [`Durability::rescan`]
//! brings its answers up to date.

use super::log_writer::LogWriter;
use super::pending::{DependsOn, Ticket};
use super::predecessors::Predecessors;
use super::rule::{Above, Drawn, Facts, Obstacle, Rule};
use super::watermark::{RingSize, Watermark};
use crate::base::clock::Nanos;
use crate::base::planted::{self, Bug};
use crate::base::{Csn, Gsn, LogId};
use crate::log::{DependencyRule, LogGuard};
use crate::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// See the module's text.
pub struct Durability {
    pub logs: Box<[LogWriter]>,
    pub watermark: Watermark,
    judge: Judge,
    lists_predecessors: bool,
    /// Blocks that became durable.
    completions: AtomicU64,
}

/// What decides whether a transaction whose record is durable is committed.
pub struct Judge {
    pub rule: Arc<dyn Rule>,
    /// If anyone asks for it.
    pub above: Option<Arc<dyn Above>>,
    /// A transaction may have a record in several logs.
    pub has_fragments: bool,
    /// Queued commits leave the logs that hold W back to the writers of these.
    pub leaves_writes_to_owners: bool,
}

impl Facts for Durability {
    fn watermark(&self) -> Csn {
        self.watermark.get()
    }

    fn durable(&self, log: LogId) -> Csn {
        self.log(log).log.durable_csn()
    }

    fn is_marked(&self, csn: Csn) -> bool {
        self.watermark.is_committed(csn)
    }
}

impl Durability {
    /// Returns the log with a write that has not completed for `patience`, and since when.
    pub fn standing_write(&self, now: Nanos, patience: Duration) -> Option<(LogId, Nanos)> {
        let standing = self.logs.iter().filter_map(|log| Some((log.id, log.stands_since()?)));
        let oldest = standing.min_by_key(|(_, since)| *since);
        oldest.filter(|(_, since)| now.since(*since) >= patience)
    }

    pub fn new(logs: Box<[LogWriter]>, judge: Judge, first_csn: Csn, ring: RingSize) -> Durability {
        Durability {
            watermark: Watermark::new(logs.len(), first_csn, ring),
            logs,
            lists_predecessors: judge.rule.lists_predecessors(),
            judge,
            completions: AtomicU64::new(0),
        }
    }

    pub fn log(&self, log: LogId) -> &LogWriter {
        &self.logs[log.0 as usize]
    }

    /// Returns the dependency rule.
    pub fn rule(&self) -> &dyn Rule {
        &*self.judge.rule
    }

    /// Returns whether records list their predecessors.
    pub fn lists_predecessors(&self) -> bool {
        self.lists_predecessors
    }

    /// Returns whether it is kept on which transactions above W another one depends.
    #[inline]
    pub fn keeps_predecessors(&self) -> bool {
        self.judge.above.is_some()
    }

    /// Returns whether a transaction may have a record in several logs.
    #[inline]
    pub fn has_fragments(&self) -> bool {
        self.judge.has_fragments
    }

    /// Returns whether queued commits leave the logs that hold W back to the writers of these.
    pub fn leaves_writes_to_owners(&self) -> bool {
        self.judge.leaves_writes_to_owners
    }

    /// Enters a record that has just got its CSN. Returns its clock.
    #[inline]
    pub fn drawn(&self, record: &Drawn<'_>, latch: &LogGuard<'_>) -> Gsn {
        // The clock first: a thread that finds the record entered reads it.
        let gsn = self.judge.rule.drawn(record, latch);
        if let Some(above) = &self.judge.above {
            above.enter(record, latch);
        }
        gsn
    }

    /// Brings W, and what the rule knows of the logs, up to date. Returns W.
    pub fn rescan(&self) -> Csn {
        self.judge.rule.rescan();
        self.watermark.rescan()
    }

    /// Notes what `log` still has to make durable.
    pub fn settle(&self, log: &LogWriter, latch: &LogGuard<'_>) {
        let first_volatile = latch.first_volatile_csn();
        debug_assert!(
            first_volatile.is_none_or(|first| first <= self.watermark.newest_drawn()),
            "what is not durable was drawn"
        );
        self.watermark.settle(log.id, first_volatile, latch);
        // Behind a drain beside which another thread stored, the first volatile record is not
        // known; its clock is above what was settled before.
        if latch.knows_first_volatile() || planted::is(Bug::DrainedClockBelieved) {
            self.judge.rule.settle(log.id, first_volatile, latch);
        }
    }

    /// Counts a block that became durable.
    pub fn count_completion(&self) {
        self.completions.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns a number that changes whenever a transaction may be committed now that waited for
    /// another log before.
    pub fn version(&self) -> u64 {
        let (completions, w) = (self.completions.load(Ordering::SeqCst), self.watermark.get().0);
        match self.lists_predecessors {
            true => completions,
            // A fragment in another log.
            false if self.judge.has_fragments => w.wrapping_add(completions),
            false => w,
        }
    }

    /// Returns the rule that the record of a transaction names; what it lists stands at the end of
    /// its body.
    #[inline]
    pub fn rule_of(&self, on: DependsOn<'_>) -> DependencyRule {
        self.judge.rule.named(on)
    }

    /// Returns whether `csn` is committed by the rule in force (rule 7).
    #[inline]
    pub fn is_committed(&self, csn: Csn) -> bool {
        csn < self.watermark.get() || self.judge.rule.is_committed(csn, self)
    }

    /// Remembers that `csn` is committed by the rule in force, for those above W.
    pub fn mark_committed(&self, csn: Csn) {
        // The other rules have marked what there was to find out; what else is known says enough.
        if !self.lists_predecessors {
            self.watermark.mark_committed(csn);
        }
    }

    /// Returns whether exact dependencies would commit `csn`, a transaction above W whose record is
    /// durable. False if its predecessors are not kept.
    pub fn is_exactly_committed(&self, csn: Csn, predecessors: &Predecessors) -> bool {
        let Some(above) = &self.judge.above else { return false };
        let committed = |csn: &Csn| above.is_committed(*csn, self);
        match predecessors.all() {
            Some(read) if csn == Csn::ZERO => read.iter().all(committed),
            _ => committed(&csn),
        }
    }

    /// Returns the CSN that W must have passed before a durable transaction is committed.
    pub fn required_watermark(&self, csn: Csn, dsn: Csn) -> Csn {
        if csn == Csn::ZERO { dsn } else { self.judge.rule.required_watermark(csn, dsn) }
    }

    /// Returns the same for a queued transaction; it may be higher than necessary.
    pub fn required_for_queued(&self, csn: Csn, dsn: Csn, on: DependsOn<'_>) -> Csn {
        match csn {
            Csn::ZERO => self.judge.rule.required_for_reader(dsn, on),
            _ => self.judge.rule.required_for_queued(csn, dsn, on),
        }
    }

    /// A queued, durable transaction of `log` waits for W to pass `csn`: flushers write the logs
    /// that hold W back, unless these logs are left to their own writers.
    pub fn require_watermark(&self, log: &LogWriter, csn: Csn) {
        if !self.judge.leaves_writes_to_owners {
            log.flush_request.require_watermark(csn);
        }
    }

    /// Names to `each` what keeps `csn` from being committed.
    pub fn obstacles(&self, csn: Csn, each: &mut dyn FnMut(Obstacle)) {
        self.judge.rule.obstacles(csn, self, each);
    }

    /// Returns whether the transaction of `ticket` waits for other transactions and not for W.
    pub fn is_judged_exactly(&self, ticket: Ticket) -> bool {
        self.lists_predecessors && (ticket.csn != Csn::ZERO || ticket.is_exact)
    }

    /// Returns whether the dependencies of a transaction whose record is durable are satisfied.
    #[inline]
    pub fn are_satisfied(&self, ticket: Ticket) -> bool {
        if !self.is_judged_exactly(ticket) {
            return self.required_watermark(ticket.csn, ticket.dsn) < self.watermark.get()
                && self.has_durable_fragments(ticket.csn);
        }
        // Without a record it stands for one version that was read.
        self.is_committed(ticket.root())
    }

    /// As [`Durability::are_satisfied`], for a queued transaction, by its predecessors.
    #[inline]
    pub fn are_satisfied_for_queued(&self, csn: Csn, dsn: Csn, predecessors: &Predecessors, w: Csn) -> bool {
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
    pub fn is_hardened(&self, ticket: Ticket) -> bool {
        ticket.csn <= self.log(ticket.log).log.durable_csn() || planted::is(Bug::AcknowledgedBeforeFlush)
    }

    /// Returns whether the fragments of the transaction `csn` besides its last one are durable;
    /// true if there are none.
    #[inline]
    pub fn has_durable_fragments(&self, csn: Csn) -> bool {
        !self.judge.has_fragments
            || planted::is(Bug::FragmentsNotAwaited)
            || self.volatile_fragment(csn).is_none()
    }

    /// Returns a fragment of the transaction `csn` before its last one that is not durable, and its
    /// log.
    pub fn volatile_fragment(&self, csn: Csn) -> Option<(&LogWriter, Csn)> {
        self.fragments_before(csn).find(|(log, csn)| *csn > log.log.durable_csn())
    }

    /// Returns the fragments of the transaction `csn` before its last one that W has not passed,
    /// the newest first.
    pub fn fragments_before(&self, csn: Csn) -> impl Iterator<Item = (&LogWriter, Csn)> {
        let mut at = csn;
        std::iter::from_fn(move || {
            let (log, before) = self.judge.above.as_ref()?.fragment_before(at)?;
            at = before;
            // W has passed the others, too.
            (before >= self.watermark.get()).then(|| (self.log(log), before))
        })
    }
}
