//! Loads a mapping from its blocks, with several threads if it is large.

use super::super::allocator::free::FreeSpace;
use super::super::block::{BlockKind, BlockNumber, BlockRef, verify};
use super::super::block_file::BlockFile;
use super::table::{Mapping, decode_references};
use crate::base::{Error, Result};
use crate::device::AlignedBuffer;
use crate::sync::thread;
use std::collections::HashMap;

/// Adjacent blocks are loaded by one read of at most this many bytes.
const READ_BYTES_MAX: usize = 1 << 20;
/// Below this many blocks loading is not worth a second thread.
const BLOCKS_PER_THREAD_MIN: usize = 256;
const LOAD_THREADS_MAX: usize = 4;

/// Reads the mapping whose root is `directory`, and claims every block of it in `space` (M1).
///
/// # Errors
/// `Corruption` or `Unsupported` with the place; I/O.
pub fn load_mapping(file: &BlockFile, directory: &[BlockRef], space: &mut FreeSpace) -> Result<Mapping> {
    let loader = Loader { file };
    let mut mapping = Mapping::empty(file.page_bytes);
    let per_block = mapping.per_block();
    let upper: Vec<Wanted> = wanted(directory.iter().copied().enumerate());
    loader.claim_all(&upper, BlockKind::Directory, space)?;
    let mut lower = Vec::new();
    for (index, references) in loader.load_references(&upper, BlockKind::Directory)? {
        let first = index * per_block;
        lower.extend(wanted(references.iter().enumerate().map(|(slot, r)| (first + slot, *r))));
    }
    loader.claim_all(&lower, BlockKind::Mapping, space)?;
    let stored: HashMap<usize, BlockRef> = lower.iter().map(|w| (w.index, w.reference)).collect();
    for (index, pages) in loader.load_references(&lower, BlockKind::Mapping)? {
        let first = index * per_block;
        let claims = wanted(pages.iter().enumerate().map(|(slot, r)| (first + slot, *r)));
        loader.claim_all(&claims, BlockKind::Page, space)?;
        mapping.add_part(index, stored[&index], pages);
    }
    mapping.set_directory(directory.to_vec());
    Ok(mapping)
}

/// A block to load, and its index in its level.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    index: usize,
    reference: BlockRef,
}

fn wanted(references: impl Iterator<Item = (usize, BlockRef)>) -> Vec<Wanted> {
    // A reference to block 0 that is not zero is kept, so that claiming it fails.
    references.filter(|(_, r)| r.0 != 0).map(|(index, reference)| Wanted { index, reference }).collect()
}

/// References of one block, by the block's index in its level.
type Loaded = (usize, Box<[BlockRef]>);

struct Loader<'a> {
    file: &'a BlockFile,
}

impl Loader<'_> {
    fn claim_all(&self, blocks: &[Wanted], kind: BlockKind, space: &mut FreeSpace) -> Result<()> {
        for block in blocks {
            let number = block.reference.block();
            let claimed =
                if kind == BlockKind::Page { space.claim_image(number) } else { space.claim(number) };
            if !claimed && number.0 >= space.blocks() {
                return Err(self.truncated(number, space.blocks()));
            }
            if !claimed {
                let what =
                    format!("{kind:?} number {} claims {:?}, which is in use", block.index, block.reference);
                return Err(Error::corruption(what).at(self.file.location(block.reference.block())));
            }
        }
        Ok(())
    }

    /// Returns the error for a checkpoint with a block behind the end of the file.
    fn truncated(&self, block: BlockNumber, blocks: u64) -> Error {
        let bytes = |blocks: u64| blocks.saturating_mul(self.file.page_bytes as u64);
        let what = format!(
            "the file of pages is truncated: it ends at byte {}, and the checkpoint has a page at byte {}",
            bytes(blocks),
            bytes(block.0)
        );
        let advice =
            "put the whole file back, or restore from a backup; `quench salvage` copies what can be read";
        Error::corruption(what).with_advice(advice).at(self.file.location(BlockNumber(blocks)))
    }

    /// Loads blocks of references in any order, with several threads if they are many.
    fn load_references(&self, blocks: &[Wanted], kind: BlockKind) -> Result<Vec<Loaded>> {
        let mut sorted = blocks.to_vec();
        sorted.sort_unstable_by_key(|w| w.reference.block());
        let threads = (sorted.len() / BLOCKS_PER_THREAD_MIN).clamp(1, LOAD_THREADS_MAX);
        if threads == 1 {
            return self.load_sorted(&sorted, kind);
        }
        let parts: Vec<&[Wanted]> = sorted.chunks(sorted.len().div_ceil(threads)).collect();
        let mut loaded = Vec::with_capacity(sorted.len());
        for share in thread::fan_out(parts.len(), |i| self.load_sorted(parts[i], kind)) {
            let panicked = || Err(Error::corruption("a thread that loaded the page mapping panicked"));
            loaded.append(&mut share.unwrap_or_else(panicked)?);
        }
        Ok(loaded)
    }

    /// Loads blocks in file order, one read per run of adjacent ones.
    fn load_sorted(&self, sorted: &[Wanted], kind: BlockKind) -> Result<Vec<Loaded>> {
        let mut loaded = Vec::with_capacity(sorted.len());
        let run_max = READ_BYTES_MAX / self.file.page_bytes;
        let adjacent =
            |a: &Wanted, b: &Wanted| a.reference.block().0.checked_add(1) == Some(b.reference.block().0);
        for run in sorted.chunk_by(adjacent).flat_map(|run| run.chunks(run_max)) {
            let mut bytes = AlignedBuffer::zeroed(run.len() * self.file.page_bytes);
            self.file.file.read_at(self.file.offset(run[0].reference), &mut bytes)?;
            for (block, image) in run.iter().zip(bytes.chunks_exact(self.file.page_bytes)) {
                verify(image, self.file.identity(kind, block.index as u64), block.reference)
                    .map_err(|error| error.at(self.file.location(block.reference.block())))?;
                loaded.push((block.index, decode_references(image)));
            }
        }
        Ok(loaded)
    }
}
