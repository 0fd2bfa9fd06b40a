//! The manifest: its format, its file, and the readers that announce which manifest they use.

pub mod csn_set;
pub mod format;
pub mod reader_slots;
pub mod file;
mod copies;
pub mod readers;

pub use crate::device::MANIFEST_PATH;
pub use copies::{ManifestCopy, manifest_copies};
pub use csn_set::CsnSet;
pub use file::{LOST_MANIFEST_ADVICE, ManifestFile, ManifestState, is_noted_durable, manifest_state};
#[cfg(feature = "internals")]
pub use format::SLOT_BYTES;
pub use format::{AcceptedEnd, EpochEntry, Manifest, NeededMemory, StoreRoot};
pub use reader_slots::{CheckpointReader, READERS_PATH, READS_ANYTHING, ReaderSlot, Readers};
pub use readers::open_newest_checkpoint;
