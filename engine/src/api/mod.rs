//! Rank 9: what can a user call?
//!
//! Thin: a method calls one function of a lower layer, which checks and decides. Only opening and
//! verifying compose several layers.

mod table;
mod value;
mod range;
#[cfg(feature = "object-storage")]
mod objects;
mod place;
mod handle;
mod transaction;
mod snapshot;
mod reads;
mod changes;
mod ownership;
mod refuse;
mod log_memory;
mod typed;
mod index_list;
mod engine;
mod latency;
mod health;
mod sample;
mod table_counts;
mod statistics;
mod prometheus;
#[cfg(feature = "metrics")]
mod bridge;
mod maintenance;
mod monitor;
mod open;
mod database;
mod table_types;
mod feed;
mod transact_async;
mod verify_files;
mod verify;
mod table_report;
mod builder;
mod standby;
mod backup;
mod salvage;

pub use backup::{BackupOptions, RestoreOptions, RestoreReport};
pub use builder::Builder;
pub(crate) use changes::sum_of;
pub use database::Database;
pub use feed::Watch;
pub use handle::CommitHandle;
pub use health::{Health, HealthState};
pub(crate) use index_list::{INDEX_LIST, ListedIndex};
pub use latency::LatencySummary;
pub use open::Progress;
pub use place::{OtherStorage, Place};
pub(crate) use range::prefix_range;
pub use range::{KeyRange, Range, Row};
pub use reads::Reads;
pub use snapshot::Snapshot;
pub use standby::{Standby, StandbySnapshot, StandbyStatistics};
pub use statistics::Statistics;
pub use table::Table;
pub use table_counts::TableCounts;
pub use table_report::TableReport;
pub use transact_async::{Job, Transacting};
pub use transaction::Transaction;
pub use value::ValueReader;
pub use verify::VerifyReport;
pub use verify_files::{ExtraFile, FilesReport, VerifyClass};

pub use crate::backup::{BackupReport, CompactReport, LostRange, SalvageReport, SalvagedTable};
pub use crate::checkpoint::{CheckpointReport, CheckpointTotals, ReplayEstimate, ReplayRates, ReplayWork};
pub use crate::device::mapped::{MemoryFacts, Primitive, Survives};
pub use crate::device::{
    BucketStatistics, DeviceFacts, LogObject, LogRecords, ObjectContent, ObjectList, ObjectRequests,
    ObjectState, Pin, StoredObject,
};
pub use crate::feed::{Change, ChangedTable, Changes, ChangesOf, CommittedTransaction};
pub use crate::log::DumpedRecord;
pub use crate::recovery::RecoveryReport;
pub use crate::store::{CheckpointReader, ManifestCopy, PackUsage, SpaceCell};
pub use crate::transaction::{
    Isolation, LockInfo, LockMode, LockRelease, LockedKeys, Locking, Savepoint, TransactionOptions,
};
pub use crate::tree::VALUE_BYTES_MAX;

/// What may be used after a panic that was caught: a panic leaves no call half done. Either the
/// call takes its changes back, or the database is poisoned, and every later call says so.
macro_rules! survive_panics {
    ($($type:ty),*) => { $(
        impl std::panic::UnwindSafe for $type {}
        impl std::panic::RefUnwindSafe for $type {}
    )* };
}

survive_panics! { Database, Table, Snapshot, Place }

/// Which public types may move to another thread, and which may be used by several at once; and
/// which may be used after a panic that was caught.
const _: () = {
    const fn survive_panics<T: std::panic::UnwindSafe + std::panic::RefUnwindSafe>() {}

    survive_panics::<Database>();
    survive_panics::<Table>();
    survive_panics::<Snapshot>();
    survive_panics::<Place>();
    survive_panics::<crate::Settings>();

    const fn move_between_threads<T: Send>() {}
    const fn are_shared_by_threads<T: Send + Sync>() {}

    are_shared_by_threads::<Database>();
    are_shared_by_threads::<Table>();
    are_shared_by_threads::<Snapshot>();
    are_shared_by_threads::<CommitHandle>();
    are_shared_by_threads::<Place>();
    are_shared_by_threads::<Statistics>();
    are_shared_by_threads::<Standby>();
    are_shared_by_threads::<StandbySnapshot>();
    are_shared_by_threads::<StandbyStatistics>();
    are_shared_by_threads::<TableCounts>();
    are_shared_by_threads::<Savepoint>();
    are_shared_by_threads::<TransactionOptions>();
    are_shared_by_threads::<VerifyReport>();
    are_shared_by_threads::<RestoreReport>();
    are_shared_by_threads::<crate::Error>();
    are_shared_by_threads::<crate::Settings>();
    are_shared_by_threads::<Transacting<Vec<u8>, crate::Error>>();
    are_shared_by_threads::<Change>();
    are_shared_by_threads::<CommittedTransaction>();
    move_between_threads::<Changes>();
    move_between_threads::<Watch>();
    move_between_threads::<Builder>();
    move_between_threads::<BackupOptions>();
    move_between_threads::<Transaction>();
    move_between_threads::<Range<'_, Snapshot>>();
    move_between_threads::<ValueReader<'_>>();
};
