//! Checks every page of a tree that may be in use.
//!
//! ```text
//!   from ──descend──▶ leaf that covers it ──check──▶ from = its upper fence, to the last leaf
//!             └─ nodes on the way are checked if they are not those of the last descent
//! ```
//!
//! 1. No latch is held during the fault of a page or the read of a child. A writer waits at most
//!    for the check of one page, and for a leaf also of one large value.
//! 2. Reported damage existed at one moment: a node counts only if its parent, unchanged, led to it
//!    (invariant 2 of [`super`]).
//! 3. The survey visits every node that is part of the tree all the time. The node's level and
//!    lower fence never change (a split gives the right part a new page, a merge frees the right
//!    page). When the walk comes to that fence, the descent visits the node of each level that
//!    covers it. For the same reason the survey visits each large value that belongs to an entry
//!    when the walk comes to its key.
//! 4. Every descent gets further, whatever is damaged: it visits only nodes that match their
//!    parents, and they cover the key.

use super::check::{check_page, reference_at, references};
use super::descent::Target;
use super::handle::Tree;
use super::node::{Node, SLOTS_OFFSET};
use super::overflow::{self, LargeReference, LargeSubtree};
use crate::base::{Error, ErrorKind, PageId, Result};
use crate::buffer::{Interrupt, Pool, Version};
use std::collections::HashSet;

/// The counts of [`Tree::survey`].
#[derive(Clone, PartialEq, Default, Debug)]
pub struct TreeSummary {
    /// Pages of the tree, including pages of large values.
    pub pages: u64,
    /// Values in overflow pages.
    pub large_values: u64,
    /// Entries in leaves, including tombstones.
    pub entries: u64,
    /// Pages from the root to a leaf.
    pub depth: u32,
    /// The used part of all leaves, 0 to 1.
    pub leaf_fill: f64,
    /// Ids of the pages, for the search for leaked pages.
    pub page_ids: HashSet<PageId>,
    /// Large values that entries had before changes that may be rolled back; their pages are not
    /// counted.
    pub replaced: Vec<LargeReference>,
}

/// A damaged page of a tree, and the keys that it should cover.
#[derive(Debug)]
pub struct PageDamage {
    /// The page.
    pub page: PageId,
    /// The lowest key that it should cover.
    pub lower: Vec<u8>,
    /// The first key above; `None` without an upper bound.
    pub upper: Option<Vec<u8>>,
    /// The damage.
    pub error: Error,
}

/// The questions of a survey to its caller.
#[derive(Clone, Copy)]
pub struct Survey<'a> {
    /// Returns whether the survey should continue.
    pub should_continue: &'a dyn Fn() -> bool,
    /// Appends the large values that an entry with this stamp had before. Called with the leaf
    /// latched.
    pub replaced: &'a dyn Fn(u64, &mut Vec<LargeReference>),
}

impl std::fmt::Debug for Survey<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Survey")
    }
}

/// Damages reported, at most. A damaged tree may have as many damages as pages.
const DAMAGES_MAX: usize = 1000;

/// The place of a node, as its parent says.
struct Place {
    page: PageId,
    level: Option<u8>,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

impl Place {
    /// Returns the place of the `index`th child.
    fn of_child(node: Node<'_>, index: usize) -> Place {
        Place {
            page: node.child(index),
            level: Some(node.level().saturating_sub(1)),
            lower: if index == 0 { node.lower() } else { node.key(index - 1) },
            upper: if index < node.count() { Some(node.key(index)) } else { node.upper() },
        }
    }

    fn wrong(&self, what: &str) -> Error {
        Error::corruption(format!("{:?}: {what}", self.page))
    }

    /// Checks that the node matches the place. If `is_checked` its bytes are sound already.
    fn check(&self, node: Node<'_>, is_checked: bool) -> Result<()> {
        if !is_checked {
            check_page(node.page).map_err(|what| self.wrong(what))?;
        }
        if self.level.is_some_and(|level| level != node.level()) {
            return Err(self.wrong("level does not fit the parent's"));
        }
        if node.lower() != self.lower || node.upper() != self.upper {
            return Err(self.wrong("fences are not what the parent says"));
        }
        Ok(())
    }
}

/// The state of a survey.
struct Census<'a> {
    tree: &'a Tree,
    survey: &'a Survey<'a>,
    summary: TreeSummary,
    leaves: u64,
    leaf_bytes_used: u64,
    damages: Vec<PageDamage>,
    /// The nodes of the last descent, from the root down: their bytes need not be checked again.
    checked: Vec<(PageId, Version)>,
}

