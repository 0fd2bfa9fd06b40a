//! Opening a database: lock, manifest, store, pool, recovery, commit room, upkeep.

use super::builder::{Builder, Progress};
use super::database::{Database, Inner, Owner};
use super::log_memory::{self, Memories};
use super::refuse;
use crate::base::clock::{Clock, Nanos};
use crate::base::random::Random;
use crate::base::settings::{MethodSetting, Preset, Settings, Writer};
use crate::base::{Charge, Csn, DatabaseId, Error, ErrorKind, Location, PageId, Result};
use crate::buffer::{PageSource, Pool, ReadAheadThread};
use crate::checkpoint::pace::{Meter, Pacer};
use crate::checkpoint::{self, Checkpointer, Evictor, ReadCost, ReplayModel};
use crate::commit::{Commit, Hooks, Start, presets};
use crate::device::memory::MemoryStorage;
use crate::device::probe::{self, ProbeReport};
use crate::device::{DurabilityMethod, File, Storage};
use crate::log::{BufferSize, SegmentPool};
use crate::recovery::{CopiedLog, Recovery, RecoveryReport};
use crate::store::{
    CreationState, ImageKind, Manifest, ManifestFile, PageStore, ReservedFor, creation_state,
};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::transaction::{Limits, TransactionSystem};
use crate::tree::image::{settle_image, validate_image_of};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Pages of the store, checked before the tree sees them.
struct StoredPages {
    store: Arc<PageStore>,
    clock: Clock,
    cost: Arc<ReadCost>,
}

impl PageSource for StoredPages {
    fn read_page(&self, page: PageId, own_stamps: bool, into: &mut [u8]) -> Result<()> {
        let begun = self.clock.now();
        let kind = self.store.read_page(page, into)?;
        self.cost.note(self.clock.now().since(begun));
        check_and_settle(page, kind, own_stamps, into)
    }

    fn read_pages(&self, pages: &[(PageId, bool)], visit: &mut dyn FnMut(usize, Result<&[u8]>)) {
        let ids: Vec<PageId> = pages.iter().map(|(page, _)| *page).collect();
        let begun = self.clock.now();
        let mut first = true;
        self.store.read_pages(&ids, &mut |index, read| {
            if std::mem::take(&mut first) {
                self.cost.note_many(pages.len(), self.clock.now().since(begun));
            }
            let (page, own_stamps) = pages[index];
            let read = read
                .and_then(|(kind, image)| check_and_settle(page, kind, own_stamps, image).map(|()| &*image));
            visit(index, read);
        });
    }

    fn reserve(&self, page: ReservedFor) -> Result<()> {
        self.store.reserve(page)
    }

    fn freed(&self, page: PageId, round: u32) {
        self.store.freed(page, round);
    }
}

fn check_and_settle(page: PageId, kind: ImageKind, own_stamps: bool, image: &mut [u8]) -> Result<()> {
    validate_image_of(kind, image).map_err(|error| error.at(Location::Page { page, offset: 0 }))?;
    if kind == ImageKind::Stamped && !own_stamps {
        settle_image(image);
    }
    Ok(())
}

/// Pages read at open to learn what reading costs.
const SAMPLED_PAGES: usize = 64;

impl StoredPages {
    /// Reads some pages from all over the store. What cannot be read is found out by whoever needs it.
    fn sample_cost(&self) {
        let pages = self.store.sample_pages(SAMPLED_PAGES);
        let sample: Vec<(PageId, bool)> = pages.into_iter().map(|page| (page, false)).collect();
        self.read_pages(&sample, &mut |_, _| ());
    }
}

