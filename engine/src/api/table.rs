//! The handle of a table.

use crate::transaction::TableState;
use std::sync::Arc;

/// A table of a database: ordered rows of bytes. Cloning is cheap, and a handle may be used from
/// any thread. The handle may outlive the table: after a drop the next use returns `NotFound`.
#[derive(Clone, Debug)]
pub struct Table {
    pub(super) state: Arc<TableState>,
}

impl Table {
    /// Returns the number that the table keeps for ever.
    pub(crate) fn id(&self) -> u32 {
        self.state.id.0
    }

    /// Returns whether the table was dropped.
    pub(crate) fn is_dropped(&self) -> bool {
        self.state.is_dropped()
    }

    /// Returns the current name of the table.
    #[must_use]
    pub fn name(&self) -> Arc<str> {
        self.state.name.get()
    }
}
