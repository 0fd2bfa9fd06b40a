//! Blocks: what one flush writes.
//!
//! | offset | bytes | content (little-endian) |
//! |---|---|---|
//! | 0 | 4 | CRC-32C of bytes 4 to 80 |
//! | 4 | 4 | magic `QLOG` |
//! | 8 | 2 | format version, 1 |
//! | 10 | 2 | 0 |
//! | 12 | 4 | log |
//! | 16 | 8 | database |
//! | 24 | 4 | epoch in which the block was written |
//! | 28 | 4 | CRC-32C of the payload |
//! | 32 | 8 | sequence of the block in its log and epoch, from 1 |
//! | 40 | 4 | length of the payload |
//! | 44 | 4 | number of records |
//! | 48 | 8 | CSN of the first record |
//! | 56 | 8 | CSN of the last record |
//! | 64 | 8 | CSN of the last record before this block in its log and epoch, 0 if there is none |
//! | 72 | 4 | 0: in a segment of its own log; else 1 + the log in whose segment it lies |
//! | 76 | 4 | 0 |
//! | 80 | | payload: records; then zeros up to a whole sector |

use crate::base::checksum::crc;
use crate::base::encoding::Reader;
use crate::base::planted::{self, Bug};
use crate::base::{Csn, DatabaseId, Epoch, Error, ErrorKind, LogId, Result};
use crate::device::{AlignedBuffer, File, SECTOR_BYTES};

/// Size of a block's header.
pub const BLOCK_HEADER_BYTES: usize = 80;

const MAGIC: u32 = u32::from_le_bytes(*b"QLOG");
const VERSION: u16 = 1;

const _: () = assert!(BLOCK_HEADER_BYTES.is_multiple_of(8) && BLOCK_HEADER_BYTES < SECTOR_BYTES);

/// A block's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockHeader {
    pub(super) database: DatabaseId,
    pub(super) log: LogId,
    pub(super) epoch: Epoch,
    pub(super) sequence: u64,
    pub(super) payload_len: u32,
    pub(super) payload_crc: u32,
    pub(super) record_count: u32,
    pub(super) first_csn: Csn,
    pub(super) last_csn: Csn,
    pub(super) previous_csn: Csn,
    /// The log that wrote it with a block of its own, if not this one.
    pub(super) carrier: Option<LogId>,
}

/// Returns the database that a segment belongs to, by its first block; `None` if it begins with
/// none or cannot be read. A later read of the segment then reports the error.
#[must_use]
pub fn database_of(segment: &dyn File) -> Option<DatabaseId> {
    let mut sector = AlignedBuffer::zeroed(SECTOR_BYTES);
    segment.read_at(0, &mut sector).ok()?;
    BlockHeader::parse(&sector).map(|(header, _)| header.database)
}

/// The content of a file with the name of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentContent {
    /// Nothing, or zeros: a segment that no block was written to.
    Blank,
    /// Blocks, damaged or not.
    Blocks,
    /// No block, and not only zeros: a file of another program.
    Foreign,
}

/// Bytes that are read at once.
const PIECE_BYTES: usize = 64 << 10;

/// Returns what a file contains, which is not open for direct I/O. A segment whose first sector was
/// never written counts as blank, so that all of a file is read only if it begins with something
/// unknown.
///
/// # Errors
/// I/O.
pub fn content_of(file: &dyn File) -> Result<SegmentContent> {
    let (len, mut piece) = (file.len()?, vec![0; PIECE_BYTES]);
    let (mut offset, mut part) = (0, SECTOR_BYTES);
    while offset < len {
        let bytes = &mut piece[..(len - offset).min(part as u64) as usize];
        file.read_at(offset, bytes)?;
        if bytes.chunks(SECTOR_BYTES).any(|sector| sector.get(4..8) == Some(&MAGIC.to_le_bytes())) {
            return Ok(SegmentContent::Blocks);
        }
        if offset == 0 && bytes.iter().all(|byte| *byte == 0) {
            return Ok(SegmentContent::Blank);
        }
        (offset, part) = (offset + bytes.len() as u64, PIECE_BYTES);
    }
    Ok(if len == 0 { SegmentContent::Blank } else { SegmentContent::Foreign })
}

/// Why bytes are not a block of this database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotABlock {
    /// Not the start of a block, or torn.
    Invalid,
    /// A whole header of this database in another format version.
    UnknownFormat(u16),
}

/// The error for a log block of format version `found`, without a place.
pub(super) fn unknown_format(found: u16) -> Error {
    let what = format!("the log block has format version {found}, this build reads version {VERSION}");
    Error::new(ErrorKind::Unsupported, what)
}