/// Opens, recovers, and starts upkeep.
pub(super) fn open(storage: Arc<dyn Storage>, path: &Path, mut builder: Builder) -> Result<Database> {
    let mut settings = std::mem::take(&mut builder.settings);
    if settings.log_memory.is_none() && presets::Axes::of(&settings).writer == Writer::Memory {
        settings.log_memory = storage.own_memory();
    }
    presets::check(&settings, presets::log_count(&settings, cores()))?;
    let said_buffer_bytes = settings.log_buffer_bytes as u64;
    settings.log_buffer_bytes = log_buffer_bytes(&settings);
    if builder.copied.is_none() {
        refuse::early(&*storage, &settings)?;
    }
    let opened = match builder.at_checkpoint {
        true => open_checkpoint(&storage, &mut settings)?,
        false => open_newest(&storage, &mut settings)?,
    };
    let Opened { lock, file, mut manifest, store } = opened;
    let logs = presets::log_count(&settings, cores());
    let memories = match &file {
        None => Memories::default(),
        Some(_) => log_memory::open(&*storage, &mut settings, &mut manifest, logs, said_buffer_bytes)?,
    };
    let page_bytes = manifest.page_bytes as usize;
    store.compress(settings.compression);
    let clock = builder.clock.clone();
    let read_cost = Arc::new(ReadCost::default());
    let stored = StoredPages { store: store.clone(), clock: clock.clone(), cost: read_cost.clone() };
    stored.sample_cost();
    let pool = Pool::with_scan_buffers(
        page_bytes,
        settings.memory_bytes,
        settings.scan_buffer_from,
        Arc::new(stored),
    )?;
    let transaction_bytes = settings.transaction_bytes(logs);
    let limits = Limits {
        chunk_bytes: settings.chunk_bytes().min(transaction_bytes),
        ..Limits::for_page(page_bytes, transaction_bytes, settings.lock_wait)
    };
    let system =
        Arc::new(TransactionSystem::new(pool.clone(), limits, version_bytes(&settings), clock.clone()));
    let (always, recovery) = (pool.account().charge(always_bytes(&settings)), pool.account().charge(0));
    store.charge_to(pool.account());
    // Redo needs it already.
    let read_ahead = ReadAheadThread::start(&pool)?;
    let writes_to = (!settings.read_only).then(|| storage.clone());
    let evictor = Evictor::start(system.clone(), pool.clone(), store.clone(), writes_to)?;
    let path = path.display().to_string();
    let copied = builder.copied;
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
        settings,
        clock,
        lock,
    };
    let opened = match file {
        None => parts.open_at_checkpoint(manifest)?,
        Some(_) if parts.settings.read_only => parts.open_read_only(&manifest, builder.progress)?,
        Some(file) => parts.open_for_writing(file, manifest, builder.progress)?,
    };
    let database = Database { inner: Arc::new(Owner { inner: Arc::new(opened) }) };
    database.start_upkeep()?;
    tracing::info!("{}", database.open_line());
    Ok(database)
}

/// The files of a database.
struct Opened {
    /// None for a checkpoint: the store keeps it.
    lock: Option<Box<dyn Send + Sync>>,
    /// Likewise.
    file: Option<ManifestFile>,
    manifest: Manifest,
    store: Arc<PageStore>,
}

fn open_newest(storage: &Arc<dyn Storage>, settings: &mut Settings) -> Result<Opened> {
    let lock = storage.lock(!settings.read_only)?;
    let (claimed, file, mut manifest) = open_or_create(&**storage, settings)?;
    choose_method(storage, settings, &mut manifest)?;
    let store = match claimed {
        Some(pages) => PageStore::open(storage, &manifest, pages)?,
        None => {
            let page_bytes = manifest.page_bytes as usize;
            PageStore::open_read_only(&**storage, manifest.database, page_bytes, &manifest.store)?
        }
    };
    Ok(Opened { lock: Some(lock), file: Some(file), manifest, store })
}

/// Beside whoever writes.
fn open_checkpoint(storage: &Arc<dyn Storage>, settings: &mut Settings) -> Result<Opened> {
    if creation_state(&**storage).map_err(no_database)? != CreationState::Complete {
        return Err(Error::new(ErrorKind::NotFound, "there is no database in this directory"));
    }
    let (manifest, store) = PageStore::open_newest_checkpoint(storage)?;
    settings.page_bytes = manifest.page_bytes as usize;
    Ok(Opened { lock: None, file: None, manifest, store })
}

