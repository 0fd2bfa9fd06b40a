//! The engines that a workload can run on, and what an acknowledged commit of each is worth.
//!
//! All of them implement [`Store`](crate::store::Store). The engines other than QuenchDB are the
//! *peers*; only the crate `quench-peers` contains them.

use crate::store::Level;
use std::fmt;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// QuenchDB.
    QuenchDb,
    /// RocksDB, `TransactionDB`: an LSM tree with a log, by pessimistic locks.
    RocksDb,
    /// SQLite with a write-ahead log: a B-tree, one writer.
    Sqlite,
    /// LMDB: a B+-tree copied on write and mapped into memory, one writer.
    Lmdb,
    /// redb: a B-tree copied on write, one writer.
    Redb,
    /// fjall, `OptimisticTxDatabase`: an LSM tree with a journal.
    Fjall,
}

/// What an acknowledged commit survives, from the strongest to the weakest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Tier {
    /// A power cut: the commit was flushed, or written to a device that needs no flush.
    Power,
    /// A crash of the machine: the commit is in a volatile cache of the device.
    Machine,
    /// A crash of the process: the commit is in the page cache.
    Process,
    /// A crash of the process loses the commits of at most a short time.
    Window,
    /// A crash of the process may lose the commit.
    Nothing,
}

impl Tier {
    /// Returns the name in reports and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Tier::Power => "power cut",
            Tier::Machine => "machine crash",
            Tier::Process => "process crash",
            Tier::Window => "loss window",
            Tier::Nothing => "nothing",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Engine {
    /// All engines in the order of tables.
    pub const ALL: [Engine; 6] =
        [Engine::QuenchDb, Engine::RocksDb, Engine::Sqlite, Engine::Lmdb, Engine::Redb, Engine::Fjall];

    /// Returns the name on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Engine::QuenchDb => "quenchdb",
            Engine::RocksDb => "rocksdb",
            Engine::Sqlite => "sqlite",
            Engine::Lmdb => "lmdb",
            Engine::Redb => "redb",
            Engine::Fjall => "fjall",
        }
    }

    /// Returns the engine with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Engine> {
        Engine::ALL.into_iter().find(|engine| engine.name() == name)
    }

    /// Returns what an acknowledged commit of this level survives, on a device whose flushes work.
    /// QuenchDB with trust in a volatile cache has [`Tier::Machine`] instead of [`Tier::Power`].
    #[must_use]
    pub fn tier(self, level: Level) -> Tier {
        match (self, level) {
            (_, Level::Durable) | (Engine::Lmdb, _) => Tier::Power,
            (Engine::QuenchDb, Level::BoundedLoss) => Tier::Window,
            (Engine::QuenchDb, Level::Written) => Tier::Process,
            (Engine::QuenchDb | Engine::Redb, _) => Tier::Nothing,
            (Engine::RocksDb | Engine::Sqlite | Engine::Fjall, _) => Tier::Process,
        }
    }

    /// Returns how a peer makes a commit of this level durable, for reports.
    #[must_use]
    pub fn commit_settings(self, level: Level) -> &'static str {
        match (self, level == Level::Durable) {
            (Engine::QuenchDb, _) => "",
            (Engine::RocksDb, true) => "WAL, sync=true: fdatasync for each group of writers",
            (Engine::RocksDb, false) => "WAL, sync=false: written, not synced",
            (Engine::Sqlite, true) => "WAL, synchronous=FULL: the log is synced at each commit",
            (Engine::Sqlite, false) => "WAL, synchronous=NORMAL: synced at checkpoints only",
            (Engine::Lmdb, _) => "fdatasync of the pages, then the meta page with O_DSYNC",
            (Engine::Redb, true) => "Durability::Immediate, one phase: fdatasync at each commit",
            (Engine::Redb, false) => "Durability::None: with the next immediate commit",
            (Engine::Fjall, true) => "PersistMode::SyncAll: fsync of the journal at each commit",
            (Engine::Fjall, false) => "PersistMode::Buffer: written to the journal, not synced",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests;
