//! Rank 3: where is a page image?
//!
//! Pages are never written in place. An image goes to a free block, written by a checkpoint or by
//! eviction. A checkpoint contains the images made since the last one began and the images that it
//! makes itself. It then writes the changed parts of the mapping, flushes, and returns the
//! [`StoreRoot`] for the manifest. Until that manifest is durable the previous checkpoint is
//! complete and untouched. So there are no torn pages to repair and nothing to undo.
//!
//! ```text
//!   look-up:   next  ──absent?──▶  in_checkpoint  ──absent?──▶  mapping
//!              images for the      images of the                the last durable
//!              next checkpoint     open checkpoint              checkpoint
//!
//!   begin_checkpoint: next becomes in_checkpoint     commit_checkpoint: in_checkpoint goes into the mapping
//!                                                    dropped, abandoned: in_checkpoint goes back to next
//! ```
//!
//! # Invariants
//! - S1 (I8): no block that the last durable manifest reaches is written. See `allocator::free`.
//! - S2: a block is believed only if its checksum, database, kind, subject and the tag in the
//!   reference to it agree. See `block`.
//! - S3: one checkpoint is open at a time, and a finished one is decided (committed or abandoned)
//!   before the next begins. If publishing the manifest failed, the outcome is unknown and either
//!   set of blocks may be the durable one: no further checkpoint begins.
//! - S4 (I11): after a failed flush no checkpoint begins, unless the file knows that nothing was
//!   lost: a store of objects that refused a request.
//! - S5: a recorded image stays until a newer one is recorded: a failed checkpoint loses none,
//!   because its page may have left memory.
//!
//! Images that are not expected to change soon are compressed, several to a block; see `pack`. Left
//! out on purpose: blocks of several lengths.
//!
//! Locks: one mutex, held for look-ups and allocation, never across a read or write of a block.
//! (The file grows, is cut, and is discarded in parts under it: all of that changes no block in
//! use.)
//!
//! A device may store the file in whole extents (`DeviceFacts::extent_bytes`). Then blocks are
//! allocated in order within free extents, and extents that are mostly dead are emptied: see
//! `allocator::extents`.

mod yielding_lock;
pub mod block;
pub mod pack;
mod block_file;
pub mod blob;
pub mod manifest;
mod allocator;
mod mapping;
mod state;
mod disk_space;
mod full_disk;
mod page_store;
mod open;
mod read;
mod checkpoint_writer;
mod copy;
mod compact;
mod check;
mod salvage;
mod space_map;
#[cfg(test)]
mod tests;

pub use crate::device::{PAGES_DIRECTORY, PAGES_PATH};
pub use allocator::{Demand, ReservedFor};
#[cfg(feature = "internals")]
pub use blob::BlobRef;
#[cfg(feature = "internals")]
pub use block::BLOCK_HEADER_BYTES;
pub use block::{BlockRef, ImageKind};
pub use block_file::StoredImage;
pub use checkpoint_writer::{FinishedCheckpoint, Heat, ImageWriter, OpenCheckpoint, Written};
pub use compact::Relocation;
pub use copy::StoreCopy;
pub use disk_space::{HeldBlocks, SpaceUse};
#[cfg(feature = "internals")]
pub use manifest::Readers;
pub use manifest::{
    AcceptedEnd, CheckpointReader, CsnSet, EpochEntry, LOST_MANIFEST_ADVICE, MANIFEST_PATH, Manifest,
    ManifestCopy, ManifestFile, ManifestState, NeededMemory, READERS_PATH, is_noted_durable, manifest_copies,
    manifest_state,
};
pub use open::{PagesState, pages_state};
pub use pack::PackUsage;
pub use page_store::{PageStore, StoreUsage};
pub use salvage::SalvageScan;
pub use space_map::SpaceCell;
