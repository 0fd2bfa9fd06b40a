//! The redo of an uncommitted transaction, encoded while the transaction runs.
//!
//! Offsets count from the transaction's first byte of redo, also after parts of it have been
//! written as chunks:
//!
//! ```text
//!   0 ───────────── base ─────────── end        below `base`: in chunks; the buffer has the rest
//! ```
//!
//! Rolling back to an offset below `base` lowers it: the next part then begins there, and makes
//! void what chunks have from there on.

use super::divide::{Fragments, Run};
use super::part::{PART_BYTES, Part, RecordKind};
use super::record::{
    CREATE_TABLE, DELETE, DROP_TABLE, LARGE_PART, PATCH, PUT, PUT_LARGE, RENAME_TABLE, SET_TYPES,
};
use crate::base::checksum::crc;
use crate::base::encoding::{put_bytes, put_varint};
use crate::base::{Csn, LogId, Result, TableId, TableTypes};

/// A transaction's operations, encoded as it makes them.
#[derive(Clone, Debug, Default)]
pub struct RedoBuffer {
    /// Behind the place for a [`Part`] if there have been chunks.
    body: Vec<u8>,
    /// Bytes of that place: 0 until there is a chunk.
    prefix: usize,
    /// Offset in the redo of the body's first operation.
    base: u64,
    /// Operations in the body.
    op_count: u32,
    /// The chunks: the CSN of the first, and how many.
    chunks: Option<(Csn, u32)>,
    /// Predecessors listed behind the operations: nothing may be added any more.
    listed: u8,
    /// Which operations of the body belong to which log, where that is by page.
    runs: Vec<Run>,
    /// A row may have several operations.
    rows_again: bool,
}

/// A position in a [`RedoBuffer`].
#[derive(Clone, Copy, Debug)]
pub struct RedoMark {
    at: u64,
    op_count: u32,
    /// Number of chunks so far.
    chunks: u32,
}

impl RedoBuffer {
    fn begin(&mut self, kind: u8, table: TableId) {
        debug_assert_eq!(self.listed, 0, "nothing is added behind the listed predecessors");
        self.op_count += 1;
        self.body.push(kind);
        put_varint(&mut self.body, table.0.into());
    }

    /// The row has this value now.
    pub fn put(&mut self, table: TableId, key: &[u8], value: &[u8]) {
        self.begin(PUT, table);
        put_bytes(&mut self.body, key);
        put_bytes(&mut self.body, value);
    }

    /// The row has a value that follows in pieces. Returns where the operation begins, for
    /// [`RedoBuffer::end_large_part`].
    pub fn begin_large(&mut self, table: TableId, key: &[u8]) -> usize {
        let at = self.body.len();
        self.begin(PUT_LARGE, table);
        put_bytes(&mut self.body, key);
        at
    }

    /// More bytes of the value that was begun.
    pub fn large_piece(&mut self, piece: &[u8]) {
        if !piece.is_empty() {
            put_bytes(&mut self.body, piece);
        }
    }

    /// The value that was begun is complete.
    pub fn end_large(&mut self) {
        put_varint(&mut self.body, 0);
    }

    /// The value that was begun at `at` continues with the next operation, which must be
    /// [`RedoBuffer::begin_large`] of the same row.
    pub fn end_large_part(&mut self, at: usize) {
        debug_assert_eq!(self.body[at], PUT_LARGE, "the operation that was begun is a large put");
        self.body[at] = LARGE_PART;
        self.end_large();
    }

    /// These bytes of the row's value are replaced.
    pub fn patch(&mut self, table: TableId, key: &[u8], offset: usize, bytes: &[u8]) {
        self.begin(PATCH, table);
        put_bytes(&mut self.body, key);
        put_varint(&mut self.body, offset as u64);
        put_bytes(&mut self.body, bytes);
    }

    /// The row is gone.
    pub fn delete(&mut self, table: TableId, key: &[u8]) {
        self.begin(DELETE, table);
        put_bytes(&mut self.body, key);
    }

    /// A table begins.
    pub fn create_table(&mut self, table: TableId, name: &str) {
        self.begin(CREATE_TABLE, table);
        put_bytes(&mut self.body, name.as_bytes());
    }

    /// A table ends.
    pub fn drop_table(&mut self, table: TableId) {
        self.begin(DROP_TABLE, table);
    }

    /// A table gets another name.
    pub fn rename_table(&mut self, table: TableId, name: &str) {
        self.begin(RENAME_TABLE, table);
        put_bytes(&mut self.body, name.as_bytes());
    }

    /// A table gets types, or others.
    pub fn set_types(&mut self, table: TableId, types: &TableTypes) {
        self.begin(SET_TYPES, table);
        types.encode(&mut self.body);
    }

    /// The operations from here on belong to `log`, where changes are divided by page.
    #[inline]
    pub fn in_log(&mut self, log: LogId) {
        let at = self.unwritten_len();
        match self.runs.last_mut() {
            Some(run) if run.log == log => {}
            // It gave no operation.
            Some(run) if run.at == at => run.log = log,
            _ => self.runs.push(Run { at, operations: self.op_count, log }),
        }
    }

