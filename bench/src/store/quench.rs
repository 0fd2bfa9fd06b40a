//! QuenchDB as a [`Store`].

use super::concurrency::{Concurrency, Granularity};
use super::figures::{Checkpoints, Figures, Gauges, LockFigures, Total};
use super::interface::{Error, Handle, Level, Reader, Result, Session, Step, Store, Transaction};
use crate::coordination::Waits;
use quenchdb::{CommitHandle, Database, LockMode, Range, Reads, Snapshot, Table, TransactionOptions};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

impl From<quenchdb::Error> for Error {
    fn from(error: quenchdb::Error) -> Error {
        if error.is_retryable() { Error::Conflict } else { Error::Failed(error.into()) }
    }
}

fn bounds<'k>(from: &'k [u8], to: &'k [u8]) -> (Bound<&'k [u8]>, Bound<&'k [u8]>) {
    (Bound::Included(from), Bound::Excluded(to))
}

fn show<S: Reads>(mut range: Range<'_, S>, mut each: impl FnMut(&[u8], &[u8]) -> Step) -> Result<()> {
    while let Some(row) = range.next_row() {
        let (key, value) = row?;
        if each(key, value).is_break() {
            break;
        }
    }
    Ok(())
}

fn show_back<S: Reads>(mut range: Range<'_, S>, mut each: impl FnMut(&[u8], &[u8]) -> Step) -> Result<()> {
    while let Some(row) = range.next_row_back() {
        let (key, value) = row?;
        if each(key, value).is_break() {
            break;
        }
    }
    Ok(())
}

/// A transaction of QuenchDB.
#[derive(Debug)]
pub struct QuenchTransaction {
    inner: quenchdb::Transaction,
    /// Rows that will be changed are locked before they are read.
    locks_first: bool,
    /// What is locked before a row is changed.
    granularity: Granularity,
}

impl From<quenchdb::Transaction> for QuenchTransaction {
    fn from(inner: quenchdb::Transaction) -> QuenchTransaction {
        QuenchTransaction { inner, locks_first: false, granularity: Granularity::Row }
    }
}

impl QuenchTransaction {
    /// Locks `table` before a change, if the granularity says so.
    #[inline]
    fn lock_coarsely(&mut self, table: &Table) -> Result<()> {
        match self.granularity {
            Granularity::Row => Ok(()),
            Granularity::Table => Ok(self.inner.lock_table(table, LockMode::Exclusive)?),
        }
    }
}

macro_rules! reads {
    ($type:ty, $inherent:ty $(, $inner:ident)?) => {
        impl Reader for $type {
            type Table = Table;

            #[inline]
            fn get_with<V>(
                &mut self,
                table: &Table,
                key: &[u8],
                f: impl FnOnce(&[u8]) -> V,
            ) -> Result<Option<V>> {
                Ok(<$inherent>::get_with(&self$(.$inner)?, table, key, f)?)
            }

            #[inline]
            fn get(&mut self, table: &Table, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
                Ok(self$(.$inner)?.get_into(table, key, value)?)
            }

            fn prefetch(&mut self, table: &Table, keys: &[[u8; 8]]) -> Result<()> {
                Ok(<$inherent>::prefetch(&self$(.$inner)?, table, keys)?)
            }

            fn scan(
                &mut self,
                table: &Table,
                from: &[u8],
                to: &[u8],
                each: impl FnMut(&[u8], &[u8]) -> Step,
            ) -> Result<()> {
                show(self$(.$inner)?.range(table, bounds(from, to)), each)
            }

            #[inline]
            fn for_each(
                &mut self,
                table: &Table,
                from: &[u8],
                to: &[u8],
                mut each: impl FnMut(&[u8], &[u8]),
            ) -> Result<()> {
                let each = |key: &[u8], value: &[u8]| {
                    each(key, value);
                    Ok(())
                };
                Ok(<$inherent>::for_each(&self$(.$inner)?, table, bounds(from, to), each)?)
            }

            fn scan_back(
                &mut self,
                table: &Table,
                from: &[u8],
                to: &[u8],
                each: impl FnMut(&[u8], &[u8]) -> Step,
            ) -> Result<()> {
                show_back(self$(.$inner)?.range(table, bounds(from, to)), each)
            }
        }
    };
}

