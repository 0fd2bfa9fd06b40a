//! One block: the unit in which the page store's file is written.
//!
//! Every block is as long as a page and begins with the same 32 bytes, so that a block from the
//! wrong place, of another database, or written halfway is recognised before its content is used:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | CRC-32C of bytes 4 to the end |
//! | 4 | 2 | magic `QB` |
//! | 6 | 1 | [`BlockKind`] |
//! | 7 | 1 | format version, 1 |
//! | 8 | 8 | subject: the page id; the index of a mapping, directory or blob block; the number of images in a pack |
//! | 16 | 8 | database id |
//! | 24 | 8 | newest CSN drawn when it was written |
//!
//! # Invariants
//! - B1: a reference to a block is a [`BlockRef`]: its number and 24 bits of its checksum. A lost
//!   write leaves an older, otherwise valid block of the same page behind; the checksum in the
//!   reference detects it. A reference to an image in a pack has the bits of the block that the
//!   image would be on its own.
//! - B2: block 0 is the file's header; no reference points to it, so the number 0 can mean
//!   "absent".

use crate::base::checksum;
use crate::base::planted::{self, Bug};
use crate::base::{Csn, DatabaseId, Error, ErrorKind, PageId, Result};

/// Bytes at the start of each block, and therefore of each page, that belong to the store.
pub const BLOCK_HEADER_BYTES: usize = 32;

const MAGIC: [u8; 2] = *b"QB";
const VERSION: u8 = 1;
const TAG_BITS: u32 = 24;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;

/// Lengths that a page may have.
const PAGE_BYTES: std::ops::RangeInclusive<u64> = 4096..=32768;

/// Directory blocks at most; with 4 KiB pages that is 16 TiB of pages. Bounds the manifest and the
/// table in memory.
pub const DIRECTORY_BLOCKS_MAX: usize = 1 << 14;

/// References per mapping or directory block.
#[must_use]
pub fn references_per_block(page_bytes: usize) -> usize {
    (page_bytes - BLOCK_HEADER_BYTES) / size_of::<u64>()
}

/// Position of a block in the file, counted in blocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockNumber(pub u64);

impl BlockNumber {
    /// Blocks that a reference can number: 40 bits, 4 PiB of the smallest pages.
    pub const LIMIT: u64 = 1 << (64 - TAG_BITS);
}

/// A block number and the low bits of the block's checksum, in 64 bits: `number << 24 | checksum &
/// 0xffffff`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BlockRef(pub u64);

impl BlockRef {
    /// No block.
    pub const ABSENT: BlockRef = BlockRef(0);

    pub(super) fn new(block: BlockNumber, checksum: u32) -> BlockRef {
        debug_assert!(block.0 > 0 && block.0 < BlockNumber::LIMIT, "B2, and the allocator's limit");
        BlockRef(block.0 << TAG_BITS | u64::from(checksum) & TAG_MASK)
    }

    /// The block number.
    #[must_use]
    pub fn block(self) -> BlockNumber {
        BlockNumber(self.0 >> TAG_BITS)
    }

    /// Returns whether it refers to no block.
    #[must_use]
    pub fn is_absent(self) -> bool {
        self.block().0 == 0
    }

    pub(super) fn matches(self, checksum: u32) -> bool {
        self.tag() == checksum & TAG_MASK as u32 || planted::is(Bug::LostWriteBelieved)
    }

    /// Returns whether both references mean the same bytes, wherever they are: 24 bits of the
    /// checksum decide.
    #[must_use]
    pub fn means_same_as(self, other: BlockRef) -> bool {
        self.matches(other.tag())
    }

    /// The low bits of the checksum.
    pub(super) fn tag(self) -> u32 {
        (self.0 & TAG_MASK) as u32
    }
}

impl std::fmt::Debug for BlockRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "block {} tag {:06x}", self.0 >> TAG_BITS, self.0 & TAG_MASK)
    }
}

/// The kinds of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum BlockKind {
    /// The header of the file: block 0.
    FileHeader = 1,
    /// A page image.
    Page = 2,
    /// References to page blocks: the lower level of the mapping.
    Mapping = 3,
    /// References to mapping blocks: the upper level.
    Directory = 4,
    /// A part of a blob.
    Blob = 5,
    /// A page image with the stamps that the page had in memory. Only the run of the engine that
    /// wrote the stamps uses them; for any other run the content is committed, and a tombstone is
    /// no entry.
    StampedPage = 6,
    /// Several page images, compressed. See [`super::pack`].
    Pack = 7,
}

/// The two kinds of page images.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImageKind {
    /// [`BlockKind::Page`].
    Settled,
    /// [`BlockKind::StampedPage`].
    Stamped,
}

impl ImageKind {
    /// The kind of its block.
    #[must_use]
    pub fn block_kind(self) -> BlockKind {
        match self {
            ImageKind::Settled => BlockKind::Page,
            ImageKind::Stamped => BlockKind::StampedPage,
        }
    }

