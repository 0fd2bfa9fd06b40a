//! What is in memory, and what on the disk.

use crate::clocks::{Clocks, TransactionClock};
use crate::scenario::{Epoch, LogId, Scenario, TransactionId};

/// A commit sequence number; 0 = before everything.
pub type Csn = u8;

/// A set of small numbers: transactions, or CSNs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Set(u32);

impl Set {
    /// Returns true if `member` is in the set.
    #[must_use]
    pub fn contains(self, member: u8) -> bool {
        self.0 >> member & 1 == 1
    }

    /// Adds `member`.
    pub fn insert(&mut self, member: u8) {
        self.0 |= 1 << member;
    }

    /// Removes `member`.
    pub fn remove(&mut self, member: u8) {
        self.0 &= !(1 << member);
    }

    /// Returns the members of either set.
    #[must_use]
    pub fn union(self, other: Set) -> Set {
        Set(self.0 | other.0)
    }

    /// Returns the members of both sets.
    #[must_use]
    pub fn intersection(self, other: Set) -> Set {
        Set(self.0 & other.0)
    }

    /// Returns true if no member is in both sets.
    #[must_use]
    pub fn is_disjoint(self, other: Set) -> bool {
        self.0 & other.0 == 0
    }

    /// Returns true if each member is in `other`.
    #[must_use]
    pub fn is_subset_of(self, other: Set) -> bool {
        self.0 & !other.0 == 0
    }

    /// Returns true if the set has no member.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The members, ascending.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..32).filter(move |member| self.contains(*member))
    }
}

impl FromIterator<u8> for Set {
    fn from_iter<I: IntoIterator<Item = u8>>(members: I) -> Set {
        let mut set = Set::default();
        members.into_iter().for_each(|member| set.insert(member));
        set
    }
}

impl std::fmt::Debug for Set {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// How far a transaction has come. Read-only ones go from `Active` to `Acknowledged`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Phase {
    /// Not begun.
    Waiting,
    /// It has read, and holds its locks.
    Active,
    /// Its log's slot is announced.
    Announced,
    /// It has a CSN, and no record yet.
    Drawn,
    /// Its record is in the log's buffer, its writes are visible.
    Ready,
    /// The commit was reported (durable and read-only transactions only).
    Acknowledged,
}

/// The state of a transaction.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Progress {
    /// How far it is.
    pub phase: Phase,
    /// The epoch in which it ran.
    pub epoch: Epoch,
    /// Its CSN, once drawn.
    pub csn: Csn,
    /// The highest CSN of what it knows that it read or overwrote.
    pub dsn: Csn,
    /// The watermark stored in its record.
    pub stored_watermark: Csn,
    /// Its predecessors as far as it knows.
    pub known_predecessors: Set,
    /// Of them, those that its record lists.
    pub listed: Set,
    /// Its clock.
    pub clock: TransactionClock,
    /// All transactions whose effect it saw: also a delete of which it found no trace.
    pub predecessors: Set,
}

/// What a crash left of a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BlockState {
    /// Being written.
    InFlight,
    /// Survives a power cut.
    Durable,
    /// Can be read, but a power cut may take it: written before a kill, in a volatile cache.
    Cached,
    /// In flight at a kill; may still reach the disk.
    Late,
    /// Never arrived.
    Lost,
}

/// One log write.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Block {
    /// The epoch that wrote it.
    pub epoch: Epoch,
    /// The transactions whose records it holds; of earlier epochs if they were appended again.
    pub records: Vec<TransactionId>,
    /// What is left of it.
    pub state: BlockState,
    /// The block of another log that is in the same write.
    pub with: Option<(LogId, usize)>,
}

impl Block {
    /// True if a scan finds it.
    #[must_use]
    pub fn can_be_read(&self) -> bool {
        matches!(self.state, BlockState::Durable | BlockState::Cached)
    }
}

/// What survives everything.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Manifest {
    /// The epoch that runs.
    pub epoch: Epoch,
    /// The CSN that it started with.
    pub first_csn: Csn,
    /// For each ended epoch and log: how many of its blocks count.
    pub accepted: Vec<Vec<u8>>,
    /// CSNs that were discarded.
    pub voids: Set,
}

