//! The versions of a database: which are still needed, when they are given back, and what happens
//! when their memory fills up.
//!
//! Collection runs after commits, when a checkpoint begins and ends, and when a memory bound is
//! near. A commit gives back a bounded number of versions. The maintenance thread gives back the
//! rest: what one commit left, and what a snapshot kept that has ended. If much is kept only until
//! it is durable, as after lazy commits, the log is flushed. *Backpressure* has three steps:
//!
//! 1. While the last quarter of the memory for versions is in use, a transaction waits a little
//!    before it begins, so that versions are given back as fast as transactions create them.
//! 2. A writer that finds no memory gives back what no snapshot needs, and waits for commits and
//!    for a running checkpoint that still need versions.
//! 3. The evictor first checks whether memory is still charged to versions that are gone.

use super::committed::Committed;
use super::counters::TransactionCounters;
use super::descriptor::{Descriptors, Stamp, Status};
use super::garbage::{Garbage, Horizon, Pruning, ToCollect};
use super::large_values::LargeValues;
use super::versions::{Before, Undo, VersionHandle, Versions};
use crate::base::clock::{Clock, Nanos};
use crate::base::planted::{self, Bug};
use crate::base::{Csn, ErrorKind, Result};
use crate::buffer::{Pool, free_memory_to_system};
use crate::sync::Event;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::sync::epoch::{Guard, pin};
use crate::sync::thread;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The oldest snapshot when a wait for old versions last ended without success; 0 if none has. The
/// next such wait does not wait for it again.
#[derive(Debug, Default)]
struct Outlasted(AtomicU64);

/// Epochs that have to pass before all deferred frees have run, and a few more for threads that are
/// in an epoch.
const FREE_ROUNDS: usize = 16;
/// How often a writer waits if that was not enough, and how long each time: for threads in an
/// epoch, and for transactions of other threads, whose snapshots keep versions. A busy machine may
/// stop such a thread for some hundred milliseconds.
const RECLAIM_WAITS: usize = 1000;
const RECLAIM_WAIT: Duration = Duration::from_millis(1);
/// How long a writer waits for a checkpoint that holds versions and makes no progress.
const CHECKPOINT_WAIT: Duration = Duration::from_secs(60);
/// Charges are lowered when so many bytes are charged and free, and at least half of what is
/// charged...
const SURPLUS_BYTES: u64 = 128 << 10;
/// ... but not more often than this, because the allocator searches all memory of the process.
const LOWER_EVERY: Duration = Duration::from_secs(1);
/// Steps that a beginning transaction waits at most when the memory for versions is nearly full,
/// and the length of a step.
const THROTTLE_STEPS: u64 = 16;
const THROTTLE_STEP: Duration = Duration::from_millis(1);
/// Bytes of versions, at most a quarter of the bound, from which the log is flushed if they wait
/// only for that, and from which the end of a snapshot that kept them wakes the maintenance thread.
/// Logs that are left to their own writers are flushed from a quarter of the bound.
const BACKLOG_BYTES: u64 = 256 << 10;
/// When the maintenance thread looks again for versions that wait for a flush, and how often.
const BACKLOG_LOOK: Duration = Duration::from_millis(10);
const BACKLOG_LOOKS: u32 = 100;

/// Frees what no thread can be looking at, and yields to threads that are in an epoch. Each flush
/// frees some hundred pieces.
fn run_deferred_frees() {
    for _ in 0..FREE_ROUNDS {
        pin().flush();
        thread::yield_now();
    }
}

/// Time that a checkpoint collects garbage beside writers, before its images and after them.
const CHECKPOINT_COLLECTS: Duration = Duration::from_millis(200);

/// What a stamp means for a page that is about to leave memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StampState {
    /// Every snapshot sees the value.
    Settled,
    /// Committed; an older snapshot may need the value before.
    Committed(Csn),
    /// Its record, or that of a transaction before it, is not durable yet.
    NotDurable(Csn),
    /// Not committed.
    InProgress,
}

