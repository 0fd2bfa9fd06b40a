//! Opening a database with settings.

use super::database::Database;
use super::open::{self, Progress, Request, or_ignore};
use super::verify::{self, VerifyReport};
use crate::base::clock::Clock;
use crate::base::settings::{
    Acknowledger, Compression, Dependency, DeviceTrust, Layout, MemoryCache, MemoryStore, MethodSetting,
    Preset, Queue, Settings, Writer,
};
use crate::base::{ErrorKind, Result};
use crate::device::Storage;
use crate::device::file::FileStorage;
use crate::device::memory::MemoryStorage;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Collects settings, then opens a database.
#[derive(Default)]
#[must_use = "a builder does nothing before `open`"]
pub struct Builder {
    pub(super) request: Request,
    storage: Option<Arc<dyn Storage>>,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty),* $(,)?) => {
        $(
            $(#[$doc])*
            pub fn $name(mut self, $name: $type) -> Builder {
                self.request.settings.$name = $name;
                self
            }
        )*
    };
}

impl Builder {
    setters! {
        /// Create the database if the directory holds none. Default true.
        create: bool,
        /// Open without writing anything; refused while a writer has the database. Default false.
        read_only: bool,
        /// Page size in bytes, a power of two from 4096 to 32768; fixed at creation. Default 4096.
        page_bytes: usize,
        /// Memory for everything in bytes (pages, versions, log buffers). Default 1 GiB.
        memory_bytes: u64,
        /// Memory for old versions in bytes. Default 256 MiB.
        version_bytes: u64,
        /// Commit protocol. Default `auto`.
        preset: Preset,
        /// Number of logs; 0 chooses as the layout says.
        logs: usize,
        /// Threads that share a log where the layout is `threads-per-log`. Default 2.
        threads_per_log: usize,
        /// Writes of one log that a worker may have in flight, where workers write. Default 2.
        writes_in_flight: usize,
        /// Logs that workers acknowledge for each other, where workers acknowledge. Default 2.
        acknowledgment_group: usize,
        /// Workers acknowledge after one transaction in so many, at random, where workers acknowledge; 0 chooses. Default 1.
        acknowledgment_odds: u32,
        /// A worker that is idle for so long between its transactions has each written at once, where workers write. Default 50 us.
        idle_most: Duration,
        /// Most transactions that nobody waits with and that are not acknowledged. Default 32,768.
        queue_entries: usize,
        /// Bytes waiting in a log at which it is written although nobody waits; 0 chooses: 16 KiB, and for `restricted` three
        /// quarters of a log buffer.
        flush_unit_bytes: usize,
        /// The longest that a log's buffers become, in bytes (in mapped memory their length always); 0 chooses: 1 MiB, and for `restricted` 512 KiB
        /// for each of `threads_per_log`.
        log_buffer_bytes: usize,
        /// Size of a log segment in bytes. Default 16 MiB.
        segment_bytes: u64,
        /// Log bytes after which a checkpoint starts by itself; 0 means never. Default 512 MiB.
        checkpoint_log_bytes: u64,
        /// How long recovery may take, in seconds: automatic checkpoints keep the log short enough. Default 5.
        recovery_seconds: u32,
        /// Log bytes at which commits wait for a checkpoint. Default 2 GiB.
        log_bytes_max: u64,
        /// Largest redo of one transaction in bytes; 0 chooses: two thirds of the room in the log. Default 0.
        transaction_bytes_max: usize,
        /// Redo of a transaction in progress that is kept in memory, in bytes; 0 chooses: a quarter of a log buffer. Default 0.
        chunk_bytes: usize,
        /// Those who wait for the next write let others join it that the last one released, where that pays. Default true.
        await_company: bool,
        /// How long a group's leader gathers followers. Default zero.
        gather_window: Duration,
        /// The window opens only if at least this many other transactions are in progress. Default 5.
        gather_siblings: usize,
        /// Most transactions in one flush; 0 means no limit.
        gather_max: usize,
        /// About how much a crash may lose of bounded-loss commits. Default 10 ms.
        loss_window: Duration,
        /// How long a write of the log may take before the database is given up as after a failed write; 0: for ever. Default 60 s.
        write_deadline: Duration,
        /// How long a change waits for its row, whoever holds that meanwhile. Default 1 s.
        lock_wait: Duration,
        /// What a device flush is believed to do. Default `Auto`.
        device_trust: DeviceTrust,
        /// Use io_uring where the kernel has it. Default true.
        io_uring: bool,
        /// Length of the memory-mapped log in bytes; 0 chooses: as long as it is, and a new one 16 MiB. Default 0.
        log_memory_bytes: u64,
        /// What a power cut leaves of the processor's caches. Default `volatile`.
        memory_cache: MemoryCache,
        /// Each insertion into mapped memory takes at least so long. Default zero.
        insertion_latency: Duration,
    }

