//! Every setting, declared once: name, unit, default, range, effect. An open validates all
//! together.

pub use super::axes::{
    Acknowledger, Append, Dependency, IdleLogs, Layout, MemoryCache, MemoryFence, MemoryStore, Preset, Queue,
    Writer,
};
use super::error::{Error, ErrorKind, Location, Result};
pub use lab::Lab;
pub(crate) use protocol::THREADS_PER_LOG;
pub use protocol::{
    AcknowledgerOptions, AcknowledgmentOptions, Axes, Gather, LayoutOptions, WorkerOptions, WriterOptions,
};
use std::path::PathBuf;
use std::time::Duration;

mod lab;
mod protocol;

/// How page images that are not expected to change soon are compressed. Each image names its
/// method.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
#[non_exhaustive]
pub enum Compression {
    /// Every image has a block of its own.
    None,
    /// LZ4: fast.
    #[default]
    Lz4,
    /// Zstandard: smaller and slower. Only in builds with the cargo feature `zstd`.
    Zstd,
}

impl Compression {
    /// All methods, for tests and help texts.
    pub const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

    /// Returns the name used in settings and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }

    /// Returns whether this build supports the method.
    #[must_use]
    pub fn is_built_in(self) -> bool {
        self != Compression::Zstd || cfg!(feature = "zstd")
    }

    /// Returns the compression called `name`.
    ///
    /// # Errors
    /// `InvalidArgument` that lists the names.
    pub fn from_name(name: &str) -> Result<Compression> {
        Compression::ALL.into_iter().find(|c| c.name() == name).ok_or_else(|| {
            let names: Vec<_> = Compression::ALL.iter().map(|c| c.name()).collect();
            Error::invalid(format!("no compression is called `{name}`; the names are {}", names.join(", ")))
                .at(Location::Setting("compression"))
        })
    }
}

/// When a commit returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
#[non_exhaustive]
pub enum Durability {
    /// When the transaction, and everything it depends on, survives a power cut.
    #[default]
    Durable,
    /// When the transaction, and everything it depends on, is written to the log: the device has
    /// it, or without direct I/O the operating system. It survives the end of the process, however
    /// it ends. A power cut loses about the last `loss_window` of such commits, as with
    /// `BoundedLoss`, whose promise holds for `commit_async` at this level. Where a write without
    /// a flush saves nothing (the log in mapped memory, a store of objects) it is `Durable`.
    Written,
    /// When the record is in the log buffer. A crash loses about the last `loss_window` of such
    /// commits, never out of order: the surviving commits are a consistent prefix. Their write
    /// begins after three quarters of the window; a device that takes longer than the rest loses
    /// more.
    BoundedLoss,
    /// As `BoundedLoss` without the bound: causes no device write before half a log buffer has
    /// filled.
    Lazy,
}

/// What a device flush is expected to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
#[non_exhaustive]
pub enum DeviceTrust {
    /// Ask the block device (`queue/write_cache`, `queue/fua`), and flush if its cache is volatile.
    #[default]
    Auto,
    /// Always flush.
    Flush,
    /// Treat completed writes as durable (a drive with power-loss protection).
    Device,
}

/// When a commit of a database in several buckets is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
#[non_exhaustive]
pub enum Acknowledge {
    /// When a majority of the buckets has it: two of three. A slow bucket delays nothing.
    #[default]
    Majority,
    /// When all buckets have it. A missing bucket stops commits.
    All,
}

