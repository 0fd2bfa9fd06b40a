//! Exact dependencies: a transaction is committed when its direct predecessors are committed by the
//! same rule.
//!
//! No published system has it: Milliscale leaves open how a transaction can avoid waiting for what
//! it does not depend on at low cost. Here each record lists its open predecessors (most have
//! none), and [`undecided`] keeps these lists for the transactions above W. A question is
//! answered by following the lists; no queue is searched.
//!
//! A transaction that cannot list its predecessors needs W above its DSN.

pub mod undecided;

use crate::base::Csn;
use crate::commit::core::pending::DependsOn;
use crate::commit::core::rule::{Above, Facts, Obstacle, Rule};
use crate::log::DependencyRule;
use std::sync::Arc;
use undecided::Undecided;

/// See the module's text.
pub struct Exact(pub Arc<Undecided>);

/// Returns the rule that a record names whose transaction lists its predecessors.
pub fn named_with_list(on: DependsOn<'_>) -> DependencyRule {
    match on {
        DependsOn::Listed(listed) => DependencyRule::Exact { listed: listed.len() as u8 },
        DependsOn::UpTo(_) => DependencyRule::Dsn,
        // What is before them lies before them in the same log, or names its own rule.
        DependsOn::Fragment | DependsOn::Chunk => DependencyRule::Exact { listed: 0 },
    }
}

impl Rule for Exact {
    /// Only asked where the lists say nothing.
    fn required_watermark(&self, _csn: Csn, dsn: Csn) -> Csn {
        dsn
    }

    fn required_for_queued(&self, csn: Csn, dsn: Csn, on: DependsOn<'_>) -> Csn {
        match on {
            DependsOn::Fragment => Csn(csn.0 - 1),
            _ => self.required_for_reader(dsn, on),
        }
    }

    fn required_for_reader(&self, dsn: Csn, on: DependsOn<'_>) -> Csn {
        match on {
            DependsOn::Listed(listed) => listed.highest(),
            _ => dsn,
        }
    }

    fn is_committed(&self, csn: Csn, facts: &dyn Facts) -> bool {
        self.0.is_committed(csn, facts)
    }

    fn obstacles(&self, csn: Csn, facts: &dyn Facts, each: &mut dyn FnMut(Obstacle)) {
        self.0.obstacles(csn, facts, each);
    }

    fn named(&self, on: DependsOn<'_>) -> DependencyRule {
        named_with_list(on)
    }

    fn lists_predecessors(&self) -> bool {
        true
    }
}
