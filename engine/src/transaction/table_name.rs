//! The name of a table, which a rename changes while the table is used.

use crate::sync::{Mutex, Process};
use std::fmt;
use std::sync::Arc;

/// The current name of a table.
#[derive(Debug)]
pub struct TableName {
    name: Mutex<Arc<str>>,
    process: Process,
}

impl TableName {
    /// Returns a name.
    #[must_use]
    pub fn new(name: &str) -> TableName {
        TableName { name: Mutex::new(name.into()), process: Process::current() }
    }

    /// Returns the current name; in a forked child, if another thread held it at the fork, nothing.
    #[must_use]
    pub fn get(&self) -> Arc<str> {
        if self.process.is_forked() {
            return self.name.try_lock().map_or_else(|| Arc::from(""), |name| name.clone());
        }
        self.name.lock().clone()
    }

    /// Changes the name.
    pub(super) fn set(&self, name: &str) {
        *self.name.lock() = name.into();
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.get())
    }
}
