//! Reading a segment from its beginning to its end, a piece at a time.
//!
//! If a piece cannot be read, the caller ends, or continues where [`Pieces::go_around`] says. Then
//! the piece is read sector by sector, and only unreadable sectors are skipped.

use super::segment::Segment;
use crate::base::account::Account;
use crate::base::{Error, Result};
use crate::device::{AlignedBuffer, SECTOR_BYTES};
use std::sync::Arc;

/// A stretch of a segment in memory.
pub(super) struct Pieces {
    piece_bytes: usize,
    /// The account that pays for the buffer.
    account: Option<Arc<Account>>,
    buffer: Option<AlignedBuffer>,
    /// Offset of the buffer's first byte in the segment.
    base: usize,
    /// Bytes of the buffer that were read.
    filled: usize,
    /// Sectors up to here are read one by one.
    careful_until: usize,
    /// The unreadable sectors up to here have been reported.
    reported_until: Option<usize>,
}

impl Pieces {
    pub(super) fn new(piece_bytes: usize, account: Option<Arc<Account>>) -> Pieces {
        let piece_bytes = piece_bytes.next_multiple_of(SECTOR_BYTES);
        let (base, filled, careful_until, reported_until) = (0, 0, 0, None);
        Pieces { piece_bytes, account, buffer: None, base, filled, careful_until, reported_until }
    }

    /// Room for all of a segment of `whole` bytes.
    pub(super) fn for_all(whole: usize, piece_bytes: usize) -> Pieces {
        let buffer = (whole > 0).then(|| AlignedBuffer::zeroed(whole));
        Pieces { buffer, ..Pieces::new(piece_bytes, None) }
    }

    /// The buffer, if there is one.
    pub(super) fn into_buffer(self) -> Option<AlignedBuffer> {
        self.buffer
    }

    /// Begins another segment.
    pub(super) fn begin(&mut self) {
        (self.base, self.filled, self.careful_until, self.reported_until) = (0, 0, 0, None);
    }

    /// The `len` bytes at `offset`, and what was read behind them. Offsets never fall; what is
    /// before one is forgotten, unless the buffer has the room for all of the segment. All numbers
    /// are whole sectors, inside `whole`.
    pub(super) fn need(
        &mut self,
        segment: &Segment,
        offset: usize,
        len: usize,
        whole: usize,
    ) -> Result<&[u8]> {
        if offset + len > self.base + self.filled {
            self.fill(segment, offset, len, whole)?;
        }
        let buffer = self.buffer.as_deref().unwrap_or_default();
        Ok(&buffer[offset - self.base..self.filled])
    }

    fn fill(&mut self, segment: &Segment, offset: usize, len: usize, whole: usize) -> Result<()> {
        let room = self.buffer.as_ref().map_or(0, |buffer| buffer.len());
        let piece = if offset < self.careful_until { SECTOR_BYTES } else { self.piece_bytes };
        if self.base + room < whole {
            let passed = (offset - self.base).min(self.filled);
            let least = len.max(piece.min(whole - offset));
            if room < least {
                let mut buffer = self.zeroed(least);
                if let Some(old) = &self.buffer {
                    buffer[..self.filled - passed].copy_from_slice(&old[passed..self.filled]);
                }
                self.buffer = Some(buffer);
            } else if let Some(buffer) = &mut self.buffer {
                buffer.copy_within(passed..self.filled, 0);
            }
            (self.base, self.filled) = (offset, self.filled - passed);
        }
        let Some(buffer) = &mut self.buffer else { return Ok(()) };
        let end = (offset - self.base + len).max(self.filled + piece);
        let end = end.min(buffer.len()).min(whole - self.base);
        segment.file.read_at((self.base + self.filled) as u64, &mut buffer[self.filled..end])?;
        self.filled = end;
        Ok(())
    }

    fn zeroed(&self, len: usize) -> AlignedBuffer {
        match &self.account {
            Some(account) => AlignedBuffer::charged(len, account),
            None => AlignedBuffer::zeroed(len),
        }
    }

    /// Returns where to continue after the `len` bytes at `offset` could not be read: there again,
    /// or at the next sector. Calls `report` once for each place. Forgets the buffered bytes.
    pub(super) fn go_around(
        &mut self,
        offset: usize,
        len: usize,
        error: Error,
        report: &mut dyn FnMut(Error),
    ) -> usize {
        let tried_alone = offset < self.careful_until;
        self.careful_until = self.careful_until.max(offset + len.max(self.piece_bytes));
        let next = if tried_alone { offset + SECTOR_BYTES } else { offset };
        (self.base, self.filled) = (next, 0);
        if tried_alone {
            if self.reported_until.is_none_or(|until| offset > until) {
                report(error);
            }
            self.reported_until = self.reported_until.max(Some(offset + len));
        }
        next
    }
}
