//! What does a transaction whose record is durable still wait for?
//!
//! Each rule says how far W must have come. Stricter rules wait for transactions that have nothing to do with the one that waits.
//!
//! ```text
//!   CSN          41      42      43      44           44 read what 41 wrote: its DSN is 41
//!   durable      yes     yes     no      yes          W = 43
//!   dsn:         44 is committed: 41 < W              csn: 44 waits for 43, which it has nothing to do with
//! ```
//!
//! | rule | the transaction is committed when its record is durable and |
//! |---|---|
//! | log order | nothing else: in one log what it depends on lies before it, and durable is the gap-free prefix |
//! | CSN | its own CSN is below W |
//! | DSN | its DSN is below W |
//! | exact | its direct predecessors are committed by the same rule: see [`super::exact`] |
//! | GSN, GSN with RFA | all logs are durable up to a clock: see [`super::gsn`] |
//!
//! **Recovery replays whatever any of them acknowledged** (rule 13). Of a record that names the rule DSN it asks that the DSN is below F, and W
//! never passes F. A DSN is below the transaction's own CSN, so below W under the CSN rule, and below the end of the durable prefix under log
//! order. So the records of these three name the same rule. A record that names the rule exact lists the predecessors that were not
//! committed when it asked to commit; recovery asks that it has taken those. The rules that go by clocks acknowledge less than the exact
//! one, so their records name that. A transaction that acknowledges by one of these rules and
//! cannot list its predecessors (too many, or a change of the catalog) is acknowledged and judged by its DSN. Each record names its rule, so a
//! database may change between them at any open.
//!
//! A transaction without a record has no CSN: it waits for its DSN, or for what it read.

use super::exact::{DependsOn, Obstacle};
use super::gsn::Clocks;
use super::precommit::Pending;
use super::presets::Axes;
use super::queue::{Entry, Predecessors};
use super::writer::LogWriter;
use super::{Commit, Core, Ticket, levels};
use crate::base::planted::{self, Bug};
use crate::base::settings::Dependency;
use crate::base::{Csn, Gsn, LogId};
use crate::log::{DependencyRule, LogGuard};

/// W must be above this CSN before the transaction may be told, besides its record being durable; nothing is below zero.
pub(super) fn needed(rule: Dependency, csn: Csn, dsn: Csn) -> Csn {
    match rule {
        _ if csn == Csn::ZERO => dsn,
        Dependency::LogOrder => Csn::ZERO,
        Dependency::Csn => csn,
        // Whoever is exact asks for more than W only where it cannot know.
        Dependency::Dsn | Dependency::Exact | Dependency::Gsn | Dependency::GsnRfa => dsn,
    }
}

impl Axes {
    /// Whether records list their predecessors.
    pub(super) fn lists_predecessors(&self) -> bool {
        matches!(self.dependency, Dependency::Exact | Dependency::Gsn | Dependency::GsnRfa)
    }

    /// Whether there are clocks.
    pub(super) fn goes_by_clocks(&self) -> bool {
        matches!(self.dependency, Dependency::Gsn | Dependency::GsnRfa)
    }

    /// The rule that the record of a transaction names: what it lists stands at the end of its body.
    #[inline]
    pub(super) fn rule_of(&self, pending: &Pending) -> DependencyRule {
        match pending.depends_on() {
            DependsOn::Listed(listed) if self.lists_predecessors() => {
                DependencyRule::Exact { listed: listed.len() as u8 }
            }
            _ => DependencyRule::Dsn,
        }
    }
}

impl Commit {
    /// True if transactions are to keep clocks.
    #[must_use]
    pub fn goes_by_clocks(&self) -> bool {
        self.core.clocks.is_some()
    }

    /// Up to which GSN all logs are durable.
    #[must_use]
    pub fn reach(&self) -> Gsn {
        self.core.clocks.as_ref().map_or(Gsn(0), Clocks::reach)
    }

    /// The GSN of a transaction that may not be committed, and its log. None if it cannot list what it depends on: whoever met it then
    /// cannot either.
    #[must_use]
    pub fn clock_of(&self, csn: Csn) -> Option<(Gsn, LogId)> {
        match (&self.core.clocks, self.core.undecided.drawn_in(csn)) {
            (Some(clocks), Some((log, None))) => Some((clocks.of(csn), log)),
            _ => None,
        }
    }

    /// The predecessors that the record of a transaction is to list at the end of its body, if there are any.
    #[inline]
    #[must_use]
    pub fn to_list<'a>(&self, pending: &'a Pending) -> Option<&'a [Csn]> {
        let lists = self.core.axes.lists_predecessors() && !pending.predecessors.is_empty();
        if lists { pending.predecessors.all() } else { None }
    }
}

