//! The configuration that a seed draws: settings, threads, planned faults.

use crate::schedule;
use crate::support;
use crate::support::bank::{ALL_KINDS, LOOSE_KINDS};
use quenchdb::internals::base::environment::Environment;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::commit::presets;
use quenchdb::internals::device::simulated::{
    Device, Fault, FaultKind, Mishap, MishapKind, OperationKind, SimulatedStorage,
};
use quenchdb::internals::sync::simulation;
use quenchdb::{
    Axes, Compression, Dependency, IdleLogs, MemoryCache, MemoryFence, Settings, Writer, WriterOptions,
};
use std::time::Duration;

/// The configuration of a seed.
#[derive(Clone, Debug)]
pub struct Config {
    pub seed: u64,
    /// The kind of disk in all runs.
    pub device: Device,
    pub settings: Settings,
    /// Whether memory is so short that pages must leave it.
    pub tight: bool,
    pub threads: u8,
    /// Transactions of each thread of the first run.
    pub each: u8,
    /// Number of kinds of transaction ends.
    pub kinds: u64,
    /// Crashes of the first run.
    pub points: u64,
    /// Most crashes in a row, each inside the run after the previous crash.
    pub depth: u64,
    pub fault: PlannedFault,
    /// Whether threads of the first run panic or end in the middle of their work.
    pub threads_end_early: bool,
}

/// A fault that is planned for a run, besides the crash that ends the run.
#[derive(Clone, Copy, Debug)]
pub enum PlannedFault {
    None,
    /// A device operation fails with an error.
    Fault(Fault),
    /// A device operation goes wrong without an error.
    Mishap(Mishap),
    /// The disk is limited to this many bytes for a while.
    Full(u64),
    /// A thread whose name begins with the text panics at the operation with the number.
    Panic(&'static str, u64),
    /// After the first number of memory requests, the second number of requests fails.
    Memory(u64, u64),
    /// After the first number of thread starts, the second number of starts fails.
    Threads(u64, u64),
    /// Another machine claims the database while this run works.
    Takeover,
}

/// Salt of the draw in [`PlannedFault::or_in_process`].
const INSIDE: u64 = 0x9a21_c000;
/// Salt of another separate draw.
const DEVICE: u64 = 0xde11_ce00;
const PAGES: u64 = 0x9a9e_5000;
const SCANS: u64 = 0x5ca9_5000;

/// Names of user threads and engine threads.
const THREADS: [&str; 5] = ["worker", "worker", "quench-", "quench-flusher", "quench-evictor"];

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// Processors of the simulated machine.
pub fn processors() -> usize {
    2
}

/// Draws one of `all`.
pub fn one_of<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[random.below(all.len() as u64) as usize]
}

impl PlannedFault {
    /// Draws a fault after which nothing acknowledged may be missing.
    pub fn any_tolerable(random: &mut Random) -> PlannedFault {
        use OperationKind::{Any, AnyThatGrows, DurableWrite, Flush, Open, Read, Write, ZeroExtend};
        let bits = 1 + random.below(10);
        let after = random.below(1 << bits);
        match random.below(8) {
            0 | 1 => {
                let operation = one_of(random, &[Any, Read, Write, DurableWrite, Flush, ZeroExtend, Open]);
                let kind = one_of(random, &[FaultKind::Once, FaultKind::Once, FaultKind::ForEver]);
                PlannedFault::Fault(Fault { operation, after, kind, error: EIO })
            }
            2 => {
                let kind = one_of(random, &[FaultKind::Once, FaultKind::ForEver]);
                PlannedFault::Fault(Fault { operation: AnyThatGrows, after, kind, error: ENOSPC })
            }
            3 => PlannedFault::Full((64 << 10) * (1 + random.below(60))),
            _ => {
                let slow = MishapKind::Slow(Duration::from_micros(random.below(20_000)));
                use MishapKind::{Interrupted, Short, Stuck, TryAgain};
                let kinds = [Short, Interrupted, TryAgain, Stuck, slow];
                PlannedFault::Mishap(Mishap { operation: Any, after, kind: one_of(random, &kinds) })
            }
        }
    }

