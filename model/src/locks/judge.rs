//! What must never happen?
//!
//! Every state is judged as if the crash came in this state, by the rule that recovery applies to
//! the durable prefixes of the logs.

use super::scenario::{Key, Scenario, TransactionId, keys};
use super::state::{Phase, ReadVersion, State};
use crate::state::Set;
use stateright::Property;

/// The transactions that have committed so far are strictly serializable.
pub const SERIALIZABLE: &str = "committed transactions are strictly serializable";
/// All edges between transactions with CSNs go to the higher CSN.
pub const CSN_ORDER: &str = "each CSN is a consistent place to read at";
/// No acknowledged transaction is lost.
pub const ACKNOWLEDGED: &str = "acknowledged transactions are recovered";
/// A transaction that is recovered or reported keeps what it read and overwrote.
pub const CLOSED: &str = "recovered and reported transactions keep what they observed";
/// Results before the crash and the recovered state fit together.
pub const RECOVERED_SERIALIZABLE: &str = "recovered and reported transactions are strictly serializable";
/// Aborts do not cascade.
pub const NO_CASCADE: &str = "an abort takes no other transaction along";
/// Aborts survive a crash.
pub const ABORTS_STAY: &str = "an aborted transaction is not recovered";

/// What must hold in every state.
pub const ALWAYS: [&str; 7] =
    [SERIALIZABLE, CSN_ORDER, ACKNOWLEDGED, CLOSED, RECOVERED_SERIALIZABLE, NO_CASCADE, ABORTS_STAY];

/// All transactions are acknowledged in one run.
pub const REACHED_ALL: &str = "reached: all transactions are acknowledged";
/// An acknowledgment does not wait for all lower CSNs.
pub const REACHED_OUT_OF_ORDER: &str = "reached: a CSN above the watermark is acknowledged";
/// A read takes a version that a crash would lose.
pub const REACHED_VOLATILE_READ: &str = "reached: a version that is not durable is read";
/// A recovery discards a whole record, because of what its transaction observed.
pub const REACHED_DISCARD: &str = "reached: a durable record is discarded";
/// A transaction aborts.
pub const REACHED_ABORT: &str = "reached: a transaction is aborted";
/// A crash loses the reader of what a recovered transaction overwrote.
pub const REACHED_LOST_READER: &str = "reached: a recovered transaction overwrote what a lost one read";
/// A crash loses a transaction that overwrote what a recovered one read.
pub const REACHED_LOST_WRITER: &str = "reached: a recovered transaction read what a lost one overwrote";
/// A void record survives a crash.
pub const REACHED_VOID: &str = "reached: a void record is durable";

/// What the right rules reach in some scenario, so that the properties above mean something.
pub const REACHED: [&str; 8] = [
    REACHED_ALL,
    REACHED_OUT_OF_ORDER,
    REACHED_VOLATILE_READ,
    REACHED_DISCARD,
    REACHED_ABORT,
    REACHED_LOST_READER,
    REACHED_LOST_WRITER,
    REACHED_VOID,
];

/// Returns all properties.
#[must_use]
pub fn properties() -> Vec<Property<Scenario>> {
    vec![
        Property::always(SERIALIZABLE, committed_are_serializable),
        Property::always(CSN_ORDER, csn_order_is_serial),
        Property::always(ACKNOWLEDGED, acknowledged_are_recovered),
        Property::always(CLOSED, recovered_and_reported_are_closed),
        Property::always(RECOVERED_SERIALIZABLE, |scenario: &Scenario, state: &State| {
            is_serializable(scenario, state, recovered_and_reported(scenario, state))
        }),
        Property::always(NO_CASCADE, |_, state: &State| {
            let aborted = state.those(|progress| progress.phase == Phase::Aborted);
            let others = state.transactions.iter().filter(|progress| progress.phase != Phase::Aborted);
            others.map(|progress| progress.observed).all(|observed| observed.is_disjoint(aborted))
        }),
        Property::always(ABORTS_STAY, |scenario: &Scenario, state: &State| {
            let is_there = |phase| matches!(phase, Phase::Ready | Phase::Acknowledged | Phase::Visible);
            scenario.recovered(state).is_subset_of(state.those(|progress| is_there(progress.phase)))
        }),
        Property::sometimes(REACHED_ALL, |_, state: &State| {
            state.transactions.iter().all(|progress| progress.phase == Phase::Acknowledged)
        }),
        Property::sometimes(REACHED_OUT_OF_ORDER, |scenario: &Scenario, state: &State| {
            let watermark = scenario.watermark(state);
            reported(state).iter().any(|id| state.csn(id) > watermark)
        }),
        Property::sometimes(REACHED_VOLATILE_READ, |scenario: &Scenario, state: &State| {
            let active = state.transactions.iter().filter(|progress| progress.phase == Phase::Active);
            let mut observed = active.flat_map(|progress| progress.observed.iter());
            observed.any(|writer| !scenario.is_durable(state, writer))
        }),
        Property::sometimes(REACHED_DISCARD, |scenario: &Scenario, state: &State| {
            let drawn = state.those(|progress| progress.csn > 0 && progress.phase != Phase::Aborted);
            let recovered = scenario.recovered(state);
            drawn.iter().any(|id| scenario.is_durable(state, id) && !recovered.contains(id))
        }),
        Property::sometimes(REACHED_ABORT, |_, state: &State| {
            state.transactions.iter().any(|progress| progress.phase == Phase::Aborted)
        }),
        Property::sometimes(REACHED_LOST_READER, |scenario: &Scenario, state: &State| {
            has_lost_neighbour(scenario, state, Lost::Reader)
        }),
        Property::sometimes(REACHED_LOST_WRITER, |scenario: &Scenario, state: &State| {
            has_lost_neighbour(scenario, state, Lost::Writer)
        }),
        Property::sometimes(REACHED_VOID, |scenario: &Scenario, state: &State| {
            let void = state.those(|progress| progress.csn > 0 && progress.phase == Phase::Aborted);
            void.iter().any(|id| scenario.is_durable(state, id))
        }),
    ]
}

