//! What committing cost in coordination: sleeps, wake-ups, context switches, waits that the dependency rule caused.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// Context switches of all threads of this process that are alive, so far: voluntary (a thread slept) and not (it was preempted).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// It slept.
    pub voluntary: u64,
    /// It was preempted.
    pub involuntary: u64,
}

impl Switches {
    /// Those so far. Threads that have ended are not in it: look while those of interest live.
    #[must_use]
    pub fn now() -> Switches {
        let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        tasks.map(|task| Switches::of(&task.path())).fold(Switches::default(), |all, one| Switches {
            voluntary: all.voluntary + one.voluntary,
            involuntary: all.involuntary + one.involuntary,
        })
    }

    /// Those of the thread with this directory in `/proc`.
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

    /// Those since `before`.
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
    /// Times a thread of the engine's that writes logs woke.
    pub flusher_wakeups: u64,
    /// Transactions held up by the dependency rule.
    pub rule_waits: u64,
    /// Of these, false waits: exact dependencies would not have waited.
    pub false_waits: u64,
    /// Blocks of other logs that workers wrote with their own.
    pub stolen_blocks: u64,
}

/// Of the measured time. `per transaction` is per one that committed or was rolled back as specified.
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
    /// Those because a thread was preempted.
    pub preemptions_per_transaction: f64,
    /// Transactions that the dependency rule held up when their record was durable.
    pub rule_waits: u64,
    /// Of these, false waits: exact dependencies would not have waited. A lower bound.
    pub false_waits: u64,
    /// The latter, of all transactions, in percent.
    pub false_waits_percent: f64,
    /// Blocks of other logs that workers wrote with their own.
    #[serde(default)]
    pub stolen_blocks: u64,
}

impl Coordination {
    /// Of `ended` transactions.
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
        }
    }
}

impl fmt::Display for Coordination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "  {}: per transaction {:.3} wake-ups, {:.3} context switches, {:.3} preemptions; {} waits for the rule, {} of them false; {} blocks stolen",
            self.protocol,
            self.wakeups_per_transaction,
            self.context_switches_per_transaction,
            self.preemptions_per_transaction,
            self.rule_waits,
            self.false_waits,
            self.stolen_blocks
        )
    }
}

#[cfg(test)]
mod tests;
