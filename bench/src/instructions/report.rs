//! The numbers of all operations and engines, and their comparison with recorded ones.

use super::operation::Operation;
use crate::engine::Engine;
use crate::sizes::grouped;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// By Callgrind.
    Instructions,
    /// By the clock.
    Nanoseconds,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::Instructions => "instructions",
            Unit::Nanoseconds => "nanoseconds",
        }
    }
}

/// The numbers of one operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Line {
    /// [`Operation::name`].
    pub operation: String,
    /// [`Operation::description`].
    pub description: String,
    /// The number of one operation, by the name of the engine.
    pub engines: BTreeMap<String, u64>,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Instructions {
    /// `instructions`
    pub workload: String,
    /// What the numbers are.
    pub unit: Unit,
    /// Rows of the table.
    pub rows: u64,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// The operations, in the order of [`Operation::ALL`].
    pub operations: Vec<Line>,
}

/// A number beside the recorded one.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Change {
    /// The operation.
    pub operation: String,
    /// The engine.
    pub engine: String,
    /// The recorded number; `None` if there is none.
    pub recorded: Option<u64>,
    /// The number of now.
    pub now: u64,
}

/// A number may be so many hundredths above the recorded one.
pub const PERCENT_MAX: f64 = 3.0;

impl Change {
    /// Returns the growth in hundredths of the recorded number.
    #[must_use]
    pub fn percent(&self) -> Option<f64> {
        let recorded = self.recorded? as f64;
        Some((self.now as f64 - recorded) / recorded.max(1.0) * 100.0)
    }

    /// Returns whether the number is within the bound.
    #[must_use]
    pub fn is_within(&self) -> bool {
        self.percent().is_some_and(|percent| percent <= PERCENT_MAX)
    }
}

impl Instructions {
    /// Returns a report without numbers.
    #[must_use]
    pub fn new(unit: Unit, rows: u64, value_bytes: u64) -> Instructions {
        Instructions { workload: "instructions".into(), unit, rows, value_bytes, operations: Vec::new() }
    }

    /// Sets the number of an operation.
    pub fn set(&mut self, operation: Operation, engine: &str, number: u64) {
        let place = self.operations.iter().position(|line| line.operation == operation.name());
        let place = place.unwrap_or_else(|| {
            let before = |line: &Line| Operation::named(&line.operation).is_some_and(|o| o < operation);
            let place = self.operations.iter().filter(|line| before(line)).count();
            let line = Line {
                operation: operation.name().into(),
                description: operation.description().into(),
                engines: BTreeMap::new(),
            };
            self.operations.insert(place, line);
            place
        });
        self.operations[place].engines.insert(engine.into(), number);
    }

    /// Returns the number of an operation.
    #[must_use]
    pub fn number(&self, operation: &str, engine: &str) -> Option<u64> {
        let line = self.operations.iter().find(|line| line.operation == operation)?;
        line.engines.get(engine).copied()
    }

    fn numbers(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        self.operations.iter().flat_map(|line| {
            let numbers = line.engines.iter();
            numbers.map(|(engine, number)| (line.operation.as_str(), engine.as_str(), *number))
        })
    }

    /// Returns whether the numbers of `other` are of the same table.
    #[must_use]
    pub fn has_table_of(&self, other: &Instructions) -> bool {
        (self.unit, self.rows, self.value_bytes) == (other.unit, other.rows, other.value_bytes)
    }

    /// Returns each number of this report beside that of `recorded`.
    #[must_use]
    pub fn beside(&self, recorded: &Instructions) -> Vec<Change> {
        let change = |(operation, engine, now): (&str, &str, u64)| Change {
            operation: operation.into(),
            engine: engine.into(),
            recorded: recorded.number(operation, engine),
            now,
        };
        self.numbers().map(change).collect()
    }

    /// Returns `recorded` with the numbers of this report in their places.
    #[must_use]
    pub fn over(&self, recorded: &Instructions) -> Instructions {
        let mut renewed = recorded.clone();
        for (name, engine, number) in self.numbers() {
            if let Some(operation) = Operation::named(name) {
                renewed.set(operation, engine, number);
            }
        }
        // A description may have changed.
        for line in &mut renewed.operations {
            if let Some(operation) = Operation::named(&line.operation) {
                line.description = operation.description().into();
            }
        }
        renewed
    }

    /// Returns the engines with numbers, in the order of tables.
    fn engines(&self) -> Vec<&'static str> {
        let has = |engine: &&str| self.operations.iter().any(|line| line.engines.contains_key(*engine));
        Engine::ALL.map(Engine::name).into_iter().filter(has).collect()
    }
}

impl fmt::Display for Instructions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, bytes, engines) = (grouped(&self.rows.to_string()), self.value_bytes, self.engines());
        writeln!(f, "{} of one operation; {rows} rows of 8 + {bytes} bytes in memory", self.unit.name())?;
        write!(f, "  {:<18}", "operation")?;
        for engine in &engines {
            write!(f, "{engine:>10}")?;
        }
        writeln!(f)?;
        for line in &self.operations {
            write!(f, "  {:<18}", line.operation)?;
            for engine in &engines {
                let number = line.engines.get(*engine);
                let number = number.map_or_else(|| "-".into(), |number| grouped(&number.to_string()));
                write!(f, "{number:>10}")?;
            }
            writeln!(f, "  {}", line.description)?;
        }
        Ok(())
    }
}

/// The numbers beside recorded ones.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Compared {
    /// Those of now.
    #[serde(flatten)]
    pub now: Instructions,
    /// Each of them beside the recorded one.
    pub changes: Vec<Change>,
}

impl Compared {
    /// Compares `now` with `recorded`.
    #[must_use]
    pub fn new(now: Instructions, recorded: &Instructions) -> Compared {
        let changes = now.beside(recorded);
        Compared { now, changes }
    }

    /// Returns whether all numbers are within the bound.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.changes.iter().all(Change::is_within)
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.now)?;
        writeln!(f, "beside the recorded numbers:")?;
        for change in &self.changes {
            let (recorded, now) = (change.recorded.unwrap_or(0), grouped(&change.now.to_string()));
            write!(f, "  {:<18}{:>10}{now:>12}", change.operation, change.engine)?;
            match change.percent() {
                None => write!(f, "  not recorded")?,
                Some(percent) => write!(f, " {percent:>+6.1} % of {}", grouped(&recorded.to_string()))?,
            }
            writeln!(f, "{}", if change.is_within() { "" } else { "  TOO MANY" })?;
        }
        if self.is_sound() {
            return Ok(());
        }
        writeln!(f, "above the recorded numbers by more than {PERCENT_MAX} %; --renew records those of now")
    }
}
