//! Is a page a node, and are the nodes a tree?
//!
//! [`check_page`] trusts nothing. It is what images from the store are validated with, and each page of
//! [`Tree::check_invariants`].

use super::Tree;
use super::node::{
    Held, INNER_ENTRY_HEADER, KIND_INNER, KIND_LEAF, LEAF_ENTRY_HEADER, Node, SLOTS_OFFSET, WORD,
    common_prefix, head_of, inner_entry_bytes, max_entry_bytes, max_key_bytes,
};
use super::overflow::{self, LargeReference, REFERENCE_BYTES};
use crate::base::{Error, ErrorKind, PageId, Result};
use crate::buffer::PageBytes;
use std::collections::HashSet;

/// What [`Tree::check_invariants`] has counted.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct TreeSummary {
    /// Pages of the tree, those of large values included.
    pub pages: u64,
    /// Values in overflow pages.
    pub large_values: u64,
    /// Entries in leaves, tombstones too.
    pub entries: u64,
    /// Pages from the root to a leaf.
    pub depth: u32,
    /// The used part of all leaves, 0 to 1.
    pub leaf_fill: f64,
    /// Ids of the pages, for the search for pages that belong to nobody.
    pub page_ids: HashSet<PageId>,
}

/// A page of a tree that is not what it should be, and which keys it is for.
#[derive(Debug)]
pub struct PageDamage {
    /// The page.
    pub page: PageId,
    /// The lowest key it is for.
    pub lower: Vec<u8>,
    /// The first key above; `None` if it is for all that follow.
    pub upper: Option<Vec<u8>>,
    /// What is wrong.
    pub error: Error,
}

/// A damaged tree has as many damages as pages; more than this help nobody.
const DAMAGES_MAX: usize = 1000;

struct Census<'a> {
    summary: TreeSummary,
    leaves: u64,
    leaf_bytes_used: u64,
    damages: Vec<PageDamage>,
    /// What ends the walk: not the tree's fault.
    failure: Option<Error>,
    go_on: &'a dyn Fn() -> bool,
}

impl Census<'_> {
    fn is_over(&self) -> bool {
        self.failure.is_some() || self.damages.len() >= DAMAGES_MAX || !(self.go_on)()
    }
}

/// Where a node should be.
struct Place<'a> {
    page: PageId,
    level: Option<u8>,
    lower: &'a [u8],
    upper: Option<&'a [u8]>,
}

/// Told of a page, the lowest key that it is for, and the first key above it.
pub type VisitPage<'a> = &'a mut dyn FnMut(PageId, &[u8], Option<&[u8]>);

impl Tree {
    /// Checks every page of the tree and how the pages fit together.
    ///
    /// # Errors
    /// [`crate::base::ErrorKind::Corruption`] naming the first wrong page, or a page cannot be read.
    pub fn check_invariants(&self) -> Result<TreeSummary> {
        let (summary, damages) = self.survey(&|| true)?;
        damages.into_iter().next().map_or(Ok(summary), |damage| Err(damage.error))
    }

    /// Checks every page that can be reached, whatever is wrong with others, while `go_on` says so. The tree may be in use;
    /// structure changes may wait for the walk.
    ///
    /// # Errors
    /// There is no memory to bring a page in.
    pub fn survey(&self, go_on: &dyn Fn() -> bool) -> Result<(TreeSummary, Vec<PageDamage>)> {
        let (summary, damages) = (TreeSummary::default(), Vec::new());
        let mut census = Census { summary, leaves: 0, leaf_bytes_used: 0, damages, failure: None, go_on };
        self.check_below(&Place { page: self.root, level: None, lower: &[], upper: None }, &mut census);
        if let Some(failure) = census.failure {
            return Err(failure);
        }
        let capacity = census.leaves * (self.pool.page_bytes() - SLOTS_OFFSET) as u64;
        census.summary.leaf_fill = census.leaf_bytes_used as f64 / capacity.max(1) as f64;
        Ok((census.summary, census.damages))
    }

