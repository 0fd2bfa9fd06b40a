//! The names of the tables that changes are about.

use crate::base::{Result, TableId};
use crate::log::{Operation, operations};
use std::collections::HashMap;
use std::sync::Arc;

/// The table of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangedTable {
    pub(super) id: TableId,
    pub(super) name: Arc<str>,
}

impl ChangedTable {
    /// Returns the number of the table, which it keeps when it is renamed, and no other table ever
    /// gets.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id.0
    }

    /// Returns the name of the table: the one it had when the feed began (the last one, if the
    /// table was dropped by then), or the one that a change gave it since.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Names by table.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(Arc<HashMap<TableId, Arc<str>>>);

impl Names {
    pub fn new(names: impl IntoIterator<Item = (TableId, Arc<str>)>) -> Names {
        Names(Arc::new(names.into_iter().collect()))
    }

    pub fn table(&self, id: TableId) -> ChangedTable {
        // No log has a change of a table that is neither there nor dropped within history.
        ChangedTable { id, name: self.0.get(&id).cloned().unwrap_or_default() }
    }

    /// Applies creations and renames in an encoded body.
    pub fn apply_new(&mut self, body: &[u8]) -> Result<()> {
        for operation in operations(body) {
            if let Operation::CreateTable { table, name } | Operation::RenameTable { table, name } =
                operation?
            {
                Arc::make_mut(&mut self.0).insert(table, name.into());
            }
        }
        Ok(())
    }

    /// Applies drops in an encoded body.
    pub fn apply_drops(&mut self, body: &[u8]) -> Result<()> {
        for operation in operations(body) {
            if let Operation::DropTable { table } = operation? {
                Arc::make_mut(&mut self.0).remove(&table);
            }
        }
        Ok(())
    }
}
