//! Garbage: gives back versions that no snapshot can see, also versions between a long snapshot and
//! newer ones.
//!
//! Committed versions wait in queues, in the order in which their transactions ended, which is
//! nearly the order of their CSNs. The front of a queue is given back when its CSN is at or below
//! the *horizon*: every pinned snapshot, every snapshot that can still be taken, the checkpoint,
//! and the watermark.
//!
//! A long snapshot stops the horizon. Then the queue is *pruned*: a version whose before-image is
//! seen by no pinned snapshot takes over the before-image of its predecessor, and the predecessor's
//! slot is given back. Below, snapshot 50 keeps what it needs, and the versions of 100 and 200 in
//! the middle are given back:
//!
//! ```text
//!   snapshots: 50
//!   page ─▶ 300 ─▶ [value of 200] ─▶ 200 ─▶ [value of 100] ─▶ 100 ─▶ [value before 100]
//!   page ─▶ 300 ─▶ [value before 100]
//! ```
//!
//! The newest version of a key stays: it says that the key was changed, which a transaction as old
//! as the snapshot must learn if it writes the key. So a snapshot keeps one version of every key
//! that was changed since, also of a key that was inserted and deleted again.
//!
//! 1. One thread at a time collects, and only that thread gives slots of committed versions back.
//!    Threads that have committed only try, and end early if a thread waits that must collect.
//! 2. The horizon's bound, the newest CSN below W, is read before the pins are scanned.
//! 3. A deleted key's entry is removed from its page after its version was given back or pruned,
//!    and the deletion stays queued until then. If another transaction has changed or locked the
//!    entry by then, that transaction queues or removes the entry itself (`Change::deleted`, and a
//!    change that is taken back).
//! 4. The memory that a queued deletion takes counts as that of versions. A transaction adds it
//!    with each deletion, where a version may still be refused, and passes it to the queue when it
//!    commits.

use super::catalog::TableState;
use super::descriptor::{Descriptors, Stamp};
use super::versions::{ALLOCATION_BYTES, Before, Undo, VersionHandle, Versions};
use crate::base::Csn;
use crate::base::planted::{self, Bug};
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::epoch::{Guard, pin};
use crate::sync::{Mutex, PriorityLock};
use std::collections::VecDeque;
use std::sync::Arc;

const SHARDS: usize = 16;
/// Committed versions in a shard between two attempts to collect it.
const COLLECT_EVERY: usize = 64;
/// Most versions given back, and most entries removed, after one commit, so that no commit pays for
/// a long pause of others. A commit with many versions pays for as many.
const COLLECT_MOST: usize = 1024;
/// The same for one shard and one step of the maintenance thread.
const STEP_MOST: usize = 4096;
/// Versions that a pruning visits between two attempts to run deferred frees.
const FREE_EVERY: usize = 256;
/// A shard with so many versions to judge is pruned when a snapshot holds its front.
const PRUNE_AT: usize = 4096;
/// So many transactions must the oldest snapshot be behind for a pruning.
const PRUNE_BEHIND: u64 = 4096;

#[derive(Debug, Default)]
struct Queue {
    versions: VecDeque<(Csn, VersionHandle)>,
    /// First those whose versions were pruned, as of `ordered_at`, then in the order of `versions`.
    deletes: VecDeque<Delete>,
    since_collection: usize,
    last_pruning: LastPruning,
    /// [`Garbage::pruned`] when `deletes` was last put in order.
    ordered_at: u64,
}

/// A deleted key whose entry is removed later.
#[derive(Debug)]
pub struct Delete {
    /// The version with the value before the deletion.
    pub version: VersionHandle,
    pub table: Arc<TableState>,
    pub key: Box<[u8]>,
}

impl Delete {
    /// Returns the bytes that the deletion counts against the bound for versions.
    fn bytes(&self) -> u64 {
        Delete::bytes_for(self.key.len())
    }

    /// Returns the bytes of a deletion: its key, and its place in a list that grows by doubling.
    pub fn bytes_for(key_len: usize) -> u64 {
        (key_len + ALLOCATION_BYTES + 2 * size_of::<Delete>()) as u64
    }

    /// Returns whether the entry may be removed: the version is gone, or was pruned and the entry
    /// has another one.
    fn is_due(&self, versions: &Versions, guard: &Guard) -> bool {
        versions.read(self.version, guard).is_none_or(|version| version.stamp == Stamp::ABORTED)
    }
}

/// What the last pruning found. Another one may find nothing new.
#[derive(Debug, Default)]
struct LastPruning {
    /// The newest CSN whose versions were judged.
    bound: Csn,
    /// Versions up to `bound` that stayed.
    left: usize,
    /// Pins below `bound`. Their number never rises later.
    pins: usize,
}

