//! The result of a check of a database.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// How long it took.
    pub seconds: f64,
    /// Rows read.
    pub rows: u64,
    /// After a kill: changes of rows that were acknowledged, one by one, and that were looked for.
    #[serde(default)]
    pub acknowledged_writes: u64,
    /// Each condition that does not hold, with the place. Empty unless something is broken.
    pub problems: Vec<String>,
}

/// Problems named one by one; more of them are only counted.
const PROBLEMS_MAX: usize = 100;

impl Checked {
    /// Everything holds.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    /// Notes what does not hold.
    pub fn problem(&mut self, what: impl FnOnce() -> String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(what());
        }
    }

    /// Notes it if the two differ.
    pub fn same<V: PartialEq + std::fmt::Debug>(&mut self, left: V, right: V, what: impl FnOnce() -> String) {
        if left != right {
            self.problem(|| format!("{}: {left:?}, {right:?}", what()));
        }
    }

    /// Adds what another thread found.
    pub fn add(&mut self, other: Checked) {
        self.rows += other.rows;
        self.acknowledged_writes += other.acknowledged_writes;
        for problem in other.problems {
            self.problem(|| problem);
        }
    }
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            writeln!(f, "  does not hold: {problem}")?;
        }
        let outcome = if self.is_sound() { "everything holds" } else { "NOT SOUND" };
        write!(f, "  check: {outcome}; {} rows read in {:.2} s", self.rows, self.seconds)?;
        match self.acknowledged_writes {
            0 => writeln!(f),
            writes => writeln!(f, "; {writes} acknowledged changes of rows looked for"),
        }
    }
}
