//! Rank 7: how far back must redo start?
//!
//! A checkpoint is an exact snapshot at one CSN, C: page images in the store that together contain every transaction up
//! to C and nothing else, and a manifest that names them. After it the log up to C is not needed any more.
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
//! 4. The blocks and log segments of the previous checkpoint are released after that, never before.
//! 5. A failed round leaves the previous checkpoint, the log and the dirty marks as they were.

mod catalog_blob;
mod image;

pub use catalog_blob::{TableRecord, decode_catalog, encode_catalog};

use crate::base::clock::Clock;
use crate::base::{Csn, Error, PageId, Result, TableId};
use crate::buffer::Pool;
use crate::store::{Manifest, ManifestFile, PageStore, Round};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::transaction::{CheckpointView, DroppedTable, TableState, TransactionSystem};
use image::{HandedOver, Imager};
use std::sync::Arc;

/// Threads that write images beside transactions: few, so that they leave them the processor.
const WRITERS: usize = 2;
/// Threads that write images when there are no transactions any more.
const WRITERS_AT_CLOSE: usize = 8;
/// Fewer pages than this are written by the caller alone.
const PARALLEL_FROM_PAGES: u64 = 256;

fn join(result: std::thread::Result<Result<()>>) -> Result<()> {
    result.unwrap_or_else(|_| Err(Error::corruption("a thread that writes page images panicked")))
}

/// What a checkpoint did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CheckpointReport {
    /// Every transaction up to this one is in it.
    pub csn: Csn,
    /// Pages imaged.
    pub pages_written: u64,
    /// Bytes of images.
    pub bytes_written: u64,
    /// Time from beginning to the published manifest.
    pub seconds: f64,
}

/// The checkpoints made since open, by whomever: callers, the upkeep thread, a close.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CheckpointTotals {
    /// Checkpoints that were published.
    pub count: u64,
    /// Time they took.
    pub seconds: f64,
    /// The newest; of no meaning while `count` is 0.
    pub newest: CheckpointReport,
}

impl CheckpointTotals {
    fn add(&mut self, report: CheckpointReport) {
        self.count += 1;
        self.seconds += report.seconds;
        self.newest = report;
    }
}

/// Makes checkpoints, one at a time.
pub struct Checkpointer {
    system: Arc<TransactionSystem>,
    pool: Arc<Pool>,
    store: Arc<PageStore>,
    clock: Clock,
    imager: Arc<Imager>,
    /// The published manifest and the file it is in; locked for a whole checkpoint.
    published: Mutex<Published>,
    csn: AtomicU64,
    /// Written at the end of a checkpoint; never held while one is made.
    totals: Mutex<CheckpointTotals>,
}

