//! A segment of the log in a store whose objects take no appends: one object for each block.
//!
//! ```text
//!    log/000007-00000012/00000001   block     durable
//!    log/000007-00000012/00000002   block     durable
//!    log/000007-00000012/00000003             in flight
//!    log/000007-00000012/00000004   block     there, not reported: 3 is missing
//! ```
//!
//! 1. Each object is created if there is none of its name. Several are in flight; a write is
//!    reported when its object and all lower ones are there (O21). So a fence at the first free
//!    number ends everything that was not reported.
//! 2. If the name is taken, or the outcome of a creation is unknown, the writer reads the object:
//!    its own bytes: the block is durable; a fence: the writer has ended; nothing: it sends the
//!    same bytes again.

use super::body::{Form, ObjectId, SegmentEntry};
use super::frame::{Frame, FrameKind};
use super::open_segment::{OpenSegment, Write, Writer, admit};
use super::patience::{Patience, error_of, place, read};
use super::register::fenced;
use super::request::{Condition, Failure, FailureKind, Request};
use super::segment_reader::Part;
use super::store::{Outcome, perform};
use crate::base::planted::{self, Bug};
use crate::base::{Error, ErrorKind, Result};
use crate::sync::{Event, Mutex, thread};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

#[derive(Default)]
struct State {
    waiting: VecDeque<Write>,
    /// The number of the next object.
    next: u64,
    /// Requests in flight.
    requests: usize,
    /// Blocks whose objects are there, and not all lower ones.
    early: BTreeMap<u64, Write>,
    /// Lengths of the gap-free prefix of objects.
    lens: Vec<u64>,
    /// Writes of which the outcome was not reported yet, waiting ones included.
    in_flight: usize,
    is_registered: bool,
    failure: Option<Error>,
}

/// See the module's text.
pub(super) struct NumberedSegment {
    path: String,
    id: ObjectId,
    writer: Arc<Writer>,
    state: Mutex<State>,
    /// Happens when no write is in flight.
    idle: Event,
}

impl std::fmt::Debug for NumberedSegment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NumberedSegment").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Returns the name of object `number` of a segment.
pub(super) fn block_name(id: ObjectId, number: u64) -> String {
    format!("{}/{number:08}", id.log_name())
}

impl NumberedSegment {
    pub(super) fn new(path: &str, id: ObjectId, writer: Arc<Writer>) -> Arc<NumberedSegment> {
        let state = Mutex::new(State { next: 1, ..State::default() });
        Arc::new(NumberedSegment { path: path.to_string(), id, writer, state, idle: Event::new() })
    }

    fn begin(self: &Arc<Self>, write: Write) {
        let mut state = self.state.lock();
        if let Err(error) = admit(&self.path, state.is_registered, state.failure.as_ref()) {
            drop(state);
            return (write.done)(Err(error));
        }
        state.in_flight += 1;
        state.waiting.push_back(write);
        drop(state);
        self.start_next();
    }

    /// Creates the object of the next block if not too many are in flight.
    fn start_next(self: &Arc<Self>) {
        let (number, write) = {
            let mut state = self.state.lock();
            if state.requests >= self.writer.lanes {
                return;
            }
            let Some(write) = state.waiting.pop_front() else { return };
            state.requests += 1;
            state.next += 1;
            (state.next - 1, write)
        };
        let request = self.creation(number, &write.body);
        let this = self.clone();
        let ended = move |outcome: Outcome| match outcome {
            Ok(_) => this.created(number, write),
            Err(failure) => this.decide_elsewhere(number, write, failure),
        };
        self.writer.store.start(request, Box::new(ended));
    }

    fn creation(&self, number: u64, body: &Bytes) -> Request {
        let (name, body) = (block_name(self.id, number), body.clone());
        Request::Put { name, body, condition: Condition::Absent }
    }

    /// Object `number` is there. Reports all writes whose lower objects are there, too.
    fn created(self: &Arc<Self>, number: u64, write: Write) {
        let mut complete = Vec::new();
        let hopeless = {
            let mut state = self.state.lock();
            state.requests -= 1;
            state.early.insert(number, write);
            let mut next = state.lens.len() as u64 + 1;
            if planted::is(Bug::BlockReportedEarly) {
                complete.extend(state.early.remove(&number));
            }
            while let Some(write) = state.early.remove(&next) {
                state.lens.push(write.body.len() as u64);
                complete.push(write);
                next += 1;
            }
            // After a failure a lower number will never be there.
            let failure = state.failure.as_ref().map(Error::duplicate);
            failure.map(|failure| (failure, std::mem::take(&mut state.early)))
        };
        complete.into_iter().for_each(|write| self.end(write, Ok(())));
        if let Some((failure, early)) = hopeless {
            self.fail_all(early.into_values(), &failure);
        }
        self.start_next();
    }

