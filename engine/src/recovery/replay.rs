//! Loading the checkpoint, reading the log, and replaying the transactions that were selected.

use super::applied::Applied;
use super::check::missing_log;
use super::chunks::{ChunkIndex, Earlier};
use super::copied::{CopiedLog, no_log};
use super::memory::RecoveryMemory;
use super::redo::{Redo, redo};
use super::report::{ProgressFn, RecoveryReport};
use super::segments::{Copy, segment_files};
use super::select::{Bounds, Decided, FoundRecord, Selection, Selector};
use super::threads;
use super::window::{Window, Windows, found};
use crate::base::clock::Clock;
use crate::base::settings::Settings;
use crate::base::{Charge, Csn, Error, PageId, Result, SegmentId};
use crate::buffer::Pool;
use crate::checkpoint::{StoredCatalog, decode_catalog};
use crate::device::Storage;
use crate::log::{RecordKind, Scan, ScanOptions, Segment};
use crate::store::{Manifest, PageStore};
use crate::sync::Mutex;
use crate::transaction::{TableState, TransactionSystem};
use std::collections::HashSet;
use std::sync::Arc;

/// The inputs of a recovery.
pub struct Recovery<'a> {
    /// The storage of the database.
    pub storage: &'a Arc<dyn Storage>,
    /// Its settings.
    pub settings: &'a Settings,
    /// Its page images.
    pub store: &'a PageStore,
    /// The pool that pages are loaded into.
    pub pool: &'a Pool,
    /// The system that tables and rows are replayed into.
    pub system: &'a TransactionSystem,
    /// Time.
    pub clock: Clock,
    /// Number of logs of the new epoch.
    pub logs: usize,
    /// Recovery's share of the budget; nothing when it has ended.
    pub reserved: &'a Charge,
    /// The log to replay over the pages of a restored database.
    pub copied: Option<&'a CopiedLog>,
    /// What a standby has applied, over the checkpoint.
    pub applied: Option<&'a Applied>,
    /// The content of mapped memory, as a segment without a file.
    pub memory: Option<&'a Segment>,
}

/// What [`Recovery::scan`] found.
pub(super) struct Scanned {
    pub(super) scan: Scan,
    /// All segments.
    pub(super) own: Vec<Segment>,
    /// The files of others that have names of segments.
    pub(super) foreign: Vec<SegmentId>,
}

