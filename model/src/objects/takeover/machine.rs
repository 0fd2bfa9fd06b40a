//! Which steps are possible?

use super::judge::{self, Violation};
use super::scenario::{Mistake, Scenario, Store};
use super::state::{Cell, Name, Phase, Request, State};
use crate::objects::explore;
use stateright::{Model, Property};

/// A step of a writer, or of a request in flight.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// A writer reads the manifest and claims it.
    Begin(u8),
    /// A writer puts a fence.
    Fence(u8, Name),
    /// A writer reads the log and publishes what it accepts.
    ReadLog(u8),
    /// A writer sends its next block to a lane.
    Submit(u8, u8),
    /// A writer continues in a second segment.
    BeginSegment(u8),
    /// A writer makes a checkpoint.
    Checkpoint(u8),
    /// A writer closes the database.
    Close(u8),
    /// A request takes effect; whether its sender hears of it.
    TakeEffect(Request, bool),
    /// A writer looks what became of its append to a lane.
    LookAtLane(u8, u8),
    /// A writer looks what became of the creation of an object.
    LookAtBlock(u8, Name),
    /// A writer looks what became of its put of the manifest.
    LookAtManifest(u8),
    /// A writer reads in the manifest which writer has the database.
    LookAtOwner(u8),
    /// A writer hears which writer has the database.
    HearOfOwner(u8),
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
        for (index, request) in state.in_flight.iter().enumerate() {
            // Equal requests do the same.
            if index > 0 && state.in_flight[index - 1] == *request {
                continue;
            }
            actions.push(Action::TakeEffect(request.clone(), true));
            let has_reply = !matches!(request, Request::Delete(_) | Request::CreateLane(_));
            if state.lost_replies > 0 && has_reply {
                actions.push(Action::TakeEffect(request.clone(), false));
            }
        }
        for writer in 0..state.writers.len() {
            self.writer_actions(state, writer, actions);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        let index = usize::from;
        match action {
            Action::Begin(writer) => self.begin(&mut next, index(writer)),
            Action::Fence(writer, name) => self.fence(&mut next, index(writer), name),
            Action::ReadLog(writer) => self.read_log(&mut next, index(writer)),
            Action::Submit(writer, lane) => self.submit(&mut next, index(writer), index(lane)),
            Action::BeginSegment(writer) => self.begin_second_segment(&mut next, index(writer)),
            Action::Checkpoint(writer) => self.checkpoint(&mut next, index(writer)),
            Action::Close(writer) => self.close(&mut next, index(writer)),
            Action::TakeEffect(request, is_replied) => self.take_effect(&mut next, &request, is_replied),
            Action::LookAtLane(writer, lane) => {
                next.lost_replies -= u8::from(self.is_in_flight(state, index(writer), None));
                self.look_at_lane(&mut next, index(writer), index(lane), false);
            }
            Action::LookAtBlock(writer, name) => {
                next.lost_replies -= u8::from(self.is_in_flight(state, index(writer), Some(name)));
                self.look_at_block(&mut next, index(writer), name, false);
            }
            Action::LookAtManifest(writer) => {
                let body = &state.writers[index(writer)].put;
                let sent = |request: &Request| matches!(request, Request::Put { body: sent, .. } if Some(sent) == body.as_ref());
                next.lost_replies -= u8::from(state.in_flight.iter().any(sent));
                self.look_at_manifest(&mut next, index(writer));
            }
            Action::LookAtOwner(writer) => self.look_at_owner(&mut next, index(writer)),
            Action::HearOfOwner(writer) => self.hear_of_owner(&mut next, index(writer)),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        judge::properties()
    }
}

