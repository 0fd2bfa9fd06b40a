//! Deleted rows in a scan: skips those of dead ranges, and records a run of many as a dead range.

use super::catalog::TableState;
use super::dead_ranges::{DeadRange, Mergeable, Place};
use super::system::TransactionSystem;
use super::view::{View, Visibility};
use crate::base::{Csn, Result};
use crate::sync::epoch::{Guard, pin};
use crate::tree::{EntryMeta, LeafBatch};
use std::ops::Bound;

/// Entries that a verification looks at in one step.
const BATCH: usize = 256;

/// The deleted rows that one end of a scan has passed since its last row.
#[derive(Debug, Default)]
pub(super) struct DeadRun {
    /// Tombstones visited and ranges skipped.
    passed: usize,
    /// Tombstones visited that are not counted yet.
    visited: u64,
    /// Where the run begins; unless `passed` is 0. `None` is the place behind all keys.
    begin: Option<Vec<u8>>,
    /// A run that is over and long enough to be recorded.
    over: Option<(Vec<u8>, Option<Vec<u8>>)>,
}

/// What a view sees of a tombstone.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tombstone {
    /// Every view from the CSN on sees it; for `own` it is the view's own.
    Dead { csn: Csn, own: bool },
    /// The view sees something older, or has to look again.
    Unclear,
}

impl Tombstone {
    /// Returns what `view` sees of an entry; `None` if the entry is no tombstone.
    #[inline]
    pub(super) fn of(
        entry: EntryMeta,
        system: &TransactionSystem,
        view: View,
        guard: &Guard,
    ) -> Option<Tombstone> {
        if !entry.tombstone {
            return None;
        }
        let (visibility, version) =
            view.visibility(entry.stamp, &system.versions.slots, &system.descriptors, guard);
        Some(match visibility {
            Visibility::Visible(csn) => {
                Tombstone::Dead { csn, own: version.is_some_and(|version| version.stamp == view.own) }
            }
            _ => Tombstone::Unclear,
        })
    }
}

/// Returns the place at which a scan continues that has come to `from`.
fn place(from: Bound<&[u8]>, back: bool) -> Option<Place<'_>> {
    if back { Place::upper(from) } else { Some(Place::lower(from)) }
}

impl DeadRun {
    /// Counts a tombstone or a range. `from` is where the scan came from, if the run begins here.
    fn pass(&mut self, from: Bound<&[u8]>, back: bool) {
        if self.passed == 0 {
            self.begin = place(from, back).map(Place::first_key);
        }
        self.passed += 1;
    }

    /// Counts a tombstone at `key`. `begin` is where the scan came from, or the key. Returns
    /// whether the run begins here and a dead range covers the key.
    pub(super) fn visit(
        &mut self,
        table: &TableState,
        begin: Bound<&[u8]>,
        key: &[u8],
        view: View,
        back: bool,
        guard: &Guard,
    ) -> bool {
        let is_first = self.passed == 0;
        self.pass(begin, back);
        self.visited += 1;
        let at = place(Bound::Included(key), back);
        is_first && table.dead_ranges.find(at, back, view, guard).is_some()
    }

