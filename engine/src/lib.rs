//! QuenchDB: an embeddable transactional storage engine.
//!
//! Ordered tables of bytes, ACID transactions from many threads, durable commits that cost one device write. Start at
//! [`Database`]. The rooms below it are public for tools and tests; what a program needs is re-exported here.

#![deny(unsafe_code)]

pub mod api;
pub mod backup;
pub mod base;
#[allow(unsafe_code)]
pub mod buffer;
pub mod checkpoint;
pub mod commit;
#[allow(unsafe_code)]
pub mod device;
pub mod log;
pub mod recovery;
pub mod store;
#[allow(unsafe_code)]
pub mod sync;
pub mod transaction;
pub mod tree;

pub use api::*;
pub use base::settings::{
    Acknowledger, Compression, Dependency, DeviceTrust, Durability, Layout, MemoryCache, MemoryStore,
    MethodSetting, Preset, Queue, Settings, Writer,
};
pub use base::{Csn, Error, ErrorKind, Location, Result};

/// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
