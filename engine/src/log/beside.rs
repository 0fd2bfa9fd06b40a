//! Finds blocks in segment files that another process writes.
//!
//! ```text
//!   segment   [ A ][ B ][ C ][ in flight ][ E ]  old blocks of an earlier use ....
//!                            ▲ cursor
//!             found          │ looked at again, a window long
//! ```
//!
//! 1. A whole block is one of its log, whenever it was written: whether it counts, its epoch and
//!    its CSNs say.
//! 2. The cursor passes a block only if nothing is missing before it and the block is newer than
//!    the one before it in the segment: then the present use of the segment wrote it.
//! 3. The first block of a segment is the first one that a use of the segment writes. If it is
//!    another one than before, the segment is read from its beginning.
//! 4. A look goes a window behind the last block. What lies behind a longer hole cannot count
//!    before the hole is filled, because CSNs rise within a log. Now and then a look goes to the
//!    end.

use super::block::BlockHeader;
use super::follow::{BlockName, FollowedBlock, Search, block_at};
use super::pieces::Pieces;
use super::scanned::Source;
use super::segment::Segment;
use crate::base::{Csn, DatabaseId, Epoch, Error, ErrorKind, LogId, Result, SegmentId};
use crate::device::{OpenMode, SECTOR_BYTES, Storage};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bytes behind the last block that a look reads.
const WINDOW_BYTES: usize = 64 << 10;
/// Looks without a find after which a segment is looked at only with all others.
const IDLE_LOOKS: u32 = 32;

/// What a look is for.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Blocks with records above it are wanted.
    pub position: Csn,
    /// Blocks with chunks are wanted, too.
    pub with_chunks: bool,
    /// Look at all segments, and for new ones.
    pub all: bool,
    /// Look to the end of each segment.
    pub to_the_end: bool,
    /// Bytes of blocks that may be kept.
    pub keep_bytes: usize,
}

/// How far a segment was read.
#[derive(Debug)]
struct Watched {
    source: Arc<Source>,
    /// The block at its beginning.
    first: Option<BlockName>,
    /// Below it each block is known.
    cursor: usize,
    /// The log that the segment belongs to, and its last block before the cursor.
    last: Option<(LogId, Epoch, u64)>,
    /// Known blocks at or behind the cursor.
    known: BTreeMap<u64, BlockName>,
    /// Looks since something came.
    idle: u32,
}

/// See the module's text.
#[derive(Debug)]
pub struct SegmentWatcher {
    storage: Arc<dyn Storage>,
    database: DatabaseId,
    segments: BTreeMap<SegmentId, Watched>,
    /// The newest block of each log in a segment of its own, and that segment.
    tips: BTreeMap<LogId, (Epoch, u64, SegmentId)>,
    /// What was found before an error. Each block is found once.
    unreturned: Vec<FollowedBlock>,
}

impl SegmentWatcher {
    /// Returns one that knows no segment.
    #[must_use]
    pub fn new(storage: Arc<dyn Storage>, database: DatabaseId) -> SegmentWatcher {
        let (segments, tips, unreturned) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        SegmentWatcher { storage, database, segments, tips, unreturned }
    }

    /// Returns wanted blocks that were not returned before, in any order.
    ///
    /// # Errors
    /// I/O. The next call returns what this one had found before.
    pub fn look(&mut self, look: Look) -> Result<Vec<FollowedBlock>> {
        let Look { position, with_chunks, keep_bytes, .. } = look;
        let found = std::mem::take(&mut self.unreturned);
        let mut search = Search { database: self.database, position, with_chunks, keep_bytes, found };
        let read = self.read(look, &mut search);
        self.note_tips(&search.found);
        if let Err(error) = read {
            self.unreturned = search.into_unreturned();
            return Err(error);
        }
        Ok(search.found)
    }

    fn read(&mut self, look: Look, search: &mut Search) -> Result<()> {
        let all = look.all || look.to_the_end;
        if all {
            self.list()?;
        }
        let tips: BTreeSet<SegmentId> = self.tips.values().map(|(_, _, segment)| *segment).collect();
        let is_active =
            |id: &SegmentId, watched: &Watched| all || tips.contains(id) || watched.idle < IDLE_LOOKS;
        for (_, watched) in self.segments.iter_mut().filter(|(id, watched)| is_active(id, watched)) {
            watched.look(search, look.to_the_end)?;
        }
        if search.found.is_empty() && !all {
            // The writer may have gone on to another segment.
            for (_, watched) in self.segments.iter_mut().filter(|(id, watched)| !is_active(id, watched)) {
                if watched.is_used_again(self.database)? {
                    watched.look(search, false)?;
                }
            }
        }
        Ok(())
    }

