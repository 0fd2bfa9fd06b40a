//! The cost of coordination between committers: sleeps, wake-ups, context switches, waits for
//! dependencies.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// Context switches of all live threads of this process: voluntary (sleeps) and involuntary
/// (preemptions).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Sleeps.
    pub voluntary: u64,
    /// Preemptions.
    pub involuntary: u64,
}

impl Switches {
    /// Returns the switches so far, without threads that have ended: call it while the workers
    /// live.
    #[must_use]
    pub fn now() -> Switches {
        let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        tasks.map(|task| Switches::of(&task.path())).fold(Switches::default(), |all, one| Switches {
            voluntary: all.voluntary + one.voluntary,
            involuntary: all.involuntary + one.involuntary,
        })
    }

    /// Returns the switches of the thread with this directory in `/proc`.
    fn of(task: &Path) -> Switches {
        let text = std::fs::read_to_string(task.join("status")).unwrap_or_default();
        let number = |name: &str| -> u64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.trim_start_matches(':').trim().parse().ok()).unwrap_or(0)
        };
        Switches {
            voluntary: number("voluntary_ctxt_switches"),
            involuntary: number("nonvoluntary_ctxt_switches"),
        }
    }

    /// Returns the switches since `before`.
    #[must_use]
    pub fn since(self, before: Switches) -> Switches {
        Switches {
            voluntary: self.voluntary.saturating_sub(before.voluntary),
            involuntary: self.involuntary.saturating_sub(before.involuntary),
        }
    }
}

/// Totals that an engine counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// System calls that woke sleepers.
    pub wakeups: u64,
    /// Times a committing thread slept.
    pub sleeps: u64,
    /// Times a flusher thread woke.
    pub flusher_wakeups: u64,
    /// Transactions that waited for dependencies.
    pub rule_waits: u64,
    /// Of these, false waits: exact dependencies would not have waited.
    pub false_waits: u64,
    /// Blocks of other logs that workers wrote with their own.
    pub stolen_blocks: u64,
    /// Barrier transactions pushed in idle logs.
    pub barriers: u64,
    /// Times an idle worker left its log to the flusher.
    pub idle_flushes: u64,
    /// Records that another committer appended.
    pub consolidated: u64,
    /// Times logs in mapped memory that stayed dirty were drained by a barrier in all threads.
    pub drained: u64,
}

/// Figures of the measured time, per transaction that committed or rolled back as specified.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Coordination {
    /// The axes of the commit protocol: layout, writer, acknowledger, rule, queue.
    pub protocol: String,
    /// System calls by the commit protocol that woke sleeping threads, per transaction.
    pub wakeups_per_transaction: f64,
    /// Times a committing thread slept, per transaction.
    pub sleeps_per_transaction: f64,
    /// Times a flusher thread woke, per transaction.
    pub flusher_wakeups_per_transaction: f64,
    /// Context switches of the whole process because a thread slept, per transaction.
    pub context_switches_per_transaction: f64,
    /// Context switches because a thread was preempted, per transaction.
    pub preemptions_per_transaction: f64,
    /// Transactions that waited for dependencies after their record was durable.
    pub rule_waits: u64,
    /// Of these, false waits: exact dependencies would not have waited. A lower bound.
    pub false_waits: u64,
    /// False waits in percent of all transactions.
    pub false_waits_percent: f64,
    /// Blocks of other logs that workers wrote with their own.
    #[serde(default)]
    pub stolen_blocks: u64,
    /// Barrier transactions pushed in idle logs.
    #[serde(default)]
    pub barriers: u64,
    /// Times an idle worker had its log written at once, by the flusher.
    #[serde(default)]
    pub idle_flushes: u64,
    /// Records that another committer appended, per transaction.
    #[serde(default)]
    pub consolidated_per_transaction: f64,
    /// Barriers in all threads for logs in mapped memory that stayed dirty, per transaction.
    #[serde(default)]
    pub drained_per_transaction: f64,
}

impl Coordination {
    /// Computes the figures of `ended` transactions.
    #[must_use]
    pub fn of(protocol: &str, before: Waits, now: Waits, switches: Switches, ended: u64) -> Coordination {
        let each = |count: u64| count as f64 / ended.max(1) as f64;
        let false_waits = now.false_waits - before.false_waits;
        Coordination {
            protocol: protocol.to_string(),
            wakeups_per_transaction: each(now.wakeups - before.wakeups),
            sleeps_per_transaction: each(now.sleeps - before.sleeps),
            flusher_wakeups_per_transaction: each(now.flusher_wakeups - before.flusher_wakeups),
            context_switches_per_transaction: each(switches.voluntary),
            preemptions_per_transaction: each(switches.involuntary),
            rule_waits: now.rule_waits - before.rule_waits,
            false_waits,
            false_waits_percent: each(false_waits) * 100.0,
            stolen_blocks: now.stolen_blocks - before.stolen_blocks,
            barriers: now.barriers - before.barriers,
            idle_flushes: now.idle_flushes - before.idle_flushes,
            consolidated_per_transaction: each(now.consolidated - before.consolidated),
            drained_per_transaction: each(now.drained - before.drained),
        }
    }
}

impl fmt::Display for Coordination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "  {}: per transaction {:.3} wake-ups, {:.3} context switches, {:.3} preemptions; {} waits for the rule, {} of them false; {} blocks stolen, {} writes because of idle workers",
            self.protocol,
            self.wakeups_per_transaction,
            self.context_switches_per_transaction,
            self.preemptions_per_transaction,
            self.rule_waits,
            self.false_waits,
            self.stolen_blocks,
            self.idle_flushes
        )
    }
}

#[cfg(test)]
mod tests;
