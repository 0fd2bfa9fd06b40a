//! A log: its latch, records that wait, writes in flight, and records that wait to be acknowledged.

use super::record::{Flying, Record};
use quenchdb::internals::commit::constants;
use std::collections::VecDeque;

/// A resource that one thread has at a time, in the order of requests. A waiting thread keeps its
/// core.
#[derive(Debug)]
pub(super) struct Latch {
    free_at: u64,
    last: usize,
    /// Time that it was held.
    pub busy_ns: u64,
}

impl Default for Latch {
    fn default() -> Latch {
        Latch { free_at: 0, last: usize::MAX, busy_ns: 0 }
    }
}

impl Latch {
    /// Holds the latch for `hold_ns`, and `transfer_ns` more if another thread had it before.
    /// Returns when the holder releases it.
    pub(super) fn pass(&mut self, now: u64, thread: usize, hold_ns: f64, transfer_ns: f64) -> u64 {
        let hold = hold_ns + if self.last == thread { 0.0 } else { transfer_ns };
        self.free_at = self.free_at.max(now) + hold as u64;
        self.busy_ns += hold as u64;
        self.last = thread;
        self.free_at
    }
}

/// A write of a log.
#[derive(Debug)]
pub(super) struct Flight {
    pub id: u64,
    pub records: Vec<Record>,
    pub bytes: u64,
    pub done: bool,
}

/// The commits that are expected to join the next write; see the engine's `cohort`.
#[derive(Debug, Default)]
pub(super) struct Cohort {
    pub arrived: u64,
    /// The thread of the first of them.
    pub first: Option<usize>,
    on_their_way: u64,
    expected: u64,
    until: u64,
    pub mean_ns: u64,
    waited: bool,
    misses: u32,
    pause: u32,
}

const WRITE_MIN_NS: u64 = constants::WRITE_MIN.as_nanos() as u64;
const WAIT_MAX_NS: u64 = constants::WAIT_MAX.as_nanos() as u64;

impl Cohort {
    pub(super) fn joined(&mut self, thread: usize) {
        self.first.get_or_insert(thread);
        self.arrived += 1;
    }

    pub(super) fn sealed(&mut self) {
        let arrived = std::mem::take(&mut self.arrived);
        self.first = None;
        self.on_their_way += arrived;
        let expected = std::mem::take(&mut self.expected);
        if !std::mem::take(&mut self.waited) {
            self.pause = self.pause.saturating_sub(1);
        } else if arrived >= expected {
            self.misses = 0;
        } else {
            self.misses += 1;
            if self.misses >= constants::MISSES {
                self.pause =
                    1_u32.checked_shl(self.misses).unwrap_or(constants::PAUSE_MAX).min(constants::PAUSE_MAX);
            }
        }
    }

    pub(super) fn completed(&mut self, took: u64, now: u64) {
        self.mean_ns = if self.mean_ns == 0 {
            took
        } else {
            self.mean_ns - self.mean_ns / constants::MEAN_OF + took / constants::MEAN_OF
        };
        let there = self.arrived;
        let size = std::mem::take(&mut self.on_their_way) + there;
        self.until = now + self.mean_ns.min(WAIT_MAX_NS);
        let worthwhile = size > there.max(1) && self.mean_ns >= WRITE_MIN_NS && self.pause == 0;
        self.expected = if worthwhile { size } else { 0 };
    }

    /// Until when a write waits for others.
    pub(super) fn expected_until(&mut self, now: u64) -> Option<u64> {
        let waits = self.arrived < self.expected && now < self.until;
        self.waited |= waits;
        waits.then_some(self.until)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub latch: Latch,
    /// The latch of a latched queue.
    pub queue_latch: Latch,
    /// Records that no write has taken.
    pub unwritten: VecDeque<Record>,
    pub unwritten_bytes: u64,
    /// Writes in the order of their records.
    pub flights: VecDeque<Flight>,
    pub next_flight: u64,
    /// Writes that this log's worker submitted, those with bytes of other logs included.
    pub submitted: Vec<Flying>,
    /// Durable records that are not acknowledged.
    pub hardened: VecDeque<Record>,
    pub durable_csn: u64,
    pub leader: Option<usize>,
    /// When the last write began.
    pub write_began: u64,
    /// When a thread that waits wants it written; never: the greatest number.
    pub requested: u64,
    pub cohort: Cohort,
    pub waiters: Vec<usize>,
    /// Workers that wait for space in the buffers or in the queue.
    pub crowded: Vec<usize>,
    /// Bytes in memory that keeps them, to be written to the device.
    pub destage_bytes: u64,
    /// Durable CSN and watermark when a worker last looked.
    pub looked: (u64, u64),
}

impl Log {
    /// Returns the oldest CSN that is not durable.
    pub(super) fn first_volatile(&self) -> Option<u64> {
        let flying = self.flights.front().and_then(|flight| flight.records.first());
        // A committer may write its own record before older ones.
        flying.into_iter().chain(self.unwritten.front()).map(|record| record.csn).min()
    }

