//! Follows a log while it is written: finds each block once, soon after it is durable.
//!
//! ```text
//!   segment   [ A ][ B ][ C ][ in flight ][ E ]......  old blocks of an earlier use ....
//!                       ▲ cursor                     ▲ end: no block has a place behind it
//!             found and final │ looked at again: C and E are known, D appears when it is written
//! ```
//!
//! 1. Bytes behind `end` of a segment are never looked at. What stands there was written in an
//!    earlier use of the segment.
//! 2. Between cursor and `end` blocks may be in flight, so there may also be old blocks. An old
//!    block has only CSNs up to the reader's position: a segment is not recycled before each reader
//!    has read it.
//! 3. The cursor moves to an `end` once everything that was drawn when `end` was looked at is
//!    durable. Then each block below it is written, because a block gets its place after its
//!    records drew their CSNs.
//! 4. A segment that was taken again has other content: its number of uses says so.

use super::block::{BLOCK_HEADER_BYTES, BlockHeader};
use super::pieces::Pieces;
use super::record::RecordFacts;
use super::scanned::{LoadedBlock, ScannedBlock, Source};
use super::segment::{Readable, Segment};
use crate::base::{Csn, DatabaseId, Epoch, Error, ErrorKind, LogId, Result, SegmentId};
use crate::device::{AlignedBuffer, SECTOR_BYTES};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 256 << 10;

/// A segment, and the number of its part.
type Place = (SegmentId, usize);

/// No two blocks of a database have the same.
pub(super) type BlockName = (Epoch, LogId, u64);

/// How far a segment was read.
#[derive(Debug)]
struct Cursor {
    uses: u64,
    /// Below it each block is known.
    offset: u64,
    /// Known blocks at or behind the offset. A new block may overwrite an old one that is known.
    known: BTreeMap<u64, BlockName>,
    source: Arc<Source>,
}

/// The ends of segments at a moment.
#[derive(Debug)]
struct Mark {
    /// The newest CSN that was drawn then.
    newest: Csn,
    ends: Vec<(Place, u64, u64)>,
}

/// The segments of a log at a moment. Its parts were looked at in the order of the fields.
#[derive(Debug)]
pub struct LogView {
    /// Every CSN strictly below is durable in a segment.
    pub durable: Csn,
    /// All segments that a reader may need.
    pub segments: Vec<Readable>,
    /// The newest CSN that was drawn.
    pub newest: Csn,
}

/// A reader of a log that is written meanwhile.
#[derive(Debug)]
pub struct Follower {
    database: DatabaseId,
    cursors: HashMap<Place, Cursor>,
    mark: Option<Mark>,
    /// What was found before an error. Each block is found once.
    unreturned: Vec<FollowedBlock>,
}

/// A block that was found.
#[derive(Debug)]
pub struct FollowedBlock {
    /// The block.
    pub block: ScannedBlock,
    /// The block with its bytes, if they were kept.
    pub loaded: Option<LoadedBlock>,
}

impl Follower {
    /// A reader that knows no block.
    #[must_use]
    pub fn new(database: DatabaseId) -> Follower {
        Follower { database, cursors: HashMap::new(), mark: None, unreturned: Vec::new() }
    }

    /// Returns blocks with records above `position`, and those with chunks if `with_chunks`, that
    /// were not returned before, in any order. All blocks below `view.durable` are known
    /// afterwards. Keeps the bytes of some, at most `keep_bytes`.
    ///
    /// # Errors
    /// I/O, with the place. The next call returns what this one had found before.
    pub fn find(
        &mut self,
        view: LogView,
        position: Csn,
        with_chunks: bool,
        keep_bytes: usize,
    ) -> Result<Vec<FollowedBlock>> {
        let found = std::mem::take(&mut self.unreturned);
        let mut search = Search { database: self.database, position, with_chunks, keep_bytes, found };
        if let Err(error) = self.read(&view, &mut search) {
            self.unreturned = search.into_unreturned();
            return Err(error);
        }
        self.move_to_mark(view.durable);
        self.mark.get_or_insert_with(|| {
            let growing = view.segments.iter().filter(|readable| !readable.is_whole);
            let ends = growing.map(|readable| (place_of(readable), readable.segment.uses, readable.end));
            Mark { newest: view.newest, ends: ends.collect() }
        });
        Ok(search.found)
    }

    fn read(&mut self, view: &LogView, search: &mut Search) -> Result<()> {
        self.cursors.retain(|place, _| view.segments.iter().any(|readable| place_of(readable) == *place));
        for readable in &view.segments {
            let cursor = self.cursors.entry(place_of(readable)).or_insert_with(|| Cursor::new(readable));
            if cursor.uses != readable.segment.uses {
                *cursor = Cursor::new(readable);
            }
            match cursor.read(readable, search) {
                // Removed since it was listed, because no reader needs it.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                read => read?,
            }
            if readable.is_whole {
                cursor.move_to(readable.end);
            }
        }
        Ok(())
    }

    /// Rule 3.
    fn move_to_mark(&mut self, durable: Csn) {
        let Some(mark) = self.mark.take_if(|mark| durable > mark.newest) else { return };
        for (place, uses, end) in mark.ends {
            if let Some(cursor) = self.cursors.get_mut(&place).filter(|cursor| cursor.uses == uses) {
                cursor.move_to(end);
            }
        }
    }
}

