//! When commits with bounded loss must be durable.
//!
//! The write of such a commit begins before its loss window has passed. So the commit is durable
//! one loss window and one write time after its call has returned. This needs the simulation's
//! clock, which stands still while no thread waits. Real clocks prove nothing on a busy machine or
//! with a stuck device. The simulated clock proves nothing either after it advanced past runnable
//! threads.

use super::bank::Id;
use std::time::Duration;

/// The commits of one run and when their calls returned.
#[derive(Debug)]
pub struct Bounded {
    /// The loss window plus the longest time that a write takes.
    within: Duration,
    leaps: u64,
    commits: Vec<(Duration, Id)>,
}

/// A time, and how often the clock has advanced so far although threads were runnable.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub time: Duration,
    pub leaps: u64,
}

impl Bounded {
    pub fn new(loss_window: Duration, write: Duration) -> Bounded {
        Bounded { within: loss_window + write, leaps: 0, commits: Vec::new() }
    }

    /// Records that the call of commit `id` returned at `now`.
    pub fn returned(&mut self, id: Id, now: Moment) {
        self.forget_before(now);
        self.commits.push((now.time, id));
    }

    /// Returns the commits that must survive a crash at `now` or later, each commit once.
    pub fn overdue(&mut self, now: Moment) -> Vec<Id> {
        self.forget_before(now);
        let within = self.within;
        self.commits.extract_if(.., |(then, _)| now.time > *then + within).map(|(_, id)| id).collect()
    }

    /// Forgets all commits if threads were runnable while the clock advanced: no bound holds for
    /// them.
    fn forget_before(&mut self, now: Moment) {
        if std::mem::replace(&mut self.leaps, now.leaps) != now.leaps {
            self.commits.clear();
        }
    }
}