impl Census<'_> {
    fn is_over(&self) -> bool {
        self.damages.len() >= DAMAGES_MAX || !(self.survey.should_continue)()
    }

    /// Notes a damage. Returns where the walk continues after it.
    fn damaged(&mut self, place: Place, error: Error) -> Result<Option<Vec<u8>>, Interrupt> {
        // On a full disk memory may be short because no page can leave it.
        if matches!(error.kind(), ErrorKind::OutOfMemory | ErrorKind::OutOfSpace) {
            return Err(error.into());
        }
        let Place { page, lower, upper, .. } = place;
        self.damages.push(PageDamage { page, lower, upper: upper.clone(), error });
        Ok(upper)
    }

    /// Descends to the leaf that covers `from`. Checks the nodes on the way and the leaf's entries
    /// from `from` on. Returns where the walk continues.
    fn check_path(&mut self, from: &[u8]) -> Result<Option<Vec<u8>>, Interrupt> {
        let tree = self.tree;
        let mut place = Place { page: tree.root, level: None, lower: Vec::new(), upper: None };
        let mut guard = match tree.pool.optimistic(tree.root) {
            Ok(guard) => guard,
            Err(error) => return self.damaged(place, error),
        };
        for depth in 0.. {
            let latched = guard.upgrade_shared()?;
            let node = Node::new(latched.bytes());
            let name = (place.page, guard.version());
            if let Err(error) = place.check(node, self.checked.get(depth) == Some(&name)) {
                return self.damaged(place, error);
            }
            self.checked.truncate(depth);
            self.checked.push(name);
            // A node in two places has wrong fences in one of them.
            let is_new = self.summary.page_ids.insert(place.page);
            self.summary.depth = self.summary.depth.max(1 + u32::from(node.level()));
            if node.is_leaf() {
                if is_new {
                    self.leaves += 1;
                    let unused = SLOTS_OFFSET + node.gap() + node.garbage();
                    self.leaf_bytes_used += (node.page.len() - unused) as u64;
                }
                return match self.check_leaf(node, from) {
                    Ok(next) => Ok(next),
                    Err(error) => self.damaged(place, error),
                };
            }
            let child = Place::of_child(node, node.child_of(from).0);
            // The child may have to be brought in.
            drop(latched);
            let found = tree.pool.optimistic(child.page);
            guard.validate()?;
            (guard, place) = match found {
                Ok(found) => (found, child),
                Err(error) => return self.damaged(child, error),
            };
        }
        unreachable!("the level falls with each step")
    }

    /// Checks the entries of a latched leaf from `from` on, up to the first large value, so that
    /// other threads can have the leaf. Returns where the walk continues.
    fn check_leaf(&mut self, leaf: Node<'_>, from: &[u8]) -> Result<Option<Vec<u8>>> {
        let summary = &mut self.summary;
        for index in leaf.search(from).0..leaf.count() {
            summary.entries += 1;
            let meta = leaf.entry(index).meta;
            if meta.stamp != 0 {
                (self.survey.replaced)(meta.stamp, &mut summary.replaced);
            }
            if let Some(reference) = reference_at(leaf, index)? {
                let mut pages = HashSet::new();
                // As long as the leaf is latched its entry keeps the value.
                overflow::check(&self.tree.pool, &reference, &mut pages)?;
                summary.large_values += 1;
                summary.page_ids.extend(pages);
                if index + 1 < leaf.count() {
                    return Ok(Some(leaf.key(index + 1)));
                }
            }
        }
        Ok(leaf.upper())
    }
}

/// Called with a page, the lowest key that it covers, and the first key above.
pub type VisitPage<'a> = &'a mut dyn FnMut(PageId, &[u8], Option<&[u8]>);

impl Tree {
    /// Checks every page of the tree and how the pages fit together.
    ///
    /// # Errors
    /// [`crate::base::ErrorKind::Corruption`] naming the first wrong page, or a page cannot be
    /// read.
    #[cfg(feature = "internals")]
    pub fn check_invariants(&self) -> Result<TreeSummary> {
        let (summary, damages) = self.survey(&Survey { should_continue: &|| true, replaced: &|_, _| () })?;
        damages.into_iter().next().map_or(Ok(summary), |damage| Err(damage.error))
    }

