//! Blocks that a scan found, and reading them a second time.

use super::block::{BLOCK_HEADER_BYTES, BlockHeader};
use super::record::{Record, RecordFacts};
use super::segment::Segment;
use crate::base::{Csn, Epoch, Error, Location, LogId, Result, SegmentId};
use crate::device::{AlignedBuffer, ReadAhead, ReadRequest};
use crate::sync::Mutex;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that [`load_all`] reads at a time.
const LOAD_BYTES: usize = 1 << 20;

/// The errors of places that a scan leaves out; `None` if an error ends the scan.
pub(super) type LeftOut<'a> = Option<&'a Mutex<Vec<Error>>>;

/// An error that ends the scan, unless it may be left out.
pub(super) fn leave_out(left_out: LeftOut<'_>, error: Error) -> Result<()> {
    match left_out {
        Some(list) => {
            list.lock().push(error);
            Ok(())
        }
        None => Err(error),
    }
}

/// A segment that blocks were found in.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) segment: Segment,
    /// All of it, if it was kept.
    pub(super) kept: Option<Arc<AlignedBuffer>>,
}

/// A whole block found in a segment.
#[derive(Clone, Debug)]
pub struct ScannedBlock {
    pub(super) header: BlockHeader,
    /// Highest watermark in its records that can be true.
    pub(super) watermark: Csn,
    pub(super) source: Arc<Source>,
    /// Byte offset in the segment.
    pub(super) offset: u64,
}

impl ScannedBlock {
    /// The log it belongs to.
    #[must_use]
    pub fn log(&self) -> LogId {
        self.header.log
    }

    /// The log in whose segment it lies, if that is another.
    #[must_use]
    pub fn carrier(&self) -> Option<LogId> {
        self.header.carrier
    }

