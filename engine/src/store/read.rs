//! Reading images: one, or many with few reads.
//!
//! Whoever reads holds no lock meanwhile, so a block may be freed and used again under him. What he read counts if it is what the
//! reference means; if it is not, and the reference has changed, he reads again.
//!
//! A snapshot may outlive its database. It reads on as long as the file is as the database left it. When another opening has used blocks
//! again they are not what the references mean, and that is no damage.

use super::blocks::{self, BlockRef, ImageKind};
use super::pack::{self, Opened};
use super::{BlobRef, PageStore, blob};
use crate::base::planted::{self, Bug};
use crate::base::{Error, ErrorKind, Location, PageId, Result};
use crate::device::{AlignedBuffer, ReadRequest, SECTOR_BYTES};
use crate::sync::atomic::Ordering;

impl PageStore {
    /// Nothing more will be written, nor the file made longer: another owner may have it, though this one can still be read.
    pub fn release(&self) {
        {
            // Before anybody else can write a block, and while the file does not grow.
            let _state = self.state.lock();
            self.released.store(true, Ordering::SeqCst);
        }
        self.source.file.unclaim();
    }

    /// A transaction may outlive its database, and ask for room for what it goes on changing.
    pub(super) fn refuse_if_released(&self) -> Result<()> {
        if self.released.load(Ordering::SeqCst) {
            return Err(Error::invalid("the database was closed"));
        }
        Ok(())
    }

