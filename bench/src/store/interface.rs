//! The traits that an engine implements; see the module above.

use super::figures::{Checkpoints, Figures, Gauges};
use std::fmt;
use std::ops::ControlFlow;

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
    /// Names a table.
    type Table;

    /// Reads `key` into `value`, and replaces its content. Returns false if the key is absent.
    ///
    /// # Errors
    /// Those of the engine.
    fn get(&mut self, table: &Self::Table, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Announces rows that are about to be read or written. A store may ignore the call.
    ///
    /// # Errors
    /// Those of the engine.
    fn prefetch(&mut self, table: &Self::Table, keys: &[[u8; 8]]) -> Result<()> {
        let _ = (table, keys);
        Ok(())
    }

    /// Shows the rows from `from` on and before `to` to `each`, ascending, until it breaks off.
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

    /// The same from the other end.
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

/// Reads and writes. Dropping it takes everything back.
pub trait Transaction: Reader {
    /// A commit that was not waited for.
    type Handle: Handle;

    /// The name of a table. Empty where nothing is noted (see [`crate::ledger`]): in other engines.
    fn name_of(table: &Self::Table) -> &str {
        let _ = table;
        ""
    }

    /// Sets `key` to `value`, whether it was there or not.
    ///
    /// # Errors
    /// `Conflict`, and those of the engine.
    fn insert(&mut self, table: &Self::Table, key: &[u8], value: &[u8]) -> Result<()>;

    /// Deletes `key`; true if it was there.
    ///
    /// # Errors
    /// `Conflict`, and those of the engine.
    fn remove(&mut self, table: &Self::Table, key: &[u8]) -> Result<bool>;

    /// Commits, and returns when what the session's durability level promises is true.
    ///
    /// # Errors
    /// `Conflict`: nothing was committed. Those of the engine.
    fn commit(self) -> Result<()>;

    /// Commits and returns at once. A store that cannot do that waits.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    fn commit_async(self) -> Result<Self::Handle>;

    /// Takes everything back.
    fn abort(self);
}

/// A commit on its way.
pub trait Handle: Send {
    /// True once it is durable, with everything that it depends on, whatever the session's level.
    fn is_done(&self) -> bool;

    /// Waits for that, at most `timeout`; true if it is done. May cause the writes that it needs.
    ///
    /// # Errors
    /// The outcome is unknown.
    fn wait(&self, timeout: std::time::Duration) -> Result<bool>;
}

/// What a store leaves that waits for each commit.
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

/// One thread's way into a store.
pub trait Session {
    /// Names a table.
    type Table;
    /// What an asynchronous commit leaves.
    type Handle: Handle;
    /// Of the read-only kind.
    type Reader<'s>: Reader<Table = Self::Table>
    where
        Self: 's;
    /// Of the kind that writes.
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

/// When a commit of a session returns. Not every store has every level.
pub type Level = quenchdb::Durability;

/// A database under measure.
pub trait Store: Sync {
    /// Names a table.
    type Table: Clone + Send + Sync;
    /// One thread's way into it.
    type Session<'s>: Session<Table = Self::Table>
    where
        Self: 's;

    /// The table called `name`, created if it is missing.
    ///
    /// # Errors
    /// Those of the engine.
    fn table(&self, name: &str) -> anyhow::Result<Self::Table>;

    /// For the calling thread, with commits of this level.
    ///
    /// # Errors
    /// Those of the engine.
    fn session(&self, level: Level) -> anyhow::Result<Self::Session<'_>>;

    /// Everything committed so far survives a power cut when this returns.
    ///
    /// # Errors
    /// Those of the engine.
    fn make_durable(&self) -> anyhow::Result<()>;

    /// Makes a checkpoint: as fast as it can, or at the pace of those that the engine makes by itself. An engine whose commits
    /// write everything to its place has nothing to do.
    ///
    /// # Errors
    /// Those of the engine.
    fn checkpoint(&self, paced: bool) -> anyhow::Result<()>;

    /// The checkpoints made since it was opened, if it counts them. Called often.
    fn checkpoints(&self) -> Checkpoints {
        Checkpoints::default()
    }

    /// Forgets the latencies of [`Figures`].
    fn reset(&self) {}

    /// Returns the gauges that a watch shows ten times a second.
    fn gauges(&self) -> Gauges {
        Gauges::default()
    }

    /// What it counts, since it was opened or [`Store::reset`].
    fn figures(&self) -> Figures;
}
