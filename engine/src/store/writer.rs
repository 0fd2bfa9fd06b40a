//! Writing page images: many at a time, side by side where there is room.
//!
//! ```text
//!   push ─▶ run: free blocks side by side, one buffer ──full──▶ queue (several writes in flight) ──▶ Written
//! ```
//!
//! One writer belongs to one thread. What it wrote is in no table of the store: whoever called decides, when the write is
//! done, whether the page is still what the image shows, and records or discards the image.
//!
//! # Invariants
//! - W1: an image is reported when its write has completed, never before.
//! - W2: the blocks of a failed write stay in use (F3), whatever it failed with: its bytes may still arrive.

use super::PageStore;
use super::blocks::{self, BlockNumber, BlockRef, ImageKind};
use crate::base::{Csn, Error, PageId, Result};
use crate::device::{AlignedBuffer, Completion, Storage, WriteQueue, WriteRequest};
use std::sync::Arc;

/// Writes in flight, of one writer.
const DEPTH: usize = 16;
/// Longest run.
const RUN_BYTES_MAX: usize = 128 << 10;

/// An image whose write has completed. It is not durable: a round's end flushes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// The page.
    pub page: PageId,
    /// Where its image is.
    pub reference: BlockRef,
    /// Which kind.
    pub kind: ImageKind,
    /// What the caller gave with it.
    pub token: u64,
}

/// Blocks side by side, and the images that go there.
struct Run {
    first: BlockNumber,
    blocks: u64,
    images: Vec<Written>,
    buffer: AlignedBuffer,
}

/// See the module's text.
pub struct ImageWriter {
    store: Arc<PageStore>,
    queue: Box<dyn WriteQueue>,
    run_pages: u64,
    filling: Option<Run>,
    /// By token; the buffer is with the queue.
    in_flight: Vec<Option<Vec<Written>>>,
    buffers: Vec<AlignedBuffer>,
    completions: Vec<Completion>,
}

impl std::fmt::Debug for ImageWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ImageWriter({} writes in flight)", self.queue.in_flight())
    }
}

impl PageStore {
    /// A writer of images to this store, which is in `storage`; its buffers take at most about `bytes_max` (at least one
    /// page's).
    ///
    /// # Errors
    /// I/O.
    pub fn writer(self: &Arc<Self>, storage: &dyn Storage, bytes_max: u64) -> Result<ImageWriter> {
        let per_write = (bytes_max as usize / (DEPTH + 1)).min(RUN_BYTES_MAX);
        Ok(ImageWriter {
            store: self.clone(),
            queue: storage.write_queue(DEPTH)?,
            run_pages: (per_write / self.page_bytes()).max(1) as u64,
            filling: None,
            in_flight: Vec::new(),
            buffers: Vec::new(),
            completions: Vec::new(),
        })
    }
}

impl ImageWriter {
    /// Has an image of `page` written: `fill` makes it (less the first [`super::BLOCK_HEADER_BYTES`]), says of which kind it is
    /// and gives a token to recognise it by; `None` means that there is nothing to write. Returns whether there was. May wait
    /// for an earlier write.
    ///
    /// # Errors
    /// `OutOfSpace`; I/O, of this or an earlier write.
    pub fn push(
        &mut self,
        page: PageId,
        csn: Csn,
        fill: impl FnOnce(&mut [u8]) -> Option<(ImageKind, u64)>,
    ) -> Result<bool> {
        let page_bytes = self.store.page_bytes();
        if self.filling.is_none() {
            self.filling = Some(self.new_run()?);
        }
        let run = self.filling.as_mut().expect("made above");
        let at = run.images.len();
        let image = &mut run.buffer[at * page_bytes..(at + 1) * page_bytes];
        let Some((kind, token)) = fill(image) else { return Ok(false) };
        let identity = self.store.source.identity(kind.block_kind(), page.0);
        let reference = blocks::seal(image, identity, csn, BlockNumber(run.first.0 + at as u64));
        run.images.push(Written { page, reference, kind, token });
        if run.images.len() as u64 == run.blocks {
            self.submit()?;
        }
        Ok(true)
    }

