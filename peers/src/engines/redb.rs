//! redb behind the trait `Store`.
//!
//! Settings: its defaults. `Durability::Immediate`, one phase: a commit writes the pages that
//! changed with their checksums and the commit slot, then calls `fdatasync`. There is one writer at
//! a time; readers never wait. A snapshot opens a table at its first read of it. A transaction that
//! writes opens it for each operation, or for all rows of `insert_all`: an open table borrows it.
//!
//! Memory: a cache of the bytes given, beside the page cache of the operating system.

use super::{OrStoreError, StoreError, failed, figures, is_durable};
use anyhow::{Context, Result};
use quench_bench::engine::Engine;
use quench_bench::peers::{Settings, Visit};
use quench_bench::store::{self, Error, Figures, Level, Reader, Session, Step, Store, Transaction, Waited};
use redb::{
    Database, Durability, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition,
    WriteTransaction,
};
use std::path::Path;
use std::sync::Arc;

/// Where the database is in its directory.
const FILE: &str = "data.redb";

macro_rules! fails {
    ($($error:ident),*) => { $(
        impl StoreError for redb::$error {
            fn into_store_error(self) -> Error {
                failed(self)
            }
        }
    )* };
}

fails!(StorageError, TableError, TransactionError, CommitError, SetDurabilityError);

pub(super) fn open<V: Visit>(directory: &Path, settings: &Settings, visit: V) -> Result<V::Output> {
    let path = directory.join(FILE);
    let database = Database::builder()
        .set_cache_size(usize::try_from(settings.memory_bytes).unwrap_or(usize::MAX))
        .create(&path)
        .with_context(|| format!("redb cannot open {}", path.display()))?;
    visit.visit(&RedbStore { database: &database })
}

struct RedbStore<'d> {
    database: &'d Database,
}

/// By name; the engine finds it in each transaction.
#[derive(Clone, Debug)]
struct Table(Arc<str>);

impl Table {
    fn definition(&self) -> TableDefinition<'_, &'static [u8], &'static [u8]> {
        TableDefinition::new(&self.0)
    }
}

type ReadTable = ReadOnlyTable<&'static [u8], &'static [u8]>;
type WriteTable<'t> = redb::Table<'t, &'static [u8], &'static [u8]>;

struct RedbReader {
    transaction: ReadTransaction,
    /// Those read so far, with their names.
    tables: Vec<(Arc<str>, ReadTable)>,
}

struct RedbTransaction(WriteTransaction);

impl RedbReader {
    #[inline]
    fn opened(&mut self, table: &Table) -> store::Result<&ReadTable> {
        let place = match self.tables.iter().position(|(name, _)| *name == table.0) {
            Some(place) => place,
            None => {
                let opened = self.transaction.open_table(table.definition()).or_store_error()?;
                self.tables.push((table.0.clone(), opened));
                self.tables.len() - 1
            }
        };
        Ok(&self.tables[place].1)
    }
}

impl RedbTransaction {
    fn opened(&mut self, table: &Table) -> store::Result<WriteTable<'_>> {
        self.0.open_table(table.definition()).or_store_error()
    }
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
                let opened = self.opened(table)?;
                let found = opened.get(key).or_store_error()?;
                Ok(found.map(|found| f(found.value())))
            }

            fn scan(
                &mut self,
                table: &Table,
                from: &[u8],
                to: &[u8],
                mut each: impl FnMut(&[u8], &[u8]) -> Step,
            ) -> store::Result<()> {
                for row in self.opened(table)?.range::<&[u8]>(from..to).or_store_error()? {
                    let (key, value) = row.or_store_error()?;
                    if each(key.value(), value.value()).is_break() {
                        break;
                    }
                }
                Ok(())
            }

            fn scan_back(
                &mut self,
                table: &Table,
                from: &[u8],
                to: &[u8],
                mut each: impl FnMut(&[u8], &[u8]) -> Step,
            ) -> store::Result<()> {
                for row in self.opened(table)?.range::<&[u8]>(from..to).or_store_error()?.rev() {
                    let (key, value) = row.or_store_error()?;
                    if each(key.value(), value.value()).is_break() {
                        break;
                    }
                }
                Ok(())
            }
        }
    };
}

reads!(RedbReader);
reads!(RedbTransaction);

impl Transaction for RedbTransaction {
    type Handle = Waited;

    fn insert(&mut self, table: &Table, key: &[u8], value: &[u8]) -> store::Result<()> {
        self.opened(table)?.insert(key, value).or_store_error()?;
        Ok(())
    }

    fn insert_all<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        table: &Table,
        rows: impl Iterator<Item = (K, V)>,
    ) -> store::Result<()> {
        let mut opened = self.opened(table)?;
        for (key, value) in rows {
            opened.insert(key.as_ref(), value.as_ref()).or_store_error()?;
        }
        Ok(())
    }

    fn pop_first(&mut self, table: &Table) -> store::Result<bool> {
        Ok(self.opened(table)?.pop_first().or_store_error()?.is_some())
    }

    fn remove(&mut self, table: &Table, key: &[u8]) -> store::Result<bool> {
        Ok(self.opened(table)?.remove(key).or_store_error()?.is_some())
    }

    fn commit(self) -> store::Result<()> {
        self.0.commit().or_store_error()
    }

    fn commit_async(self) -> store::Result<Waited> {
        self.commit().map(|()| Waited)
    }

    fn abort(self) {
        // Dropping it discards what it wrote.
        drop(self);
    }
}

struct RedbSession<'d> {
    database: &'d Database,
    durability: Durability,
}

impl Session for RedbSession<'_> {
    type Table = Table;
    type Handle = Waited;
    type Reader<'s>
        = RedbReader
    where
        Self: 's;
    type Transaction<'s>
        = RedbTransaction
    where
        Self: 's;

    fn begin(&mut self) -> store::Result<RedbTransaction> {
        let mut transaction = self.database.begin_write().or_store_error()?;
        transaction.set_durability(self.durability).or_store_error()?;
        Ok(RedbTransaction(transaction))
    }

    fn begin_read(&mut self) -> store::Result<RedbReader> {
        let transaction = self.database.begin_read().or_store_error()?;
        Ok(RedbReader { transaction, tables: Vec::new() })
    }
}

impl<'d> Store for RedbStore<'d> {
    type Table = Table;
    type Session<'s>
        = RedbSession<'d>
    where
        Self: 's;

    fn table(&self, name: &str) -> Result<Table> {
        let table = Table(name.into());
        let transaction = self.database.begin_write()?;
        transaction
            .open_table(table.definition())
            .with_context(|| format!("redb cannot create the table {name}"))?;
        transaction.commit()?;
        Ok(table)
    }

    fn session(&self, level: Level) -> Result<RedbSession<'d>> {
        let durable = is_durable(Engine::Redb, level)?;
        let durability = if durable { Durability::Immediate } else { Durability::None };
        Ok(RedbSession { database: self.database, durability })
    }

    fn make_durable(&self) -> Result<()> {
        // An immediate commit makes all before it durable.
        Ok(self.database.begin_write()?.commit()?)
    }

    fn checkpoint(&self, _paced: bool) -> Result<()> {
        self.make_durable()
    }

    fn figures(&self) -> Figures {
        figures(Engine::Redb)
    }
}