/// All settings of a database. `Database::builder()` makes them.
///
/// Settings of general use come first, then those for operators. Each line gives effect, unit,
/// range and default. `None` or 0 leaves a choice to the engine where the line says so.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    // Of general use.
    /// Create the database if the directory contains none. Default true.
    pub create: bool,
    /// Open without writing anything; refused while a writer has the database open. Default false.
    pub read_only: bool,
    /// Memory for everything (pages, versions, log buffers) in bytes, 1 MiB to 16 TiB. Default 1
    /// GiB.
    pub memory_bytes: u64,
    /// Page size in bytes, a power of two from 4096 to 32768; fixed at creation. Default 4096.
    pub page_bytes: usize,
    /// How page images that are not expected to change soon are compressed. Default `lz4`.
    pub compression: Compression,
    /// Commit protocol. Default `auto`.
    pub preset: Preset,
    /// Longest recovery in seconds, 1 to 3600: automatic checkpoints keep the log short enough.
    /// Default 5.
    pub recovery_seconds: u32,
    /// Log bytes at which commits wait for a checkpoint to free space; at least four segments, and
    /// one more than two for each log. About two thirds of it are for the redo of one transaction.
    /// Default 2 GiB.
    pub log_bytes_max: u64,
    /// With bounded loss, about how much a crash may lose, and with the level written a power cut,
    /// 1 ms to 60 s. Writes begin after three quarters of it. Default 10 ms.
    pub loss_window: Duration,
    /// How long a transaction waits for one row or lock before it fails with `LockTimeout`, up to
    /// 1 h. Default 1 s.
    pub lock_wait: Duration,
    /// How long `Database::transact` repeats a transaction that fails with `LockTimeout`, up to 1
    /// h: an attempt that ends later is the last one. `None` is three times `lock_wait`, or what
    /// the transaction sets instead of that, but at least 100 ms. Default `None`.
    pub transact_wait: Option<Duration>,
    /// Reports, as a warning through `tracing`, each commit that takes at least so long from its
    /// record to its acknowledgment, with the time of each stage. Default `None`: no report.
    pub slow_commit_log: Option<Duration>,

    // For operators.
    /// Answer other processes that ask for statistics, such as `quench top`, on the socket
    /// `monitor.sock` in the directory of the database. Default true.
    pub monitor: bool,
    /// Memory for old versions in bytes, 64 KiB to 16 TiB. Default 256 MiB.
    pub version_bytes: u64,
    /// Number of logs, 1 to 256; 0 leaves it to the preset. Default 0.
    pub logs: usize,
    /// Size of a log segment in bytes, 64 KiB to 1 GiB. Default 16 MiB.
    pub segment_bytes: u64,
    /// A clean close removes the log, except two short segments. `false` keeps its segments, so
    /// that a backup can be restored with the log of a database that was closed. Default true.
    pub trim_log: bool,
    /// Bytes of log that are retained for change feeds beyond what recovery needs, at least, also
    /// while the database is closed, up to 16 TiB; less than a segment more. With history, each
    /// value is logged whole. 0: only running feeds retain some. Default 0.
    pub change_history_bytes: u64,
    /// Longest write of the log, 100 ms to 1 h; then the database fails as after a failed write. 0
    /// is no limit. Default 60 s.
    pub write_deadline: Duration,
    /// What a device flush is expected to do. Default `Auto`.
    pub device_trust: DeviceTrust,
    /// Use io_uring where the kernel has it. Default true.
    pub io_uring: bool,
    /// A local directory that keeps pages of a database in a store of objects. Losing it loses
    /// nothing. Default `None`: pages are kept in memory only.
    pub object_cache: Option<PathBuf>,
    /// Largest size of that directory in bytes, 1 MiB to 16 TiB. Default 4 GiB.
    pub object_cache_bytes: u64,
    /// When a commit of a database in several buckets is durable. Default `Majority`.
    pub acknowledge: Acknowledge,
    /// The file of the memory-mapped log. With `passive` and `auto` commits become durable
    /// only there. Otherwise it names the place of the mapped log that an existing
    /// database needs. Default `None`: the place that the database has stored, if it needs one.
    pub log_memory: Option<PathBuf>,

    /// What only experiments change.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    pub lab: Lab,
    /// What only experiments change.
    #[cfg(not(feature = "internals"))]
    pub(crate) lab: Lab,
}

/// Largest size of a log's buffers with the protocol of every preset.
const LOG_BUFFER_BYTES: usize = 1 << 20;
/// Largest `log_buffer_bytes`.
const LOG_BUFFER_BYTES_MAX: usize = 16 << 20;
/// Without another wish, the commits without a waiter that are queued at a time.
pub(crate) const QUEUE_ENTRIES_DEFAULT: usize = 32_768;
/// Queues of 100 MiB.
const QUEUE_ENTRIES_MAX: u64 = (100 << 20) / 64;
/// What one of them takes: its entry, and places for two in the rings by CSN.
const QUEUED_BYTES: u64 = 128;

impl Default for Settings {
    fn default() -> Self {
        Settings {
            create: true,
            read_only: false,
            page_bytes: 4096,
            compression: Compression::default(),
            memory_bytes: 1 << 30,
            version_bytes: 256 << 20,
            preset: Preset::default(),
            logs: 0,
            segment_bytes: 16 << 20,
            recovery_seconds: 5,
            log_bytes_max: 2 << 30,
            trim_log: true,
            change_history_bytes: 0,
            loss_window: Duration::from_millis(10),
            write_deadline: Duration::from_secs(60),
            lock_wait: Duration::from_secs(1),
            transact_wait: None,
            slow_commit_log: None,
            monitor: true,
            device_trust: DeviceTrust::Auto,
            io_uring: true,
            object_cache: None,
            object_cache_bytes: 4 << 30,
            acknowledge: Acknowledge::Majority,
            log_memory: None,
            lab: Lab::default(),
        }
    }
}

