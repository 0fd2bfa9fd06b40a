//! SQLite behind the trait `Store`, through `rusqlite` and the SQLite that it brings.
//!
//! Settings: `journal_mode=WAL` and `synchronous=FULL`, which its documentation names for durable
//! commits in that mode: the log is synced at each commit. A connection a thread, statements
//! prepared once, tables `WITHOUT ROWID` by key, checkpoints as it makes them by itself (at 1,000
//! pages of log, by the committer). Transactions that write begin with `BEGIN IMMEDIATE`.
//!
//! There is one writer at a time. SQLite lets the others sleep and try again (`busy_timeout`), up
//! to 100 ms at a time; so that they are woken instead, threads of this process queue at a mutex
//! first. Without it the 99th percentile would be far worse.
//!
//! Memory: `cache_size`, the bytes given shared evenly by the connections, beside the page cache of
//! the operating system.

use super::{OrStoreError, StoreError, failed, figures, is_durable};
use anyhow::{Context, Result};
use quench_bench::engine::Engine;
use quench_bench::peers::{Settings, Visit};
use quench_bench::store::{self, Error, Figures, Level, Reader, Session, Step, Store, Transaction, Waited};
use rusqlite::{Connection, ErrorCode};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Where the database is in its directory.
const FILE: &str = "data.sqlite";
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
/// Six for each table of the workload with the most of them.
const STATEMENTS: usize = 128;
/// Less than this would not hold the pages of one transaction.
const CACHE_BYTES_MIN: u64 = 1 << 20;

impl StoreError for rusqlite::Error {
    fn into_store_error(self) -> Error {
        match self.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Conflict,
            _ => failed(self),
        }
    }
}

pub(super) fn open<V: Visit>(directory: &Path, settings: &Settings, visit: V) -> Result<V::Output> {
    let store = SqliteStore {
        path: directory.join(FILE),
        cache_bytes: (settings.memory_bytes / settings.threads.max(1) as u64).max(CACHE_BYTES_MIN),
        writer: Mutex::new(()),
    };
    // Kept open to the end: the last connection that closes makes a checkpoint.
    let connection = store.connect(true)?;
    connection.pragma_update(None, "journal_mode", "WAL").context("sqlite has no write-ahead log here")?;
    visit.visit(&store)
}

struct SqliteStore {
    path: PathBuf,
    cache_bytes: u64,
    /// Held by the writer.
    writer: Mutex<()>,
}

impl SqliteStore {
    fn connect(&self, durable: bool) -> Result<Connection> {
        let connect = || -> rusqlite::Result<Connection> {
            let connection = Connection::open(&self.path)?;
            connection.busy_timeout(BUSY_TIMEOUT)?;
            connection.set_prepared_statement_cache_capacity(STATEMENTS);
            connection.pragma_update(None, "synchronous", if durable { "FULL" } else { "NORMAL" })?;
            // Negative: in KiB.
            connection.pragma_update(None, "cache_size", -((self.cache_bytes >> 10) as i64))?;
            Ok(connection)
        };
        connect().with_context(|| format!("sqlite cannot open {}", self.path.display()))
    }
}

/// A table's statements, as text; each connection has them prepared in its cache.
#[derive(Debug)]
struct Statements {
    get: String,
    scan: String,
    scan_back: String,
    insert: String,
    remove: String,
}

type Table = Arc<Statements>;

impl Statements {
    /// `name` is one of a workload's own, and has no quotes.
    fn of(name: &str) -> Statements {
        let range = format!("SELECT k, v FROM \"{name}\" WHERE k >= ?1 AND k < ?2 ORDER BY k");
        Statements {
            get: format!("SELECT v FROM \"{name}\" WHERE k = ?1"),
            scan_back: format!("{range} DESC"),
            scan: range,
            insert: format!("INSERT OR REPLACE INTO \"{name}\" (k, v) VALUES (?1, ?2)"),
            remove: format!("DELETE FROM \"{name}\" WHERE k = ?1"),
        }
    }
}

fn run(connection: &Connection, statement: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(statement)?.execute(()).map(drop)
}

fn get_with<V>(
    connection: &Connection,
    table: &Statements,
    key: &[u8],
    f: impl FnOnce(&[u8]) -> V,
) -> store::Result<Option<V>> {
    let mut statement = connection.prepare_cached(&table.get).or_store_error()?;
    let mut rows = statement.query([key]).or_store_error()?;
    match rows.next().or_store_error()? {
        Some(row) => Ok(Some(f(blob(row, 0)?))),
        None => Ok(None),
    }
}

fn blob<'r>(row: &'r rusqlite::Row<'_>, column: usize) -> store::Result<&'r [u8]> {
    row.get_ref(column).or_store_error()?.as_blob().map_err(failed)
}

fn rows(
    connection: &Connection,
    statement: &str,
    (from, to): (&[u8], &[u8]),
    mut each: impl FnMut(&[u8], &[u8]) -> Step,
) -> store::Result<()> {
    let mut statement = connection.prepare_cached(statement).or_store_error()?;
    let mut rows = statement.query([from, to]).or_store_error()?;
    while let Some(row) = rows.next().or_store_error()? {
        if each(blob(row, 0)?, blob(row, 1)?).is_break() {
            break;
        }
    }
    Ok(())
}

