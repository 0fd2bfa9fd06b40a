//! Range cursors, forward and backward, over what a view sees.
//!
//! A cursor copies one leaf's entries at a time, resolves their versions at once (under the epoch in which they were
//! copied) and then needs no latch. It goes on by key, so splits and merges in between do not matter: every key that
//! is there for the view during the whole scan is returned once, in order.

use super::catalog::TableState;
use super::system::TransactionSystem;
use super::view::{Outcome, View};
use crate::base::{Csn, Result};
use crate::sync::epoch::pin;
use crate::tree::{LeafBatch, Tree};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

type Row = (Vec<u8>, Vec<u8>);

/// A row ahead. A large value is read when its row is returned, so that one at a time is in memory.
type Resolved = (Vec<u8>, Option<Vec<u8>>);

/// Entries asked for at first; doubled up to the maximum, so that a short scan copies little.
const FIRST_BATCH: usize = 8;
const LARGEST_BATCH: usize = 256;

/// A scan that has come through this many leaves is believed to go on: pages are read ahead, first so many, doubled up to the
/// maximum.
const LEAVES_BEFORE_READING_AHEAD: usize = 2;
const FIRST_WINDOW: usize = 8;
const LARGEST_WINDOW: usize = 128;

/// How far one end of a cursor has read ahead.
#[derive(Clone, Copy, Debug, Default)]
struct Ahead {
    /// Batches so far.
    batches: usize,
    /// Leaves that were asked for and not come to yet.
    left: usize,
    window: usize,
}

impl Ahead {
    /// Another batch is about to be read from `from`. A batch is at most a leaf; so the leaves asked for may be used up more
    /// slowly than is counted, never faster.
    fn advance(&mut self, tree: &Tree, from: Bound<&[u8]>, back: bool) -> Result<()> {
        self.batches += 1;
        self.left = self.left.saturating_sub(1);
        if self.batches <= LEAVES_BEFORE_READING_AHEAD || self.left > self.window / 2 {
            return Ok(());
        }
        self.window = (self.window * 2).clamp(FIRST_WINDOW, LARGEST_WINDOW);
        self.left = tree.read_ahead(from, back, self.window)?;
        Ok(())
    }
}

/// A double-ended cursor. The caller passes the view at each step, so that a cursor holds no transaction.
#[derive(Debug)]
pub struct RangeCursor {
    table: Arc<TableState>,
    /// The lower end, which goes forward, and the upper one, which goes back.
    ends: [End; 2],
    batch: LeafBatch,
    batch_len: usize,
}

/// One end of a cursor.
#[derive(Debug)]
struct End {
    /// The cursor's bound, or the key returned last: what is left lies between this and the other end's.
    bound: Bound<Vec<u8>>,
    /// Resolved rows that this end comes to next, in its direction.
    rows: VecDeque<Resolved>,
    /// Where the tree goes on after them (`None`: nowhere).
    next: Option<Bound<Vec<u8>>>,
    ahead: Ahead,
}

