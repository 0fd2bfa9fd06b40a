//! What is shared, and what does each transaction know?

use super::scenario::{KEYS, Key, LogId, Scenario, TransactionId};
use crate::state::{Csn, Set};

/// How far a transaction has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Phase {
    /// Not begun.
    Waiting,
    /// Executes its operations, or waits to commit.
    Active,
    /// Its writes or its marks are announced, on the commit paths that announce.
    Announced,
    /// Validated and not drawn, on the commit paths that validate first.
    Validated,
    /// Has a CSN and an undecided record, on the commit path that draws first.
    Undecided,
    /// Its writes are visible and it has no CSN: only if all locks are released before the append.
    Visible,
    /// Its record is in the log buffer and its writes are visible.
    Ready,
    /// Reported to the caller.
    Acknowledged,
    /// Rolled back. If it has a CSN, its record is void.
    Aborted,
}

/// The version that a transaction read of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReadVersion {
    /// It did not read the key.
    None,
    /// What was there before all transactions.
    Initial,
    /// The version, or the tombstone, of this transaction.
    Of(TransactionId),
}

/// Names in the lock table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Names {
    /// Keys, each present or absent.
    pub keys: Set,
    /// Gaps, each by the key above it. The gap above the last entry has the name `KEYS`.
    pub gaps: Set,
}

impl Names {
    /// Returns true if both have a name.
    #[must_use]
    pub fn overlap(self, other: Names) -> bool {
        !self.keys.is_disjoint(other.keys) || !self.gaps.is_disjoint(other.gaps)
    }

    /// Returns the names of both.
    #[must_use]
    pub fn union(self, other: Names) -> Names {
        Names { keys: self.keys.union(other.keys), gaps: self.gaps.union(other.gaps) }
    }

    /// Returns true if there is no name.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.keys.is_empty() && self.gaps.is_empty()
    }
}

/// The state of a transaction.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Progress {
    /// How far it is.
    pub phase: Phase,
    /// The number of completed operations.
    pub completed: u8,
    /// The first half of the next operation is done: operations that lock and look in two steps.
    pub is_halfway: bool,
    /// The CSN at which it reads.
    pub snapshot: Csn,
    /// Its CSN; 0 = none.
    pub csn: Csn,
    /// The highest CSN that it observed, as far as the rules let it know.
    pub dsn: Csn,
    /// The transactions that it observed, as far as the rules let it know.
    pub listed: Set,
    /// The transactions that it observed.
    pub observed: Set,
    /// Per key: the version that it read.
    pub reads: [ReadVersion; KEYS],
    /// Keys whose reads it forgot when it rolled back to a savepoint.
    pub forgotten: Set,
    /// Keys with a change of this transaction.
    pub changed: Set,
    /// It holds exclusive locks on the changed keys.
    pub holds_exclusive: bool,
    /// The names of its shared locks.
    pub shared: Names,
    /// Keys with a mark of this transaction.
    pub marks: Set,
    /// The version of the leaf at its begin, with its own changes since.
    pub leaf_version: u8,
    /// Something that it read was not settled.
    pub saw_unsettled: bool,
    /// The transactions that were acknowledged when it began.
    pub acknowledged_before: Set,
}

impl Progress {
    /// Returns a transaction that has done nothing.
    #[must_use]
    pub fn new(phase: Phase) -> Progress {
        Progress {
            phase,
            completed: 0,
            is_halfway: false,
            snapshot: 0,
            csn: 0,
            dsn: 0,
            listed: Set::default(),
            observed: Set::default(),
            reads: [ReadVersion::None; KEYS],
            forgotten: Set::default(),
            changed: Set::default(),
            holds_exclusive: false,
            shared: Names::default(),
            marks: Set::default(),
            leaf_version: 0,
            saw_unsettled: false,
            acknowledged_before: Set::default(),
        }
    }

    /// Returns the version that it read of `key`.
    #[must_use]
    pub fn read(&self, key: Key) -> ReadVersion {
        self.reads[usize::from(key)]
    }

    /// Returns true if it has changes in pages that are not among the versions yet.
    #[must_use]
    pub fn is_in_progress(&self) -> bool {
        matches!(self.phase, Phase::Active | Phase::Announced | Phase::Validated | Phase::Undecided)
    }
}

