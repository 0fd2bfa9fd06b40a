//! The time of the workers by category, from the stages of the transactions that are timed.
//!
//! | category | from |
//! |---|---|
//! | locks | waits for row locks |
//! | repeated attempts | attempts that a conflict ended: contention for rows, without locks |
//! | log insert | the commit call until the record is in the log's buffer |
//! | log wait | the rest of the commit call; with blocking commits the wait for the device |
//! | other work | begin and operations, less waits for row locks |
//! | outside | the rest of the workers' time: the driver, acknowledgments, waits for arrivals or a core |
//!
//! Not separated: log insert is log work together with waits for the log's latch and for space, the
//! paper's log contention. Latches of pages are in other work.

use crate::stages::Stages;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Shares of the workers' time in percent; together 100.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeShares {
    /// Waits for row locks.
    pub locks: f64,
    /// Attempts that a conflict ended.
    pub repeated: f64,
    /// Log work and log contention.
    pub log_insert: f64,
    /// The rest of the commit call.
    pub log_wait: f64,
    /// Begin and operations.
    pub other_work: f64,
    /// Outside of transactions.
    pub outside: f64,
}

impl TimeShares {
    /// Returns the shares for transactions of which `writing` write, a share, and that take
    /// `worker_us` of a worker's time each; `None` if no transaction ended.
    #[must_use]
    pub fn of(stages: &Stages, writing: f64, worker_us: f64) -> Option<TimeShares> {
        if !worker_us.is_finite() || worker_us <= 0.0 {
            return None;
        }
        let locks = stages.row_wait_us.min(stages.execute_us + stages.conflicts_us);
        let repeated = (stages.conflicts_us - locks).max(0.0);
        let other_work = (stages.execute_us + stages.conflicts_us - locks - repeated).max(0.0);
        let log_insert = (stages.log_insert_us * writing).min(stages.commit_call_us);
        let log_wait = stages.commit_call_us - log_insert;
        let inside = locks + repeated + other_work + log_insert + log_wait;
        // A sample of the stages may be slower than the mean.
        let whole = worker_us.max(inside);
        let percent = |us: f64| us * 100.0 / whole;
        Some(TimeShares {
            locks: percent(locks),
            repeated: percent(repeated),
            log_insert: percent(log_insert),
            log_wait: percent(log_wait),
            other_work: percent(other_work),
            outside: percent(whole - inside),
        })
    }
}

impl fmt::Display for TimeShares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TimeShares { locks, repeated, log_insert, log_wait, other_work, outside } = self;
        write!(
            f,
            "time of workers: log insert {log_insert:.1} %, log wait {log_wait:.1} %, locks {locks:.1} %, repeated \
             attempts {repeated:.1} %, other work {other_work:.1} %, outside of transactions {outside:.1} %"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_the_stages_and_add_up() {
        let stages = Stages {
            execute_us: 30.0,
            commit_call_us: 40.0,
            conflicts_us: 10.0,
            row_wait_us: 4.0,
            log_insert_us: 20.0,
            ..Stages::default()
        };
        let shares = TimeShares::of(&stages, 0.5, 100.0).expect("transactions");
        let wanted = TimeShares {
            locks: 4.0,
            repeated: 6.0,
            log_insert: 10.0,
            log_wait: 30.0,
            other_work: 30.0,
            outside: 20.0,
        };
        assert_eq!(shares, wanted);
        let busier = TimeShares::of(&stages, 1.0, 40.0).expect("transactions");
        let sum = busier.locks + busier.repeated + busier.log_insert + busier.log_wait + busier.other_work;
        assert!((sum - 100.0).abs() < 1e-9 && busier.outside == 0.0, "{busier}");
        assert_eq!(TimeShares::of(&stages, 1.0, f64::INFINITY), None);
    }
}
