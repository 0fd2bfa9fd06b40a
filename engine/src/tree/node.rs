//! The format of a node in its page, and reading it.
//!
//! Every node covers the keys from its lower fence (inclusive) to its upper fence (exclusive) and
//! stores both. What the fences have in common, all keys in between have too. This *prefix* is left
//! out of the keys; the rest is a *suffix*.
//!
//! | bytes | what |
//! |---|---|
//! | 0..32 | the store's ([`crate::buffer::PAGE_HEADER_BYTES`]) |
//! | 32 | lower 2 bits: kind: 1 leaf, 2 inner (3 is an overflow page: see `overflow`) |
//! | | upper 6 bits: a quarter of the common length |
//! | 33 | level: 0 for leaves, a parent's is its children's plus one |
//! | 34..36 | count of slots |
//! | 36..38 | prefix length |
//! | 38..40 | start of the heap, in words |
//! | 40..48 | lower fence: offset in words, length; upper fence: the same, offset 0: no bound |
//! | 48..52 | garbage: bytes of the heap that nothing refers to |
//! | 52..56 | slot of the last insert; how many inserts before it went each to the next slot |
//! | 56..64 | inner: the child below the first separator |
//! | 64.. | slots, sorted by key: entry's offset in words u16, suffix length u16, head u32 |
//! | ..end | heap, growing down: entries and fences, each starting at a word |
//!
//! A node without an upper fence, as the root, has no prefix, although its keys may begin alike. So
//! a node counts the bytes that all its suffixes begin with: the *common length*, a multiple of 4.
//!
//! A slot's *head* is the 4 bytes of the suffix behind the common length as a big-endian number
//! (zeros behind), so most probes of a search are one load and one comparison. Entries:
//!
//! | leaf | 0..8 stamp, 8..10 value length, 10..12 capacity, 12..14 flags, 16.. suffix, value |
//! |---|---|
//! | inner | 0..8 child, 8.. suffix of the separator: the child's lower fence |
//!
//! Flags: 1 tombstone; 2 large value: instead of the value a [`super::LargeReference`] to overflow
//! pages.
//!
//! Every function here may be called on torn or damaged bytes: it then returns nonsense, but
//! neither panics nor loops.

use crate::base::PageId;
use crate::base::common_bytes::common_prefix;
use crate::buffer::{PAGE_HEADER_BYTES, PageBytes};
use std::cmp::Ordering;

pub(super) const WORD: usize = 8;
pub(super) const HEADER_WORD: usize = PAGE_HEADER_BYTES / WORD;
pub(super) const FENCES_WORD: usize = HEADER_WORD + 1;
pub(super) const BOOKS_WORD: usize = HEADER_WORD + 2;
pub(super) const FIRST_CHILD_WORD: usize = HEADER_WORD + 3;
pub(super) const SLOTS_WORD: usize = HEADER_WORD + 4;
pub(super) const SLOTS_OFFSET: usize = SLOTS_WORD * WORD;
/// The bits of the kind. Those above are the common length: it is a multiple of 4, too.
pub(super) const KIND_MASK: u8 = 3;
pub(super) const KIND_LEAF: u8 = 1;
pub(super) const KIND_INNER: u8 = 2;
/// Bytes of a key in a slot.
pub(super) const HEAD_BYTES: usize = 4;
/// The longest common length.
pub(super) const COMMON_LEN_MAX: usize = !KIND_MASK as usize;
/// Offset of the suffix in an entry of a leaf, and of an inner node.
pub(super) const LEAF_ENTRY_HEADER: usize = 16;
pub(super) const INNER_ENTRY_HEADER: usize = 8;
pub(super) const KIND_OVERFLOW: u8 = 3;
const FLAG_TOMBSTONE: u64 = 1;
const FLAG_LARGE: u64 = 2;

/// Bytes that an entry of a leaf takes.
#[inline]
pub(super) fn leaf_entry_bytes(suffix_len: usize, capacity: usize) -> usize {
    (LEAF_ENTRY_HEADER + suffix_len + capacity).next_multiple_of(WORD)
}

