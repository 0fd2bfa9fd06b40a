//! Scans: a leaf at a time, in either direction, going on by fence keys.

use super::node::{EntryMeta, Node};
use super::{Target, Tree, retry};
use crate::base::Result;
use std::ops::Bound;

/// Copied entries of a leaf; reused from leaf to leaf.
#[derive(Debug, Default)]
pub struct LeafBatch {
    bytes: Vec<u8>,
    entries: Vec<(usize, usize, usize, EntryMeta)>,
}

/// An entry of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchEntry<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its newest value.
    pub value: &'a [u8],
    /// The transaction room's word.
    pub stamp: u64,
    /// The key is deleted.
    pub tombstone: bool,
}

impl LeafBatch {
    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True without entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries in the order of the scan.
    pub fn iter(&self) -> impl Iterator<Item = BatchEntry<'_>> {
        self.entries.iter().map(|&(key, value, end, meta)| BatchEntry {
            key: &self.bytes[key..value],
            value: &self.bytes[value..end],
            stamp: meta.stamp,
            tombstone: meta.tombstone,
        })
    }

    fn push(&mut self, node: Node<'_>, index: usize) {
        let key = self.bytes.len();
        node.key_into(index, &mut self.bytes);
        let value = self.bytes.len();
        node.value_into(index, &mut self.bytes);
        self.entries.push((key, value, self.bytes.len(), node.meta(index)));
    }

    fn truncate(&mut self, (bytes, entries): (usize, usize)) {
        self.bytes.truncate(bytes);
        self.entries.truncate(entries);
    }
}

impl Tree {
    /// Appends at most `limit` entries at or above (or above) `from`, all of one leaf, ascending. Returns the key from which
    /// to go on, itself included; `None` at the end of the tree. A leaf without such entries gives none and a key.
    ///
    /// # Errors
    /// I/O, `Corruption`, `OutOfMemory` when a page has to be read.
    pub fn scan_forward(
        &self,
        from: Bound<&[u8]>,
        limit: usize,
        batch: &mut LeafBatch,
    ) -> Result<Option<Vec<u8>>> {
        let key = match from {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => &[],
        };
        let mark = (batch.bytes.len(), batch.entries.len());
        retry(|| {
            batch.truncate(mark);
            let guard = self.descend(Target::Covering(key))?;
            let node = Node::new(guard.bytes());
            let (index, found) = node.search(key);
            let start = index + usize::from(found && matches!(from, Bound::Excluded(_)));
            let end = node.count().min(start + limit.max(1));
            (start..end).for_each(|i| batch.push(node, i));
            let next = if end < node.count() { Some(node.key(end)) } else { node.upper() };
            guard.validate()?;
            Ok(next)
        })
    }

    /// Appends at most `limit` entries at or below (or below) `from`, all of one leaf, descending. Returns the key below
    /// which to go on; `None` at the beginning of the tree.
    ///
    /// # Errors
    /// As [`Tree::scan_forward`].
    pub fn scan_backward(
        &self,
        from: Bound<&[u8]>,
        limit: usize,
        batch: &mut LeafBatch,
    ) -> Result<Option<Vec<u8>>> {
        let target = match from {
            Bound::Included(key) => Target::Covering(key),
            Bound::Excluded([]) => return Ok(None),
            Bound::Excluded(key) => Target::Below(key),
            Bound::Unbounded => Target::Last,
        };
        let mark = (batch.bytes.len(), batch.entries.len());
        retry(|| {
            batch.truncate(mark);
            let guard = self.descend(target)?;
            let node = Node::new(guard.bytes());
            let end = match from {
                Bound::Included(key) => {
                    let (index, found) = node.search(key);
                    index + usize::from(found)
                }
                Bound::Excluded(key) => node.search(key).0,
                Bound::Unbounded => node.count(),
            };
            let start = end.saturating_sub(limit.max(1));
            (start..end).rev().for_each(|i| batch.push(node, i));
            let next = if start > 0 { node.key(start) } else { node.lower() };
            guard.validate()?;
            Ok(if next.is_empty() { None } else { Some(next) })
        })
    }
}
