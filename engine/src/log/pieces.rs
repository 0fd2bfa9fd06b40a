//! Reading a segment from its beginning to its end, a piece at a time.
//!
//! While a piece is looked at, the next one is read, where the storage can start a read before its
//! bytes are needed.
//!
//! If a piece cannot be read, the caller ends, or continues where [`Pieces::go_around`] says. Then
//! the piece is read sector by sector, and only unreadable sectors are skipped.

use super::segment::Segment;
use crate::base::account::{Account, Charge};
use crate::base::{Error, Result};
use crate::device::{AlignedBuffer, ReadAhead, SECTOR_BYTES};
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes of a segment whose read was started.
struct Ahead {
    /// Offset of the first byte that was not taken yet, and the end.
    from: usize,
    end: usize,
    read: Box<dyn ReadAhead>,
    _charge: Option<Charge>,
}

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
    /// What is read ahead: at most `piece_bytes` behind those that are taken next.
    ahead: VecDeque<Ahead>,
    /// Sectors up to here are read one by one.
    careful_until: usize,
    /// The unreadable sectors up to here have been reported.
    reported_until: Option<usize>,
}

impl Pieces {
    pub(super) fn new(piece_bytes: usize, account: Option<Arc<Account>>) -> Pieces {
        let piece_bytes = piece_bytes.next_multiple_of(SECTOR_BYTES);
        let (base, filled, careful_until, reported_until) = (0, 0, 0, None);
        let ahead = VecDeque::new();
        Pieces { piece_bytes, account, buffer: None, base, filled, ahead, careful_until, reported_until }
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
        self.ahead.clear();
        (self.base, self.filled, self.careful_until, self.reported_until) = (0, 0, 0, None);
    }

    /// Begins in the middle of another segment.
    pub(super) fn begin_at(&mut self, offset: usize) {
        self.begin();
        self.base = offset;
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
        debug_assert!(offset >= self.base, "offsets never fall");
        debug_assert!(offset.is_multiple_of(SECTOR_BYTES) && len.is_multiple_of(SECTOR_BYTES));
        debug_assert!(offset + len <= whole, "nothing behind the whole sectors is read");
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
        let Some(buffer) = &self.buffer else { return Ok(()) };
        let end = (offset - self.base + len).max(self.filled + piece);
        let end = end.min(buffer.len()).min(whole - self.base);
        let from = self.base + self.filled;
        if self.base + end >= self.careful_until {
            self.read_ahead(segment, self.base + end, whole);
        }
        let Some(buffer) = &mut self.buffer else { return Ok(()) };
        read(segment, &mut self.ahead, from, &mut buffer[self.filled..end])?;
        self.filled = end;
        Ok(())
    }

    /// Starts to read what follows from byte `offset` on, if the storage can.
    fn read_ahead(&mut self, segment: &Segment, offset: usize, whole: usize) {
        let from = self.ahead.back().map_or(offset, |last| last.end.max(offset));
        let end = whole.min(offset + self.piece_bytes);
        let range = from as u64..end as u64;
        if from < end
            && let Some(read) = segment.file.read_ahead(std::slice::from_ref(&range))
        {
            let charge = self.account.as_ref().map(|account| account.charge((end - from) as u64));
            self.ahead.push_back(Ahead { from, end, read, _charge: charge });
        }
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
        self.ahead.clear();
        if tried_alone {
            if self.reported_until.is_none_or(|until| offset > until) {
                report(error);
            }
            self.reported_until = self.reported_until.max(Some(offset + len));
        }
        next
    }
}

/// Fills `buffer` from byte `offset` of a segment: first with what was read ahead from there.
fn read(segment: &Segment, ahead: &mut VecDeque<Ahead>, offset: usize, buffer: &mut [u8]) -> Result<()> {
    let mut filled = 0;
    while filled < buffer.len()
        && let Some(first) = ahead.front_mut().filter(|first| first.from == offset + filled)
    {
        let end = buffer.len().min(filled + (first.end - first.from));
        let outcome = first.read.read(&mut buffer[filled..end]);
        first.from += end - filled;
        if outcome.is_err() || first.from == first.end {
            ahead.pop_front();
        }
        outcome?;
        filled = end;
    }
    if filled < buffer.len() {
        ahead.retain(|later| later.from >= offset + buffer.len());
        segment.file.read_at((offset + filled) as u64, &mut buffer[filled..])?;
    }
    Ok(())
}
