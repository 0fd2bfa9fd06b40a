//! Changes single entries.

use super::descent::Target;
use super::edit::{Fences, NodeMut, rebuilt_bytes};
use super::handle::Tree;
use super::lookup::ReadLeaf;
use super::node::{EntryMeta, Node, WORD, leaf_entry_bytes, max_entry_bytes, max_key_bytes};
use super::overflow::{LargeReference, REFERENCE_BYTES};
use crate::base::planted::{self, Bug};
use crate::base::{Error, PageId, Result};
use crate::buffer::{ExclusiveGuard, Interrupt, Version};

/// The leaf that the caller wrote or read last. If that leaf has not changed since, and covers the
/// next key too, it saves the descent. Only for the tree that it is from: a page of another tree
/// may have the same number and version, and a leaf of a dropped tree may not be free yet.
#[derive(Clone, Copy, Default, Debug)]
pub struct LeafHint {
    leaf: Option<(PageId, Version)>,
}

impl From<ReadLeaf> for LeafHint {
    #[inline]
    fn from(leaf: ReadLeaf) -> LeafHint {
        LeafHint { leaf: Some((leaf.page, leaf.version)) }
    }
}

/// The leaf that covers a key, latched exclusively, with the requested room. Dropping it releases
/// the leaf.
pub struct LeafWrite<'t> {
    guard: ExclusiveGuard<'t>,
    key: &'t [u8],
    index: usize,
    found: bool,
    /// Bytes of the value that room was made for. A new entry gets this capacity, so that a second,
    /// longer put fits, too.
    requested: usize,
    tree: &'t Tree,
}

impl std::fmt::Debug for LeafWrite<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LeafWrite({}, slot {}, found: {})", self.guard.page_id(), self.index, self.found)
    }
}

impl Tree {
    /// Latches the leaf that covers `key` and makes room for a value of `value_len` bytes there,
    /// whether the key exists or not. A value that fits in the capacity of an entry that is not
    /// settled has room in any case (the room rule).
    ///
    /// # Errors
    /// Key or value are too long ([`max_key_bytes`], [`max_entry_bytes`]), no memory for a split
    /// (then nothing was changed), or a page cannot be read.
    pub fn write<'t>(
        &'t self,
        key: &'t [u8],
        value_len: usize,
        hint: &mut LeafHint,
    ) -> Result<LeafWrite<'t>> {
        let page_bytes = self.pool.page_bytes();
        if is_too_long(key.len(), value_len, page_bytes) {
            return Err(too_long(key.len(), value_len, page_bytes));
        }
        let mut write = match self.write_at_hint(key, value_len, hint) {
            Some(write) => write,
            None => self.write_by_descent(key, value_len)?,
        };
        // Fixes the version after the hold now: it changes even if no entry is put.
        write.guard.bytes_mut();
        hint.leaf = Some((write.guard.page_id(), write.guard.version_after()));
        Ok(write)
    }

    #[inline]
    fn write_at_hint<'t>(
        &'t self,
        key: &'t [u8],
        value_len: usize,
        hint: &LeafHint,
    ) -> Option<LeafWrite<'t>> {
        let (page, version) = hint.leaf?;
        let leaf = self.pool.optimistic_at(page, version).ok()?;
        // The same version: the same leaf. The caller makes sure that it is of this tree. Most
        // leaves do not cover another key, and then nothing is latched.
        let node = Node::new(leaf.bytes());
        if !node.is_leaf() || !node.covers(key) {
            return None;
        }
        let guard = leaf.upgrade().ok()?;
        LeafWrite::with_room(guard, key, 0, value_len, self).ok()
    }

    fn write_by_descent<'t>(&'t self, key: &'t [u8], value_len: usize) -> Result<LeafWrite<'t>> {
        self.retry_change(|| {
            let guard = self.descend(Target::At(key), 0)?.guard.upgrade()?;
            match LeafWrite::with_room(guard, key, 0, value_len, self) {
                Ok(write) => Ok(write),
                Err(needed) => {
                    self.split(key, 0, needed)?;
                    let guard = self.descend(Target::At(key), 0)?.guard.upgrade()?;
                    LeafWrite::with_room(guard, key, 0, value_len, self).map_err(|_| Interrupt::Restart)
                }
            }
        })
    }

    /// Latches the leaf that covers `key` without making room: purging must not split.
    pub(super) fn leaf_to_purge<'t>(&'t self, key: &'t [u8]) -> Result<LeafWrite<'t>, Interrupt> {
        let guard = self.descend(Target::At(key), 0)?.guard.upgrade()?;
        let (index, found) = Node::new(guard.bytes()).search(key);
        Ok(LeafWrite { guard, key, index, found, requested: 0, tree: self })
    }
}

