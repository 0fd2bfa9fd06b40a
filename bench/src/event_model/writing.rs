//! Writes of logs, and what follows from their completion.
//!
//! ```text
//!   seal ─▶ submit ─▶ device ─▶ durable prefix ─▶ watermark ─▶ waiters woken, queues acknowledged
//! ```

use super::record::{Flying, Record};
use super::world::{NEVER, Next, World};
use crate::modelled::Access;
use quenchdb::internals::base::clock::Nanos;
use quenchdb::internals::commit::constants;
use quenchdb::{Acknowledger, Dependency, LockRelease, Queue, Writer};

/// Writes are multiples of this.
const BLOCK_BYTES: u64 = 4096;
/// What is due within so long is written with what is due now, in nanoseconds.
pub(super) const HORIZON_NS: u64 = constants::PACE.as_nanos() as u64;
/// Time after which a flusher does what workers left, in nanoseconds.
pub(super) const GRACE_NS: u64 = constants::GRACE.as_nanos() as u64;

fn padded(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES).max(1) * BLOCK_BYTES
}

/// Most transactions that are acknowledged before other threads see it.
const ACKNOWLEDGED_MOST: usize = constants::ACKNOWLEDGMENT_BATCH;

/// A block that was sealed: its log and flight.
pub(super) type Sealed = (usize, u64);

