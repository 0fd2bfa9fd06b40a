//! What transactions cost each other: waits for the log and for locks, failures by reason, repeated
//! attempts.

use crate::latencies::Latency;
use crate::store::LockFigures;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Transactions that failed because of others, by reason; each was repeated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aborts {
    /// A row was changed after the snapshot.
    pub conflict: u64,
    /// Victims of deadlocks.
    pub deadlock: u64,
    /// A wait took too long.
    pub timeout: u64,
    /// Validation found that a key that had been read was changed.
    pub validation_key: u64,
    /// Validation found that a range that had been read was changed.
    pub validation_range: u64,
}

/// Waits for rows and locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LockWaits {
    /// Number of waits.
    pub count: u64,
    /// Total time in seconds.
    pub seconds: f64,
    /// Share of the workers' time in percent.
    pub percent_of_time: f64,
    /// Times of the waits.
    pub wait_us: Latency,
    /// How long pessimistic transactions held locks and changed rows, from the first to the
    /// release.
    #[serde(default)]
    pub hold_us: Latency,
    /// Locks on a table that replaced locks on keys.
    pub escalations: u64,
}

/// See the module. Of the measured time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Contention {
    /// Durable blocking commits of transactions that wrote: from the call that commits to its
    /// return. Contains the validation and the insertion into the log buffer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub log_wait_us: Option<Latency>,
    /// Waits for rows and locks, if the engine counts them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub locks: Option<LockWaits>,
    /// Failures by reason, if the engine knows the reasons.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub aborts: Option<Aborts>,
    /// Time in attempts that failed and were repeated, over all workers, in seconds.
    pub retry_seconds: f64,
    /// The same as a share of the workers' time in percent.
    pub retry_percent_of_time: f64,
}

impl Contention {
    /// Returns the figures of workers that worked `worked_seconds` together.
    #[must_use]
    pub fn of(
        log_wait_us: Option<Latency>,
        locks: Option<LockFigures>,
        retry_seconds: f64,
        worked_seconds: f64,
    ) -> Contention {
        let percent = |seconds: f64| seconds * 100.0 / worked_seconds.max(f64::MIN_POSITIVE);
        Contention {
            log_wait_us,
            locks: locks.map(|locks| LockWaits {
                count: locks.waits,
                seconds: locks.wait_seconds,
                percent_of_time: percent(locks.wait_seconds),
                wait_us: locks.wait,
                hold_us: locks.hold,
                escalations: locks.escalations,
            }),
            aborts: locks.map(aborts),
            retry_seconds,
            retry_percent_of_time: percent(retry_seconds),
        }
    }
}

fn aborts(locks: LockFigures) -> Aborts {
    let LockFigures { failed, deadlocks, timeouts, changed_keys, changed_ranges, .. } = locks;
    Aborts {
        conflict: failed.saturating_sub(deadlocks + timeouts + changed_keys + changed_ranges),
        deadlock: deadlocks,
        timeout: timeouts,
        validation_key: changed_keys,
        validation_range: changed_ranges,
    }
}

impl fmt::Display for Contention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = [
            ("log wait", self.log_wait_us),
            ("lock wait", self.locks.map(|locks| locks.wait_us)),
            ("locks held", self.locks.map(|locks| locks.hold_us)),
        ];
        for (what, wait) in rows {
            let Some(wait) = wait.filter(|wait| wait.max > 0.0) else { continue };
            let stdev = wait.stdev.map(|stdev| format!("   standard deviation {stdev:.1}"));
            writeln!(f, "  {what:<22}{wait}{}", stdev.unwrap_or_default())?;
        }
        if let Some(locks) = self.locks.filter(|locks| locks.count > 0) {
            let LockWaits { count, seconds, percent_of_time, escalations, .. } = locks;
            writeln!(
                f,
                "  {count} waits for locks, {seconds:.2} s, {percent_of_time:.1} % of the time; {escalations} escalations"
            )?;
        }
        if let Some(aborts) = self.aborts.filter(|aborts| *aborts != Aborts::default()) {
            let Aborts { conflict, deadlock, timeout, validation_key, validation_range } = aborts;
            writeln!(
                f,
                "  aborts: {conflict} conflicts, {deadlock} deadlocks, {timeout} timeouts, {validation_key} changed keys, {validation_range} changed ranges"
            )?;
        }
        if self.retry_seconds > 0.0 {
            let (seconds, percent) = (self.retry_seconds, self.retry_percent_of_time);
            writeln!(f, "  repeated attempts took {seconds:.2} s, {percent:.1} % of the time")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
