//! Every setting, declared once: name, unit, default, range, effect. Validated together at open.

pub use super::axes::{Acknowledger, Dependency, Layout, MemoryCache, MemoryStore, Preset, Queue, Writer};
use super::error::{Error, ErrorKind, Location, Result};
use std::path::PathBuf;
use std::time::Duration;

/// How page images that are not expected to change soon are compressed. What is stored says for itself how it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
#[non_exhaustive]
pub enum Compression {
    /// Every image has a block of its own.
    None,
    /// LZ4: fast, and good enough.
    #[default]
    Lz4,
    /// Zstandard: smaller and slower. Only in builds with the cargo feature `zstd`.
    Zstd,
}

impl Compression {
    /// All of them, for tests and help texts.
    pub const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

    /// The name used in settings and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }

    /// Whether this build can do it.
    #[must_use]
    pub fn is_built_in(self) -> bool {
        self != Compression::Zstd || cfg!(feature = "zstd")
    }

    /// The compression called `name`.
    ///
    /// # Errors
    /// `InvalidArgument` that lists the names.
    pub fn from_name(name: &str) -> Result<Compression> {
        Compression::ALL.into_iter().find(|c| c.name() == name).ok_or_else(|| {
            let names: Vec<_> = Compression::ALL.iter().map(|c| c.name()).collect();
            Error::invalid(format!("no compression is called `{name}`; there are {}", names.join(", ")))
                .at(Location::Setting("compression"))
        })
    }
}

/// When a commit returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum Durability {
    /// When the transaction, and everything it depends on, survives a power cut.
    #[default]
    Durable,
    /// When the record is in the log buffer. A crash loses about the last `loss_window` of such commits: their write begins when three
    /// quarters of it have passed, and a device that takes longer than the rest loses more. Never out of order: what survives is a
    /// consistent prefix.
    BoundedLoss,
    /// Like bounded loss without the bound: causes no device write of its own before half a log buffer has filled.
    Lazy,
}

/// What a device flush is believed to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum DeviceTrust {
    /// Ask the block device (`queue/write_cache`, `queue/fua`) and flush when its cache is volatile.
    #[default]
    Auto,
    /// Always flush.
    Flush,
    /// Believe that completed writes are durable (a drive with power-loss protection).
    Device,
}

