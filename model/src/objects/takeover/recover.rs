//! How does a writer take over, and which blocks does it accept?

use super::judge::Violation;
use super::scenario::{Mistake, Scenario, Store};
use super::state::{Cell, Manifest, Name, Phase, Publication, Request, Segment, State};
use std::collections::BTreeSet;

impl Scenario {
    /// Reads the manifest, and claims it. A writer whose claim comes after that of a later writer
    /// ends: its next claim would be that of one more writer.
    pub(super) fn begin(&self, state: &mut State, writer: usize) {
        if usize::from(state.manifest.claimed) > writer {
            state.writers[writer].phase = Phase::Ended;
            return;
        }
        state.writers[writer].manifest = state.manifest.clone();
        if self.makes(Mistake::FencedBeforeClaim) && state.writers[writer].phase == Phase::Absent {
            state.writers[writer].phase = Phase::Fencing(self.to_fence(state, writer));
        } else {
            self.claim(state, writer);
        }
    }

    fn claim(&self, state: &mut State, writer: usize) {
        let body =
            Manifest { claimed: writer as u8, closed: false, ..state.writers[writer].manifest.clone() };
        state.writers[writer].phase = Phase::Claiming;
        self.put(state, writer, body);
    }

    /// The lanes of earlier writers, by the manifest that the writer knows.
    fn to_fence(&self, state: &State, writer: usize) -> BTreeSet<Name> {
        let manifest = &state.writers[writer].manifest;
        let mut segments: Vec<Segment> = manifest.segments.iter().copied().collect();
        if self.makes(Mistake::OldSegmentNotFenced) {
            segments.drain(..segments.len() - 1);
        }
        if self.makes(Mistake::NothingFenced) {
            segments.clear();
        }
        let lanes = if self.creates() || self.makes(Mistake::OneLaneFenced) { 1 } else { self.lanes };
        segments.into_iter().flat_map(|segment| (0..lanes).map(move |lane| (segment, lane))).collect()
    }

    /// A put of the manifest takes effect, or is refused.
    pub(super) fn apply_put(
        &self,
        state: &mut State,
        (writer, expected, body): (usize, u8, Manifest),
        is_replied: bool,
    ) {
        let is_claim = state.writers[writer].phase == Phase::Claiming;
        let is_anything_taken = (is_claim
            && (self.makes(Mistake::ClaimOfAnOldCopy) || self.makes(Mistake::ClaimWithoutCondition)))
            || (!is_claim && self.makes(Mistake::PutsWithoutCondition));
        let is_taken = state.manifest.version == expected || is_anything_taken;
        if is_taken {
            let before = state.manifest.clone();
            state.manifest = body.clone();
            if is_claim && self.makes(Mistake::ClaimOfAnOldCopy) {
                let Manifest { version, claimed, .. } = body;
                state.manifest = Manifest { version, claimed, closed: false, ..before };
            } else if body.running < before.running {
                state.violation.get_or_insert(Violation::EarlierWriterPublished);
            } else if body.running > before.running {
                let content = state.writers[writer].recovered.unwrap_or(0);
                self.judge_publication(state, Publication { writer: writer as u8, content });
            }
        }
        if is_replied && state.writers[writer].put.as_ref() == Some(&body) {
            // A refusal may be due to an earlier copy, which a read shows.
            let is_there = is_taken || state.manifest.version == body.version;
            self.hear_of_put(state, writer, is_there);
        }
    }

    /// The writer reads the manifest because a put has no reply (O3).
    pub(super) fn look_at_manifest(&self, state: &mut State, writer: usize) {
        let Some(body) = state.writers[writer].put.clone() else { return };
        let expected = state.writers[writer].manifest.version;
        if state.manifest.version == body.version {
            self.hear_of_put(state, writer, true);
        } else if state.manifest.version == expected {
            state.send(Request::Put { writer: writer as u8, expected, body });
        } else {
            self.hear_of_put(state, writer, false);
        }
    }

