//! What a run of the model counts.

use crate::latencies::Latencies;

/// See the module. Times are in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Counting has begun.
    pub measuring: bool,
    /// Transactions acknowledged.
    pub committed: u64,
    /// Writes that completed, the transactions in them, and their bytes on the device.
    pub writes: u64,
    pub write_bytes: u64,
    pub written_commits: u64,
    pub flushes: u64,
    pub stolen: u64,
    /// Sum of the times of writes: divided by the time, writes in flight.
    pub write_ns: u64,
    /// From the commit request to the commit.
    pub commit: Latencies,
    /// From the begin or the arrival to the commit.
    pub total: Latencies,
    /// Time that all cores computed.
    pub busy_ns: u64,
    /// Wake-ups that a thread paid for.
    pub wakes: u64,
    /// Switches to another thread on a core.
    pub switches: u64,
    /// Transactions begun and not committed, integrated over time.
    pub in_system_ns: u128,
    in_system: u64,
    changed_at: u64,
    /// Waits for row locks.
    pub row_wait_ns: u64,
}

impl Tally {
    fn changed(&mut self, now: u64) {
        self.in_system_ns += u128::from(now.saturating_sub(self.changed_at)) * u128::from(self.in_system);
        self.changed_at = now.max(self.changed_at);
    }

    /// Counts a transaction that arrived at `arrived` and begins.
    pub(super) fn begins(&mut self, arrived: u64, now: u64) {
        self.changed(now);
        self.in_system += 1;
        self.in_system_ns += u128::from(now - arrived);
    }

    /// Counts a transaction that began at `begun` and asked to commit at `ready`.
    pub(super) fn commits(&mut self, begun: u64, ready: Option<u64>, now: u64) {
        self.changed(now);
        self.in_system = self.in_system.saturating_sub(1);
        if self.measuring {
            self.committed += 1;
            self.total.record_ns(now - begun);
            if let Some(ready) = ready {
                self.commit.record_ns(now - ready);
            }
        }
    }

    /// Begins to count at `now`.
    pub(super) fn measure(&mut self, now: u64) {
        let (in_system, changed_at) = (self.in_system, now);
        *self = Tally { measuring: true, in_system, changed_at, ..Tally::default() };
    }

    /// Ends counting at `now`.
    pub(super) fn end(&mut self, now: u64) {
        self.changed(now);
    }
}