/// A transaction that rolls back on drop unless it has committed.
struct Open<'s> {
    connection: &'s Connection,
    ended: bool,
}

impl Open<'_> {
    fn begin<'s>(connection: &'s Connection, statement: &str) -> store::Result<Open<'s>> {
        run(connection, statement).or_store_error()?;
        Ok(Open { connection, ended: false })
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // An error means that the transaction has rolled back already.
            let _ = run(self.connection, "ROLLBACK");
        }
    }
}

struct SqliteReader<'s> {
    open: Open<'s>,
}

struct SqliteTransaction<'s> {
    open: Open<'s>,
    /// After the transaction: the next writer begins when this one has ended.
    _writer: MutexGuard<'s, ()>,
}

macro_rules! reads {
    ($type:ty) => {
        impl Reader for $type {
            type Table = Table;

            fn get_with<V>(
                &mut self,
                table: &Table,
                key: &[u8],
                f: impl FnOnce(&[u8]) -> V,
            ) -> store::Result<Option<V>> {
                get_with(self.open.connection, table, key, f)
            }

            fn scan(
                &mut self,
                table: &Table,
                from: &[u8],
                to: &[u8],
                each: impl FnMut(&[u8], &[u8]) -> Step,
            ) -> store::Result<()> {
                rows(self.open.connection, &table.scan, (from, to), each)
            }

            fn scan_back(
                &mut self,
                table: &Table,
                from: &[u8],
                to: &[u8],
                each: impl FnMut(&[u8], &[u8]) -> Step,
            ) -> store::Result<()> {
                rows(self.open.connection, &table.scan_back, (from, to), each)
            }
        }
    };
}

reads!(SqliteReader<'_>);
reads!(SqliteTransaction<'_>);

impl Transaction for SqliteTransaction<'_> {
    type Handle = Waited;

    fn insert(&mut self, table: &Table, key: &[u8], value: &[u8]) -> store::Result<()> {
        self.open
            .connection
            .prepare_cached(&table.insert)
            .or_store_error()?
            .execute([key, value])
            .or_store_error()?;
        Ok(())
    }

    fn remove(&mut self, table: &Table, key: &[u8]) -> store::Result<bool> {
        Ok(self
            .open
            .connection
            .prepare_cached(&table.remove)
            .or_store_error()?
            .execute([key])
            .or_store_error()?
            > 0)
    }

    fn commit(mut self) -> store::Result<()> {
        run(self.open.connection, "COMMIT").or_store_error()?;
        self.open.ended = true;
        Ok(())
    }

    fn commit_async(self) -> store::Result<Waited> {
        self.commit().map(|()| Waited)
    }

    fn abort(self) {
        drop(self);
    }
}

struct SqliteSession<'d> {
    connection: Connection,
    writer: &'d Mutex<()>,
}

impl Session for SqliteSession<'_> {
    type Table = Table;
    type Handle = Waited;
    type Reader<'s>
        = SqliteReader<'s>
    where
        Self: 's;
    type Transaction<'s>
        = SqliteTransaction<'s>
    where
        Self: 's;

    fn begin(&mut self) -> store::Result<SqliteTransaction<'_>> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(SqliteTransaction { open: Open::begin(&self.connection, "BEGIN IMMEDIATE")?, _writer: writer })
    }

    fn begin_read(&mut self) -> store::Result<SqliteReader<'_>> {
        Ok(SqliteReader { open: Open::begin(&self.connection, "BEGIN")? })
    }
}

impl Store for SqliteStore {
    type Table = Table;
    type Session<'s> = SqliteSession<'s>;

    fn table(&self, name: &str) -> Result<Table> {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let create = format!(
            "CREATE TABLE IF NOT EXISTS \"{name}\" (k BLOB PRIMARY KEY NOT NULL, v BLOB NOT NULL) WITHOUT ROWID"
        );
        self.connect(true)?
            .execute_batch(&create)
            .with_context(|| format!("sqlite cannot create the table {name}"))?;
        Ok(Arc::new(Statements::of(name)))
    }

    fn session(&self, level: Level) -> Result<SqliteSession<'_>> {
        let connection = self.connect(is_durable(Engine::Sqlite, level)?)?;
        Ok(SqliteSession { connection, writer: &self.writer })
    }

    /// A commit that syncs the log: everything before it is in there, or in the database and synced
    /// by a checkpoint.
    fn make_durable(&self) -> Result<()> {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = self.connect(true)?;
        let commit = || -> rusqlite::Result<()> {
            let number: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
            connection.pragma_update(None, "user_version", number.wrapping_add(1))
        };
        commit().context("sqlite cannot sync its log")
    }

    fn checkpoint(&self, _paced: bool) -> Result<()> {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let busy = self
            .connect(true)?
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get::<_, i64>(0))
            .context("sqlite cannot make a checkpoint")?;
        anyhow::ensure!(busy == 0, "sqlite cannot make a checkpoint beside a reader");
        Ok(())
    }

    fn figures(&self) -> Figures {
        figures(Engine::Sqlite)
    }
}
