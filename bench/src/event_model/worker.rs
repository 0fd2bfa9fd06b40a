//! The workers: one transaction after the other.
//!
//! ```text
//!   begin ─▶ execute ─▶ lock ─▶ execute ─▶ append ─┬─ blocking: lead a write, or sleep ─▶ committed
//!                                                  └─ asynchronous: reap, submit, acknowledge ─▶ next
//! ```

use super::record::Record;
use super::world::{Next, Role, Stage, World};
use super::writing::GRACE_NS;
use quenchdb::internals::commit::constants;
use quenchdb::{Acknowledger, Dependency, LockRelease, Queue, Writer};

/// Time between two looks for completions by a worker, in nanoseconds.
const POLL_EVERY_NS: u64 = constants::POLL_EVERY.as_nanos() as u64;
/// A thread that waited so long for its commit has slept.
const SLEPT_NS: u64 = constants::SLEPT.as_nanos() as u64;
/// The newest idle time of a worker counts for one part in so many in its average.
const IDLE_WEIGHT: u64 = constants::IDLE_WEIGHT;

impl World<'_> {
    fn log_of_thread(&self, thread: usize) -> usize {
        match self.threads[thread].role {
            Role::Worker { log } => log,
            _ => 0,
        }
    }

    /// Does the next step of a worker; `None`: continue with the next stage.
    pub(super) fn worker_step(&mut self, thread: usize) -> Option<Next> {
        let log = self.log_of_thread(thread);
        match self.threads[thread].stage {
            Stage::Begin => self.begin(thread),
            Stage::Lock => self.lock(thread),
            Stage::Locked => {
                let waited = self.now - self.threads[thread].record.ready;
                self.tally.row_wait_ns += waited;
                self.locked(thread)
            }
            Stage::Append => self.append(thread, log),
            Stage::Appended => self.appended(thread, log),
            Stage::Fenced => {
                self.fenced(log);
                self.enqueued(thread, log)
            }
            Stage::Wait => self.wait(thread, log),
            Stage::Gather(led) => {
                self.threads[thread].stage = Stage::Seal(led);
                None
            }
            Stage::Seal(led) => self.lead(thread, led),
            Stage::Issue | Stage::Flights => self.lead_flights(thread),
            Stage::End | Stage::Look => self.end(thread, log),
        }
    }

    /// Begins a transaction, once it has arrived.
    fn begin(&mut self, thread: usize) -> Option<Next> {
        if self.threads[thread].arrivals.is_some() && self.threads[thread].begun == 0 {
            let arrival = self.threads[thread].arrivals.as_mut().map_or(0, |arrivals| arrivals.take());
            self.threads[thread].begun = arrival.max(1);
            if arrival > self.now {
                return Some(Next::Until { at: arrival, late: self.input.costs.timer_late_ns as u64 });
            }
        }
        if self.yields(thread) {
            return Some(Next::Yield);
        }
        let begun = match self.threads[thread].arrivals {
            Some(_) => std::mem::take(&mut self.threads[thread].begun),
            None => self.now,
        };
        self.tally.begins(begun, self.now);
        self.note_idle(thread, self.now);
        let reads_only = self.input.read_share > 0.0 && self.random.unit() < self.input.read_share;
        let row = if reads_only { None } else { self.rows.draw(&mut self.random) };
        let share = match (row, self.input.locks) {
            (Some(_), Some(locks)) => 1.0 - locks.locked_share,
            _ => 1.0,
        };
        let it = &mut self.threads[thread];
        it.reads_only = reads_only;
        it.record = Record { begun, row, waited_for: self.input.protocol.blocking, ..Record::default() };
        it.stage = if row.is_some() { Stage::Lock } else { Stage::Append };
        let outside = if row.is_some() || reads_only { 0.0 } else { self.input.costs.append_ns };
        Some(Next::Run(self.varied(self.input.costs.execute_ns * share) + outside as u64))
    }

    /// Returns whether `thread` yields before its next transaction, by the rule of the engine: time
    /// has passed since it last did, and it has not slept.
    fn yields(&mut self, thread: usize) -> bool {
        let (now, every) = (self.now, self.input.costs.yield_every_ns as u64);
        let it = &mut self.threads[thread];
        let slept = std::mem::take(&mut it.slept);
        if std::mem::take(&mut it.yields) || it.yielded_at == 0 {
            // It has the core again, or begins its first transaction.
            it.yielded_at = now.max(1);
            return false;
        }
        it.yields = !slept && it.record.ready.saturating_sub(it.yielded_at) >= every;
        it.yields
    }

    fn lock(&mut self, thread: usize) -> Option<Next> {
        let row = self.threads[thread].record.row.unwrap_or(0);
        if self.rows.lock(row, thread, self.now) {
            return self.locked(thread);
        }
        self.threads[thread].record.ready = self.now;
        self.threads[thread].stage = Stage::Locked;
        Some(Next::Sleep)
    }

    /// Executes the rest, with the lock.
    fn locked(&mut self, thread: usize) -> Option<Next> {
        let share = self.input.locks.map_or(0.0, |locks| locks.locked_share);
        self.threads[thread].stage = Stage::Append;
        // The commit is asked for later.
        self.threads[thread].record.ready = 0;
        let costs = self.input.costs;
        Some(Next::Run(self.varied(costs.execute_ns * share) + (costs.append_ns + costs.lock_ns) as u64))
    }

    /// Takes the log's latch and puts the record into the buffer.
    fn append(&mut self, thread: usize, log: usize) -> Option<Next> {
        if self.threads[thread].reads_only {
            return self.read(thread, log);
        }
        let (protocol, costs) = (&self.input.protocol, &self.input.costs);
        if self.threads[thread].record.ready == 0 {
            self.threads[thread].record.ready = self.now;
        }
        if protocol.writer == Writer::Committer
            && protocol.blocking
            && self.logs[log].blocks() >= protocol.buffers
        {
            return self.make_room(thread, log);
        }
        let it = &self.logs[log];
        let full = it.unwritten_bytes + it.flying_bytes() >= protocol.buffer_bytes * protocol.buffers;
        let crowded =
            |world: &World<'_>| !protocol.blocking && world.logs[log].queued() >= protocol.queue_entries;
        if !full && crowded(self) {
            // A committer that finds its queue full acknowledges, whatever the protocol.
            let took = self.acknowledge(0, self.logs.len());
            if !crowded(self) {
                return Some(Next::Run(took));
            }
        }
        if full || crowded(self) {
            self.logs[log].requested = 0;
            self.logs[log].crowded.push(thread);
            self.plan_flusher(log % self.flushers.len().max(1), self.now, Some(thread));
            return Some(Next::Sleep);
        }
        let (mut at, slower) = (self.now, self.slowdown());
        if self.logs.len() > 1 && protocol.dependency != Dependency::GsnRfa {
            at = self.draw.pass(at, thread, costs.draw_ns * slower, costs.transfer_ns);
        }
        at = self.logs[log].latch.pass(at, thread, costs.latch_ns * slower, costs.transfer_ns);
        if !protocol.blocking && protocol.queue == Queue::Latched {
            at = self.logs[log].queue_latch.pass(at, thread, costs.enqueue_ns * slower, costs.transfer_ns);
        }
        self.threads[thread].stage = Stage::Appended;
        Some(Next::Hold(at - self.now))
    }

    /// Writes a record of another committer, because each record has a buffer and all are in use.
    fn make_room(&mut self, thread: usize, log: usize) -> Option<Next> {
        if self.logs[log].leader.is_some() {
            self.logs[log].waiters.push(thread);
            return Some(Next::Sleep);
        }
        self.logs[log].leader = Some(thread);
        self.threads[thread].stage = Stage::Seal(log);
        None
    }

    /// Ends a transaction that only read. An asynchronous one is queued behind the newest durable
    /// commit, because its caller learns what it read.
    fn read(&mut self, thread: usize, log: usize) -> Option<Next> {
        self.threads[thread].record.ready = self.now;
        let record = self.threads[thread].record;
        if self.input.protocol.blocking {
            self.tally.commits(record.begun, None, self.now);
            return self.next(thread);
        }
        if self.logs[log].queued() >= self.input.protocol.queue_entries {
            self.logs[log].crowded.push(thread);
            return Some(Next::Sleep);
        }
        let need = if self.depends() { self.next_csn - 1 } else { 0 };
        let queued = Record { need, ready: self.now, bytes: 0, waited_for: false, ..record };
        self.logs[log].hardened.push_back(queued);
        if self.input.protocol.acknowledger != Acknowledger::Workers && self.logs[log].unwritten.is_empty() {
            // No write of this log would have it acknowledged.
            self.acknowledge_at = self.acknowledge_at.min(self.now + GRACE_NS);
            self.plan_flusher(0, self.acknowledge_at, Some(thread));
        }
        self.threads[thread].stage = Stage::End;
        None
    }

    /// Draws whether a transaction depends on one of another log.
    fn depends(&mut self) -> bool {
        self.input.dependency_share > 0.0 && self.random.unit() < self.input.dependency_share
    }

    /// The record is in the buffer: the transaction is pre-committed.
    fn appended(&mut self, thread: usize, log: usize) -> Option<Next> {
        let protocol = &self.input.protocol;
        let mut record = self.threads[thread].record;
        record.csn = self.next_csn;
        record.bytes = self.input.log_bytes;
        self.next_csn += 1;
        let place = record.csn as usize % self.log_of.len();
        self.log_of[place] = log as u32;
        let depends = self.depends();
        let recent = 1 + self.random.below(4 * self.threads.len() as u64);
        let held = record.row.map_or(0, |row| self.rows.predecessor(row));
        record.need = match protocol.dependency {
            Dependency::LogOrder => 0,
            Dependency::GsnRfa if depends || held > 0 => record.csn,
            Dependency::GsnRfa => 0,
            Dependency::Dsn | Dependency::Exact if depends => held.max(record.csn.saturating_sub(recent)),
            Dependency::Dsn | Dependency::Exact => held,
            // All with a lower CSN.
            _ => record.csn,
        };
        let keeps = self.input.locks.is_some_and(|locks| locks.release == LockRelease::Commit);
        self.threads[thread].record = record;
        self.logs[log].unwritten.push_back(record);
        self.logs[log].unwritten_bytes += record.bytes;
        if record.row.is_some() && !keeps {
            self.release_row(Some(thread), &record);
        }
        if protocol.writer == Writer::Memory {
            self.threads[thread].stage = Stage::Fenced;
            let costs = &self.input.costs;
            return Some(Next::Run((costs.fence_ns + costs.insertion_ns) as u64));
        }
        if protocol.blocking {
            self.logs[log].cohort.joined(thread);
        }
        self.enqueued(thread, log)
    }

    /// The records of `log` are durable, because memory keeps them.
    fn fenced(&mut self, log: usize) {
        let mut bytes = 0;
        while let Some(record) = self.logs[log].unwritten.pop_front() {
            bytes += record.bytes;
            self.logs[log].durable_csn = record.csn;
            if !record.waited_for {
                self.logs[log].hardened.push_back(record);
            }
        }
        self.logs[log].unwritten_bytes = 0;
        self.rescan();
        self.destage(log, bytes);
    }

    fn enqueued(&mut self, thread: usize, log: usize) -> Option<Next> {
        if self.input.protocol.blocking {
            self.threads[thread].stage = Stage::Wait;
            return None;
        }
        if self.input.protocol.writer != Writer::Memory {
            let due = self.due(log);
            self.plan_flusher(log % self.flushers.len().max(1), due, Some(thread));
        }
        self.threads[thread].stage = Stage::End;
        None
    }

    /// Waits for the commit of this thread, and causes the writes that it needs.
    fn wait(&mut self, thread: usize, log: usize) -> Option<Next> {
        let record = self.threads[thread].record;
        if record.csn == 0 {
            // It has written another record to make room for its own.
            self.threads[thread].stage = Stage::Append;
            return None;
        }
        if self.input.protocol.cohort {
            // A thread that its timer woke is still in the list.
            self.logs[log].waiters.retain(|waiter| *waiter != thread);
        }
        if self.is_committed(log, &record) {
            self.tally.commits(record.begun, Some(record.ready), self.now);
            self.threads[thread].slept = self.now - record.ready >= SLEPT_NS;
            if self.input.locks.is_some_and(|locks| locks.release == LockRelease::Commit) {
                self.release_row(Some(thread), &record);
            }
            return self.next(thread);
        }
        let target = self.log_to_write(log, &record);
        let (protocol, now) = (&self.input.protocol, self.now);
        let waiters_write = matches!(protocol.writer, Writer::Committer | Writer::Leader | Writer::Worker);
        if !waiters_write {
            let window = if protocol.window_after_arrival { (protocol.interval_us * 1e3) as u64 } else { 0 };
            let by = if window > 0 && target == log { record.ready + window } else { now };
            self.logs[target].requested = self.logs[target].requested.min(by);
            let due = self.due(target).min(by.max(now));
            let waits = protocol.cohort && self.logs[target].cohort.expected_until(now).is_some();
            let due = if waits { self.due(target) } else { due };
            self.logs[target].waiters.push(thread);
            self.plan_flusher(target % self.flushers.len().max(1), due, Some(thread));
            return Some(Next::Sleep);
        }
        let oldest = self.logs[target].unwritten.front().map_or(u64::MAX, |oldest| oldest.csn);
        let newest = if protocol.writer == Writer::Committer { record.csn } else { u64::MAX - 1 };
        if self.logs[target].leader.is_some() || oldest > newest {
            self.logs[target].waiters.push(thread);
            return Some(Next::Sleep);
        }
        if protocol.cohort
            && target == log
            && let Some(until) = self.logs[log].cohort.expected_until(now)
        {
            let is_timekeeper = self.logs[log].cohort.first == Some(thread);
            self.logs[log].waiters.push(thread);
            let late = self.input.costs.timer_late_ns as u64;
            return Some(if is_timekeeper { Next::Until { at: until, late } } else { Next::Sleep });
        }
        self.logs[target].leader = Some(thread);
        let others = self.input.workers.saturating_sub(1);
        if protocol.window_us > 0.0 && others >= protocol.siblings {
            self.threads[thread].stage = Stage::Gather(target);
            let at = now + (protocol.window_us * 1e3) as u64;
            return Some(Next::Until { at, late: self.input.costs.timer_late_ns as u64 });
        }
        self.threads[thread].stage = Stage::Seal(target);
        None
    }

    /// Seals a block of the log that `thread` leads.
    fn lead(&mut self, thread: usize, log: usize) -> Option<Next> {
        let Some((sealing, block)) = self.seal(log, self.threads[thread].record.csn) else {
            self.logs[log].leader = None;
            self.threads[thread].stage = Stage::Wait;
            return None;
        };
        self.threads[thread].sealed.push(block);
        self.threads[thread].stage = Stage::Issue;
        Some(Next::Run(sealing))
    }

    /// Submits, waits, completes, and wakes the others.
    fn lead_flights(&mut self, thread: usize) -> Option<Next> {
        if self.threads[thread].stage == Stage::Issue {
            let blocks = std::mem::take(&mut self.threads[thread].sealed);
            self.threads[thread].flights = self.issue(&blocks);
            self.threads[thread].stage = Stage::Flights;
        }
        if let Some(wait) = self.await_flights(thread) {
            return Some(wait);
        }
        let done = std::mem::take(&mut self.threads[thread].flights);
        done.iter().for_each(|flying| self.complete(*flying));
        let took = self.publish(thread) + self.input.costs.complete_ns as u64;
        for flying in done {
            self.logs[flying.log].leader = None;
            self.wake_waiters(thread, flying.log);
        }
        self.threads[thread].stage = Stage::Wait;
        Some(Next::Run(took))
    }

    /// Ends an asynchronous transaction: writes, where workers do that, and acknowledges.
    fn end(&mut self, thread: usize, log: usize) -> Option<Next> {
        let mut took = 0;
        if self.input.protocol.writer == Writer::Worker {
            took += self.input.costs.look_ns as u64 + self.work(thread, log);
            self.delegate_if_idle(thread, log);
        }
        let protocol = &self.input.protocol;
        if protocol.acknowledger == Acknowledger::Workers {
            let odds = match protocol.ack_odds {
                0 => u64::from((self.input.workers as u64).ilog2().max(1)),
                odds => odds,
            };
            if odds <= 1 || self.random.chance(1, odds) {
                took += self.acknowledge_group(log);
            }
        }
        self.next(thread);
        (took > 0 || self.threads[thread].debt > 0).then_some(Next::Run(took))
    }

    fn next(&mut self, thread: usize) -> Option<Next> {
        self.threads[thread].stage = Stage::Begin;
        // As in the engine, its idle time begins when it asks to commit.
        self.threads[thread].ended = self.threads[thread].record.ready.max(1);
        None
    }

    /// Reaps, steals and submits. Returns the time that this takes.
    fn work(&mut self, thread: usize, log: usize) -> u64 {
        let (protocol, costs, now) = (&self.input.protocol, self.input.costs, self.now);
        let it = &self.logs[log];
        let waits = it.unwritten_bytes;
        let by_time = it.unwritten.front().is_some_and(|first| {
            first.ready.max(it.write_began + (protocol.interval_us * 1e3) as u64) <= now
        });
        let due = waits >= protocol.unit_bytes || by_time || self.reaches_unit_together(log);
        let has_room = self.logs[log].submitted.len() < protocol.in_flight;
        let may_poll = now >= self.threads[thread].reaped + POLL_EVERY_NS;
        if self.logs[log].leader.is_some() || (self.logs[log].submitted.is_empty() && !due) {
            return 0;
        }
        if !(may_poll || due && has_room) {
            return 0;
        }
        self.threads[thread].reaped = now;
        let mut took = 0;
        let reaped = self.reap(log);
        if reaped > 0 {
            took += self.publish(thread) + (costs.complete_ns * reaped as f64) as u64;
            self.wake_waiters(thread, log);
        }
        if due && self.logs[log].submitted.len() < self.input.protocol.in_flight {
            took += self.submit(log);
        }
        took
    }

    /// Returns the logs of the stealing group of `log`.
    fn neighbours(&self, log: usize) -> std::ops::Range<usize> {
        let group = self.input.protocol.steal_group.max(1);
        let first = log / group * group;
        first..(first + group).min(self.logs.len())
    }

    /// Returns whether `log` has enough to steal, and its group fills a unit together.
    fn reaches_unit_together(&self, log: usize) -> bool {
        let protocol = &self.input.protocol;
        let bits = (protocol.steal_group as u64).max(1).ilog2().max(1);
        if protocol.steal_group < 2 || self.logs[log].unwritten_bytes < protocol.unit_bytes / u64::from(bits)
        {
            return false;
        }
        let together: u64 = self.neighbours(log).map(|log| self.logs[log].unwritten_bytes).sum();
        together >= protocol.unit_bytes
    }

    /// Submits what waits in `log`, and what it steals. Returns the time that this takes.
    fn submit(&mut self, log: usize) -> u64 {
        let Some((mut took, block)) = self.seal(log, 0) else { return 0 };
        let unit = self.input.protocol.unit_bytes;
        let mut bytes = self.logs[log].flights.back().map_or(0, |flight| flight.bytes);
        let mut blocks = vec![block];
        if bytes < unit && self.input.protocol.steal_group > 1 {
            for other in self.neighbours(log) {
                if other == log || bytes >= unit || self.logs[other].leader.is_some() {
                    continue;
                }
                if let Some((_, stolen)) = self.seal(other, 0) {
                    let more = self.logs[other].flights.back().map_or(0, |flight| flight.bytes);
                    took += (self.input.costs.submit_kib_ns * more as f64 / 1024.0) as u64
                        + self.input.costs.transfer_ns as u64;
                    bytes += more;
                    self.tally.stolen += 1;
                    blocks.push(stolen);
                }
            }
        }
        let flying = self.issue_together(&blocks, bytes);
        self.logs[log].submitted.extend(flying);
        let due = self.logs[log].write_began + GRACE_NS;
        self.plan_flusher(0, due, None);
        took
    }

    /// Acknowledges the group of `log`, if there is news. Returns the time that this takes.
    fn acknowledge_group(&mut self, log: usize) -> u64 {
        let group = self.input.protocol.ack_group.max(1);
        let (first, end) = (log / group * group, log / group * group + group);
        let mut news = false;
        for log in first..end.min(self.logs.len()) {
            let now = (self.logs[log].durable_csn, self.watermark);
            if !self.logs[log].hardened.is_empty() && self.logs[log].looked != now {
                self.logs[log].looked = now;
                news = true;
            }
        }
        if news { self.acknowledge(first, end) } else { 0 }
    }

    /// Notes how long `thread` was idle before the transaction that begins `now`.
    fn note_idle(&mut self, thread: usize, now: u64) {
        let most = (self.input.protocol.idle_us * 1e3) as u64;
        let it = &mut self.threads[thread];
        if most > 0 && it.ended > 0 {
            let idle = now.saturating_sub(it.ended);
            let idle = if idle < most / 8 { 0 } else { idle.min(2 * most) };
            it.idle = (it.idle * (IDLE_WEIGHT - 1) + idle) / IDLE_WEIGHT;
        }
    }

    /// Has the flusher write and acknowledge at once, if this worker is idle between transactions.
    fn delegate_if_idle(&mut self, thread: usize, log: usize) {
        let most = (self.input.protocol.idle_us * 1e3) as u64;
        let wanted = !self.logs[log].unwritten.is_empty() || !self.logs[log].submitted.is_empty();
        if most == 0 || !wanted || self.logs[log].leader.is_some() || self.threads[thread].idle == 0 {
            return;
        }
        if self.threads[thread].idle >= self.random.below(most) {
            self.forced = true;
            if !self.logs[log].unwritten.is_empty() {
                self.logs[log].requested = 0;
            }
            self.plan_flusher(0, self.now, Some(thread));
        }
    }
}
