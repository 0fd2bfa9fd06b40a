//! When must a record reach the device if nobody waits for it?
//!
//! | level | blocking | asynchronous |
//! |---|---|---|
//! | durable | never by a timer: the committer has it written, now | soon: at once, or one interval after the log's last write |
//! | bounded loss | the same | before the loss window has passed |
//! | lazy | the same | never of its own accord |
//!
//! Levels differ only in when a write is caused. Every write of a log block is durable and takes everything with it
//! that the log holds, so a flush that levels share honours the strictest by construction (I15), and lazy records ride along.
//! A waiter, at any level, causes the writes that it needs (rule 5, I14): these due times stand between nobody
//! and the device.

use super::presets::Axes;
use crate::base::clock::Nanos;
use crate::base::settings::Durability;
use std::time::Duration;

/// Nothing has to be written by itself.
pub(super) const NEVER: Nanos = Nanos(u64::MAX);
/// As soon as somebody can.
pub(super) const NOW: Nanos = Nanos(0);
/// What is due within so long is written with what is due now, and a log that others need is written about so often. Measured: more
/// often costs more CPU than it saves latency, see `docs/commit.md`.
pub(super) const PACE: Duration = Duration::from_micros(200);

/// `moment` plus `by`.
pub(super) fn after(moment: Nanos, by: Duration) -> Nanos {
    Nanos(moment.0.saturating_add(by.as_nanos() as u64))
}

/// When a record that was ready at `ready` is due, in a log whose last write began at `last_write`.
pub(super) fn due(level: Durability, ready: Nanos, last_write: Nanos, axes: &Axes) -> Nanos {
    match level {
        Durability::Durable => ready.max(after(last_write, axes.flush_interval)),
        // The last quarter is for the write itself.
        Durability::BoundedLoss => after(ready, axes.loss_window - axes.loss_window / 4),
        Durability::Lazy => NEVER,
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;
    use crate::base::settings::Settings;

    #[test]
    fn each_level_is_due_when_it_promises() {
        let settings = Settings { loss_window: Duration::from_millis(8), ..Settings::default() };
        let due = |level, ready, last_write| due(level, ready, last_write, &Axes::of(&settings));
        let ready = Nanos(10_000_000);
        assert_eq!(due(Durability::Durable, ready, Nanos(0)), ready);
        assert_eq!(due(Durability::Durable, ready, ready), Nanos(10_200_000));
        assert_eq!(due(Durability::BoundedLoss, ready, ready), Nanos(16_000_000));
        assert_eq!(due(Durability::Lazy, ready, ready), NEVER);
    }
}
