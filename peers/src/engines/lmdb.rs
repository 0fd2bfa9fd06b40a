//! LMDB behind the trait `Store`, through `heed`.
//!
//! Settings: its defaults, which are the durable ones. A commit writes the pages that changed,
//! calls `fdatasync`, and writes the meta page through a descriptor with `O_DSYNC`. There is one
//! writer at a time, so every commit is synced, whatever the level; readers never wait.
//!
//! Memory: the page cache of the operating system, without a bound of its own.

use super::{OrStoreError, StoreError, failed, figures, is_durable, show};
use anyhow::{Context, Result};
use heed::types::Bytes;
use heed::{CommitOrAbort, Env, EnvOpenOptions, RoTxn, RwTxn, WithTls};
use quench_bench::engine::Engine;
use quench_bench::peers::{Settings, Visit};
use quench_bench::store::{self, Error, Figures, Level, Reader, Session, Step, Store, Transaction, Waited};
use std::ops::Bound;
use std::path::Path;
use std::sync::Mutex;

type Table = heed::Database<'static, Bytes, Bytes>;

/// Addresses kept for the file, which is as long as its content. Valgrind has no more.
const MAP_BYTES: usize = 1 << 35;
/// Beside the threads that measure: those that fill and check.
const READERS_SPARE: u32 = 128;

impl StoreError for heed::Error {
    fn into_store_error(self) -> Error {
        failed(self)
    }
}

pub(super) fn open<V: Visit>(directory: &Path, settings: &Settings, visit: V) -> Result<V::Output> {
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES).max_dbs(settings.tables).max_readers(settings.threads as u32 + READERS_SPARE);
    // SAFETY: only this program uses the directory, so no other process changes the files while
    // they are mapped.
    let env = unsafe { options.open(directory) }
        .with_context(|| format!("lmdb cannot open {}", directory.display()))?;
    visit.visit(&LmdbStore { env: &env, creating: Mutex::new(()) })
}

struct LmdbStore<'e> {
    env: &'e Env<WithTls>,
    /// One at a time: LMDB names databases under a write transaction.
    creating: Mutex<()>,
}

fn bounds<'k>(from: &'k [u8], to: &'k [u8]) -> (Bound<&'k [u8]>, Bound<&'k [u8]>) {
    (Bound::Included(from), Bound::Excluded(to))
}

fn rows(
    transaction: &RoTxn<'_>,
    table: &Table,
    range: (Bound<&[u8]>, Bound<&[u8]>),
    each: impl FnMut(&[u8], &[u8]) -> Step,
) -> store::Result<()> {
    show(table.range(transaction, &range).or_store_error()?.map(OrStoreError::or_store_error), each)
}

fn rows_back(
    transaction: &RoTxn<'_>,
    table: &Table,
    range: (Bound<&[u8]>, Bound<&[u8]>),
    each: impl FnMut(&[u8], &[u8]) -> Step,
) -> store::Result<()> {
    show(table.rev_range(transaction, &range).or_store_error()?.map(OrStoreError::or_store_error), each)
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
                Ok(table.get(&self.0, key).or_store_error()?.map(f))
            }

            fn scan(
                &mut self,
                table: &Table,
                from: &[u8],
                to: &[u8],
                each: impl FnMut(&[u8], &[u8]) -> Step,
            ) -> store::Result<()> {
                rows(&self.0, table, bounds(from, to), each)
            }

            fn scan_back(
                &mut self,
                table: &Table,
                from: &[u8],
                to: &[u8],
                each: impl FnMut(&[u8], &[u8]) -> Step,
            ) -> store::Result<()> {
                rows_back(&self.0, table, bounds(from, to), each)
            }
        }
    };
}

struct LmdbReader<'e>(RoTxn<'e, WithTls>);
struct LmdbTransaction<'e>(RwTxn<'e>);

reads!(LmdbReader<'_>);
reads!(LmdbTransaction<'_>);

impl Transaction for LmdbTransaction<'_> {
    type Handle = Waited;

    #[inline]
    fn insert(&mut self, table: &Table, key: &[u8], value: &[u8]) -> store::Result<()> {
        table.put(&mut self.0, key, value).or_store_error()
    }

    fn pop_first(&mut self, table: &Table) -> store::Result<bool> {
        let first = table.first(&self.0).or_store_error()?.map(|(key, _)| key.to_vec());
        first.map_or(Ok(false), |key| self.remove(table, &key))
    }

    fn remove(&mut self, table: &Table, key: &[u8]) -> store::Result<bool> {
        table.delete(&mut self.0, key).or_store_error()
    }

    fn commit(self) -> store::Result<()> {
        self.0.commit().or_store_error()
    }

    fn commit_async(self) -> store::Result<Waited> {
        self.commit().map(|()| Waited)
    }

    fn abort(self) {
        self.0.abort();
    }
}

struct LmdbSession<'e> {
    env: &'e Env<WithTls>,
}

impl<'e> Session for LmdbSession<'e> {
    type Table = Table;
    type Handle = Waited;
    type Reader<'s>
        = LmdbReader<'e>
    where
        Self: 's;
    type Transaction<'s>
        = LmdbTransaction<'e>
    where
        Self: 's;

    fn begin(&mut self) -> store::Result<LmdbTransaction<'e>> {
        Ok(LmdbTransaction(self.env.write_txn().or_store_error()?))
    }

    fn begin_read(&mut self) -> store::Result<LmdbReader<'e>> {
        Ok(LmdbReader(self.env.read_txn().or_store_error()?))
    }
}

impl<'e> Store for LmdbStore<'e> {
    type Table = Table;
    type Session<'s>
        = LmdbSession<'e>
    where
        Self: 's;

    fn table(&self, name: &str) -> Result<Table> {
        let _one = self.creating.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let transaction = self.env.write_txn()?;
        let opened: std::result::Result<_, heed::Error> =
            self.env.create_databases_and_commit(transaction, |opener, transaction| {
                opener.create_database(transaction, Some(name)).map(CommitOrAbort::<_, ()>::Commit)
            });
        opened
            .with_context(|| format!("lmdb cannot create the database {name}"))?
            .commit()
            .with_context(|| format!("lmdb has not created the database {name}"))
    }

    fn session(&self, level: Level) -> Result<LmdbSession<'e>> {
        is_durable(Engine::Lmdb, level)?;
        Ok(LmdbSession { env: self.env })
    }

    fn make_durable(&self) -> Result<()> {
        // Each commit is durable.
        Ok(())
    }

    fn checkpoint(&self, _paced: bool) -> Result<()> {
        Ok(())
    }

    fn figures(&self) -> Figures {
        figures(Engine::Lmdb)
    }
}
