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
//! | log order | nothing else: in one log, its dependencies lie before it |
//! | CSN (like log order and DSN: [`super::by_watermark`]) | its own CSN is below W |
//! | DSN | its DSN is below W |
//! | `papers::exact` | its direct predecessors are committed by the same rule |
//! | `papers::clocks` | all logs are durable up to its clock; or (RFA) it depends on its own log |
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

use super::environment::Environment;
use super::pending::DependsOn;
use super::watermark::Latched;
use crate::base::clock::Nanos;
use crate::base::{Csn, Gsn, LogId};
use crate::log::DependencyRule;

/// The facts about the logs from which a rule decides.
pub trait Facts {
    /// W.
    fn watermark(&self) -> Csn;
    /// The highest durable CSN of a log.
    fn durable(&self, log: LogId) -> Csn;
    /// Returns whether `csn`, which W has not passed, was found committed before.
    fn is_marked(&self, csn: Csn) -> bool;
}

/// An obstacle to a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// This record is not durable.
    Volatile(LogId, Csn),
    /// W is not above this CSN.
    Watermark(Csn),
}

/// A record that has just got its CSN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drawn<'a> {
    pub log: LogId,
    pub csn: Csn,
    /// The clock of its transaction; 0 if that has none.
    pub gsn: Gsn,
    pub on: DependsOn<'a>,
    /// What its transaction met, and depends on, is in its own log.
    pub alone: bool,
}

/// A dependency rule.
pub trait Rule: Send + Sync {
    /// Returns the CSN that W must have passed before the transaction `csn`, whose record is
    /// durable, is committed; zero if none.
    fn required_watermark(&self, csn: Csn, dsn: Csn) -> Csn;

    /// Returns the CSN that W has to pass so that `csn`, which waits in a queue and depends on
    /// `on`, is committed. It may be higher than necessary.
    fn required_for_queued(&self, csn: Csn, dsn: Csn, _on: DependsOn<'_>) -> Csn {
        self.required_watermark(csn, dsn)
    }

    /// Returns the same for a transaction without a record, which waits for what it read.
    fn required_for_reader(&self, dsn: Csn, _on: DependsOn<'_>) -> Csn {
        dsn
    }

    /// Returns whether `csn`, which W has not passed, is committed.
    fn is_committed(&self, csn: Csn, facts: &dyn Facts) -> bool {
        facts.is_marked(csn)
    }

    /// Names to `each` what keeps `csn` from being committed.
    fn obstacles(&self, csn: Csn, facts: &dyn Facts, each: &mut dyn FnMut(Obstacle)) {
        if csn >= facts.watermark() {
            each(Obstacle::Watermark(csn));
        }
    }

    /// Returns whether records list their predecessors, and transactions are judged by these
    /// instead of by W.
    fn lists_predecessors(&self) -> bool {
        false
    }

    /// Returns the rule that the record of a transaction names, which depends on `on`.
    fn named(&self, _on: DependsOn<'_>) -> DependencyRule {
        DependencyRule::Dsn
    }

    /// Learns of a record before it is appended. Returns the clock that the record gets.
    fn drawn(&self, record: &Drawn<'_>, _latch: &dyn Latched) -> Gsn {
        record.gsn
    }

    /// The first record of `log` that is not durable is that of `first_volatile`.
    fn settle(&self, _log: LogId, _first_volatile: Option<Csn>, _latch: &dyn Latched) {}

    /// Finds out how far the logs are durable.
    fn rescan(&self) {}

    /// Returns whether `csn`, which was ready at `ready` and is committed otherwise, still waits in
    /// its queue for a log without recent records.
    fn holds_queued(&self, _csn: Csn, _ready: Nanos, _environment: &Environment) -> bool {
        false
    }

    /// Returns whether time alone may release a transaction of a queue.
    fn waits_for_time(&self) -> bool {
        false
    }

    /// Returns whether a transaction of a queue may wait for any that was drawn before now.
    fn waits_for_all_drawn(&self) -> bool {
        false
    }
}

/// The transactions above W and what they depend on, for a rule, for transactions with several
/// fragments, or for a count of false waits.
pub trait Above: Send + Sync {
    /// Enters a record, before the versions of its transaction become visible.
    fn enter(&self, record: &Drawn<'_>, latch: &dyn Latched);

    /// Returns the fragment before `csn` of the same transaction, and its log; `None` if there is
    /// none, or W has passed it.
    fn fragment_before(&self, csn: Csn) -> Option<(LogId, Csn)>;

    /// Returns whether `csn` is committed by what it really depends on.
    fn is_committed(&self, csn: Csn, facts: &dyn Facts) -> bool;
}
