//! What can happen next, and what must never happen.

use crate::scenario::{
    Dependencies, Kind, LogId, Scenario, Stealing, Tombstones, TransactionId, WatermarkScan,
};
use crate::state::{Block, BlockState, Csn, Phase, Set, State, Violation};
use stateright::{Model, Property};

/// One step of one thread, of the disk, or of fate.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Begins, reads, and locks what it writes.
    Execute(TransactionId),
    /// `slot := next_csn`.
    Announce(TransactionId),
    /// Draws the CSN. With an atomic watermark the record is appended in the same step.
    Draw(TransactionId),
    /// Puts the record in the buffer, publishes the slot, shows the writes.
    Append(TransactionId),
    /// Starts writing a log's buffer.
    Write(LogId),
    /// Starts a write with the buffers of two logs, the helper's and the owner's.
    Steal(LogId, LogId),
    /// The write of a block completes.
    Complete(LogId, usize),
    /// One load of a watermark scan.
    ScanStep,
    /// Raises the clocks and finds how far all logs are durable.
    ScanClocks,
    /// Reports the commit to the caller.
    Acknowledge(TransactionId),
    /// A crash, and recovery. Bit i says what becomes of the i-th block that is not certain.
    Crash(u32),
}

impl Model for Scenario {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.violation.is_some() || state.crashes >= self.crashes {
            return;
        }
        self.ids().for_each(|id| self.transaction_actions(state, id, actions));
        for (log, blocks) in (0..self.logs).zip(&state.disk) {
            let in_flight = |block: &&Block| block.state == BlockState::InFlight;
            if !state.buffers[usize::from(log)].is_empty()
                && blocks.iter().filter(in_flight).count() < self.in_flight_max
            {
                actions.push(Action::Write(log));
                actions.extend(self.owners(state, log).map(|owner| Action::Steal(log, owner)));
            }
            let completing = blocks.iter().enumerate().filter(|(_, block)| in_flight(block));
            actions.extend(completing.map(|(at, _)| Action::Complete(log, at)));
        }
        if self.rules.watermark != WatermarkScan::Atomic {
            actions.push(Action::ScanStep);
        }
        if self.rules.goes_by_clocks() {
            let mut scanned = state.clone();
            self.scan_clocks(&mut scanned);
            if scanned.clocks != state.clocks {
                actions.push(Action::ScanClocks);
            }
        }
        let uncertain = state.disk.iter().flatten().filter(|block| is_uncertain(block)).count();
        actions.extend((0..1 << uncertain).map(Action::Crash));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Execute(id) => self.execute(&mut next, id),
            Action::Announce(id) => {
                next.announced[usize::from(self.transaction(id).log)] = Some(state.next_csn);
                next.progress_mut(id).phase = Phase::Announced;
            }
            Action::Draw(id) => {
                next.progress_mut(id).stored_watermark = self.known_watermark(state);
                next.progress_mut(id).csn = state.next_csn;
                next.progress_mut(id).phase = Phase::Drawn;
                next.next_csn += 1;
                self.draw_gsn(&mut next, id);
                if self.rules.watermark == WatermarkScan::Atomic {
                    self.append(&mut next, id);
                }
            }
            Action::Append(id) => self.append(&mut next, id),
            Action::Write(log) => {
                let records = std::mem::take(&mut next.buffers[usize::from(log)]);
                let epoch = state.manifest.epoch;
                next.disk[usize::from(log)].push(Block {
                    epoch,
                    records,
                    state: BlockState::InFlight,
                    with: None,
                });
            }
            Action::Steal(helper, owner) => self.steal(&mut next, helper, owner),
            Action::Complete(log, at) => Self::complete(&mut next, log, at),
            Action::ScanStep => self.scan_step(&mut next),
            Action::ScanClocks => self.scan_clocks(&mut next),
            Action::Acknowledge(id) => self.acknowledge(&mut next, id),
            Action::Crash(outcome) => {
                self.crash(&mut next, outcome);
                self.recover(&mut next);
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn never<const V: u8>(_: &Scenario, state: &State) -> bool {
            state.violation.is_none_or(|violation| violation as u8 != V)
        }
        vec![
            Property::always(
                name(Violation::AcknowledgedLost),
                never::<{ Violation::AcknowledgedLost as u8 }>,
            ),
            Property::always(name(Violation::NotClosed), never::<{ Violation::NotClosed as u8 }>),
            Property::always(name(Violation::NotRepeatable), never::<{ Violation::NotRepeatable as u8 }>),
            Property::always(name(Violation::Resurrected), never::<{ Violation::Resurrected as u8 }>),
            Property::always(name(Violation::ReadOnlyLost), never::<{ Violation::ReadOnlyLost as u8 }>),
            Property::always(name(Violation::HealthyRefused), never::<{ Violation::HealthyRefused as u8 }>),
            Property::always(name(Violation::ServedLost), never::<{ Violation::ServedLost as u8 }>),
            Property::sometimes(REACHED_OUT_OF_ORDER, Scenario::acknowledged_above_a_volatile_csn),
            Property::sometimes(REACHED_VOID, recovered_above_a_void),
            Property::sometimes(REACHED_DISCARD, discarded_a_whole_record),
            Property::sometimes(REACHED_SECOND_EPOCH, Scenario::acknowledged_in_the_second_epoch),
            Property::sometimes(REACHED_READ_ONLY, Scenario::acknowledged_read_only),
            Property::sometimes(REACHED_STOLEN, Scenario::acknowledged_stolen),
        ]
    }
}