    /// Draws, if there is no fault, one inside the process once in `odds`. The separate draw
    /// keeps the rest of a seed independent of it.
    #[must_use]
    pub fn or_in_process(self, seed: u64, odds: u64) -> PlannedFault {
        let mut random = Random::from_seed(seed ^ INSIDE);
        if !schedule::is_interrupted() {
            return self;
        }
        if matches!(self, PlannedFault::None) && random.chance(1, odds) {
            return PlannedFault::any_in_process(&mut random);
        }
        self
    }

    /// Draws a fault inside the process: a panic at any operation, or refused memory or threads;
    /// mostly early.
    fn any_in_process(random: &mut Random) -> PlannedFault {
        if random.chance(1, 8) {
            return PlannedFault::Threads(random.below(8), 1 + random.below(3));
        }
        if random.chance(1, 3) {
            let (bits, most) = (1 + random.below(10), 1 + random.below(7));
            return PlannedFault::Memory(random.below(1 << bits), 1 + random.below(1 << most));
        }
        let bits = 1 + random.below(16);
        PlannedFault::Panic(one_of(random, &THREADS), random.below(1 << bits))
    }

    /// Draws a fault of a device that breaks its promises.
    pub fn any_broken_promise(random: &mut Random) -> PlannedFault {
        let kinds: Vec<_> = MishapKind::ALL.into_iter().filter(|kind| !kind.keeps_promises()).collect();
        let bits = 1 + random.below(8);
        let after = random.below(1 << bits);
        PlannedFault::Mishap(Mishap { operation: OperationKind::Any, after, kind: one_of(random, &kinds) })
    }

    /// Returns true if nothing may be refused because of the fault: the device is only slow or
    /// piecemeal.
    pub fn allows_work(self) -> bool {
        match self {
            PlannedFault::None => true,
            PlannedFault::Mishap(mishap) => mishap.kind.keeps_promises(),
            _ => false,
        }
    }

    pub fn inject(self, disk: &SimulatedStorage) {
        match self {
            PlannedFault::None | PlannedFault::Takeover => {}
            PlannedFault::Fault(fault) => disk.inject(fault),
            PlannedFault::Mishap(mishap) => disk.inject_mishap(mishap),
            PlannedFault::Full(bytes) => disk.set_capacity(Some(bytes)),
            PlannedFault::Panic(threads, after) => simulation::panic_later(threads, after),
            PlannedFault::Memory(after, times) => {
                Environment::current().into_iter().for_each(|own| own.fail_allocations(after, times));
            }
            PlannedFault::Threads(after, times) => {
                Environment::current().into_iter().for_each(|own| own.fail_thread_starts(after, times));
            }
        }
    }
}

/// Sets a number, where it has a place in the protocol.
fn set<T>(place: Option<&mut T>, number: T) {
    if let Some(place) = place {
        *place = number;
    }
}

/// Draws sizes and times, which may differ in each run, for whatever goes with the protocol.
fn with_any_sizes(settings: Settings, random: &mut Random) -> Settings {
    let us = Duration::from_micros;
    let mut sized = settings.with(|s| {
        s.lab.log_buffer_bytes = one_of(random, &[64 << 10, 100_000, 128 << 10, 256 << 10]);
        s.log_bytes_max = 8 << 20;
        s.lab.checkpoint_log_bytes = if random.chance(1, 3) { 64 << 10 } else { 0 };
        s.lab.flush_unit_bytes = one_of(random, &[4096, 4096, 5000, 16 << 10]);
        s.lab.chunk_bytes = if random.chance(1, 2) { 512 } else { 0 };
        s.loss_window = one_of(random, &[us(1_000), us(10_000), us(10_000)]);
        s.protocol_mut().await_cohort = random.chance(3, 4);
        s.lab.queue_entries = one_of(random, &[1024, 32_768]);
    });
    let mut perhaps = |set: fn(&mut Settings, u64)| {
        let mut other = sized.clone();
        set(&mut other, random.below(4));
        let logs = presets::log_count(&other, processors());
        if other.validate().is_ok() && presets::check(&other, logs).is_ok() {
            sized = other;
        }
    };
    // Sometimes so little that commits wait for checkpoints.
    perhaps(|settings, n| settings.log_bytes_max = if n == 0 { 1 << 20 } else { 8 << 20 });
    perhaps(|settings, n| {
        if let Some(gather) = settings.protocol_mut().gather_mut() {
            gather.window = Duration::from_micros([0, 0, 0, 300][n as usize]);
            gather.siblings = n as usize;
        }
    });
    perhaps(|settings, n| {
        let most = [None, None, Some(1), Some(3)][n as usize];
        set(settings.protocol_mut().gather_mut().map(|gather| &mut gather.most), most);
    });
    perhaps(|settings, n| {
        let writes = settings.protocol_mut().worker_mut().map(|worker| &mut worker.writes_in_flight);
        set(writes, 1 + n as usize % 3);
    });
    perhaps(|settings, n| {
        let group = settings.protocol_mut().acknowledgment_mut().map(|workers| &mut workers.group);
        set(group, 1 + n as usize);
    });
    perhaps(|settings, n| {
        let idle = settings.protocol_mut().worker_mut().map(|worker| &mut worker.idle_max);
        set(idle, Duration::from_micros([0, 50, 50, 2_000][n as usize]));
    });
    perhaps(|settings, n| settings.lab.insertion_latency = Duration::from_micros(n / 2));
    with_any_others(sized, random)
}

