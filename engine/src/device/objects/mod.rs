//! A database in a store of objects: log, pages and manifest without a disk.
//!
//! Everything above sees a [`Storage`](super::Storage) as for a directory. Below it stands one
//! trait, [`ObjectStore`], with requests that take effect as a whole, possibly late, or never.
//!
//! ```text
//!   ObjectStorage ──▶ Session (one writer, from its claim to the next)
//!                       ├─ Register          `manifest`              conditional puts
//!                       ├─ AppendedSegment   `log/<epoch>-<number>`   appends; or
//!                       │  NumberedSegment   `log/<epoch>-<number>/<block>`
//!                       ├─ Extents           `pages/<epoch>-<number>` puts
//!                       └─ fence_all         ends earlier writers
//! ```
//!
//! A writer never learns that an earlier one is dead, and no decision depends on a clock. The rules
//! O1 to O28 that the code cites are in `docs/internals/objects.md`.

mod request;
mod options;
mod waiting;
mod store;
mod url;
mod probe;
mod patience;
mod body;
mod frame;
mod register;
mod segment_reader;
mod open_segment;
mod appended;
mod numbered;
mod fence;
mod extents;
mod callback_queue;
mod collect;
mod session;
mod storage;
#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;

pub use options::Options;
pub use probe::probe;
pub use request::{Condition, Failure, FailureKind, Listed, Reply, Request, RequestKind, Version};
pub use storage::ObjectStorage;
pub use store::{Done, ObjectStore, Outcome, StoreFacts, perform};
pub use url::{ObjectUrl, Scheme};
