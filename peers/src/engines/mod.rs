//! The other engines, each with the settings that its documentation recommends for durable commits.
//!
//! | engine | a transaction | isolation | writers |
//! |---|---|---|---|
//! | `rocksdb` | `TransactionDB`: snapshot, row locks | snapshot | all threads, in groups |
//! | `sqlite` | `BEGIN IMMEDIATE` on a connection a thread | serializable | one thread at a time |
//! | `lmdb` | `mdb_txn_begin` | serializable | one thread at a time |
//! | `redb` | `begin_write` | serializable | one thread at a time |
//! | `fjall` | `OptimisticTxDatabase`, checked at commit | serializable | all threads |
//!
//! Rows are bytes in the engine's own kind of table: column families, tables without row ids, named
//! databases, keyspaces. An engine is open only inside [`Peers::open`], because most of them lend
//! their tables, sessions and transactions.

#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "sqlite")]
mod sqlite;

use anyhow::{Result, bail};
use quench_bench::engine::{Engine, Tier};
use quench_bench::peers::{Peers, Settings, Visit};
use quench_bench::store::{self, Error, Figures, Level, Step};
use std::path::Path;

/// The engines that this program was built with.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn;

impl Peers for BuiltIn {
    fn contains(&self, engine: Engine) -> bool {
        match engine {
            Engine::RocksDb => cfg!(feature = "rocksdb"),
            Engine::Sqlite => cfg!(feature = "sqlite"),
            Engine::Lmdb => cfg!(feature = "lmdb"),
            Engine::Redb => cfg!(feature = "redb"),
            Engine::Fjall => cfg!(feature = "fjall"),
            Engine::QuenchDb => false,
        }
    }

    fn open<V: Visit>(
        &self,
        engine: Engine,
        directory: &Path,
        settings: &Settings,
        visit: V,
    ) -> Result<V::Output> {
        match engine {
            #[cfg(feature = "rocksdb")]
            Engine::RocksDb => rocksdb::open(directory, settings, visit),
            #[cfg(feature = "sqlite")]
            Engine::Sqlite => sqlite::open(directory, settings, visit),
            #[cfg(feature = "lmdb")]
            Engine::Lmdb => lmdb::open(directory, settings, visit),
            #[cfg(feature = "redb")]
            Engine::Redb => redb::open(directory, settings, visit),
            #[cfg(feature = "fjall")]
            Engine::Fjall => fjall::open(directory, settings, visit),
            _ => bail!("this program was built without the peer {engine}"),
        }
    }
}

fn failed(error: impl Into<anyhow::Error>) -> Error {
    Error::Failed(error.into())
}

/// An engine's error that has a meaning for a workload.
trait StoreError {
    /// Returns `Conflict` if the transaction can be run again.
    fn into_store_error(self) -> Error;
}

trait OrStoreError<T> {
    fn or_store_error(self) -> store::Result<T>;
}

impl<T, E: StoreError> OrStoreError<T> for std::result::Result<T, E> {
    #[inline]
    fn or_store_error(self) -> store::Result<T> {
        self.map_err(E::into_store_error)
    }
}

/// Returns whether commits of this level have to be durable.
fn is_durable(engine: Engine, level: Level) -> Result<bool> {
    match level {
        Level::Durable => Ok(true),
        Level::Lazy => Ok(false),
        // RocksDB and fjall write their logs at each commit; what the others do is lazy.
        Level::Written if engine.tier(level) == Tier::Process => Ok(false),
        Level::Written => bail!("{engine} does not have the level written; choose durable or lazy"),
        Level::BoundedLoss => bail!("{engine} does not have the level bounded; choose durable or lazy"),
        _ => bail!("{engine} does not have the level {level:?}; choose durable or lazy"),
    }
}

/// Returns the figures of a peer: only how its durable commits work.
fn figures(engine: Engine) -> Figures {
    let durability = engine.commit_settings(Level::Durable).to_string();
    Figures { preset: "none".into(), durability, ..Figures::default() }
}

/// Passes `rows` to `each` until `each` breaks.
#[cfg(any(feature = "fjall", feature = "lmdb"))]
fn show<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    rows: impl Iterator<Item = store::Result<(K, V)>>,
    mut each: impl FnMut(&[u8], &[u8]) -> Step,
) -> store::Result<()> {
    for row in rows {
        let (key, value) = row?;
        if each(key.as_ref(), value.as_ref()).is_break() {
            break;
        }
    }
    Ok(())
}
