//! The parts of an open database, and how it closes.

use super::log_memory::OldMemory;
use super::typed::TypedTables;
use crate::base::clock::Clock;
use crate::base::settings::Settings;
use crate::base::{Charge, Csn, DatabaseId, Error, ErrorKind, Location, Result};
use crate::buffer::{Pool, ReadAheadThread};
use crate::checkpoint::{CheckpointTotals, Checkpointer, Evictor, ReplayModel};
use crate::device::mapped::MemoryFacts;
use crate::device::{MonitorSocket, Storage};
use crate::feed::CountedEpochs;
use crate::log::SegmentPool;
use crate::recovery::RecoveryReport;
use crate::store::{Manifest, ManifestFile, PageStore};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, Ours, thread};
use crate::transaction::TransactionSystem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// What the handles of an open database share. When the last handle is dropped the database closes
/// in that thread: the drop waits for the maintenance thread, which may be in the middle of a
/// checkpoint, and the lock is free when the drop returns. In a forked child nothing happens.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) engine: Ours<Arc<Engine>>,
}

impl std::ops::Deref for Owner {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

/// What only a database that is open for writing has.
pub(super) struct Writing {
    pub(super) checkpointer: Checkpointer,
    pub(super) segments: Arc<SegmentPool>,
    pub(super) replay: Arc<ReplayModel>,
    pub(super) database: DatabaseId,
    /// The records of the log that count, for change feeds.
    pub(super) epochs: Arc<CountedEpochs>,
}

/// Threads that work for the buffer pool and for checkpoints.
pub(super) struct Threads {
    pub(super) evictor: Evictor,
    pub(super) read_ahead: ReadAheadThread,
    pub(super) maintenance: Mutex<Option<thread::JoinHandle<()>>>,
    pub(super) monitor: Mutex<Option<Monitor>>,
}

/// Answers other processes that ask for statistics.
pub(super) struct Monitor {
    pub(super) socket: Arc<MonitorSocket>,
    pub(super) thread: thread::JoinHandle<()>,
}

impl Monitor {
    /// Returns when the thread has ended. A peer that does not read delays it for half a second.
    fn stop(self) {
        self.socket.stop();
        let _ = self.thread.join();
    }
}

/// What was opened.
pub(super) struct Opened {
    pub(super) path: String,
    pub(super) logs: usize,
    pub(super) recovery: RecoveryReport,
}

/// Whether the database is closed.
#[derive(Default)]
pub(super) struct Closing {
    pub(super) closed: AtomicBool,
    /// The outcome of the first close, once it has ended.
    outcome: Mutex<Option<Result<()>>>,
}

/// An open database.
pub(super) struct Engine {
    pub(super) system: Arc<TransactionSystem>,
    pub(super) pool: Arc<Pool>,
    pub(super) store: Arc<PageStore>,
    pub(super) storage: Arc<dyn Storage>,
    /// The mapped memory that the database needed at open; used while it is open read-only.
    pub(super) old_memory: OldMemory,
    /// None if the database is open read-only.
    pub(super) writing: Option<Writing>,
    /// Set if a checkpoint is open, beside a writer.
    pub(super) at_checkpoint: Option<Manifest>,
    pub(super) threads: Threads,
    pub(super) typed: TypedTables,
    pub(super) _always: Charge,
    pub(super) settings: Settings,
    pub(super) clock: Clock,
    pub(super) opened: Opened,
    pub(super) closing: Closing,
    /// Released last. None after a close.
    pub(super) lock: Mutex<Option<Box<dyn Send + Sync>>>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("path", &self.opened.path).finish_non_exhaustive()
    }
}

fn read_only() -> Error {
    Error::invalid("the database is open read-only")
        .with_advice("open it for writing")
        .at(Location::Setting("read_only"))
}

/// Returns the outcome for a further caller.
fn same(outcome: &Result<()>) -> Result<()> {
    outcome.as_ref().map_err(Error::duplicate).copied()
}

impl Engine {
    /// # Errors
    /// `InvalidArgument` if the database is open read-only.
    pub(super) fn checkpointer(&self) -> Result<&Checkpointer> {
        self.writing.as_ref().map(|writing| &writing.checkpointer).ok_or_else(read_only)
    }

    /// # Errors
    /// `InvalidArgument` if the database is closed, and in a forked child.
    pub(super) fn check_usable(&self) -> Result<()> {
        self.system.committed.check_usable()
    }

