//! Opening a database: lock, manifest, store, pool, recovery, commit layer.

use super::engine::{Closing, Engine, Opened, Owner, Threads, Writing};
use super::log_memory::{self, Memories};
use super::ownership::holds_database;
use super::statistics::open_line;
use super::typed::TypedTables;
use super::{maintenance, monitor, ownership, refuse};
use crate::base::clock::Clock;
use crate::base::random::Random;
use crate::base::settings::{Axes, Settings, Writer};
use crate::base::{Charge, Csn, DatabaseId, Error, ErrorKind, Result};
use crate::buffer::{Pool, ReadAheadThread};
use crate::checkpoint::{
    self, AdoptedPages, Checkpointer, CheckpointerParts, Evictor, ReadCost, ReplayModel, StoredPages,
};
use crate::commit::{Commit, Hooks, Start, presets};
use crate::device::topology::NumaNodes;
use crate::device::{File, Names, Storage};
use crate::feed::CountedEpochs;
use crate::recovery::{Applied, CopiedLog, Recovery, RecoveryReport};
use crate::store::{Manifest, ManifestFile, PageStore};
use crate::sync::atomic::Ordering;
use crate::sync::{Mutex, Ours};
use crate::transaction::{Limits, TransactionSystem};
use std::path::Path;
use std::sync::Arc;

/// Called now and then during long work, with a text that names the work and its unit
/// (`log bytes scanned`), how much is done, and how much there is.
pub type Progress = Box<dyn FnMut(&str, u64, u64) + Send>;

/// Returns `progress`, or a callback that ignores all calls.
pub(super) fn or_ignore(progress: Option<Progress>) -> Progress {
    progress.unwrap_or_else(|| Box::new(|_, _, _| ()))
}

/// What to open, and how.
pub(super) struct Request {
    pub(super) settings: Settings,
    pub(super) progress: Option<Progress>,
    pub(super) clock: Clock,
    /// Set for a database that is being restored: the log of the original, to be replayed over it.
    pub(super) copied: Option<CopiedLog>,
    /// Open the newest durable checkpoint, beside a writer.
    pub(super) at_checkpoint: bool,
    /// What a standby has applied, if that fits the newest manifest.
    pub(super) handover: Option<Handover>,
}

/// Returns what a standby has applied over the checkpoint of a manifest, whose pages are those of
/// the store; `None` if it has applied something else.
pub(super) type Handover = Box<dyn FnOnce(&Manifest, &PageStore) -> Option<Applied> + Send>;

impl Default for Request {
    fn default() -> Self {
        let settings = Settings::default();
        let clock = Clock::real();
        Request { settings, progress: None, clock, copied: None, at_checkpoint: false, handover: None }
    }
}

/// A reader without a lock begins so often until nothing is written while it reads.
const READS_MAX: u32 = 5;

/// Opens, recovers, and starts the maintenance thread.
///
/// No lock keeps writers out of a store of objects. What a reader found of different moments there
/// is read again.
pub(super) fn open(storage: Arc<dyn Storage>, path: &Path, request: Request) -> Result<Arc<Owner>> {
    let _span = tracing::info_span!("open", path = %path.display()).entered();
    let reads_unlocked = request.settings.read_only && !request.at_checkpoint && storage.pins().is_some();
    if !reads_unlocked {
        return open_once(storage, path, request);
    }
    let progress = Arc::new(Mutex::new(or_ignore(request.progress)));
    let (settings, clock) = (request.settings, request.clock);
    until_unchanged(|| {
        let shared = progress.clone();
        let progress: Progress = Box::new(move |what, done, all| (shared.lock())(what, done, all));
        let (settings, clock) = (settings.clone(), clock.clone());
        let again = Request { settings, clock, progress: Some(progress), ..Request::default() };
        open_once(storage.clone(), path, again)
    })
}

/// Calls `read` until it is not `Busy`, at most [`READS_MAX`] times.
fn until_unchanged<T>(mut read: impl FnMut() -> Result<T>) -> Result<T> {
    let mut reads = 1;
    loop {
        match read() {
            Err(error) if error.kind() == ErrorKind::Busy && reads < READS_MAX => reads += 1,
            ended => return ended,
        }
    }
}

