//! Which transactions run, and by which rules.

/// A transaction's number in the scenario.
pub type TransactionId = u8;
/// A log.
pub type LogId = u8;
/// A row.
pub type Key = u8;
/// A run of the database between two recoveries; the first is 1.
pub type Epoch = u8;

/// When the commit is reported to the caller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// When it is committed.
    Durable,
    /// At once, after its record is in the log's buffer: order is promised, durability is not.
    BoundedLoss,
    /// When everything that it read is committed.
    ReadOnly,
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// The epoch in which it can run.
    pub epoch: Epoch,
    /// The log that its record goes to.
    pub log: LogId,
    /// When the commit is reported to the caller.
    pub kind: Kind,
    /// Rows that it reads.
    pub reads: &'static [Key],
    /// Rows that it reads and overwrites.
    pub writes: &'static [Key],
    /// Its writes are deletes.
    pub deletes: bool,
}

impl Transaction {
    /// A durable read-write transaction.
    #[must_use]
    pub fn durable(epoch: Epoch, log: LogId, reads: &'static [Key], writes: &'static [Key]) -> Self {
        Transaction { epoch, log, kind: Kind::Durable, reads, writes, deletes: false }
    }

    /// The same with bounded loss.
    #[must_use]
    pub fn bounded_loss(epoch: Epoch, log: LogId, reads: &'static [Key], writes: &'static [Key]) -> Self {
        Transaction { kind: Kind::BoundedLoss, ..Self::durable(epoch, log, reads, writes) }
    }

    /// A durable read-only transaction.
    #[must_use]
    pub fn read_only(epoch: Epoch, reads: &'static [Key]) -> Self {
        Transaction { kind: Kind::ReadOnly, ..Self::durable(epoch, 0, reads, &[]) }
    }

    /// A durable transaction that deletes.
    #[must_use]
    pub fn deleting(epoch: Epoch, log: LogId, writes: &'static [Key]) -> Self {
        Transaction { deletes: true, ..Self::durable(epoch, log, &[], writes) }
    }
}

/// Which transactions depend on which others are committed before a commit is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dependencies {
    /// The engine's rule: dsn < watermark, hence everything up to the highest direct predecessor.
    Dsn,
    /// Transaction level: its own CSN is below W. Recovery judges it by its DSN all the same.
    Csn,
    /// The engine's exact rule: the predecessors that its record lists are committed, whatever else
    /// is volatile. For recovery that judges by lists, too.
    Exact,
    /// The engine's rule GSN: all logs are durable up to its clock. For recovery that judges by
    /// lists.
    Gsn,
    /// The engine's rule GSN with RFA: the same, but one that met only what was changed through its
    /// own log waits for those before it in that log.
    GsnRfa,
    /// Wrong: as above, but such a transaction waits for nothing, as if all that it read were
    /// committed once it is durable.
    GsnRfaTransitive,
    /// Wrong: only the direct predecessors' own records are durable.
    DirectOnly,
}

/// Whether reading a page raises the transaction's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadersClock {
    /// The engine's rule: to the page's.
    Raised,
    /// Wrong: only writing does.
    Unchanged,
}

/// What a scan of the clocks does besides looking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockScan {
    /// The engine's rule: it raises all logs' clocks to the highest first.
    RaisesClocks,
    /// Wrong: nothing, so a log that was idle draws below what was found durable.
    OnlyLooks,
}

/// Which predecessors a record lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listed {
    /// The engine's rule: those that are not committed when it reads them.
    NotCommitted,
    /// Wrong: those whose own records are not durable then.
    Volatile,
}

/// Which whole records recovery takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judged {
    /// Those with a DSN below the first CSN that is missing.
    ByDsn,
    /// Those, and those of which it has taken all that they list.
    ByList,
    /// Wrong: it is enough that what they list is there.
    ByPresence,
}

/// What "durable" means for a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durable {
    /// The engine's rule: all blocks of its log up to its own are complete.
    GapFreePrefix,
    /// Wrong: a block of its log at or behind its own is complete.
    HighestCompletion,
}

/// What becomes of records that another log's worker writes with its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stealing {
    /// No worker steals: for scenarios about something else.
    Off,
    /// The engine's rule: they become the next block of their own log, in the same write, and stay
    /// in its slot until it is durable.
    OwnersBlock,
    /// Wrong: the log they were taken from has forgotten them, so its slot does not wait for them.
    Forgotten,
    /// Wrong: they are in the helper's block and count when its write completes, whatever precedes
    /// the block in the helper's log. Recovery reads the helper's log up to its first hole.
    HelpersBlockAlone,
    /// The same, but they count when all before is durable in the helper's log: right, too.
    HelpersBlockInOrder,
}

