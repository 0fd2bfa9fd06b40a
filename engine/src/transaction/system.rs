//! The shared state of all transactions of a database, composed of its components, and how the
//! trees reach the versions.

use super::catalog::{Catalog, TableState};
use super::committed::Committed;
use super::counters::TransactionCounters;
use super::descriptor::Descriptors;
use super::large_values::LargeValues;
use super::locks::Locks;
use super::page_clocks::PageClocks;
use super::share::Share;
use super::version_store::VersionStore;
use super::versions::Versions;
use super::view::{Outcome, View};
use crate::base::clock::{Clock, Nanos};
use crate::base::{Csn, Error, ErrorKind, Gsn, Location, LogId, PageId, Result};
use crate::buffer::{ExclusiveGuard, Pool};
use crate::commit::{Commit, Record, Shares};
use crate::device::topology::NumaNodes;
use crate::log::RedoBuffer;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::epoch::{Guard, pin};
use crate::sync::{PerProcess, Process, thread};
use crate::tree::{self, Held, LargeReader, LargeReference, ReadLeaf, Tree, TreeObserver};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The ordinals of living threads: positions of NUMA nodes, and numbers there.
type Ordinals = BTreeSet<(usize, usize)>;

static ORDINALS: PerProcess<std::sync::Mutex<Ordinals>> = PerProcess::new();

fn ordinals() -> std::sync::MutexGuard<'static, Ordinals> {
    ORDINALS.get(Default::default).lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Takes the smallest number that no other thread of the node has, and returns it.
fn take_number(ordinals: &mut Ordinals, node: usize) -> usize {
    let taken = ordinals.range((node, 0)..=(node, usize::MAX));
    let number = (0..).zip(taken).take_while(|(number, (_, taken))| number == taken).count();
    ordinals.insert((node, number));
    number
}

/// The NUMA node on which a thread first used a log, and the smallest number that no other living
/// thread of that node has, so that a few threads use different logs, whichever threads ran before.
struct Ordinal {
    node: usize,
    number: usize,
    process: Process,
}

impl Ordinal {
    fn take() -> Ordinal {
        let nodes = NumaNodes::of_machine();
        let node = if nodes.count() > 1 { nodes.position_of(thread::current_cpu()) } else { 0 };
        Ordinal { node, number: take_number(&mut ordinals(), node), process: Process::current() }
    }
}

impl Drop for Ordinal {
    fn drop(&mut self) {
        if !self.process.is_forked() {
            ordinals().remove(&(self.node, self.number));
        }
    }
}

thread_local! {
    static ORDINAL: Ordinal = Ordinal::take();
}

