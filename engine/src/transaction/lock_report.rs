//! What is locked, and which transactions wait: to find out why a database is slow.

use super::locks::{Access, Interval, LockMode, Locked};
use super::system::TransactionSystem;
use std::ops::Bound;
use std::time::Duration;

/// What a lock is on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockedKeys {
    /// One key, whether it exists or not.
    Key(Vec<u8>),
    /// The keys between two bounds.
    Range(Bound<Vec<u8>>, Bound<Vec<u8>>),
    /// All keys of the table.
    Table,
}

/// A lock that a transaction holds, or that it waits for.
///
/// Rows that a transaction has changed are locked by the change itself. They are listed only where
/// another transaction waits for them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockInfo {
    /// The table.
    pub table: String,
    /// What the lock is on.
    pub keys: LockedKeys,
    /// The mode; [`LockMode::Exclusive`] for a change of a row.
    pub mode: LockMode,
    /// The transaction, as errors name it.
    pub transaction: String,
    /// The transactions that it waits for; empty if it holds the lock.
    pub waits_for: Vec<String>,
    /// How long the transaction has held the lock, or has waited for it.
    pub since: Duration,
}

fn keys_of(interval: &Interval) -> LockedKeys {
    if *interval == Interval::ALL {
        LockedKeys::Table
    } else {
        LockedKeys::Range(interval.from.clone(), interval.to.clone())
    }
}

impl TransactionSystem {
    /// Returns the locks that are held, then those that transactions wait for.
    #[must_use]
    pub fn lock_report(&self) -> Vec<LockInfo> {
        let (now, mut report) = (self.clock.now(), Vec::new());
        for table in self.catalog.tables() {
            table.locks.each(|locked, held| {
                report.push(LockInfo {
                    table: table.name.to_string(),
                    keys: match locked {
                        Locked::Key(key) => LockedKeys::Key(key.to_vec()),
                        Locked::Interval(interval) => keys_of(interval),
                    },
                    mode: held.mode,
                    transaction: held.id.to_string(),
                    waits_for: Vec::new(),
                    since: now.since(held.since),
                });
            });
        }
        report.extend(self.locks.waiters.report().into_iter().map(|waiting| {
            let (keys, mode) = match &waiting.access {
                Access::Change(key) => (LockedKeys::Key(key.to_vec()), LockMode::Exclusive),
                Access::Key(key, mode) => (LockedKeys::Key(key.to_vec()), *mode),
                Access::Interval(interval) => (keys_of(interval), LockMode::Shared),
                Access::Table(mode) => (LockedKeys::Table, *mode),
            };
            LockInfo {
                table: waiting.table.to_string(),
                keys,
                mode,
                transaction: waiting.id.to_string(),
                waits_for: waiting.blockers.iter().map(ToString::to_string).collect(),
                since: waiting.waited,
            }
        }));
        report
    }
}