/// What the property about `violation` says.
#[must_use]
pub fn name(violation: Violation) -> &'static str {
    match violation {
        Violation::AcknowledgedLost => "acknowledged commits are recovered",
        Violation::NotClosed => "the recovered set is closed under reads-from",
        Violation::NotRepeatable => "recovery is repeatable",
        Violation::Resurrected => "discarded transactions stay discarded",
        Violation::ReadOnlyLost => "what a reported read-only result showed is recovered",
        Violation::HealthyRefused => "a healthy database opens",
        Violation::ServedLost => "what a recovery served survives the next",
    }
}

/// Reached: a commit is acknowledged while a lower CSN is volatile: what record-level dependencies
/// are for.
pub const REACHED_OUT_OF_ORDER: &str = "reached: acknowledged above a volatile CSN";
/// Reached: a transaction is recovered although a lower CSN is void.
pub const REACHED_VOID: &str = "reached: recovered above a void CSN";
/// Reached: a whole, durable record is discarded, because of what it read.
pub const REACHED_DISCARD: &str = "reached: discarded a whole record";
/// Reached: a commit is acknowledged after a recovery, and a second crash follows.
pub const REACHED_SECOND_EPOCH: &str = "reached: acknowledged in the second epoch, then crashed";
/// Reached: a stolen record is acknowledged while a write of the helper is in flight.
pub const REACHED_STOLEN: &str = "reached: acknowledged a stolen record beside a write in flight";
/// Reached: a read-only transaction is acknowledged.
pub const REACHED_READ_ONLY: &str = "reached: acknowledged a read-only transaction";

impl Scenario {
    fn transaction_actions(&self, state: &State, id: TransactionId, actions: &mut Vec<Action>) {
        let transaction = self.transaction(id);
        let phase = state.progress(id).phase;
        if phase == Phase::Waiting {
            let free = |key: &u8| state.locks[usize::from(*key)].is_none();
            if transaction.epoch == state.manifest.epoch && transaction.writes.iter().all(free) {
                actions.push(Action::Execute(id));
            }
            return;
        }
        if !state.is_current(id) {
            return;
        }
        let announces =
            matches!(self.rules.watermark, WatermarkScan::AnnounceBeforeDraw | WatermarkScan::NoBound);
        match phase {
            Phase::Active
                if transaction.kind != Kind::ReadOnly && !self.is_latched(state, transaction.log) =>
            {
                actions.push(if announces { Action::Announce(id) } else { Action::Draw(id) });
            }
            Phase::Announced => actions.push(Action::Draw(id)),
            Phase::Drawn => actions.push(Action::Append(id)),
            _ => {}
        }
        if self.may_acknowledge(state, id) {
            actions.push(Action::Acknowledge(id));
        }
    }

    /// True if a transaction is between announcing (or drawing) and appending: it holds the log's
    /// latch.
    fn is_latched(&self, state: &State, log: LogId) -> bool {
        self.ids().any(|id| {
            let holds = matches!(state.progress(id).phase, Phase::Announced | Phase::Drawn);
            holds && state.is_current(id) && self.transaction(id).log == log
        })
    }

    /// Returns the logs from which the worker of `helper` may steal.
    fn owners(&self, state: &State, helper: LogId) -> impl Iterator<Item = LogId> {
        let steals = self.rules.stealing != Stealing::Off;
        let has_records = |log: &LogId| !state.buffers[usize::from(*log)].is_empty();
        let owners = (0..self.logs).filter(move |log| steals && *log != helper);
        owners.filter(has_records).collect::<Vec<_>>().into_iter()
    }

    /// Starts one write of two buffers. It completes as a whole; what a crash leaves of it is
    /// decided block by block.
    fn steal(&self, state: &mut State, helper: LogId, owner: LogId) {
        let [mut own, stolen] =
            [helper, owner].map(|log| std::mem::take(&mut state.buffers[usize::from(log)]));
        state.stolen = stolen.iter().copied().collect::<Set>().union(state.stolen);
        let epoch = state.manifest.epoch;
        let block = |records, with| Block { epoch, records, state: BlockState::InFlight, with };
        let place = |state: &State, log: LogId| (log, state.disk[usize::from(log)].len());
        let mut with = None;
        if matches!(self.rules.stealing, Stealing::OwnersBlock | Stealing::Forgotten) {
            with = Some(place(state, owner));
            let helpers_place = Some(place(state, helper));
            state.disk[usize::from(owner)].push(block(stolen, helpers_place));
        } else {
            own.extend(stolen);
        }
        state.disk[usize::from(helper)].push(block(own, with));
    }