/// How the watermark is computed and what it relies on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WatermarkScan {
    /// In one indivisible step: for scenarios about something else.
    Atomic,
    /// The engine's rule: a log announces `slot := next_csn` before it draws; the scan loads G0 =
    /// next_csn, then the slots one by one; W = min(G0, slots).
    AnnounceBeforeDraw,
    /// Wrong: as above, but the slot is published only after the draw, with the record.
    PublishAfterDraw,
    /// Wrong: slots are announced, but an idle log counts as infinity and there is no G0.
    NoBound,
}

/// What the manifest remembers of discarded transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Voids {
    /// The engine's rule: their CSNs.
    Remembered,
    /// Wrong: nothing.
    Forgotten,
}

/// What recovery makes durable before it serves anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecoveryDurability {
    /// The engine's rule: flush all logs, and append again what may not have been durable.
    FlushAndReappend,
    /// Only the flush.
    FlushOnly,
    /// Only the copies (which are flushed themselves).
    ReappendOnly,
    /// Wrong: nothing, what can be read is taken for durable.
    Nothing,
}

/// What a pre-committed delete leaves behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tombstones {
    /// The engine's rule: a stamped tombstone, so that readers of the absence depend on the delete.
    Stamped,
    /// Wrong: nothing.
    Purged,
}

/// Which missing CSNs mean lost data (I10).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoredWatermark {
    /// The engine's rule: those strictly below a stored watermark.
    StrictlyBelow,
    /// Wrong: the one at the watermark too. It refuses healthy databases.
    AtOrBelow,
}

/// The rules in force.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// What must be committed before a commit is.
    pub dependencies: Dependencies,
    /// Whether reading raises the clock.
    pub readers_clock: ReadersClock,
    /// What a scan of the clocks does.
    pub clock_scan: ClockScan,
    /// What a record lists.
    pub listed: Listed,
    /// What recovery takes.
    pub judged: Judged,
    /// What "durable" means.
    pub durable: Durable,
    /// What becomes of stolen records.
    pub stealing: Stealing,
    /// How the watermark is computed.
    pub watermark: WatermarkScan,
    /// What is remembered of discarded transactions.
    pub voids: Voids,
    /// What recovery makes durable.
    pub recovery: RecoveryDurability,
    /// What a delete leaves behind.
    pub tombstones: Tombstones,
    /// Which missing CSNs mean lost data.
    pub lost_data: StoredWatermark,
    /// Read-only transactions wait until what they read is committed.
    pub read_only_waits: bool,
}

impl Rules {
    /// The engine's rules, with an atomic watermark.
    pub const ENGINE: Rules = Rules {
        dependencies: Dependencies::Dsn,
        readers_clock: ReadersClock::Raised,
        clock_scan: ClockScan::RaisesClocks,
        listed: Listed::NotCommitted,
        judged: Judged::ByDsn,
        durable: Durable::GapFreePrefix,
        stealing: Stealing::Off,
        watermark: WatermarkScan::Atomic,
        voids: Voids::Remembered,
        recovery: RecoveryDurability::FlushAndReappend,
        tombstones: Tombstones::Stamped,
        lost_data: StoredWatermark::StrictlyBelow,
        read_only_waits: true,
    };
}

/// What is explored.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The rules.
    pub rules: Rules,
    /// The transactions.
    pub transactions: Vec<Transaction>,
    /// Number of logs.
    pub logs: LogId,
    /// Number of rows.
    pub keys: Key,
    /// Block writes in flight at a time, per log.
    pub in_flight_max: usize,
    /// Crashes until the end of the story; recovery follows each.
    pub crashes: u8,
    /// The first crash is SIGKILL: the disk and its caches live on, writes in flight may land
    /// later. All others are power cuts.
    pub first_crash_is_kill: bool,
}

impl Scenario {
    /// Transactions by the engine's rules, with a crash after which a second epoch runs, and a
    /// second crash.
    #[must_use]
    pub fn new(transactions: Vec<Transaction>) -> Scenario {
        let logs = transactions.iter().map(|t| t.log + 1).max().unwrap_or(1);
        let rows = transactions.iter().flat_map(|t| t.reads.iter().chain(t.writes));
        let keys = rows.map(|key| key + 1).max().unwrap_or(1);
        Scenario {
            rules: Rules::ENGINE,
            transactions,
            logs,
            keys,
            in_flight_max: 2,
            crashes: 2,
            first_crash_is_kill: false,
        }
    }

    /// The same under other rules.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Rules)) -> Scenario {
        change(&mut self.rules);
        self
    }

    /// What `id` is.
    #[must_use]
    pub fn transaction(&self, id: TransactionId) -> &Transaction {
        &self.transactions[usize::from(id)]
    }

    /// All numbers.
    pub fn ids(&self) -> impl Iterator<Item = TransactionId> + use<> {
        0..self.transactions.len() as TransactionId
    }
}
