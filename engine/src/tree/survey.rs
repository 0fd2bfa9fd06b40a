//! Looking at every page of a tree, beside those who use it.
//!
//! ```text
//!   from ──descend──▶ leaf that covers it ──check──▶ from = its upper fence, and so on to the last leaf
//!             └─ nodes on the way are checked if they are not those of the last descent
//! ```
//!
//! 1. No latch is held while a page is brought in or a child is looked at: whoever changes the tree waits for the check of one page, or of one
//!    large value, for that of the leaf that has it.
//! 2. What is found wrong was wrong at one moment: a node counts only if its parent, unchanged, led to it (invariant 2 of [`super`]).
//! 3. A node that is part of the tree all the time is met. Its level and its lower fence never change (a split gives the right part a new page, a
//!    merge frees the right one), and when the walk comes to that fence the descent meets the node of each level that covers it. For the same reason
//!    a large value is met that is an entry's when the walk comes to its key.
//! 4. Every descent gets further, whatever is damaged: it meets only nodes that are what their parents say, and they cover the key.

use super::Tree;
use super::check::{check_page, reference_at, references};
use super::descent::Target;
use super::node::{Node, SLOTS_OFFSET};
use super::overflow::{self, LargeReference, LargeSubtree};
use crate::base::{Error, ErrorKind, PageId, Result};
use crate::buffer::{Interrupt, Version};
use std::collections::HashSet;

/// What [`Tree::survey`] has counted.
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
    /// Large values that entries had before changes that may be taken back; their pages are not counted.
    pub replaced: Vec<LargeReference>,
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

/// What a survey asks.
#[derive(Clone, Copy)]
pub struct Survey<'a> {
    /// Whether to go on.
    pub go_on: &'a dyn Fn() -> bool,
    /// Appends the large values that an entry with this stamp had before. Called with the leaf latched.
    pub replaced: &'a dyn Fn(u64, &mut Vec<LargeReference>),
}

impl std::fmt::Debug for Survey<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Survey")
    }
}

/// A damaged tree has as many damages as pages; more than this help nobody.
const DAMAGES_MAX: usize = 1000;

struct Census<'a> {
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
        self.damages.len() >= DAMAGES_MAX || !(self.survey.go_on)()
    }

    /// Notes a damage; the walk goes on behind it.
    fn damaged(&mut self, place: Place, error: Error) -> Result<Option<Vec<u8>>, Interrupt> {
        // On a full disk memory may be short because nothing can leave it.
        if matches!(error.kind(), ErrorKind::OutOfMemory | ErrorKind::OutOfSpace) {
            return Err(error.into());
        }
        let Place { page, lower, upper, .. } = place;
        self.damages.push(PageDamage { page, lower, upper: upper.clone(), error });
        Ok(upper)
    }
}

/// Where a node should be.
struct Place {
    page: PageId,
    level: Option<u8>,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

impl Place {
    /// Of the `index`th child.
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

    /// Whether the node, whose bytes are sound if `is_checked`, is what its parent says.
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

/// Told of a page, the lowest key that it is for, and the first key above it.
pub type VisitPage<'a> = &'a mut dyn FnMut(PageId, &[u8], Option<&[u8]>);

impl Tree {
    /// Checks every page of the tree and how the pages fit together.
    ///
    /// # Errors
    /// [`crate::base::ErrorKind::Corruption`] naming the first wrong page, or a page cannot be read.
    pub fn check_invariants(&self) -> Result<TreeSummary> {
        let (summary, damages) = self.survey(&Survey { go_on: &|| true, replaced: &|_, _| () })?;
        damages.into_iter().next().map_or(Ok(summary), |damage| Err(damage.error))
    }

    /// Checks every page that can be reached, whatever is wrong with others. The tree may be in use; what changes meanwhile may be counted
    /// twice or not at all.
    ///
    /// # Errors
    /// There is no memory to bring a page in.
    pub fn survey(&self, survey: &Survey<'_>) -> Result<(TreeSummary, Vec<PageDamage>)> {
        let (summary, damages, checked) = (TreeSummary::default(), Vec::new(), Vec::new());
        let mut census = Census { survey, summary, leaves: 0, leaf_bytes_used: 0, damages, checked };
        // What is appended meanwhile is not waited for: there may be more of it than can be checked.
        let last = self.retry(|| self.last_key())?;
        let is_within = |from: &Vec<u8>| last.as_ref().is_none_or(|last| from <= last);
        let mut next = Some(Vec::new());
        while let Some(from) = next.filter(|from| is_within(from) && !census.is_over()) {
            next = self.retry(|| self.check_path(&from, &mut census))?;
        }
        let Census { mut summary, leaves, leaf_bytes_used, damages, .. } = census;
        let capacity = leaves * (self.pool.page_bytes() - SLOTS_OFFSET) as u64;
        summary.leaf_fill = leaf_bytes_used as f64 / capacity.max(1) as f64;
        summary.pages = summary.page_ids.len() as u64;
        Ok((summary, damages))
    }

