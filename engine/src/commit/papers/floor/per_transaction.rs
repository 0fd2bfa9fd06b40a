//! `per-transaction`: one durable write for each commit.
//!
//! **After**: nothing in particular; it is the floor that every other protocol is compared with.
//! Throughput is bounded by one divided by the time of a durable write.
//!
//! **Here**: each record is a block of its own, sealed when it is appended. A committer becomes the
//! leader of the log, writes its own block, and resigns: the writes of a log follow each other, and
//! none is shared. Asynchronous commits are written by the background thread, one block after the
//! other.
//!
//! ```text
//!   committer 1    latch: draw CSN, append, seal | leader: write ==== | committed
//!   committer 2    latch: draw CSN, append, seal | sleep ............ | leader: write ==== | committed
//! ```
//!
//! With one log there is no dependency to wait for. A record is durable when all before it in the
//! log are, so a committer whose own block is written may have to write an earlier one, too.

use crate::base::clock::Nanos;
use crate::base::settings::{Axes, WriterOptions};
use crate::base::{Csn, Result};
use crate::commit::core::levels::NOW;
use crate::commit::core::log_writer::LogWriter;
use crate::commit::core::pending::Ticket;
use crate::commit::core::protocol::Protocol;
use crate::commit::core::writes::Writes;
use std::sync::Arc;

pub const AXES: Axes = Axes { writer: WriterOptions::Committer, ..Axes::COMMON };

/// See the module's text.
pub struct PerTransaction(pub Arc<Writes>);

impl Protocol for PerTransaction {
    fn appended(&self, log: &LogWriter, due: Nanos, _ready: Nanos) {
        self.0.flushers.of(log).wake_for(due);
    }

    fn wait(&self, ticket: Ticket, _is_committer: bool, deadline: Option<Nanos>) -> Result<()> {
        self.0.wait(ticket, deadline, |log| self.advance(log, ticket.csn, NOW))
    }

    /// Writes the block of `csn`, or an earlier one if that is written already.
    fn advance(&self, log: &LogWriter, csn: Csn, _by: Nanos) -> bool {
        let Some(leader) = self.0.try_become_leader(log) else { return false };
        if csn <= log.log.durable_csn() {
            return true;
        }
        let Some(block) = log.take_block_for(csn) else { return self.0.flush_written(log) };
        self.0.write_durably(leader.log(), block, &self.0.environment.metrics.leader_flushes);
        self.0.acknowledgments.publish();
        true
    }
}