/// What opening has collected so far.
struct Parts {
    path: String,
    storage: Arc<dyn Storage>,
    store: Arc<PageStore>,
    pool: Arc<Pool>,
    system: Arc<TransactionSystem>,
    /// Ends before the evictor, for which it may be waiting.
    read_ahead: ReadAheadThread,
    evictor: Evictor,
    always: Charge,
    recovery: Charge,
    memories: Memories,
    read_cost: Arc<ReadCost>,
    copied: Option<CopiedLog>,
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
            memory: self.memories.found.as_ref(),
        }
    }

    fn open_for_writing(
        self,
        file: ManifestFile,
        manifest: Manifest,
        progress: Option<Progress>,
    ) -> Result<Inner> {
        let logs = presets::log_count(&self.settings, cores());
        let mut progress = progress.unwrap_or_else(|| Box::new(|_, _, _| ()));
        let recovered = self.recovery(logs).run(&file, manifest, &mut *progress)?;
        let in_progress = self.system.in_progress();
        let pressed = recovered.segments.clone();
        self.store.keep_reserve(self.pool.frames().demand(), self.clock.clone());
        let replaced = recovered.segments.clone();
        self.store.on_replaced(Box::new(move || {
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
                    on_log_pressure: Box::new(move || pressed.press()),
                    is_checkpoint_worthwhile: Box::new(move || store.is_checkpoint_worthwhile()),
                    in_progress: Box::new(move || in_progress.load(Ordering::Relaxed)),
                },
            },
        )?;
        self.system.connect(commit, logs);
        let replay = self.replay_model(recovered.report);
        let checkpointer = Checkpointer::new(
            self.system.clone(),
            self.pool.clone(),
            self.store.clone(),
            self.storage.clone(),
            (self.evictor.imager(), replay.clone()),
            (file, recovered.manifest),
            self.clock.clone(),
        );
        self.finish(Some(checkpointer), replay, recovered.segments, logs, recovered.report)
    }

    fn open_read_only(self, manifest: &Manifest, progress: Option<Progress>) -> Result<Inner> {
        let mut progress = progress.unwrap_or_else(|| Box::new(|_, _, _| ()));
        let (first_csn, report) = self.recovery(1).run_read_only(manifest, &mut *progress)?;
        self.serve_read_only(manifest, first_csn, report)
    }

    fn open_at_checkpoint(self, manifest: Manifest) -> Result<Inner> {
        let (first_csn, report) = self.recovery(1).run_at_checkpoint(&manifest)?;
        let mut served = self.serve_read_only(&manifest, first_csn, report)?;
        served.at_checkpoint = Some(manifest);
        Ok(served)
    }

    /// Commits of a read-only database would go to memory; there are none.
    fn serve_read_only(self, manifest: &Manifest, first_csn: Csn, report: RecoveryReport) -> Result<Inner> {
        let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let segments = SegmentPool::new(memory.clone(), 64 << 10, 1 << 20, 0)?;
        let log = crate::log::Log::new(
            crate::base::LogId(0),
            DatabaseId(0),
            manifest.epoch,
            BufferSize::fixed(64 << 10),
            segments.clone(),
            self.pool.account().clone(),
        );
        let start = Start {
            storage: memory,
            logs: vec![Arc::new(log)],
            memory: None,
            segments: segments.clone(),
            first_csn,
            epoch: manifest.epoch,
            clock: self.clock.clone(),
            hooks: Hooks::default(),
        };
        self.system.connect(Commit::start(&self.settings, start)?, 1);
        let replay = self.replay_model(report);
        self.finish(None, replay, segments, 0, report)
    }

    fn replay_model(&self, report: RecoveryReport) -> Arc<ReplayModel> {
        let (system, pool, store) = (self.system.clone(), self.pool.clone(), self.store.clone());
        let limits = crate::recovery::replay_limits(&self.settings);
        Arc::new(ReplayModel::new(system, pool, store, self.read_cost.clone(), limits, report.measured()))
    }

    fn finish(
        self,
        checkpointer: Option<Checkpointer>,
        replay: Arc<ReplayModel>,
        segments: Arc<SegmentPool>,
        logs: usize,
        recovery: RecoveryReport,
    ) -> Result<Inner> {
        Ok(Inner {
            _always: self.always,
            system: self.system,
            pool: self.pool,
            store: self.store,
            storage: self.storage,
            memory_found: self.memories.found,
            memory_facts: self.memories.facts,
            checkpointer,
            at_checkpoint: None,
            replay,
            evictor: self.evictor,
            read_ahead: self.read_ahead,
            segments,
            settings: self.settings,
            clock: self.clock,
            logs,
            recovery,
            path: self.path,
            upkeep: Mutex::new(None),
            closed: AtomicBool::new(false),
            close_outcome: Mutex::default(),
            _lock: self.lock,
        })
    }
}

/// Versions never take more than a quarter of all memory.
fn version_bytes(settings: &Settings) -> u64 {
    settings.version_bytes.min(settings.memory_bytes / 4)
}

/// Buffers that a log has at most.
const LOG_BUFFERS: u64 = 4;
/// Log buffers never take more than this part of all memory.
const LOG_MEMORY_PART: u64 = 8;
const LOG_BUFFER_BYTES_MIN: u64 = 64 << 10;

