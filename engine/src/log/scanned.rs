//! Blocks that a scan found, and reading them a second time.

use super::block::{BLOCK_HEADER_BYTES, BlockHeader};
use super::record::{Record, RecordFacts};
use super::segment::Segment;
use crate::base::{Csn, Epoch, Error, Location, LogId, Result, SegmentId};
use crate::device::AlignedBuffer;
use crate::sync::Mutex;
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

/// Gives bytes to blocks at the beginning of `blocks` (not empty), which are in the order of their
/// log: to all that stand one behind the other in `bytes_max` bytes, at least to one.
///
/// # Errors
/// `Corruption` if they are not what they were when they were scanned; I/O.
pub fn load(blocks: &[ScannedBlock], bytes_max: usize) -> Result<Vec<LoadedBlock>> {
    let Some(first) = blocks.first() else { return Ok(Vec::new()) };
    let start = first.offset;
    let mut end = start + first.device_bytes() as u64;
    let mut count = 1;
    for block in &blocks[1..] {
        let next = end + block.device_bytes() as u64;
        let follows = Arc::ptr_eq(&block.source, &first.source) && block.offset == end;
        if !follows || next - start > bytes_max as u64 {
            break;
        }
        (end, count) = (next, count + 1);
    }
    let (bytes, base) = match &first.source.kept {
        Some(kept) => (kept.clone(), 0),
        None => {
            let mut bytes = AlignedBuffer::zeroed((end - start) as usize);
            first.source.segment.file.read_at(start, &mut bytes)?;
            (Arc::new(bytes), start)
        }
    };
    let loaded = blocks[..count].iter().map(|block| {
        let at = (block.offset - base) as usize;
        let same = block.is_kept()
            || BlockHeader::decode(&bytes[at..], block.header.database).is_ok_and(|h| h == block.header);
        if !same {
            return Err(
                Error::corruption("a log block has changed since it was first read").at(block.location(0))
            );
        }
        Ok(LoadedBlock { block: block.clone(), bytes: bytes.clone(), at: at + BLOCK_HEADER_BYTES })
    });
    loaded.collect()
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
