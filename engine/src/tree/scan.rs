//! Reading entries in order, a leaf at a time.
//!
//! There are no sibling pointers: what a scan returns is the key to come back with. Each call copies what it wants from one
//! leaf and validates; so a scan holds nothing between calls, and a leaf that splits or merges meanwhile does not matter.

use super::Tree;
use super::descent::Target;
use super::node::{EntryMeta, Node};
use crate::base::{Error, PageId, Result};
use crate::buffer::{Interrupt, ScanBuffer};
use std::ops::{Bound, Range};

/// Copying a leaf takes longer than a small write. A scan that so many writers in a row were in the way of keeps them out.
const OPTIMISTIC_ATTEMPTS: u32 = 8;

/// Entries copied from leaves; reuse it to save allocations.
#[derive(Default, Debug)]
pub struct LeafBatch {
    bytes: Vec<u8>,
    items: Vec<Item>,
    leaf: PageId,
}

#[derive(Debug)]
struct Item {
    key: Range<usize>,
    value_end: usize,
    meta: EntryMeta,
}

/// One entry of a [`LeafBatch`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchEntry<'b> {
    /// The whole key.
    pub key: &'b [u8],
    /// The value, or the reference to it; empty if it is a tombstone's.
    pub value: &'b [u8],
    /// What else is known of it.
    pub meta: EntryMeta,
}

impl LeafBatch {
    /// Forgets the entries and keeps the memory.
    pub fn clear(&mut self) {
        self.cut((0, 0));
    }

    /// The leaf they are of.
    #[must_use]
    pub fn leaf(&self) -> PageId {
        self.leaf
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The entries in the order in which they were scanned.
    pub fn iter(&self) -> impl Iterator<Item = BatchEntry<'_>> {
        (0..self.items.len()).map(|index| self.entry(index))
    }

    /// One of the entries, counted from 0 in the order in which they were scanned.
    #[must_use]
    pub fn entry(&self, index: usize) -> BatchEntry<'_> {
        let item = &self.items[index];
        BatchEntry {
            key: &self.bytes[item.key.clone()],
            value: &self.bytes[item.key.end..item.value_end],
            meta: item.meta,
        }
    }

    fn mark(&self) -> (usize, usize) {
        (self.items.len(), self.bytes.len())
    }

    fn cut(&mut self, mark: (usize, usize)) {
        self.items.truncate(mark.0);
        self.bytes.truncate(mark.1);
    }

    /// Lengths are taken from what was appended, not from the page, which may be torn.
    fn push(&mut self, node: Node<'_>, index: usize) {
        let start = self.bytes.len();
        node.append_key(index, &mut self.bytes);
        let end = self.bytes.len();
        let entry = node.entry(index);
        node.page.append_to(entry.value_offset(), entry.value_len, &mut self.bytes);
        self.items.push(Item { key: start..end, value_end: self.bytes.len(), meta: entry.meta });
    }
}

/// Only a damaged page leads a scan back; without this it would never end.
#[cold]
fn no_progress(page: PageId) -> Interrupt {
    Interrupt::Failed(Error::corruption(format!("{page}: a scan would come back to it")))
}

impl Tree {
    /// Has the leaves brought into memory that a scan from `from` (below it, if `back`) comes to next: at most `most`, those
    /// with the same parent. Returns how many these are.
    ///
    /// # Errors
    /// A page cannot be read.
    pub fn read_ahead(&self, from: Bound<&[u8]>, back: bool, most: usize) -> Result<usize> {
        let (pages, _) = self.leaves_of_parent(from, back, most)?;
        self.pool.read_ahead(pages.iter().copied());
        Ok(pages.len())
    }

    /// Whether a scan that has had so many leaves brought in should have them [copied](Tree::copy_ahead) from now on.
    #[must_use]
    pub fn is_better_copied(&self, leaves: u64) -> bool {
        self.pool.needs_scan_buffer(leaves)
    }

    /// Has the leaves copied that a scan from `from` (below it, if `back`) comes to next, as many as there is room for. Returns where
    /// they end, [`Bound::Unbounded`] at the end of the tree; `None` if there is no memory for copies.
    ///
    /// # Errors
    /// A page cannot be read.
    pub fn copy_ahead(
        &self,
        from: Bound<&[u8]>,
        back: bool,
        buffer: &mut ScanBuffer,
    ) -> Result<Option<Bound<Vec<u8>>>> {
        let most = self.pool.window_pages();
        let (mut pages, mut end) = self.leaves_of_parent(from, back, most)?;
        while pages.len() < most && end != Bound::Unbounded {
            let from = end.as_ref().map(Vec::as_slice);
            let (more, next) = self.leaves_of_parent(from, back, most - pages.len())?;
            pages.extend(more);
            end = next;
        }
        Ok(self.pool.fill_scan_buffer(buffer, &pages).then_some(end))
    }

