//! Reads the newest images of pages: one, or many with few reads.
//!
//! A read holds no lock, so its block may be freed and reused meanwhile. Its result counts if it
//! is what the reference means; if not, and the reference has changed, the page is read again.

use super::block::{BlockRef, ImageKind};
use super::page_store::PageStore;
use crate::base::planted::{self, Bug};
use crate::base::{Error, Location, PageId, Result};
use crate::device::ReadRequest;

/// Gets the index of a page and its image, or the error of its read.
pub type VisitImage<'a> = dyn FnMut(usize, Result<(ImageKind, &mut [u8])>) + 'a;

impl PageStore {
    /// Reads the newest image of `page` into `into` (of `page_bytes`), verifies it, and returns its
    /// kind. Any thread, at any time.
    ///
    /// # Errors
    /// `Corruption` with [`Location::Page`] if there is no image or it is not what was written;
    /// `InvalidArgument` instead if the store was released, unless it is a reader's; I/O.
    pub fn read_page(&self, page: PageId, into: &mut [u8]) -> Result<ImageKind> {
        if into.len() != self.file.page_bytes {
            return Err(Error::invalid("the buffer for a page is not as long as a page"));
        }
        let mut reference = self.state.lock().images.look_up(page);
        loop {
            if reference.is_absent() {
                return Err(Error::corruption("the page has no image").at(Location::Page { page, offset: 0 }));
            }
            let result = self.file.read_image(page, reference, into);
            // A failure counts only if the reference still stands: a newer image may have been
            // recorded meanwhile, and the block freed and reused.
            let mut state = self.state.lock();
            let now = state.images.look_up(page);
            if let (Ok(opened), true) = (&result, now == reference) {
                state.blocks.free.learn(reference.block(), opened.images);
            }
            if result.is_ok() || now == reference {
                drop(state);
                return result.map(|opened| opened.kind).map_err(|error| self.file.unless_released(error));
            }
            reference = now;
        }
    }

    /// Reads the newest images of several pages, adjacent ones with one read. `visit` gets the
    /// index of each page, in any order, and the result that [`PageStore::read_page`] would give.
    pub fn read_pages(&self, pages: &[PageId], visit: &mut VisitImage<'_>) {
        let (file, page_bytes) = (&self.file, self.file.page_bytes);
        let mut wanted: Vec<(BlockRef, usize)> = {
            let state = self.state.lock();
            let newest = |page| {
                let stale = planted::is(Bug::ReadAheadIsStale);
                if stale { state.images.mapping.get(page) } else { state.images.look_up(page) }
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
        let mut buffer = file.take_buffer(whole + page_bytes);
        let (image, mut rest) = buffer.split_at_mut(page_bytes);
        let mut reads: Vec<_> = runs
            .iter()
            .map(|run| {
                let buffer =
                    rest.split_off_mut(..blocks(run) as usize * page_bytes).expect("as long as all runs");
                ReadRequest { offset: file.offset(run[0].0), buffer, result: Ok(()) }
            })
            .collect();
        file.file.read_many(&mut reads, &mut |run, read| {
            let run = runs[run];
            for (reference, index) in run {
                let (page, at) = (pages[*index], (reference.block().0 - first(run)) as usize * page_bytes);
                let whole = read.result.is_ok() && !reference.is_absent();
                match file.open_block(page, *reference, &mut read.buffer[at..at + page_bytes], image) {
                    Ok((opened, image)) if whole => visit(*index, Ok((opened.kind, image))),
                    // The image has moved meanwhile, or is damaged: a read of this page alone
                    // decides.
                    _ => {
                        visit(*index, self.read_page(page, image).map(|kind| (kind, &mut *image)));
                    }
                }
            }
        });
        drop(reads);
        file.keep_buffer(buffer);
    }
}
