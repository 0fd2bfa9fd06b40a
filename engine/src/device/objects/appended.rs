//! A segment of the log while its writer fills it: several objects ("lanes") that take appends.
//!
//! ```text
//!    blocks ──▶ waiting ──▶ lane 0   │ header │ block 1 │ block 4 │ …
//!                      └──▶ lane 1   │ header │ block 2 │ block 3 │ …
//! ```
//!
//! A lane has one append in flight, so several lanes give several appends in flight. A block names
//! database, log, epoch and sequence, so its lane and its place there do not matter, and a caller's
//! offset is ignored. A lane takes a limited number of appends, so a long segment has more lanes
//! than appends in flight.
//!
//! 1. The offset of an append is the length of what this writer appended and saw confirmed (O6). So
//!    everything below it is the writer's own, and there was no fence.
//! 2. A block's bytes are fixed when it is sent first (O5). If the outcome of its append is
//!    unknown, or the store refuses it, the writer reads what is there and decides (O11): its own
//!    bytes: the block is durable; nothing: it sends the same bytes again; a fence: the writer has
//!    ended. While the store refuses the append for certain, the writer sends it again for as long
//!    as one without an answer, and then reports that the block is not there.
//! 3. Lanes are created with a header only, and data goes to offsets above 0 (O8): an object that
//!    was removed refuses data.
//! 4. Nothing is written before the register names the segment (O10).

use super::body::{Form, ObjectId, SegmentEntry};
use super::frame::FRAME_BYTES;
use super::in_flight::InFlight;
use super::open_segment::{OpenSegment, Write, Writer, admit, decide_elsewhere, intruder};
use super::patience::{Patience, error_of, may_end, place, read};
use super::register::later_claim;
use super::request::{Failure, FailureKind, Request, Version};
use super::segment_reader::Part;
use super::store::{Outcome, perform};
use crate::base::planted::{self, Bug};
use crate::base::{Error, ErrorKind, Result};
use crate::device::SECTOR_BYTES;
use crate::sync::Mutex;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;

/// Parts of a lane that are left for its header and a fence.
const PARTS_SPARED: u64 = 2;

/// An object that takes appends.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    id: ObjectId,
    /// Bytes of it that are confirmed.
    len: u64,
    version: Option<Version>,
    /// Appends that it still takes.
    parts_left: u64,
    is_busy: bool,
}

#[derive(Default)]
struct State {
    lanes: Vec<Lane>,
    waiting: VecDeque<Write>,
    /// The register names the segment.
    is_registered: bool,
    failure: Option<Error>,
}

/// See the module's text.
pub struct AppendedSegment {
    path: String,
    writer: Arc<Writer>,
    /// Returns the name of the next object of this writer.
    next: Box<dyn Fn() -> ObjectId + Send + Sync>,
    state: Mutex<State>,
    /// Writes of which the outcome was not reported yet, waiting ones included.
    in_flight: InFlight,
}

impl std::fmt::Debug for AppendedSegment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AppendedSegment").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Creates an object with a header. A name whose creation has an unknown outcome is given up:
/// another copy of the request may still create it (O8).
///
/// # Errors
/// I/O; the last failure if no name has a known outcome in time.
fn create_lane(writer: &Writer, next: &dyn Fn() -> ObjectId) -> Result<Lane> {
    let mut patience = Patience::new(writer.patience);
    loop {
        let id = next();
        let body = writer.header.encode();
        let create = Request::Create { name: id.log_name(), body: body.clone() };
        match perform(&*writer.store, create) {
            Ok(reply) => {
                let parts_left = writer.facts.parts_max.saturating_sub(PARTS_SPARED);
                return Ok(Lane { id, len: FRAME_BYTES, version: reply.version, parts_left, is_busy: false });
            }
            Err(failure) if may_end(failure.kind) && patience.pause() => {}
            // A copy of this very request came before it, so another one may follow.
            Err(failure) if failure.kind == FailureKind::Refused && holds(writer, id, &body) => {}
            Err(failure) => return Err(error_of(&failure, "a log object cannot be created", &id.log_name())),
        }
    }
}

/// Returns whether a log object is as this writer created it.
fn holds(writer: &Writer, id: ObjectId, header: &[u8]) -> bool {
    read(&*writer.store, &id.log_name(), None, writer.patience).is_ok_and(|reply| reply.body == header)
}

