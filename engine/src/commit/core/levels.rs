//! When is a record due that no thread waits for?
//!
//! | level | blocking | asynchronous |
//! |---|---|---|
//! | durable | never by a timer: the committer causes the write | at once, or an interval after the last write |
//! | bounded loss | the same | before the loss window has passed |
//! | written | it writes without a flush ([`super::written`]); durable as bounded loss | as bounded loss |
//! | lazy | the same | never of its own accord; see `Waiting::hasten` |
//!
//! Levels differ only in when a write is caused. Every write of a log block takes everything that
//! the log holds, and is durable unless a committer of level written caused it. So a shared flush
//! honours the strictest level (I15), and lazy records are written with others. What a commit needs
//! of other logs is due when the commit is, at the levels durable and bounded loss
//! ([`super::log_writer::FlushRequest`]): until then, recovery would discard the commit. A waiter,
//! at any level, causes the writes that it needs (rule 5, I14).

use crate::base::clock::Nanos;
use crate::base::planted::{self, Bug};
use crate::base::settings::{Axes, Durability, Settings};
use std::time::Duration;

/// No write is due.
pub const NEVER: Nanos = Nanos(u64::MAX);
/// As soon as a thread can.
pub const NOW: Nanos = Nanos(0);
/// What is due within so long is written with what is due now, and a log that others need is
/// written about so often. Measured: more often costs more CPU than it saves latency, see
/// `docs/guide/commit.md`.
pub const PACE: Duration = Duration::from_micros(200);

/// `moment` plus `by`.
pub fn after(moment: Nanos, by: Duration) -> Nanos {
    Nanos(moment.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
}

/// The times that a record may wait that no thread waits for.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// `interval` is a window that the first record after a write opens.
    is_window: bool,
    /// Between two writes of a log.
    interval: Duration,
    loss_window: Duration,
}

impl Waits {
    pub fn new(axes: &Axes, settings: &Settings) -> Waits {
        let (is_window, interval) = (axes.queues_waiters(), axes.flush_interval);
        Waits { is_window, interval, loss_window: settings.loss_window }
    }
}

/// When a record that was ready at `ready` is due, in a log whose interval between two writes began
/// at `interval_began`.
///
/// The interval does not follow the device: a write costs 15 to 25 us of processor time, whatever
/// the device takes. Measured with two busy threads, writes every 50 us to a device of 15 us took
/// a fifth of the throughput. A slow device groups by itself: a log has one write in flight.
pub fn due(level: Durability, ready: Nanos, interval_began: Nanos, waits: &Waits) -> Nanos {
    let Waits { is_window, interval, loss_window } = *waits;
    match level {
        Durability::Durable if is_window => after(ready, interval),
        Durability::Durable => ready.max(after(interval_began, interval)),
        // The last quarter is for the write itself.
        Durability::BoundedLoss if planted::is(Bug::BoundedLossNeverDue) => NEVER,
        Durability::BoundedLoss | Durability::Written => {
            debug_assert!(!loss_window.is_zero(), "a loss window has a length");
            after(ready, loss_window - loss_window / 4)
        }
        Durability::Lazy => NEVER,
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
