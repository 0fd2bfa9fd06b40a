//! The shared state of all transactions of a database, and the tree's way to ask about versions.

use super::catalog::{Catalog, TableState};
use super::clocks::PageClocks;
use super::counters::TransactionCounters;
use super::descriptor::{DescriptorId, Descriptors, Stamp, Status};
use super::garbage::{Garbage, Horizon, Pruning, ToCollect};
use super::retired::{Retired, RetiredHeld, RetiredValues};
use super::unfinished::UnfinishedPages;
use super::versions::{VersionHandle, Versions};
use super::view::{Outcome, Sight, View};
use crate::base::clock::{Clock, Nanos};
use crate::base::planted::{self, Bug};
use crate::base::{Account, Csn, Error, ErrorKind, Gsn, Location, LogId, PageId, PooledCharge, Result};
use crate::buffer::{ExclusiveGuard, Pool};
use crate::commit::{Commit, Record};
use crate::log::RedoBuffer;
use crate::sync::Event;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::epoch::{Guard, pin};
use crate::tree::{self, Held, LargeReader, LargeReference, Tree, TreeObserver};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Those that are taken.
static ORDINALS: std::sync::Mutex<BTreeSet<usize>> = std::sync::Mutex::new(BTreeSet::new());

/// The smallest number that no other living thread has: few threads have different logs, whoever lived before them.
struct Ordinal(usize);

impl Ordinal {
    fn take() -> Ordinal {
        let mut taken = ORDINALS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let free = (0..).zip(&*taken).take_while(|(number, taken)| number == *taken).count();
        taken.insert(free);
        Ordinal(free)
    }
}

impl Drop for Ordinal {
    fn drop(&mut self) {
        ORDINALS.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(&self.0);
    }
}

thread_local! {
    static ORDINAL: Ordinal = Ordinal::take();
}

fn thread_ordinal() -> usize {
    ORDINAL.try_with(|ordinal| ordinal.0).unwrap_or(0)
}

/// Called with all participants of a structure change latched, before the change.
pub type StructureHook = Box<dyn Fn(&[&ExclusiveGuard<'_>]) + Send + Sync>;

/// Bounds of one transaction.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest key.
    pub key_bytes_max: usize,
    /// Longest key and value together that lie in an entry; longer values go to overflow pages.
    pub entry_bytes_max: usize,
    /// Most redo bytes of a transaction.
    pub transaction_bytes_max: usize,
    /// Redo bytes of a transaction that are kept in memory.
    pub chunk_bytes: usize,
    /// How long a writer waits for a row.
    pub lock_wait: Duration,
}

/// What a stamp means to somebody who takes its page out of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StampState {
    /// Nothing any more.
    Settled,
    /// Committed; an older snapshot may want to know.
    Committed(Csn),
    /// Its record is not durable yet, or that of a transaction before it.
    NotDurable(Csn),
    /// Not committed.
    InProgress,
}

/// The trees' way to ask about versions, and the checkpoint's way to hear of structure changes.
pub(super) struct Observer {
    pub(super) versions: Arc<Versions>,
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

/// Everything that transactions share.
pub struct TransactionSystem {
    /// No other of the process has it, not even one that is gone: an address would be used again.
    pub(super) number: u64,
    pub(super) descriptors: Descriptors,
    pub(super) versions: Arc<Versions>,
    pub(super) garbage: Garbage,
    pub(super) retired: RetiredValues,
    /// Pages of large values that left memory before their transactions committed.
    pub(super) unfinished: UnfinishedPages,
    /// What large transactions in progress keep besides pages and versions; charged to the pool's account, too.
    pub(super) write_sets: Arc<Account>,
    pub(super) observer: Arc<Observer>,
    pub(super) limits: Limits,
    pub(super) clock: Clock,
    pub(super) page_clocks: PageClocks,
    pub(super) commit: OnceLock<Arc<Commit>>,
    logs: AtomicUsize,
    /// Read-write transactions in progress, for the group's gather window.
    pub(super) in_progress: Arc<AtomicUsize>,
    /// Checkpoint views that there are, how many there have been that are gone, and the event that another one is. Written by
    /// checkpoints, read by writers that found no memory.
    pub(super) views_open: AtomicUsize,
    pub(super) views_ended: AtomicU64,
    pub(super) view_ended: Event,
    /// Rises while a checkpoint is being made.
    pub(super) views_progress: AtomicU64,
    /// The oldest snapshot when somebody waited in vain for old versions to go; 0: none.
    pub(super) outwaited: AtomicU64,
    /// When charges were lowered last; 0: never.
    pub(super) charges_lowered: AtomicU64,
    pub(super) pool: Arc<Pool>,
    catalog: Catalog,
    counters: TransactionCounters,
}

impl std::fmt::Debug for TransactionSystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TransactionSystem").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl TransactionSystem {
    /// A system without tables. Transactions may begin after [`TransactionSystem::connect`].
    #[must_use]
    pub fn new(pool: Arc<Pool>, limits: Limits, version_bytes_max: u64, clock: Clock) -> TransactionSystem {
        let versions = Arc::new(Versions::new(version_bytes_max, pool.account()));
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        TransactionSystem {
            number: NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            descriptors: Descriptors::default(),
            observer: Arc::new(Observer { versions: versions.clone(), hook: OnceLock::new() }),
            versions,
            garbage: Garbage::default(),
            retired: RetiredValues::default(),
            unfinished: UnfinishedPages::new(PooledCharge::new(pool.account())),
            write_sets: Arc::default(),
            limits,
            clock,
            page_clocks: PageClocks::new(pool.account()),
            commit: OnceLock::new(),
            logs: AtomicUsize::new(1),
            in_progress: Arc::default(),
            views_open: AtomicUsize::new(0),
            views_ended: AtomicU64::new(0),
            outwaited: AtomicU64::new(0),
            charges_lowered: AtomicU64::new(0),
            view_ended: Event::new(),
            views_progress: AtomicU64::new(0),
            pool,
            catalog: Catalog::default(),
            counters: TransactionCounters::default(),
        }
    }