impl End {
    fn new(bound: Bound<Vec<u8>>) -> End {
        End { next: Some(bound.clone()), bound, rows: VecDeque::new(), ahead: Ahead::default() }
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

/// Whether a cursor that goes forward, or `back`, may come to `key` before the other end's bound.
fn is_inside(key: &[u8], bound: &Bound<Vec<u8>>, back: bool) -> bool {
    let (bound, included) = match bound {
        Bound::Included(bound) => (bound.as_slice(), true),
        Bound::Excluded(bound) => (bound.as_slice(), false),
        Bound::Unbounded => return true,
    };
    let outside = if back { Ordering::Less } else { Ordering::Greater };
    match key.cmp(bound) {
        Ordering::Equal => included,
        side => side != outside,
    }
}

impl RangeCursor {
    /// A cursor over the keys between two bounds. An empty or inverted range has no rows.
    #[must_use]
    pub fn new(table: Arc<TableState>, lower: Bound<Vec<u8>>, upper: Bound<Vec<u8>>) -> RangeCursor {
        let ends = [lower, upper].map(End::new);
        RangeCursor { table, ends, batch: LeafBatch::default(), batch_len: FIRST_BATCH }
    }

    /// The table it runs over.
    #[must_use]
    pub fn table(&self) -> &Arc<TableState> {
        &self.table
    }

    /// The next row from the lower end, or with `back` from the upper one. `seen` is told the CSN of everything that was looked
    /// at, deletions included.
    ///
    /// # Errors
    /// I/O, `Corruption`.
    pub fn step(
        &mut self,
        system: &TransactionSystem,
        view: View,
        seen: &mut dyn FnMut(Csn) -> Result<()>,
        back: bool,
    ) -> Result<Option<Row>> {
        let (this, other) = (usize::from(back), usize::from(!back));
        loop {
            if let Some((key, value)) = self.ends[this].rows.pop_front() {
                if !is_inside(&key, &self.ends[other].bound, back) {
                    self.ends[this].rows.clear();
                    self.ends[this].next = None;
                    return Ok(None);
                }
                self.ends[this].bound = Bound::Excluded(key.clone());
                match self.value(system, view, seen, &key, value)? {
                    Some(value) => return Ok(Some((key, value))),
                    None => continue,
                }
            }
            let Some(from) = self.ends[this].next.take() else { return Ok(None) };
            if let Bound::Included(key) | Bound::Excluded(key) = &from
                && !is_inside(key, &self.ends[other].bound, back)
            {
                return Ok(None);
            }
            self.ends[this].next = self.fill(system, view, seen, &from, back)?;
        }
    }

    /// The value of a row ahead. A view that moves (read committed) may not see a large one any more that was there when
    /// its leaf was copied: then the row is passed by.
    fn value(
        &self,
        system: &TransactionSystem,
        view: View,
        seen: &mut dyn FnMut(Csn) -> Result<()>,
        key: &[u8],
        resolved: Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>> {
        if resolved.is_some() {
            return Ok(resolved);
        }
        let mut value = Vec::new();
        let (found, csn) = system.read(&self.table.tree, key, view, &mut value)?;
        seen(csn)?;
        Ok(found.then_some(value))
    }

    /// Copies and resolves one leaf's part; returns where the tree goes on.
    fn fill(
        &mut self,
        system: &TransactionSystem,
        view: View,
        seen: &mut dyn FnMut(Csn) -> Result<()>,
        from: &Bound<Vec<u8>>,
        back: bool,
    ) -> Result<Option<Bound<Vec<u8>>>> {
        let (this, other) = (usize::from(back), usize::from(!back));
        let (tree, from) = (&self.table.tree, as_slice(from));
        self.ends[this].ahead.advance(tree, from, back)?;
        'again: loop {
            let guard = pin();
            self.batch.clear();
            let next = if back {
                tree.scan_backward(from, self.batch_len, &mut self.batch)?.map(Bound::Excluded)
            } else {
                tree.scan_forward(from, self.batch_len, &mut self.batch)?.map(Bound::Included)
            };
            let mut rows = VecDeque::with_capacity(self.batch.len());
            for entry in self.batch.iter() {
                if !is_inside(entry.key, &self.ends[other].bound, back) {
                    break;
                }
                let mut value = entry.value.to_vec();
                match system.resolve(view, entry.meta.stamp, entry.meta.held(), &mut value, &guard) {
                    Outcome::Value(csn) => {
                        seen(csn)?;
                        rows.push_back((entry.key.to_vec(), Some(value)));
                    }
                    Outcome::Reference(csn) => {
                        seen(csn)?;
                        rows.push_back((entry.key.to_vec(), None));
                    }
                    Outcome::Absent(csn) => seen(csn)?,
                    Outcome::Again => continue 'again,
                }
            }
            self.batch_len = (self.batch_len * 2).min(LARGEST_BATCH);
            self.ends[this].rows = rows;
            return Ok(next);
        }
    }
}

impl super::ActiveTransaction {
    /// A step of a cursor opened on this transaction: `back` from the upper end. What it meets becomes a dependency.
    ///
    /// # Errors
    /// I/O, `Corruption`, `NotFound` (dropped table).
    pub fn step(&self, cursor: &mut RangeCursor, back: bool) -> Result<Option<Row>> {
        self.touch(cursor.table())?;
        let view = self.view();
        let mut seen = |csn| {
            self.depend_on(csn);
            Ok(())
        };
        cursor.step(&self.system, view, &mut seen, back)
    }
}
