//! A pack: several page images, compressed, in one block.
//!
//! A page is as long as a block, and a device writes at least a block, so a compressed image alone
//! saves nothing. Several images share a block:
//!
//! ```text
//!   block     [header][page 7][page 9][page 4]  ....free....  [image 4][image 9][image 7]
//!                      directory, growing ▶                    ◀ compressed bytes, growing
//!   mapping   page 7 ─┐
//!             page 9 ─┼─▶ this block        (page 4 has a newer image elsewhere: here it is dead)
//! ```
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 32 | block header; subject = number of images, 1 to 64; CSN = the highest of theirs |
//! | 32 | 28 each | the directory, see below |
//! | | | zeros, then the images' bytes to the end of the block |
//!
//! | offset | bytes | field of a directory entry |
//! |---|---|---|
//! | 0 | 8 | page id |
//! | 8 | 8 | newest CSN drawn when the image was made |
//! | 16 | 4 | CRC-32C of the block that the image would be if it had one to itself |
//! | 20 | 1 | kind of that block: page, or page with stamps |
//! | 21 | 1 | [`Codec`] |
//! | 22 | 2 | where its bytes begin in the block |
//! | 24 | 2 | how many there are |
//! | 26 | 2 | 0 |
//!
//! The content behind the header of a page's own block is compressed, so its length is known. The
//! header follows from the directory.
//!
//! # Invariants
//! - P1: unpacking gives, bit by bit, the block that the image would have been, which its checksum
//!   proves. A reference has 24 bits of that checksum (B1), so it stays valid wherever the image
//!   is, packed or not, with any codec.
//! - P2: a pack is written once, like every block. It is free when nothing refers to any of its
//!   images; see `allocator::free`.

use super::super::block::{
    self, BLOCK_HEADER_BYTES, BlockIdentity, BlockKind, BlockRef, ImageKind, fill_header,
};
use super::codec::{Codec, decompress};
use crate::base::{Csn, DatabaseId, Error, PageId, Result};

/// Images in a pack, at most: more would save little.
pub const IMAGES_MAX: usize = 64;

const ENTRY_BYTES: usize = 28;

/// A directory entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The page.
    pub page: PageId,
    /// The newest CSN drawn when the image was made.
    pub csn: Csn,
    /// Checksum of the block that the image would be on its own.
    pub crc: u32,
    /// Its kind.
    pub kind: ImageKind,
    codec: Codec,
    at: u16,
    len: u16,
}

/// An image, sealed like a block of its own.
#[derive(Clone, Copy, Debug)]
pub struct Sealed {
    /// The page.
    pub page: PageId,
    /// The CSN in its header.
    pub csn: Csn,
    /// Its checksum.
    pub crc: u32,
    /// Its kind.
    pub kind: ImageKind,
}

/// A pack that is being filled.
#[derive(Debug)]
pub struct Filling {
    block: Vec<u8>,
    entries: Vec<Entry>,
    /// Bytes from here on are taken.
    low: usize,
}

/// Returns the longest compressed image, in bytes, that is worth packing: two images of average
/// length fit in a block, because a longer one may meet a shorter one.
#[must_use]
pub fn worthwhile_bytes(block_bytes: usize) -> usize {
    (block_bytes - BLOCK_HEADER_BYTES) * 5 / 8 - ENTRY_BYTES
}

impl Filling {
    /// An empty pack.
    #[must_use]
    pub fn new(block_bytes: usize) -> Filling {
        Filling { block: vec![0; block_bytes], entries: Vec::new(), low: block_bytes }
    }

    /// Bytes left for the next image.
    #[must_use]
    pub fn room(&self) -> usize {
        if self.entries.len() == IMAGES_MAX {
            return 0;
        }
        let directory = BLOCK_HEADER_BYTES + (self.entries.len() + 1) * ENTRY_BYTES;
        self.low.saturating_sub(directory)
    }

    /// Number of images.
    #[must_use]
    pub fn images(&self) -> usize {
        self.entries.len()
    }

    /// Adds an image that was compressed to `bytes`, at most as many as are left.
    pub fn add(&mut self, image: Sealed, codec: Codec, bytes: &[u8]) {
        assert!(!bytes.is_empty() && bytes.len() <= self.room(), "the caller has looked");
        self.low -= bytes.len();
        debug_assert!(self.low + bytes.len() <= usize::from(u16::MAX) + 1, "places in a pack fit 16 bits");
        self.block[self.low..self.low + bytes.len()].copy_from_slice(bytes);
        let (at, len) = (self.low as u16, bytes.len() as u16);
        let Sealed { page, csn, crc, kind } = image;
        self.entries.push(Entry { page, csn, crc, kind, codec, at, len });
    }

