//! Range cursors, forward and backward, over what a view sees.
//!
//! A cursor copies one leaf's entries at a time, resolves their versions at once (under the epoch
//! in which they were copied) and then needs no latch. The cursor continues by key, so splits and
//! merges in between do not matter: every key that the view sees during the whole scan is returned
//! once, in order.

use super::catalog::TableState;
use super::dead_runs::{DeadRun, Tombstone};
use super::descriptor::DescriptorId;
use super::lock_set::LockedInterval;
use super::locks::Interval;
use super::range_ahead::ReadAhead;
use super::read_set::RememberedInterval;
use super::system::TransactionSystem;
use super::view::{Outcome, View, Visibility};
use crate::base::planted::{self, Bug};
use crate::base::{Csn, PageId, Result};
use crate::buffer::ScanBuffer;
use crate::sync::atomic::{Ordering, fence};
use crate::sync::epoch::{Guard, pin};
use crate::tree::{BatchEntry, EntryMeta, Held, LeafBatch};
use std::cell::Cell;
use std::cmp::Ordering as Order;
use std::ops::Bound;
use std::sync::Arc;

/// A row ahead, by its index in the batch.
#[derive(Debug)]
struct Ahead {
    index: usize,
    value: Seen,
}

/// The value of a row ahead.
#[derive(Debug)]
enum Seen {
    /// As in the leaf.
    Newest,
    /// A value from a version.
    Older(Vec<u8>),
    /// A large value. It is read when the cursor reaches its row, so that one at a time is in
    /// memory.
    Large,
}

/// Entries copied at first; doubled up to the maximum, so that a short scan copies little.
const FIRST_BATCH: usize = 8;
const LARGEST_BATCH: usize = 256;

/// The memory of an end that reads.
#[derive(Debug, Default)]
struct Buffers {
    batch: LeafBatch,
    rows: Vec<Ahead>,
}

thread_local! {
    /// The buffers of the thread's last cursor, for the lower end of the next one.
    static UNUSED: Cell<Buffers> = Cell::default();
}

/// Buffers of batches above this are not kept for the next cursor of the thread.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// A double-ended cursor. The caller passes the view at each step, so that a cursor holds no
/// transaction.
#[derive(Debug)]
pub struct RangeCursor {
    table: Arc<TableState>,
    /// The lower end, which moves forward, and the upper end, which moves back.
    ends: [End; 2],
    batch_len: usize,
    /// What each end has read, in the read set of a transaction.
    remembered: [Option<RememberedInterval>; 2],
    /// What each end has locked.
    locked: [Option<LockedInterval>; 2],
    /// Entries that a locking cursor locks at once: at first one, so that no more rows are locked
    /// than were returned, or about as many.
    lock_len: usize,
    /// Values are not read: the caller needs only keys.
    skips_values: bool,
    /// The transaction owns a dead range of the table.
    owns_dead_range: bool,
    /// Rows that a snapshot has read and not counted yet: its list of tables is behind a lock.
    rows: u64,
}

/// How a cursor reads under locks.
pub(super) trait LockingReader {
    /// Locks an interval that one end of the cursor is about to read; `locked` is what the end has
    /// locked before.
    fn lock(&mut self, interval: &Interval, locked: &mut Option<LockedInterval>) -> Result<()>;

    /// Waits for the transaction that holds the row of `key`, whose entry has the stamp `stamp`.
    fn await_row(&mut self, key: &[u8], stamp: u64, holder: DescriptorId) -> Result<()>;

    /// Waits if the row of the transaction with this CSN is held until it is durable. Returns
    /// whether it waited.
    fn await_late_release(&mut self, csn: Csn) -> Result<bool>;

    /// Returns whether a dead range, whose newest deletion has this CSN, may be skipped: no row in
    /// it is held until it is durable.
    fn may_skip(&self, newest: Csn) -> bool;

    /// Notes what was read.
    fn observe(&mut self, observed: Observed);
}

/// What a cursor has read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Observed {
    /// A version, or a deletion, of the transaction with this CSN; 0 for a settled one.
    Version(Csn),
    /// A dead range: deletions of transactions up to this CSN.
    DeadRange(Csn),
    /// A leaf.
    Leaf(PageId),
}