/// Draws all other settings that may differ at each open, one at a time, without contradictions.
fn with_any_others(settings: Settings, random: &mut Random) -> Settings {
    let us = Duration::from_micros;
    let mut drawn = settings;
    let mut perhaps = |set: &dyn Fn(&mut Settings, usize)| {
        let mut other = drawn.clone();
        set(&mut other, random.below(4) as usize);
        let logs = presets::log_count(&other, processors());
        if other.validate().is_ok() && presets::check(&other, logs).is_ok() {
            drawn = other;
        }
    };
    // Draws nothing, so that each seed keeps the draws that follow.
    perhaps(&|_, _| ());
    perhaps(&|settings, n| {
        settings.compression = [Compression::None, Compression::Zstd, Compression::Lz4, Compression::Lz4][n]
    });
    perhaps(&|settings, n| settings.segment_bytes = [64 << 10, 512 << 10, 128 << 10, 100 << 10][n]);
    perhaps(&|settings, n| {
        let axes = settings.protocol_mut();
        // In mapped memory no record waits for a flush.
        if axes.writer.kind() != Writer::Memory {
            axes.flush_interval = [axes.flush_interval, axes.flush_interval, us(100), us(2_000)][n];
        }
    });
    perhaps(&|settings, n| {
        if let Some(workers) = settings.protocol_mut().acknowledgment_mut() {
            workers.odds = [workers.odds, 1, 0, 2][n];
        }
    });
    // As many logs as processors divided by the threads per log.
    perhaps(&|settings, n| {
        let (logs, threads) = [(settings.logs, 2), (0, 1), (0, 2), (0, 3)][n];
        let shared = settings.protocol_mut().threads_mut();
        if shared.is_some() || threads == 2 {
            set(shared, threads);
            settings.logs = logs;
        }
    });
    perhaps(&|settings, n| settings.recovery_seconds = [5, 5, 1, 3_600][n]);
    perhaps(&|settings, n| settings.lock_wait = us([1_000_000, 1_000_000, 50_000, 1_000][n]));
    perhaps(&|settings, n| settings.write_deadline = Duration::from_secs([60, 60, 0, 3_600][n]));
    perhaps(&|settings, n| settings.version_bytes = [256 << 20, 256 << 20, 256 << 20, 128 << 10][n]);
    perhaps(&|settings, n| settings.lab.transaction_bytes_max = [0, 0, 0, 300 << 10][n]);
    perhaps(&|settings, n| settings.trim_log = n > 0);
    perhaps(&|settings, n| settings.change_history_bytes = [0, 0, 256 << 10, 16 << 20][n]);
    drawn
}

/// Fixed when a database is created. Little memory holds too few long pages.
fn page_bytes(seed: u64, tight: bool) -> usize {
    let mut random = Random::from_seed(seed ^ PAGES);
    if tight { 4096 } else { one_of(&mut random, &[4096, 4096, 4096, 8192, 16 << 10]) }
}

