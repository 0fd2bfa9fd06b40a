//! The seam between workloads and engines: what a workload may ask of a store, and nothing else.
//!
//! ```text
//!   Workload ──▶ Worker ──▶ Transaction: get, scan, insert, remove, commit   ◀── one implementation an engine
//!   driver   ──▶ Store ──▶ Session (one a thread) ──▶ Transaction
//! ```
//!
//! All of it is generic, so a call compiles to the engine's own. Guarantees that every implementation gives:
//!
//! 1. A transaction reads one consistent state and its own writes; two that read and write the same row do not both commit
//!    unless the second saw what the first wrote. So increments are not lost.
//! 2. [`Error::Conflict`] leaves nothing behind: the transaction can be run again from its beginning.
//! 3. A session is used by one thread and has one transaction at a time; after a commit its next transaction sees it.
//! 4. `scan` gives each key of the range once, ascending; `scan_back` descending.

mod noted;
mod quench;

pub use noted::Noted;
pub use quench::QuenchSession;

use crate::coordination::Waits;
use crate::report::Latency;
use std::fmt;
use std::ops::ControlFlow;

/// Why a call did not do what it was asked to.
#[derive(Debug)]
pub enum Error {
    /// Another transaction was in the way. Run the whole transaction again.
    Conflict,
    /// Anything else: the run ends.
    Failed(anyhow::Error),
}

/// The result of a call of a store.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// What is stored is not what was stored.
    #[cold]
    #[must_use]
    pub fn wrong(what: impl fmt::Display) -> Error {
        Error::Failed(anyhow::anyhow!("{what}"))
    }

    /// As an error of a call that nobody competes with.
    #[must_use]
    pub fn into_failure(self) -> anyhow::Error {
        match self {
            Error::Conflict => anyhow::anyhow!("a conflict where nobody else writes"),
            Error::Failed(error) => error,
        }
    }
}

/// Whether a scan goes on.
pub type Step = ControlFlow<()>;

/// Reads one state of the database.
pub trait Reader {
    /// Names a table.
    type Table;

    /// Reads `key` into `value`, whose content it replaces; true if the key is there.
    ///
    /// # Errors
    /// Those of the engine.
    fn get(&mut self, table: &Self::Table, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Tells that these rows are about to be read or written. A store that cannot use that does nothing.
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

    /// What somebody who watches wants to know ten times a second.
    fn gauges(&self) -> Gauges {
        Gauges::default()
    }

    /// What it counts, since it was opened or [`Store::reset`].
    fn figures(&self) -> Figures;
}

/// Checkpoints of a store.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checkpoints {
    /// How many since it was opened.
    pub count: u64,
    /// How long the newest took.
    pub newest_seconds: f64,
    /// Bytes of images that it wrote.
    pub newest_bytes: u64,
}

/// A number of things, and the microseconds that they took together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Total {
    /// How many.
    pub count: u64,
    /// Microseconds.
    pub us: f64,
}

impl Total {
    /// Mean of those that came after `earlier`, 0 if there were none.
    #[must_use]
    pub fn mean_since(self, earlier: Total) -> f64 {
        match self.count.saturating_sub(earlier.count) {
            0 => 0.0,
            count => ((self.us - earlier.us) / count as f64).max(0.0),
        }
    }
}

/// What an engine shows many times a second. Times count since [`Store::reset`], everything else since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Waits for rows that others hold, together.
    pub row_wait_seconds: f64,
    /// Records on their way into a log's buffer.
    pub log_inserts: Total,
    /// From ready to committed.
    pub commits: Total,
    /// From the end of the write to committed.
    pub acknowledges: Total,
    /// Writes of the log.
    pub log_writes: u64,
    /// Bytes of these, padding included.
    pub log_write_bytes: u64,
    /// Flushes of the log's device.
    pub device_flushes: u64,
    /// Bytes of log that recovery would read.
    pub log_bytes_in_use: u64,
    /// Pages in memory.
    pub pages: u64,
    /// Pages that may be in memory now.
    pub pages_max: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// The budget of the whole engine.
    pub memory_bytes: u64,
    /// Bytes of versions.
    pub version_bytes: u64,
    /// Pages that left memory.
    pub pages_evicted: u64,
    /// Reads of pages from the device.
    pub reads: u64,
    /// Checkpoints that were made.
    pub checkpoints: u64,
    /// The time that the newest took.
    pub checkpoint_seconds: f64,
    /// The share of the pages that the one being made has looked at.
    pub checkpoint_running: Option<f64>,
    /// How long recovery would take now.
    pub recovery_seconds: f64,
}

/// What an engine says of itself. Counters count since it was opened, latencies since [`Store::reset`].
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Commit protocol.
    pub preset: String,
    /// Its axes.
    pub protocol: String,
    /// What it made threads do.
    pub waits: Waits,
    /// Logs of the database.
    pub logs: usize,
    /// How writes become durable.
    pub durability: String,
    /// Bytes of log records.
    pub log_bytes: u64,
    /// Bytes written to the log's device, padding included.
    pub device_bytes: u64,
    /// Writes of the log.
    pub device_writes: u64,
    /// Flushes of the log's device.
    pub device_flushes: u64,
    /// Reads of pages.
    pub reads: u64,
    /// Bytes of these.
    pub read_bytes: u64,
    /// Bytes written to the file of pages.
    pub written_bytes: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Time they took, together.
    pub checkpoint_seconds: f64,
    /// Waits for rows that others hold, together; since [`Store::reset`].
    pub row_wait_seconds: f64,
    /// Mean time from the call that commits to the record in the log's buffer; since [`Store::reset`].
    pub log_insert_us: f64,
    /// Begun to ready, of the transactions whose end the engine knows.
    pub execute: Latency,
    /// Ready to committed, of those that wrote.
    pub commit: Latency,
    /// Begun to committed.
    pub total: Latency,
    /// A durable write of the log.
    pub flush: Latency,
    /// End of the write to committed.
    pub acknowledge: Latency,
}
