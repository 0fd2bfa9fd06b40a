//! Scans a damaged page store for everything that is still readable.
//!
//! The scan reads every block once, and remembers kind, subject, CSN and checksum of each undamaged
//! block of this database. It trusts the manifest and the mapping as far as they are readable:
//!
//! - a readable mapping block decides which image of a page counts, or that there is none;
//! - without it, every undamaged image of a page may count, the newest first. The caller checks
//!   which of them fit.

use super::block::references_per_block;
use super::block::{self, BLOCK_HEADER_BYTES, BlockKind, BlockNumber, BlockRef, FoundBlock, ImageKind};
use super::manifest::{Manifest, ManifestFile};
use super::mapping::table::decode_references;
use super::pack::{self, Codecs};
use crate::base::{Csn, DatabaseId, Error, PageId, Result};
use crate::device::{AlignedBuffer, File, OpenMode, SECTOR_BYTES, Storage};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

const PAGE_SIZES: [usize; 4] = [4096, 8192, 16384, 32768];
/// Bytes of one read: whole blocks of any size.
const READ_BYTES: usize = 1 << 20;
const _: () = assert!(READ_BYTES.is_multiple_of(PAGE_SIZES[3]));

/// Gets the name of the work, the amount done, and the total.
type ProgressFn<'a> = &'a mut dyn FnMut(&str, u64, u64);

/// See the module's text.
#[derive(Debug)]
pub struct SalvageScan {
    file: Arc<dyn File>,
    page_bytes: usize,
    /// The newest manifest, if one can be read.
    pub manifest: Option<Manifest>,
    /// Unreadable parts.
    pub remarks: Vec<String>,
    database: DatabaseId,
    found: HashMap<BlockNumber, FoundBlock>,
    /// The codecs of packs.
    codecs: Codecs,
    /// Images of each page, newest first.
    images: BTreeMap<PageId, Vec<FoundImage>>,
    /// Readable parts of the mapping.
    mapping: HashMap<u64, Box<[BlockRef]>>,
    /// Parts of the mapping that exist but are unreadable.
    unreadable: BTreeSet<u64>,
}

/// An image in an undamaged block, alone or packed.
#[derive(Clone, Copy, Debug)]
struct FoundImage {
    block: BlockNumber,
    csn: Csn,
    /// Checksum of the image as a block of its own.
    crc: u32,
}

impl SalvageScan {
    /// Scans the whole file. `progress` is called with blocks; before that with bytes, if the block
    /// length is unknown.
    ///
    /// # Errors
    /// `NotFound` without a file of pages; `Corruption` if it contains no undamaged block;
    /// `Unsupported` if images need a codec that this build lacks; I/O.
    pub fn look(storage: &dyn Storage, progress: ProgressFn<'_>) -> Result<SalvageScan> {
        let mut remarks = Vec::new();
        let manifest = match ManifestFile::open(storage, true) {
            Ok((_, manifest)) => Some(manifest),
            Err(error) => {
                remarks.push(format!("the manifest cannot be read: {}", error.message()));
                None
            }
        };
        let file = storage.pages(OpenMode { create: false, read_only: true, direct: true })?;
        let known = manifest.as_ref().map(|manifest| (manifest.database, manifest.page_bytes as usize));
        let (database, page_bytes) = match known {
            Some(known) => known,
            None => identify(&*file, progress)?,
        };
        let (images, mapping) = (BTreeMap::new(), HashMap::new());
        let (found, unreadable, codecs) = (HashMap::new(), BTreeSet::new(), Codecs::default());
        let mut scan = SalvageScan {
            file,
            page_bytes,
            manifest,
            remarks,
            database,
            found,
            codecs,
            images,
            mapping,
            unreadable,
        };
        scan.scan(progress)?;
        scan.load_mapping();
        Ok(scan)
    }

    /// Returns every page that may exist.
    #[must_use]
    pub fn page_ids(&self) -> Vec<PageId> {
        self.images.keys().copied().filter(|page| !self.candidates(*page).is_empty()).collect()
    }

    /// Length of a page.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Returns the images that may be the page's, the likeliest first, with the CSN of each.
    #[must_use]
    pub fn images(&self, page: PageId) -> Vec<(Csn, AlignedBuffer)> {
        let read = |image: FoundImage| Some((image.csn, self.read_image(page, image)?));
        self.candidates(page).into_iter().filter_map(read).collect()
    }

    fn read_image(&self, page: PageId, image: FoundImage) -> Option<AlignedBuffer> {
        let block = self.read(image.block)?;
        let bytes = &block[..self.page_bytes];
        if !block::is_pack(bytes) {
            return Some(block);
        }
        let mut out = AlignedBuffer::zeroed(self.page_bytes);
        let reference = BlockRef::new(image.block, image.crc);
        pack::unpack(bytes, self.database, page, reference, &mut out[..self.page_bytes]).ok()?;
        Some(out)
    }

