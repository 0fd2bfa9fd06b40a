//! QuenchDB as a [`Store`].

use super::figures::{Checkpoints, Figures, Gauges, Total};
use super::interface::{Error, Handle, Level, Reader, Result, Session, Step, Store, Transaction};
use crate::coordination::Waits;
use quenchdb::{CommitHandle, Database, Range, Snapshot, Table};
use std::ops::Bound;
use std::time::Duration;

impl From<quenchdb::Error> for Error {
    fn from(error: quenchdb::Error) -> Error {
        if error.is_retryable() { Error::Conflict } else { Error::Failed(error.into()) }
    }
}

fn bounds<'k>(from: &'k [u8], to: &'k [u8]) -> (Bound<&'k [u8]>, Bound<&'k [u8]>) {
    (Bound::Included(from), Bound::Excluded(to))
}

fn show(mut range: Range<'_>, mut each: impl FnMut(&[u8], &[u8]) -> Step) -> Result<()> {
    while let Some(row) = range.next_row() {
        let (key, value) = row?;
        if each(key, value).is_break() {
            break;
        }
    }
    Ok(())
}

fn show_back(mut range: Range<'_>, mut each: impl FnMut(&[u8], &[u8]) -> Step) -> Result<()> {
    while let Some(row) = range.next_row_back() {
        let (key, value) = row?;
        if each(key, value).is_break() {
            break;
        }
    }
    Ok(())
}

macro_rules! reads {
    ($type:ty) => {
        impl Reader for $type {
            type Table = Table;

            #[inline]
            fn get(&mut self, table: &Table, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
                Ok(self.get_into(table, key, value)?)
            }

            fn prefetch(&mut self, table: &Table, keys: &[[u8; 8]]) -> Result<()> {
                Ok(<$type>::prefetch(self, table, keys)?)
            }

            fn scan(
                &mut self,
                table: &Table,
                from: &[u8],
                to: &[u8],
                each: impl FnMut(&[u8], &[u8]) -> Step,
            ) -> Result<()> {
                show(self.range::<&[u8]>(table, bounds(from, to)), each)
            }

            fn scan_back(
                &mut self,
                table: &Table,
                from: &[u8],
                to: &[u8],
                each: impl FnMut(&[u8], &[u8]) -> Step,
            ) -> Result<()> {
                show_back(self.range::<&[u8]>(table, bounds(from, to)), each)
            }
        }
    };
}

reads!(quenchdb::Transaction);
reads!(Snapshot);

impl Transaction for quenchdb::Transaction {
    type Handle = CommitHandle;

    fn name_of(table: &Table) -> &str {
        table.name()
    }

    #[inline]
    fn insert(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(quenchdb::Transaction::insert(self, table, key, value)?)
    }

    #[inline]
    fn remove(&mut self, table: &Table, key: &[u8]) -> Result<bool> {
        Ok(quenchdb::Transaction::remove(self, table, key)?)
    }

    #[inline]
    fn commit(self) -> Result<()> {
        Ok(quenchdb::Transaction::commit(self).map(drop)?)
    }

    #[inline]
    fn commit_async(self) -> Result<CommitHandle> {
        Ok(quenchdb::Transaction::commit_async(self)?)
    }

    fn abort(self) {
        quenchdb::Transaction::abort(self);
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

/// Transactions with snapshot isolation.
#[derive(Debug)]
pub struct QuenchSession<'d> {
    database: &'d Database,
    level: Level,
}

impl Session for QuenchSession<'_> {
    type Table = Table;
    type Handle = CommitHandle;
    type Reader<'s>
        = Snapshot
    where
        Self: 's;
    type Transaction<'s>
        = quenchdb::Transaction
    where
        Self: 's;

    #[inline]
    fn begin(&mut self) -> Result<quenchdb::Transaction> {
        Ok(self.database.begin_with(self.level)?)
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
        Ok(QuenchSession { database: self, level })
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
            preset: s.preset.name().to_string(),
            protocol: format!(
                "layout {}, writer {}, acknowledger {}, dependency {}, queue {}",
                s.layout, s.writer, s.acknowledger, s.dependency, s.queue
            ),
            waits: Waits {
                wakeups: s.wakeups,
                sleeps: s.commit_sleeps,
                flusher_wakeups: s.flusher_wakeups,
                rule_waits: s.rule_waits,
                false_waits: s.false_waits,
                stolen_blocks: s.stolen_blocks,
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
            checkpoints: s.checkpoints,
            checkpoint_seconds: s.checkpoint_seconds,
            row_wait_seconds: s.row_wait_seconds,
            log_insert_us: s.log_insert_us_mean,
            execute: s.execute.into(),
            commit: s.commit.into(),
            total: s.total.into(),
            flush: s.flush.into(),
            acknowledge: s.acknowledge.into(),
        }
    }
}
