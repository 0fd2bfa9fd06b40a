//! Rank 8: what did transactions change, in the order of their commits?
//!
//! ```text
//!   log 0   [ 1  3  4 ] [ 8  9 ]        follow: each block once, when it is durable
//!   log 1   [ 2  5 ] [ 6  7  10 ]
//!                                       merge: records in CSN order, below the watermark
//!   1 2 3 4 5 6 7 8 9                   select: what recovery discarded is left out
//!   T1 T2 T4 T5 T7 T8 T9                transactions: chunks and fragments put together
//! ```
//!
//! 1. A feed returns a transaction when every CSN up to its own is durable. So everything that the
//!    transaction depends on is committed, and no crash takes it back.
//! 2. It returns each transaction above its position once, in CSN order. CSNs are dense (I3), so a
//!    missing record is noticed: the feed has fallen behind, or the log is damaged.
//! 3. A record counts if its epoch could draw its CSN and no recovery has discarded it. Records
//!    that recovery appended again are recognised by their CSN.
//! 4. Segments that a feed has not read are retained up to a bound (see `log::segment::history`).
//!    Beyond the bound the feed falls behind; commits do not wait for feeds.

mod behind;
mod merge;
mod chunks;
mod names;
mod transaction;
mod selection;
mod assembler;
mod reader;
mod applied;
mod directory;
mod tail;
pub use directory::DirectoryLog;
pub use names::ChangedTable;
pub use reader::{Changes, FeedStart};
pub use selection::CountedEpochs;
pub use tail::{LogTail, TailLog};
pub use transaction::{Change, ChangesOf, CommittedTransaction};
