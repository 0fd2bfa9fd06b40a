//! Rank 8: what is true after a crash?
//!
//! ```text
//!   flush the log ─▶ scan ─▶ select ─▶ redo ─▶ re-append what may be volatile ─▶ publish epoch + 1 ─▶ serve
//! ```
//!
//! 1. Nothing is served before the manifest with the new epoch is durable. A crash before that finds everything as it was,
//!    and recovers again.
//! 2. What a recovery discards is named in the manifest (void CSNs, accepted ends), so it stays discarded although the log
//!    still holds it.
//! 3. No epoch writes into a segment that a killed process left: when a checkpoint covers it, it is removed. On a full disk one that is
//!    needless is removed at once: all that it holds is covered, or of an epoch after the manifest's, which counts for nobody. So no
//!    recovery, this one or another after a crash in it, finds anything else than if it were there.
//! 4. The log is read twice: the scan learns what is there, then its records come in CSN order, a window at a time. What fits
//!    in memory is kept between the two.
//! 5. A database that was closed needs none of this: its checkpoint is everything.
//! 6. Blocks that only mapped memory holds are written to a segment, durably, before anything is decided. So from there on
//!    the memory is not needed, and may be used again.

mod check;
mod chunks;
mod copied;
mod memory;
mod memory_blocks;
mod redo;
pub mod select;
mod threads;
mod window;

pub use check::{LogReport, Running, check_log};
pub use copied::CopiedLog;

use crate::base::clock::Clock;
use crate::base::planted::{self, Bug};
use crate::base::settings::Settings;
use crate::base::{Charge, Csn, DatabaseId, Epoch, Error, ErrorKind, Location, LogId, PageId, Result};
use crate::buffer::Pool;
use crate::checkpoint::{MeasuredReplay, ReplayLimits, StoredCatalog, decode_catalog};
use crate::device::{OpenMode, Storage};
use crate::log::{
    BufferSize, Chain, DIRECTORY, Log, RecordKind, Reserve, Scan, ScanOptions, ScannedSegment, Segment,
    SegmentPool, record_bytes,
};
use crate::store::{Manifest, ManifestFile, PageStore};
use crate::sync::Mutex;
use crate::transaction::{TableState, TransactionSystem};
use chunks::{ChunkIndex, Earlier};
use memory::RecoveryMemory;
use redo::Redo;
use select::{Bounds, Decided, FoundBlock, FoundLog, FoundRecord, Selection, Selector};
use std::collections::HashSet;
use std::sync::Arc;
use window::{Window, Windows};

/// What recovery did at open.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// The database had been closed: there was nothing to do.
    pub clean: bool,
    /// Transactions replayed.
    pub replayed: u64,
    /// Whole records that were discarded because something they depend on is lost, none of them acknowledged.
    pub discarded: u64,
    /// Row operations in those that were replayed.
    pub operations: u64,
    /// Chunks of those that are older than the checkpoint: the log was kept for a transaction that was in progress then.
    pub chunks_before_checkpoint: u64,
    /// Bytes of the records of those that were replayed.
    pub record_bytes: u64,
    /// Log bytes read, those that were read twice counted twice.
    pub log_bytes: u64,
    /// Bytes of the log's files.
    pub log_file_bytes: u64,
    /// Page images read while transactions were replayed.
    pub pages_read: u64,
    /// Of the time taken, what reading and checking the log took.
    pub scan_seconds: f64,
    /// Of the time taken, what replaying took.
    pub replay_seconds: f64,
    /// Time taken.
    pub seconds: f64,
}

impl RecoveryReport {
    /// What the model of the next recovery learns from this one.
    #[must_use]
    pub fn measured(&self) -> MeasuredReplay {
        MeasuredReplay {
            log_bytes: self.log_file_bytes,
            scan_seconds: self.scan_seconds,
            operations: self.operations,
            record_bytes: self.record_bytes,
            pages_read: self.pages_read,
            replay_seconds: self.replay_seconds,
        }
    }
}

