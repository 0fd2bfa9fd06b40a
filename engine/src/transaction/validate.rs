//! Validation: a serializable optimistic transaction proves at its commit that what it read is
//! still so.
//!
//! The order of CSNs has to be the serial order, so that each snapshot, checkpoint and backup is a
//! state of a serial execution. It is not enough that nothing has changed *before* the draw:
//! another transaction could draw a lower CSN in between.
//!
//! ```text
//!   T   mark what was read   look: a newer version?   PREPARING   draw   end the marks
//!   U                        stamped a row that T read            PREPARING: the row is marked
//!                                                                 ACTIVE again; waits for T; draws
//! ```
//!
//! 1. T marks its reads, then looks at the rows. U announces PREPARING, then looks for marks on the
//!    rows that it changed. All four are sequentially consistent. So T sees PREPARING and waits for
//!    U's number, or U sees the mark and draws after T.
//! 2. Every transaction that writes takes part, of any isolation. Without marks in its tables it
//!    reads one counter for each.
//! 3. A read is valid if no version above the snapshot exists, not even beneath one in progress. A
//!    key that was absent, and a gap in a range, are read like a row. Versions that only locked a
//!    row do not count.
//! 4. Two transactions that validate at the same time may have changed what the other one read. A
//!    transaction that finds a mark ends its own marks, takes its turn, and validates again. Only
//!    the transaction whose turn it is waits with its marks.
//! 5. Marks of keys are counters, many keys to a counter: a writer may wait for a mark of another
//!    key, which does no harm.
//!
//! Source: H. T. Kung and J. T. Robinson, *On Optimistic Methods for Concurrency Control* (parallel
//! validation). Different there: sets of finished transactions are kept and compared; here the
//! versions in the rows say what has changed.

use super::active::ActiveTransaction;
use super::catalog::TableState;
use super::dead_runs::DeadRun;
use super::descriptor::{DescriptorId, Status};
use super::lock_set::LockSet;
use super::locks::{Held, Interval, LockMode, MarkPlace};
use super::options::ReadMode;
use super::read_set::Read;
use super::system::TransactionSystem;
use super::versions::{Before, VersionHandle};
use super::view::View;
use super::write_set::{Change, WriteSet};
use crate::base::planted::{self, Bug};
use crate::base::{Csn, Result};
use crate::buffer::ScanBuffer;
use crate::sync::atomic::{Ordering, fence};
use crate::sync::epoch::{Guard, pin};
use crate::tree::LeafBatch;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// Entries that a validation of an interval looks at in one step.
const BATCH: usize = 256;
/// How often a transaction that waits for a mark looks again by itself.
const MARK_LOOK: Duration = Duration::from_millis(1);

/// The marks of a validation, which end when this is dropped.
pub(super) struct Marks<'a> {
    system: &'a TransactionSystem,
    id: DescriptorId,
    /// One for each key.
    keys: Vec<(Arc<TableState>, MarkPlace)>,
    intervals: LockSet,
}

impl Marks<'_> {
    /// Returns how many of these marks are at `place` in `table`.
    fn count(&self, table: &Arc<TableState>, place: MarkPlace) -> u32 {
        let own = self.keys.iter().filter(|(other, at)| *at == place && Arc::ptr_eq(other, table));
        own.count() as u32
    }
}

impl Drop for Marks<'_> {
    fn drop(&mut self) {
        self.keys.iter().for_each(|(table, place)| table.locks.unmark_key(*place));
        self.intervals.release(self.id);
        self.system.locks.marks_ended.notify_all();
    }
}

/// What the stamps of an entry say.
enum Verdict {
    Unchanged,
    Changed,
    /// A writer has just finished: look again.
    Retry,
}

/// The rows that a transaction changed, to be looked for among marks. In contrast to the
/// transaction another thread may use it: the one that has the latch of the log.
#[derive(Clone, Copy)]
pub(super) struct ChangedRows<'a> {
    id: DescriptorId,
    tables: &'a [Arc<TableState>],
    changes: &'a [Change],
    /// The bytes of all keys.
    keys: &'a [u8],
}

impl ChangedRows<'_> {
    /// Returns whether another transaction validates a read of one of these rows. The caller has
    /// announced that it is about to draw its CSN.
    #[inline]
    pub(super) fn are_marked(self, own: Option<&Marks<'_>>) -> bool {
        self.tables.iter().any(|table| table.locks.has_marks())
            && !planted::is(Bug::MarksIgnored)
            && self.find_mark(own)
    }

    #[cold]
    fn find_mark(self, own: Option<&Marks<'_>>) -> bool {
        self.changes.iter().filter(|change| !change.lock).any(|change| {
            let (table, key) = (&self.tables[change.table as usize], change.key_in(self.keys));
            let place = MarkPlace::of(key);
            let marks = table.locks.marks_at(place);
            marks > 0 && marks > own.map_or(0, |own| own.count(table, place))
                || table.locks.is_interval_marked(key, self.id)
        })
    }
}

