//! The engines of this build, each as its documentation shows it first, and with its durable
//! option.

use super::Mode;
use anyhow::{Result, bail};
use std::path::Path;

/// Names of the engines in this build.
pub(super) const NAMES: &[&str] = &[
    "quenchdb",
    #[cfg(feature = "redb")]
    "redb",
    #[cfg(feature = "fjall")]
    "fjall",
    #[cfg(feature = "lmdb")]
    "lmdb",
    #[cfg(feature = "sqlite")]
    "sqlite",
    #[cfg(feature = "sqlite")]
    "sqlite-wal",
    #[cfg(feature = "rocksdb")]
    "rocksdb",
];

/// An open database with one table of text.
pub(super) trait Opened {
    fn put(&mut self, key: &str, value: &str) -> Result<()>;
    fn get(&mut self, key: &str) -> Result<Option<String>>;
    fn close(self: Box<Self>) -> Result<()>;
}

/// Opens the database of `engine` in `directory`, and creates it if there is none.
pub(super) fn open(engine: &str, mode: Mode, directory: &Path) -> Result<Box<dyn Opened>> {
    Ok(match engine {
        "quenchdb" => Box::new(QuenchDb::open(directory)?),
        #[cfg(feature = "redb")]
        "redb" => Box::new(Redb(redb::Database::create(directory.join("data.redb"))?)),
        #[cfg(feature = "fjall")]
        "fjall" => Box::new(Fjall::open(mode, directory)?),
        #[cfg(feature = "lmdb")]
        "lmdb" => Box::new(Lmdb::open(directory)?),
        #[cfg(feature = "sqlite")]
        "sqlite" => Box::new(Sqlite::open(directory, "DELETE")?),
        #[cfg(feature = "sqlite")]
        "sqlite-wal" => Box::new(Sqlite::open(directory, "WAL")?),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => Box::new(RocksDb::open(mode, directory)?),
        _ => {
            let _ = mode;
            bail!("there is no engine {engine} in this build")
        }
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

struct QuenchDb {
    database: quenchdb::Database,
    table: quenchdb::Table,
}

impl QuenchDb {
    fn open(directory: &Path) -> Result<QuenchDb> {
        let database = quenchdb::Database::open(directory)?;
        let table = database.table_or_create("rows")?;
        Ok(QuenchDb { database, table })
    }
}

impl Opened for QuenchDb {
    fn put(&mut self, key: &str, value: &str) -> Result<()> {
        Ok(self.database.transact(|tx| tx.insert(&self.table, key, value))?)
    }

    fn get(&mut self, key: &str) -> Result<Option<String>> {
        let snapshot = self.database.begin_read()?;
        Ok(snapshot.get(&self.table, key)?.map(|value| text(&value)))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.database.close()?)
    }
}

#[cfg(feature = "redb")]
struct Redb(redb::Database);

#[cfg(feature = "redb")]
const ROWS: redb::TableDefinition<'_, &str, &str> = redb::TableDefinition::new("rows");

#[cfg(feature = "redb")]
impl Opened for Redb {
    fn put(&mut self, key: &str, value: &str) -> Result<()> {
        let transaction = self.0.begin_write()?;
        transaction.open_table(ROWS)?.insert(key, value)?;
        Ok(transaction.commit()?)
    }

    fn get(&mut self, key: &str) -> Result<Option<String>> {
        use redb::{ReadableDatabase, TableError};
        match self.0.begin_read()?.open_table(ROWS) {
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            table => Ok(table?.get(key)?.map(|value| value.value().into())),
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

#[cfg(feature = "fjall")]
struct Fjall {
    database: fjall::Database,
    rows: fjall::Keyspace,
    mode: Mode,
}

#[cfg(feature = "fjall")]
impl Fjall {
    fn open(mode: Mode, directory: &Path) -> Result<Fjall> {
        let database = fjall::Database::builder(directory).open()?;
        let rows = database.keyspace("rows", fjall::KeyspaceCreateOptions::default)?;
        Ok(Fjall { database, rows, mode })
    }
}

#[cfg(feature = "fjall")]
impl Opened for Fjall {
    fn put(&mut self, key: &str, value: &str) -> Result<()> {
        self.rows.insert(key, value)?;
        if self.mode == Mode::Durable {
            self.database.persist(fjall::PersistMode::SyncAll)?;
        }
        Ok(())
    }

    fn get(&mut self, key: &str) -> Result<Option<String>> {
        Ok(self.rows.get(key)?.map(|value| text(&value)))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

#[cfg(feature = "lmdb")]
struct Lmdb {
    env: heed::Env,
    rows: heed::Database<'static, heed::types::Str, heed::types::Str>,
}

#[cfg(feature = "lmdb")]
impl Lmdb {
    fn open(directory: &Path) -> Result<Lmdb> {
        // SAFETY: the files below the directory are changed through LMDB only.
        let env = unsafe { heed::EnvOpenOptions::new().map_size(1 << 30).open(directory) }?;
        let created: std::result::Result<_, heed::Error> =
            env.create_databases_and_commit(env.write_txn()?, |opener, transaction| {
                opener.create_database(transaction, None).map(heed::CommitOrAbort::<_, ()>::Commit)
            });
        Ok(Lmdb {
            rows: created?.commit().ok_or_else(|| anyhow::anyhow!("LMDB has not created the database"))?,
            env,
        })
    }
}

#[cfg(feature = "lmdb")]
impl Opened for Lmdb {
    fn put(&mut self, key: &str, value: &str) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        self.rows.put(&mut transaction, key, value)?;
        Ok(transaction.commit()?)
    }

    fn get(&mut self, key: &str) -> Result<Option<String>> {
        let transaction = self.env.read_txn()?;
        Ok(self.rows.get(&transaction, key)?.map(String::from))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

#[cfg(feature = "sqlite")]
struct Sqlite(rusqlite::Connection);

#[cfg(feature = "sqlite")]
impl Sqlite {
    fn open(directory: &Path, journal: &str) -> Result<Sqlite> {
        let connection = rusqlite::Connection::open(directory.join("data.sqlite"))?;
        let () = connection.query_row(&format!("PRAGMA journal_mode = {journal}"), [], |_| Ok(()))?;
        connection.execute("CREATE TABLE IF NOT EXISTS rows (key TEXT PRIMARY KEY, value TEXT)", [])?;
        Ok(Sqlite(connection))
    }
}

#[cfg(feature = "sqlite")]
impl Opened for Sqlite {
    fn put(&mut self, key: &str, value: &str) -> Result<()> {
        self.0.execute("INSERT OR REPLACE INTO rows VALUES (?, ?)", [key, value])?;
        Ok(())
    }

    fn get(&mut self, key: &str) -> Result<Option<String>> {
        use rusqlite::OptionalExtension;
        Ok(self.0.query_row("SELECT value FROM rows WHERE key = ?", [key], |row| row.get(0)).optional()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.0.close().map_err(|(_, error)| error.into())
    }
}

#[cfg(feature = "rocksdb")]
struct RocksDb {
    database: rocksdb::DB,
    mode: Mode,
}

#[cfg(feature = "rocksdb")]
impl RocksDb {
    fn open(mode: Mode, directory: &Path) -> Result<RocksDb> {
        Ok(RocksDb { database: rocksdb::DB::open_default(directory)?, mode })
    }
}

#[cfg(feature = "rocksdb")]
impl Opened for RocksDb {
    fn put(&mut self, key: &str, value: &str) -> Result<()> {
        let mut options = rocksdb::WriteOptions::default();
        options.set_sync(self.mode == Mode::Durable);
        Ok(self.database.put_opt(key, value, &options)?)
    }

    fn get(&mut self, key: &str) -> Result<Option<String>> {
        Ok(self.database.get(key)?.map(|value| text(&value)))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