reads!(QuenchTransaction, quenchdb::Transaction, inner);
reads!(Snapshot, Snapshot);

impl Transaction for QuenchTransaction {
    type Handle = CommitHandle;

    fn name_of(table: &Table) -> Arc<str> {
        table.name()
    }

    #[inline]
    fn get_for_update(&mut self, table: &Table, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        if !self.locks_first {
            return self.get(table, key, value);
        }
        self.lock_coarsely(table)?;
        let found = self.inner.get_for_update(table, key)?;
        let exists = found.is_some();
        *value = found.unwrap_or_default();
        Ok(exists)
    }

    #[inline]
    fn insert(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.lock_coarsely(table)?;
        Ok(self.inner.insert(table, key, value)?)
    }

    fn pop_first(&mut self, table: &Table) -> Result<bool> {
        self.lock_coarsely(table)?;
        Ok(self.inner.pop_first(table)?.is_some())
    }

    #[inline]
    fn remove(&mut self, table: &Table, key: &[u8]) -> Result<bool> {
        self.lock_coarsely(table)?;
        Ok(self.inner.remove(table, key)?)
    }

    #[inline]
    fn commit(self) -> Result<()> {
        Ok(self.inner.commit().map(drop)?)
    }

    #[inline]
    fn commit_async(self) -> Result<CommitHandle> {
        Ok(self.inner.commit_async()?)
    }

    fn abort(self) {
        self.inner.abort();
    }
}

impl Handle for CommitHandle {
    #[inline]
    fn is_done(&self) -> bool {
        self.is_committed()
    }

    fn wait(&self, timeout: Duration) -> Result<bool> {
        Ok(self.wait_timeout(timeout)?)
    }
}

/// Transactions of one thread.
#[derive(Debug)]
pub struct QuenchSession<'d> {
    database: &'d Database,
    options: TransactionOptions,
    locks_first: bool,
    granularity: Granularity,
}

impl Session for QuenchSession<'_> {
    type Table = Table;
    type Handle = CommitHandle;
    type Reader<'s>
        = Snapshot
    where
        Self: 's;
    type Transaction<'s>
        = QuenchTransaction
    where
        Self: 's;

    #[inline]
    fn begin(&mut self) -> Result<QuenchTransaction> {
        let inner = self.database.begin_with(self.options)?;
        Ok(QuenchTransaction { inner, locks_first: self.locks_first, granularity: self.granularity })
    }

    #[inline]
    fn begin_read(&mut self) -> Result<Snapshot> {
        Ok(self.database.begin_read()?)
    }
}

impl Store for Database {
    type Table = Table;
    type Session<'s> = QuenchSession<'s>;

    fn table(&self, name: &str) -> anyhow::Result<Table> {
        Ok(self.table_or_create(name)?)
    }