    fn check_below(&self, place: &Place<'_>, census: &mut Census<'_>) {
        if census.is_over() {
            return;
        }
        let Err(error) = self.check_node(place, census) else { return };
        if error.kind() == ErrorKind::OutOfMemory {
            census.failure = Some(error);
            return;
        }
        let (lower, upper) = (place.lower.to_vec(), place.upper.map(<[u8]>::to_vec));
        census.damages.push(PageDamage { page: place.page, lower, upper, error });
    }

    /// Latches are shared and held from the root down, so the tree may be in use. The level falls with every step, so a
    /// damaged tree ends the descent too.
    fn check_node(&self, place: &Place<'_>, census: &mut Census<'_>) -> Result<()> {
        let guard = self.pool.shared(place.page)?;
        let node = Node::new(guard.bytes());
        let wrong = |what: &str| Error::corruption(format!("{:?}: {what}", place.page));
        check_page(guard.bytes()).map_err(wrong)?;
        if place.level.is_some_and(|level| level != node.level()) {
            return Err(wrong("level does not fit the parent's"));
        }
        if node.lower() != place.lower || node.upper().as_deref() != place.upper {
            return Err(wrong("fences are not what the parent says"));
        }
        // In two places it would have wrong fences in one of them. (That it was seen before only means that it was freed
        // behind us, and used again ahead.)
        census.summary.page_ids.insert(place.page);
        census.summary.pages += 1;
        census.summary.depth = census.summary.depth.max(1 + u32::from(node.level()));
        if node.is_leaf() {
            census.leaves += 1;
            census.summary.entries += node.count() as u64;
            census.leaf_bytes_used += (node.page.len() - SLOTS_OFFSET - node.gap() - node.garbage()) as u64;
            return self.check_large(node, &mut census.summary);
        }
        for index in 0..=node.count() {
            let lower = if index == 0 { place.lower.to_vec() } else { node.key(index - 1) };
            let upper = if index < node.count() { Some(node.key(index)) } else { node.upper() };
            let level = Some(node.level() - 1);
            let child = Place { page: node.child(index), level, lower: &lower, upper: upper.as_deref() };
            self.check_below(&child, census);
        }
        Ok(())
    }

    /// The leaf is latched, so none of its entries lets go of its value meanwhile.
    fn check_large(&self, leaf: Node<'_>, summary: &mut TreeSummary) -> Result<()> {
        for reference in references(leaf)? {
            let mut pages = HashSet::new();
            overflow::check(&self.pool, &reference, &mut pages)?;
            summary.pages += pages.len() as u64;
            summary.large_values += 1;
            summary.page_ids.extend(pages);
        }
        Ok(())
    }

    /// Tells `visit` of the large values of all entries from `page` down.
    ///
    /// # Errors
    /// A page cannot be read.
    pub fn visit_large_values(&self, page: PageId, visit: &mut dyn FnMut(&LargeReference)) -> Result<()> {
        self.visit_large_below(page, u8::MAX, visit)
    }

    fn visit_large_below(
        &self,
        page: PageId,
        level_max: u8,
        visit: &mut dyn FnMut(&LargeReference),
    ) -> Result<()> {
        let guard = self.pool.shared(page)?;
        let node = Node::new(guard.bytes());
        check_page(guard.bytes()).map_err(|what| Error::corruption(format!("{page:?}: {what}")))?;
        if node.level() > level_max {
            return Err(Error::corruption(format!("{page:?}: level does not fit the parent's")));
        }
        references(node)?.iter().for_each(&mut *visit);
        for index in 0..if node.is_leaf() { 0 } else { node.count() + 1 } {
            self.visit_large_below(node.child(index), node.level() - 1, visit)?;
        }
        Ok(())
    }

    /// Tells `visit` of every page from `page` down, with the keys that it is for; leaves are not read. What is below a page
    /// that cannot be read is left out.
    ///
    /// # Errors
    /// The first page that cannot be read.
    pub fn visit_pages(&self, page: PageId, visit: VisitPage<'_>) -> Result<()> {
        visit(page, &[], None);
        self.visit_below(page, u8::MAX, visit)
    }

