//! When is an appended record durable? In a file, when its block is written; elsewhere, earlier.

use super::log_writer::LogWriter;
use super::pending::{Pending, Ticket};
use crate::base::Csn;
use crate::base::clock::Nanos;
use crate::base::settings::Durability as Level;
use crate::device::mapped::MemoryFacts;
use crate::log::LogGuard;

/// What log buffers are in. Each method has the answer of ordinary memory: a record is durable when
/// its block is written.
pub trait Medium: Send + Sync {
    /// Returns whether a record may be durable before its block is written.
    #[inline]
    fn is_durable_memory(&self) -> bool {
        false
    }

    /// A record of `pending` was appended. Under the latch, for a step that must not fail.
    fn appended(&self, _pending: &Pending, _log: &LogWriter, _latch: &mut LogGuard<'_>) {}

    /// Hardens everything appended, under the latch. Returns whether it is durable now.
    fn harden(&self, _log: &LogWriter, _latch: &mut LogGuard<'_>) -> bool {
        false
    }

    /// The records of `ticket` are in `logs`, whose latches the calling thread has released.
    fn released(&self, _ticket: Ticket, _pending: &Pending, _logs: &[&LogWriter]) {}

    /// The filling buffer was sealed, under the latch.
    fn sealed(&self, _log: &LogWriter, _latch: &LogGuard<'_>) {}

    /// Returns when a log is due because of a record that no thread waits for; `None` as for a
    /// file.
    fn due(&self, _log: &LogWriter, _latch: &LogGuard<'_>, _level: Level, _ready: Nanos) -> Option<Nanos> {
        None
    }

    /// Hardens these logs, whichever threads appended. Returns false if each of them waits for a
    /// block to be written.
    fn drain(&self, _logs: &mut dyn Iterator<Item = &LogWriter>) -> bool {
        false
    }

    /// Hardens every log that holds W back at or below `csn`. Returns false if a block has to be
    /// written for that.
    fn drain_behind(&self, _csn: Csn) -> bool {
        false
    }

    /// Hardens what the transaction of `ticket` depends on, if the rule is not satisfied. Returns
    /// true if nothing has to be written for it.
    fn drain_for(&self, _ticket: Ticket) -> bool {
        false
    }

    /// Hardens these logs, which are due, and acknowledges what that commits.
    fn drain_and_acknowledge(&self, _logs: &mut dyn Iterator<Item = &LogWriter>) {}

    /// Returns a CSN below which everything is durable in segments; `None`: that is W.
    fn watermark_in_segments(&self) -> Option<Csn> {
        None
    }

    /// Returns the properties of the memory.
    fn facts(&self) -> Option<MemoryFacts> {
        None
    }

    /// Lets another owner map the memory.
    fn release(&self) {}
}

/// Ordinary memory, and files.
pub struct Files;

impl Medium for Files {}