impl ActiveTransaction {
    /// Returns the rows that this transaction changed.
    #[inline]
    pub(super) fn changed_rows(&self) -> ChangedRows<'_> {
        let WriteSet { tables, changes, keys, .. } = &*self.writes;
        ChangedRows { id: self.id, tables, changes, keys }
    }

    /// Remembers that `key` was read.
    pub(super) fn remember_key(&self, table: &Arc<TableState>, key: &[u8]) {
        self.writes.reads.borrow_mut().add_key(table, key, None);
    }

    /// Returns whether a commit has to validate its reads. A transaction that wrote nothing has its
    /// place in the serial order at its snapshot.
    #[inline]
    pub(super) fn must_validate(&self) -> bool {
        self.read_mode() == ReadMode::Remember && !self.writes.reads.borrow().is_empty()
    }

    /// Marks what was read, then validates it. The reads stay valid until the marks are dropped.
    ///
    /// # Errors
    /// `Conflict` if something has changed; I/O, `Corruption`.
    pub(super) fn mark_and_validate<'a>(&self, system: &'a TransactionSystem) -> Result<Marks<'a>> {
        let held = Held { id: self.id, mode: LockMode::Mark, since: system.clock.now() };
        let (keys, intervals) = (Vec::new(), LockSet::default());
        let mut marks = Marks { system, id: self.id, keys, intervals };
        let reads = self.writes.reads.borrow();
        if !planted::is(Bug::ValidationUnmarked) {
            reads.try_each(|table, read| {
                match read {
                    Read::Key(key, _) => marks.keys.push((table.clone(), table.locks.mark_key(key))),
                    Read::Interval(interval) => {
                        marks.intervals.lock_interval(table, interval.clone(), held);
                    }
                }
                marks.intervals.charge(system)
            })?;
            // The marks are published before the rows are looked at (rule 1).
            fence(Ordering::SeqCst);
        }
        let snapshot = self.snapshot.get();
        reads.try_each(|table, read| {
            let (is_valid, failures) = match read {
                Read::Key(_, Some(leaf)) if leaf.is_current(&system.pool) => return Ok(()),
                Read::Key(key, _) => {
                    (self.is_unchanged_since(table, key, snapshot)?, &system.counters.changed_keys)
                }
                Read::Interval(interval) => {
                    (self.is_range_unchanged(table, interval, snapshot)?, &system.counters.changed_ranges)
                }
            };
            if is_valid {
                return Ok(());
            }
            failures.add(1);
            let what = "a row or range that this transaction read was changed before its commit";
            Err(system.conflict(what, table))
        })?;
        planted::linger(Bug::ValidationUnmarked);
        planted::linger(Bug::MarksIgnored);
        Ok(marks)
    }

    /// Returns whether `key`, or its absence, is as it was at `snapshot`, which is pinned. Own
    /// changes do not count.
    pub(super) fn is_unchanged_since(&self, table: &TableState, key: &[u8], snapshot: Csn) -> Result<bool> {
        let mut value = Vec::new();
        loop {
            let guard = pin();
            let (_, entry) = table.tree.lookup_in_leaf(key, &mut value)?;
            let Some(entry) = entry else { return Ok(true) };
            match self.verdict(entry.stamp, snapshot, &guard) {
                Verdict::Unchanged => return Ok(true),
                Verdict::Changed => return Ok(false),
                Verdict::Retry => self.system.committed.check_whole()?,
            }
        }
    }

    /// Returns whether the rows and gaps of an interval are as they were at `snapshot`.
    fn is_range_unchanged(&self, table: &TableState, interval: &Interval, snapshot: Csn) -> Result<bool> {
        let mut from = interval.from.clone();
        let (mut batch, mut copies) = (LeafBatch::default(), ScanBuffer::default());
        let view = View { snapshot, own: self.own };
        'leaves: loop {
            let skipped = DeadRun::default().skip(table, from, view, false, |_| Ok(true))?;
            from = match skipped {
                Some(Bound::Included(key)) if !interval.contains(&key) => return Ok(true),
                Some(from) => from,
                None => return Ok(true),
            };
            let guard = pin();
            batch.clear();
            let next =
                table.tree.scan_forward(from.as_ref().map(Vec::as_slice), BATCH, &mut batch, &mut copies)?;
            for entry in batch.iter() {
                if !interval.contains(entry.key) {
                    return Ok(true);
                }
                match self.verdict(entry.meta.stamp, snapshot, &guard) {
                    Verdict::Unchanged => {}
                    Verdict::Changed => return Ok(false),
                    Verdict::Retry => {
                        self.system.committed.check_whole()?;
                        continue 'leaves;
                    }
                }
            }
            match next {
                Some(key) if interval.contains(&key) => from = Bound::Included(key),
                _ => return Ok(true),
            }
        }
    }

    /// Walks the versions of an entry down to the first that changed the row and is committed.
    fn verdict(&self, mut word: u64, snapshot: Csn, guard: &Guard) -> Verdict {
        let system = &self.system;
        loop {
            let handle = VersionHandle::from_word(word);
            let Some(version) = handle.and_then(|handle| system.versions.slots.read(handle, guard)) else {
                return Verdict::Unchanged;
            };
            let is_committed_change = if version.stamp == self.own {
                false
            } else {
                match system.descriptors.status(version.stamp) {
                    Status::Committed(csn) if csn <= snapshot => return Verdict::Unchanged,
                    Status::Committed(_) => !matches!(version.undo.before, Before::Unchanged),
                    Status::InProgress(_) if planted::is(Bug::ValidationSeesTop) => {
                        return Verdict::Unchanged;
                    }
                    Status::InProgress(_) | Status::Orphaned => false,
                    Status::Finished => return Verdict::Retry,
                }
            };
            if is_committed_change {
                return Verdict::Changed;
            }
            if matches!(version.undo.before, Before::Absent) {
                return Verdict::Unchanged;
            }
            word = version.undo.prior;
        }
    }

    /// Waits until no other transaction validates a read of a row that this one has changed.
    pub(super) fn await_marks(&self, own: Option<&Marks<'_>>) -> Result<()> {
        let event = &self.system.locks.marks_ended;
        loop {
            let ticket = event.ticket();
            if !self.changed_rows().find_mark(own) {
                return Ok(());
            }
            self.system.committed.check_whole()?;
            event.wait(ticket, Some(MARK_LOOK));
        }
    }
}