    /// The last key, or that with which an empty last leaf begins; not known of a tree that is damaged there.
    fn last_key(&self) -> Result<Option<Vec<u8>>, Interrupt> {
        let guard = match self.descend(Target::Last, 0) {
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

    /// Descends to the leaf that covers `from`, and checks what is on the way and the leaf's entries from there on. Returns where to go on.
    fn check_path(&self, from: &[u8], census: &mut Census<'_>) -> Result<Option<Vec<u8>>, Interrupt> {
        let mut place = Place { page: self.root, level: None, lower: Vec::new(), upper: None };
        let mut guard = match self.pool.optimistic(self.root) {
            Ok(guard) => guard,
            Err(error) => return census.damaged(place, error),
        };
        for depth in 0.. {
            let latched = guard.upgrade_shared()?;
            let node = Node::new(latched.bytes());
            let name = (place.page, guard.version());
            if let Err(error) = place.check(node, census.checked.get(depth) == Some(&name)) {
                return census.damaged(place, error);
            }
            census.checked.truncate(depth);
            census.checked.push(name);
            // In two places it would have wrong fences in one of them.
            let is_new = census.summary.page_ids.insert(place.page);
            census.summary.depth = census.summary.depth.max(1 + u32::from(node.level()));
            if node.is_leaf() {
                if is_new {
                    census.leaves += 1;
                    let unused = SLOTS_OFFSET + node.gap() + node.garbage();
                    census.leaf_bytes_used += (node.page.len() - unused) as u64;
                }
                return match self.check_leaf(node, from, census) {
                    Ok(next) => Ok(next),
                    Err(error) => census.damaged(place, error),
                };
            }
            let child = Place::of_child(node, node.child_index(from));
            // The child may have to be brought in.
            drop(latched);
            let found = self.pool.optimistic(child.page);
            guard.validate()?;
            (guard, place) = match found {
                Ok(found) => (found, child),
                Err(error) => return census.damaged(child, error),
            };
        }
        unreachable!("the level falls with each step")
    }

    /// Checks the entries of a latched leaf from `from` on; returns where to go on. Behind a large value others get the leaf.
    fn check_leaf(&self, leaf: Node<'_>, from: &[u8], census: &mut Census<'_>) -> Result<Option<Vec<u8>>> {
        let summary = &mut census.summary;
        for index in leaf.search(from).0..leaf.count() {
            summary.entries += 1;
            let meta = leaf.entry(index).meta;
            if meta.stamp != 0 {
                (census.survey.replaced)(meta.stamp, &mut summary.replaced);
            }
            if let Some(reference) = reference_at(leaf, index)? {
                let mut pages = HashSet::new();
                // As long as the leaf is latched its entry does not let go of the value.
                overflow::check(&self.pool, &reference, &mut pages)?;
                summary.large_values += 1;
                summary.page_ids.extend(pages);
                if index + 1 < leaf.count() {
                    return Ok(Some(leaf.key(index + 1)));
                }
            }
        }
        Ok(leaf.upper())
    }

    /// Tells `visit` of every page from `page` down, those of large values too. Nobody may be changing the tree, but it may be being freed.
    ///
    /// # Errors
    /// A page cannot be read.
    pub fn visit_all(&self, page: PageId, visit: &mut dyn FnMut(PageId)) -> Result<()> {
        let mut rest = vec![(page, u8::MAX)];
        while let Some((page, level_max)) = rest.pop() {
            visit(page);
            let (below, large) = self.look_below(page, level_max)?;
            rest.extend(below.into_iter().filter_map(|child| Some((child.page, child.level?))));
            for reference in large {
                overflow::visit_pages(&self.pool, LargeSubtree::whole(&self.pool, &reference), visit)?;
            }
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
        let mut result = Ok(());
        let mut rest = vec![(page, u8::MAX)];
        while let Some((page, level_max)) = rest.pop() {
            match self.look_below(page, level_max) {
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

    /// What a node of at most `level_max` refers to: children, or large values.
    fn look_below(&self, page: PageId, level_max: u8) -> Result<(Vec<Place>, Vec<LargeReference>)> {
        let guard = self.pool.shared(page)?;
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
}
