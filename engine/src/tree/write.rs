//! Changing single entries.

use super::Tree;
use super::descent::Target;
use super::edit::{Fences, NodeMut, rebuilt_bytes};
use super::node::{EntryMeta, Node, WORD, leaf_entry_bytes, max_entry_bytes, max_key_bytes};
use super::overflow::{LargeReference, REFERENCE_BYTES};
use crate::base::planted::{self, Bug};
use crate::base::{Error, PageId, Result};
use crate::buffer::{ExclusiveGuard, Interrupt, Version};

/// Where the caller wrote last. If that leaf has not changed since, and covers the next key too, the descent is saved. Only to be used with
/// the tree that it is from: elsewhere a page may have the same number and version, and a leaf of a tree that is gone may not be free yet.
#[derive(Clone, Copy, Default, Debug)]
pub struct LeafHint {
    leaf: Option<(PageId, Version)>,
}

/// The leaf that covers a key, held exclusively, with the room that was asked for. Dropping it lets others in.
pub struct LeafWrite<'t> {
    guard: ExclusiveGuard<'t>,
    key: &'t [u8],
    index: usize,
    found: bool,
    /// What room was made for: a new entry gets that capacity, so that a second, longer put finds it.
    asked: usize,
    tree: &'t Tree,
}

impl std::fmt::Debug for LeafWrite<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LeafWrite({}, slot {}, found: {})", self.guard.page_id(), self.index, self.found)
    }
}

impl Tree {
    /// Holds the leaf that covers `key` and makes room for a value of `value_len` bytes there, whether the key exists or
    /// not. A value that fits in the capacity of an unsettled entry has room in any case (the room rule).
    ///
    /// # Errors
    /// Key or value are too long ([`max_key_bytes`], [`max_entry_bytes`]), no memory for a split (then nothing was
    /// changed), or a page cannot be read.
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
        // Makes the version after the hold known now: it changes even if nothing should be put.
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
        let guard = self.pool.optimistic_at(page, version).ok()?.upgrade().ok()?;
        // Same version: still the leaf it was. That it is of this tree is up to the caller.
        let node = Node::new(guard.bytes());
        if !node.is_leaf() || !node.covers(key) {
            return None;
        }
        self.with_room(guard, key, value_len).ok()
    }

    fn write_by_descent<'t>(&'t self, key: &'t [u8], value_len: usize) -> Result<LeafWrite<'t>> {
        self.retry_change(|| {
            let guard = self.descend(Target::At(key), 0)?.guard.upgrade()?;
            match self.with_room(guard, key, value_len) {
                Ok(write) => Ok(write),
                Err(needed) => {
                    self.split(key, 0, needed)?;
                    let guard = self.descend(Target::At(key), 0)?.guard.upgrade()?;
                    self.with_room(guard, key, value_len).map_err(|_| Interrupt::Restart)
                }
            }
        })
    }

    /// The leaf that covers `key`, without making room: purging must not split.
    pub(super) fn leaf_to_purge<'t>(&'t self, key: &'t [u8]) -> Result<LeafWrite<'t>, Interrupt> {
        let guard = self.descend(Target::At(key), 0)?.guard.upgrade()?;
        let (index, found) = Node::new(guard.bytes()).search(key);
        Ok(LeafWrite { guard, key, index, found, asked: 0, tree: self })
    }

    /// The write, if there is room or compaction makes it; otherwise how many bytes are needed.
    fn with_room<'t>(
        &'t self,
        guard: ExclusiveGuard<'t>,
        key: &'t [u8],
        value_len: usize,
    ) -> Result<LeafWrite<'t>, usize> {
        LeafWrite::with_room(guard, key, 0, value_len, self)
    }
}

