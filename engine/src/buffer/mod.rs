//! Rank 4: which pages are in memory?
//!
//! A [`Pool`] is one stretch of reserved virtual memory in which the page with id *n* lives at
//! `base + n * page size`. The design is known as *vmcache* (Leis et al., "Virtual-Memory Assisted
//! Buffer Management", SIGMOD 2023). No hash table leads from ids to frames: finding a page is a
//! shift and an add, one atomic word per page says whether it is in memory, and the operating
//! system's page table does the rest. (A database with far more pages than fit in memory has
//! further stretches: see `page_space`.)
//!
//! ```text
//!          entries (one per page id)                 page memory (reserved)
//!         +-------------------------------+         +--------------+
//!  id 0   | never used                    |         |              |
//!  id 1   | state, version, epoch, dirty  | ------> | page 1       |
//!  id 2   | Evicted: image in the store   |         | (no memory)  |  --fault--> PageSource
//!  id 3   | Free: on the free list        |         | (no memory)  |
//!         +-------------------------------+         +--------------+
//! ```
//!
//! A page is read or changed through one of three guards:
//!
//! * [`OptimisticGuard`]: takes no latch and writes nothing shared; what was read counts only after
//!   [`OptimisticGuard::validate`] ([`latch`] explains why that is sound);
//! * [`SharedGuard`]: keeps writers out;
//! * [`ExclusiveGuard`]: keeps all other threads out; the only way to change a page.
//!
//! [`bytes`] is the only module that touches page memory. It does so through relaxed atomic words.
//! So reading a page during a change is a torn read, which validation detects, and not undefined
//! behaviour.
//!
//! The files are layers; each imports only files listed before it:
//!
//! | file | owns |
//! |---|---|
//! | `page_space` | the address space of page ids, which grows |
//! | `frames` | [`FrameTable`]: page memory, latches, flags, free ids |
//! | `fairness` | the fairness ticket and its wait queue |
//! | `eviction` | [`Eviction`]: the hand that chooses candidates, the signals of the evictor |
//! | `memory` | [`PageMemory`]: the budget; composes the three above |
//! | `loader` | bringing pages in, one or many at once |
//! | `scan_buffer`, `read_ahead` | what long scans ask for |
//! | `pool` | [`Pool`]: composes all, and is what other modules use |
//!
//! When the budget is nearly used up pages leave memory. Whether a page may leave, and its image,
//! are decided by the module `checkpoint`.

pub mod bytes;
mod heap;
pub mod latch;
mod page_ids;
mod prefetch;
mod region;
mod page_space;
mod source;

mod frames;

mod fairness;
mod guard;

mod eviction;

mod memory;

mod loader;

mod scan_buffer;

mod read_ahead;

mod pool;

mod leaving;
mod read_ahead_thread;

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
pub(crate) mod test_sources;

pub use bytes::{PAGE_HEADER_BYTES, PageBytes, PageBytesMut, ScratchPage};
pub use fairness::FairnessTicket;
#[cfg(feature = "internals")]
pub use frames::FrameTable;
pub use frames::HIDDEN_EPOCH;
pub use guard::{ExclusiveGuard, Interrupt, OptimisticGuard, SharedGuard};
pub use heap::free_memory_to_system;
pub use latch::{Restart, Version};
pub use leaving::{Claimed, Leaving, PageState};
pub use memory::EmergencyReserve;
pub use pool::Pool;
pub use prefetch::prefetch;
pub use read_ahead_thread::ReadAheadThread;
pub use scan_buffer::ScanBuffer;
pub use source::PageSource;
