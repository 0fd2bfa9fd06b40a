//! The locks of one table.

use super::interval::Interval;
use crate::base::checksum;
use crate::base::clock::Nanos;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use crate::transaction::descriptor::DescriptorId;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Parts of the locks on keys, so that threads rarely share a mutex.
const SHARDS: usize = 16;

/// What a lock excludes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[non_exhaustive]
pub enum LockMode {
    /// Commits of changes, during a validation.
    Mark,
    /// Changes.
    Shared,
    /// Changes and other update locks.
    Update,
    /// Changes and all locks of others. Only on whole tables; the exclusive lock of a row is its
    /// stamp.
    Exclusive,
}

impl LockMode {
    fn excludes_changes(self) -> bool {
        self != LockMode::Mark
    }
}

/// A lock and its owner.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// The transaction.
    pub id: DescriptorId,
    /// What it excludes.
    pub mode: LockMode,
    /// When it was granted.
    pub since: Nanos,
}

/// What a lock is on.
#[derive(Clone, Copy, Debug)]
pub enum Locked<'a> {
    /// A key.
    Key(&'a [u8]),
    /// An interval of keys.
    Interval(&'a Interval),
}

/// The locks on one key. Most have one holder, which needs no allocation.
#[derive(Debug)]
struct KeyLocks {
    first: Held,
    more: Vec<Held>,
}

impl KeyLocks {
    fn iter(&self) -> impl Iterator<Item = &Held> {
        std::iter::once(&self.first).chain(&self.more)
    }
}

#[derive(Debug)]
struct HeldInterval {
    number: u64,
    held: Held,
    interval: Interval,
}

#[derive(Debug, Default)]
struct Parts {
    keys: [Mutex<BTreeMap<Box<[u8]>, KeyLocks>>; SHARDS],
    intervals: Mutex<Vec<HeldInterval>>,
    next_interval: AtomicU64,
}

/// The locks of a table, except the stamps of its rows.
#[derive(Debug, Default)]
pub struct TableLocks {
    /// Locks, marks on intervals, and waiting requests. Raised before a lock is looked for by its
    /// owner's reads (rule 1 of this module).
    present: AtomicUsize,
    /// Marks on keys and intervals.
    marks: AtomicUsize,
    /// Locks on intervals.
    intervals: AtomicUsize,
    /// Exclusive locks.
    exclusive: AtomicUsize,
    parts: OnceLock<Box<Parts>>,
    /// Marks of keys, by a hash of the key.
    marked: OnceLock<Box<[AtomicU32]>>,
}

/// Counters of marks in a table.
const MARK_PLACES: usize = 1024;

/// The counter of a key's marks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MarkPlace(u16);

impl MarkPlace {
    /// Returns the counter of `key`.
    #[must_use]
    pub fn of(key: &[u8]) -> MarkPlace {
        MarkPlace((checksum::crc(key) as usize % MARK_PLACES) as u16)
    }
}

fn shard_of(key: &[u8]) -> usize {
    checksum::crc(key) as usize % SHARDS
}

impl TableLocks {
    fn parts(&self) -> &Parts {
        self.parts.get_or_init(Box::default)
    }

    /// Returns whether a writer, whose leaf is latched, has to look for locks (rule 1).
    #[inline]
    #[must_use]
    pub fn is_any(&self) -> bool {
        // Loom takes sequentially consistent accesses for acquire and release only.
        #[cfg(loom)]
        fence(Ordering::SeqCst);
        self.present.load(Ordering::SeqCst) > 0
    }

    /// Returns whether a commit has to look for marks. The caller has announced that it is about to
    /// draw its CSN.
    #[inline]
    #[must_use]
    pub fn has_marks(&self) -> bool {
        self.marks.load(Ordering::SeqCst) > 0
    }

    /// Counts a request that waits, or one that ends with `false`.
    pub(super) fn count_request(&self, waits: bool) {
        if waits {
            self.present.fetch_add(1, Ordering::SeqCst);
        } else {
            let before = self.present.fetch_sub(1, Ordering::SeqCst);
            debug_assert!(before > 0, "a request that ends was counted");
        }
    }

    fn count(&self, mode: LockMode) {
        self.present.fetch_add(1, Ordering::SeqCst);
        match mode {
            LockMode::Mark => _ = self.marks.fetch_add(1, Ordering::SeqCst),
            LockMode::Exclusive => _ = self.exclusive.fetch_add(1, Ordering::SeqCst),
            LockMode::Shared | LockMode::Update => {}
        }
    }

    fn uncount(&self, mode: LockMode) {
        match mode {
            LockMode::Mark => {
                let before = self.marks.fetch_sub(1, Ordering::SeqCst);
                debug_assert!(before > 0, "a mark that ends was counted");
            }
            LockMode::Exclusive => {
                let before = self.exclusive.fetch_sub(1, Ordering::SeqCst);
                debug_assert!(before > 0, "an exclusive lock that ends was counted");
            }
            LockMode::Shared | LockMode::Update => {}
        }
        let before = self.present.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "a lock that ends was counted");
    }

    /// Publishes a lock on `key`; what the caller reads afterwards is read under the lock (rule 1).
    /// Returns false if the transaction has the lock already.
    pub fn lock_key(&self, key: &[u8], held: Held) -> bool {
        self.count(held.mode);
        let is_new = {
            let mut shard = self.parts().keys[shard_of(key)].lock();
            match shard.get_mut(key) {
                None => shard.insert(key.into(), KeyLocks { first: held, more: Vec::new() }).is_none(),
                Some(locks) if locks.iter().any(|other| other.id == held.id && other.mode == held.mode) => {
                    false
                }
                Some(locks) => {
                    locks.more.push(held);
                    true
                }
            }
        };
        if !is_new {
            self.uncount(held.mode);
        }
        fence(Ordering::SeqCst);
        is_new
    }

    /// Ends a lock that [`TableLocks::lock_key`] published.
    pub fn unlock_key(&self, key: &[u8], id: DescriptorId, mode: LockMode) {
        let is_it = |held: &Held| held.id == id && held.mode == mode;
        {
            let mut shard = self.parts().keys[shard_of(key)].lock();
            let Some(locks) = shard.get_mut(key) else { return };
            if let Some(at) = locks.more.iter().position(is_it) {
                locks.more.swap_remove(at);
            } else if !is_it(&locks.first) {
                return;
            } else if let Some(next) = locks.more.pop() {
                locks.first = next;
            } else {
                shard.remove(key);
            }
        }
        self.uncount(mode);
    }

    /// Publishes a lock on an interval. Returns its number.
    pub fn lock_interval(&self, interval: Interval, held: Held) -> u64 {
        self.count(held.mode);
        self.intervals.fetch_add(1, Ordering::SeqCst);
        let parts = self.parts();
        let number = parts.next_interval.fetch_add(1, Ordering::Relaxed);
        parts.intervals.lock().push(HeldInterval { number, held, interval });
        fence(Ordering::SeqCst);
        number
    }

    /// Extends a lock on an interval over `more`.
    pub fn extend_interval(&self, number: u64, more: &Interval) {
        let mut intervals = self.parts().intervals.lock();
        if let Some(held) = intervals.iter_mut().find(|held| held.number == number) {
            held.interval.extend_over(more);
        }
        drop(intervals);
        fence(Ordering::SeqCst);
    }

    /// Ends a lock that [`TableLocks::lock_interval`] published.
    pub fn unlock_interval(&self, number: u64) {
        let removed = {
            let mut intervals = self.parts().intervals.lock();
            let at = intervals.iter().position(|held| held.number == number);
            at.map(|at| intervals.swap_remove(at))
        };
        if let Some(removed) = removed {
            let before = self.intervals.fetch_sub(1, Ordering::SeqCst);
            debug_assert!(before > 0, "an interval that ends was counted");
            self.uncount(removed.held.mode);
        }
    }

    /// Adds to `found` the transactions other than `me` that have a lock on `key`, or on an
    /// interval with it, for which `matters`.
    fn find_holders(
        &self,
        key: &[u8],
        me: DescriptorId,
        matters: impl Fn(LockMode) -> bool,
        found: &mut Vec<DescriptorId>,
    ) {
        let Some(parts) = self.parts.get() else { return };
        let is_other = |held: &&Held| held.id != me && matters(held.mode);
        if let Some(locks) = parts.keys[shard_of(key)].lock().get(key) {
            found.extend(locks.iter().filter(is_other).map(|held| held.id));
        }
        if self.intervals.load(Ordering::SeqCst) > 0 {
            let intervals = parts.intervals.lock();
            let with_key = intervals.iter().filter(|interval| interval.interval.contains(key));
            found.extend(with_key.map(|interval| &interval.held).filter(is_other).map(|held| held.id));
        }
    }

    /// Returns whether transaction `id` has a lock on `key`.
    #[must_use]
    pub fn is_held_by(&self, key: &[u8], id: DescriptorId) -> bool {
        let Some(parts) = self.parts.get() else { return false };
        let is_its = |held: &Held| held.id == id && held.mode.excludes_changes();
        parts.keys[shard_of(key)].lock().get(key).is_some_and(|locks| locks.iter().any(is_its))
            || self.intervals.load(Ordering::SeqCst) > 0
                && parts.intervals.lock().iter().any(|held| is_its(&held.held) && held.interval.contains(key))
    }

    /// Adds to `found` the transactions whose locks forbid `me` to change `key`.
    pub fn forbid_change(&self, key: &[u8], me: DescriptorId, found: &mut Vec<DescriptorId>) {
        self.find_holders(key, me, LockMode::excludes_changes, found);
    }

    /// Marks `key`. The caller has a fence before it looks at the row (rule 1).
    pub fn mark_key(&self, key: &[u8]) -> MarkPlace {
        let place = MarkPlace::of(key);
        let marked = self.marked.get_or_init(|| (0..MARK_PLACES).map(|_| AtomicU32::new(0)).collect());
        // In this order: a commit that sees no mark in the table came before this one looks.
        self.marks.fetch_add(1, Ordering::SeqCst);
        marked[place.0 as usize].fetch_add(1, Ordering::SeqCst);
        place
    }

    /// Ends a mark.
    pub fn unmark_key(&self, place: MarkPlace) {
        if let Some(marked) = self.marked.get() {
            let here = marked[place.0 as usize].fetch_sub(1, Ordering::SeqCst);
            let all = self.marks.fetch_sub(1, Ordering::SeqCst);
            debug_assert!(here > 0 && all > 0, "each mark is taken away once");
        }
    }

    /// Returns the number of marks on the keys of a counter.
    #[must_use]
    pub fn marks_at(&self, place: MarkPlace) -> u32 {
        self.marked.get().map_or(0, |marked| marked[place.0 as usize].load(Ordering::SeqCst))
    }

    /// Returns whether a transaction other than `me` has marked an interval with `key`.
    #[must_use]
    pub fn is_interval_marked(&self, key: &[u8], me: DescriptorId) -> bool {
        self.intervals.load(Ordering::SeqCst) > 0
            && self.parts().intervals.lock().iter().any(|marked| {
                marked.held.id != me && marked.held.mode == LockMode::Mark && marked.interval.contains(key)
            })
    }

    /// Adds to `found` the transactions whose locks forbid `me` a lock of `mode` on `key`.
    pub fn forbid_key(&self, key: &[u8], mode: LockMode, me: DescriptorId, found: &mut Vec<DescriptorId>) {
        if mode == LockMode::Update {
            self.find_holders(key, me, |held| held >= LockMode::Update, found);
        } else {
            self.forbid_interval(me, found);
        }
    }

    /// Adds to `found` the transactions whose locks forbid `me` shared locks in the table.
    pub fn forbid_interval(&self, me: DescriptorId, found: &mut Vec<DescriptorId>) {
        if self.exclusive.load(Ordering::SeqCst) > 0 {
            let intervals = self.parts().intervals.lock();
            let exclusive = intervals.iter().filter(|held| held.held.mode == LockMode::Exclusive);
            found.extend(exclusive.map(|held| held.held.id).filter(|id| *id != me));
        }
    }

    /// Adds to `found` all transactions other than `me` that have a lock in the table.
    pub fn forbid_exclusive(&self, me: DescriptorId, found: &mut Vec<DescriptorId>) {
        self.each(|_, held| {
            if held.id != me && held.mode.excludes_changes() {
                found.push(held.id);
            }
        });
    }

    /// Calls `f` with every lock: the key, or the interval, and the holder.
    pub fn each(&self, mut f: impl FnMut(Locked<'_>, &Held)) {
        let Some(parts) = self.parts.get() else { return };
        for shard in &parts.keys {
            for (key, locks) in shard.lock().iter() {
                locks.iter().for_each(|held| f(Locked::Key(key), held));
            }
        }
        parts.intervals.lock().iter().for_each(|held| f(Locked::Interval(&held.interval), &held.held));
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