/// The entry of a key in the tree.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Entry {
    /// The transactions with a visible version of the key, oldest first.
    pub versions: Vec<TransactionId>,
    /// The number of versions up to the last one that was purged as a tombstone.
    pub purged: usize,
}

/// A log.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Log {
    /// The transactions with a record, in the order of their CSNs.
    pub records: Vec<TransactionId>,
    /// The number of durable records.
    pub durable: usize,
}

impl Log {
    /// Returns the transactions with a durable record.
    #[must_use]
    pub fn durable_records(&self) -> &[TransactionId] {
        &self.records[..self.durable]
    }

    /// Returns the transaction whose record becomes durable next.
    #[must_use]
    pub fn first_volatile(&self) -> Option<TransactionId> {
        self.records.get(self.durable).copied()
    }
}

/// The whole machine. All entries are in one leaf.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// The next CSN to be drawn.
    pub next_csn: Csn,
    /// The highest CSN that a reported result showed.
    pub newest_acknowledged: Csn,
    /// Counts changes of the leaf, if the rules use leaf versions.
    pub leaf_version: u8,
    /// Per transaction.
    pub transactions: Vec<Progress>,
    /// Per key.
    pub entries: [Entry; KEYS],
    /// Per log.
    pub logs: Vec<Log>,
}

impl State {
    /// Returns the state before all transactions.
    #[must_use]
    pub fn new(scenario: &Scenario) -> State {
        State {
            next_csn: 1,
            newest_acknowledged: 0,
            leaf_version: 0,
            transactions: vec![Progress::new(Phase::Waiting); scenario.transactions.len()],
            entries: Default::default(),
            logs: vec![Log::default(); usize::from(scenario.logs)],
        }
    }

    /// Returns the state of `id`.
    #[must_use]
    pub fn progress(&self, id: TransactionId) -> &Progress {
        &self.transactions[usize::from(id)]
    }

    /// Returns the state of `id`, to be changed.
    pub fn progress_mut(&mut self, id: TransactionId) -> &mut Progress {
        &mut self.transactions[usize::from(id)]
    }

    /// Returns the CSN of `id`.
    #[must_use]
    pub fn csn(&self, id: TransactionId) -> Csn {
        self.progress(id).csn
    }

    /// Returns the entry of `key`.
    #[must_use]
    pub fn entry(&self, key: Key) -> &Entry {
        &self.entries[usize::from(key)]
    }

    /// Returns the entry of `key`, to be changed.
    pub fn entry_mut(&mut self, key: Key) -> &mut Entry {
        &mut self.entries[usize::from(key)]
    }

    /// Returns the log `id`.
    #[must_use]
    pub fn log(&self, id: LogId) -> &Log {
        &self.logs[usize::from(id)]
    }

    /// Returns the transactions of which `is_member` is true.
    #[must_use]
    pub fn those(&self, is_member: impl Fn(&Progress) -> bool) -> Set {
        let all = (0..).zip(&self.transactions);
        all.filter(|(_, progress)| is_member(progress)).map(|(id, _)| id).collect()
    }

    /// Returns the transaction other than `except` with a change of `key` in progress.
    #[must_use]
    pub fn in_progress(&self, key: Key, except: Option<TransactionId>) -> Option<TransactionId> {
        let mut all = (0..).zip(&self.transactions);
        let has = |id: TransactionId, other: &Progress| {
            Some(id) != except && other.changed.contains(key) && other.is_in_progress()
        };
        all.find(|(id, other)| has(*id, other)).map(|(id, _)| id)
    }

    /// Returns the versions that followed the one that `reader` read, oldest first.
    ///
    /// A version that was withdrawn has none.
    #[must_use]
    pub fn later_versions(&self, reader: TransactionId, key: Key) -> &[TransactionId] {
        let versions = &self.entry(key).versions;
        match self.progress(reader).read(key) {
            ReadVersion::None => &[],
            ReadVersion::Initial => versions,
            ReadVersion::Of(writer) => {
                let at = versions.iter().position(|version| *version == writer);
                at.map_or(&[], |at| &versions[at + 1..])
            }
        }
    }
}