/// Bytes that an entry of an inner node takes.
#[inline]
pub(super) fn inner_entry_bytes(suffix_len: usize) -> usize {
    (INNER_ENTRY_HEADER + suffix_len).next_multiple_of(WORD)
}

/// Returns the bytes of the longest key: an eighth of a page, so that inner nodes branch.
#[must_use]
pub fn max_key_bytes(page_bytes: usize) -> usize {
    page_bytes / 8
}

/// Returns the most bytes of a key and its value together: four such entries and two fences fit in
/// a page.
#[must_use]
pub fn max_entry_bytes(page_bytes: usize) -> usize {
    let fences = 2 * (max_key_bytes(page_bytes) + WORD);
    let per_entry = page_bytes.saturating_sub(SLOTS_OFFSET + fences) / 4;
    per_entry.saturating_sub(WORD + LEAF_ENTRY_HEADER + WORD).min(usize::from(u16::MAX))
}

/// Returns the first 4 bytes of `rest`, a suffix behind the common length, comparable as a number.
#[inline]
pub(super) fn head_of(rest: &[u8]) -> u32 {
    match *rest {
        [a, b, c, d, ..] => u32::from_be_bytes([a, b, c, d]),
        [a, b, c] => u32::from_be_bytes([a, b, c, 0]),
        [a, b] => u32::from_be_bytes([a, b, 0, 0]),
        [a] => u32::from_be_bytes([a, 0, 0, 0]),
        [] => 0,
    }
}

/// The properties of an entry besides its key and value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryMeta {
    /// 0 if settled; otherwise its meaning is known to the transaction layer only.
    pub stamp: u64,
    /// True if the entry says that the row does not exist.
    pub tombstone: bool,
    /// True if the value's bytes are a [`super::LargeReference`].
    pub large: bool,
}

impl EntryMeta {
    /// Returns what the entry holds.
    #[must_use]
    pub fn held(&self) -> Held {
        match (self.tombstone, self.large) {
            (true, _) => Held::Nothing,
            (false, true) => Held::Reference,
            (false, false) => Held::Value,
        }
    }
}

/// What an entry holds, or held before a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// Nothing: the row does not exist.
    Nothing,
    /// The value.
    Value,
    /// The encoded [`super::LargeReference`] of a large value.
    Reference,
}

/// A slot: the place and the head of an entry.
#[derive(Clone, Copy)]
pub(super) struct Slot(pub u64);

impl Slot {
    #[inline]
    pub fn new(offset: usize, suffix: &[u8], common_len: usize) -> Slot {
        debug_assert!(offset / WORD <= usize::from(u16::MAX), "a page has fewer words");
        debug_assert!(suffix.len() <= usize::from(u16::MAX), "a key is shorter");
        debug_assert!(offset.is_multiple_of(WORD));
        let place = (offset / WORD) as u64 | (suffix.len() as u64) << 16;
        Slot(place).with_head(head_of(suffix.get(common_len..).unwrap_or_default()))
    }

    #[inline]
    pub fn with_head(self, head: u32) -> Slot {
        Slot(self.0 & u64::from(u32::MAX) | u64::from(head) << 32)
    }

    #[inline]
    pub fn offset(self) -> usize {
        usize::from(self.0 as u16) * WORD
    }

    #[inline]
    pub fn suffix_len(self) -> usize {
        usize::from((self.0 >> 16) as u16)
    }

    #[inline]
    pub fn head(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// A leaf's entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeafEntry {
    pub offset: usize,
    pub suffix_len: usize,
    pub meta: EntryMeta,
    pub value_len: usize,
    pub capacity: usize,
}

impl LeafEntry {
    pub fn value_offset(&self) -> usize {
        self.offset + LEAF_ENTRY_HEADER + self.suffix_len
    }

    pub fn bytes(&self) -> usize {
        leaf_entry_bytes(self.suffix_len, self.capacity)
    }

