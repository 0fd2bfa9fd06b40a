//! Dead ranges: ranges of keys that hold only deleted rows, so that scans continue behind them.
//!
//! A deleted row stays in its page as a tombstone until its deletion is durable and no snapshot
//! sees the row. A queue has all its tombstones at one end, where every scan begins. So a scan that
//! has visited many tombstones in a row remembers their range:
//!
//! ```text
//!   keys          1†  2†  3†  4†  5†  6   7   8        † tombstone
//!   dead ranges   └──newest 70──┘└newest 90┘
//!   snapshot 95   depends on 90, continues at 6
//!   snapshot 80   depends on 70, continues at 5
//! ```
//!
//! 1. In a dead range every entry is a tombstone: settled, of a transaction whose CSN is at most
//!    `newest`, or of the *owner*, a transaction in progress. A view whose snapshot is at or above
//!    `newest` sees no row there. While a range has an owner, only the owner uses the range.
//! 2. Absence is a read (rule 9): a reader that skips a range depends on `newest` and on everything
//!    below, because the CSNs of single deletions are not kept.
//! 3. A writer takes its key out of the dead ranges under the latch of the leaf, before it looks
//!    for locks and changes the entry. A deletion does not, because a tombstone stays one.
//! 4. A range is *claimed* first, then verified with each leaf latched, then recorded. A writer
//!    that had a latch before is seen in the leaf. A writer that gets one later sees the claim and
//!    breaks it, so the range is not recorded.
//! 5. A reader looks for ranges after it has chosen its snapshot, or locked an interval. A row that
//!    the reader has to see was taken out before.
//! 6. Neighbours are merged if no snapshot, open or to come, is between their CSNs. So a snapshot
//!    keeps the ranges that it can use.
//! 7. Ranges are hints: they are in memory only, and any of them may be dropped.

use super::descriptor::Stamp;
use super::view::View;
use crate::base::Csn;
use crate::base::planted::{self, Bug};
use crate::base::scale::SCALE;
use crate::sync::Mutex;
use crate::sync::atomic::{Ordering, fence};
use crate::sync::epoch::{EpochCell, Guard, pin};
use std::cmp::Ordering as Order;
use std::ops::Bound;
use std::sync::Arc;

/// Ranges of one table at most; the one with the fewest rows is dropped.
const RANGES_MAX: usize = 1024;
/// Claims of one table at most.
const CLAIMS_MAX: usize = 8;
/// Bytes of both bounds of a range at most.
const BOUNDS_BYTES_MAX: usize = 512;
/// Tombstones in a row that are worth a range, and one more for each so many ranges of the table:
/// recording one copies the list.
const RUN_MIN: usize = SCALE.dead_run_min;
const RANGES_PER_ROW: usize = 8;

/// A place between keys.
#[derive(Clone, Copy, Debug)]
pub struct Place<'k> {
    key: &'k [u8],
    /// Right behind the key, not before it.
    behind: bool,
}

impl<'k> Place<'k> {
    /// Returns the place before the keys above a lower bound.
    #[must_use]
    pub fn lower(bound: Bound<&'k [u8]>) -> Place<'k> {
        match bound {
            Bound::Included(key) => Place { key, behind: false },
            Bound::Excluded(key) => Place { key, behind: true },
            Bound::Unbounded => Place { key: &[], behind: false },
        }
    }

    /// Returns the place behind the keys below an upper bound; `None` is behind all keys.
    #[must_use]
    pub fn upper(bound: Bound<&'k [u8]>) -> Option<Place<'k>> {
        match bound {
            Bound::Included(key) => Some(Place { key, behind: true }),
            Bound::Excluded(key) => Some(Place { key, behind: false }),
            Bound::Unbounded => None,
        }
    }

    /// Returns the first key behind the place.
    #[must_use]
    pub fn first_key(self) -> Vec<u8> {
        let mut key = self.key.to_vec();
        key.extend(self.behind.then_some(0));
        key
    }

    /// Compares the first key behind the place with `key`.
    fn cmp(self, key: &[u8]) -> Order {
        match self.key.cmp(key) {
            Order::Equal if self.behind => Order::Greater,
            Order::Less if self.behind && key.strip_prefix(self.key) == Some(&[0]) => Order::Equal,
            order => order,
        }
    }
}

/// A range of keys from `from` on and below `to` that holds only deleted rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadRange {
    /// The first key.
    pub from: Vec<u8>,
    /// `None`: up to the last key.
    pub to: Option<Vec<u8>>,
    /// No deletion in it is newer, except those of the owner.
    pub newest: Csn,
    /// The stamp of the transaction in progress that deleted rows of the range.
    pub owner: Option<Stamp>,
    /// About how many tombstones there were.
    pub rows: u64,
}

impl DeadRange {
    fn is_empty(&self) -> bool {
        self.to.as_ref().is_some_and(|to| *to <= self.from)
    }

