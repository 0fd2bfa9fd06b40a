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
//!    the bucket has confirmed counts. The next segment tries the bucket again.
//! 4. If too few buckets can still confirm a block, the write fails. Its outcome is unknown unless
//!    every bucket has refused it for certain: a block that reached one bucket may be recovered.

use super::body::{Form, ObjectId, SegmentEntry};
use super::buckets::{Bucket, Buckets};
use super::numbered::{NumberedSegment, block_name};
use super::open_segment::{OpenSegment, Write, Writer, admit};
use super::patience::place;
use super::segment_reader::Part;
use crate::base::clock::{Clock, Nanos};
use crate::base::{Error, ErrorKind, Result};
use crate::device::WriteEnded;
use crate::sync::{Event, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long the end of a writer waits for buckets that do not answer.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// The segment in one bucket.
struct Copy {
    bucket: Arc<Bucket>,
    segment: Arc<NumberedSegment>,
}

/// A block that is not known to be durable yet.
struct Block {
    done: WriteEnded,
    confirmed: usize,
    /// Buckets that have not answered.
    left: usize,
    failures: Vec<Error>,
}

#[derive(Default)]
struct State {
    /// Of each bucket, whether it still gets blocks.
    is_active: Vec<bool>,
    blocks: BTreeMap<u64, Block>,
    /// Lengths of the blocks by number, from 1, and whether each is durable.
    lens: Vec<(u64, bool)>,
    /// Outcomes that buckets owe, also for blocks that are durable.
    owed: usize,
    is_registered: bool,
    failure: Option<Error>,
}

/// See the module's text.
pub(super) struct SpreadSegment {
    path: String,
    id: ObjectId,
    copies: Vec<Copy>,
    /// Copies that make a block durable.
    needed: usize,
    state: Mutex<State>,
    /// Happens when no outcome is owed.
    idle: Event,
}

impl std::fmt::Debug for SpreadSegment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpreadSegment").field("path", &self.path).finish_non_exhaustive()
    }
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
        let counted = buckets.all().iter().filter(|bucket| bucket.is_counted());
        let copy = |bucket: &Arc<Bucket>| {
            let store = bucket.store.clone();
            let facts = store.facts();
            let Writer { header, patience, lanes, ref watch, .. } = *writer;
            let own = Arc::new(Writer { store, facts, header, patience, lanes, watch: watch.clone() });
            Copy { bucket: bucket.clone(), segment: NumberedSegment::new(path, id, Form::Numbered, own) }
        };
        let copies: Vec<Copy> = counted.map(copy).collect();
        let needed = buckets.durable();
        if copies.len() < needed {
            let what = format!("only {} of the buckets count, and the log needs {needed}", copies.len());
            return Err(Error::new(ErrorKind::Io, what).at(place(path, 0)));
        }
        let state = State { is_active: vec![true; copies.len()], ..State::default() };
        let (path, state) = (path.to_string(), Mutex::new(state));
        Ok(Arc::new(SpreadSegment { path, id, copies, needed, state, idle: Event::new() }))
    }

    fn begin(self: &Arc<Self>, write: Write) {
        let Write { body, done } = write;
        let bytes = body.len() as u64;
        let (number, targets) = {
            let mut state = self.state.lock();
            if let Err(error) = admit(&self.path, state.is_registered, state.failure.as_ref()) {
                drop(state);
                return done(Err(error));
            }
            let mut active = state.is_active.iter().filter(|is_active| **is_active).count();
            let mut targets = Vec::new();
            for (copy, of_copy) in self.copies.iter().enumerate() {
                if !state.is_active[copy] {
                    continue;
                }
                if of_copy.bucket.is_counted() && of_copy.bucket.admit(bytes, active <= self.needed) {
                    targets.push(copy);
                } else {
                    (state.is_active[copy], active) = (false, active - 1);
                }
            }
            if targets.len() < self.needed {
                let what = "too few buckets take blocks of the log";
                let error = Error::new(ErrorKind::Io, what).at(place(&self.path, 0));
                state.failure.get_or_insert(error.duplicate());
                drop(state);
                targets.into_iter().for_each(|copy| self.copies[copy].bucket.release(bytes));
                return done(Err(error));
            }
            state.lens.push((bytes, false));
            state.owed += targets.len();
            let number = state.lens.len() as u64;
            let block = Block { done, confirmed: 0, left: targets.len(), failures: Vec::new() };
            state.blocks.insert(number, block);
            (number, targets)
        };
        for copy in targets {
            let this = self.clone();
            let done = Box::new(move |result| this.ended(copy, number, bytes, result));
            self.copies[copy].segment.begin_at(number, Write { body: body.clone(), done });
        }
    }

    /// A bucket has confirmed a block, or failed.
    fn ended(&self, copy: usize, number: u64, bytes: u64, result: Result<()>) {
        self.copies[copy].bucket.release(bytes);
        let (ended, is_idle) = {
            let mut state = self.state.lock();
            let State { blocks, is_active, owed, .. } = &mut *state;
            *owed -= 1;
            let is_idle = *owed == 0;
            is_active[copy] &= result.is_ok();
            let ended = blocks.get_mut(&number).and_then(|block| {
                block.left -= 1;
                match result {
                    Ok(()) => block.confirmed += 1,
                    Err(error) => block.failures.push(error),
                }
                match block.confirmed {
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
            (block.zip(ended), is_idle)
        };
        if let Some((block, result)) = ended {
            (block.done)(result);
        }
        if is_idle {
            self.idle.notify_all();
        }
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

    /// Waits until each bucket has answered for each block, for at most about a second. Returns
    /// whether all have confirmed everything.
    pub(super) fn wait_whole(&self) -> bool {
        let clock = Clock::real();
        let until = Nanos(clock.now().0 + IDLE_MAX.as_nanos() as u64);
        loop {
            let (ticket, now) = (self.idle.ticket(), clock.now());
            {
                let state = self.state.lock();
                if state.owed == 0 || now >= until {
                    let are_active = state.is_active.iter().all(|is_active| *is_active);
                    return state.owed == 0 && state.failure.is_none() && are_active;
                }
            }
            self.idle.wait(ticket, Some(until.since(now)));
        }
    }
}

impl OpenSegment for Arc<SpreadSegment> {
    fn path(&self) -> &str {
        &self.path
    }

    fn entry(&self, number: u64) -> SegmentEntry {
        let objects = vec![self.id.number];
        SegmentEntry { number, epoch: self.id.epoch, form: Form::Numbered, objects, accepted: None }
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
        let durable = state.lens.iter().take_while(|(_, is_durable)| *is_durable);
        let part = |(at, (len, _)): (usize, &(u64, bool))| Part {
            name: block_name(self.id, at as u64 + 1),
            range: 0..*len,
        };
        durable.enumerate().map(part).collect()
    }

    fn wait_idle(&self) -> bool {
        self.wait_whole()
    }
}