/// Leaves after which a scan uses a scan buffer. Most tables are below the threshold that memory
/// sets.
fn scan_buffer_from(seed: u64) -> Option<u64> {
    one_of(&mut Random::from_seed(seed ^ SCANS), &[Some(0), Some(0), Some(12), None])
}

/// The same in each run with a log in mapped memory: an existing memory has its length.
fn log_memory_bytes(seed: u64, settings: &Settings) -> u64 {
    let is_there = Axes::of(settings).writer.kind() == Writer::Memory;
    if is_there && seed.is_multiple_of(3) { 4 << 20 } else { 0 }
}

/// Sets what is chosen without a draw, so that all other choices of a seed stay what they were.
fn with_choices_of(seed: u64, settings: Settings) -> Settings {
    let bytes = log_memory_bytes(seed, &settings);
    let axes = Axes::of(&settings);
    let writer = axes.writer.kind();
    let in_memory = writer == Writer::Memory;
    let cache =
        if in_memory && seed.is_multiple_of(5) { MemoryCache::Durable } else { MemoryCache::Volatile };
    let has_clocks = matches!(axes.rule(), Dependency::Gsn | Dependency::GsnRfa);
    let choices = [IdleLogs::Raise, IdleLogs::Barrier, IdleLogs::Hold];
    let idle_logs = if has_clocks { choices[(seed / 7 % 3) as usize] } else { IdleLogs::Raise };
    let idle_logs = match (writer, (seed / 21).is_multiple_of(2)) {
        (Writer::Worker, true) if idle_logs == IdleLogs::Barrier => IdleLogs::Worker,
        (Writer::FlusherPerLog, true) => IdleLogs::Flusher,
        _ => idle_logs,
    };
    settings.with(|s| {
        s.protocol_mut().idle_logs = idle_logs;
        s.lab.log_memory_bytes = bytes;
        s.lab.memory_cache = cache;
        let fence = if (seed / 3).is_multiple_of(2) { MemoryFence::Beside } else { MemoryFence::Latched };
        if in_memory && cache == MemoryCache::Volatile {
            s.protocol_mut().writer = WriterOptions::Memory { fence };
        }
        s.lab.delta_logging = !seed.is_multiple_of(4);
    })
}

impl Config {
    pub fn of(seed: u64, points: u64) -> Config {
        let mut random = Random::from_seed(seed);
        let tight = random.chance(1, 4);
        let threads = 1 + random.below(4) as u8;
        let settings = support::any_protocol(seed, &mut random).with(|s| {
            s.compression = if random.chance(1, 4) { Compression::None } else { Compression::Lz4 };
            s.memory_bytes = if tight { 1 << 20 } else { 4 << 20 };
            s.segment_bytes = 64 << 10;
        });
        let settings = with_any_sizes(settings, &mut random);
        let settings = settings.with(|s| {
            s.page_bytes = page_bytes(seed, tight);
            s.lab.scan_buffer_from = scan_buffer_from(seed);
        });
        let settings = with_choices_of(seed, settings);
        let fault =
            if random.chance(1, 2) { PlannedFault::None } else { PlannedFault::any_tolerable(&mut random) };
        let fault = fault.or_in_process(seed, 4);
        Config {
            seed,
            device: Device {
                flushes_each_write: seed.is_multiple_of(5),
                ..Device::any(&mut Random::from_seed(seed ^ DEVICE))
            },
            settings,
            tight,
            threads,
            each: 4 + random.below(20) as u8,
            kinds: if random.chance(1, 6) { LOOSE_KINDS } else { ALL_KINDS },
            points,
            depth: 2 + u64::from(random.chance(1, 2)),
            fault,
            threads_end_early: random.chance(1, 6),
        }
    }

    /// The same memory with another protocol and other sizes: a database may be opened with any.
    pub fn other_protocol(&self, random: &mut Random) -> Settings {
        let other = support::any_protocol(random.next_u64(), random);
        let other = other.with(|s| {
            s.page_bytes = self.settings.page_bytes;
            s.memory_bytes = self.settings.memory_bytes;
            s.segment_bytes = 64 << 10;
            s.lab.scan_buffer_from = self.settings.lab.scan_buffer_from;
        });
        let drawn = with_any_sizes(other, random);
        with_choices_of(self.seed, drawn)
    }
}