/// One end of a cursor.
#[derive(Debug)]
struct End {
    /// The cursor's bound, or the last key returned of an earlier batch: see [`End::bound`].
    reached: Bound<Vec<u8>>,
    /// The end has read a leaf.
    is_used: bool,
    /// The entries copied from the current leaf.
    batch: LeafBatch,
    /// The rows among them that the view sees, in this end's direction: the first `plain` entries,
    /// each as in the leaf, and then `rows`.
    plain: usize,
    rows: Vec<Ahead>,
    /// Index of the next row; the current row is the one before.
    at: usize,
    /// The value of the current row, if it is large.
    large: Vec<u8>,
    /// Where the tree continues after the rows; `None` at the end.
    next: Option<Bound<Vec<u8>>>,
    /// The deleted rows since the last row.
    dead: DeadRun,
    read_ahead: ReadAhead,
}

impl End {
    fn new(bound: Bound<Vec<u8>>) -> End {
        End {
            next: Some(bound.clone()),
            reached: bound,
            is_used: false,
            batch: LeafBatch::default(),
            plain: 0,
            rows: Vec::new(),
            at: 0,
            large: Vec::new(),
            dead: DeadRun::default(),
            read_ahead: ReadAhead::default(),
        }
    }

    /// Returns the index in the batch and the value of a row.
    #[inline]
    fn row(&self, at: usize) -> Option<(usize, &Seen)> {
        match at.checked_sub(self.plain) {
            None => Some((at, &Seen::Newest)),
            Some(behind) => self.rows.get(behind).map(|row| (row.index, &row.value)),
        }
    }

    /// Returns the index in the batch and the value of the row that the end has reached.
    #[inline]
    fn current(&self) -> Option<(usize, &Seen)> {
        self.at.checked_sub(1).and_then(|last| self.row(last))
    }

    /// Returns the cursor's bound, or the key returned last. The rows left lie between this and the
    /// other end's bound.
    fn bound(&self) -> Bound<&[u8]> {
        match self.current() {
            Some((index, _)) => Bound::Excluded(self.batch.key(index)),
            None => as_slice(&self.reached),
        }
    }

    /// Removes the rows of the batch.
    fn clear(&mut self) {
        if let Some(index) = self.current().map(|(index, _)| index) {
            let key = self.batch.key(index);
            match &mut self.reached {
                Bound::Excluded(reached) => {
                    reached.clear();
                    reached.extend_from_slice(key);
                }
                reached => *reached = Bound::Excluded(key.to_vec()),
            }
        }
        self.batch.clear();
        self.rows.clear();
        (self.plain, self.at) = (0, 0);
        self.is_used = true;
    }

    fn finish(&mut self) {
        self.clear();
        self.next = None;
    }

    fn take_buffers(&mut self) -> Buffers {
        Buffers { batch: std::mem::take(&mut self.batch), rows: std::mem::take(&mut self.rows) }
    }

    /// Moves to the next row, if it is copied already.
    #[inline]
    fn advance(&mut self, other: &End, back: bool) -> bool {
        let Some((index, _)) = self.row(self.at) else { return false };
        // The rows of a batch lay before the bound of the other end when they were copied.
        if other.is_used && !is_inside(self.batch.key(index), other.bound(), back) {
            self.finish();
            return false;
        }
        self.at += 1;
        true
    }
}

