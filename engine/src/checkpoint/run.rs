//! A whole checkpoint on one page, in five stages:
//!
//! ```text
//!   prepare        free dropped tables, choose C, open the checkpoint
//!   write_pages    image every changed page as of C, write the catalog
//!   wait_durable   wait until everything up to C is committed, write the mapping, flush
//!   publish        write the manifest: from here on the new checkpoint counts
//!   release        free replaced blocks, recycle the log, shorten the file
//! ```
//!
//! A failure before `publish` leaves the previous checkpoint and the log as they were.

use super::checkpointer::{CheckpointReport, Checkpointer, Published, Running};
use super::pace::Pacer;
use super::prepare::Prepared;
use super::write_pages::Counts;
use crate::base::planted::{self, Bug};
use crate::base::{Csn, Result, TableId};
use crate::log::SegmentPool;
use crate::store::{FinishedCheckpoint, HeldBlocks, Manifest, OpenCheckpoint};
use crate::sync::atomic::Ordering;
use crate::transaction::FreesPaused;

/// Pages of another store that are brought in together.
const ADOPTED_TOGETHER: usize = 64;

/// How a checkpoint runs.
#[derive(Clone, Copy, Default)]
struct Mode<'a> {
    /// Limits the speed; `None` = as fast as possible.
    pacer: Option<&'a Pacer<'a>>,
    /// The log of a database that is closed with the checkpoint.
    closed_log: Option<&'a SegmentPool>,
}

/// A checkpoint whose images are all written.
struct PagesWritten {
    csn: Csn,
    open: OpenCheckpoint,
    next_table: TableId,
    counts: Counts,
}

impl Checkpointer {
    /// Makes a checkpoint of everything pre-committed when it is called, as fast as it can. Commits
    /// continue meanwhile. A running checkpoint hurries, too.
    ///
    /// # Errors
    /// `OutOfSpace`, I/O, `Poisoned`: the previous checkpoint stays valid.
    pub fn checkpoint(&self) -> Result<CheckpointReport> {
        self.run(&mut self.published(), Mode::default())
    }

    /// Makes a checkpoint in the background, at the speed that `pacer` allows.
    ///
    /// # Errors
    /// As [`Checkpointer::checkpoint`].
    pub fn checkpoint_paced(&self, pacer: &Pacer<'_>) -> Result<CheckpointReport> {
        self.run(&mut self.published.lock(), Mode { pacer: Some(pacer), closed_log: None })
    }

    /// The last checkpoint of a clean close: marks the database as needing no recovery, unless
    /// `segments` still contain a segment that a killed process may write to. No transaction may be
    /// open.
    ///
    /// # Errors
    /// As [`Checkpointer::checkpoint`].
    pub fn checkpoint_and_close(&self, segments: &SegmentPool) -> Result<CheckpointReport> {
        self.run(&mut self.published(), Mode { pacer: None, closed_log: Some(segments) })
    }

    /// Returns the newest checkpoint, made now if `fresh`, and keeps its blocks until the second
    /// value is dropped. No other checkpoint comes in between.
    ///
    /// # Errors
    /// As [`Checkpointer::checkpoint`].
    pub fn hold(&self, fresh: bool) -> Result<(Manifest, HeldBlocks)> {
        let mut published = self.published();
        if fresh {
            self.run(&mut published, Mode::default())?;
        }
        Ok((published.manifest.clone(), self.store.hold()))
    }

    fn run(&self, published: &mut Published, mode: Mode<'_>) -> Result<CheckpointReport> {
        let _span = tracing::info_span!("checkpoint", closing = mode.closed_log.is_some()).entered();
        // Under the lock of `published`: a thread that waited for it sees an earlier panic.
        let _inside = self.poison_on_panic();
        self.system.commit().failure().check_whole()?;
        // If the database was closed while this checkpoint waited, it would be marked as not
        // closed.
        published.check_open()?;
        let (start, _running) = (self.clock.now(), Running::begin(&self.totals));
        self.bring_in_adopted()?;
        // Garbage that is collected now is not in the images; the rest is listed in them.
        self.system.versions.collect_for_checkpoint();
        let frees_paused = self.system.large_values.pause_frees();
        let committed = self.replay.committed();

        let prepared = self.prepare(mode.closed_log.is_some())?;
        let written = self.finish_pages(prepared, frees_paused, mode.pacer)?;
        let (csn, counts, next_table) = (written.csn, written.counts, written.next_table);
        let finished = self.wait_durable(written)?;
        self.publish(published, csn, next_table, finished, mode.closed_log)?;
        self.replay.checkpointed(committed);
        self.release(published, mode)?;

        let report = CheckpointReport {
            csn,
            pages_written: counts.written,
            pages_rewritten: counts.rewritten,
            bytes_written: counts.written * self.pool.page_bytes() as u64,
            seconds: self.clock.now().since(start).as_secs_f64(),
        };
        self.totals.lock().add(report);
        tracing::info!(csn = csn.0, pages = counts.written, seconds = report.seconds, "checkpoint");
        Ok(report)
    }

    /// Brings in the pages whose images are in another store, so that they are imaged here: by this
    /// checkpoint, or by the evictor before it.
    fn bring_in_adopted(&self) -> Result<()> {
        let Some(adopted) = &self.adopted else { return Ok(()) };
        loop {
            let pages = adopted.first(ADOPTED_TOGETHER);
            if pages.is_empty() {
                return Ok(());
            }
            self.pool.prefetch(pages.clone());
            for page in pages.into_iter().filter(|page| adopted.has(*page)) {
                match self.pool.shared(page) {
                    Err(error) if adopted.has(page) => return Err(error),
                    // It is in memory now, or was freed.
                    _ => {}
                }
            }
        }
    }

