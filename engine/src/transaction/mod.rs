//! Rank 6: what does a transaction see, and may it commit?
//!
//! Multi-version snapshot isolation over trees that hold only the newest value of each key. A write
//! changes the page in place and keeps the value before it as a version; a read walks back from the
//! page to what its snapshot sees. The first updater of a row wins: a later one waits for it, and
//! gets a conflict if it commits.
//!
//! The components, each with its own state. A file uses only files above it:
//!
//! | component | question |
//! |---|---|
//! | `Committed` | how far are transactions committed? |
//! | `Descriptors` | how far is each transaction, and which snapshots are pinned? |
//! | `VersionStore` | what was an entry before, and when is a version given back? |
//! | `LargeValues` | which pages of large values does no committed entry refer to? |
//! | `Catalog` | which tables exist, and how many users do they have? |
//! | `TransactionSystem` | composes the components |
//! | `ReadSnapshot` | how does a snapshot read? |
//! | `ActiveTransaction` | how does a transaction read, write, roll back and commit? |
//!
//! `locks` holds what is locked besides changed rows, and the queue of waiting transactions;
//! `read_set`, `lock_set`, `locking`, `locked_scan` and `validate` make a transaction serializable.
//! `versions`, `view` and `garbage` belong to the `VersionStore`; `uncommitted_pages` and
//! `deferred_free` to the `LargeValues`; `dependencies`, `write_set` and the files from `active` on
//! to the `ActiveTransaction`.

mod options;
mod table_name;
mod committed;
mod counters;
pub mod descriptor;
pub mod locks;
pub mod versions;
mod view;
pub mod dead_ranges;
pub mod catalog;
mod garbage;
mod uncommitted_pages;
mod deferred_free;
mod large_values;
mod version_store;
mod page_clocks;
mod share;
mod system;
mod checkpoint_view;
mod tables;
mod lock_report;
mod replay;
mod read_set;
mod lock_set;
mod dead_runs;
mod range_ahead;
mod range;
mod snapshot;
mod dependencies;
mod write_set;
mod active;
mod rollback;
mod chunks;
mod locking;
mod locked_scan;
mod validate;
mod write;
mod large_write;
mod commit;
#[cfg(test)]
mod tests;

pub use active::ActiveTransaction;
pub use catalog::{DroppedTable, FormerTable, TableHold, TableState};
pub use checkpoint_view::CheckpointView;
pub use commit::Submitted;
pub use counters::TransactionCounters;
pub use deferred_free::FreesPaused;
pub use lock_report::{LockInfo, LockedKeys};
pub use locks::LockMode;
pub use options::{Interrupt, Isolation, LockRelease, Locking, TransactionOptions};
pub use range::RangeCursor;
pub use replay::{Replay, ReplayedValue};
pub use rollback::Savepoint;
pub use snapshot::{OpenValue, ReadSnapshot};
pub use system::{Limits, TransactionSystem};
pub use version_store::StampState;
