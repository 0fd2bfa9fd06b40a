//! A segment of the log in several buckets: each block goes to all of them.
//!
//! ```text
//!    block 7 ──┬──▶ bucket 1   1 2 3 4 5 6 7      confirmed
//!              ├──▶ bucket 2   1 2 3 4 5 6 7      confirmed: block 7 is durable
//!              └──▶ bucket 3   1 2 3 4            slow, or out of reach
//! ```
//!
//! 1. Each bucket has a numbered segment of its own, which confirms a block only when all lower
//!    ones are there (O21). So a bucket that confirms block 7 has everything below, and a fence at
//!    its first free number ends what it will ever confirm (O22).
//! 2. A block is durable when enough buckets confirmed it (O30). Then so are all lower ones.
//! 3. A bucket that fails, or for which too much waits, gets no more blocks of this segment. What
//!    the bucket has confirmed counts. The repair copies what the bucket lacks, under the same
//!    names, as if the first requests were slow. Then the bucket gets the next blocks, too (O36).
//! 4. If too few buckets can still confirm a block, the write fails. Its outcome is unknown unless
//!    every bucket has refused it for certain: a block that reached one bucket may be recovered.

use super::body::{Form, ObjectId, SegmentEntry};
use super::buckets::{Bucket, Buckets};
use super::fence::peek;
use super::in_flight::InFlight;
use super::numbered::{NumberedSegment, block_name};
use super::open_segment::{OpenSegment, Write, Writer, admit};
use super::patience::{error_of, place, read_all};
use super::segment_reader::Part;
use super::waiting::wait_for_all;
use crate::base::{Error, ErrorKind, Result};
use crate::device::WriteEnded;
use crate::sync::Mutex;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long the end of a writer waits for buckets that do not answer.
const IDLE_MAX: Duration = Duration::from_secs(1);
/// Blocks that are copied to a bucket together.
const COPIED_TOGETHER: u64 = 8;
/// Most blocks that are sent and not known to be durable. So what may count bounds the number of a
/// writer's next block: fences for so many numbers end the writer in a bucket, whatever the bucket
/// had before.
pub(super) const BLOCKS_AHEAD_MAX: u64 = 16;

/// The segment in one bucket.
struct Copy {
    segment: Arc<NumberedSegment>,
    /// It gets the next blocks.
    is_active: bool,
    /// Something was sent of which the outcome may never be known.
    is_unsettled: bool,
    /// Rises when the bucket takes part again. Outcomes of before say nothing of what it has now.
    turn: u32,
}

/// A block that is not known to be durable yet.
struct Block {
    body: Bytes,
    done: WriteEnded,
    /// Buckets that have confirmed it, a bit each.
    confirmed: u32,
    /// Answers that are missing.
    left: usize,
    failures: Vec<Error>,
}

#[derive(Default)]
struct State {
    /// One for each bucket.
    copies: Vec<Copy>,
    blocks: BTreeMap<u64, Block>,
    /// Blocks that wait until fewer others are sent.
    waiting: VecDeque<Write>,
    /// Lengths of the blocks by number, from 1, and whether each is durable.
    lens: Vec<(u64, bool)>,
    is_registered: bool,
    failure: Option<Error>,
}

impl State {
    /// Returns how many blocks are durable; all lower ones are, too.
    fn durable(&self) -> u64 {
        self.lens.iter().take_while(|(_, is_durable)| *is_durable).count() as u64
    }
}

/// See the module's text.
pub(super) struct SpreadSegment {
    path: String,
    id: ObjectId,
    buckets: Buckets,
    /// One for each bucket.
    writers: Vec<Arc<Writer>>,
    /// Copies that make a block durable.
    needed: usize,
    state: Mutex<State>,
    /// Writes of which the outcome was not reported yet, and answers that buckets owe, also for
    /// blocks that are durable.
    in_flight: InFlight,
}

impl std::fmt::Debug for SpreadSegment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpreadSegment").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A block that is sent to a bucket.
struct Sent {
    bucket: usize,
    turn: u32,
    number: u64,
    body: Bytes,
    segment: Arc<NumberedSegment>,
}

