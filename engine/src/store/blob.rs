//! A blob: bytes longer than a block, written once and read as a whole. The catalog is one.
//!
//! A chain of blocks, each with the reference of the next. Written from the last to the first,
//! because a reference contains the checksum of its block.
//!
//! | offset | bytes | field of a blob block |
//! |---|---|---|
//! | 0 | 32 | block header; subject = number of the part, the first is 0 |
//! | 32 | 8 | [`BlockRef`] of the next part, 0 in the last |
//! | 40 | rest | content, zero after the blob's end |

use super::block::{BLOCK_HEADER_BYTES, BlockKind, BlockNumber, BlockRef, verify};
use super::block_file::BlockFile;
use crate::base::checksum;
use crate::base::{Error, Result};
use crate::device::AlignedBuffer;

/// Longest blob.
pub const BLOB_BYTES_MAX: u64 = 1 << 30;

const CONTENT_AT: usize = BLOCK_HEADER_BYTES + size_of::<u64>();

/// The place, length and checksum of a blob.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlobRef {
    /// The first part; absent for an empty blob.
    pub first: BlockRef,
    /// Length in bytes.
    pub len: u64,
    /// CRC-32C of all its bytes.
    pub crc: u32,
}

/// Writes `bytes` with `write_block(part, image)`; returns the reference and the blocks.
///
/// # Errors
/// `InvalidArgument` beyond [`BLOB_BYTES_MAX`]; errors of `write_block`.
pub fn write(
    bytes: &[u8],
    block_bytes: usize,
    mut write_block: impl FnMut(u64, &mut AlignedBuffer) -> Result<BlockRef>,
) -> Result<(BlobRef, Vec<BlockNumber>)> {
    if bytes.len() as u64 > BLOB_BYTES_MAX {
        return Err(Error::invalid(format!("a blob of {} bytes is too long", bytes.len())));
    }
    let mut image = AlignedBuffer::zeroed(block_bytes);
    let mut next = BlockRef::ABSENT;
    let mut blocks = Vec::new();
    for (part, content) in bytes.chunks(block_bytes - CONTENT_AT).enumerate().rev() {
        image[BLOCK_HEADER_BYTES..CONTENT_AT].copy_from_slice(&next.0.to_le_bytes());
        image[CONTENT_AT..].fill(0);
        image[CONTENT_AT..CONTENT_AT + content.len()].copy_from_slice(content);
        next = write_block(part as u64, &mut image)?;
        blocks.push(next.block());
    }
    debug_assert!(blocks.is_empty() == next.is_absent(), "a blob with bytes has a first block");
    debug_assert!(blocks.is_empty() == next.is_absent(), "a blob with bytes has a first block");
    Ok((BlobRef { first: next, len: bytes.len() as u64, crc: checksum::crc(bytes) }, blocks))
}

/// Reads a blob and lists its blocks. Allocates as much as it has read, never by the claimed
/// length.
///
/// # Errors
/// `Corruption` with the place; I/O.
pub fn read(file: &BlockFile, blob: &BlobRef) -> Result<(Vec<u8>, Vec<BlockNumber>)> {
    let mut image = AlignedBuffer::zeroed(file.page_bytes);
    let (mut bytes, mut blocks) = (Vec::new(), Vec::new());
    let mut next = blob.first;
    let mut rest = blob.len.min(BLOB_BYTES_MAX + 1);
    while rest > 0 {
        let place = file.location(next.block());
        if next.is_absent() || blob.len > BLOB_BYTES_MAX {
            return Err(Error::corruption("a blob ends before its length").at(place));
        }
        file.file.read_at(file.offset(next), &mut image)?;
        let identity = file.identity(BlockKind::Blob, blocks.len() as u64);
        verify(&image, identity, next).map_err(|error| error.at(place))?;
        blocks.push(next.block());
        let take = rest.min((file.page_bytes - CONTENT_AT) as u64);
        bytes.extend_from_slice(&image[CONTENT_AT..CONTENT_AT + take as usize]);
        rest -= take;
        let link = image[BLOCK_HEADER_BYTES..CONTENT_AT].iter().rev();
        next = BlockRef(link.fold(0, |value, byte| value << 8 | u64::from(*byte)));
    }
    if next.0 != 0 || checksum::crc(&bytes) != blob.crc {
        let place = file.location(blob.first.block());
        return Err(Error::corruption("a blob is not what its reference says").at(place));
    }
    Ok((bytes, blocks))
}
