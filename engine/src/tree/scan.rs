//! Reads entries in order, a leaf at a time.
//!
//! There are no sibling pointers: a scan step returns the key to continue with. Each step copies
//! entries of one leaf and validates. So a scan holds nothing between steps, and a leaf that splits
//! or merges meanwhile does not matter.

use super::batch::LeafBatch;
use super::descent::Target;
use super::handle::Tree;
use super::node::Node;
use crate::base::{Error, PageId, Result};
use crate::buffer::{Interrupt, ScanBuffer};
use std::ops::Bound;

/// Attempts that writers may interrupt before a scan step latches the leaf. Copying a leaf takes
/// longer than a small write.
const OPTIMISTIC_ATTEMPTS: u32 = 8;

/// Entries of a leaf that are copied at least, if the leaf shows where the range ends: the caller
/// most likely wants all of a short range, and each step costs a descent.
const BOUNDED_MIN: usize = 32;

/// Returns the error for a page that leads a scan back: only a damaged page does, and the scan
/// would never end.
#[cold]
fn no_progress(page: PageId) -> Interrupt {
    Interrupt::Failed(Error::corruption(format!("{page}: a scan would come back to it")))
}

impl Tree {
    /// Appends to `batch` at most `limit` (at least 1) entries of one leaf, ascending, none before
    /// `from`. Uses the leaf's copy if `buffer` has one. Returns the key to continue with
    /// (included), `None` at the end.
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
        self.scan_forward_until(from, Bound::Unbounded, limit, batch, buffer)
    }

    /// [`Tree::scan_forward`] up to `until`, as far as the leaf shows where that is.
    ///
    /// # Errors
    /// A page cannot be read.
    pub fn scan_forward_until(
        &self,
        from: Bound<&[u8]>,
        until: Bound<&[u8]>,
        limit: usize,
        batch: &mut LeafBatch,
        buffer: &mut ScanBuffer,
    ) -> Result<Option<Vec<u8>>> {
        let ends = (from, until);
        scan(self, batch, |latched, batch| try_scan_forward(self, ends, limit.max(1), latched, batch, buffer))
    }

    /// [`Tree::scan_forward`] with the leaf, which is brought into memory, latched: a writer of the
    /// leaf comes wholly before or wholly after.
    ///
    /// # Errors
    /// A page cannot be read.
    pub fn scan_forward_latched(
        &self,
        from: Bound<&[u8]>,
        limit: usize,
        batch: &mut LeafBatch,
    ) -> Result<Option<Vec<u8>>> {
        let mut buffer = ScanBuffer::default();
        let ends = (from, Bound::Unbounded);
        scan(self, batch, |_, batch| try_scan_forward(self, ends, limit.max(1), true, batch, &mut buffer))
    }

    /// Appends to `batch` at most `limit` (at least 1) entries of one leaf, descending, none after
    /// `from`. Uses the leaf's copy if `buffer` has one. Returns the key to continue below
    /// (excluded), `None` at the end.
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
        self.scan_backward_until(from, Bound::Unbounded, limit, batch, buffer)
    }

    /// [`Tree::scan_backward`] down to `until`, as far as the leaf shows where that is.
    ///
    /// # Errors
    /// A page cannot be read.
    pub fn scan_backward_until(
        &self,
        from: Bound<&[u8]>,
        until: Bound<&[u8]>,
        limit: usize,
        batch: &mut LeafBatch,
        buffer: &mut ScanBuffer,
    ) -> Result<Option<Vec<u8>>> {
        let ends = (from, until);
        scan(self, batch, |latched, batch| {
            try_scan_backward(self, ends, limit.max(1), latched, batch, buffer)
        })
    }
}

/// Repeats `attempt` on the earlier content of the batch, after a few times with the leaf latched.
fn scan<T>(
    tree: &Tree,
    batch: &mut LeafBatch,
    mut attempt: impl FnMut(bool, &mut LeafBatch) -> Result<T, Interrupt>,
) -> Result<T> {
    let (mark, mut attempts) = (batch.mark(), 0);
    tree.retry(|| {
        attempts += 1;
        batch.cut(mark);
        attempt(attempts > OPTIMISTIC_ATTEMPTS, batch)
    })
}

/// Returns how many slots of a leaf are before `bound`, if the leaf covers it. A key equal to the
/// bound counts if `counts_equal` says so, which gets whether the bound is included.
fn slots_before(node: Node<'_>, bound: Bound<&[u8]>, counts_equal: fn(bool) -> bool) -> Option<usize> {
    let (key, included) = match bound {
        Bound::Included(key) => (key, true),
        Bound::Excluded(key) => (key, false),
        Bound::Unbounded => return None,
    };
    node.covers(key).then(|| {
        let (slot, found) = node.search(key);
        slot + usize::from(found && counts_equal(included))
    })
}

fn try_scan_forward(
    tree: &Tree,
    (from, until): (Bound<&[u8]>, Bound<&[u8]>),
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
    let leaf = tree.descend_to_leaf(Target::At(key), buffer)?;
    let _latch = if latched { leaf.latch()? } else { None };
    let node = leaf.node();
    batch.begin(leaf.page_id(), node);
    let (slot, found) = node.search(key);
    let start = slot + usize::from(found && excluded);
    let count = node.count();
    let last = slots_before(node, until, |included| included);
    let limit = if last.is_some() { limit.max(BOUNDED_MIN) } else { limit };
    let end = start.saturating_add(limit).min(last.unwrap_or(count)).min(count).max(start);
    batch.push(node, start..end, false);
    let next = match last {
        Some(last) if end >= last => None,
        _ if end < count => Some(node.key(end)),
        _ => node.upper(),
    };
    leaf.validate()?;
    if next.as_deref().is_some_and(|next| next <= key) {
        return Err(no_progress(leaf.page_id()));
    }
    Ok(next)
}

fn try_scan_backward(
    tree: &Tree,
    (from, until): (Bound<&[u8]>, Bound<&[u8]>),
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
    let leaf = tree.descend_to_leaf(target, buffer)?;
    let _latch = if latched { leaf.latch()? } else { None };
    let node = leaf.node();
    batch.begin(leaf.page_id(), node);
    let end = match target {
        Target::At(key) => {
            let (slot, found) = node.search(key);
            slot + usize::from(found)
        }
        // The whole leaf is below its upper fence; the fence need not have the leaf's prefix.
        Target::Below(key) if node.covers(key) => node.search(key).0,
        Target::Below(_) | Target::Last => node.count(),
    };
    let first = slots_before(node, until, |included| !included);
    let limit = if first.is_some() { limit.max(BOUNDED_MIN) } else { limit };
    let start = end.saturating_sub(limit).max(first.unwrap_or(0)).min(end);
    batch.push(node, start..end, true);
    let next = if start > 0 { node.key(start) } else { node.lower() };
    leaf.validate()?;
    let stays = match from {
        Bound::Included(key) => &next[..] > key,
        Bound::Excluded(key) => &next[..] >= key && (start > 0 || !next.is_empty()),
        Bound::Unbounded => false,
    };
    if first.is_some_and(|first| start <= first) {
        return Ok(None);
    }
    if stays {
        return Err(no_progress(leaf.page_id()));
    }
    Ok((start > 0 || !next.is_empty()).then_some(next))
}
