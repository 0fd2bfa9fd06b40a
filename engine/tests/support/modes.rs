//! The modes of transactions whose histories are judged: isolation, locking, and lock release.

use quench_checker::Level;
use quenchdb::internals::base::random::Random;
use quenchdb::{
    Csn, Durability, Isolation, LockMode, LockRelease, Locking, Result, Table, Transaction,
    TransactionOptions,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Snapshot,
    SnapshotLocking,
    Serializable,
    SerializableLocking,
    /// Serializable and locking; keeps its locks until its commit is durable.
    LateRelease,
}

/// The modes that may be together in one serializable history.
pub const SERIALIZABLE: &[Mode] = &[Mode::Serializable, Mode::SerializableLocking, Mode::LateRelease];

pub const ALL_MODES: &[Mode] = &[
    Mode::Snapshot,
    Mode::SnapshotLocking,
    Mode::Serializable,
    Mode::SerializableLocking,
    Mode::LateRelease,
];

impl Mode {
    /// Returns one of `modes`.
    pub fn any(modes: &[Mode], random: &mut Random) -> Mode {
        modes[random.below(modes.len() as u64) as usize]
    }

    /// Returns the level at which transactions are judged.
    pub fn level(self) -> Level {
        match self {
            Mode::Snapshot | Mode::SnapshotLocking => Level::Snapshot,
            Mode::Serializable | Mode::SerializableLocking | Mode::LateRelease => Level::Serializable,
        }
    }

    /// Returns `durability`, or the only one that the mode allows.
    pub fn durability(self, durability: Durability) -> Durability {
        if self == Mode::LateRelease { Durability::Durable } else { durability }
    }

    /// Returns whether a commit may return before it is durable, with a handle.
    pub fn allows_handles(self) -> bool {
        self != Mode::LateRelease
    }

    pub fn options(self, durability: Durability) -> TransactionOptions {
        let isolation = match self.level() {
            Level::Snapshot => Isolation::Snapshot,
            Level::Serializable => Isolation::Serializable,
        };
        let options = TransactionOptions::new().isolation(isolation).durability(self.durability(durability));
        match self {
            Mode::Snapshot | Mode::Serializable => options,
            Mode::SnapshotLocking | Mode::SerializableLocking => options.locking(Locking::Pessimistic),
            Mode::LateRelease => options.locking(Locking::Pessimistic).lock_release(LockRelease::Commit),
        }
    }

    /// Returns options of a transaction that is declared read-only.
    pub fn read_only(self) -> TransactionOptions {
        let serializable = TransactionOptions::new().isolation(Isolation::Serializable);
        match self.level() {
            Level::Snapshot => TransactionOptions::new().read_only(),
            Level::Serializable => serializable.read_only(),
        }
    }
}

/// Reads a row in one of the ways that exist: without a lock, or with a shared or exclusive one.
pub fn get_somehow(
    tx: &mut Transaction,
    table: &Table,
    key: impl AsRef<[u8]>,
    random: &mut Random,
) -> Result<Option<Vec<u8>>> {
    match random.below(8) {
        0 => tx.get_for_share(table, key),
        1 | 2 => tx.get_for_update(table, key),
        _ => tx.get(table, key),
    }
}

/// Locks the table, rarely.
pub fn lock_table_rarely(tx: &mut Transaction, table: &Table, random: &mut Random) -> Result<()> {
    match random.below(160) {
        0 | 1 => tx.lock_table(table, LockMode::Shared),
        2 => tx.lock_table(table, LockMode::Exclusive),
        _ => Ok(()),
    }
}

/// When a commit was acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acknowledged {
    /// Never: the changes are visible to other transactions.
    Never,
    /// When the call returned; a crash may lose the commit.
    Visible,
    /// When the call returned; the commit must survive a crash.
    Durable,
}

/// Commits with a handle or without. Returns the CSN.
pub fn commit_somehow(
    tx: Transaction,
    mode: Mode,
    durability: Durability,
    random: &mut Random,
) -> Result<(Csn, Acknowledged)> {
    let way = random.below(10);
    if way < 2 && mode.allows_handles() {
        let handle = tx.commit_async()?;
        if way == 0 {
            return Ok((handle.csn(), Acknowledged::Never));
        }
        handle.wait()?;
        return Ok((handle.csn(), Acknowledged::Durable));
    }
    let is_durable = mode.durability(durability) == Durability::Durable;
    Ok((tx.commit()?, if is_durable { Acknowledged::Durable } else { Acknowledged::Visible }))
}
