//! Rank 9: what can a user call?
//!
//! Thin: a method calls one function of a lower layer, which checks and decides. Only opening and
//! verifying compose several layers.

mod table;
mod value;
#[cfg(feature = "object-storage")]
mod objects;
mod place;
mod handle;
mod transaction;
mod refuse;
mod log_memory;
mod engine;
mod statistics;
mod maintenance;
mod open;
mod database;
mod verify;
mod builder;
mod backup;
mod salvage;

pub use backup::{BackupOptions, RestoreOptions, RestoreReport};
pub use builder::Builder;
pub use database::Database;
pub use handle::CommitHandle;
pub use open::Progress;
pub use place::Place;
pub use statistics::{LatencySummary, Statistics};
pub use table::Table;
pub use transaction::{Range, Snapshot, Transaction};
pub use value::ValueReader;
pub use verify::VerifyReport;

pub use crate::backup::{BackupReport, CompactReport, LostRange, SalvageReport, SalvagedTable};
pub use crate::checkpoint::{CheckpointReport, CheckpointTotals, ReplayEstimate, ReplayRates, ReplayWork};
pub use crate::device::mapped::{MemoryFacts, Primitive, Survives};
pub use crate::device::{
    LogObject, LogRecords, ObjectContent, ObjectList, ObjectRequests, ObjectState, Pin, StoredObject,
};
pub use crate::recovery::RecoveryReport;
pub use crate::store::CheckpointReader;
pub use crate::transaction::{
    Isolation, LockInfo, LockMode, LockRelease, LockedKeys, Locking, Savepoint, TransactionOptions,
};
pub use crate::tree::VALUE_BYTES_MAX;