/// What a recovery with these settings could use.
#[must_use]
pub fn replay_limits(settings: &Settings) -> ReplayLimits {
    RecoveryMemory::of(settings, threads::count()).replay_limits(settings)
}

/// What recovery works on.
pub struct Recovery<'a> {
    /// Where the database is.
    pub storage: &'a Arc<dyn Storage>,
    /// Its settings.
    pub settings: &'a Settings,
    /// Its page images.
    pub store: &'a PageStore,
    /// Where pages go.
    pub pool: &'a Pool,
    /// Where tables and rows go.
    pub system: &'a TransactionSystem,
    /// Time.
    pub clock: Clock,
    /// Number of logs of the new epoch.
    pub logs: usize,
    /// What recovery takes of the budget; nothing when it has ended.
    pub reserved: &'a Charge,
    /// What to replay over the pages of a database that has just been restored.
    pub copied: Option<&'a CopiedLog>,
    /// What mapped memory holds, as a segment that no file has.
    pub memory: Option<&'a Segment>,
}

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
    /// What was done.
    pub report: RecoveryReport,
}

/// Progress: what, how much is done, how much there is.
pub type ProgressFn<'a> = &'a mut (dyn FnMut(&str, u64, u64) + Send);

/// A record to be appended again: its CSN and its bytes.
type Copy = (Csn, Vec<u8>);

