//! Writing page images: many at a time, side by side where there is room.
//!
//! ```text
//!   push ─▶ run: free blocks side by side, one buffer ──full──▶ queue (several writes in flight) ──▶ Written
//!      cold: ▲
//!        └─▶ packs being filled (see `packer`)
//! ```
//!
//! A cold image is not expected to change soon. If the store compresses images, the writer packs
//! cold ones into shared blocks. They are reported like any other image.
//!
//! One writer belongs to one thread. Written images are in no table of the store yet: after the
//! write the caller checks whether the page still is what the image shows, and records or discards
//! the image.
//!
//! # Invariants
//! - W1: an image is reported when its write has completed, never before.
//! - W2: the blocks of a failed write stay in use (F3), whatever the error: its bytes may still
//!   arrive.

use super::super::block::{self, BlockNumber, BlockRef, ImageKind};
use super::super::pack::codec::Codec;
use super::super::pack::format::Sealed;
use super::super::pack::packer::{Image, Offered, OpenPack, Packer};
use super::super::page_store::PageStore;
use crate::base::planted::{self, Bug};
use crate::base::{Csn, Error, ErrorKind, PageId, Result};
use crate::device::{AlignedBuffer, Completion, Storage, WriteQueue, WriteRequest};
use std::sync::Arc;

/// Writes in flight of one writer.
const DEPTH: usize = 16;
/// Bytes of a run, at most.
const RUN_BYTES_MAX: usize = 128 << 10;
/// An image whose write has completed. It is not durable before the checkpoint's flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// The page.
    pub page: PageId,
    /// Its image.
    pub reference: BlockRef,
    /// The kind of the image.
    pub kind: ImageKind,
    /// The caller's token.
    pub token: u64,
}

/// Whether an image is expected to change soon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heat {
    /// The image gets a block of its own, which is free as soon as the page changes.
    Hot,
    /// The image may share a block.
    Cold,
}

/// Adjacent blocks and their images.
struct Run {
    first: BlockNumber,
    blocks: u64,
    /// Filled blocks.
    used: u64,
    images: Vec<Written>,
    /// Packs among the blocks, and their numbers of images.
    packs: Vec<(BlockNumber, u8)>,
    buffer: AlignedBuffer,
}

/// A write in flight; its buffer is with the queue.
struct InFlight {
    first: BlockNumber,
    blocks: u64,
    images: Vec<Written>,
}

/// See the module's text.
pub struct ImageWriter {
    store: Arc<PageStore>,
    queue: Box<dyn WriteQueue>,
    run_pages: u64,
    /// Only blocks before this one are written.
    bound: Option<u64>,
    /// It waits for blocks of other writers: see `DiskSpace::await_run`.
    pub(super) waits: bool,
    filling: Option<Run>,
    /// None if the store does not compress.
    packer: Option<Packer>,
    /// By token.
    in_flight: Vec<Option<InFlight>>,
    buffers: Vec<AlignedBuffer>,
    completions: Vec<Completion>,
}

impl std::fmt::Debug for ImageWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ImageWriter({} writes in flight)", self.queue.in_flight())
    }
}

impl PageStore {
    /// Returns a writer of images to this store, which is in `storage`. Its buffers take about
    /// `bytes_max` bytes, and at least one page.
    ///
    /// # Errors
    /// I/O.
    pub fn writer(self: &Arc<Self>, storage: &dyn Storage, bytes_max: u64) -> Result<ImageWriter> {
        self.writer_before(storage, bytes_max, None)
    }

    /// As [`PageStore::writer`]; the writer takes only free blocks before `bound` and does not
    /// extend the file.
    pub(in super::super) fn writer_before(
        self: &Arc<Self>,
        storage: &dyn Storage,
        bytes_max: u64,
        bound: Option<u64>,
    ) -> Result<ImageWriter> {
        let codec = Codec::of(self.compression());
        let of_packer = codec.map_or(0, |_| Packer::bytes(self.page_bytes()));
        let per_write = (bytes_max.saturating_sub(of_packer) as usize / (DEPTH + 1)).min(RUN_BYTES_MAX);
        Ok(ImageWriter {
            store: self.clone(),
            queue: storage.write_queue(DEPTH)?,
            run_pages: (per_write / self.page_bytes()).max(1) as u64,
            bound,
            waits: false,
            filling: None,
            packer: codec.map(|codec| Packer::new(codec, self.page_bytes())),
            in_flight: Vec::new(),
            buffers: Vec::new(),
            completions: Vec::new(),
        })
    }
}

impl ImageWriter {
    /// Limits a run to `blocks` blocks. A run that is not filled puts later blocks farther from the
    /// front of the file.
    pub fn limit_run(&mut self, blocks: u64) {
        self.run_pages = self.run_pages.min(blocks.max(1));
    }