    fn end(&self, write: Write, result: Result<()>) {
        (write.done)(result);
        let mut state = self.state.lock();
        state.in_flight -= 1;
        if state.in_flight == 0 {
            drop(state);
            self.idle.notify_all();
        }
    }

    /// Decides what became of a failed creation in a thread of its own, because that waits and
    /// reads.
    fn decide_elsewhere(self: &Arc<Self>, number: u64, write: Write, failure: Failure) {
        let (this, slot) = (self.clone(), Arc::new(Mutex::new(Some(write))));
        let taken = slot.clone();
        let spawned = thread::spawn("quench-create", move || {
            let write = taken.lock().take();
            if let Some(write) = write {
                match this.resolve(number, &write.body, failure) {
                    Ok(()) => this.created(number, write),
                    Err(error) => this.fail(write, error),
                }
            }
        });
        if let Err(error) = spawned {
            let write = slot.lock().take();
            let error = Error::io("no thread to find out what became of a block", error);
            write.into_iter().for_each(|write| {
                self.fail(write, error.duplicate().with_kind(ErrorKind::OutcomeUnknown));
            });
        }
    }

    /// Finds out what became of the creation of object `number`, and sends it again until that is
    /// known.
    fn resolve(&self, number: u64, body: &Bytes, mut failure: Failure) -> Result<()> {
        let (store, most) = (&*self.writer.store, self.writer.patience);
        let (name, mut patience, mut is_ambiguous) =
            (block_name(self.id, number), Patience::new(most), false);
        let unknown = |failure: &Failure| {
            let what = "whether a block was written is unknown";
            error_of(failure, what, &name).with_kind(ErrorKind::OutcomeUnknown)
        };
        loop {
            is_ambiguous |= failure.kind.is_ambiguous();
            if failure.kind == FailureKind::Denied && !is_ambiguous {
                return Err(error_of(&failure, "a block cannot be written", &name));
            }
            match read(store, &name, None, most) {
                Ok(there) if there.body == *body => return Ok(()),
                Ok(there) => return Err(self.intruder(&name, &there.body)),
                Err(absent) if absent.kind == FailureKind::Absent => {}
                Err(failure) => return Err(unknown(&failure)),
            }
            if !patience.pause() {
                return Err(unknown(&failure));
            }
            match perform(store, self.creation(number, body)) {
                Ok(_) => return Ok(()),
                Err(later) => failure = later,
            }
        }
    }

    /// Returns the error for an object of this name that this writer did not create.
    fn intruder(&self, name: &str, there: &[u8]) -> Error {
        let header = &self.writer.header;
        match Frame::decode(there) {
            Some(fence) if fence.kind == FrameKind::Fence && fence.identity == header.identity => {
                fenced(header.epoch, fence.epoch)
            }
            _ => Error::corruption("the log object holds other bytes than this process wrote")
                .at(place(name, 0)),
        }
    }

    /// Ends all writes: this one failed, and none behind it is reported.
    fn fail(&self, write: Write, error: Error) {
        let others = {
            let mut state = self.state.lock();
            state.requests -= 1;
            state.failure.get_or_insert(error.duplicate());
            let mut others: Vec<Write> = std::mem::take(&mut state.early).into_values().collect();
            others.extend(std::mem::take(&mut state.waiting));
            others
        };
        self.fail_all(others.into_iter().chain([write]), &error);
    }

    fn fail_all(&self, writes: impl Iterator<Item = Write>, error: &Error) {
        writes.for_each(|write| self.end(write, Err(error.duplicate())));
    }
}

impl OpenSegment for Arc<NumberedSegment> {
    fn path(&self) -> &str {
        &self.path
    }

    fn entry(&self, number: u64) -> SegmentEntry {
        SegmentEntry { number, epoch: self.id.epoch, form: Form::Numbered, objects: vec![self.id.number] }
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
        let lens = self.state.lock().lens.clone();
        let part = |(at, len): (usize, u64)| Part { name: block_name(self.id, at as u64 + 1), range: 0..len };
        lens.into_iter().enumerate().map(part).collect()
    }

    fn wait_idle(&self) -> bool {
        loop {
            let ticket = self.idle.ticket();
            {
                let state = self.state.lock();
                if state.in_flight == 0 {
                    return state.failure.is_none();
                }
            }
            self.idle.wait(ticket, None);
        }
    }
}
