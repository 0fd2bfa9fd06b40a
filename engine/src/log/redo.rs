//! The redo of a transaction that is not committed, encoded as the transaction goes on.
//!
//! Offsets count from the transaction's first byte of redo, also after parts of it have been written as chunks:
//!
//! ```text
//!   0 ───────────── base ─────────── end        below `base`: in chunks; the buffer has the rest
//! ```
//!
//! Rolling back to an offset below `base` lowers it: the next part then begins there, and makes void what chunks have from there on.

use super::fragment::{Fragments, Run};
use super::part::{PART_BYTES, Part, RecordKind};
use super::record::{CREATE_TABLE, DELETE, DROP_TABLE, LARGE_PART, PATCH, PUT, PUT_LARGE};
use crate::base::checksum::crc;
use crate::base::encoding::{put_bytes, put_varint};
use crate::base::{Csn, LogId, Result, TableId};

/// A transaction's operations, encoded as it makes them.
#[derive(Clone, Debug, Default)]
pub struct RedoBuffer {
    /// Behind the place for a [`Part`] if there have been chunks.
    body: Vec<u8>,
    /// Bytes of that place: 0 until there is a chunk.
    prefix: usize,
    /// Where in the redo the body's first operation is.
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
    /// How many chunks there were.
    chunks: u32,
}

