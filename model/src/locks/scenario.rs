//! Which transactions run, and by which rules?

pub use crate::scenario::{Key, LogId, TransactionId};
use crate::state::Set;

/// The number of keys.
pub const KEYS: usize = 3;

/// Returns all keys, ascending.
pub fn keys() -> impl DoubleEndedIterator<Item = Key> {
    0..KEYS as Key
}

/// One step of a program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// Reads a key, which may be absent.
    Read(Key),
    /// Inserts or updates a key.
    Write(Key),
    /// Deletes a key, which may be absent.
    Delete(Key),
    /// Reads all keys from the first to the second, which is excluded.
    Scan(Key, Key),
    /// Rolls back to a savepoint before all that the transaction did with the key.
    RollBack(Key),
}

/// How a transaction keeps its reads valid.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// Reads at a snapshot, remembers keys and gaps, and validates them at commit.
    Optimistic,
    /// Locks what it reads and reads the newest version.
    Pessimistic,
    /// Reads at the newest acknowledged CSN and validates nothing.
    ReadOnly,
}

/// A program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transaction {
    /// The log of the transaction's record.
    pub log: LogId,
    /// How the transaction keeps its reads valid.
    pub mode: Mode,
    /// Its operations, in order.
    pub operations: Vec<Operation>,
}

impl Transaction {
    /// Returns a transaction that logs to `log`.
    #[must_use]
    pub fn new(log: LogId, mode: Mode, operations: &[Operation]) -> Transaction {
        Transaction { log, mode, operations: operations.to_vec() }
    }

    /// Returns true if the last write of `key` is a delete.
    #[must_use]
    pub fn deletes(&self, key: Key) -> bool {
        let last = self.operations.iter().rev().find_map(|operation| match operation {
            Operation::Write(written) if *written == key => Some(false),
            Operation::Delete(deleted) if *deleted == key => Some(true),
            _ => None,
        });
        last.unwrap_or(false)
    }
}

/// When a committing transaction releases its locks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Release {
    /// At any time after its record is in the log buffer.
    Early,
    /// When it is acknowledged.
    Late,
    /// Every other transaction releases late.
    Mixed,
}

/// What a transaction waits for before it is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dependencies {
    /// The watermark passes the highest CSN that the transaction observed.
    Dsn,
    /// The transactions that it observed are committed.
    Exact,
}

/// How an optimistic transaction gets from its reads to its CSN.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CommitPath {
    /// No other transaction draws between the validation and the draw.
    Atomic,
    /// Draws and appends an undecided record, then validates as of this CSN. If the validation
    /// fails, the record becomes void.
    DrawFirst,
    /// Marks all that was read, validates, draws, and clears the marks. Writers wait for marks
    /// before they draw.
    Marks,
    /// Wrong: validates, then draws, with other transactions in between.
    ValidateFirst,
    /// Wrong: announces its writes, validates, then draws, as Silo does. An announced or active
    /// writer of what the transaction read is a conflict.
    AnnounceFirst,
}

/// What the locks of a pessimistic reader name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockNames {
    /// Intervals of keys, whether the keys are present or not.
    Intervals,
    /// Rows, and the gap below each entry of the tree. If an entry appears or leaves, the locks of
    /// its gap cover the gaps that result.
    NextKeys,
    /// Wrong: rows only.
    RowsOnly,
    /// Wrong: next keys, but no lock is transferred.
    NextKeysNotTransferred,
    /// Wrong: next keys, but an aborted insert transfers no lock.
    NextKeysNotTransferredOnAbort,
}

