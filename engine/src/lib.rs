//! QuenchDB: an embeddable transactional storage engine.
//!
//! Ordered tables of bytes or of types, ACID transactions from many threads, durable commits that
//! cost one device write.
//!
//! ```
//! use quenchdb::{Database, Postcard, Result, TypedTable};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct User {
//!     name: String,
//!     city: String,
//! }
//!
//! fn main() -> Result<()> {
//!     let directory = tempfile::tempdir().expect("a temporary directory");
//!     let db = Database::open(directory.path().join("shop"))?;
//!
//!     // A table with types, and an index that every change keeps.
//!     let users: TypedTable<u64, Postcard<User>> = db.typed_table("users")?;
//!     let by_city = db.index(&users, "by city", |user: &User| [user.city.clone()])?;
//!
//!     // Durable when `transact` returns. Runs again if another transaction changed the same rows.
//!     db.transact(|tx| {
//!         users.insert(tx, 1, &User { name: "Alice".into(), city: "Vienna".into() })?;
//!         users.insert(tx, 2, &User { name: "Bob".into(), city: "Graz".into() })
//!     })?;
//!
//!     // A consistent view that does not move and blocks no writer.
//!     let snapshot = db.begin_read()?;
//!     for row in by_city.get(&snapshot, "Vienna") {
//!         let (city, id, user) = row?;
//!         println!("{} ({id}) lives in {city}", user.name);
//!     }
//!     for row in users.range(&snapshot, 1..10) {
//!         println!("user {}", row?.0);
//!     }
//!
//!     // Visible to others at once; durable when `wait` returns, or the handle has been awaited.
//!     let mut tx = db.begin()?;
//!     users.remove(&mut tx, 2)?;
//!     tx.commit_async()?.wait()?;
//!
//!     // Every committed transaction, in order, for a copy elsewhere; resumes at a stored CSN.
//!     let mut changes = db.changes(snapshot.csn())?;
//!     if let Some(transaction) = changes.try_next()? {
//!         println!("commit {} made {} changes", transaction.csn(), transaction.changes().count());
//!     }
//!
//!     drop(snapshot);
//!     db.close()
//! }
//! ```
//!
//! | to | see |
//! |---|---|
//! | open or create a database | [`Database::open`], [`Builder`], [`Settings`] |
//! | have tables with types, indexes, multimaps | [`TypedTable`], [`Index`], [`UniqueIndex`], [`Multimap`] |
//! | have tables of bytes | [`Table`], [`Reads`] |
//! | change rows | [`Database::transact`], [`Transaction`], [`TransactionOptions`] |
//! | read without blocking a writer | [`Database::begin_read`], [`Snapshot`] |
//! | follow what others commit | [`Database::changes`], [`Database::watch`] |
//! | copy and check | [`Database::backup`], [`Database::restore`], [`Database::verify`] |
//! | understand an error | [`Error`], [`ErrorKind`] |
//!
//! The features `derive`, `postcard`, `zerocopy` and `uuid` are for tables with types; `serde` and
//! `metrics` for statistics; `zstd` for smaller pages; `s3`, `azure` and `gcs` for databases in
//! stores of objects, which are experimental.

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
    Acknowledge, Acknowledger, Compression, Dependency, DeviceTrust, Durability, IdleLogs, Layout,
    MemoryStore, Preset, Queue, Settings, Writer,
};
#[cfg(feature = "internals")]
#[doc(hidden)]
pub use base::settings::{
    AcknowledgerOptions, AcknowledgmentOptions, Append, Axes, Gather, Lab, LayoutOptions, MemoryCache,
    MemoryFence, WorkerOptions, WriterOptions,
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
