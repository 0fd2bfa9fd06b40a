//! Writing large values: into overflow pages and the redo, piece by piece, before the entry refers to them. Of the redo little is in
//! memory: it goes to the log in chunks.
//!
//! The pages of a value carry the handle of its *owner*: a version of its own, without an entry, that the transaction stamps
//! like its other versions. So a checkpoint knows of each page by itself whether the value was there at its CSN, and what
//! has been written of a value that is not finished is in no checkpoint. Its pages may leave memory all the same (`unfinished`).
//!
//! 1. Pages that go are freed first, and their owner is marked ABORTED second: a checkpoint that holds a page never waits
//!    for a transaction that waits for the page.
//! 2. A value that could not be written or whose row could not be changed leaves nothing behind: no pages, no redo, no
//!    change. The transaction can go on.

use super::active::{ActiveTransaction, Isolation};
use super::catalog::TableState;
use super::descriptor::{DescriptorId, Descriptors, Stamp};
use super::snapshot::ReadSnapshot;
use super::system::TransactionSystem;
use super::versions::{Before, Undo, VersionHandle};
use super::view::View;
use crate::base::{Csn, Error, ErrorKind, Result};
use crate::buffer::ExclusiveGuard;
use crate::sync::epoch::pin;
use crate::tree::overflow::{self, LargeSubtree};
use crate::tree::{Held, LargeReader, LargeReference, LargeWriter};
use std::io::Read;
use std::sync::Arc;

/// A large value that this transaction wrote.
#[derive(Debug)]
pub(super) struct OwnValue {
    pub owner: VersionHandle,
    pub reference: LargeReference,
}

/// A large value that a change of this transaction took the entry's reference from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replaced {
    /// Index of the change.
    pub change: usize,
    /// CSN of the replaced value, 0 if that is not known.
    pub birth: Csn,
    pub reference: LargeReference,
}

/// How much is read from a caller's reader at a time.
const PIECE_BYTES: usize = 64 << 10;

impl ActiveTransaction {
    /// Sets `key` to everything that `reader` gives, and returns how many bytes that was. Only a few pages of it are in
    /// memory twice at a time.
    ///
    /// # Errors
    /// As [`ActiveTransaction::insert`], and those of `reader`. Nothing was changed then, and the transaction can go on.
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

    /// [`ActiveTransaction::insert_from`] for a value that is known to be longer than an entry can be.
    pub(super) fn insert_large(
        &mut self,
        table: &Arc<TableState>,
        key: &[u8],
        reader: &mut dyn Read,
    ) -> Result<u64> {
        self.check_unbroken()?;
        self.touch(table)?;
        let mark = self.scratch.redo.mark();
        let done = self.write_value(table, key, reader).and_then(|value| {
            match self.change_to_large(table, key, &value.reference) {
                Ok(()) => {
                    let len = value.reference.len;
                    self.scratch.values.push(value);
                    Ok(len)
                }
                Err(error) => {
                    self.give_up(table, value);
                    Err(error)
                }
            }
        });
        done.inspect_err(|_| self.scratch.redo.truncate(mark))
    }

