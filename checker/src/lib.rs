//! Judges what transactions saw: is there an order that snapshot isolation allows?
//!
//! It knows nothing of the engine. A test runs transactions from many threads, writes down what each read and wrote and when it began and
//! ended, and hands that over as a history:
//!
//! - [`lists`]: transactions append numbers to lists and read whole lists. The order of versions follows from what was read, so nothing
//!   that the database says of itself is believed. Outcomes may be unknown, as after a crash.
//! - [`versions`]: transactions read and write rows, and scan ranges. The order of commits is what the database said (their CSN); each
//!   transaction must have seen the state after one of them, rows that are *not* there included.
//!
//! Both take time and memory in proportion to the history, about a microsecond for a transaction of four operations.

mod graph;
pub mod lists;
pub mod versions;

pub use lists::{History, Level, Outcome};
pub use versions::Observed;

use std::fmt;

/// What a history shows that must not be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which kind.
    pub kind: Kind,
    /// The transactions concerned, by their number in the history.
    pub transactions: Vec<usize>,
    /// In words.
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
    /// What an aborted transaction wrote was seen (G1a).
    AbortedRead,
    /// What a transaction wrote and overwrote itself was seen (G1b).
    IntermediateRead,
    /// Something was seen that nobody wrote, or twice.
    Garbage,
    /// Two reads of a list disagree on its order.
    IncompatibleOrder,
    /// A dependency cycle that the level forbids: a lost update, a long fork, a read in the past, ...
    Cycle,
    /// What was seen is the state after no commit, or a row that it wrote was written by another after what it saw.
    NoSnapshot,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Transactions that count: committed ones, and those of unknown outcome that somebody saw.
    pub judged: usize,
    /// What must not be; at most [`VIOLATIONS_MAX`].
    pub violations: Vec<Violation>,
}

/// No more are told.
pub const VIOLATIONS_MAX: usize = 20;

impl Verdict {
    fn add(&mut self, kind: Kind, transactions: Vec<usize>, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(Violation { kind, transactions, what });
        }
    }

    /// Whether nothing was found.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.violations.is_empty()
    }
}