    fn hear_of_put(&self, state: &mut State, writer: usize, is_taken: bool) {
        let Some(body) = state.writers[writer].put.take() else { return };
        let phase = state.writers[writer].phase.clone();
        match phase {
            Phase::Claiming if is_taken => {
                let was_closed = state.writers[writer].manifest.closed;
                state.writers[writer].manifest = body;
                let lanes = if was_closed { BTreeSet::new() } else { self.to_fence(state, writer) };
                state.writers[writer].phase = match self.mistake {
                    Some(Mistake::FencedBeforeClaim | Mistake::ReadBeforeFences) => Phase::Fenced,
                    _ if lanes.is_empty() => Phase::Fenced,
                    _ => Phase::Fencing(lanes),
                };
            }
            Phase::Claiming => self.begin(state, writer),
            Phase::Publishing | Phase::Serving if is_taken => {
                let own = &mut state.writers[writer];
                own.phase = Phase::Serving;
                let lanes = own.lanes.iter_mut();
                lanes
                    .filter(|lane| body.segments.contains(&lane.name.0))
                    .for_each(|lane| lane.is_registered = true);
                let before = std::mem::replace(&mut own.manifest, body.clone());
                if !self.makes(Mistake::DeletedBeforeConfirmed) {
                    self.delete_dropped(state, &before, &body);
                }
            }
            Phase::Publishing | Phase::Serving => self.stop(state, writer),
            _ => {}
        }
    }

    /// Puts a fence (O15, O22).
    pub(super) fn fence(&self, state: &mut State, writer: usize, name: Name) {
        let fence = Cell::Fence(writer as u8);
        let parts = self.parts - usize::from(self.makes(Mistake::FullTooEarly));
        match self.store {
            Store::Appends => match state.objects.get_mut(&name) {
                Some(cells) if matches!(cells.last(), Some(Cell::Fence(_))) => {}
                // A full object takes neither a fence nor a block (O12).
                Some(cells) if cells.len() >= parts => {}
                Some(cells) => cells.push(fence),
                None if self.makes(Mistake::CreatedWithBlock) => {
                    state.objects.insert(name, vec![fence]);
                }
                None => return self.miss(state, writer),
            },
            Store::Creates | Store::CreatesWithLooks => {
                let is_free = |number: u8| !state.objects.contains_key(&(name.0, number));
                let is_fence = |number: u8| {
                    state
                        .objects
                        .get(&(name.0, number))
                        .is_some_and(|cells| matches!(cells[0], Cell::Fence(_)))
                };
                let numbers = 0..=state.objects.len() as u8 + self.blocks[0];
                let number = if self.makes(Mistake::FencedBehindHighest) {
                    numbers.rev().find(|number| !is_free(*number)).map_or(0, |highest| highest + 1)
                } else {
                    numbers.into_iter().find(|number| is_free(*number) || is_fence(*number)).unwrap_or(0)
                };
                state.objects.entry((name.0, number)).or_insert_with(|| vec![fence]);
            }
        }
        let Phase::Fencing(lanes) = &mut state.writers[writer].phase else { return };
        lanes.remove(&name);
        if !lanes.is_empty() {
            return;
        }
        match self.mistake {
            Some(Mistake::FencedBeforeClaim) => self.claim(state, writer),
            Some(Mistake::ReadBeforeFences) => self.publish(state, writer),
            _ => state.writers[writer].phase = Phase::Fenced,
        }
    }

    /// A named object is missing: damage, unless the writer was overtaken.
    fn miss(&self, state: &mut State, writer: usize) {
        if state.manifest.version == state.writers[writer].manifest.version {
            state.violation.get_or_insert(Violation::ObjectMissing);
        }
        state.writers[writer].phase = Phase::Ended;
    }