/// One mistake in otherwise right rules.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mistake {
    /// Validation skips keys that were absent.
    AbsentKeysNotValidated,
    /// Validation skips keys that a scan found absent.
    GapsNotValidated,
    /// Validation accepts an unchanged leaf version whatever was in progress when it was read.
    LeafVersionSuffices,
    /// Validation skips keys on which another transaction has a change in progress.
    OnlyNewestStampValidated,
    /// A tombstone is purged although a snapshot from before the delete exists.
    PurgeIgnoresPins,
    /// A tombstone is purged before it is durable.
    PurgeBeforeDurable,
    /// A rollback to a savepoint forgets reads and releases their locks.
    SavepointForgetsReads,
    /// An undecided record can become durable.
    UndecidedIsFlushed,
    /// Validation ignores undecided transactions with lower CSNs.
    LowerUndecidedNotAwaited,
    /// A reader takes an undecided version at or below its snapshot for nonexistent.
    UndecidedIsInvisible,
    /// Recovery takes a void record for a missing one.
    VoidIsMissing,
    /// A failed validation leaves its record valid.
    VoidIsForgotten,
    /// Shared locks are released before the draw.
    SharedReleasedBeforeDraw,
    /// All locks are released before the append.
    AllReleasedBeforeAppend,
    /// Optimistic writers ignore shared locks.
    OptimisticIgnoresShared,
    /// Pessimistic readers of a key ignore changes in progress.
    PessimisticIgnoresWriters,
    /// Pessimistic readers read at a snapshot from their begin.
    PessimisticReadsSnapshot,
    /// A scan reads, then locks.
    ScanReadsThenLocks,
    /// A writer checks the shared locks before it has latched the leaf.
    CheckedOutsideLatch,
    /// A reader does not depend on the delete that it found.
    TombstonesNotObserved,
    /// A writer does not depend on what it overwrites.
    OverwrittenNotObserved,
    /// Late release replaces dependencies.
    LateReleaseReplacesDependencies,
    /// A transaction is acknowledged when its own record is durable.
    OwnRecordSuffices,
    /// A result of a transaction without writes does not raise the newest acknowledged CSN.
    ReadsDoNotAcknowledge,
    /// A transaction without writes returns at once.
    ReadersDoNotWait,
}

/// The rules in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// When locks are released.
    pub release: Release,
    /// What an acknowledgment waits for, and what recovery judges by.
    pub dependencies: Dependencies,
    /// How optimistic transactions commit.
    pub commit: CommitPath,
    /// What shared locks name.
    pub names: LockNames,
    /// Validation accepts an unchanged leaf version if all that was read was settled.
    pub uses_leaf_versions: bool,
    /// What is wrong.
    pub mistake: Option<Mistake>,
}

impl Rules {
    /// Early release, DSN, draw first, intervals, no leaf versions.
    pub const CHOSEN: Rules = Rules {
        release: Release::Early,
        dependencies: Dependencies::Dsn,
        commit: CommitPath::DrawFirst,
        names: LockNames::Intervals,
        uses_leaf_versions: false,
        mistake: None,
    };

    /// Returns true if the rules contain `mistake`.
    #[must_use]
    pub fn contains(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }
}

/// What is explored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// The rules.
    pub rules: Rules,
    /// The transactions.
    pub transactions: Vec<Transaction>,
    /// The number of logs.
    pub logs: LogId,
    /// Keys that are absent at first.
    pub absent: Set,
}

impl Scenario {
    /// Returns a scenario with two logs and [the chosen rules](Rules::CHOSEN) in which key 2 is
    /// absent at first.
    #[must_use]
    pub fn new(transactions: Vec<Transaction>) -> Scenario {
        Scenario { rules: Rules::CHOSEN, transactions, logs: 2, absent: [2].into_iter().collect() }
    }

    /// Returns the scenario with other keys absent.
    #[must_use]
    pub fn with_absent(mut self, absent: &[Key]) -> Scenario {
        self.absent = absent.iter().copied().collect();
        self
    }

    /// Returns the scenario under other rules.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Rules)) -> Scenario {
        change(&mut self.rules);
        self
    }

    /// Returns the program of `id`.
    #[must_use]
    pub fn transaction(&self, id: TransactionId) -> &Transaction {
        &self.transactions[usize::from(id)]
    }

    /// Returns the mode of `id`.
    #[must_use]
    pub fn mode(&self, id: TransactionId) -> Mode {
        self.transaction(id).mode
    }

    /// Returns the identifiers of all transactions.
    pub fn ids(&self) -> impl Iterator<Item = TransactionId> + use<> {
        0..self.transactions.len() as TransactionId
    }

    /// Returns true if the rules contain `mistake`.
    #[must_use]
    pub fn makes(&self, mistake: Mistake) -> bool {
        self.rules.contains(mistake)
    }
}
