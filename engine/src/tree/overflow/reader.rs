//! Reads large values.

use super::format::{CONTENT_OFFSET, LargeReference, Place, Shape, children, look, misplaced, root_of};
use crate::base::checksum::crc_append;
use crate::base::{Error, Result};
use crate::buffer::Pool;
use std::sync::Arc;

/// Reads a large value, which must not be freed meanwhile.
#[derive(Debug)]
pub struct LargeReader {
    pool: Arc<Pool>,
    reference: LargeReference,
    shape: Shape,
    /// The index page of level 1 used last: number of the first content page below it, and all of
    /// them.
    index: Option<(u64, Vec<Place>)>,
}

impl LargeReader {
    /// Returns a reader of the value at `reference`.
    #[must_use]
    pub fn new(pool: Arc<Pool>, reference: LargeReference) -> LargeReader {
        let shape = Shape::new(&pool, reference.len);
        LargeReader { pool, reference, shape, index: None }
    }

    /// The reference to the value.
    #[must_use]
    pub fn reference(&self) -> &LargeReference {
        &self.reference
    }

    /// Copies bytes from `offset` on, at most to the end of a page. Returns how many; 0 at the end
    /// of the value.
    ///
    /// # Errors
    /// `Corruption` for a page that does not belong to the value; I/O.
    pub fn read_at(&mut self, offset: u64, out: &mut [u8]) -> Result<usize> {
        if offset >= self.reference.len {
            return Ok(0);
        }
        let place = self.content_page(offset / self.shape.room)?;
        let within = offset % self.shape.room;
        debug_assert_eq!(place.first, offset / self.shape.room, "the page is the one that holds the offset");
        let available = self.shape.used(0, place.first) - within;
        let count = out.len().min(available as usize);
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