    /// Writes an image of `page`: `fill` makes it (without the first `BLOCK_HEADER_BYTES`) and
    /// returns its kind and a token, or `None` if there is nothing to write. Returns whether an
    /// image was pushed. May wait for an earlier write.
    ///
    /// # Errors
    /// `OutOfSpace`; I/O, of this or an earlier write.
    pub fn push(
        &mut self,
        page: PageId,
        csn: Csn,
        heat: Heat,
        fill: impl FnOnce(&mut [u8]) -> Option<(ImageKind, u64)>,
    ) -> Result<bool> {
        if heat == Heat::Hot {
            return self.push_alone(page, csn, fill);
        }
        let Some(mut packer) = self.packer.take() else { return self.push_alone(page, csn, fill) };
        let result = if packer.is_due() {
            let offered = packer.offer(self.store.file.database, page, csn, fill);
            self.put_offered(&offered, &packer).map(|()| !matches!(offered, Offered::Nothing))
        } else {
            self.push_alone(page, csn, fill)
        };
        self.packer = Some(packer);
        result
    }

    fn put_offered(&mut self, offered: &Offered, packer: &Packer) -> Result<()> {
        match offered {
            Offered::Nothing | Offered::Packed(None) => Ok(()),
            Offered::Packed(Some(pack)) => self.put_pack(pack, packer.codec()),
            Offered::Plain(image) => self.put(std::slice::from_ref(image), |out| {
                out.copy_from_slice(packer.plain());
                Ok(())
            }),
        }
    }

    /// A single image is written as a block of its own (P1).
    fn put_pack(&mut self, pack: &OpenPack, codec: Codec) -> Result<()> {
        let database = self.store.file.database;
        if pack.filling.images() == 1 {
            return self.put(&pack.images, |out| pack.filling.unpack_single(out, database));
        }
        self.put(&pack.images, |out| {
            pack.filling.seal(out, database);
            Ok(())
        })?;
        self.store.packing.note(codec, pack.images.len() as u64);
        Ok(())
    }

    /// Adds a sealed block with these images, which `fill` makes, to the run.
    fn put(&mut self, images: &[Image], fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
        let page_bytes = self.store.page_bytes();
        let run = self.run()?;
        let at = run.used as usize;
        debug_assert!(run.used < run.blocks, "a full run was submitted");
        fill(&mut run.buffer[at * page_bytes..(at + 1) * page_bytes])?;
        let block = BlockNumber(run.first.0 + run.used);
        run.images.extend(images.iter().map(|image| {
            let Sealed { page, crc, kind, .. } = image.sealed;
            Written { page, reference: BlockRef::new(block, crc), kind, token: image.token }
        }));
        if images.len() > 1 {
            run.packs.push((block, images.len() as u8));
        }
        run.used += 1;
        if run.used == run.blocks { self.submit() } else { Ok(()) }
    }

    fn run(&mut self) -> Result<&mut Run> {
        if self.filling.is_none() {
            self.filling = Some(self.new_run()?);
        }
        Ok(self.filling.as_mut().expect("made above"))
    }

    fn push_alone(
        &mut self,
        page: PageId,
        csn: Csn,
        fill: impl FnOnce(&mut [u8]) -> Option<(ImageKind, u64)>,
    ) -> Result<bool> {
        let (page_bytes, store) = (self.store.page_bytes(), self.store.clone());
        let run = self.run()?;
        let at = run.used as usize;
        debug_assert!(run.used < run.blocks, "a full run was submitted");
        let image = &mut run.buffer[at * page_bytes..(at + 1) * page_bytes];
        let Some((kind, token)) = fill(image) else { return Ok(false) };
        let identity = store.file.identity(kind.block_kind(), page.0);
        let reference = block::seal(image, identity, csn, BlockNumber(run.first.0 + run.used));
        run.images.push(Written { page, reference, kind, token });
        run.used += 1;
        if run.used == run.blocks {
            self.submit()?;
        }
        Ok(true)
    }

    fn new_run(&mut self) -> Result<Run> {
        let own = self.in_flight.iter().flatten().map(|write| write.blocks).sum();
        let (first, blocks) = {
            let (mut state, run) = match self.bound {
                None if self.waits => self.store.space.await_run(self.run_pages, own)?,
                None => {
                    let mut state = self.store.state.lock();
                    let run = self.store.space.allocate_run(&mut state, self.run_pages)?;
                    (state, run)
                }
                Some(bound) => {
                    let mut state = self.store.state.lock();
                    let run = self.store.space.allocate_before(&mut state, bound, self.run_pages);
                    let none = || Error::new(ErrorKind::OutOfSpace, "no block before the bound is free");
                    (state, run.ok_or_else(none)?)
                }
            };
            state.blocks.in_flight.begin(run.0, run.1, self.bound.is_some());
            run
        };
        let bytes = blocks as usize * self.store.page_bytes();
        let fits = self.buffers.iter().position(|buffer| buffer.len() >= bytes);
        let buffer = fits.map_or_else(|| AlignedBuffer::zeroed(bytes), |at| self.buffers.swap_remove(at));
        Ok(Run { first, blocks, used: 0, images: Vec::new(), packs: Vec::new(), buffer })
    }

