//! The types of a table, as the catalog keeps them.
//!
//! | bytes | content |
//! |---|---|
//! | 1 | kind: 1 table, 2 multimap, 3 index, 4 unique index |
//! | varint + bytes | name of the type of the keys, UTF-8 |
//! | varint + bytes | name of the type of the values, UTF-8; empty for an index |

use super::encoding::{Reader, put_bytes};
use super::{Error, Result};
use std::fmt;

/// Longest name of a type that a database keeps, in bytes.
const TYPE_BYTES_MAX: usize = 4096;

/// What a table with types is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum TableKind {
    /// Rows of a `TypedTable`.
    Table,
    /// Pairs of a `Multimap`.
    Multimap,
    /// Entries of an `Index`.
    Index,
    /// Entries of a `UniqueIndex`.
    UniqueIndex,
}

/// What a table is, and the names of the types of its keys and values. A database keeps them for
/// each table that was opened with types, and refuses to open the table with others.
///
/// [`TypeName`](crate::TypeName) says where the names come from. [`Table::types`] returns the types
/// of a table, and [`Database::set_types`] changes them.
///
/// ```
/// use quenchdb::{Database, TableTypes, TypedTable};
///
/// # fn main() -> quenchdb::Result<()> {
/// # let db = Database::builder().open_in_memory()?;
/// let ages: TypedTable<String, u32> = db.typed_table("ages")?;
/// let types = ages.untyped().types().expect("the table has types");
/// assert_eq!(types, TableTypes::table::<String, u32>()?);
/// assert_eq!(types.to_string(), "table of String to u32");
/// # Ok(())
/// # }
/// ```
///
/// [`Table::types`]: crate::Table::types
/// [`Database::set_types`]: crate::Database::set_types
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TableTypes {
    kind: TableKind,
    keys: String,
    values: String,
}

impl TableTypes {
    /// Returns the types of a table of this kind. `values` is empty for an index.
    ///
    /// # Errors
    /// `InvalidArgument` if a name is too long.
    pub(crate) fn new(kind: TableKind, keys: String, values: String) -> Result<TableTypes> {
        for name in [&keys, &values] {
            if name.len() > TYPE_BYTES_MAX {
                let begin: String = name.chars().take(60).collect();
                return Err(Error::invalid(format!(
                    "the name of the type `{begin}…` has {} bytes: a name has at most {TYPE_BYTES_MAX}",
                    name.len()
                )));
            }
        }
        Ok(TableTypes { kind, keys, values })
    }

    /// Returns what the table is.
    #[must_use]
    pub fn kind(&self) -> TableKind {
        self.kind
    }

    /// Returns the name of the type of the keys; of an index, of the index keys.
    #[must_use]
    pub fn keys(&self) -> &str {
        &self.keys
    }

    /// Returns the name of the type of the values; `None` for an index, whose entries lead to keys
    /// of its table.
    #[must_use]
    pub fn values(&self) -> Option<&str> {
        match self.kind {
            TableKind::Table | TableKind::Multimap => Some(&self.values),
            TableKind::Index | TableKind::UniqueIndex => None,
        }
    }

    /// Returns whether a table with these types may be opened with `others`: with the same, and a
    /// multimap, whose rows are pairs without values, also as a table of these pairs.
    pub(crate) fn opens_as(&self, others: &TableTypes) -> bool {
        let is_of_pairs = |multimap: &TableTypes, table: &TableTypes| {
            (multimap.kind, table.kind) == (TableKind::Multimap, TableKind::Table)
                && table.keys == format!("({}, {})", multimap.keys, multimap.values)
                && table.values == "()"
        };
        self == others || is_of_pairs(self, others) || is_of_pairs(others, self)
    }

    /// Appends the stored form.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(match self.kind {
            TableKind::Table => 1,
            TableKind::Multimap => 2,
            TableKind::Index => 3,
            TableKind::UniqueIndex => 4,
        });
        put_bytes(out, self.keys.as_bytes());
        put_bytes(out, self.values.as_bytes());
    }

    /// Takes the stored form from `reader`. `None` if it is malformed.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<TableTypes> {
        let kind = match reader.u8()? {
            1 => TableKind::Table,
            2 => TableKind::Multimap,
            3 => TableKind::Index,
            4 => TableKind::UniqueIndex,
            _ => return None,
        };
        let mut name = || std::str::from_utf8(reader.bytes()?).ok().map(str::to_string);
        let types = TableTypes { kind, keys: name()?, values: name()? };
        let is_allowed = types.keys.len().max(types.values.len()) <= TYPE_BYTES_MAX
            && (types.values().is_some() || types.values.is_empty());
        is_allowed.then_some(types)
    }
}

impl fmt::Display for TableTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TableTypes { kind, keys, values } = self;
        match kind {
            TableKind::Table => write!(f, "table of {keys} to {values}"),
            TableKind::Multimap => write!(f, "multimap of {keys} to {values}"),
            TableKind::Index => write!(f, "index by {keys}"),
            TableKind::UniqueIndex => write!(f, "unique index by {keys}"),
        }
    }
}

#[cfg(test)]
mod tests;