    fn note_tips(&mut self, found: &[FollowedBlock]) {
        for FollowedBlock { block, .. } in found.iter().filter(|found| found.block.carrier().is_none()) {
            let tip = self.tips.entry(block.log()).or_insert((Epoch::default(), 0, block.segment()));
            *tip = (*tip).max((block.epoch(), block.sequence(), block.segment()));
        }
    }

    /// Makes what was written to these segments durable.
    ///
    /// # Errors
    /// I/O.
    pub fn flush(&self, segments: &BTreeSet<SegmentId>) -> Result<()> {
        let flush = |id| self.segments.get(id).map_or(Ok(()), |watched| watched.source.segment.file.flush());
        segments.iter().try_for_each(flush)
    }

    fn list(&mut self) -> Result<()> {
        let listed = self.storage.segments().list()?;
        self.segments.retain(|id, _| listed.contains(id));
        let mode = OpenMode { create: false, read_only: true, direct: true };
        for id in listed {
            // Opened again each time: the number may have another file now.
            let file = match self.storage.segments().open(id, mode) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                opened => opened?,
            };
            let len = file.len()?;
            let source = Arc::new(Source { segment: Segment { id, file, len, uses: 0 }, kept: None });
            match self.segments.get_mut(&id) {
                Some(watched) => watched.source = source,
                None => drop(self.segments.insert(id, Watched::new(source))),
            }
        }
        Ok(())
    }
}

fn name_of(header: &BlockHeader) -> BlockName {
    (header.epoch, header.log, header.sequence)
}

impl Watched {
    fn new(source: Arc<Source>) -> Watched {
        Watched { source, first: None, cursor: 0, last: None, known: BTreeMap::new(), idle: 0 }
    }

    fn whole(&self) -> usize {
        let len = self.source.segment.len as usize;
        len - len % SECTOR_BYTES
    }

    /// Rule 3. A block that is being written is none yet.
    fn is_used_again(&mut self, database: DatabaseId) -> Result<bool> {
        let whole = self.whole();
        if whole < SECTOR_BYTES {
            return Ok(false);
        }
        let (mut pieces, segment) = (Pieces::new(SECTOR_BYTES, None), &self.source.segment);
        let head = pieces.need(segment, 0, SECTOR_BYTES, whole)?;
        let first = BlockHeader::decode_head(head, database).ok().as_ref().map(name_of);
        if first.is_none() || first == self.first {
            return Ok(false);
        }
        if block_at(&mut pieces, segment, 0, whole, database)?.is_none() {
            return Ok(false);
        }
        let source = self.source.clone();
        *self = Watched { first, ..Watched::new(source) };
        Ok(true)
    }

    fn look(&mut self, search: &mut Search, to_the_end: bool) -> Result<()> {
        self.is_used_again(search.database)?;
        let (whole, found, source) = (self.whole(), search.found.len(), self.source.clone());
        let mut pieces = Pieces::new(WINDOW_BYTES, None);
        let mut offset = self.cursor.min(whole);
        pieces.begin_at(offset);
        let window = if to_the_end { whole } else { WINDOW_BYTES };
        let (mut is_dense, mut end) = (true, offset + window);
        while offset < whole.min(end) {
            let Some(header) = block_at(&mut pieces, &source.segment, offset, whole, search.database)? else {
                (is_dense, offset) = (false, offset + SECTOR_BYTES);
                continue;
            };
            let len = header.device_bytes();
            let bytes = &pieces.need(&source.segment, offset, len, whole)?[..len];
            let name = name_of(&header);
            if search.wants(&header, bytes) && self.known.insert(offset as u64, name) != Some(name) {
                search.note_with_watermark(header, &source, offset as u64, bytes);
            }
            offset += len;
            is_dense = is_dense && self.pass(&header, offset);
            if is_dense {
                end = offset + window;
            }
        }
        self.idle = if search.found.len() > found { 0 } else { self.idle.saturating_add(1) };
        Ok(())
    }

    /// Rule 2: moves the cursor to `end`, the end of a block. Returns false if the block is of an
    /// earlier use of the segment, or may be.
    fn pass(&mut self, header: &BlockHeader, end: usize) -> bool {
        let owner = header.carrier.unwrap_or(header.log);
        if self.last.is_some_and(|(log, _, _)| log != owner) {
            return false;
        }
        if header.carrier.is_some() {
            // The next block of the owner decides.
            return true;
        }
        let at = (header.epoch, header.sequence);
        if self.last.is_some_and(|(_, epoch, sequence)| at <= (epoch, sequence)) {
            return false;
        }
        (self.last, self.cursor) = (Some((owner, header.epoch, header.sequence)), end);
        self.known = self.known.split_off(&(end as u64));
        true
    }
}

/// The error of a log of which a part is in mapped memory.
#[must_use]
pub fn in_memory() -> Error {
    let what = "a database with a memory-mapped log cannot be followed";
    Error::new(ErrorKind::Unsupported, what).with_advice("open its newest checkpoint for reading")
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
