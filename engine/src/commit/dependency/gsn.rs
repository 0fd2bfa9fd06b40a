//! GSN, with or without remote flush avoidance (RFA): the rule of autonomous commit (SIGMOD 2025)
//! and, in the form of a clock per log, of passive group commit (VLDB 2014).
//!
//! A GSN is a Lamport clock. A transaction is committed when its record is durable and every log is
//! durable up to its GSN. With RFA a transaction that only met what was last changed through its
//! own log waits for no other log; see [`super::clocks`] for both.
//!
//! Different from the papers: recovery knows nothing of clocks. Records list their predecessors as
//! by the exact rule, whose recovered set contains everything that this rule acknowledges, because
//! whatever a transaction depends on has a lower GSN. A transaction that cannot list them needs W
//! above its DSN, too.

use super::super::watermark::RingSize;
use super::clocks::Clocks;
use super::rule::{Known, Rule};
use super::undecided::{DependsOn, Obstacle};
use crate::base::{Csn, LogId};

pub(super) struct Gsn {
    clocks: Clocks,
    logs: usize,
}

impl Gsn {
    pub(super) fn new(logs: usize, ring: RingSize) -> Gsn {
        Gsn { clocks: Clocks::new(logs, ring), logs }
    }
}

impl Rule for Gsn {
    /// Only asked where the clocks say nothing.
    fn required_watermark(&self, _csn: Csn, dsn: Csn) -> Csn {
        dsn
    }

    /// A clock waits for whatever was drawn before it.
    fn required_for_queued(&self, csn: Csn, dsn: Csn, _on: &DependsOn) -> Csn {
        csn.max(dsn)
    }

    fn is_committed(&self, csn: Csn, known: &Known<'_>) -> bool {
        let Some((log, up_to)) = known.undecided.drawn_in(csn) else { return false };
        csn <= known.facts.durable(log)
            && self.clocks.needed_by(csn) <= self.clocks.reach()
            && up_to.is_none_or(|dsn| dsn < known.watermark.get())
    }

    fn obstacles(&self, csn: Csn, known: &Known<'_>, each: &mut dyn FnMut(Obstacle)) {
        self.clocks.rescan();
        if csn < known.watermark.get() {
            return;
        }
        let Some((log, up_to)) = known.undecided.drawn_in(csn) else {
            return each(Obstacle::Watermark(csn));
        };
        if csn > known.facts.durable(log) {
            each(Obstacle::Volatile(log, csn));
        }
        let needed = self.clocks.needed_by(csn);
        for log in (0..self.logs as u32).map(LogId) {
            if self.clocks.holds_back(log, needed) {
                each(Obstacle::Volatile(log, Csn::MAX));
            }
        }
        if let Some(dsn) = up_to.filter(|dsn| *dsn >= known.watermark.get()) {
            each(Obstacle::Watermark(dsn));
        }
    }

    fn lists_predecessors(&self) -> bool {
        true
    }

    fn clocks(&self) -> Option<&Clocks> {
        Some(&self.clocks)
    }
}