fn open_once(mut storage: Arc<dyn Storage>, path: &Path, request: Request) -> Result<Arc<Owner>> {
    let Request { mut settings, progress, clock, copied, at_checkpoint, handover } = request;
    if settings.log_memory.is_none() && Axes::of(&settings).writer.kind() == Writer::Memory {
        settings.log_memory = storage.own_memory();
    }
    presets::check(&settings, presets::log_count(&settings, cores()))?;
    let asked_buffer_bytes = settings.lab.log_buffer_bytes as u64;
    settings.lab.log_buffer_bytes = log_buffer_bytes(&settings);
    if copied.is_none() {
        refuse::early(&*storage, &settings)?;
    }
    let files = match at_checkpoint {
        true => open_checkpoint(&mut storage, &mut settings)?,
        false => open_newest(&storage, &mut settings)?,
    };
    let Files { lock, file, mut manifest, store } = files;
    let logs = presets::log_count(&settings, cores());
    let memories = match &file {
        None => Memories::default(),
        Some(_) => log_memory::open(&*storage, &mut settings, &mut manifest, logs, asked_buffer_bytes)?,
    };
    store.compress(settings.compression);
    let read_cost = Arc::new(ReadCost::default());
    let applied = handover.and_then(|handover| handover(&manifest, &store));
    let adopted = applied.as_ref().map(|applied| applied.adopted.clone());
    let (pool, system) =
        pages_and_transactions(&settings, &manifest, &store, &clock, &read_cost, logs, adopted)?;
    let (always, recovery) = (pool.account().charge(always_bytes(&settings)), pool.account().charge(0));
    store.charge_to(pool.account());
    storage.charge_to(pool.account(), settings.memory_bytes);
    // Redo needs read-ahead already.
    let read_ahead = ReadAheadThread::start(&pool)?;
    let writes_to = (!settings.read_only).then(|| storage.clone());
    let evictor = Evictor::start(system.clone(), pool.clone(), store.clone(), writes_to)?;
    let path = path.display().to_string();
    let parts = Parts {
        path,
        storage,
        store,
        pool,
        system,
        evictor,
        read_ahead,
        always,
        recovery,
        memories,
        read_cost,
        copied,
        applied,
        settings,
        clock,
        lock,
    };
    let engine = match file {
        None => parts.open_at_checkpoint(manifest)?,
        Some(_) if parts.settings.read_only => parts.open_read_only(&manifest, progress)?,
        Some(file) => parts.open_for_writing(file, manifest, progress)?,
    };
    let owner = Arc::new(Owner { engine: Ours::new(Arc::new(engine)) });
    maintenance::start(&owner)?;
    monitor::start(&owner);
    tracing::info!("{}", open_line(&owner));
    Ok(owner)
}

fn pages_and_transactions(
    settings: &Settings,
    manifest: &Manifest,
    store: &Arc<PageStore>,
    clock: &Clock,
    read_cost: &Arc<ReadCost>,
    logs: usize,
    adopted: Option<Arc<AdoptedPages>>,
) -> Result<(Arc<Pool>, Arc<TransactionSystem>)> {
    let page_bytes = manifest.page_bytes as usize;
    let stored = StoredPages::open(store.clone(), clock.clone(), read_cost.clone(), adopted);
    let pool = Pool::with_scan_buffers(
        page_bytes,
        settings.memory_bytes,
        settings.lab.scan_buffer_from,
        Arc::new(stored),
    )?;
    let transaction_bytes = settings.transaction_bytes(logs);
    let limits = Limits {
        chunk_bytes: settings.chunk_bytes().min(transaction_bytes),
        ..Limits::for_page(page_bytes, transaction_bytes, settings.lock_wait)
    };
    let system = TransactionSystem::new(pool.clone(), limits, version_bytes(settings), clock.clone());
    Ok((pool, Arc::new(system)))
}

/// The files of a database.
struct Files {
    /// None for a checkpoint, which the store keeps.
    lock: Option<Box<dyn Send + Sync>>,
    /// None for a checkpoint.
    file: Option<ManifestFile>,
    manifest: Manifest,
    store: Arc<PageStore>,
}

