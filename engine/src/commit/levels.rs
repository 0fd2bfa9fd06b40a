//! When is a record due that no thread waits for?
//!
//! | level | blocking | asynchronous |
//! |---|---|---|
//! | durable | never by a timer: the committer causes the write | at once, or an interval after the last write |
//! | bounded loss | the same | before the loss window has passed |
//! | lazy | the same | never of its own accord |
//!
//! Levels differ only in when a write is caused. Every write of a log block is durable and takes
//! everything that the log holds, so a shared flush honours the strictest level (I15), and lazy
//! records are written with others. What a commit needs of other logs is due when the commit is, at
//! the levels durable and bounded loss ([`super::log_writer::FlushRequest`]): until then, recovery
//! would discard the commit. A waiter, at any level, causes the writes that it needs (rule 5, I14).

use super::axes::Axes;
use crate::base::clock::Nanos;
use crate::base::planted::{self, Bug};
use crate::base::settings::Durability;
use std::time::Duration;

/// No write is due.
pub(super) const NEVER: Nanos = Nanos(u64::MAX);
/// As soon as a thread can.
pub(super) const NOW: Nanos = Nanos(0);
/// What is due within so long is written with what is due now, and a log that others need is
/// written about so often. Measured: more often costs more CPU than it saves latency, see
/// `docs/guide/commit.md`.
pub(super) const PACE: Duration = Duration::from_micros(200);

/// `moment` plus `by`.
pub(super) fn after(moment: Nanos, by: Duration) -> Nanos {
    Nanos(moment.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
}

/// No log is written more often than this because the device is fast: a write costs its thread two
/// switches.
const INTERVAL_MIN: Duration = Duration::from_micros(50);

/// Returns the time between two writes of a log without waiters, on a device whose recent writes
/// took `mean_write`; zero if no write was measured.
///
/// If the interval follows the device, it is a quarter longer than a write takes. A commit then
/// waits about as long for the next write to begin as for that write to complete, and the device is
/// free some of the time for writes that threads wait for.
///
/// The configured interval is the upper bound. A slow device is always busy: a log has one write in
/// flight, and the commits that arrive meanwhile share the next one.
pub(super) fn interval(axes: &Axes, mean_write: Duration) -> Duration {
    if !axes.interval_follows_device || mean_write.is_zero() {
        return axes.flush_interval;
    }
    (mean_write + mean_write / 4).clamp(INTERVAL_MIN.min(axes.flush_interval), axes.flush_interval)
}

/// When a record that was ready at `ready` is due, in a log whose last write began at `last_write`
/// and that is written every `interval`.
pub(super) fn due(
    level: Durability,
    ready: Nanos,
    last_write: Nanos,
    interval: Duration,
    axes: &Axes,
) -> Nanos {
    match level {
        Durability::Durable if axes.window_after_arrival => after(ready, interval),
        Durability::Durable => ready.max(after(last_write, interval)),
        // The last quarter is for the write itself.
        Durability::BoundedLoss if planted::is(Bug::BoundedLossNeverDue) => NEVER,
        Durability::BoundedLoss => after(ready, axes.loss_window - axes.loss_window / 4),
        Durability::Lazy => NEVER,
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
