//! Making a page store, and opening one as of a checkpoint.

use super::blocks::{self, BlockNumber};
use super::free::FreeSpace;
use super::mapping::{BlockSource, Mapping};
use super::packing::Packing;
use super::{Manifest, PAGES_DIRECTORY, PAGES_PATH, PageStore, Parts, Readers, StoreRoot, blob};
use crate::base::{DatabaseId, Error, Result};
use crate::device::counted::CountedFile;
use crate::device::{AlignedBuffer, File, OpenMode, Storage};
use std::sync::Arc;

impl PageStore {
    /// Creates an empty page store, durably; whatever the file held before is gone.
    ///
    /// # Errors
    /// `OutOfSpace`; I/O.
    pub fn create(storage: &dyn Storage, database: DatabaseId, page_bytes: usize) -> Result<Arc<PageStore>> {
        storage.create_directory(PAGES_DIRECTORY)?;
        let file = storage.open(PAGES_PATH, OpenMode { create: true, read_only: false, direct: true })?;
        file.claim()?;
        file.set_len(0)?;
        let mut header = AlignedBuffer::zeroed(page_bytes);
        blocks::seal_file_header(&mut header, database);
        file.write_at(0, &header)?;
        file.flush()?;
        storage.flush_directory(PAGES_DIRECTORY)?;
        storage.flush_directory("")?;
        let (file, traffic) = CountedFile::wrap(file);
        let source = BlockSource { file, database, page_bytes };
        let parts = Parts::new(Mapping::empty(page_bytes), FreeSpace::new(1));
        Ok(Arc::new(Self::with(source, traffic, parts)))
    }

    /// The file of pages, which nobody else has to write to it. To be asked for before anything is written, the manifest included: somebody may
    /// have removed the file that is the lock of the database, and another process be at work.
    ///
    /// # Errors
    /// `NotFound`; `Busy` if another process has it, or writes of a killed one do not end; I/O.
    pub fn claim(storage: &dyn Storage) -> Result<Arc<dyn File>> {
        let file = storage.open(PAGES_PATH, OpenMode { create: false, read_only: false, direct: true })?;
        // A write of a killed process must not arrive in a block that is used again.
        file.claim()?;
        Ok(file)
    }

    /// Opens the page store as of the checkpoint of `manifest`, to write to it: to `file`, which was [claimed](PageStore::claim) before the manifest
    /// was read. Loads the whole mapping: 8 bytes per page. The caller has the lock of the database, and had it then, too.
    ///
    /// # Errors
    /// `Corruption`, `Unsupported` with the place; I/O.
    pub fn open(
        storage: &Arc<dyn Storage>,
        manifest: &Manifest,
        file: Arc<dyn File>,
    ) -> Result<Arc<PageStore>> {
        let (database, page_bytes) = (manifest.database, manifest.page_bytes as usize);
        let mut store = Self::open_with(file, database, page_bytes, &manifest.store)?;
        store.hold_for_readers(Readers::new(storage.clone(), database), manifest.generation);
        store.back_free_end()?;
        Ok(Arc::new(store))
    }

    /// As [`PageStore::open`], without ever writing.
    ///
    /// # Errors
    /// As [`PageStore::open`], and `NotFound`.
    pub fn open_read_only(
        storage: &dyn Storage,
        database: DatabaseId,
        page_bytes: usize,
        root: &StoreRoot,
    ) -> Result<Arc<PageStore>> {
        Self::open_to_read(storage, database, page_bytes, root).map(Arc::new)
    }

    pub(super) fn open_to_read(
        storage: &dyn Storage,
        database: DatabaseId,
        page_bytes: usize,
        root: &StoreRoot,
    ) -> Result<PageStore> {
        let file = storage.open(PAGES_PATH, OpenMode { create: false, read_only: true, direct: true })?;
        Self::open_with(file, database, page_bytes, root)
    }

    fn open_with(
        file: Arc<dyn File>,
        database: DatabaseId,
        page_bytes: usize,
        root: &StoreRoot,
    ) -> Result<PageStore> {
        let mut header = AlignedBuffer::zeroed(page_bytes);
        file.read_at(0, &mut header)?;
        blocks::verify_file_header(&header, database).map_err(|error| error.at(file.location(0)))?;
        root.codecs.check().map_err(|error| error.at(file.location(0)))?;
        let blocks = (file.len()? / page_bytes as u64).min(BlockNumber::LIMIT - 1);
        let (file, traffic) = CountedFile::wrap(file);
        let source = BlockSource { file, database, page_bytes };
        let mut free = FreeSpace::new(blocks);
        let mapping = Mapping::load(&source, &root.directory, &mut free)?;
        if mapping.pages() != root.pages {
            let what =
                format!("the mapping holds {} pages, the manifest says {}", mapping.pages(), root.pages);
            return Err(Error::corruption(what).at(source.file.location(0)));
        }
        let mut catalog_blocks = Vec::new();
        if let Some(catalog) = &root.catalog {
            catalog_blocks = blob::read(&source, catalog)?.1;
            if !catalog_blocks.iter().all(|block| free.claim(*block)) {
                return Err(Error::corruption("a block of the catalog is in use by something else")
                    .at(source.file.location(source.offset(catalog.first))));
            }
        }
        let packing = Packing::with(root.codecs);
        let parts = Parts { packing, catalog: root.catalog, catalog_blocks, ..Parts::new(mapping, free) };
        Ok(Self::with(source, traffic, parts))
    }
}