fn open_newest(storage: &Arc<dyn Storage>, settings: &mut Settings) -> Result<Files> {
    let lock = storage.lock(!settings.read_only)?;
    let (claimed, file, manifest) = open_or_create(&**storage, settings)?;
    let store = match claimed {
        Some(pages) => PageStore::open(storage, &manifest, pages)?,
        None => {
            let page_bytes = manifest.page_bytes as usize;
            PageStore::open_read_only(&**storage, manifest.database, page_bytes, &manifest.store)
                .map_err(|error| unless_written(&**storage, error))?
        }
    };
    Ok(Files { lock: Some(lock), file: Some(file), manifest, store })
}

/// Returns the error of a read without a lock that keeps writers out. What is of different moments
/// looks like damage.
pub(super) fn unless_written(storage: &dyn Storage, error: Error) -> Error {
    match error.kind() {
        ErrorKind::Corruption | ErrorKind::NotFound | ErrorKind::Poisoned => {
            written_meanwhile(storage).unwrap_or(error)
        }
        _ => error,
    }
}

/// Returns an error if another process has written since the lock for reading was taken.
pub(super) fn written_meanwhile(storage: &dyn Storage) -> Option<Error> {
    let has_changed = storage.pins()?.has_changed().unwrap_or(false);
    let what = "another process wrote to the database while it was read";
    has_changed.then(|| Error::new(ErrorKind::Busy, what).with_advice("open its newest checkpoint"))
}

/// Opens the newest checkpoint, beside a writer. The storage becomes a view of that checkpoint, if
/// it has pins.
fn open_checkpoint(storage: &mut Arc<dyn Storage>, settings: &mut Settings) -> Result<Files> {
    let view = storage.pins().map(|pins| pins.hold()).transpose()?;
    let is_pinned = view.is_some();
    if let Some(view) = view {
        *storage = view;
    }
    if !holds_database(&**storage, settings).map_err(no_database)? {
        return Err(ownership::no_database());
    }
    let (manifest, store) = match is_pinned {
        true => PageStore::open_pinned_checkpoint(storage)?,
        false => PageStore::open_newest_checkpoint(storage)?,
    };
    settings.page_bytes = manifest.page_bytes as usize;
    Ok(Files { lock: None, file: None, manifest, store })
}

/// What opening has collected so far.
struct Parts {
    path: String,
    storage: Arc<dyn Storage>,
    store: Arc<PageStore>,
    pool: Arc<Pool>,
    system: Arc<TransactionSystem>,
    /// Dropped before the evictor, for which read-ahead may be waiting.
    read_ahead: ReadAheadThread,
    evictor: Evictor,
    always: Charge,
    recovery: Charge,
    memories: Memories,
    read_cost: Arc<ReadCost>,
    copied: Option<CopiedLog>,
    applied: Option<Applied>,
    settings: Settings,
    clock: Clock,
    lock: Option<Box<dyn Send + Sync>>,
}

