//! A handle of a table.

use crate::transaction::TableState;
use std::sync::Arc;

/// A table of a database: ordered rows of bytes. Cloning is cheap; the handle may outlive transactions, and the table
/// itself may be dropped meanwhile, which the next use reports as `NotFound`.
#[derive(Clone, Debug)]
pub struct Table {
    pub(super) state: Arc<TableState>,
}

impl Table {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.state.name
    }
}
