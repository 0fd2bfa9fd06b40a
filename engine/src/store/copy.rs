//! Copies page images from one store to another: backups, and databases restored from them.
//!
//! An image keeps its kind and its CSN. In a store of the same database the copy is bit-identical,
//! so the tag in a reference shows whether a copy is what the reference in the original means,
//! wherever it is and whichever block it shares (P1).

use super::block::{self, BLOCK_HEADER_BYTES};
use super::block_file::StoredImage;
use super::checkpoint_writer::{Heat, ImageWriter, OpenCheckpoint, Written};
use super::manifest::StoreRoot;
use super::page_store::PageStore;
use crate::base::settings::Compression;
use crate::base::{Csn, DatabaseId, Result};
use crate::device::Storage;
use std::sync::Arc;

/// A new page store that is being filled with images of another. Dropping it leaves a store without
/// pages.
#[derive(Debug)]
pub struct StoreCopy {
    store: Arc<PageStore>,
    checkpoint: OpenCheckpoint,
    writer: ImageWriter,
    written: Vec<Written>,
}

/// Bytes of buffers for writing.
const WRITER_BYTES: u64 = 2 << 20;

impl StoreCopy {
    /// Creates the store, with images compressed by `compression`. Deletes the file's old content.
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
        let checkpoint = store.begin_checkpoint(1, csn)?;
        let writer = store.writer(storage, WRITER_BYTES)?;
        Ok(StoreCopy { store, checkpoint, writer, written: Vec::new() })
    }

    /// Copies an image.
    ///
    /// # Errors
    /// `OutOfSpace`; I/O, of this or an earlier copy.
    pub fn push(&mut self, image: &StoredImage<'_>) -> Result<()> {
        self.writer.push(image.page, block::csn_of(image.bytes), Heat::Cold, |out| {
            out[BLOCK_HEADER_BYTES..].copy_from_slice(&image.bytes[BLOCK_HEADER_BYTES..]);
            Some((image.kind, 0))
        })?;
        self.record(false)
    }

    /// Writes the catalog and the mapping and flushes; returns the root for a manifest.
    ///
    /// # Errors
    /// `OutOfSpace`; I/O.
    pub fn finish(mut self, catalog: Option<&[u8]>) -> Result<StoreRoot> {
        self.record(true)?;
        if let Some(catalog) = catalog {
            self.checkpoint.write_blob(catalog)?;
        }
        let finished = self.checkpoint.finish()?;
        let root = finished.root().clone();
        self.store.commit_checkpoint(finished);
        self.store.release();
        Ok(root)
    }

    fn record(&mut self, all: bool) -> Result<()> {
        self.writer.reap(all, &mut self.written)?;
        for written in self.written.drain(..) {
            self.checkpoint.record(written.page, written.reference);
        }
        Ok(())
    }
}
