//! How the transactions of the workers keep out of each other's way.

use quenchdb::{Durability, Isolation, LockRelease, Locking, TransactionOptions};
use std::time::Duration;

/// When a transaction releases its locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Release {
    /// When the commit record is in the log buffer: early lock release.
    #[default]
    PreCommit,
    /// When the commit record is durable: the classic baseline.
    Commit,
    /// When the commit record is in the log buffer, and the commit waits for nothing. A crash loses
    /// commits: the upper bound that early lock release is compared with.
    Unsafe,
}

impl Release {
    /// Returns the name on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Release::PreCommit => "pre-commit",
            Release::Commit => "commit",
            Release::Unsafe => "unsafe",
        }
    }
}

/// What a pessimistic transaction locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Granularity {
    /// The rows that it uses.
    #[default]
    Row,
    /// Each table of which it changes a row: more than it needs.
    Table,
}

impl Granularity {
    /// Returns the name on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Granularity::Row => "row",
            Granularity::Table => "table",
        }
    }
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Concurrency {
    /// What a transaction sees of others.
    pub isolation: Isolation,
    /// Whether a transaction fails or waits when it meets another one.
    pub locking: Locking,
    /// When a pessimistic transaction releases its locks.
    pub release: Release,
    /// What a pessimistic transaction locks before it changes a row.
    pub granularity: Granularity,
    /// How long a transaction waits for one row or lock; none: the setting of the database.
    pub lock_timeout: Option<Duration>,
}

impl Concurrency {
    /// Returns whether a row that will be changed is locked before it is read. Otherwise two
    /// transactions could read a row before one of them changes it: a deadlock of locking reads, a
    /// conflict of a snapshot, a lost change at read committed.
    #[must_use]
    pub fn locks_first(&self) -> bool {
        self.locking == Locking::Pessimistic || self.isolation == Isolation::ReadCommitted
    }

    /// Returns the options of a transaction at `level`.
    pub fn options(&self, level: Durability) -> TransactionOptions {
        let options = TransactionOptions::new().isolation(self.isolation).locking(self.locking);
        let options = match self.release {
            Release::PreCommit => options.durability(level),
            Release::Commit => options.durability(level).lock_release(LockRelease::Commit),
            Release::Unsafe => options.durability(Durability::Lazy),
        };
        match self.lock_timeout {
            Some(timeout) => options.lock_timeout(timeout),
            None => options,
        }
    }
}

/// The names of a [`Concurrency`] on the command line and in reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Names {
    /// `read-committed`, `snapshot`, `serializable`.
    pub isolation: &'static str,
    /// `optimistic`, `pessimistic`.
    pub locking: &'static str,
    /// `pre-commit`, `commit`, `unsafe`.
    pub lock_release: &'static str,
    /// `row`, `table`.
    pub lock_granularity: &'static str,
}

impl Concurrency {
    /// Returns the names.
    #[must_use]
    pub fn names(&self) -> Names {
        Names {
            isolation: match self.isolation {
                Isolation::ReadCommitted => "read-committed",
                Isolation::Serializable => "serializable",
                _ => "snapshot",
            },
            locking: if self.locking == Locking::Pessimistic { "pessimistic" } else { "optimistic" },
            lock_release: self.release.name(),
            lock_granularity: self.granularity.name(),
        }
    }
}