/// All settings of a database. Made by `Database::builder()`.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Create the database if the directory holds none. Default true.
    pub create: bool,
    /// Open without writing anything; refused while a writer has the database. Default false.
    pub read_only: bool,
    /// Page size in bytes, a power of two from 4096 to 32768; fixed at creation. Default 4096.
    pub page_bytes: usize,
    /// How page images that are not expected to change soon are compressed. Default `lz4`.
    pub compression: Compression,
    /// Memory for everything in bytes (pages, versions, log buffers), at least 1 MiB. Default 1 GiB.
    pub memory_bytes: u64,
    /// Memory for old versions in bytes, at least 64 KiB. Default 256 MiB.
    pub version_bytes: u64,
    /// Commit protocol. Default `auto`.
    pub preset: Preset,
    /// Number of logs, 1 to 256; 0 chooses as `layout` says. Default 0.
    pub logs: usize,
    /// How many logs there are; none: as the preset says. Default none.
    pub layout: Option<Layout>,
    /// Threads that share a log, 1 to 64, where the layout is `threads-per-log`. Default 2.
    pub threads_per_log: usize,
    /// Who writes a log; none: as the preset says. Default none.
    pub writer: Option<Writer>,
    /// A log that nobody waits for is written about so often, and by `queued` also if somebody waits; up to 1 s. None chooses: 1 ms for
    /// `queued` and `restricted`, 50 to 200 us for `auto`, as the device is fast, 200 us otherwise. Default none.
    pub flush_interval: Option<Duration>,
    /// Writes of one log that a worker may have in flight, 1 to 3, where workers write. Default 2.
    pub writes_in_flight: usize,
    /// Whether a thread that writes several logs at once has them flushed together, where the file system lets one flush serve several files; none:
    /// as it measures. Default none.
    pub shared_flush: Option<bool>,
    /// Who acknowledges transactions that nobody waits with; none: as the preset says. Default none.
    pub acknowledger: Option<Acknowledger>,
    /// Logs that workers acknowledge for each other, 1 to 64, where workers acknowledge. Default 2.
    pub acknowledgment_group: usize,
    /// Workers acknowledge after one transaction in so many, at random, where workers acknowledge, 1 to 64; 0 chooses: log2 of the
    /// number of logs, at least 1. Default 1.
    pub acknowledgment_odds: u32,
    /// Logs whose waiting bytes a worker writes with its own, itself included, 0 to 64, where workers write; 0 and 1: only its own. None chooses: as
    /// many as CPUs share a cache, at most 8. Default none.
    pub stealing_group: Option<usize>,
    /// A worker that is idle between its transactions for this long, on average, has each written at once; for less, with that
    /// probability. Where workers write; up to 10 ms, 0 is off. Default 50 us.
    pub idle_most: Duration,
    /// What a durable transaction still waits for; none: as the preset says. Default none.
    pub dependency: Option<Dependency>,
    /// Where transactions wait that nobody waits with; none: `lock-free`. Default none.
    pub queue: Option<Queue>,
    /// Transactions that nobody waits with and that are not acknowledged, of all logs together: beyond it commits wait. 1024 to
    /// 32,768 and as many as a 128th of the memory holds, but at least 1024 a log. Default 32,768.
    pub queue_entries: usize,
    /// Bytes waiting in a log at which it is written although nobody waits (not for lazy commits alone), 4096 to 1 MiB; 0 chooses: 16 KiB, and
    /// for `restricted` three quarters of a log buffer. Default 0.
    pub flush_unit_bytes: usize,
    /// The longest that a log's buffers become in bytes (in mapped memory their length always), 64 KiB to 16 MiB; 0 chooses: 1 MiB, and
    /// for `restricted` 512 KiB for each of `threads_per_log`. Default 0.
    pub log_buffer_bytes: usize,
    /// Size of a log segment in bytes, 64 KiB to 1 GiB. Default 16 MiB.
    pub segment_bytes: u64,
    /// Log bytes after which a checkpoint starts by itself; 0 means never. Default 512 MiB.
    pub checkpoint_log_bytes: u64,
    /// How long recovery may take, in seconds, 1 to 3600: automatic checkpoints keep the log short enough. Default 5.
    pub recovery_seconds: u32,
    /// Log bytes at which commits wait for a checkpoint to free space; at least four segments, two for each log, and room for
    /// a transaction of `transaction_bytes_max` beside them. Default 2 GiB.
    pub log_bytes_max: u64,
    /// Largest redo size of one transaction in bytes, 4096 to 1 TiB; 0 chooses: two thirds of what `log_bytes_max` leaves beside
    /// the segments in use. Default 0.
    pub transaction_bytes_max: usize,
    /// Redo of a transaction in progress that is kept in memory, in bytes, 512 to half of `log_buffer_bytes`: beyond it the
    /// transaction writes chunks to its log. 0 chooses: a quarter of `log_buffer_bytes`. Default 0.
    pub chunk_bytes: usize,
    /// Those who wait for the next write let others join it that the last one released, where that pays. Default true.
    pub await_company: bool,
    /// Group commit: how long a leader gathers followers. Default zero.
    pub gather_window: Duration,
    /// Group commit: the window opens only if at least this many other transactions are in progress. Default 5.
    pub gather_siblings: usize,
    /// Group commit: most transactions in one flush; 0 means no limit. Default 0.
    pub gather_max: usize,
    /// Bounded loss: about how much a crash may lose, 1 ms to 60 s. Writes begin when three quarters of it have passed. Default 10 ms.
    pub loss_window: Duration,
    /// How long a write of the log may take before the database is given up as after a failed write, 100 ms to 1 h; 0: for ever. Default
    /// 60 s.
    pub write_deadline: Duration,
    /// How long a change waits for its row, whoever holds that meanwhile, before it fails with a conflict. Default 1 s.
    pub lock_wait: Duration,
    /// What a device flush is believed to do. Default `Auto`.
    pub device_trust: DeviceTrust,
    /// How writes are made durable. `None`: with `autonomous` and no `writer` what a probe at the first open for writing chose, otherwise DSYNC. Default
    /// none.
    pub durability_method: Option<MethodSetting>,
    /// Use io_uring where the kernel has it. Default true.
    pub io_uring: bool,
    /// The file of the memory-mapped log. With `passive`, `auto` and `writer = memory` commits become durable there, and nowhere else;
    /// otherwise where the one is that the database needs. Default none: as the database says, if it needs one.
    pub log_memory: Option<PathBuf>,
    /// Its length in bytes, 1 MiB to 64 GiB, a multiple of 4096; 0 chooses: as long as it is, and a new one 16 MiB. Default 0.
    pub log_memory_bytes: u64,
    /// What a power cut leaves of the processor's caches. Default `volatile`.
    pub memory_cache: MemoryCache,
    /// How cache lines reach the memory; none: as the processor does it best. Default none.
    pub memory_store: Option<MemoryStore>,
    /// Each insertion into mapped memory takes at least so long, to emulate slower media, up to 1 ms. Default zero.
    pub insertion_latency: Duration,
    /// Leaves after which a scan uses a scan buffer, however much memory is free; `None` lets memory decide. For tests with small
    /// tables.
    #[doc(hidden)]
    pub scan_buffer_from: Option<u64>,
}

