//! Does a log without recent commits hold up queued commits of other logs?
//!
//! In the paper on autonomous commit (SIGMOD 2025) a transaction waits until the minimum over all
//! logs of the durable GSN has reached its own. A log whose worker is idle keeps that minimum back:
//! it is a *straggler*. An idle worker therefore pushes a *barrier transaction* with the highest
//! GSN there is, which writes nothing. Here scans raise the clocks of all logs ([`Clocks`]), so
//! there is no straggler to observe. `idle_logs` brings stragglers back, to measure what barriers
//! are worth:
//!
//! | `idle_logs` | a queued commit whose GSN is above that of another log's newest record |
//! |---|---|
//! | `raise` (default) | does not wait for it |
//! | `barrier` | has a barrier pushed in that log, without a record and a write, and is acknowledged |
//! | `hold` | waits for the next record of that log, at most [`IDLE_TIMEOUT`] |
//! | `worker` | as with `barrier`; and waits for the log's worker to write what it has |
//! | `flusher` | as with `worker`, for a log that a flusher of its own writes |
//!
//! **Which thread writes a log that holds W back.** With the other choices a flusher writes it soon
//! (`core::levels::PACE`), so that queued commits of other logs need not wait. Then no flush unit
//! fills in a log on which others depend. With `worker`, as in the paper, its own worker writes it.
//! With `flusher`, as in the paper on restricted logging (Milliscale, 2026), its own
//! flusher writes it when a flush unit is full, or at the timeout. That concerns every rule, also
//! those without clocks. A thread or future that waits, a thread that finds no room for its commit,
//! and a loss window cause the write all the same (I14).
//!
//! **It only delays.** An acknowledger asks here about a transaction whose dependencies are
//! satisfied, so no choice acknowledges what a crash could take away. Threads and futures that wait
//! for a commit go by the rule alone.
//!
//! **Different from the paper**: the acknowledger pushes the barrier for the idle log, because an
//! idle worker is a thread of the application, which does not come by; and `hold` has a timeout,
//! because the last commit before a pause would otherwise never be acknowledged.
//!
//! [`Clocks`]: super::lamport::Clocks

use crate::base::clock::Nanos;
use crate::base::settings::IdleLogs;
use crate::base::{Gsn, LogId};
use crate::commit::core::environment::Environment;
use crate::commit::core::watermark::Latched;
use crate::sync::atomic::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;
use std::time::Duration;

/// Longest time that an idle log holds up a commit.
pub const IDLE_TIMEOUT: Duration = Duration::from_millis(10);

/// See the module's text.
#[derive(Debug)]
pub struct Stragglers {
    choice: IdleLogs,
    /// By log: GSN of its newest record or barrier. Raised under the latch, and by barriers.
    newest: Box<[CachePadded<AtomicU64>]>,
}

impl Stragglers {
    /// Returns logs without records.
    pub fn new(choice: IdleLogs, logs: usize) -> Stragglers {
        Stragglers { choice, newest: (0..logs).map(|_| CachePadded::new(AtomicU64::new(0))).collect() }
    }

    /// Notes the GSN of a record of `log`.
    #[inline]
    pub fn drawn(&self, log: LogId, gsn: Gsn, _latch: &dyn Latched) {
        if self.choice != IdleLogs::Raise {
            self.newest[log.0 as usize].fetch_max(gsn.0, Ordering::SeqCst);
        }
    }

    /// Returns whether an idle log may hold up commits.
    #[inline]
    pub fn hold_up(&self) -> bool {
        self.choice != IdleLogs::Raise
    }

    /// Returns whether only time, or a record of the idle log, releases a commit.
    pub fn wait_for_time(&self) -> bool {
        self.choice == IdleLogs::Hold
    }

    /// Returns whether an idle log holds up a commit that was ready at `ready` and needs `gsn`.
    /// Pushes barriers instead, where that is the choice.
    #[cold]
    pub fn hold(&self, gsn: Gsn, ready: Nanos, environment: &Environment) -> bool {
        if !self.are_behind(gsn) || environment.closing.load(Ordering::SeqCst) {
            return false;
        }
        if self.wait_for_time() {
            return environment.clock.now().since(ready) < IDLE_TIMEOUT;
        }
        environment.metrics.barriers.add(self.push_barriers(gsn));
        false
    }

    /// Returns whether a log has neither a record nor a barrier at or above `gsn`.
    pub fn are_behind(&self, gsn: Gsn) -> bool {
        self.newest.iter().any(|newest| newest.load(Ordering::SeqCst) < gsn.0)
    }

    /// Pushes a barrier with the highest GSN in each log that is behind `gsn`. Returns how many.
    pub fn push_barriers(&self, gsn: Gsn) -> u64 {
        let highest = self.newest.iter().map(|newest| newest.load(Ordering::SeqCst)).max().unwrap_or(0);
        let pushed = |newest: &&CachePadded<AtomicU64>| {
            newest.load(Ordering::SeqCst) < gsn.0 && newest.fetch_max(highest, Ordering::SeqCst) < gsn.0
        };
        self.newest.iter().filter(pushed).count() as u64
    }
}