fn place_of(readable: &Readable) -> Place {
    (readable.segment.id, readable.part)
}

impl Cursor {
    fn new(readable: &Readable) -> Cursor {
        let source = Arc::new(Source { segment: readable.segment.clone(), kept: None });
        Cursor { uses: readable.segment.uses, offset: 0, known: BTreeMap::new(), source }
    }

    fn move_to(&mut self, offset: u64) {
        if offset > self.offset {
            self.offset = offset;
            self.known = self.known.split_off(&offset);
        }
    }

    /// Looks at what is between the cursor and the end.
    fn read(&mut self, readable: &Readable, search: &mut Search) -> Result<()> {
        let end = usize::try_from(readable.end).map_err(|_| Error::corruption("a segment is too long"))?;
        let (segment, whole) = (&readable.segment, end - end % SECTOR_BYTES);
        let mut offset = self.offset as usize;
        let mut pieces = Pieces::new(PIECE_BYTES, None);
        pieces.begin_at(offset);
        if self.source.segment.len < readable.segment.len {
            // A part that has grown.
            self.source = Arc::new(Source { segment: readable.segment.clone(), kept: None });
        }
        while offset < whole {
            let Some(header) = block_at(&mut pieces, segment, offset, whole, search.database)? else {
                offset += SECTOR_BYTES;
                continue;
            };
            let len = header.device_bytes();
            let bytes = &pieces.need(segment, offset, len, whole)?[..len];
            let name = (header.epoch, header.log, header.sequence);
            if search.wants(&header, bytes) && self.known.insert(offset as u64, name) != Some(name) {
                let (source, watermark, offset) = (self.source.clone(), Csn::ZERO, offset as u64);
                search.note(ScannedBlock { header, watermark, source, offset }, bytes);
            }
            offset += len;
        }
        Ok(())
    }
}

/// What is looked for, and what was found.
pub(super) struct Search {
    pub(super) database: DatabaseId,
    pub(super) position: Csn,
    pub(super) with_chunks: bool,
    pub(super) keep_bytes: usize,
    pub(super) found: Vec<FollowedBlock>,
}

impl Search {
    pub(super) fn wants(&self, header: &BlockHeader, bytes: &[u8]) -> bool {
        let payload = || header.payload_in(bytes).unwrap_or_default();
        header.last_csn > self.position || self.with_chunks && has_chunk(payload())
    }

    /// Returns what was found, to be returned after an error. The bytes are read again then.
    pub(super) fn into_unreturned(self) -> Vec<FollowedBlock> {
        self.found.into_iter().map(|found| FollowedBlock { loaded: None, ..found }).collect()
    }

    /// As [`Search::note`], with the highest watermark in the records.
    pub(super) fn note_with_watermark(
        &mut self,
        header: BlockHeader,
        source: &Arc<Source>,
        offset: u64,
        bytes: &[u8],
    ) {
        let watermark = watermark_of(header.payload_in(bytes).unwrap_or_default());
        self.note(ScannedBlock { header, watermark, source: source.clone(), offset }, bytes);
    }

    fn note(&mut self, block: ScannedBlock, bytes: &[u8]) {
        let loaded = self.keep_bytes.checked_sub(bytes.len()).map(|left| {
            self.keep_bytes = left;
            let mut copy = AlignedBuffer::zeroed(bytes.len());
            copy.copy_from_slice(bytes);
            LoadedBlock::new(block.clone(), Arc::new(copy), BLOCK_HEADER_BYTES)
        });
        self.found.push(FollowedBlock { block, loaded });
    }
}

/// Returns the highest watermark in the records of a block's payload that can be true.
fn watermark_of(payload: &[u8]) -> Csn {
    let (mut rest, mut highest) = (payload, Csn::ZERO);
    while let Some(facts) = RecordFacts::of(rest) {
        if facts.watermark <= facts.csn && facts.csn < Csn::LIMIT {
            highest = highest.max(facts.watermark);
        }
        rest = &rest[facts.len..];
    }
    highest
}

/// Returns whether one of the records in a block's payload is a chunk.
fn has_chunk(payload: &[u8]) -> bool {
    let mut rest = payload;
    while let Some(facts) = RecordFacts::of(rest) {
        if facts.is_chunk(rest) {
            return true;
        }
        rest = &rest[facts.len..];
    }
    false
}

/// Returns the header of the whole block at `offset`, if there is one.
pub(super) fn block_at(
    pieces: &mut Pieces,
    segment: &Segment,
    offset: usize,
    whole: usize,
    database: DatabaseId,
) -> Result<Option<BlockHeader>> {
    let head = pieces.need(segment, offset, SECTOR_BYTES, whole)?;
    let header = match BlockHeader::decode_head(head, database) {
        Ok(header) if header.device_bytes() <= whole - offset => header,
        _ => return Ok(None),
    };
    let bytes = pieces.need(segment, offset, header.device_bytes(), whole)?;
    Ok(header.payload_in(bytes).map(|_| header))
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