    /// How page images that are not expected to change soon are compressed. Default `lz4`.
    pub fn compression(mut self, compression: Compression) -> Builder {
        self.request.settings.compression = compression;
        self
    }

    /// How many logs there are, instead of what the preset says.
    pub fn layout(mut self, layout: Layout) -> Builder {
        self.request.settings.layout = Some(layout);
        self
    }

    /// Who writes a log, instead of what the preset says.
    pub fn writer(mut self, writer: Writer) -> Builder {
        self.request.settings.writer = Some(writer);
        self
    }

    /// A log that nobody waits for is written about so often, and by `queued` also if somebody waits.
    pub fn flush_interval(mut self, interval: Duration) -> Builder {
        self.request.settings.flush_interval = Some(interval);
        self
    }

    /// Who acknowledges transactions that nobody waits with, instead of what the preset says.
    pub fn acknowledger(mut self, acknowledger: Acknowledger) -> Builder {
        self.request.settings.acknowledger = Some(acknowledger);
        self
    }

    /// Logs whose waiting bytes a worker writes with its own, itself included, where workers write; 1: only its own. Instead of as many
    /// as CPUs share a cache.
    pub fn stealing_group(mut self, logs: usize) -> Builder {
        self.request.settings.stealing_group = Some(logs);
        self
    }

    /// Whether a thread that writes several logs at once has them flushed together, instead of as it measures.
    pub fn shared_flush(mut self, shared: bool) -> Builder {
        self.request.settings.shared_flush = Some(shared);
        self
    }

    /// What a durable transaction still waits for, instead of what the preset says.
    pub fn dependency(mut self, dependency: Dependency) -> Builder {
        self.request.settings.dependency = Some(dependency);
        self
    }

    /// Where transactions wait that nobody waits with. Default `lock-free`.
    pub fn queue(mut self, queue: Queue) -> Builder {
        self.request.settings.queue = Some(queue);
        self
    }

    /// How writes are made durable, instead of what a probe chooses.
    pub fn durability_method(mut self, method: MethodSetting) -> Builder {
        self.request.settings.durability_method = Some(method);
        self
    }

    /// The file of the memory-mapped log. With the presets `passive` and `auto`, and with `writer = memory`, commits become durable there: on a DAX file
    /// system they survive a power cut, in any other file a crash of the process only. With other presets: where the one is that the
    /// database needs.
    pub fn log_memory(mut self, path: impl Into<PathBuf>) -> Builder {
        self.request.settings.log_memory = Some(path.into());
        self
    }

    /// How cache lines reach mapped memory, instead of what the processor does best.
    pub fn memory_store(mut self, store: MemoryStore) -> Builder {
        self.request.settings.memory_store = Some(store);
        self
    }

    /// All settings at once.
    pub fn settings(mut self, settings: Settings) -> Builder {
        self.request.settings = settings;
        self
    }

    /// Where the database is, instead of a directory: memory, a simulated disk. `open` then ignores its path.
    pub fn storage(mut self, storage: Arc<dyn Storage>) -> Builder {
        self.storage = Some(storage);
        self
    }

    /// Time, instead of the machine's clock.
    pub fn clock(mut self, clock: Clock) -> Builder {
        self.request.clock = clock;
        self
    }

    /// Hears of recovery's progress.
    pub fn on_recovery(mut self, progress: Progress) -> Builder {
        self.request.progress = Some(progress);
        self
    }

