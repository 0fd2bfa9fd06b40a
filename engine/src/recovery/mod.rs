//! Rank 8: what is true after a crash?
//!
//! ```text
//!   flush the log ─▶ scan ─▶ select ─▶ redo ─▶ append volatile records again
//!     ─▶ publish epoch + 1 ─▶ serve
//! ```
//!
//! 1. Nothing is served before the manifest with the new epoch is durable. A crash before that
//!    finds everything as it was, and recovers again.
//! 2. The manifest names what a recovery discards (aborted CSNs, accepted ends), so it stays
//!    discarded although the log still holds it.
//! 3. No epoch writes into a segment of a killed process. It is removed when a checkpoint covers
//!    it. On a full disk an obsolete segment is removed at once: its blocks are covered, or of an
//!    epoch after the manifest's, and do not count. So this recovery, and the next one after a
//!    crash, decides as if the segment were there.
//! 4. The log is read twice: the scan learns what is there, then its records come in CSN order, a
//!    window at a time. What fits in memory is kept between the two.
//! 5. A database that was closed needs none of this: its checkpoint is everything.
//! 6. Blocks that only mapped memory holds are written to a segment, durably, before anything is
//!    decided. So from there on the memory is not needed, and may be used again.

mod report;
mod threads;
pub mod select;
mod window;
mod chunks;
mod redo;
mod memory;
mod check;
mod copied;
mod applied;
mod segments;
mod replay;
mod epoch;

pub use applied::Applied;
pub use check::{Running, check_log, unreadable_log};
pub use copied::CopiedLog;
pub use memory::replay_limits;
pub use replay::Recovery;
pub use report::RecoveryReport;
pub use segments::is_foreign;
