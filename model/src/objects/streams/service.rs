//! What does the service make of a message?

use super::scenario::Scenario;
use super::state::{Message, State};

/// How the first message of a stream takes effect.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// As a whole, and the writer hears the answer.
    Whole,
    /// As a whole, and the stream is lost before the answer.
    Unheard,
    /// Its first sector, and the stream is lost.
    Torn,
    /// The message that finalizes the object overtakes those before it.
    Overtaking,
}

/// The answer to a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// The length of the object.
    Durable(u8),
    /// The length of the object, which is finalized now.
    Finalized(u8),
    /// Nothing happened.
    Refused,
}

impl Scenario {
    /// A message takes effect. The writer hears the answer, if it still can.
    pub(super) fn take_effect(&self, state: &mut State, stream: usize, effect: Effect) {
        let messages = &mut state.streams[stream].messages;
        let message = match effect {
            Effect::Overtaking => messages.pop_back(),
            _ => messages.pop_front(),
        };
        let Some(mut message) = message else { return };
        if let (Effect::Torn, Message::Append(_, sectors)) = (effect, &mut message) {
            sectors.truncate(1);
        }
        let answer = self.answer(state, stream, message);
        if matches!(effect, Effect::Unheard | Effect::Torn) {
            state.cuts -= 1;
            self.lose(state, stream);
        }
        if state.streams[stream].is_heard {
            self.hear(state, stream, answer);
        }
    }

    /// The writer of a stream hears nothing more of it. What it sent may still take effect.
    pub(super) fn lose(&self, state: &mut State, stream: usize) {
        let lost = &mut state.streams[stream];
        lost.is_heard = false;
        let own = &mut state.writers[usize::from(lost.writer)];
        own.stream = own.stream.filter(|open| usize::from(*open) != stream);
    }

    fn answer(&self, state: &mut State, stream: usize, message: Message) -> Answer {
        let lane = usize::from(state.streams[stream].object);
        let Some(object) = &mut state.objects[lane] else { return Answer::Refused };
        if object.finalized || self.revokes && usize::from(object.holder) != stream {
            return Answer::Refused;
        }
        match message {
            Message::Append(offset, sectors) => {
                let Some(known) = object.sectors.len().checked_sub(usize::from(offset)) else {
                    return Answer::Refused;
                };
                // What overlaps is taken for a repetition and is dropped unread.
                object.sectors.extend(sectors.into_iter().skip(known));
                Answer::Durable(object.sectors.len() as u8)
            }
            Message::Finalize => {
                object.finalized = true;
                Answer::Finalized(object.sectors.len() as u8)
            }
        }
    }

    fn hear(&self, state: &mut State, stream: usize, answer: Answer) {
        let (writer, lane) = (state.streams[stream].writer, state.streams[stream].object);
        if writer == lane {
            self.hear_as_author(state, usize::from(writer), answer);
        } else {
            self.hear_as_successor(state, usize::from(writer), answer);
        }
    }
}
