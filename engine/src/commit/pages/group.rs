//! `group`: leader/follower group commit.
//!
//! **After**: group commit as PostgreSQL does it (`commit_delay`, `commit_siblings`; DeWitt et al.,
//! SIGMOD 1984).
//!
//! **Here**:
//! 1. A committer appends its record and looks whether its log has a leader.
//! 2. If not, it becomes the leader: it seals everything appended so far into one block and writes
//!    that, durably.
//! 3. If there is a leader, the committer is a follower: it sleeps. The leader wakes all followers
//!    with one system call when its write has completed. Those that the write did not cover race to
//!    lead the next one.
//! 4. Before it writes, a leader may gather followers for `gather_window`, if enough other
//!    transactions are in progress (`gather_siblings`), and until there are `gather_max`. Without a
//!    window a batch is what arrived during the previous write, and its cohort (`cohort`):
//!    committers let those return first that the previous write released. One committer keeps the
//!    time.
//! 5. Where no thread waits, the background thread writes, every interval.
//!
//! ```text
//!   leader      append | become leader (gather) seal  write ========= durable | wake all | committed
//!   follower      append | sleep ........................................... | committed
//!   late              append after the seal | sleep ........................ | become leader, write ...
//! ```
//!
//! **Different from PostgreSQL**: the cohort, which replaces guessing a window; and a batch has no
//! object of its own. A follower looks for its CSN, so none is stranded between two leaders.

use super::Lead;
use crate::base::clock::Nanos;
use crate::base::settings::Axes;
use crate::base::{Csn, Result};
use crate::commit::core::levels::NOW;
use crate::commit::core::log_writer::LogWriter;
use crate::commit::core::pending::Ticket;
use crate::commit::core::protocol::{Parts, Protocol};
use crate::commit::core::writes::Writes;
use std::sync::Arc;

/// One log, which leaders write and acknowledge.
pub const AXES: Axes = Axes::COMMON;

/// See the module's text.
pub struct Group {
    writes: Arc<Writes>,
    lead: Lead,
}

impl Group {
    pub fn new(parts: &Parts<'_>) -> Group {
        Group { writes: parts.writes.clone(), lead: Lead::new(parts.writes.clone(), parts.axes) }
    }
}

impl Protocol for Group {
    fn appended(&self, log: &LogWriter, due: Nanos, _ready: Nanos) {
        self.writes.flushers.of(log).wake_for(due);
    }

    fn wait(&self, ticket: Ticket, is_committer: bool, deadline: Option<Nanos>) -> Result<()> {
        self.lead.wait(ticket, is_committer, deadline, |log| self.advance(log, ticket.csn, NOW))
    }

    fn advance(&self, log: &LogWriter, csn: Csn, _by: Nanos) -> bool {
        self.lead.lead(log, csn)
    }
}
