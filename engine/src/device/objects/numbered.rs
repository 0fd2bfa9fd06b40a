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
//! 3. A writer in a database with many fences also looks at the manifest before it reports a block,
//!    and the look begins when the block and all lower ones are there (O29). If the look finds no
//!    later claim, the block was there before any, so the next writer finds it, whether there is a
//!    fence or not. One look serves all blocks that were there before it.
//! 4. If the store refuses a creation for certain, the writer sends it again for as long as one
//!    without an answer, and then reports that the block is not there.

use super::body::{Form, MANIFEST_NAME, OWNER_BYTES, ObjectId, SegmentEntry, owner};
use super::in_flight::InFlight;
use super::open_segment::{OpenSegment, Write, Writer, admit, decide_elsewhere, intruder};
use super::patience::{Patience, error_of, may_end, place, read};
use super::register::fenced;
use super::request::{Condition, Failure, FailureKind, Request};
use super::segment_reader::Part;
use super::store::{Outcome, perform};
use crate::base::planted::{self, Bug};
use crate::base::{Error, ErrorKind, Result};
use crate::sync::{Mutex, MutexGuard, thread};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

#[derive(Default)]
struct State {
    /// With the numbers of their objects.
    waiting: VecDeque<(u64, Write)>,
    /// The number of the next block that comes without one.
    next: u64,
    /// Requests in flight.
    requests: usize,
    /// Blocks whose objects are there, and not all lower ones.
    early: BTreeMap<u64, Write>,
    /// Lengths of the gap-free prefix of objects.
    lens: Vec<u64>,
    /// Blocks of that prefix that wait for a look at the manifest.
    unwatched: Vec<Write>,
    is_looking: bool,
    is_registered: bool,
    failure: Option<Error>,
}

/// See the module's text.
pub(super) struct NumberedSegment {
    path: String,
    id: ObjectId,
    form: Form,
    writer: Arc<Writer>,
    state: Mutex<State>,
    /// Writes of which the outcome was not reported yet, waiting ones included.
    in_flight: InFlight,
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

/// Returns which object of `series` has this name, if one has.
pub(super) fn number_of(series: &str, name: &str) -> Option<u64> {
    name.strip_prefix(series)?.strip_prefix('/')?.parse().ok()
}

/// Returns the request for the first bytes of the manifest.
fn look_at_owner() -> Request {
    Request::Get { name: MANIFEST_NAME.into(), range: Some(0..OWNER_BYTES) }
}

impl NumberedSegment {
    pub(super) fn new(path: &str, id: ObjectId, form: Form, writer: Arc<Writer>) -> Arc<NumberedSegment> {
        let state = Mutex::new(State { next: 1, ..State::default() });
        let (path, in_flight) = (path.to_string(), InFlight::default());
        Arc::new(NumberedSegment { path, id, form, writer, state, in_flight })
    }

    /// Continues a segment of this writer, of which the object store has the first blocks.
    pub(super) fn resume(
        path: &str,
        id: ObjectId,
        writer: Arc<Writer>,
        lens: Vec<u64>,
    ) -> Arc<NumberedSegment> {
        let segment = NumberedSegment::new(path, id, Form::Numbered, writer);
        {
            let mut state = segment.state.lock();
            (state.next, state.lens) = (lens.len() as u64 + 1, lens);
        }
        segment
    }

    fn begin(self: &Arc<Self>, write: Write) {
        let state = self.state.lock();
        if let Err(error) = admit(&self.path, state.is_registered, state.failure.as_ref()) {
            drop(state);
            return (write.done)(Err(error));
        }
        let number = state.next;
        self.take(state, number, write);
    }

    /// Begins to write block `number`, which its caller has chosen: for a segment with a copy in
    /// each of several buckets. A number that never comes ends the segment at the number before it.
    pub(super) fn begin_at(self: &Arc<Self>, number: u64, write: Write) {
        let state = self.state.lock();
        if let Some(failure) = &state.failure {
            let failure = failure.duplicate();
            drop(state);
            return (write.done)(Err(failure));
        }
        self.take(state, number, write);
    }

    fn take(self: &Arc<Self>, mut state: MutexGuard<'_, State>, number: u64, write: Write) {
        state.next = state.next.max(number + 1);
        self.in_flight.begin(1);
        state.waiting.push_back((number, write));
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
            let Some(next) = state.waiting.pop_front() else { return };
            debug_assert!(!self.in_flight.is_idle(), "a block that waits is in flight");
            state.requests += 1;
            next
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
            debug_assert!(number < state.next, "a block was numbered before it was created");
            debug_assert!(number > state.lens.len() as u64, "a block is created once");
            let before = state.early.insert(number, write);
            debug_assert!(before.is_none(), "a block is created once");
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
        if self.form == Form::Watched {
            self.state.lock().unwatched.append(&mut complete);
            self.start_look();
        }
        complete.into_iter().for_each(|write| self.end(write, Ok(())));
        if let Some((failure, early)) = hopeless {
            self.fail_all(early.into_values(), &failure);
        }
        self.start_next();
    }

