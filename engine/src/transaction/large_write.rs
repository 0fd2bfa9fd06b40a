//! Writing large values: first the overflow pages and the redo, piece by piece, then the reference
//! in the entry. Little of the redo is in memory: it goes to the log in chunks.
//!
//! A value that could not be written, or whose row could not be changed, leaves no pages, no redo
//! and no change behind, and the transaction can continue.

use super::active::ActiveTransaction;
use super::catalog::TableState;
use super::descriptor::Descriptors;
use super::large_values::OwnValue;
use super::write::{Intent, Waits};
use crate::base::{Error, ErrorKind, Result};
use crate::tree::{LargeReference, LargeWriter};
use std::io::Read;
use std::sync::Arc;

/// Bytes read from a caller's reader at a time.
const PIECE_BYTES: usize = 64 << 10;

impl ActiveTransaction {
    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// `Conflict`; `InvalidArgument` for sizes; `OutOfMemory` at a bound; `NotFound` for a dropped
    /// table.
    pub fn insert(&mut self, table: &Arc<TableState>, key: &[u8], value: &[u8]) -> Result<()> {
        self.system.check_key(table, key)?;
        if key.len() + value.len() > self.system.limits.entry_bytes_max {
            self.system.check_value(table, value.len() as u64)?;
            return self.insert_large(table, key, &mut { value }).map(drop);
        }
        self.make_room(key.len() + value.len())?;
        self.change(table, key, Intent::Put(value)).map(drop)
    }

    /// Sets `key` to all bytes of `reader`, and returns their number. Only a few pages of the value
    /// are in memory twice at a time.
    ///
    /// # Errors
    /// As [`ActiveTransaction::insert`], and those of `reader`. Then nothing was changed, and the
    /// transaction can continue.
    pub fn insert_from(&mut self, table: &Arc<TableState>, key: &[u8], reader: &mut dyn Read) -> Result<u64> {
        self.system.check_key(table, key)?;
        let mut first = Vec::new();
        let in_entry = self.system.limits.entry_bytes_max - key.len();
        reader.take(in_entry as u64 + 1).read_to_end(&mut first).map_err(reader_failed)?;
        if first.len() <= in_entry {
            self.insert(table, key, &first)?;
            return Ok(first.len() as u64);
        }
        self.insert_large(table, key, &mut (&first[..]).chain(reader))
    }

    /// [`ActiveTransaction::insert_from`] for a value that is longer than an entry can be.
    fn insert_large(&mut self, table: &Arc<TableState>, key: &[u8], reader: &mut dyn Read) -> Result<u64> {
        self.check_may_change()?;
        self.touch(table)?;
        let mark = self.writes.redo.mark();
        let done = self.write_value(table, key, reader).and_then(|value| {
            match self.change(table, key, Intent::PutLarge(&value.reference)) {
                Ok(_) => {
                    let len = value.reference.len;
                    self.writes.values.push(value);
                    Ok(len)
                }
                Err(error) => {
                    self.system.large_values.discard(Descriptors::slot(self.id), &value);
                    Err(error)
                }
            }
        });
        done.inspect_err(|_| self.writes.redo.truncate(mark))
    }

    /// Writes the pages and the redo of a value.
    fn write_value(
        &mut self,
        table: &Arc<TableState>,
        key: &[u8],
        reader: &mut dyn Read,
    ) -> Result<OwnValue> {
        let shard = Descriptors::slot(self.id);
        let owner = self.system.versions.create_owner(shard, self.own)?;
        let (system, values) = (self.system.clone(), self.system.large_values.clone());
        let writer = LargeWriter::new(table.tree.pool().clone(), owner.word())
            .with_make_room(Box::new(move |error, attempts| Waits::await_page(&system, error, attempts)))
            .with_release(Box::new(move |guard| values.free_page(owner.word(), guard)));
        match self.write_pieces(table, key, reader, writer) {
            Ok(reference) => Ok(OwnValue { owner, reference }),
            Err(error) => {
                self.system.large_values.end_owner(shard, owner);
                Err(error)
            }
        }
    }

    fn write_pieces(
        &mut self,
        table: &Arc<TableState>,
        key: &[u8],
        reader: &mut dyn Read,
        mut writer: LargeWriter,
    ) -> Result<LargeReference> {
        // The leaf is not known yet, and any log is right for the first change of a row.
        self.writes.redo_of_leaf(&self.system, table.tree.root());
        let mut operation = self.writes.redo.begin_large(table.id, key);
        let mut piece = vec![0; PIECE_BYTES.min(self.system.limits.chunk_bytes / 2)];
        loop {
            let count = match reader.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(reader_failed(error)),
            };
            if !self.writes.has_room(&self.system, count) {
                self.writes.redo.end_large_part(operation);
                self.make_room(count)?;
                operation = self.writes.redo.begin_large(table.id, key);
            }
            writer.write(&piece[..count])?;
            self.writes.redo.large_piece(&piece[..count]);
        }
        self.writes.redo.end_large();
        writer.finish()
    }
}

/// The caller's reader failed, which is no failure of the database.
fn reader_failed(error: std::io::Error) -> Error {
    Error::io("the reader of a value failed; the row was not changed", error)
        .with_kind(ErrorKind::Io)
        .with_advice("look at what the value is read from")
}
