//! What is true after a crash? A pure function of what can be read.

use crate::clocks::Clocks;
use crate::scenario::{Judged, RecoveryDurability, Scenario, StoredWatermark, TransactionId, Voids};
use crate::state::{Block, BlockState, Csn, Set, State, Violation};

/// What recovery concludes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conclusion {
    /// To be replayed.
    pub replayed: Set,
    /// Per log: blocks of the running epoch that count.
    pub accepted: Vec<u8>,
    /// Highest CSN that is decided now.
    pub last_csn: Csn,
    /// Highest watermark found; the epoch's first CSN is one.
    pub watermark: Csn,
    /// It takes the database for damaged.
    pub refused: bool,
}

impl Scenario {
    /// Reads the disk and concludes. Changes nothing.
    #[must_use]
    pub fn conclude(&self, state: &State) -> Conclusion {
        let (mut counted, mut beyond) = (Set::default(), Set::default());
        let mut accepted = Vec::new();
        for (log, blocks) in state.disk.iter().enumerate() {
            let running = blocks.iter().filter(|block| block.epoch == state.manifest.epoch);
            let prefix = running.clone().take_while(|block| block.can_be_read()).count();
            accepted.push(prefix as u8);
            counted = counted.union(records(running.clone().take(prefix)));
            beyond = beyond.union(records(running.skip(prefix)));
            // Of ended epochs what was accepted then: a write that landed later is behind that end.
            for (epoch, ends) in (1..).zip(&state.manifest.accepted) {
                let of_epoch = blocks.iter().filter(|block| block.epoch == epoch);
                counted = counted.union(records(of_epoch.take(ends[log].into())));
            }
        }
        let csns: Set = counted.iter().map(|id| state.progress(id).csn).collect();
        let there = csns.union(state.manifest.voids);
        let frontier = (1..).find(|csn| !there.contains(*csn)).expect("CSNs are few");
        let watermarks = counted.union(beyond).iter().map(|id| state.progress(id).stored_watermark);
        let watermark = watermarks.fold(state.manifest.first_csn, Csn::max);
        let refused = match self.rules.lost_data {
            StoredWatermark::StrictlyBelow => frontier < watermark,
            StoredWatermark::AtOrBelow => frontier <= watermark && !counted.is_empty(),
        };
        let decided = there.union(beyond.iter().map(|id| state.progress(id).csn).collect());
        let last_csn = decided.iter().max().unwrap_or(0).max(state.manifest.first_csn - 1);
        Conclusion { replayed: self.taken(state, counted, frontier), accepted, last_csn, watermark, refused }
    }

    /// Of the records that count, those that are true. In the order of their CSNs: what one lists
    /// is decided before it.
    fn taken(&self, state: &State, counted: Set, frontier: Csn) -> Set {
        let mut ascending: Vec<TransactionId> = counted.iter().collect();
        ascending.sort_by_key(|id| state.progress(*id).csn);
        let mut taken = Set::default();
        for id in ascending {
            let progress = state.progress(id);
            let below = |listed: &TransactionId| state.progress(*listed).csn < frontier;
            let listed: Set = progress.listed.iter().filter(|listed| !below(listed)).collect();
            let complete = match self.rules.judged {
                Judged::ByDsn => false,
                Judged::ByList => listed.is_subset_of(taken),
                Judged::ByPresence => listed.is_subset_of(counted),
            };
            if !state.manifest.voids.contains(progress.csn) && (progress.dsn < frontier || complete) {
                taken.insert(id);
            }
        }
        taken
    }

    /// Recovers and begins the next epoch; finds what went wrong.
    pub fn recover(&self, state: &mut State) {
        let conclusion = self.conclude(state);
        state.violation = self.judge(state, &conclusion);
        if state.violation.is_some() {
            return;
        }
        let drawn: Set = self.ids().filter(|id| state.progress(*id).csn > 0).collect();
        state.discarded = drawn.iter().filter(|id| !conclusion.replayed.contains(*id)).collect();
        self.make_durable(state, &conclusion);
        self.begin_epoch(state, &conclusion);
        // Recovery must come to the same conclusion if it is interrupted now and runs again.
        if self.conclude(state).replayed != conclusion.replayed {
            state.violation = Some(Violation::NotRepeatable);
        }
    }

    fn judge(&self, state: &State, conclusion: &Conclusion) -> Option<Violation> {
        let replayed = conclusion.replayed;
        let complete = |id: TransactionId| state.progress(id).predecessors.is_subset_of(replayed);
        let rules = [
            (state.acknowledged.is_subset_of(replayed), Violation::AcknowledgedLost),
            (replayed.iter().all(complete), Violation::NotClosed),
            (replayed.intersection(state.discarded).is_empty(), Violation::Resurrected),
            (state.observed.is_subset_of(replayed), Violation::ReadOnlyLost),
            (state.recovered.is_subset_of(replayed), Violation::ServedLost),
            // Nothing above is wrong: then nothing is lost, and it must not refuse.
            (!conclusion.refused, Violation::HealthyRefused),
        ];
        rules.into_iter().find(|(holds, _)| !holds).map(|(_, violation)| violation)
    }

    /// What is replayed must survive the next power cut.
    fn make_durable(&self, state: &mut State, conclusion: &Conclusion) {
        let (flush, reappend) = match self.rules.recovery {
            RecoveryDurability::FlushAndReappend => (true, true),
            RecoveryDurability::FlushOnly => (true, false),
            RecoveryDurability::ReappendOnly => (false, true),
            RecoveryDurability::Nothing => (false, false),
        };
        if flush {
            let cached = state.disk.iter_mut().flatten().filter(|block| block.state == BlockState::Cached);
            cached.for_each(|block| block.state = BlockState::Durable);
        }
        if reappend {
            let doubtful = |id: &TransactionId| state.progress(*id).csn >= conclusion.watermark;
            let records: Vec<TransactionId> = conclusion.replayed.iter().filter(doubtful).collect();
            if !records.is_empty() {
                let epoch = state.manifest.epoch + 1;
                state.disk[0].push(Block { epoch, records, state: BlockState::Durable, with: None });
            }
        }
    }

    /// Publishes the manifest and starts with what was replayed.
    fn begin_epoch(&self, state: &mut State, conclusion: &Conclusion) {
        let replayed: Set = conclusion.replayed.iter().map(|id| state.progress(id).csn).collect();
        if self.rules.voids == Voids::Remembered {
            state.manifest.voids = (1..=conclusion.last_csn).filter(|csn| !replayed.contains(*csn)).collect();
        }
        state.manifest.accepted.push(conclusion.accepted.clone());
        state.manifest.epoch += 1;
        state.manifest.first_csn = conclusion.last_csn + 1;
        state.next_csn = state.manifest.first_csn;
        state.watermark = state.next_csn;
        state.newest_reported = conclusion.last_csn;
        state.scan = None;
        state.clocks = Clocks::new(usize::from(self.logs), usize::from(self.keys));
        state.stolen = Set::default();
        state.buffers.iter_mut().for_each(Vec::clear);
        state.announced.fill(None);
        state.locks.fill(None);
        state.versions.iter_mut().for_each(|writers| writers.retain(|id| conclusion.replayed.contains(*id)));
        state.recovered = conclusion.replayed;
    }
}

fn records<'a>(blocks: impl Iterator<Item = &'a Block>) -> Set {
    blocks.filter(|block| block.can_be_read()).flat_map(|block| block.records.iter().copied()).collect()
}
