//! The checkpointer: makes checkpoints, one at a time, and reports what they did.

use super::adopted_pages::AdoptedPages;
use super::image::Imager;
use super::replay_model::ReplayModel;
use crate::base::clock::Clock;
use crate::base::{Csn, Error, Result};
use crate::buffer::Pool;
use crate::commit::PoisonOnPanic;
use crate::device::Storage;
use crate::store::{Manifest, ManifestFile, PageStore, Relocation};
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard};
use crate::transaction::TransactionSystem;
use std::sync::Arc;
use std::time::Duration;

/// What a checkpoint did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CheckpointReport {
    /// The checkpoint contains every transaction up to this one.
    pub csn: Csn,
    /// Pages imaged.
    pub pages_written: u64,
    /// Imaged pages that the checkpoint before had imaged, too.
    pub pages_rewritten: u64,
    /// Bytes of images.
    pub bytes_written: u64,
    /// Time from the beginning to the end of the checkpoint.
    pub seconds: f64,
}

/// The checkpoints made since open: by callers, the maintenance thread, or a close.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CheckpointTotals {
    /// Checkpoints that were published.
    pub count: u64,
    /// Time they took.
    pub seconds: f64,
    /// The newest; meaningless while `count` is 0.
    pub newest: CheckpointReport,
    /// The share of the pages that the running checkpoint has looked at, if one is running.
    pub running: Option<f64>,
}

impl CheckpointTotals {
    pub(super) fn add(&mut self, report: CheckpointReport) {
        self.count += 1;
        self.seconds += report.seconds;
        self.newest = report;
    }
}

/// Marks a checkpoint as running while it lives.
pub(super) struct Running<'a>(&'a Mutex<CheckpointTotals>);

impl<'a> Running<'a> {
    pub(super) fn begin(totals: &'a Mutex<CheckpointTotals>) -> Running<'a> {
        totals.lock().running = Some(0.0);
        Running(totals)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.lock().running = None;
    }
}

/// The parts of the engine that a checkpoint involves.
#[allow(missing_docs, reason = "each field is named by its type")]
pub struct CheckpointerParts {
    pub system: Arc<TransactionSystem>,
    pub pool: Arc<Pool>,
    pub store: Arc<PageStore>,
    pub storage: Arc<dyn Storage>,
    pub imager: Arc<Imager>,
    pub replay: Arc<ReplayModel>,
    pub clock: Clock,
    pub adopted: Option<Arc<AdoptedPages>>,
}

/// Makes checkpoints, one at a time.
pub struct Checkpointer {
    pub(super) system: Arc<TransactionSystem>,
    pub(super) pool: Arc<Pool>,
    pub(super) store: Arc<PageStore>,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) clock: Clock,
    /// Pages that the first checkpoint brings in.
    pub(super) adopted: Option<Arc<AdoptedPages>>,
    pub(super) imager: Arc<Imager>,
    pub(super) replay: Arc<ReplayModel>,
    /// The published manifest and its file; locked for a whole checkpoint.
    pub(super) published: Mutex<Published>,
    pub(super) csn: AtomicU64,
    pub(super) covered: AtomicU64,
    /// Threads that wait, or may come to wait, for a checkpoint to end.
    pub(super) impatient: AtomicUsize,
    /// Pages that had been evicted when the last checkpoint began.
    pub(super) evicted_before: AtomicU64,
    /// See [`Checkpointer::shortens_in`].
    pub(super) shortens_in: Mutex<Option<Duration>>,
    /// Updated now and then while a checkpoint runs; held only for that.
    pub(super) totals: Mutex<CheckpointTotals>,
}

pub(super) struct Published {
    pub(super) file: ManifestFile,
    pub(super) manifest: Manifest,
    /// The database is closed: nothing is written any more.
    pub(super) closed: bool,
}

impl Published {
    /// # Errors
    /// `InvalidArgument` once the database is closed.
    pub(super) fn check_open(&self) -> Result<()> {
        if self.closed { Err(Error::invalid("the database is closed")) } else { Ok(()) }
    }
}

impl std::fmt::Debug for Checkpointer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checkpointer").field("csn", &self.csn()).finish_non_exhaustive()
    }
}

