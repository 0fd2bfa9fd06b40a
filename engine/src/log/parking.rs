//! The parking lot: blocks of one log that are on their way to the device.
//!
//! ```text
//!   sequences   7         8         9
//!               in flight completed completed  8 and 9 are parked: not acknowledged yet
//!               completed                      the frontier passes 7, 8 and 9 at once
//! ```
//!
//! Writes of one log complete in any order: its own of different queues, and those of helpers
//! that piggyback its blocks. A block that completes before an earlier one of the same log waits
//! here. The completion of the earliest block acknowledges all of them.
//!
//! 1. The frontier is the last CSN of the gap-free prefix of completed blocks. It never falls, and
//!    never passes a block that is in flight.
//! 2. Blocks are parked in the order of their sequences, under the log's latch, and complete under
//!    it.
//! 3. A sequence that is not in flight is ignored: it cannot move the frontier.

use super::segment::OpenBlock;
use crate::base::Csn;
use crate::base::planted::{self, Bug};
use std::collections::VecDeque;

/// Blocks that may be in flight before peers leave a log alone. Its own blocks are bounded by its
/// buffers.
pub(super) const PLACES: usize = 64;

#[derive(Debug)]
struct Flight {
    sequence: u64,
    first_csn: Csn,
    last_csn: Csn,
    completed: bool,
    /// The buffer of the medium that holds its records, durable.
    buffer: Option<u32>,
    /// Its place is kept for it.
    open: Option<OpenBlock>,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct ParkingLot {
    flights: VecDeque<Flight>,
}

impl ParkingLot {
    pub(super) fn new() -> ParkingLot {
        ParkingLot { flights: VecDeque::with_capacity(PLACES) }
    }

    /// A block was sealed. Sequences and CSNs rise from one to the next.
    pub(super) fn depart(
        &mut self,
        sequence: u64,
        first_csn: Csn,
        last_csn: Csn,
        buffer: Option<u32>,
        open: Option<OpenBlock>,
    ) {
        debug_assert!(
            self.flights.back().is_none_or(|last| last.sequence < sequence && last.last_csn < first_csn)
        );
        debug_assert!(first_csn <= last_csn, "CSNs rise within a block");
        debug_assert!(
            buffer.is_none() || self.flights.iter().all(|flight| flight.buffer != buffer),
            "a buffer of the medium holds one block"
        );
        self.flights.push_back(Flight { sequence, first_csn, last_csn, completed: false, buffer, open });
    }

    /// The write of a block has completed. Returns the frontier if it moved.
    pub(super) fn complete(&mut self, sequence: u64) -> Option<Csn> {
        if let Some(flight) = self.flights.iter_mut().find(|flight| flight.sequence == sequence) {
            flight.completed = true;
            flight.open = None;
        }
        let mut frontier = None;
        let passes = |flight: &Flight| planted::is(Bug::FrontierIsHighest) && flight.sequence < sequence;
        while let Some(flight) = self.flights.front()
            && (flight.completed || passes(flight))
        {
            debug_assert!(flight.completed, "the frontier never passes a block that is in flight");
            debug_assert!(frontier.is_none_or(|before| before < flight.last_csn), "the frontier never falls");
            frontier = Some(flight.last_csn);
            self.flights.pop_front();
        }
        frontier
    }

    /// The medium's buffer of a block whose write has completed, to be used again.
    pub(super) fn take_buffer(&mut self, sequence: u64) -> Option<u32> {
        self.flights.iter_mut().find(|flight| flight.sequence == sequence)?.buffer.take()
    }

    /// The first CSN of a block that is in flight and that the medium does not hold.
    pub(super) fn first_ordinary_csn(&self) -> Option<Csn> {
        let flight = self.flights.iter().find(|flight| !flight.completed && flight.buffer.is_none());
        flight.map(|flight| flight.first_csn)
    }

    /// The first CSN that is in flight, or parked behind one that is.
    pub(super) fn first_csn(&self) -> Option<Csn> {
        self.flights.front().map(|flight| flight.first_csn)
    }

    /// The first sequence that has not completed, or is parked behind one.
    pub(super) fn first_sequence(&self) -> Option<u64> {
        self.flights.front().map(|flight| flight.sequence)
    }

    /// Blocks in flight or parked.
    pub(super) fn len(&self) -> usize {
        self.flights.len()
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
