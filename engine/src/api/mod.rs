//! SKELETON for building the CLI against; the real one replaces this file.
#![allow(missing_docs, unused_variables, clippy::missing_errors_doc, clippy::new_without_default)]
use crate::base::settings::{DeviceTrust, Durability, MethodSetting, Preset, Settings};
use crate::base::{Csn, Result};
use crate::device::{DeviceFacts, Storage};
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone)]
pub struct Database(Arc<()>);
/// Every setting of base::settings::Settings has a method of its name.
pub struct Builder(Settings);
#[derive(Clone, Debug)]
pub struct Table(Arc<()>);
#[derive(Debug)]
pub struct Transaction(());
pub struct Snapshot(());
pub struct Range<'a>(&'a ());
#[derive(Clone, Copy, Debug)]
pub struct Savepoint(());
/// Not tied to the database's lifetime. Dropping it changes nothing.
#[derive(Debug)]
pub struct CommitHandle(());
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Isolation { #[default] Snapshot, ReadCommitted }
/// What recovery did at open.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport { pub clean: bool, pub replayed: u64, pub discarded: u64, pub log_bytes: u64, pub seconds: f64 }
#[derive(Clone, Debug, Default)]
pub struct CheckpointReport { pub csn: Csn, pub pages_written: u64, pub bytes_written: u64, pub seconds: f64 }
#[derive(Clone, Debug, Default)]
pub struct VerifyReport { pub tables: u64, pub pages: u64, pub entries: u64, pub log_records: u64, pub problems: Vec<String> }
#[derive(Clone, Copy, Debug, Default)]
pub struct LatencySummary { pub count: u64, pub mean_us: f64, pub p50_us: f64, pub p90_us: f64, pub p99_us: f64, pub p999_us: f64, pub p9999_us: f64, pub max_us: f64 }
/// A moment's numbers.
#[derive(Clone, Debug)]
pub struct Statistics {
    pub preset: Preset, pub logs: usize, pub device: DeviceFacts, pub durability_method: String,
    pub newest_csn: Csn, pub watermark: Csn, pub checkpoint_csn: Csn, pub tables: u64,
    pub committed: u64, pub aborted: u64, pub conflicts: u64,
    pub pages: u64, pub page_bytes: u64, pub versions: u64, pub version_bytes: u64, pub open_snapshots: u64, pub oldest_snapshot: Csn,
    pub log_bytes: u64, pub log_bytes_in_use: u64, pub device_bytes: u64, pub device_writes: u64, pub device_flushes: u64,
    pub checkpoints: u64, pub wakeups: u64, pub group_size_mean: f64,
    /// begin to ready; ready to committed (writers); begin to committed (all); one device write; acknowledge rounds
    pub execute: LatencySummary, pub commit: LatencySummary, pub total: LatencySummary, pub flush: LatencySummary, pub acknowledge: LatencySummary,
}
/// Progress of long work: called now and then with done and total, in the unit that `what` names.
pub type Progress = Box<dyn FnMut(&str, u64, u64) + Send>;

impl Database {
    pub fn open(path: impl AsRef<Path>) -> Result<Database> { unimplemented!() }
    pub fn builder() -> Builder { unimplemented!() }
    pub fn create_table(&self, name: &str) -> Result<Table> { unimplemented!() }
    pub fn table(&self, name: &str) -> Result<Table> { unimplemented!() }
    pub fn table_or_create(&self, name: &str) -> Result<Table> { unimplemented!() }
    pub fn drop_table(&self, name: &str) -> Result<()> { unimplemented!() }
    pub fn tables(&self) -> Vec<String> { unimplemented!() }
    pub fn begin(&self) -> Result<Transaction> { unimplemented!() }
    pub fn begin_with(&self, isolation: Isolation, durability: Durability) -> Result<Transaction> { unimplemented!() }
    pub fn begin_read(&self) -> Result<Snapshot> { unimplemented!() }
    pub fn transact<T>(&self, f: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> { unimplemented!() }
    pub fn checkpoint(&self) -> Result<CheckpointReport> { unimplemented!() }
    /// Everything committed so far, at any level, is durable when it returns.
    pub fn flush(&self) -> Result<()> { unimplemented!() }
    pub fn verify(&self, progress: Option<Progress>) -> Result<VerifyReport> { unimplemented!() }
    pub fn statistics(&self) -> Statistics { unimplemented!() }
    /// Forgets latencies and counters (after a warm-up).
    pub fn reset_statistics(&self) { unimplemented!() }
    pub fn recovery(&self) -> RecoveryReport { unimplemented!() }
    /// "opened DIR: ext4 on vda, volatile cache, flusher thread (…), preset group, 1 log"
    pub fn open_line(&self) -> String { unimplemented!() }
    pub fn max_key_bytes(&self) -> usize { unimplemented!() }
    pub fn max_entry_bytes(&self) -> usize { unimplemented!() }
    pub fn close(self) -> Result<()> { unimplemented!() }
    pub fn dump_log(path: impl AsRef<Path>) -> Result<Vec<crate::log::DumpedRecord>> { unimplemented!() }
}
impl Builder {
    pub fn settings(self, settings: Settings) -> Builder { unimplemented!() }
    pub fn create(self, yes: bool) -> Builder { unimplemented!() }
    pub fn read_only(self, yes: bool) -> Builder { unimplemented!() }
    pub fn preset(self, preset: Preset) -> Builder { unimplemented!() }
    pub fn logs(self, logs: usize) -> Builder { unimplemented!() }
    pub fn memory_bytes(self, bytes: u64) -> Builder { unimplemented!() }
    pub fn flush_unit_bytes(self, bytes: usize) -> Builder { unimplemented!() }
    pub fn device_trust(self, trust: DeviceTrust) -> Builder { unimplemented!() }
    pub fn durability_method(self, method: MethodSetting) -> Builder { unimplemented!() }
    pub fn loss_window(self, window: Duration) -> Builder { unimplemented!() }
    pub fn storage(self, storage: Arc<dyn Storage>) -> Builder { unimplemented!() }
    pub fn on_recovery(self, progress: Progress) -> Builder { unimplemented!() }
    pub fn open(self, path: impl AsRef<Path>) -> Result<Database> { unimplemented!() }
}
impl Transaction {
    pub fn get(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> { unimplemented!() }
    /// Reads into a buffer that is reused; true if the key is there.
    pub fn get_into(&self, table: &Table, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> { unimplemented!() }
    pub fn get_for_update(&mut self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> { unimplemented!() }
    pub fn insert(&mut self, table: &Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> { unimplemented!() }
    pub fn remove(&mut self, table: &Table, key: impl AsRef<[u8]>) -> Result<bool> { unimplemented!() }
    pub fn range<K: AsRef<[u8]>>(&self, table: &Table, range: impl RangeBounds<K>) -> Range<'_> { unimplemented!() }
    pub fn first(&self, table: &Table) -> Result<Option<(Vec<u8>, Vec<u8>)>> { unimplemented!() }
    pub fn last(&self, table: &Table) -> Result<Option<(Vec<u8>, Vec<u8>)>> { unimplemented!() }
    pub fn savepoint(&mut self) -> Savepoint { unimplemented!() }
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> { unimplemented!() }
    pub fn commit(self) -> Result<Csn> { unimplemented!() }
    pub fn commit_async(self) -> Result<CommitHandle> { unimplemented!() }
    pub fn abort(self) { unimplemented!() }
}
impl Snapshot {
    pub fn csn(&self) -> Csn { unimplemented!() }
    pub fn get(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> { unimplemented!() }
    pub fn get_into(&self, table: &Table, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> { unimplemented!() }
    pub fn range<K: AsRef<[u8]>>(&self, table: &Table, range: impl RangeBounds<K>) -> Range<'_> { unimplemented!() }
    pub fn first(&self, table: &Table) -> Result<Option<(Vec<u8>, Vec<u8>)>> { unimplemented!() }
    pub fn last(&self, table: &Table) -> Result<Option<(Vec<u8>, Vec<u8>)>> { unimplemented!() }
}
impl Iterator for Range<'_> { type Item = Result<(Vec<u8>, Vec<u8>)>; fn next(&mut self) -> Option<Self::Item> { unimplemented!() } }
impl DoubleEndedIterator for Range<'_> { fn next_back(&mut self) -> Option<Self::Item> { unimplemented!() } }
impl Table { pub fn name(&self) -> &str { unimplemented!() } }
impl CommitHandle {
    pub fn csn(&self) -> Csn { unimplemented!() }
    pub fn is_committed(&self) -> bool { unimplemented!() }
    pub fn wait(&self) -> Result<()> { unimplemented!() }
    /// Ok(false) = not yet.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<bool> { unimplemented!() }
}
impl std::future::Future for CommitHandle { type Output = Result<()>; fn poll(self: std::pin::Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<Self::Output> { unimplemented!() } }