    fn new_run(&mut self) -> Result<Run> {
        let (first, blocks) = self.store.allocate_run(self.run_pages)?;
        self.store.state.lock().unrecorded += blocks;
        let bytes = blocks as usize * self.store.page_bytes();
        let fits = self.buffers.iter().position(|buffer| buffer.len() >= bytes);
        let buffer = fits.map_or_else(|| AlignedBuffer::zeroed(bytes), |at| self.buffers.swap_remove(at));
        Ok(Run { first, blocks, images: Vec::new(), buffer })
    }

    /// Starts the write of the run being filled.
    fn submit(&mut self) -> Result<()> {
        let Some(run) = self.filling.take() else { return Ok(()) };
        let used = run.images.len() as u64;
        {
            let mut state = self.store.state.lock();
            (used..run.blocks).for_each(|at| state.free.release(BlockNumber(run.first.0 + at)));
            state.settle(run.blocks - used);
        }
        if used == 0 {
            self.keep(run.buffer);
            return Ok(());
        }
        let len = used as usize * self.store.page_bytes();
        let token = self.in_flight.iter().position(Option::is_none).unwrap_or_else(|| {
            self.in_flight.push(None);
            self.in_flight.len() - 1
        });
        self.in_flight[token] = Some(run.images);
        if self.queue.in_flight() >= DEPTH {
            self.queue.reap(true, &mut self.completions)?;
        }
        self.queue.submit(WriteRequest {
            file: self.store.source.file.clone(),
            offset: run.first.0 * self.store.page_bytes() as u64,
            buffer: run.buffer,
            len,
            durable: false,
            token: token as u64,
        })
    }

    fn keep(&mut self, buffer: AlignedBuffer) {
        if self.buffers.len() < DEPTH {
            self.buffers.push(buffer);
        }
    }

    /// Images whose writes have completed; `all` has the run being filled written too and waits for everything.
    ///
    /// # Errors
    /// `OutOfSpace`; I/O. What was written before is in `written` nevertheless.
    pub fn reap(&mut self, all: bool, written: &mut Vec<Written>) -> Result<()> {
        let mut result = if all { self.submit() } else { Ok(()) };
        loop {
            let wait = all && self.queue.in_flight() > 0;
            let reaped = self.queue.reap(wait, &mut self.completions);
            for completion in std::mem::take(&mut self.completions) {
                result = result.and(self.complete(completion, written));
            }
            result = result.and(reaped);
            if !wait || result.is_err() {
                return result;
            }
        }
    }

    fn complete(&mut self, completion: Completion, written: &mut Vec<Written>) -> Result<()> {
        let images = self.in_flight.get_mut(completion.token as usize).and_then(Option::take);
        let Some(images) = images else {
            return Err(Error::corruption("the device completed a write that nobody asked for"));
        };
        self.keep(completion.buffer);
        match completion.result {
            Ok(()) => {
                self.store.traffic.count_write(images.len() * self.store.page_bytes());
                written.extend(images);
                Ok(())
            }
            Err(error) => {
                // They stay in use (W2).
                let mut state = self.store.state.lock();
                state.settle(images.len() as u64);
                Err(error)
            }
        }
    }
}

impl Drop for ImageWriter {
    /// Waits for what is in flight. Nobody will record it: the blocks are free again.
    fn drop(&mut self) {
        if let Some(run) = self.filling.take() {
            let mut state = self.store.state.lock();
            (0..run.blocks).for_each(|at| state.free.release(BlockNumber(run.first.0 + at)));
            state.settle(run.blocks);
        }
        let mut written = Vec::new();
        if let Err(error) = self.reap(true, &mut written) {
            tracing::debug!(%error, "a write of page images that nobody needs any more failed");
        }
        written.iter().for_each(|image| self.store.discard(image.reference));
    }
}
