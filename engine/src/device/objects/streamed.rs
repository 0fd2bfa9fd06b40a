//! A segment of the log while its writer fills it: several objects ("lanes"), each of which takes
//! appends over a stream.
//!
//! ```text
//!    blocks ──▶ lane 0   │ header │ block 1 │ block 3 │ block 4 ┊ … in flight
//!          └──▶ lane 1   │ header │ block 2 │ block 5 ┊ …
//! ```
//!
//! A lane has many appends in flight, in their order. A block names database, log, epoch and
//! sequence, so its lane and its place there do not matter.
//!
//! 1. Only this writer sends data to its lanes. The offset of a block is the sum of the blocks
//!    before it (O6). So a length is a receipt: all bytes below it are this writer's own.
//! 2. A block is durable when an append at or behind it is done (O7).
//! 3. An append takes effect as a prefix, and a stream may be lost. Then the writer opens the lane
//!    again with its last handle. The answer says how many bytes are durable; the rest is sent
//!    from there, from the middle of a block if need be (O11). No block is read to decide anything.
//! 4. If the open is refused, the manifest decides. Without a later claim the handle has expired,
//!    and the writer takes its own lane over. After a later claim, the writer waits until the
//!    object is finalized: what lies below its final length counts, and nothing else ever will.
//! 5. Lanes are created with a header only, on condition that there is no object (O8), and nothing
//!    is written before the register names the segment with its generations (O10).
//! 6. A writer finalizes the lanes of a segment that it has left, or when it ends, after the last
//!    block is durable, each at its own end (O12, O20). If it cannot, or dies before, the next
//!    writer does. Another length than the own end says that durable blocks are lost.

use super::body::{Form, ObjectId, SegmentEntry, WriterEpoch};
use super::frame::FRAME_BYTES;
use super::in_flight::InFlight;
use super::open_segment::{OpenSegment, Write, Writer, admit};
use super::patience::{Patience, error_of, may_end, place};
use super::register::{fenced, later_claim, look_up};
use super::request::{Failure, FailureKind, Reply, Request, Version};
use super::segment_reader::Part;
use super::store::{ObjectStore, Outcome, perform};
use super::waiting::wait_for_all;
use crate::base::planted::{self, Bug};
use crate::base::{Error, ErrorKind, Result};
use crate::sync::{Mutex, thread};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// How long a writer tries to finalize its lanes. The next writer does it otherwise.
const FINALIZE_MAX: Duration = Duration::from_secs(10);

/// A block that is not known to be durable.
struct Block {
    /// Its first byte in the lane that is to be sent.
    from: u64,
    end: u64,
    write: Write,
}

/// An object that takes appends over a stream.
struct Lane {
    id: ObjectId,
    version: Version,
    generation: u64,
    /// The end of the last block.
    end: u64,
    /// Bytes that are durable.
    durable: u64,
    /// In their order.
    blocks: VecDeque<Block>,
    /// The first so many of them were handed to the stream.
    handed: usize,
    /// Appends that have not ended.
    in_flight: usize,
    /// A thread hands blocks over. Another one would change their order.
    is_handing: bool,
    /// The stream is lost: nothing more is handed over.
    failure: Option<Failure>,
    /// A thread finds out what became of the lane.
    is_deciding: bool,
    /// The lane is finalized at its end.
    is_final: bool,
}

/// How far the end of a segment is.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Ending {
    #[default]
    TakesBlocks,
    /// No block will come.
    Left,
    /// A thread finalizes the lanes, or has ended, with or without success.
    Finalized,
}

#[derive(Default)]
struct State {
    lanes: Vec<Lane>,
    /// The lane whose turn it is.
    next: usize,
    is_registered: bool,
    failure: Option<Error>,
    ending: Ending,
}

/// See the module's text.
pub(super) struct StreamedSegment {
    path: String,
    writer: Arc<Writer>,
    state: Mutex<State>,
    /// Writes of which the outcome was not reported yet, and a thread that finalizes the lanes.
    in_flight: InFlight,
}