impl RedoBuffer {
    fn begin(&mut self, kind: u8, table: TableId) {
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

    /// The row has a value that follows in pieces. Returns where the operation begins, for [`RedoBuffer::end_large_part`].
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

    /// The value that was begun at `at` goes on with the next operation, which is to be [`RedoBuffer::begin_large`] of the same row.
    pub fn end_large_part(&mut self, at: usize) {
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

    /// The operations from here on belong to `log`, where changes are divided by page.
    #[inline]
    pub fn in_log(&mut self, log: LogId) {
        let at = self.unwritten_len();
        match self.runs.last_mut() {
            Some(run) if run.log == log => {}
            // No operation came of it.
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

    /// What there is by log, if it belongs to several.
    ///
    /// # Errors
    /// `Corruption` if the buffer is malformed.
    pub fn divide(&self) -> Result<Option<Fragments>> {
        if self.chunks.is_some() || self.runs.len() < 2 {
            return Ok(None);
        }
        let fragments = Fragments::divide(&self.body, self.op_count, &self.runs, self.rows_again)?;
        Ok(Some(fragments).filter(|fragments| fragments.len() > 1))
    }

    /// What the body begins with, if there are chunks: to be called before it is committed.
    pub fn seal_part(&mut self) {
        if let Some((first, number)) = self.chunks {
            let part = Part { first, start: self.base, number };
            self.body[..PART_BYTES].copy_from_slice(&part.encode());
        }
    }

    /// Has `write` put what is there into the log as a chunk, and goes on behind it. After an error nothing has changed.
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

    /// Lists predecessors behind the operations, at most [`super::LISTED_MAX`]: the last thing before it is committed.
    pub fn list_predecessors(&mut self, csns: &[Csn]) {
        debug_assert!(self.listed == 0 && csns.len() <= super::LISTED_MAX.into());
        csns.iter().for_each(|csn| self.body.extend_from_slice(&csn.0.to_le_bytes()));
        self.listed = csns.len() as u8;
    }

    /// How many predecessors are listed.
    #[must_use]
    pub fn listed(&self) -> u8 {
        self.listed
    }

    /// What the record is that commits what there is.
    #[must_use]
    pub fn last_kind(&self) -> RecordKind {
        if self.chunks.is_some() { RecordKind::Last } else { RecordKind::Whole }
    }

    /// The encoded operations, of a part behind what says which it is.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// How many operations are in the body.
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
    pub fn len(&self) -> u64 {
        self.base + self.unwritten_len() as u64
    }

    /// True without operations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes allocated.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.body.capacity()
    }

    /// Where the buffer ends now.
    #[must_use]
    pub fn mark(&self) -> RedoMark {
        let chunks = self.chunks.map_or(0, |(_, number)| number);
        RedoMark { at: self.len(), op_count: self.op_count, chunks }
    }

    /// Forgets everything after `mark`.
    pub fn truncate(&mut self, mark: RedoMark) {
        let in_body = mark.at.checked_sub(self.base).map_or(0, |bytes| bytes as usize);
        self.base = self.base.min(mark.at);
        self.body.truncate(self.prefix + in_body);
        // A mark from before the last chunk counted operations that are in chunks.
        let written = self.chunks.map_or(0, |(_, number)| number);
        self.op_count = if mark.chunks == written { mark.op_count } else { 0 };
        let len = self.unwritten_len();
        self.runs.retain(|run| run.at < len);
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
mod tests {
    use super::super::record::{Operation, Record, RecordHeader};
    use super::*;
    use crate::base::{Epoch, Error};

    const TABLE: TableId = TableId(3);

    fn record(redo: &RedoBuffer, kind: RecordKind, csn: u64) -> Vec<u8> {
        let header = RecordHeader {
            epoch: Epoch(1),
            csn: Csn(csn),
            body_crc: redo.crc(),
            op_count: redo.op_count(),
            kind,
            ..RecordHeader::default()
        };
        let mut bytes = header.encode(redo.body().len()).to_vec();
        bytes.extend_from_slice(redo.body());
        bytes.resize(super::super::record_bytes(redo.body().len()), 0);
        bytes
    }

    fn keys(record: &Record<'_>) -> Vec<Vec<u8>> {
        let operations = record.operations().map(|operation| operation.expect("whole"));
        let keys = operations.map(|operation| match operation {
            Operation::Put { key, .. }
            | Operation::PutLarge { key, .. }
            | Operation::LargePart { key, .. } => key.to_vec(),
            other => panic!("{other:?}"),
        });
        keys.collect()
    }

    /// Writes a chunk and returns the record.
    fn chunk(redo: &mut RedoBuffer, csn: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let written = redo.write_chunk(|redo| {
            bytes = record(redo, RecordKind::Chunk, csn);
            Ok(Csn(csn))
        });
        written.expect("room");
        bytes
    }

    #[test]
    fn parts_say_where_they_begin_and_a_rollback_lowers_that() {
        let mut redo = RedoBuffer::default();
        redo.put(TABLE, b"a", &[1; 50]);
        let early = redo.mark();
        redo.put(TABLE, b"b", &[2; 50]);
        assert_eq!(redo.op_count(), 2);
        let first = chunk(&mut redo, 7);
        redo.put(TABLE, b"c", &[3; 50]);
        let second = chunk(&mut redo, 9);
        redo.put(TABLE, b"d", &[4; 50]);
        redo.truncate(early);
        assert_eq!((redo.unwritten_len(), redo.op_count()), (0, 0));
        redo.put(TABLE, b"e", b"5");
        redo.seal_part();
        assert_eq!((redo.last_kind(), redo.op_count()), (RecordKind::Last, 1));
        let last = record(&redo, RecordKind::Last, 12);
        let records = [&first, &second, &last].map(|bytes| Record::decode(bytes).expect("whole"));
        let parts = records.map(|record| record.part.expect("a part"));
        let put = records[0].body.len() as u64 / 2;
        assert_eq!(parts[0], Part { first: Csn::ZERO, start: 0, number: 0 });
        assert_eq!(parts[1], Part { first: Csn(7), start: 2 * put, number: 1 });
        assert_eq!(parts[2], Part { first: Csn(7), start: put, number: 2 });
        assert_eq!(
            records.map(|record| keys(&record).concat()),
            [b"ab".to_vec(), b"c".to_vec(), b"e".to_vec()]
        );
    }

    #[test]
    fn a_chunk_that_cannot_be_written_leaves_everything_as_it_was() {
        let mut redo = RedoBuffer::default();
        redo.put(TABLE, b"a", b"1");
        let before = redo.body().to_vec();
        redo.write_chunk(|_| Err(Error::invalid("no"))).expect_err("refused");
        assert_eq!((redo.body(), redo.last_kind()), (&before[..], RecordKind::Whole));
        chunk(&mut redo, 1);
        redo.put(TABLE, b"b", b"2");
        let before = (redo.len(), redo.unwritten_len());
        redo.write_chunk(|_| Err(Error::invalid("no"))).expect_err("refused");
        assert_eq!((redo.len(), redo.unwritten_len(), redo.op_count()), (before.0, before.1, 1));
        redo.clear();
        assert_eq!((redo.len(), redo.last_kind(), redo.body()), (0, RecordKind::Whole, &[][..]));
    }

    #[test]
    fn a_large_value_goes_on_in_the_next_part() {
        let mut redo = RedoBuffer::default();
        redo.put(TABLE, b"a", b"1");
        let at = redo.begin_large(TABLE, b"k");
        redo.large_piece(b"one");
        redo.end_large_part(at);
        let first = chunk(&mut redo, 4);
        redo.begin_large(TABLE, b"k");
        redo.large_piece(b"two");
        redo.end_large();
        redo.seal_part();
        let last = record(&redo, RecordKind::Last, 5);
        let first = Record::decode(&first).expect("whole");
        let operations: Vec<_> = first.operations().map(|operation| operation.expect("whole")).collect();
        assert!(matches!(operations[1], Operation::LargePart { pieces, .. } if pieces.len() == 3));
        assert_eq!(keys(&Record::decode(&last).expect("whole")), [b"k"]);
    }

    #[test]
    fn damaged_parts_are_refused() {
        let mut redo = RedoBuffer::default();
        redo.put(TABLE, b"a", b"1");
        let good = chunk(&mut redo, 4);
        assert!(Record::decode(&good).is_ok());
        // A last part or whole record may not have the body of a first chunk, and an unknown kind is told apart.
        let refused = |kind: RecordKind, part: Part, csn: u64| {
            let mut redo = RedoBuffer { prefix: PART_BYTES, ..RedoBuffer::default() };
            redo.body.extend_from_slice(&part.encode());
            Record::decode(&record(&redo, kind, csn)).is_err()
        };
        assert!(refused(RecordKind::Last, Part::default(), 4));
        assert!(refused(RecordKind::Chunk, Part { start: 1, ..Part::default() }, 4));
        assert!(refused(RecordKind::Last, Part { first: Csn(4), start: 0, number: 1 }, 4));
        assert!(!refused(RecordKind::Last, Part { first: Csn(3), start: 0, number: 1 }, 4));
        let mut unknown = good.clone();
        unknown[21] = 9;
        let crc = crate::base::checksum::crc(&unknown[4..56]);
        unknown[..4].copy_from_slice(&crc.to_le_bytes());
        let error = Record::decode(&unknown).expect_err("unknown");
        assert_eq!(error.kind(), crate::base::ErrorKind::Unsupported);
        let short = RecordHeader { csn: Csn(4), kind: RecordKind::Last, ..RecordHeader::default() };
        assert!(Record::decode(&short.encode(0)).is_err());
    }
}
