//! The traits that an engine implements; see the module above.

use super::figures::{Checkpoints, Figures, Gauges};
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Why a call failed.
#[derive(Debug)]
pub enum Error {
    /// Another transaction conflicts. Run the whole transaction again.
    Conflict,
    /// Any other error; it ends the run.
    Failed(anyhow::Error),
}

/// The result of a call of a store.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns the error of a check that failed.
    #[cold]
    #[must_use]
    pub fn wrong(what: impl fmt::Display) -> Error {
        Error::Failed(anyhow::anyhow!("{what}"))
    }

    /// Returns the error of a call that has no competing transaction.
    #[must_use]
    pub fn into_failure(self) -> anyhow::Error {
        match self {
            Error::Conflict => anyhow::anyhow!("a conflict, although no other transaction writes"),
            Error::Failed(error) => error,
        }
    }
}

/// Whether a scan continues.
pub type Step = ControlFlow<()>;

/// Reads one state of the database.
pub trait Reader {
    /// A handle of a table.
    type Table;

    /// Calls `f` with the value of `key`, where the engine has it. Returns `None` if the key is
    /// absent.
    ///
    /// # Errors
    /// Those of the engine.
    fn get_with<V>(
        &mut self,
        table: &Self::Table,
        key: &[u8],
        f: impl FnOnce(&[u8]) -> V,
    ) -> Result<Option<V>>;

    /// Reads `key` into `value`, and replaces its content. Returns false if the key is absent.
    ///
    /// # Errors
    /// Those of the engine.
    #[inline]
    fn get(&mut self, table: &Self::Table, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let copy = |found: &[u8]| {
            value.clear();
            value.extend_from_slice(found);
        };
        Ok(self.get_with(table, key, copy)?.is_some())
    }

    /// Announces rows that are about to be read or written. A store may ignore the call.
    ///
    /// # Errors
    /// Those of the engine.
    fn prefetch(&mut self, table: &Self::Table, keys: &[[u8; 8]]) -> Result<()> {
        let _ = (table, keys);
        Ok(())
    }

    /// Calls `each` with the rows from `from` (included) to `to` (excluded), ascending, until it
    /// breaks.
    ///
    /// # Errors
    /// Those of the engine.
    fn scan(
        &mut self,
        table: &Self::Table,
        from: &[u8],
        to: &[u8],
        each: impl FnMut(&[u8], &[u8]) -> Step,
    ) -> Result<()>;

    /// Calls `each` with all rows from `from` (included) to `to` (excluded), ascending.
    ///
    /// # Errors
    /// Those of the engine.
    #[inline]
    fn for_each(
        &mut self,
        table: &Self::Table,
        from: &[u8],
        to: &[u8],
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        self.scan(table, from, to, |key, value| {
            each(key, value);
            Step::Continue(())
        })
    }

    /// Like `scan`, descending.
    ///
    /// # Errors
    /// Those of the engine.
    fn scan_back(
        &mut self,
        table: &Self::Table,
        from: &[u8],
        to: &[u8],
        each: impl FnMut(&[u8], &[u8]) -> Step,
    ) -> Result<()>;
}

/// Reads and writes. Rolls back when dropped.
pub trait Transaction: Reader {
    /// The handle of an asynchronous commit.
    type Handle: Handle;

    /// Returns the name of a table for the [`crate::ledger`]. Other engines return an empty name.
    fn name_of(table: &Self::Table) -> Arc<str> {
        let _ = table;
        Arc::default()
    }

    /// Reads like [`Reader::get`] a row that the transaction will change. Locks the row first if
    /// the session's transactions wait for each other instead of failing.
    ///
    /// # Errors
    /// `Conflict`, and those of the engine.
    #[inline]
    fn get_for_update(&mut self, table: &Self::Table, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.get(table, key, value)
    }

    /// Sets `key` to `value`; inserts a missing key.
    ///
    /// # Errors
    /// `Conflict`, and those of the engine.
    fn insert(&mut self, table: &Self::Table, key: &[u8], value: &[u8]) -> Result<()>;

