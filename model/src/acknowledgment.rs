//! What is durable, how far is the watermark, and what may be acknowledged?

use crate::scenario::{
    Dependencies, Durable, Kind, Listed, LogId, Scenario, Stealing, TransactionId, WatermarkScan,
};
use crate::state::{Block, BlockState, Csn, Phase, Scan, Set, State};

/// The slot of a log that has nothing volatile.
pub const IDLE: Csn = Csn::MAX;

impl Scenario {
    /// True if the commit protocol counts the record of `id` as durable.
    #[must_use]
    pub fn is_durable(&self, state: &State, id: TransactionId) -> bool {
        if state.recovered.contains(id) {
            return true;
        }
        let current = |block: &&Block| block.epoch == state.manifest.epoch;
        let position = |blocks: &[Block]| blocks.iter().position(|b| current(&b) && b.records.contains(&id));
        // The record is in the log of `id`, or in the log of the helper that stole the record.
        let Some((blocks, at)) = state.disk.iter().find_map(|blocks| Some((blocks, position(blocks)?)))
        else {
            return false;
        };
        let durable = |block: &Block| block.state == BlockState::Durable;
        if self.rules.stealing == Stealing::HelpersBlockAlone && state.stolen.contains(id) {
            return durable(&blocks[at]);
        }
        match self.rules.durable {
            Durable::GapFreePrefix => blocks[..=at].iter().filter(current).all(durable),
            Durable::HighestCompletion => blocks[at..].iter().any(durable),
        }
    }

    /// The slot of `log`: at or below every CSN that it owns and that is not durable.
    fn slot(&self, state: &State, log: LogId) -> Csn {
        let volatile = |id: &TransactionId| {
            let progress = state.progress(*id);
            let has_record = progress.phase >= Phase::Ready && self.transaction(*id).kind != Kind::ReadOnly;
            has_record && state.is_current(*id) && self.transaction(*id).log == log
        };
        let volatile = self.ids().filter(volatile).filter(|id| !self.is_durable(state, *id));
        let forgets = self.rules.stealing == Stealing::Forgotten;
        let volatile = volatile.filter(|id| !(forgets && state.stolen.contains(*id)));
        let lowest = volatile.map(|id| state.progress(id).csn).min().unwrap_or(IDLE);
        lowest.min(state.announced[usize::from(log)].unwrap_or(IDLE))
    }

    /// W as the committers know it.
    #[must_use]
    pub fn known_watermark(&self, state: &State) -> Csn {
        match self.rules.watermark {
            WatermarkScan::Atomic => self.true_watermark(state),
            _ => state.watermark,
        }
    }

    /// The smallest CSN that is not durable.
    #[must_use]
    pub fn true_watermark(&self, state: &State) -> Csn {
        (0..self.logs).map(|log| self.slot(state, log)).fold(state.next_csn, Csn::min)
    }

    /// One step of a scan: loads the next slot; after the last one W rises (it never falls).
    pub fn scan_step(&self, state: &mut State) {
        let begin = Scan { next_log: 0, bound: state.next_csn, lowest: IDLE };
        let mut scan = state.scan.take().unwrap_or(begin);
        scan.lowest = scan.lowest.min(self.slot(state, scan.next_log));
        scan.next_log += 1;
        if scan.next_log < self.logs {
            state.scan = Some(scan);
            return;
        }
        let bound = match self.rules.watermark {
            WatermarkScan::NoBound => state.next_csn,
            _ => scan.bound,
        };
        state.watermark = state.watermark.max(scan.lowest.min(bound));
    }

    /// True if the record of `id` is durable, and all that it lists is committed in the same way.
    fn is_exactly_committed(&self, state: &State, id: TransactionId) -> bool {
        self.is_durable(state, id) && self.are_exactly_committed(state, state.progress(id).listed)
    }

    fn are_exactly_committed(&self, state: &State, listed: Set) -> bool {
        listed.iter().all(|other| self.is_exactly_committed(state, other))
    }

    /// Of what `id` is about to have read, what its record lists.
    #[must_use]
    pub fn to_list(&self, state: &State, predecessors: Set) -> Set {
        let open = |id: &TransactionId| match self.rules.listed {
            Listed::NotCommitted if self.rules.goes_by_clocks() => !self.is_committed_by_clock(state, *id),
            Listed::NotCommitted => !self.is_exactly_committed(state, *id),
            Listed::Volatile => !self.is_durable(state, *id),
        };
        predecessors.iter().filter(open).collect()
    }

    /// Returns true if `id` may be acknowledged now.
    #[must_use]
    pub fn may_acknowledge(&self, state: &State, id: TransactionId) -> bool {
        let progress = state.progress(id);
        let ready = match self.transaction(id).kind {
            Kind::Durable => progress.phase == Phase::Ready && self.is_durable(state, id),
            Kind::ReadOnly => progress.phase == Phase::Active,
            Kind::BoundedLoss => false,
        };
        if !ready || !state.is_current(id) {
            return false;
        }
        if self.transaction(id).kind == Kind::ReadOnly && !self.rules.read_only_waits {
            return true;
        }
        match self.rules.dependencies {
            Dependencies::Dsn => progress.dsn < self.known_watermark(state),
            // A transaction without a record has no CSN of its own.
            Dependencies::Csn => progress.csn.max(progress.dsn) < self.known_watermark(state),
            Dependencies::Exact => self.are_exactly_committed(state, progress.listed),
            Dependencies::Gsn | Dependencies::GsnRfa | Dependencies::GsnRfaTransitive => {
                // A transaction without a record has no clock of its own: it waits for what it
                // read.
                match self.transaction(id).kind {
                    Kind::ReadOnly => {
                        progress.listed.iter().all(|other| self.is_committed_by_clock(state, other))
                    }
                    _ => self.is_committed_by_clock(state, id),
                }
            }
            Dependencies::DirectOnly => {
                progress.known_predecessors.iter().all(|other| self.is_durable(state, other))
            }
        }
    }
}
