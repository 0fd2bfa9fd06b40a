//! RocksDB behind the trait `Store`: `TransactionDB`.
//!
//! Settings: those of its wiki's "Setup Options and Basic Tuning" (blocks of 16 KiB, index and
//! filters in the block cache and pinned for level 0, Bloom filters of 10 bits a key,
//! `bytes_per_sync` of 1 MiB), background jobs for all cores, log files used again
//! (`recycle_log_file_num`: a sync of a file that is overwritten changes no metadata; a new
//! database is primed with some), no compression. `sync=true`: the leader of a group of writers
//! calls `fdatasync` on the log before they return.
//!
//! Memory: one LRU cache of the bytes given, with memtables accounted in it, at most a quarter. If
//! the bytes are a bound, reads, flushes and compactions pass the page cache by
//! (`use_direct_reads`).

use super::{OrStoreError, StoreError, failed, figures, is_durable};
use anyhow::{Context, Result, bail};
use quench_bench::engine::Engine;
use quench_bench::peers::{Settings, Visit};
use quench_bench::store::{self, Error, Figures, Level, Reader, Session, Step, Store, Transaction, Waited};
use rocksdb::{
    BlockBasedOptions, BoundColumnFamily, Cache, ColumnFamilyDescriptor, DBAccess,
    DBRawIteratorWithThreadMode, ErrorKind, FlushOptions, MultiThreaded, Options, ReadOptions,
    SnapshotWithThreadMode, TransactionDB, TransactionDBOptions, TransactionOptions, WriteBufferManager,
    WriteOptions,
};
use std::path::Path;
use std::sync::Arc;

type Db = TransactionDB<MultiThreaded>;
type Table<'d> = Arc<BoundColumnFamily<'d>>;

const BLOCK_BYTES: usize = 16 << 10;
const BLOOM_BITS: f64 = 10.0;
const BYTES_PER_SYNC: u64 = 1 << 20;
/// Of memory; the rest is for blocks.
const MEMTABLES_SHARE: u64 = 4;
const LOG_FILES_KEPT: usize = 4;
const LOG_FILES_PRIMED: usize = 3;
const PRIMING: &str = "priming";
const PRIMING_VALUE_BYTES: usize = 64 << 10;
/// Of one column family; its own default.
const MEMTABLE_BYTES_MAX: u64 = 64 << 20;

impl StoreError for rocksdb::Error {
    fn into_store_error(self) -> Error {
        match self.kind() {
            ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::TryAgain | ErrorKind::Expired => {
                Error::Conflict
            }
            _ => failed(self),
        }
    }
}

fn memtable_bytes(settings: &Settings) -> usize {
    (settings.memory_bytes / MEMTABLES_SHARE).min(MEMTABLE_BYTES_MAX) as usize
}

/// Fills some log files and discards their content, so that a new database reuses log files from
/// its first commit on, as an older one does. QuenchDB prepares its segments before their use, too.
fn prime(db: &Db, options: &Options, memtable_bytes: usize) -> std::result::Result<(), rocksdb::Error> {
    db.create_cf(PRIMING, options)?;
    if let Some(table) = db.cf_handle(PRIMING) {
        let value = vec![0; PRIMING_VALUE_BYTES];
        for _ in 0..LOG_FILES_PRIMED {
            for n in 0..memtable_bytes / PRIMING_VALUE_BYTES {
                db.put_cf(&table, n.to_be_bytes(), &value)?;
            }
            db.flush_cf(&table)?;
        }
    }
    db.drop_cf(PRIMING)
}

fn options(settings: &Settings) -> Options {
    let memory = usize::try_from(settings.memory_bytes).unwrap_or(usize::MAX);
    let cache = Cache::new_lru_cache(memory);
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&cache);
    table.set_block_size(BLOCK_BYTES);
    table.set_bloom_filter(BLOOM_BITS, false);
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    let memtables = settings.memory_bytes / MEMTABLES_SHARE;
    let manager = WriteBufferManager::new_write_buffer_manager_with_cache(memtables as usize, false, cache);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_block_based_table_factory(&table);
    options.set_write_buffer_manager(&manager);
    options.set_write_buffer_size(memtable_bytes(settings));
    options.set_bytes_per_sync(BYTES_PER_SYNC);
    options.set_recycle_log_file_num(LOG_FILES_KEPT);
    options.set_compression_type(rocksdb::DBCompressionType::None);
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    options.set_max_background_jobs(cores.max(2) as i32);
    options.set_use_direct_reads(settings.bounded);
    options.set_use_direct_io_for_flush_and_compaction(settings.bounded);
    options
}

