//! Rank 7: how far back must redo start?
//!
//! A checkpoint is an exact snapshot at one CSN, C: page images in the store that together contain every transaction up to C and nothing else,
//! and a manifest that names them. After it the log up to C is not needed any more, but for chunks of transactions still in progress.
//!
//! # How it blocks nobody
//! C is pinned like any snapshot, so the version chains keep what every entry was at C. One *round* images each page
//! that changed since its last image: under a shared latch every entry is resolved as of C. The tree goes on changing:
//!
//! ```text
//!   round begins      leaf A imaged      A splits into A, B; parent P not yet imaged
//!  ───────┬─────────────────┬──────────────────────┬───────────────────────────────▶
//!         │                 │                      │ P is handed over first, as it was: one child, A.
//!         │                 │                      │ B is born in this round: no image. Its rows are in A's image.
//! ```
//!
//! 1. Before the structure of a page that has no image in this round changes, the changing thread hands over its image,
//!    with all participants latched. So the images are the tree as it was when the round began, each page once.
//! 2. A page stays dirty if something in it is newer than C, so the next round images it again.
//! 3. The manifest is published only when every transaction up to C is committed, and every image is durable.
//! 4. The blocks and log segments of the previous checkpoint are released after that, never before. A file that cannot be removed then
//!    is no failure of the checkpoint.
//! 5. A page is clean only when its image is recorded. A failed round leaves the previous checkpoint and the log as they were,
//!    and its images to the next round.
//! 6. Pages that leave memory hand in their image first (see `evict`), so the round takes only pages that are in memory.

mod attempts;
mod catalog_blob;
mod dropped;
mod evict;
#[cfg(all(test, not(any(loom, miri, feature = "shuttle"))))]
mod evict_tests;
mod image;
pub mod pace;
mod replay_model;
pub mod space;
mod stored_pages;

pub use catalog_blob::{StoredCatalog, TableRecord, decode_catalog, decode_catalog_prefix, encode_catalog};
pub use evict::{Evictor, buffer_bytes};
pub use image::Imager;
pub use replay_model::{
    MeasuredReplay, ReadCost, ReplayEstimate, ReplayLimits, ReplayModel, ReplayRates, ReplayWork,
};
pub use stored_pages::StoredPages;

use crate::base::clock::Clock;
use crate::base::planted::{self, Bug};
use crate::base::{Csn, Error, PageId, Result, TableId};
use crate::buffer::{Pool, Version};
use crate::commit::PoisonOnPanic;
use crate::device::Storage;
use crate::log::SegmentPool;
use crate::store::{
    Heat, HeldBlocks, ImageKind, ImageWriter, Manifest, ManifestFile, OpenCheckpoint, PageStore, Relocation,
    Written,
};
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard};
use crate::transaction::{CheckpointView, FreesPaused, TransactionSystem};
use image::{HandedOver, Imaged};
use pace::Pacer;
use std::sync::Arc;
use std::time::Duration;

/// Images made between two looks at completed writes.
const BATCH: u64 = 64;

/// Bytes of buffers of one writer of images, in a budget of `memory_bytes`.
pub(crate) fn writer_bytes(memory_bytes: u64) -> u64 {
    (memory_bytes / 64).clamp(WRITER_BYTES_MIN, WRITER_BYTES_MAX)
}

const WRITER_BYTES_MIN: u64 = 128 << 10;
const WRITER_BYTES_MAX: u64 = 2 << 20;

/// What a checkpoint did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CheckpointReport {
    /// Every transaction up to this one is in it.
    pub csn: Csn,
    /// Pages imaged.
    pub pages_written: u64,
    /// Of these, pages that the checkpoint before had imaged, too.
    pub pages_rewritten: u64,
    /// Bytes of images.
    pub bytes_written: u64,
    /// Time from beginning to the published manifest.
    pub seconds: f64,
}

/// The checkpoints made since open, by whomever: callers, the upkeep thread, a close.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CheckpointTotals {
    /// Checkpoints that were published.
    pub count: u64,
    /// Time they took.
    pub seconds: f64,
    /// The newest; of no meaning while `count` is 0.
    pub newest: CheckpointReport,
    /// The share of the pages that the one being made has looked at, if one is being made.
    pub running: Option<f64>,
}

impl CheckpointTotals {
    fn add(&mut self, report: CheckpointReport) {
        self.count += 1;
        self.seconds += report.seconds;
        self.newest = report;
    }
}

