//! What does a reader see of a commit in progress?
//!
//! One writer commits two rows, another commits something else and is acknowledged in between; a
//! reader takes a snapshot and reads both rows; versions that no snapshot needs are collected. Four
//! rules, with what goes wrong without them:
//!
//! - **PREPARING before the draw.** A writer that has drawn its CSN and not yet stamped its
//!   versions is below the snapshot of a reader that starts now. A reader that goes by the stamps
//!   alone sees the second row and not the first.
//! - **Pin before choosing.** A reader that publishes its snapshot only after it has chosen one
//!   lets the collector pass in between, and the version that it needs is gone.
//! - **Bound before pins.** The collector loads its bound first and the pins after it. The other
//!   way round a reader can pin an older snapshot between the two loads.
//! - **The bound is the oldest snapshot that a new reader may take.** Durable read-only
//!   transactions start at the newest acknowledged CSN. A collector that keeps only what the newest
//!   drawn CSN needs takes the version away from a reader that has not begun yet.

use crate::state::Csn;
use stateright::{Model, Property};

/// How a reader finds out about a version without a stamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stamps {
    /// The engine's rule: the writer's descriptor says PREPARING before the draw and the CSN after
    /// it; a reader that finds PREPARING waits.
    DescriptorWithPreparing,
    /// Wrong: the descriptor has the CSN after the draw, and says nothing before.
    DescriptorOnly,
    /// Wrong: no stamp, not committed.
    StampsOnly,
}

/// Which CSN a reader, or the collector's bound, starts from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartsAt {
    /// Durable read-only transactions.
    NewestAcknowledged,
    /// Read-write transactions.
    NewestDrawn,
}

/// The model's rules.
#[derive(Clone, Copy, Debug)]
pub struct Snapshots {
    /// How versions without a stamp are judged.
    pub stamps: Stamps,
    /// The snapshot that is taken.
    pub starts_at: StartsAt,
    /// The reader announces pin 0 before it loads the counter.
    pub pin_before_choosing: bool,
    /// The collector's bound while no snapshot exists.
    pub bound: StartsAt,
    /// The collector loads the bound before the pins.
    pub bound_before_pins: bool,
}

impl Snapshots {
    /// The engine's rules.
    pub const ENGINE: Snapshots = Snapshots {
        stamps: Stamps::DescriptorWithPreparing,
        starts_at: StartsAt::NewestDrawn,
        pin_before_choosing: true,
        bound: StartsAt::NewestAcknowledged,
        bound_before_pins: true,
    };
}

/// The writer's steps, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WriterStep {
    /// Its versions are in place, without stamps.
    Wrote,
    /// Descriptor := PREPARING.
    Preparing,
    /// CSN drawn.
    Drawn,
    /// Descriptor := READY(csn).
    Ready,
    /// First row stamped.
    FirstStamped,
    /// Both rows stamped.
    BothStamped,
}

/// The reader's steps, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ReaderStep {
    /// Not begun.
    Waiting,
    /// Pin 0 announced, if that is the rule.
    Announced,
    /// The counter is loaded.
    Chosen,
    /// The snapshot is published.
    Pinned,
    /// The first row is read.
    ReadFirst,
    /// Both rows are read.
    ReadBoth,
}

/// Another writer, of other rows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OtherStep {
    /// Not begun.
    Waiting,
    /// Its CSN is drawn.
    Drawn,
    /// Acknowledged.
    Acknowledged,
}

/// The whole machine.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    next_csn: Csn,
    writer: WriterStep,
    writer_csn: Csn,
    other: OtherStep,
    other_csn: Csn,
    newest_acknowledged: Csn,
    reader: ReaderStep,
    snapshot: Csn,
    /// What the collector sees; `None` = no reader.
    pin: Option<Csn>,
    /// The collector is between its two loads: the first one's result.
    collector: Option<Csn>,
    /// The version before the writer's, of the first row, is gone.
    collected: bool,
    /// Did the reader see the writer's version?
    saw_first: Option<bool>,
    saw_second: Option<bool>,
    needed_collected: bool,
}

/// The thread that takes the next step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// The writer of both rows.
    Writer,
    /// The writer of something else.
    Other,
    /// The reader.
    Reader,
    /// Loads bound and pins, in two steps; then collects the first row's old version, if no
    /// snapshot needs it.
    Collector,
}

/// A transaction is seen whole or not at all.
pub const ATOMIC: &str = "the reader sees both rows of a commit or neither";
/// The collector leaves what a snapshot needs.
pub const KEPT: &str = "a version that a snapshot needs is not collected";
/// Reached: the commit is seen.
pub const REACHED_SEEN: &str = "reached: the reader sees the commit";
/// Reached: the commit is not seen although it is complete.
pub const REACHED_UNSEEN: &str = "reached: the reader's snapshot is older than the commit";

