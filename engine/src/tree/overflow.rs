//! Large values: those that do not fit in an entry of a leaf lie in *overflow pages*, a tree of their own.
//!
//! ```text
//!   leaf entry: reference ──▶ root ──▶ index page ──▶ content page      a value of one page: the root is the content
//!   (root, length, checksum)      ├──▶ index page     content page
//!                                 └──▶ ...            ...
//! ```
//!
//! | bytes    | what                                                                                       |
//! |----------|--------------------------------------------------------------------------------------------|
//! | 0..32    | the store's ([`PAGE_HEADER_BYTES`])                                                        |
//! | 32       | kind: 3                                                                                    |
//! | 33       | level: 0 content, otherwise one more than the pages that it refers to                      |
//! | 34..36   | 0                                                                                          |
//! | 36..40   | bytes used behind the header                                                               |
//! | 40..48   | stamp of the value's *owner*: who wrote it; 0 if everybody may see that it is committed    |
//! | 48..     | content, or page ids of 8 bytes; then zeros                                                |
//!
//! A reference, in place of the value in an entry, has [`REFERENCE_BYTES`]:
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | root page |
//! | 8..16 | length of the value |
//! | 16..20 | CRC-32C of the value |
//! | 20..24 | 0 |
//!
//! Invariants:
//! 1. A page is written once, under the exclusive guard with which it was allocated, before any entry refers to its value,
//!    and never changed: a new value has new pages. So a reader needs nothing but the certainty that the value is not freed.
//! 2. The shape follows from the length alone: every page but the last of its level is full. So every page that is met can
//!    be checked to be the one that belongs there, and a damaged one leads nowhere else.
//! 3. A value's pages belong to one entry or one before-image. Whoever takes the last reference away frees them.

mod check;
mod free;

pub use check::{check, visit_pages};
pub use free::{LargeSubtree, free, free_by, free_or_keep};

use super::descent::retry;
use super::node::{HEADER_WORD, KIND_OVERFLOW, WORD};
use crate::base::account::Charge;
use crate::base::checksum::crc_append;
use crate::base::encoding::Reader;
use crate::base::{Error, ErrorKind, PageId, Result};
use crate::buffer::{EmergencyReserve, ExclusiveGuard, PAGE_HEADER_BYTES, PageBytes, Pool};
use std::sync::Arc;

/// Longest value: 1 GiB less 64 KiB.
pub const VALUE_BYTES_MAX: u64 = (1 << 30) - (64 << 10);

/// Bytes of an encoded [`LargeReference`].
pub const REFERENCE_BYTES: usize = 24;

const STAMP_WORD: usize = HEADER_WORD + 1;
const CONTENT_OFFSET: usize = PAGE_HEADER_BYTES + 2 * WORD;
/// Levels above the content: enough for [`VALUE_BYTES_MAX`] in the smallest pages.
const LEVEL_MAX: u8 = 3;
const SMALLEST_PAGE: u64 = 4096;

const _: () = {
    let content = SMALLEST_PAGE - CONTENT_OFFSET as u64;
    let fanout = content / WORD as u64;
    assert!(fanout * fanout * fanout * content > VALUE_BYTES_MAX && LEVEL_MAX == 3);
};

/// Where a large value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct LargeReference {
    /// The page at its top.
    pub root: PageId,
    /// Its length in bytes, 1 to [`VALUE_BYTES_MAX`].
    pub len: u64,
    /// CRC-32C of the value.
    pub crc: u32,
}

impl LargeReference {
    /// The form that an entry holds.
    #[must_use]
    pub fn encode(&self) -> [u8; REFERENCE_BYTES] {
        let mut out = [0; REFERENCE_BYTES];
        out[..8].copy_from_slice(&self.root.0.to_le_bytes());
        out[8..16].copy_from_slice(&self.len.to_le_bytes());
        out[16..20].copy_from_slice(&self.crc.to_le_bytes());
        out
    }

    /// The reference that an entry holds.
    ///
    /// # Errors
    /// `Corruption` if it can be none.
    pub fn decode(bytes: &[u8]) -> Result<LargeReference> {
        Self::parse(bytes)
            .ok_or_else(|| Error::corruption("an entry's reference to a large value is malformed"))
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<LargeReference> {
        let mut reader = Reader::new(bytes);
        let reference =
            LargeReference { root: PageId(reader.u64()?), len: reader.u64()?, crc: reader.u32()? };
        let zero = reader.u32()? == 0 && reader.is_empty();
        let possible = (1..=VALUE_BYTES_MAX).contains(&reference.len) && reference.root.0 != 0;
        (zero && possible).then_some(reference)
    }
}

/// How a value of some length is divided (invariant 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape {
    len: u64,
    /// Bytes behind a page's header.
    room: u64,
}