impl<'t> LeafWrite<'t> {
    /// Slots before `from` are known to have smaller keys.
    fn with_room(
        mut guard: ExclusiveGuard<'t>,
        key: &'t [u8],
        from: usize,
        value_len: usize,
        tree: &'t Tree,
    ) -> Result<LeafWrite<'t>, usize> {
        let node = Node::new(guard.bytes());
        let (mut index, mut found) = node.search_from(from, key);
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
        Ok(LeafWrite { guard, key, index, found, asked: value_len, tree })
    }

    /// Goes on with a key above this one without letting others in, if the leaf covers it and has the room; otherwise lets
    /// go of the leaf: [`Tree::write`] finds or makes what is needed. For rows that come in order.
    #[inline]
    #[must_use]
    pub fn go_on(self, key: &'t [u8], value_len: usize) -> Option<LeafWrite<'t>> {
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
    /// Whether the leaf may be changed: see [`crate::buffer::Pool::reserve_change`].
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

    /// What is at the key.
    #[inline]
    #[must_use]
    pub fn entry(&self) -> Option<EntryMeta> {
        self.found.then(|| Node::new(self.guard.bytes()).entry(self.index).meta)
    }

    /// Bytes of the value at the key; 0 if there is none.
    #[must_use]
    pub fn value_len(&self) -> usize {
        if self.found { Node::new(self.guard.bytes()).entry(self.index).value_len } else { 0 }
    }

    /// Fills `value` with the value at the key; with nothing if there is none.
    pub fn copy_value(&self, value: &mut Vec<u8>) {
        value.clear();
        if self.found {
            let entry = Node::new(self.guard.bytes()).entry(self.index);
            self.guard.bytes().append_to(entry.value_offset(), entry.value_len, value);
        }
    }

    /// Makes this the entry at the key.
    ///
    /// # Panics
    /// `value` is longer than both what [`Tree::write`] was asked for and the entry's capacity.
    #[inline]
    pub fn put(&mut self, stamp: u64, tombstone: bool, value: &[u8]) {
        self.put_entry(EntryMeta { stamp, tombstone, large: false }, value);
    }

    /// Makes the entry at the key refer to a large value, whose pages are written.
    ///
    /// # Panics
    /// As [`LeafWrite::put`], with the [`REFERENCE_BYTES`] of the reference.
    pub fn put_reference(&mut self, stamp: u64, reference: &LargeReference) {
        self.put_entry(EntryMeta { stamp, tombstone: false, large: true }, &reference.encode());
    }

    /// The large value that the entry refers to, if it does.
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
        let capacity = value.len().max(self.asked);
        let node = Node::new(self.guard.bytes());
        if node.gap() < leaf_entry_bytes(node.suffix_of(self.key).len(), capacity) + WORD {
            self.take_back_removed();
        }
        let mut node = NodeMut::new(self.guard.bytes_mut());
        let suffix = node.node().suffix_of(self.key);
        node.insert(self.index, suffix, meta, value, capacity);
        self.found = true;
    }

    /// The entry was found, so no room was made, and then it was removed: its place is garbage now.
    #[cold]
    fn take_back_removed(&mut self) {
        let tree = self.tree;
        NodeMut::new(self.guard.bytes_mut()).compact(&|stamp| tree.is_settled(stamp));
        self.index = Node::new(self.guard.bytes()).search(self.key).0;
    }

    /// Replaces the stamp of the entry, if there is one.
    #[inline]
    pub fn set_stamp(&mut self, stamp: u64) {
        if self.found {
            self.guard.mark_dirty();
            NodeMut::new(self.guard.bytes_mut()).set_stamp(self.index, stamp);
        }
    }

    /// Takes the entry out of the leaf, if there is one. [`Tree::purge`] also merges leaves that have become small.
    pub fn remove(&mut self) {
        if self.found {
            self.guard.mark_dirty();
            NodeMut::new(self.guard.bytes_mut()).remove(self.index);
            self.found = false;
        }
    }

    /// Removes a tombstone that everybody may see. Returns whether the leaf is now small.
    pub(super) fn purge(&mut self) -> bool {
        let settled =
            |stamp| stamp == 0 || self.tree.is_settled(stamp) || planted::is(Bug::TombstonePurgedEarly);
        if self.entry().is_some_and(|meta| meta.tombstone && settled(meta.stamp)) {
            self.remove();
        }
        super::merge::is_small(Node::new(self.guard.bytes()))
    }
}