    /// Stage 2, and its end: from then on images belong to the next checkpoint.
    fn finish_pages(
        &self,
        prepared: Prepared,
        frees_paused: FreesPaused<'_>,
        pacer: Option<&Pacer<'_>>,
    ) -> Result<PagesWritten> {
        self.evicted_before.store(self.pool.eviction().pages_evicted(), Ordering::Relaxed);
        let counts = self.write_pages(&prepared, &frees_paused, pacer);
        let frees_paused = if planted::is(Bug::RetiredFreedEarly) {
            drop(frees_paused);
            self.system.versions.collect_large_values();
            None
        } else {
            Some(frees_paused)
        };
        let Prepared { view, open, next_table, .. } = prepared;
        {
            // In this order: a structure change between the two still hands over its images, and
            // the pages that it frees are in this checkpoint.
            let _gate = self.imager.gate();
            open.close();
            self.imager.end();
        }
        // Values that are freed from now on are in the images of this checkpoint, and leave with
        // the next. Freed earlier, a value would be listed but missing.
        drop(frees_paused);
        // All images are written, so versions that only the checkpoint kept can be freed while the
        // device makes the rest durable.
        let csn = view.csn();
        drop(view);
        Ok(PagesWritten { csn, open, next_table, counts: counts? })
    }

    /// Stage 3: waits until everything up to C is committed, then writes the mapping and flushes.
    fn wait_durable(&self, written: PagesWritten) -> Result<FinishedCheckpoint> {
        // Rule 3: nothing up to C may be lost once the log before C is gone.
        self.system.commit().waits().wait_watermark(written.csn)?;
        self.system.commit().feed_source().write_history(written.csn)?;
        written.open.finish()
    }

    /// Stage 4: replaces the manifest. From then on the new checkpoint counts.
    fn publish(
        &self,
        published: &mut Published,
        csn: Csn,
        next_table: TableId,
        finished: FinishedCheckpoint,
        closed_log: Option<&SegmentPool>,
    ) -> Result<()> {
        let close = closed_log.is_some();
        let mut manifest = published.manifest.clone();
        // A close aborts transactions that are still open.
        let covered =
            if close { csn } else { self.system.commit().chunks().cover(csn).max(manifest.covered) };
        // A thread that panicked may have left half a change in the pages, and no longer keeps its
        // chunks.
        self.system.commit().failure().check_whole()?;
        debug_assert!(csn >= manifest.checkpoint, "checkpoints rise");
        debug_assert!(covered >= manifest.covered && covered <= csn, "what checkpoints cover rises");
        debug_assert!(next_table >= manifest.next_table, "identifiers of tables rise");
        (manifest.checkpoint, manifest.covered) = (csn, covered);
        (manifest.next_csn, manifest.next_table) = (csn.next(), next_table);
        manifest.store = finished.root().clone();
        manifest.clean = closed_log.is_some_and(|segments| !segments.has_stale_files());
        if close {
            manifest.log_memory = None;
        }
        manifest.history = self.system.commit().feed_source().history_with(covered, csn);
        manifest.forget_covered();
        if let Err(error) = published.file.reserve(&manifest) {
            // Nothing was written, so the previous manifest certainly counts.
            self.store.abandon_checkpoint(finished);
            return Err(error);
        }
        let generation = match published.file.publish(&manifest) {
            Ok(generation) => generation,
            Err(error) if published.file.is_unwritten(&error) => {
                self.store.abandon_checkpoint(finished);
                return Err(error);
            }
            Err(error) => {
                // It is unknown which manifest counts, so no block is reused.
                finished.undecided(&error);
                return Err(error);
            }
        };
        debug_assert!(generation > published.manifest.generation, "generations rise");
        published.manifest = Manifest { generation, ..manifest };
        published.closed = close;
        if close {
            self.store.disk_space().forget_recent_need();
        }
        self.store.commit_checkpoint(finished.published_as(generation));
        self.csn.store(csn.0, Ordering::Release);
        self.covered.store(covered.0, Ordering::Release);
        Ok(())
    }

    /// Stage 5: recycles the log, frees versions, and relocates images that keep the file long.
    fn release(&self, published: &mut Published, mode: Mode<'_>) -> Result<()> {
        let (csn, covered) = (published.manifest.checkpoint, published.manifest.covered);
        debug_assert!(covered <= csn, "a checkpoint covers no transaction above its CSN");
        // A close also drops blocks behind C: late blocks of an earlier epoch that no recovery
        // accepted.
        let recycled = if mode.closed_log.is_some() { Csn::MAX } else { covered };
        if let Err(error) = self.system.commit().space().recycle(recycled, csn) {
            // The checkpoint is complete. Leftover segments are harmless.
            tracing::warn!(%error, "log segments that are not needed stay; the next checkpoint removes them");
        }
        if let Some(segments) = mode.closed_log.filter(|_| !published.manifest.clean) {
            mark_closed(published, segments)?;
        }
        self.system.versions.collect_for_checkpoint();
        if mode.closed_log.is_none() {
            self.repack_a_little(mode.pacer);
            let shortens_in = self.compact_a_little(mode.pacer);
            *self.shortens_in.lock() = shortens_in;
        }
        Ok(())
    }
}

/// Marks the database as closed after the last checkpoint has removed segments of a killed process:
/// the next open may then use every segment again (rule 3 of the segments).
fn mark_closed(published: &mut Published, segments: &SegmentPool) -> Result<()> {
    if segments.has_stale_files() {
        tracing::warn!("log segments that a killed process left stay: the next open recovers the database");
        return Ok(());
    }
    let manifest = Manifest { clean: true, ..published.manifest.clone() };
    let generation = published.file.publish(&manifest)?;
    published.manifest = Manifest { generation, ..manifest };
    Ok(())
}
