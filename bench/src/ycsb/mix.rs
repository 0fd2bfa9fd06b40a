//! What the operations of YCSB are, and how often each occurs (Cooper et al., SoCC 2010, table 2).

use crate::distribution::Access;
use quenchdb::internals::base::random::Random;

/// Percentages of the operations; they add up to 100.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mix {
    /// Point reads.
    pub read: u32,
    /// New values without a read before.
    pub update: u32,
    /// New rows.
    pub insert: u32,
    /// Range reads of 1 to 100 rows.
    pub scan: u32,
    /// A read, then an update of what was read.
    pub modify: u32,
}

const NONE: Mix = Mix { read: 0, update: 0, insert: 0, scan: 0, modify: 0 };

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// See [`Mix::read`].
    Read,
    /// See [`Mix::update`].
    Update,
    /// See [`Mix::insert`].
    Insert,
    /// See [`Mix::scan`].
    Scan,
    /// See [`Mix::modify`].
    Modify,
}

impl Operation {
    /// Their names, in the order of the type.
    pub const NAMES: [&'static str; 5] = ["read", "update", "insert", "scan", "modify"];
}

impl Mix {
    /// Reads and updates.
    #[must_use]
    pub fn reads_and_updates(read_percent: u32) -> Mix {
        Mix { read: read_percent, update: 100 - read_percent, ..NONE }
    }

    /// Workload `a` to `f`, and how it chooses rows. `rmw` only modifies.
    #[must_use]
    pub fn named(name: &str) -> Option<(Mix, Access)> {
        Some(match name {
            "a" => (Mix { read: 50, update: 50, ..NONE }, Access::Zipfian),
            "b" => (Mix { read: 95, update: 5, ..NONE }, Access::Zipfian),
            "c" => (Mix { read: 100, ..NONE }, Access::Zipfian),
            "d" => (Mix { read: 95, insert: 5, ..NONE }, Access::Latest),
            "e" => (Mix { scan: 95, insert: 5, ..NONE }, Access::Zipfian),
            "f" => (Mix { read: 50, modify: 50, ..NONE }, Access::Zipfian),
            "rmw" => (Mix { modify: 100, ..NONE }, Access::Uniform),
            _ => return None,
        })
    }

    /// Nothing of it writes.
    #[must_use]
    pub fn reads_only(&self) -> bool {
        self.update + self.insert + self.modify == 0
    }

    /// The next operation.
    pub fn draw(&self, random: &mut Random) -> Operation {
        let mut left = random.below(100) as u32;
        let kinds = [
            (self.read, Operation::Read),
            (self.update, Operation::Update),
            (self.insert, Operation::Insert),
            (self.scan, Operation::Scan),
        ];
        for (percent, operation) in kinds {
            if left < percent {
                return operation;
            }
            left -= percent;
        }
        Operation::Modify
    }
}