    fn session(&self, level: Level) -> anyhow::Result<QuenchSession<'_>> {
        let (options, granularity) = (level.into(), Granularity::Row);
        Ok(QuenchSession { database: self, options, locks_first: false, granularity })
    }

    fn make_durable(&self) -> anyhow::Result<()> {
        Ok(self.flush()?)
    }

    fn checkpoint(&self, paced: bool) -> anyhow::Result<()> {
        let made = if paced { self.checkpoint_paced() } else { Database::checkpoint(self) };
        Ok(made.map(drop)?)
    }

    fn checkpoints(&self) -> Checkpoints {
        let totals = Database::checkpoints(self);
        Checkpoints {
            count: totals.count,
            newest_seconds: totals.newest.seconds,
            newest_bytes: totals.newest.bytes_written,
        }
    }

    fn reset(&self) {
        self.reset_statistics();
    }

    fn gauges(&self) -> Gauges {
        let (s, checkpoints) = (self.statistics(), Database::checkpoints(self));
        let total = |count: u64, mean_us: f64| Total {
            count,
            us: if count == 0 { 0.0 } else { count as f64 * mean_us },
        };
        Gauges {
            row_wait_seconds: s.row_wait_seconds,
            log_inserts: total(s.log_inserts_timed, s.log_insert_us_mean),
            commits: total(s.commit.count, s.commit.mean_us),
            acknowledges: total(s.acknowledge.count, s.acknowledge.mean_us),
            log_writes: s.device_writes,
            log_write_bytes: s.device_bytes,
            device_flushes: s.device_flushes,
            log_bytes_in_use: s.log_bytes_in_use,
            pages: s.pages,
            pages_max: s.pages_max,
            page_bytes: s.page_bytes,
            memory_bytes: s.memory_bytes,
            version_bytes: s.version_bytes,
            pages_evicted: s.pages_evicted,
            reads: s.store_reads,
            checkpoints: checkpoints.count,
            checkpoint_seconds: checkpoints.newest.seconds,
            checkpoint_running: checkpoints.running,
            recovery_seconds: s.replay_seconds_estimate,
        }
    }

    fn figures(&self) -> Figures {
        let s = self.statistics();
        Figures {
            concurrency: Concurrency::default().names(),
            preset: s.preset.name().to_string(),
            protocol: format!(
                "layout {}, writer {}, acknowledger {}, dependency {}, idle logs {}, queue {}",
                s.layout, s.writer, s.acknowledger, s.dependency, s.idle_logs, s.queue
            ),
            waits: Waits {
                wakeups: s.wakeups,
                sleeps: s.commit_sleeps,
                flusher_wakeups: s.flusher_wakeups,
                rule_waits: s.rule_waits,
                false_waits: s.false_waits,
                stolen_blocks: s.stolen_blocks,
                barriers: s.barriers,
                idle_flushes: s.idle_flushes,
                consolidated: s.consolidated_appends,
                drained: s.stragglers_drained,
            },
            logs: s.logs,
            durability: s.durability_method,
            log_bytes: s.log_bytes,
            device_bytes: s.device_bytes,
            device_writes: s.device_writes,
            device_flushes: s.device_flushes,
            reads: s.store_reads,
            read_bytes: s.store_read_bytes,
            written_bytes: s.store_bytes_written,
            requests: s.object_requests,
            checkpoints: s.checkpoints,
            checkpoint_seconds: s.checkpoint_seconds,
            row_wait_seconds: s.row_wait_seconds,
            log_insert_us: s.log_insert_us_mean,
            execute: s.execute.into(),
            commit: s.commit.into(),
            total: s.total.into(),
            flush: s.flush.into(),
            locks: Some(LockFigures {
                wait: s.lock_waits.into(),
                hold: s.lock_holds.into(),
                waits: s.row_waits,
                wait_seconds: s.row_wait_seconds,
                failed: s.conflicts,
                deadlocks: s.deadlocks,
                timeouts: s.lock_timeouts,
                changed_keys: s.validation_key_failures,
                changed_ranges: s.validation_range_failures,
                escalations: s.lock_escalations,
            }),
            write_wait: s.write_wait.into(),
            acknowledge: s.acknowledge.into(),
            log_written_bytes: s.log_written_bytes,
        }
    }
}

/// A database whose workers use these settings. Loads and checks use the default.
#[derive(Clone, Copy, Debug)]
pub struct Configured<'d> {
    /// The database.
    pub database: &'d Database,
    /// The settings of the workers.
    pub concurrency: Concurrency,
}

impl Store for Configured<'_> {
    type Table = Table;
    type Session<'s>
        = QuenchSession<'s>
    where
        Self: 's;

    fn table(&self, name: &str) -> anyhow::Result<Table> {
        Store::table(self.database, name)
    }

    fn session(&self, level: Level) -> anyhow::Result<QuenchSession<'_>> {
        self.database.session(level)
    }

    fn worker_session(&self, level: Level) -> anyhow::Result<QuenchSession<'_>> {
        let Configured { database, concurrency } = *self;
        let (options, locks_first) = (concurrency.options(level), concurrency.locks_first());
        Ok(QuenchSession { database, options, locks_first, granularity: concurrency.granularity })
    }

    fn make_durable(&self) -> anyhow::Result<()> {
        self.database.make_durable()
    }

    fn checkpoint(&self, paced: bool) -> anyhow::Result<()> {
        Store::checkpoint(self.database, paced)
    }

    fn checkpoints(&self) -> Checkpoints {
        Store::checkpoints(self.database)
    }

    fn reset(&self) {
        self.database.reset();
    }

    fn gauges(&self) -> Gauges {
        self.database.gauges()
    }

    fn figures(&self) -> Figures {
        Figures { concurrency: self.concurrency.names(), ..self.database.figures() }
    }
}