    /// The leaves that a scan from `from` (below it, if `back`) comes to: at most `most` (at least 1), those with the same parent, and where it goes on
    /// behind them, [`Bound::Unbounded`] at the end of the tree. None if the tree is one leaf.
    fn leaves_of_parent(
        &self,
        from: Bound<&[u8]>,
        back: bool,
        most: usize,
    ) -> Result<(Vec<PageId>, Bound<Vec<u8>>)> {
        let target = match from {
            Bound::Included(key) => Target::At(key),
            Bound::Excluded(key) if back => Target::Below(key),
            Bound::Excluded(key) => Target::At(key),
            Bound::Unbounded if back => Target::Last,
            Bound::Unbounded => Target::At(&[]),
        };
        self.retry(|| {
            if self.is_one_leaf()? {
                return Ok((Vec::new(), Bound::Unbounded));
            }
            let parent = self.descend(target, 1)?.guard;
            let (node, mut pages) = (Node::new(parent.bytes()), Vec::with_capacity(most));
            let (at, count) = (super::descent::child_at(node, target).0, node.count());
            let end = if back {
                pages.extend((0..=at.min(count)).rev().take(most).map(|index| node.child(index)));
                let first = (at.min(count) + 1).saturating_sub(most.max(1));
                let lower = if first > 0 { node.key(first - 1) } else { node.lower() };
                if lower.is_empty() { Bound::Unbounded } else { Bound::Excluded(lower) }
            } else {
                pages.extend((at..=count).take(most).map(|index| node.child(index)));
                let last = at.saturating_add(most.max(1) - 1);
                let upper = if last < count { Some(node.key(last)) } else { node.upper() };
                upper.map_or(Bound::Unbounded, Bound::Included)
            };
            parent.validate()?;
            Ok((pages, end))
        })
    }

    /// Has the leaves of `keys`, in any order, brought into memory, many with one read, before this returns. Leaves that other changes
    /// push out again at once, or that find no memory, are read when they are needed.
    ///
    /// # Errors
    /// An inner page cannot be read.
    pub fn prefetch<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Result<()> {
        let mut pages = Vec::with_capacity(keys.size_hint().0);
        for key in keys {
            pages.extend(self.retry(|| {
                if self.is_one_leaf()? {
                    return Ok(None);
                }
                let parent = self.descend(Target::At(key), 1)?.guard;
                let node = Node::new(parent.bytes());
                let at = super::descent::child_at(node, Target::At(key)).0.min(node.count());
                let leaf = node.child(at);
                parent.validate()?;
                Ok(Some(leaf))
            })?);
        }
        self.pool.prefetch(pages);
        Ok(())
    }

    pub(super) fn is_one_leaf(&self) -> Result<bool, Interrupt> {
        let root = self.pool.optimistic(self.root)?;
        let is_leaf = Node::new(root.bytes()).is_leaf();
        root.validate()?;
        Ok(is_leaf)
    }

