//! Exact dependencies: a transaction is committed when its direct predecessors are committed by the
//! same rule.
//!
//! No published system has it: Milliscale leaves open how a transaction can avoid waiting for what
//! it does not depend on at low cost. Here each record lists its open predecessors (most have
//! none), and [`super::undecided`] keeps these lists for the transactions above W. A question is
//! answered by following the lists; no queue is searched.
//!
//! A transaction that cannot list its predecessors needs W above its DSN.

use super::rule::{Known, Rule};
use super::undecided::{DependsOn, Obstacle};
use crate::base::Csn;

pub(super) struct Exact;

impl Rule for Exact {
    /// Only asked where the lists say nothing.
    fn required_watermark(&self, _csn: Csn, dsn: Csn) -> Csn {
        dsn
    }

    fn required_for_queued(&self, _csn: Csn, dsn: Csn, on: &DependsOn) -> Csn {
        match on {
            DependsOn::Listed(listed) => listed.highest(),
            DependsOn::UpTo(_) => dsn,
        }
    }

    fn is_committed(&self, csn: Csn, known: &Known<'_>) -> bool {
        known.undecided.is_committed(csn, known.facts)
    }

    fn obstacles(&self, csn: Csn, known: &Known<'_>, each: &mut dyn FnMut(Obstacle)) {
        known.undecided.obstacles(csn, known.facts, each);
    }

    fn lists_predecessors(&self) -> bool {
        true
    }
}