    fn contains(&self, key: &[u8]) -> bool {
        self.from.as_slice() <= key && self.is_above(key)
    }

    /// Returns whether the range ends above `key`.
    pub fn is_above(&self, key: &[u8]) -> bool {
        self.to.as_deref().is_none_or(|to| key < to)
    }

    fn touches(&self, from: &[u8], to: Option<&[u8]>) -> bool {
        self.is_above(from) && to.is_none_or(|to| self.from.as_slice() < to)
    }

    fn is_dead_to(&self, view: View) -> bool {
        (self.newest <= view.snapshot || planted::is(Bug::DeadRangeTooNew))
            && self.owner.is_none_or(|owner| owner == view.own)
    }

    /// Returns the part from `from` on and below `to`, which begins in the range.
    #[must_use]
    pub fn part(&self, from: Vec<u8>, to: Option<&[u8]>) -> DeadRange {
        let end = [self.to.as_deref(), to].into_iter().flatten().min().map(<[u8]>::to_vec);
        debug_assert!(self.contains(&from), "a part begins in its range");
        let rows = if from == self.from && end == self.to { self.rows } else { self.rows / 2 };
        DeadRange { from, to: end, rows, ..*self }
    }

    /// Returns the parts before `from` and from `to` on.
    fn without(&self, from: &[u8], to: Option<&[u8]>) -> impl Iterator<Item = DeadRange> {
        let end = self.to.as_deref().map_or(from, |end| end.min(from));
        let before = DeadRange { to: Some(end.to_vec()), ..self.clone() };
        let after = to.map(|to| DeadRange { from: to.max(&self.from).to_vec(), ..self.clone() });
        let parts = std::iter::once(before).chain(after).filter(|part| !part.is_empty());
        parts.map(|part| DeadRange { rows: part.rows / 4, ..part })
    }
}

/// Which ranges may be merged.
#[derive(Debug)]
pub struct Mergeable {
    /// No snapshot from now on is older.
    pub bound: Csn,
    /// The open snapshots.
    pub pins: Vec<Csn>,
}

impl Mergeable {
    fn allows(&self, one: &DeadRange, next: &DeadRange) -> bool {
        let (low, high) = (one.newest.min(next.newest), one.newest.max(next.newest));
        let is_between = |pin: &Csn| low <= *pin && *pin < high;
        one.to.as_ref() == Some(&next.from)
            && one.owner == next.owner
            && (low == high || high <= self.bound && !self.pins.iter().any(is_between))
    }
}

/// A range that is being verified.
#[derive(Clone, Debug)]
struct ClaimedRange {
    number: u64,
    from: Vec<u8>,
    to: Option<Vec<u8>>,
}

impl ClaimedRange {
    fn contains(&self, key: &[u8]) -> bool {
        self.from.as_slice() <= key && self.to.as_deref().is_none_or(|to| key < to)
    }
}

/// A claim, which ends when this is dropped.
#[derive(Debug)]
pub struct Claim<'a> {
    ranges: &'a DeadRanges,
    number: u64,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if self.ranges.has_claim(self.number) {
            self.ranges.edit(|lists, _| lists.claims.retain(|claim| claim.number != self.number));
        }
    }
}