struct Published {
    file: ManifestFile,
    manifest: Manifest,
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
        file: ManifestFile,
        manifest: Manifest,
        clock: Clock,
    ) -> Checkpointer {
        let imager = Arc::new(Imager::new(pool.clone()));
        let hook = imager.clone();
        system.set_structure_hook(Box::new(move |participants| hook.hand_over(participants)));
        let csn = AtomicU64::new(manifest.checkpoint.0);
        Checkpointer {
            system,
            pool,
            store,
            clock,
            imager,
            published: Mutex::new(Published { file, manifest }),
            csn,
            totals: Mutex::new(CheckpointTotals::default()),
        }
    }

    /// CSN of the newest durable checkpoint.
    #[must_use]
    pub fn csn(&self) -> Csn {
        Csn(self.csn.load(Ordering::Acquire))
    }

    /// What was done since open. Never waits for a checkpoint that is being made.
    #[must_use]
    pub fn totals(&self) -> CheckpointTotals {
        *self.totals.lock()
    }

    /// Makes a checkpoint of everything pre-committed when it is called. Commits go on meanwhile.
    ///
    /// # Errors
    /// `OutOfSpace`, I/O, `Poisoned`: the previous checkpoint stays valid.
    pub fn checkpoint(&self) -> Result<CheckpointReport> {
        self.run(&mut self.published.lock(), false)
    }

    /// The last checkpoint of a clean close: marks the database as needing no recovery. No transaction may be open.
    ///
    /// # Errors
    /// As [`Checkpointer::checkpoint`].
    pub fn checkpoint_and_close(&self) -> Result<CheckpointReport> {
        self.run(&mut self.published.lock(), true)
    }

    fn run(&self, published: &mut Published, close: bool) -> Result<CheckpointReport> {
        let start = self.clock.now();
        let mut view = self.system.checkpoint_view()?;
        let (tables, next_table) = self.begin(&mut view)?;
        let csn = view.csn();
        let round = self.store.begin_round()?;
        let view = Arc::new(view);
        let freed = self.pool.begin_round(|number| self.imager.begin(number, view.clone()));
        let writers = if close { WRITERS_AT_CLOSE } else { WRITERS };
        let pages = self.write_round(&round, &freed, &tables, csn, writers);
        self.imager.end();
        // Rule 3: nothing up to C may be lost once the log before C is gone.
        let finished = pages.and_then(|pages| {
            self.system.commit().wait_watermark(csn)?;
            Ok((pages, round.finish()?))
        });
        let (pages_written, finished) = match finished {
            Ok(finished) => finished,
            Err(error) => {
                self.pool.return_freed(freed);
                self.imager.mark_dirty_again();
                return Err(error);
            }
        };
        let mut manifest = published.manifest.clone();
        manifest.checkpoint = csn;
        manifest.next_csn = csn.next();
        manifest.next_table = next_table;
        manifest.store = finished.root().clone();
        manifest.clean = close;
        manifest.forget_covered();
        if let Err(error) = manifest.encode() {
            // Nothing was written, so nothing is in doubt.
            self.store.round_abandoned(finished);
            self.pool.return_freed(freed);
            self.imager.mark_dirty_again();
            return Err(error);
        }
        // If publishing fails nobody knows which manifest counts: `finished` is dropped undecided, and no block is reused.
        published.file.publish(&manifest)?;
        published.manifest = manifest;
        self.store.round_committed(finished);
        self.csn.store(csn.0, Ordering::Release);
        drop(view);
        self.system.commit().recycle(csn)?;
        self.system.collect_all();
        let report = CheckpointReport {
            csn,
            pages_written,
            bytes_written: pages_written * self.pool.page_bytes() as u64,
            seconds: self.clock.now().since(start).as_secs_f64(),
        };
        self.totals.lock().add(report);
        tracing::info!(csn = csn.0, pages = pages_written, seconds = report.seconds, "checkpoint");
        Ok(report)
    }

    /// Frees the pages of dropped tables and chooses C together with the list of tables as of C.
    fn begin(&self, view: &mut CheckpointView) -> Result<(Vec<TableRecord>, TableId)> {
        loop {
            let dropped = {
                let mut catalog = self.system.catalog().lock();
                let dropped = catalog.take_dropped();
                // A table that is dropped after C was chosen stays for the next checkpoint.
                if dropped.is_empty() {
                    view.choose();
                    let tables = catalog.tables();
                    let record = |t: &Arc<TableState>| TableRecord {
                        id: t.id,
                        name: t.name.clone(),
                        root: t.tree.root(),
                    };
                    return Ok((tables.iter().map(record).collect(), catalog.next_id()));
                }
                dropped
            };
            // Without the lock: it may take as long as reading all their pages.
            self.free_dropped(dropped)?;
        }
    }

    /// Frees the pages of dropped tables. What a failure leaves is for the next checkpoint.
    fn free_dropped(&self, dropped: Vec<DroppedTable>) -> Result<()> {
        let mut left = dropped.into_iter();
        while let Some(mut dropped) = left.next() {
            dropped.table.await_unheld();
            let Err(error) = dropped.table.tree.free_pages(&mut dropped.rest) else { continue };
            let table = &dropped.table.name;
            if dropped.rest.is_empty() {
                tracing::warn!(%error, table, "pages of a dropped table stay allocated because one is damaged");
                continue;
            }
            self.system.catalog().lock().put_back_dropped(std::iter::once(dropped).chain(left));
            return Err(error);
        }
        Ok(())
    }

    /// Images every page that needs it, and the catalog.
    fn write_round(
        &self,
        round: &Round,
        freed: &[PageId],
        tables: &[TableRecord],
        csn: Csn,
        writers: usize,
    ) -> Result<u64> {
        for page in freed {
            round.remove_page(*page)?;
        }
        let (next, written) = (AtomicU64::new(1), AtomicU64::new(0));
        let end = self.pool.page_count();
        let write = |id: u64| -> Result<()> {
            self.write_handed_over(round, csn, &written)?;
            if let Some(mut image) = self.imager.image_page(PageId(id))? {
                round.write_page(PageId(id), &mut image, csn)?;
                written.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        let writer = || -> Result<()> {
            loop {
                match next.fetch_add(1, Ordering::Relaxed) {
                    id if id < end => write(id)?,
                    _ => return Ok(()),
                }
            }
        };
        // A device takes many writes at a time; a thread waits for each of its own.
        let threads = if self.pool.page_count() < PARALLEL_FROM_PAGES { 1 } else { writers };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(writer)).collect();
            let mine = writer();
            others.into_iter().map(|other| join(other.join())).fold(mine, Result::and)
        })?;
        // A structure change that was under way when the round began may have made pages since; it has ended by now, because
        // its other pages were latched for their images.
        (end..self.pool.page_count()).try_for_each(write)?;
        self.write_handed_over(round, csn, &written)?;
        round.write_blob(&encode_catalog(tables))?;
        Ok(written.into_inner())
    }

    fn write_handed_over(&self, round: &Round, csn: Csn, written: &AtomicU64) -> Result<()> {
        for HandedOver { page, mut image, .. } in self.imager.take_handed_over() {
            round.write_page(page, &mut image, csn)?;
            written.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Runs `f` while no checkpoint is made: none frees pages, writes images, or publishes. Waits for one that runs.
    pub fn while_idle<T>(&self, f: impl FnOnce() -> T) -> T {
        let _published = self.published.lock();
        f()
    }

    /// The manifest as published last, for `stat` and `verify`.
    #[must_use]
    pub fn manifest(&self) -> Manifest {
        self.published.lock().manifest.clone()
    }
}