    /// Checks every page that can be reached, whatever is wrong with other pages. The tree may be
    /// in use; entries that change meanwhile may be counted twice or not at all.
    ///
    /// # Errors
    /// No memory to bring a page in.
    pub fn survey(&self, survey: &Survey<'_>) -> Result<(TreeSummary, Vec<PageDamage>)> {
        let (summary, damages, checked) = (TreeSummary::default(), Vec::new(), Vec::new());
        let mut census =
            Census { tree: self, survey, summary, leaves: 0, leaf_bytes_used: 0, damages, checked };
        // The survey ends at the last key of now: keys may be appended faster than they can be
        // checked.
        let last = self.retry(|| last_key(self))?;
        let is_within = |from: &Vec<u8>| last.as_ref().is_none_or(|last| from <= last);
        let mut next = Some(Vec::new());
        while let Some(from) = next.filter(|from| is_within(from) && !census.is_over()) {
            next = self.retry(|| census.check_path(&from))?;
            debug_assert!(next.as_ref().is_none_or(|next| *next > from), "every descent gets further");
        }
        let Census { mut summary, leaves, leaf_bytes_used, damages, .. } = census;
        let capacity = leaves * (self.pool.page_bytes() - SLOTS_OFFSET) as u64;
        debug_assert!(leaf_bytes_used <= capacity, "a leaf's fill does not exceed the page");
        summary.leaf_fill = leaf_bytes_used as f64 / capacity.max(1) as f64;
        summary.pages = summary.page_ids.len() as u64;
        Ok((summary, damages))
    }

    /// Calls `visit` with every page from `page` down, including pages of large values. No thread
    /// may be changing the tree, but another may be freeing it.
    ///
    /// # Errors
    /// A page cannot be read.
    pub fn visit_all(&self, page: PageId, visit: &mut dyn FnMut(PageId)) -> Result<()> {
        let mut rest = vec![(page, u8::MAX)];
        while let Some((page, level_max)) = rest.pop() {
            visit(page);
            let (below, large) = look_below(&self.pool, page, level_max)?;
            rest.extend(below.into_iter().filter_map(|child| Some((child.page, child.level?))));
            for reference in large {
                overflow::visit_pages(&self.pool, LargeSubtree::whole(&self.pool, &reference), visit)?;
            }
        }
        Ok(())
    }

    /// Calls `visit` with every page from `page` down, with the keys that it covers; leaves are not
    /// read. Pages below a page that cannot be read are left out.
    ///
    /// # Errors
    /// The first page that cannot be read.
    pub fn visit_pages(&self, page: PageId, visit: VisitPage<'_>) -> Result<()> {
        visit(page, &[], None);
        let mut result = Ok(());
        let mut rest = vec![(page, u8::MAX)];
        while let Some((page, level_max)) = rest.pop() {
            match look_below(&self.pool, page, level_max) {
                Ok((below, _)) => {
                    for child in below {
                        visit(child.page, &child.lower, child.upper.as_deref());
                        rest.extend(child.level.filter(|level| *level > 0).map(|level| (child.page, level)));
                    }
                }
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }
}

/// Returns the last key, or the lower fence of an empty last leaf; `None` if the tree is damaged
/// there.
fn last_key(tree: &Tree) -> Result<Option<Vec<u8>>, Interrupt> {
    let guard = match tree.descend(Target::Last, 0) {
        Ok(last) => last.guard,
        Err(Interrupt::Failed(_)) => return Ok(None),
        Err(interrupt) => return Err(interrupt),
    };
    let latched = guard.upgrade_shared()?;
    let leaf = Node::new(latched.bytes());
    if check_page(leaf.page).is_err() {
        return Ok(None);
    }
    let last = leaf.count().checked_sub(1);
    Ok(Some(last.map_or_else(|| leaf.lower(), |last| leaf.key(last))))
}

/// Returns the children, or the large values, that a node of at most `level_max` refers to.
fn look_below(pool: &Pool, page: PageId, level_max: u8) -> Result<(Vec<Place>, Vec<LargeReference>)> {
    let guard = pool.shared(page)?;
    let node = Node::new(guard.bytes());
    let wrong = |what: &str| Error::corruption(format!("{page:?}: {what}"));
    check_page(guard.bytes()).map_err(wrong)?;
    if node.level() > level_max {
        return Err(wrong("level does not fit the parent's"));
    }
    let children = if node.is_leaf() { 0 } else { node.count() + 1 };
    let below = (0..children).map(|index| Place::of_child(node, index)).collect();
    Ok((below, references(node)?))
}