    /// The epoch in which it was written.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.header.epoch
    }

    /// Its sequence in log and epoch.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.header.sequence
    }

    /// CSN of its first record.
    #[must_use]
    pub fn first_csn(&self) -> Csn {
        self.header.first_csn
    }

    /// CSN of the last record before it in its log and epoch, 0 if there was none.
    #[must_use]
    pub fn previous_csn(&self) -> Csn {
        self.header.previous_csn
    }

    /// CSN of its last record.
    #[must_use]
    pub fn last_csn(&self) -> Csn {
        self.header.last_csn
    }

    /// The highest watermark in its records, those left out that store one above their own CSN.
    #[must_use]
    pub fn watermark(&self) -> Csn {
        self.watermark
    }

    /// Number of its records.
    #[must_use]
    pub fn record_count(&self) -> usize {
        self.header.record_count as usize
    }

    /// Bytes on the device.
    #[must_use]
    pub fn device_bytes(&self) -> usize {
        self.header.device_bytes()
    }

    /// Returns true if the scan has kept its bytes.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.source.kept.is_some()
    }

    /// Returns the same block, to be read from the device again even if the scan has kept it.
    #[must_use]
    pub fn forget_bytes(&self) -> ScannedBlock {
        let source = Arc::new(Source { segment: self.source.segment.clone(), kept: None });
        ScannedBlock { source: if self.is_kept() { source } else { self.source.clone() }, ..self.clone() }
    }

    /// The segment it is in.
    #[must_use]
    pub fn segment(&self) -> SegmentId {
        self.source.segment.id
    }

    /// Its bytes, as they are in the segment.
    ///
    /// # Errors
    /// I/O.
    pub fn read(&self) -> Result<AlignedBuffer> {
        let mut bytes = AlignedBuffer::zeroed(self.device_bytes());
        self.source.segment.file.read_at(self.offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns true if it is the block at the same place.
    #[must_use]
    pub fn is_at(&self, other: &ScannedBlock) -> bool {
        (self.source.segment.id, self.offset) == (other.source.segment.id, other.offset)
    }

    /// Returns the place of byte `at` of the payload.
    #[must_use]
    pub fn location(&self, at: usize) -> Location {
        Location::Segment {
            log: self.header.log,
            segment: self.source.segment.id,
            offset: self.offset + (BLOCK_HEADER_BYTES + at) as u64,
        }
    }
}

/// A block with its bytes.
#[derive(Clone, Debug)]
pub struct LoadedBlock {
    /// The block as the scan found it.
    pub block: ScannedBlock,
    bytes: Arc<AlignedBuffer>,
    /// Offset of its payload.
    at: usize,
}

impl LoadedBlock {
    pub(super) fn new(block: ScannedBlock, bytes: Arc<AlignedBuffer>, at: usize) -> LoadedBlock {
        LoadedBlock { block, bytes, at }
    }

    fn payload(&self) -> &[u8] {
        &self.bytes[self.at..self.at + self.block.header.payload_len as usize]
    }

    /// Its records with their byte position in the payload. A whole block with a malformed record
    /// was written by a bug or on purpose: the iterator ends with an error that names the place.
    pub fn records(&self) -> impl Iterator<Item = Result<(usize, Record<'_>)>> {
        let payload = self.payload();
        let mut at = 0;
        std::iter::from_fn(move || {
            if at >= payload.len() {
                return None;
            }
            let position = at;
            match Record::decode(&payload[at..]) {
                Ok(record) => {
                    at += record.bytes.len();
                    Some(Ok((position, record)))
                }
                Err(error) => {
                    at = payload.len();
                    Some(Err(error.at(self.block.location(position))))
                }
            }
        })
    }

    /// The operations and all bytes of the record at a position that [`LoadedBlock::records`] gave.
    #[must_use]
    pub fn record_at(&self, position: usize) -> (&[u8], &[u8]) {
        let rest = self.payload().get(position..).unwrap_or_default();
        RecordFacts::of(rest).map_or((&[], &[]), |facts| (facts.body(rest), &rest[..facts.len]))
    }
}

/// Blocks of one segment that are read together.
#[derive(Debug)]
pub struct Batch {
    /// In the order of their log.
    blocks: Vec<ScannedBlock>,
    /// Where each of them will be in the buffer.
    places: Vec<usize>,
    /// Where the blocks are in the segment: each range has blocks without a gap, and the ranges
    /// ascend.
    ranges: Vec<Range<u64>>,
    /// The read, if it was started.
    ahead: Option<Box<dyn ReadAhead>>,
}

impl Batch {
    /// Takes blocks from the beginning of `blocks`, which are in the order of their log: those of
    /// one segment that have `bytes_max` bytes together, but at least one. `None` if there is none.
    #[must_use]
    pub fn first_of(blocks: &[ScannedBlock], bytes_max: usize) -> Option<Batch> {
        let first = blocks.first()?;
        let mut bytes = 0;
        let of_batch = |block: &&ScannedBlock| {
            bytes += block.device_bytes();
            Arc::ptr_eq(&block.source, &first.source) && (bytes <= bytes_max || block.is_at(first))
        };
        let blocks: Vec<ScannedBlock> = blocks.iter().take_while(of_batch).cloned().collect();
        let mut by_offset: Vec<usize> = (0..blocks.len()).collect();
        by_offset.sort_unstable_by_key(|index| blocks[*index].offset);
        let (mut places, mut filled) = (vec![0; blocks.len()], 0);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for index in by_offset {
            let (start, len) = (blocks[index].offset, blocks[index].device_bytes());
            places[index] = filled;
            filled += len;
            match ranges.last_mut().filter(|last| last.end == start) {
                Some(last) => last.end += len as u64,
                None => ranges.push(start..start + len as u64),
            }
        }
        debug_assert!(ranges.is_sorted_by(|a, b| a.end < b.start), "blocks of a segment do not overlap");
        Some(Batch { blocks, places, ranges, ahead: None })
    }

    /// Returns the blocks.
    #[must_use]
    pub fn blocks(&self) -> &[ScannedBlock] {
        &self.blocks
    }

    /// Returns the length of all blocks together, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.blocks.iter().map(ScannedBlock::device_bytes).sum()
    }

    fn source(&self) -> Option<&Arc<Source>> {
        self.blocks.first().map(|block| &block.source)
    }

    /// Starts to read the blocks. Returns false if the scan has kept them, or if the storage starts
    /// no read before it is needed.
    pub fn start(&mut self) -> bool {
        if self.ahead.is_none()
            && let Some(source) = self.source().filter(|source| source.kept.is_none())
        {
            self.ahead = source.segment.file.read_ahead(&self.ranges);
        }
        self.ahead.is_some()
    }

    /// Gives bytes to the blocks.
    ///
    /// # Errors
    /// `Corruption` if they are not what they were when they were scanned; I/O.
    pub fn load(mut self) -> Result<Vec<LoadedBlock>> {
        let kept = self.source().and_then(|source| source.kept.clone());
        let bytes = match kept {
            Some(kept) => {
                self.places = self.blocks.iter().map(|block| block.offset as usize).collect();
                kept
            }
            None => Arc::new(self.read()?),
        };
        let loaded = self.blocks.into_iter().zip(self.places).map(|(block, at)| {
            let same = block.is_kept()
                || BlockHeader::decode(&bytes[at..], block.header.database).is_ok_and(|h| h == block.header);
            if !same {
                let what = "a log block has changed since it was first read";
                return Err(Error::corruption(what).at(block.location(0)));
            }
            Ok(LoadedBlock { block, bytes: bytes.clone(), at: at + BLOCK_HEADER_BYTES })
        });
        loaded.collect()
    }

    fn read(&mut self) -> Result<AlignedBuffer> {
        let (whole, is_started) = (self.bytes(), self.start());
        let mut bytes = AlignedBuffer::zeroed(whole);
        if let Some(ahead) = self.ahead.as_mut().filter(|_| is_started) {
            ahead.read(&mut bytes[..whole])?;
            return Ok(bytes);
        }
        let Some(source) = self.source() else { return Ok(bytes) };
        let mut rest = &mut bytes[..whole];
        let mut reads = Vec::with_capacity(self.ranges.len());
        for range in &self.ranges {
            let (buffer, behind) = rest.split_at_mut((range.end - range.start) as usize);
            rest = behind;
            reads.push(ReadRequest { offset: range.start, buffer, result: Ok(()) });
        }
        source.segment.file.read_many(&mut reads, &mut |_, _| ());
        reads.into_iter().try_for_each(|read| read.result)?;
        Ok(bytes)
    }
}

/// Gives bytes to blocks at the beginning of `blocks`: to those of [`Batch::first_of`].
///
/// # Errors
/// As [`Batch::load`].
pub fn load(blocks: &[ScannedBlock], bytes_max: usize) -> Result<Vec<LoadedBlock>> {
    Batch::first_of(blocks, bytes_max).map_or(Ok(Vec::new()), Batch::load)
}

/// Gives bytes to all of `blocks`, a mebibyte at a time. Ends after an error.
pub fn load_all(mut blocks: &[ScannedBlock]) -> impl Iterator<Item = Result<LoadedBlock>> {
    let mut loaded = Vec::new().into_iter();
    std::iter::from_fn(move || {
        if let Some(block) = loaded.next() {
            return Some(Ok(block));
        }
        match load(blocks, LOAD_BYTES) {
            Ok(piece) => {
                blocks = &blocks[piece.len()..];
                loaded = piece.into_iter();
                loaded.next().map(Ok)
            }
            Err(error) => {
                blocks = &[];
                Some(Err(error))
            }
        }
    })
}