    /// Has the leaves of the first of `keys`, which ascend, brought into memory: at most `most` leaves, those with the same
    /// parent. Returns how many keys these leaves are for: at least one, unless there are none.
    ///
    /// # Errors
    /// A page cannot be read.
    pub fn read_ahead_for<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        most: usize,
    ) -> Result<usize> {
        let mut pages = Vec::with_capacity(most);
        self.retry(|| {
            pages.clear();
            let mut keys = keys.clone().peekable();
            let Some(first) = keys.peek().copied() else { return Ok(0) };
            if self.is_one_leaf()? {
                return Ok(keys.count());
            }
            let parent = self.descend(Target::At(first), 1)?.guard;
            let (node, mut covered) = (Node::new(parent.bytes()), 0);
            let (count, upper) = (node.count(), node.upper());
            while pages.len() < most
                && let Some(key) = keys.next_if(|key| upper.as_deref().is_none_or(|upper| *key < upper))
            {
                let at = super::descent::child_at(node, Target::At(key)).0.min(count);
                pages.push(node.child(at));
                let own_end = (at < count).then(|| node.key(at));
                let end = own_end.as_deref().or(upper.as_deref());
                covered += 1;
                while keys.next_if(|key| end.is_none_or(|end| *key < end)).is_some() {
                    covered += 1;
                }
            }
            parent.validate()?;
            Ok(covered.max(1))
        })
        .inspect(|_| self.pool.read_ahead(pages.iter().copied()))
    }

    /// Repeats `attempt` on what was in the batch, after a few times with the leaf latched.
    fn scan<T>(
        &self,
        batch: &mut LeafBatch,
        mut attempt: impl FnMut(bool, &mut LeafBatch) -> Result<T, Interrupt>,
    ) -> Result<T> {
        let (mark, mut attempts) = (batch.mark(), 0);
        self.retry(|| {
            attempts += 1;
            batch.cut(mark);
            attempt(attempts > OPTIMISTIC_ATTEMPTS, batch)
        })
    }

    /// Appends to `batch` at most `limit` (at least 1) entries of one leaf, ascending, none before `from`; of its copy, if there
    /// is one in `buffer`. Returns the key to go on with (included), `None` at the end.
    ///
    /// # Errors
    /// A page cannot be read.
    pub fn scan_forward(
        &self,
        from: Bound<&[u8]>,
        limit: usize,
        batch: &mut LeafBatch,
        buffer: &mut ScanBuffer,
    ) -> Result<Option<Vec<u8>>> {
        self.scan(batch, |latched, batch| self.try_scan_forward(from, limit.max(1), latched, batch, buffer))
    }

    fn try_scan_forward(
        &self,
        from: Bound<&[u8]>,
        limit: usize,
        latched: bool,
        batch: &mut LeafBatch,
        buffer: &mut ScanBuffer,
    ) -> Result<Option<Vec<u8>>, Interrupt> {
        let (key, excluded) = match from {
            Bound::Included(key) => (key, false),
            Bound::Excluded(key) => (key, true),
            Bound::Unbounded => (&[][..], false),
        };
        let leaf = self.descend_to_leaf(Target::At(key), buffer)?;
        batch.leaf = leaf.page_id();
        let _latch = if latched { leaf.latch()? } else { None };
        let node = leaf.node();
        let (slot, found) = node.search(key);
        let start = slot + usize::from(found && excluded);
        let count = node.count();
        let end = start.saturating_add(limit).min(count).max(start);
        for index in start..end {
            batch.push(node, index);
        }
        let next = if end < count { Some(node.key(end)) } else { node.upper() };
        leaf.validate()?;
        if next.as_deref().is_some_and(|next| next <= key) {
            return Err(no_progress(leaf.page_id()));
        }
        Ok(next)
    }

    /// Appends to `batch` at most `limit` (at least 1) entries of one leaf, descending, none behind `from`; of its copy, if
    /// there is one in `buffer`. Returns the key to go on below (excluded), `None` at the end.
    ///
    /// # Errors
    /// A page cannot be read.
    pub fn scan_backward(
        &self,
        from: Bound<&[u8]>,
        limit: usize,
        batch: &mut LeafBatch,
        buffer: &mut ScanBuffer,
    ) -> Result<Option<Vec<u8>>> {
        self.scan(batch, |latched, batch| self.try_scan_backward(from, limit.max(1), latched, batch, buffer))
    }

    fn try_scan_backward(
        &self,
        from: Bound<&[u8]>,
        limit: usize,
        latched: bool,
        batch: &mut LeafBatch,
        buffer: &mut ScanBuffer,
    ) -> Result<Option<Vec<u8>>, Interrupt> {
        let target = match from {
            Bound::Included(key) => Target::At(key),
            Bound::Excluded(key) => Target::Below(key),
            Bound::Unbounded => Target::Last,
        };
        let leaf = self.descend_to_leaf(target, buffer)?;
        batch.leaf = leaf.page_id();
        let _latch = if latched { leaf.latch()? } else { None };
        let node = leaf.node();
        let end = match target {
            Target::At(key) => {
                let (slot, found) = node.search(key);
                slot + usize::from(found)
            }
            // Below a leaf's upper fence is the whole leaf; the fence itself need not have the leaf's prefix.
            Target::Below(key) if node.covers(key) => node.search(key).0,
            Target::Below(_) | Target::Last => node.count(),
        };
        let start = end.saturating_sub(limit);
        for index in (start..end).rev() {
            batch.push(node, index);
        }
        let next = if start > 0 { node.key(start) } else { node.lower() };
        leaf.validate()?;
        let stays = match from {
            Bound::Included(key) => &next[..] > key,
            Bound::Excluded(key) => &next[..] >= key && (start > 0 || !next.is_empty()),
            Bound::Unbounded => false,
        };
        if stays {
            return Err(no_progress(leaf.page_id()));
        }
        Ok((start > 0 || !next.is_empty()).then_some(next))
    }
}