    /// Returns the kind of image in a block of the kind with this code, if that is an image.
    #[must_use]
    pub fn from_code(code: u8) -> Option<ImageKind> {
        [ImageKind::Settled, ImageKind::Stamped].into_iter().find(|kind| kind.block_kind() as u8 == code)
    }
}

/// The identity that a block must have to be the expected one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockIdentity {
    /// The database.
    pub database: DatabaseId,
    /// The kind of content.
    pub kind: BlockKind,
    /// The page id, or the index among the blocks of its kind.
    pub subject: u64,
}

/// Fills the header of `image`, which goes to `block`, and returns the reference to store for it.
#[must_use]
pub fn seal(image: &mut [u8], identity: BlockIdentity, csn: Csn, block: BlockNumber) -> BlockRef {
    BlockRef::new(block, fill_header(image, identity, csn))
}

/// Fills the header of block 0, which no reference points to.
pub fn seal_file_header(image: &mut [u8], database: DatabaseId) {
    let identity = BlockIdentity { database, kind: BlockKind::FileHeader, subject: image.len() as u64 };
    fill_header(image, identity, Csn::ZERO);
}

/// Fills the header of `image` and returns the checksum of the whole.
pub(super) fn fill_header(image: &mut [u8], identity: BlockIdentity, csn: Csn) -> u32 {
    debug_assert!(image.len() > BLOCK_HEADER_BYTES, "a block has more than its header");
    debug_assert!(image.len() > BLOCK_HEADER_BYTES, "a block has more than its header");
    image[4..6].copy_from_slice(&MAGIC);
    image[6] = identity.kind as u8;
    image[7] = VERSION;
    image[8..16].copy_from_slice(&identity.subject.to_le_bytes());
    image[16..24].copy_from_slice(&identity.database.0.to_le_bytes());
    image[24..32].copy_from_slice(&csn.0.to_le_bytes());
    let crc = checksum::crc(&image[4..]);
    image[..4].copy_from_slice(&crc.to_le_bytes());
    crc
}

/// Returns the newest CSN drawn when the block was written, from its header.
#[must_use]
pub fn csn_of(image: &[u8]) -> Csn {
    image[24..32].iter().rev().fold(Csn::ZERO, |csn, byte| Csn(csn.0 << 8 | u64::from(*byte)))
}

/// Checks that `image` is undamaged and is the block that `reference` means (B1).
///
/// # Errors
/// `Corruption` that names the difference, `Unsupported` for a newer format; without a place.
pub fn verify(image: &[u8], identity: BlockIdentity, reference: BlockRef) -> Result<()> {
    let crc = verify_header(image, identity)?;
    if !reference.matches(crc) {
        return Err(Error::corruption("an older version of the block is in its place: a write was lost"));
    }
    Ok(())
}

/// Checks that `image` is undamaged and is the page image that `reference` means; returns its kind.
///
/// # Errors
/// As [`verify`].
pub fn verify_page(
    image: &[u8],
    database: DatabaseId,
    page: PageId,
    reference: BlockRef,
) -> Result<ImageKind> {
    let stamped = image.get(6) == Some(&(BlockKind::StampedPage as u8));
    let kind = if stamped { ImageKind::Stamped } else { ImageKind::Settled };
    verify(image, BlockIdentity { database, kind: kind.block_kind(), subject: page.0 }, reference)?;
    Ok(kind)
}

/// Returns whether the header of `image` says that it is a pack.
#[must_use]
pub fn is_pack(image: &[u8]) -> bool {
    image.get(6) == Some(&(BlockKind::Pack as u8))
}

/// Checks that `image` is an undamaged pack of `database`; returns its number of images.
///
/// # Errors
/// As [`verify`].
pub(super) fn verify_pack(image: &[u8], database: DatabaseId) -> Result<u64> {
    let subject = image[8..16].iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
    verify_header(image, BlockIdentity { database, kind: BlockKind::Pack, subject })?;
    Ok(subject)
}

/// The header of an undamaged block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundBlock {
    /// The database.
    pub database: DatabaseId,
    /// The code of its [`BlockKind`].
    pub kind: u8,
    /// See [`BlockIdentity::subject`].
    pub subject: u64,
    /// The newest CSN drawn when it was written.
    pub csn: Csn,
    /// Its checksum.
    pub crc: u32,
}

/// Returns the header of `image`, if it is an undamaged block that this build knows.
#[must_use]
pub fn identify(image: &[u8]) -> Option<FoundBlock> {
    let word = |at: usize| -> Option<u64> {
        Some(u64::from_le_bytes(image.get(at..at + size_of::<u64>())?.try_into().ok()?))
    };
    let (database, subject) = (DatabaseId(word(16)?), word(8)?);
    if image[4..6] != MAGIC || image[7] != VERSION {
        return None;
    }
    let crc = checksum::crc(&image[4..]);
    let found = FoundBlock { database, kind: image[6], subject, csn: Csn(word(24)?), crc };
    (image[..4] == crc.to_le_bytes()).then_some(found)
}