    /// Bytes of the longest value that fits in the entry's place.
    pub fn room(&self) -> usize {
        self.bytes() - LEAF_ENTRY_HEADER - self.suffix_len
    }
}

/// Returns the second word of a leaf's entry.
#[inline]
pub(super) fn leaf_entry_word(value_len: usize, capacity: usize, meta: EntryMeta) -> u64 {
    debug_assert!(value_len <= capacity, "a value fits in its entry");
    debug_assert!(capacity <= usize::from(u16::MAX), "an entry is shorter than a page");
    debug_assert!(!(meta.tombstone && meta.large), "a row that does not exist has no value");
    let flags = (u64::from(meta.tombstone) * FLAG_TOMBSTONE) | (u64::from(meta.large) * FLAG_LARGE);
    value_len as u64 | (capacity as u64) << 16 | flags << 32
}

/// A node, to read.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    pub page: PageBytes<'a>,
    header: u64,
}

impl<'a> Node<'a> {
    #[inline]
    pub fn new(page: PageBytes<'a>) -> Self {
        Node { page, header: page.word(HEADER_WORD) }
    }

    #[inline]
    pub fn kind(self) -> u8 {
        self.header as u8 & KIND_MASK
    }

    /// Bytes that all suffixes begin with.
    #[inline]
    pub fn common_len(self) -> usize {
        usize::from(self.header as u8 & !KIND_MASK)
    }

    /// Returns whether this is a node of `level`.
    #[inline]
    pub fn is_of(self, level: u8) -> bool {
        let kind = if level == 0 { KIND_LEAF } else { KIND_INNER };
        self.header as u16 & u16::from_le_bytes([KIND_MASK, u8::MAX]) == u16::from_le_bytes([kind, level])
    }

    #[inline]
    pub fn is_leaf(self) -> bool {
        self.kind() == KIND_LEAF
    }

    #[inline]
    pub fn level(self) -> u8 {
        (self.header >> 8) as u8
    }

    /// Number of slots, never more than fit in a page.
    #[inline]
    pub fn count(self) -> usize {
        self.slots().min(self.page.len().saturating_sub(SLOTS_OFFSET) / WORD)
    }

    /// Number of slots that the header says: more may not fit in a page, if it is torn.
    #[inline]
    fn slots(self) -> usize {
        usize::from((self.header >> 16) as u16)
    }

    #[inline]
    pub fn prefix_len(self) -> usize {
        usize::from((self.header >> 32) as u16)
    }

    #[inline]
    pub fn heap_start(self) -> usize {
        usize::from((self.header >> 48) as u16) * WORD
    }

    /// Offset and length of the lower fence.
    #[inline]
    pub fn lower_place(self) -> (usize, usize) {
        let fences = self.page.word(FENCES_WORD);
        (usize::from(fences as u16) * WORD, usize::from((fences >> 16) as u16))
    }

    /// Offset and length of the upper fence; `None` if there is no upper bound.
    #[inline]
    pub fn upper_place(self) -> Option<(usize, usize)> {
        let fences = self.page.word(FENCES_WORD);
        let offset = usize::from((fences >> 32) as u16) * WORD;
        (offset != 0).then_some((offset, usize::from((fences >> 48) as u16)))
    }

    pub fn lower(self) -> Vec<u8> {
        let (offset, len) = self.lower_place();
        let mut fence = Vec::new();
        self.page.append_to(offset, len, &mut fence);
        fence
    }

    pub fn upper(self) -> Option<Vec<u8>> {
        let (offset, len) = self.upper_place()?;
        let mut fence = Vec::new();
        self.page.append_to(offset, len, &mut fence);
        Some(fence)
    }

    /// Returns whether `key` is between the fences.
    #[inline]
    pub fn covers(self, key: &[u8]) -> bool {
        let (offset, len) = self.lower_place();
        if self.page.compare(offset, len, key) == Ordering::Greater {
            return false;
        }
        self.is_below_upper(key)
    }

    /// Returns whether `key` is below the upper fence.
    #[inline]
    pub fn is_below_upper(self, key: &[u8]) -> bool {
        self.upper_place()
            .is_none_or(|(offset, len)| self.page.compare(offset, len, key) == Ordering::Greater)
    }

    /// Bytes of the heap that nothing refers to.
    #[inline]
    pub fn garbage(self) -> usize {
        self.page.word(BOOKS_WORD) as u32 as usize
    }

