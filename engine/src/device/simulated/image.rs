//! The bytes of a file on the simulated disk, in pages that copies share.
//!
//! A crash copies the whole disk, and a disk has each file twice (visible and durable) at many
//! points of the journal. Few of these bytes differ, and many are zero:
//!
//! ```text
//!   visible ──▶ [ page | page | -  | - ]        -: zero, takes no memory
//!                  │      │
//!   durable ──▶ [ page'| page | -  | - ]        a write copies the page, and the list if it is shared
//! ```
//!
//! Invariant: bytes beyond the end in the last page are zero, so that a longer image reads as zero
//! there.

use crate::base::{Error, Result};
use std::sync::Arc;

const PAGE_BYTES: usize = 4096;

type Page = [u8; PAGE_BYTES];

/// The bytes of a file. A clone shares all pages.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    len: usize,
    /// `None` is a page of zeros.
    pages: Arc<Vec<Option<Arc<Page>>>>,
}

/// Returns the parts of `start..start + len` by page: page number, offset in the page, offset from
/// `start`, length.
fn parts(start: usize, len: usize) -> impl Iterator<Item = (usize, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let (page, at) = ((start + done) / PAGE_BYTES, (start + done) % PAGE_BYTES);
        let part = (PAGE_BYTES - at).min(len - done);
        (part > 0).then(|| {
            done += part;
            (page, at, done - part, part)
        })
    })
}

impl Image {
    pub(super) fn from_bytes(bytes: &[u8]) -> Image {
        let mut image = Image::default();
        image.write(0, bytes);
        image
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Sets the length. New bytes are zero.
    pub(super) fn resize(&mut self, len: usize) {
        if len == self.len {
            return;
        }
        let pages = Arc::make_mut(&mut self.pages);
        pages.resize(len.div_ceil(PAGE_BYTES), None);
        if len < self.len
            && let Some(Some(last)) = pages.last_mut()
            && !len.is_multiple_of(PAGE_BYTES)
        {
            Arc::make_mut(last)[len % PAGE_BYTES..].fill(0);
        }
        self.len = len;
    }

    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// `Corruption` if the image ends before the buffer is full.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(buffer.len());
        if end > self.len {
            return Err(Error::corruption(format!("the file ends {} bytes early", end - self.len)));
        }
        for (page, at, from, len) in parts(start, buffer.len()) {
            match &self.pages[page] {
                Some(page) => buffer[from..from + len].copy_from_slice(&page[at..at + len]),
                None => buffer[from..from + len].fill(0),
            }
        }
        Ok(())
    }

    /// Writes `bytes` at `offset`. The image grows as needed.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let start = offset as usize;
        if self.len < start + bytes.len() {
            self.resize(start + bytes.len());
        }
        let pages = Arc::make_mut(&mut self.pages);
        for (page, at, from, len) in parts(start, bytes.len()) {
            let new = &bytes[from..from + len];
            match &mut pages[page] {
                Some(page) if len < PAGE_BYTES || Arc::strong_count(page) == 1 => {
                    Arc::make_mut(page)[at..at + len].copy_from_slice(new);
                }
                None if new.iter().all(|byte| *byte == 0) => {}
                empty_or_shared => {
                    let mut page = [0; PAGE_BYTES];
                    page[at..at + len].copy_from_slice(new);
                    *empty_or_shared = Some(Arc::new(page));
                }
            }
        }
    }

    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.pages.len() * PAGE_BYTES);
        for page in &*self.pages {
            match page {
                Some(page) => bytes.extend_from_slice(&**page),
                None => bytes.resize(bytes.len() + PAGE_BYTES, 0),
            }
        }
        bytes.truncate(self.len);
        bytes
    }
}

#[cfg(test)]
mod tests;
