//! Commits of bounded loss: when must they be there?
//!
//! A write of such a commit begins before its loss window has passed. So whoever knows the time when the call returned, and what a write takes,
//! knows from when on a crash must not lose it. That needs a clock which stands still while nothing is waited for: the simulation's. By real clocks on a
//! busy machine, and on a device that is slow or stuck, nobody can say; nor after the clock has jumped ([`Bounded::forget`]).

use super::bank::Id;
use std::time::Duration;

/// Commits of one life, with the time.
#[derive(Debug)]
pub struct Bounded {
    /// The loss window, and the time that a write takes at most.
    within: Duration,
    commits: Vec<(Duration, Id)>,
}

impl Bounded {
    pub fn new(loss_window: Duration, write: Duration) -> Bounded {
        Bounded { within: loss_window + write, commits: Vec::new() }
    }

    /// The call of commit `id` returned at `now`.
    pub fn told(&mut self, id: Id, now: Duration) {
        self.commits.push((now, id));
    }

    /// Commits that must be there if the machine stops now, or later; each once.
    pub fn overdue(&mut self, now: Duration) -> Vec<Id> {
        let within = self.within;
        self.commits.extract_if(.., |(then, _)| now > *then + within).map(|(_, id)| id).collect()
    }

    /// Nothing is known of those that were told so far.
    pub fn forget(&mut self) {
        self.commits.clear();
    }
}