    /// Slot of the last insert, and how many inserts before it went each to the next slot.
    #[inline]
    pub fn last_insert(self) -> (usize, usize) {
        let books = self.page.word(BOOKS_WORD);
        (usize::from((books >> 32) as u16), usize::from((books >> 48) as u16))
    }

    /// Bytes between the slots and the heap.
    #[inline]
    pub fn gap(self) -> usize {
        self.heap_start().saturating_sub(SLOTS_OFFSET + self.count() * WORD)
    }

    /// Returns whether less than a quarter of the node is used.
    pub fn is_small(self) -> bool {
        let unused = self.gap() + self.garbage();
        let all = self.page.len() - SLOTS_OFFSET;
        unused > all / 4 * 3
    }

    #[inline]
    pub fn slot(self, index: usize) -> Slot {
        Slot(self.page.word(SLOTS_WORD + index))
    }

    /// Offset of a slot's suffix.
    #[inline]
    pub fn suffix_offset(self, slot: Slot) -> usize {
        slot.offset() + if self.is_leaf() { LEAF_ENTRY_HEADER } else { INNER_ENTRY_HEADER }
    }

    /// Returns the part of a covered key after the prefix.
    #[inline]
    pub fn suffix_of(self, key: &[u8]) -> &[u8] {
        key.get(self.prefix_len()..).unwrap_or_default()
    }

    #[inline]
    fn compare_slot(self, slot: Slot, suffix: &[u8], head: u32) -> Ordering {
        match slot.head().cmp(&head) {
            Ordering::Equal => self.compare_behind_head(slot, suffix),
            different => different,
        }
    }

    /// Compares a slot's key with one that has the same head.
    #[inline]
    fn compare_behind_head(self, slot: Slot, suffix: &[u8]) -> Ordering {
        // If one of the two ends within its head, it is a prefix of the other one: behind its end
        // there are only zeros.
        let end = self.common_len() + HEAD_BYTES;
        if slot.suffix_len() <= end || suffix.len() <= end {
            return slot.suffix_len().cmp(&suffix.len());
        }
        self.page.compare(self.suffix_offset(slot) + end, slot.suffix_len() - end, &suffix[end..])
    }

    /// Returns whether an entry with `suffix` before slot `index` keeps the slots sorted.
    pub fn is_place_of(self, index: usize, suffix: &[u8]) -> bool {
        let compare = |slot: usize| {
            let slot = self.slot(slot);
            self.page.compare(self.suffix_offset(slot), slot.suffix_len(), suffix)
        };
        (index == 0 || compare(index - 1) == Ordering::Less)
            && (index == self.count() || compare(index) == Ordering::Greater)
    }

    /// Returns the first slot whose key is not less than `key`, and whether it is equal.
    #[inline]
    pub fn search(self, key: &[u8]) -> (usize, bool) {
        search(self.page, self.header, key)
    }

    /// As [`Node::search`], if the keys of the slots before `low` are less than `key`.
    #[inline(always)]
    pub fn search_from(self, low: usize, key: &[u8]) -> (usize, bool) {
        if self.common_len() > 0 {
            match self.compare_common(key) {
                Ordering::Less => return (self.count(), false),
                Ordering::Greater => return (low, false),
                Ordering::Equal => {}
            }
        }
        let head = head_of(key.get(self.prefix_len() + self.common_len()..).unwrap_or_default());
        // A slot's head is its upper half, so the whole word compares like the head.
        let (bound, count) = (u64::from(head) << 32, self.slots());
        let is_less = |slot| slot < bound;
        let at = low + self.page.partition_point(SLOTS_WORD + low, count.saturating_sub(low), is_less);
        let slot = self.slot(at);
        if at >= count || slot.head() != head {
            return (at, false);
        }
        match self.compare_behind_head(slot, self.suffix_of(key)) {
            Ordering::Less => self.search_equal_heads(at + 1, self.suffix_of(key), head),
            order => (at, order == Ordering::Equal),
        }
    }

