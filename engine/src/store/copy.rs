//! Copying page images from one store to another: backups, and databases made of them.
//!
//! An image keeps its kind and its CSN. In a store of the same database the copy is the same to the last bit, so the tag in a
//! reference says that a copy is what the reference in the original means, wherever it is and whatever it shares its block with (P1).

use super::blocks::{self, BLOCK_HEADER_BYTES, BlockRef, ImageKind};
use super::pack::Opened;
use super::writer::{Heat, ImageWriter, Written};
use super::{PageStore, Round, StoreRoot};
use crate::base::settings::Compression;
use crate::base::{Csn, DatabaseId, Location, PageId, Result};
use crate::device::Storage;
use std::sync::Arc;

/// Images side by side are read with one read of at most this many bytes.
const READ_BYTES_MAX: usize = 1 << 20;

/// A page image and where it came from.
#[derive(Debug)]
pub struct StoredImage<'a> {
    /// The page.
    pub page: PageId,
    /// Where it is.
    pub reference: BlockRef,
    /// Which kind.
    pub kind: ImageKind,
    /// Images in its block, dead ones included.
    pub images: u8,
    /// As long as a page, with the store's header.
    pub bytes: &'a [u8],
}

impl BlockRef {
    /// Whether both mean the same bytes, wherever they are: 24 bits of the checksum say so.
    #[must_use]
    pub fn means_same_as(self, other: BlockRef) -> bool {
        self.matches(other.tag())
    }
}

impl PageStore {
    /// Every page of the last committed round, ascending, and where its image is.
    #[must_use]
    pub fn references(&self) -> Vec<(PageId, BlockRef)> {
        let state = self.state.lock();
        let pages = (0..state.mapping.part_count()).flat_map(|part| state.mapping.page_ids(part));
        pages.map(|page| (page, state.mapping.get(page))).collect()
    }

    /// Reads the images that `wanted` names, in the order of the file, verifies each, and hands it to `visit`.
    ///
    /// # Errors
    /// `Corruption` with the page; I/O; those of `visit`.
    pub fn visit_images(
        &self,
        wanted: &[(PageId, BlockRef)],
        visit: &mut dyn FnMut(&StoredImage<'_>) -> Result<()>,
    ) -> Result<()> {
        let page_bytes = self.source.page_bytes;
        let mut sorted = wanted.to_vec();
        sorted.sort_unstable_by_key(|(_, reference)| reference.block());
        let together = |a: &(PageId, BlockRef), b: &(PageId, BlockRef)| b.1.block().0 - a.1.block().0 <= 1;
        let run_max = READ_BYTES_MAX / page_bytes;
        let longest = READ_BYTES_MAX.min(sorted.len() * page_bytes);
        let (mut buffer, mut spare) = (self.buffer(longest), self.buffer(page_bytes));
        for run in sorted.chunk_by(together).flat_map(|run| run.chunks(run_max)) {
            let (first, last) = (run[0].1.block().0, run[run.len() - 1].1.block().0);
            let bytes = &mut buffer[..(last - first + 1) as usize * page_bytes];
            self.source.file.read_at(self.source.offset(run[0].1), bytes)?;
            for (page, reference) in run {
                let (page, reference) = (*page, *reference);
                let place = Location::Page { page, offset: self.source.offset(reference) };
                let at = (reference.block().0 - first) as usize * page_bytes;
                let (block, spare) = (&mut bytes[at..at + page_bytes], &mut spare[..page_bytes]);
                let (opened, bytes) =
                    self.open_block(page, reference, block, spare).map_err(|error| error.at(place))?;
                let Opened { kind, images } = opened;
                visit(&StoredImage { page, reference, kind, images, bytes })?;
            }
        }
        Ok(())
    }
}

/// A new page store that is being filled with images of another. Dropping it leaves a store without pages.
#[derive(Debug)]
pub struct StoreCopy {
    store: Arc<PageStore>,
    round: Round,
    writer: ImageWriter,
    written: Vec<Written>,
}

/// Bytes of buffers for writing.
const WRITER_BYTES: u64 = 2 << 20;

impl StoreCopy {
    /// Creates the store, in which images are compressed like this; whatever was in its place is gone.
    ///
    /// # Errors
    /// `OutOfSpace`; I/O.
    pub fn create(
        storage: &dyn Storage,
        database: DatabaseId,
        page_bytes: usize,
        csn: Csn,
        compression: Compression,
    ) -> Result<StoreCopy> {
        let store = PageStore::create(storage, database, page_bytes)?;
        store.compress(compression);
        let round = store.begin_round(1, csn)?;
        let writer = store.writer(storage, WRITER_BYTES)?;
        Ok(StoreCopy { store, round, writer, written: Vec::new() })
    }

    /// Copies an image.
    ///
    /// # Errors
    /// `OutOfSpace`; I/O, of this or an earlier copy.
    pub fn push(&mut self, image: &StoredImage<'_>) -> Result<()> {
        self.writer.push(image.page, blocks::csn_of(image.bytes), Heat::Cold, |out| {
            out[BLOCK_HEADER_BYTES..].copy_from_slice(&image.bytes[BLOCK_HEADER_BYTES..]);
            Some((image.kind, 0))
        })?;
        self.record(false)
    }

    /// Writes the catalog and the mapping and flushes. What a manifest must point to to have the copies.
    ///
    /// # Errors
    /// `OutOfSpace`; I/O.
    pub fn finish(mut self, catalog: Option<&[u8]>) -> Result<StoreRoot> {
        self.record(true)?;
        if let Some(catalog) = catalog {
            self.round.write_blob(catalog)?;
        }
        let finished = self.round.finish()?;
        let root = finished.root().clone();
        self.store.round_committed(finished);
        self.store.release();
        Ok(root)
    }

    fn record(&mut self, all: bool) -> Result<()> {
        self.writer.reap(all, &mut self.written)?;
        for written in self.written.drain(..) {
            self.round.record(written.page, written.reference);
        }
        Ok(())
    }
}
