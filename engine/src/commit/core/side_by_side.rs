//! Blocks of several logs, written side by side by one thread: through one queue, and published as
//! they complete. See `sharing` for whether one flush serves them all.

use super::log_writer::Leader;
use super::sharing::Sharing;
use super::writes::{UnderWay, Writes};
use crate::base::clock::Nanos;
use crate::base::{Csn, Error, ErrorKind, Result};
use crate::device::{Completion, File, WriteQueue, WriteRequest};
use crate::log::SealedBlock;
use std::sync::Arc;
use std::time::Duration;

/// Writes in flight at a time.
const WRITES: usize = 64;

/// The queue of a thread, which is made at first use.
#[derive(Default)]
pub struct SideBySide(Option<Box<dyn WriteQueue>>);

/// A block in flight, and the right to write it.
struct Flight<'a> {
    // Declared before the leader: dropping that wakes other threads.
    under_way: UnderWay<'a>,
    leader: Leader<'a>,
    sequence: u64,
    first_csn: Csn,
    file: Arc<dyn File>,
}

impl SideBySide {
    /// Makes `blocks` durable. A failure poisons.
    pub fn write<'a>(
        &mut self,
        writes: &'a Writes,
        sharing: &Sharing,
        blocks: Vec<(Leader<'a>, SealedBlock)>,
    ) {
        if blocks.is_empty() {
            return;
        }
        let queue = match &mut self.0 {
            Some(queue) => queue,
            None => match writes.environment.storage.write_queue(WRITES) {
                Ok(new) => self.0.insert(new),
                Err(error) => return writes.failure.fail(error),
            },
        };
        let mut flights = Vec::with_capacity(blocks.len());
        if let Err(error) = write_side_by_side(writes, sharing, &mut **queue, blocks, &mut flights) {
            writes.failure.fail(error);
            let mut done = Vec::new();
            while queue.in_flight() > 0 && queue.reap(true, &mut done).is_ok() {}
            if queue.in_flight() > 0 {
                // They may hang.
                flights.into_iter().flatten().for_each(|flight| flight.under_way.leave());
            }
        }
    }
}

fn write_side_by_side<'a>(
    writes: &'a Writes,
    sharing: &Sharing,
    queue: &mut dyn WriteQueue,
    blocks: Vec<(Leader<'a>, SealedBlock)>,
    flights: &mut Vec<Option<Flight<'a>>>,
) -> Result<()> {
    let clock = &writes.environment.clock;
    let (begun, count) = (clock.now(), blocks.len());
    debug_assert!(queue.in_flight() == 0 && flights.is_empty(), "one round after the other");
    let shared = sharing.decide(count);
    for (leader, block) in blocks {
        let under_way = UnderWay::begin(writes, leader.log(), begun);
        writes.count_submitted(leader.log(), block.len, &writes.environment.metrics.flusher_flushes);
        let SealedBlock { file, offset, buffer, len, sequence, first_csn, .. } = block.finish();
        let token = flights.len() as u64;
        flights.push(Some(Flight { under_way, leader, sequence, first_csn, file: file.clone() }));
        queue.submit(WriteRequest { file, offset, buffer, len, durable: !shared, token })?;
    }
    let (mut done, mut took) = (Vec::with_capacity(count), Duration::ZERO);
    debug_assert!(queue.in_flight() <= count, "the queue has nothing but this round's writes");
    while queue.in_flight() > 0 {
        queue.reap(true, &mut done)?;
        if !shared {
            took += clock.now().since(begun) * done.len() as u32;
            complete(writes, flights, &mut done, begun);
        }
    }
    if shared {
        flush_together(writes, flights, &done)?;
        took = clock.now().since(begun) * count as u32;
        complete(writes, flights, &mut done, begun);
    }
    sharing.note(count, shared, took / count as u32);
    Ok(())
}

/// Makes what has completed durable with one flush. After an error nothing of it may be believed.
fn flush_together(writes: &Writes, flights: &[Option<Flight<'_>>], done: &[Completion]) -> Result<()> {
    if let Some(error) = done.iter().find_map(|completion| completion.result.as_ref().err()) {
        return Err(error.duplicate());
    }
    let files: Vec<_> = flights.iter().flatten().map(|flight| flight.file.clone()).collect();
    writes.environment.storage.flush_together(&files)?;
    writes.environment.metrics.shared_flushes.add(1);
    Ok(())
}

/// Completes what was reaped, publishes, and then resigns as leader, which wakes the waiters.
fn complete(writes: &Writes, flights: &mut [Option<Flight<'_>>], done: &mut Vec<Completion>, begun: Nanos) {
    let mut leaders = Vec::with_capacity(done.len());
    for Completion { token, result, .. } in done.iter() {
        if let (Err(error), Some(Some(flight))) = (result, flights.get(*token as usize)) {
            let log = flight.leader.log().id;
            writes.failure.fail_write(&*flight.file, log, flight.first_csn, error.duplicate());
        }
    }
    writes.fail_if_any_failed(done);
    for Completion { token, buffer, .. } in done.drain(..) {
        match flights.get_mut(token as usize).and_then(Option::take) {
            Some(Flight { under_way, leader, sequence, .. }) => {
                under_way.end(writes.complete(leader.log(), sequence, buffer, begun));
                leaders.push(leader);
            }
            None => {
                let what = "the device completed a write that was not submitted";
                writes.failure.fail(Error::new(ErrorKind::Io, what));
            }
        }
    }
    writes.acknowledgments.publish();
}
