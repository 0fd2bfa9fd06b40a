//! Workloads and drivers that measure QuenchDB.
//!
//! A workload ([`ycsb`], [`put`]) says what one transaction does; the [`driver`] runs it in threads for a time and makes
//! the [`report`]; [`device`] measures the floor under all of them: the raw durable write.

pub mod device;
pub mod distribution;
pub mod driver;
pub mod put;
pub mod report;
pub mod ycsb;

/// Told of long work: what is being done, how much is done, how much there is.
pub type Progress<'a> = &'a (dyn Fn(&str, u64, u64) + Sync);
