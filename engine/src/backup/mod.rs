//! Rank 8: what can be copied and brought back?
//!
//! A **backup** is a copy of one checkpoint, made while the writer runs. It has its own page store,
//! in which the images are the same to the last bit, and a description (`BACKUP`) that says where
//! each image was in the source:
//!
//! ```text
//!   source     pages/data   [A1][B1][C1]      [A1][  ][C1][B2][D1]       [  ][D2][C1][B2][  ]
//!   full       (at csn 10)   A1  B1  C1
//!   increment  (at csn 20)                                 B2  D1        source pages: A B C D
//!   increment  (at csn 30)                                                    D2      B C D
//! ```
//!
//! An increment holds the images whose place or checksum differs from what the description of its
//! base says. What to restore is what the last description lists, each page from the newest backup
//! of the chain that has it, and each checked against the checksum in that list.
//!
//! # Invariants
//! - K1: the blocks of a checkpoint that is being copied are not used again (`PageStore::hold`),
//!   and the checkpoint does not change between being chosen and being held.
//! - K2: every image is verified (checksum, identity, structure) while it is copied. A damaged
//!   source gives no backup.
//! - K3: nothing that is there is overwritten. What fails removes what it has written. An
//!   interrupted backup has an empty description, an interrupted restore the file `RESTORING`:
//!   neither can be taken for what it was to become.
//! - K4: what was restored is another database: it has a new identity, so that no block of the
//!   source's log, and no backup of it, can be taken for its own.

mod progress;
mod description;
mod target;
mod full_or_increment;
mod restore;
mod compact;
mod salvage;

pub use compact::{CompactReport, compact};
pub use description::BACKUP_PATH;
#[cfg(feature = "internals")]
pub use description::Description;
pub use full_or_increment::{BackupReport, Source, back_up, check_is_backup};
pub use restore::{Chain, begin_restore, copy_checkpoint, finish_restore, restore_pages};
pub use salvage::{LostRange, SalvageReport, SalvageSink, SalvagedTable, salvage};
pub use target::{RESTORING_PATH, clear, refuse_unless_empty};