impl SpreadSegment {
    /// Creates a segment in the buckets that count.
    ///
    /// # Errors
    /// `Io` if they are too few.
    pub(super) fn create(
        path: &str,
        id: ObjectId,
        writer: &Writer,
        buckets: &Buckets,
    ) -> Result<Arc<SpreadSegment>> {
        let (needed, all) = (buckets.durable(), buckets.all());
        let counted = all.iter().filter(|bucket| bucket.is_counted()).count();
        if counted < needed {
            let what = format!("only {counted} of the buckets count, and the log needs {needed}");
            return Err(Error::new(ErrorKind::Io, what).at(place(path, 0)));
        }
        all.iter().filter(|bucket| !bucket.is_counted()).for_each(|bucket| bucket.miss());
        let own = |bucket: &Arc<Bucket>| {
            let store = bucket.store.clone();
            let facts = store.facts();
            let Writer { header, patience, lanes, ref watch, .. } = *writer;
            let (watch, failure) = (watch.clone(), OnceLock::new());
            Arc::new(Writer { store, facts, header, patience, lanes, watch, failure })
        };
        let writers: Vec<Arc<Writer>> = all.iter().map(own).collect();
        let copy = |(bucket, writer): (&Arc<Bucket>, &Arc<Writer>)| Copy {
            segment: NumberedSegment::new(path, id, Form::Numbered, writer.clone()),
            is_active: bucket.is_counted(),
            is_unsettled: false,
            turn: 0,
        };
        let state = State { copies: all.iter().zip(&writers).map(copy).collect(), ..State::default() };
        let (path, buckets, state) = (path.to_string(), buckets.clone(), Mutex::new(state));
        let in_flight = InFlight::default();
        Ok(Arc::new(SpreadSegment { path, id, buckets, writers, needed, state, in_flight }))
    }

    /// Chooses the buckets that get a block of so many bytes.
    fn choose(&self, state: &mut State, bytes: u64) -> Vec<usize> {
        let mut active = state.copies.iter().filter(|copy| copy.is_active).count();
        let mut targets = Vec::new();
        for (at, copy) in state.copies.iter_mut().enumerate().filter(|(_, copy)| copy.is_active) {
            let bucket = &self.buckets.all()[at];
            if bucket.is_counted() && bucket.admit(bytes, active <= self.needed) {
                targets.push(at);
            } else {
                (copy.is_active, active) = (false, active - 1);
                bucket.miss();
            }
        }
        targets
    }

    fn begin(self: &Arc<Self>, write: Write) {
        self.in_flight.begin(1);
        self.state.lock().waiting.push_back(write);
        self.start_waiting();
    }

    /// Sends blocks that wait, as far as not too many are sent.
    fn start_waiting(self: &Arc<Self>) {
        loop {
            let write = {
                let mut state = self.state.lock();
                let is_free = (state.blocks.len() as u64) < BLOCKS_AHEAD_MAX || state.failure.is_some();
                if is_free { state.waiting.pop_front() } else { None }
            };
            match write {
                Some(write) => self.start(write),
                None => return,
            }
        }
    }

    fn start(self: &Arc<Self>, write: Write) {
        let Write { body, done } = write;
        let bytes = body.len() as u64;
        let sent: Vec<Sent> = {
            let mut state = self.state.lock();
            if let Err(error) = admit(&self.path, state.is_registered, state.failure.as_ref()) {
                drop(state);
                return self.end(done, Err(error));
            }
            let targets = self.choose(&mut state, bytes);
            if targets.len() < self.needed {
                let what = "too few buckets take blocks of the log";
                let error = Error::new(ErrorKind::Io, what).at(place(&self.path, 0));
                state.failure.get_or_insert(error.duplicate());
                drop(state);
                targets.into_iter().for_each(|bucket| self.buckets.all()[bucket].release(bytes));
                return self.end(done, Err(error));
            }
            state.lens.push((bytes, false));
            self.in_flight.begin(targets.len());
            let number = state.lens.len() as u64;
            let block =
                Block { body: body.clone(), done, confirmed: 0, left: targets.len(), failures: Vec::new() };
            state.blocks.insert(number, block);
            let sent = |bucket: usize| {
                let Copy { segment, turn, .. } = &state.copies[bucket];
                Sent { bucket, turn: *turn, number, body: body.clone(), segment: segment.clone() }
            };
            targets.into_iter().map(sent).collect()
        };
        sent.into_iter().for_each(|sent| self.send(sent));
    }

    fn send(self: &Arc<Self>, sent: Sent) {
        let Sent { bucket, turn, number, body, segment } = sent;
        let (this, bytes) = (self.clone(), body.len() as u64);
        let done = Box::new(move |result| this.ended((bucket, turn), number, bytes, result));
        segment.begin_at(number, Write { body, done });
    }