/// Returns whether `bytes` begin like a block, in any version.
#[must_use]
pub fn begins(bytes: &[u8]) -> bool {
    bytes.get(4..6) == Some(&MAGIC)
}

/// Returns whether `file`, which may be cut off, is the header of a page store and nothing else.
#[must_use]
pub fn is_only_file_header(file: &[u8]) -> bool {
    let subject = file.get(8..16).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
    if !subject.is_power_of_two() || !PAGE_BYTES.contains(&subject) {
        return false;
    }
    let (page_bytes, mut page) = (subject as usize, file.to_vec());
    page.resize(page.len().max(page_bytes), 0);
    let found = identify(&page[..page_bytes]).map(|found| found.kind);
    found == Some(BlockKind::FileHeader as u8) && page[page_bytes..].iter().all(|byte| *byte == 0)
}

/// Checks block 0; its subject is the block length.
///
/// # Errors
/// As [`verify`].
pub fn verify_file_header(image: &[u8], database: DatabaseId) -> Result<()> {
    let identity = BlockIdentity { database, kind: BlockKind::FileHeader, subject: image.len() as u64 };
    verify_header(image, identity).map(|_| ())
}

fn verify_header(image: &[u8], identity: BlockIdentity) -> Result<u32> {
    debug_assert!(image.len() > BLOCK_HEADER_BYTES, "callers read whole blocks");
    if image[4..6] != MAGIC {
        let blank = image.iter().all(|byte| *byte == 0);
        return Err(Error::corruption(if blank { "the block was never written" } else { "not a block" }));
    }
    let crc = checksum::crc(&image[4..]);
    if image[..4] != crc.to_le_bytes() {
        return Err(Error::corruption("the block's checksum is wrong"));
    }
    if image[7] > VERSION {
        let what = format!("the block has format version {}, this build reads up to {VERSION}", image[7]);
        return Err(Error::new(ErrorKind::Unsupported, what));
    }
    let word =
        |at: usize| image[at..at + 8].iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
    if word(16) != identity.database.0 {
        let found = DatabaseId(word(16));
        return Err(Error::corruption(format!("the block belongs to database {found}")));
    }
    if image[6] != identity.kind as u8 || word(8) != identity.subject {
        let what = format!(
            "the block holds kind {} number {}, expected {:?} number {}",
            image[6],
            word(8),
            identity.kind,
            identity.subject
        );
        return Err(Error::corruption(what));
    }
    Ok(crc)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATABASE: DatabaseId = DatabaseId(77);

    fn sealed() -> (Vec<u8>, BlockIdentity, BlockRef) {
        let mut image = vec![9u8; 4096];
        let identity = BlockIdentity { database: DATABASE, kind: BlockKind::Page, subject: 5 };
        let reference = seal(&mut image, identity, Csn(3), BlockNumber(12));
        (image, identity, reference)
    }

    #[test]
    fn a_sealed_block_verifies_and_its_reference_names_it() {
        let (image, identity, reference) = sealed();
        assert!(verify(&image, identity, reference).is_ok());
        assert_eq!(reference.block(), BlockNumber(12));
        assert!(!reference.is_absent() && BlockRef::ABSENT.is_absent());
    }

    #[test]
    fn every_damaged_byte_is_found() {
        let (image, identity, reference) = sealed();
        for at in 0..image.len() {
            let mut damaged = image.clone();
            damaged[at] ^= 0x10;
            assert!(verify(&damaged, identity, reference).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_block_of_another_page_kind_or_database_is_refused() {
        let (image, identity, reference) = sealed();
        for wrong in [
            BlockIdentity { subject: 6, ..identity },
            BlockIdentity { kind: BlockKind::Mapping, ..identity },
            BlockIdentity { database: DatabaseId(78), ..identity },
        ] {
            let error = verify(&image, wrong, reference).expect_err("identity differs");
            assert_eq!(error.kind(), ErrorKind::Corruption);
        }
    }

    #[test]
    fn older_image_of_the_same_page_in_its_place_is_a_lost_write() {
        let (old, identity, _) = sealed();
        let mut new = vec![10u8; 4096];
        let reference = seal(&mut new, identity, Csn(4), BlockNumber(12));
        let error = verify(&old, identity, reference).expect_err("stale");
        assert!(error.to_string().contains("a write was lost"), "{error}");
    }

    #[test]
    fn a_newer_format_is_unsupported_not_corrupt() {
        let (mut image, identity, reference) = sealed();
        image[7] = VERSION + 1;
        let crc = checksum::crc(&image[4..]);
        image[..4].copy_from_slice(&crc.to_le_bytes());
        let error = verify(&image, identity, reference).expect_err("newer");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}