    /// A row that was changed is changed again.
    pub fn changes_again(&mut self) {
        self.rows_again = true;
    }

    /// The log of all there is, if it is one; the first one if there are several.
    #[must_use]
    pub fn first_log(&self) -> Option<LogId> {
        self.runs.first().map(|run| run.log)
    }

    /// Divides the redo by log. Returns `None` if it belongs to one log.
    ///
    /// # Errors
    /// `Corruption` if the buffer is malformed.
    #[inline]
    pub fn divide(&self) -> Result<Option<Fragments>> {
        if self.chunks.is_some() || self.runs.len() < 2 {
            return Ok(None);
        }
        let fragments = Fragments::divide(&self.body, self.op_count, &self.runs, self.rows_again)?;
        Ok(Some(fragments).filter(|fragments| fragments.len() > 1))
    }

    /// Writes the prefix of the body, if there are chunks. To be called before the commit.
    pub fn seal_part(&mut self) {
        if let Some((first, number)) = self.chunks {
            let part = Part { first, start: self.base, number };
            self.body[..PART_BYTES].copy_from_slice(&part.encode());
        }
    }

    /// Calls `write` to put the redo so far into the log as a chunk, and continues behind it. After
    /// an error nothing has changed.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn write_chunk(&mut self, write: impl FnOnce(&RedoBuffer) -> Result<Csn>) -> Result<Csn> {
        if self.chunks.is_none() {
            self.body.splice(0..0, Part::default().encode());
            self.prefix = PART_BYTES;
        }
        self.seal_part();
        let written = write(self);
        match &written {
            Ok(csn) => {
                debug_assert!(self.chunks.is_none_or(|(first, _)| first < *csn), "chunks are in one log");
                self.base += self.unwritten_len() as u64;
                self.body.truncate(PART_BYTES);
                self.runs.clear();
                self.op_count = 0;
                let (first, number) = self.chunks.unwrap_or((*csn, 0));
                self.chunks = Some((first, number + 1));
            }
            Err(_) if self.chunks.is_none() => {
                self.body.drain(..PART_BYTES);
                self.prefix = 0;
            }
            Err(_) => {}
        }
        written
    }

    /// Lists predecessors behind the operations, at most [`super::LISTED_MAX`]: the last thing
    /// before it is committed.
    pub fn list_predecessors(&mut self, csns: &[Csn]) {
        debug_assert!(self.listed == 0 && csns.len() <= super::LISTED_MAX.into());
        csns.iter().for_each(|csn| self.body.extend_from_slice(&csn.0.to_le_bytes()));
        self.listed = csns.len() as u8;
    }

    /// Returns the kind of the record that commits the redo.
    #[must_use]
    pub fn last_kind(&self) -> RecordKind {
        if self.chunks.is_some() { RecordKind::Last } else { RecordKind::Whole }
    }

    /// The encoded operations, of a part behind what says which it is.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Returns the number of operations in the body.
    #[must_use]
    pub fn op_count(&self) -> u32 {
        self.op_count
    }

    /// Checksum of the body.
    #[must_use]
    pub fn crc(&self) -> u32 {
        crc(&self.body)
    }

    /// Bytes of operations in the body.
    #[must_use]
    pub fn unwritten_len(&self) -> usize {
        self.body.len() - self.prefix
    }

    /// Bytes so far, those in chunks included.
    #[must_use]
    pub(crate) fn len(&self) -> u64 {
        self.base + self.unwritten_len() as u64
    }

    /// Bytes allocated.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.body.capacity()
    }

    /// The end of the buffer now.
    #[must_use]
    pub fn mark(&self) -> RedoMark {
        let chunks = self.chunks.map_or(0, |(_, number)| number);
        RedoMark { at: self.len(), op_count: self.op_count, chunks }
    }

    /// Forgets everything after `mark`.
    pub fn truncate(&mut self, mark: RedoMark) {
        debug_assert!(mark.at <= self.len(), "what is rolled back was made since the mark");
        debug_assert!(mark.chunks <= self.chunks.map_or(0, |(_, number)| number), "chunks stay in the log");
        let in_body = mark.at.checked_sub(self.base).map_or(0, |bytes| bytes as usize);
        self.base = self.base.min(mark.at);
        self.body.truncate(self.prefix + in_body);
        // A mark from before the last chunk counted operations that are in chunks.
        let written = self.chunks.map_or(0, |(_, number)| number);
        self.op_count = if mark.chunks == written { mark.op_count } else { 0 };
        let len = self.unwritten_len();
        self.runs.retain(|run| run.at < len);
        debug_assert!(self.runs.last().is_none_or(|run| run.operations <= self.op_count));
    }

    /// Forgets everything, chunks too.
    pub fn clear(&mut self) {
        self.body.clear();
        self.runs.clear();
        self.rows_again = false;
        (self.prefix, self.base, self.op_count, self.chunks, self.listed) = (0, 0, 0, None, 0);
    }
}

#[cfg(test)]
mod tests;
