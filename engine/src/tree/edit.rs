//! Changes a node in its page.
//!
//! Invariants:
//! 1. Callers have made sure of the room. A change that does not fit is a bug and panics, rather
//!    than leave half a node.
//! 2. **Room rule**: the capacity of an entry that is not settled never shrinks. Only
//!    [`retained`] decides what an entry becomes when a node is rebuilt.

use super::node::{
    BOOKS_WORD, COMMON_LEN_MAX, EntryMeta, FENCES_WORD, FIRST_CHILD_WORD, HEAD_BYTES, HEADER_WORD,
    INNER_ENTRY_HEADER, KIND_INNER, KIND_LEAF, KIND_MASK, LEAF_ENTRY_HEADER, LeafEntry, Node, SLOTS_OFFSET,
    SLOTS_WORD, Slot, WORD, inner_entry_bytes, leaf_entry_bytes, leaf_entry_word,
};
use crate::base::PageId;
use crate::base::common_bytes::common_prefix;
use crate::buffer::{PageBytes, PageBytesMut, ScratchPage};

/// Returns whether a stamp is settled; never called with 0.
pub(super) type Settled<'a> = dyn Fn(u64) -> bool + 'a;

/// Returns stamp and capacity that an entry has when its node is rebuilt, or nothing.
#[inline]
pub(super) fn retained(entry: &LeafEntry, settled: &Settled<'_>) -> Option<(u64, usize)> {
    let stamp = entry.meta.stamp;
    if stamp != 0 && !settled(stamp) {
        return Some((stamp, entry.capacity));
    }
    (!entry.meta.tombstone).then_some((0, entry.value_len))
}

/// The fences of a new node.
#[derive(Clone, Debug)]
pub(super) struct Fences {
    pub lower: Vec<u8>,
    pub upper: Option<Vec<u8>>,
}

impl Fences {
    pub fn of(node: Node<'_>) -> Fences {
        Fences { lower: node.lower(), upper: node.upper() }
    }

    pub fn prefix_len(&self) -> usize {
        self.upper.as_ref().map_or(0, |upper| common_prefix(&self.lower, upper))
    }

    /// Bytes of the page that are left for entries and slots.
    pub fn room(&self, page_bytes: usize) -> usize {
        let upper = self.upper.as_ref().map_or(0, |upper| upper.len().next_multiple_of(WORD).max(WORD));
        page_bytes - SLOTS_OFFSET - self.lower.len().next_multiple_of(WORD) - upper
    }
}

/// Returns a copy of the page, to rebuild the page from.
pub(super) fn snapshot(page: PageBytes<'_>) -> ScratchPage {
    let mut copy = ScratchPage::new(page.len());
    let mut target = copy.bytes_mut();
    for index in HEADER_WORD..page.len() / WORD {
        target.set_word(index, page.word(index));
    }
    copy
}

/// A node, to change.
pub(super) struct NodeMut<'a> {
    page: PageBytesMut<'a>,
}

impl<'a> NodeMut<'a> {
    #[inline]
    pub fn new(page: PageBytesMut<'a>) -> Self {
        NodeMut { page }
    }

