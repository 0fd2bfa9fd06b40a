//! Rank 2: how bytes become durable.
//!
//! Everything above sees a [`Storage`], which has the parts of a database by their [`Roles`]: the
//! manifest, the segments of the log, the pages. Where a part is a file, it is a [`File`]. A
//! storage is a [`Directory`] with files (a real one, memory, a simulated disk) or a store of
//! objects; that is decided once, at open.
//!
//! # What an implementation promises
//! 1. A read or write that returns `Ok` moved all bytes; a short transfer is continued or is an
//!    error.
//! 2. After `write_at` returned, `read_at` sees the bytes. They are **not** durable.
//! 3. After `flush` returned `Ok`, every write to this file that had completed before the call
//!    began is durable: it survives a power cut on the hardware that [`DeviceFacts`] describes.
//! 4. `write_durable_at` is `write_at` that is durable when it returns, by the method in
//!    [`Storage::durability`].
//! 5. A failed flush or durable write is reported to every affected caller, and is never retried
//!    here.
//! 6. No bytes in a file cause a panic.

pub(crate) mod descriptors;
pub mod topology;
mod space_refusal;
mod durability_method;
mod file_system;
pub mod facts;
mod buffer;
pub mod mapped;
mod buckets;
mod requests;
mod monitor;
// Tools and tests use more of it.
#[cfg_attr(not(feature = "internals"), allow(dead_code))]
mod storage;
mod segment_names;
mod directory;
mod object_list;
mod locks;
mod blocking_queue;
mod thread_queue;
mod uring;
mod uring_read;
mod directory_lock;
pub(crate) mod ownership;
mod direct_probe;
pub mod file;
pub mod memory;
mod scratch;
mod overlay;
pub mod counted;
#[cfg(any(test, feature = "internals"))]
mod fault_counts;
#[cfg(feature = "object-storage")]
pub mod objects;
#[cfg(any(test, feature = "internals"))]
pub mod simulated;

pub use buckets::BucketStatistics;
pub use buffer::{AlignedBuffer, SECTOR_BYTES};
pub use directory::{MANIFEST_PATH, PAGES_DIRECTORY, PAGES_PATH};
pub(crate) use directory_lock::LOCK_PATH;
#[cfg(any(test, feature = "internals", feature = "object-storage"))]
pub use durability_method::DurabilityMethod;
pub use facts::DeviceFacts;
pub(crate) use monitor::{MONITOR_PATH, MonitorSocket, ask};
pub use object_list::{LogObject, LogRecords, ObjectContent, ObjectList, ObjectState, StoredObject};
pub use overlay::OverlayStorage;
pub use requests::ObjectRequests;
pub use segment_names::{LOG_DIRECTORY, check_new, id_of, next_id, path_of};
pub use space_refusal::SpaceRefusal;
#[cfg(feature = "object-storage")]
pub use storage::WriteEnded;
pub use storage::{
    Completion, Directory, EntryKind, File, FollowedLog, LogPosition, ManifestStore, Names, NewBytes,
    OpenMode, Pin, ReadAhead, ReadRequest, Roles, Storage, WriteQueue, WriteRequest,
};
#[cfg(any(feature = "internals", feature = "object-storage"))]
pub use storage::{Pins, ReadDone, Register, Segments};
