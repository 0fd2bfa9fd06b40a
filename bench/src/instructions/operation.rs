//! The operations that are counted.

use crate::engine::Engine;
use crate::store::Level;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Operation {
    /// Reads a row in an open snapshot.
    Get,
    /// Opens a snapshot, reads a row, closes it.
    OpenGet,
    /// Shows a row of a scan of the whole table.
    Scan,
    /// Returns a row of such a scan as the caller's own.
    ScanOwned,
    /// Reads ten rows that follow one another, in an open snapshot.
    Range,
    /// Updates a row.
    Update,
    /// Updates a row, and waits until that is durable.
    UpdateDurable,
    /// Inserts a row behind the last one.
    InsertInOrder,
    /// Inserts a row between others.
    InsertAtRandom,
    /// Deletes a row.
    Delete,
    /// Deletes the first row.
    PopFirst,
    /// Updates ten rows in one transaction.
    Transaction,
    /// Begins a transaction and rolls it back.
    RollBack,
    /// New-Order of TPC-C.
    NewOrder,
    /// Payment of TPC-C.
    Payment,
}

/// Rows of [`Operation::Range`] and [`Operation::Transaction`].
pub const ROWS_OF_ONE: u64 = 10;

impl Operation {
    /// All operations, in the order of tables.
    pub const ALL: [Operation; 15] = [
        Operation::Get,
        Operation::OpenGet,
        Operation::Scan,
        Operation::ScanOwned,
        Operation::Range,
        Operation::Update,
        Operation::UpdateDurable,
        Operation::InsertInOrder,
        Operation::InsertAtRandom,
        Operation::Delete,
        Operation::PopFirst,
        Operation::Transaction,
        Operation::RollBack,
        Operation::NewOrder,
        Operation::Payment,
    ];

    /// Returns the name on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Operation::Get => "get",
            Operation::OpenGet => "open-get",
            Operation::Scan => "scan",
            Operation::ScanOwned => "scan-owned",
            Operation::Range => "range",
            Operation::Update => "update",
            Operation::UpdateDurable => "update-durable",
            Operation::InsertInOrder => "insert-in-order",
            Operation::InsertAtRandom => "insert-at-random",
            Operation::Delete => "delete",
            Operation::PopFirst => "pop-first",
            Operation::Transaction => "transaction",
            Operation::RollBack => "roll-back",
            Operation::NewOrder => "new-order",
            Operation::Payment => "payment",
        }
    }

    /// Returns what one of them is.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Operation::Get => "a get in an open snapshot, the value borrowed",
            Operation::OpenGet => "open a snapshot, get, close it",
            Operation::Scan => "a row of a full scan, borrowed",
            Operation::ScanOwned => "a row of a full scan, owned",
            Operation::Range => "a range of 10 rows in an open snapshot, borrowed",
            Operation::Update => "an update, committed without a wait",
            Operation::UpdateDurable => "an update, committed durably",
            Operation::InsertInOrder => "an insert behind the last row",
            Operation::InsertAtRandom => "an insert between others",
            Operation::Delete => "a delete",
            Operation::PopFirst => "a delete of the first row",
            Operation::Transaction => "a transaction of 10 updates",
            Operation::RollBack => "begin and roll back",
            Operation::NewOrder => "a New-Order of TPC-C",
            Operation::Payment => "a Payment of TPC-C",
        }
    }

    /// Returns the operation with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Operation> {
        Operation::ALL.into_iter().find(|operation| operation.name() == name)
    }

    /// Returns whether `engine` is measured with it: what the trait `Store` does not have, and
    /// TPC-C, which other workloads compare, are QuenchDB's only.
    #[must_use]
    pub fn is_of(self, engine: Engine) -> bool {
        let own = matches!(self, Operation::ScanOwned | Operation::NewOrder | Operation::Payment);
        !own || engine == Engine::QuenchDb
    }

    /// Returns how many of them are run on a table of `rows` rows. None changes a row twice, so
    /// that each update changes every byte of its value.
    #[must_use]
    pub fn count(self, rows: u64) -> u64 {
        match self {
            Operation::Scan | Operation::ScanOwned => rows,
            Operation::Transaction => (rows / ROWS_OF_ONE).clamp(1, 4_000),
            Operation::NewOrder => 1_000,
            Operation::Payment => 3_000,
            Operation::UpdateDurable => rows.min(10_000),
            // An LSM tree passes by all rows that were deleted before.
            Operation::PopFirst => rows.min(4_000),
            _ => rows.min(40_000),
        }
    }

    /// Returns the level of the commits of `engine`. QuenchDB does not wait for an asynchronous
    /// one; the others do not wait at the level `lazy`, those that have it.
    #[must_use]
    pub fn level(self, engine: Engine) -> Level {
        let waits = self == Operation::UpdateDurable || engine == Engine::QuenchDb;
        if waits { Level::Durable } else { Level::Lazy }
    }

    /// Returns whether it changes the table.
    #[must_use]
    pub fn writes(self) -> bool {
        !matches!(
            self,
            Operation::Get
                | Operation::OpenGet
                | Operation::Scan
                | Operation::ScanOwned
                | Operation::Range
                | Operation::RollBack
        )
    }
}
