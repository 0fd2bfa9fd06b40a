//! Commits of bounded loss: when must they be there?
//!
//! A write of such a commit begins before its loss window has passed. So whoever knows the time
//! when the call returned, and what a write takes, knows from when on a crash must not lose it.
//! That needs a clock which stands still while nothing is waited for: the simulation's. By real
//! clocks on a busy machine, and on a device that is slow or stuck, nobody can say; nor when the
//! simulation has let time pass although threads were ready to go on.

use super::bank::Id;
use std::time::Duration;

/// Commits of one life, with the time.
#[derive(Debug)]
pub struct Bounded {
    /// The loss window, and the time that a write takes at most.
    within: Duration,
    leaps: u64,
    commits: Vec<(Duration, Id)>,
}

/// A moment, and how often time has passed before although threads could have gone on.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub time: Duration,
    pub leaps: u64,
}

impl Bounded {
    pub fn new(loss_window: Duration, write: Duration) -> Bounded {
        Bounded { within: loss_window + write, leaps: 0, commits: Vec::new() }
    }

    /// The call of commit `id` returned at `now`.
    pub fn told(&mut self, id: Id, now: Moment) {
        self.forget_before(now);
        self.commits.push((now.time, id));
    }

    /// Commits that must be there if the machine stops now, or later; each once.
    pub fn overdue(&mut self, now: Moment) -> Vec<Id> {
        self.forget_before(now);
        let within = self.within;
        self.commits.extract_if(.., |(then, _)| now.time > *then + within).map(|(_, id)| id).collect()
    }

    /// Nothing is known of those whose threads were off the processor meanwhile.
    fn forget_before(&mut self, now: Moment) {
        if std::mem::replace(&mut self.leaps, now.leaps) != now.leaps {
            self.commits.clear();
        }
    }
}
