//! Segments: preallocated, zero-filled files, prepared off the commit path and recycled after
//! checkpoints.
//!
//! ```text
//!   preparer ──▶ READY ──take──▶ ACTIVE (a log writes it) ──retire──▶ RETIRED ──recycle──▶ READY
//!                                                      max CSN <= what is covered, and
//!                                                      no block of it is still to be written
//!   RETIRED ──recycle──▶ RETAINED ──▶ READY      while change feeds need it: see `history`
//! ```
//!
//! 1. Segments in use never take more than `log_bytes_max`; at the bound `take` says no, and the
//!    commit room waits for a checkpoint.
//! 2. A recycled segment is not written to become READY: its old blocks are recognised as stale by
//!    their epoch, sequence and CSNs.
//! 3. Segments of a killed process are removed, not recycled: a write of that process may still be
//!    on its way, and would overwrite another block. (In a deleted file that write is harmless.)
//! 4. A checkpoint may cover a block that is not written yet: its records are durable in mapped
//!    memory. Its place is not reused before it is written.
//! 5. The number in a file's name is a slot, it says nothing about order.
//! 6. Every segment file is READY, ACTIVE, RETIRED, RETAINED, being made, or to be removed: any
//!    other file would stay until the next open.
//! 7. A database that was not closed has at least one file, so that recovery can distinguish a lost
//!    log from an empty one.
//! 8. The first segments are short, so that a small database has a small log. The next one has four
//!    times the length of the longest that a log took or missed, up to `segment_bytes`. Only
//!    segments of at least that length count as spare and are recycled; without `trim_log` all are
//!    recycled. On a full disk segments are short: see `cramped`. Until a log has filled a segment,
//!    one spare segment is enough: a short session makes none.
//! 9. The name of a segment is durable before a log takes the segment. One flush of the directory
//!    serves all that are made before the database is served.
//! 10. A clean close removes all segments but two short ones ([`SegmentPool::trim`]), if
//!     `trim_log`. By then the manifest durably says that no segment is needed.

mod file;
mod history;
mod state;
mod pool;
mod cramped;
mod prepare;
mod pressure;
mod stale;
mod trim;
#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;

pub use file::{OpenBlock, OpenBlocks, Readable, Segment};
pub use history::FeedId;
pub use pool::{FIRST_BYTES, SegmentPool};
pub use pressure::SpaceTicket;