impl Parts {
    fn recovery(&self, logs: usize) -> Recovery<'_> {
        Recovery {
            storage: &self.storage,
            settings: &self.settings,
            store: &self.store,
            pool: &self.pool,
            system: &self.system,
            clock: self.clock.clone(),
            logs,
            reserved: &self.recovery,
            copied: self.copied.as_ref(),
            applied: self.applied.as_ref(),
            memory: self.memories.old.found.as_ref(),
        }
    }

    fn open_for_writing(
        self,
        file: ManifestFile,
        manifest: Manifest,
        progress: Option<Progress>,
    ) -> Result<Engine> {
        let logs = presets::log_count(&self.settings, cores());
        let recovered = self.recovery(logs).run(&file, manifest, &mut *or_ignore(progress))?;
        self.storage.note_epoch(recovered.manifest.epoch.0);
        let in_progress = self.system.in_progress();
        let (pressed, stored) = (recovered.segments.clone(), self.store.clone());
        self.store.disk_space().keep_reserve(self.pool.frames().demand(), self.clock.clone());
        let replaced = recovered.segments.clone();
        self.store.disk_space().on_replaced(Box::new(move || {
            replaced.filled().notify_all();
        }));
        let store = self.store.clone();
        let commit = Commit::start(
            &self.settings,
            Start {
                storage: self.storage.clone(),
                logs: recovered.logs,
                memory: self.memories.begin_use()?,
                segments: recovered.segments.clone(),
                first_csn: recovered.first_csn,
                epoch: recovered.manifest.epoch,
                clock: self.clock.clone(),
                hooks: Hooks {
                    on_log_pressure: Box::new(move || {
                        pressed.press(stored.disk_space().is_checkpoint_worthwhile());
                    }),
                    is_checkpoint_worthwhile: Box::new(move || store.disk_space().is_checkpoint_worthwhile()),
                    in_progress: Box::new(move || in_progress.load(Ordering::Relaxed)),
                },
            },
        )?;
        self.system.connect(commit, logs, NumaNodes::of_machine());
        if self.settings.change_history_bytes > 0 || !self.settings.lab.delta_logging {
            self.system.feeds().fetch_add(1, Ordering::SeqCst);
        }
        let replay = self.replay_model(recovered.report);
        let database = recovered.manifest.database;
        let epochs = Arc::new(CountedEpochs::of(&recovered.manifest));
        let parts = CheckpointerParts {
            system: self.system.clone(),
            pool: self.pool.clone(),
            store: self.store.clone(),
            storage: self.storage.clone(),
            imager: self.evictor.imager(),
            replay: replay.clone(),
            clock: self.clock.clone(),
            adopted: self.applied.as_ref().map(|applied| applied.adopted.clone()),
        };
        let checkpointer = Checkpointer::new(parts, file, recovered.manifest);
        let writing = Writing { checkpointer, segments: recovered.segments, replay, database, epochs };
        Ok(self.finish(Some(writing), None, logs, recovered.report))
    }

    fn open_read_only(self, manifest: &Manifest, progress: Option<Progress>) -> Result<Engine> {
        let recovered = self.recovery(1).run_read_only(manifest, &mut *or_ignore(progress));
        let (first_csn, report) = recovered.map_err(|error| unless_written(&*self.storage, error))?;
        self.system.serve_read_only(Csn(first_csn.0 - 1));
        Ok(self.finish(None, None, 0, report))
    }

    fn open_at_checkpoint(self, manifest: Manifest) -> Result<Engine> {
        let (first_csn, report) = self.recovery(1).run_at_checkpoint(&manifest)?;
        self.system.serve_read_only(Csn(first_csn.0 - 1));
        Ok(self.finish(None, Some(manifest), 0, report))
    }

    fn replay_model(&self, report: RecoveryReport) -> Arc<ReplayModel> {
        let (system, pool, store) = (self.system.clone(), self.pool.clone(), self.store.clone());
        let limits = crate::recovery::replay_limits(&self.settings);
        Arc::new(ReplayModel::new(system, pool, store, self.read_cost.clone(), limits, report.measured()))
    }

    fn finish(
        self,
        writing: Option<Writing>,
        at_checkpoint: Option<Manifest>,
        logs: usize,
        recovery: RecoveryReport,
    ) -> Engine {
        let Parts { evictor, read_ahead, .. } = self;
        Engine {
            _always: self.always,
            system: self.system,
            pool: self.pool,
            store: self.store,
            storage: self.storage,
            old_memory: self.memories.old,
            writing,
            at_checkpoint,
            typed: TypedTables::default(),
            threads: Threads {
                evictor,
                read_ahead,
                maintenance: Mutex::new(None),
                monitor: Mutex::new(None),
            },
            settings: self.settings,
            clock: self.clock,
            opened: Opened { path: self.path, logs, recovery },
            closing: Closing::default(),
            lock: Mutex::new(self.lock),
        }
    }
}

/// Versions never take more than a quarter of all memory.
fn version_bytes(settings: &Settings) -> u64 {
    settings.version_bytes.min(settings.memory_bytes / 4)
}

/// Most buffers of a log.
const LOG_BUFFERS: u64 = 4;
/// Log buffers never take more than this part of all memory.
const LOG_MEMORY_PART: u64 = 8;
const LOG_BUFFER_BYTES_MIN: u64 = 64 << 10;

/// Returns the size of a log buffer, which is smaller in a small budget.
fn log_buffer_bytes(settings: &Settings) -> usize {
    let buffers = LOG_BUFFERS * presets::log_count(settings, cores()) as u64;
    let fair = settings.memory_bytes / LOG_MEMORY_PART / buffers / 4096 * 4096;
    let least = LOG_BUFFER_BYTES_MIN.max(settings.lab.flush_unit_bytes as u64);
    settings.log_buffer_bytes().min(fair.max(least) as usize)
}