/// When a queue is pruned, which visits every version in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pruning {
    /// When memory is short, a snapshot is far behind (what waits for the device is soon collected
    /// anyway), and there are enough versions to judge to amortise the cost.
    WhenItPays,
    /// When any version can be judged that the last pruning could not judge: a thread waits for the
    /// memory.
    Now,
}

/// What is worth collecting after a commit. Collecting may take long, so it follows what other
/// threads wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToCollect {
    Nothing,
    /// Garbage of this shard, to which the commit has added so many versions.
    Shard(usize, usize),
    /// Large values that were replaced.
    LargeValues,
}

/// What to collect in a shard, and how much of it.
#[derive(Clone, Copy)]
struct Collection<'a> {
    versions: &'a Arc<Versions>,
    horizon: &'a Horizon<'a>,
    /// Most versions to give back, and most entries to remove.
    most: usize,
    pruning: Pruning,
}

/// The queues of committed versions.
#[derive(Debug)]
pub struct Garbage {
    shards: [Mutex<Queue>; SHARDS],
    collector: PriorityLock,
    next_shard: AtomicUsize,
    /// Versions that were pruned so far. Written by the collector.
    pruned: AtomicU64,
}

impl Default for Garbage {
    fn default() -> Self {
        Garbage {
            shards: std::array::from_fn(|_| Mutex::new(Queue::default())),
            collector: PriorityLock::default(),
            next_shard: AtomicUsize::new(0),
            pruned: AtomicU64::new(0),
        }
    }
}

/// What bounds collection. Read `bound` before anything else.
pub struct Horizon<'a> {
    /// The newest CSN below the watermark.
    pub bound: Csn,
    /// The pins.
    pub descriptors: &'a Descriptors,
}

impl Garbage {
    /// Queues the versions of a committed transaction, and its deletions, whose bytes are counted.
    /// Returns whether the shard is worth collecting.
    pub fn push(
        &self,
        shard: usize,
        csn: Csn,
        handles: impl Iterator<Item = VersionHandle>,
        deletes: impl Iterator<Item = Delete>,
    ) -> bool {
        let mut queue = self.shards[shard % SHARDS].lock();
        debug_assert!(csn.0 > 0, "only a transaction that wrote leaves garbage");
        let before = queue.versions.len();
        queue.versions.extend(handles.map(|handle| (csn, handle)));
        queue.deletes.extend(deletes);
        queue.since_collection += queue.versions.len() - before;
        if queue.since_collection < COLLECT_EVERY {
            return false;
        }
        queue.since_collection = 0;
        true
    }

    /// Gives back what no snapshot can see in one shard, to which a commit has added so many
    /// versions, unless another thread collects. Returns whether more is left that can be given
    /// back.
    pub fn collect(
        &self,
        shard: usize,
        added: usize,
        versions: &Arc<Versions>,
        horizon: &Horizon<'_>,
    ) -> bool {
        let Some(_alone) = self.collector.try_lock() else { return false };
        let other_shards = Collection { versions, horizon, most: COLLECT_MOST, pruning: Pruning::WhenItPays };
        let own_shard = Collection { most: COLLECT_MOST.max(2 * added), ..other_shards };
        let left = self.collect_shard(shard % SHARDS, own_shard);
        // Shards whose threads are gone have to be collected, too.
        let other = self.next_shard.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let is_other = other != shard % SHARDS;
        let left_there = is_other && self.collect_shard(other, other_shards);
        left || left_there
    }

    /// Gives back some of what no snapshot can see in each shard. Returns whether more is left that
    /// can be given back.
    pub fn collect_step(&self, versions: &Arc<Versions>, horizon: &Horizon<'_>) -> bool {
        let step = Collection { versions, horizon, most: STEP_MOST, pruning: Pruning::WhenItPays };
        let mut left = false;
        for shard in 0..SHARDS {
            let _alone = self.collector.lock();
            left |= self.collect_shard(shard, step);
        }
        left
    }

    /// Gives back some of what no snapshot can see, one shard after the other until `is_over`,
    /// unless another thread collects.
    pub fn collect_until(&self, versions: &Arc<Versions>, horizon: &Horizon<'_>, is_over: impl Fn() -> bool) {
        let Some(_alone) = self.collector.try_lock() else { return };
        let step = Collection { versions, horizon, most: COLLECT_MOST, pruning: Pruning::WhenItPays };
        for _ in 0..SHARDS {
            let shard = self.next_shard.fetch_add(1, Ordering::Relaxed) % SHARDS;
            self.collect_shard(shard, step);
            if is_over() {
                return;
            }
        }
    }

