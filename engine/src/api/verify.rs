//! Checking a whole database.

/// What `verify` looked at, and what it found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Tables checked.
    pub tables: u64,
    /// Pages of their trees.
    pub pages: u64,
    /// Rows.
    pub entries: u64,
    /// Page images in the store that were read and had the right checksum.
    pub stored_pages: u64,
    /// Log records that would be replayed now.
    pub log_records: u64,
    /// Each damage with its place. Empty means that everything is well.
    pub problems: Vec<String>,
}
