//! Checking a whole tree.

use super::image::problem;
use super::node::{Node, SLOTS};
use super::{DEPTH_MAX, Tree, corrupt};
use crate::base::{PageId, Result};
use std::collections::HashSet;

/// What a check counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TreeSummary {
    /// Pages.
    pub pages: u64,
    /// Entries, tombstones included.
    pub entries: u64,
    /// Levels.
    pub depth: u64,
    /// Share of the leaves' bytes that holds entries.
    pub leaf_fill: f64,
    leaves: u64,
    used_bytes: u64,
    /// Ids of the pages, for the search for leaks.
    pub page_ids: HashSet<PageId>,
}

impl Tree {
    /// Checks that every page is a valid node, covers exactly the range its parent gives it, and is there once. May run
    /// beside readers and writers; structure changes wait.
    ///
    /// # Errors
    /// `Corruption` that names the page; I/O.
    pub fn check_invariants(&self) -> Result<TreeSummary> {
        let mut summary = TreeSummary::default();
        self.check_below(self.root, Vec::new(), None, 1, &mut summary)?;
        let bytes = summary.leaves * (self.pool.page_bytes() - SLOTS) as u64;
        summary.leaf_fill = summary.used_bytes as f64 / bytes.max(1) as f64;
        summary.pages = summary.page_ids.len() as u64;
        Ok(summary)
    }

    fn check_below(
        &self,
        page: PageId,
        lower: Vec<u8>,
        upper: Option<Vec<u8>>,
        depth: usize,
        summary: &mut TreeSummary,
    ) -> Result<()> {
        if depth > DEPTH_MAX || !summary.page_ids.insert(page) {
            return Err(corrupt(page, "a page is in a tree twice"));
        }
        let guard = self.pool.shared(page)?;
        let node = Node::new(guard.bytes());
        if let Some(what) = problem(node) {
            return Err(corrupt(page, what));
        }
        if node.lower() != lower || node.upper() != upper {
            return Err(corrupt(page, "a page is for another range of keys than its parent says"));
        }
        summary.depth = summary.depth.max(depth as u64);
        if node.is_leaf() {
            summary.leaves += 1;
            summary.entries += node.count() as u64;
            summary.used_bytes +=
                (node.heap_end() - node.heap_start() - node.dead_bytes() + 8 * node.count()) as u64;
            return Ok(());
        }
        let mut from = lower;
        for index in 0..=node.count() {
            let to = if index < node.count() { Some(node.key(index)) } else { upper.clone() };
            self.check_below(node.child(index), from, to.clone(), depth + 1, summary)?;
            from = to.unwrap_or_default();
        }
        Ok(())
    }
}
