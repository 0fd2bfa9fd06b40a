//! Other engines behind the seam, each with the settings that its documentation recommends for durable commits.
//!
//! | engine | a transaction | isolation | who writes |
//! |---|---|---|---|
//! | [`rocksdb`] | `TransactionDB`, a snapshot at its begin, locks of rows | snapshot | all threads, the log in groups |
//! | [`sqlite`] | `BEGIN IMMEDIATE` on a connection a thread | serializable | one at a time |
//! | [`lmdb`] | `mdb_txn_begin` | serializable | one at a time |
//! | [`redb`] | `begin_write` | serializable | one at a time |
//! | [`fjall`] | `OptimisticTxDatabase`, checked at its commit | serializable | all threads, commits one at a time |
//!
//! Rows are bytes in tables of the engine's own kind: column families, tables without row ids, named databases, keyspaces.
//! An open engine lives inside [`open`], because tables, sessions and transactions of most of them borrow it.

mod fjall;
mod lmdb;
mod redb;
mod rocksdb;
mod sqlite;

use crate::engine::Engine;
use crate::store::{Error, Figures, Level, Step, Store};
use anyhow::{Result, bail};
use std::path::Path;

/// What all of them are opened with.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Memory for pages and buffers, as far as the engine lets it be chosen.
    pub memory_bytes: u64,
    /// That is a bound: an engine that can reads past the page cache.
    pub bounded: bool,
    /// Threads that will have a session.
    pub threads: usize,
}

/// What is done with an open store.
pub trait Visit {
    /// What it gives.
    type Output;

    /// Does it.
    ///
    /// # Errors
    /// Its own.
    fn visit<S: Store>(self, store: &S) -> Result<Self::Output>;
}

/// Opens `engine` in `directory`, creates it if it is missing, has `visit` work with it, and closes it.
///
/// # Errors
/// Those of the engine and of `visit`; it is no peer.
pub fn open<V: Visit>(engine: Engine, directory: &Path, settings: &Settings, visit: V) -> Result<V::Output> {
    match engine {
        Engine::RocksDb => rocksdb::open(directory, settings, visit),
        Engine::Sqlite => sqlite::open(directory, settings, visit),
        Engine::Lmdb => lmdb::open(directory, settings, visit),
        Engine::Redb => redb::open(directory, settings, visit),
        Engine::Fjall => fjall::open(directory, settings, visit),
        Engine::QuenchDb => bail!("quenchdb is no peer of itself"),
    }
}

fn failed(error: impl Into<anyhow::Error>) -> Error {
    Error::Failed(error.into())
}

/// Whether the commits of a session of this level are to be durable.
fn is_durable(engine: Engine, level: Level) -> Result<bool> {
    match level {
        Level::Durable => Ok(true),
        Level::Lazy => Ok(false),
        Level::BoundedLoss => {
            bail!("{engine} has no commits that lose at most a time; levels: durable, lazy")
        }
    }
}

/// What a peer says of itself: nothing but how its durable commits work.
fn figures(engine: Engine) -> Figures {
    let durability = engine.commit_settings(Level::Durable).to_string();
    Figures { preset: "none".into(), durability, ..Figures::default() }
}

/// Shows `rows` to `each` until it breaks off.
fn show<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    rows: impl Iterator<Item = crate::store::Result<(K, V)>>,
    mut each: impl FnMut(&[u8], &[u8]) -> Step,
) -> crate::store::Result<()> {
    for row in rows {
        let (key, value) = row?;
        if each(key.as_ref(), value.as_ref()).is_break() {
            break;
        }
    }
    Ok(())
}

/// Replaces the content of `value` by what was found, if anything was.
fn take(found: Option<&[u8]>, value: &mut Vec<u8>) -> bool {
    let Some(found) = found else { return false };
    value.clear();
    value.extend_from_slice(found);
    true
}