/// Returns the end that moves, `back` or forward, and the other one.
#[inline]
fn both([lower, upper]: &mut [End; 2], back: bool) -> (&mut End, &End) {
    if back { (upper, lower) } else { (lower, upper) }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

/// Returns whether a cursor that moves forward, or `back`, may reach `key` before the other end's
/// bound.
fn is_inside(key: &[u8], bound: Bound<&[u8]>, back: bool) -> bool {
    let (bound, included) = match bound {
        Bound::Included(bound) => (bound, true),
        Bound::Excluded(bound) => (bound, false),
        Bound::Unbounded => return true,
    };
    let outside = if back { Order::Less } else { Order::Greater };
    match key.cmp(bound) {
        Order::Equal => included,
        side => side != outside,
    }
}

/// Returns whether a cursor that continues at `from`, forward or `back`, may reach a key before the
/// bound `end`.
fn may_reach(from: &Bound<Vec<u8>>, end: Bound<&[u8]>, back: bool) -> bool {
    match from {
        Bound::Included(key) | Bound::Excluded(key) => is_inside(key, end, back),
        Bound::Unbounded => true,
    }
}

/// Returns whether every view sees the value that an entry holds.
#[inline]
fn is_plain(system: &TransactionSystem, meta: EntryMeta) -> bool {
    meta.held() == Held::Value && (meta.stamp == 0 || system.versions.slots.is_settled(meta.stamp))
}

/// Returns the CSN that an entry depends on, and what the view sees of it, if it is a row. None if
/// the entry has to be read again.
fn see(
    system: &TransactionSystem,
    view: View,
    entry: BatchEntry<'_>,
    guard: &Guard,
) -> Option<(Csn, Option<Seen>)> {
    let (stamp, held) = (entry.meta.stamp, entry.meta.held());
    let (visibility, _) = view.visibility(stamp, &system.versions.slots, &system.descriptors, guard);
    if let (Visibility::Visible(csn), Held::Value) = (visibility, held) {
        return Some((csn, Some(Seen::Newest)));
    }
    let mut value = entry.value.to_vec();
    Some(match system.resolve(view, stamp, held, &mut value, guard) {
        Outcome::Value(csn) => (csn, Some(Seen::Older(value))),
        Outcome::Reference(csn) => (csn, Some(Seen::Large)),
        Outcome::Absent(csn) => (csn, None),
        Outcome::Retry => return None,
    })
}

impl Drop for RangeCursor {
    fn drop(&mut self) {
        self.table.count_rows(self.rows, 0);
        let Buffers { mut batch, mut rows } = self.ends[0].take_buffers();
        if batch.capacity() <= KEPT_BYTES_MAX {
            batch.reset();
            rows.clear();
            let _ = UNUSED.try_with(|unused| unused.set(Buffers { batch, rows }));
        }
    }
}

impl RangeCursor {
    /// Returns a cursor over the keys between two bounds. An empty or inverted range has no rows.
    #[must_use]
    pub fn new(table: Arc<TableState>, lower: Bound<Vec<u8>>, upper: Bound<Vec<u8>>) -> RangeCursor {
        let mut ends = [lower, upper].map(End::new);
        let Buffers { batch, rows } = UNUSED.try_with(Cell::take).unwrap_or_default();
        (ends[0].batch, ends[0].rows) = (batch, rows);
        RangeCursor {
            table,
            ends,
            batch_len: FIRST_BATCH,
            remembered: [None; 2],
            locked: [None; 2],
            lock_len: 1,
            skips_values: false,
            owns_dead_range: false,
            rows: 0,
        }
    }

    /// Reads no values from now on, where that saves something: rows may have empty values.
    pub fn skip_values(&mut self) {
        self.skips_values = true;
        self.ends.iter_mut().for_each(|end| end.batch.leave_out_values());
    }

    /// Returns the bound of the end `back` or forward: the cursor's own, or the key returned last.
    pub(super) fn bound(&self, back: bool) -> Bound<&[u8]> {
        self.ends[usize::from(back)].bound()
    }

    /// Returns what the end `back` or forward has read, in the read set of its transaction.
    pub(super) fn remembered(&self, back: bool) -> Option<RememberedInterval> {
        self.remembered[usize::from(back)]
    }

    /// Sets [`RangeCursor::remembered`].
    pub(super) fn set_remembered(&mut self, back: bool, interval: RememberedInterval) {
        self.remembered[usize::from(back)] = Some(interval);
    }

    /// Returns whether the transaction that moved the cursor owns a dead range of the table now.
    pub(super) fn owns_dead_range(&self) -> bool {
        self.owns_dead_range
    }

    /// Counts a row that a snapshot reads, if it is one, when the cursor is dropped.
    pub(super) fn count_row(&mut self, is_row: bool) {
        self.rows += u64::from(is_row);
    }

    /// Returns the table of the cursor.
    #[must_use]
    pub fn table(&self) -> &Arc<TableState> {
        &self.table
    }

    /// Moves to the next row, `back` or not, if all of it is copied already.
    #[inline]
    pub(super) fn advance(&mut self, back: bool) -> bool {
        let (this, other) = both(&mut self.ends, back);
        let is_copied = this.row(this.at).is_some_and(|(_, value)| !matches!(value, Seen::Large));
        is_copied && this.advance(other, back)
    }

    /// Calls `each` with the rows behind the current one that are copied already and that every
    /// view sees, forward. Ends with its first error.
    #[inline]
    pub(super) fn visit_copied(&mut self, mut each: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        let [end, upper] = &mut self.ends;
        while end.at < end.plain && !upper.is_used {
            let entry = end.batch.entry(end.at);
            end.at += 1;
            self.rows += 1;
            each(entry.key, entry.value)?;
        }
        Ok(())
    }

    /// Copies many rows at once from now on: the caller wants all.
    pub fn expect_all(&mut self) {
        self.batch_len = LARGEST_BATCH;
    }

    /// Returns the current row, key and value, of the direction `back` or forward. Panics before
    /// the first step.
    #[inline]
    #[must_use]
    pub fn row(&self, back: bool) -> (&[u8], &[u8]) {
        let end = &self.ends[usize::from(back)];
        let (index, value) = end.current().expect("the cursor was moved to a row");
        let entry = end.batch.entry(index);
        match value {
            Seen::Newest => (entry.key, entry.value),
            Seen::Older(value) => (entry.key, value),
            Seen::Large => (entry.key, &end.large),
        }
    }

    /// Moves to the next row from the lower end, or with `back` from the upper one. Returns false
    /// at the end. Calls `observe` with everything that was read, deletions included.
    ///
    /// # Errors
    /// I/O, `Corruption`.
    pub(super) fn step(
        &mut self,
        system: &TransactionSystem,
        view: View,
        observe: &mut dyn FnMut(Observed) -> Result<()>,
        back: bool,
    ) -> Result<bool> {
        loop {
            let (this, other) = both(&mut self.ends, back);
            if this.row(this.at).is_some() {
                if !this.advance(other, back) {
                    return Ok(false);
                }
                if let Some((index, Seen::Large)) = this.current()
                    && !self.skips_values
                {
                    this.large.clear();
                    let key = this.batch.key(index);
                    let (found, csn, _) = system.read(&self.table.tree, key, view, &mut this.large)?;
                    observe(Observed::Version(csn))?;
                    // A view that moves (read committed) may not see the row any more, which is
                    // skipped then.
                    if !found {
                        continue;
                    }
                }
                return Ok(true);
            }
            let is_over = this.next.is_none();
            let mut may_skip = |newest| observe(Observed::DeadRange(newest)).map(|()| true);
            let from = match this.next.take() {
                Some(from) => this.dead.skip(&self.table, from, view, back, &mut may_skip)?,
                None => None,
            };
            match from.filter(|from| may_reach(from, other.bound(), back)) {
                Some(from) => self.fill(system, view, observe, &from, back)?,
                None => this.dead.end(&self.table, other.bound(), back, &pin()),
            }
            self.record_dead(system, view, back);
            if is_over {
                return Ok(false);
            }
        }
    }

    /// As [`RangeCursor::step`], of the newest versions, each locked before it is read.
    ///
    /// # Errors
    /// As [`RangeCursor::step`], and those of `reader`.
    pub(super) fn step_locked(
        &mut self,
        system: &TransactionSystem,
        view: View,
        reader: &mut dyn LockingReader,
        back: bool,
    ) -> Result<bool> {
        loop {
            let this = &mut self.ends[usize::from(back)];
            if this.row(this.at).is_some() {
                this.at += 1;
                if let Some((index, Seen::Large)) = this.current()
                    && !self.skips_values
                {
                    this.large.clear();
                    let key = this.batch.key(index);
                    let (_, csn, _) = system.read(&self.table.tree, key, view, &mut this.large)?;
                    reader.observe(Observed::Version(csn));
                }
                return Ok(true);
            }
            let Some(from) = this.next.take() else { return Ok(false) };
            self.fill_locked(system, view, reader, from, back)?;
            self.record_dead(system, view, back);
        }
    }

    /// Locks an interval up to the last of the next entries, then copies and resolves them. Sets
    /// `next` to where the cursor continues.
    fn fill_locked(
        &mut self,
        system: &TransactionSystem,
        view: View,
        reader: &mut dyn LockingReader,
        mut from: Bound<Vec<u8>>,
        back: bool,
    ) -> Result<()> {
        let begin = from.clone();
        // The first look says how far to lock; what it saw is read again under the lock.
        let last = loop {
            let Some(at) = self.skip_locked(view, reader, from, back)? else { break None };
            let next = self.copy_leaf(&at, None, back)?;
            let this = &self.ends[usize::from(back)];
            let last = this.batch.iter().last().map(|entry| entry.key.to_vec());
            match (last, next) {
                (Some(last), _) => break Some(last),
                (None, Some(next)) if may_reach(&next, self.bound(!back), back) => from = next,
                (None, _) => break None,
            }
        };
        let other = self.bound(!back).map(<[u8]>::to_vec);
        let end = last.clone().map_or(other, Bound::Included);
        let interval = match back {
            false => Interval { from: begin.clone(), to: end.clone() },
            true => Interval { from: end.clone(), to: begin.clone() },
        };
        reader.lock(&interval, &mut self.locked[usize::from(back)])?;
        // The lock is published before dead ranges are looked for (invariant 5 of `dead_ranges`).
        fence(Ordering::SeqCst);
        // Without rows the whole rest is locked, and may hold rows by now.
        let mut at = begin;
        loop {
            let Some(from) = self.skip_locked(view, reader, at, back)? else { return Ok(()) };
            let next = self.copy_resolved(system, view, reader, &from, &interval, back)?;
            let this = &mut self.ends[usize::from(back)];
            let key = this.batch.iter().last().map(|entry| entry.key.to_vec());
            match (key, next) {
                (Some(key), _) => {
                    this.next = Some(Bound::Excluded(key));
                    self.lock_len = (self.lock_len * 2).min(LARGEST_BATCH);
                    return Ok(());
                }
                (None, Some(next)) if may_reach(&next, as_slice(&end), back) => at = next,
                (None, _) => {
                    if last.is_none() {
                        this.dead.end(&self.table, as_slice(&end), back, &pin());
                    }
                    this.next = last.map(Bound::Excluded);
                    return Ok(());
                }
            }
        }
    }

    /// Skips the dead ranges at `from`. Returns where the cursor continues; `None` at the end.
    fn skip_locked(
        &mut self,
        view: View,
        reader: &mut dyn LockingReader,
        from: Bound<Vec<u8>>,
        back: bool,
    ) -> Result<Option<Bound<Vec<u8>>>> {
        self.ends[usize::from(back)].dead.skip(&self.table, from, view, back, |newest| {
            let may_skip = reader.may_skip(newest);
            if may_skip {
                reader.observe(Observed::DeadRange(newest));
            }
            Ok(may_skip)
        })
    }

    /// Records a run of deleted rows that is over.
    fn record_dead(&mut self, system: &TransactionSystem, view: View, back: bool) {
        let dead = &mut self.ends[usize::from(back)].dead;
        self.owns_dead_range |= dead.record(system, &self.table, view);
    }

    /// Copies the next entries of one leaf, those inside `interval` and before the other end's
    /// bound. Returns where the tree continues.
    fn copy_leaf(
        &mut self,
        from: &Bound<Vec<u8>>,
        interval: Option<&Interval>,
        back: bool,
    ) -> Result<Option<Bound<Vec<u8>>>> {
        let (tree, from) = (&self.table.tree, as_slice(from));
        let (this, other) = both(&mut self.ends, back);
        this.clear();
        // Never from copies that were read ahead: the newest version counts.
        let copies = &mut ScanBuffer::default();
        let next = if back {
            tree.scan_backward(from, self.lock_len, &mut this.batch, copies)?.map(Bound::Excluded)
        } else {
            tree.scan_forward(from, self.lock_len, &mut this.batch, copies)?.map(Bound::Included)
        };
        let is_wanted = |key: &[u8]| {
            is_inside(key, other.bound(), back) && interval.is_none_or(|interval| interval.contains(key))
        };
        let wanted = this.batch.iter().take_while(|entry| is_wanted(entry.key)).count();
        this.batch.truncate(wanted);
        Ok(next)
    }

    /// Copies and resolves the next entries inside `interval`, which is locked. Waits for
    /// transactions that hold a row among them.
    fn copy_resolved(
        &mut self,
        system: &TransactionSystem,
        view: View,
        reader: &mut dyn LockingReader,
        from: &Bound<Vec<u8>>,
        interval: &Interval,
        back: bool,
    ) -> Result<Option<Bound<Vec<u8>>>> {
        'again: loop {
            let guard = pin();
            let next = self.copy_leaf(from, Some(interval), back)?;
            let this = &mut self.ends[usize::from(back)];
            for (index, entry) in this.batch.iter().enumerate() {
                if let Some(Tombstone::Dead { .. }) = Tombstone::of(entry.meta, system, view, &guard) {
                    let begin = if index == 0 { as_slice(from) } else { Bound::Included(entry.key) };
                    this.dead.visit(&self.table, begin, entry.key, view, back, &guard);
                } else {
                    this.dead.end(&self.table, Bound::Excluded(entry.key), back, &guard);
                }
                if is_plain(system, entry.meta) {
                    this.rows.push(Ahead { index, value: Seen::Newest });
                    continue;
                }
                let (visibility, _) =
                    view.visibility(entry.meta.stamp, &system.versions.slots, &system.descriptors, &guard);
                if let Visibility::InProgress(holder) = visibility {
                    drop(guard);
                    reader.await_row(entry.key, entry.meta.stamp, holder)?;
                    continue 'again;
                }
                let Some((csn, value)) = see(system, view, entry, &guard) else {
                    system.committed.check_whole()?;
                    continue 'again;
                };
                if reader.await_late_release(csn)? {
                    continue 'again;
                }
                reader.observe(Observed::Version(csn));
                if let Some(value) = value {
                    this.rows.push(Ahead { index, value });
                }
            }
            reader.observe(Observed::Leaf(this.batch.leaf()));
            return Ok(next);
        }
    }

    /// Copies and resolves the entries of one leaf.
    fn fill(
        &mut self,
        system: &TransactionSystem,
        view: View,
        observe: &mut dyn FnMut(Observed) -> Result<()>,
        from: &Bound<Vec<u8>>,
        back: bool,
    ) -> Result<()> {
        let (this, other) = both(&mut self.ends, back);
        let (tree, from) = (&self.table.tree, as_slice(from));
        this.read_ahead.advance(tree, from, back)?;
        'again: loop {
            let guard = pin();
            this.clear();
            let (copies, end, len) = (&mut this.read_ahead.copies, other.bound(), self.batch_len);
            let mut next = if back {
                tree.scan_backward_until(from, end, len, &mut this.batch, copies)?.map(Bound::Excluded)
            } else {
                tree.scan_forward_until(from, end, len, &mut this.batch, copies)?
                    .map(if planted::is(Bug::ScanSkipsAtBorder) { Bound::Excluded } else { Bound::Included })
            };
            observe(Observed::Leaf(this.batch.leaf()))?;
            let inside = this.batch.count_keys(|key| is_inside(key, end, back));
            if this.dead.is_empty() {
                this.plain = this.batch.count_first(|meta| is_plain(system, meta)).min(inside);
            }
            for index in this.plain..this.batch.len() {
                if index == inside {
                    this.dead.end(&self.table, end, back, &guard);
                    break;
                }
                let entry = this.batch.entry(index);
                if let Some(Tombstone::Dead { csn, .. }) = Tombstone::of(entry.meta, system, view, &guard) {
                    observe(Observed::Version(csn))?;
                    let begin = if index == 0 { from } else { Bound::Included(entry.key) };
                    if this.dead.visit(&self.table, begin, entry.key, view, back, &guard) {
                        next = Some(Bound::Included(entry.key.to_vec()));
                        break;
                    }
                    continue;
                }
                this.dead.end(&self.table, Bound::Excluded(entry.key), back, &guard);
                if is_plain(system, entry.meta) {
                    this.rows.push(Ahead { index, value: Seen::Newest });
                    continue;
                }
                let Some((csn, value)) = see(system, view, entry, &guard) else {
                    system.committed.check_whole()?;
                    continue 'again;
                };
                observe(Observed::Version(csn))?;
                if let Some(value) = value {
                    this.rows.push(Ahead { index, value });
                }
            }
            self.batch_len = (self.batch_len * 2).min(LARGEST_BATCH);
            this.next = next;
            return Ok(());
        }
    }
}