impl<'t> LeafWrite<'t> {
    /// Returns the write if there is room, or compaction makes it; otherwise how many bytes are
    /// needed. Slots before `from` have smaller keys.
    fn with_room(
        mut guard: ExclusiveGuard<'t>,
        key: &'t [u8],
        from: usize,
        value_len: usize,
        tree: &'t Tree,
    ) -> Result<LeafWrite<'t>, usize> {
        let node = Node::new(guard.bytes());
        let (mut index, mut found) = node.search_from(from, key);
        debug_assert_eq!((index, found), node.search(key), "slots before `from` have smaller keys");
        let needed = leaf_entry_bytes(node.suffix_of(key).len(), value_len) + WORD;
        let fits = node.gap() >= needed || found && node.entry(index).room() >= value_len;
        if !fits {
            let settled = |stamp| tree.is_settled(stamp);
            if rebuilt_bytes(node, node.prefix_len(), &settled) + needed
                > Fences::of(node).room(node.page.len())
            {
                return Err(needed);
            }
            NodeMut::new(guard.bytes_mut()).compact(&settled);
            (index, found) = Node::new(guard.bytes()).search(key);
        }
        Ok(LeafWrite { guard, key, index, found, requested: value_len, tree })
    }

    /// Moves to a key above this one without releasing the leaf, if the leaf covers that key and
    /// has the room. Otherwise releases the leaf, and the caller uses [`Tree::write`]. For rows
    /// that come in order.
    #[inline]
    #[must_use]
    pub fn advance_to(self, key: &'t [u8], value_len: usize) -> Option<LeafWrite<'t>> {
        let node = Node::new(self.guard.bytes());
        if self.key >= key || !node.is_below_upper(key) || is_too_long(key.len(), value_len, node.page.len())
        {
            return None;
        }
        LeafWrite::with_room(self.guard, key, self.index, value_len, self.tree).ok()
    }
}

#[inline]
fn is_too_long(key_len: usize, value_len: usize, page_bytes: usize) -> bool {
    key_len > max_key_bytes(page_bytes) || value_len.saturating_add(key_len) > max_entry_bytes(page_bytes)
}

#[cold]
fn too_long(key_len: usize, value_len: usize, page_bytes: usize) -> Error {
    Error::invalid(format!(
        "key of {key_len} bytes with value of {value_len}: in pages of {page_bytes} bytes a key can have {}, both together {}",
        max_key_bytes(page_bytes),
        max_entry_bytes(page_bytes)
    ))
}