    /// Writes the pages and the redo of a value.
    fn write_value(
        &mut self,
        table: &Arc<TableState>,
        key: &[u8],
        reader: &mut dyn Read,
    ) -> Result<OwnValue> {
        let owner = self.create_owner()?;
        let (system, relieved) = (self.system.clone(), self.system.clone());
        let writer = LargeWriter::new(table.tree.pool().clone(), owner.word())
            .relieved_by(Box::new(move || {
                relieved.relieve();
            }))
            .released_by(Box::new(move |guard| system.free_unfinished(owner.word(), guard)));
        match self.write_pieces(table, key, reader, writer) {
            Ok(reference) => Ok(OwnValue { owner, reference }),
            Err(error) => {
                self.end_owner(owner);
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
        // The leaf is not known yet; any log will do for a row.
        self.redo_of_leaf(table.tree.root());
        let mut operation = self.scratch.redo.begin_large(table.id, key);
        let mut piece = vec![0; PIECE_BYTES.min(self.system.limits.chunk_bytes / 2)];
        loop {
            let count = match reader.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(reader_failed(error)),
            };
            if !self.has_room(count) {
                self.scratch.redo.end_large_part(operation);
                self.make_room(count)?;
                operation = self.scratch.redo.begin_large(table.id, key);
            }
            writer.write(&piece[..count])?;
            self.scratch.redo.large_piece(&piece[..count]);
        }
        self.scratch.redo.end_large();
        writer.finish()
    }

    fn create_owner(&self) -> Result<VersionHandle> {
        let shard = Descriptors::slot(self.id);
        let create = || {
            let undo = Undo { prior: 0, before: Before::Absent };
            self.system.versions.create(shard, self.own, undo, &pin())
        };
        let is_full = |created: &Result<_>| matches!(created, Err(e) if e.kind() == ErrorKind::OutOfMemory);
        let created = create();
        if !is_full(&created) {
            return created;
        }
        let ended = self.system.relieve();
        let created = create();
        if is_full(&created) && self.system.relieve_after_checkpoint(ended).is_some() {
            return create();
        }
        created
    }

    /// No page refers to the owner any more (rule 1).
    fn end_owner(&self, owner: VersionHandle) {
        let versions = &self.system.versions;
        if self.system.is_unfinished(owner.word()) {
            // Checkpoints have to go on listing pages that could not be had.
            versions.set_stamp(owner, Stamp::LEFT_BEHIND);
            return;
        }
        versions.set_stamp(owner, Stamp::ABORTED);
        versions.give_back_later(Descriptors::slot(self.id), owner, &pin());
    }

    /// Frees a value of this transaction to which no entry refers.
    pub(super) fn give_up(&self, table: &TableState, value: OwnValue) {
        let owner = value.owner.word();
        let mut release = |guard: ExclusiveGuard<'_>| self.system.free_unfinished(owner, guard);
        let pool = table.tree.pool();
        let whole = LargeSubtree::whole(pool, &value.reference);
        if let Err(error) = overflow::free_by(pool, whole, &mut release) {
            // The owner stays, so that pages that could not be had are in no checkpoint.
            tracing::error!(%error, "pages of a large value that was taken back stay allocated");
            self.system.versions.set_stamp(value.owner, Stamp::LEFT_BEHIND);
            return;
        }
        self.end_owner(value.owner);
    }

    /// An entry of this transaction let go of `reference`, which the transaction itself had written.
    pub(super) fn give_up_own(&mut self, table: &TableState, reference: &LargeReference) {
        let values = &mut self.scratch.values;
        let Some(at) = values.iter().rposition(|value| value.reference == *reference) else { return };
        // Nothing before the last savepoint is overwritten in place, so the order of earlier ones stays.
        let value = values.remove(at);
        self.give_up(table, value);
    }

    /// Frees the values written since the first `keep` ones; their entries have been restored.
    pub(super) fn give_up_values(&mut self, keep: usize) {
        while self.scratch.values.len() > keep {
            let Some(value) = self.scratch.values.pop() else { return };
            // Every table of a database has the same pool.
            let Some(table) = self.scratch.tables.first().cloned() else { return };
            self.give_up(&table, value);
        }
    }
}

/// A value to be read piece by piece. It stays as it is while the transaction or snapshot lives that it was opened with, and
/// a transaction changes nothing.
#[derive(Debug)]
pub enum OpenValue {
    /// One that lies in an entry.
    Whole(Vec<u8>),
    /// One in overflow pages.
    Large(LargeReader, Option<Pinned>),
}

/// Keeps what a snapshot sees.
#[derive(Debug)]
pub struct Pinned {
    system: Arc<TransactionSystem>,
    id: DescriptorId,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.system.descriptors.release(self.id);
    }
}

impl TransactionSystem {
    fn open_value(&self, table: &TableState, key: &[u8], view: View) -> Result<(Option<OpenValue>, Csn)> {
        let mut value = Vec::new();
        let (held, csn, _) = self.read_entry(&table.tree, key, view, &mut value)?;
        let open = match held {
            Held::Nothing => None,
            Held::Value => Some(OpenValue::Whole(value)),
            Held::Reference => {
                let reference = LargeReference::decode(&value)?;
                Some(OpenValue::Large(LargeReader::new(table.tree.pool().clone(), reference), None))
            }
        };
        Ok((open, csn))
    }
}

impl ActiveTransaction {
    /// The value of `key`, to be read piece by piece.
    ///
    /// # Errors
    /// As [`ActiveTransaction::get`]; `Busy` at the limit of open transactions.
    pub fn open_value(&self, table: &Arc<TableState>, key: &[u8]) -> Result<Option<OpenValue>> {
        self.system.check_key(table, key)?;
        self.touch(table)?;
        let view = self.view();
        let (mut open, csn) = self.system.open_value(table, key, view)?;
        self.depend_on(csn);
        if let (Some(OpenValue::Large(_, pin)), Isolation::ReadCommitted) = (&mut open, self.isolation) {
            // The transaction's own pin moves on with its next statement.
            let id = self.system.descriptors.take_pinned_like(self.id)?;
            *pin = Some(Pinned { system: self.system.clone(), id });
        }
        Ok(open)
    }
}

impl ReadSnapshot {
    /// The value of `key`, to be read piece by piece.
    ///
    /// # Errors
    /// As [`ReadSnapshot::get`].
    pub fn open_value(&self, table: &Arc<TableState>, key: &[u8]) -> Result<Option<OpenValue>> {
        self.system.check_key(table, key)?;
        self.touch(table)?;
        let (open, csn) = self.system.open_value(table, key, self.view())?;
        self.wait_committed(csn)?;
        Ok(open)
    }
}

/// What the reader did not find, or has no space for, is nothing of ours.
fn reader_failed(error: std::io::Error) -> Error {
    Error::io("the reader of a value failed; the row was not changed", error).with_kind(ErrorKind::Io)
}