impl Recovery<'_> {
    /// Tables and pages of the checkpoint. Pages are read when they are first used.
    pub(super) fn load_checkpoint(&self, manifest: &Manifest) -> Result<()> {
        let blob = manifest.store.catalog.as_ref().map(|blob| self.store.read_blob(blob)).transpose()?;
        let mut stored = blob.map_or(Ok(StoredCatalog::default()), |bytes| decode_catalog(&bytes))?;
        if let Some(applied) = self.applied {
            stored = applied.catalog(stored)?;
        }
        let unfinished: HashSet<PageId> = stored.unfinished.into_iter().collect();
        let is_finished = |page: &PageId| !unfinished.contains(page);
        match self.applied {
            Some(applied) => {
                self.pool.restore(applied.pages.iter().copied().filter(is_finished))?;
                applied.forget_freed(self.store);
            }
            None => self.pool.restore(self.store.page_ids().filter(is_finished))?,
        }
        // No page before the next checkpoint is born in an earlier round.
        unfinished.into_iter().filter(|page| self.store.contains(*page)).for_each(|p| self.store.freed(p, 0));
        let mut catalog = self.system.catalog.lock();
        self.system.large_values.defer_frees_again(stored.retired);
        catalog.remember_former(stored.former);
        for table in stored.tables {
            let tree = self.system.open_tree(table.root);
            let types = table.types.map(Arc::new);
            let state = TableState::new(table.id, &table.name, tree, Csn::ZERO).with_types(types);
            catalog.insert(Arc::new(state), Csn::ZERO);
        }
        catalog.reserve_ids(manifest.next_table);
        Ok(())
    }

    /// Flushes and reads the log. What is only in a cache now could vanish after it was served.
    pub(super) fn scan(
        &self,
        manifest: &Manifest,
        read_only: bool,
        report: &mut RecoveryReport,
        progress: ProgressFn<'_>,
    ) -> Result<Scanned> {
        let start = self.clock.now();
        let files = segment_files(&**self.storage, self.settings.read_only, manifest.database)?;
        let segments = files.own;
        if segments.is_empty() {
            return Err(missing_log());
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
        self.storage.leave_out(self.applied.map_or(&[], |applied| &applied.log.positions));
        let scan = crate::log::scan(self.storage, options, self.memory, &|done, total| {
            (progress.lock())("log bytes scanned", done, total);
        });
        self.storage.leave_out(&[]);
        let mut scan = scan?;
        if self.memory.is_some() {
            // A write of the killed process may have landed since. Otherwise W is below it, and it
            // is appended again; but here W may have passed it, because it is in the memory, which
            // is given up when what is found in a segment counts.
            flush()?;
        }
        scan.segments.retain(|found| !files.foreign.contains(&found.segment.id));
        report.log_file_bytes = scan.bytes;
        report.scan_seconds = self.clock.now().since(start).as_secs_f64();
        Ok(Scanned { scan, own: segments, foreign: files.foreign })
    }

    pub(super) fn reserve(&self, kept_bytes: u64) {
        self.reserved.set(self.recovery_memory().bytes(kept_bytes));
    }

    pub(super) fn recovery_memory(&self) -> RecoveryMemory {
        RecoveryMemory::of(self.settings, threads::count())
    }

    /// Decides, replays, and returns what has to be appended again: CSN and bytes.
    pub(super) fn select_and_redo(
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
            // The window's own segments count, too: they are kept until it is done.
            self.reserve(kept);
            kept = windows.kept_bytes();
            let mut records = std::mem::take(&mut window.records);
            done += records.len() as u64;
            let selected = selector.select(&mut records, &|record| window.listed(record));
            selected.map_err(|error| self.say_how_far(error, selector.frontier()))?;
            debug_assert!(
                records.is_sorted_by(|one, next| one.csn < next.csn),
                "transactions are replayed in the order of their CSNs"
            );
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
            let transactions = redo_of(&window, &records, &earlier);
            drop(records);
            let before = done - transactions.len() as u64;
            redo(self.system, &transactions, memory.redo, &mut |here| {
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

    /// Replays a copied log over the pages of `manifest`, in memory. CSNs continue behind it.
    pub(super) fn replay_copied(
        &self,
        copied: &CopiedLog,
        manifest: Manifest,
        report: &mut RecoveryReport,
        progress: ProgressFn<'_>,
    ) -> Result<Manifest> {
        let scan = self.scan_copied(copied, progress)?;
        if scan.segments.is_empty() {
            return Err(no_log());
        }
        copied.check_epochs(&scan)?;
        let (selection, _) = self.select_and_redo(&copied.source, scan, report, progress)?;
        copied.check_reach(selection.frontier)?;
        let next_csn = selection.last_csn.next();
        let next_table = self.system.catalog.lock().next_id();
        Ok(Manifest { next_csn, next_table, ..manifest })
    }

    /// An error of the selection, with how far a copied log can go; all below `frontier` is there.
    pub(super) fn say_how_far(&self, error: Error, frontier: Csn) -> Error {
        match self.copied {
            Some(copied) => copied.only_to(frontier, &error),
            None => error,
        }
    }

    fn scan_copied(&self, copied: &CopiedLog, progress: ProgressFn<'_>) -> Result<Scan> {
        let memory = self.recovery_memory();
        self.reserve(memory.keep_bytes);
        let options = ScanOptions {
            database: copied.source.database,
            covered: copied.source.covered,
            threads: memory.scan_threads,
            read_only: true,
            piece_bytes: memory.piece_bytes,
            keep_bytes: memory.keep_bytes,
        };
        let progress = Mutex::new(progress);
        let scan = crate::log::scan(&copied.storage, options, copied.memory.as_ref(), &|done, total| {
            (progress.lock())("log bytes scanned", done, total);
        });
        scan.map_err(|error| error.of("the log to be replayed"))
    }
}

/// Returns the redo of the records of a window, without chunks; `earlier` is what its last
/// parts continue.
fn redo_of<'a>(window: &'a Window, records: &[FoundRecord], earlier: &'a [Earlier]) -> Vec<Redo<'a>> {
    let mut earlier = earlier.iter();
    let transactions = records.iter().filter(|record| record.kind != RecordKind::Chunk);
    let redo = transactions.map(|record| Redo {
        earlier: if record.kind == RecordKind::Last { earlier.next() } else { None },
        csn: record.csn,
        operations: record.operations.into(),
        body: window.record(record).0,
    });
    redo.collect()
}
