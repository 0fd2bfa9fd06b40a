//! When the evictor tries again, above all while writes of pages fail.
//!
//! A failed attempt leaks its blocks: their bytes may still arrive, so the blocks are not used
//! until the next open. So attempts become less and less frequent, and the first write of each goes
//! to a block that is leaked already ([`DiskSpace::retry_leaked_block`]).
//!
//! A full disk is different: it leaks no block, and the end of a checkpoint frees space.

use crate::base::clock::{Clock, Nanos};
use crate::base::{Error, ErrorKind};
use crate::store::PageStore;
use std::time::Duration;

/// How long the evictor sleeps: at least `least`, and then until memory is requested or `most` has
/// passed.
pub(super) struct Pause {
    pub(super) least: Duration,
    pub(super) most: Option<Duration>,
}

impl Pause {
    pub(super) const NONE: Pause = Pause { least: Duration::ZERO, most: None };
    /// No page could leave until transactions make progress. A thread that needs memory then asks
    /// again.
    pub(super) const WHEN_FUTILE: Pause = Pause { least: Duration::from_millis(1), most: None };
    /// As `WHEN_FUTILE`, but an error keeps pages in memory, or the budget is exceeded: the evictor
    /// retries without a request.
    pub(super) const BEFORE_LONG: Pause = Pause { least: Duration::from_millis(1), most: Some(RETRY) };
    pub(super) const AFTER_FAILURE: Pause = Pause { least: RETRY, most: Some(Duration::ZERO) };
}

/// Time until a refused write is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// Pause between the first two attempts to write, doubled after each further failure...
const FIRST: Duration = RETRY;
/// ... up to this.
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

    /// Returns whether pages may be written now. Writes to a leaked block if an attempt is due.
    pub(super) fn may_write(&mut self, store: &PageStore) -> bool {
        let Some(failing) = &self.failing else { return true };
        if self.clock.now().since(failing.since) < failing.pause {
            return false;
        }
        store.disk_space().retry_leaked_block().inspect_err(|error| self.failed(error)).is_ok()
    }

    /// Records that a write failed.
    pub(super) fn failed(&mut self, error: &Error) {
        if error.kind() == ErrorKind::OutOfSpace {
            return;
        }
        let pause = self.failing.as_ref().map_or(FIRST, |before| (2 * before.pause).min(LONGEST));
        self.failing = Some(Failing { error: error.duplicate(), since: self.clock.now(), pause });
    }

    /// Records that writes succeeded, or none was necessary.
    pub(super) fn went_well(&mut self) {
        self.failing = None;
    }

    /// Returns the error that keeps pages from being written.
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
    fn attempts_become_rare_until_one_succeeds() {
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