    fn candidates(&self, page: PageId) -> Vec<FoundImage> {
        let per_part = references_per_block(self.page_bytes) as u64;
        let (part, slot) = (page.0 / per_part, (page.0 % per_part) as usize);
        if self.unreadable.contains(&part) || self.manifest.is_none() {
            return self.images.get(&page).cloned().unwrap_or_default();
        }
        let Some(reference) = self.mapping.get(&part).map(|references| references[slot]) else {
            return Vec::new();
        };
        let is_meant = |image: &&FoundImage| image.block == reference.block() && reference.matches(image.crc);
        let images = self.images.get(&page).map_or(&[][..], |images| images);
        images.iter().find(is_meant).copied().into_iter().collect()
    }

    fn is_meant(&self, reference: BlockRef) -> bool {
        self.found.get(&reference.block()).is_some_and(|found| reference.matches(found.crc))
    }

    fn read(&self, block: BlockNumber) -> Option<AlignedBuffer> {
        let mut image = AlignedBuffer::zeroed(self.page_bytes);
        self.file.read_at(block.0 * self.page_bytes as u64, &mut image).ok()?;
        let found = block::identify(&image[..self.page_bytes])?;
        (Some(&found) == self.found.get(&block)).then_some(image)
    }

    fn scan(&mut self, progress: ProgressFn<'_>) -> Result<()> {
        let blocks = self.file.len()? / self.page_bytes as u64;
        let step = (READ_BYTES / self.page_bytes) as u64;
        let mut buffer = AlignedBuffer::zeroed(READ_BYTES);
        for first in (0..blocks).step_by(step as usize) {
            progress("blocks looked at", first, blocks);
            let count = step.min(blocks - first);
            let bytes = &mut buffer[..count as usize * self.page_bytes];
            let unreadable = read_what_can_be(&*self.file, first * self.page_bytes as u64, bytes);
            if unreadable > 0 {
                let last = first + count - 1;
                let what = format!("blocks {first} to {last}: sectors that cannot be read: {unreadable}");
                self.remarks.push(what);
            }
            for (block, image) in (first..first + count).zip(bytes.chunks_exact(self.page_bytes)) {
                let found = block::identify(image).filter(|found| found.database == self.database);
                if let Some(found) = found {
                    self.found.insert(BlockNumber(block), found);
                    self.note_images(BlockNumber(block), &found, image);
                }
            }
        }
        for images in self.images.values_mut() {
            images.sort_by_key(|image| (std::cmp::Reverse(image.csn), image.block));
        }
        self.refuse_unknown_codecs()
    }

    fn note_images(&mut self, block: BlockNumber, found: &FoundBlock, bytes: &[u8]) {
        if ImageKind::from_code(found.kind).is_some() {
            let image = FoundImage { block, csn: found.csn, crc: found.crc };
            self.images.entry(PageId(found.subject)).or_default().push(image);
        } else if block::is_pack(bytes) {
            for entry in pack::directory(bytes, self.database).unwrap_or_default() {
                self.codecs = self.codecs.with(entry.codec());
                let image = FoundImage { block, csn: entry.csn, crc: entry.crc };
                self.images.entry(entry.page).or_default().push(image);
            }
        }
    }

    /// An image that another build can read is not lost.
    fn refuse_unknown_codecs(&self) -> Result<()> {
        self.codecs.check().map_err(|error| error.at(self.file.location(0)))
    }

    fn load_mapping(&mut self) {
        let Some(manifest) = self.manifest.clone() else { return };
        let per_block = references_per_block(self.page_bytes) as u64;
        for (index, reference) in (0..).zip(&manifest.store.directory) {
            match self.references(BlockKind::Directory, index, *reference) {
                Some(parts) => {
                    for (slot, part) in (0..).zip(parts.iter()).filter(|(_, part)| part.0 != 0) {
                        let number = index * per_block + slot;
                        match self.references(BlockKind::Mapping, number, *part) {
                            Some(pages) => drop(self.mapping.insert(number, pages)),
                            None => drop(self.unreadable.insert(number)),
                        }
                    }
                }
                None if reference.0 != 0 => {
                    self.unreadable.extend(index * per_block..(index + 1) * per_block);
                }
                None => {}
            }
        }
        if let (Some(first), count) = (self.unreadable.first(), self.unreadable.len()) {
            self.remarks.push(format!(
                "{count} parts of the mapping cannot be read, the first is number {first}: for their pages every image \
                 that is there may count"
            ));
        }
    }

