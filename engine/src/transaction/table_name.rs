//! The name of a table, which a rename changes while the table is used.

use crate::sync::Mutex;
use std::fmt;
use std::sync::Arc;

/// The current name of a table.
#[derive(Debug)]
pub struct TableName(Mutex<Arc<str>>);

impl TableName {
    /// Returns a name.
    #[must_use]
    pub fn new(name: &str) -> TableName {
        TableName(Mutex::new(name.into()))
    }

    /// Returns the current name.
    #[must_use]
    pub fn get(&self) -> Arc<str> {
        self.0.lock().clone()
    }

    /// Changes the name.
    pub(super) fn set(&self, name: &str) {
        *self.0.lock() = name.into();
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.get())
    }
}
