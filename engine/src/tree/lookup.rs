//! Reads single entries.

use super::descent::Target;
use super::handle::Tree;
use super::node::{EntryMeta, Node};
use super::retry::{WhenStarved, retry_after};
use crate::base::{PageId, Result};
use crate::buffer::{Interrupt, Pool, Version};

/// A leaf that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadLeaf {
    /// The page.
    pub page: PageId,
    /// The version of its bytes.
    pub version: Version,
}

impl ReadLeaf {
    /// Returns whether the leaf is in memory, not latched, and still has the bytes that were read.
    #[inline]
    #[must_use]
    pub fn is_current(&self, pool: &Pool) -> bool {
        pool.has_version(self.page, self.version)
    }
}

impl Tree {
    /// Fills `value` with the value of the entry at `key`, and returns the entry's meta. Holds and
    /// writes nothing shared.
    ///
    /// # Errors
    /// A page cannot be read.
    #[cfg(feature = "internals")]
    #[inline]
    pub fn lookup(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<EntryMeta>> {
        self.lookup_in_leaf(key, value).map(|(_, found)| found)
    }

    /// As [`Tree::lookup`]; also returns the leaf that covers the key, as it was read.
    ///
    /// # Errors
    /// As [`Tree::lookup`].
    #[inline]
    pub fn lookup_in_leaf(&self, key: &[u8], value: &mut Vec<u8>) -> Result<(ReadLeaf, Option<EntryMeta>)> {
        match self.try_lookup(key, value) {
            Ok(found) => Ok(found),
            Err(interrupt) => self.lookup_again(interrupt, key, value),
        }
    }

    #[cold]
    fn lookup_again(
        &self,
        interrupt: Interrupt,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<(ReadLeaf, Option<EntryMeta>)> {
        retry_after(&self.pool, interrupt, WhenStarved::UseReserve, || self.try_lookup(key, value))
    }

    #[inline]
    fn try_lookup(
        &self,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<(ReadLeaf, Option<EntryMeta>), Interrupt> {
        value.clear();
        let leaf = self.descend(Target::At(key), 0)?.guard;
        let node = Node::new(leaf.bytes());
        let (index, found) = node.search(key);
        let meta = found.then(|| {
            let entry = node.entry(index);
            node.page.append_to(entry.value_offset(), entry.value_len, value);
            entry.meta
        });
        leaf.validate()?;
        Ok((ReadLeaf { page: leaf.page_id(), version: leaf.version() }, meta))
    }
}