    /// Gives back what no snapshot can see in all shards. Entries of deleted keys only until
    /// `is_over`.
    pub fn collect_all(
        &self,
        versions: &Arc<Versions>,
        horizon: &Horizon<'_>,
        pruning: Pruning,
        is_over: &dyn Fn() -> bool,
    ) {
        let _alone = self.collector.lock();
        let everything = Collection { versions, horizon, most: usize::MAX, pruning };
        for shard in 0..SHARDS {
            self.collect_versions(shard, everything);
            self.purge(shard, versions, usize::MAX, is_over);
        }
    }

    /// Shrinks queues that were longer before.
    pub fn shrink(&self) {
        for shard in &self.shards {
            let mut queue = shard.lock();
            let (versions, deletes) = (queue.versions.len(), queue.deletes.len());
            queue.versions.shrink_to(2 * versions);
            queue.deletes.shrink_to(2 * deletes);
        }
    }

    /// As the rest of a commit: ends early if a thread waits that must collect. Returns whether
    /// more is left that can be given back.
    fn collect_shard(&self, shard: usize, collection: Collection<'_>) -> bool {
        let left = self.collect_versions(shard, collection);
        let Collection { versions, most, .. } = collection;
        let purged = self.purge(shard, versions, most, &|| self.collector.is_wanted());
        left || !purged
    }

    /// Gives back at most so many versions of one shard. Returns whether there may be more.
    fn collect_versions(&self, shard: usize, collection: Collection<'_>) -> bool {
        let Collection { versions, horizon, most, pruning } = collection;
        let pinned = horizon.descriptors.oldest_pin(horizon.bound);
        debug_assert!(pinned <= horizon.bound, "no pin raises the horizon");
        let oldest = if planted::is(Bug::VersionFreedEarly) { horizon.bound } else { pinned };
        let mut guard = pin();
        let mut done = Vec::new();
        {
            let mut queue = self.shards[shard].lock();
            while let Some((csn, handle)) = queue.versions.front().copied()
                && csn <= oldest
                && done.len() < most
            {
                queue.versions.pop_front();
                done.push(handle);
            }
        }
        debug_assert!(done.len() <= most, "a step gives back at most what it was allowed");
        versions.give_back(shard, &done, &guard);
        let (bytes, bytes_max) = versions.bytes();
        let behind = oldest.0 + PRUNE_BEHIND <= horizon.bound.0;
        if pruning == Pruning::Now || behind && bytes > bytes_max / 2 {
            let pruned = self.prune(shard, collection, &mut guard);
            if pruned || pruning == Pruning::Now {
                self.order_deletes(shard, versions, &guard);
            }
        }
        if versions.has_much_deferred() {
            guard.flush();
        }
        done.len() == most
    }

    /// Removes entries of deleted keys (invariant 3), at most those that are queued now: others may
    /// delete faster than this thread removes, which may have to read each page. Returns whether it
    /// has removed all of these that could be.
    ///
    /// May wait for pages, so the calling thread is in no epoch.
    fn purge(&self, shard: usize, versions: &Versions, most: usize, is_over: &dyn Fn() -> bool) -> bool {
        let queued = self.shards[shard].lock().deletes.len();
        for _ in 0..most.min(queued) {
            if is_over() {
                return false;
            }
            let next = {
                let guard = pin();
                let mut queue = self.shards[shard].lock();
                let is_due = queue.deletes.front().is_some_and(|delete| {
                    delete.is_due(versions, &guard) || planted::is(Bug::TombstonePurgedEarly)
                });
                is_due.then(|| queue.deletes.pop_front()).flatten()
            };
            let Some(delete) = next else { return true };
            versions.subtract_bytes(delete.bytes());
            let Delete { table, key, .. } = delete;
            // Not as a user, which would keep the table from being dropped.
            let Some(table) = table.hold() else { continue };
            purge(&table, &key);
        }
        queued <= most
    }

    /// Moves deletions whose versions were pruned to the front, so that a deletion that a snapshot
    /// still sees does not block them.
    fn order_deletes(&self, shard: usize, versions: &Versions, guard: &Guard) {
        let pruned = self.pruned.load(Ordering::Relaxed);
        let deletes = {
            let mut queue = self.shards[shard].lock();
            if std::mem::replace(&mut queue.ordered_at, pruned) == pruned {
                return;
            }
            std::mem::take(&mut queue.deletes)
        };
        let (mut ordered, later): (VecDeque<_>, VecDeque<_>) =
            deletes.into_iter().partition(|delete| delete.is_due(versions, guard));
        ordered.extend(later);
        let mut queue = self.shards[shard].lock();
        let newer = std::mem::replace(&mut queue.deletes, ordered);
        queue.deletes.extend(newer);
    }

