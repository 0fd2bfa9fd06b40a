//! The result of a salvage, and the sink that its rows go to.

use crate::base::{Result, TableId, TableTypes};
use std::collections::{BTreeMap, HashMap};

/// The new database that salvaged rows are written to.
pub trait SalvageSink {
    /// Creates a table unless it exists.
    ///
    /// # Errors
    /// Those of the new database.
    fn create_table(&mut self, table: &str) -> Result<()>;

    /// Drops a table.
    ///
    /// # Errors
    /// Those of the new database.
    fn drop_table(&mut self, table: &str) -> Result<()>;

    /// Renames a table; no other has the new name.
    ///
    /// # Errors
    /// Those of the new database.
    fn rename_table(&mut self, table: &str, new_name: &str) -> Result<()>;

    /// Gives types to an existing table.
    ///
    /// # Errors
    /// Those of the new database.
    fn set_types(&mut self, table: &str, types: &TableTypes) -> Result<()>;

    /// Writes a row of an existing table.
    ///
    /// # Errors
    /// Those of the new database.
    fn put(&mut self, table: &str, key: &[u8], value: &[u8]) -> Result<()>;

    /// Deletes a row if it exists.
    ///
    /// # Errors
    /// Those of the new database.
    fn delete(&mut self, table: &str, key: &[u8]) -> Result<()>;

    /// Returns the value of a row.
    ///
    /// # Errors
    /// Those of the new database.
    fn get(&mut self, table: &str, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Everything has been written. `names` are the tables by their identifiers in the damaged
    /// database.
    ///
    /// # Errors
    /// Those of the new database.
    fn finish(&mut self, names: &HashMap<TableId, String>) -> Result<()>;
}

/// Keys of a table that could not be read.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LostRange {
    /// The lowest key.
    pub lower: Vec<u8>,
    /// The first key above the range; `None` if the range has no end.
    pub upper: Option<Vec<u8>>,
    /// Level of the lost page: above 0 if it was not a leaf, or if its level is unknown.
    pub(super) level: u8,
}

/// The result of a salvage for one table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SalvagedTable {
    /// Rows read from pages.
    pub rows: u64,
    /// Keys of unreadable pages, as of the checkpoint.
    pub lost: Vec<LostRange>,
}

/// The result of a salvage.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SalvageReport {
    /// The tables by name.
    pub tables: BTreeMap<String, SalvagedTable>,
    /// Transactions of the log that were applied.
    pub transactions: u64,
    /// Everything else that could not be read, in words.
    pub remarks: Vec<String>,
}

impl SalvageReport {
    /// Returns true if nothing was missing.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.remarks.is_empty() && self.tables.values().all(|table| table.lost.is_empty())
    }
}

impl LostRange {
    /// Returns the range in words.
    #[must_use]
    pub fn describe(&self) -> String {
        let shown = |key: &[u8]| format!("\"{}\"", key.escape_ascii());
        let upper =
            self.upper.as_deref().map_or_else(|| "the end".into(), |upper| format!("below {}", shown(upper)));
        let lower = if self.lower.is_empty() { "the beginning".into() } else { shown(&self.lower) };
        format!("keys from {lower} to {upper}")
    }
}