impl Ticket {
    /// What has to be committed: the transaction itself or, if it has no record, what it read.
    fn root(self) -> Csn {
        if self.csn == Csn::ZERO { self.dsn } else { self.csn }
    }
}

impl Core {
    /// W, and how far the clocks reach, as of now. Returns W.
    pub(super) fn rescan(&self) -> Csn {
        if let Some(clocks) = &self.clocks {
            clocks.rescan();
        }
        self.watermark.rescan()
    }

    /// What `writer`'s log still has to make durable, for W and for the clocks.
    pub(super) fn settle(&self, writer: &LogWriter, latch: &LogGuard<'_>) {
        let first_volatile = latch.first_volatile_csn();
        self.watermark.settle(writer.id, first_volatile, latch);
        // Behind a drain beside which somebody stored, the first volatile record is not known; its clock is above what was settled before.
        let is_known = latch.knows_first_volatile() || planted::is(Bug::DrainedClockBelieved);
        if let Some(clocks) = self.clocks.as_ref().filter(|_| is_known) {
            clocks.settle(writer.id, first_volatile, latch);
        }
    }

    /// True if `csn` is committed by the rule in force (rule 7).
    #[inline]
    pub(super) fn is_committed(&self, csn: Csn) -> bool {
        match self.axes.dependency {
            Dependency::Exact => self.undecided.is_committed(csn, self),
            Dependency::Gsn | Dependency::GsnRfa => self.is_committed_by_clocks(csn),
            _ => self.watermark.is_committed(csn),
        }
    }

    #[cold]
    fn is_committed_by_clocks(&self, csn: Csn) -> bool {
        if csn < self.watermark.get() {
            return true;
        }
        let (Some(clocks), Some((log, up_to))) = (&self.clocks, self.undecided.drawn_in(csn)) else {
            return false;
        };
        let durable = csn <= self.writer(log).log.durable_csn();
        durable
            && clocks.needed_by(csn) <= clocks.reach()
            && up_to.is_none_or(|dsn| dsn < self.watermark.get())
    }

    /// True if exact dependencies would let `csn` go: that of a transaction above W whose record is durable.
    pub(super) fn is_exactly_committed(&self, csn: Csn, predecessors: &Predecessors) -> bool {
        let committed = |csn: &Csn| self.undecided.is_committed(*csn, self);
        match predecessors.all() {
            Some(read) if csn == Csn::ZERO => read.iter().all(committed),
            _ => committed(&csn),
        }
    }

    /// Whether the rule lets a transaction go whose record is durable.
    #[inline]
    pub(super) fn are_ticket_dependencies_satisfied(&self, ticket: Ticket) -> bool {
        if !self.is_judged_exactly(ticket) {
            return needed(self.axes.dependency, ticket.csn, ticket.dsn) < self.watermark.get()
                && self.has_durable_fragments(ticket.csn);
        }
        // Without a record it stands for one version that was read.
        self.is_committed(ticket.root())
    }

    /// The same for one that waits in a queue.
    #[inline]
    pub(super) fn are_dependencies_satisfied(&self, entry: &Entry, w: Csn) -> bool {
        if self.axes.lists_predecessors() {
            return match entry.predecessors.all() {
                _ if entry.csn != Csn::ZERO => self.is_committed(entry.csn),
                Some(read) => read.iter().all(|csn| self.is_committed(*csn)),
                None => entry.dsn < w,
            };
        }
        needed(self.axes.dependency, entry.csn, entry.dsn) < w && self.has_durable_fragments(entry.csn)
    }

    /// Up to where W would have to come for a transaction that nobody waits with.
    pub(super) fn needed_by(&self, csn: Csn, dsn: Csn, on: &DependsOn) -> Csn {
        match on {
            DependsOn::Listed(listed) if self.axes.dependency == Dependency::Exact => listed.highest(),
            // Who goes by clocks waits for whatever was drawn before it.
            _ if self.clocks.is_some() => csn.max(dsn),
            _ => needed(self.axes.dependency, csn, dsn),
        }
    }

    /// Whether the transaction of `ticket` waits for other transactions and not for W.
    pub(super) fn is_judged_exactly(&self, ticket: Ticket) -> bool {
        self.axes.lists_predecessors() && (ticket.csn != Csn::ZERO || ticket.is_exact)
    }

    /// Does something for the transaction of `ticket`, whose record is durable. False if others are at it.
    pub(super) fn advance_others(&self, ticket: Ticket) -> bool {
        if self.is_judged_exactly(ticket) {
            return self.advance_commit(ticket.root());
        }
        if let Some(advanced) = self.advance_fragments(ticket) {
            return advanced;
        }
        self.advance_logs(needed(self.axes.dependency, ticket.csn, ticket.dsn))
    }