    fn visit_below(&self, page: PageId, level_max: u8, visit: VisitPage<'_>) -> Result<()> {
        let guard = self.pool.shared(page)?;
        let node = Node::new(guard.bytes());
        let wrong = |what: &str| Error::corruption(format!("{page:?}: {what}"));
        check_page(guard.bytes()).map_err(wrong)?;
        if node.level() > level_max {
            return Err(wrong("level does not fit the parent's"));
        }
        let mut result = Ok(());
        for index in 0..if node.is_leaf() { 0 } else { node.count() + 1 } {
            let lower = if index == 0 { node.lower().to_vec() } else { node.key(index - 1) };
            let upper = if index < node.count() { Some(node.key(index)) } else { node.upper() };
            visit(node.child(index), &lower, upper.as_deref());
            if node.level() > 1 {
                result = result.and(self.visit_below(node.child(index), node.level() - 1, visit));
            }
        }
        result
    }
}

/// The large values that the entries of a leaf refer to; none for an inner node.
pub(super) fn references(node: Node<'_>) -> Result<Vec<LargeReference>> {
    let mut found = Vec::new();
    for index in 0..if node.is_leaf() { node.count() } else { 0 } {
        let entry = node.entry(index);
        if entry.meta.held() == Held::Reference {
            let mut bytes = Vec::with_capacity(REFERENCE_BYTES);
            node.page.append_to(entry.value_offset(), entry.value_len, &mut bytes);
            found.push(LargeReference::decode(&bytes)?);
        }
    }
    Ok(found)
}