/// What the size of a log buffer comes to in a small budget.
fn log_buffer_bytes(settings: &Settings) -> usize {
    let buffers = LOG_BUFFERS * presets::log_count(settings, cores()) as u64;
    let fair = settings.memory_bytes / LOG_MEMORY_PART / buffers / 4096 * 4096;
    let least = LOG_BUFFER_BYTES_MIN.max(settings.flush_unit_bytes as u64);
    settings.log_buffer_bytes().min(fair.max(least) as usize)
}

/// What does not grow with use: histograms, descriptors, the queues of the commit room, stacks of the engine's threads, what an
/// allocator keeps back...
const FIXED_BYTES: u64 = 3 << 20;
/// ... but never charged with more than this part of all memory.
const FIXED_PART: u64 = 10;

/// What is charged for as long as a database is open: the above, and the buffers for writing images. All else charges itself.
fn always_bytes(settings: &Settings) -> u64 {
    FIXED_BYTES.min(settings.memory_bytes / FIXED_PART) + checkpoint::buffer_bytes(settings.memory_bytes)
}

fn cores() -> usize {
    crate::sync::thread::processors()
}

/// How long the probe measures each method.
const PROBE_TIME: Duration = Duration::from_millis(25);

/// Finds out how writes are made durable best, where that makes a difference and was not said. The result is kept in the
/// manifest for as long as the database stays on the same device.
fn choose_method(storage: &Arc<dyn Storage>, settings: &mut Settings, manifest: &mut Manifest) -> Result<()> {
    let facts = storage.facts();
    let asks = settings.preset == Preset::Autonomous && settings.writer.is_none();
    if asks && settings.durability_method.is_none() && !settings.read_only {
        let chosen = match ProbeReport::decode(&manifest.probe, facts.device_number) {
            Some(method) => method,
            None => match probe::choose(storage, cores(), PROBE_TIME) {
                Ok(report) => {
                    tracing::info!(?report, "durability methods measured beside busy threads");
                    manifest.probe = report.encode(facts.device_number);
                    report.chosen
                }
                // A full disk, for example, is to be opened all the same. The next open measures.
                Err(error) => {
                    tracing::warn!(%error, "durability methods could not be measured");
                    MethodSetting::Flusher
                }
            },
        };
        settings.durability_method = Some(chosen);
    }
    if facts.volatile_cache {
        storage.set_durability(match settings.durability_method {
            Some(MethodSetting::WorkerFlush) => DurabilityMethod::WriteThenFlush,
            _ => DurabilityMethod::Dsync,
        });
    }
    Ok(())
}

/// The file of pages, if it is to be written to.
type Claimed = Option<Arc<dyn File>>;

/// Opens the manifest, or creates the database.
fn open_or_create(
    storage: &dyn Storage,
    settings: &mut Settings,
) -> Result<(Claimed, ManifestFile, Manifest)> {
    let state = creation_state(storage).map_err(no_database)?;
    if state != CreationState::Complete {
        if !settings.create || settings.read_only {
            return Err(Error::new(ErrorKind::NotFound, "there is no database in this directory"));
        }
        let manifest =
            Manifest::new(DatabaseId(Random::from_entropy().next_u64()), settings.page_bytes as u32);
        PageStore::create(storage, manifest.database, settings.page_bytes)?;
        ManifestFile::create(storage, &manifest)?;
    }
    // Opening the manifest to write to it writes to it.
    let claim = (!settings.read_only).then(|| PageStore::claim(storage));
    let claimed = match claim.transpose() {
        Err(missing) if missing.kind() == ErrorKind::NotFound => {
            // If there is no manifest either, that is what is to be told.
            ManifestFile::open(storage, true).map_err(no_database)?;
            return Err(missing);
        }
        claimed => claimed?,
    };
    let (file, manifest) = ManifestFile::open(storage, settings.read_only).map_err(no_database)?;
    settings.page_bytes = manifest.page_bytes as usize;
    Ok((claimed, file, manifest))
}

/// A missing file means that there is no database.
pub(super) fn no_database(error: Error) -> Error {
    if error.kind() == ErrorKind::NotFound {
        return Error::new(ErrorKind::NotFound, "there is no database in this directory");
    }
    error
}

/// A full disk is asked for space this often, for the statistics and for the first who comes later...
const ASK_EVERY: Duration = Duration::from_secs(1);
/// ... but only while somebody was refused this recently.
const ASK_WHILE: Duration = Duration::from_secs(5);

