//! How does a writer get its blocks into the store?

use super::judge::Violation;
use super::scenario::{Mistake, Scenario, Store};
use super::state::{Cell, Name, Phase, Request, Segment, State};

impl State {
    /// Creates an object that takes appends. Returns its length.
    pub(super) fn create_lane(&mut self, scenario: &Scenario, name: Name) -> u8 {
        if scenario.makes(Mistake::CreatedWithBlock) {
            return 0;
        }
        self.objects.insert(name, vec![Cell::Header]);
        1
    }

    fn end_writer(&mut self, writer: usize) {
        self.writers[writer].phase = Phase::Ended;
        if usize::from(self.manifest.claimed) <= writer {
            self.violation.get_or_insert(Violation::HealthyWriterEnded);
        }
    }
}

impl Scenario {
    /// Sends the next block to a lane.
    pub(super) fn submit(&self, state: &mut State, writer: usize, lane: usize) {
        let own = &mut state.writers[writer];
        let block = own.next;
        own.next += 1;
        let request = match self.store {
            Store::Appends => {
                own.lanes[lane].busy = Some(block);
                self.append(state, writer, lane, block)
            }
            Store::Creates | Store::CreatesWithLooks => {
                own.creating.insert(block);
                let name = (own.lanes[lane].name.0, block);
                Request::Create { writer: writer as u8, name }
            }
        };
        state.send(request);
    }

    fn append(&self, state: &State, writer: usize, lane: usize, block: u8) -> Request {
        let own = &state.writers[writer].lanes[lane];
        Request::Append { writer: writer as u8, name: own.name, offset: own.len, block }
    }

    /// An append takes effect, or is refused.
    pub(super) fn apply_append(
        &self,
        state: &mut State,
        (writer, name, offset, block): (usize, Name, u8, u8),
        is_replied: bool,
    ) {
        let cell = Cell::Block(writer as u8, block);
        let is_taken = match state.objects.get_mut(&name) {
            Some(cells) if cells.len() == usize::from(offset) && cells.len() < self.parts => {
                cells.push(cell);
                let log = cells.iter().take_while(|cell| !matches!(cell, Cell::Fence(_)));
                if log.filter(|other| **other == cell).count() > 1 {
                    state.violation.get_or_insert(Violation::BlockTwice);
                }
                true
            }
            None if offset == 0 && self.makes(Mistake::CreatedWithBlock) => {
                state.objects.insert(name, vec![cell]);
                true
            }
            _ => false,
        };
        let lanes = &state.writers[writer].lanes;
        let waits = lanes.iter().position(|lane| lane.name == name && lane.busy == Some(block));
        let Some(lane) = waits.filter(|_| is_replied && self.is_serving(state, writer)) else { return };
        if is_taken {
            self.confirm_append(state, writer, lane);
        } else {
            self.look_at_lane(state, writer, lane, true);
        }
    }

    fn confirm_append(&self, state: &mut State, writer: usize, lane: usize) {
        let own = &mut state.writers[writer];
        let Some(block) = own.lanes[lane].busy.take() else { return };
        own.lanes[lane].len += 1;
        own.durable |= 1 << block;
        self.report(state, writer);
    }

    /// The writer reads its object at its own offset (O11), after a refusal or without a reply.
    pub(super) fn look_at_lane(&self, state: &mut State, writer: usize, lane: usize, is_refused: bool) {
        let own = state.writers[writer].lanes[lane].clone();
        let Some(block) = own.busy else { return };
        let cells = state.objects.get(&own.name);
        let (len, there) =
            (cells.map(Vec::len), cells.and_then(|cells| cells.get(usize::from(own.len)).copied()));
        if let Some(len) = len.filter(|_| !is_refused && self.makes(Mistake::ResentUnseen)) {
            state.writers[writer].lanes[lane].len = len as u8;
            let again = self.append(state, writer, lane, block);
            return state.send(again);
        }
        match (len, there) {
            (_, Some(cell)) if cell == Cell::Block(writer as u8, block) => {
                self.confirm_append(state, writer, lane);
            }
            (_, Some(_)) if is_refused && self.makes(Mistake::RefusedTakenForOwn) => {
                self.confirm_append(state, writer, lane);
            }
            (Some(len), Some(_)) if self.makes(Mistake::AppendedAtNewEnd) => {
                state.writers[writer].lanes[lane].len = len as u8;
                let again = self.append(state, writer, lane, block);
                state.send(again);
            }
            (Some(len), None) if len == usize::from(own.len) && !is_refused => {
                let again = self.append(state, writer, lane, block);
                state.send(again);
            }
            (None, None) if own.len == 0 && self.makes(Mistake::CreatedWithBlock) => {
                let again = self.append(state, writer, lane, block);
                state.send(again);
            }
            _ => state.end_writer(writer),
        }
    }

