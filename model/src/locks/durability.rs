//! What is committed, and what does recovery take?

use super::scenario::{Dependencies, Mistake, Scenario, TransactionId};
use super::state::{Phase, State};
use crate::state::{Csn, Set};

impl Scenario {
    /// Returns true if the record of `id` is durable.
    #[must_use]
    pub fn is_durable(&self, state: &State, id: TransactionId) -> bool {
        state.log(self.transaction(id).log).durable_records().contains(&id)
    }

    /// Returns the smallest CSN that is not durable.
    #[must_use]
    pub fn watermark(&self, state: &State) -> Csn {
        let volatile = state.logs.iter().filter_map(|log| log.first_volatile());
        volatile.map(|id| state.csn(id)).fold(state.next_csn, Csn::min)
    }

    /// Returns true if `id` has a durable record and its dependencies are satisfied.
    #[must_use]
    pub fn is_committed(&self, state: &State, id: TransactionId) -> bool {
        let progress = state.progress(id);
        progress.csn > 0
            && progress.phase != Phase::Aborted
            && self.is_durable(state, id)
            && self.are_dependencies_satisfied(state, id)
    }

    fn are_dependencies_satisfied(&self, state: &State, id: TransactionId) -> bool {
        let progress = state.progress(id);
        match self.rules.dependencies {
            Dependencies::Dsn => progress.dsn < self.watermark(state),
            Dependencies::Exact => progress.listed.iter().all(|other| self.is_committed(state, other)),
        }
    }

    /// Returns true if `id` has nothing to wait for: its dependencies, and its record if it has
    /// one.
    #[must_use]
    pub fn may_acknowledge(&self, state: &State, id: TransactionId) -> bool {
        if state.csn(id) == 0 {
            self.are_dependencies_satisfied(state, id)
        } else if self.makes(Mistake::OwnRecordSuffices) {
            self.is_durable(state, id)
        } else {
            self.is_committed(state, id)
        }
    }

    /// Returns the transactions that a recovery takes if the crash comes in this state.
    ///
    /// A void record counts as present and is not replayed.
    #[must_use]
    pub fn recovered(&self, state: &State) -> Set {
        let (mut found, mut present) = (Vec::new(), Set::default());
        for id in state.logs.iter().flat_map(|log| log.durable_records()) {
            let is_void =
                state.progress(*id).phase == Phase::Aborted && !self.makes(Mistake::VoidIsForgotten);
            if !is_void {
                found.push(*id);
            }
            if !is_void || !self.makes(Mistake::VoidIsMissing) {
                present.insert(state.csn(*id));
            }
        }
        let frontier = (1..).find(|csn| !present.contains(*csn)).expect("CSNs are few");
        found.sort_by_key(|id| state.csn(*id));
        let mut taken = Set::default();
        for id in found {
            let progress = state.progress(id);
            let takes = match self.rules.dependencies {
                Dependencies::Dsn => progress.dsn < frontier,
                Dependencies::Exact => progress.listed.is_subset_of(taken),
            };
            if takes {
                taken.insert(id);
            }
        }
        taken
    }
}