/// Most bytes of a log buffer.
const LOG_BUFFER_BYTES_MOST: usize = 16 << 20;

/// An override of the durability method that the probe would choose.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum MethodSetting {
    /// The worker submits a DSYNC write.
    WorkerDsync,
    /// The worker submits a write with a linked flush.
    WorkerFlush,
    /// One sleeping flusher thread writes for all logs.
    Flusher,
}

impl MethodSetting {
    /// All methods with their names.
    pub const ALL: [(MethodSetting, &'static str); 3] = [
        (MethodSetting::WorkerDsync, "worker-dsync"),
        (MethodSetting::WorkerFlush, "worker-flush"),
        (MethodSetting::Flusher, "flusher"),
    ];
}

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
            layout: None,
            threads_per_log: 2,
            writer: None,
            flush_interval: None,
            writes_in_flight: 2,
            shared_flush: None,
            acknowledger: None,
            acknowledgment_group: 2,
            acknowledgment_odds: 1,
            stealing_group: None,
            idle_most: Duration::from_micros(50),
            dependency: None,
            queue: None,
            queue_entries: 32_768,
            flush_unit_bytes: 0,
            log_buffer_bytes: 0,
            segment_bytes: 16 << 20,
            checkpoint_log_bytes: 512 << 20,
            recovery_seconds: 5,
            log_bytes_max: 2 << 30,
            transaction_bytes_max: 0,
            chunk_bytes: 0,
            await_company: true,
            gather_window: Duration::ZERO,
            gather_siblings: 5,
            gather_max: 0,
            loss_window: Duration::from_millis(10),
            write_deadline: Duration::from_secs(60),
            lock_wait: Duration::from_secs(1),
            device_trust: DeviceTrust::Auto,
            durability_method: None,
            io_uring: true,
            log_memory: None,
            log_memory_bytes: 0,
            memory_cache: MemoryCache::default(),
            memory_store: None,
            insertion_latency: Duration::ZERO,
            scan_buffer_from: None,
        }
    }
}

impl Settings {
    /// Log space that `logs` logs need to go on: each fills a segment, and holds the next one before it gives that up.
    #[must_use]
    pub fn bytes_of_segments_in_use(&self, logs: usize) -> u64 {
        2 * logs as u64 * self.segment_bytes
    }

    /// The largest redo size of one transaction with `logs` logs, chosen if it was not said.
    #[must_use]
    pub fn transaction_bytes(&self, logs: usize) -> usize {
        if self.transaction_bytes_max != 0 {
            return self.transaction_bytes_max;
        }
        (self.log_bytes_beside_segments(logs) / 3 * 2).max(4096) as usize
    }

    /// Redo of a transaction in progress that is kept in memory.
    #[must_use]
    pub fn chunk_bytes(&self) -> usize {
        if self.chunk_bytes != 0 { self.chunk_bytes } else { self.log_buffer_bytes() / 4 }
    }

    /// Size of a log buffer.
    #[must_use]
    pub fn log_buffer_bytes(&self) -> usize {
        match (self.log_buffer_bytes, self.preset) {
            (0, Preset::Restricted) => (self.threads_per_log * (512 << 10)).min(LOG_BUFFER_BYTES_MOST),
            (0, _) => 1 << 20,
            (said, _) => said,
        }
    }

    /// Bytes waiting in a log at which it is written although nobody waits.
    #[must_use]
    pub fn flush_unit_bytes(&self) -> usize {
        match (self.flush_unit_bytes, self.preset) {
            (0, Preset::Restricted) => self.log_buffer_bytes() / 4 * 3,
            (0, _) => 16 << 10,
            (said, _) => said,
        }
    }

    /// How often a log is written that nobody waits for.
    #[must_use]
    pub fn flush_interval(&self) -> Duration {
        self.flush_interval.unwrap_or(match self.preset {
            Preset::Queued | Preset::Restricted => Duration::from_millis(1),
            _ => Duration::from_micros(200),
        })
    }

    /// Log space that may be kept after a checkpoint for the chunks of transactions that it does not contain. The rest is for
    /// everybody else until the next one.
    #[must_use]
    pub fn chunked_log_bytes(&self, logs: usize) -> u64 {
        self.log_bytes_beside_segments(logs) / 4 * 3
    }

    fn log_bytes_beside_segments(&self, logs: usize) -> u64 {
        self.log_bytes_max.saturating_sub(self.bytes_of_segments_in_use(logs))
    }

