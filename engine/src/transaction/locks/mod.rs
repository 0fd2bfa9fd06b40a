//! Locks that are no stamps: what transactions lock or mark besides the rows that they change, and
//! how they wait for one another.
//!
//! The exclusive lock of a row is the stamp in its page: it costs nothing beyond the change. This
//! module holds the rest:
//!
//! | lock | taken by | excludes |
//! |---|---|---|
//! | shared, on a key or an interval | pessimistic reads, `get_for_share`, `lock_table` | changes |
//! | update, on a key | `get_for_update` where reads lock | changes, other update locks |
//! | exclusive, on all keys | `lock_table` | changes, and locks of other transactions |
//! | mark, on a key or an interval | a commit that validates its reads | commits of changes |
//!
//! 1. *Publish, then look; look under the latch.* A reader publishes its lock, then reads the leaf,
//!    then waits for transactions that hold a row there. A writer latches the leaf, then looks for
//!    locks, then stamps the row. Entering the latch, the count of locks and its read are
//!    sequentially consistent, and a reader has a fence between its lock and the leaf. So one of
//!    the two sees the other. A writer that has to wait unlatches the leaf first.
//! 2. Without locks in a table, a writer's look is one load.
//! 3. Locks name keys, not entries of pages. So splits, merges, and entries that come and go do not
//!    concern them. A range is an interval of key bytes: a range of keys without rows is locked,
//!    too.
//! 4. Shared locks are kept until the CSN is drawn, exclusive ones until the change is visible.
//! 5. No thread waits for memory or runs code of the user while it holds a mutex of this module.

mod interval;
mod table;
mod late;
mod waiters;

pub use interval::Interval;
pub use late::LateReleases;
pub use table::{Held, LockMode, Locked, MarkPlace, TableLocks};
pub use waiters::{Access, InTable, Look, Request, Waiter, Waiters};

use super::descriptor::Descriptors;
use crate::sync::{Event, Mutex};
use std::sync::Arc;

/// What the locks of all tables share.
#[derive(Debug)]
pub struct Locks {
    /// The transactions that wait for others.
    pub waiters: Waiters,
    /// The rows that are held until their commit is durable.
    pub late: LateReleases,
    /// Happens when a validation has ended its marks.
    pub marks_ended: Event,
    /// Held by the validating transaction that waits for others with its marks.
    pub validation_turn: Mutex<()>,
}

impl Locks {
    /// Returns the state of locks, none of which is held, for the transactions of `descriptors`.
    #[must_use]
    pub fn new(descriptors: Arc<Descriptors>) -> Locks {
        Locks {
            waiters: Waiters::new(descriptors),
            late: LateReleases::default(),
            marks_ended: Event::new(),
            validation_turn: Mutex::new(()),
        }
    }
}
