//! What does a step change, and what must never happen?

use super::machine::Action;
use super::scenario::{Mistake, Scenario};
use super::state::{Body, Bucket, Phase, State, Violation, Writer};

impl Scenario {
    /// Returns the state after a step, or `None` if the step changes nothing.
    pub(super) fn step(&self, state: &State, action: &Action) -> Option<State> {
        let mut next = state.clone();
        match *action {
            Action::Send(writer) => {
                let own = &mut next.writers[writer];
                let csn = self.first(own.epoch) + own.sent;
                own.sent += 1;
                next.watermarks[usize::from(csn)] = self.watermark(&next.writers[writer]);
            }
            Action::Append(writer, block, bucket) => {
                let epoch = next.writers[writer].epoch;
                next.buckets[bucket].log[usize::from(epoch) - 1] |= 1 << (self.first(epoch) + block);
                next.writers[writer].known[usize::from(block)] |= 1 << bucket;
                self.acknowledge(&mut next, writer);
            }
            Action::Promise(writer, bucket) => self.promise(&mut next, writer, bucket),
            Action::Fence(writer, bucket) => self.fence(&mut next, writer, bucket),
            Action::ReadLog(writer, bucket) => {
                read(&mut next, writer, bucket);
                let own = &mut next.writers[writer];
                own.fences |= 1 << bucket;
                if Scenario::is_majority(own.fences) {
                    (own.fences, own.phase) = (0, Phase::FencesLate);
                }
            }
            Action::PutAgain(writer, bucket) => {
                let own = &mut next.writers[writer];
                let there = &mut next.buckets[bucket];
                if there.fenced >> (own.epoch - 1) & 1 == 1 {
                    return None;
                }
                there.log[usize::from(own.epoch) - 1] |= own.to_put;
                own.put |= 1 << bucket;
                if own.phase == Phase::PutsAgain && Scenario::is_majority(own.put) {
                    own.phase = Phase::Publishes;
                }
            }
            Action::Publish(writer, bucket) => self.publish(&mut next, writer, bucket),
            Action::Upload(bucket) => {
                let own = &mut next.writers[0];
                if own.uploaded == 0 {
                    own.checkpoint = Body { running: 1, accepted: 0, checkpoint: own.acknowledged };
                }
                own.uploaded |= 1 << bucket;
                next.buckets[bucket].extents |= own.checkpoint.checkpoint;
            }
            Action::Checkpoint(bucket) => {
                let there = &mut next.buckets[bucket];
                if there.promised > 1 {
                    return None;
                }
                (there.turn, there.body) = ((1, 1), next.writers[0].checkpoint.clone());
                next.writers[0].checkpointed |= 1 << bucket;
            }
            Action::Trim(bucket) => next.buckets[bucket].log[0] &= !next.writers[0].checkpoint.checkpoint,
            Action::Collect(writer, bucket) => {
                next.buckets[bucket].extents &= next.writers[writer].body.checkpoint;
            }
            Action::Restore(bucket) => {
                next.was_restored = true;
                let body = Body { running: 1, ..Body::default() };
                next.buckets[bucket] =
                    Bucket { promised: 1, turn: (1, 0), body, is_old: true, ..Bucket::default() };
            }
        }
        Some(next)
    }

    fn fence(&self, state: &mut State, writer: usize, bucket: usize) {
        let running = state.writers[writer].body.running;
        state.buckets[bucket].fenced |= 1 << (running - 1);
        if state.writers[writer].phase == Phase::Fences {
            read(state, writer, bucket);
        }
        state.writers[writer].fences |= 1 << bucket;
        if state.writers[writer].fences.count_ones() >= self.quorum(Mistake::OneBucketFenced) {
            self.decide(state, writer);
        }
    }

    fn watermark(&self, writer: &Writer) -> u8 {
        let first = self.first(writer.epoch);
        first + (!(writer.acknowledged >> first)).trailing_zeros() as u8
    }

    /// Acknowledges the blocks that are in enough buckets, in their order.
    fn acknowledge(&self, state: &mut State, writer: usize) {
        let epoch = state.writers[writer].epoch;
        for block in 0..self.blocks_of(epoch).min(2) {
            let known = state.writers[writer].known[usize::from(block)];
            if known.count_ones() < self.quorum(Mistake::OneBucketAcknowledges) {
                return;
            }
            let csn = 1 << (self.first(epoch) + block);
            if state.writers[writer].acknowledged & csn != 0 {
                continue;
            }
            state.writers[writer].acknowledged |= csn;
            state.acknowledged |= csn;
            if state.publications.iter().any(|(later, recovered)| *later > epoch && csn & !recovered != 0) {
                state.violation = Some(Violation::AcknowledgedLost);
            }
        }
    }

