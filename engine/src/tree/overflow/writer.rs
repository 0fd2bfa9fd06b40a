//! Writes large values.

use super::format::{CONTENT_OFFSET, LargeReference, STAMP_WORD, Shape, VALUE_BYTES_MAX, too_long};
use crate::base::account::Charge;
use crate::base::checksum::crc_append;
use crate::base::{Error, PageId, Result};
use crate::buffer::{EmergencyReserve, ExclusiveGuard, Pool};
use crate::tree::node::{HEADER_WORD, KIND_OVERFLOW, WORD};
use std::sync::Arc;

/// Makes room after this error and so many earlier attempts, before another attempt to allocate a
/// page. Returns the error if no room can be made.
pub type MakeRoom = Box<dyn Fn(Error, u32) -> Result<()> + Send>;

/// Frees a page.
pub type Release = Box<dyn Fn(ExclusiveGuard<'_>) + Send>;

/// Writes a large value piece by piece. Dropped before [`LargeWriter::finish`] it frees the pages
/// written so far.
pub struct LargeWriter {
    pool: Arc<Pool>,
    stamp: u64,
    /// All pages written, to be freed if the value is abandoned.
    pages: Vec<PageId>,
    /// Per level: pages that no index page refers to yet.
    open: Vec<Vec<PageId>>,
    /// Content of a page that is not full yet.
    pending: Vec<u8>,
    len: u64,
    crc: u32,
    make_room: Option<MakeRoom>,
    release: Option<Release>,
    charge: Charge,
}

impl std::fmt::Debug for LargeWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LargeWriter({} bytes in {} pages)", self.len, self.pages.len())
    }
}

impl LargeWriter {
    /// Begins a value without bytes, whose owner has `stamp`.
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
            make_room: None,
            release: None,
        }
    }

    /// Calls `make_room` when there is no memory or no disk space for a page.
    #[must_use]
    pub fn with_make_room(mut self, make_room: MakeRoom) -> LargeWriter {
        self.make_room = Some(make_room);
        self
    }

    /// Frees the pages of an abandoned value by `release`.
    #[must_use]
    pub fn with_release(mut self, release: Release) -> LargeWriter {
        self.release = Some(release);
        self
    }

    /// Returns whether no byte was written.
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

    /// Writes the rest of the content and the index pages.
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
                    debug_assert_eq!(
                        level,
                        usize::from(Shape::new(&self.pool, self.len).root_level()),
                        "the shape follows from the length"
                    );
                    self.pages.clear();
                    return Ok(LargeReference { root, len: self.len, crc: self.crc });
                }
                [] => {}
                _ => self.write_index(level)?,
            }
            level += 1;
        }
    }

    /// Writes an index page, when it is full or at the end.
    fn write_index(&mut self, below: usize) -> Result<()> {
        let ids: Vec<u8> = self.open[below].drain(..).flat_map(|page| page.0.to_le_bytes()).collect();
        self.write_page(below + 1, &ids)
    }

    fn write_page(&mut self, level: usize, content: &[u8]) -> Result<()> {
        debug_assert!(!content.is_empty() && content.len() <= self.pool.page_bytes() - CONTENT_OFFSET);
        debug_assert!(level == 0 || content.len().is_multiple_of(WORD), "an index page holds page ids");
        debug_assert!(level <= self.open.len(), "no level is skipped");
        let mut attempts = 0;
        let mut guard = loop {
            match (self.pool.allocate(), &self.make_room) {
                (Err(error), Some(make_room)) => make_room(error, attempts)?,
                (allocated, _) => break allocated?,
            }
            attempts += 1;
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
        // Often a value is abandoned because there is no memory. Each page that is brought in is
        // freed at once.
        let _reserve = EmergencyReserve::begin();
        // The newest first: those are in memory, and their memory is room for pages that have to be
        // brought in.
        for page in self.pages.drain(..).rev() {
            // No other page refers to the page, so its latch is soon free: only a checkpoint and
            // the evictor look at it.
            match self.pool.exclusive(page) {
                Ok(guard) => match &self.release {
                    Some(release) => release(guard),
                    None => self.pool.free(guard),
                },
                Err(error) => {
                    tracing::error!(%error, "a page of an abandoned large value stays allocated")
                }
            }
        }
    }
}