impl Settings {
    /// Returns the settings after `change`: `Settings::default().with(|settings| settings.logs =
    /// 2)`.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Settings)) -> Settings {
        change(&mut self);
        self
    }

    /// Returns the log bytes that `logs` logs need in use: each fills a segment, and takes the next
    /// one before it releases the full one.
    #[must_use]
    pub(crate) fn bytes_of_segments_in_use(&self, logs: usize) -> u64 {
        2 * logs as u64 * self.segment_bytes
    }

    /// Returns the largest redo of one transaction with `logs` logs, in bytes.
    #[must_use]
    pub(crate) fn transaction_bytes(&self, logs: usize) -> usize {
        if self.lab.transaction_bytes_max != 0 {
            return self.lab.transaction_bytes_max;
        }
        (self.log_bytes_beside_segments(logs) / 3 * 2).max(4096) as usize
    }

    /// Returns the redo of an open transaction that stays in memory, in bytes.
    #[must_use]
    pub(crate) fn chunk_bytes(&self) -> usize {
        if self.lab.chunk_bytes != 0 { self.lab.chunk_bytes } else { self.log_buffer_bytes() / 4 }
    }

    /// Returns the largest size of a log buffer, in bytes.
    #[must_use]
    pub(crate) fn log_buffer_bytes(&self) -> usize {
        match (self.lab.log_buffer_bytes, &self.lab.protocol) {
            (0, Some(protocol)) => protocol.log_buffer_bytes(),
            (0, None) => LOG_BUFFER_BYTES,
            (bytes, _) => bytes,
        }
    }

    /// Returns the log bytes that a checkpoint may keep for chunks of transactions that it does not
    /// contain. The rest is for other transactions until the next checkpoint.
    #[must_use]
    pub(crate) fn chunked_log_bytes(&self, logs: usize) -> u64 {
        self.log_bytes_beside_segments(logs) / 4 * 3
    }

    /// Returns the log bytes after which a checkpoint starts automatically; 0 is never.
    #[must_use]
    pub(crate) fn checkpoint_log_bytes(&self) -> u64 {
        self.lab.checkpoint_log_bytes.min(self.log_bytes_max / 2)
    }

    fn log_bytes_beside_segments(&self, logs: usize) -> u64 {
        self.log_bytes_max.saturating_sub(self.bytes_of_segments_in_use(logs))
    }

    /// Checks the range of every setting and the relations between settings.
    ///
    /// # Errors
    /// `InvalidArgument` that names the setting and its range, or the two settings that contradict
    /// each other; `Unsupported` if this build lacks the compression.
    pub fn validate(&self) -> Result<()> {
        self.validate_memory()?;
        self.validate_protocol()?;
        self.validate_log()?;
        self.validate_times()?;
        self.validate_log_space()
    }

    fn validate_memory(&self) -> Result<()> {
        within("page_bytes", self.page_bytes as u64, 4096, 32768)?;
        if !self.page_bytes.is_power_of_two() {
            return refuse("page_bytes", format!("{} is not a power of two", self.page_bytes));
        }
        if !self.compression.is_built_in() {
            let name = self.compression.name();
            let what = format!("this build lacks {name}");
            return Err(Error::new(ErrorKind::Unsupported, what)
                .with_advice("compile it with the cargo feature `zstd`")
                .at(Location::Setting("compression")));
        }
        within("memory_bytes", self.memory_bytes, 1 << 20, 1 << 44)?;
        within("version_bytes", self.version_bytes, 64 << 10, 1 << 44)?;
        within("change_history_bytes", self.change_history_bytes, 0, 1 << 44)?;
        within("object_cache_bytes", self.object_cache_bytes, 1 << 20, 1 << 44)?;
        if self.read_only && self.device_trust == DeviceTrust::Device {
            return refuse("device_trust", "a read-only database writes nothing");
        }
        Ok(())
    }

    fn validate_protocol(&self) -> Result<()> {
        within("logs", self.logs as u64, 0, 256)?;
        self.lab.protocol.map_or(Ok(()), |protocol| protocol.validate())?;
        within("queue_entries", self.lab.queue_entries as u64, 1024, QUEUE_ENTRIES_MAX)?;
        let bytes = self.lab.queue_entries as u64 * QUEUED_BYTES;
        if self.lab.queue_entries > QUEUE_ENTRIES_DEFAULT && bytes > self.memory_bytes / 4 {
            let entries = self.lab.queue_entries;
            let why = format!("{entries} take {bytes} bytes, more than a quarter of memory_bytes");
            return refuse("queue_entries", why);
        }
        Ok(())
    }

    fn validate_log(&self) -> Result<()> {
        within_or_zero("flush_unit_bytes", self.lab.flush_unit_bytes as u64, 4096, 1 << 20)?;
        let buffer = self.log_buffer_bytes();
        let least = if self.log_memory.is_some() { 64 << 10 } else { 8 << 10 };
        within("log_buffer_bytes", buffer as u64, least, LOG_BUFFER_BYTES_MAX as u64)?;
        if self.lab.flush_unit_bytes > buffer {
            return refuse("flush_unit_bytes", "larger than log_buffer_bytes");
        }
        within("segment_bytes", self.segment_bytes, 64 << 10, 1 << 30)?;
        multiple_of_sector("segment_bytes", self.segment_bytes)?;
        within_or_zero("transaction_bytes_max", self.lab.transaction_bytes_max as u64, 4096, 1 << 40)?;
        within_or_zero("chunk_bytes", self.lab.chunk_bytes as u64, 512, buffer as u64 / 2)?;
        within_or_zero("log_memory_bytes", self.lab.log_memory_bytes, 1 << 20, 64 << 30)?;
        multiple_of_sector("log_memory_bytes", self.lab.log_memory_bytes)
    }

    fn validate_times(&self) -> Result<()> {
        within("recovery_seconds", self.recovery_seconds.into(), 1, 3600)?;
        within("durable_every", self.lab.durable_every, 0, 1_000_000)?;
        within("loss_window", milliseconds(self.loss_window), 1, 60_000)?;
        if !self.write_deadline.is_zero() {
            within("write_deadline", milliseconds(self.write_deadline), 100, 3_600_000)?;
        }
        within("insertion_latency", microseconds(self.lab.insertion_latency), 0, 1_000)?;
        within("lock_wait", milliseconds(self.lock_wait), 0, 3_600_000)?;
        within("transact_wait", milliseconds(self.transact_wait.unwrap_or_default()), 0, 3_600_000)
    }

    fn validate_log_space(&self) -> Result<()> {
        if self.log_bytes_max < 4 * self.segment_bytes {
            return refuse("log_bytes_max", "less than four times segment_bytes");
        }
        let in_use = self.bytes_of_segments_in_use(self.logs.max(1));
        if self.log_bytes_max < in_use + self.segment_bytes {
            let (bytes, logs, segment) = (self.log_bytes_max, self.logs, self.segment_bytes);
            let what = format!(
                "{bytes} is too small: each of logs = {logs} needs two segments of segment_bytes = {segment}, \
                 and a transaction needs room beside them"
            );
            return refuse("log_bytes_max", what);
        }
        if self.log_bytes_max - in_use < self.lab.transaction_bytes_max as u64 {
            let (bytes, max) = (self.lab.transaction_bytes_max, self.log_bytes_max);
            let what = format!(
                "{bytes} is too large for log_bytes_max = {max}: the transaction would not fit beside the \
                 {in_use} bytes of segments in use"
            );
            return refuse("transaction_bytes_max", what);
        }
        Ok(())
    }
}

fn refuse(name: &'static str, what: impl Into<String>) -> Result<()> {
    Err(Error::invalid(what).at(Location::Setting(name)))
}

fn within(name: &'static str, value: u64, low: u64, high: u64) -> Result<()> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    refuse(name, format!("{value} is outside {low} to {high}"))
}

/// As `within`, for a setting whose 0 leaves the choice to the engine.
fn within_or_zero(name: &'static str, value: u64, low: u64, high: u64) -> Result<()> {
    if value == 0 { Ok(()) } else { within(name, value, low, high) }
}

fn multiple_of_sector(name: &'static str, bytes: u64) -> Result<()> {
    if bytes.is_multiple_of(4096) {
        Ok(())
    } else {
        refuse(name, format!("{bytes} is not a multiple of 4096"))
    }
}

/// Returns whole milliseconds, and `u64::MAX` for a longer duration.
fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns whole microseconds, and `u64::MAX` for a longer duration.
fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
