//! Replay: applies the operations of selected log records to the trees, before any transaction
//! runs.
//!
//! Recovery partitions operations by key; within a key they come in CSN order. Entries are written
//! as settled, because no older snapshot exists. Rows come in key order, so a leaf is found once
//! and latched for all its rows.

use super::catalog::TableState;
use super::system::TransactionSystem;
use crate::base::{Csn, Error, Location, Result, TableId, TableTypes};
use crate::log::{Operation, Pieces};
use crate::tree::{Held, LargeReference, LargeWriter, LeafHint, LeafWrite, REFERENCE_BYTES, Tree, overflow};
use std::sync::Arc;

/// The value of the row before the patches.
#[derive(Debug)]
enum Base<'a> {
    /// The value in the tree.
    Stored,
    Put(&'a [u8]),
    PutLarge(Pieces<'a>, Csn),
    Deleted,
}

/// Replays one table in one thread: collects the changes of a row, oldest first, then applies their
/// result.
#[derive(Debug)]
pub struct Replay<'a> {
    tree: &'a Tree,
    /// The leaf of the last row, latched. Released before the thread waits for anything.
    leaf: Option<LeafWrite<'a>>,
    base: Base<'a>,
    /// Offset, bytes, and the CSN of their transaction.
    patches: Vec<(usize, &'a [u8], Csn)>,
    value: Vec<u8>,
}

impl<'a> Replay<'a> {
    /// Returns a replayer for `table`.
    #[must_use]
    pub fn new(table: &'a TableState) -> Replay<'a> {
        let (base, patches, value) = (Base::Stored, Vec::new(), Vec::new());
        Replay { tree: &table.tree, leaf: None, base, patches, value }
    }

    /// Releases the leaf: the caller is about to wait for something.
    pub fn release_leaf(&mut self) {
        self.leaf = None;
    }

    /// Adds the next change of the row, made by the transaction that `csn` returns.
    ///
    /// # Errors
    /// `Corruption` if the change does not fit the earlier ones.
    #[inline]
    pub fn change(&mut self, operation: &Operation<'a>, csn: impl FnOnce() -> Csn) -> Result<()> {
        match *operation {
            Operation::Put { value, .. } => self.base = Base::Put(value),
            Operation::PutLarge { pieces, .. } => self.base = Base::PutLarge(pieces, csn()),
            Operation::Delete { .. } => self.base = Base::Deleted,
            Operation::Patch { offset, bytes, .. } => {
                if matches!(self.base, Base::Deleted | Base::PutLarge(..)) {
                    return Err(misfit(NO_ROW, csn()));
                }
                self.patches.push((offset, bytes, csn()));
                return Ok(());
            }
            Operation::LargePart { .. } => {
                return Err(misfit("the log has a part of a large value among whole values", csn()));
            }
            Operation::CreateTable { .. }
            | Operation::DropTable { .. }
            | Operation::RenameTable { .. }
            | Operation::SetTypes { .. } => {
                return Err(misfit("the log has a catalog operation among row operations", csn()));
            }
        }
        self.patches.clear();
        Ok(())
    }

    /// Applies the changes to the row at `key`. The next row must have a higher key.
    ///
    /// # Errors
    /// `Corruption` if the changes do not fit what is there; `OutOfMemory`; I/O.
    #[inline]
    pub fn finish_row(&mut self, key: &'a [u8]) -> Result<()> {
        match std::mem::replace(&mut self.base, Base::Stored) {
            Base::Put(value) if self.patches.is_empty() => self.put(key, value)?,
            Base::PutLarge(pieces, csn) => self.put_large(key, pieces, csn)?,
            Base::Put(value) => {
                let mut patched = std::mem::take(&mut self.value);
                patched.clear();
                patched.extend_from_slice(value);
                self.patch(&mut patched)?;
                self.put(key, &patched)?;
                self.value = patched;
            }
            Base::Deleted => {
                let leaf = self.write(key, 0)?;
                let replaced = leaf.reference()?;
                leaf.remove();
                self.free(replaced)?;
            }
            Base::Stored => {
                let mut patched = std::mem::take(&mut self.value);
                let leaf = self.write(key, 0)?;
                let is_there = leaf.entry().is_some_and(|entry| entry.held() == Held::Value);
                leaf.copy_value(&mut patched);
                match self.patches.first() {
                    Some((_, _, csn)) if !is_there => return Err(misfit(NO_ROW, *csn)),
                    _ => self.patch(&mut patched)?,
                }
                if let Some(leaf) = &mut self.leaf {
                    leaf.put(0, false, &patched);
                }
                self.value = patched;
            }
        }
        Ok(())
    }

    #[inline]
    fn put(&mut self, key: &'a [u8], value: &[u8]) -> Result<()> {
        let leaf = self.write(key, value.len())?;
        let replaced = leaf.reference()?;
        leaf.put(0, false, value);
        self.free(replaced)
    }

    #[cold]
    fn put_large(&mut self, key: &'a [u8], pieces: Pieces<'a>, csn: Csn) -> Result<()> {
        // Writing the value takes long, and may have to wait for memory.
        self.leaf = None;
        // Only redo is running, so the value needs no owner.
        let mut writer = LargeWriter::new(self.tree.pool().clone(), 0);
        pieces.iter().try_for_each(|piece| writer.write(piece))?;
        if writer.is_empty() {
            return Err(misfit(NO_BYTES, csn));
        }
        let reference = writer.finish()?;
        let leaf = self.write(key, REFERENCE_BYTES)?;
        let replaced = leaf.reference()?;
        leaf.put_reference(0, &reference);
        self.free(replaced)
    }

    /// Frees the replaced large value of the row.
    #[inline]
    fn free(&self, replaced: Option<LargeReference>) -> Result<()> {
        replaced.map_or(Ok(()), |reference| overflow::free(self.tree.pool(), &reference))
    }

    /// Applies and clears the patches.
    fn patch(&mut self, value: &mut [u8]) -> Result<()> {
        for (offset, bytes, csn) in self.patches.drain(..) {
            offset
                .checked_add(bytes.len())
                .and_then(|end| value.get_mut(offset..end))
                .ok_or_else(|| misfit("the log changes bytes beyond the end of a row", csn))?
                .copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Returns the leaf for `key`, latched, with room for a value of `value_len` bytes.
    #[inline]
    fn write(&mut self, key: &'a [u8], value_len: usize) -> Result<&mut LeafWrite<'a>> {
        let leaf = match self.leaf.take().and_then(|leaf| leaf.advance_to(key, value_len)) {
            Some(leaf) => leaf,
            None => self.tree.write(key, value_len, &mut LeafHint::default())?,
        };
        Ok(self.leaf.insert(leaf))
    }
}

/// A large value that the log has in parts.
#[derive(Debug)]
pub struct ReplayedValue {
    table: Arc<TableState>,
    key: Vec<u8>,
    writer: LargeWriter,
}

impl ReplayedValue {
    /// Whether it is the value of that row.
    #[must_use]
    pub fn is_of(&self, table: TableId, key: &[u8]) -> bool {
        (self.table.id, self.key.as_slice()) == (table, key)
    }

    /// Adds more bytes.
    ///
    /// # Errors
    /// As [`LargeWriter::write`].
    pub fn write(&mut self, pieces: Pieces<'_>) -> Result<()> {
        pieces.iter().try_for_each(|piece| self.writer.write(piece))
    }

    /// Makes it the row's value.
    ///
    /// # Errors
    /// `Corruption` if it has no bytes; `OutOfMemory`; I/O.
    pub fn finish(self, csn: Csn) -> Result<()> {
        if self.writer.is_empty() {
            return Err(misfit(NO_BYTES, csn));
        }
        let reference = self.writer.finish()?;
        let tree = &self.table.tree;
        let mut leaf = tree.write(&self.key, REFERENCE_BYTES, &mut LeafHint::default())?;
        let replaced = leaf.reference()?;
        leaf.put_reference(0, &reference);
        drop(leaf);
        replaced.map_or(Ok(()), |reference| overflow::free(tree.pool(), &reference))
    }
}

const NO_BYTES: &str = "the log has a large value without bytes";
const NO_ROW: &str = "the log changes bytes of a row that does not exist, or is large";

#[cold]
fn misfit(what: &str, csn: Csn) -> Error {
    Error::corruption(what).at(Location::Transaction(csn))
}

impl TransactionSystem {
    /// Begins a large value that the log has in parts.
    ///
    /// # Errors
    /// `Corruption` for an unknown table.
    pub fn replay_value(&self, table: TableId, key: &[u8]) -> Result<ReplayedValue> {
        let Some(table) = self.catalog.lock().find_id(table) else {
            return Err(Error::corruption(format!("the log changes table {table}, which does not exist")));
        };
        let writer = LargeWriter::new(table.tree.pool().clone(), 0);
        Ok(ReplayedValue { table, key: key.to_vec(), writer })
    }

    /// Replays the creation of a table.
    ///
    /// # Errors
    /// `OutOfMemory`; `Corruption` for a name or an identifier that exists or is not allowed.
    pub fn replay_create(&self, id: crate::base::TableId, name: &str, csn: Csn) -> Result<()> {
        let mut catalog = self.catalog.lock();
        let wrong = |what: String| misfit(&format!("the log creates table {id}: {what}"), csn);
        if id.0 == 0 || id >= TableId::LIMIT || catalog.find_id(id).is_some() {
            return Err(wrong("the identifier is used already, or is not allowed".into()));
        }
        catalog.check_new(name).map_err(|error| wrong(error.to_string()))?;
        let tree = self.create_tree()?;
        catalog.insert(Arc::new(TableState::new(id, name, tree, csn)), csn);
        Ok(())
    }

    /// Replays the change of a table's name.
    ///
    /// # Errors
    /// `Corruption` for an unknown table, or a name that exists or is not allowed.
    pub fn replay_rename(&self, id: crate::base::TableId, name: &str, csn: Csn) -> Result<()> {
        let mut catalog = self.catalog.lock();
        let wrong = |what: &str| misfit(&format!("the log renames table {id}: {what}"), csn);
        let Some(table) = catalog.find_id(id) else { return Err(wrong("the table does not exist")) };
        catalog.check_name(name).map_err(|error| wrong(&error.to_string()))?;
        catalog.rename(&table, name, csn);
        Ok(())
    }

    /// Replays the change of a table's types.
    ///
    /// # Errors
    /// `Corruption` for an unknown table.
    pub fn replay_types(&self, id: TableId, types: TableTypes, csn: Csn) -> Result<()> {
        let mut catalog = self.catalog.lock();
        let Some(table) = catalog.find_id(id) else {
            return Err(misfit(&format!("the log gives types to table {id}, which does not exist"), csn));
        };
        catalog.set_types(&table, types, csn);
        Ok(())
    }

    /// Replays the drop of a table.
    ///
    /// # Errors
    /// `Corruption` for an unknown table.
    pub fn replay_drop(&self, id: crate::base::TableId, csn: Csn) -> Result<()> {
        let mut catalog = self.catalog.lock();
        let Some(table) = catalog.find_id(id) else {
            return Err(Error::corruption(format!("the log drops table {id}, which does not exist"))
                .at(Location::Transaction(csn)));
        };
        catalog.remove(&table, csn);
        Ok(())
    }
}