    /// A bucket has confirmed a block, or failed.
    fn ended(self: &Arc<Self>, (bucket, turn): (usize, u32), number: u64, bytes: u64, result: Result<()>) {
        self.buckets.all()[bucket].release(bytes);
        let ended = {
            let mut state = self.state.lock();
            let State { blocks, copies, .. } = &mut *state;
            let is_current = copies[bucket].turn == turn;
            let copy = &mut copies[bucket];
            if let Err(error) = &result {
                copy.is_active &= !is_current;
                copy.is_unsettled |= error.kind() != ErrorKind::Io;
                self.buckets.all()[bucket].miss();
            }
            let ended = blocks.get_mut(&number).and_then(|block| {
                block.left -= 1;
                match result {
                    Ok(()) => block.confirmed |= u32::from(is_current) << bucket,
                    Err(error) => block.failures.push(error),
                }
                match self.confirmations(block) {
                    confirmed if confirmed >= self.needed => Some(Ok(())),
                    confirmed if confirmed + block.left < self.needed => Some(Err(self.failure_of(block))),
                    _ => None,
                }
            });
            let block = ended.as_ref().and_then(|_| state.blocks.remove(&number));
            match &ended {
                Some(Ok(())) => state.lens[number as usize - 1].1 = true,
                Some(Err(error)) => drop(state.failure.get_or_insert(error.duplicate())),
                None => {}
            }
            block.zip(ended)
        };
        if let Some((block, result)) = ended {
            self.end(block.done, result);
            self.start_waiting();
        }
        self.in_flight.end();
    }

    fn end(&self, done: WriteEnded, result: Result<()>) {
        done(result);
        self.in_flight.end();
    }

    /// Returns how many buckets have confirmed a block. One that was excluded since does not count,
    /// so that its repair finds every durable block in the others.
    fn confirmations(&self, block: &Block) -> usize {
        let is_confirmed = |bucket: usize| block.confirmed & (1 << bucket) != 0;
        let all = self.buckets.all().iter().enumerate();
        all.filter(|(at, bucket)| is_confirmed(*at) && bucket.is_counted()).count()
    }

    /// Returns the error of a block that too few buckets can still confirm.
    fn failure_of(&self, block: &Block) -> Error {
        let of_kind = |kind| block.failures.iter().find(|error| error.kind() == kind);
        // A fence follows a confirmed claim.
        if let Some(fenced) = of_kind(ErrorKind::Fenced) {
            return fenced.duplicate();
        }
        let is_certain = block.confirmed == 0
            && block.left == 0
            && block.failures.iter().all(|error| error.kind() == ErrorKind::Io);
        match block.failures.first() {
            Some(error) if is_certain => error.duplicate(),
            Some(error) => {
                let what = "whether a block is in enough buckets is unknown";
                Error::after(ErrorKind::OutcomeUnknown, what, error)
            }
            None => Error::new(ErrorKind::OutcomeUnknown, "too few buckets answer").at(place(&self.path, 0)),
        }
    }

    /// Returns whether a bucket needs blocks that it did not get, or has lost. What such a bucket
    /// has confirmed of blocks that are not durable yet is forgotten: it may be lost, too.
    fn begin_again(&self, bucket: usize) -> bool {
        let mut state = self.state.lock();
        let State { copies, blocks, .. } = &mut *state;
        let copy = &mut copies[bucket];
        if copy.is_active && self.buckets.all()[bucket].is_counted() {
            return false;
        }
        (copy.is_active, copy.turn) = (false, copy.turn + 1);
        blocks.values_mut().for_each(|block| block.confirmed &= !(1 << bucket));
        true
    }

    /// Returns the lengths of the blocks that a bucket has, without a gap.
    fn prefix_in(self: &Arc<Self>, bucket: usize) -> Result<Vec<u64>> {
        let (store, patience) = (&*self.buckets.all()[bucket].store, self.writers[bucket].patience);
        Ok(peek(store, &self.entry(0), patience)?.parts.iter().map(Part::len).collect())
    }

    /// Copies blocks to a bucket, from the others.
    fn copy_blocks(&self, segment: &Arc<NumberedSegment>, bucket: usize, from: u64, to: u64) -> Result<()> {
        let (patience, of_bucket) = (self.writers[bucket].patience, &self.buckets.all()[bucket]);
        for first in (from..=to).step_by(COPIED_TOGETHER as usize) {
            let numbers: Vec<u64> = (first..=to.min(first + COPIED_TOGETHER - 1)).collect();
            let wanted: Vec<_> = numbers.iter().map(|number| (block_name(self.id, *number), None)).collect();
            let mut bodies = Vec::new();
            for ((name, _), reply) in wanted.iter().zip(read_all(&self.buckets, &wanted, patience)) {
                let failed = |failure| error_of(&failure, "a log object cannot be read", name);
                bodies.push(reply.map_err(failed)?.body);
            }
            let results = wait_for_all(numbers.len(), |at, done| {
                segment.begin_at(numbers[at], Write { body: bodies[at].clone(), done });
            });
            results.into_iter().collect::<Result<Vec<()>>>()?;
            of_bucket.progress(|progress| {
                progress.copied += bodies.len() as u64;
                progress.copied_bytes += bodies.iter().map(|body| body.len() as u64).sum::<u64>();
            });
        }
        Ok(())
    }