impl Model for Snapshots {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            next_csn: 1,
            writer: WriterStep::Wrote,
            writer_csn: 0,
            other: OtherStep::Waiting,
            other_csn: 0,
            newest_acknowledged: 0,
            reader: ReaderStep::Waiting,
            snapshot: 0,
            pin: None,
            collector: None,
            collected: false,
            saw_first: None,
            saw_second: None,
            needed_collected: false,
        }]
    }

    fn actions(&self, _: &State, actions: &mut Vec<Action>) {
        actions.extend([Action::Writer, Action::Other, Action::Reader, Action::Collector]);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Writer => write(&mut next)?,
            Action::Other => other(&mut next)?,
            Action::Reader => self.read(&mut next)?,
            Action::Collector => self.collect(&mut next)?,
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ATOMIC, |_, state: &State| {
                state.saw_second.is_none() || state.saw_first == state.saw_second
            }),
            Property::always(KEPT, |_, state: &State| !state.needed_collected),
            Property::sometimes(REACHED_SEEN, |_, state: &State| state.saw_second == Some(true)),
            Property::sometimes(REACHED_UNSEEN, |_, state: &State| {
                state.saw_second == Some(false) && state.writer == WriterStep::BothStamped
            }),
        ]
    }
}

fn write(state: &mut State) -> Option<()> {
    state.writer = match state.writer {
        WriterStep::Wrote => WriterStep::Preparing,
        WriterStep::Preparing => {
            state.writer_csn = draw(state);
            WriterStep::Drawn
        }
        WriterStep::Drawn => WriterStep::Ready,
        WriterStep::Ready => WriterStep::FirstStamped,
        WriterStep::FirstStamped => WriterStep::BothStamped,
        WriterStep::BothStamped => return None,
    };
    Some(())
}

fn other(state: &mut State) -> Option<()> {
    state.other = match state.other {
        OtherStep::Waiting => {
            state.other_csn = draw(state);
            OtherStep::Drawn
        }
        OtherStep::Drawn => {
            state.newest_acknowledged = state.newest_acknowledged.max(state.other_csn);
            OtherStep::Acknowledged
        }
        OtherStep::Acknowledged => return None,
    };
    Some(())
}

fn draw(state: &mut State) -> Csn {
    state.next_csn += 1;
    state.next_csn - 1
}

impl StartsAt {
    fn load(self, state: &State) -> Csn {
        match self {
            StartsAt::NewestAcknowledged => state.newest_acknowledged,
            StartsAt::NewestDrawn => state.next_csn - 1,
        }
    }
}

impl Snapshots {
    /// The old version is not needed if the oldest snapshot, and every one that may still be taken,
    /// has the new version.
    fn collect(&self, state: &mut State) -> Option<()> {
        let pin = state.pin.unwrap_or(Csn::MAX);
        let bound = self.bound.load(state);
        let (first, second) = if self.bound_before_pins { (bound, pin) } else { (pin, bound) };
        let Some(loaded) = state.collector.take() else {
            state.collector = Some(first);
            return (!state.collected).then_some(());
        };
        if state.writer >= WriterStep::FirstStamped && state.writer_csn <= loaded.min(second) {
            state.collected = true;
        }
        Some(())
    }

    fn read(&self, state: &mut State) -> Option<()> {
        state.reader = match state.reader {
            ReaderStep::Waiting => {
                if self.pin_before_choosing {
                    state.pin = Some(0);
                }
                ReaderStep::Announced
            }
            ReaderStep::Announced => {
                state.snapshot = self.starts_at.load(state);
                ReaderStep::Chosen
            }
            ReaderStep::Chosen => {
                state.pin = Some(state.snapshot);
                ReaderStep::Pinned
            }
            ReaderStep::Pinned => {
                let seen = self.sees(state, state.writer >= WriterStep::FirstStamped)?;
                state.saw_first = Some(seen);
                state.needed_collected = !seen && state.collected;
                ReaderStep::ReadFirst
            }
            ReaderStep::ReadFirst => {
                state.saw_second = Some(self.sees(state, state.writer >= WriterStep::BothStamped)?);
                ReaderStep::ReadBoth
            }
            ReaderStep::ReadBoth => return None,
        };
        Some(())
    }

    /// True if a row's new version is in the snapshot; `None` = the reader waits.
    fn sees(&self, state: &State, stamped: bool) -> Option<bool> {
        let in_snapshot = state.writer_csn <= state.snapshot;
        if stamped {
            return Some(in_snapshot);
        }
        let ready = state.writer >= WriterStep::Ready;
        match self.stamps {
            Stamps::StampsOnly => Some(false),
            _ if ready => Some(in_snapshot),
            Stamps::DescriptorOnly => Some(false),
            Stamps::DescriptorWithPreparing if state.writer >= WriterStep::Preparing => None,
            Stamps::DescriptorWithPreparing => Some(false),
        }
    }
}