/// Memory that does not grow with use: histograms, descriptors, commit queues, stacks of the
/// engine's threads, the allocator's reserve...
const FIXED_BYTES: u64 = 3 << 20;
/// ... but charged with at most this part of all memory.
const FIXED_PART: u64 = 10;

/// Returns the bytes charged for as long as a database is open: the above, and the buffers for
/// writing images. All else charges itself.
fn always_bytes(settings: &Settings) -> u64 {
    FIXED_BYTES.min(settings.memory_bytes / FIXED_PART) + checkpoint::buffer_bytes(settings.memory_bytes)
}

fn cores() -> usize {
    crate::sync::thread::processors()
}

/// The file of pages, if the database is opened for writing.
type Claimed = Option<Arc<dyn File>>;

/// Opens the manifest, or creates the database.
fn open_or_create(
    storage: &dyn Storage,
    settings: &mut Settings,
) -> Result<(Claimed, ManifestFile, Manifest)> {
    if !holds_database(storage, settings).map_err(no_database)? {
        if storage.directory().is_some() {
            remove_blank_segments(storage)?;
            // A memory-mapped log holds the id of its database, which a creation that is cut short
            // must not draw again: there the manifest comes first.
            if settings.log_memory.is_none() {
                return make_files(storage, settings);
            }
        }
        let manifest =
            Manifest::new(DatabaseId(Random::from_entropy().next_u64()), settings.page_bytes as u32);
        PageStore::create(storage, manifest.database, settings.page_bytes)?;
        ManifestFile::create(storage, &manifest)?;
    }
    // Claimed first: opening the manifest for writing writes to it.
    let claim = (!settings.read_only).then(|| PageStore::claim(storage));
    let claimed = match claim.transpose() {
        Err(missing) if missing.kind() == ErrorKind::NotFound => {
            // If the manifest is missing, too, that is the better answer.
            ManifestFile::open(storage, true).map_err(no_database)?;
            return Err(PageStore::missing_file());
        }
        claimed => claimed?,
    };
    let (file, manifest) = ManifestFile::open(storage, settings.read_only).map_err(no_database)?;
    settings.page_bytes = manifest.page_bytes as usize;
    Ok((claimed, file, manifest))
}

/// Makes the files of a database that exists when recovery publishes its first manifest. Until then
/// they are what an interrupted creation leaves.
fn make_files(storage: &dyn Storage, settings: &Settings) -> Result<(Claimed, ManifestFile, Manifest)> {
    storage.segments().prepare()?;
    let manifest = Manifest::new(DatabaseId(Random::from_entropy().next_u64()), settings.page_bytes as u32);
    // Made before anything is flushed: one flush of the file system's journal serves all.
    let file = ManifestFile::prepare(storage)?;
    PageStore::create(storage, manifest.database, settings.page_bytes)?;
    storage.flush_names(Names::Root)?;
    Ok((Some(PageStore::claim(storage)?), file, manifest))
}

/// Removes the segments of a creation that was interrupted.
fn remove_blank_segments(storage: &dyn Storage) -> Result<()> {
    let segments = storage.segments();
    segments.list()?.into_iter().try_for_each(|id| segments.remove(id))
}

/// Returns `error`, or for a missing file that there is no database.
pub(super) fn no_database(error: Error) -> Error {
    if error.kind() == ErrorKind::NotFound { ownership::no_database() } else { error }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how the reading ended, and after how many reads, if the first ones fail so.
    fn reads(kind: ErrorKind, failing: u32) -> (Option<ErrorKind>, u32) {
        let mut reads = 0;
        let ended = until_unchanged(|| {
            reads += 1;
            if reads <= failing { Err(Error::new(kind, "the test says so")) } else { Ok(()) }
        });
        (ended.err().map(|error| error.kind()), reads)
    }

    #[test]
    fn only_a_busy_read_begins_again_and_at_most_five_times() {
        for failing in 0..READS_MAX {
            assert_eq!(reads(ErrorKind::Busy, failing), (None, failing + 1));
        }
        assert_eq!(reads(ErrorKind::Busy, READS_MAX), (Some(ErrorKind::Busy), READS_MAX));
        assert_eq!(reads(ErrorKind::Corruption, 1), (Some(ErrorKind::Corruption), 1));
    }
}