/// Asks a full disk for space; says when to do so again.
fn ask_again(store: &PageStore, segments: &SegmentPool) -> Option<Duration> {
    if !store.has_refused(ASK_WHILE) && !segments.has_refused(ASK_WHILE) {
        return None;
    }
    store.ask_again();
    segments.ask_again();
    (store.is_disk_full() || segments.is_disk_full()).then_some(ASK_EVERY)
}

/// Makes a checkpoint whenever the log has grown enough, somebody needs room, or too many images have been replaced, and asks a full disk for
/// space as long as somebody is refused; asleep otherwise.
pub(super) fn upkeep(inner: &Weak<Inner>, segments: &SegmentPool) {
    let mut shorten: Option<(Nanos, Duration)> = None;
    loop {
        let ticket = segments.filled().ticket();
        let again;
        {
            let Some(inner) = inner.upgrade() else { return };
            if inner.closed.load(Ordering::SeqCst) {
                return;
            }
            let Some(checkpointer) = &inner.checkpointer else { return };
            let left =
                |(since, after): (Nanos, Duration)| after.saturating_sub(inner.clock.now().since(since));
            let shortens = shorten.is_some_and(|shorten| left(shorten).is_zero());
            if shortens || inner.is_checkpoint_due(checkpointer) {
                if let Err(error) = checkpointer.checkpoint_paced(&inner.pacer()) {
                    tracing::warn!(%error, "an automatic checkpoint failed; the log is kept");
                    segments.checkpoint_failed(&error);
                    shorten = None;
                } else {
                    shorten = checkpointer.shortens_in().map(|after| (inner.clock.now(), after));
                }
            }
            again = ask_again(&inner.store, segments).or(shorten.map(left));
        }
        segments.filled().wait(ticket, again);
    }
}

/// The part of `recovery_seconds` that the growing work of recovery may take. The rest is for what does not grow: opening
/// files, reading segments that hold nothing.
const REPLAY_PART: f64 = 0.8;

impl Inner {
    /// How long recovery would take for what a checkpoint can take off the log, and how long it may take, in microseconds.
    fn replay_us(&self) -> (u64, u64) {
        let estimate = self.replay.estimate();
        let scan = self.segments.bytes_to_free() as f64 / estimate.rates.scan_bytes_per_second;
        let seconds = scan + estimate.redo_seconds + estimate.read_seconds;
        let allowed = f64::from(self.settings.recovery_seconds) * REPLAY_PART;
        ((seconds * 1e6) as u64, (allowed * 1e6) as u64)
    }

    /// At three quarters there is time left to make it without haste. Earlier would be no use where most of the work is to read
    /// pages that change all the time: the next checkpoint would be due as soon as this one ends.
    fn is_checkpoint_due(&self, checkpointer: &Checkpointer) -> bool {
        let wanted = self.settings.checkpoint_log_bytes;
        if self.segments.is_pressed() || wanted > 0 && self.segments.bytes_to_free() >= wanted {
            return true;
        }
        if wanted > 0 && checkpointer.is_due_for_space() {
            return true;
        }
        let (replay, allowed) = self.replay_us();
        wanted > 0 && replay >= allowed / 4 * 3
    }

    /// The budget of a checkpoint that begins now.
    pub(super) fn pacer(&self) -> Pacer<'_> {
        let replay: Meter<'_> = Box::new(|| self.replay_us());
        let metrics = self.system.commit().metrics();
        let left = (self.settings.log_bytes_max / 4 * 3).saturating_sub(self.segments.bytes_in_use());
        let log_most = metrics.log_bytes.get() + left;
        let log: Meter<'_> = Box::new(move || (metrics.log_bytes.get(), log_most));
        // Above half of their memory versions are pruned, which costs more than haste.
        let versions: Meter<'_> = Box::new(|| {
            let (bytes, most) = self.system.versions().bytes();
            (bytes, most / 2)
        });
        let space_most = checkpoint::space::most_twice(self.store.space());
        let space: Meter<'_> = Box::new(move || (self.store.space().twice(), space_most));
        // Who waits for memory may wait for it.
        let hurry = || {
            let is_hindered = self.pool.eviction().has_error();
            is_hindered || self.closed.load(Ordering::SeqCst) || self.segments.is_pressed()
        };
        Pacer::new(self.clock.clone(), self.pool.page_count(), vec![replay, log, versions, space], hurry)
    }
}
