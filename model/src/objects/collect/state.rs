//! What is in the store, in flight, and known to each machine?

use super::scenario::Scenario;
use std::collections::{BTreeMap, BTreeSet};

/// The name of an object: its writer, and the number that this writer uses once.
pub type Name = (u8, u8);

/// An extent in a manifest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Extent {
    /// The object.
    pub name: Name,
    /// What it must hold.
    pub content: u8,
}

/// The manifest.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Manifest {
    /// Different in each manifest.
    pub version: u16,
    /// The writer that claimed it last.
    pub claimed: u8,
    /// The extents.
    pub extents: BTreeSet<Extent>,
}

/// A request in flight.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Request {
    /// Puts an extent, which replaces an object of its name.
    Upload(u8, Extent),
    /// Replaces the manifest.
    Put {
        /// The writer that hears of it.
        writer: u8,
        /// The version that the manifest must have.
        expected: u16,
        /// The new manifest.
        body: Manifest,
    },
    /// Deletes an object.
    Delete(Name),
}

/// What a writer does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// It has not begun.
    Absent,
    /// It has sent its claim.
    Claiming,
    /// It makes checkpoints.
    Working,
    /// It knows that another writer has the database.
    Ended,
}

/// An extent that is not in a confirmed manifest yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Uploading {
    /// The extent.
    pub extent: Extent,
    /// The writer knows that it is in the store.
    pub is_confirmed: bool,
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
    /// Its extent in flight.
    pub upload: Option<Uploading>,
    /// What it has dropped, and must delete if no pin keeps it.
    pub dropped: BTreeSet<Name>,
    /// The pins that it has listed for that.
    pub pins: Option<BTreeSet<Name>>,
    /// What a pin has kept. The next batch of dropped objects takes it along.
    pub kept: BTreeSet<Name>,
    /// It has looked for orphans.
    pub has_looked: bool,
    /// An extent that it dropped first.
    pub first_dropped: Option<Extent>,
    /// Checkpoints that it still makes.
    pub rounds: u8,
    /// The number of its next object.
    pub next: u8,
}

/// The reader.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Reader {
    /// It has not begun.
    Absent,
    /// It has read a manifest.
    HasRead(Manifest),
    /// Its pin is there.
    HasPin(Manifest),
    /// It relies on this manifest.
    Pinned(Manifest),
    /// It needs no more, and has removed its pin.
    Ended,
}

/// The state of everything.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct State {
    /// The manifest in the store.
    pub manifest: Manifest,
    /// The number of the next version and the next content.
    pub next: u8,
    /// The content of each object.
    pub objects: BTreeMap<Name, u8>,
    /// The newest object that each pin keeps.
    pub pins: BTreeSet<Name>,
    /// The time of the pins has passed, by the calendar of the writers.
    pub is_pin_time_over: bool,
    /// Requests that have not taken effect.
    pub in_flight: Vec<Request>,
    /// The writers.
    pub writers: Vec<Writer>,
    /// The reader.
    pub reader: Reader,
    /// Replies that may still be lost.
    pub lost_replies: u8,
    /// A pin has kept an object that was dropped.
    pub was_kept: bool,
    /// The reader has begun again.
    pub has_restarted: bool,
}

impl State {
    /// Returns a database of two extents, and the first writer at work.
    #[must_use]
    pub fn new(scenario: &Scenario) -> State {
        let extents = BTreeSet::from([0, 1].map(|number| Extent { name: (0, number), content: number }));
        let manifest = Manifest { version: 0, claimed: 0, extents };
        let writer = |rounds: u8, phase: Phase| Writer {
            phase,
            manifest: manifest.clone(),
            put: None,
            upload: None,
            dropped: BTreeSet::new(),
            pins: None,
            kept: BTreeSet::new(),
            has_looked: phase == Phase::Working,
            first_dropped: None,
            rounds,
            next: if phase == Phase::Working { 2 } else { 0 },
        };
        let [first, second] = scenario.rounds;
        let mut state = State {
            objects: manifest.extents.iter().map(|extent| (extent.name, extent.content)).collect(),
            manifest: manifest.clone(),
            next: 2,
            pins: BTreeSet::new(),
            is_pin_time_over: false,
            in_flight: Vec::new(),
            writers: vec![writer(first, Phase::Working), writer(second, Phase::Absent)],
            reader: if scenario.reads { Reader::Absent } else { Reader::Ended },
            lost_replies: scenario.lost_replies,
            was_kept: false,
            has_restarted: false,
        };
        state.manifest.version = scenario.version(&mut state.next, &manifest.extents);
        state.writers.iter_mut().for_each(|writer| writer.manifest = state.manifest.clone());
        state
    }

    /// Adds a request to those in flight, in an order of its own, so that equal states are equal.
    pub(super) fn send(&mut self, request: Request) {
        let at = self.in_flight.partition_point(|other| *other <= request);
        self.in_flight.insert(at, request);
    }
}
