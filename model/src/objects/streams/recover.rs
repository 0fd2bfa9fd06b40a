//! How does a writer take over, and which blocks does it accept?

use super::judge::{Publication, Violation};
use super::scenario::{Mistake, Scenario};
use super::service::Answer;
use super::state::{BLOCK, HEADER, Message, Phase, Sector, State};

impl Scenario {
    /// Claims the database.
    pub(super) fn begin(&self, state: &mut State, writer: usize) {
        if self.makes(Mistake::ManifestEmptied) {
            state.violation.get_or_insert(Violation::ManifestEmpty);
        }
        state.claimed = writer as u8;
        let running = state.running;
        let lane = state.objects[usize::from(running)].as_ref();
        let own = &mut state.writers[writer];
        own.running = running;
        // Of an object that is not finalized the length may be stale: here, that of its creation.
        own.looked_up = lane.map_or(0, |lane| if lane.finalized { lane.sectors.len() as u8 } else { HEADER });
        own.phase = Phase::TakingOver;
    }

    /// Takes the lane of the running writer over, and asks to finalize it.
    pub(super) fn take_over(&self, state: &mut State, writer: usize) {
        let (lane, looked_up) = (usize::from(state.writers[writer].running), state.writers[writer].looked_up);
        let Some(len) = state.open(writer, lane) else {
            // Finalized already: that is as good.
            state.writers[writer].phase = Phase::Reading;
            return;
        };
        if self.makes(Mistake::ReadBeforeFinalize) {
            self.read_log(state, writer);
        }
        let fence = Sector::Fence(writer as u8);
        let message = match self.mistake {
            Some(Mistake::TakeoverAlone) => {
                state.writers[writer].phase = Phase::Reading;
                return;
            }
            Some(Mistake::FencedAtLookup) => Message::Append(looked_up, vec![fence]),
            Some(Mistake::FencedAtTakeover) => Message::Append(len, vec![fence]),
            Some(Mistake::FencedLikeBlock) => Message::Append(len, vec![fence; usize::from(BLOCK)]),
            _ => Message::Finalize,
        };
        state.writers[writer].phase = Phase::Ending;
        state.send(writer, message);
    }

    pub(super) fn hear_as_successor(&self, state: &mut State, writer: usize, answer: Answer) {
        let own = &mut state.writers[writer];
        if own.phase != Phase::Ending {
            // An author that appends to a lane of its successor.
            if let Answer::Durable(_) = answer {
                let block = own.reported;
                own.reported += 1;
                self.judge_report(state, writer, self.bit(writer, block));
            }
            return;
        }
        own.phase = match answer {
            Answer::Refused => Phase::TakingOver,
            _ if self.makes(Mistake::ReadBeforeFinalize) => Phase::Publishing,
            Answer::Durable(_) | Answer::Finalized(_) => Phase::Reading,
        };
    }

    /// Reads the lane, sector by sector.
    pub(super) fn read_log(&self, state: &mut State, writer: usize) {
        let running = usize::from(state.writers[writer].running);
        let mut sectors =
            state.objects[running].as_ref().map(|lane| lane.sectors.clone()).unwrap_or_default();
        if self.makes(Mistake::LengthFromLookup) {
            sectors.truncate(usize::from(state.writers[writer].looked_up));
        }
        let end = sectors.iter().position(|sector| matches!(sector, Sector::Fence(_)));
        sectors.truncate(end.unwrap_or(sectors.len()));
        let mut seen = 0;
        for pair in sectors.windows(usize::from(BLOCK)) {
            if let [Sector::Half(of, block, 0), Sector::Half(same, other, 1)] = *pair
                && (usize::from(of), of, block) == (running, same, other)
            {
                if seen >> block & 1 == 1 {
                    state.violation.get_or_insert(Violation::BlockTwice);
                }
                seen |= 1_u8 << block;
            }
        }
        if matches!(sectors.last(), Some(Sector::Half(_, _, 0))) {
            state.was_torn = true;
            if self.makes(Mistake::TornBlockRefused) {
                state.violation.get_or_insert(Violation::SoundLogRefused);
            }
        }
        let own = &mut state.writers[writer];
        own.recovered = state.accepted | self.first(running, seen.trailing_ones() as u8);
        own.phase = Phase::Publishing;
    }

    /// Publishes the recovery if no later writer has claimed the database, and serves.
    pub(super) fn publish(&self, state: &mut State, writer: usize) {
        if usize::from(state.claimed) != writer {
            state.writers[writer].phase = Phase::Ended;
            return;
        }
        let content = state.writers[writer].recovered;
        (state.running, state.accepted) = (writer as u8, content);
        self.judge_publication(state, Publication { writer: writer as u8, content });
        state.create_lane(writer);
    }
}