impl Shape {
    fn new(pool: &Pool, len: u64) -> Shape {
        Shape { len, room: (pool.page_bytes() - CONTENT_OFFSET) as u64 }
    }

    fn fanout(self) -> u64 {
        self.room / WORD as u64
    }

    fn content_pages(self) -> u64 {
        self.len.div_ceil(self.room)
    }

    fn root_level(self) -> u8 {
        (0..=LEVEL_MAX).find(|level| self.span(*level) >= self.content_pages()).unwrap_or(LEVEL_MAX)
    }

    /// Content pages below a full page of `level`.
    fn span(self, level: u8) -> u64 {
        self.fanout().pow(level.into())
    }

    /// Bytes used in the page of `level` below which content page `first` is the first.
    fn used(self, level: u8, first: u64) -> u64 {
        if level == 0 {
            return self.room.min(self.len.saturating_sub(first * self.room));
        }
        let below = self.span(level).min(self.content_pages().saturating_sub(first));
        below.div_ceil(self.span(level - 1)) * WORD as u64
    }
}

/// Where a page of a value belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    page: PageId,
    level: u8,
    /// The first content page below it, or itself.
    first: u64,
}

fn level_of(page: PageBytes<'_>) -> u8 {
    (page.word(HEADER_WORD) >> 8) as u8
}

fn used_of(page: PageBytes<'_>) -> u64 {
    page.word(HEADER_WORD) >> 32
}

/// Whether the page is an overflow page.
pub(super) fn is_overflow(page: PageBytes<'_>) -> bool {
    page.word(HEADER_WORD) as u8 == KIND_OVERFLOW
}

/// The stamp of the value's owner.
pub(super) fn stamp_of(page: PageBytes<'_>) -> u64 {
    page.word(STAMP_WORD)
}

/// The level of a checked page, and its bytes or the pages that it refers to.
pub(super) fn content_of(page: PageBytes<'_>) -> (u8, Result<Vec<u8>, Vec<PageId>>) {
    let (level, used) = (level_of(page), used_of(page) as usize);
    if level == 0 {
        let mut bytes = Vec::with_capacity(used);
        page.append_to(CONTENT_OFFSET, used, &mut bytes);
        return (level, Ok(bytes));
    }
    let ids = (0..used / WORD).map(|n| PageId(page.get_u64(CONTENT_OFFSET + n * WORD)));
    (level, Err(ids.collect()))
}

/// Takes the stamp off an overflow page's image.
pub(super) fn settle(image: &mut [u8]) {
    image[STAMP_WORD * WORD..CONTENT_OFFSET].fill(0);
}