    fn references(&self, kind: BlockKind, index: u64, reference: BlockRef) -> Option<Box<[BlockRef]>> {
        let found = self.found.get(&reference.block())?;
        let fits = found.kind == kind as u8 && found.subject == index && reference.matches(found.crc);
        let image = if fits { self.read(reference.block())? } else { return None };
        Some(decode_references(&image[..self.page_bytes]))
    }

    /// Returns the catalog that the manifest names, perhaps followed by zeros.
    #[must_use]
    pub fn catalog(&self) -> Option<Vec<u8>> {
        let named = self.manifest.as_ref()?.store.catalog?;
        if self.is_meant(named.first) { self.blob(named.first.block()) } else { None }
    }

    /// Returns all undamaged catalogs, the newest first.
    #[must_use]
    pub fn catalogs(&self) -> Vec<Vec<u8>> {
        let mut first: Vec<BlockNumber> = Vec::new();
        let is_first = |found: &FoundBlock| found.kind == BlockKind::Blob as u8 && found.subject == 0;
        first.extend(self.found.iter().filter(|(_, found)| is_first(found)).map(|(block, _)| *block));
        first.sort_by_key(|block| std::cmp::Reverse(self.found[block].csn));
        first.into_iter().filter_map(|block| self.blob(block)).collect()
    }

    fn blob(&self, first: BlockNumber) -> Option<Vec<u8>> {
        let (mut bytes, mut block) = (Vec::new(), first);
        for part in 0..self.found.len() as u64 {
            let found = self.found.get(&block)?;
            if found.kind != BlockKind::Blob as u8 || found.subject != part {
                return None;
            }
            let image = self.read(block)?;
            let (link, content) = image[BLOCK_HEADER_BYTES..self.page_bytes].split_at(size_of::<u64>());
            bytes.extend_from_slice(content);
            let next = BlockRef(link.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)));
            if next.is_absent() {
                return Some(bytes);
            }
            if !self.is_meant(next) {
                return None;
            }
            block = next.block();
        }
        None
    }
}

/// Returns the database and the block length that most blocks have.
fn identify(file: &dyn File, progress: ProgressFn<'_>) -> Result<(DatabaseId, usize)> {
    let sector = SECTOR_BYTES as u64;
    let len = file.len()? / sector * sector;
    let mut votes: HashMap<(DatabaseId, usize), u64> = HashMap::new();
    let mut buffer = AlignedBuffer::zeroed(READ_BYTES);
    for offset in (0..len).step_by(READ_BYTES) {
        progress("bytes looked at", offset, len);
        let bytes = &mut buffer[..(len - offset).min(READ_BYTES as u64) as usize];
        read_what_can_be(file, offset, bytes);
        for page_bytes in PAGE_SIZES {
            for found in bytes.chunks_exact(page_bytes).filter_map(block::identify) {
                *votes.entry((found.database, page_bytes)).or_default() += 1;
            }
        }
    }
    let most =
        votes.into_iter().max_by_key(|((database, page_bytes), votes)| (*votes, *page_bytes, database.0));
    most.map(|(known, _)| known)
        .ok_or_else(|| Error::corruption("there is no whole block in the file of pages").at(file.location(0)))
}

/// Fills `bytes`, whole sectors, from `offset`. If that fails, reads each sector alone, with zeros
/// for an unreadable one, which are no block. Returns the number of unreadable sectors.
fn read_what_can_be(file: &dyn File, offset: u64, bytes: &mut [u8]) -> usize {
    if file.read_at(offset, bytes).is_ok() {
        return 0;
    }
    let mut unreadable = 0;
    for (number, sector) in bytes.chunks_exact_mut(SECTOR_BYTES).enumerate() {
        if file.read_at(offset + (number * SECTOR_BYTES) as u64, sector).is_err() {
            sector.fill(0);
            unreadable += 1;
        }
    }
    unreadable
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::simulated::{Fault, FaultKind, OperationKind, SimulatedStorage};
    use crate::device::{PAGES_PATH, Roles};

    #[test]
    fn unreadable_sector_affects_no_other_sector() {
        let disk = SimulatedStorage::new(1);
        disk.write_file(PAGES_PATH, &[7; 4 * SECTOR_BYTES]);
        let mode = OpenMode { create: false, read_only: true, direct: true };
        let file = disk.pages(mode).expect("there");
        // All at once, and then the third alone.
        for after in [0, 3] {
            disk.inject(Fault { operation: OperationKind::Read, after, kind: FaultKind::Once, error: 5 });
        }
        let mut bytes = AlignedBuffer::zeroed(4 * SECTOR_BYTES);
        assert_eq!(read_what_can_be(&*file, 0, &mut bytes), 1);
        for (sector, expected) in bytes.chunks_exact(SECTOR_BYTES).zip([7, 7, 0, 7]) {
            assert!(sector.iter().all(|byte| *byte == expected));
        }
    }
}
