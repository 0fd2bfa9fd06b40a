//! The list of indexes: the table `quench.indexes`.
//!
//! The identifier of a table, big-endian, and the name of an index lead to one byte for the kind
//! (0, 1 unique), one for the state (0 being built, 1 complete), and the identifier of the index's
//! own table, big-endian.

use crate::base::{Error, Location, Result};

/// The table that lists all indexes.
pub(crate) const INDEX_LIST: &str = "quench.indexes";

/// A line of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ListedIndex {
    pub(crate) is_unique: bool,
    pub(crate) is_complete: bool,
    /// Identifier of the index's table.
    pub(crate) table: u32,
}

impl ListedIndex {
    /// Returns the key of an index in the list.
    pub(crate) fn key(table: u32, name: &str) -> Vec<u8> {
        [&table.to_be_bytes(), name.as_bytes()].concat()
    }

    /// Returns the identifier of the table and the name of the index.
    pub(crate) fn of_key(key: &[u8]) -> Result<(u32, &str)> {
        let parts = key.split_first_chunk::<4>();
        let named = parts
            .and_then(|(table, name)| Some((u32::from_be_bytes(*table), std::str::from_utf8(name).ok()?)));
        named.ok_or_else(malformed)
    }

    pub(crate) fn encode(self) -> [u8; 6] {
        let [a, b, c, d] = self.table.to_be_bytes();
        [self.is_unique.into(), self.is_complete.into(), a, b, c, d]
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<ListedIndex> {
        match *bytes {
            [unique @ 0..=1, complete @ 0..=1, a, b, c, d] => Ok(ListedIndex {
                is_unique: unique == 1,
                is_complete: complete == 1,
                table: u32::from_be_bytes([a, b, c, d]),
            }),
            _ => Err(malformed()),
        }
    }
}

fn malformed() -> Error {
    Error::corruption("a line of the list of indexes is malformed").at(Location::Table(INDEX_LIST.into()))
}