/// A checkpoint is being made as long as it lives.
struct Running<'a>(&'a Mutex<CheckpointTotals>);

impl<'a> Running<'a> {
    fn begin(totals: &'a Mutex<CheckpointTotals>) -> Running<'a> {
        totals.lock().running = Some(0.0);
        Running(totals)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.lock().running = None;
    }
}

/// Makes checkpoints, one at a time.
pub struct Checkpointer {
    system: Arc<TransactionSystem>,
    pool: Arc<Pool>,
    store: Arc<PageStore>,
    storage: Arc<dyn Storage>,
    clock: Clock,
    imager: Arc<Imager>,
    replay: Arc<ReplayModel>,
    /// The published manifest and the file it is in; locked for a whole checkpoint.
    published: Mutex<Published>,
    csn: AtomicU64,
    covered: AtomicU64,
    /// How many wait for a checkpoint to end, or may come to.
    impatient: AtomicUsize,
    /// Pages that had left memory when the last checkpoint began.
    evicted_before: AtomicU64,
    /// See [`Checkpointer::shortens_in`].
    shortens_in: Mutex<Option<Duration>>,
    /// Written now and then while a checkpoint is made; never held for longer than that.
    totals: Mutex<CheckpointTotals>,
}

struct Published {
    file: ManifestFile,
    manifest: Manifest,
    /// The last checkpoint of a close is there.
    closed: bool,
}

impl std::fmt::Debug for Checkpointer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checkpointer").field("csn", &self.csn()).finish_non_exhaustive()
    }
}

impl Checkpointer {
    /// A checkpointer that goes on from `manifest`. Registers itself for structure changes.
    pub fn new(
        system: Arc<TransactionSystem>,
        pool: Arc<Pool>,
        store: Arc<PageStore>,
        storage: Arc<dyn Storage>,
        (imager, replay): (Arc<Imager>, Arc<ReplayModel>),
        (file, manifest): (ManifestFile, Manifest),
        clock: Clock,
    ) -> Checkpointer {
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

    /// Up to where the newest durable checkpoint covers the log: at or below its CSN.
    #[must_use]
    pub fn covered(&self) -> Csn {
        Csn(self.covered.load(Ordering::Acquire))
    }

    /// What was done since open. Never waits for a checkpoint that is being made.
    #[must_use]
    pub fn totals(&self) -> CheckpointTotals {
        *self.totals.lock()
    }

    /// What recovery would take now: for whoever decides when the next checkpoint is due.
    #[must_use]
    pub fn replay(&self) -> &ReplayModel {
        &self.replay
    }

    /// Makes a checkpoint of everything pre-committed when it is called, as fast as it can. Commits go on meanwhile. One that is
    /// being made already hurries, too.
    ///
    /// # Errors
    /// `OutOfSpace`, I/O, `Poisoned`: the previous checkpoint stays valid.
    pub fn checkpoint(&self) -> Result<CheckpointReport> {
        self.run(&mut self.published(), None, None)
    }

    /// Waits for a checkpoint that is being made, which hurries.
    fn published(&self) -> MutexGuard<'_, Published> {
        let _hurry = self.hurry();
        self.published.lock()
    }