/// Everything that can be said of an overflow page alone.
pub(super) fn check_page(page: PageBytes<'_>) -> Result<(), &'static str> {
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

/// Whether the page is the one that belongs at `place`.
fn is_at(page: PageBytes<'_>, shape: Shape, place: Place) -> bool {
    is_overflow(page)
        && level_of(page) == place.level
        && used_of(page) == shape.used(place.level, place.first)
}

#[cold]
fn misplaced(page: PageId) -> Error {
    Error::corruption(format!("{page} is not the overflow page that a large value has there"))
}

/// Reads from the page at `place` without holding it.
fn look<T>(pool: &Pool, shape: Shape, place: Place, read: impl Fn(PageBytes<'_>) -> T) -> Result<T> {
    retry(pool, || {
        let guard = pool.optimistic(place.page)?;
        let belongs = is_at(guard.bytes(), shape, place);
        let result = belongs.then(|| read(guard.bytes()));
        guard.validate()?;
        result.ok_or_else(|| misplaced(place.page).into())
    })
}

/// The pages that an index page at `place` refers to.
fn children(page: PageBytes<'_>, shape: Shape, place: Place) -> Vec<Place> {
    let count = shape.used(place.level, place.first) / WORD as u64;
    let below = place.level - 1;
    (0..count)
        .map(|n| Place {
            page: PageId(page.get_u64(CONTENT_OFFSET + n as usize * WORD)),
            level: below,
            first: place.first + n * shape.span(below),
        })
        .collect()
}

fn root_of(shape: Shape, reference: &LargeReference) -> Place {
    Place { page: reference.root, level: shape.root_level(), first: 0 }
}

/// Called when there are no pages left, before the last attempt to get one.
pub type Relief = Box<dyn Fn() + Send>;

/// Frees a page.
pub type Release = Box<dyn Fn(ExclusiveGuard<'_>) + Send>;

/// Writes a large value piece by piece. Dropped before [`LargeWriter::finish`] it frees what it has written.
pub struct LargeWriter {
    pool: Arc<Pool>,
    stamp: u64,
    /// Everything written, to be freed if the value is given up.
    pages: Vec<PageId>,
    /// Per level: pages that no index page refers to yet.
    open: Vec<Vec<PageId>>,
    /// Content of a page that is not full yet.
    pending: Vec<u8>,
    len: u64,
    crc: u32,
    relief: Option<Relief>,
    release: Option<Release>,
    charge: Charge,
}

impl std::fmt::Debug for LargeWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LargeWriter({} bytes in {} pages)", self.len, self.pages.len())
    }
}

impl LargeWriter {
    /// A value without bytes, whose owner has `stamp`.
    #[must_use]
    pub fn new(pool: Arc<Pool>, stamp: u64) -> LargeWriter {
        LargeWriter {
            charge: pool.account().charge(0),
            pool,
            stamp,
            pages: Vec::new(),
            open: vec![Vec::new()],
            pending: Vec::new(),
            len: 0,
            crc: 0,
            relief: None,
            release: None,
        }
    }

    /// Has `relief` called when there are no pages left.
    #[must_use]
    pub fn relieved_by(mut self, relief: Relief) -> LargeWriter {
        self.relief = Some(relief);
        self
    }

    /// Has `release` free the pages of a value that is given up.
    #[must_use]
    pub fn released_by(mut self, release: Release) -> LargeWriter {
        self.release = Some(release);
        self
    }

    /// Bytes so far.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True without bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// `InvalidArgument` beyond [`VALUE_BYTES_MAX`]; `OutOfMemory` when there are no pages left.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        let len = self.len + bytes.len() as u64;
        if len > VALUE_BYTES_MAX {
            return Err(too_long(len));
        }
        self.crc = crc_append(self.crc, bytes);
        self.len = len;
        let room = self.pool.page_bytes() - CONTENT_OFFSET;
        while self.pending.len() + bytes.len() >= room {
            let (now, rest) = bytes.split_at(room - self.pending.len());
            if self.pending.is_empty() {
                self.write_page(0, now)?;
            } else {
                let mut content = std::mem::take(&mut self.pending);
                content.extend_from_slice(now);
                self.write_page(0, &content)?;
                content.clear();
                self.pending = content;
            }
            bytes = rest;
        }
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes what is left and the index pages.
    ///
    /// # Errors
    /// `OutOfMemory`; `InvalidArgument` for a value without bytes, which needs no pages.
    pub fn finish(mut self) -> Result<LargeReference> {
        if self.len == 0 {
            return Err(Error::invalid("a value without bytes is not large"));
        }
        let rest = std::mem::take(&mut self.pending);
        if !rest.is_empty() {
            self.write_page(0, &rest)?;
        }
        let mut level = 0;
        loop {
            match self.open[level][..] {
                [root] if level + 1 == self.open.len() => {
                    self.pages.clear();
                    return Ok(LargeReference { root, len: self.len, crc: self.crc });
                }
                [] => {}
                _ => self.write_index(level)?,
            }
            level += 1;
        }
    }

    /// Index pages are written when they are full, or at the end.
    fn write_index(&mut self, below: usize) -> Result<()> {
        let ids: Vec<u8> = self.open[below].drain(..).flat_map(|page| page.0.to_le_bytes()).collect();
        self.write_page(below + 1, &ids)
    }

    fn write_page(&mut self, level: usize, content: &[u8]) -> Result<()> {
        let mut guard = match self.pool.allocate() {
            Err(error) if error.kind() == ErrorKind::OutOfMemory && self.relief.is_some() => {
                self.relief.as_ref().into_iter().for_each(|relief| relief());
                self.pool.allocate()?
            }
            allocated => allocated?,
        };
        let mut page = guard.bytes_mut();
        page.set_word(
            HEADER_WORD,
            u64::from(KIND_OVERFLOW) | (level as u64) << 8 | (content.len() as u64) << 32,
        );
        page.set_word(STAMP_WORD, self.stamp);
        page.copy_from(CONTENT_OFFSET, content);
        let id = guard.page_id();
        drop(guard);
        self.pages.push(id);
        self.charge.set((self.pages.capacity() * size_of::<PageId>()) as u64);
        if self.open.len() == level {
            self.open.push(Vec::new());
        }
        self.open[level].push(id);
        if self.open[level].len() == (self.pool.page_bytes() - CONTENT_OFFSET) / WORD {
            self.write_index(level)?;
        }
        Ok(())
    }
}

impl Drop for LargeWriter {
    fn drop(&mut self) {
        // Often it is given up because there is no memory. Each page that is brought in is freed at once.
        let _reserve = EmergencyReserve::begin();
        // The newest first: these are in memory, and what they give back is room for those that have to be brought in.
        for page in self.pages.drain(..).rev() {
            // Nobody knows of the page, so its latch is soon free: only a checkpoint and who evicts look at it.
            match self.pool.exclusive(page) {
                Ok(guard) => match &self.release {
                    Some(release) => release(guard),
                    None => self.pool.free(guard),
                },
                Err(error) => {
                    tracing::error!(%error, "a page of a large value that was given up stays allocated")
                }
            }
        }
    }
}

/// A value of `len` bytes is longer than any may be.
#[cold]
#[must_use]
pub fn too_long(len: u64) -> Error {
    Error::invalid(format!("a value has at most {VALUE_BYTES_MAX} bytes, this one has {len} or more"))
}

/// Reads a large value, which must not be freed meanwhile.
#[derive(Debug)]
pub struct LargeReader {
    pool: Arc<Pool>,
    reference: LargeReference,
    shape: Shape,
    /// The index page of level 1 that was used last: the first content page below it, and all of them.
    index: Option<(u64, Vec<Place>)>,
}

impl LargeReader {
    /// A reader of the value at `reference`.
    #[must_use]
    pub fn new(pool: Arc<Pool>, reference: LargeReference) -> LargeReader {
        let shape = Shape::new(&pool, reference.len);
        LargeReader { pool, reference, shape, index: None }
    }

    /// The value.
    #[must_use]
    pub fn reference(&self) -> &LargeReference {
        &self.reference
    }

    /// ScanBuffer bytes from `offset` on, at most to the end of a page; 0 at the end of the value.
    ///
    /// # Errors
    /// `Corruption` for a page that does not belong to the value; I/O.
    pub fn read_at(&mut self, offset: u64, out: &mut [u8]) -> Result<usize> {
        if offset >= self.reference.len {
            return Ok(0);
        }
        let place = self.content_page(offset / self.shape.room)?;
        let within = offset % self.shape.room;
        let there = self.shape.used(0, place.first) - within;
        let count = out.len().min(there as usize);
        let out = std::cell::RefCell::new(&mut out[..count]);
        look(&self.pool, self.shape, place, |page| {
            page.copy_to(CONTENT_OFFSET + within as usize, &mut out.borrow_mut());
        })?;
        Ok(count)
    }

    fn content_page(&mut self, number: u64) -> Result<Place> {
        let mut place = root_of(self.shape, &self.reference);
        if let Some((first, pages)) = &self.index
            && let Some(place) = number.checked_sub(*first).and_then(|n| pages.get(n as usize))
        {
            return Ok(*place);
        }
        while place.level > 0 {
            let below = look(&self.pool, self.shape, place, |page| children(page, self.shape, place))?;
            let index = (number - place.first) / self.shape.span(place.level - 1);
            let next = below.get(index as usize).copied().ok_or_else(|| misplaced(place.page))?;
            if place.level == 1 {
                self.index = Some((place.first, below));
            }
            place = next;
        }
        Ok(place)
    }

    /// Appends the whole value to `out`.
    ///
    /// # Errors
    /// As [`LargeReader::read_at`]; `Corruption` if the checksum is wrong.
    pub fn read_all(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        let mut offset = 0;
        while offset < self.reference.len {
            let at = out.len();
            out.resize(at + (self.reference.len - offset).min(self.shape.room) as usize, 0);
            let count = self.read_at(offset, &mut out[at..])?;
            out.truncate(at + count);
            offset += count as u64;
        }
        self.check_crc(crc_append(0, &out[start..]))
    }

    /// Compares the checksum of the whole value.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn check_crc(&self, crc: u32) -> Result<()> {
        if crc == self.reference.crc {
            return Ok(());
        }
        Err(Error::corruption(format!("the large value at {} has a wrong checksum", self.reference.root)))
    }
}
