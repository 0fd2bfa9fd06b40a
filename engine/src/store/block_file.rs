//! The file of blocks: reads, verifies and writes single blocks. It knows nothing of the mapping.
//!
//! A snapshot may outlive its database and continue to read. After [`BlockFile::release`] another
//! process may reuse blocks, so a block that fails verification then is reported as
//! `InvalidArgument`, not as damage.

use super::block::{self, BlockIdentity, BlockKind, BlockNumber, BlockRef, ImageKind};
use super::pack::{self, Opened};
use crate::base::{Account, Csn, DatabaseId, Error, ErrorKind, Location, PageId, Result};
use crate::device::counted::{CountedFile, Traffic};
use crate::device::{AlignedBuffer, File, SECTOR_BYTES};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Adjacent images are read with one read of at most this many bytes.
const READ_BYTES_MAX: usize = 1 << 20;

/// See the module's text.
#[derive(Debug)]
pub struct BlockFile {
    pub(super) file: Arc<dyn File>,
    pub(super) database: DatabaseId,
    /// Length of a block and of a page.
    pub(super) page_bytes: usize,
    pub(super) traffic: Arc<Traffic>,
    /// Pays for buffers that are larger than a page.
    pub(super) memory: OnceLock<Arc<Account>>,
    /// Buffers for reading many pages; one for each such read that ever ran at the same time.
    buffers: Mutex<Vec<AlignedBuffer>>,
    /// Another owner may have the file and write to any block. Set once.
    released: AtomicBool,
    /// A reader's slot keeps the blocks that are read here, also after the release.
    pub(super) is_held: AtomicBool,
}

/// A page image and its place.
#[derive(Debug)]
pub struct StoredImage<'a> {
    /// The page.
    pub page: PageId,
    /// Where the image is.
    pub reference: BlockRef,
    /// Its kind.
    pub kind: ImageKind,
    /// As long as a page, with the store's header.
    pub bytes: &'a [u8],
}

impl BlockFile {
    pub(super) fn new(file: Arc<dyn File>, database: DatabaseId, page_bytes: usize) -> BlockFile {
        let (file, traffic) = CountedFile::wrap(file);
        BlockFile {
            file,
            database,
            page_bytes,
            traffic,
            memory: OnceLock::new(),
            buffers: Mutex::default(),
            released: AtomicBool::new(false),
            is_held: AtomicBool::new(false),
        }
    }

    /// Byte offset of the block.
    #[must_use]
    pub fn offset(&self, reference: BlockRef) -> u64 {
        reference.block().0 * self.page_bytes as u64
    }

    pub(super) fn location(&self, block: BlockNumber) -> Location {
        self.file.location(block.0 * self.page_bytes as u64)
    }

    /// An identity in this database.
    #[must_use]
    pub fn identity(&self, kind: BlockKind, subject: u64) -> BlockIdentity {
        BlockIdentity { database: self.database, kind, subject }
    }

    /// Ends writing and growing: another owner may have the file, though this one may still read.
    /// The caller holds the store's lock, so that the file does not grow meanwhile.
    pub(super) fn release(&self) {
        self.released.store(true, Ordering::SeqCst);
    }

    /// A transaction may outlive its database and ask for space for further changes.
    pub(super) fn refuse_if_released(&self) -> Result<()> {
        if self.released.load(Ordering::SeqCst) {
            return Err(Error::invalid("the database was closed"));
        }
        Ok(())
    }

