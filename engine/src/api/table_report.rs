//! The size and the shape of a table.

use super::database::Database;
use super::table::Table;
use crate::base::{Error, ErrorKind, Location, Result};
use crate::store::SpaceCell;
use crate::tree::Survey;

/// The size and the shape of a table, from [`Database::table_report`].
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct TableReport {
    /// Rows, deleted ones included until they are purged.
    pub entries: u64,
    /// Values in pages of their own.
    pub large_values: u64,
    /// Pages, those of large values included.
    pub pages: u64,
    /// Length of these pages in bytes. On the device they may be compressed.
    pub bytes: u64,
    /// Pages from the root to a leaf.
    pub depth: u32,
    /// The used part of all leaves, 0 to 1.
    pub leaf_fill: f64,
}

impl Database {
    /// Returns what each stretch of the file of pages is used for: at most `cells` stretches of
    /// equal length, in their order, and the length of a block in bytes. Takes a few milliseconds
    /// for each gigabyte of the file, and touches no file.
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// let (cells, block_bytes) = db.space_map(100);
    /// let free: u64 = cells.iter().map(|cell| cell.free).sum();
    /// assert!(cells.len() <= 100);
    /// println!("{} bytes are free", free * block_bytes as u64);
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    #[must_use]
    pub fn space_map(&self, cells: usize) -> (Vec<SpaceCell>, usize) {
        match self.inner.is_forked() {
            true => (Vec::new(), self.inner.pool.page_bytes()),
            false => self.inner.store.space_map(cells),
        }
    }

    /// Returns the size and the shape of a table. Reads and checks all of its pages, beside
    /// transactions; rows that change meanwhile may be counted twice or not at all.
    ///
    /// ```
    /// # use quenchdb::Database;
    /// # let db = Database::builder().open_in_memory()?;
    /// let people = db.create_table("people")?;
    /// db.transact(|tx| tx.insert(&people, "alice", "Vienna"))?;
    /// let report = db.table_report(&people)?;
    /// assert_eq!((report.entries, report.pages, report.depth), (1, 1, 1));
    /// # Ok::<(), quenchdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound` if the table is dropped; `Corruption` of the first damaged page; I/O;
    /// `OutOfMemory` if a page that has to be read finds no room.
    pub fn table_report(&self, table: &Table) -> Result<TableReport> {
        self.inner.check_usable()?;
        let gone = || {
            let what = "the table was dropped";
            Error::new(ErrorKind::NotFound, what).at(Location::Table(table.name().to_string()))
        };
        let held = table.state.hold().ok_or_else(gone)?;
        let should_continue = || !held.is_dropped();
        let survey = Survey { should_continue: &should_continue, replaced: &|_, _| () };
        let (summary, damages) = held.tree.survey(&survey)?;
        if held.is_dropped() {
            return Err(gone());
        }
        if let Some(damage) = damages.into_iter().next() {
            return Err(damage.error.at(Location::Table(table.name().to_string())));
        }
        Ok(TableReport {
            entries: summary.entries,
            large_values: summary.large_values,
            pages: summary.pages,
            bytes: summary.pages * self.inner.pool.page_bytes() as u64,
            depth: summary.depth,
            leaf_fill: summary.leaf_fill,
        })
    }
}
