//! The format of overflow pages, and which page belongs where.

use crate::base::encoding::Reader;
use crate::base::{Error, PageId, Result};
use crate::buffer::{PAGE_HEADER_BYTES, PageBytes, Pool};
use crate::tree::node::{HEADER_WORD, KIND_OVERFLOW, WORD};
use crate::tree::retry::retry;

/// The longest value: 1 GiB less 64 KiB.
pub const VALUE_BYTES_MAX: u64 = (1 << 30) - (64 << 10);

/// Bytes of an encoded [`LargeReference`].
pub const REFERENCE_BYTES: usize = 24;

pub(super) const STAMP_WORD: usize = HEADER_WORD + 1;
pub(super) const CONTENT_OFFSET: usize = PAGE_HEADER_BYTES + 2 * WORD;
/// Levels above the content: enough for [`VALUE_BYTES_MAX`] in the smallest pages.
const LEVEL_MAX: u8 = 3;
const SMALLEST_PAGE: u64 = 4096;

const _: () = {
    let content = SMALLEST_PAGE - CONTENT_OFFSET as u64;
    let fanout = content / WORD as u64;
    assert!(fanout * fanout * fanout * content > VALUE_BYTES_MAX && LEVEL_MAX == 3);
};

/// A reference to a large value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct LargeReference {
    /// The page at the top.
    pub root: PageId,
    /// Length of the value in bytes, 1 to [`VALUE_BYTES_MAX`].
    pub len: u64,
    /// CRC-32C of the value.
    pub crc: u32,
}

impl LargeReference {
    /// Returns the bytes that an entry holds.
    #[must_use]
    pub fn encode(&self) -> [u8; REFERENCE_BYTES] {
        let mut out = [0; REFERENCE_BYTES];
        out[..8].copy_from_slice(&self.root.0.to_le_bytes());
        out[8..16].copy_from_slice(&self.len.to_le_bytes());
        out[16..20].copy_from_slice(&self.crc.to_le_bytes());
        out
    }

    /// Returns the reference that an entry holds.
    ///
    /// # Errors
    /// `Corruption` if the bytes cannot be a reference.
    pub fn decode(bytes: &[u8]) -> Result<LargeReference> {
        Self::parse(bytes)
            .ok_or_else(|| Error::corruption("an entry's reference to a large value is malformed"))
    }

    pub(in crate::tree) fn parse(bytes: &[u8]) -> Option<LargeReference> {
        let mut reader = Reader::new(bytes);
        let reference =
            LargeReference { root: PageId(reader.u64()?), len: reader.u64()?, crc: reader.u32()? };
        let zero = reader.u32()? == 0 && reader.is_empty();
        let possible = (1..=VALUE_BYTES_MAX).contains(&reference.len) && reference.root.0 != 0;
        (zero && possible).then_some(reference)
    }
}

/// The shape of a value of some length (invariant 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    pub(super) len: u64,
    /// Bytes after a page's header.
    pub(super) room: u64,
}

impl Shape {
    pub(super) fn new(pool: &Pool, len: u64) -> Shape {
        debug_assert!((1..=VALUE_BYTES_MAX).contains(&len), "no large value has {len} bytes");
        Shape { len, room: (pool.page_bytes() - CONTENT_OFFSET) as u64 }
    }

    fn fanout(self) -> u64 {
        self.room / WORD as u64
    }

    fn content_pages(self) -> u64 {
        self.len.div_ceil(self.room)
    }

    pub(super) fn root_level(self) -> u8 {
        debug_assert!(self.span(LEVEL_MAX) >= self.content_pages(), "a value has at most {LEVEL_MAX} levels");
        (0..=LEVEL_MAX).find(|level| self.span(*level) >= self.content_pages()).unwrap_or(LEVEL_MAX)
    }

    /// Content pages below a full page of `level`.
    pub(super) fn span(self, level: u8) -> u64 {
        self.fanout().pow(level.into())
    }

    /// Bytes used in the page of `level` below which content page `first` is the first.
    pub(super) fn used(self, level: u8, first: u64) -> u64 {
        debug_assert!(first < self.content_pages(), "every page holds something of the value");
        debug_assert!(first.is_multiple_of(self.span(level)), "the pages before are full");
        if level == 0 {
            return self.room.min(self.len.saturating_sub(first * self.room));
        }
        let below = self.span(level).min(self.content_pages().saturating_sub(first));
        below.div_ceil(self.span(level - 1)) * WORD as u64
    }
}