    /// Checks every setting alone and the relations between them.
    ///
    /// # Errors
    /// `InvalidArgument` that names the setting and its range, or the two that contradict each other.
    pub fn validate(&self) -> Result<()> {
        let within = |name: &'static str, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(Error::invalid(format!("{value} is outside {low} to {high}")).at(Location::Setting(name)))
        };
        within("page_bytes", self.page_bytes as u64, 4096, 32768)?;
        if !self.page_bytes.is_power_of_two() {
            return Err(Error::invalid(format!("{} is not a power of two", self.page_bytes))
                .at(Location::Setting("page_bytes")));
        }
        if !self.compression.is_built_in() {
            let what = format!(
                "this build cannot do {}: it lacks the cargo feature `zstd`",
                self.compression.name()
            );
            return Err(Error::new(ErrorKind::Unsupported, what).at(Location::Setting("compression")));
        }
        within("memory_bytes", self.memory_bytes, 1 << 20, 1 << 44)?;
        within("version_bytes", self.version_bytes, 64 << 10, 1 << 44)?;
        within("logs", self.logs as u64, 0, 256)?;
        within("threads_per_log", self.threads_per_log as u64, 1, 64)?;
        within("writes_in_flight", self.writes_in_flight as u64, 1, 3)?;
        within("acknowledgment_group", self.acknowledgment_group as u64, 1, 64)?;
        within("acknowledgment_odds", self.acknowledgment_odds.into(), 0, 64)?;
        within("stealing_group", self.stealing_group.unwrap_or(1) as u64, 0, 64)?;
        within("idle_most", microseconds(self.idle_most), 0, 10_000)?;
        within("queue_entries", self.queue_entries as u64, 1024, 32_768)?;
        if self.flush_unit_bytes != 0 {
            within("flush_unit_bytes", self.flush_unit_bytes as u64, 4096, 1 << 20)?;
        }
        let buffer = self.log_buffer_bytes();
        within("log_buffer_bytes", buffer as u64, 64 << 10, LOG_BUFFER_BYTES_MOST as u64)?;
        within("segment_bytes", self.segment_bytes, 64 << 10, 1 << 30)?;
        within("recovery_seconds", self.recovery_seconds.into(), 1, 3600)?;
        if self.transaction_bytes_max != 0 {
            within("transaction_bytes_max", self.transaction_bytes_max as u64, 4096, 1 << 40)?;
        }
        if self.chunk_bytes != 0 {
            within("chunk_bytes", self.chunk_bytes as u64, 512, buffer as u64 / 2)?;
        }
        within("loss_window", milliseconds(self.loss_window), 1, 60_000)?;
        if !self.write_deadline.is_zero() {
            within("write_deadline", milliseconds(self.write_deadline), 100, 3_600_000)?;
        }
        within("gather_window", milliseconds(self.gather_window), 0, 1_000)?;
        within("flush_interval", milliseconds(self.flush_interval()), 0, 1_000)?;
        if self.log_memory_bytes != 0 {
            within("log_memory_bytes", self.log_memory_bytes, 1 << 20, 64 << 30)?;
        }
        within("insertion_latency", microseconds(self.insertion_latency), 0, 1_000)?;
        within("lock_wait", milliseconds(self.lock_wait), 0, 3_600_000)?;
        let contradiction = |name, what: &str| Err(Error::invalid(what).at(Location::Setting(name)));
        if !self.segment_bytes.is_multiple_of(4096) {
            return contradiction("segment_bytes", "not a multiple of 4096");
        }
        if !self.log_memory_bytes.is_multiple_of(4096) {
            return contradiction("log_memory_bytes", "not a multiple of 4096");
        }
        if self.log_bytes_max < 4 * self.segment_bytes {
            return contradiction("log_bytes_max", "less than four times segment_bytes");
        }
        let segments = self.bytes_of_segments_in_use(self.logs.max(1));
        if self.log_bytes_max < segments + self.segment_bytes {
            let what = format!(
                "{} is too little: each of logs = {} needs two segments of segment_bytes = {}, the one it fills and the next, \
                 and a transaction needs room beside them",
                self.log_bytes_max, self.logs, self.segment_bytes
            );
            return contradiction("log_bytes_max", &what);
        }
        if self.log_bytes_max - segments < self.transaction_bytes_max as u64 {
            let what = format!(
                "{} is too much for log_bytes_max = {}: such a transaction would not fit beside the {segments} bytes of \
                 segments in use",
                self.transaction_bytes_max, self.log_bytes_max
            );
            return contradiction("transaction_bytes_max", &what);
        }
        if self.checkpoint_log_bytes > self.log_bytes_max / 2 {
            return contradiction("checkpoint_log_bytes", "more than half of log_bytes_max");
        }
        if self.flush_unit_bytes > buffer {
            return contradiction("flush_unit_bytes", "larger than log_buffer_bytes");
        }
        if self.read_only && self.device_trust == DeviceTrust::Device {
            return contradiction("device_trust", "a read-only database writes nothing");
        }
        Ok(())
    }
}

/// As many as can be said: one that is too long stays so.
fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