fn reported(state: &State) -> Set {
    state.those(|progress| progress.phase == Phase::Acknowledged)
}

fn recovered_and_reported(scenario: &Scenario, state: &State) -> Set {
    scenario.recovered(state).union(reported(state))
}

fn committed_are_serializable(scenario: &Scenario, state: &State) -> bool {
    let has_committed = |phase| matches!(phase, Phase::Ready | Phase::Acknowledged);
    is_serializable(scenario, state, state.those(|progress| has_committed(progress.phase)))
}

fn acknowledged_are_recovered(scenario: &Scenario, state: &State) -> bool {
    let acknowledged = state.those(|progress| progress.phase == Phase::Acknowledged && progress.csn > 0);
    acknowledged.is_subset_of(scenario.recovered(state))
}

fn recovered_and_reported_are_closed(scenario: &Scenario, state: &State) -> bool {
    let recovered = scenario.recovered(state);
    let mut kept = recovered.union(reported(state)).iter();
    kept.all(|id| state.progress(id).observed.is_subset_of(recovered))
}

/// Returns true if no cycle leads through what `judged` read and wrote, and through real time.
fn is_serializable(scenario: &Scenario, state: &State, judged: Set) -> bool {
    let mut after = vec![Set::default(); scenario.transactions.len()];
    let mut add = |before: TransactionId, later: TransactionId| {
        if before != later {
            after[usize::from(before)].insert(later);
        }
    };
    for key in keys() {
        let is_judged = |id: &&TransactionId| judged.contains(**id);
        let writers: Vec<&TransactionId> = state.entry(key).versions.iter().filter(is_judged).collect();
        writers.windows(2).for_each(|pair| add(*pair[0], *pair[1]));
        for reader in judged.iter() {
            if let ReadVersion::Of(writer) = state.progress(reader).read(key)
                && judged.contains(writer)
            {
                add(writer, reader);
            }
            let next = state.later_versions(reader, key).iter().find(is_judged);
            next.into_iter().for_each(|writer| add(reader, *writer));
        }
    }
    for id in judged.iter() {
        let before = state.progress(id).acknowledged_before.intersection(judged);
        before.iter().for_each(|earlier| add(earlier, id));
    }
    is_acyclic(&after)
}

/// Returns true if no transaction is reachable from itself.
fn is_acyclic(after: &[Set]) -> bool {
    let mut reachable = after.to_vec();
    for _ in after {
        for from in 0..reachable.len() {
            let direct = reachable[from];
            let further = direct.iter().map(|via| reachable[usize::from(via)]);
            reachable[from] = further.fold(direct, Set::union);
        }
    }
    (0..).zip(&reachable).all(|(id, reachable)| !reachable.contains(id))
}

/// Returns true if all edges between transactions with CSNs go to the higher CSN, so that each CSN
/// is a place for snapshots, checkpoints and backups.
///
/// Not judged while a version without a CSN is visible.
fn csn_order_is_serial(scenario: &Scenario, state: &State) -> bool {
    let is_undrawn = state.transactions.iter().any(|progress| progress.phase == Phase::Visible);
    let is_ordered = |key: Key| {
        let mut pairs = state.entry(key).versions.windows(2);
        pairs.all(|pair| state.csn(pair[0]) < state.csn(pair[1]))
    };
    is_undrawn || keys().all(|key| is_ordered(key) && scenario.ids().all(|id| reads_in_order(state, id, key)))
}

fn reads_in_order(state: &State, id: TransactionId, key: Key) -> bool {
    let progress = state.progress(id);
    let has_committed = matches!(progress.phase, Phase::Ready | Phase::Acknowledged);
    if !has_committed || progress.csn == 0 {
        return true;
    }
    let is_lower = |writer: TransactionId| state.csn(writer) < progress.csn;
    let writer_is_lower = match progress.read(key) {
        ReadVersion::Of(writer) => is_lower(writer),
        ReadVersion::None | ReadVersion::Initial => true,
    };
    let mut later = state.later_versions(id, key).iter();
    writer_is_lower && later.all(|writer| *writer == id || state.csn(*writer) > progress.csn)
}

/// Which side of a read that another transaction overwrote is lost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lost {
    Reader,
    Writer,
}

/// Returns true if one side of an overwritten read is recovered and the other side is lost.
fn has_lost_neighbour(scenario: &Scenario, state: &State, lost: Lost) -> bool {
    let recovered = scenario.recovered(state);
    let has_committed = |phase| matches!(phase, Phase::Ready | Phase::Acknowledged);
    let drawn = state.those(|progress| progress.csn > 0 && has_committed(progress.phase));
    let is_pair = |reader: TransactionId, writer: TransactionId| {
        let (survivor, gone) = if lost == Lost::Reader { (writer, reader) } else { (reader, writer) };
        reader != writer
            && drawn.contains(writer)
            && recovered.contains(survivor)
            && !recovered.contains(gone)
    };
    let next = |reader, key| state.later_versions(reader, key).first().copied();
    drawn
        .iter()
        .any(|reader| keys().any(|key| next(reader, key).is_some_and(|writer| is_pair(reader, writer))))
}