impl Scenario {
    fn take_effect(&self, state: &mut State, request: &Request, is_replied: bool) {
        let Some(at) = state.in_flight.iter().position(|other| other == request) else { return };
        state.in_flight.remove(at);
        state.lost_replies -= u8::from(!is_replied);
        match request.clone() {
            Request::Append { writer, name, offset, block } => {
                self.apply_append(state, (usize::from(writer), name, offset, block), is_replied);
            }
            Request::Create { writer, name } => {
                self.apply_create(state, usize::from(writer), name, is_replied);
            }
            Request::Put { writer, expected, body } => {
                self.apply_put(state, (usize::from(writer), expected, body), is_replied);
            }
            Request::CreateLane(name) => {
                state.objects.entry(name).or_insert_with(|| vec![Cell::Header]);
            }
            Request::Delete(name) => drop(state.objects.remove(&name)),
        }
    }

    /// Returns whether the append of a writer, or the creation of an object, has not taken effect.
    fn is_in_flight(&self, state: &State, of: usize, object: Option<Name>) -> bool {
        state.in_flight.iter().any(|request| match request {
            Request::Append { writer, .. } => object.is_none() && usize::from(*writer) == of,
            Request::Create { writer, name } => usize::from(*writer) == of && object == Some(*name),
            _ => false,
        })
    }

    fn writer_actions(&self, state: &State, index: usize, actions: &mut Vec<Action>) {
        let (own, writer) = (&state.writers[index], index as u8);
        match &own.phase {
            // The writer before has claimed the database.
            Phase::Absent if state.manifest.claimed + 1 >= writer => actions.push(Action::Begin(writer)),
            Phase::Fencing(lanes) => {
                actions.extend(lanes.iter().map(|name| Action::Fence(writer, *name)));
            }
            Phase::Fenced => actions.push(Action::ReadLog(writer)),
            Phase::Serving => self.serving_actions(state, index, actions),
            _ => {}
        }
        let is_waiting = own.put.is_some() && !matches!(own.phase, Phase::Ended | Phase::Absent);
        let body = own.put.as_ref();
        let sent =
            |request: &Request| matches!(request, Request::Put { body: sent, .. } if Some(sent) == body);
        if is_waiting && (state.lost_replies > 0 || !state.in_flight.iter().any(sent)) {
            actions.push(Action::LookAtManifest(writer));
        }
    }

    fn serving_actions(&self, state: &State, index: usize, actions: &mut Vec<Action>) {
        let (own, writer) = (&state.writers[index], index as u8);
        let has_more = own.next < self.blocks[index];
        for (lane, known) in (0..).zip(&own.lanes) {
            let is_free = match self.store {
                Store::Appends => known.busy.is_none() && usize::from(known.len) < self.parts,
                Store::Creates | Store::CreatesWithLooks => own.creating.len() < self.in_flight,
            };
            if has_more && is_free && known.is_registered {
                actions.push(Action::Submit(writer, lane));
            }
            if known.busy.is_some() && (state.lost_replies > 0 || !self.is_in_flight(state, index, None)) {
                actions.push(Action::LookAtLane(writer, lane));
            }
        }
        for block in &own.creating {
            let name = (own.lanes[0].name.0, *block);
            if state.lost_replies > 0 || !self.is_in_flight(state, index, Some(name)) {
                actions.push(Action::LookAtBlock(writer, name));
            }
        }
        if self.store == Store::CreatesWithLooks {
            match own.look {
                Some(_) => actions.push(Action::HearOfOwner(writer)),
                None if own.durable != own.reported => actions.push(Action::LookAtOwner(writer)),
                None => {}
            }
        }
        if own.put.is_some() {
            return;
        }
        if self.second_segment && index == 0 && !own.has_second_segment {
            actions.push(Action::BeginSegment(writer));
        }
        if self.checkpoints >> index & 1 == 1 && !own.has_checkpoint {
            actions.push(Action::Checkpoint(writer));
        }
        let is_idle = own.creating.is_empty() && own.lanes.iter().all(|lane| lane.busy.is_none());
        if self.closes && own.next > 0 && (is_idle || self.makes(Mistake::ClosedTooEarly)) {
            actions.push(Action::Close(writer));
        }
    }
}

impl explore::Scenario for Scenario {
    type Violation = Violation;

    fn violation(state: &State) -> Option<Violation> {
        state.violation
    }
}
