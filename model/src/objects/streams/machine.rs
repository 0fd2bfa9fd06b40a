//! Which steps are possible?

use super::judge::{self, Violation};
use super::scenario::{Mistake, Scenario};
use super::service::Effect;
use super::state::{BLOCK, HEADER, Message, Phase, State};
use crate::objects::explore;
use stateright::{Model, Property};

/// A step of a writer, or of a message on a stream.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// A writer claims the database.
    Begin(u8),
    /// A writer takes over the lane of the running writer.
    TakeOver(u8),
    /// A writer reads the log.
    ReadLog(u8),
    /// A writer publishes what it accepts.
    Publish(u8),
    /// A writer sends its next block.
    Submit(u8),
    /// A writer finalizes its own lane.
    Leave(u8),
    /// A message of a stream takes effect.
    TakeEffect(u8, Effect),
    /// A stream is lost before its next message takes effect, if that ever does.
    Lose(u8),
    /// A writer opens its lane again. With `true` its handle has expired.
    Reopen(u8, bool),
    /// A writer takes its lane over from itself, or from a successor.
    TakeBack(u8),
    /// A writer looks what became of its finalized lane.
    LookAtEnd(u8),
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
        for (index, stream) in (0..).zip(&state.streams) {
            let Some(first) = stream.messages.front() else { continue };
            actions.push(Action::TakeEffect(index, Effect::Whole));
            let is_overtaking = stream.messages.back() == Some(&Message::Finalize);
            if is_overtaking && stream.messages.len() > 1 {
                actions.push(Action::TakeEffect(index, Effect::Overtaking));
            }
            if state.cuts > 0 && stream.is_heard {
                actions.push(Action::TakeEffect(index, Effect::Unheard));
                actions.push(Action::Lose(index));
                if matches!(first, Message::Append(_, sectors) if sectors.len() > 1) {
                    actions.push(Action::TakeEffect(index, Effect::Torn));
                }
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
            Action::TakeOver(writer) => self.take_over(&mut next, index(writer)),
            Action::ReadLog(writer) => self.read_log(&mut next, index(writer)),
            Action::Publish(writer) => self.publish(&mut next, index(writer)),
            Action::Submit(writer) => self.submit(&mut next, index(writer)),
            Action::Leave(writer) => self.leave(&mut next, index(writer)),
            Action::TakeEffect(stream, effect) => self.take_effect(&mut next, index(stream), effect),
            Action::Lose(stream) => {
                next.cuts -= 1;
                self.lose(&mut next, index(stream));
            }
            Action::Reopen(writer, is_expired) => self.reopen(&mut next, index(writer), is_expired),
            Action::TakeBack(writer) => self.resume(&mut next, index(writer)),
            Action::LookAtEnd(writer) => self.look_at_end(&mut next, index(writer)),
        }
        next.forget_settled(self.revokes);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        judge::properties()
    }
}

impl Scenario {
    fn writer_actions(&self, state: &State, index: usize, actions: &mut Vec<Action>) {
        let (own, writer) = (&state.writers[index], index as u8);
        match own.phase {
            // The writer before has claimed the database.
            Phase::Absent if state.claimed + 1 >= writer => actions.push(Action::Begin(writer)),
            Phase::TakingOver => actions.push(Action::TakeOver(writer)),
            // The stream of a takeover was lost: another one is opened.
            Phase::Ending if own.stream.is_none() => actions.push(Action::TakeOver(writer)),
            Phase::Reading => actions.push(Action::ReadLog(writer)),
            Phase::Publishing => actions.push(Action::Publish(writer)),
            Phase::Serving => self.serving_actions(state, index, actions),
            Phase::Expired => actions.push(Action::TakeBack(writer)),
            Phase::Overtaken if state.objects[index].as_ref().is_some_and(|lane| lane.finalized) => {
                actions.push(Action::LookAtEnd(writer));
            }
            _ => {}
        }
    }

    fn serving_actions(&self, state: &State, index: usize, actions: &mut Vec<Action>) {
        let (own, writer) = (&state.writers[index], index as u8);
        if own.stream.is_none() {
            actions.push(Action::Reopen(writer, false));
            if state.expiries > 0 {
                actions.push(Action::Reopen(writer, true));
            }
            return;
        }
        let is_confirmed = own.confirmed >= HEADER + BLOCK * own.next;
        let has_room = own.next < own.reported + self.in_flight;
        if own.next < self.blocks[index] && has_room && !own.has_left {
            actions.push(Action::Submit(writer));
        }
        let may_leave = is_confirmed || self.makes(Mistake::FinalizedTooEarly);
        if self.leaves && index == 0 && !own.has_left && own.next > 0 && may_leave {
            actions.push(Action::Leave(writer));
        }
    }
}

impl explore::Scenario for Scenario {
    type Violation = Violation;

    fn violation(state: &State) -> Option<Violation> {
        state.violation
    }
}