    /// No checkpoint takes its time while the result lives: somebody may be waiting for one to end.
    #[must_use]
    pub fn hurry(&self) -> Hurry<'_> {
        self.impatient.fetch_add(1, Ordering::Relaxed);
        Hurry(self)
    }

    /// Makes a checkpoint that nobody waits for, at the pace that `pacer` allows.
    ///
    /// # Errors
    /// As [`Checkpointer::checkpoint`].
    pub fn checkpoint_paced(&self, pacer: &Pacer<'_>) -> Result<CheckpointReport> {
        self.run(&mut self.published.lock(), Some(pacer), None)
    }

    /// The last checkpoint of a clean close: marks the database as needing no recovery, unless there is still something in `segments` that a
    /// killed process may write to. No transaction may be open.
    ///
    /// # Errors
    /// As [`Checkpointer::checkpoint`].
    pub fn checkpoint_and_close(&self, segments: &SegmentPool) -> Result<CheckpointReport> {
        self.run(&mut self.published(), None, Some(segments))
    }

    /// A close whose checkpoint has found what a killed process left says only now that the database is closed: who opens it then uses every segment
    /// again (rule 3 of the segments).
    fn mark_closed(published: &mut Published, segments: &SegmentPool) -> Result<()> {
        if segments.has_leftovers() {
            tracing::warn!(
                "log segments that a killed process left stay: the next open recovers the database"
            );
            return Ok(());
        }
        let manifest = Manifest { clean: true, ..published.manifest.clone() };
        let generation = published.file.publish(&manifest)?;
        published.manifest = Manifest { generation, ..manifest };
        Ok(())
    }

    fn inside(&self) -> PoisonOnPanic<'_> {
        self.system.commit().inside("a thread that made a checkpoint")
    }

    fn run(
        &self,
        published: &mut Published,
        pacer: Option<&Pacer<'_>>,
        closed_log: Option<&SegmentPool>,
    ) -> Result<CheckpointReport> {
        let close = closed_log.is_some();
        // Behind the lock of `published`: who waits for it finds that a panic came before.
        let _inside = self.inside();
        self.system.commit().check_whole()?;
        if published.closed {
            // While this one waited for the other to end. It would say that nobody had.
            return Err(Error::invalid("the database is closed"));
        }
        let (start, _running) = (self.clock.now(), Running::begin(&self.totals));
        // What can go need not be in the images; what is left is listed in them.
        self.system.versions.collect_all();
        let held = self.system.large_values.pause_frees();
        let committed = self.replay.committed();
        let begun = self.begin(close)?;
        self.evicted_before.store(self.pool.eviction().pages_evicted(), Ordering::Relaxed);
        let csn = begun.view.csn();
        let pages = self.write_round(&begun, &held, pacer);
        let held = if planted::is(Bug::RetiredFreedEarly) {
            drop(held);
            self.system.versions.collect_large_values();
            None
        } else {
            Some(held)
        };
        let Begun { view, round, next_table, .. } = begun;
        {
            // From here on who evicts works for the next round. In this order: a structure change between the two still hands
            // over, and what it frees is not missed in this round.
            let _gate = self.imager.gate();
            round.close();
            self.imager.end();
        }
        // What is freed now is in the images of this round, and goes with the next. Freed before, a value would be listed and not be there.
        drop(held);
        // All images are made and written: what C sees is in them. Versions that only the checkpoint kept can go while the device makes
        // the rest durable.
        drop(view);
        let Counts { written: pages_written, rewritten: pages_rewritten } = pages?;
        // Rule 3: nothing up to C may be lost once the log before C is gone.
        self.system.commit().wait_watermark(csn)?;
        let finished = round.finish()?;
        let mut manifest = published.manifest.clone();
        // A transaction that is still open is aborted by a close.
        let covered = if close { csn } else { self.system.commit().cover(csn).max(manifest.covered) };
        // Who panicked may have left half a change in the pages, and does not keep his chunks any more.
        self.system.commit().check_whole()?;
        (manifest.checkpoint, manifest.covered) = (csn, covered);
        manifest.next_csn = csn.next();
        manifest.next_table = next_table;
        manifest.store = finished.root().clone();
        manifest.clean = closed_log.is_some_and(|segments| !segments.has_leftovers());
        if close {
            manifest.log_memory = None;
        }
        manifest.forget_covered();
        if let Err(error) = manifest.encode() {
            // Nothing was written, so nothing is in doubt.
            self.store.abandon_checkpoint(finished);
            return Err(error);
        }
        let generation = match published.file.publish(&manifest) {
            Ok(generation) => generation,
            Err(error) => {
                // Nobody knows which manifest counts, so no block is reused.
                finished.undecided(&error);
                return Err(error);
            }
        };
        published.manifest = Manifest { generation, ..manifest };
        published.closed = close;
        if close {
            self.store.disk_space().forget_recent_need();
        }
        self.store.commit_checkpoint(finished.published_as(generation));
        self.csn.store(csn.0, Ordering::Release);
        self.covered.store(covered.0, Ordering::Release);
        self.replay.checkpointed(committed);
        // What a close does not cover counts for nobody: blocks of an earlier epoch that were late, and that no recovery had accepted.
        if let Err(error) = self.system.commit().recycle(if close { Csn::MAX } else { covered }, csn) {
            // The checkpoint is there. What is left is nobody's.
            tracing::warn!(%error, "log segments that are not needed stay; the next checkpoint removes them");
        }
        if let Some(segments) = closed_log.filter(|_| !published.manifest.clean) {
            Self::mark_closed(published, segments)?;
        }
        self.system.versions.collect_all();
        if !close {
            self.repack_a_little(pacer);
            let shortens_in = self.compact_a_little(pacer);
            *self.shortens_in.lock() = shortens_in;
        }
        let report = CheckpointReport {
            csn,
            pages_written,
            pages_rewritten,
            bytes_written: pages_written * self.pool.page_bytes() as u64,
            seconds: self.clock.now().since(start).as_secs_f64(),
        };
        self.totals.lock().add(report);
        tracing::info!(csn = csn.0, pages = pages_written, seconds = report.seconds, "checkpoint");
        Ok(report)
    }

    /// Frees the pages of dropped tables, chooses C, lists the tables as of C, and begins the round. No table is created or
    /// dropped and no image recorded between these.
    fn begin(&self, closing: bool) -> Result<Begun> {
        let catalog = loop {
            let mut catalog = self.system.catalog.lock();
            let dropped = catalog.take_dropped();
            // A table that is dropped after C was chosen stays for the next checkpoint.
            if dropped.is_empty() {
                break catalog;
            }
            drop(catalog);
            // Without the lock: it may take as long as reading all their pages.
            self.free_dropped(dropped, closing)?;
        };
        // Only now: until it has chosen C no version can go.
        let mut view = CheckpointView::begin(&self.system)?;
        let _gate = self.imager.gate();
        let mut unfinished_held = self.system.large_values.lock_uncommitted();
        let csn = view.choose();
        let unfinished = view.list_uncommitted(&mut unfinished_held);
        let tables = catalog
            .tables()
            .iter()
            .map(|table| TableRecord { id: table.id, name: table.name.clone(), root: table.tree.root() })
            .collect();
        let view = Arc::new(view);
        // The store first: what is freed by a structure change that nobody told of the round is not in the round.
        let round = self.pool.frames().begin_epoch(|number| {
            let round = self.store.begin_checkpoint(number, csn)?;
            self.imager.begin(number, view.clone());
            Ok(round)
        })?;
        Ok(Begun { view, round, tables, unfinished, next_table: catalog.next_id(), closing })
    }

    /// Images every page that needs it, the catalog, and what is retired.
    fn write_round(
        &self,
        begun: &Begun,
        held: &FreesPaused<'_>,
        pacer: Option<&Pacer<'_>>,
    ) -> Result<Counts> {
        let csn = begun.view.csn();
        let bytes = writer_bytes(self.pool.frames().memory_bytes());
        let mut work =
            ImageWork { checkpointer: self, begun, csn, written: Vec::new(), counts: Counts::default() };
        let mut writer = begun.round.writer(&*self.storage, bytes)?;
        let mut next = 1;
        // Looked at again at the end: a structure change that was under way when the round began may make pages; it has ended
        // when its other pages, which were latched, have been imaged.
        while next < self.pool.page_count() {
            let end = self.pool.page_count().min(next + BATCH);
            (next..end).try_for_each(|id| work.write_page(&mut writer, PageId(id)))?;
            work.write_handed_over(&mut writer)?;
            // A pace means little while the device has much to do still.
            work.complete(&mut writer, pacer.is_some())?;
            next = end;
            self.totals.lock().running = Some(next as f64 / self.pool.page_count() as f64);
            begun.view.made_progress();
            if let Some(pacer) = pacer {
                let somebody_waits = || self.impatient.load(Ordering::Relaxed) > 0;
                pacer.pause(next as f64 / self.pool.page_count() as f64, somebody_waits);
            }
        }
        work.write_handed_over(&mut writer)?;
        work.complete(&mut writer, true)?;
        let retired = self.system.large_values.deferred_as_of(csn, held);
        let (tables, unfinished) = (begun.tables.clone(), begun.unfinished.clone());
        begun.round.write_blob(&encode_catalog(&StoredCatalog { tables, retired, unfinished }))?;
        Ok(work.counts)
    }

    /// Runs `f` while no checkpoint is made: none frees pages, writes images, or publishes. Waits for one that runs.
    pub fn while_idle<T>(&self, f: impl FnOnce() -> T) -> T {
        let _published = self.published();
        f()
    }

    /// Moves images from the end of the file of pages to its front; see [`Relocation::move_tail`]. Waits for a checkpoint that runs,
    /// and keeps others from beginning.
    ///
    /// # Errors
    /// As [`Relocation::move_tail`].
    pub fn move_tail(&self, bound: u64, most: usize) -> Result<u64> {
        let _published = self.published();
        let _inside = self.inside();
        Relocation::new(&self.store, &*self.storage, &|| ()).move_tail(bound, most)
    }

    /// Moves images out of packs that are half empty; see [`Relocation::repack`]. Otherwise as [`Checkpointer::move_tail`].
    ///
    /// # Errors
    /// As [`Relocation::repack`].
    pub fn repack(&self, most: usize) -> Result<u64> {
        let _published = self.published();
        let _inside = self.inside();
        Relocation::new(&self.store, &*self.storage, &|| ()).repack(most)
    }

    /// The newest checkpoint, made now if `fresh`, with its blocks kept until the second value is dropped. No checkpoint comes
    /// in between.
    ///
    /// # Errors
    /// As [`Checkpointer::checkpoint`].
    pub fn hold(&self, fresh: bool) -> Result<(Manifest, HeldBlocks)> {
        let mut published = self.published();
        if fresh {
            self.run(&mut published, None, None)?;
        }
        Ok((published.manifest.clone(), self.store.hold()))
    }

    /// The manifest as published last, for `stat` and `verify`.
    #[must_use]
    pub fn manifest(&self) -> Manifest {
        self.published().manifest.clone()
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

/// A checkpoint in progress.
struct Begun {
    view: Arc<CheckpointView>,
    round: OpenCheckpoint,
    tables: Vec<TableRecord>,
    /// Pages with images that are part of large values not there at C.
    unfinished: Vec<PageId>,
    next_table: TableId,
    /// The database is closed with it.
    closing: bool,
}

/// Writing the images of a round.
struct ImageWork<'a> {
    checkpointer: &'a Checkpointer,
    begun: &'a Begun,
    csn: Csn,
    written: Vec<Written>,
    counts: Counts,
}

