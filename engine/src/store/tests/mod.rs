//! Tests of the page store and the manifest, on a simulated disk that can crash, fail and fill up.

mod crash;
mod extents;
mod free;
mod looks;
mod manifest;
mod pack_readers;
mod packs;
mod pages;
mod readers;
mod space;

use super::allocator::creation::Content;
use super::allocator::free::FreeSpace;
use super::block::{BlockKind, BlockNumber, references_per_block};
use super::manifest::StoreRoot;
use super::mapping::overlay::Overlay;
use super::pack::Codecs;
use super::yielding_lock::SLICE;
use super::*;
use crate::base::clock::Clock;
use crate::base::{Account, Csn, DatabaseId, Error, ErrorKind, Location, PageId, Result};
use crate::device::simulated::{CrashKind, Fault, FaultKind, OperationKind, SimulatedStorage};
use crate::device::{AlignedBuffer, OpenMode, Storage};
use std::sync::Arc;

const DATABASE: DatabaseId = DatabaseId(0xdb);
const PAGE: usize = 4096;

/// An image whose every content byte says which version of which page it is.
fn image(page: u64, version: u64) -> AlignedBuffer {
    let mut image = AlignedBuffer::zeroed(PAGE);
    for word in image[BLOCK_HEADER_BYTES..].chunks_exact_mut(8) {
        word.copy_from_slice(&(page << 32 | version).to_le_bytes());
    }
    image
}

fn write(store: &PageStore, checkpoint: &OpenCheckpoint, page: u64, version: u64) -> Result<()> {
    let reference = store.write_block(BlockKind::Page, page, &mut image(page, version), Csn(version))?;
    checkpoint.record(PageId(page), reference);
    Ok(())
}

/// Begins the next checkpoint.
fn begin(store: &Arc<PageStore>) -> Result<OpenCheckpoint> {
    let number = store.state.lock().checkpoint.epoch + 1;
    store.begin_checkpoint(number, Csn(number.into()))
}

/// The version that `read_page` finds, after checking that the whole image belongs to it.
fn version_of(store: &PageStore, page: u64) -> Result<u64> {
    let mut into = AlignedBuffer::zeroed(PAGE);
    store.read_page(PageId(page), &mut into)?;
    let word: [u8; 8] = into[BLOCK_HEADER_BYTES..][..8].try_into().expect("eight bytes");
    let version = u64::from_le_bytes(word) & 0xffff_ffff;
    assert_eq!(into[BLOCK_HEADER_BYTES..], image(page, version)[BLOCK_HEADER_BYTES..]);
    Ok(version)
}

/// Writes `pages` at `version` in one committed checkpoint.
fn commit(store: &Arc<PageStore>, pages: impl IntoIterator<Item = u64>, version: u64) -> StoreRoot {
    let checkpoint = begin(store).expect("no other checkpoint");
    for page in pages {
        write(store, &checkpoint, page, version).expect("the disk works");
    }
    let finished = checkpoint.finish().expect("the disk works");
    let root = finished.root().clone();
    store.commit_checkpoint(finished);
    root
}

fn reopen(disk: &SimulatedStorage, root: &StoreRoot) -> Result<Arc<PageStore>> {
    open_as(disk, DATABASE, PAGE, root)
}

fn open_as(
    disk: &SimulatedStorage,
    database: DatabaseId,
    page_bytes: usize,
    root: &StoreRoot,
) -> Result<Arc<PageStore>> {
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let manifest = Manifest { store: root.clone(), ..Manifest::new(database, page_bytes as u32) };
    PageStore::claim(&*storage).and_then(|file| PageStore::open(&storage, &manifest, file))
}

fn new_disk() -> SimulatedStorage {
    SimulatedStorage::new(7)
}

/// A disk that overwrites in place, and one that stores extents of eight blocks.
fn new_disks() -> [SimulatedStorage; 2] {
    [new_disk(), SimulatedStorage::with_extents(8 * PAGE as u64, 7)]
}

/// Looks at or damages the bytes of a file.
fn edit<T>(disk: &SimulatedStorage, path: &str, edit: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let mut bytes = disk.read_file(path).unwrap_or_default();
    let result = edit(&mut bytes);
    disk.write_file(path, &bytes);
    result
}

/// One operation of the kind fails, after so many that do not.
fn fail_once(disk: &SimulatedStorage, operation: OperationKind, after: u64) {
    disk.inject(Fault { operation, after, kind: FaultKind::Once, error: 5 });
}