    /// After the release a block that fails verification may have been reused by another owner.
    pub(super) fn unless_released(&self, error: Error) -> Error {
        let kept = self.is_held.load(Ordering::SeqCst) || !self.released.load(Ordering::SeqCst);
        if kept || !matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported) {
            return error;
        }
        let what = "the database was closed, and the page is not where it was then";
        let closed = Error::invalid(what).with_advice("read from one that is open");
        match error.location() {
            Some(place) => closed.at(place.clone()),
            None => closed,
        }
    }

    /// Returns a new buffer of at least `len` bytes, charged to the database's memory.
    pub(super) fn buffer(&self, len: usize) -> AlignedBuffer {
        match self.memory.get() {
            Some(memory) => AlignedBuffer::charged(len, memory),
            None => AlignedBuffer::zeroed(len),
        }
    }

    /// Returns a buffer of at least `len` bytes, for [`BlockFile::keep_buffer`] later: getting
    /// memory from the system and giving it back costs more than reading into it.
    pub(super) fn take_buffer(&self, len: usize) -> AlignedBuffer {
        let kept = self.buffers.lock().pop();
        kept.filter(|buffer| buffer.len() >= len).unwrap_or_else(|| self.buffer(len))
    }

    pub(super) fn keep_buffer(&self, buffer: AlignedBuffer) {
        self.buffers.lock().push(buffer);
    }

    /// Returns the image of `page` in a `block` that was read from `reference`; unpacked into
    /// `spare` if the block is a pack.
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
        if block::is_pack(block) {
            return Ok((pack::unpack(block, self.database, page, reference, spare)?, spare));
        }
        let kind = block::verify_page(block, self.database, page, reference)?;
        Ok((Opened { kind, images: 1 }, block))
    }

    /// Reads the image of `page` at `reference` into `into`, as long as a page, and verifies it.
    pub(super) fn read_image(&self, page: PageId, reference: BlockRef, into: &mut [u8]) -> Result<Opened> {
        let offset = self.offset(reference);
        let place = Location::Page { page, offset };
        if is_aligned(into) {
            self.file.read_at(offset, into)?;
        } else {
            let mut bounce = AlignedBuffer::zeroed(into.len());
            self.file.read_at(offset, &mut bounce)?;
            into.copy_from_slice(&bounce);
        }
        let opened = if block::is_pack(into) {
            let block = into.to_vec();
            pack::unpack(&block, self.database, page, reference, into)
        } else {
            block::verify_page(into, self.database, page, reference).map(|kind| Opened { kind, images: 1 })
        };
        opened.map_err(|error| error.at(place))
    }

    /// Reads the images that `wanted` names, in the order of the file, verifies each, and calls
    /// `visit` with it.
    ///
    /// # Errors
    /// `Corruption` with the page; I/O; errors of `visit`.
    pub(super) fn visit_images(
        &self,
        wanted: &[(PageId, BlockRef)],
        visit: &mut dyn FnMut(&StoredImage<'_>) -> Result<()>,
    ) -> Result<()> {
        let page_bytes = self.page_bytes;
        let mut sorted = wanted.to_vec();
        sorted.sort_unstable_by_key(|(_, reference)| reference.block());
        let together = |a: &(PageId, BlockRef), b: &(PageId, BlockRef)| b.1.block().0 - a.1.block().0 <= 1;
        let run_max = READ_BYTES_MAX / page_bytes;
        let longest = READ_BYTES_MAX.min(sorted.len() * page_bytes);
        let (mut buffer, mut spare) = (self.buffer(longest), self.buffer(page_bytes));
        for run in sorted.chunk_by(together).flat_map(|run| run.chunks(run_max)) {
            let (first, last) = (run[0].1.block().0, run[run.len() - 1].1.block().0);
            let bytes = &mut buffer[..(last - first + 1) as usize * page_bytes];
            self.file.read_at(self.offset(run[0].1), bytes)?;
            for (page, reference) in run {
                let (page, reference) = (*page, *reference);
                let place = Location::Page { page, offset: self.offset(reference) };
                let at = (reference.block().0 - first) as usize * page_bytes;
                let (block, spare) = (&mut bytes[at..at + page_bytes], &mut spare[..page_bytes]);
                let (opened, bytes) =
                    self.open_block(page, reference, block, spare).map_err(|error| error.at(place))?;
                visit(&StoredImage { page, reference, kind: opened.kind, bytes })?;
            }
        }
        Ok(())
    }

    /// Seals `image` and writes it to `block`.
    pub(super) fn write_block(
        &self,
        identity: BlockIdentity,
        image: &mut AlignedBuffer,
        csn: Csn,
        block: BlockNumber,
    ) -> Result<BlockRef> {
        let len = self.page_bytes;
        let reference = block::seal(&mut image[..len], identity, csn, block);
        self.file.write_at(self.offset(reference), &image[..len])?;
        Ok(reference)
    }
}

/// Direct I/O needs aligned memory; pages of the buffer pool are aligned.
fn is_aligned(bytes: &[u8]) -> bool {
    (bytes.as_ptr() as usize).is_multiple_of(SECTOR_BYTES)
}