impl Recovery<'_> {
    /// Brings the database to the state that its manifest and logs tell, and begins a new epoch.
    ///
    /// # Errors
    /// `Corruption` with the place where committed data is lost or damaged; `Unsupported`, `OutOfMemory`, `OutOfSpace`,
    /// I/O. The files are then as they were, but for segments that nobody needs, on a full disk.
    pub fn run(
        &self,
        file: &ManifestFile,
        manifest: Manifest,
        progress: ProgressFn<'_>,
    ) -> Result<Recovered> {
        let start = self.clock.now();
        // A segment that a killed process had just made has a name that a power cut could still take away.
        self.storage.create_directory(DIRECTORY)?;
        self.storage.flush_directory(DIRECTORY)?;
        self.load_checkpoint(&manifest)?;
        let mut report = RecoveryReport { clean: manifest.clean, ..RecoveryReport::default() };
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

    /// The same state in memory only: nothing is written.
    ///
    /// # Errors
    /// As [`Recovery::run`].
    pub fn run_read_only(
        &self,
        manifest: &Manifest,
        progress: ProgressFn<'_>,
    ) -> Result<(Csn, RecoveryReport)> {
        let start = self.clock.now();
        self.load_checkpoint(manifest)?;
        let mut report = RecoveryReport { clean: manifest.clean, ..RecoveryReport::default() };
        let mut last = Csn(manifest.next_csn.0 - 1);
        if !manifest.clean {
            let scan = self.scan(manifest, true, &mut report, progress)?;
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
        Ok((manifest.checkpoint.next(), RecoveryReport { clean: true, seconds, ..RecoveryReport::default() }))
    }

    /// Tables and pages of the checkpoint. Pages are read when they are first used.
    fn load_checkpoint(&self, manifest: &Manifest) -> Result<()> {
        let blob = manifest.store.catalog.as_ref().map(|blob| self.store.read_blob(blob)).transpose()?;
        let stored = blob.map_or(Ok(StoredCatalog::default()), |bytes| decode_catalog(&bytes))?;
        let unfinished: HashSet<PageId> = stored.unfinished.into_iter().collect();
        self.pool.restore(self.store.page_ids().filter(|page| !unfinished.contains(page)))?;
        // No page before the next checkpoint is born in an earlier round.
        unfinished.into_iter().filter(|page| self.store.contains(*page)).for_each(|p| self.store.freed(p, 0));
        let mut catalog = self.system.catalog.lock();
        self.system.large_values.defer_frees_again(stored.retired);
        for table in stored.tables {
            let tree = self.system.open_tree(table.root);
            let state = TableState::new(table.id, table.name, tree, Csn::ZERO);
            catalog.insert(Arc::new(state), Csn::ZERO);
        }
        catalog.reserve_ids(manifest.next_table);
        Ok(())
    }

    fn begin_epoch_after_close(&self, file: &ManifestFile, manifest: Manifest) -> Result<Recovered> {
        let segments = self.segment_pool()?;
        for segment in self.segment_files(manifest.database)? {
            // Everything in it is in the checkpoint.
            segments.add_recovered(segment, None);
        }
        segments.recycle(manifest.checkpoint, manifest.checkpoint)?;
        segments.start()?;
        let begun = self.begin_epoch(file, manifest, &segments);
        begun.inspect_err(|_| segments.close(true))
    }

    fn begin_epoch(
        &self,
        file: &ManifestFile,
        mut manifest: Manifest,
        segments: &Arc<SegmentPool>,
    ) -> Result<Recovered> {
        self.await_first_segments(segments)?;
        let epoch = Epoch(manifest.reserved_epoch.0 + 1);
        let first_csn = manifest.next_csn;
        (manifest.epoch, manifest.reserved_epoch) = (epoch, epoch);
        manifest.clean = planted::is(Bug::CleanMarkKept);
        (manifest.first_csn, manifest.epochs) = (first_csn, Vec::new());
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
        let mut scan = self.scan(&manifest, false, report, progress)?;
        let segments = self.segment_pool()?;
        // Taken, not copied: a file that is removed gives its space back when nobody has it open.
        for found in std::mem::take(&mut scan.segments) {
            // None is ever written to, not even one that looks empty: a write of the killed process may still be on its way to it.
            if found.lowest_epoch.is_none_or(|epoch| epoch > manifest.epoch) {
                // What a recovery that did not come to its end has appended again is where it took it from.
                segments.add_stale(&found.segment);
            } else if is_obsolete(&found, &manifest) {
                segments.add_obsolete(found.segment, found.max_csn);
            } else {
                segments.add_recovered(found.segment, Some(found.max_csn));
            }
        }
        let moved = match self.move_to_segment(&scan) {
            Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                if segments.remove_obsolete() {
                    self.move_to_segment(&scan)?
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
        let (selection, copies) = self.select_and_redo(&manifest, scan, report, progress)?;
        progress("log segments prepared", 0, self.logs.min(SEGMENTS_AT_OPEN) as u64);
        let entry = selection.entry(&Decided::of(&manifest));
        let epoch = Epoch(manifest.reserved_epoch.0.max(manifest.epoch.0) + 1);
        manifest.reserved_epoch = epoch;
        if !copies.is_empty() {
            // A second attempt must not share an epoch with what this one is about to write.
            file.publish(&manifest)?;
        }
        self.await_first_segments(segments)?;
        let first_csn = selection.last_csn.next();
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

    /// Flushes and reads the log. What is only in a cache now could vanish after it was served.
    fn scan(
        &self,
        manifest: &Manifest,
        read_only: bool,
        report: &mut RecoveryReport,
        progress: ProgressFn<'_>,
    ) -> Result<Scan> {
        let start = self.clock.now();
        let segments = self.segment_files(manifest.database)?;
        if segments.is_empty() {
            let what = "the log is gone: a database that was not closed has at least one segment";
            return Err(Error::corruption(what).at(Location::File { path: DIRECTORY.into(), offset: 0 }));
        }
        let flush = || segments.iter().try_for_each(|segment| segment.file.flush());
        flush()?;
        let progress = Mutex::new(progress);
        let memory = self.recovery_memory();
        self.reserve(memory.keep_bytes);
        let options = ScanOptions {
            database: manifest.database,
            covered: manifest.covered,
            threads: memory.scan_threads,
            read_only,
            piece_bytes: memory.piece_bytes,
            keep_bytes: memory.keep_bytes,
        };
        let scan = crate::log::scan(self.storage, options, self.memory, &|done, total| {
            (progress.lock())("log bytes scanned", done, total);
        })?;
        if self.memory.is_some() {
            // A write of the killed process may have landed since. Otherwise W is below it, and it is appended again; but here W may have passed it,
            // because it is in the memory, which is given up when what is found in a segment counts.
            flush()?;
        }
        report.log_file_bytes = scan.bytes;
        report.scan_seconds = self.clock.now().since(start).as_secs_f64();
        Ok(scan)
    }

    fn reserve(&self, kept_bytes: u64) {
        self.reserved.set(self.recovery_memory().bytes(kept_bytes));
    }

    fn recovery_memory(&self) -> RecoveryMemory {
        RecoveryMemory::of(self.settings, threads::count())
    }

    /// Decides, replays, and returns what has to be appended again: CSN and bytes.
    fn select_and_redo(
        &self,
        manifest: &Manifest,
        scan: Scan,
        report: &mut RecoveryReport,
        progress: ProgressFn<'_>,
    ) -> Result<(Selection, Vec<Copy>)> {
        let (start, reads) = (self.clock.now(), self.store.traffic().reads.get());
        let memory = self.recovery_memory();
        let mut bounds = Bounds::new(Decided::of(manifest), scan.chains.iter().map(found).collect());
        if let Some(to) = self.copied.and_then(CopiedLog::to) {
            bounds.end_at(to);
        }
        let mut windows = Windows::new(scan.chains, &bounds, memory.window);
        let mut selector = Selector::new(&bounds);
        let (mut copies, mut done, total) = (Vec::new(), 0, windows.record_count());
        let (mut kept, mut chunks) = (windows.kept_bytes(), ChunkIndex::default());
        while let Some(mut window) = windows.next()? {
            // What this window holds is in it too: its segments are kept until it is done.
            self.reserve(kept);
            kept = windows.kept_bytes();
            let mut records = std::mem::take(&mut window.records);
            done += records.len() as u64;
            let selected = selector.select(&mut records, &|record| window.listed(record));
            selected.map_err(|error| self.say_how_far(error, selector.frontier()))?;
            report.operations += records.iter().map(|record| u64::from(record.operations)).sum::<u64>();
            report.record_bytes += records.iter().map(FoundRecord::bytes).sum::<u64>();
            let again = records.partition_point(|record| !bounds.is_to_append_again(record.csn));
            copies.extend(records[again..].iter().map(|r| (r.csn, window.bytes(r).to_vec())));
            let earlier = chunks.note(&window, &records).map_err(|(csn, error)| {
                let frontier = selector.frontier().min(csn);
                self.say_how_far(error, frontier)
            })?;
            let old = earlier.iter().map(|earlier| earlier.up_to(manifest.checkpoint));
            report.chunks_before_checkpoint += old.sum::<u64>();
            let redo = redo_of(&window, &records, &earlier);
            drop(records);
            let before = done - redo.len() as u64;
            redo::redo(self.system, &redo, memory.redo, &mut |here| {
                progress("transactions replayed", before + here, total)
            })?;
        }
        self.reserved.set(0);
        progress("transactions replayed", total, total);
        let frontier = selector.frontier();
        let selection = selector.finish().map_err(|error| self.say_how_far(error, frontier))?;
        (report.replayed, report.discarded) = (selection.replayed, selection.discarded);
        report.log_bytes = scan.bytes + windows.bytes_read_again();
        report.pages_read = self.store.traffic().reads.get() - reads;
        report.replay_seconds = self.clock.now().since(start).as_secs_f64();
        Ok((selection, copies))
    }

    /// All segments. Who writes refuses one of another database, which would be removed as of no use.
    fn segment_files(&self, database: DatabaseId) -> Result<Vec<Segment>> {
        let mut segments = Vec::new();
        for name in self.storage.list(DIRECTORY)? {
            let Some(id) = crate::log::segment_id(&name)? else { continue };
            let mode = OpenMode { create: false, read_only: self.settings.read_only, direct: true };
            let file = self.storage.open(&format!("{DIRECTORY}/{name}"), mode)?;
            let len = file.len()?;
            let of = if self.settings.read_only { None } else { crate::log::database_of(&*file) };
            if let Some(other) = of.filter(|other| *other != database) {
                let what = format!(
                    "a log segment of another database ({other}) is in the log of this one ({database}): move it away; to replay it on a \
                     backup, restore with the directory it came from as the log"
                );
                return Err(Error::invalid(what).at(file.location(0)));
            }
            segments.push(Segment { id, file, len });
        }
        Ok(segments)
    }

    fn segment_pool(&self) -> Result<Arc<SegmentPool>> {
        let settings = self.settings;
        SegmentPool::new(self.storage.clone(), settings.segment_bytes, settings.log_bytes_max, SPARE_SEGMENTS)
    }

    /// Waits for the segments of the new epoch, for which a full disk may need the room of others.
    fn await_first_segments(&self, segments: &SegmentPool) -> Result<()> {
        let count = self.logs.min(SEGMENTS_AT_OPEN);
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
                BufferSize::up_to(self.settings.log_buffer_bytes(), self.settings.flush_unit_bytes()),
                segments.clone(),
                self.pool.account().clone(),
            ))
        };
        (0..self.logs).map(log).collect()
    }
}

/// READY segments kept while the database runs.
const SPARE_SEGMENTS: usize = 2;
/// Segments made before the database is served; logs beyond that get theirs when they are first used.
const SEGMENTS_AT_OPEN: usize = 2;

/// Whether no recovery needs a segment: see the module's third rule.
fn is_obsolete(found: &ScannedSegment, manifest: &Manifest) -> bool {
    found.oldest.is_none_or(|epoch| epoch > manifest.epoch)
}

/// What is to be done for the records of a window, chunks left out; `earlier` is what its last parts continue.
fn redo_of<'a>(window: &'a Window, records: &[FoundRecord], earlier: &'a [Earlier]) -> Vec<Redo<'a>> {
    let mut earlier = earlier.iter();
    let transactions = records.iter().filter(|record| record.kind != RecordKind::Chunk);
    let redo = transactions.map(|record| Redo {
        earlier: if record.kind == RecordKind::Last { earlier.next() } else { None },
        ..window.redo(record)
    });
    redo.collect()
}

/// What the decision needs to know of a chain.
fn found(chain: &Chain) -> FoundLog {
    let blocks = chain.blocks.iter().map(|block| FoundBlock {
        sequence: block.sequence(),
        first_csn: block.first_csn(),
        last_csn: block.last_csn(),
        previous_csn: block.previous_csn(),
        watermark: block.watermark(),
    });
    FoundLog { log: chain.log, epoch: chain.epoch, blocks: blocks.collect() }
}

/// Writes copies of records, in CSN order, to the first log of the new epoch, durably.
fn append_again(log: &Log, copies: &[Copy]) -> Result<()> {
    let (mut guard, segments) = (log.lock(), log.segments());
    for (csn, bytes) in copies {
        debug_assert_eq!(bytes.len(), record_bytes(bytes.len() - crate::log::RECORD_HEADER_BYTES));
        let mut large = (bytes.len() > log.block_payload_bytes()).then(|| log.large_buffer(bytes.len()));
        let since = segments.begin_waiting();
        loop {
            let ticket = segments.prepared().ticket();
            match guard.reserve(bytes.len(), &mut large) {
                Reserve::Ready => break,
                Reserve::BuffersFull | Reserve::NeedsLargeBuffer => write_sealed(&mut guard)?,
                Reserve::NoSegment => {
                    if let Some(failure) = segments.failure_since(since) {
                        return Err(failure);
                    }
                    segments.prepared().wait(ticket, Some(std::time::Duration::from_millis(100)));
                }
            }
        }
        guard.append_copy(*csn, bytes);
    }
    write_sealed(&mut guard)
}

fn write_sealed(guard: &mut crate::log::LogGuard<'_>) -> Result<()> {
    if let Some(block) = guard.seal() {
        let block = block.finish();
        block.file.write_durable_at(block.offset, &block.buffer[..block.len])?;
        guard.complete(block.sequence);
        guard.give_back(block.buffer);
    }
    Ok(())
}
