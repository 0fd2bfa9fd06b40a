//! The handle of a table.

use crate::base::TableTypes;
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

    /// Returns what the table is, and its types; `None` for a table of bytes, and for a table that
    /// has not been opened with types since databases keep them. A table with types may be used as
    /// bytes, too.
    #[must_use]
    pub fn types(&self) -> Option<TableTypes> {
        self.state.types().as_deref().cloned()
    }

    /// Returns the current name of the table.
    #[must_use]
    pub fn name(&self) -> Arc<str> {
        self.state.name.get()
    }
}