    /// Judges all versions in a shard if that is worth the cost. Returns whether it did.
    fn prune(&self, shard: usize, collection: Collection<'_>, guard: &mut Guard) -> bool {
        let Collection { versions, horizon, pruning, .. } = collection;
        let mut pins = horizon.descriptors.pins();
        pins.sort_unstable();
        if pins.first() == Some(&Csn::ZERO) {
            return false;
        }
        // Snapshots taken from now on are at or above the bound: only versions below it can be
        // judged.
        let bound = horizon.bound;
        debug_assert!(pins.first() != Some(&Csn::ZERO), "no snapshot is being chosen");
        let mut queue = {
            let mut shared = self.shards[shard].lock();
            if !is_worth_pruning(&shared, bound, &pins, pruning) {
                return false;
            }
            std::mem::take(&mut shared.versions)
        };
        for (at, &(csn, handle)) in queue.iter().enumerate() {
            if csn <= bound {
                let pruned = prune_below(shard, handle, csn, &pins, versions, guard);
                self.pruned.fetch_add(pruned, Ordering::Relaxed);
            }
            if at % FREE_EVERY == 0 && versions.has_much_deferred() {
                guard.flush();
            }
        }
        queue.retain(|(_, handle)| !versions.is_settled(handle.word()));
        let left = queue.partition_point(|(csn, _)| *csn <= bound);
        let mut shared = self.shards[shard].lock();
        let newer = std::mem::replace(&mut shared.versions, queue);
        shared.versions.extend(newer);
        shared.last_pruning = LastPruning { bound, left, pins: pins.partition_point(|pin| *pin < bound) };
        true
    }
}

/// Removes the entry of a deleted key if no snapshot needs it. After a failure a later split drops
/// the tombstone.
pub(super) fn purge(table: &TableState, key: &[u8]) {
    if let Err(error) = table.tree.purge(key) {
        tracing::debug!(%error, table = %table.name, "a tombstone stays");
    }
}

fn is_worth_pruning(queue: &Queue, bound: Csn, pins: &[Csn], pruning: Pruning) -> bool {
    let up_to = |bound: Csn| queue.versions.partition_point(|(csn, _)| *csn <= bound);
    debug_assert!(pins.is_sorted(), "pins are searched by halving");
    let (judgeable, last) = (up_to(bound), &queue.last_pruning);
    match pruning {
        Pruning::WhenItPays => judgeable >= PRUNE_AT && judgeable >= 2 * last.left,
        Pruning::Now => {
            judgeable > up_to(last.bound) || pins.partition_point(|pin| *pin < last.bound) < last.pins
        }
    }
}

/// Lets the version `handle` of `csn` take over the before-images of its predecessors while no pin
/// is between them. Returns how many predecessors were given back.
///
/// Both versions must carry their CSNs themselves: a version that only the descriptor of its
/// transaction calls committed is yet to be stamped. A predecessor is marked ABORTED: no version
/// refers to it any more, it takes over nothing, and a reader on the way to it reads the page
/// again.
fn prune_below(
    shard: usize,
    handle: VersionHandle,
    csn: Csn,
    pins: &[Csn],
    versions: &Arc<Versions>,
    guard: &mut Guard,
) -> u64 {
    let mut pruned = 0;
    loop {
        // References from before are not used again, and deferred frees can run while a long queue
        // is pruned.
        guard.repin();
        let Some(version) = versions.read(handle, guard) else { return pruned };
        if version.stamp != Stamp::committed(csn) {
            return pruned;
        }
        let Some(prior) = VersionHandle::from_word(version.undo.prior) else { return pruned };
        let Some(predecessor) = versions.read(prior, guard) else { return pruned };
        let Some(older) = predecessor.stamp.csn() else { return pruned };
        let first_not_before = pins.partition_point(|pin| *pin < older);
        let seen = pins.get(first_not_before).is_some_and(|pin| *pin < csn);
        if seen || older >= csn {
            return pruned;
        }
        // A lock changed nothing: the value before the lock is already this version's before-image.
        debug_assert!(older < csn, "a chain of versions falls");
        debug_assert!(prior.word() != handle.word(), "a version is not its own predecessor");
        let before = match predecessor.undo.before {
            Before::Unchanged => version.undo.before,
            other => other,
        };
        let undo = Undo { prior: predecessor.undo.prior, before };
        versions.replace_undo(handle, undo, guard);
        versions.abort(shard, prior, guard);
        pruned += 1;
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