/// A watermark scan between two loads.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Scan {
    /// The log whose slot is loaded next.
    pub next_log: LogId,
    /// next_csn, loaded first.
    pub bound: Csn,
    /// The lowest slot so far.
    pub lowest: Csn,
}

/// What must never happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Violation {
    /// A durable commit that was reported is gone.
    AcknowledgedLost,
    /// A transaction was recovered without one whose effect it saw.
    NotClosed,
    /// A second recovery of the same bytes gives another result.
    NotRepeatable,
    /// A transaction that a recovery discarded is back.
    Resurrected,
    /// A result of a read-only transaction was reported, and what it saw is gone.
    ReadOnlyLost,
    /// Recovery says that data is lost, and it is not.
    HealthyRefused,
    /// A recovery served it, the next one lost it.
    ServedLost,
}

/// The whole machine.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// The next CSN to be drawn.
    pub next_csn: Csn,
    /// Per transaction.
    pub transactions: Vec<Progress>,
    /// Per row: its writers, oldest first.
    pub versions: Vec<Vec<TransactionId>>,
    /// Per row: the writer that has not reached `Ready`.
    pub locks: Vec<Option<TransactionId>>,
    /// Per log: the announced slot.
    pub announced: Vec<Option<Csn>>,
    /// Per log: records not yet in a block.
    pub buffers: Vec<Vec<TransactionId>>,
    /// Per log: its blocks.
    pub disk: Vec<Vec<Block>>,
    /// Records of this epoch that another log's worker wrote.
    pub stolen: Set,
    /// The manifest.
    pub manifest: Manifest,
    /// The scan in progress.
    pub scan: Option<Scan>,
    /// The result of the last scan.
    pub watermark: Csn,
    /// Of pages and logs.
    pub clocks: Clocks,
    /// Newest CSN of which a caller knows; read-only transactions start there.
    pub newest_reported: Csn,
    /// Durable commits that were reported.
    pub acknowledged: Set,
    /// Transactions whose effects a reported read-only result showed.
    pub observed: Set,
    /// What the last recovery replayed.
    pub recovered: Set,
    /// What any recovery discarded.
    pub discarded: Set,
    /// Crashes so far.
    pub crashes: u8,
    /// What went wrong, once something did.
    pub violation: Option<Violation>,
}

impl State {
    /// An empty database.
    #[must_use]
    pub fn new(scenario: &Scenario) -> State {
        let logs = usize::from(scenario.logs);
        let waiting = Progress {
            phase: Phase::Waiting,
            epoch: 0,
            csn: 0,
            dsn: 0,
            stored_watermark: 0,
            known_predecessors: Set::default(),
            listed: Set::default(),
            clock: TransactionClock::default(),
            predecessors: Set::default(),
        };
        State {
            next_csn: 1,
            transactions: vec![waiting; scenario.transactions.len()],
            versions: vec![Vec::new(); usize::from(scenario.keys)],
            locks: vec![None; usize::from(scenario.keys)],
            announced: vec![None; logs],
            buffers: vec![Vec::new(); logs],
            disk: vec![Vec::new(); logs],
            stolen: Set::default(),
            manifest: Manifest { epoch: 1, first_csn: 1, accepted: Vec::new(), voids: Set::default() },
            scan: None,
            watermark: 1,
            clocks: Clocks::new(logs, usize::from(scenario.keys)),
            newest_reported: 0,
            acknowledged: Set::default(),
            observed: Set::default(),
            recovered: Set::default(),
            discarded: Set::default(),
            crashes: 0,
            violation: None,
        }
    }

    /// The state of `id`.
    #[must_use]
    pub fn progress(&self, id: TransactionId) -> &Progress {
        &self.transactions[usize::from(id)]
    }

    /// The state of `id`, to be changed.
    pub fn progress_mut(&mut self, id: TransactionId) -> &mut Progress {
        &mut self.transactions[usize::from(id)]
    }

    /// True if `id` runs in the current epoch.
    #[must_use]
    pub fn is_current(&self, id: TransactionId) -> bool {
        self.progress(id).epoch == self.manifest.epoch
    }
}
