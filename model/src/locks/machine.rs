//! Which steps are possible?

use super::judge;
use super::scenario::{CommitPath, Key, LogId, Mistake, Mode, Scenario, TransactionId, keys};
use super::state::{Phase, State};
use stateright::{Model, Property};

/// One step of a transaction, a log, or the tree.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Takes a snapshot.
    Begin(TransactionId),
    /// Executes a step of the next operation.
    Execute(TransactionId),
    /// Aborts a transaction that waits for a lock.
    AbortBlocked(TransactionId),
    /// Announces a commit.
    Announce(TransactionId),
    /// Validates before the draw.
    Validate(TransactionId),
    /// Draws a CSN and appends the record.
    Draw(TransactionId),
    /// The append fails, and the transaction aborts.
    FailAppend(TransactionId),
    /// Validates as of the CSN and decides.
    Decide(TransactionId),
    /// Releases locks.
    Release(TransactionId),
    /// Reports the result to the caller.
    Acknowledge(TransactionId),
    /// Makes the next record of a log durable.
    Flush(LogId),
    /// Removes a tombstone from the leaf.
    Purge(Key),
}

impl Model for Scenario {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.ids().for_each(|id| self.transaction_actions(state, id, actions));
        for (id, log) in (0..).zip(&state.logs) {
            let may_flush = |record| {
                let is_decided = state.progress(record).phase != Phase::Undecided;
                is_decided || self.makes(Mistake::UndecidedIsFlushed)
            };
            if log.first_volatile().is_some_and(may_flush) {
                actions.push(Action::Flush(id));
            }
        }
        actions.extend(keys().filter(|key| self.may_purge(state, *key)).map(Action::Purge));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Begin(id) => self.begin(&mut next, id),
            Action::Execute(id) => self.execute(&mut next, id)?,
            Action::AbortBlocked(id) | Action::FailAppend(id) => self.abort(&mut next, id),
            Action::Announce(id) => self.announce(&mut next, id),
            Action::Validate(id) => self.validate_before_draw(&mut next, id)?,
            Action::Draw(id) => self.draw(&mut next, id),
            Action::Decide(id) => self.decide(&mut next, id)?,
            Action::Release(id) if state.progress(id).phase == Phase::Active => {
                self.release_before_draw(&mut next, id);
            }
            Action::Release(id) => self.release(&mut next, id),
            Action::Acknowledge(id) => self.acknowledge(&mut next, id),
            Action::Flush(log) => next.logs[usize::from(log)].durable += 1,
            Action::Purge(key) => self.purge(&mut next, key),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        judge::properties()
    }
}

impl Scenario {
    fn begin(&self, state: &mut State, id: TransactionId) {
        let snapshot = match self.mode(id) {
            Mode::ReadOnly => state.newest_acknowledged,
            Mode::Pessimistic if !self.makes(Mistake::PessimisticReadsSnapshot) => 0,
            Mode::Optimistic | Mode::Pessimistic => state.next_csn - 1,
        };
        let acknowledged_before = state.those(|other| other.phase == Phase::Acknowledged);
        let leaf_version = state.leaf_version;
        let progress = state.progress_mut(id);
        progress.phase = Phase::Active;
        progress.snapshot = snapshot;
        progress.acknowledged_before = acknowledged_before;
        progress.leaf_version = leaf_version;
    }

    fn transaction_actions(&self, state: &State, id: TransactionId, actions: &mut Vec<Action>) {
        let progress = state.progress(id);
        match progress.phase {
            Phase::Waiting => actions.push(Action::Begin(id)),
            Phase::Active if self.next_operation(state, id).is_some() => {
                let is_blocked = self.is_blocked(state, id);
                actions.push(if is_blocked { Action::AbortBlocked(id) } else { Action::Execute(id) });
            }
            Phase::Active if progress.changed.is_empty() => {
                if self.makes(Mistake::ReadersDoNotWait) || self.may_acknowledge(state, id) {
                    actions.push(Action::Acknowledge(id));
                }
            }
            Phase::Active if self.mode(id) == Mode::Pessimistic => {
                if self.releases_before_draw(state, id) {
                    actions.push(Action::Release(id));
                } else if !self.is_marked_elsewhere(state, id) {
                    actions.push(Action::Draw(id));
                }
            }
            Phase::Active => actions.push(match self.rules.commit {
                CommitPath::Atomic | CommitPath::ValidateFirst => Action::Validate(id),
                CommitPath::DrawFirst => Action::Draw(id),
                CommitPath::AnnounceFirst | CommitPath::Marks => Action::Announce(id),
            }),
            Phase::Announced => actions.push(Action::Validate(id)),
            Phase::Validated if !self.is_marked_elsewhere(state, id) => actions.push(Action::Draw(id)),
            Phase::Undecided if self.validate(state, id).is_some() => actions.push(Action::Decide(id)),
            Phase::Visible => actions.extend([Action::Draw(id), Action::FailAppend(id)]),
            Phase::Ready => {
                if self.may_acknowledge(state, id) {
                    actions.push(Action::Acknowledge(id));
                }
                if self.may_release(state, id) {
                    actions.push(Action::Release(id));
                }
            }
            Phase::Validated | Phase::Undecided | Phase::Acknowledged | Phase::Aborted => {}
        }
    }
}
