//! GSN, with or without remote flush avoidance (RFA): the rule of autonomous commit (SIGMOD 2025)
//! and, in the form of a clock per log, of passive group commit (VLDB 2014).
//!
//! A GSN is a Lamport clock. A transaction is committed when its record is durable and every log is
//! durable up to its GSN. With RFA a transaction that only met what was last changed through its
//! own log waits for no other log; see [`lamport`] for both.
//!
//! Different from the papers: recovery knows nothing of clocks. Records list their predecessors as
//! by the exact rule, whose recovered set contains everything that this rule acknowledges, because
//! whatever a transaction depends on has a lower GSN. A transaction that cannot list them needs W
//! above its DSN, too.

pub mod lamport;
pub mod stragglers;

use super::exact::named_with_list;
use super::exact::undecided::Undecided;
use crate::base::clock::Nanos;
use crate::base::settings::IdleLogs;
use crate::base::{Csn, Gsn, LogId};
use crate::commit::core::environment::Environment;
use crate::commit::core::pending::DependsOn;
use crate::commit::core::rule::{Drawn, Facts, Obstacle, Rule};
use crate::commit::core::watermark::{Latched, RingSize};
use crate::log::DependencyRule;
use lamport::Clocks;
use std::sync::Arc;
use stragglers::Stragglers;

/// See the module's text.
pub struct ByClocks {
    clocks: Clocks,
    stragglers: Stragglers,
    above: Arc<Undecided>,
    logs: usize,
    /// A transaction that is alone in its log waits for no other one (RFA).
    avoids_remote_flushes: bool,
}

impl ByClocks {
    pub fn new(
        logs: usize,
        ring: RingSize,
        above: Arc<Undecided>,
        idle_logs: IdleLogs,
        avoids_remote_flushes: bool,
    ) -> ByClocks {
        let (clocks, stragglers) = (Clocks::new(logs, ring), Stragglers::new(idle_logs, logs));
        ByClocks { clocks, stragglers, above, logs, avoids_remote_flushes }
    }

    /// Returns the GSN up to which all logs are durable.
    pub fn reach(&self) -> Gsn {
        self.clocks.reach()
    }

    /// Returns the GSN of a transaction that may not be committed, and its log. None if it cannot
    /// list what it depends on: then a transaction that met it cannot either.
    pub fn clock_of(&self, csn: Csn) -> Option<(Gsn, LogId)> {
        match self.above.drawn_in(csn) {
            Some((log, None)) => Some((self.clocks.of(csn), log)),
            _ => None,
        }
    }

    #[cfg(all(test, not(any(loom, feature = "shuttle"))))]
    pub fn clocks(&self) -> &Clocks {
        &self.clocks
    }

    #[cfg(all(test, not(any(loom, feature = "shuttle"))))]
    pub fn stragglers(&self) -> &Stragglers {
        &self.stragglers
    }

    fn waits_for_no_other_log(&self, record: &Drawn<'_>) -> bool {
        match record.on {
            DependsOn::Listed(_) => self.avoids_remote_flushes && record.alone,
            DependsOn::Chunk => true,
            DependsOn::UpTo(_) | DependsOn::Fragment => false,
        }
    }
}

impl Rule for ByClocks {
    /// Only asked where the clocks say nothing.
    fn required_watermark(&self, _csn: Csn, dsn: Csn) -> Csn {
        dsn
    }

    /// A clock waits for whatever was drawn before it.
    fn required_for_queued(&self, csn: Csn, dsn: Csn, _on: DependsOn<'_>) -> Csn {
        csn.max(dsn)
    }

    fn is_committed(&self, csn: Csn, facts: &dyn Facts) -> bool {
        let Some((log, up_to)) = self.above.drawn_in(csn) else { return false };
        csn <= facts.durable(log)
            && self.clocks.needed_by(csn) <= self.clocks.reach()
            && up_to.is_none_or(|dsn| dsn < facts.watermark())
    }

    fn obstacles(&self, csn: Csn, facts: &dyn Facts, each: &mut dyn FnMut(Obstacle)) {
        self.clocks.rescan();
        if csn < facts.watermark() {
            return;
        }
        let Some((log, up_to)) = self.above.drawn_in(csn) else {
            return each(Obstacle::Watermark(csn));
        };
        if csn > facts.durable(log) {
            each(Obstacle::Volatile(log, csn));
        }
        let needed = self.clocks.needed_by(csn);
        for log in (0..self.logs as u32).map(LogId) {
            if self.clocks.holds_back(log, needed) {
                each(Obstacle::Volatile(log, Csn::MAX));
            }
        }
        if let Some(dsn) = up_to.filter(|dsn| *dsn >= facts.watermark()) {
            each(Obstacle::Watermark(dsn));
        }
    }

    fn lists_predecessors(&self) -> bool {
        true
    }

    fn named(&self, on: DependsOn<'_>) -> DependencyRule {
        named_with_list(on)
    }

    fn drawn(&self, record: &Drawn<'_>, latch: &dyn Latched) -> Gsn {
        let Drawn { log, csn, gsn, .. } = *record;
        let gsn = self.clocks.draw(log, csn, gsn, self.waits_for_no_other_log(record), latch);
        self.stragglers.drawn(log, gsn, latch);
        gsn
    }

    fn settle(&self, log: LogId, first_volatile: Option<Csn>, latch: &dyn Latched) {
        self.clocks.settle(log, first_volatile, latch);
    }

    fn rescan(&self) {
        self.clocks.rescan();
    }

    fn holds_queued(&self, csn: Csn, ready: Nanos, environment: &Environment) -> bool {
        let holds = csn != Csn::ZERO && self.stragglers.hold_up();
        holds && self.stragglers.hold(self.clocks.needed_by(csn), ready, environment)
    }

    fn waits_for_time(&self) -> bool {
        self.stragglers.wait_for_time()
    }

    /// A record with a higher CSN can have a lower GSN.
    fn waits_for_all_drawn(&self) -> bool {
        true
    }
}
