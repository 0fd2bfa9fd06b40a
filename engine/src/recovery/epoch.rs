//! Running a recovery, and beginning the new epoch.

use super::replay::{Recovery, Scanned};
use super::report::{ProgressFn, RecoveryReport};
use super::segments::{append_again, move_to_segment, segment_files};
use super::select::Decided;
use crate::base::planted::{self, Bug};
use crate::base::settings::Axes;
use crate::base::{Csn, Epoch, ErrorKind, LogId, Result, SegmentId};
use crate::device::Names;
use crate::log::{BufferSize, Log, Scan, ScanOptions, ScannedSegment, SegmentPool};
use crate::store::{Manifest, ManifestFile, is_noted_durable};
use std::sync::Arc;

/// READY segments kept while the database runs.
const SPARE_SEGMENTS: usize = 2;
/// Segments made before the database is served; logs beyond that get theirs when they are first
/// used.
const SEGMENTS_AT_OPEN: usize = 2;

/// Running change feeds retain at most this part of `log_bytes_max`, besides history that the
/// setting retains.
const FEED_PART: u64 = 4;

/// A database that may be served.
pub struct Recovered {
    /// The published manifest.
    pub manifest: Manifest,
    /// The logs of the new epoch.
    pub logs: Vec<Arc<Log>>,
    /// Their segments.
    pub segments: Arc<SegmentPool>,
    /// The first CSN to draw.
    pub first_csn: Csn,
    /// The work done.
    pub report: RecoveryReport,
}

