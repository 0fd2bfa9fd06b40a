//! The flags of `quench bench` that choose isolation and locks.

use anyhow::{Result, bail};
use clap::ValueEnum;
use quench_bench::plan::CommitMode;
use quench_bench::store::{Concurrency, Granularity, Level, Release};
use quenchdb::{Isolation, Locking};
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum IsolationArg {
    ReadCommitted,
    Snapshot,
    Serializable,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum LockingArg {
    /// A transaction fails when it meets another one, and is repeated
    Optimistic,
    /// A transaction waits for others
    Pessimistic,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum ReleaseArg {
    /// When the commit record is in the log buffer: early lock release
    PreCommit,
    /// When the commit record is durable: the classic baseline
    Commit,
    /// Early, and commits never wait for the log: the upper bound. A crash loses commits
    Unsafe,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum GranularityArg {
    /// The rows that it uses
    Row,
    /// Each table of which it changes a row: over-locking
    Table,
}

#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Isolation and locks")]
pub struct ConcurrencyArgs {
    /// What a transaction sees of others; default: snapshot
    #[arg(long, value_enum, value_name = "LEVEL")]
    isolation: Option<IsolationArg>,
    /// Whether a transaction fails or waits when it meets another one; default: optimistic
    #[arg(long, value_enum, value_name = "HOW")]
    locking: Option<LockingArg>,
    /// When a pessimistic transaction releases its locks; default: pre-commit
    #[arg(long, value_enum, value_name = "WHEN")]
    lock_release: Option<ReleaseArg>,
    /// What a pessimistic transaction locks before it changes a row; default: row
    #[arg(long, value_enum, value_name = "WHAT")]
    lock_granularity: Option<GranularityArg>,
    /// How long a transaction waits for one row or lock before it fails; default: the engine's, 1 s
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    lock_timeout_ms: Option<u64>,
}

impl ConcurrencyArgs {
    /// Returns one of these flags, if any was given.
    pub fn given(&self) -> Option<&'static str> {
        let flags = [
            ("--isolation", self.isolation.is_some()),
            ("--locking", self.locking.is_some()),
            ("--lock-release", self.lock_release.is_some()),
            ("--lock-granularity", self.lock_granularity.is_some()),
            ("--lock-timeout-ms", self.lock_timeout_ms.is_some()),
        ];
        flags.into_iter().find(|flag| flag.1).map(|flag| flag.0)
    }

    pub fn concurrency(&self) -> Concurrency {
        Concurrency {
            isolation: match self.isolation {
                Some(IsolationArg::ReadCommitted) => Isolation::ReadCommitted,
                None | Some(IsolationArg::Snapshot) => Isolation::Snapshot,
                Some(IsolationArg::Serializable) => Isolation::Serializable,
            },
            locking: match self.locking {
                None | Some(LockingArg::Optimistic) => Locking::Optimistic,
                Some(LockingArg::Pessimistic) => Locking::Pessimistic,
            },
            release: match self.lock_release {
                None | Some(ReleaseArg::PreCommit) => Release::PreCommit,
                Some(ReleaseArg::Commit) => Release::Commit,
                Some(ReleaseArg::Unsafe) => Release::Unsafe,
            },
            granularity: match self.lock_granularity {
                None | Some(GranularityArg::Row) => Granularity::Row,
                Some(GranularityArg::Table) => Granularity::Table,
            },
            lock_timeout: self.lock_timeout_ms.map(Duration::from_millis),
        }
    }

    /// Refuses a release of locks that does not go with the commits.
    pub fn check(&self, commit: CommitMode, level: Level) -> Result<()> {
        let Concurrency { locking, release, .. } = self.concurrency();
        let name = release.name();
        if self.lock_release.is_some() && locking == Locking::Optimistic {
            bail!("--lock-release {name} needs --locking pessimistic: optimistic transactions hold no locks");
        }
        if self.lock_granularity.is_some() && locking == Locking::Optimistic {
            bail!("--lock-granularity needs --locking pessimistic: optimistic transactions hold no locks");
        }
        if release == Release::PreCommit {
            return Ok(());
        }
        if commit == CommitMode::Async {
            bail!("--lock-release {name} contradicts --commit async: it is about the wait of a commit");
        }
        match release {
            Release::Commit if level != Level::Durable => {
                bail!(
                    "--lock-release commit needs --level durable: other commits never become durable in time"
                )
            }
            Release::Unsafe if level != Level::Durable => {
                bail!("--lock-release unsafe contradicts --level: its commits wait for nothing")
            }
            _ => Ok(()),
        }
    }
}
