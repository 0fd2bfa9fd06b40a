//! What is in the store, in flight, and known to each writer?

use super::judge::{Publication, Violation};
use super::scenario::Scenario;
use std::collections::VecDeque;

/// Sectors of a block.
pub(super) const BLOCK: u8 = 2;
/// Sectors of the header of a lane.
pub(super) const HEADER: u8 = 1;

/// A sector of an object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Sector {
    /// The header of a lane.
    Header,
    /// A half of a block: its writer, its number, and which half.
    Half(u8, u8, u8),
    /// A part of the fence of a writer.
    Fence(u8),
}

/// The object of a lane.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Object {
    /// Its durable bytes.
    pub sectors: Vec<Sector>,
    /// The stream that may append, if the service revokes the others.
    pub holder: u8,
    /// The writer that opened that stream.
    pub owner: u8,
    /// It never changes again.
    pub finalized: bool,
}

/// A message on a stream.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Message {
    /// Sectors at an offset, flushed.
    Append(u8, Vec<Sector>),
    /// The object is to be finalized.
    Finalize,
}

/// A stream of a writer to an object.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Stream {
    /// The writer.
    pub writer: u8,
    /// The object: the writer whose lane it is.
    pub object: u8,
    /// Messages that had no effect yet.
    pub messages: VecDeque<Message>,
    /// The writer hears the answers.
    pub is_heard: bool,
}

/// What a writer does.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// It has not begun.
    Absent,
    /// It has claimed the database, and takes over the lane of the running writer.
    TakingOver,
    /// It has taken the lane over, and waits until the lane is finalized or fenced.
    Ending,
    /// The lane has ended: it can be read.
    Reading,
    /// It has read the log.
    Publishing,
    /// It appends and reports.
    Serving,
    /// Its handle has expired, and no later writer had claimed the database.
    Expired,
    /// A later writer has claimed the database: it waits until its lane is finalized.
    Overtaken,
    /// It has ended.
    Ended,
}

/// A writer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Writer {
    /// What it does.
    pub phase: Phase,
    /// Its open stream.
    pub stream: Option<u8>,
    /// Blocks that it has sent.
    pub next: u8,
    /// Sectors of its lane that it knows to be durable.
    pub confirmed: u8,
    /// Blocks that it has reported.
    pub reported: u8,
    /// It has asked to finalize its lane.
    pub has_left: bool,
    /// The writer whose lane it takes over.
    pub running: u8,
    /// The length that it has looked up.
    pub looked_up: u8,
    /// What it accepted.
    pub recovered: u16,
}

/// A state of the run.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// The writer that claimed the manifest last.
    pub claimed: u8,
    /// The writer that published its recovery last.
    pub running: u8,
    /// Blocks of writers before the running one that count.
    pub accepted: u16,
    /// The lanes, by writer.
    pub objects: Vec<Option<Object>>,
    /// All streams that were opened.
    pub streams: Vec<Stream>,
    /// The writers.
    pub writers: Vec<Writer>,
    /// Streams that may still be lost, and handles that may expire.
    pub cuts: u8,
    /// Handles that may still expire.
    pub expiries: u8,
    /// What was reported, by all writers.
    pub reported: u16,
    /// What was published.
    pub publications: Vec<Publication>,
    /// A block was reported after a later writer had published.
    pub was_late: bool,
    /// A recovery has met a torn block.
    pub was_torn: bool,
    /// What is broken.
    pub violation: Option<Violation>,
}

impl State {
    /// Returns the state in which the first writer serves and nothing is written.
    #[must_use]
    pub fn new(scenario: &Scenario) -> State {
        let absent = Writer {
            phase: Phase::Absent,
            stream: None,
            next: 0,
            confirmed: HEADER,
            reported: 0,
            has_left: false,
            running: 0,
            looked_up: 0,
            recovered: 0,
        };
        let count = scenario.blocks.len();
        let mut state = State {
            claimed: 0,
            running: 0,
            accepted: 0,
            objects: vec![None; count],
            streams: Vec::new(),
            writers: vec![absent; count],
            cuts: scenario.cuts,
            expiries: scenario.expiries,
            reported: 0,
            publications: Vec::new(),
            was_late: false,
            was_torn: false,
            violation: None,
        };
        state.create_lane(0);
        state
    }

    /// Creates the lane of a writer, with a header, and lets the writer serve.
    pub(super) fn create_lane(&mut self, writer: usize) {
        let (holder, owner) = (u8::MAX, writer as u8);
        self.objects[writer] =
            Some(Object { sectors: vec![Sector::Header], holder, owner, finalized: false });
        self.writers[writer].phase = Phase::Serving;
        self.open(writer, writer);
    }

    /// Opens a stream to a lane, which then has this stream. Returns the length of the lane; `None`
    /// if it is finalized.
    pub(super) fn open(&mut self, writer: usize, lane: usize) -> Option<u8> {
        let object = self.objects[lane].as_mut().filter(|object| !object.finalized)?;
        let stream = self.streams.len() as u8;
        (object.holder, object.owner) = (stream, writer as u8);
        let len = object.sectors.len() as u8;
        if let Some(before) = self.writers[writer].stream {
            self.streams[usize::from(before)].is_heard = false;
        }
        let (messages, object) = (VecDeque::new(), lane as u8);
        self.streams.push(Stream { writer: writer as u8, object, messages, is_heard: true });
        self.writers[writer].stream = Some(stream);
        Some(len)
    }

    /// Adds a message to the stream of a writer.
    pub(super) fn send(&mut self, writer: usize, message: Message) {
        if let Some(stream) = self.writers[writer].stream {
            self.streams[usize::from(stream)].messages.push_back(message);
        }
    }

    /// Forgets messages that will never have an effect, and streams without any, so that equal
    /// states are equal.
    pub(super) fn forget_settled(&mut self, revokes: bool) {
        let objects = &self.objects;
        for (index, stream) in (0..).zip(&mut self.streams) {
            let Some(object) = &objects[usize::from(stream.object)] else { continue };
            let is_refused = object.finalized || revokes && object.holder != index;
            let len = object.sectors.len();
            let is_repeated = |message: &Message| match message {
                Message::Append(offset, sectors) => usize::from(*offset) + sectors.len() <= len,
                Message::Finalize => false,
            };
            if !stream.is_heard {
                stream.messages.retain(|message| !is_refused && !is_repeated(message));
            }
        }
        let mut kept = 0;
        let is_kept = |stream: &Stream| stream.is_heard || !stream.messages.is_empty();
        let names = self.streams.iter().map(|stream| {
            let name = if is_kept(stream) { kept } else { u8::MAX };
            kept += u8::from(is_kept(stream));
            name
        });
        let names: Vec<u8> = names.collect();
        let rename = |name: u8| names.get(usize::from(name)).copied().unwrap_or(u8::MAX);
        self.streams.retain(is_kept);
        for object in self.objects.iter_mut().flatten() {
            object.holder = rename(object.holder);
        }
        for writer in &mut self.writers {
            writer.stream = writer.stream.map(rename);
        }
    }
}