    /// Returns whether the calling process is a forked child of the one that opened the database.
    /// There a lock may stay locked for ever, so only what takes none may be called.
    pub(super) fn is_forked(&self) -> bool {
        self.system.committed.is_forked()
    }

    /// # Errors
    /// `InvalidArgument` if the database is open read-only or closed, and in a forked child.
    pub(super) fn check_writable(&self) -> Result<&Writing> {
        self.check_usable()?;
        let writing = self.writing.as_ref().ok_or_else(read_only)?;
        if self.is_closed() {
            return Err(Error::invalid("the last handle of the database was dropped")
                .with_advice("open the database again"));
        }
        Ok(writing)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closing.closed.load(Ordering::SeqCst)
    }

    pub(super) fn checkpoint_csn(&self) -> Csn {
        match (&self.writing, &self.at_checkpoint) {
            (Some(writing), _) => writing.checkpointer.csn(),
            (None, Some(manifest)) => manifest.checkpoint,
            (None, None) => Csn::ZERO,
        }
    }

    pub(super) fn checkpoints(&self) -> CheckpointTotals {
        let writing = self.writing.as_ref().filter(|_| !self.is_forked());
        writing.map_or_else(Default::default, |writing| writing.checkpointer.totals())
    }

    /// Returns the facts of the mapped memory that is used, or, in a read-only database, needed.
    pub(super) fn log_memory(&self) -> Option<MemoryFacts> {
        let used = self.system.committed.running().and_then(|commit| commit.inspect().memory_facts());
        used.or_else(|| self.old_memory.facts.clone())
    }

    /// Closes the database, and refuses all further calls.
    ///
    /// # Errors
    /// Those of the last checkpoint; `InvalidArgument` in a forked child.
    pub(super) fn close(&self) -> Result<()> {
        if self.is_forked() {
            return self.check_usable();
        }
        self.system.committed.close();
        let closed = self.close_once();
        self.store.release_checkpoint();
        closed
    }

    /// Closes the database, once, and gives up its directory, whatever still refers to the engine.
    fn close_once(&self) -> Result<()> {
        if self.closing.closed.swap(true, Ordering::SeqCst) {
            return match &*self.closing.outcome.lock() {
                Some(outcome) => same(outcome),
                None => Err(Error::new(ErrorKind::Busy, "another thread is closing the database")),
            };
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| self.close_first()));
        self.leave_directory();
        let panicked = || Err(Error::new(ErrorKind::Poisoned, "closing the database panicked"));
        *self.closing.outcome.lock() = Some(outcome.as_ref().map_or_else(|_| panicked(), same));
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn close_first(&self) -> Result<()> {
        let Some(Writing { checkpointer, segments, .. }) = &self.writing else { return Ok(()) };
        segments.filled().notify_all();
        if let Some(thread) = self.threads.maintenance.lock().take() {
            let _ = thread.join();
        }
        self.system.commit().close()?;
        // Nothing is appended any more.
        segments.close(true);
        if let Err(error) = checkpointer.shorten_for_close() {
            tracing::warn!(%error, "the file of pages stays longer than necessary");
        }
        checkpointer.checkpoint_and_close(segments)?;
        if let Err(error) = self.give_back_space(segments) {
            tracing::warn!(%error, "the closed database keeps space that it does not need");
        }
        if segments.has_durable_names() {
            ManifestFile::note_durable(&*self.storage);
        }
        Ok(())
    }

    /// Ends all that could write to the directory, and releases its locks.
    fn leave_directory(&self) {
        let monitor = self.threads.monitor.lock().take();
        monitor.into_iter().for_each(Monitor::stop);
        if let Some(writing) = &self.writing {
            writing.checkpointer.end();
        }
        self.threads.read_ahead.stop();
        self.threads.evictor.stop();
        self.store.release();
        self.system.committed.running().into_iter().for_each(|commit| commit.release_memory());
        drop(self.lock.lock().take());
    }

    /// Removes the log, and cuts the file of pages, of a database that was closed.
    fn give_back_space(&self, segments: &SegmentPool) -> Result<()> {
        // With a file of a killed process left, the next open recovers.
        let is_clean = !segments.has_stale_files();
        let trimmed = if is_clean && self.settings.trim_log { segments.trim() } else { Ok(()) };
        let space = self.store.disk_space();
        let cut = if space.stores_extents() { Ok(()) } else { space.cut_for_close() };
        cut.and(trimmed)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if !self.is_forked()
            && !self.is_closed()
            && let Err(error) = self.close_once()
        {
            tracing::error!(%error, "the database was not closed cleanly; the next open recovers it");
        }
    }
}
