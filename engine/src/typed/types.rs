//! The types of tables, from the names of Rust's types.

use super::key::Key;
use super::value::Value;
use crate::base::{Result, TableKind, TableTypes};

impl TableTypes {
    /// Returns the types of a `TypedTable<K, V>`.
    ///
    /// # Errors
    /// `InvalidArgument` if the name of a type is longer than 4,096 bytes.
    pub fn table<K: Key, V: Value>() -> Result<TableTypes> {
        TableTypes::new(TableKind::Table, K::type_name(), V::type_name())
    }

    /// Returns the types of a `Multimap<K, V>`.
    ///
    /// # Errors
    /// As [`TableTypes::table`].
    pub fn multimap<K: Key, V: Key>() -> Result<TableTypes> {
        TableTypes::new(TableKind::Multimap, K::type_name(), V::type_name())
    }

    /// Returns the types of the table of an index with keys of type `I`: of an `Index`, or of a
    /// `UniqueIndex`.
    ///
    /// # Errors
    /// As [`TableTypes::table`].
    pub fn index<I: Key>(is_unique: bool) -> Result<TableTypes> {
        let kind = if is_unique { TableKind::UniqueIndex } else { TableKind::Index };
        TableTypes::new(kind, I::type_name(), String::new())
    }
}
