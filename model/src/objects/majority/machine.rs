//! Which steps are possible?

use super::scenario::{Again, BUCKETS, MAJORITY, Mistake, Scenario};
use super::state::{Phase, State, Violation};
use crate::objects::explore;
use stateright::{Model, Property};

/// A step of a writer in a bucket.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// A writer makes its next block.
    Send(usize),
    /// A bucket confirms a writer's block.
    Append(usize, u8, usize),
    /// A bucket promises a claim.
    Promise(usize, usize),
    /// A writer fences a bucket and reads it.
    Fence(usize, usize),
    /// A writer reads a bucket that it has not fenced.
    ReadLog(usize, usize),
    /// A writer puts blocks again.
    PutAgain(usize, usize),
    /// A bucket accepts a publication.
    Publish(usize, usize),
    /// A bucket takes the extents of the first writer's checkpoint.
    Upload(usize),
    /// A bucket accepts the first writer's checkpoint.
    Checkpoint(usize),
    /// The first writer trims the log in a bucket.
    Trim(usize),
    /// A writer deletes extents in a bucket that its manifest does not name.
    Collect(usize, usize),
    /// A bucket comes back as it was at first.
    Restore(usize),
}

impl Model for Scenario {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.violation.is_some() {
            return;
        }
        for writer in 0..state.writers.len() {
            self.writer_actions(state, writer, actions);
        }
        if self.one_is_old && !state.was_restored {
            actions.extend((0..BUCKETS).map(Action::Restore));
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        self.step(state, &action).map(|next| next.canonical())
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            explore::sound(),
            Property::sometimes("two takeovers", |_, state: &State| state.publications.len() == 2),
            Property::sometimes("a block is discarded", |_, state: &State| state.has_discarded),
            Property::sometimes("a publication of a minority is adopted", |_, state: &State| {
                state.has_adopted && state.publications.iter().any(|(writer, _)| *writer == 3)
            }),
            Property::sometimes(
                "all of the first writer, and a third one",
                |scenario: &Scenario, state: &State| {
                    let all = scenario.before(2);
                    state.acknowledged & all == all
                        && state.publications.iter().any(|(writer, _)| *writer == 3)
                },
            ),
        ]
    }
}

impl explore::Scenario for Scenario {
    type Violation = Violation;

    fn violation(state: &State) -> Option<Violation> {
        state.violation
    }
}

impl Scenario {
    fn writer_actions(&self, state: &State, writer: usize, actions: &mut Vec<Action>) {
        let own = &state.writers[writer];
        if own.phase == Phase::Ended {
            return;
        }
        let may_write = writer == 0 || self.later_write && writer + 1 < self.writers;
        if own.phase == Phase::Serves && may_write && own.sent < self.blocks_of(own.epoch) {
            actions.push(Action::Send(writer));
        }
        let is_used = |bucket: &usize| !state.buckets[*bucket].is_old || self.errs(Mistake::OldBucketCounted);
        for bucket in (0..BUCKETS).filter(is_used) {
            self.bucket_actions(state, writer, bucket, actions);
        }
    }

    fn bucket_actions(&self, state: &State, writer: usize, bucket: usize, actions: &mut Vec<Action>) {
        let (own, there) = (&state.writers[writer], &state.buckets[bucket]);
        let lacks = |buckets: u8| buckets >> bucket & 1 == 0;
        for block in 0..own.sent {
            if lacks(own.known[usize::from(block)]) && there.fenced >> (own.epoch - 1) & 1 == 0 {
                actions.push(Action::Append(writer, block, bucket));
            }
        }
        let reads_first = self.errs(Mistake::ReadBeforeFence);
        match own.phase {
            Phase::Claims if lacks(own.promises) => actions.push(Action::Promise(writer, bucket)),
            Phase::Fences if lacks(own.fences) && reads_first => {
                actions.push(Action::ReadLog(writer, bucket))
            }
            Phase::Fences | Phase::FencesLate if lacks(own.fences) => {
                actions.push(Action::Fence(writer, bucket))
            }
            Phase::PutsAgain if lacks(own.put) => actions.push(Action::PutAgain(writer, bucket)),
            Phase::Publishes if lacks(own.published) => actions.push(Action::Publish(writer, bucket)),
            Phase::Serves if writer > 0 && self.errs(Mistake::PutAgainLate) && lacks(own.put) => {
                actions.push(Action::PutAgain(writer, bucket));
            }
            _ => {}
        }
        let is_claimed = !matches!(own.phase, Phase::Claims | Phase::Ended);
        let collects = match self.errs(Mistake::OrphansCollectedEarly) {
            true => is_claimed,
            false => own.phase == Phase::Serves,
        };
        if self.collect && writer > 0 && collects && there.extents & !own.body.checkpoint != 0 {
            actions.push(Action::Collect(writer, bucket));
        }
        if writer == 0 && self.checkpoint && own.acknowledged != 0 {
            let quorum = self.quorum(Mistake::ExtentInOneBucket);
            let uploaded = own.uploaded.count_ones();
            if lacks(own.uploaded) && uploaded < quorum {
                actions.push(Action::Upload(bucket));
            }
            if uploaded >= quorum && lacks(own.checkpointed) {
                actions.push(Action::Checkpoint(bucket));
            }
            let is_confirmed = own.checkpointed.count_ones() >= self.quorum(Mistake::TrimmedEarly);
            if is_confirmed && there.log[0] & own.checkpoint.checkpoint != 0 {
                actions.push(Action::Trim(bucket));
            }
        }
    }

    /// Returns the blocks that a takeover puts again, of those that it recovers.
    pub(super) fn to_put(&self, recovered: u8, whole: u8, watermark: u8) -> u8 {
        match self.again {
            _ if self.errs(Mistake::NothingPutAgain) => 0,
            Again::Missing => recovered & !whole,
            Again::FromWatermark => recovered & !((1 << watermark) - 1),
            Again::All => recovered,
        }
    }

    /// Returns whether buckets are a majority.
    pub(super) fn is_majority(buckets: u8) -> bool {
        buckets.count_ones() >= MAJORITY
    }
}
