//! When who evicts tries again, above all while writes of pages fail.
//!
//! An attempt that fails loses the blocks that it tried: their bytes may still arrive, so they are used for nothing else until the next open. So
//! attempts are made less and less often, and the first write of each goes to a block that is lost already ([`DiskSpace::retry_leaked_block`]).
//!
//! Not for a full disk: that takes no block away, and there is space again as soon as a checkpoint ends.

use crate::base::clock::{Clock, Nanos};
use crate::base::{Error, ErrorKind};
use crate::store::PageStore;
use std::time::Duration;

/// How long nothing is tried: at least so long, and then until somebody asks for memory, or the most has passed.
pub(super) struct Pause {
    pub(super) least: Duration,
    pub(super) most: Option<Duration>,
}

impl Pause {
    pub(super) const NONE: Pause = Pause { least: Duration::ZERO, most: None };
    /// Nothing could leave: transactions have to go on first. Who needs memory then asks again.
    pub(super) const WHEN_FUTILE: Pause = Pause { least: Duration::from_millis(1), most: None };
    /// The same, and not because of what is in the pages, or there are more than the budget allows for. Whether that is over is found
    /// out although nobody asks.
    pub(super) const BEFORE_LONG: Pause = Pause { least: Duration::from_millis(1), most: Some(RETRY) };
    pub(super) const AFTER_FAILURE: Pause = Pause { least: RETRY, most: Some(Duration::ZERO) };
}

/// What a disk refused is tried again after this long.
const RETRY: Duration = Duration::from_millis(100);

/// Between the first two attempts to write; twice as long between the next two...
const FIRST: Duration = RETRY;
/// ... and so on up to this.
const LONGEST: Duration = Duration::from_secs(1);

/// See the module's text.
pub(super) struct Attempts {
    clock: Clock,
    failing: Option<Failing>,
}

struct Failing {
    error: Error,
    since: Nanos,
    pause: Duration,
}

impl Attempts {
    pub(super) fn new(clock: Clock) -> Attempts {
        Attempts { clock, failing: None }
    }

    /// Whether pages may be written now, as far as is known. Writes to a lost block if it is time for an attempt.
    pub(super) fn may_write(&mut self, store: &PageStore) -> bool {
        let Some(failing) = &self.failing else { return true };
        if self.clock.now().since(failing.since) < failing.pause {
            return false;
        }
        store.disk_space().retry_leaked_block().inspect_err(|error| self.failed(error)).is_ok()
    }

    /// A write failed.
    pub(super) fn failed(&mut self, error: &Error) {
        if error.kind() == ErrorKind::OutOfSpace {
            return;
        }
        let pause = self.failing.as_ref().map_or(FIRST, |before| (2 * before.pause).min(LONGEST));
        self.failing = Some(Failing { error: error.duplicate(), since: self.clock.now(), pause });
    }

    /// Pages were written, or none had to be.
    pub(super) fn went_well(&mut self) {
        self.failing = None;
    }

    /// Why nothing is written.
    pub(super) fn failure(&self) -> Option<Error> {
        self.failing.as_ref().map(|failing| failing.error.duplicate())
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;
    use crate::base::DatabaseId;
    use crate::device::simulated::SimulatedStorage;

    #[test]
    fn attempts_become_rare_and_are_frequent_again_after_one_that_went_well() {
        let store = PageStore::create(&SimulatedStorage::new(1), DatabaseId(1), 4096).expect("a whole disk");
        let (clock, ms) = (Clock::manual(), Duration::from_millis);
        let mut attempts = Attempts::new(clock.clone());
        assert!(attempts.may_write(&store));
        for pauses in [[100, 200, 400, 800, 1000, 1000], [100, 200, 400, 800, 1000, 1000]] {
            for pause in pauses {
                attempts.failed(&Error::new(ErrorKind::Io, "planted"));
                clock.advance(ms(pause - 1));
                assert!(!attempts.may_write(&store), "{pause}");
                clock.advance(ms(1));
                assert!(attempts.may_write(&store), "{pause}");
            }
            attempts.went_well();
        }
        attempts.failed(&Error::new(ErrorKind::OutOfSpace, "planted"));
        assert!(attempts.may_write(&store) && attempts.failure().is_none());
    }
}
