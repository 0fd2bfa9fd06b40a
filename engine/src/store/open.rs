//! Creates a page store, or opens one as of a checkpoint.

use super::allocator::Allocator;
use super::allocator::free::FreeSpace;
use super::blob;
use super::block::{self, BlockNumber, references_per_block};
use super::block_file::BlockFile;
use super::manifest::{Manifest, ManifestFile, ReaderSlot, Readers, StoreRoot, open_newest_checkpoint};
use super::mapping::Images;
use super::mapping::load::load_mapping;
use super::mapping::table::Mapping;
use super::pack::Packing;
use super::page_store::PageStore;
use crate::base::{DatabaseId, Error, ErrorKind, Location, Result};
use crate::device::{AlignedBuffer, File, Names, OpenMode, PAGES_PATH, SECTOR_BYTES, Storage};
use std::sync::Arc;

impl PageStore {
    /// Creates an empty page store, durably, except for the name of its directory. Deletes the
    /// file's old content: call it only if [`pages_state`] allows it.
    ///
    /// # Errors
    /// `OutOfSpace`; I/O.
    pub fn create(storage: &dyn Storage, database: DatabaseId, page_bytes: usize) -> Result<Arc<PageStore>> {
        let file = storage.pages(OpenMode { create: true, read_only: false, direct: true })?;
        file.claim()?;
        file.set_len(0)?;
        let mut header = AlignedBuffer::zeroed(page_bytes);
        block::seal_file_header(&mut header, database);
        file.write_at(0, &header)?;
        file.flush()?;
        storage.flush_names(Names::Pages)?;
        let file = BlockFile::new(file, database, page_bytes);
        let per_part = references_per_block(page_bytes);
        let images = Images::new(Mapping::empty(page_bytes), per_part, None, Vec::new());
        let blocks = Allocator::new(FreeSpace::with_extents(1, extent_blocks(storage, page_bytes)));
        Ok(Arc::new(Self::with(file, images, blocks, Packing::default(), None, None)))
    }

    /// Returns the error for a database without its file of pages.
    #[must_use]
    pub fn missing_file() -> Error {
        let what = "the file of pages is missing";
        Error::corruption(what)
            .with_advice("put it back, or restore a backup, because `salvage` needs it too")
            .at(Location::File { path: PAGES_PATH.into(), offset: 0 })
    }

    /// Opens the file of pages and claims the right to write to it. To be called before anything is
    /// written, also before the manifest: the lock file of the database may have been removed while
    /// another process is at work.
    ///
    /// # Errors
    /// `NotFound`; `Busy` if another process has it, or writes of a killed process do not end; I/O.
    pub fn claim(storage: &dyn Storage) -> Result<Arc<dyn File>> {
        let file = storage.pages(OpenMode { create: false, read_only: false, direct: true })?;
        // A write of a killed process must not arrive in a block that is used again.
        file.claim()?;
        Ok(file)
    }

    /// Opens the page store as of the checkpoint of `manifest`, for writing to `file`, which was
    /// [claimed](PageStore::claim) before the manifest was read. Loads the whole mapping: 8 bytes
    /// per page. The caller has held the lock of the database since then.
    ///
    /// # Errors
    /// `Corruption`, `Unsupported` with the place; I/O.
    pub fn open(
        storage: &Arc<dyn Storage>,
        manifest: &Manifest,
        file: Arc<dyn File>,
    ) -> Result<Arc<PageStore>> {
        let (database, page_bytes) = (manifest.database, manifest.page_bytes as usize);
        let readers = Some(Readers::new(storage.clone(), database));
        let extents = extent_blocks(&**storage, page_bytes);
        let store = Self::open_with(file, database, page_bytes, &manifest.store, extents, readers, None)?;
        // Before the first block is written: content of older checkpoints that a reader has is not
        // free.
        let generations = store.space.generations_read();
        let has_other_reader = generations.iter().any(|reader| *reader != manifest.generation);
        {
            let free = &mut store.state.lock().blocks.free;
            free.committed(manifest.generation, generations);
            if has_other_reader {
                free.hold_all_free();
            }
        }
        store.space.back_free_end()?;
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
        let file = open_to_read(storage)?;
        Self::open_with(file, database, page_bytes, root, None, None, None).map(Arc::new)
    }

    /// Opens the page store as of the newest durable checkpoint, beside the process that writes to
    /// it, if any. The checkpoint stays as it is for as long as the store is open. Returns its
    /// manifest too.
    ///
    /// # Errors
    /// As [`open_newest_checkpoint`] and [`PageStore::open`].
    pub fn open_newest_checkpoint(storage: &Arc<dyn Storage>) -> Result<(Manifest, Arc<PageStore>)> {
        let (manifest, slot) = open_newest_checkpoint(&**storage)?;
        Self::open_checkpoint(storage, manifest, slot)
    }