    /// Opens the database in the directory `path`, creating it if it is missing, and recovers it if it was not closed.
    ///
    /// # Errors
    /// `InvalidArgument` for settings and for a directory that holds other things; `NotFound`; `Busy` while another
    /// process has it; `Unsupported` for a newer format; `Corruption` with the place; I/O.
    pub fn open(mut self, path: impl AsRef<Path>) -> Result<Database> {
        self.request.settings.validate()?;
        let storage = self.open_storage(path.as_ref())?;
        open::open(storage, path.as_ref(), self.request).map(|inner| Database { inner })
    }

    /// Opens the newest durable checkpoint of the database in the directory `path` for reading, while another process (or this one)
    /// may have it open for writing. What is read is as of that checkpoint, whatever the writer does: neither its later checkpoints nor
    /// what is only in the log is seen. Open again to see a newer one. [`Database::checkpoint_csn`] says which it is.
    ///
    /// Until the handle and its snapshots are dropped the writer does not use the space of this checkpoint again, so its file of pages
    /// may grow; it waits for no reader. Nothing is written but a slot in the directory `readers`, for which this needs the
    /// right to write there. At most 64 at a time. Not for network file systems.
    ///
    /// # Errors
    /// As [`Builder::open`] for reading; `Busy` if there are too many readers.
    pub fn open_checkpoint(mut self, path: impl AsRef<Path>) -> Result<Database> {
        self.read_only_by_ourselves();
        self.request.at_checkpoint = true;
        self.open(path)
    }

    /// The caller has not said it, so it contradicts nothing that he has.
    fn read_only_by_ourselves(&mut self) {
        (self.request.settings.read_only, self.request.settings.device_trust) = (true, DeviceTrust::Auto);
    }

    fn open_storage(&mut self, path: &Path) -> Result<Arc<dyn Storage>> {
        if let Some(storage) = self.storage.take() {
            return Ok(storage);
        }
        let create = self.request.settings.create && !self.request.settings.read_only;
        let (trust, io_uring) = (self.request.settings.device_trust, self.request.settings.io_uring);
        Ok(Arc::new(FileStorage::open(path, trust, io_uring, create)?))
    }

    /// Opens the database in the directory `path` without writing anything, checks it as [`Database::verify`] does, and closes
    /// it. Damage for which the open is refused is in the report, together with what else can be found in log and pages.
    ///
    /// # Errors
    /// As [`Builder::open`], but for `Corruption`.
    pub fn verify(mut self, path: impl AsRef<Path>, mut progress: Option<Progress>) -> Result<VerifyReport> {
        self.read_only_by_ourselves();
        self.request.settings.validate()?;
        let storage = self.open_storage(path.as_ref())?;
        let mut settings = self.request.settings.clone();
        match open::open(storage.clone(), path.as_ref(), self.request) {
            Ok(inner) => Database { inner }.verify(progress),
            Err(error) if error.kind() == ErrorKind::Corruption => {
                let mut progress = or_ignore(progress.take());
                let mut report =
                    VerifyReport { problems: vec![error.to_string()], ..VerifyReport::default() };
                let more = verify::run_refused(&*storage, &mut settings, &mut report, &mut progress);
                // Without a manifest there is nothing to be said but that.
                if let Err(more) = more.map_err(|more| more.to_string())
                    && more != report.problems[0]
                {
                    report.problems.push(format!("nothing else was looked at: {more}"));
                }
                Ok(report)
            }
            Err(error) => Err(error),
        }
    }

    /// Opens a database that lives in memory and is gone with its last handle.
    ///
    /// # Errors
    /// `InvalidArgument` for settings; `OutOfMemory`.
    pub fn open_in_memory(self) -> Result<Database> {
        self.storage(Arc::new(MemoryStorage::new())).open("memory")
    }
}

impl Database {
    /// Opens the database in the directory `path` with default settings, creating it if it is missing: commits are durable on
    /// return, transactions see a snapshot, memory is bounded.
    ///
    /// # Errors
    /// As [`Builder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Database> {
        Builder::default().open(path)
    }

    /// Returns a builder, to set what differs from the defaults before [`Builder::open`].
    pub fn builder() -> Builder {
        Builder::default()
    }
}
