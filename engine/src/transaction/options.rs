//! What a transaction is begun with: isolation, locking, durability, how long it waits.

use crate::base::settings::Durability;
use crate::base::{Error, ErrorKind, Result};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What a transaction sees of others, and what it forbids them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
#[non_exhaustive]
pub enum Isolation {
    /// The newest committed values, statement by statement. A row that was changed since the
    /// beginning is no conflict. A writer waits for a row that another transaction has changed.
    ReadCommitted,
    /// The database as of one moment. Writing a row that was changed since is a conflict. Two
    /// transactions that read what the other one writes may both commit (*write skew*).
    #[default]
    Snapshot,
    /// As if the transactions had run one after the other, in the order of their CSNs and in real
    /// time, as long as the others that write the same tables are serializable, too.
    Serializable,
}

/// How a transaction prevents that others interfere with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
#[non_exhaustive]
pub enum Locking {
    /// Reads take no locks. Interference is found when a row is written, or at the commit, and is
    /// then a [`Conflict`](crate::ErrorKind::Conflict).
    #[default]
    Optimistic,
    /// A transaction waits for others instead of failing. At [`Isolation::Serializable`] each read
    /// locks what it reads (strict two-phase locking).
    Pessimistic,
}

/// When a pessimistic transaction releases its locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum LockRelease {
    /// When the commit record is in the log buffer (*early lock release*). A transaction that then
    /// reads a change is acknowledged only after the change is durable.
    #[default]
    PreCommit,
    /// When the commit record is durable. The classic baseline, for comparisons: other transactions
    /// wait for the device.
    Commit,
}

/// Whether a transaction remembers or locks what it reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReadMode {
    Plain,
    Remember,
    Lock,
}

/// A function that a waiting thread calls now and then. If it returns true, the wait ends.
#[derive(Clone)]
pub struct Interrupt(Arc<dyn Fn() -> bool + Send + Sync>);

impl Interrupt {
    /// Returns the interrupt of a function.
    pub fn new(is_interrupted: impl Fn() -> bool + Send + Sync + 'static) -> Interrupt {
        Interrupt(Arc::new(is_interrupted))
    }

    /// Returns an error if the wait is to end.
    ///
    /// # Errors
    /// `Interrupted`.
    pub(super) fn check(&self) -> Result<()> {
        if !(self.0)() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Interrupted, "the caller ended the wait for a row or a lock"))
    }
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interrupt")
    }
}

/// What [`Database::begin_with`](crate::Database::begin_with) begins.
///
/// A [`Durability`] or an [`Isolation`] alone can be passed instead.
///
/// ```
/// use quenchdb::{Isolation, Locking, TransactionOptions};
/// use std::time::Duration;
///
/// let options = TransactionOptions::new()
///     .isolation(Isolation::Serializable)
///     .locking(Locking::Pessimistic)
///     .lock_timeout(Duration::from_millis(200));
/// # drop(options);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use]
pub struct TransactionOptions {
    pub(super) isolation: Isolation,
    pub(super) locking: Locking,
    pub(super) durability: Durability,
    pub(super) lock_release: LockRelease,
    pub(super) lock_timeout: Option<Duration>,
    pub(super) no_wait: bool,
    pub(super) read_only: bool,
    pub(super) priority: i8,
}

impl TransactionOptions {
    /// Returns the options of [`Database::begin`](crate::Database::begin): snapshot isolation,
    /// optimistic, durable.
    pub fn new() -> TransactionOptions {
        TransactionOptions::default()
    }

    /// Sets what the transaction sees of others.
    pub fn isolation(self, isolation: Isolation) -> TransactionOptions {
        TransactionOptions { isolation, ..self }
    }

    /// Sets how the transaction prevents interference.
    pub fn locking(self, locking: Locking) -> TransactionOptions {
        TransactionOptions { locking, ..self }
    }

    /// Sets what a commit waits for.
    pub fn durability(self, durability: Durability) -> TransactionOptions {
        TransactionOptions { durability, ..self }
    }

    /// Sets when locks are released.
    pub fn lock_release(self, lock_release: LockRelease) -> TransactionOptions {
        TransactionOptions { lock_release, ..self }
    }

    /// Sets how long the transaction waits for one row or lock, instead of the setting
    /// `lock_wait`. Optimistic transactions wait for rows, too.
    pub fn lock_timeout(self, lock_timeout: Duration) -> TransactionOptions {
        TransactionOptions { lock_timeout: Some(lock_timeout), ..self }
    }

    /// Lets the transaction fail at once where it would wait for a row or a lock.
    pub fn no_wait(self) -> TransactionOptions {
        TransactionOptions { no_wait: true, ..self }
    }

    /// Declares that the transaction writes nothing. It then reads the database as of its
    /// beginning: it never waits for a lock, never fails with a conflict, and is serializable.
    pub fn read_only(self) -> TransactionOptions {
        TransactionOptions { read_only: true, ..self }
    }

    /// Sets the priority of the transaction in a deadlock, 0 by default. Among the transactions of
    /// a cycle one of the lowest priority is aborted, of these the youngest. Lock queues ignore the
    /// priority.
    pub fn priority(self, priority: i8) -> TransactionOptions {
        TransactionOptions { priority, ..self }
    }

    /// Returns the wait for one row or lock that the transaction sets itself.
    pub(crate) fn own_lock_timeout(&self) -> Option<Duration> {
        self.lock_timeout
    }

    /// Returns whether reads are remembered or locked.
    #[inline]
    pub(super) fn read_mode(&self) -> ReadMode {
        match (self.isolation, self.locking) {
            _ if self.read_only => ReadMode::Plain,
            (Isolation::Serializable, Locking::Optimistic) => ReadMode::Remember,
            (Isolation::Serializable, Locking::Pessimistic) => ReadMode::Lock,
            _ => ReadMode::Plain,
        }
    }

    /// Checks that the options go together.
    ///
    /// # Errors
    /// `InvalidArgument`, with the reason.
    pub fn check(&self) -> Result<()> {
        let refuse = |what| Err(Error::invalid(what));
        if self.lock_timeout == Some(Duration::ZERO) {
            let error = Error::invalid("a lock timeout of 0 is not allowed");
            return Err(error.with_advice("use `no_wait` to fail instead of waiting"));
        }
        if self.no_wait && self.lock_timeout.is_some() {
            let error = Error::invalid("`no_wait` and a lock timeout contradict each other");
            return Err(error.with_advice("set one of them"));
        }
        if self.read_only && self.locking == Locking::Pessimistic {
            return refuse(
                "a read-only transaction cannot be pessimistic: it reads as of one CSN and needs no locks",
            );
        }
        if self.lock_release == LockRelease::Commit {
            if self.locking == Locking::Optimistic {
                return refuse("locks can be released at commit only by a pessimistic transaction");
            }
            if self.durability != Durability::Durable {
                return refuse(
                    "locks can be released at commit only at level durable: otherwise they have no end",
                );
            }
        }
        Ok(())
    }
}

impl From<Durability> for TransactionOptions {
    fn from(durability: Durability) -> TransactionOptions {
        TransactionOptions::new().durability(durability)
    }
}

impl From<Isolation> for TransactionOptions {
    fn from(isolation: Isolation) -> TransactionOptions {
        TransactionOptions::new().isolation(isolation)
    }
}