    /// Looks which writer has the database, if blocks wait for that and no look is under way.
    fn start_look(self: &Arc<Self>) {
        let before = {
            let mut state = self.state.lock();
            if state.is_looking || state.unwatched.is_empty() {
                return;
            }
            state.is_looking = true;
            std::mem::take(&mut state.unwatched)
        };
        let this = self.clone();
        let ended = move |outcome: Outcome| this.looked(before, outcome);
        self.writer.store.start(look_at_owner(), Box::new(ended));
    }

    /// A look has ended that began when the blocks `before` were there.
    fn looked(self: &Arc<Self>, before: Vec<Write>, outcome: Outcome) {
        debug_assert!(self.state.lock().is_looking, "one look at the manifest is in flight");
        let owner = outcome.ok().and_then(|reply| owner(&reply.body));
        let header = &self.writer.header;
        match owner.filter(|(identity, _)| *identity == header.identity) {
            Some((_, epoch)) if epoch == header.epoch => {
                self.state.lock().is_looking = false;
                before.into_iter().for_each(|write| self.end(write, Ok(())));
                self.start_look();
            }
            Some((_, later)) => self.fail_looked(before, &fenced(header.epoch, later)),
            None => self.look_again(before),
        }
    }

    /// Looks again, after a look that showed nothing, in a thread of its own, because that waits.
    fn look_again(self: &Arc<Self>, before: Vec<Write>) {
        let (this, slot) = (self.clone(), Arc::new(Mutex::new(before)));
        let taken = slot.clone();
        let look = move || {
            let mut patience = Patience::new(this.writer.patience);
            let before = || std::mem::take(&mut *taken.lock());
            loop {
                let is_last = !patience.pause();
                let outcome = perform(&*this.writer.store, look_at_owner());
                let why = match &outcome {
                    Ok(reply) if owner(&reply.body).is_some() => return this.looked(before(), outcome),
                    Ok(_) => "it is no manifest".to_string(),
                    Err(failure) => failure.what.clone(),
                };
                if is_last || matches!(&outcome, Err(failure) if !may_end(failure.kind)) {
                    let what =
                        format!("whether a block counts is unknown, as the manifest cannot be read: {why}");
                    let error = Error::new(ErrorKind::OutcomeUnknown, what).at(place(MANIFEST_NAME, 0));
                    return this.fail_looked(before(), &error);
                }
            }
        };
        if let Err(error) = thread::spawn("quench-look", look) {
            let error = Error::io("no thread to look at the manifest", error);
            let before = std::mem::take(&mut *slot.lock());
            self.fail_looked(before, &error.with_kind(ErrorKind::OutcomeUnknown));
        }
    }

    /// Ends the blocks that wait for a look, and all behind them.
    fn fail_looked(&self, before: Vec<Write>, error: &Error) {
        let others = {
            let mut state = self.state.lock();
            state.failure.get_or_insert(error.duplicate());
            state.is_looking = false;
            let mut others = std::mem::take(&mut state.unwatched);
            others.extend(std::mem::take(&mut state.early).into_values());
            others.extend(std::mem::take(&mut state.waiting).into_iter().map(|(_, write)| write));
            others
        };
        self.fail_all(before.into_iter().chain(others), error);
    }

    fn end(&self, write: Write, result: Result<()>) {
        (write.done)(result);
        self.in_flight.end();
    }

    fn decide_elsewhere(self: &Arc<Self>, number: u64, write: Write, failure: Failure) {
        let this = self.clone();
        let decide = move |write: Write| match this.resolve(number, &write.body, failure) {
            Ok(()) => this.created(number, write),
            Err(error) => this.fail(write, error),
        };
        decide_elsewhere("quench-create", write, decide, |write, error| self.fail(write, error));
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
            // While it is certain that no copy was carried out, there is nothing to look at.
            let is_known = failure.is_certain() && !is_ambiguous;
            if !is_known {
                match read(store, &name, None, most) {
                    Ok(there) if there.body == *body => return Ok(()),
                    Ok(there) => return Err(intruder(&self.writer, &name, 0, &there.body)),
                    Err(absent) if absent.kind == FailureKind::Absent => {}
                    Err(failure) => return Err(unknown(&failure)),
                }
            }
            let ends = is_known && failure.kind == FailureKind::Denied;
            if ends || !patience.pause() {
                let refused = || error_of(&failure, "a block cannot be written", &name);
                return Err(if is_known { refused() } else { unknown(&failure) });
            }
            match perform(store, self.creation(number, body)) {
                Ok(_) => return Ok(()),
                Err(later) => failure = later,
            }
        }
    }

    /// Ends all writes: this one failed, and none behind it is reported.
    fn fail(&self, write: Write, error: Error) {
        let others = {
            let mut state = self.state.lock();
            state.requests -= 1;
            state.failure.get_or_insert(error.duplicate());
            let mut others: Vec<Write> = std::mem::take(&mut state.early).into_values().collect();
            others.extend(std::mem::take(&mut state.waiting).into_iter().map(|(_, write)| write));
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
        SegmentEntry {
            number,
            epoch: self.id.epoch,
            form: self.form,
            objects: vec![self.id.number],
            ..SegmentEntry::default()
        }
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
        self.in_flight.wait(None);
        self.state.lock().failure.is_none()
    }
}