#[derive(Clone, Default, Debug)]
struct Lists {
    /// Ascending; no two overlap.
    ranges: Vec<Arc<DeadRange>>,
    claims: Vec<ClaimedRange>,
}

impl Lists {
    /// Returns the range that covers the keys right behind `place`, or right before it; behind all
    /// keys for `None`.
    fn at(&self, place: Option<Place<'_>>, before: bool) -> Option<&DeadRange> {
        let Some(place) = place else {
            return self.ranges.last().map(|last| &**last).filter(|last| before && last.to.is_none());
        };
        let begins = |range: &Arc<DeadRange>| match place.cmp(&range.from) {
            Order::Less => false,
            Order::Equal => !before,
            Order::Greater => true,
        };
        let range = &**self.ranges[..self.ranges.partition_point(begins)].last()?;
        let ends = range.to.as_deref().is_none_or(|to| match place.cmp(to) {
            Order::Less => true,
            Order::Equal => before,
            Order::Greater => false,
        });
        ends.then_some(range)
    }

    fn holds(&self, key: &[u8]) -> bool {
        let begun = self.ranges.partition_point(|range| range.from.as_slice() <= key);
        let is_in_range = begun > 0 && self.ranges[begun - 1].is_above(key);
        is_in_range || self.claims.iter().any(|claim| claim.contains(key))
    }

    /// Replaces what lies between `from` and `to` by `pieces`, which lie there.
    fn replace(&mut self, from: &[u8], to: Option<&[u8]>, pieces: Vec<DeadRange>) {
        debug_assert!(
            pieces.iter().all(|piece| piece.from.as_slice() >= from && !piece.is_empty()),
            "pieces lie in the range that they replace"
        );
        let begin = self.ranges.partition_point(|range| !range.is_above(from));
        let touching = self.ranges[begin..].iter().take_while(|range| range.touches(from, to)).count();
        let rest = self.ranges[begin..begin + touching].iter().flat_map(|range| range.without(from, to));
        let (before, after): (Vec<_>, Vec<_>) = rest.partition(|range| range.from.as_slice() < from);
        let new = before.into_iter().chain(pieces).chain(after).map(Arc::new);
        self.ranges.splice(begin..begin + touching, new.collect::<Vec<_>>());
        debug_assert!(
            self.ranges.windows(2).all(|pair| pair[0].to.as_ref().is_some_and(|to| *to <= pair[1].from)),
            "ranges are sorted and disjoint"
        );
    }

    fn merge(&mut self, mergeable: &Mergeable) {
        self.ranges.dedup_by(|next, one| {
            let merges = mergeable.allows(one, next);
            if merges {
                let (newest, rows) = (one.newest.max(next.newest), one.rows.saturating_add(next.rows));
                *one = Arc::new(DeadRange { to: next.to.clone(), newest, rows, ..DeadRange::clone(one) });
            }
            merges
        });
    }
}

/// The dead ranges of a table.
#[derive(Default, Debug)]
pub struct DeadRanges {
    /// None if there are neither ranges nor claims.
    lists: EpochCell<Lists>,
    /// Held while the lists are replaced. The number of the last claim.
    last_claim: Mutex<u64>,
}