    /// Returns whether no deleted row was passed since the last row.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.passed == 0
    }

    /// Ends the run before the bound `end` of the entries that were not passed.
    #[inline]
    pub(super) fn end(&mut self, table: &TableState, end: Bound<&[u8]>, back: bool, guard: &Guard) {
        if self.passed > 0 {
            self.end_run(table, end, back, guard);
        }
    }

    fn end_run(&mut self, table: &TableState, end: Bound<&[u8]>, back: bool, guard: &Guard) {
        let is_long = self.passed >= table.dead_ranges.run_min(guard);
        self.passed = 0;
        if is_long {
            let begin = self.begin.take();
            self.over = match back {
                false => Some((begin.unwrap_or_default(), Place::upper(end).map(Place::first_key))),
                true => Some((Place::lower(end).first_key(), begin)),
            };
        }
    }

    /// Skips the dead ranges at `from`. Returns where the scan continues; `None` at the end. Calls
    /// `observe` with the CSN that each skip depends on. Skips only as far as `may_skip` allows.
    pub(super) fn skip(
        &mut self,
        table: &TableState,
        mut from: Bound<Vec<u8>>,
        view: View,
        back: bool,
        mut may_skip: impl FnMut(Csn) -> Result<bool>,
    ) -> Result<Option<Bound<Vec<u8>>>> {
        let guard = pin();
        loop {
            let at = from.as_ref().map(Vec::as_slice);
            let Some(range) = table.dead_ranges.find(place(at, back), back, view, &guard) else {
                return Ok(Some(from));
            };
            if !may_skip(range.newest)? {
                return Ok(Some(from));
            }
            self.pass(at, back);
            from = match (back, &range.to) {
                (false, None) => return Ok(None),
                (false, Some(to)) => Bound::Included(to.clone()),
                (true, _) if range.from.is_empty() => return Ok(None),
                (true, _) => Bound::Excluded(range.from.clone()),
            };
        }
    }

    /// Records the run that is over, if there is one. Returns whether a range may have the owner
    /// `view.own` now.
    pub(super) fn record(&mut self, system: &TransactionSystem, table: &TableState, view: View) -> bool {
        if self.visited > 0 {
            system.counters.tombstones_visited.add(std::mem::take(&mut self.visited));
        }
        let Some((from, to)) = self.over.take() else { return false };
        match verify_and_record(system, table, view, &from, to.as_deref()) {
            Ok(owned) => owned,
            Err(error) => {
                tracing::debug!(%error, table = %table.name, "deleted rows are visited again");
                false
            }
        }
    }
}

/// Claims, verifies and records the range between `from` and `to`. Returns whether part of it is
/// owned.
fn verify_and_record(
    system: &TransactionSystem,
    table: &TableState,
    view: View,
    from: &[u8],
    to: Option<&[u8]>,
) -> Result<bool> {
    let Some(claim) = table.dead_ranges.claim(from, to) else { return Ok(false) };
    let mut pieces: Vec<DeadRange> = Vec::new();
    let mut at = Some(from.to_vec());
    while let Some(begin) = at.filter(|at| to.is_none_or(|to| at.as_slice() < to)) {
        let piece = verify_piece(system, table, view, begin, to)?;
        let Some(piece) = piece else { return Ok(false) };
        at = piece.to.clone();
        pieces.push(piece);
    }
    let owned = pieces.iter().any(|piece| piece.owner.is_some());
    let bound = system.committed.newest_acknowledged();
    let mergeable = Mergeable { bound, pins: system.descriptors.pins() };
    table.dead_ranges.record(&claim, pieces, &mergeable);
    Ok(owned)
}

/// Returns a range from `from` on, at most to `to`: a part of a known range, or tombstones up to
/// the next known one. `None` if there is something else. Latches each leaf (invariant 4 of
/// `dead_ranges`).
fn verify_piece(
    system: &TransactionSystem,
    table: &TableState,
    view: View,
    from: Vec<u8>,
    to: Option<&[u8]>,
) -> Result<Option<DeadRange>> {
    let guard = pin();
    let place = Some(Place::lower(Bound::Included(&from)));
    if let Some(known) = table.dead_ranges.find(place, false, view, &guard) {
        return Ok(Some(known.part(from, to)));
    }
    let next = table.dead_ranges.next_above(&from, &guard);
    let to = [next, to].into_iter().flatten().min().map(<[u8]>::to_vec);
    drop(guard);
    let mut piece = DeadRange { from, to, newest: Csn::ZERO, owner: None, rows: 0 };
    let (mut batch, mut next) = (LeafBatch::default(), Some(piece.from.clone()));
    while let Some(at) = next.filter(|at| piece.is_above(at)) {
        let guard = pin();
        batch.clear();
        next = table.tree.scan_forward_latched(Bound::Included(&at), BATCH, &mut batch)?;
        for entry in batch.iter() {
            if !piece.is_above(entry.key) {
                break;
            }
            match Tombstone::of(entry.meta, system, view, &guard) {
                Some(Tombstone::Dead { csn, own }) => {
                    piece.newest = piece.newest.max(csn);
                    piece.owner = piece.owner.or(own.then_some(view.own));
                    piece.rows += 1;
                }
                Some(Tombstone::Unclear) | None => return Ok(None),
            }
        }
    }
    Ok(Some(piece))
}