    /// The time that the database goes by.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock.clone()
    }

    /// Gives the system its commit room, once recovery knows the next CSN and epoch.
    pub fn connect(&self, commit: Arc<Commit>, logs: usize) {
        self.logs.store(logs, Ordering::Relaxed);
        assert!(self.commit.set(commit).is_ok(), "connected once, by open");
    }

    /// Has `hook` called before every structure change of a tree. Set once.
    pub fn set_structure_hook(&self, hook: StructureHook) {
        assert!(self.observer.hook.set(hook).is_ok(), "set once, by the checkpoint");
    }

    /// Counts the read-write transactions in progress.
    pub fn in_progress(&self) -> Arc<AtomicUsize> {
        self.in_progress.clone()
    }

    /// The commit room.
    pub fn commit(&self) -> &Arc<Commit> {
        self.commit.get().expect("connected before the database is handed out")
    }

    /// The tables.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The pages.
    pub(super) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// What was counted.
    pub fn counters(&self) -> &TransactionCounters {
        &self.counters
    }

    /// The versions.
    pub fn versions(&self) -> &Versions {
        &self.versions
    }

    /// What an entry's stamp means to somebody who takes its page out of memory. `guard` was pinned before the page was read.
    pub fn stamp_state(&self, stamp: u64, guard: &Guard) -> StampState {
        let version = VersionHandle::from_word(stamp).and_then(|handle| self.versions.read(handle, guard));
        let Some(version) = version else { return StampState::Settled };
        // Recovery evicts before there is a commit room; then nothing has a version.
        let watermark = self.commit.get().map_or(Csn::MAX, |commit| commit.watermark());
        match self.descriptors.status(version.stamp) {
            Status::Committed(csn) if csn < watermark => StampState::Committed(csn),
            Status::Committed(csn) => StampState::NotDurable(csn),
            Status::InProgress(_) | Status::LeftBehind | Status::Finished => StampState::InProgress,
        }
    }

    /// Sleeps until everything up to `csn` is committed, and causes the writes that this needs.
    ///
    /// # Errors
    /// `Poisoned`.
    pub fn wait_committed_up_to(&self, csn: Csn) -> Result<()> {
        self.commit.get().map_or(Ok(()), |commit| commit.wait_watermark(csn))
    }

    /// The newest CSN drawn; 0 before there can be one.
    pub fn newest_drawn(&self) -> Csn {
        self.commit.get().map_or(Csn::ZERO, |commit| commit.newest_drawn())
    }

    /// The tree with this root.
    pub fn open_tree(&self, root: crate::base::PageId) -> Tree {
        Tree::open(self.pool.clone(), self.observer.clone(), root)
    }

    /// An empty tree.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn create_tree(&self) -> Result<Tree> {
        Tree::create(self.pool.clone(), self.observer.clone())
    }

    /// Open snapshots and transactions, and the oldest CSN one of them needs.
    pub fn snapshots(&self) -> (u64, Csn) {
        let bound = self.commit().newest_drawn();
        (self.descriptors.pins().len() as u64, self.descriptors.oldest_pin(bound))
    }

    /// A redo buffer as the commit room takes it.
    pub(super) fn record_of(redo: &RedoBuffer) -> Record<'_> {
        let (body_crc, operations, kind) = (redo.crc(), redo.op_count(), redo.last_kind());
        Record { body: redo.body(), body_crc, operations, gsn: Gsn(0), kind }
    }

    /// The log that the calling thread writes to: threads are spread over the logs in the order of their first use.
    #[must_use]
    pub fn log_of_thread(&self) -> LogId {
        LogId((thread_ordinal() % self.logs.load(Ordering::Relaxed).max(1)) as u32)
    }

    /// Collects what a transaction has said is worth it, when nobody waits for anything of that transaction any more.
    pub fn collect_after(&self, to_collect: ToCollect) {
        match to_collect {
            ToCollect::Nothing => {}
            ToCollect::Retired => self.collect_retired(),
            ToCollect::Shard(shard) => {
                self.garbage.collect(shard, &self.versions, &self.horizon());
                self.collect_retired();
                // What versions take, pages do not get.
                self.pool.memory().check_budget();
            }
        }
    }

    /// Collects for as long as `until`, and no longer than a shard takes, unless somebody else collects.
    pub(super) fn collect_some(&self, until: Nanos) {
        self.garbage.collect_until(&self.versions, &self.horizon(), || self.clock.now() >= until);
    }

    /// Collects all garbage that can be collected now.
    pub fn collect_all(&self) {
        self.collect_all_pruning(Pruning::WhenItPays);
    }

    pub(super) fn collect_all_pruning(&self, pruning: Pruning) {
        let horizon = self.horizon();
        self.garbage.collect_all(&self.versions, &horizon, pruning);
        self.retired.collect(&self.pool, &self.unfinished, &horizon, true);
    }

    /// Frees large values that nobody can see any more: a few of them are more memory than many versions.
    pub fn collect_retired(&self) {
        self.retired.collect(&self.pool, &self.unfinished, &self.horizon(), false);
    }

    /// Keeps retired large values until the result is dropped: for a checkpoint, from before it chooses its CSN.
    pub fn hold_retired(&self) -> RetiredHeld<'_> {
        self.retired.hold()
    }

    /// The large values that a checkpoint at `csn`, which was drawn, has in its images although no entry in them refers to
    /// them.
    pub fn retired_as_of(&self, csn: Csn, held: &RetiredHeld<'_>) -> Vec<LargeReference> {
        self.descriptors.await_ended(csn);
        self.retired.as_of(csn, held)
    }

    /// The large values that wait to be freed now.
    pub fn retired_values(&self) -> Vec<LargeReference> {
        self.retired.all()
    }

    /// Large values that the checkpoint, from which the database was opened, had as retired.
    pub fn retire_again(&self, values: Vec<LargeReference>) {
        let retired = |reference| Retired { birth: Csn::ZERO, death: Csn::ZERO, reference };
        self.retired.retire(values.into_iter().map(retired));
    }

    pub(super) fn horizon(&self) -> Horizon<'_> {
        let commit = self.commit();
        if planted::is(Bug::VersionFreedVolatile) {
            return Horizon { bound: commit.newest_drawn(), descriptors: &self.descriptors };
        }
        Horizon { bound: commit.newest_settled(), descriptors: &self.descriptors }
    }

    /// Reads `key` as `view`, which is pinned, sees it; `value` gets the value. The CSN is what the read depends on.
    pub(super) fn read(
        &self,
        tree: &Tree,
        key: &[u8],
        view: View,
        value: &mut Vec<u8>,
    ) -> Result<(bool, Csn, PageId)> {
        let (held, csn, leaf) = self.read_entry(tree, key, view, value)?;
        if held == Held::Reference {
            let reference = LargeReference::decode(value)?;
            value.clear();
            LargeReader::new(self.pool.clone(), reference).read_all(value)?;
        }
        Ok((held != Held::Nothing, csn, leaf))
    }

    /// The same without the bytes of a large value: `value` gets its reference.
    pub(super) fn read_entry(
        &self,
        tree: &Tree,
        key: &[u8],
        view: View,
        value: &mut Vec<u8>,
    ) -> Result<(Held, Csn, PageId)> {
        loop {
            let guard = pin();
            let (leaf, entry) = tree.lookup_in_leaf(key, value)?;
            let Some(entry) = entry else {
                value.clear();
                return Ok((Held::Nothing, Csn::ZERO, leaf));
            };
            if entry.stamp == 0 {
                return Ok((entry.held(), Csn::ZERO, leaf));
            }
            match self.resolve(view, entry.stamp, entry.held(), value, &guard) {
                Outcome::Value(csn) => return Ok((Held::Value, csn, leaf)),
                Outcome::Reference(csn) => return Ok((Held::Reference, csn, leaf)),
                Outcome::Absent(csn) => {
                    value.clear();
                    return Ok((Held::Nothing, csn, leaf));
                }
                // After a panic inside the engine it may stay so.
                Outcome::Again => self.check_whole()?,
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
        view.resolve(word, held, value, &self.versions, &self.descriptors, guard)
    }

    /// Begins the use of a table, which must be of this database: one of another would be changed under our CSNs. If it was dropped `met`
    /// is called with the CSN of that, before anybody is told.
    pub(super) fn begin_use(&self, table: &TableState, met: impl FnOnce(Csn) -> Result<()>) -> Result<()> {
        if !table.tree.is_in(&self.pool) {
            return Err(Error::invalid("the table belongs to another database, or to one that was closed")
                .at(Location::Table(table.name.clone())));
        }
        table.begin_use().or_else(|gone| met(table.drop_csn()).and(Err(gone)))
    }

    /// Checks a key.
    pub(super) fn check_key(&self, table: &TableState, key: &[u8]) -> Result<()> {
        let max = self.limits.key_bytes_max;
        if key.is_empty() || key.len() > max {
            return Err(Error::invalid(format!("a key has 1 to {max} bytes, this one has {}", key.len()))
                .at(Location::Table(table.name.clone())));
        }
        Ok(())
    }

    /// Checks the length of a value.
    pub(super) fn check_value(&self, table: &TableState, len: u64) -> Result<()> {
        if len > tree::VALUE_BYTES_MAX {
            return Err(tree::overflow::too_long(len).at(Location::Table(table.name.clone())));
        }
        Ok(())
    }

    /// Takes a descriptor pinned for a checkpoint.
    ///
    /// # Errors
    /// `Busy` when all descriptors are taken.
    pub fn checkpoint_view(self: &Arc<Self>) -> Result<CheckpointView> {
        let id = self.descriptors.take()?;
        let csn = self.descriptors.pin(id, || Csn::ZERO);
        self.views_open.fetch_add(1, Ordering::SeqCst);
        Ok(CheckpointView { system: self.clone(), id, csn })
    }

    pub(super) fn conflict(&self, what: &str, table: &TableState) -> Error {
        self.counters.conflicts.add(1);
        Error::new(ErrorKind::Conflict, what).at(Location::Table(table.name.clone()))
    }
}

/// Bounds for keys and values that a page size allows.
impl Limits {
    /// The bounds for `page_bytes`. All redo of a transaction is kept in memory.
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

/// What a checkpoint sees: exactly the transactions up to its CSN.
#[derive(Debug)]
pub struct CheckpointView {
    system: Arc<TransactionSystem>,
    id: DescriptorId,
    csn: Csn,
}

impl CheckpointView {
    /// Chooses the CSN: everything drawn so far. The pin has been announced since the view was made, so no version that
    /// it needs is collected.
    pub fn choose(&mut self) -> Csn {
        let commit = self.system.commit().clone();
        self.csn = self.system.descriptors.pin(self.id, || commit.newest_drawn());
        self.csn
    }

    /// # Errors
    /// `Poisoned` after a panic inside the engine: what an entry refers to may never be settled.
    pub fn check_whole(&self) -> Result<()> {
        self.system.check_whole()
    }

    /// The checkpoint goes on: writers wait for its end that need what it holds.
    pub fn made_progress(&self) {
        self.system.views_progress.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn system(&self) -> &TransactionSystem {
        &self.system
    }

    /// The chosen CSN.
    #[must_use]
    pub fn csn(&self) -> Csn {
        self.csn
    }

    /// What an entry held at the CSN, in `value`, and whether a transaction in progress has changed or locked it since; `None` if the entry
    /// must be read again. With the entry's page latched `None` does not happen for long: retry in place.
    pub fn resolve(&self, word: u64, held: Held, value: &mut Vec<u8>, guard: &Guard) -> Option<(Held, bool)> {
        let view = View { snapshot: self.csn, own: Stamp(0) };
        let (sight, _) = view.sight(word, &self.system.versions, &self.system.descriptors, guard);
        if let Sight::Seen(_) = sight {
            return Some((held, false));
        }
        let held = match self.system.resolve(view, word, held, value, guard) {
            Outcome::Value(_) => Held::Value,
            Outcome::Reference(_) => Held::Reference,
            Outcome::Absent(_) => Held::Nothing,
            Outcome::Again => return None,
        };
        Some((held, matches!(sight, Sight::InProgress(_))))
    }
}

impl Drop for CheckpointView {
    fn drop(&mut self) {
        self.system.descriptors.release(self.id);
        // In this order: whoever finds none open finds that one has ended.
        self.system.views_ended.fetch_add(1, Ordering::SeqCst);
        self.system.views_open.fetch_sub(1, Ordering::SeqCst);
        self.system.view_ended.notify_all();
    }
}
