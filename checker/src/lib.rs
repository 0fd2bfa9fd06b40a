//! Judges what transactions saw: is there an order that their isolation levels allow?
//!
//! The crate does not know the engine. A test runs transactions from many threads and records what
//! each transaction read and wrote, and when it began and ended. The judges check this history:
//!
//! - [`lists`]: transactions append numbers to lists and read whole lists. The order of versions
//!   follows from what was read, so the judge trusts no statement of the database about itself.
//!   Outcomes may be unknown, as after a crash.
//! - [`versions`]: transactions read and write rows, and scan ranges. The order of commits is what
//!   the database reported (the CSN). Each transaction must have seen the state after one of these
//!   commits, absent rows included.
//!
//! Time and memory are proportional to the history: about a microsecond for a transaction of four
//! operations.

mod graph;
pub mod lists;
pub mod versions;

pub use lists::{History, Level, Outcome};
pub use versions::Observed;

use std::fmt;

/// A forbidden observation in a history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The kind of violation.
    pub kind: Kind,
    /// The transactions involved, by their number in the history.
    pub transactions: Vec<usize>,
    /// The violation in words.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {} (transactions {:?})", self.kind, self.what, self.transactions)
    }
}

/// The kinds of violations, with their names in the literature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A transaction does not see what it wrote itself, or one list at two moments.
    Internal,
    /// A transaction saw a write of an aborted transaction (G1a).
    AbortedRead,
    /// A transaction saw a write that its writer overwrote itself (G1b).
    IntermediateRead,
    /// A read value was never written, or was read twice.
    Garbage,
    /// Two reads of a list disagree on its order.
    IncompatibleOrder,
    /// A dependency cycle that the level forbids: a lost update, a long fork, a read in the past,
    /// ...
    Cycle,
    /// The observed state is the state after no commit, or another transaction wrote a row of this
    /// one after its snapshot.
    NoSnapshot,
}

/// The result of a judge.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Number of judged transactions: committed ones, and observed ones of unknown outcome.
    pub judged: usize,
    /// The violations, at most [`VIOLATIONS_MAX`].
    pub violations: Vec<Violation>,
}

/// Most violations that a verdict lists.
pub const VIOLATIONS_MAX: usize = 20;

impl Verdict {
    fn add(&mut self, kind: Kind, transactions: Vec<usize>, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(Violation { kind, transactions, what });
        }
    }

    /// Returns true if no violation was found.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.violations.is_empty()
    }
}