impl World<'_> {
    /// Returns whether a record of `log` is durable.
    pub(super) fn is_durable(&self, log: usize, csn: u64) -> bool {
        self.logs[log].durable_csn >= csn
    }

    /// Returns whether what a durable transaction waits for is durable.
    pub(super) fn is_satisfied(&self, need: u64) -> bool {
        if need == 0 || need < self.watermark {
            return true;
        }
        let log = self.log_of[need as usize % self.log_of.len()] as usize;
        self.input.protocol.dependency == Dependency::Exact && self.is_durable(log, need)
    }

    pub(super) fn is_committed(&self, log: usize, record: &Record) -> bool {
        self.is_durable(log, record.csn) && self.is_satisfied(record.need)
    }

    /// Returns the log to write for a transaction of `log`, if one must be written.
    pub(super) fn log_to_write(&self, log: usize, record: &Record) -> usize {
        if !self.is_durable(log, record.csn) {
            return log;
        }
        let holds_back = |log: &super::log::Log| log.first_volatile().is_some_and(|csn| csn <= record.need);
        self.logs.iter().position(holds_back).unwrap_or(log)
    }

    /// Seals a block of `log`, where each record has its own: that of `csn`, or the oldest. Returns
    /// the time that this takes, and the block.
    pub(super) fn seal(&mut self, log: usize, csn: u64) -> Option<(u64, Sealed)> {
        let protocol = &self.input.protocol;
        let (id, bytes) = match protocol.writer {
            Writer::Committer => self.logs[log].take_one(csn)?,
            _ => self.logs[log].take(protocol.buffer_bytes)?,
        };
        self.logs[log].write_began = self.now;
        let costs = &self.input.costs;
        let kib = padded(bytes) as f64 / 1024.0;
        Some(((costs.submit_ns + costs.submit_kib_ns * kib) as u64, (log, id)))
    }

    /// Submits a write of `bytes`. Returns when it completes, without a flush.
    fn write(&mut self, bytes: u64) -> u64 {
        let bytes = padded(bytes);
        let done = self.device.completion(Nanos(self.now), Access::Write, bytes).0;
        self.tally.writes += 1;
        self.tally.write_bytes += bytes;
        self.tally.write_ns += done - self.now;
        done
    }

    /// Returns when a flush that begins at `at` completes.
    fn flush(&mut self, at: u64) -> u64 {
        self.tally.flushes += u64::from(self.device.figures().flush_ns.is_some());
        self.device.flushed(Nanos(at)).0
    }

    /// Submits blocks, each with a flush of its own.
    pub(super) fn issue(&mut self, blocks: &[Sealed]) -> Vec<Flying> {
        let mut flying = Vec::with_capacity(blocks.len());
        for (log, id) in blocks {
            let flight = self.logs[*log].flights.iter().find(|flight| flight.id == *id);
            let (bytes, commits) = flight.map_or((0, 0), |flight| (flight.bytes, flight.records.len()));
            self.tally.written_commits += commits as u64;
            let written = self.write(bytes);
            let done = self.flush(written);
            flying.push(Flying { log: *log, id: *id, done });
        }
        flying
    }

    /// Submits blocks of several logs as one write of `bytes`.
    pub(super) fn issue_together(&mut self, blocks: &[Sealed], bytes: u64) -> Vec<Flying> {
        let written = self.write(bytes);
        let done = self.flush(written);
        let commits = |(log, id): &Sealed| {
            let flight = self.logs[*log].flights.iter().find(|flight| flight.id == *id);
            flight.map_or(0, |flight| flight.records.len() as u64)
        };
        self.tally.written_commits += blocks.iter().map(commits).sum::<u64>();
        blocks.iter().map(|(log, id)| Flying { log: *log, id: *id, done }).collect()
    }

    /// Writes what memory holds to the device, once a buffer is full. No thread waits for it.
    pub(super) fn destage(&mut self, log: usize, bytes: u64) {
        let buffer = self.input.protocol.buffer_bytes;
        self.logs[log].destage_bytes += bytes;
        if self.logs[log].destage_bytes >= buffer {
            self.logs[log].destage_bytes -= buffer;
            self.write(buffer);
        }
    }

    /// Completes a write. Records are durable once those before them are.
    pub(super) fn complete(&mut self, flying: Flying) {
        let (now, began) = (self.now, self.logs[flying.log].write_began);
        let log = &mut self.logs[flying.log];
        if let Some(flight) = log.flights.iter_mut().find(|flight| flight.id == flying.id) {
            flight.done = true;
        }
        log.cohort.completed(now - began, now);
        while let Some(flight) = log.pop_durable() {
            for record in flight.records {
                log.durable_csn = record.csn;
                if !record.waited_for {
                    log.hardened.push_back(record);
                }
            }
        }
    }

    /// After completions: computes the watermark.
    pub(super) fn rescan(&mut self) {
        let first = self.logs.iter().filter_map(super::log::Log::first_volatile).min();
        self.watermark = first.unwrap_or(self.next_csn).max(self.watermark);
    }

    /// After completions: computes the watermark, and has queued transactions acknowledged. Returns
    /// the time that this takes.
    pub(super) fn publish(&mut self, thread: usize) -> u64 {
        self.rescan();
        let scan = (self.input.costs.scan_ns * self.logs.len() as f64) as u64;
        scan + match self.input.protocol.acknowledger {
            Acknowledger::Leader => self.acknowledge(0, self.logs.len()),
            Acknowledger::Background => {
                if let Some(acknowledger) = self.acknowledger {
                    self.wake(thread, acknowledger);
                }
                0
            }
            Acknowledger::Workers if std::mem::take(&mut self.forced) => self.acknowledge(0, self.logs.len()),
            _ => {
                if self.logs.iter().any(|log| !log.hardened.is_empty()) {
                    self.acknowledge_at = self.acknowledge_at.min(self.now + GRACE_NS);
                    self.plan_flusher(0, self.acknowledge_at, None);
                }
                0
            }
        }
    }

    /// Acknowledges queued transactions of `first .. end`, a batch at most. Returns the time that
    /// this takes.
    pub(super) fn acknowledge(&mut self, first: usize, end: usize) -> u64 {
        let (costs, latched) = (self.input.costs, self.input.protocol.queue == Queue::Latched);
        let (mut took, mut left) = (costs.pass_ns, ACKNOWLEDGED_MOST);
        self.unfinished = false;
        let is_remote = self.input.protocol.acknowledger != Acknowledger::Workers;
        let each = costs.acknowledge_ns
            + if latched { costs.enqueue_ns } else { 0.0 }
            + if is_remote { costs.remote_ns } else { 0.0 };
        let (end, len) = (end.min(self.logs.len()), end.min(self.logs.len()) - first);
        // A batch over all logs begins where the one before it ended.
        let begin = if len == self.logs.len() { std::mem::take(&mut self.cursor) } else { first };
        for log in (begin..end).chain(first..begin) {
            let before = took;
            while let Some(record) = self.logs[log].hardened.front().copied() {
                if !self.is_satisfied(record.need) {
                    self.require(record.need);
                    break;
                }
                if left == 0 {
                    if !self.unfinished {
                        (self.unfinished, self.cursor) = (true, log);
                    }
                    break;
                }
                left -= 1;
                self.logs[log].hardened.pop_front();
                took += each;
                let ready = (record.bytes > 0).then_some(record.ready);
                self.tally.commits(record.begun, ready, self.now + took as u64);
                self.release_at_commit(&record);
            }
            if latched {
                let held = (took - before) / 8.0;
                self.logs[log].queue_latch.pass(self.now, usize::MAX, held, costs.transfer_ns);
            }
            if took > before {
                self.uncrowd(log);
            }
        }
        took as u64
    }

    /// Releases the row of a transaction that is committed, if it has kept it.
    fn release_at_commit(&mut self, record: &Record) {
        if self.input.locks.is_some_and(|locks| locks.release == LockRelease::Commit) {
            self.release_row(None, record);
        }
    }

    /// Releases the row of `record`, and wakes the next thread, which `waker` pays for.
    pub(super) fn release_row(&mut self, waker: Option<usize>, record: &Record) {
        let Some(row) = record.row else { return };
        if let Some(next) = self.rows.release(row, record.csn, self.now) {
            match waker {
                Some(waker) => self.wake(waker, next),
                None => self.rouse(next, self.input.costs.wake_late_ns as u64),
            }
        }
    }

    /// Wakes workers that wait for space.
    pub(super) fn uncrowd(&mut self, log: usize) {
        for thread in std::mem::take(&mut self.logs[log].crowded) {
            self.rouse(thread, self.input.costs.wake_late_ns as u64);
        }
    }

    /// Wakes the threads that wait for `log`; `waker` pays.
    pub(super) fn wake_waiters(&mut self, waker: usize, log: usize) {
        for thread in std::mem::take(&mut self.logs[log].waiters) {
            self.wake(waker, thread);
        }
        self.uncrowd(log);
    }

    /// Has the logs written that hold the watermark at or below `csn`.
    fn require(&mut self, csn: u64) {
        let Some(pace) = self.input.protocol.pace_us.filter(|_| csn > self.required) else { return };
        self.required = csn;
        let pace = (pace * 1e3) as u64;
        for number in 0..self.flushers.len() {
            self.plan_flusher(number, self.now + pace, None);
        }
    }

    /// Has flusher `number` look at `at`, if it sleeps longer.
    pub(super) fn plan_flusher(&mut self, number: usize, at: u64, waker: Option<usize>) {
        let Some(flusher) = self.flushers.get(number).copied() else { return };
        if !self.threads[flusher].asleep || self.threads[flusher].wakes_at <= at {
            return;
        }
        match waker {
            Some(waker) if at <= self.now => return self.wake(waker, flusher),
            None if at <= self.now => return self.rouse(flusher, self.input.costs.wake_late_ns as u64),
            _ => {}
        }
        let late = self.input.costs.timer_late_ns as u64;
        self.threads[flusher].wakes_at = at;
        self.threads[flusher].token += 1;
        let token = self.threads[flusher].token;
        self.events.push(at, super::world::Event::Wakes { thread: flusher, token, late });
    }

    /// Returns when a flusher has to write `log`.
    pub(super) fn due(&mut self, log: usize) -> u64 {
        let protocol = &self.input.protocol;
        let now = self.now;
        let it = &mut self.logs[log];
        if it.leader.is_some() {
            return NEVER;
        }
        let done = it.submitted.iter().map(|flying| flying.done).min();
        let reap = done.map_or(NEVER, |done| done.max(it.write_began + GRACE_NS));
        let Some(first) = it.unwritten.front() else { return reap };
        let interval = (protocol.interval_us * 1e3) as u64;
        let mut due = match protocol.window_after_arrival {
            _ if first.waited_for => NEVER,
            true => first.ready + interval,
            false => first.ready.max(it.write_began + interval),
        };
        if it.unwritten_bytes >= protocol.unit_bytes {
            due = now;
        }
        if protocol.writer == Writer::Worker {
            due = due.saturating_add(GRACE_NS);
        }
        due = due.min(reap);
        if let Some(pace) = protocol.pace_us
            && it.first_volatile().is_some_and(|csn| csn <= self.required)
        {
            due = due.min(it.write_began + ((pace * 1e3) as u64).min(interval));
        }
        due = due.min(it.requested);
        if due != NEVER && protocol.cohort && !protocol.window_after_arrival {
            due = due.max(it.cohort.expected_until(now).unwrap_or(0));
        }
        due
    }

    /// Completes the writes that the worker of `log` submitted and the device has finished. Returns
    /// how many.
    pub(super) fn reap(&mut self, log: usize) -> usize {
        let now = self.now;
        let done: Vec<_> = self.logs[log].submitted.extract_if(.., |flying| flying.done <= now).collect();
        done.iter().for_each(|flying| self.complete(*flying));
        done.len()
    }

    /// Waits for the writes of `thread`. When the next has completed, completes it and returns
    /// `None`.
    pub(super) fn await_flights(&mut self, thread: usize) -> Option<Next> {
        self.end_spin(thread);
        let earliest = self.threads[thread].flights.iter().map(|flying| flying.done).min()?;
        (earliest > self.now).then(|| self.await_device(thread, earliest))
    }
}