    /// Has others write, now, what the transaction of `ticket` needs besides its own record.
    pub(super) fn demand_others(&self, ticket: Ticket) {
        if self.drain_for(ticket) {
            return;
        }
        if !self.is_judged_exactly(ticket) {
            self.demand_fragments(ticket);
            let needed = needed(self.axes.dependency, ticket.csn, ticket.dsn);
            if needed >= self.watermark.get() {
                self.demand(needed, Some(ticket));
            }
            return;
        }
        let root = ticket.root();
        if let Some(clocks) = &self.clocks {
            return self.demand_by_clocks(clocks, root, ticket);
        }
        self.undecided.obstacles(root, self, |obstacle| match obstacle {
            Obstacle::Volatile(log, _) if log == ticket.log && ticket.csn != Csn::ZERO => {}
            Obstacle::Volatile(log, csn) => {
                self.hasten_helpers(csn);
                self.have_written(self.writer(log), levels::NOW);
            }
            Obstacle::Watermark(csn) => self.demand(csn, Some(ticket)),
        });
    }

    /// Who goes by clocks needs every log up to his own; one that cannot list what it depends on needs W, too.
    fn demand_by_clocks(&self, clocks: &Clocks, csn: Csn, ticket: Ticket) {
        clocks.rescan();
        if csn < self.watermark.get() {
            return;
        }
        let needed = clocks.needed_by(csn);
        for writer in self.writers.iter().filter(|writer| writer.id != ticket.log || ticket.csn == Csn::ZERO)
        {
            if clocks.holds_back(writer.id, needed) {
                self.have_written(writer, levels::NOW);
            }
        }
        if let Some((_, Some(dsn))) = self.undecided.drawn_in(csn) {
            self.demand(dsn, Some(ticket));
        }
    }

    fn advance_by_clocks(&self, clocks: &Clocks, csn: Csn) -> bool {
        clocks.rescan();
        let needed = clocks.needed_by(csn);
        let behind = self.writers.iter().filter(|writer| {
            clocks.holds_back(writer.id, needed) || self.watermark.holds_back(writer.id, csn)
        });
        let (mut first, mut several) = (None, false);
        for writer in behind {
            several |= first.is_some();
            first.get_or_insert(writer);
            writer.flush_request.lower_due(levels::NOW);
        }
        let Some(writer) = first else {
            // As in `advance_logs`.
            clocks.rescan();
            self.rescan();
            return self.is_committed(csn);
        };
        if several && self.flushers_run() {
            self.wake_flushers();
            return false;
        }
        self.advance(writer, Csn::MAX, levels::NOW)
    }

    /// Does something to get `csn` committed, by the rule in force. False if others are at it.
    pub(super) fn advance_commit(&self, csn: Csn) -> bool {
        if self.is_passive() && self.drain_behind(csn) {
            return true;
        }
        if let Some(clocks) = &self.clocks {
            return self.advance_by_clocks(clocks, csn);
        }
        if self.axes.dependency != Dependency::Exact {
            return self.advance_logs(csn);
        }
        let (mut volatile, mut several, mut watermark) = (None, false, Csn::ZERO);
        self.undecided.obstacles(csn, self, |obstacle| match obstacle {
            Obstacle::Watermark(csn) => watermark = watermark.max(csn),
            Obstacle::Volatile(log, csn) => {
                several |= volatile.is_some_and(|(other, _)| other != log);
                volatile = Some((log, csn));
            }
        });
        match volatile {
            _ if watermark > Csn::ZERO => self.advance_logs(watermark.max(csn)),
            // Side by side instead of one after the other.
            Some(_) if several && self.flushers_run() => {
                self.demand_others(Ticket { log: LogId(0), csn: Csn::ZERO, dsn: csn, is_exact: true });
                false
            }
            Some((log, csn)) => self.advance(self.writer(log), csn, levels::NOW),
            None => self.is_committed(csn),
        }
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;

    #[test]
    fn each_rule_waits_for_what_it_says() {
        let needed = |rule, csn, dsn| needed(rule, Csn(csn), Csn(dsn)).0;
        assert_eq!(needed(Dependency::LogOrder, 44, 41), 0);
        assert_eq!(needed(Dependency::Csn, 44, 41), 44);
        assert_eq!(needed(Dependency::Dsn, 44, 41), 41);
        for rule in Dependency::ALL {
            assert_eq!(needed(rule, 0, 41), 41, "a transaction without a record");
        }
    }
}
