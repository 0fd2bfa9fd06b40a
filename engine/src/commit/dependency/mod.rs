//! What does a transaction whose record is durable still wait for?
//!
//! Stricter rules wait for transactions that have nothing to do with the one that waits.
//!
//! ```text
//!   CSN          41      42      43      44           44 read what 41 wrote: its DSN is 41
//!   durable      yes     yes     no      yes          W = 43
//!   dsn:         44 is committed: 41 < W              csn: 44 waits for 43, an unrelated transaction
//! ```
//!
//! | rule | the transaction is committed when its record is durable and |
//! |---|---|
//! | [`log_order`] | nothing else: in one log, its dependencies lie before it |
//! | [`csn`] | its own CSN is below W |
//! | [`dsn`] | its DSN is below W |
//! | [`exact`] | its direct predecessors are committed by the same rule |
//! | [`gsn`] | all logs are durable up to its clock, or (RFA) it depends on its own log only |
//!
//! A transaction without a record has no CSN: it waits for its DSN, or for the versions that it
//! read.
//!
//! **Recovery replays whatever any of the rules acknowledged** (rule 13). Of a record that names
//! the rule DSN it asks that the DSN is below F, the first missing CSN, and W never passes F. A DSN
//! is below the transaction's own CSN, so below W under the CSN rule, and below the end of the
//! durable prefix under log order. So the records of these three name the same rule. A record that
//! names the rule exact lists the predecessors that were not committed when it asked to commit, and
//! recovery asks that it has taken those. The rules that go by clocks acknowledge less than the
//! exact one, so their records name that. A transaction that cannot list its predecessors (too
//! many, or a change of the catalog) is acknowledged and replayed by its DSN. Each record names its
//! rule, so a database may change between them at any open.

mod undecided;
mod clocks;
mod rule;
mod log_order;
mod csn;
mod dsn;
mod exact;
mod gsn;

pub(super) use clocks::Clocks;
pub(super) use rule::{Known, Rule};
pub(super) use undecided::{DependsOn, Facts, Obstacle, Undecided};

use super::watermark::RingSize;
use crate::base::settings::Dependency;

/// Returns the rule of this name for `logs` logs.
pub(super) fn rule_named(name: Dependency, logs: usize, ring: RingSize) -> Box<dyn Rule> {
    match name {
        Dependency::LogOrder => Box::new(log_order::LogOrder),
        Dependency::Csn => Box::new(csn::OwnCsn),
        Dependency::Dsn => Box::new(dsn::Dsn),
        Dependency::Exact => Box::new(exact::Exact),
        Dependency::Gsn | Dependency::GsnRfa => Box::new(gsn::Gsn::new(logs, ring)),
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
