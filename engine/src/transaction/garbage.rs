//! Garbage: versions that nobody can see any more are given back, also below a long snapshot.
//!
//! Committed versions wait in queues, in the order in which their transactions ended: nearly that of their CSNs. The front of a queue is given
//! back when its CSN is at or below the *horizon*: every pinned snapshot, every snapshot that can still be taken, the checkpoint, and the
//! watermark.
//!
//! A long snapshot stops the horizon. Then the queue is *pruned*: a version whose before-image is seen by no pinned
//! snapshot takes over the before-image of its predecessor, and the predecessor's slot is given back. Snapshot 50
//! below keeps what it needs, the versions of 100 and 200 in the middle go:
//!
//! ```text
//!   page ─▶ 300 ─▶ [value of 200] ─▶ 200 ─▶ [value of 100] ─▶ 100 ─▶ [value before 100]      snapshots: 50
//!   page ─▶ 300 ─▶ [value before 100]
//! ```
//!
//! The newest version of a key stays: it says that the key was changed, which a transaction as old as the snapshot must learn if it writes the
//! key. So beside a snapshot there is one for every key that was changed since, also for one that was inserted and deleted again.
//!
//! 1. One thread at a time collects; it alone gives slots of committed versions back.
//! 2. The horizon's bound, the newest CSN below W, is read before the pins are scanned.
//! 3. A deleted key's entry is removed from its page after its version was given back or pruned, and not forgotten before. Where another transaction
//!    has changed or locked the entry by then, it is for that one to see to it ([`Change::deleted`], and a change that is taken back).
//! 4. What deletions keep until then counts as versions do. A transaction adds it with each deletion, where a version may still be refused, and
//!    hands it over when it commits.

#[cfg(doc)]
use super::active::Change;
use super::catalog::TableState;
use super::descriptor::{Descriptors, Stamp};
use super::versions::{ALLOCATION_BYTES, Before, Undo, VersionHandle, Versions};
use crate::base::Csn;
use crate::base::planted::{self, Bug};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::epoch::{Guard, pin};
use std::collections::VecDeque;
use std::sync::Arc;

const SHARDS: usize = 16;
/// Committed versions in a shard between two attempts to collect it.
const COLLECT_EVERY: usize = 64;
/// Most versions given back, and most entries removed, by one transaction's end, so that nobody pays for a long pause of others at once.
const COLLECT_MOST: usize = 1024;
/// Versions looked at by a pruning between two attempts to free what it has retired.
const FREE_EVERY: usize = 256;
/// A shard in which so many can be judged is pruned when a snapshot holds its front.
const PRUNE_AT: usize = 4096;
/// How many transactions the oldest snapshot has to be behind for that.
const PRUNE_BEHIND: u64 = 4096;

#[derive(Debug, Default)]
struct Queue {
    versions: VecDeque<(Csn, VersionHandle)>,
    /// First those whose versions were pruned, as of `ordered_at`, then in the order of `versions`.
    deletes: VecDeque<Delete>,
    since_collection: usize,
    judged: Judged,
    /// [`Garbage::pruned`] when `deletes` was brought into order last.
    ordered_at: u64,
}

/// A deleted key, until its entry may go.
#[derive(Debug)]
pub struct Delete {
    /// The version of what was deleted.
    pub version: VersionHandle,
    pub table: Arc<TableState>,
    pub key: Box<[u8]>,
}

impl Delete {
    /// Bytes that it counts against the bound for versions: its key, and its place in a list that grows by doubling.
    fn bytes(&self) -> u64 {
        Delete::bytes_for(self.key.len())
    }

    /// The same for a key of so many bytes.
    pub fn bytes_for(key_len: usize) -> u64 {
        (key_len + ALLOCATION_BYTES + 2 * size_of::<Delete>()) as u64
    }

    /// The version is not there, or was pruned: then the entry has another one.
    fn is_due(&self, versions: &Versions, guard: &Guard) -> bool {
        versions.read(self.version, guard).is_none_or(|version| version.stamp == Stamp::ABORTED)
    }
}

/// What the last pruning found: the next one may be of no use.
#[derive(Debug, Default)]
struct Judged {
    /// It looked at versions up to here...
    bound: Csn,
    /// ... and left so many.
    left: usize,
    /// Pins that were below the bound. There are never more of them later.
    pins: usize,
}