    /// The creation of the object of a block takes effect, or is refused.
    pub(super) fn apply_create(&self, state: &mut State, writer: usize, name: Name, is_replied: bool) {
        let is_absent = !state.objects.contains_key(&name);
        if is_absent {
            state.objects.insert(name, vec![Cell::Block(writer as u8, name.1)]);
        }
        let waits = state.writers[writer].creating.contains(&name.1);
        if waits && is_replied && self.is_serving(state, writer) {
            self.look_at_block(state, writer, name, true);
        }
    }

    /// The writer reads the object of a block.
    pub(super) fn look_at_block(&self, state: &mut State, writer: usize, name: Name, is_answered: bool) {
        match state.objects.get(&name).map(|cells| cells[0]) {
            Some(cell) if cell == Cell::Block(writer as u8, name.1) => {
                self.confirm_block(state, writer, name.1);
            }
            Some(_) if self.makes(Mistake::RefusedTakenForOwn) => {
                self.confirm_block(state, writer, name.1);
            }
            None if !is_answered => state.send(Request::Create { writer: writer as u8, name }),
            _ => state.end_writer(writer),
        }
    }

    fn confirm_block(&self, state: &mut State, writer: usize, block: u8) {
        let own = &mut state.writers[writer];
        own.creating.remove(&block);
        own.durable |= 1 << block;
        if self.store == Store::Creates {
            self.report(state, writer);
        }
    }

    /// The writer reads which writer has the database (O29).
    pub(super) fn look_at_owner(&self, state: &mut State, writer: usize) {
        let durable = state.writers[writer].durable;
        state.writers[writer].look = Some((durable, state.manifest.claimed));
    }

    /// The writer hears which writer had the database at its look, and reports what was durable
    /// before.
    pub(super) fn hear_of_owner(&self, state: &mut State, writer: usize) {
        let Some((before, claimed)) = state.writers[writer].look.take() else { return };
        if usize::from(claimed) != writer && !self.makes(Mistake::LookIgnored) {
            return state.end_writer(writer);
        }
        let durable =
            if self.makes(Mistake::LookedTooEarly) { state.writers[writer].durable } else { before };
        self.report_of(state, writer, durable);
    }

    fn report(&self, state: &mut State, writer: usize) {
        self.report_of(state, writer, state.writers[writer].durable);
    }

    /// Reports blocks of `durable` below which everything is durable (O7).
    fn report_of(&self, state: &mut State, writer: usize, durable: u8) {
        let own = &mut state.writers[writer];
        let is_reportable =
            if self.makes(Mistake::ReportedWithGap) { durable } else { (1 << durable.trailing_ones()) - 1 };
        let new = is_reportable & !own.reported;
        own.reported |= new;
        let bits: u16 =
            (0..own.next).filter(|block| new >> block & 1 == 1).map(|block| self.bit(writer, block)).sum();
        self.judge_report(state, writer, bits);
    }

    /// Continues in another segment: the manifest that names it is put before its first block.
    pub(super) fn begin_second_segment(&self, state: &mut State, writer: usize) {
        let segment = Segment { writer: writer as u8, number: 1 };
        let is_used_early = self.makes(Mistake::UnregisteredSegment);
        state.add_segment(self, writer, segment, is_used_early);
        let own = &mut state.writers[writer];
        own.has_second_segment = true;
        let mut body = own.manifest.clone();
        body.segments.insert(segment);
        self.put(state, writer, body);
    }

    pub(super) fn put(&self, state: &mut State, writer: usize, body: super::state::Manifest) {
        let version = state.version();
        let own = &mut state.writers[writer];
        let body = super::state::Manifest { version, ..body };
        own.put = Some(body.clone());
        let expected = own.manifest.version;
        state.send(Request::Put { writer: writer as u8, expected, body });
    }

    pub(super) fn is_serving(&self, state: &State, writer: usize) -> bool {
        state.writers[writer].phase == Phase::Serving
    }

    pub(super) fn stop(&self, state: &mut State, writer: usize) {
        state.end_writer(writer);
    }
}