    /// Returns how many blocks are durable.
    ///
    /// # Errors
    /// Why no more can become so.
    fn durable(&self) -> Result<u64> {
        let state = self.state.lock();
        match &state.failure {
            Some(failure) => Err(failure.duplicate()),
            None => Ok(state.durable()),
        }
    }

    /// Puts the blocks behind the durable ones into a bucket that is to join: a reader may have
    /// seen them there before the bucket lost them (O38). Returns false if that is not to be
    /// decided yet.
    fn send_unconfirmed(&self, segment: &Arc<NumberedSegment>, durable: u64) -> Result<bool> {
        let blocks: Vec<(u64, Bytes)> = {
            let state = self.state.lock();
            if let Some(failure) = &state.failure {
                return Err(failure.duplicate());
            }
            let are_adjacent = state.blocks.keys().zip(durable + 1..).all(|(number, next)| *number == next);
            if state.durable() != durable || !are_adjacent {
                return Ok(false);
            }
            state.blocks.iter().map(|(number, block)| (*number, block.body.clone())).collect()
        };
        let results = wait_for_all(blocks.len(), |at, done| {
            let (number, body) = blocks[at].clone();
            segment.begin_at(number, Write { body, done });
        });
        results.into_iter().collect::<Result<Vec<()>>>()?;
        Ok(true)
    }

    /// Lets a bucket take part again that has all durable blocks. Returns false if it lacks some of
    /// them by now.
    fn activate(self: &Arc<Self>, bucket: usize, segment: &Arc<NumberedSegment>, copied: u64) -> bool {
        let sent: Vec<Sent> = {
            let mut state = self.state.lock();
            if state.durable() != copied {
                return false;
            }
            let State { copies, blocks, .. } = &mut *state;
            let copy = &mut copies[bucket];
            (copy.segment, copy.is_active, copy.turn) = (segment.clone(), true, copy.turn + 1);
            let turn = copy.turn;
            let send = |(number, block): (&u64, &mut Block)| {
                self.in_flight.begin(1);
                block.left += 1;
                self.buckets.all()[bucket].admit(block.body.len() as u64, true);
                Sent { bucket, turn, number: *number, body: block.body.clone(), segment: segment.clone() }
            };
            blocks.iter_mut().map(send).collect()
        };
        sent.into_iter().for_each(|sent| self.send(sent));
        true
    }
}

impl OpenSegment for Arc<SpreadSegment> {
    fn path(&self) -> &str {
        &self.path
    }

    fn entry(&self, number: u64) -> SegmentEntry {
        let objects = vec![self.id.number];
        let epoch = self.id.epoch;
        SegmentEntry { number, epoch, form: Form::Numbered, objects, ..SegmentEntry::default() }
    }

    /// Each block has an object of its own.
    fn make_room(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }

    fn registered(&self) {
        self.state.lock().is_registered = true;
    }

    fn submit(&self, write: Write) {
        self.begin(write);
    }

    fn parts(&self) -> Vec<Part> {
        let state = self.state.lock();
        let durable = state.lens.iter().take(state.durable() as usize);
        let part = |(at, (len, _)): (usize, &(u64, bool))| Part {
            name: block_name(self.id, at as u64 + 1),
            range: 0..*len,
        };
        durable.enumerate().map(part).collect()
    }

    /// Waits until each bucket has answered for each block, for at most about a second.
    fn wait_idle(&self) -> bool {
        let is_idle = self.in_flight.wait(Some(IDLE_MAX));
        let state = self.state.lock();
        is_idle && state.failure.is_none() && state.copies.iter().all(|copy| !copy.is_unsettled)
    }

    fn catch_up(&self, bucket: usize) -> Result<()> {
        if !self.begin_again(bucket) {
            return Ok(());
        }
        let mut lens = self.prefix_in(bucket)?;
        // Blocks behind the durable ones are sent again: their outcomes are wanted.
        lens.truncate(self.durable()? as usize);
        let mut next = lens.len() as u64 + 1;
        let writer = self.writers[bucket].clone();
        let segment = NumberedSegment::resume(&self.path, self.id, writer, lens);
        loop {
            let durable = self.durable()?;
            self.copy_blocks(&segment, bucket, next, durable)?;
            next = next.max(durable + 1);
            if !self.buckets.all()[bucket].is_counted() {
                if self.send_unconfirmed(&segment, durable)? {
                    return Ok(());
                }
            } else if self.activate(bucket, &segment, next - 1) {
                return Ok(());
            }
        }
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