    /// Reads the log, accepts what counts, and publishes it.
    pub(super) fn read_log(&self, state: &mut State, writer: usize) {
        let manifest = state.writers[writer].manifest.clone();
        let seen = self.blocks_in(state, &manifest.segments);
        let running = usize::from(manifest.running);
        let mut content = manifest.checkpoint | manifest.accepted;
        if content & !manifest.checkpoint & !seen != 0 {
            return self.miss(state, writer);
        }
        for number in 0..self.blocks[running] {
            let bit = self.bit(running, number);
            if (seen | manifest.checkpoint) & bit == 0 {
                break;
            }
            content |= bit;
        }
        if self.makes(Mistake::DiscardedAccepted) {
            content |= seen & self.before(running);
        }
        state.has_discarded |= seen & !content != 0;
        state.writers[writer].recovered = Some(content);
        if self.makes(Mistake::ReadBeforeFences) {
            state.writers[writer].phase = Phase::Fencing(self.to_fence(state, writer));
        } else {
            self.publish(state, writer);
        }
    }

    /// Returns the blocks in segments, those before the first fence of each object or segment.
    fn blocks_in(&self, state: &State, segments: &BTreeSet<Segment>) -> u16 {
        let mut seen = 0;
        for segment in segments {
            let objects = state.objects.range((*segment, 0)..=(*segment, u8::MAX));
            for (expected, ((_, number), cells)) in objects.enumerate() {
                if self.creates() && usize::from(*number) != expected {
                    break;
                }
                let mut is_fenced = false;
                for cell in cells {
                    match cell {
                        Cell::Block(writer, block) => seen |= self.bit(usize::from(*writer), *block),
                        Cell::Fence(_) => {
                            is_fenced = true;
                            break;
                        }
                        Cell::Header => {}
                    }
                }
                if is_fenced && self.creates() {
                    break;
                }
            }
        }
        seen
    }

    fn publish(&self, state: &mut State, writer: usize) {
        let segment = Segment { writer: writer as u8, number: 0 };
        let serves_early = self.makes(Mistake::ServedBeforePublished);
        state.add_segment(self, writer, segment, serves_early);
        let own = &mut state.writers[writer];
        let mut body = own.manifest.clone();
        body.running = writer as u8;
        body.accepted = own.recovered.unwrap_or(0);
        if self.makes(Mistake::LogDroppedAtPublication) {
            body.segments.clear();
        }
        body.segments.insert(segment);
        own.phase = if serves_early { Phase::Serving } else { Phase::Publishing };
        self.put(state, writer, body);
    }

    /// Makes a checkpoint, which covers everything so far and drops the log of earlier writers.
    pub(super) fn checkpoint(&self, state: &mut State, writer: usize) {
        let own = &mut state.writers[writer];
        own.has_checkpoint = true;
        let mut body = own.manifest.clone();
        let durable = own.durable.trailing_ones() as u8;
        body.checkpoint |= body.accepted | self.first(writer, durable);
        body.segments.retain(|segment| usize::from(segment.writer) == writer);
        let before = own.manifest.clone();
        if self.makes(Mistake::DeletedBeforeConfirmed) {
            self.delete_dropped(state, &before, &body);
        }
        self.put(state, writer, body);
    }

    /// Sends deletes of the objects that a manifest has dropped.
    fn delete_dropped(&self, state: &mut State, before: &Manifest, after: &Manifest) {
        for segment in before.segments.difference(&after.segments) {
            let objects = state.objects.range((*segment, 0)..=(*segment, u8::MAX));
            let is_kept = |cells: &[Cell]| {
                let is_fence = self.store == Store::Creates && matches!(cells[0], Cell::Fence(_));
                is_fence && !self.makes(Mistake::FenceDeleted)
            };
            let dropped: Vec<Name> =
                objects.filter(|(_, cells)| !is_kept(cells)).map(|(name, _)| *name).collect();
            dropped.into_iter().for_each(|name| state.send(Request::Delete(name)));
        }
    }

    /// Marks the database as closed, and ends.
    pub(super) fn close(&self, state: &mut State, writer: usize) {
        let body = Manifest { closed: true, ..state.writers[writer].manifest.clone() };
        self.put(state, writer, body);
        let own = &mut state.writers[writer];
        if !self.makes(Mistake::ClosedTooEarly) {
            own.phase = Phase::Ended;
        }
        own.has_checkpoint = true;
        own.has_second_segment = true;
        own.next = self.blocks[writer];
    }
}