/// When a queue is pruned, which costs a look at every version in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pruning {
    /// When memory is getting short, a snapshot is far behind (what waits for the device goes by itself), and so much can be judged that
    /// the cost is amortised.
    WhenItPays,
    /// When something can be judged that the last pruning could not: somebody waits for the memory.
    Now,
}

/// What is worth collecting when a transaction has ended. It may take long, and others may wait for what the transaction does before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToCollect {
    Nothing,
    /// Garbage of this shard.
    Shard(usize),
    /// Large values that were replaced.
    Retired,
}

/// The queues of committed versions.
#[derive(Debug)]
pub struct Garbage {
    shards: [Mutex<Queue>; SHARDS],
    collector: Mutex<()>,
    next_shard: AtomicUsize,
    /// Versions that were pruned so far. Written by the collector.
    pruned: AtomicU64,
}

impl Default for Garbage {
    fn default() -> Self {
        Garbage {
            shards: std::array::from_fn(|_| Mutex::new(Queue::default())),
            collector: Mutex::new(()),
            next_shard: AtomicUsize::new(0),
            pruned: AtomicU64::new(0),
        }
    }
}

/// What bounds collection. Read `bound` before anything else.
pub struct Horizon<'a> {
    /// The lower of newest acknowledged CSN and watermark - 1.
    pub bound: Csn,
    /// The pins.
    pub descriptors: &'a Descriptors,
}

