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
//!
//! **Recovery replays whatever any of them acknowledged** (rule 13). Of a record that names the rule DSN it asks that the DSN is below F, and W
//! never passes F. A DSN is below the transaction's own CSN, so below W under the CSN rule, and below the end of the durable prefix under log
//! order. So the records of these three name the same rule. A record that names the rule exact lists the predecessors that were not
//! committed when it asked to commit; recovery asks that it has taken those. A transaction that acknowledges by the exact rule and
//! cannot list its predecessors (too many, or a change of the catalog) is acknowledged and judged by its DSN. Each record names its rule, so a
//! database may change between them at any open.
//!
//! A transaction without a record has no CSN: it waits for its DSN, or for what it read.

use super::exact::{DependsOn, Obstacle};
use super::precommit::Pending;
use super::presets::Axes;
use super::queue::{Entry, Predecessors};
use super::{Core, Ticket, levels};
use crate::base::Csn;
use crate::base::settings::Dependency;
use crate::log::DependencyRule;

/// W must be above this CSN before the transaction may be told, besides its record being durable; nothing is below zero.
pub(super) fn needed(rule: Dependency, csn: Csn, dsn: Csn) -> Csn {
    match rule {
        _ if csn == Csn::ZERO => dsn,
        Dependency::LogOrder => Csn::ZERO,
        Dependency::Csn => csn,
        // Whoever is exact asks for more than W only where it cannot know.
        Dependency::Dsn | Dependency::Exact => dsn,
    }
}

impl Axes {
    /// Whether records list their predecessors.
    pub(super) fn lists_predecessors(&self) -> bool {
        self.dependency == Dependency::Exact
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

impl Core {
    /// True if `csn` is committed by the rule in force (rule 7).
    #[inline]
    pub(super) fn is_committed(&self, csn: Csn) -> bool {
        match self.axes.dependency {
            Dependency::Exact => self.undecided.is_committed(csn, self),
            _ => self.watermark.is_committed(csn),
        }
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
    pub(super) fn is_content_with_ticket(&self, ticket: Ticket) -> bool {
        match self.axes.dependency {
            Dependency::Exact if ticket.csn != Csn::ZERO => self.is_committed(ticket.csn),
            // It stands for one version that was read.
            Dependency::Exact if ticket.is_exact => self.is_committed(ticket.dsn),
            rule => needed(rule, ticket.csn, ticket.dsn) < self.watermark.get(),
        }
    }

    /// The same for one that waits in a queue.
    #[inline]
    pub(super) fn is_content_with(&self, entry: &Entry, w: Csn) -> bool {
        if self.axes.dependency == Dependency::Exact {
            return match entry.predecessors.all() {
                _ if entry.csn != Csn::ZERO => self.is_committed(entry.csn),
                Some(read) => read.iter().all(|csn| self.is_committed(*csn)),
                None => entry.dsn < w,
            };
        }
        needed(self.axes.dependency, entry.csn, entry.dsn) < w
    }

    /// Up to where W would have to come for a transaction that nobody waits with.
    pub(super) fn needed_by(&self, csn: Csn, dsn: Csn, on: &DependsOn) -> Csn {
        match on {
            DependsOn::Listed(listed) if self.axes.dependency == Dependency::Exact => listed.highest(),
            _ => needed(self.axes.dependency, csn, dsn),
        }
    }

    /// Whether the transaction of `ticket` waits for other transactions and not for W.
    pub(super) fn is_judged_exactly(&self, ticket: Ticket) -> bool {
        self.axes.dependency == Dependency::Exact && (ticket.csn != Csn::ZERO || ticket.is_exact)
    }

    /// Does something for the transaction of `ticket`, whose record is durable. False if others are at it.
    pub(super) fn advance_others(&self, ticket: Ticket) -> bool {
        if self.is_judged_exactly(ticket) {
            return self.advance_commit(if ticket.csn == Csn::ZERO { ticket.dsn } else { ticket.csn });
        }
        self.advance_logs(needed(self.axes.dependency, ticket.csn, ticket.dsn))
    }

    /// Has others write, now, what the transaction of `ticket` needs besides its own record.
    pub(super) fn demand_others(&self, ticket: Ticket) {
        if self.drain_for(ticket) {
            return;
        }
        if !self.is_judged_exactly(ticket) {
            let needed = needed(self.axes.dependency, ticket.csn, ticket.dsn);
            if needed >= self.watermark.get() {
                self.demand(needed, Some(ticket));
            }
            return;
        }
        let root = if ticket.csn == Csn::ZERO { ticket.dsn } else { ticket.csn };
        self.undecided.obstacles(root, self, |obstacle| match obstacle {
            Obstacle::Volatile(log, _) if log == ticket.log && ticket.csn != Csn::ZERO => {}
            Obstacle::Volatile(log, csn) => {
                let writer = self.writer(log);
                self.hurry_carriers(csn);
                writer.duty.lower_due(levels::NOW);
                self.flusher_of(writer).wake_for(levels::NOW);
            }
            Obstacle::Watermark(csn) => self.demand(csn, Some(ticket)),
        });
    }

    /// Does something to get `csn` committed, by the rule in force. False if others are at it.
    pub(super) fn advance_commit(&self, csn: Csn) -> bool {
        if self.is_passive() && self.drain_behind(csn) {
            return true;
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
                self.demand_others(Ticket {
                    log: crate::base::LogId(0),
                    csn: Csn::ZERO,
                    dsn: csn,
                    is_exact: true,
                });
                false
            }
            Some((log, csn)) => self.advance(self.writer(log), csn, levels::NOW),
            None => false,
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