    /// Returns the buffers in use, where each record has its own.
    pub(super) fn blocks(&self) -> u64 {
        (self.unwritten.len() + self.flights.len()) as u64
    }

    pub(super) fn flying_bytes(&self) -> u64 {
        self.flights.iter().map(|flight| flight.bytes).sum()
    }

    /// Returns transactions without a thread that are not acknowledged.
    pub(super) fn queued(&self) -> usize {
        let flying: usize = self.flights.iter().map(|flight| flight.records.len()).sum();
        self.unwritten.len() + flying + self.hardened.len()
    }

    /// Takes records of at most `bytes`, at least one. Returns their flight and its bytes.
    pub(super) fn take(&mut self, bytes: u64) -> Option<(u64, u64)> {
        let (mut records, mut taken) = (Vec::new(), 0);
        while let Some(record) = self.unwritten.front()
            && (records.is_empty() || taken + record.bytes <= bytes)
        {
            taken += record.bytes;
            records.extend(self.unwritten.pop_front());
        }
        self.fly(records)
    }

    /// Takes the record of `csn`, or the oldest one if that record is taken already.
    pub(super) fn take_one(&mut self, csn: u64) -> Option<(u64, u64)> {
        let own = self.unwritten.iter().position(|record| record.csn == csn);
        let record = self.unwritten.remove(own.unwrap_or(0))?;
        self.fly(vec![record])
    }

    fn fly(&mut self, records: Vec<Record>) -> Option<(u64, u64)> {
        let first = records.first()?.csn;
        let bytes = records.iter().map(|record| record.bytes).sum();
        self.unwritten_bytes -= bytes;
        if self.unwritten.is_empty() {
            self.requested = u64::MAX;
        }
        self.cohort.sealed();
        self.next_flight += 1;
        let is_before = |flight: &Flight| flight.records.first().is_some_and(|record| record.csn < first);
        let place = self.flights.partition_point(is_before);
        self.flights.insert(place, Flight { id: self.next_flight, records, bytes, done: false });
        Some((self.next_flight, bytes))
    }

    /// Removes and returns the oldest write, if it has completed and all records before it are
    /// durable.
    pub(super) fn pop_durable(&mut self) -> Option<Flight> {
        let oldest = self.unwritten.front().map_or(u64::MAX, |record| record.csn);
        let is_durable = |flight: &mut Flight| {
            flight.done && flight.records.first().is_some_and(|record| record.csn < oldest)
        };
        self.flights.pop_front_if(is_durable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_written_before_older_ones_is_durable_after_them() {
        let mut log = Log::default();
        for csn in 1..=3 {
            log.unwritten.push_back(Record { csn, bytes: 100, ..Record::default() });
            log.unwritten_bytes += 100;
        }
        let complete = |log: &mut Log, csn| {
            let (id, bytes) = log.take_one(csn).expect("a record");
            assert_eq!(bytes, 100);
            let flight = log.flights.iter_mut().find(|flight| flight.id == id).expect("in flight");
            flight.done = true;
            std::iter::from_fn(|| log.pop_durable()).map(|flight| flight.records[0].csn).collect::<Vec<_>>()
        };
        assert!(complete(&mut log, 2).is_empty(), "behind record 1");
        assert_eq!(log.first_volatile(), Some(1));
        // Its own record is taken, so it takes the oldest.
        assert_eq!(complete(&mut log, 2), [1, 2]);
        assert_eq!(log.first_volatile(), Some(3));
        assert_eq!(complete(&mut log, 3), [3]);
        assert_eq!((log.first_volatile(), log.unwritten_bytes), (None, 0));
    }
}