impl AppendedSegment {
    /// Creates a segment with a lane for each append in flight.
    ///
    /// # Errors
    /// As [`create_lane`].
    pub(super) fn create(
        path: &str,
        writer: Arc<Writer>,
        next: impl Fn() -> ObjectId + Send + Sync + 'static,
    ) -> Result<Arc<AppendedSegment>> {
        let lanes = (0..writer.lanes).map(|_| create_lane(&writer, &next)).collect::<Result<_>>()?;
        let (path, state) = (path.to_string(), Mutex::new(State { lanes, ..State::default() }));
        let next = Box::new(next);
        Ok(Arc::new(AppendedSegment { path, writer, next, state, in_flight: InFlight::default() }))
    }

    fn begin(self: &Arc<Self>, write: Write) {
        let mut state = self.state.lock();
        if let Err(error) = admit(&self.path, state.is_registered, state.failure.as_ref()) {
            drop(state);
            return (write.done)(Err(error));
        }
        self.in_flight.begin(1);
        state.waiting.push_back(write);
        drop(state);
        self.start_next();
    }

    /// Starts the append of the next block if a lane is free.
    fn start_next(self: &Arc<Self>) {
        let (lane, write, request) = {
            let mut state = self.state.lock();
            if state.lanes.iter().filter(|lane| lane.is_busy).count() >= self.writer.lanes {
                return;
            }
            let lanes = state.lanes.iter().enumerate();
            let free = lanes.filter(|(_, lane)| !lane.is_busy && lane.parts_left > 0);
            let Some((index, _)) = free.max_by_key(|(_, lane)| lane.parts_left) else { return };
            let Some(write) = state.waiting.pop_front() else { return };
            let lane = &mut state.lanes[index];
            lane.is_busy = true;
            let request = lane.append(&write.body);
            (index, write, request)
        };
        let this = self.clone();
        let store = self.writer.store.clone();
        let ended = move |outcome: Outcome| match outcome {
            Ok(reply) => this.confirmed(lane, write, reply.version),
            Err(failure) => this.decide_elsewhere(lane, write, failure),
        };
        store.start(request, Box::new(ended));
    }

    /// The block of `write` is durable, and `lane` is free again.
    fn confirmed(self: &Arc<Self>, lane: usize, write: Write, version: Option<Version>) {
        {
            let mut state = self.state.lock();
            let lane = &mut state.lanes[lane];
            debug_assert!(lane.is_busy && lane.parts_left > 0, "a lane confirms the append that it had");
            lane.len += write.body.len() as u64;
            lane.parts_left -= 1;
            lane.version = version;
            lane.is_busy = false;
        }
        self.end(write, Ok(()));
        self.start_next();
    }

    fn end(&self, write: Write, result: Result<()>) {
        (write.done)(result);
        self.in_flight.end();
    }

    fn decide_elsewhere(self: &Arc<Self>, lane: usize, write: Write, failure: Failure) {
        let this = self.clone();
        let decide = move |write| this.decide(lane, write, failure);
        decide_elsewhere("quench-append", write, decide, |write, error| self.fail(write, error));
    }

    fn decide(self: &Arc<Self>, lane: usize, write: Write, failure: Failure) {
        let state = self.state.lock().lanes[lane].clone();
        debug_assert!(state.is_busy, "no other append goes to a lane of unknown outcome");
        match resolve(&self.writer, &state, &write.body, failure) {
            Ok(Resolved::Durable(version)) => self.confirmed(lane, write, version),
            Ok(Resolved::LaneIsFull) => {
                let mut state = self.state.lock();
                (state.lanes[lane].parts_left, state.lanes[lane].is_busy) = (0, false);
                if state.lanes.iter().all(|lane| lane.parts_left == 0) {
                    drop(state);
                    let what = "the log objects take fewer appends than expected: set a shorter segment";
                    return self.fail(write, Error::new(ErrorKind::Io, what).at(place(&self.path, 0)));
                }
                state.waiting.push_front(write);
                drop(state);
                self.start_next();
            }
            Err(error) => self.fail(write, error),
        }
    }

    /// Ends all writes: this one failed, and what was to follow it is never sent.
    fn fail(&self, write: Write, error: Error) {
        let waiting = {
            let mut state = self.state.lock();
            state.failure.get_or_insert(error.duplicate());
            std::mem::take(&mut state.waiting)
        };
        for later in waiting {
            self.end(later, Err(error.duplicate()));
        }
        self.end(write, Err(error));
    }
}

