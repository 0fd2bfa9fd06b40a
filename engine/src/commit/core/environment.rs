//! The environment that all components of the commit layer share and none owns: time, storage,
//! counters, and the poison.

use super::metrics::CommitMetrics;
use super::poison::Poison;
use crate::base::clock::{Clock, Nanos};
use crate::base::{Epoch, Error, ErrorKind, Result};
use crate::device::Storage;
use crate::log::SegmentPool;
use crate::sync::atomic::AtomicBool;
use crate::sync::{Event, Process, event};
use std::sync::Arc;
use std::time::Duration;

/// Callbacks into the layers above.
pub struct Hooks {
    /// Log space runs short: start a checkpoint, for example. Called by committers that wait; must
    /// not block.
    pub on_log_pressure: Box<dyn Fn() + Send + Sync>,
    /// Returns whether a checkpoint would give back a good part of the page store's reserve.
    pub is_checkpoint_worthwhile: Box<dyn Fn() -> bool + Send + Sync>,
    /// Returns about how many read-write transactions are in progress that have not asked to
    /// commit. Asked by a leader that may gather followers.
    pub in_progress: Box<dyn Fn() -> usize + Send + Sync>,
}

impl Default for Hooks {
    fn default() -> Self {
        Hooks {
            on_log_pressure: Box::new(|| ()),
            is_checkpoint_worthwhile: Box::new(|| false),
            in_progress: Box::new(|| usize::MAX),
        }
    }
}

/// See the module's text.
pub struct Environment {
    /// The epoch of the records written now.
    pub epoch: Epoch,
    pub clock: Clock,
    pub hooks: Hooks,
    pub storage: Arc<dyn Storage>,
    pub segments: Arc<SegmentPool>,
    pub metrics: Arc<CommitMetrics>,
    pub poison: Poison,
    /// Notified when a leader of any log has resigned, hence after W may have risen.
    pub progress: Event,
    /// Notified when log space may have become free.
    pub space: Event,
    /// No new transaction may commit. Read under each latch.
    pub closing: AtomicBool,
    /// The process that opened the database.
    pub process: Process,
}

impl Environment {
    /// Returns the moment `timeout` from now.
    pub fn deadline(&self, timeout: Option<Duration>) -> Option<Nanos> {
        timeout.map(|t| super::levels::after(self.clock.now(), t))
    }

    /// Sleeps until `event` happens.
    ///
    /// # Errors
    /// `Timeout` at `deadline`.
    pub fn sleep(&self, event: &Event, woken: event::Ticket, deadline: Option<Nanos>) -> Result<()> {
        let timeout = match deadline.map(|d| d.since(self.clock.now())) {
            Some(left) if left.is_zero() => {
                return Err(Error::new(ErrorKind::Timeout, "the commit is not durable yet"));
            }
            timeout => timeout,
        };
        event.wait(woken, timeout);
        self.metrics.sleeps.add(1);
        Ok(())
    }

    /// Runs `step` under the latch of a log, or of several. If it panics, commits stop before
    /// another thread has the latch: otherwise that thread would append behind what is not in the
    /// log, or not fenced, or wait for a CSN that has no record (rule 2).
    #[inline]
    pub fn latched<T>(&self, step: impl FnOnce() -> T) -> T {
        let poison = PoisonUnlessFinished(&self.poison);
        let done = step();
        std::mem::forget(poison);
        done
    }
}

/// Poisons if it is dropped and not forgotten. Waiters are woken, and the failure is reported, by
/// the `PoisonOnPanic` around it: either may run a user's code, which may wait for the latch.
struct PoisonUnlessFinished<'a>(&'a Poison);

impl Drop for PoisonUnlessFinished<'_> {
    #[cold]
    fn drop(&mut self) {
        self.0.note_panic();
        self.0.raise(super::poison::panic_of("a thread appending to a log"));
    }
}
