//! A block that is complete and waits to be written, or is on its way.

use super::block::{BLOCK_HEADER_BYTES, BlockHeader};
use crate::base::checksum::crc;
use crate::base::{Csn, LogId, SegmentId};
use crate::device::{AlignedBuffer, File, SECTOR_BYTES};
use std::sync::Arc;

/// A block to be written at `offset` of `file`: the first `len` bytes of `buffer`, after
/// [`SealedBlock::finish`].
#[derive(Debug)]
pub struct SealedBlock {
    /// The file to write to.
    pub file: Arc<dyn File>,
    /// The segment, for tests and debug output.
    #[allow(dead_code)]
    pub segment: SegmentId,
    /// Byte offset.
    pub offset: u64,
    /// The bytes.
    pub buffer: AlignedBuffer,
    /// Length on the device, a whole number of sectors.
    pub len: usize,
    /// Sequence of the block in its log.
    pub sequence: u64,
    /// CSN of its first record.
    pub first_csn: Csn,
    /// CSN of its last record.
    pub last_csn: Csn,
    pub(super) header: BlockHeader,
}

impl SealedBlock {
    /// Fills in padding, checksums and header; outside the latch, before the block is written.
    #[must_use]
    pub fn finish(mut self) -> SealedBlock {
        let end = BLOCK_HEADER_BYTES + self.header.payload_len as usize;
        debug_assert!(end <= self.len && self.len <= self.buffer.len(), "a block fits in its buffer");
        debug_assert!(self.len.is_multiple_of(SECTOR_BYTES), "a block is whole sectors");
        self.buffer.pad(end, self.len);
        self.header.payload_crc = crc(&self.buffer[BLOCK_HEADER_BYTES..end]);
        let header = self.header;
        header.encode(&mut self.buffer);
        self
    }

    /// Whose records it holds, wherever it lies.
    #[must_use]
    pub fn log(&self) -> LogId {
        self.header.log
    }

    /// Bytes of records in it.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        self.header.payload_len as usize
    }

    /// Records in it.
    #[cfg(test)]
    pub fn record_count(&self) -> u32 {
        self.header.record_count
    }
}