pub(super) fn open<V: Visit>(directory: &Path, settings: &Settings, visit: V) -> Result<V::Output> {
    let options = options(settings);
    // It says which there are by an error if there is no database yet.
    let mut names = Db::list_cf(&options, directory).unwrap_or_default();
    if names.is_empty() {
        names.push("default".into());
    }
    let is_new = !directory.join("CURRENT").exists();
    let families = names.iter().map(|name| ColumnFamilyDescriptor::new(name, options.clone()));
    let db = Db::open_cf_descriptors(&options, &TransactionDBOptions::default(), directory, families)
        .with_context(|| format!("rocksdb cannot open {}", directory.display()))?;
    if is_new {
        prime(&db, &options, memtable_bytes(settings)).context("rocksdb cannot write its log files")?;
    }
    let output = visit.visit(&RocksStore { db: &db, options: &options })?;
    db.flush_wal(true).context("rocksdb cannot sync its log")?;
    Ok(output)
}

struct RocksStore<'d> {
    db: &'d Db,
    options: &'d Options,
}

/// Shows the rows of a range from either end. The bounds are checked here too: a transaction's own
/// rows come from another iterator.
fn scan<D: DBAccess>(
    mut rows: DBRawIteratorWithThreadMode<'_, D>,
    from: &[u8],
    to: &[u8],
    back: bool,
    mut each: impl FnMut(&[u8], &[u8]) -> Step,
) -> store::Result<()> {
    if back {
        rows.seek_for_prev(to);
        if rows.key().is_some_and(|key| key >= to) {
            rows.prev();
        }
    } else {
        rows.seek(from);
    }
    while let Some((key, value)) = rows.item() {
        if key < from || key >= to || each(key, value).is_break() {
            return Ok(());
        }
        if back { rows.prev() } else { rows.next() }
    }
    rows.status().or_store_error()
}

/// Reads of a range in a snapshot.
fn range_options<D: DBAccess>(
    snapshot: &SnapshotWithThreadMode<'_, D>,
    from: &[u8],
    to: &[u8],
) -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_snapshot(snapshot);
    options.set_iterate_lower_bound(from);
    options.set_iterate_upper_bound(to);
    options
}

struct RocksReader<'d> {
    db: &'d Db,
    // Before the snapshot, which it refers to.
    options: ReadOptions,
    snapshot: SnapshotWithThreadMode<'d, Db>,
}

impl RocksReader<'_> {
    fn rows(
        &self,
        table: &Table<'_>,
        from: &[u8],
        to: &[u8],
        back: bool,
        each: impl FnMut(&[u8], &[u8]) -> Step,
    ) -> store::Result<()> {
        let options = range_options(&self.snapshot, from, to);
        scan(self.db.raw_iterator_cf_opt(table, options), from, to, back, each)
    }
}

struct RocksTransaction<'d> {
    /// With the transaction's snapshot; made for its first read.
    options: Option<ReadOptions>,
    transaction: rocksdb::Transaction<'d, Db>,
}

impl RocksTransaction<'_> {
    fn rows(
        &self,
        table: &Table<'_>,
        from: &[u8],
        to: &[u8],
        back: bool,
        each: impl FnMut(&[u8], &[u8]) -> Step,
    ) -> store::Result<()> {
        let options = range_options(&self.transaction.snapshot(), from, to);
        scan(self.transaction.raw_iterator_cf_opt(table, options), from, to, back, each)
    }
}

/// The two readers differ in `get_with`.
macro_rules! reads {
    ($type:ident, $get:item) => {
        impl<'d> Reader for $type<'d> {
            type Table = Table<'d>;

            #[inline]
            $get

            fn scan(
                &mut self,
                table: &Self::Table,
                from: &[u8],
                to: &[u8],
                each: impl FnMut(&[u8], &[u8]) -> Step,
            ) -> store::Result<()> {
                self.rows(table, from, to, false, each)
            }

            fn scan_back(
                &mut self,
                table: &Self::Table,
                from: &[u8],
                to: &[u8],
                each: impl FnMut(&[u8], &[u8]) -> Step,
            ) -> store::Result<()> {
                self.rows(table, from, to, true, each)
            }
        }
    };
}