impl BlockHeader {
    pub(super) fn encode(&self, out: &mut [u8]) {
        let out = &mut out[..BLOCK_HEADER_BYTES];
        out.fill(0);
        out[4..8].copy_from_slice(&MAGIC.to_le_bytes());
        out[8..10].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&self.log.0.to_le_bytes());
        out[16..24].copy_from_slice(&self.database.0.to_le_bytes());
        out[24..28].copy_from_slice(&self.epoch.0.to_le_bytes());
        out[28..32].copy_from_slice(&self.payload_crc.to_le_bytes());
        out[32..40].copy_from_slice(&self.sequence.to_le_bytes());
        out[40..44].copy_from_slice(&self.payload_len.to_le_bytes());
        out[44..48].copy_from_slice(&self.record_count.to_le_bytes());
        out[48..56].copy_from_slice(&self.first_csn.0.to_le_bytes());
        out[56..64].copy_from_slice(&self.last_csn.0.to_le_bytes());
        out[64..72].copy_from_slice(&self.previous_csn.0.to_le_bytes());
        let carrier = self.carrier.map_or(0, |log| log.0 + 1);
        out[72..76].copy_from_slice(&carrier.to_le_bytes());
        let check = crc(&out[4..]);
        out[0..4].copy_from_slice(&check.to_le_bytes());
    }

    /// The header at the start of `bytes`, if a whole, undamaged block of `database` stands there.
    pub(super) fn decode(bytes: &[u8], database: DatabaseId) -> Result<BlockHeader, NotABlock> {
        let header = Self::decode_head(bytes, database)?;
        header.payload_in(bytes).map(|_| header).ok_or(NotABlock::Invalid)
    }

    /// The header at the start of `bytes`, if it is one of a block of `database`. The payload need
    /// not be there.
    pub(super) fn decode_head(bytes: &[u8], database: DatabaseId) -> Result<BlockHeader, NotABlock> {
        let (header, version) = Self::parse(bytes).ok_or(NotABlock::Invalid)?;
        if header.database != database {
            return Err(NotABlock::Invalid);
        }
        if version != VERSION {
            return Err(NotABlock::UnknownFormat(version));
        }
        let possible = header.first_csn <= header.last_csn && header == header.within_limit();
        if header.sequence > 0 && possible { Ok(header) } else { Err(NotABlock::Invalid) }
    }

    /// The payload in the block's `bytes`, if it is whole and undamaged.
    pub(super) fn payload_in<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let payload = bytes.get(BLOCK_HEADER_BYTES..BLOCK_HEADER_BYTES + self.payload_len as usize)?;
        (crc(payload) == self.payload_crc || planted::is(Bug::LogChecksumNotCompared)).then_some(payload)
    }

    /// The header at the start of `bytes` and its format version, whatever the payload is.
    pub(super) fn parse(bytes: &[u8]) -> Option<(BlockHeader, u16)> {
        let head = bytes.get(..BLOCK_HEADER_BYTES)?;
        let mut reader = Reader::new(head);
        let check = reader.u32()?;
        if reader.u32()? != MAGIC || crc(&head[4..]) != check {
            return None;
        }
        let version = reader.u16()?;
        reader.u16()?;
        let log = LogId(reader.u32()?);
        let database = DatabaseId(reader.u64()?);
        let epoch = Epoch(reader.u32()?);
        let payload_crc = reader.u32()?;
        let sequence = reader.u64()?;
        let payload_len = reader.u32()?;
        let record_count = reader.u32()?;
        let (first_csn, last_csn) = (Csn(reader.u64()?), Csn(reader.u64()?));
        let previous_csn = Csn(reader.u64()?);
        let carrier = reader.u32()?.checked_sub(1).map(LogId);
        let header = BlockHeader {
            database,
            log,
            epoch,
            sequence,
            payload_len,
            payload_crc,
            record_count,
            first_csn,
            last_csn,
            previous_csn,
            carrier,
        };
        Some((header, version))
    }

    /// Returns the header with its CSNs cut to the limit, so that arithmetic on a foreign block
    /// cannot overflow.
    pub(super) fn within_limit(self) -> BlockHeader {
        let within = |csn: Csn| csn.min(Csn(Csn::LIMIT.0 - 1));
        BlockHeader {
            first_csn: within(self.first_csn),
            last_csn: within(self.last_csn),
            previous_csn: within(self.previous_csn),
            ..self
        }
    }

    /// Bytes that the block takes on the device.
    pub(super) fn device_bytes(&self) -> usize {
        block_bytes(self.payload_len as usize)
    }
}

/// Bytes on the device of a block with `payload_len` bytes of records.
pub(super) fn block_bytes(payload_len: usize) -> usize {
    (BLOCK_HEADER_BYTES + payload_len).next_multiple_of(SECTOR_BYTES)
}
