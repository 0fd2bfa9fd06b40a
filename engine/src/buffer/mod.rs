//! Rank 4: which pages are in memory?
//!
//! A [`Pool`] is one stretch of reserved virtual memory in which the page with id *n* lives at `base + n * page size`
//! (the design is known as *vmcache*). There is no hash table from ids to frames: finding a page is a shift and an add,
//! whether it is in memory is told by one atomic word per page, and the operating system's page table does the rest.
//!
//! ```text
//!             entries (one per page id)                    page memory (reserved, filled on first touch)
//!            +-------------------------------+            +----------------+
//!  id 0      | never used                    |            |                |
//!  id 1      | state, version, round, dirty  | ---------> | page 1         |
//!  id 2      | Evicted: image in the store   |            | (no memory)    |  --fault--> PageSource::read_page
//!  id 3      | Free: on the free list        |            | (no memory)    |
//!            +-------------------------------+            +----------------+
//! ```
//!
//! Three ways to look at a page, each a guard:
//!
//! * [`OptimisticGuard`]: takes nothing, writes nothing shared; what was read counts only after
//!   [`OptimisticGuard::validate`] says so ([`latch`] explains why that is sound);
//! * [`SharedGuard`]: no writer until it is dropped;
//! * [`ExclusiveGuard`]: nobody else until it is dropped; the only way to change a page.
//!
//! [`bytes`] is the only place that touches page memory. It does so through relaxed atomic words, so that reading a page
//! that is being changed is a torn read, which validation catches, and not undefined behaviour.
//!
//! When the budget is nearly used up pages leave memory (`eviction` chooses them). Whether a page may leave, and its
//! image, are for the layer above to say: see the room `checkpoint`.

mod allocator;
mod budget;
pub mod bytes;
#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod bytes_tests;
mod copies;
#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod copies_tests;
mod demand;
mod eviction;
#[cfg(all(test, not(any(loom, miri, feature = "shuttle"))))]
mod eviction_tests;
mod guard;
mod ids;
pub mod latch;
#[cfg(all(test, not(feature = "shuttle")))]
mod latch_tests;
mod pool;
#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod pool_tests;
mod prefetch;
mod read_ahead;
mod region;
#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
pub(crate) mod test_sources;
mod turn;

pub use allocator::free_memory_to_system;
pub use budget::Overdraft;
pub use bytes::{PageBytes, PageBytesMut, ScratchPage};
pub use copies::Copies;
pub use eviction::{Claimed, Leaving, PageState};
pub use guard::{ExclusiveGuard, OptimisticGuard, SharedGuard};
pub use latch::Version;
pub use pool::{PageSource, Pool};
pub use prefetch::prefetch;
pub use read_ahead::ReadAhead;
pub use turn::Turn;

use crate::base::Error;

/// The first bytes of every page belong to the store (checksum, page id, database id, checkpoint CSN).
pub const PAGE_HEADER_BYTES: usize = 32;

/// The round of a page that is not to have an image yet: as if it had one in every round.
pub const HIDDEN_ROUND: u32 = u32::MAX;

/// What was read optimistically may be torn: throw it away and start over. Never shown to callers of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restart;

/// Why an optimistic step did not get through. Code that walks pages optimistically returns this from its inner loop, so
/// that `?` serves both cases, and retries on [`Interrupt::Restart`].
#[derive(Debug)]
pub enum Interrupt {
    /// A writer was in the way.
    Restart,
    /// The page cannot be had.
    Failed(Error),
}

impl From<Restart> for Interrupt {
    fn from(_: Restart) -> Interrupt {
        Interrupt::Restart
    }
}

impl From<Error> for Interrupt {
    fn from(error: Error) -> Interrupt {
        Interrupt::Failed(error)
    }
}