/// The place of a page in a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) page: PageId,
    pub(super) level: u8,
    /// Number of the first content page below it, or of itself.
    pub(super) first: u64,
}

fn level_of(page: PageBytes<'_>) -> u8 {
    (page.word(HEADER_WORD) >> 8) as u8
}

fn used_of(page: PageBytes<'_>) -> u64 {
    page.word(HEADER_WORD) >> 32
}

/// Returns whether the page is an overflow page.
pub(in crate::tree) fn is_overflow(page: PageBytes<'_>) -> bool {
    page.word(HEADER_WORD) as u8 == KIND_OVERFLOW
}

/// The stamp of the value's owner.
pub(in crate::tree) fn stamp_of(page: PageBytes<'_>) -> u64 {
    page.word(STAMP_WORD)
}

/// Returns the level of a checked page, and its bytes or the pages that it refers to.
pub(in crate::tree) fn content_of(page: PageBytes<'_>) -> (u8, Result<Vec<u8>, Vec<PageId>>) {
    let (level, used) = (level_of(page), used_of(page) as usize);
    if level == 0 {
        let mut bytes = Vec::with_capacity(used);
        page.append_to(CONTENT_OFFSET, used, &mut bytes);
        return (level, Ok(bytes));
    }
    let ids = (0..used / WORD).map(|n| PageId(page.get_u64(CONTENT_OFFSET + n * WORD)));
    (level, Err(ids.collect()))
}

/// Removes the stamp from an overflow page's image.
pub(in crate::tree) fn settle(image: &mut [u8]) {
    image[STAMP_WORD * WORD..CONTENT_OFFSET].fill(0);
}

/// Checks everything that an overflow page alone shows.
pub(in crate::tree) fn check_page(page: PageBytes<'_>) -> Result<(), &'static str> {
    let (level, used) = (level_of(page), used_of(page));
    if level > LEVEL_MAX || page.get_u16(PAGE_HEADER_BYTES + 2) != 0 {
        return Err("the header of an overflow page is malformed");
    }
    if used == 0
        || used > (page.len() - CONTENT_OFFSET) as u64
        || level > 0 && !used.is_multiple_of(WORD as u64)
    {
        return Err("an overflow page uses more or less than it can");
    }
    let ids = if level > 0 { used as usize / WORD } else { 0 };
    let first = CONTENT_OFFSET / WORD;
    if (first..first + ids).any(|word| page.word(word) == 0) {
        return Err("an overflow page refers to no page");
    }
    Ok(())
}

/// Returns whether the page is the one that belongs at `place`.
pub(super) fn is_at(page: PageBytes<'_>, shape: Shape, place: Place) -> bool {
    is_overflow(page)
        && level_of(page) == place.level
        && used_of(page) == shape.used(place.level, place.first)
}

#[cold]
pub(super) fn misplaced(page: PageId) -> Error {
    Error::corruption(format!("{page} is not the overflow page that a large value has there"))
}

/// Reads from the page at `place` without latching it.
pub(super) fn look<T>(
    pool: &Pool,
    shape: Shape,
    place: Place,
    read: impl Fn(PageBytes<'_>) -> T,
) -> Result<T> {
    retry(pool, || {
        let guard = pool.optimistic(place.page)?;
        let is_right = is_at(guard.bytes(), shape, place);
        let result = is_right.then(|| read(guard.bytes()));
        guard.validate()?;
        result.ok_or_else(|| misplaced(place.page).into())
    })
}

/// Returns the pages that an index page at `place` refers to.
pub(super) fn children(page: PageBytes<'_>, shape: Shape, place: Place) -> Vec<Place> {
    let count = shape.used(place.level, place.first) / WORD as u64;
    debug_assert!(count > 0 && count <= shape.fanout());
    let below = place.level - 1;
    (0..count)
        .map(|n| Place {
            page: PageId(page.get_u64(CONTENT_OFFSET + n as usize * WORD)),
            level: below,
            first: place.first + n * shape.span(below),
        })
        .collect()
}

pub(super) fn root_of(shape: Shape, reference: &LargeReference) -> Place {
    Place { page: reference.root, level: shape.root_level(), first: 0 }
}

/// Returns the error for a value of `len` bytes, which is longer than allowed.
#[cold]
#[must_use]
pub fn too_long(len: u64) -> Error {
    Error::invalid(format!("a value has at most {VALUE_BYTES_MAX} bytes, this one has {len} or more"))
}
