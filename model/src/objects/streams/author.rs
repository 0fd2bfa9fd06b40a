//! How does a writer get its blocks into its lane?

use super::scenario::{Mistake, Scenario};
use super::service::Answer;
use super::state::{BLOCK, HEADER, Message, Phase, Sector, State};

/// Returns the sectors of a writer's first blocks, from `offset` on in its lane.
fn own_sectors(writer: usize, blocks: u8, offset: u8) -> Vec<Sector> {
    let half = |at: u8| Sector::Half(writer as u8, (at - HEADER) / BLOCK, (at - HEADER) % BLOCK);
    (offset..HEADER + BLOCK * blocks).map(half).collect()
}

impl Scenario {
    /// Sends the next block. The offset is the sum of the writer's own blocks (O6).
    pub(super) fn submit(&self, state: &mut State, writer: usize) {
        let own = &mut state.writers[writer];
        let offset = HEADER + BLOCK * own.next;
        own.next += 1;
        let sectors = own_sectors(writer, own.next, offset);
        state.send(writer, Message::Append(offset, sectors));
        if self.makes(Mistake::ReportedUnflushed) {
            self.confirm(state, writer, offset + BLOCK);
        }
    }

    /// Leaves the lane: finalizes it.
    pub(super) fn leave(&self, state: &mut State, writer: usize) {
        state.writers[writer].has_left = true;
        state.send(writer, Message::Finalize);
    }

    pub(super) fn hear_as_author(&self, state: &mut State, writer: usize, answer: Answer) {
        let own = &state.writers[writer];
        let end = HEADER + BLOCK * own.next;
        match answer {
            Answer::Durable(len) => self.confirm(state, writer, len),
            Answer::Finalized(_) if self.makes(Mistake::FinalizedTooEarly) => {
                self.confirm(state, writer, end);
            }
            Answer::Finalized(len) => self.confirm(state, writer, len),
            Answer::Refused => {
                if let Some(stream) = own.stream {
                    self.lose(state, usize::from(stream));
                }
            }
        }
    }

    /// Every block that ends at or below `len` is durable, because all of the lane is the writer's
    /// own.
    fn confirm(&self, state: &mut State, writer: usize, len: u8) {
        let own = &mut state.writers[writer];
        own.confirmed = own.confirmed.max(len);
        let durable = ((own.confirmed - HEADER) / BLOCK).min(own.next);
        let new = own.reported..durable.max(own.reported);
        own.reported = new.end;
        let bits: u16 = new.map(|block| self.bit(writer, block)).sum();
        self.judge_report(state, writer, bits);
    }

    /// Opens the lane again with the writer's last handle, or finds out that the handle has expired
    /// (O11).
    pub(super) fn reopen(&self, state: &mut State, writer: usize, is_expired: bool) {
        state.expiries -= u8::from(is_expired);
        let lane = state.objects[writer].as_ref();
        let is_own = lane.is_some_and(|object| !object.finalized && usize::from(object.owner) == writer);
        if is_own && !is_expired {
            return self.resume(state, writer);
        }
        let is_overtaken = usize::from(state.claimed) > writer && !self.reopens_blindly;
        state.writers[writer].phase = if is_overtaken { Phase::Overtaken } else { Phase::Expired };
        if is_overtaken && self.makes(Mistake::AppendedToSuccessor) {
            self.append_to_successor(state, writer);
        }
    }

    /// Opens the lane and sends what is not durable, from the length of the answer on.
    pub(super) fn resume(&self, state: &mut State, writer: usize) {
        let Some(len) = state.open(writer, writer) else {
            state.writers[writer].phase = Phase::Overtaken;
            return;
        };
        state.writers[writer].phase = Phase::Serving;
        self.confirm(state, writer, len);
        let own = &state.writers[writer];
        let from = match self.makes(Mistake::ResentWhole) {
            true => HEADER + BLOCK * own.reported,
            false => len,
        };
        let rest = own_sectors(writer, own.next, from);
        if !rest.is_empty() {
            state.send(writer, Message::Append(len, rest));
        }
        if state.writers[writer].has_left {
            state.send(writer, Message::Finalize);
        }
    }

    /// Sends the first block that is not durable to the lane of the writer that claimed last, at
    /// the length of that lane.
    fn append_to_successor(&self, state: &mut State, writer: usize) {
        let (lane, block) = (usize::from(state.claimed), state.writers[writer].reported);
        let Some(object) = state.objects[lane].as_ref().filter(|_| block < state.writers[writer].next) else {
            return;
        };
        let offset = object.sectors.len() as u8;
        let sectors = own_sectors(writer, block + 1, HEADER + BLOCK * block);
        state.open(writer, lane);
        state.send(writer, Message::Append(offset, sectors));
    }

    /// A writer that was overtaken looks at its finalized lane: what lies in it counts, the rest
    /// never will.
    pub(super) fn look_at_end(&self, state: &mut State, writer: usize) {
        let len = state.objects[writer].as_ref().map_or(0, |object| object.sectors.len() as u8);
        self.confirm(state, writer, len);
        state.writers[writer].phase = Phase::Ended;
    }
}