    /// Sets each key to its value; inserts missing keys.
    ///
    /// # Errors
    /// `Conflict`, and those of the engine.
    #[inline]
    fn insert_all<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        table: &Self::Table,
        rows: impl Iterator<Item = (K, V)>,
    ) -> Result<()> {
        for (key, value) in rows {
            self.insert(table, key.as_ref(), value.as_ref())?;
        }
        Ok(())
    }

    /// Deletes the row with the lowest key. Returns false if the table is empty.
    ///
    /// # Errors
    /// `Conflict`, and those of the engine.
    fn pop_first(&mut self, table: &Self::Table) -> Result<bool> {
        let mut first = None;
        self.scan(table, &[], &[u8::MAX; 64], |key, _| {
            first = Some(key.to_vec());
            Step::Break(())
        })?;
        first.map_or(Ok(false), |key| self.remove(table, &key))
    }

    /// Deletes `key`. Returns false if the key is absent.
    ///
    /// # Errors
    /// `Conflict`, and those of the engine.
    fn remove(&mut self, table: &Self::Table, key: &[u8]) -> Result<bool>;

    /// Commits, and returns when the commit has the durability level of the session.
    ///
    /// # Errors
    /// `Conflict`: nothing was committed. Those of the engine.
    fn commit(self) -> Result<()>;

    /// Commits and returns at once. A store that cannot do that waits.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    fn commit_async(self) -> Result<Self::Handle>;

    /// Rolls back.
    fn abort(self);
}

/// An asynchronous commit.
pub trait Handle: Send {
    /// Returns true once the commit and its dependencies are durable, at any level of the session.
    fn is_done(&self) -> bool;

    /// Waits until then, at most `timeout`. Returns whether the commit is durable. May cause the
    /// necessary writes.
    ///
    /// # Errors
    /// The outcome is unknown.
    fn wait(&self, timeout: std::time::Duration) -> Result<bool>;
}

/// The handle of a store whose commits always wait.
#[derive(Clone, Copy, Debug)]
pub struct Waited;

impl Handle for Waited {
    fn is_done(&self) -> bool {
        true
    }

    fn wait(&self, _: std::time::Duration) -> Result<bool> {
        Ok(true)
    }
}

/// The access of one thread to a store.
pub trait Session {
    /// A handle of a table.
    type Table;
    /// The handle of an asynchronous commit.
    type Handle: Handle;
    /// A read-only snapshot.
    type Reader<'s>: Reader<Table = Self::Table>
    where
        Self: 's;
    /// A transaction that may write.
    type Transaction<'s>: Transaction<Table = Self::Table, Handle = Self::Handle>
    where
        Self: 's;

    /// Begins a transaction.
    ///
    /// # Errors
    /// Those of the engine.
    fn begin(&mut self) -> Result<Self::Transaction<'_>>;

    /// Begins a read-only snapshot.
    ///
    /// # Errors
    /// Those of the engine.
    fn begin_read(&mut self) -> Result<Self::Reader<'_>>;
}

/// The durability level of the commits of a session. Not every store has every level.
pub type Level = quenchdb::Durability;

/// A database to measure.
pub trait Store: Sync {
    /// A handle of a table.
    type Table: Clone + Send + Sync;
    /// The access of one thread.
    type Session<'s>: Session<Table = Self::Table>
    where
        Self: 's;

    /// Returns the table `name`, and creates a missing one.
    ///
    /// # Errors
    /// Those of the engine.
    fn table(&self, name: &str) -> anyhow::Result<Self::Table>;

    /// Returns a session for the calling thread, with commits of this level.
    ///
    /// # Errors
    /// Those of the engine.
    fn session(&self, level: Level) -> anyhow::Result<Self::Session<'_>>;

    /// Returns the session of a worker that is measured, with the isolation and locks to be
    /// measured.
    ///
    /// # Errors
    /// Those of the engine.
    fn worker_session(&self, level: Level) -> anyhow::Result<Self::Session<'_>> {
        self.session(level)
    }

    /// Makes everything committed so far durable.
    ///
    /// # Errors
    /// Those of the engine.
    fn make_durable(&self) -> anyhow::Result<()>;

    /// Makes a checkpoint: at full speed, or `paced` like an automatic one. An engine that updates
    /// in place does nothing.
    ///
    /// # Errors
    /// Those of the engine.
    fn checkpoint(&self, paced: bool) -> anyhow::Result<()>;

    /// Returns the checkpoints since the open, if the engine counts them. Called often.
    fn checkpoints(&self) -> Checkpoints {
        Checkpoints::default()
    }

    /// Resets the latencies of [`Figures`].
    fn reset(&self) {}

    /// Returns the gauges that a watch shows ten times a second.
    fn gauges(&self) -> Gauges {
        Gauges::default()
    }

    /// Returns the figures since the open or [`Store::reset`].
    fn figures(&self) -> Figures;
}