impl Recovery<'_> {
    /// Brings the database to the state of its manifest and logs, and begins a new epoch.
    ///
    /// # Errors
    /// `Corruption` with the place where committed data is lost or damaged; `Unsupported`,
    /// `OutOfMemory`, `OutOfSpace`, I/O. The files are then unchanged, except for obsolete segments
    /// on a full disk.
    pub fn run(
        &self,
        file: &ManifestFile,
        manifest: Manifest,
        progress: ProgressFn<'_>,
    ) -> Result<Recovered> {
        let _span = tracing::info_span!("recovery", clean = manifest.clean).entered();
        let start = self.clock.now();
        self.storage.segments().prepare()?;
        let is_new = manifest.generation == 0;
        let is_noted = manifest.clean && is_noted_durable(&**self.storage);
        if !is_new && !is_noted {
            // A segment that a killed process had just made has a name that a power cut could still
            // take away.
            self.storage.flush_names(Names::Root)?;
            self.storage.flush_names(Names::Segments)?;
        }
        self.load_checkpoint(&manifest)?;
        let adopted_pages = self.applied.map_or(0, |applied| applied.adopted.len() as u64);
        let mut report = RecoveryReport { clean: manifest.clean, adopted_pages, ..RecoveryReport::default() };
        let recovered = if let Some(copied) = self.copied {
            let manifest = self.replay_copied(copied, manifest, &mut report, progress)?;
            self.begin_epoch_after_close(file, manifest)?
        } else if manifest.clean {
            self.begin_epoch_after_close(file, manifest)?
        } else {
            self.replay_log(file, manifest, &mut report, progress)?
        };
        report.seconds = self.clock.now().since(start).as_secs_f64();
        Ok(Recovered { report, ..recovered })
    }

    /// Brings the same state to memory only: writes nothing.
    ///
    /// # Errors
    /// As [`Recovery::run`].
    pub fn run_read_only(
        &self,
        manifest: &Manifest,
        progress: ProgressFn<'_>,
    ) -> Result<(Csn, RecoveryReport)> {
        let _span = tracing::info_span!("recovery", clean = manifest.clean, read_only = true).entered();
        let start = self.clock.now();
        self.load_checkpoint(manifest)?;
        let mut report = RecoveryReport { clean: manifest.clean, ..RecoveryReport::default() };
        let mut last = Csn(manifest.next_csn.0 - 1);
        if !manifest.clean {
            let scan = self.scan(manifest, true, &mut report, progress)?.scan;
            last = self.select_and_redo(manifest, scan, &mut report, progress)?.0.last_csn;
        }
        report.seconds = self.clock.now().since(start).as_secs_f64();
        Ok((last.next(), report))
    }

    /// The checkpoint and nothing else: the log is not looked at. Returns the first CSN after it.
    ///
    /// # Errors
    /// `Corruption`, `Unsupported`, I/O.
    pub fn run_at_checkpoint(&self, manifest: &Manifest) -> Result<(Csn, RecoveryReport)> {
        let start = self.clock.now();
        self.load_checkpoint(manifest)?;
        let seconds = self.clock.now().since(start).as_secs_f64();
        Ok((
            manifest.checkpoint.next(),
            RecoveryReport { clean: manifest.clean, seconds, ..RecoveryReport::default() },
        ))
    }

    fn begin_epoch_after_close(&self, file: &ManifestFile, manifest: Manifest) -> Result<Recovered> {
        // The records of a copied log are not in this one.
        let segments = self.segment_pool(&manifest, Csn(manifest.next_csn.0 - 1))?;
        let files = segment_files(&**self.storage, self.settings.read_only, manifest.database)?;
        files.foreign.iter().for_each(|id| segments.add_foreign(*id));
        if manifest.history.is_empty() {
            // Everything in them is in the checkpoint.
            files.own.into_iter().for_each(|segment| segments.add_recovered(segment, None));
        } else if self.keeps_history() {
            self.add_history(&manifest, &segments, &files.foreign)?;
        } else {
            files.own.into_iter().for_each(|segment| segments.add_history(segment, Csn::ZERO));
        }
        segments.recycle(manifest.checkpoint, manifest.checkpoint)?;
        segments.start()?;
        let begun = self.begin_epoch(file, manifest, &segments);
        begun.inspect_err(|_| segments.close(true))
    }

    /// Takes over the segments of a closed database, of which some contain history. A process that
    /// was killed before the close may have written those, so only blank ones are written again.
    fn add_history(&self, manifest: &Manifest, segments: &SegmentPool, foreign: &[SegmentId]) -> Result<()> {
        let memory = self.recovery_memory();
        let options = ScanOptions {
            database: manifest.database,
            // No block is needed, only what the segments contain.
            covered: Csn::MAX,
            threads: memory.scan_threads,
            read_only: false,
            piece_bytes: memory.piece_bytes,
            keep_bytes: 0,
        };
        let mut found = crate::log::scan(self.storage, options, None, &|_, _| ())?.segments;
        found.retain(|found| !foreign.contains(&found.segment.id));
        for found in found {
            match found.lowest_epoch {
                Some(_) => segments.add_history(found.segment, found.max_csn),
                None => segments.add_recovered(found.segment, None),
            }
        }
        Ok(())
    }

    fn keeps_history(&self) -> bool {
        self.settings.change_history_bytes > 0
    }

    fn begin_epoch(
        &self,
        file: &ManifestFile,
        mut manifest: Manifest,
        segments: &Arc<SegmentPool>,
    ) -> Result<Recovered> {
        // The spare one of a new database, too: one flush makes both names durable.
        let count = if manifest.generation == 0 { SEGMENTS_AT_OPEN } else { self.logs };
        self.await_first_segments(segments, count)?;
        let epoch = Epoch(manifest.reserved_epoch.0 + 1);
        let first_csn = manifest.next_csn;
        if self.keeps_history() && !manifest.history.is_empty() {
            manifest.add_closed_epoch();
        } else {
            (manifest.epochs, manifest.history) = (Vec::new(), Vec::new());
        }
        manifest.reserved_epoch = epoch;
        manifest.clean = planted::is(Bug::CleanMarkKept);
        (manifest.first_csn, manifest.epoch) = (first_csn, epoch);
        let logs = self.new_logs(&manifest, segments);
        file.publish(&manifest)?;
        let (segments, report) = (segments.clone(), RecoveryReport::default());
        Ok(Recovered { manifest, logs, segments, first_csn, report })
    }

    fn replay_log(
        &self,
        file: &ManifestFile,
        manifest: Manifest,
        report: &mut RecoveryReport,
        progress: ProgressFn<'_>,
    ) -> Result<Recovered> {
        let seen = self.applied.map_or_else(|| manifest.clone(), |applied| applied.seen_from(&manifest));
        let Scanned { mut scan, own, foreign } = self.scan(&seen, false, report, progress)?;
        let segments = self.segment_pool(&manifest, seen.checkpoint)?;
        foreign.iter().for_each(|id| segments.add_foreign(*id));
        // Taken, not copied: a removed file gives its space back when it is not open any more.
        for found in std::mem::take(&mut scan.segments) {
            // None is ever written to, not even one that looks empty: a write of the killed process
            // may still be on its way to it.
            if let Some(found) = self.applied.and_then(|applied| applied.passed_over(&found, &own)) {
                segments.add_recovered(found.segment, Some(found.max_csn));
            } else if found.lowest_epoch.is_none_or(|epoch| epoch > manifest.epoch) {
                // An interrupted recovery appended these records again; the originals are still
                // there.
                segments.add_stale(&found.segment);
            } else if is_obsolete(&found, &manifest) {
                segments.add_obsolete(found.segment, found.max_csn);
            } else {
                segments.add_recovered(found.segment, Some(found.max_csn));
            }
        }
        let moved = match move_to_segment(&**self.storage, self.memory, &scan) {
            Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                if segments.remove_obsolete() {
                    move_to_segment(&**self.storage, self.memory, &scan)?
                } else {
                    return Err(error);
                }
            }
            moved => moved?,
        };
        if let Some((segment, max_csn)) = moved {
            segments.add_recovered(segment, Some(max_csn));
        }
        // The new epoch's first segments are prepared while the old one is replayed.
        segments.start()?;
        let begun = self.replay_and_begin(file, manifest, scan, &segments, report, progress);
        begun.inspect_err(|_| segments.close(true))
    }

    fn replay_and_begin(
        &self,
        file: &ManifestFile,
        mut manifest: Manifest,
        scan: Scan,
        segments: &Arc<SegmentPool>,
        report: &mut RecoveryReport,
        progress: ProgressFn<'_>,
    ) -> Result<Recovered> {
        let seen = self.applied.map_or_else(|| manifest.clone(), |applied| applied.seen_from(&manifest));
        let (selection, copies) = self.select_and_redo(&seen, scan, report, progress)?;
        progress("log segments prepared", 0, self.logs.min(SEGMENTS_AT_OPEN) as u64);
        let entry = match self.applied {
            Some(applied) => applied.entry(&selection, &manifest),
            None => selection.entry(&Decided::of(&manifest)),
        };
        let epoch = Epoch(manifest.reserved_epoch.0.max(manifest.epoch.0) + 1);
        manifest.reserved_epoch = epoch;
        if !copies.is_empty() {
            // A second attempt must not share an epoch with what this one is about to write.
            file.publish(&manifest)?;
        }
        self.await_first_segments(segments, self.logs)?;
        let first_csn = selection.last_csn.next();
        debug_assert!(first_csn > manifest.checkpoint, "no CSN of a checkpoint is drawn again");
        debug_assert!(epoch > manifest.epoch, "an epoch is used once");
        (manifest.epoch, manifest.first_csn, manifest.next_csn) = (epoch, first_csn, first_csn);
        manifest.next_table = self.system.catalog.lock().next_id();
        manifest.add_epoch(entry);
        let logs = self.new_logs(&manifest, segments);
        segments.beyond_bound(|| append_again(&logs[0], &copies))?;
        let prepared = self.logs.min(SEGMENTS_AT_OPEN) as u64;
        progress("log segments prepared", prepared, prepared);
        file.publish(&manifest)?;
        Ok(Recovered {
            manifest,
            logs,
            segments: segments.clone(),
            first_csn,
            report: RecoveryReport::default(),
        })
    }

    /// Returns a pool without segments. Its history begins where the manifest says, or else at
    /// `begins`.
    fn segment_pool(&self, manifest: &Manifest, begins: Csn) -> Result<Arc<SegmentPool>> {
        let (bytes, most) = (self.settings.segment_bytes, self.settings.log_bytes_max);
        let pool = SegmentPool::new(self.storage.clone(), bytes, most, SPARE_SEGMENTS)?;
        let checkpoints = match manifest.history.as_slice() {
            history if self.keeps_history() && !history.is_empty() => history.to_vec(),
            _ => vec![(begins, begins)],
        };
        pool.keep_history(self.settings.change_history_bytes, most / FEED_PART, checkpoints);
        if !self.settings.trim_log {
            pool.keep_short();
        }
        Ok(pool)
    }

    /// Waits for the segments of the new epoch, for which a full disk may need the room of others.
    fn await_first_segments(&self, segments: &SegmentPool, count: usize) -> Result<()> {
        let count = count.min(SEGMENTS_AT_OPEN);
        match segments.await_ready(count) {
            Err(error) if error.kind() == ErrorKind::OutOfSpace => segments.await_ready_on_full_disk(count),
            ready => ready,
        }
    }

    fn new_logs(&self, manifest: &Manifest, segments: &Arc<SegmentPool>) -> Vec<Arc<Log>> {
        let log = |id| {
            let (database, epoch) = (manifest.database, manifest.epoch);
            Arc::new(Log::new(
                LogId(id as u32),
                database,
                epoch,
                BufferSize::up_to(
                    self.settings.log_buffer_bytes(),
                    Axes::of(self.settings).flush_unit_bytes(),
                ),
                segments.clone(),
                self.pool.account().clone(),
            ))
        };
        (0..self.logs).map(log).collect()
    }
}

/// Returns true if no recovery needs a segment: see the module's third rule.
fn is_obsolete(found: &ScannedSegment, manifest: &Manifest) -> bool {
    found.oldest.is_none_or(|epoch| epoch > manifest.epoch)
}