impl LeafWrite<'_> {
    /// Makes sure that the leaf may be changed: see [`crate::buffer::Pool::reserve_change`].
    ///
    /// # Errors
    /// `OutOfSpace`; I/O.
    #[inline]
    pub fn reserve(&self) -> Result<()> {
        self.tree.pool.reserve_change(&self.guard)
    }

    /// The leaf.
    #[inline]
    #[must_use]
    pub fn page_id(&self) -> PageId {
        self.guard.page_id()
    }

    /// Returns the entry at the key.
    #[inline]
    #[must_use]
    pub fn entry(&self) -> Option<EntryMeta> {
        self.found.then(|| Node::new(self.guard.bytes()).entry(self.index).meta)
    }

    /// Fills `value` with the value at the key, or empties it if there is none.
    pub fn copy_value(&self, value: &mut Vec<u8>) {
        value.clear();
        if self.found {
            let entry = Node::new(self.guard.bytes()).entry(self.index);
            self.guard.bytes().append_to(entry.value_offset(), entry.value_len, value);
        }
    }

    /// Writes the entry at the key.
    ///
    /// # Panics
    /// `value` is longer than both the length requested from [`Tree::write`] and the entry's
    /// capacity.
    #[inline]
    pub fn put(&mut self, stamp: u64, tombstone: bool, value: &[u8]) {
        self.put_entry(EntryMeta { stamp, tombstone, large: false }, value);
    }

    /// Writes an entry at the key that refers to a large value, whose pages are written.
    ///
    /// # Panics
    /// As [`LeafWrite::put`], with the [`REFERENCE_BYTES`] of the reference.
    pub fn put_reference(&mut self, stamp: u64, reference: &LargeReference) {
        self.put_entry(EntryMeta { stamp, tombstone: false, large: true }, &reference.encode());
    }

    /// Returns the large value that the entry refers to, if any.
    ///
    /// # Errors
    /// The reference is damaged.
    pub fn reference(&self) -> Result<Option<LargeReference>> {
        if !self.entry().is_some_and(|meta| meta.large) {
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(REFERENCE_BYTES);
        self.copy_value(&mut bytes);
        LargeReference::decode(&bytes).map(Some)
    }

    #[inline]
    fn put_entry(&mut self, meta: EntryMeta, value: &[u8]) {
        debug_assert!(!meta.large || value.len() == REFERENCE_BYTES, "a large value is a reference here");
        self.guard.mark_dirty();
        if !self.found {
            self.make(meta, value);
            NodeMut::new(self.guard.bytes_mut()).note_insert(self.index);
        } else if Node::new(self.guard.bytes()).entry(self.index).room() >= value.len() {
            NodeMut::new(self.guard.bytes_mut()).overwrite(self.index, meta, value);
        } else {
            NodeMut::new(self.guard.bytes_mut()).remove(self.index);
            self.make(meta, value);
        }
    }

    fn make(&mut self, meta: EntryMeta, value: &[u8]) {
        let capacity = value.len().max(self.requested);
        let node = Node::new(self.guard.bytes());
        if node.gap() < leaf_entry_bytes(node.suffix_of(self.key).len(), capacity) + WORD {
            self.reclaim_removed();
        }
        let mut node = NodeMut::new(self.guard.bytes_mut());
        let suffix = node.node().suffix_of(self.key);
        node.insert(self.index, suffix, meta, value, capacity);
        self.found = true;
    }

    /// Reclaims the space of an entry that was found, so that no room was made, and then removed.
    #[cold]
    fn reclaim_removed(&mut self) {
        let tree = self.tree;
        NodeMut::new(self.guard.bytes_mut()).compact(&|stamp| tree.is_settled(stamp));
        self.index = Node::new(self.guard.bytes()).search(self.key).0;
        debug_assert!(!Node::new(self.guard.bytes()).search(self.key).1, "the entry was removed");
    }

    /// Replaces the stamp of the entry, if there is one.
    #[inline]
    pub fn set_stamp(&mut self, stamp: u64) {
        if self.found {
            self.guard.mark_dirty();
            NodeMut::new(self.guard.bytes_mut()).set_stamp(self.index, stamp);
        }
    }

    /// Removes the entry, if there is one. [`Tree::purge`] also merges leaves that have become
    /// small.
    pub fn remove(&mut self) {
        if self.found {
            self.guard.mark_dirty();
            NodeMut::new(self.guard.bytes_mut()).remove(self.index);
            self.found = false;
        }
    }

    /// Removes a settled tombstone. Returns whether the leaf is now small.
    pub(super) fn purge(&mut self) -> bool {
        let settled =
            |stamp| stamp == 0 || self.tree.is_settled(stamp) || planted::is(Bug::TombstonePurgedEarly);
        if self.entry().is_some_and(|meta| meta.tombstone && settled(meta.stamp)) {
            self.remove();
        }
        Node::new(self.guard.bytes()).is_small()
    }
}