    /// Of a block that is not what it was, whether that is damage is not known any more: somebody else may have written to it.
    fn unless_released(&self, error: Error) -> Error {
        let kept = self.slot.is_some() || !self.released.load(Ordering::SeqCst);
        if kept || !matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported) {
            return error;
        }
        let what =
            "the database was closed, and the page is not where it was then: read from one that is open";
        let closed = Error::invalid(what);
        match error.location() {
            Some(place) => closed.at(place.clone()),
            None => closed,
        }
    }

    /// Reads the newest image of `page` into `into` (of `page_bytes`), verifies it, and tells which kind it is. Any thread,
    /// at any time.
    ///
    /// # Errors
    /// `Corruption` with [`Location::Page`] if there is no image or it is not what was written; `InvalidArgument` instead if the store was
    /// released, unless it is a reader's; I/O.
    pub fn read_page(&self, page: PageId, into: &mut [u8]) -> Result<ImageKind> {
        if into.len() != self.source.page_bytes {
            return Err(Error::invalid("the buffer for a page is not as long as a page"));
        }
        let mut reference = self.state.lock().look_up(page);
        loop {
            if reference.is_absent() {
                return Err(Error::corruption("the page has no image").at(Location::Page { page, offset: 0 }));
            }
            let result = self.read_image(page, reference, into);
            // A newer image may have been recorded meanwhile, and the block freed under us and used again. Only if the
            // reference still stands is the failure a failure.
            let mut state = self.state.lock();
            let now = state.look_up(page);
            if let (Ok(opened), true) = (&result, now == reference) {
                state.free.learn(reference.block(), opened.images);
            }
            if result.is_ok() || now == reference {
                drop(state);
                return result.map(|opened| opened.kind).map_err(|error| self.unless_released(error));
            }
            reference = now;
        }
    }

    /// Reads the newest images of several pages, those side by side with one read. `visit` gets the index of each page, in
    /// any order, and what [`PageStore::read_page`] would have given.
    pub fn read_pages(&self, pages: &[PageId], visit: &mut VisitImage<'_>) {
        let page_bytes = self.source.page_bytes;
        let mut wanted: Vec<(BlockRef, usize)> = {
            let state = self.state.lock();
            let newest = |page| {
                if planted::is(Bug::ReadAheadIsStale) { state.mapping.get(page) } else { state.look_up(page) }
            };
            pages.iter().enumerate().map(|(index, page)| (newest(*page), index)).collect()
        };
        wanted.sort_unstable_by_key(|(reference, _)| reference.block());
        let together = |a: &(BlockRef, usize), b: &(BlockRef, usize)| {
            !a.0.is_absent() && b.0.block().0 - a.0.block().0 <= 1
        };
        let runs: Vec<_> = wanted.chunk_by(together).collect();
        let first = |run: &[(BlockRef, usize)]| run[0].0.block().0;
        let blocks = |run: &[(BlockRef, usize)]| run[run.len() - 1].0.block().0 - first(run) + 1;
        let whole = runs.iter().map(|run| blocks(run) as usize * page_bytes).sum::<usize>();
        let mut buffer = self.take_buffer(whole + page_bytes);
        let (image, mut rest) = buffer.split_at_mut(page_bytes);
        let mut reads: Vec<_> = runs
            .iter()
            .map(|run| {
                let buffer =
                    rest.split_off_mut(..blocks(run) as usize * page_bytes).expect("as long as all runs");
                ReadRequest { offset: self.source.offset(run[0].0), buffer, result: Ok(()) }
            })
            .collect();
        self.source.file.read_many(&mut reads, &mut |run, read| {
            let run = runs[run];
            for (reference, index) in run {
                let (page, at) = (pages[*index], (reference.block().0 - first(run)) as usize * page_bytes);
                let whole = read.result.is_ok() && !reference.is_absent();
                match self.open_block(page, *reference, &mut read.buffer[at..at + page_bytes], image) {
                    Ok((opened, image)) if whole => visit(*index, Ok((opened.kind, image))),
                    // The image has moved meanwhile, or is damaged: alone the page is read as often as it takes to know.
                    _ => {
                        visit(*index, self.read_page(page, image).map(|kind| (kind, &mut *image)));
                    }
                }
            }
        });
        drop(reads);
        self.buffers.lock().push(buffer);
    }

    /// A buffer of at least `len` bytes, to be given back to `buffers`: getting memory from the system and giving it back costs more
    /// than reading into it.
    fn take_buffer(&self, len: usize) -> AlignedBuffer {
        let kept = self.buffers.lock().pop();
        kept.filter(|buffer| buffer.len() >= len).unwrap_or_else(|| self.buffer(len))
    }

    /// The image of `page` in the block that was read from where `reference` says, or made in `spare` if that is a pack.
    ///
    /// # Errors
    /// `Corruption`, `Unsupported`; without a place.
    pub(super) fn open_block<'a>(
        &self,
        page: PageId,
        reference: BlockRef,
        block: &'a mut [u8],
        spare: &'a mut [u8],
    ) -> Result<(Opened, &'a mut [u8])> {
        let database = self.source.database;
        if blocks::is_pack(block) {
            return Ok((pack::unpack(block, database, page, reference, spare)?, spare));
        }
        let kind = blocks::verify_page(block, database, page, reference)?;
        Ok((Opened { kind, images: 1 }, block))
    }

    fn read_image(&self, page: PageId, reference: BlockRef, into: &mut [u8]) -> Result<Opened> {
        let offset = self.source.offset(reference);
        let place = Location::Page { page, offset };
        if is_aligned(into) {
            self.source.file.read_at(offset, into)?;
        } else {
            let mut bounce = AlignedBuffer::zeroed(into.len());
            self.source.file.read_at(offset, &mut bounce)?;
            into.copy_from_slice(&bounce);
        }
        let opened = if blocks::is_pack(into) {
            let block = into.to_vec();
            pack::unpack(&block, self.source.database, page, reference, into)
        } else {
            blocks::verify_page(into, self.source.database, page, reference)
                .map(|kind| Opened { kind, images: 1 })
        };
        opened.map_err(|error| error.at(place))
    }

    /// Reads a blob that a committed round wrote.
    ///
    /// # Errors
    /// `Corruption` with the place; I/O.
    pub fn read_blob(&self, blob: &BlobRef) -> Result<Vec<u8>> {
        blob::read(&self.source, blob).map(|(bytes, _)| bytes)
    }
}

/// Gets the index of a page and its image, or why there is none.
pub type VisitImage<'a> = dyn FnMut(usize, Result<(ImageKind, &mut [u8])>) + 'a;

/// Direct I/O wants aligned memory; pages of the buffer pool are.
fn is_aligned(bytes: &[u8]) -> bool {
    (bytes.as_ptr() as usize).is_multiple_of(SECTOR_BYTES)
}
