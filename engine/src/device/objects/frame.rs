//! Sectors in a log object that hold no records: the header with which an object begins, and the
//! fence with which a later writer ends it.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic: `QNCHHEAD` or `QNCHFENC` |
//! | 8 | 4 | format version, 1 |
//! | 12 | 8 | identity of the database's objects |
//! | 20 | 8 | header: writer epoch that created the object; fence: writer epoch that ended it |
//! | 28 | 16 | nonce of that writer |
//! | 44 | 4 | CRC-32C of bytes 0 to 43 |
//! | 48 | | zeros up to a whole sector; of a fence that is an object, none or 8 |
//!
//! All numbers are little-endian.

use super::body::{Nonce, WriterEpoch};
use crate::base::checksum;
use crate::base::encoding::Reader;
use crate::device::SECTOR_BYTES;
use bytes::Bytes;

/// Length of a header, and of a fence in a lane.
pub const FRAME_BYTES: u64 = SECTOR_BYTES as u64;
/// Length of a fence that is an object of its own, without the zeros. No block is so short, so a
/// list shows which objects are fences.
pub const SHORT_BYTES: u64 = 48;
/// Length of such a fence that is deleted with its segment.
pub const PASSING_BYTES: u64 = 56;

const VERSION: u32 = 1;
const CHECKED_BYTES: usize = 44;

/// Returns whether an object of the log of this length is a fence.
#[must_use]
pub fn is_fence(len: u64) -> bool {
    len == SHORT_BYTES || len == PASSING_BYTES
}

/// The kinds of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// The first sector of an object.
    Header,
    /// The last sector of an object.
    Fence,
}

impl FrameKind {
    fn magic(self) -> [u8; 8] {
        match self {
            FrameKind::Header => *b"QNCHHEAD",
            FrameKind::Fence => *b"QNCHFENC",
        }
    }
}

/// A header or a fence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Its kind.
    pub kind: FrameKind,
    /// Identity of the database's objects.
    pub identity: u64,
    /// The writer that appended it.
    pub epoch: WriterEpoch,
    /// The nonce of that writer.
    pub nonce: Nonce,
}

impl Frame {
    /// Returns the frame's sector.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(SECTOR_BYTES);
        bytes.extend_from_slice(&self.kind.magic());
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.identity.to_le_bytes());
        bytes.extend_from_slice(&self.epoch.0.to_le_bytes());
        bytes.extend_from_slice(&self.nonce.0);
        bytes.extend_from_slice(&checksum::crc(&bytes).to_le_bytes());
        debug_assert!(bytes.len() as u64 == SHORT_BYTES, "a short frame has all fields");
        bytes.resize(SECTOR_BYTES, 0);
        bytes.into()
    }

    /// Returns the frame without the zeros behind it: the whole of a fence that is an object.
    #[must_use]
    pub fn encode_short(&self, stays: bool) -> Bytes {
        self.encode().slice(..if stays { SHORT_BYTES } else { PASSING_BYTES } as usize)
    }

    /// Returns the frame in a sector, or `None` if there is none, or it is damaged or newer.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Frame> {
        let mut reader = Reader::new(bytes);
        let magic = reader.take(8)?;
        let kind = [FrameKind::Header, FrameKind::Fence].into_iter().find(|kind| kind.magic() == magic)?;
        let version = reader.u32()?;
        let (identity, epoch) = (reader.u64()?, WriterEpoch(reader.u64()?));
        let nonce = Nonce(reader.take(16)?.try_into().ok()?);
        let is_whole = reader.u32()? == checksum::crc(&bytes[..CHECKED_BYTES]);
        (is_whole && version == VERSION).then_some(Frame { kind, identity, epoch, nonce })
    }
}