    fn promise(&self, state: &mut State, writer: usize, bucket: usize) {
        let (own, there) = (&mut state.writers[writer], &mut state.buckets[bucket]);
        if there.promised > own.epoch {
            own.phase = Phase::Ended;
            return;
        }
        there.promised = own.epoch;
        let is_better = match self.mistake {
            Some(Mistake::FirstRegisterTaken) => own.promises == 0,
            Some(Mistake::GenerationIgnored) => there.turn.0 > own.best.0,
            _ => there.turn > own.best,
        };
        own.promises |= 1 << bucket;
        if is_better || own.best == (0, 0) {
            (own.best, own.body) = (there.turn, there.body.clone());
        }
        if Scenario::is_majority(own.promises) {
            own.phase = Phase::Fences;
            let best = own.best.0;
            state.has_adopted |= best > 1 && !state.publications.iter().any(|(writer, _)| *writer == best);
        }
    }

    /// Decides what a takeover recovers.
    fn decide(&self, state: &mut State, writer: usize) {
        let own = state.writers[writer].clone();
        let Body { running, accepted, checkpoint } = own.body;
        let (first, mut run) = (self.first(running), 0);
        for csn in (0..self.blocks_of(running)).map(|block| 1 << (first + block)) {
            if checkpoint & csn != 0 {
                continue;
            }
            if own.found & csn == 0 {
                break;
            }
            run |= csn;
        }
        let mut recovered = checkpoint | accepted | run;
        if self.errs(Mistake::AcceptedIgnored) {
            recovered |= own.all & ((1 << first) - 1);
        }
        // The log below a checkpoint is not replayed. A writer that was overtaken may miss what the
        // later writer collected: it looks at the manifest again.
        if accepted & !own.all != 0 || checkpoint & !own.extents != 0 {
            if state.publications.iter().any(|(later, _)| *later > own.epoch) {
                state.writers[writer].phase = Phase::Ended;
                return;
            }
            state.violation = Some(Violation::ObjectMissing);
        }
        let is_found = |csn: &u8| own.found >> csn & 1 == 1 && *csn >= first;
        let found = (0..4).filter(is_found).map(|csn| state.watermarks[usize::from(csn)]);
        let to_put = self.to_put(recovered & !checkpoint, own.whole | accepted, found.fold(first, u8::max));
        let writer = &mut state.writers[writer];
        writer.recovered = recovered;
        writer.to_put = to_put;
        let accepted = (accepted | recovered) & !checkpoint;
        writer.body = Body { running: own.epoch, accepted, checkpoint };
        let is_later = to_put == 0 || self.errs(Mistake::PutAgainLate);
        writer.phase = if is_later { Phase::Publishes } else { Phase::PutsAgain };
    }

    fn publish(&self, state: &mut State, writer: usize, bucket: usize) {
        let (own, there) = (&mut state.writers[writer], &mut state.buckets[bucket]);
        if there.promised > own.epoch && !self.errs(Mistake::PromiseNotChecked) {
            own.phase = Phase::Ended;
            return;
        }
        there.promised = there.promised.max(own.epoch);
        (there.turn, there.body) = ((own.epoch, 0), own.body.clone());
        own.published |= 1 << bucket;
        if own.published.count_ones() < self.quorum(Mistake::OneBucketPublishes) {
            return;
        }
        own.phase = Phase::Serves;
        let (epoch, recovered) = (own.epoch, own.recovered);
        self.judge(state, epoch, recovered);
    }

    /// Compares what a writer serves with what was acknowledged, served and discarded.
    fn judge(&self, state: &mut State, epoch: u8, recovered: u8) {
        let before = self.before(epoch);
        if state.acknowledged & before & !recovered != 0 {
            state.violation = Some(Violation::AcknowledgedLost);
        }
        let there = state.buckets.iter().flat_map(|bucket| bucket.log).fold(0, |all, log| all | log);
        state.has_discarded |= there & before & !recovered != 0;
        for &(other, served) in &state.publications {
            let violation = match other > epoch {
                true if recovered & !served != 0 => Violation::OlderPublished,
                true if before & !recovered & served != 0 => Violation::DiscardedBack,
                false if served & !recovered != 0 => Violation::ServedLost,
                false if self.before(other) & !served & recovered != 0 => Violation::DiscardedBack,
                _ => continue,
            };
            state.violation = Some(violation);
        }
        state.publications.push((epoch, recovered));
    }
}

/// A writer reads what a bucket has.
fn read(state: &mut State, writer: usize, bucket: usize) {
    let (own, there) = (&mut state.writers[writer], &state.buckets[bucket]);
    let log = there.log[usize::from(own.body.running) - 1];
    own.found |= log;
    own.whole &= log;
    own.all |= there.log.iter().fold(0, |all, log| all | log);
    own.extents |= there.extents;
}