impl Lane {
    fn append(&self, body: &Bytes) -> Request {
        let (name, version) = (self.id.log_name(), self.version.clone());
        Request::Append { name, offset: self.len, body: body.clone(), version }
    }
}

/// What became of a failed append.
enum Resolved {
    /// The block is in the object; the object's version, if the block is its end.
    Durable(Option<Version>),
    /// The block is not in the object, which takes no more.
    LaneIsFull,
}

/// Finds out what became of the append of `body` to `lane`, and sends it again until that is known.
///
/// # Errors
/// `Fenced`; `OutcomeUnknown`; `Corruption`; I/O if the store refused it for certain.
fn resolve(writer: &Writer, lane: &Lane, body: &Bytes, mut failure: Failure) -> Result<Resolved> {
    let (name, end) = (lane.id.log_name(), lane.len + body.len() as u64);
    let most = writer.patience;
    let (mut patience, mut is_ambiguous) = (Patience::new(most), false);
    let unknown = |failure: &Failure| {
        error_of(failure, "whether a block was appended is unknown", &name)
            .with_kind(ErrorKind::OutcomeUnknown)
    };
    loop {
        is_ambiguous |= failure.kind.is_ambiguous();
        // While it is certain that no copy was carried out, there is nothing to look at.
        if failure.is_certain() && !is_ambiguous {
            if failure.kind == FailureKind::Denied || !patience.pause() {
                return Err(error_of(&failure, "a block cannot be appended", &name));
            }
            match perform(&*writer.store, lane.append(body)) {
                Ok(reply) => return Ok(Resolved::Durable(reply.version)),
                Err(later) => failure = later,
            }
            continue;
        }
        let there = read(&*writer.store, &name, Some(lane.len..end), writer.patience);
        let there = there.map_err(|failure| {
            later_claim(&*writer.store, &writer.header, &failure, most).unwrap_or_else(|| unknown(&failure))
        })?;
        if there.body == *body {
            return Ok(Resolved::Durable(there.version.filter(|_| there.len == end)));
        }
        if planted::is(Bug::AppendedBehindFence) && there.len > lane.len {
            let (name, body) = (name.clone(), body.clone());
            if perform(&*writer.store, Request::Append { name, offset: there.len, body, version: None })
                .is_ok()
            {
                return Ok(Resolved::Durable(None));
            }
        }
        if !there.body.is_empty() || there.len < lane.len {
            return Err(intruder(writer, &name, lane.len, &there.body));
        }
        if failure.kind == FailureKind::Full {
            return Ok(Resolved::LaneIsFull);
        }
        if lane.version.is_some() && there.version != lane.version {
            let what = "the log object was replaced by another one of its name and length";
            return Err(Error::corruption(what).at(place(&name, lane.len)));
        }
        if !patience.pause() {
            return Err(unknown(&failure));
        }
        match perform(&*writer.store, lane.append(body)) {
            Ok(reply) => return Ok(Resolved::Durable(reply.version)),
            Err(later) => failure = later,
        }
    }
}

impl OpenSegment for Arc<AppendedSegment> {
    fn path(&self) -> &str {
        &self.path
    }

    fn entry(&self, number: u64) -> SegmentEntry {
        let objects = self.state.lock().lanes.iter().map(|lane| lane.id.number).collect();
        let epoch = self.writer.header.epoch;
        SegmentEntry { number, epoch, form: Form::Lanes, objects, ..SegmentEntry::default() }
    }

    fn make_room(&self, bytes: u64) -> Result<()> {
        loop {
            let parts: u64 = self.state.lock().lanes.iter().map(|lane| lane.parts_left).sum();
            if parts >= bytes.div_ceil(SECTOR_BYTES as u64) {
                return Ok(());
            }
            let lane = create_lane(&self.writer, &*self.next)?;
            self.state.lock().lanes.push(lane);
        }
    }

    fn registered(&self) {
        self.state.lock().is_registered = true;
    }

    fn submit(&self, write: Write) {
        self.begin(write);
    }

    fn parts(&self) -> Vec<Part> {
        let state = self.state.lock();
        let part = |lane: &Lane| Part::of_lane(lane.id.log_name(), lane.len);
        state.lanes.iter().map(part).collect()
    }

    fn wait_idle(&self) -> bool {
        self.in_flight.wait(None);
        self.state.lock().failure.is_none()
    }
}