impl DeadRanges {
    /// Returns the range that covers the keys behind `place` and that is dead to `view`, with
    /// `back` the keys before it. `None` is the place behind all keys. The caller has chosen its
    /// snapshot, or has locked the keys (invariant 5).
    #[inline]
    pub fn find<'g>(
        &'g self,
        place: Option<Place<'_>>,
        back: bool,
        view: View,
        guard: &'g Guard,
    ) -> Option<&'g DeadRange> {
        self.lists.load(guard)?.at(place, back).filter(|range| range.is_dead_to(view))
    }

    /// Returns where the first range above `key` begins.
    pub fn next_above<'g>(&'g self, key: &[u8], guard: &'g Guard) -> Option<&'g [u8]> {
        let ranges = &self.lists.load(guard)?.ranges;
        let next = ranges.partition_point(|range| range.from.as_slice() <= key);
        ranges.get(next).map(|range| range.from.as_slice())
    }

    /// Takes `key` out of all ranges, and breaks claims of it (invariant 3).
    #[inline]
    pub fn take_out(&self, key: &[u8], guard: &Guard) {
        if self.lists.load(guard).is_some_and(|lists| lists.holds(key)) && !planted::is(Bug::DeadRangeKept) {
            self.take_out_of_lists(key);
        }
    }

    #[cold]
    fn take_out_of_lists(&self, key: &[u8]) {
        let behind = Place { key, behind: true }.first_key();
        self.edit(|lists, _| {
            lists.claims.retain(|claim| !claim.contains(key) || planted::is(Bug::ClaimNotBroken));
            if lists.ranges.iter().any(|range| range.contains(key)) {
                lists.replace(key, Some(&behind), Vec::new());
            }
        });
        // A reader that has locked the key and still found the range is seen by the writer, which
        // looks for locks after this.
        fence(Ordering::SeqCst);
    }

    /// Returns how many tombstones in a row are worth a range.
    #[must_use]
    pub fn run_min(&self, guard: &Guard) -> usize {
        RUN_MIN + self.lists.load(guard).map_or(0, |lists| lists.ranges.len() / RANGES_PER_ROW)
    }

    /// Claims a range, to be verified and recorded (invariant 4). `None` if there are too many
    /// claims, or the bounds are too long.
    pub fn claim(&self, from: &[u8], to: Option<&[u8]>) -> Option<Claim<'_>> {
        if from.len() + to.map_or(0, <[u8]>::len) > BOUNDS_BYTES_MAX || to.is_some_and(|to| to <= from) {
            return None;
        }
        let number = self.edit(|lists, last| {
            if lists.claims.len() >= CLAIMS_MAX {
                return None;
            }
            *last += 1;
            let (from, to) = (from.to_vec(), to.map(<[u8]>::to_vec));
            debug_assert!(lists.claims.iter().all(|claim| claim.number < *last), "claims are numbered");
            lists.claims.push(ClaimedRange { number: *last, from, to });
            Some(*last)
        })?;
        Some(Claim { ranges: self, number })
    }

    /// Records the pieces of a claimed range, which are verified and in order, unless a writer has
    /// broken the claim.
    pub fn record(&self, claim: &Claim<'_>, pieces: Vec<DeadRange>, mergeable: &Mergeable) {
        self.edit(|lists, _| {
            let at = lists.claims.iter().position(|claimed| claimed.number == claim.number);
            let Some(ClaimedRange { from, to, .. }) = at.map(|at| lists.claims.swap_remove(at)) else {
                return;
            };
            lists.replace(&from, to.as_deref(), pieces);
            lists.merge(mergeable);
            while lists.ranges.len() > RANGES_MAX {
                let fewest = (0..lists.ranges.len()).min_by_key(|at| lists.ranges[*at].rows);
                lists.ranges.remove(fewest.expect("more than none"));
            }
        });
    }

    /// Gives the ranges of `owner`, which has committed with `csn`, to everyone; without a CSN
    /// drops them.
    pub fn end_owner(&self, owner: Stamp, csn: Option<Csn>) {
        self.edit(|lists, _| {
            lists.ranges.retain_mut(|range| {
                if range.owner != Some(owner) {
                    return true;
                }
                if let Some(csn) = csn {
                    let newest = range.newest.max(csn);
                    *range = Arc::new(DeadRange { newest, owner: None, ..DeadRange::clone(range) });
                }
                csn.is_some()
            });
        });
    }

    fn has_claim(&self, number: u64) -> bool {
        let guard = pin();
        let lists = self.lists.load(&guard);
        lists.is_some_and(|lists| lists.claims.iter().any(|claim| claim.number == number))
    }

    fn edit<T>(&self, change: impl FnOnce(&mut Lists, &mut u64) -> T) -> T {
        let mut last_claim = self.last_claim.lock();
        let guard = pin();
        let mut lists = self.lists.load(&guard).cloned().unwrap_or_default();
        let done = change(&mut lists, &mut last_claim);
        let is_empty = lists.ranges.is_empty() && lists.claims.is_empty();
        self.lists.replace((!is_empty).then_some(lists), &guard);
        done
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