impl Checkpointer {
    /// A checkpointer that continues from `manifest`. Registers itself for structure changes.
    pub fn new(parts: CheckpointerParts, file: ManifestFile, manifest: Manifest) -> Checkpointer {
        let CheckpointerParts { system, pool, store, storage, imager, replay, clock, adopted } = parts;
        let hook = imager.clone();
        system.set_structure_hook(Box::new(move |participants| hook.hand_over(participants)));
        let csn = AtomicU64::new(manifest.checkpoint.0);
        let covered = AtomicU64::new(manifest.covered.0);
        Checkpointer {
            system,
            pool,
            store,
            storage,
            clock,
            adopted,
            imager,
            replay,
            published: Mutex::new(Published { file, manifest, closed: false }),
            csn,
            covered,
            impatient: AtomicUsize::new(0),
            evicted_before: AtomicU64::new(0),
            shortens_in: Mutex::new(None),
            totals: Mutex::new(CheckpointTotals::default()),
        }
    }

    /// CSN of the newest durable checkpoint.
    #[must_use]
    pub fn csn(&self) -> Csn {
        Csn(self.csn.load(Ordering::Acquire))
    }

    /// The CSN up to which the newest durable checkpoint covers the log: at or below its CSN.
    #[must_use]
    pub fn covered(&self) -> Csn {
        Csn(self.covered.load(Ordering::Acquire))
    }

    /// Returns whether images of a standby's copy are needed until the next checkpoint.
    #[must_use]
    pub fn has_adopted(&self) -> bool {
        self.adopted.as_ref().is_some_and(|adopted| !adopted.is_empty())
    }

    /// Returns the checkpoints since open. Never waits for a running checkpoint.
    #[must_use]
    pub fn totals(&self) -> CheckpointTotals {
        *self.totals.lock()
    }

    /// The manifest as published last, for `stat` and `verify`.
    #[must_use]
    pub fn manifest(&self) -> Manifest {
        self.published().manifest.clone()
    }

    /// Waits for a running checkpoint, which hurries.
    pub(super) fn published(&self) -> MutexGuard<'_, Published> {
        let _hurry = self.hurry();
        self.published.lock()
    }

    /// Makes running checkpoints hurry while the result lives: a thread may wait for one to end.
    #[must_use]
    pub fn hurry(&self) -> Hurry<'_> {
        self.impatient.fetch_add(1, Ordering::Relaxed);
        Hurry(self)
    }

    pub(super) fn is_hurried(&self) -> bool {
        self.impatient.load(Ordering::Relaxed) > 0
    }

    pub(super) fn poison_on_panic(&self) -> PoisonOnPanic<'_> {
        self.system.commit().failure().guard("a thread that made a checkpoint")
    }

    /// Waits for a running checkpoint, and refuses all further writes: the database is closed.
    pub fn end(&self) {
        self.published().closed = true;
    }

    /// Runs `f` while no checkpoint frees pages, writes images, or publishes. Waits for a running
    /// one.
    pub fn while_idle<T>(&self, f: impl FnOnce() -> T) -> T {
        let _published = self.published();
        f()
    }

    /// Relocates images from the end of the file of pages; see [`Relocation::move_tail`]. Waits for
    /// a running checkpoint, and keeps others from beginning.
    ///
    /// # Errors
    /// As [`Relocation::move_tail`]; `InvalidArgument` once the database is closed.
    pub fn move_tail(&self, bound: u64, most: usize) -> Result<u64> {
        let published = self.published();
        published.check_open()?;
        let _inside = self.poison_on_panic();
        Relocation::new(&self.store, &*self.storage, &|| ()).move_tail(bound, most)
    }

    /// Relocates images out of extents that are mostly dead; see [`Relocation::empty_extents`].
    /// Otherwise as [`Checkpointer::move_tail`].
    ///
    /// # Errors
    /// As [`Relocation::empty_extents`].
    pub fn empty_extents(&self, most: usize) -> Result<u64> {
        let published = self.published();
        published.check_open()?;
        let _inside = self.poison_on_panic();
        Relocation::new(&self.store, &*self.storage, &|| ()).empty_extents(most)
    }

    /// Relocates images out of sparse packs; see [`Relocation::repack`]. Otherwise as
    /// [`Checkpointer::move_tail`].
    ///
    /// # Errors
    /// As [`Relocation::repack`].
    pub fn repack(&self, most: usize) -> Result<u64> {
        let published = self.published();
        published.check_open()?;
        let _inside = self.poison_on_panic();
        Relocation::new(&self.store, &*self.storage, &|| ()).repack(most)
    }
}

/// See [`Checkpointer::hurry`].
#[derive(Debug)]
pub struct Hurry<'a>(&'a Checkpointer);

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        self.0.impatient.fetch_sub(1, Ordering::Relaxed);
    }
}
