//! A database in a store of objects: log, pages and manifest without a disk.
//!
//! Everything above sees a [`Storage`](super::Storage), as of a directory. Below it stands one
//! trait, [`ObjectStore`], with requests that take effect as a whole, possibly late, or never.
//!
//! ```text
//!   ObjectStorage ──▶ Session (one writer, from its claim to the next)
//!                       ├─ Register          `manifest`              conditional puts
//!                       ├─ AppendedSegment   `log/<epoch>-<number>`   appends; or
//!                       │  NumberedSegment   `log/<epoch>-<number>/<block>`
//!                       │  StreamedSegment  `log/<epoch>-<number>`   appends over streams
//!                       ├─ Extents           `pages/<epoch>-<number>` puts
//!                       └─ fence_all         ends earlier writers
//! ```
//!
//! A writer never learns that an earlier one is dead, and no decision depends on a clock. The rules
//! O1 to O38 that the code cites are in `docs/internals/objects.md`.

mod request;
mod options;
mod waiting;
mod in_flight;
mod store;
mod url;
mod routed;
mod probe;
#[cfg(any(feature = "s3", feature = "azure", feature = "gcs"))]
mod client;
#[cfg(feature = "s3")]
mod s3;
#[cfg(any(feature = "azure", feature = "gcs"))]
mod cloud;
#[cfg(feature = "gcs-rapid")]
pub mod rapid;
mod patience;
mod body;
mod frame;
mod buckets;
mod register;
mod watch;
mod segment_reader;
mod open_segment;
mod appended;
mod numbered;
mod fence;
mod spread_segment;
mod streamed;
mod followed;
mod followed_several;
mod accepted;
mod extents;
mod page_cache;
mod callback_queue;
mod pins;
mod collect;
mod listing;
mod access;
mod counted;
mod files;
mod repair;
mod session;
mod small_file;
mod storage;
#[cfg(any(test, feature = "internals"))]
pub mod simulated;
mod directory;
mod open;
#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;

#[cfg(feature = "internals")]
pub use body::MANIFEST_NAME;
#[cfg(all(any(feature = "azure", feature = "gcs"), feature = "internals"))]
pub use cloud::{CloudOptions, CloudStore};
#[cfg(feature = "internals")]
pub use directory::DirectoryStore;
#[cfg(feature = "internals")]
pub use open::{connect, explain_zonal};
pub use open::{open_url, open_url_replacing, open_url_to_look};
pub use options::Options;
pub use page_cache::PageCache;
#[cfg(feature = "internals")]
pub use probe::{Rounds, probe, probe_races, probe_to_open};
#[cfg(feature = "internals")]
pub use request::{Condition, Failure, FailureKind, Listed, Reply, Request, RequestKind, Version};
#[cfg(feature = "internals")]
pub use routed::RoutedStore;
#[cfg(all(feature = "s3", feature = "internals"))]
pub use s3::{S3Credentials, S3Options, S3Store};
#[cfg(feature = "internals")]
pub use storage::ObjectStorage;
#[cfg(feature = "internals")]
pub use store::{Done, ObjectStore, Outcome, StoreFacts, perform};
pub use url::ObjectUrl;
#[cfg(feature = "internals")]
pub use url::Scheme;