/// Everything that can be said of a page alone: of a node, or of an overflow page.
pub(super) fn check_any_page(page: PageBytes<'_>) -> Result<(), &'static str> {
    if overflow::is_overflow(page) { overflow::check_page(page) } else { check_page(page) }
}

/// Everything that can be said of a node alone.
pub(super) fn check_page(page: PageBytes<'_>) -> Result<(), &'static str> {
    let node = Node::new(page);
    let expected = if node.level() == 0 { KIND_LEAF } else { KIND_INNER };
    if node.kind() != expected {
        return Err("kind and level are not those of a node");
    }
    let header_count = usize::from(page.get_u16(super::node::HEADER_WORD * WORD + 2));
    let slots_end = SLOTS_OFFSET + header_count * WORD;
    if node.heap_start() > page.len() || slots_end > node.heap_start() {
        return Err("slots and heap overlap");
    }
    check_entries(node)
}

/// Words of the heap that something lies in. No two things may share one: changing the one would change the lengths of the other.
struct Taken {
    words: [u64; HEAP_WORDS_MAX / u64::BITS as usize],
}

/// Words of the longest page.
const HEAP_WORDS_MAX: usize = (32 << 10) / WORD;

impl Taken {
    /// Takes the words of `bytes` at `offset`, which is at a word; false if one of them is taken.
    #[inline]
    fn take(&mut self, offset: usize, bytes: usize) -> bool {
        let (mut at, end) = (offset / WORD, (offset + bytes).div_ceil(WORD));
        while at < end {
            let (index, first) = (at / u64::BITS as usize, at % u64::BITS as usize);
            let count = (end - at).min(u64::BITS as usize - first);
            let mask = u64::MAX >> (u64::BITS as usize - count) << first;
            match self.words.get_mut(index) {
                Some(word) if *word & mask == 0 => *word |= mask,
                _ => return false,
            }
            at += count;
        }
        true
    }
}

/// Bytes of the fences, if they are inside the heap.
fn check_fences(node: Node<'_>, taken: &mut Taken) -> Result<usize, &'static str> {
    let (mut used, most) = (0, max_key_bytes(node.page.len()));
    for (offset, len) in [Some(node.lower_place()), node.upper_place()].into_iter().flatten() {
        if len > most {
            return Err("a fence is longer than any key");
        }
        if len > 0 && (offset < node.heap_start() || offset + len > node.page.len()) {
            return Err("a fence is outside the heap");
        }
        if !taken.take(offset, len) {
            return Err("fences overlap");
        }
        used += len.next_multiple_of(WORD);
    }
    let (lower, upper) = (node.lower(), node.upper());
    let prefix_len = upper.as_ref().map_or(0, |upper| common_prefix(&lower, upper));
    if upper.is_some_and(|upper| upper <= lower) {
        return Err("fences are not in order");
    }
    if node.prefix_len() != prefix_len {
        return Err("prefix is not what the fences have in common");
    }
    Ok(used)
}

fn check_entries(node: Node<'_>) -> Result<(), &'static str> {
    let mut taken = Taken { words: [0; _] };
    let mut used = check_fences(node, &mut taken)?;
    let (mut key, mut previous) = (Vec::new(), Vec::new());
    for index in 0..node.count() {
        let bytes = check_entry(node, index)?;
        let slot = node.slot(index);
        if !taken.take(slot.offset(), bytes) {
            return Err("an entry overlaps another, or a fence");
        }
        used += bytes;
        std::mem::swap(&mut key, &mut previous);
        key.clear();
        node.append_key(index, &mut key);
        if slot.head() != head_of(node.suffix_of(&key)) {
            return Err("head is not that of the suffix");
        }
        if index > 0 && previous >= key {
            return Err("keys are not in order");
        }
        // A separator equal to the lower fence would leave an empty child before it.
        let first_is_lower = !node.is_leaf() && index == 0 && key == node.lower();
        // Those between are where the first and the last are.
        let is_outermost = index == 0 || index + 1 == node.count();
        if first_is_lower || is_outermost && !node.covers(&key) {
            return Err("key is outside the fences");
        }
    }
    if used + node.garbage() != node.page.len() - node.heap_start() {
        return Err("heap is not the sum of its parts");
    }
    Ok(())
}

/// Bytes of the entry, if it is inside the heap and no longer than any that a writer may make: of those a split always leaves two that have room.
fn check_entry(node: Node<'_>, index: usize) -> Result<usize, &'static str> {
    let slot = node.slot(index);
    let header = if node.is_leaf() { LEAF_ENTRY_HEADER } else { INNER_ENTRY_HEADER };
    if slot.offset() < node.heap_start() || slot.offset() + header > node.page.len() {
        return Err("an entry is outside the heap");
    }
    let key_len = node.prefix_len() + slot.suffix_len();
    if key_len > max_key_bytes(node.page.len()) {
        return Err("a key is longer than any may be");
    }
    let bytes = if node.is_leaf() {
        let entry = node.entry(index);
        if entry.value_len > entry.capacity {
            return Err("a value is longer than its entry");
        }
        if key_len + entry.capacity > max_entry_bytes(node.page.len()) {
            return Err("an entry is longer than any may be");
        }
        if entry.meta.large {
            let mut bytes = Vec::with_capacity(REFERENCE_BYTES);
            node.page.append_to(entry.value_offset(), entry.value_len, &mut bytes);
            if entry.meta.tombstone || LargeReference::parse(&bytes).is_none() {
                return Err("a reference to a large value is malformed");
            }
        }
        entry.bytes()
    } else {
        inner_entry_bytes(slot.suffix_len())
    };
    if slot.offset() + bytes > node.page.len() {
        return Err("an entry is outside the heap");
    }
    Ok(bytes)
}

/// What everybody may see has no stamps.
pub(super) fn check_settled(page: PageBytes<'_>) -> Result<(), &'static str> {
    let node = Node::new(page);
    let entries = if node.is_leaf() { node.count() } else { 0 };
    let is_stamped = overflow::is_overflow(page) && overflow::stamp_of(page) != 0
        || (0..entries).any(|index| node.entry(index).meta.stamp != 0);
    if is_stamped { Err("a settled image has a stamp") } else { Ok(()) }
}