reads!(
    RocksReader,
    fn get_with<V>(
        &mut self,
        table: &Self::Table,
        key: &[u8],
        f: impl FnOnce(&[u8]) -> V,
    ) -> store::Result<Option<V>> {
        Ok(self.db.get_pinned_cf_opt(table, key, &self.options).or_store_error()?.as_deref().map(f))
    }
);
reads!(
    RocksTransaction,
    fn get_with<V>(
        &mut self,
        table: &Self::Table,
        key: &[u8],
        f: impl FnOnce(&[u8]) -> V,
    ) -> store::Result<Option<V>> {
        let transaction = &self.transaction;
        let options = self.options.get_or_insert_with(|| {
            let mut options = ReadOptions::default();
            options.set_snapshot(&transaction.snapshot());
            options
        });
        Ok(transaction.get_pinned_cf_opt(table, key, options).or_store_error()?.as_deref().map(f))
    }
);

impl Transaction for RocksTransaction<'_> {
    type Handle = Waited;

    #[inline]
    fn insert(&mut self, table: &Self::Table, key: &[u8], value: &[u8]) -> store::Result<()> {
        self.transaction.put_cf(table, key, value).or_store_error()
    }

    fn remove(&mut self, table: &Self::Table, key: &[u8]) -> store::Result<bool> {
        let there = self.get(table, key, &mut Vec::new())?;
        if there {
            self.transaction.delete_cf(table, key).or_store_error()?;
        }
        Ok(there)
    }

    #[inline]
    fn commit(self) -> store::Result<()> {
        self.transaction.commit().or_store_error()
    }

    fn commit_async(self) -> store::Result<Waited> {
        self.commit().map(|()| Waited)
    }

    fn abort(self) {
        // Dropping it releases its locks and discards what it wrote.
        drop(self);
    }
}

struct RocksSession<'d> {
    db: &'d Db,
    writes: WriteOptions,
    transactions: TransactionOptions,
}

impl<'d> Session for RocksSession<'d> {
    type Table = Table<'d>;
    type Handle = Waited;
    type Reader<'s>
        = RocksReader<'d>
    where
        Self: 's;
    type Transaction<'s>
        = RocksTransaction<'d>
    where
        Self: 's;

    #[inline]
    fn begin(&mut self) -> store::Result<RocksTransaction<'d>> {
        let transaction = self.db.transaction_opt(&self.writes, &self.transactions);
        Ok(RocksTransaction { options: None, transaction })
    }

    fn begin_read(&mut self) -> store::Result<RocksReader<'d>> {
        let (snapshot, mut options) = (self.db.snapshot(), ReadOptions::default());
        options.set_snapshot(&snapshot);
        Ok(RocksReader { db: self.db, options, snapshot })
    }
}

impl<'d> Store for RocksStore<'d> {
    type Table = Table<'d>;
    type Session<'s>
        = RocksSession<'d>
    where
        Self: 's;

    fn table(&self, name: &str) -> Result<Table<'d>> {
        if let Some(table) = self.db.cf_handle(name) {
            return Ok(table);
        }
        // Another thread may create the family first: then this call fails, and the family exists.
        let created = self.db.create_cf(name, self.options);
        let describe = || format!("rocksdb cannot create the column family {name}");
        match self.db.cf_handle(name) {
            Some(table) => Ok(table),
            None => bail!(created.err().map_or_else(describe, |error| format!("{}: {error}", describe()))),
        }
    }

    fn session(&self, level: Level) -> Result<RocksSession<'d>> {
        let mut writes = WriteOptions::default();
        writes.set_sync(is_durable(Engine::RocksDb, level)?);
        let mut transactions = TransactionOptions::default();
        // A write of a row that another has changed since the begin is a conflict.
        transactions.set_snapshot(true);
        // Two that wait for each other would wait until the timeout of a second.
        transactions.set_deadlock_detect(true);
        Ok(RocksSession { db: self.db, writes, transactions })
    }

    fn make_durable(&self) -> Result<()> {
        Ok(self.db.flush_wal(true)?)
    }

    fn checkpoint(&self, _paced: bool) -> Result<()> {
        let mut wait = FlushOptions::default();
        wait.set_wait(true);
        let names = Db::list_cf(self.options, self.db.path())?;
        let families: Vec<_> = names.iter().filter_map(|name| self.db.cf_handle(name)).collect();
        Ok(self.db.flush_cfs_opt(&families.iter().collect::<Vec<_>>(), &wait)?)
    }

    fn figures(&self) -> Figures {
        figures(Engine::RocksDb)
    }
}