    /// Writes the sealed pack to `out`, which is as long as a block.
    pub fn seal(&self, out: &mut [u8], database: DatabaseId) {
        debug_assert!(
            self.low >= BLOCK_HEADER_BYTES + self.entries.len() * ENTRY_BYTES,
            "the images of a pack begin behind its directory"
        );
        debug_assert!((1..=IMAGES_MAX).contains(&self.entries.len()), "a pack that is written has images");
        out.copy_from_slice(&self.block);
        let slots = out[BLOCK_HEADER_BYTES..].chunks_exact_mut(ENTRY_BYTES);
        slots.zip(&self.entries).for_each(|(slot, entry)| entry.encode(slot));
        let csn = self.entries.iter().map(|entry| entry.csn).max().unwrap_or(Csn::ZERO);
        let subject = self.entries.len() as u64;
        fill_header(out, BlockIdentity { database, kind: BlockKind::Pack, subject }, csn);
    }

    /// Unpacks the only image into `out`, as long as a block.
    ///
    /// # Errors
    /// Only if the codec does not restore the image.
    pub fn unpack_single(&self, out: &mut [u8], database: DatabaseId) -> Result<()> {
        let [entry] = self.entries[..] else { return Err(Error::corruption("not a single image")) };
        entry.unpack(&self.block, database, out)
    }
}

impl Entry {
    /// The codec of its bytes.
    #[must_use]
    pub fn codec(&self) -> Codec {
        self.codec
    }

    fn encode(&self, slot: &mut [u8]) {
        slot[..8].copy_from_slice(&self.page.0.to_le_bytes());
        slot[8..16].copy_from_slice(&self.csn.0.to_le_bytes());
        slot[16..20].copy_from_slice(&self.crc.to_le_bytes());
        (slot[20], slot[21]) = (self.kind.block_kind() as u8, self.codec as u8);
        slot[22..24].copy_from_slice(&self.at.to_le_bytes());
        slot[24..26].copy_from_slice(&self.len.to_le_bytes());
        slot[26..].fill(0);
    }

    /// Checks everything; image bytes begin at or behind `directory_end`.
    fn decode(slot: &[u8], directory_end: usize, block_bytes: usize) -> Option<Entry> {
        let word = |at: usize, len: usize| {
            slot[at..at + len].iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte))
        };
        let (at, len) = (word(22, 2) as u16, word(24, 2) as u16);
        let inside = usize::from(at) >= directory_end && usize::from(at) + usize::from(len) <= block_bytes;
        let entry = Entry {
            page: PageId(word(0, 8)),
            csn: Csn(word(8, 8)),
            crc: word(16, 4) as u32,
            kind: ImageKind::from_code(slot[20])?,
            codec: Codec::from_code(slot[21])?,
            at,
            len,
        };
        (inside && len > 0 && word(26, 2) == 0).then_some(entry)
    }

    /// Writes the block that the image would be on its own to `out` (P1).
    ///
    /// # Errors
    /// `Corruption`; `Unsupported` for a codec that this build lacks.
    pub fn unpack(&self, block: &[u8], database: DatabaseId, out: &mut [u8]) -> Result<()> {
        let (at, end) = (usize::from(self.at), usize::from(self.at) + usize::from(self.len));
        decompress(self.codec, &block[at..end], &mut out[BLOCK_HEADER_BYTES..])?;
        let identity = BlockIdentity { database, kind: self.kind.block_kind(), subject: self.page.0 };
        if fill_header(out, identity, self.csn) != self.crc {
            return Err(Error::corruption("what was unpacked is not the image that was packed"));
        }
        Ok(())
    }
}

/// Returns the directory of an undamaged pack of `database`.
///
/// # Errors
/// `Corruption`, `Unsupported`; without a place.
pub fn directory(block: &[u8], database: DatabaseId) -> Result<Vec<Entry>> {
    let count = block::verify_pack(block, database)?;
    let malformed = || Error::corruption("the directory of a pack contradicts itself");
    let count = usize::try_from(count).ok().filter(|count| (1..=IMAGES_MAX).contains(count));
    let end = BLOCK_HEADER_BYTES + count.ok_or_else(malformed)? * ENTRY_BYTES;
    let slots = block.get(BLOCK_HEADER_BYTES..end).ok_or_else(malformed)?.chunks_exact(ENTRY_BYTES);
    slots.map(|slot| Entry::decode(slot, end, block.len()).ok_or_else(malformed)).collect()
}

/// An image that was read and verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened {
    /// Its kind.
    pub kind: ImageKind,
    /// Images in its block, dead ones included.
    pub images: u8,
}

/// Unpacks the image of `page` that `reference` means into `out`, from a block that
/// [`block::is_pack`] recognised.
///
/// # Errors
/// `Corruption` that names the damage, `Unsupported`; without a place.
pub fn unpack(
    block: &[u8],
    database: DatabaseId,
    page: PageId,
    reference: BlockRef,
    out: &mut [u8],
) -> Result<Opened> {
    let entries = directory(block, database)?;
    let of_page = || entries.iter().filter(|entry| entry.page == page);
    let Some(entry) = of_page().find(|entry| reference.matches(entry.crc)) else {
        let what = match of_page().next() {
            Some(_) => "an older image of the page is in its place: a write was lost",
            None => {
                "the pack in its place has no image of the page: a write was lost, or the reference is wrong"
            }
        };
        return Err(Error::corruption(what));
    };
    entry.unpack(block, database, out)?;
    Ok(Opened { kind: entry.kind, images: entries.len() as u8 })
}
