//! Replay: applies the operations of selected log records to the trees, before any transaction runs.
//!
//! Recovery partitions operations by key; within a key they come in CSN order. Entries are written as settled: there is
//! nobody with an older snapshot.

use super::catalog::TableState;
use super::system::TransactionSystem;
use crate::base::{Csn, Error, Location, Result};
use crate::log::Operation;
use crate::tree::LeafHint;
use std::sync::Arc;

/// One thread's replayer.
#[derive(Debug, Default)]
pub struct Replay {
    hint: LeafHint,
    hint_table: u32,
    value: Vec<u8>,
}

impl Replay {
    /// Applies one operation on a row of `table`. `csn` is for error messages.
    ///
    /// # Errors
    /// `Corruption` if the operation does not fit what is there; `OutOfMemory`; I/O.
    pub fn apply(&mut self, table: &TableState, operation: &Operation<'_>, csn: Csn) -> Result<()> {
        if self.hint_table != table.id.0 {
            (self.hint, self.hint_table) = (LeafHint::default(), table.id.0);
        }
        match *operation {
            Operation::Put { key, value, .. } => {
                table.tree.write(key, value.len(), &mut self.hint)?.put(0, false, value);
            }
            Operation::Patch { key, offset, bytes, .. } => self.patch(table, key, offset, bytes, csn)?,
            Operation::Delete { key, .. } => {
                let mut leaf = table.tree.write(key, 0, &mut self.hint)?;
                if leaf.entry().is_some() {
                    leaf.remove();
                }
            }
            Operation::CreateTable { .. } | Operation::DropTable { .. } => {
                return Err(Error::corruption("a catalog operation among row operations")
                    .at(Location::Transaction(csn)));
            }
        }
        Ok(())
    }

    fn patch(&mut self, table: &TableState, key: &[u8], offset: usize, bytes: &[u8], csn: Csn) -> Result<()> {
        let misfit = |what: &str| Err(Error::corruption(what).at(Location::Transaction(csn)));
        let mut leaf = table.tree.write(key, 0, &mut self.hint)?;
        if leaf.entry().is_none_or(|entry| entry.tombstone) {
            return misfit("the log changes bytes of a row that is not there");
        }
        leaf.copy_value(&mut self.value);
        let Some(range) = offset.checked_add(bytes.len()).and_then(|end| self.value.get_mut(offset..end)) else {
            return misfit("the log changes bytes beyond the end of a row");
        };
        range.copy_from_slice(bytes);
        leaf.put(0, false, &self.value);
        Ok(())
    }
}

impl TransactionSystem {
    /// Creates a table as the log says; its identifier was checked to be new.
    ///
    /// # Errors
    /// `OutOfMemory`; `Corruption` for a name that exists or is not allowed.
    pub fn replay_create(&self, id: crate::base::TableId, name: &str, csn: Csn) -> Result<()> {
        let mut catalog = self.catalog().lock();
        catalog.check_new(name).map_err(|error| {
            Error::corruption(format!("the log creates table {id}: {error}")).at(Location::Transaction(csn))
        })?;
        let tree = self.create_tree()?;
        catalog.insert(Arc::new(TableState::new(id, name.to_string(), tree, csn)), csn);
        Ok(())
    }

    /// Drops a table as the log says.
    ///
    /// # Errors
    /// `Corruption` for a table that is not there.
    pub fn replay_drop(&self, id: crate::base::TableId, csn: Csn) -> Result<()> {
        let mut catalog = self.catalog().lock();
        let Some(table) = catalog.find_id(id) else {
            return Err(Error::corruption(format!("the log drops table {id}, which is not there"))
                .at(Location::Transaction(csn)));
        };
        catalog.remove(&table, csn);
        Ok(())
    }
}
