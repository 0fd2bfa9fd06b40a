//! What is in the store, in flight, and known to each writer?

use super::judge::Violation;
use super::scenario::{Mistake, Scenario, Store};
use std::collections::{BTreeMap, BTreeSet};

/// A segment: the writer that fills it, and its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Segment {
    /// The index of the writer, whose epoch is one higher.
    pub writer: u8,
    /// The number that this writer uses once.
    pub number: u8,
}

/// The name of an object: a segment, and a lane or the number of a block.
pub type Name = (Segment, u8);

/// A part of an object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Cell {
    /// The header of a lane.
    Header,
    /// A block: its writer and its number.
    Block(u8, u8),
    /// The fence of a writer.
    Fence(u8),
}

/// The manifest.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Manifest {
    /// Different in each manifest.
    pub version: u8,
    /// The writer that claimed it last.
    pub claimed: u8,
    /// The writer that published its recovery last.
    pub running: u8,
    /// Blocks that the checkpoint has.
    pub checkpoint: u16,
    /// Blocks of writers before the running one that count.
    pub accepted: u16,
    /// The segments.
    pub segments: BTreeSet<Segment>,
    /// The last writer has closed it.
    pub closed: bool,
}

/// A request in flight.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Request {
    /// Appends a block at an offset.
    Append {
        /// The writer that hears of it.
        writer: u8,
        /// The object.
        name: Name,
        /// The length that the object must have.
        offset: u8,
        /// The number of the block.
        block: u8,
    },
    /// Creates the object of a block, if absent.
    Create {
        /// The writer that hears of it.
        writer: u8,
        /// The object, whose number is that of the block.
        name: Name,
    },
    /// Replaces the manifest.
    Put {
        /// The writer that hears of it.
        writer: u8,
        /// The version that the manifest must have.
        expected: u8,
        /// The new manifest.
        body: Manifest,
    },
    /// Another copy of the request that created a lane.
    CreateLane(Name),
    /// Deletes an object.
    Delete(Name),
}

/// What a writer does.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// It has not begun.
    Absent,
    /// It has sent its claim.
    Claiming,
    /// It fences these lanes, or segments on a store that only creates.
    Fencing(BTreeSet<Name>),
    /// All fences are there.
    Fenced,
    /// It has read the log, and sent its manifest.
    Publishing,
    /// It appends and reports.
    Serving,
    /// It knows that another writer has the database, or it is closed.
    Ended,
}

/// What a writer knows of one of its lanes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Lane {
    /// The object.
    pub name: Name,
    /// Its confirmed length.
    pub len: u8,
    /// The block of the append in flight.
    pub busy: Option<u8>,
    /// The writer knows that the manifest names it.
    pub is_registered: bool,
}

/// A writer.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Writer {
    /// What it does.
    pub phase: Phase,
    /// The newest manifest that it knows to be confirmed.
    pub manifest: Manifest,
    /// Its put in flight.
    pub put: Option<Manifest>,
    /// What it accepted, if it has read the log.
    pub recovered: Option<u16>,
    /// Its lanes. One without objects on a store that only creates.
    pub lanes: Vec<Lane>,
    /// Blocks in flight on a store that only creates.
    pub creating: BTreeSet<u8>,
    /// Its next block.
    pub next: u8,
    /// Its blocks that it knows to be durable, as bits from 0.
    pub durable: u8,
    /// Its look at the manifest of which it has not heard: the blocks that were durable before, and
    /// the claim that it found.
    pub look: Option<(u8, u8)>,
    /// Its blocks that it has reported, as bits from 0.
    pub reported: u8,
    /// It has begun its second segment.
    pub has_second_segment: bool,
    /// It has begun its checkpoint.
    pub has_checkpoint: bool,
}

/// A recovery that was published: by which writer, and what it accepted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Publication {
    /// The writer.
    pub writer: u8,
    /// The blocks.
    pub content: u16,
}

/// The state of everything.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct State {
    /// The manifest in the store.
    pub manifest: Manifest,
    /// The version of the next manifest.
    pub next_version: u8,
    /// The objects.
    pub objects: BTreeMap<Name, Vec<Cell>>,
    /// Requests that have not taken effect.
    pub in_flight: Vec<Request>,
    /// The writers.
    pub writers: Vec<Writer>,
    /// Replies that may still be lost.
    pub lost_replies: u8,
    /// What was reported, by all writers.
    pub reported: u16,
    /// What was published.
    pub publications: Vec<Publication>,
    /// A block was reported after a later writer had published.
    pub was_late: bool,
    /// A recovery has discarded a block that is in the store.
    pub has_discarded: bool,
    /// What is broken.
    pub violation: Option<Violation>,
}

impl State {
    /// Returns the state in which the first writer serves and nothing is written.
    #[must_use]
    pub fn new(scenario: &Scenario) -> State {
        let segment = Segment { writer: 0, number: 0 };
        let manifest = Manifest {
            version: 0,
            claimed: 0,
            running: 0,
            checkpoint: 0,
            accepted: 0,
            segments: BTreeSet::from([segment]),
            closed: false,
        };
        let absent = Writer {
            phase: Phase::Absent,
            manifest: manifest.clone(),
            put: None,
            recovered: None,
            lanes: Vec::new(),
            creating: BTreeSet::new(),
            next: 0,
            durable: 0,
            look: None,
            reported: 0,
            has_second_segment: false,
            has_checkpoint: false,
        };
        let mut state = State {
            manifest,
            next_version: 1,
            objects: BTreeMap::new(),
            in_flight: Vec::new(),
            writers: vec![absent; scenario.blocks.len()],
            lost_replies: scenario.lost_replies,
            reported: 0,
            publications: Vec::new(),
            was_late: false,
            has_discarded: false,
            violation: None,
        };
        state.writers[0].phase = Phase::Serving;
        state.add_segment(scenario, 0, segment, true);
        state
    }

    /// Creates the objects of a segment, with a header only.
    pub(super) fn add_segment(
        &mut self,
        scenario: &Scenario,
        writer: usize,
        segment: Segment,
        is_registered: bool,
    ) {
        let lanes = if scenario.store == Store::Appends { scenario.lanes } else { 1 };
        for lane in 0..lanes {
            let name = (segment, lane);
            let mut len = 0;
            if scenario.store == Store::Appends {
                len = self.create_lane(scenario, name);
                if scenario.makes(Mistake::CreationRepeated) {
                    self.send(Request::CreateLane(name));
                }
            }
            self.writers[writer].lanes.push(Lane { name, len, busy: None, is_registered });
        }
    }

    /// Adds a request to those in flight, in an order of its own, so that equal states are equal.
    pub(super) fn send(&mut self, request: Request) {
        let at = self.in_flight.partition_point(|other| *other <= request);
        self.in_flight.insert(at, request);
    }

    /// Returns the version of a new manifest.
    pub(super) fn version(&mut self) -> u8 {
        self.next_version += 1;
        self.next_version - 1
    }
}