    /// [`Node::search_from`] if the head of the slot before `low` is that of the key.
    #[cold]
    fn search_equal_heads(self, mut low: usize, suffix: &[u8], head: u32) -> (usize, bool) {
        let mut high = self.count();
        while low < high {
            let middle = low.midpoint(high);
            match self.compare_slot(self.slot(middle), suffix, head) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return (middle, true),
            }
        }
        (low, false)
    }

    /// Returns how many bytes the first slot's suffix and `suffix` have in common at their
    /// beginning, up to the common length.
    pub fn common_with_first(self, suffix: &[u8]) -> usize {
        let (slot, mut first) = (self.slot(0), [0; COMMON_LEN_MAX]);
        let first = &mut first[..self.common_len().min(slot.suffix_len())];
        self.page.copy_to(self.suffix_offset(slot), first);
        common_prefix(first, suffix)
    }

    /// Returns the head that the `index`th slot is to have.
    pub fn head_at(self, index: usize) -> u32 {
        let (slot, mut rest) = (self.slot(index), [0; HEAD_BYTES]);
        let rest = &mut rest[..slot.suffix_len().saturating_sub(self.common_len()).min(HEAD_BYTES)];
        self.page.copy_to(self.suffix_offset(slot) + self.common_len(), rest);
        head_of(rest)
    }

    /// Compares the bytes that all suffixes begin with with the same bytes of a covered key.
    fn compare_common(self, key: &[u8]) -> Ordering {
        let (common, suffix) = (self.common_len(), self.suffix_of(key));
        let place = self.suffix_offset(self.slot(0));
        if common == HEAD_BYTES && suffix.len() >= HEAD_BYTES {
            let first = self.page.word(place / WORD) as u32;
            return first.swap_bytes().cmp(&head_of(suffix));
        }
        self.page.compare(place, common, &suffix[..common.min(suffix.len())])
    }

    /// Returns the `index`th child; child 0 is the one below the first separator.
    #[inline]
    pub fn child(self, index: usize) -> PageId {
        PageId(match index.checked_sub(1) {
            None => self.page.word(FIRST_CHILD_WORD),
            Some(slot) => self.page.word(self.slot(slot).offset() / WORD),
        })
    }

    /// Returns index and page of the child that covers `key`.
    #[inline]
    pub fn child_of(self, key: &[u8]) -> (usize, PageId) {
        child_of(self.page, self.header, key)
    }

    #[inline]
    pub fn entry(self, index: usize) -> LeafEntry {
        let slot = self.slot(index);
        let word = slot.offset() / WORD;
        let lengths = self.page.word(word + 1);
        LeafEntry {
            offset: slot.offset(),
            suffix_len: slot.suffix_len(),
            meta: EntryMeta {
                stamp: self.page.word(word),
                tombstone: (lengths >> 32) & FLAG_TOMBSTONE != 0,
                large: (lengths >> 32) & FLAG_LARGE != 0,
            },
            value_len: usize::from(lengths as u16),
            capacity: usize::from((lengths >> 16) as u16),
        }
    }

    /// Appends the prefix to `out`.
    #[inline]
    pub fn append_prefix(self, out: &mut Vec<u8>) {
        self.page.append_to(self.lower_place().0, self.prefix_len(), out);
    }

    /// Appends the `index`th key to `out`.
    #[inline]
    pub fn append_key(self, index: usize, out: &mut Vec<u8>) {
        self.append_prefix(out);
        let slot = self.slot(index);
        self.page.append_to(self.suffix_offset(slot), slot.suffix_len(), out);
    }

    /// Returns the `index`th key.
    pub fn key(self, index: usize) -> Vec<u8> {
        let mut key = Vec::new();
        self.append_key(index, &mut key);
        key
    }
}

/// [`Node::search`] as a call, with all arguments in registers: a descent keeps its own there.
#[inline(never)]
fn search(page: PageBytes<'_>, header: u64, key: &[u8]) -> (usize, bool) {
    Node { page, header }.search_from(0, key)
}

/// [`Node::child_of`] as a call.
#[inline(never)]
fn child_of(page: PageBytes<'_>, header: u64, key: &[u8]) -> (usize, PageId) {
    let node = Node { page, header };
    let (slot, found) = node.search_from(0, key);
    let index = slot + usize::from(found);
    (index, node.child(index))
}
