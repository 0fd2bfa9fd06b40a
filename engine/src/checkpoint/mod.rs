//! Rank 7: how far back must redo start?
//!
//! A checkpoint is an exact snapshot at one CSN, C: page images in the store that together contain
//! every transaction up to C and nothing else, and a manifest that names them. After it the log up
//! to C is no longer needed, except chunks of transactions still in progress. `run` shows its five
//! stages.
//!
//! # Why it blocks no transaction
//! C is pinned like any snapshot, so the version chains keep every entry as of C. In each
//! *checkpoint epoch* every page that changed since its last image is imaged once: under a shared
//! latch each entry is resolved as of C. The tree continues to change:
//!
//! ```text
//!   epoch begins      leaf A imaged      A splits into A, B; parent P not yet imaged
//!  ───────┬─────────────────┬──────────────────────┬───────────────────────────────▶
//!         │                 │                      │ P is imaged first, as it was: one child, A.
//!         │                 │                      │ B is new in this epoch: no image. Its rows are in A's image.
//! ```
//!
//! 1. Before the structure of a page without an image in this epoch changes, the changing thread
//!    makes a copy-on-write image, with all participants latched. So the images are the tree as it
//!    was when the epoch began, each page once.
//! 2. A page stays dirty if something in it is newer than C, so the next checkpoint images it
//!    again.
//! 3. The manifest is published only when every transaction up to C is committed and every image
//!    durable.
//! 4. The blocks and log segments of the previous checkpoint are released after that, never before.
//!    A file that cannot be removed then does not fail the checkpoint.
//! 5. A page is clean only when its image is recorded. A failed checkpoint leaves the previous
//!    checkpoint and the log as they were, and its images to the next checkpoint.
//! 6. Pages that leave memory are imaged first (see `evict`), so a checkpoint images only pages in
//!    memory.

mod attempts;
mod catalog_blob;
pub mod pace;
pub mod space;
mod replay_model;
mod adopted_pages;
mod stored_pages;
mod image;
mod evict;
mod checkpointer;
mod dropped;
mod prepare;
mod write_pages;
mod shorten;
mod run;

pub use adopted_pages::AdoptedPages;
#[cfg(feature = "internals")]
pub use catalog_blob::encode_catalog;
pub use catalog_blob::{StoredCatalog, TableRecord, decode_catalog, decode_catalog_prefix};
pub use checkpointer::{CheckpointReport, CheckpointTotals, Checkpointer, CheckpointerParts};
pub use evict::{Evictor, buffer_bytes};
pub use replay_model::{
    MeasuredReplay, ReadCost, ReplayEstimate, ReplayLimits, ReplayModel, ReplayRates, ReplayWork,
};
pub use stored_pages::StoredPages;