/// The checkpoints that hold versions. Written by checkpoints, read by writers that found no
/// memory.
#[derive(Debug, Default)]
struct CheckpointViews {
    open: AtomicUsize,
    /// Views that have ended so far.
    ended: AtomicU64,
    /// Rises while a checkpoint is being made.
    progress: AtomicU64,
    /// Happens when a view ends.
    one_ended: Event,
}

/// What the maintenance thread is to collect.
#[derive(Default)]
struct Backlog {
    /// Wakes the maintenance thread.
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Set by threads that leave something to collect.
    is_requested: AtomicBool,
    /// The oldest snapshot, if it was all that kept versions at the last collection; 0 otherwise.
    held_by: AtomicU64,
    /// How often the maintenance thread is still to look again for versions that wait for a flush.
    looks: AtomicU32,
}

impl std::fmt::Debug for Backlog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backlog").field("held_by", &self.held_by).finish_non_exhaustive()
    }
}

impl Backlog {
    fn request(&self) {
        self.looks.store(BACKLOG_LOOKS, Ordering::Relaxed);
        if !self.is_requested.swap(true, Ordering::SeqCst)
            && let Some(wake) = self.wake.get()
        {
            wake();
        }
    }
}

/// Versions, garbage and backpressure.
#[derive(Debug)]
pub struct VersionStore {
    /// The version slots.
    pub slots: Arc<Versions>,
    pub(super) garbage: Garbage,
    descriptors: Arc<Descriptors>,
    large_values: Arc<LargeValues>,
    committed: Arc<Committed>,
    pool: Arc<Pool>,
    clock: Clock,
    counters: Arc<TransactionCounters>,
    views: CheckpointViews,
    backlog: Backlog,
    /// The snapshot that outlasted the wait of a beginning transaction.
    outlasted_throttle: Outlasted,
    /// The snapshot that outlasted the wait of a writer, which is much longer.
    outlasted_reclaim: Outlasted,
    /// When charges were lowered last; 0 if never.
    charges_lowered: AtomicU64,
    /// When writers were first left without memory for versions, since there was some; 0 if there
    /// is some.
    full_since: AtomicU64,
}

impl VersionStore {
    pub(super) fn new(
        slots: Arc<Versions>,
        descriptors: Arc<Descriptors>,
        large_values: Arc<LargeValues>,
        committed: Arc<Committed>,
        pool: Arc<Pool>,
        clock: Clock,
        counters: Arc<TransactionCounters>,
    ) -> VersionStore {
        VersionStore {
            slots,
            garbage: Garbage::default(),
            descriptors,
            large_values,
            committed,
            pool,
            clock,
            counters,
            views: CheckpointViews::default(),
            backlog: Backlog::default(),
            outlasted_throttle: Outlasted::default(),
            outlasted_reclaim: Outlasted::default(),
            charges_lowered: AtomicU64::new(0),
            full_since: AtomicU64::new(0),
        }
    }

