//! Finds the leaves that a scan, or a list of keys, needs next, and has them read ahead.
//!
//! The leaves come from the inner node above them, so no leaf is touched to find the next.

use super::descent::{Target, child_at};
use super::handle::Tree;
use super::node::Node;
use crate::base::{PageId, Result};
use crate::buffer::ScanBuffer;
use std::ops::Bound;

impl Tree {
    /// Has the next leaves of a scan from `from` (below it, if `back`) brought into memory: at most
    /// `most`. Returns how many these are.
    ///
    /// # Errors
    /// A page cannot be read.
    pub fn read_ahead(&self, from: Bound<&[u8]>, back: bool, most: usize) -> Result<usize> {
        let (pages, _) = self.next_leaves(from, back, most)?;
        self.pool.read_ahead(pages.iter().copied());
        Ok(pages.len())
    }

    /// Has the next leaves of a scan from `from` (below it, if `back`) copied into `buffer`, as
    /// many as fit. Returns where they end, [`Bound::Unbounded`] at the end of the tree; `None` if
    /// there is no memory for copies.
    ///
    /// # Errors
    /// A page cannot be read.
    pub fn copy_ahead(
        &self,
        from: Bound<&[u8]>,
        back: bool,
        buffer: &mut ScanBuffer,
    ) -> Result<Option<Bound<Vec<u8>>>> {
        let (pages, end) = self.next_leaves(from, back, self.pool.window_pages())?;
        Ok(self.pool.fill_scan_buffer(buffer, &pages).then_some(end))
    }

    /// Returns the next leaves of a scan from `from` (below it, if `back`): `most`, or fewer at the
    /// end of the tree. Also returns where the scan continues after them.
    fn next_leaves(
        &self,
        from: Bound<&[u8]>,
        back: bool,
        most: usize,
    ) -> Result<(Vec<PageId>, Bound<Vec<u8>>)> {
        let (mut pages, mut end) = self.leaves_of_parent(from, back, most)?;
        while pages.len() < most && end != Bound::Unbounded {
            let from = end.as_ref().map(Vec::as_slice);
            let (more, next) = self.leaves_of_parent(from, back, most - pages.len())?;
            pages.extend(more);
            end = next;
        }
        debug_assert!(pages.len() <= most, "at most as many as requested");
        Ok((pages, end))
    }

    /// Returns the next leaves of a scan from `from` (below it, if `back`): at most `most` (at
    /// least 1), those with the same parent. Also returns where the scan continues after them,
    /// [`Bound::Unbounded`] at the end of the tree. No leaves if the root is a leaf.
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
            let (at, count) = (child_at(node, target).0, node.count());
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

    /// Brings the leaves of `keys`, in any order, into memory, many with one read. Leaves that
    /// other changes push out again at once, or that find no memory, are read when they are needed.
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
                let at = child_at(node, Target::At(key)).0.min(node.count());
                let leaf = node.child(at);
                parent.validate()?;
                Ok(Some(leaf))
            })?);
        }
        self.pool.prefetch(pages);
        Ok(())
    }

    /// Has the leaves of the first of `keys`, which ascend, brought into memory: at most `most`
    /// leaves, those with the same parent. Returns how many keys these leaves cover: at least one,
    /// unless there are no keys.
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
                let at = child_at(node, Target::At(key)).0.min(count);
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
}