impl Garbage {
    /// Queues the versions of a committed transaction, and its deletions, whose bytes are counted. True if the shard is worth collecting.
    pub fn push(
        &self,
        shard: usize,
        csn: Csn,
        handles: impl Iterator<Item = VersionHandle>,
        deletes: impl Iterator<Item = Delete>,
    ) -> bool {
        let mut queue = self.shards[shard % SHARDS].lock();
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

    /// Gives back what nobody can see in one shard, if nobody else collects.
    pub fn collect(&self, shard: usize, versions: &Arc<Versions>, horizon: &Horizon<'_>) {
        let Some(_alone) = self.collector.try_lock() else { return };
        self.collect_shard(shard % SHARDS, versions, horizon, COLLECT_MOST, Pruning::WhenItPays);
        // A shard whose threads are gone is somebody's turn too.
        let other = self.next_shard.fetch_add(1, Ordering::Relaxed) % SHARDS;
        if other != shard % SHARDS {
            self.collect_shard(other, versions, horizon, COLLECT_MOST, Pruning::WhenItPays);
        }
    }

    /// Gives back some of what nobody can see, one shard after the other until `is_over`, if nobody else collects.
    pub fn collect_until(&self, versions: &Arc<Versions>, horizon: &Horizon<'_>, is_over: impl Fn() -> bool) {
        let Some(_alone) = self.collector.try_lock() else { return };
        for _ in 0..SHARDS {
            let shard = self.next_shard.fetch_add(1, Ordering::Relaxed) % SHARDS;
            self.collect_shard(shard, versions, horizon, COLLECT_MOST, Pruning::WhenItPays);
            if is_over() {
                return;
            }
        }
    }

    /// Gives back what nobody can see in all shards.
    pub fn collect_all(&self, versions: &Arc<Versions>, horizon: &Horizon<'_>, pruning: Pruning) {
        let _alone = self.collector.lock();
        for shard in 0..SHARDS {
            self.collect_shard(shard, versions, horizon, usize::MAX, pruning);
        }
    }

    /// Gives room back that the queues had when they were longer.
    pub fn shrink(&self) {
        for shard in &self.shards {
            let mut queue = shard.lock();
            let (versions, deletes) = (queue.versions.len(), queue.deletes.len());
            queue.versions.shrink_to(2 * versions);
            queue.deletes.shrink_to(2 * deletes);
        }
    }

    fn collect_shard(
        &self,
        shard: usize,
        versions: &Arc<Versions>,
        horizon: &Horizon<'_>,
        most: usize,
        pruning: Pruning,
    ) {
        let pinned = horizon.descriptors.oldest_pin(horizon.bound);
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
        versions.give_back(shard, &done, &guard);
        let (bytes, bytes_max) = versions.bytes();
        let behind = oldest.0 + PRUNE_BEHIND <= horizon.bound.0;
        if pruning == Pruning::Now || behind && bytes > bytes_max / 2 {
            let judged = self.prune(shard, versions, horizon, pruning, &mut guard);
            if judged || pruning == Pruning::Now {
                self.bring_forward(shard, versions, &guard);
            }
        }
        if versions.has_much_retired() {
            guard.flush();
        }
        // Purging may wait for pages.
        drop(guard);
        self.purge(shard, versions, most);
    }

    /// Removes entries of deleted keys (invariant 3).
    fn purge(&self, shard: usize, versions: &Versions, most: usize) {
        for _ in 0..most {
            let next = {
                let guard = pin();
                let mut queue = self.shards[shard].lock();
                queue.deletes.pop_front_if(|delete| {
                    delete.is_due(versions, &guard) || planted::is(Bug::TombstonePurgedEarly)
                })
            };
            let Some(delete) = next else { return };
            versions.keep_no_more(delete.bytes());
            let Delete { table, key, .. } = delete;
            // Not as a user: that would keep the table from being dropped.
            let Some(table) = table.hold() else { continue };
            purge(&table, &key);
        }
    }

    /// Brings deletions forward whose versions were pruned, here or from another shard: one that a snapshot sees is in nobody's way.
    fn bring_forward(&self, shard: usize, versions: &Versions, guard: &Guard) {
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

    /// Looks at all versions in a shard, if that is worth it; returns whether it was.
    fn prune(
        &self,
        shard: usize,
        versions: &Arc<Versions>,
        horizon: &Horizon<'_>,
        pruning: Pruning,
        guard: &mut Guard,
    ) -> bool {
        let mut pins = horizon.descriptors.pins();
        pins.sort_unstable();
        if pins.first() == Some(&Csn::ZERO) {
            return false;
        }
        // Snapshots taken from now on are at or above the bound: only versions below it can be judged.
        let bound = horizon.bound;
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
            if at % FREE_EVERY == 0 && versions.has_much_retired() {
                guard.flush();
            }
        }
        queue.retain(|(_, handle)| !versions.is_settled(handle.word()));
        let left = queue.partition_point(|(csn, _)| *csn <= bound);
        let mut shared = self.shards[shard].lock();
        let newer = std::mem::replace(&mut shared.versions, queue);
        shared.versions.extend(newer);
        shared.judged = Judged { bound, left, pins: pins.partition_point(|pin| *pin < bound) };
        true
    }
}

/// Removes the entry of a deleted key if nobody needs it. A failure only leaves a tombstone for a later split to drop.
pub(super) fn purge(table: &TableState, key: &[u8]) {
    if let Err(error) = table.tree.purge(key) {
        tracing::debug!(%error, table = table.name, "a tombstone stays");
    }
}

fn is_worth_pruning(queue: &Queue, bound: Csn, pins: &[Csn], pruning: Pruning) -> bool {
    let up_to = |bound: Csn| queue.versions.partition_point(|(csn, _)| *csn <= bound);
    let (judgeable, judged) = (up_to(bound), &queue.judged);
    match pruning {
        Pruning::WhenItPays => judgeable >= PRUNE_AT && judgeable >= 2 * judged.left,
        Pruning::Now => {
            judgeable > up_to(judged.bound) || pins.partition_point(|pin| *pin < judged.bound) < judged.pins
        }
    }
}

/// Lets the version `handle` of `csn` take over its predecessors' before-images while no pin is between them. Returns how many predecessors are
/// gone.
///
/// Both must carry their CSNs themselves. A version that was taken over is marked ABORTED: nobody refers to it any more, so it takes over
/// nothing, and who was on the way to it looks again. One that only its transaction's descriptor calls committed is yet to be stamped.
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
        // Nothing that was looked at is used again, and what was retired can be freed while a long queue is pruned.
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
        // A lock changed nothing: what was before it is what this version has below itself already.
        let before = match &predecessor.undo.before {
            Before::Unchanged => version.undo.before.clone(),
            other => other.clone(),
        };
        let undo = Undo { prior: predecessor.undo.prior, before };
        versions.replace_undo(handle, undo, guard);
        versions.set_stamp(prior, Stamp::ABORTED);
        versions.give_back_later(shard, prior, guard);
        pruned += 1;
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
