//! QuenchDB: an embeddable transactional storage engine.
//!
//! Ordered tables of bytes, ACID transactions from many threads, durable commits that cost one
//! device write. Start at [`Database`].

#![deny(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "QuenchDB runs on Linux only: its locks, durable writes and mapped memory use system calls of Linux"
);

mod api;
mod backup;
mod base;
#[allow(unsafe_code)]
mod buffer;
mod checkpoint;
mod commit;
#[allow(unsafe_code)]
mod device;
mod feed;
mod log;
mod recovery;
mod store;
#[allow(unsafe_code)]
mod sync;
mod transaction;
mod tree;
mod typed;

pub use api::*;
pub use base::settings::{
    Acknowledger, Append, Compression, Dependency, DeviceTrust, Durability, IdleLogs, Layout, MemoryCache,
    MemoryFence, MemoryStore, MethodSetting, Preset, Queue, Settings, Writer,
};
pub use base::{Csn, Error, ErrorKind, Location, LogId, PageId, Result, SegmentId, TableKind, TableTypes};
#[cfg(feature = "derive")]
pub use quenchdb_derive::{Key, TypeName};
pub use typed::*;

/// The engine's layers, for its own tools and tests. Nothing in here is stable.
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals {
    macro_rules! expose {
        ($($layer:ident)*) => { $(
            #[allow(missing_docs)]
            pub mod $layer {
                pub use crate::$layer::*;
            }
        )* };
    }

    expose! { backup base buffer checkpoint commit device log recovery store sync transaction tree }
}

/// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