    /// Opens the page store as of the newest checkpoint in a storage that stays as it is. Returns
    /// its manifest too.
    ///
    /// # Errors
    /// As [`ManifestFile::open`] and [`PageStore::open`].
    pub fn open_pinned_checkpoint(storage: &Arc<dyn Storage>) -> Result<(Manifest, Arc<PageStore>)> {
        let (_, manifest) = ManifestFile::open(&**storage, true)?;
        Self::open_checkpoint(storage, manifest, ReaderSlot::new(None))
    }

    fn open_checkpoint(
        storage: &Arc<dyn Storage>,
        manifest: Manifest,
        slot: ReaderSlot,
    ) -> Result<(Manifest, Arc<PageStore>)> {
        let (database, page_bytes) = (manifest.database, manifest.page_bytes as usize);
        let readers = Some(Readers::new(storage.clone(), database));
        let file = open_to_read(&**storage)?;
        let store = Self::open_with(file, database, page_bytes, &manifest.store, None, readers, Some(slot))?;
        Ok((manifest, Arc::new(store)))
    }

    fn open_with(
        file: Arc<dyn File>,
        database: DatabaseId,
        page_bytes: usize,
        root: &StoreRoot,
        extent_blocks: Option<u64>,
        readers: Option<Readers>,
        slot: Option<ReaderSlot>,
    ) -> Result<PageStore> {
        let mut header = AlignedBuffer::zeroed(page_bytes);
        file.read_at(0, &mut header)?;
        block::verify_file_header(&header, database).map_err(|error| error.at(file.location(0)))?;
        root.codecs.check().map_err(|error| error.at(file.location(0)))?;
        let blocks = (file.len()? / page_bytes as u64).min(BlockNumber::LIMIT - 1);
        let file = BlockFile::new(file, database, page_bytes);
        let mut free = FreeSpace::with_extents(blocks, extent_blocks);
        let mapping = load_mapping(&file, &root.directory, &mut free)?;
        if mapping.pages() != root.pages {
            let what =
                format!("the mapping holds {} pages, the manifest says {}", mapping.pages(), root.pages);
            return Err(Error::corruption(what).at(file.location(BlockNumber(0))));
        }
        let mut catalog_blocks = Vec::new();
        if let Some(catalog) = &root.catalog {
            catalog_blocks = blob::read(&file, catalog)?.1;
            if !catalog_blocks.iter().all(|block| free.claim(*block)) {
                return Err(Error::corruption("a block of the catalog is in use by something else")
                    .at(file.location(catalog.first.block())));
            }
        }
        let packing = Packing::with(root.codecs);
        let images = Images::new(mapping, references_per_block(page_bytes), root.catalog, catalog_blocks);
        Ok(Self::with(file, images, Allocator::new(free), packing, readers, slot))
    }
}

/// The content of the file of pages, when there is no manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PagesState {
    /// There is no file.
    Missing,
    /// Nothing, zeros, or the header: an interrupted creation leaves no more.
    Blank,
    /// Blocks of a page store.
    Written,
    /// No block: the file is of another program.
    Foreign,
}

/// Length of a page store without a checkpoint, at most: one block of the largest page size.
const BLANK_BYTES: usize = 32768;
/// A page store has a block that is not damaged among its first ones.
const LOOKED_AT_BYTES: usize = 256 << 10;

/// Returns the content of the file of pages.
///
/// # Errors
/// I/O.
pub fn pages_state(storage: &dyn Storage) -> Result<PagesState> {
    let file = match storage.pages(OpenMode { create: false, read_only: true, direct: false }) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(PagesState::Missing),
        Err(error) => return Err(error),
    };
    let len = file.len()?;
    let mut bytes = vec![0; len.min(LOOKED_AT_BYTES as u64) as usize];
    file.read_at(0, &mut bytes)?;
    let is_blank = bytes.iter().all(|byte| *byte == 0) || block::is_only_file_header(&bytes);
    if len <= BLANK_BYTES as u64 && is_blank {
        return Ok(PagesState::Blank);
    }
    let is_written = bytes.chunks(SECTOR_BYTES).any(block::begins);
    Ok(if is_written { PagesState::Written } else { PagesState::Foreign })
}

/// Returns how many blocks an extent has, if the device stores whole extents.
fn extent_blocks(storage: &dyn Storage, page_bytes: usize) -> Option<u64> {
    let blocks = storage.facts().extent_bytes? / page_bytes as u64;
    (blocks > 1).then_some(blocks)
}

fn open_to_read(storage: &dyn Storage) -> Result<Arc<dyn File>> {
    let mode = OpenMode { create: false, read_only: true, direct: true };
    storage.pages(mode).map_err(|error| match error.kind() {
        ErrorKind::NotFound => PageStore::missing_file(),
        _ => error,
    })
}
