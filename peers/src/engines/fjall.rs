//! fjall behind the trait `Store`: `OptimisticTxDatabase`.
//!
//! Settings: its defaults, and `PersistMode::SyncAll` for the commit, which writes the transaction
//! to the journal and calls `fsync` before it returns. Transactions run beside each other and are
//! checked at their commits, which happen one after the other.
//!
//! Memory: a cache of the bytes given; memtables beside it, and the page cache of the operating
//! system.

use super::{OrStoreError, StoreError, failed, figures, is_durable, show};
use anyhow::{Context, Result};
use fjall::{
    Guard, KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace, OptimisticWriteTx, PersistMode,
    Readable, Snapshot,
};
use quench_bench::engine::Engine;
use quench_bench::peers::{Settings, Visit};
use quench_bench::store::{self, Error, Figures, Level, Reader, Session, Step, Store, Transaction, Waited};
use std::path::Path;

type Table = OptimisticTxKeyspace;

impl StoreError for fjall::Error {
    fn into_store_error(self) -> Error {
        failed(self)
    }
}

pub(super) fn open<V: Visit>(directory: &Path, settings: &Settings, visit: V) -> Result<V::Output> {
    let database = OptimisticTxDatabase::builder(directory)
        .cache_size(settings.memory_bytes)
        .open()
        .with_context(|| format!("fjall cannot open {}", directory.display()))?;
    let output = visit.visit(&FjallStore { database: &database })?;
    database.persist(PersistMode::SyncAll).context("fjall cannot sync its journal")?;
    Ok(output)
}

struct FjallStore<'d> {
    database: &'d OptimisticTxDatabase,
}

struct FjallReader(Snapshot);
struct FjallTransaction(OptimisticWriteTx);

fn row(guard: Guard) -> store::Result<(fjall::UserKey, fjall::UserValue)> {
    guard.into_inner().or_store_error()
}

macro_rules! reads {
    ($type:ty) => {
        impl Reader for $type {
            type Table = Table;

            #[inline]
            fn get_with<V>(
                &mut self,
                table: &Table,
                key: &[u8],
                f: impl FnOnce(&[u8]) -> V,
            ) -> store::Result<Option<V>> {
                Ok(self.0.get(table, key).or_store_error()?.as_deref().map(f))
            }

            fn scan(
                &mut self,
                table: &Table,
                from: &[u8],
                to: &[u8],
                each: impl FnMut(&[u8], &[u8]) -> Step,
            ) -> store::Result<()> {
                show(self.0.range(table, from..to).map(row), each)
            }

            fn scan_back(
                &mut self,
                table: &Table,
                from: &[u8],
                to: &[u8],
                each: impl FnMut(&[u8], &[u8]) -> Step,
            ) -> store::Result<()> {
                show(self.0.range(table, from..to).rev().map(row), each)
            }
        }
    };
}

reads!(FjallReader);
reads!(FjallTransaction);

impl Transaction for FjallTransaction {
    type Handle = Waited;

    #[inline]
    fn insert(&mut self, table: &Table, key: &[u8], value: &[u8]) -> store::Result<()> {
        self.0.insert(table, key, value);
        Ok(())
    }

    fn pop_first(&mut self, table: &Table) -> store::Result<bool> {
        let first = self.0.first_key_value(table).map(|first| first.key().or_store_error()).transpose()?;
        Ok(first.is_some_and(|key| {
            self.0.remove(table, key);
            true
        }))
    }

    fn remove(&mut self, table: &Table, key: &[u8]) -> store::Result<bool> {
        let there = self.0.contains_key(table, key).or_store_error()?;
        if there {
            self.0.remove(table, key);
        }
        Ok(there)
    }

    #[inline]
    fn commit(self) -> store::Result<()> {
        self.0.commit().or_store_error()?.map_err(|fjall::Conflict| Error::Conflict)
    }

    fn commit_async(self) -> store::Result<Waited> {
        self.commit().map(|()| Waited)
    }

    fn abort(self) {
        self.0.rollback();
    }
}

struct FjallSession<'d> {
    database: &'d OptimisticTxDatabase,
    mode: PersistMode,
}

impl Session for FjallSession<'_> {
    type Table = Table;
    type Handle = Waited;
    type Reader<'s>
        = FjallReader
    where
        Self: 's;
    type Transaction<'s>
        = FjallTransaction
    where
        Self: 's;

    #[inline]
    fn begin(&mut self) -> store::Result<FjallTransaction> {
        Ok(FjallTransaction(self.database.write_tx().or_store_error()?.durability(Some(self.mode))))
    }

    fn begin_read(&mut self) -> store::Result<FjallReader> {
        Ok(FjallReader(self.database.read_tx()))
    }
}

impl<'d> Store for FjallStore<'d> {
    type Table = Table;
    type Session<'s>
        = FjallSession<'d>
    where
        Self: 's;

    fn table(&self, name: &str) -> Result<Table> {
        self.database
            .keyspace(name, KeyspaceCreateOptions::default)
            .with_context(|| format!("fjall cannot create the keyspace {name}"))
    }

    fn session(&self, level: Level) -> Result<FjallSession<'d>> {
        let durable = is_durable(Engine::Fjall, level)?;
        let mode = if durable { PersistMode::SyncAll } else { PersistMode::Buffer };
        Ok(FjallSession { database: self.database, mode })
    }

    fn make_durable(&self) -> Result<()> {
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }

    fn checkpoint(&self, _paced: bool) -> Result<()> {
        // It flushes memtables when they are full, and has no call for it.
        self.make_durable()
    }

    fn figures(&self) -> Figures {
        figures(Engine::Fjall)
    }
}
