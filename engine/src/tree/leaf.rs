//! Writing to one leaf.

use super::edit::{NewEntry, NodeMut, reclaimable_bytes};
use super::node::{EntryMeta, Node, SLOT_BYTES, leaf_entry_bytes};
use super::split::SplitAt;
use super::{Target, Tree, retry};
use crate::base::{PageId, Result};
use crate::buffer::{ExclusiveGuard, Interrupt, Version};

/// The leaf of a caller's last write, so that the next write nearby needs no descent. Belongs to one tree; a hint that is
/// out of date is noticed.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeafHint {
    leaf: Option<(PageId, Version)>,
    /// Inserts in a row at the end of a leaf: then a split leaves the left page full.
    appends: u32,
}

/// Appends in a row that look like a sequential load.
const APPENDING: u32 = 3;

/// Exclusive access to the leaf that covers a key. Dropping it lets others in.
#[derive(Debug)]
pub struct LeafWrite<'t> {
    guard: ExclusiveGuard<'t>,
    key: &'t [u8],
    index: usize,
    found: bool,
    hint: &'t mut LeafHint,
}

impl Tree {
    /// Latches the leaf that covers `key`, with room for an entry of `key` and a value of `value_len` bytes. Room for a
    /// value that the entry has the capacity for is always there.
    ///
    /// # Errors
    /// `OutOfMemory` if a split gets no page; I/O, `Corruption` when a page has to be read.
    pub fn write<'t>(
        &'t self,
        key: &'t [u8],
        value_len: usize,
        hint: &'t mut LeafHint,
    ) -> Result<LeafWrite<'t>> {
        let mut hinted = *hint;
        let (guard, index, found) = retry(|| {
            let mut guard = match self.hinted_leaf(&mut hinted, key) {
                Some(guard) => guard,
                None => self.descend(Target::Covering(key))?.upgrade()?,
            };
            match self.make_room(&mut guard, key, value_len, hinted) {
                Ok((index, found)) => Ok((guard, index, found)),
                Err(at) => {
                    drop(guard);
                    self.split_leaf(key, at)?;
                    Err(Interrupt::Restart)
                }
            }
        })?;
        let at_end = !found && index == Node::new(guard.bytes()).count();
        hint.appends = if at_end { hint.appends + 1 } else { 0 };
        Ok(LeafWrite { guard, key, index, found, hint })
    }

    /// The hinted leaf, if it has not changed since and covers `key`. Taken at most once.
    fn hinted_leaf<'t>(&'t self, hint: &mut LeafHint, key: &[u8]) -> Option<ExclusiveGuard<'t>> {
        let (page, version) = hint.leaf.take()?;
        let guard = self.pool.optimistic_at(page, version).ok()?;
        if !Node::new(guard.bytes()).covers(key) {
            return None;
        }
        guard.upgrade().ok()
    }

    /// Makes room in the leaf; else says where it should be split.
    fn make_room(
        &self,
        guard: &mut ExclusiveGuard<'_>,
        key: &[u8],
        value_len: usize,
        hint: LeafHint,
    ) -> Result<(usize, bool), SplitAt> {
        let need = |node: Node<'_>| {
            let (index, found) = node.search(key);
            let entry = leaf_entry_bytes(node.suffix_of(key).len(), value_len);
            let bytes = match found {
                true if node.capacity(index) >= value_len => 0,
                true => entry,
                false => entry + SLOT_BYTES,
            };
            (bytes, index, found)
        };
        let node = Node::new(guard.bytes());
        let (bytes, index, found) = need(node);
        if bytes <= node.free_bytes() {
            return Ok((index, found));
        }
        let is_settled = |stamp| self.settled(stamp);
        if bytes <= node.free_bytes() + reclaimable_bytes(node, &is_settled) {
            NodeMut::new(guard.bytes_mut()).compact(&is_settled);
            let node = Node::new(guard.bytes());
            let (bytes, index, found) = need(node);
            if bytes <= node.free_bytes() {
                return Ok((index, found));
            }
        }
        let node = Node::new(guard.bytes());
        let at_end = !found && index == node.count();
        let appending = at_end && (!node.has_upper() || hint.appends >= APPENDING);
        Err(if appending { SplitAt::End } else { SplitAt::Middle })
    }
}

impl LeafWrite<'_> {
    fn node(&self) -> Node<'_> {
        Node::new(self.guard.bytes())
    }

    /// The key's entry, if there is one.
    #[must_use]
    pub fn entry(&self) -> Option<EntryMeta> {
        self.found.then(|| self.node().meta(self.index))
    }

    /// Copies the entry's value; `out` is cleared first.
    pub fn copy_value(&self, out: &mut Vec<u8>) {
        out.clear();
        if self.found {
            self.node().value_into(self.index, out);
        }
    }

    /// Inserts or replaces the entry. The value is at most as long as the room asked for, or as the entry's capacity.
    ///
    /// # Panics
    /// If it is longer: a page must not be overrun.
    pub fn put(&mut self, stamp: u64, tombstone: bool, value: &[u8]) {
        let node = self.node();
        let suffix_len = node.suffix_of(self.key).len();
        let suffix = &self.key[self.key.len() - suffix_len..];
        let meta = EntryMeta { stamp, tombstone };
        let entry = NewEntry { meta, value, capacity: value.len() };
        let fits = self.found && node.capacity(self.index) >= value.len();
        let need = leaf_entry_bytes(suffix_len, value.len()) + if self.found { 0 } else { SLOT_BYTES };
        assert!(fits || need <= node.free_bytes(), "a leaf was asked for less room than is put into it");
        let (index, found) = (self.index, self.found);
        let mut node = NodeMut::new(self.guard.bytes_mut());
        match found {
            true if fits => node.set_content(index, meta, value),
            true => node.grow_leaf(index, suffix, entry),
            false => node.insert_leaf(index, suffix, entry),
        }
        self.found = true;
        self.guard.mark_dirty();
    }

    /// Replaces the entry's stamp.
    pub fn set_stamp(&mut self, stamp: u64) {
        if self.found {
            NodeMut::new(self.guard.bytes_mut()).set_stamp(self.index, stamp);
            self.guard.mark_dirty();
        }
    }

    /// Removes the entry physically.
    pub fn remove(&mut self) {
        if std::mem::take(&mut self.found) {
            NodeMut::new(self.guard.bytes_mut()).remove(self.index);
            self.guard.mark_dirty();
        }
    }

    /// Bytes of entries, for the decision to merge.
    pub(super) fn used_bytes(&self) -> usize {
        let node = self.node();
        node.heap_end() - node.heap_start() - node.dead_bytes() + node.count() * SLOT_BYTES
    }
}

impl Drop for LeafWrite<'_> {
    fn drop(&mut self) {
        self.hint.leaf = Some((self.guard.page_id(), self.guard.version_after()));
    }
}