/// Pages that were imaged, and how many of them are [`Heat::Hot`].
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    written: u64,
    rewritten: u64,
}

/// A token says of which version an image is, and whether nothing in the page is newer.
const TOKEN_NEWEST: u64 = 1 << 63;

impl ImageWork<'_> {
    /// A page that the checkpoint before this one wrote too will change again soon. One that the database is closed with, that has no
    /// image yet, or that stayed as it was for longer than a checkpoint, will not.
    fn heat(&self, page: PageId) -> Heat {
        let imaged_lately = self.checkpointer.pool.frames().epoch_of(page).saturating_add(1)
            >= self.checkpointer.pool.frames().epoch();
        let hot = imaged_lately && !self.begun.closing && self.checkpointer.store.contains(page);
        if hot { Heat::Hot } else { Heat::Cold }
    }

    fn write_page(&mut self, writer: &mut ImageWriter, page: PageId) -> Result<()> {
        let imager = &self.checkpointer.imager;
        if !imager.seems_needed(page) {
            return Ok(());
        }
        let mut imaged = Ok(None);
        let heat = self.heat(page);
        let pushed = writer.push(page, self.csn, heat, |out| {
            imaged = imager.image_page(page, out);
            let Imaged { version, newest } = imaged.as_ref().ok()?.as_ref()?;
            Some((ImageKind::Settled, version.to_bits() | if *newest { TOKEN_NEWEST } else { 0 }))
        })?;
        self.counts.written += u64::from(pushed);
        self.counts.rewritten += u64::from(pushed && heat == Heat::Hot);
        imaged.map(drop)
    }

    fn write_handed_over(&mut self, writer: &mut ImageWriter) -> Result<()> {
        for HandedOver { page, image, .. } in self.checkpointer.imager.take_handed_over() {
            writer.push(page, self.csn, Heat::Hot, |out| {
                out.copy_from_slice(&image[..out.len()]);
                Some((ImageKind::Settled, 0))
            })?;
            self.counts.written += 1;
        }
        Ok(())
    }

    /// Records the images whose writes have completed.
    fn complete(&mut self, writer: &mut ImageWriter, all: bool) -> Result<()> {
        let result = writer.reap(all, &mut self.written);
        for Written { page, reference, token, .. } in self.written.drain(..) {
            self.begun.round.record(page, reference);
            if token & TOKEN_NEWEST != 0 {
                let version = Version::from_bits(token & !TOKEN_NEWEST);
                let claimed = self.checkpointer.pool.claim_unchanged(page, version);
                if let Some(claimed) = claimed.filter(|claimed| claimed.is_dirty()) {
                    claimed.set_clean(false);
                }
            }
        }
        result
    }
}
