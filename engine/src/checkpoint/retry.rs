//! When who evicts tries again what did not help, or failed.

use crate::base::clock::Nanos;
use crate::base::{Error, ErrorKind};
use std::time::Duration;

/// How long nothing is tried: at least so long, and then until somebody asks for memory, or the most has passed.
pub(super) struct Pause {
    pub least: Duration,
    pub most: Option<Duration>,
}

impl Pause {
    pub const NONE: Pause = Pause { least: Duration::ZERO, most: None };
    /// Nothing could leave: transactions have to go on first. Who needs memory then asks again.
    pub const WHEN_FUTILE: Pause = Pause { least: Duration::from_millis(1), most: None };
    /// The same, and not because of what is in the pages, or there are more than the budget allows for. Whether that is over is found
    /// out although nobody asks.
    pub const BEFORE_LONG: Pause = Pause { least: Duration::from_millis(1), most: Some(RETRY) };
    const AFTER_FAILURE: Pause = Pause { least: RETRY, most: Some(Duration::ZERO) };

    /// `left`: what need not be written has left, and may not have been enough.
    pub const fn after_failure(left: bool) -> Pause {
        if left { Pause::BEFORE_LONG } else { Pause::AFTER_FAILURE }
    }
}

/// What a disk refused is tried again after this long...
const RETRY: Duration = Duration::from_millis(100);
/// ... or after twice as long as the last time, up to this.
const RETRY_MOST: Duration = Duration::from_secs(10);

/// Pages could not be written, and none has been since.
pub(super) struct Failed {
    error: Error,
    since: Nanos,
    /// Nothing is written for so long.
    pause: Duration,
}

impl Failed {
    /// Once more, after `last`.
    pub fn again(last: Option<Failed>, error: Error, now: Nanos) -> Failed {
        // A full disk has most likely given no block that could be lost.
        let most = if error.kind() == ErrorKind::OutOfSpace { RETRY } else { RETRY_MOST };
        let pause = last.map_or(RETRY, |last| (2 * last.pause).min(most));
        Failed { error, since: now, pause }
    }

    /// The error, if it is too early to write again.
    pub fn still(&self, now: Nanos) -> Option<Error> {
        (now.since(self.since) < self.pause).then(|| self.error.duplicate())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_unless_the_disk_is_full() {
        let second = |n: u64| Nanos(n * 1_000_000_000);
        let pauses = |kind| {
            let mut failed = None;
            let again = |n| {
                let next = Failed::again(failed.take(), Error::new(kind, "no"), second(n));
                assert!(next.still(second(n)).is_some_and(|error| error.kind() == kind));
                assert!(next.still(second(n + 10)).is_none());
                let pause = next.pause;
                failed = Some(next);
                pause.as_millis()
            };
            (0..9).map(again).collect::<Vec<_>>()
        };
        assert_eq!(pauses(ErrorKind::Io), [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert_eq!(pauses(ErrorKind::OutOfSpace), [100; 9]);
    }
}