/// Called with all participants of a structure change latched, before the change.
pub type StructureHook = Box<dyn Fn(&[&ExclusiveGuard<'_>]) + Send + Sync>;

/// Bounds of one transaction.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest key in bytes.
    pub key_bytes_max: usize,
    /// Longest key and value together that lie in an entry, in bytes; longer values go to overflow
    /// pages.
    pub entry_bytes_max: usize,
    /// Most redo bytes of a transaction.
    pub transaction_bytes_max: usize,
    /// Redo bytes of a transaction that are kept in memory.
    pub chunk_bytes: usize,
    /// How long a writer waits for a row.
    pub lock_wait: Duration,
}

impl Limits {
    /// Returns the bounds for a page size. All redo of a transaction is kept in memory.
    #[must_use]
    pub fn for_page(page_bytes: usize, transaction_bytes_max: usize, lock_wait: Duration) -> Limits {
        Limits {
            key_bytes_max: tree::max_key_bytes(page_bytes),
            entry_bytes_max: tree::max_entry_bytes(page_bytes),
            transaction_bytes_max,
            chunk_bytes: transaction_bytes_max,
            lock_wait,
        }
    }
}

/// What the trees ask about versions, and how a checkpoint learns of structure changes.
struct Observer {
    versions: Arc<Versions>,
    hook: OnceLock<StructureHook>,
}

impl TreeObserver for Observer {
    fn is_settled(&self, stamp: u64) -> bool {
        self.versions.is_settled(stamp)
    }

    fn before_structure_change(&self, participants: &[&ExclusiveGuard<'_>]) {
        if let Some(hook) = self.hook.get() {
            hook(participants);
        }
    }
}

/// The state that all transactions of a database share.
pub struct TransactionSystem {
    /// Unique in the process, also among closed databases: an address could be reused.
    pub(super) number: u64,
    pub(super) descriptors: Arc<Descriptors>,
    /// How far transactions are committed.
    pub committed: Arc<Committed>,
    /// Versions, garbage and backpressure.
    pub versions: VersionStore,
    /// Large values in progress, and those to be freed.
    pub large_values: Arc<LargeValues>,
    /// The tables.
    pub catalog: Catalog,
    /// Counters of transactions.
    pub counters: Arc<TransactionCounters>,
    /// Memory that large transactions in progress take besides pages and versions; charged to the
    /// pool's account, too.
    pub(super) write_sets: Share,
    /// Memory of the locks of transactions that have many; charged to the pool's account, too.
    pub(super) lock_memory: Share,
    /// What the locks of all tables share.
    pub(super) locks: Locks,
    observer: Arc<Observer>,
    pub(super) limits: Limits,
    pub(super) clock: Clock,
    pub(super) page_clocks: PageClocks,
    /// Which log each thread writes to. Not set before the database is open for writing.
    shares: OnceLock<Shares>,
    /// Read-write transactions in progress, for the gather window of a group commit.
    pub(super) in_progress: Arc<AtomicUsize>,
    /// Change feeds, and one if history is retained: while there are any, values are logged whole.
    pub(super) feeds: Arc<AtomicUsize>,
    pub(super) pool: Arc<Pool>,
}

impl std::fmt::Debug for TransactionSystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TransactionSystem").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Returns a redo buffer as a log record.
pub(super) fn record_of(redo: &RedoBuffer) -> Record<'_> {
    let (body_crc, operations, kind) = (redo.crc(), redo.op_count(), redo.last_kind());
    Record { body: redo.body(), body_crc, operations, gsn: Gsn(0), kind }
}

impl TransactionSystem {
    /// Returns a system without tables. Transactions may begin after
    /// [`TransactionSystem::connect`].
    #[must_use]
    pub fn new(pool: Arc<Pool>, limits: Limits, version_bytes_max: u64, clock: Clock) -> TransactionSystem {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        let slots = Arc::new(Versions::new(version_bytes_max, pool.account()));
        let (descriptors, committed, counters) = (Arc::default(), Arc::default(), Arc::default());
        let large_values = Arc::new(LargeValues::new(pool.clone(), Arc::clone(&descriptors), slots.clone()));
        let versions = VersionStore::new(
            slots.clone(),
            descriptors.clone(),
            large_values.clone(),
            Arc::clone(&committed),
            pool.clone(),
            clock.clone(),
            Arc::clone(&counters),
        );
        TransactionSystem {
            number: NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            locks: Locks::new(Arc::clone(&descriptors)),
            lock_memory: Share::of_locks(),
            descriptors,
            committed,
            versions,
            large_values,
            catalog: Catalog::default(),
            counters,
            write_sets: Share::of_changes(),
            observer: Arc::new(Observer { versions: slots, hook: OnceLock::new() }),
            limits,
            clock,
            page_clocks: PageClocks::new(pool.account()),
            shares: OnceLock::new(),
            in_progress: Arc::default(),
            feeds: Arc::default(),
            pool,
        }
    }

    /// Returns the time source of the database.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock.clone()
    }

    /// Connects the system to its `Commit`, once recovery knows the next CSN and epoch. Divides the
    /// logs among `nodes`.
    pub fn connect(&self, commit: Arc<Commit>, logs: usize, nodes: &NumaNodes) {
        let shares = Shares::new(logs, commit.inspect().axes().threads_in_a_row(), nodes);
        assert!(self.shares.set(shares).is_ok(), "set once, by open");
        self.committed.run(commit);
    }

    /// Serves snapshots of everything up to `newest`, which is committed, and no read-write
    /// transaction.
    pub fn serve_read_only(&self, newest: Csn) {
        self.committed.rest_at(newest);
    }

    /// Calls `hook` before every structure change of a tree from now on. Set once.
    pub fn set_structure_hook(&self, hook: StructureHook) {
        assert!(self.observer.hook.set(hook).is_ok(), "set once, by the checkpoint");
    }

    /// Returns the number of read-write transactions in progress, as a counter that is kept up to
    /// date.
    pub fn in_progress(&self) -> Arc<AtomicUsize> {
        self.in_progress.clone()
    }

    /// Returns whether an overwrite may be logged as the bytes that it changes.
    #[inline]
    pub(super) fn logs_patches(&self) -> bool {
        self.feeds.load(Ordering::Relaxed) == 0
    }

    /// Returns the number of users that need values to be logged whole. A user adds one, and
    /// subtracts it at its end.
    pub fn feeds(&self) -> Arc<AtomicUsize> {
        self.feeds.clone()
    }

    /// Returns the running `Commit` of a database that is open for writing.
    #[inline]
    pub fn commit(&self) -> &Arc<Commit> {
        self.committed.commit()
    }

    /// Counts the locks that a transaction has held since `since` and releases now.
    pub(super) fn count_lock_hold(&self, since: Nanos) {
        self.counters.lock_holds.record_ns(self.clock.now().0.saturating_sub(since.0));
    }

    /// Opens the tree with this root.
    pub fn open_tree(&self, root: PageId) -> Tree {
        Tree::open(self.pool.clone(), self.observer.clone(), root)
    }

    /// Creates an empty tree.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn create_tree(&self) -> Result<Tree> {
        Tree::create(self.pool.clone(), self.observer.clone())
    }

    /// Creates an empty tree whose pages no checkpoint contains before [`Tree::publish`].
    pub(super) fn create_hidden_tree(&self) -> Result<Tree> {
        Tree::create_hidden(self.pool.clone(), self.observer.clone())
    }

    /// Returns the log that the calling thread writes to. Threads are given the logs of their NUMA
    /// node in the order of their first use.
    #[must_use]
    pub fn log_of_thread(&self) -> LogId {
        let (node, number) = ORDINAL.try_with(|ordinal| (ordinal.node, ordinal.number)).unwrap_or((0, 0));
        self.shares.get().map_or(LogId(0), |shares| shares.log_of(node, number))
    }

    /// Reads `key` as `view`, which is pinned, sees it, into `value`. Returns whether the key
    /// exists, the CSN that the read depends on, and the leaf.
    #[inline]
    pub(super) fn read(
        &self,
        tree: &Tree,
        key: &[u8],
        view: View,
        value: &mut Vec<u8>,
    ) -> Result<(bool, Csn, ReadLeaf)> {
        let (held, csn, leaf) = self.read_entry(tree, key, view, value)?;
        self.load_large(held, value)?;
        Ok((held != Held::Nothing, csn, leaf))
    }

    /// Replaces the reference in `value` by the large value, if the entry held one.
    #[inline]
    pub(super) fn load_large(&self, held: Held, value: &mut Vec<u8>) -> Result<()> {
        if held == Held::Reference {
            let reference = LargeReference::decode(value)?;
            value.clear();
            LargeReader::new(self.pool.clone(), reference).read_all(value)?;
        }
        Ok(())
    }

    /// Reads the entry of `key` as `view` sees it. Of a large value `value` gets the reference.
    #[inline]
    pub(super) fn read_entry(
        &self,
        tree: &Tree,
        key: &[u8],
        view: View,
        value: &mut Vec<u8>,
    ) -> Result<(Held, Csn, ReadLeaf)> {
        loop {
            let guard = pin();
            let (leaf, entry) = tree.lookup_in_leaf(key, value)?;
            let Some(entry) = entry else {
                return Ok((Held::Nothing, Csn::ZERO, leaf));
            };
            if self.versions.slots.is_settled(entry.stamp) {
                return Ok((entry.held(), Csn::ZERO, leaf));
            }
            match self.resolve(view, entry.stamp, entry.held(), value, &guard) {
                Outcome::Value(csn) => return Ok((Held::Value, csn, leaf)),
                Outcome::Reference(csn) => return Ok((Held::Reference, csn, leaf)),
                Outcome::Absent(csn) => {
                    value.clear();
                    return Ok((Held::Nothing, csn, leaf));
                }
                // After a panic inside the engine the entry may never change.
                Outcome::Retry => self.committed.check_whole()?,
            }
        }
    }

    pub(super) fn resolve(
        &self,
        view: View,
        word: u64,
        held: Held,
        value: &mut Vec<u8>,
        guard: &Guard,
    ) -> Outcome {
        view.resolve(word, held, value, &self.versions.slots, &self.descriptors, guard)
    }

    /// Counts the caller as a user of a table. If the table was dropped, calls `on_drop` with the
    /// CSN of the drop before the caller gets the error.
    ///
    /// # Errors
    /// `NotFound` if the table was dropped; `InvalidArgument` for a table of another database,
    /// whose rows would be changed under CSNs of this one.
    pub(super) fn begin_use(
        &self,
        table: &TableState,
        on_drop: impl FnOnce(Csn) -> Result<()>,
    ) -> Result<()> {
        if !table.tree.is_in(&self.pool) {
            let what = "the table belongs to another database, or to one that was closed";
            return Err(Error::invalid(what)
                .with_advice("open it by name in this one")
                .at(Location::Table(table.name.to_string())));
        }
        table.begin_use().or_else(|dropped| on_drop(table.drop_csn()).and(Err(dropped)))
    }

    #[inline]
    pub(super) fn check_key(&self, table: &TableState, key: &[u8]) -> Result<()> {
        let max = self.limits.key_bytes_max;
        if key.is_empty() || key.len() > max {
            return Err(Error::invalid(format!("a key has 1 to {max} bytes, this one has {}", key.len()))
                .at(Location::Table(table.name.to_string())));
        }
        Ok(())
    }

    pub(super) fn check_value(&self, table: &TableState, len: u64) -> Result<()> {
        if len > tree::VALUE_BYTES_MAX {
            return Err(tree::overflow::too_long(len).at(Location::Table(table.name.to_string())));
        }
        Ok(())
    }

    pub(super) fn conflict(&self, what: &str, table: &TableState) -> Error {
        self.counters.conflicts.add(1);
        Error::new(ErrorKind::Conflict, what).at(Location::Table(table.name.to_string()))
    }

    /// Returns the conflict of a transaction whose snapshot does not see a row.
    pub(super) fn newer_than_snapshot(&self, table: &TableState) -> Error {
        self.conflict("the row was changed after this transaction's snapshot", table)
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_the_smallest_free_number_of_its_node() {
        let mut ordinals = Ordinals::new();
        assert_eq!([0, 0, 1, 0, 1, 2].map(|node| take_number(&mut ordinals, node)), [0, 1, 0, 2, 1, 0]);
        // Two threads end.
        ordinals.remove(&(0, 1));
        ordinals.remove(&(1, 0));
        assert_eq!([2, 0, 0, 1, 1].map(|node| take_number(&mut ordinals, node)), [1, 1, 3, 0, 2]);
    }
}