impl std::fmt::Debug for StreamedSegment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamedSegment").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Lane {
    /// # Errors
    /// The store names no generation.
    fn new(id: ObjectId, reply: &Reply) -> Result<Lane> {
        let number = |version: &Version| version.0.parse::<u64>().ok().filter(|number| *number > 0);
        let Some((version, generation)) =
            reply.version.as_ref().and_then(|version| Some((version.clone(), number(version)?)))
        else {
            let what = "the store names no generation of a log object: it cannot keep a log";
            return Err(Error::new(ErrorKind::Unsupported, what).at(place(&id.log_name(), 0)));
        };
        let (end, durable) = (FRAME_BYTES, FRAME_BYTES);
        let (blocks, failure) = (VecDeque::new(), None);
        let (handed, in_flight, is_handing, is_deciding, is_final) = (0, 0, false, false, false);
        Ok(Lane {
            id,
            version,
            generation,
            end,
            durable,
            blocks,
            handed,
            in_flight,
            is_handing,
            failure,
            is_deciding,
            is_final,
        })
    }

    fn append(&self, block: &Block) -> Request {
        let whole = &block.write.body;
        let done = whole.len() - (block.end - block.from) as usize;
        let (name, version) = (self.id.log_name(), Some(self.version.clone()));
        Request::Append { name, offset: block.from, body: whole.slice(done..), version }
    }

    fn open(&self, takes_over: bool) -> Request {
        Request::Open { name: self.id.log_name(), version: self.version.clone(), takes_over }
    }

    fn finalize(&self) -> Request {
        Request::Finalize { name: self.id.log_name(), version: self.version.clone(), len: self.end }
    }

    /// Begins behind `len` durable bytes with what is to be sent.
    fn rewind(&mut self, len: u64) {
        let first = self.blocks.front().map_or(len, |block| block.end - block.write.body.len() as u64);
        let shift = if planted::is(Bug::StreamResentWhole) { len.saturating_sub(first) } else { 0 };
        for block in &mut self.blocks {
            let begin = block.end - block.write.body.len() as u64;
            block.end += shift;
            block.from = (begin + shift).max(len);
        }
        self.end += shift;
    }

    /// Notes that all bytes below `durable` are durable. Returns the blocks that end there.
    fn confirm(&mut self, durable: u64) -> Vec<Write> {
        self.durable = self.durable.max(durable);
        let mut ended = Vec::new();
        while self.blocks.front().is_some_and(|block| block.end <= self.durable) {
            ended.extend(self.blocks.pop_front().map(|block| block.write));
        }
        self.handed = self.handed.saturating_sub(ended.len());
        ended
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
        let create = Request::Create { name: id.log_name(), body: writer.header.encode() };
        match perform(&*writer.store, create) {
            Ok(reply) => return Lane::new(id, &reply),
            Err(failure) if may_end(failure.kind) && patience.pause() => {}
            // An earlier message of this very request came before it.
            Err(failure) if failure.kind == FailureKind::Refused && patience.pause() => {}
            Err(failure) => return Err(error_of(&failure, "a log object cannot be created", &id.log_name())),
        }
    }
}

/// What became of a lane whose stream was lost.
enum Resumed {
    /// It has a stream again, and so many bytes.
    Open(u64),
    /// It takes nothing more. So many bytes of it count.
    Ended(u64, Error),
}

impl StreamedSegment {
    /// Creates a segment with its lanes.
    ///
    /// # Errors
    /// As [`create_lane`].
    pub(super) fn create(
        path: &str,
        writer: Arc<Writer>,
        next: impl Fn() -> ObjectId + Send + Sync,
    ) -> Result<Arc<StreamedSegment>> {
        let ids: Vec<ObjectId> = (0..writer.lanes).map(|_| next()).collect();
        let first = wait_for_all(ids.len(), |index, done| {
            let create = Request::Create { name: ids[index].log_name(), body: writer.header.encode() };
            writer.store.start(create, done);
        });
        let lane = |(id, outcome): (ObjectId, Outcome)| match outcome {
            Ok(reply) => Lane::new(id, &reply),
            // That name is given up (O8).
            Err(_) => create_lane(&writer, &next),
        };
        let lanes = ids.into_iter().zip(first).map(lane).collect::<Result<_>>()?;
        let (path, state) = (path.to_string(), Mutex::new(State { lanes, ..State::default() }));
        Ok(Arc::new(StreamedSegment { path, writer, state, in_flight: InFlight::default() }))
    }

