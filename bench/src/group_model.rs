//! The model of group commit: what a window and a flush predict.
//!
//! A leader gathers commits for the time w and writes them in one flush of the time f. Commits that
//! arrive meanwhile wait for the next group. At λ commits a second a group has B = λ (w + f)
//! commits. A commit that arrives at a random moment of the window waits w/2 for its end, then f.
//! The model has no queue: it holds while groups do not follow each other without a pause.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What the model says of a run, from its window, its flushes and its throughput.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupModel {
    /// w: how long a leader waits for followers.
    pub window_us: f64,
    /// f: the mean of a durable write of the log.
    pub flush_us: f64,
    /// B: commits in a write.
    pub commits_per_write: f64,
    /// w/2 + f: the mean latency of a commit.
    pub latency_us: f64,
}

impl GroupModel {
    /// Returns what the model says for `commits_per_second`.
    #[must_use]
    pub fn of(window_us: f64, flush_us: f64, commits_per_second: f64) -> GroupModel {
        let commits_per_write = commits_per_second * (window_us + flush_us) / 1e6;
        GroupModel { window_us, flush_us, commits_per_write, latency_us: window_us / 2.0 + flush_us }
    }
}

impl fmt::Display for GroupModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GroupModel { window_us, flush_us, commits_per_write, latency_us } = self;
        write!(
            f,
            "model of group commit, window {window_us:.0} us, flush {flush_us:.1} us: {commits_per_write:.1} commits a \
             write, latency {latency_us:.1} us"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published table for f = 500 us and w = 200 us.
    #[test]
    fn model_gives_the_published_groups() {
        for (rate, commits) in
            [(100.0, 0.07), (1000.0, 0.7), (10_000.0, 7.0), (50_000.0, 35.0), (200_000.0, 140.0)]
        {
            let model = GroupModel::of(200.0, 500.0, rate);
            assert!((model.commits_per_write - commits).abs() < 1e-9, "{model}");
            assert_eq!(model.latency_us, 600.0);
        }
    }
}