    /// Returns the number of live versions.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.slots.count()
    }

    /// Returns the bytes held by live versions and by deleted keys that wait for theirs to go, and
    /// how many may be.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        self.slots.bytes()
    }

    /// Returns what an entry's stamp means for a page that leaves memory. `guard` was pinned before
    /// the page was read.
    pub fn stamp_state(&self, stamp: u64, guard: &Guard) -> StampState {
        let version = VersionHandle::from_word(stamp).and_then(|handle| self.slots.read(handle, guard));
        let Some(version) = version else { return StampState::Settled };
        let watermark = self.committed.watermark();
        match self.descriptors.status(version.stamp) {
            Status::Committed(csn) if csn < watermark => StampState::Committed(csn),
            Status::Committed(csn) => StampState::NotDurable(csn),
            Status::InProgress(_) | Status::Orphaned | Status::Finished => StampState::InProgress,
        }
    }

    /// Returns the number of open snapshots and transactions, and the oldest CSN that one of them
    /// needs.
    #[must_use]
    pub fn snapshots(&self) -> (u64, Csn) {
        let bound = self.committed.newest_drawn();
        (self.descriptors.pins().len() as u64, self.descriptors.oldest_pin(bound))
    }

    fn horizon(&self) -> Horizon<'_> {
        let bound = match planted::is(Bug::VersionFreedVolatile) {
            true => self.committed.newest_drawn(),
            false => self.committed.newest_settled(),
        };
        Horizon { bound, descriptors: &self.descriptors }
    }

    /// Collects what a transaction found worth it, once no thread waits for anything of that
    /// transaction.
    pub(super) fn collect_after(&self, to_collect: ToCollect) {
        match to_collect {
            ToCollect::Nothing => {}
            ToCollect::LargeValues => self.collect_large_values(),
            ToCollect::Shard(shard, added) => {
                let horizon = self.horizon();
                let leaves = self.garbage.collect(shard, added, &self.slots, &horizon);
                self.collect_large_values();
                // Memory of versions is missing for pages.
                self.pool.memory().check_budget();
                if leaves || self.hastens_durability(&horizon) {
                    self.backlog.request();
                }
            }
        }
    }

    fn is_backlog_long(&self) -> bool {
        let (bytes, most) = self.slots.bytes();
        bytes >= BACKLOG_BYTES.min(most / 4)
    }

    /// Has the log written if many versions wait only for that. Returns whether they do.
    fn hastens_durability(&self, horizon: &Horizon<'_>) -> bool {
        let oldest = self.descriptors.oldest_pin(horizon.bound);
        let held_by = if oldest < horizon.bound { oldest.0 } else { 0 };
        if self.backlog.held_by.load(Ordering::Relaxed) != held_by {
            self.backlog.held_by.store(held_by, Ordering::Relaxed);
        }
        let newest = self.committed.newest_drawn();
        if held_by != 0 || newest <= horizon.bound || !self.is_backlog_long() {
            return false;
        }
        let (bytes, most) = self.slots.bytes();
        self.committed.running().is_none_or(|commit| commit.waits().hasten(newest, bytes >= most / 4))
    }

    /// Notes that a snapshot of `csn` has ended, which may have kept many versions.
    #[inline]
    pub(super) fn snapshot_ended(&self, csn: Csn) {
        if csn.0 <= self.backlog.held_by.load(Ordering::Relaxed) && self.is_backlog_long() {
            self.backlog.request();
        }
    }

    /// Calls `wake` when [`VersionStore::collect_backlog`] is to be called. Set once.
    pub fn set_collector(&self, wake: Box<dyn Fn() + Send + Sync>) {
        assert!(self.backlog.wake.set(wake).is_ok(), "set once, by open");
    }

    /// Collects some of what other threads left. Returns when to call this again, if that is known.
    pub fn collect_backlog(&self) -> Option<Duration> {
        let looks = self.backlog.looks.load(Ordering::Relaxed);
        if !self.backlog.is_requested.swap(false, Ordering::SeqCst) && looks == 0 {
            return None;
        }
        let horizon = self.horizon();
        if self.garbage.collect_step(&self.slots, &horizon) {
            self.backlog.is_requested.store(true, Ordering::SeqCst);
            return Some(Duration::ZERO);
        }
        self.pool.memory().check_budget();
        let looks = if self.hastens_durability(&horizon) { looks.saturating_sub(1) } else { 0 };
        self.backlog.looks.store(looks, Ordering::Relaxed);
        (looks > 0).then_some(BACKLOG_LOOK)
    }

    /// Collects all garbage that can be collected now.
    pub fn collect_all(&self) {
        self.collect_all_pruning(Pruning::WhenItPays);
    }

    fn collect_all_pruning(&self, pruning: Pruning) {
        let horizon = self.horizon();
        self.garbage.collect_all(&self.slots, &horizon, pruning, &|| false);
        self.large_values.collect(&horizon, true, &|| false);
    }

    /// Collects all garbage that can be collected now, for a checkpoint: beside writers only for a
    /// short time, because they collect, too.
    pub fn collect_for_checkpoint(&self) {
        let (begun, newest) = (self.clock.now(), self.committed.newest_drawn());
        let is_over = || {
            self.clock.now().since(begun) >= CHECKPOINT_COLLECTS && self.committed.newest_drawn() != newest
        };
        let horizon = self.horizon();
        self.garbage.collect_all(&self.slots, &horizon, Pruning::WhenItPays, &is_over);
        self.large_values.collect(&horizon, true, &is_over);
    }

    /// Frees large values that no snapshot can see: a few of them take more memory than many
    /// versions.
    pub fn collect_large_values(&self) {
        self.large_values.collect(&self.horizon(), false, &|| false);
    }

    /// Creates the version of an owner of a large value; gives memory back and retries if there is
    /// none.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub(super) fn create_owner(&self, shard: usize, stamp: Stamp) -> Result<VersionHandle> {
        let create = || {
            let undo = Undo { prior: 0, before: Before::Absent };
            self.slots.create(shard, stamp, undo, &pin())
        };
        let is_full = |created: &Result<_>| matches!(created, Err(e) if e.kind() == ErrorKind::OutOfMemory);
        let created = create();
        if !is_full(&created) {
            return created;
        }
        let ended = self.reclaim();
        let created = create();
        if is_full(&created) && self.reclaim_after_checkpoint(ended).is_some() {
            return create();
        }
        created
    }

    /// Waits a little if the last quarter of the memory for versions is in use. To be called before
    /// a transaction begins, which then has no snapshot yet that keeps versions.
    #[inline]
    pub(super) fn throttle(&self) {
        let used = self.slots.part_of_last_quarter();
        if used > 0 {
            self.await_collection(used);
        }
    }

    /// Waits until the last quarter of the memory for versions is free: the longer, the more of it
    /// is used.
    #[cold]
    fn await_collection(&self, used: u64) {
        let steps = 1 + used * (THROTTLE_STEPS - 1) / 256;
        let oldest = self.descriptors.oldest_pin(self.horizon().bound);
        for step in 0..steps {
            let until = Nanos(self.clock.now().0 + THROTTLE_STEP.as_nanos() as u64);
            self.garbage.collect_until(&self.slots, &self.horizon(), || self.clock.now() >= until);
            run_deferred_frees();
            if self.slots.part_of_last_quarter() == 0 || !self.may_advance(&self.outlasted_throttle) {
                return;
            }
            if step == 0 {
                self.counters.version_waits.add(1);
            }
            thread::sleep(THROTTLE_STEP);
        }
        self.note_outlasted(&self.outlasted_throttle, oldest);
    }

    /// Returns whether more versions may soon be given back: a commit that is not durable yet keeps
    /// them, or a snapshot of another thread that has not outlasted such a wait before.
    fn may_advance(&self, outlasted: &Outlasted) -> bool {
        let bound = self.horizon().bound;
        let oldest = self.descriptors.oldest_pin(bound);
        oldest == bound
            || !self.descriptors.is_own_pin(oldest) && outlasted.0.load(Ordering::Relaxed) != oldest.0
    }

    /// Notes that a thread waited, without success, while `oldest` was the oldest snapshot.
    fn note_outlasted(&self, outlasted: &Outlasted, oldest: Csn) {
        if self.descriptors.oldest_pin(self.horizon().bound) == oldest {
            outlasted.0.store(oldest.0, Ordering::Relaxed);
        }
    }

    /// Gives back now what would be given back soon, because a memory bound is reached. Returns how
    /// many checkpoint views had ended before, for [`VersionStore::reclaim_after_checkpoint`].
    pub(super) fn reclaim(&self) -> u64 {
        let ended = self.views.ended.load(Ordering::SeqCst);
        self.collect_all_pruning(Pruning::Now);
        run_deferred_frees();
        if self.has_room() {
            return ended;
        }
        // Versions of commits that are not durable are kept, and asynchronous commits may be far
        // ahead of the device.
        let newest = self.committed.newest_drawn();
        if let Err(error) = self.committed.wait_up_to(newest) {
            tracing::debug!(%error, "versions stay: their transactions cannot become durable");
        }
        let oldest = self.descriptors.oldest_pin(newest);
        for _ in 0..RECLAIM_WAITS {
            // The bound is read first, so that the collection below covers what was acknowledged by
            // then.
            let up_to_date = self.horizon().bound >= newest;
            self.collect_all_pruning(Pruning::Now);
            run_deferred_frees();
            let all_done = up_to_date && self.slots.frees_pending() == 0;
            if self.has_room() || all_done && !self.may_advance(&self.outlasted_reclaim) {
                break;
            }
            // A thread that is in an epoch may need this processor.
            thread::sleep(RECLAIM_WAIT);
        }
        if !self.has_room() {
            self.note_outlasted(&self.outlasted_reclaim, oldest);
            self.note_full();
        }
        ended
    }

    fn note_full(&self) {
        let now = self.clock.now().0.max(1);
        let _ = self.full_since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns since when writers find no memory for versions; `None` if there is some.
    #[must_use]
    pub fn full_since(&self) -> Option<Nanos> {
        if self.has_room() {
            self.full_since.store(0, Ordering::Relaxed);
        }
        Some(Nanos(self.full_since.load(Ordering::Relaxed))).filter(|since| *since > Nanos(0))
    }

    fn has_room(&self) -> bool {
        let (bytes, most) = self.slots.bytes();
        bytes <= most - most / 8
    }

    /// Waits for the end of the checkpoint that is being made, if no other has ended since `before`
    /// had, and reclaims once more: the checkpoint may hold the versions. `None` if no checkpoint
    /// is being made, or it makes no progress.
    pub(super) fn reclaim_after_checkpoint(&self, before: u64) -> Option<u64> {
        let (mut progress, mut since) = (0, self.clock.now());
        loop {
            let ticket = self.views.one_ended.ticket();
            let none = self.views.open.load(Ordering::SeqCst) == 0;
            if self.views.ended.load(Ordering::SeqCst) != before {
                break;
            }
            let now = self.views.progress.load(Ordering::Relaxed);
            if now != progress {
                (progress, since) = (now, self.clock.now());
            }
            let waited = self.clock.now().since(since);
            if none || waited >= CHECKPOINT_WAIT {
                return None;
            }
            self.views.one_ended.wait(ticket, Some(CHECKPOINT_WAIT - waited));
        }
        Some(self.reclaim())
    }

    pub(super) fn view_begins(&self) {
        self.views.open.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn view_made_progress(&self) {
        self.views.progress.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn view_ended(&self) {
        // In this order: a thread that finds none open finds that one has ended.
        self.views.ended.fetch_add(1, Ordering::SeqCst);
        let before = self.views.open.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "each view of a checkpoint ends once");
        self.views.one_ended.notify_all();
    }

    /// Lowers the charges for versions and for pages of uncommitted large values to what exists, if
    /// the charges are much higher, for instance after a long snapshot. Pages get the memory that
    /// becomes free.
    pub fn lower_charges(&self) {
        let uncommitted = &self.large_values.uncommitted;
        let (versions, charged) = self.slots.surplus();
        let (pages, charged_pages) = uncommitted.surplus();
        let least = ((charged + charged_pages) / 2).max(SURPLUS_BYTES);
        let (now, last) = (self.clock.now(), Nanos(self.charges_lowered.load(Ordering::Relaxed)));
        if versions + pages < least || now.since(last) < LOWER_EVERY && last != Nanos(0) {
            return;
        }
        self.charges_lowered.store(now.0, Ordering::Relaxed);
        self.garbage.shrink();
        self.slots.begin_lowering_charge();
        uncommitted.begin_lowering_charge();
        if let Some(returned) = free_memory_to_system() {
            let lowered = self.slots.lower_charge(returned);
            debug_assert!(lowered <= returned, "a charge falls by at most what went back");
            uncommitted.lower_charge(returned - lowered);
            self.pool.eviction().budget_grew();
        }
    }
}