    /// Starts the write of the run being filled.
    fn submit(&mut self) -> Result<()> {
        let Some(run) = self.filling.take() else { return Ok(()) };
        {
            let mut state = self.store.state.lock();
            (run.used..run.blocks).rev().for_each(|at| state.blocks.give_back(BlockNumber(run.first.0 + at)));
            run.packs.iter().for_each(|(block, images)| state.blocks.free.becomes_pack(*block, *images));
        }
        debug_assert!(run.images.is_empty() == (run.used == 0), "each block of a run has an image");
        debug_assert!(
            run.packs.iter().all(|(block, _)| (run.first.0..run.first.0 + run.used).contains(&block.0)),
            "packs lie in the used blocks of their run"
        );
        if run.used == 0 {
            self.keep_buffer(run.buffer);
            return Ok(());
        }
        let len = run.used as usize * self.store.page_bytes();
        let token = self.in_flight.iter().position(Option::is_none).unwrap_or_else(|| {
            self.in_flight.push(None);
            self.in_flight.len() - 1
        });
        debug_assert!(len <= run.buffer.len(), "a run fits its buffer");
        self.in_flight[token] = Some(InFlight { first: run.first, blocks: run.used, images: run.images });
        if self.queue.in_flight() >= DEPTH {
            self.queue.reap(true, &mut self.completions)?;
        }
        self.queue.submit(WriteRequest {
            file: self.store.file.file.clone(),
            offset: run.first.0 * self.store.page_bytes() as u64,
            buffer: run.buffer,
            len,
            durable: false,
            token: token as u64,
        })
    }

    fn keep_buffer(&mut self, buffer: AlignedBuffer) {
        if self.buffers.len() < DEPTH {
            self.buffers.push(buffer);
        }
    }

    /// Collects images whose writes have completed. `all` also writes the run being filled and
    /// waits for every write.
    ///
    /// # Errors
    /// `OutOfSpace`; I/O. Images written before are in `written` nevertheless.
    pub fn reap(&mut self, all: bool, written: &mut Vec<Written>) -> Result<()> {
        let submitted = if all { self.close_packs().and(self.submit()) } else { Ok(()) };
        let mut result = Ok(());
        loop {
            let wait = all && self.queue.in_flight() > 0;
            let reaped = self.queue.reap(wait, &mut self.completions);
            for completion in std::mem::take(&mut self.completions) {
                result = result.and(self.complete(completion, written));
            }
            result = result.and(reaped);
            if !wait || result.is_err() {
                return submitted.and(result);
            }
        }
    }

    fn close_packs(&mut self) -> Result<()> {
        let Some(mut packer) = self.packer.take() else { return Ok(()) };
        let mut result = Ok(());
        while let Some(pack) = packer.take_fullest().filter(|_| result.is_ok()) {
            result = self.put_pack(&pack, packer.codec());
        }
        self.packer = Some(packer);
        result
    }

    fn complete(&mut self, completion: Completion, written: &mut Vec<Written>) -> Result<()> {
        let done = self.in_flight.get_mut(completion.token as usize).and_then(Option::take);
        let Some(InFlight { first, blocks, images }) = done else {
            return Err(Error::corruption("the device completed a write that was never submitted"));
        };
        self.keep_buffer(completion.buffer);
        let believed = planted::is(Bug::FailedImageRecorded);
        match completion.result.or_else(|error| if believed { Ok(()) } else { Err(error) }) {
            Ok(()) => {
                self.store.file.traffic.count_write(blocks as usize * self.store.page_bytes());
                written.extend(images);
                Ok(())
            }
            Err(error) => {
                self.leak(first, blocks);
                Err(error)
            }
        }
    }

    /// Keeps the blocks in use (W2).
    fn leak(&self, first: BlockNumber, blocks: u64) {
        let mut state = self.store.state.lock();
        (first.0..first.0 + blocks).for_each(|block| state.blocks.in_flight.leak(BlockNumber(block)));
    }
}

impl Drop for ImageWriter {
    /// Waits for writes in flight and frees their blocks, because no image will be recorded.
    fn drop(&mut self) {
        if let Some(run) = self.filling.take() {
            let mut state = self.store.state.lock();
            (0..run.blocks).rev().for_each(|at| state.blocks.give_back(BlockNumber(run.first.0 + at)));
        }
        // Images in open packs are dropped.
        self.packer = None;
        let (mut written, mut before) = (Vec::new(), usize::MAX);
        // One failed write does not end the others.
        loop {
            let left = self.in_flight.iter().flatten().count();
            if left == 0 || left >= before {
                break;
            }
            before = left;
            if let Err(error) = self.reap(true, &mut written) {
                tracing::debug!(%error, "a write of page images that are no longer needed failed");
            }
        }
        written.iter().for_each(|image| self.store.discard(image.reference));
        for unknown in std::mem::take(&mut self.in_flight).into_iter().flatten() {
            // The queue failed: it is unknown whether they were written.
            self.leak(unknown.first, unknown.blocks);
        }
    }
}