    fn begin(self: &Arc<Self>, write: Write) {
        let lane = {
            let mut state = self.state.lock();
            if let Err(error) = admit(&self.path, state.is_registered, state.failure.as_ref()) {
                drop(state);
                return (write.done)(Err(error));
            }
            self.in_flight.begin(1);
            let (next, count) = (state.next, state.lanes.len().max(1));
            state.next = (next + 1) % count;
            let lanes = state.lanes.iter_mut().enumerate();
            // A lane that has lost its stream would make the block wait. Of equal ones each has its
            // turn, because a stream completes a limited number of flushes a second.
            let key = |(at, lane): &(usize, &mut Lane)| {
                (lane.failure.is_some(), lane.blocks.len(), (at + count - next) % count)
            };
            let Some((at, lane)) = lanes.min_by_key(key) else { return };
            let (from, end) = (lane.end, lane.end + write.body.len() as u64);
            lane.end = end;
            lane.blocks.push_back(Block { from, end, write });
            at
        };
        self.hand_over(lane);
    }

    /// Hands blocks to the stream of a lane, in their order.
    fn hand_over(self: &Arc<Self>, at: usize) {
        let mut is_first = true;
        loop {
            let (request, end) = {
                let mut state = self.state.lock();
                let lane = &mut state.lanes[at];
                if is_first && lane.is_handing {
                    return;
                }
                is_first = false;
                let next = lane.blocks.get(lane.handed).filter(|_| lane.failure.is_none());
                let Some((request, end)) = next.map(|block| (lane.append(block), block.end)) else {
                    lane.is_handing = false;
                    return;
                };
                (lane.is_handing, lane.handed, lane.in_flight) = (true, lane.handed + 1, lane.in_flight + 1);
                (request, end)
            };
            let this = self.clone();
            self.writer.store.start(request, Box::new(move |outcome| this.ended(at, end, outcome)));
            if planted::is(Bug::StreamReportedUnflushed) {
                let ended = self.state.lock().lanes[at].confirm(end);
                ended.into_iter().for_each(|write| self.end(write, Ok(())));
            }
        }
    }

    /// An append that ends at `end` has ended.
    fn ended(self: &Arc<Self>, at: usize, end: u64, outcome: Outcome) {
        let (ended, decides) = {
            let mut state = self.state.lock();
            let lane = &mut state.lanes[at];
            lane.in_flight -= 1;
            let ended = match outcome {
                Ok(_) => lane.confirm(end),
                Err(failure) => {
                    lane.failure.get_or_insert(failure);
                    Vec::new()
                }
            };
            // The others of this stream end soon, too.
            let decides = lane.failure.is_some() && lane.in_flight == 0 && !lane.is_deciding;
            lane.is_deciding |= decides;
            (ended, decides)
        };
        ended.into_iter().for_each(|write| self.end(write, Ok(())));
        if decides {
            self.decide_elsewhere(at);
        }
    }

    fn end(self: &Arc<Self>, write: Write, result: Result<()>) {
        (write.done)(result);
        if self.in_flight.end() {
            self.finalize_elsewhere();
        }
    }

    /// Finalizes the lanes of a segment that was left, when its last block is durable. In a thread
    /// of its own, because that waits.
    fn finalize_elsewhere(self: &Arc<Self>) {
        {
            let mut state = self.state.lock();
            if state.ending != Ending::Left || !self.in_flight.is_idle() || state.failure.is_some() {
                return;
            }
            state.ending = Ending::Finalized;
            self.in_flight.begin(1);
        }
        let this = self.clone();
        let finalize = move || {
            this.finalize();
            this.in_flight.end();
        };
        // Without a thread, the end of the writer finalizes them, or the next writer.
        if thread::spawn("quench-append", finalize).is_err() {
            self.in_flight.end();
        }
    }

    /// Finds out what became of a lane, in a thread of its own, because that waits.
    fn decide_elsewhere(self: &Arc<Self>, at: usize) {
        let this = self.clone();
        if let Err(error) = thread::spawn("quench-append", move || this.decide(at)) {
            let error = Error::io("no thread to find out what became of a block", error);
            let durable = self.state.lock().lanes[at].durable;
            self.fail(at, durable, &error.with_kind(ErrorKind::OutcomeUnknown));
        }
    }

    fn decide(self: &Arc<Self>, at: usize) {
        match self.resume(at) {
            Resumed::Open(len) => {
                let ended = {
                    let mut state = self.state.lock();
                    let lane = &mut state.lanes[at];
                    debug_assert!(lane.in_flight == 0, "no append is on its way to a stream that is lost");
                    let ended = lane.confirm(len);
                    lane.rewind(len);
                    (lane.handed, lane.failure, lane.is_deciding) = (0, None, false);
                    ended
                };
                ended.into_iter().for_each(|write| self.end(write, Ok(())));
                self.hand_over(at);
            }
            Resumed::Ended(len, error) => self.fail(at, len, &error),
        }
    }