    fn complete(state: &mut State, log: LogId, at: usize) {
        let block = &mut state.disk[usize::from(log)][at];
        block.state = BlockState::Durable;
        if let Some((log, at)) = block.with {
            state.disk[usize::from(log)][at].state = BlockState::Durable;
        }
    }

    fn execute(&self, state: &mut State, id: TransactionId) {
        let transaction = self.transaction(id);
        let snapshot = if transaction.kind == Kind::ReadOnly { state.newest_reported } else { Csn::MAX };
        let mut predecessors = Set::default();
        for key in transaction.reads.iter().chain(transaction.writes) {
            let mut newest_first = state.versions[usize::from(*key)].iter().rev();
            let seen = newest_first.find(|writer| state.progress(**writer).csn <= snapshot);
            seen.into_iter().for_each(|writer| predecessors.insert(*writer));
        }
        let leaves_trace = |writer: &TransactionId| {
            self.rules.tombstones == Tombstones::Stamped || !self.transaction(*writer).deletes
        };
        let known: Set = predecessors.iter().filter(leaves_trace).collect();
        let dsn = known.iter().map(|writer| state.progress(writer).csn).max().unwrap_or(0);
        let epoch = state.manifest.epoch;
        let listed = match self.rules.dependencies {
            Dependencies::Dsn | Dependencies::Csn => Set::default(),
            _ => self.to_list(state, known),
        };
        let clock = self.clock_after_reading(state, id);
        let progress = state.progress_mut(id);
        (progress.listed, progress.clock) = (listed, clock);
        (progress.phase, progress.epoch, progress.dsn) = (Phase::Active, epoch, dsn);
        (progress.known_predecessors, progress.predecessors) = (known, predecessors);
        for key in transaction.writes {
            state.locks[usize::from(*key)] = Some(id);
        }
    }

    fn append(&self, state: &mut State, id: TransactionId) {
        let transaction = self.transaction(id);
        state.progress_mut(id).phase = Phase::Ready;
        // The slot is exact now: the record itself keeps it down.
        state.announced[usize::from(transaction.log)] = None;
        state.buffers[usize::from(transaction.log)].push(id);
        for key in transaction.writes {
            state.locks[usize::from(*key)] = None;
            state.versions[usize::from(*key)].push(id);
        }
        if transaction.kind == Kind::BoundedLoss {
            state.newest_reported = state.newest_reported.max(state.progress(id).csn);
        }
    }

    fn acknowledge(&self, state: &mut State, id: TransactionId) {
        state.progress_mut(id).phase = Phase::Acknowledged;
        if self.transaction(id).kind == Kind::ReadOnly {
            state.observed = state.observed.union(state.progress(id).predecessors);
        } else {
            state.acknowledged.insert(id);
            state.newest_reported = state.newest_reported.max(state.progress(id).csn);
        }
    }

    fn crash(&self, state: &mut State, mut outcome: u32) {
        let kill = self.first_crash_is_kill && state.crashes == 0;
        state.crashes += 1;
        for block in state.disk.iter_mut().flatten().filter(|block| is_uncertain(block)) {
            block.state = match (kill, outcome & 1 == 1) {
                (true, true) => BlockState::Cached,
                (true, false) => BlockState::Late,
                (false, true) => BlockState::Durable,
                (false, false) => BlockState::Lost,
            };
            outcome >>= 1;
        }
    }

    fn acknowledged_above_a_volatile_csn(&self, state: &State) -> bool {
        let watermark = self.true_watermark(state);
        state.acknowledged.iter().any(|id| state.is_current(id) && state.progress(id).csn > watermark)
    }

    fn acknowledged_in_the_second_epoch(&self, state: &State) -> bool {
        state.crashes == 2 && state.acknowledged.iter().any(|id| self.transaction(id).epoch == 2)
    }

    fn acknowledged_stolen(&self, state: &State) -> bool {
        let in_flight = state.disk.iter().flatten().any(|block| block.state == BlockState::InFlight);
        in_flight && !state.acknowledged.intersection(state.stolen).is_empty()
    }

    fn acknowledged_read_only(&self, state: &State) -> bool {
        let read_only = |id: &TransactionId| self.transaction(*id).kind == Kind::ReadOnly;
        self.ids().filter(read_only).any(|id| state.progress(id).phase == Phase::Acknowledged)
    }
}

fn recovered_above_a_void(_: &Scenario, state: &State) -> bool {
    let lowest = state.manifest.voids.iter().next();
    state.recovered.iter().any(|id| lowest.is_some_and(|void| state.progress(id).csn > void))
}

fn discarded_a_whole_record(_: &Scenario, state: &State) -> bool {
    let whole = state.disk.iter().flatten().filter(|block| block.state == BlockState::Durable);
    whole.flat_map(|block| &block.records).any(|id| state.discarded.contains(*id))
}

fn is_uncertain(block: &Block) -> bool {
    matches!(block.state, BlockState::InFlight | BlockState::Cached | BlockState::Late)
}
