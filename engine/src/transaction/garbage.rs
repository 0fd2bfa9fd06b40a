//! Garbage: versions that nobody can see any more are given back, also below a long snapshot.
//!
//! Committed versions wait in queues, oldest first. The front of a queue is given back when its CSN is at or below the
//! *horizon*: every pinned snapshot, every snapshot that can still be taken, the checkpoint, and the watermark.
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
//! 1. One thread at a time collects; it alone gives slots of committed versions back.
//! 2. The horizon's bound (newest acknowledged CSN, watermark) is read before the pins are scanned.
//! 3. A deleted key's entry is removed from its page after its version was given back.

use super::catalog::TableState;
use super::descriptor::{Descriptors, Status};
use super::versions::{Before, Undo, VersionHandle, Versions};
use crate::base::Csn;
use crate::base::planted::{self, Bug};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::epoch::{Guard, pin};
use std::collections::VecDeque;
use std::sync::Arc;

const SHARDS: usize = 16;
/// Committed versions in a shard between two attempts to collect it.
const COLLECT_EVERY: usize = 64;
/// Most versions given back by one transaction's end, so that nobody pays for a long pause of others at once.
const COLLECT_MOST: usize = 1024;
/// A shard longer than this is pruned when a snapshot holds its front.
const PRUNE_AT: usize = 4096;
/// How many transactions the oldest snapshot has to be behind for that.
const PRUNE_BEHIND: u64 = 4096;

#[derive(Debug, Default)]
struct Queue {
    versions: VecDeque<(Csn, VersionHandle)>,
    deletes: VecDeque<(Csn, Arc<TableState>, Box<[u8]>)>,
    since_collection: usize,
    /// Length after the last pruning: the next one waits until the queue has doubled, so that its cost is amortised.
    pruned_len: usize,
}

/// The queues of committed versions.
#[derive(Debug)]
pub struct Garbage {
    shards: [Mutex<Queue>; SHARDS],
    collector: Mutex<()>,
    next_shard: AtomicUsize,
}

impl Default for Garbage {
    fn default() -> Self {
        Garbage {
            shards: std::array::from_fn(|_| Mutex::new(Queue::default())),
            collector: Mutex::new(()),
            next_shard: AtomicUsize::new(0),
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
    /// Queues the versions of a committed transaction. True if the shard is worth collecting.
    pub fn push(
        &self,
        shard: usize,
        csn: Csn,
        versions: impl Iterator<Item = VersionHandle>,
        deletes: impl Iterator<Item = (Arc<TableState>, Box<[u8]>)>,
    ) -> bool {
        let mut queue = self.shards[shard % SHARDS].lock();
        let before = queue.versions.len();
        queue.versions.extend(versions.map(|handle| (csn, handle)));
        queue.deletes.extend(deletes.map(|(table, key)| (csn, table, key)));
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
        self.collect_shard(shard % SHARDS, versions, horizon, COLLECT_MOST);
        // A shard whose threads are gone is somebody's turn too.
        let other = self.next_shard.fetch_add(1, Ordering::Relaxed) % SHARDS;
        if other != shard % SHARDS {
            self.collect_shard(other, versions, horizon, COLLECT_MOST);
        }
    }

    /// Gives back what nobody can see in all shards.
    pub fn collect_all(&self, versions: &Arc<Versions>, horizon: &Horizon<'_>) {
        let _alone = self.collector.lock();
        for shard in 0..SHARDS {
            self.collect_shard(shard, versions, horizon, usize::MAX);
        }
    }

    fn collect_shard(&self, shard: usize, versions: &Arc<Versions>, horizon: &Horizon<'_>, most: usize) {
        let pinned = horizon.descriptors.oldest_pin(horizon.bound);
        let oldest = if planted::is(Bug::VersionFreedEarly) { horizon.bound } else { pinned };
        let guard = pin();
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
        for handle in &done {
            versions.give_back(shard, *handle, &guard);
        }
        self.purge(shard, oldest);
        let len = self.shards[shard].lock().versions.len();
        // It costs a look at every version, so it is done only below a snapshot that is far behind (what waits for the
        // device goes by itself), and only when memory is getting short.
        let (bytes, bytes_max) = versions.bytes();
        let behind = oldest.0 + PRUNE_BEHIND <= horizon.bound.0;
        if len >= PRUNE_AT && behind && bytes > bytes_max / 2 {
            self.prune(shard, versions, horizon, &guard);
        }
    }

    /// Removes entries of deleted keys (invariant 3). A failure only leaves a tombstone for a later split to drop.
    fn purge(&self, shard: usize, oldest: Csn) {
        loop {
            let next = {
                let mut queue = self.shards[shard].lock();
                match queue.deletes.front() {
                    Some((csn, ..)) if *csn <= oldest || planted::is(Bug::TombstonePurgedEarly) => {
                        queue.deletes.pop_front()
                    }
                    _ => None,
                }
            };
            let Some((_, table, key)) = next else { return };
            // Not as a user: that would keep the table from being dropped.
            let Some(table) = table.hold() else { continue };
            if let Err(error) = table.tree.purge(&key) {
                tracing::debug!(%error, table = table.name, "a tombstone stays");
            }
        }
    }

    fn prune(&self, shard: usize, versions: &Arc<Versions>, horizon: &Horizon<'_>, guard: &Guard) {
        let mut queue = {
            let mut shared = self.shards[shard].lock();
            if shared.versions.len() < 2 * shared.pruned_len {
                return;
            }
            std::mem::take(&mut shared.versions)
        };
        let mut pins: Vec<Csn> = horizon.descriptors.pins().collect();
        pins.sort_unstable();
        if pins.first() != Some(&Csn::ZERO) {
            for &(csn, handle) in &queue {
                // Snapshots taken from now on are at or above the bound: only versions below it can be judged.
                if csn <= horizon.bound {
                    prune_below(shard, handle, csn, &pins, horizon.descriptors, versions, guard);
                }
            }
        }
        queue.retain(|(_, handle)| !versions.is_settled(handle.word()));
        let mut shared = self.shards[shard].lock();
        let newer = std::mem::replace(&mut shared.versions, queue);
        shared.versions.extend(newer);
        shared.pruned_len = shared.versions.len();
    }
}

/// Lets the version `handle` of `csn` take over its predecessors' before-images while no pin is between them.
fn prune_below(
    shard: usize,
    handle: VersionHandle,
    csn: Csn,
    pins: &[Csn],
    descriptors: &Descriptors,
    versions: &Arc<Versions>,
    guard: &Guard,
) {
    loop {
        let Some(version) = versions.read(handle, guard) else { return };
        let Some(prior) = VersionHandle::from_word(version.undo.prior) else { return };
        let Some(predecessor) = versions.read(prior, guard) else { return };
        let Status::Committed(older) = descriptors.status(predecessor.stamp) else { return };
        let first_not_before = pins.partition_point(|pin| *pin < older);
        let seen = pins.get(first_not_before).is_some_and(|pin| *pin < csn);
        if seen || older >= csn {
            return;
        }
        // A lock changed nothing: what was before it is what this version has below itself already.
        let before = match &predecessor.undo.before {
            Before::Unchanged => version.undo.before.clone(),
            other => other.clone(),
        };
        let undo = Undo { prior: predecessor.undo.prior, before };
        versions.replace_undo(handle, undo, guard);
        versions.give_back_later(shard, prior, guard);
    }
}