    /// Ends a lane: what lies below `len` is durable, and the rest fails.
    fn fail(self: &Arc<Self>, at: usize, len: u64, error: &Error) {
        let (ended, failed) = {
            let mut state = self.state.lock();
            state.failure.get_or_insert(error.duplicate());
            let lane = &mut state.lanes[at];
            let ended = lane.confirm(len);
            lane.handed = 0;
            (ended, std::mem::take(&mut lane.blocks))
        };
        ended.into_iter().for_each(|write| self.end(write, Ok(())));
        failed.into_iter().for_each(|block| self.end(block.write, Err(error.duplicate())));
    }

    /// Opens the stream of a lane again, or finds out that another writer has taken it over.
    fn resume(&self, at: usize) -> Resumed {
        let (name, open, own, durable) = {
            let state = self.state.lock();
            let lane = &state.lanes[at];
            let open = [lane.open(false), lane.open(true)];
            (lane.id.log_name(), open, lane.end, lane.durable)
        };
        let (store, most, epoch) = (&*self.writer.store, self.writer.patience, self.writer.header.epoch);
        let mut patience = Patience::new(most);
        let mut takes_over = false;
        let unknown = |failure: &Failure| {
            let error = error_of(failure, "whether a block was appended is unknown", &name);
            Resumed::Ended(durable, error.with_kind(ErrorKind::OutcomeUnknown))
        };
        loop {
            let failure = match perform(store, open[usize::from(takes_over)].clone()) {
                Ok(reply) if (durable..=own).contains(&reply.len) => return Resumed::Open(reply.len),
                Ok(reply) => return Resumed::Ended(durable, foreign(&name, reply.len, durable..=own)),
                Err(failure) => failure,
            };
            match failure.kind {
                FailureKind::Refused => match look_up(store, most) {
                    Ok(Some(newest)) if newest.body.epoch > epoch => {
                        return self.overtaken(at, newest.body.epoch);
                    }
                    // The handle has expired. If a claim comes now, both take the lane over by
                    // turns until it is finalized.
                    Ok(_) => takes_over = true,
                    Err(error) => {
                        return Resumed::Ended(durable, error.with_kind(ErrorKind::OutcomeUnknown));
                    }
                },
                kind if may_end(kind) => {}
                _ => {
                    let claimed = later_claim(store, &self.writer.header, &failure, most);
                    return claimed.map_or_else(|| unknown(&failure), |error| Resumed::Ended(durable, error));
                }
            }
            if !patience.pause() {
                return unknown(&failure);
            }
        }
    }

    /// Waits until the writer with a later claim has finalized a lane. What lies in it then counts.
    fn overtaken(&self, at: usize, by: WriterEpoch) -> Resumed {
        let (name, own, durable) = {
            let state = self.state.lock();
            let lane = &state.lanes[at];
            (lane.id.log_name(), lane.end, lane.durable)
        };
        let mut patience = Patience::new(self.writer.patience);
        loop {
            let failure = match perform(&*self.writer.store, Request::Head { name: name.clone() }) {
                Ok(reply) if reply.is_final && (durable..=own).contains(&reply.len) => {
                    return Resumed::Ended(reply.len, fenced(self.writer.header.epoch, by));
                }
                Ok(reply) if reply.is_final => {
                    return Resumed::Ended(durable, foreign(&name, reply.len, durable..=own));
                }
                Ok(_) => {
                    let what = "a later writer has taken the log object over, and not finalized it";
                    Failure { kind: FailureKind::Again, what: what.into() }
                }
                // That writer has read it, covered it by a checkpoint, and deleted it.
                Err(failure) if failure.kind == FailureKind::Absent => {
                    return Resumed::Ended(durable, fenced(self.writer.header.epoch, by));
                }
                Err(failure) => failure,
            };
            if !may_end(failure.kind) || !patience.pause() {
                let what = "whether a block is in a log object of an ended writer is unknown";
                let error = error_of(&failure, what, &name).with_kind(ErrorKind::OutcomeUnknown);
                return Resumed::Ended(durable, error);
            }
        }
    }