    #[inline]
    pub fn node(&self) -> Node<'_> {
        Node::new(self.page.bytes())
    }

    /// Makes the page an empty node.
    pub fn init(&mut self, level: u8, fences: &Fences, first_child: PageId) {
        let kind = if level == 0 { KIND_LEAF } else { KIND_INNER };
        let mut top = self.page.len();
        top -= fences.lower.len().next_multiple_of(WORD);
        let lower = (top / WORD).min(self.page.len() / WORD - 1);
        self.page.copy_from(lower * WORD, &fences.lower);
        let mut words = lower as u64 | (fences.lower.len() as u64) << 16;
        if let Some(upper) = &fences.upper {
            top -= upper.len().next_multiple_of(WORD).max(WORD);
            self.page.copy_from(top, upper);
            words |= ((top / WORD) as u64) << 32 | (upper.len() as u64) << 48;
        }
        debug_assert!(top >= SLOTS_OFFSET, "both fences fit in the page");
        self.page.set_word(FENCES_WORD, words);
        self.page.set_word(BOOKS_WORD, 0);
        self.page.set_word(FIRST_CHILD_WORD, first_child.0);
        let header = u64::from(kind) | u64::from(level) << 8 | (fences.prefix_len() as u64) << 32;
        self.page.set_word(HEADER_WORD, header | ((top / WORD) as u64) << 48);
    }

    fn set_counts(&mut self, count: usize, heap_start: usize) {
        debug_assert!(SLOTS_OFFSET + count * WORD <= heap_start, "slots and heap do not overlap");
        debug_assert!(heap_start <= self.page.len() && heap_start.is_multiple_of(WORD));
        let keep = self.page.word(HEADER_WORD) & 0x0000_FFFF_0000_FFFF;
        self.page.set_word(HEADER_WORD, keep | (count as u64) << 16 | ((heap_start / WORD) as u64) << 48);
    }

    /// Takes `bytes` of the heap and the slot `index` for an entry with `suffix`. Returns the
    /// entry's offset.
    #[inline]
    fn make_entry(&mut self, index: usize, bytes: usize, header: usize, suffix: &[u8]) -> usize {
        let node = self.node();
        let (count, gap) = (node.count(), node.gap());
        assert!(gap >= bytes + WORD && index <= count, "no room was made for an entry");
        let offset = node.heap_start() - bytes;
        let at = SLOTS_OFFSET + index * WORD;
        let common_len = self.common_with(suffix);
        for slot in (SLOTS_WORD + index..SLOTS_WORD + count).rev() {
            let word = self.page.word(slot);
            self.page.set_word(slot + 1, word);
        }
        self.page.set_word(at / WORD, Slot::new(offset, suffix, common_len).0);
        self.page.copy_from(offset + header, suffix);
        self.set_counts(count + 1, offset);
        offset
    }

    /// Makes the common length that of the entries and of one with `suffix`. It only falls, until
    /// the node is empty or rebuilt.
    #[inline]
    fn common_with(&mut self, suffix: &[u8]) -> usize {
        let node = self.node();
        let (before, count) = (node.common_len(), node.count());
        if before == 0 && count > 0 {
            return 0;
        }
        let most = suffix.len().min(COMMON_LEN_MAX);
        let common = match count {
            0 => most,
            _ => node.common_with_first(suffix).min(before),
        };
        let common = common - common % HEAD_BYTES;
        if common != before {
            self.set_common_len(common);
        }
        common
    }

    /// Changes the common length, and with it all heads.
    #[cold]
    fn set_common_len(&mut self, common: usize) {
        debug_assert!(common <= COMMON_LEN_MAX && common.is_multiple_of(HEAD_BYTES), "it has 6 bits");
        let header = self.page.word(HEADER_WORD) & !u64::from(!KIND_MASK) | common as u64;
        self.page.set_word(HEADER_WORD, header);
        for index in 0..self.node().count() {
            let slot = self.node().slot(index).with_head(self.node().head_at(index));
            self.page.set_word(SLOTS_WORD + index, slot.0);
        }
    }

    /// Puts a new entry into a leaf. Returns the offset of the value, which the caller writes.
    fn make_leaf_entry(
        &mut self,
        index: usize,
        suffix: &[u8],
        meta: EntryMeta,
        value_len: usize,
        capacity: usize,
    ) -> usize {
        let bytes = leaf_entry_bytes(suffix.len(), capacity);
        let offset = self.make_entry(index, bytes, LEAF_ENTRY_HEADER, suffix);
        self.page.set_word(offset / WORD, meta.stamp);
        self.page.set_word(offset / WORD + 1, leaf_entry_word(value_len, capacity, meta));
        offset + LEAF_ENTRY_HEADER + suffix.len()
    }

    /// Inserts an entry into a leaf; `capacity` is at least the value's length.
    pub fn insert(&mut self, index: usize, suffix: &[u8], meta: EntryMeta, value: &[u8], capacity: usize) {
        debug_assert!(self.node().is_leaf(), "only leaves have values");
        debug_assert!(self.node().is_place_of(index, suffix), "entries of a leaf are sorted");
        let offset = self.make_leaf_entry(index, suffix, meta, value.len(), capacity);
        self.page.copy_from(offset, value);
    }

    /// Notes the slot of an insert, for the choice of split points.
    #[inline]
    pub fn note_insert(&mut self, index: usize) {
        debug_assert!(index < self.node().count(), "the last insert has made a slot");
        let (last, run) = self.node().last_insert();
        // `last` is 65,535 if the sequence began in the node to the left.
        let run = if index as u16 == (last as u16).wrapping_add(1) {
            (run + 1).min(usize::from(u16::MAX))
        } else {
            0
        };
        let garbage = self.page.word(BOOKS_WORD) & 0xFFFF_FFFF;
        self.page.set_word(BOOKS_WORD, garbage | (index as u64) << 32 | (run as u64) << 48);
    }

    /// Continues a sequence of inserts in a rebuilt node, which has no garbage.
    pub fn continue_sequence(&mut self, (last, run): (usize, usize)) {
        debug_assert_eq!(self.node().garbage(), 0, "a rebuilt node has no garbage");
        self.page.set_word(BOOKS_WORD, u64::from(last as u16) << 32 | (run as u64) << 48);
    }

    fn add_garbage(&mut self, bytes: usize) {
        let books = self.page.word(BOOKS_WORD);
        self.page.set_word(BOOKS_WORD, books + bytes as u64);
        let node = self.node();
        debug_assert!(node.heap_start() + node.garbage() <= node.page.len(), "garbage is a part of the heap");
    }

    /// Inserts a separator into an inner node, and the child at and above it.
    pub fn insert_child(&mut self, index: usize, suffix: &[u8], child: PageId) {
        let offset = self.make_entry(index, inner_entry_bytes(suffix.len()), INNER_ENTRY_HEADER, suffix);
        self.page.set_word(offset / WORD, child.0);
    }

    /// Overwrites the `index`th entry of a leaf. The value fits in the entry's room.
    pub fn overwrite(&mut self, index: usize, meta: EntryMeta, value: &[u8]) {
        debug_assert!(self.node().is_leaf() && index < self.node().count(), "there is no such entry");
        let entry = self.node().entry(index);
        let capacity = entry.capacity.max(value.len());
        assert!(value.len() <= entry.room(), "a value is longer than its entry");
        self.page.set_word(entry.offset / WORD, meta.stamp);
        let word = leaf_entry_word(value.len(), capacity, meta);
        self.page.set_word(entry.offset / WORD + 1, word);
        self.page.copy_from(entry.value_offset(), value);
    }

    /// Replaces the stamp of the `index`th entry of a leaf.
    pub fn set_stamp(&mut self, index: usize, stamp: u64) {
        debug_assert!(self.node().is_leaf() && index < self.node().count(), "there is no such entry");
        let offset = self.node().slot(index).offset();
        self.page.set_word(offset / WORD, stamp);
    }

    /// Removes the `index`th slot and its entry.
    pub fn remove(&mut self, index: usize) {
        let node = self.node();
        let (count, heap_start) = (node.count(), node.heap_start());
        debug_assert!(index < count, "there is no such slot");
        let bytes = if node.is_leaf() {
            node.entry(index).bytes()
        } else {
            inner_entry_bytes(node.slot(index).suffix_len())
        };
        for slot in SLOTS_WORD + index + 1..SLOTS_WORD + count {
            let word = self.page.word(slot);
            self.page.set_word(slot - 1, word);
        }
        self.add_garbage(bytes);
        self.set_counts(count - 1, heap_start);
    }

    /// Appends the entries `range` of another leaf.
    pub fn append_entries(&mut self, from: Node<'_>, range: std::ops::Range<usize>, settled: &Settled<'_>) {
        debug_assert!(from.is_leaf() && self.node().is_leaf(), "only leaves have entries");
        debug_assert!(range.end <= from.count(), "there are no such entries");
        let prefix_len = self.node().prefix_len();
        let mut key = Vec::new();
        for index in range {
            let entry = from.entry(index);
            let Some((stamp, capacity)) = retained(&entry, settled) else { continue };
            key.clear();
            from.append_key(index, &mut key);
            let meta = EntryMeta { stamp, ..entry.meta };
            let (at, suffix) = (self.node().count(), key.get(prefix_len..).unwrap_or_default());
            let to = self.make_leaf_entry(at, suffix, meta, entry.value_len, capacity);
            self.copy_bytes(to, from.page, entry.value_offset(), entry.value_len);
        }
    }

    /// Appends the separators `range` of another inner node.
    pub fn append_children(&mut self, from: Node<'_>, range: std::ops::Range<usize>) {
        debug_assert!(!from.is_leaf() && range.end <= from.count(), "there are no such separators");
        for index in range {
            self.append_child(&from.key(index), from.child(index + 1));
        }
    }

    /// Appends a separator and its child.
    pub fn append_child(&mut self, separator: &[u8], child: PageId) {
        let node = self.node();
        let (at, prefix_len) = (node.count(), node.prefix_len());
        self.insert_child(at, separator.get(prefix_len..).unwrap_or_default(), child);
    }

    fn copy_bytes(&mut self, to: usize, from: PageBytes<'_>, offset: usize, len: usize) {
        let whole = len / WORD * WORD;
        for at in (0..whole).step_by(WORD) {
            self.page.set_u64(to + at, from.get_u64(offset + at));
        }
        let tail = from.get_u64(offset + whole).to_le_bytes();
        self.page.copy_from(to + whole, &tail[..len - whole]);
    }

    /// Copies all of another node.
    pub fn copy_node(&mut self, from: PageBytes<'_>) {
        debug_assert_eq!(self.page.len(), from.len(), "pages of a pool have one size");
        for index in HEADER_WORD..from.len() / WORD {
            self.page.set_word(index, from.word(index));
        }
    }

    /// Rebuilds the node without garbage; a leaf also without the tombstones and spare room of
    /// settled entries.
    pub fn compact(&mut self, settled: &Settled<'_>) {
        let old = snapshot(self.page.bytes());
        let old = Node::new(old.bytes());
        let (last, run) = old.last_insert();
        self.init(old.level(), &Fences::of(old), old.child(0));
        if old.is_leaf() {
            self.append_entries(old, 0..old.count(), settled);
        } else {
            self.append_children(old, 0..old.count());
        }
        debug_assert!(self.node().gap() >= old.gap(), "a rebuilt node has at least the room of before");
        debug_assert!(self.node().count() <= old.count(), "a rebuilt node has no new entries");
        if self.node().count() == old.count() {
            self.continue_sequence((last, run));
        }
    }
}

/// Bytes of slots and entries that the node will have if it is rebuilt with `prefix_len`.
pub(super) fn rebuilt_bytes(node: Node<'_>, prefix_len: usize, settled: &Settled<'_>) -> usize {
    (0..node.count()).map(|index| rebuilt_slot_bytes(node, index, prefix_len, settled)).sum()
}

/// The share of the `index`th slot in [`rebuilt_bytes`].
pub(super) fn rebuilt_slot_bytes(
    node: Node<'_>,
    index: usize,
    prefix_len: usize,
    settled: &Settled<'_>,
) -> usize {
    let suffix_len = (node.slot(index).suffix_len() + node.prefix_len()).saturating_sub(prefix_len);
    if !node.is_leaf() {
        return inner_entry_bytes(suffix_len) + WORD;
    }
    retained(&node.entry(index), settled)
        .map_or(0, |(_, capacity)| leaf_entry_bytes(suffix_len, capacity) + WORD)
}
