//! Rank 3: what changed, in what order?
//!
//! A database has n logs. A transaction is one contiguous redo **record** in one of them, a long
//! one several (see `part`), or, where changes are divided by page, one in each of several logs
//! (see `fragment`); a flush writes one **block** of records; blocks fill preallocated **segments**
//! that are recycled after a checkpoint.
//!
//! ```text
//!   log 0   segment 7 ┌ block 41 ──────────────┬ block 42 ─────┐ segment 9 ┌ block 43 …
//!                     │ head│rec│rec│rec│0…0   │ head│rec│0…0  │           │
//!                     └ whole sectors ─────────┴───────────────┘           └
//! ```
//!
//! 1. CSNs rise with position within a log (invariant I3); block sequences are dense within a log
//!    and epoch.
//! 2. A block is whole sectors, and no sector is written twice (I4): what a flush does not fill is
//!    padding.
//! 3. A block is believed only as a whole: its header is checksummed and checksums the payload, and
//!    names database, log, epoch and sequence. A torn, misdirected or stale block is recognised,
//!    whatever was in the segment before.
//! 4. The durable frontier is the end of the gap-free prefix of completed block sequences, whatever
//!    completes first. A block counts for the log and sequence in its header, in whichever log's
//!    segment it lies: a peer may have carried it.
//! 5. After `reserve` said yes, `append` cannot fail, allocates nothing and calls nothing.
//!
//! With log buffers in mapped memory ([`memory`]) a record is durable before its block is written.
//!
//! There is no segment header: the first block of a segment says what it holds, so that switching
//! segments costs no write of its own.

mod fragment;
mod part;
mod record;
mod divide;
mod redo;
mod block;
mod sealed;
mod segment;
mod pieces;
mod scanned;
mod chain;
mod reader;
mod check;
mod follow;
mod beside;
mod read_log;
mod dump;
mod medium;
mod parking;
mod buffer_size;
mod stream;
pub mod memory;
#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
pub(crate) mod test_world;
#[cfg(test)]
mod tests;
#[cfg(all(test, feature = "object-storage", not(any(loom, feature = "shuttle"))))]
mod ahead_tests;

pub use crate::device::{LOG_DIRECTORY as DIRECTORY, id_of as segment_id, next_id, path_of};
pub use beside::{Look, SegmentWatcher, in_memory};
#[cfg(feature = "internals")]
pub use block::BLOCK_HEADER_BYTES;
pub use block::{SegmentContent, content_of, database_of};
pub use buffer_size::BufferSize;
pub use chain::Chain;
pub use check::{ChainEnd, LogContents, Wanted, read_contents};
pub use divide::Fragments;
pub use dump::{DumpedRecord, dump};
pub use follow::{FollowedBlock, Follower, LogView};
pub use fragment::{FRAGMENTS_MAX, Fragment};
pub use medium::Fenced;
pub use part::{Part, RecordKind, counting_bytes};
pub use read_log::ReadLog;
pub use reader::{Scan, ScanOptions, ScannedSegment, scan, scan_what_is_readable};
pub use record::{
    DependencyRule, LISTED_MAX, Operation, Pieces, RECORD_HEADER_BYTES, Record, RecordHeader,
    begins_with_catalog_change, first_operation, operations, record_bytes,
};
pub use redo::{RedoBuffer, RedoMark};
#[cfg(feature = "internals")]
pub use scanned::load_all;
pub use scanned::{Batch, LoadedBlock, ScannedBlock, load};
pub use sealed::SealedBlock;
pub use segment::{FIRST_BYTES as FIRST_SEGMENT_BYTES, FeedId, Readable, Segment, SegmentPool, SpaceTicket};
#[cfg(feature = "internals")]
pub use stream::BUFFERS;
pub use stream::{Log, LogGuard, Reserve};