    /// Finalizes the lanes, of which every block is durable. Returns whether all of them are, at
    /// their own ends.
    fn finalize(&self) -> bool {
        let lanes: Vec<(usize, Ends)> = {
            let state = self.state.lock();
            let open = state.lanes.iter().enumerate().filter(|(_, lane)| !lane.is_final);
            open.map(|(at, lane)| (at, Ends::of(lane))).collect()
        };
        let first = wait_for_all(lanes.len(), |index, done| {
            self.writer.store.start(lanes[index].1.finalize.clone(), done);
        });
        let mut are_final = true;
        for ((at, ends), first) in lanes.into_iter().zip(first) {
            let len = ends.end(&*self.writer.store, first, FINALIZE_MAX.min(self.writer.patience));
            let is_final = len == Some(ends.len);
            self.state.lock().lanes[at].is_final = is_final;
            are_final &= is_final;
            if let Some(len) = len.filter(|_| !is_final) {
                self.lost(&foreign(ends.finalize.name(), len, ends.len..=ends.len));
            }
        }
        are_final
    }

    /// Durable blocks are lost: the writer stops.
    fn lost(&self, error: &Error) {
        tracing::error!(%error, "a log object was finalized at another length than that of its blocks");
        self.state.lock().failure.get_or_insert(error.duplicate());
        // The first one stays.
        let _ = self.writer.failure.set(error.duplicate());
    }
}

/// The requests that end a lane.
struct Ends {
    /// The end of its last block.
    len: u64,
    open: Request,
    finalize: Request,
}

impl Ends {
    fn of(lane: &Lane) -> Ends {
        Ends { len: lane.end, open: lane.open(false), finalize: lane.finalize() }
    }

    /// Finalizes the lane, of which `first` is the outcome of a first request. Returns the length
    /// at which it is finalized; `None` if it is not, or if that is unknown.
    fn end(&self, store: &dyn ObjectStore, first: Outcome, most: Duration) -> Option<u64> {
        let mut patience = Patience::new(most);
        let mut outcome = first;
        loop {
            match outcome {
                Ok(reply) => return Some(reply.len),
                // It was finalized by an earlier copy, or a later writer has taken it over.
                Err(failure) if failure.kind == FailureKind::Refused => return self.look(store),
                Err(failure) if may_end(failure.kind) && patience.pause() => {}
                Err(_) => return None,
            }
            outcome = match perform(store, self.open.clone()) {
                Ok(reply) if reply.len == self.len => perform(store, self.finalize.clone()),
                Ok(reply) => return Some(reply.len),
                Err(failure) => Err(failure),
            };
        }
    }

    /// Returns the length of the lane if it is finalized.
    fn look(&self, store: &dyn ObjectStore) -> Option<u64> {
        let head = perform(store, Request::Head { name: self.finalize.name().to_string() });
        head.ok().filter(|reply| reply.is_final).map(|reply| reply.len)
    }
}

/// Returns the error of a lane with a length that its author cannot explain.
fn foreign(name: &str, len: u64, own: std::ops::RangeInclusive<u64>) -> Error {
    let what = format!(
        "the log object has {len} bytes, and its only writer has sent {} and seen {} confirmed",
        own.end(),
        own.start()
    );
    Error::corruption(what).at(place(name, len))
}

impl OpenSegment for Arc<StreamedSegment> {
    fn path(&self) -> &str {
        &self.path
    }

    fn entry(&self, number: u64) -> SegmentEntry {
        let state = self.state.lock();
        let objects = state.lanes.iter().map(|lane| lane.id.number).collect();
        let generations = state.lanes.iter().map(|lane| lane.generation).collect();
        let epoch = self.writer.header.epoch;
        SegmentEntry { number, epoch, form: Form::Streams, objects, generations, accepted: None }
    }

    /// An object takes any number of appends.
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
        state.lanes.iter().map(|lane| Part::of_lane(lane.id.log_name(), lane.durable)).collect()
    }

    fn leave(&self) {
        {
            let mut state = self.state.lock();
            if state.ending == Ending::TakesBlocks {
                state.ending = Ending::Left;
            }
        }
        self.finalize_elsewhere();
    }

    fn wait_idle(&self) -> bool {
        let is_sound = loop {
            self.in_flight.wait(None);
            let mut state = self.state.lock();
            // The last write may have begun to finalize the lanes meanwhile.
            if self.in_flight.is_idle() {
                state.ending = Ending::Finalized;
                break state.failure.is_none();
            }
        };
        is_sound && self.finalize()
    }
}
