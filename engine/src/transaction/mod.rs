//! Rank 6: what does a transaction see, and may it commit?
//!
//! Multi-version snapshot isolation over trees that hold only the newest value of each key. A write changes the page in
//! place and leaves a version behind (`versions`); a read walks back from the page to what its snapshot sees
//! (`view`); a `descriptor` tells everybody how far a transaction is; `garbage` gives versions back; the
//! `catalog` knows the tables. The first updater of a row wins: a later one waits for it, and fails with a conflict if
//! it commits.
//!
//! # The life of a write
//! 1. Latch the leaf. The stamp of the entry says who wrote it last.
//! 2. In progress by another: let go, wait, start again. Newer than the snapshot: conflict.
//! 3. Make a version from the page's value, put the new value and the version's handle in the page.
//! 4. Append the change to the private redo buffer: only the changed bytes if the length is the same. What does not fit goes to the log
//!    in chunks (`chunks`).
//!
//! # The life of a commit
//! 1. Everything that can fail: tables still there, log space, memory. Then nothing can (invariant I2).
//! 2. PREPARING; the commit room draws the CSN and copies the redo record; READY.
//! 3. The stamps of all versions become the CSN. The descriptor is free: who waited goes on.
//! 4. Only then, and only if the caller wants it, wait until the record and all it depends on is durable.

mod active;
pub mod catalog;
mod chunks;
mod clocks;
mod counters;
pub mod descriptor;
mod fragments;
mod garbage;
mod large;
mod panics;
mod range;
mod relief;
mod replay;
mod retired;
mod savepoint;
mod snapshot;
mod system;
#[cfg(test)]
mod tests;
mod unfinished;
pub mod versions;
mod view;
mod write;

pub use active::{ActiveTransaction, Ended, Isolation};
pub use catalog::{Catalog, DroppedTable, TableHold, TableState};
pub use counters::TransactionCounters;
pub use large::OpenValue;
pub use range::RangeCursor;
pub use replay::{Replay, ReplayedValue};
pub use retired::RetiredHeld;
pub use savepoint::Savepoint;
pub use snapshot::ReadSnapshot;
pub use system::{CheckpointView, Limits, StampState, StructureHook, TransactionSystem};
pub use unfinished::UnfinishedHeld;
