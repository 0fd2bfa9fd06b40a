//! Sizes that a build for tests makes small, so that tests reach their edges.
//!
//! A simulation or a model checker runs a few hundred steps: rings have to wrap, bounds have to
//! bind, and an exhaustive model pays for every word. The code is the same at each scale. The
//! module that owns a size says what it means.

use super::settings::QUEUE_ENTRIES_DEFAULT;

/// One size for each constant that depends on the build.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Blocks of a log that would do with a shorter buffer, before it gets one.
    pub calm_blocks: u32,
    /// Queue entries of all logs together, unless the settings ask for more.
    pub queue_entries: usize,
    /// Queue entries of one log, at least.
    pub queue_entries_per_log_min: usize,
    /// CSNs that may be drawn and undecided at a time, at least; a power of two.
    pub ring_size_min: u64,
    /// CSNs between the look at the ring and the draw.
    pub draws_in_progress: u64,
    /// Lines of undecided transactions, of all logs together.
    pub undecided_lines: usize,
    /// Lines of undecided transactions of one log, at least.
    pub undecided_lines_per_log_min: usize,
    /// Blocks of a log that may be written and not durable.
    pub unflushed_blocks_max: u32,
    /// Waiting threads for each processor above which a flusher writes.
    pub leader_waiters_max: usize,
    /// Pauses for a thread that fences beside the latch, before a barrier.
    pub fence_pauses: u32,
    /// Pauses of a thread in the consolidation array, before it waits for the latch.
    pub consolidation_pauses: u32,
    /// Pages of a chunk of page clocks.
    pub clock_chunk: usize,
    /// Chunks of page clocks.
    pub clock_chunks: usize,
    /// Tombstones in a row that are worth a dead range.
    pub dead_run_min: usize,
    /// Log bytes for each thread that reads at recovery.
    pub recovery_bytes_per_thread: u64,
    /// Redo operations below which one thread applies them.
    pub parallel_redo_min: usize,
    /// Items examined during one hold of a yielding lock.
    pub lock_slice: usize,
}

const PRODUCTION: Scale = Scale {
    calm_blocks: 1024,
    queue_entries: QUEUE_ENTRIES_DEFAULT,
    queue_entries_per_log_min: 1024,
    ring_size_min: 65_536,
    draws_in_progress: 256,
    undecided_lines: 8192,
    undecided_lines_per_log_min: 128,
    unflushed_blocks_max: 1024,
    leader_waiters_max: 4,
    fence_pauses: 6,
    consolidation_pauses: 16,
    clock_chunk: 4096,
    clock_chunks: 16_384,
    dead_run_min: 16,
    recovery_bytes_per_thread: 1 << 20,
    parallel_redo_min: 4096,
    lock_slice: 1024,
};

/// For the engine's unit tests, and beneath the scales of the tools that run them.
const UNIT_TESTS: Scale =
    Scale { recovery_bytes_per_thread: 64 << 10, parallel_redo_min: 16, lock_slice: 64, ..PRODUCTION };

const BENEATH_TOOLS: Scale = if cfg!(test) { UNIT_TESTS } else { PRODUCTION };

/// For whole runs under the scheduler of this project.
const SIMULATION: Scale = Scale {
    calm_blocks: 8,
    ring_size_min: 256,
    draws_in_progress: 64,
    undecided_lines: 32,
    undecided_lines_per_log_min: 16,
    unflushed_blocks_max: 8,
    leader_waiters_max: 1,
    dead_run_min: 2,
    ..BENEATH_TOOLS
};

/// For Miri, which interprets each instruction.
const MIRI: Scale = Scale {
    ring_size_min: 64,
    draws_in_progress: 32,
    undecided_lines: 32,
    undecided_lines_per_log_min: 16,
    clock_chunks: 16,
    ..BENEATH_TOOLS
};

/// For shuttle, which switches threads at each access to memory that they share.
const SHUTTLE: Scale = Scale { queue_entries: 64, queue_entries_per_log_min: 16, fence_pauses: 1, ..MIRI };

/// For loom, which tries all orders: two lines, so that one is written over at once.
const LOOM: Scale = Scale {
    ring_size_min: 64,
    draws_in_progress: 32,
    undecided_lines: 2,
    undecided_lines_per_log_min: 2,
    fence_pauses: 0,
    consolidation_pauses: 1,
    clock_chunk: 2,
    clock_chunks: 1,
    ..BENEATH_TOOLS
};

/// The sizes of this build.
pub const SCALE: Scale = if cfg!(loom) {
    LOOM
} else if cfg!(feature = "shuttle") {
    SHUTTLE
} else if cfg!(miri) {
    MIRI
} else if cfg!(feature = "simulation") {
    SIMULATION
} else {
    BENEATH_TOOLS
};

const _: () = assert!(SCALE.ring_size_min.is_power_of_two() && SCALE.ring_size_min > SCALE.draws_in_progress);
const _: () = assert!(SCALE.undecided_lines >= SCALE.undecided_lines_per_log_min);
