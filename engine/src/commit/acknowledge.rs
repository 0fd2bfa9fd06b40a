//! What happens when a write has completed?
//!
//! ```text
//!   complete   (latch) the log's durable CSN advances over the gap-free prefix of blocks; its slot rises    per block
//!   publish    W is scanned once; queues whose head is hardened and has its DSN below W are popped          per batch
//!   wake       one system call for all sleepers of a log, one for those who wait for W                      per lead
//! ```
//!
//! Nothing passes here once the room is poisoned: what was durable before stays acknowledged, the rest is unknown.

use super::metrics::Moments;
use super::precommit::Pending;
use super::queue::Entry;
use super::writer::LogWriter;
use super::{Core, levels};
use crate::base::clock::Nanos;
use crate::base::metrics::Counter;
use crate::base::{Csn, Error};
use crate::device::AlignedBuffer;
use crate::sync::atomic::Ordering;

/// Entries popped and counted at a time: bounds the memory of one acknowledgment.
const BATCH: usize = 256;

impl Core {
    /// Block `sequence` of `writer` is durable.
    pub(super) fn complete(&self, writer: &LogWriter, sequence: u64, buffer: AlignedBuffer, begun: Nanos) {
        let now = self.clock.now();
        if self.poison.is_raised() {
            return;
        }
        {
            let mut latch = writer.log.lock();
            latch.complete(sequence, buffer);
            self.watermark.settle(writer.id, latch.first_volatile_csn(), &latch);
        }
        writer.write_ended(now);
        self.metrics.flushes.add(1);
        self.metrics.flush.record_ns(now.0.saturating_sub(begun.0));
    }

    /// A write is on its way to the device.
    pub(super) fn count_submitted(&self, bytes: usize, counter: &Counter) {
        counter.add(1);
        self.metrics.device_writes.add(1);
        self.metrics.device_bytes.add(bytes as u64);
    }

    /// After completions: scans W and acknowledges whoever is committed by now.
    pub(super) fn publish(&self) {
        if self.poison.is_raised() {
            return;
        }
        let w = self.watermark.rescan();
        self.acknowledged_up_to(Csn(w.0 - 1));
        let mut blocked = false;
        for writer in self.writers.iter().filter(|w| !w.queue.is_empty()) {
            blocked |= self.acknowledge(writer, w);
        }
        self.wakers.wake(|ticket| self.is_committed_ticket(ticket));
        if blocked && self.needed().is_some() {
            // Somebody asynchronous waits for another log's CSN: the flusher knows how to get it.
            self.flusher.wake_for(levels::NOW);
        }
    }

    /// Pops committed transactions of `writer`'s queue. True if it is left with a hardened one that needs a higher W.
    fn acknowledge(&self, writer: &LogWriter, w: Csn) -> bool {
        let mut moments = Vec::with_capacity(BATCH);
        loop {
            let durable = writer.log.durable_csn();
            let (write, committed) = (writer.last_write(), self.clock.now());
            let mut newest = Csn::ZERO;
            let mut blocked_by = None;
            let popped = writer.queue.pop_while(|entry| {
                let hardened = entry.csn <= durable;
                if moments.len() == BATCH || !hardened || entry.dsn >= w || self.poison.is_raised() {
                    blocked_by = (hardened && entry.dsn >= w).then_some(entry);
                    return false;
                }
                self.watermark.mark_committed(entry.csn);
                newest = newest.max(entry.csn);
                let Entry { begun, ready, .. } = entry;
                moments.push(Moments { begun, ready, write, committed, wrote: entry.csn != Csn::ZERO });
                true
            });
            self.acknowledged_up_to(newest);
            self.metrics.count_committed(&moments);
            if let Some(entry) = blocked_by {
                self.count_false_wait(writer, entry);
                return true;
            }
            if popped.count < BATCH as u64 {
                return false;
            }
            moments.clear();
        }
    }

    /// Counts a wait for W of a transaction whose newest predecessor is committed: exact dependencies might not have
    /// needed it. Once per transaction.
    fn count_false_wait(&self, writer: &LogWriter, entry: Entry) {
        let counted = writer.false_wait.fetch_max(entry.csn.0, Ordering::Relaxed);
        if counted < entry.csn.0 && self.watermark.is_committed(entry.dsn) {
            self.metrics.false_waits.add(1);
        }
    }

    /// Counts a transaction that its own thread acknowledges.
    pub(super) fn count_one(&self, writer: &LogWriter, pending: Pending, wrote: bool) {
        let Pending { begun, ready, .. } = pending;
        let (write, committed) = (writer.last_write(), self.clock.now());
        self.metrics.count_committed(&[Moments { begun, ready, write, committed, wrote }]);
    }

    /// Somebody was or may be told that `csn` is committed.
    pub(super) fn acknowledged_up_to(&self, csn: Csn) {
        if csn.0 > self.acknowledged.load(Ordering::Relaxed) {
            self.acknowledged.fetch_max(csn.0, Ordering::SeqCst);
        }
    }

    /// Wakes whoever waits for `writer` or for W, where no lead does it.
    pub(super) fn wake_waiters(&self, writer: &LogWriter) {
        let woke = u64::from(writer.event.notify_all()) + u64::from(self.progress.notify_all());
        self.metrics.wake_ups.add(woke);
    }

    /// A write or flush failed: nothing is acknowledged from here on, and everybody is told.
    pub(super) fn fail(&self, error: Error) {
        if self.poison.raise(error) {
            tracing::error!(cause = %self.poison.error(crate::base::ErrorKind::Poisoned), "commits stop");
        }
        self.wake_everybody();
    }

    pub(super) fn wake_everybody(&self) {
        for writer in &self.writers {
            writer.event.notify_all();
            writer.full.notify_all();
        }
        self.progress.notify_all();
        self.space.notify_all();
        self.flusher.wake_for(levels::NOW);
        self.wakers.wake(|_| true);
    }
}
