//! Freeing the pages of a large value.

use super::format::{LargeReference, Place, Shape, children, is_at, look, misplaced, root_of};
use crate::base::planted::{self, Bug};
use crate::base::{ErrorKind, PageId, Result};
use crate::buffer::{EmergencyReserve, ExclusiveGuard, Pool};

/// Frees the pages of a value to which nothing refers.
///
/// # Errors
/// A page is not what belongs there, or cannot be read: it and those below it stay allocated.
pub fn free(pool: &Pool, reference: &LargeReference) -> Result<()> {
    free_by(pool, LargeSubtree::whole(pool, reference), &mut |guard| pool.free(guard))
}

/// [`free`] for a value, or a part of it, with `release` freeing each page.
///
/// # Errors
/// As [`free`].
pub fn free_by(
    pool: &Pool,
    subtree: LargeSubtree,
    release: &mut dyn FnMut(ExclusiveGuard<'_>),
) -> Result<()> {
    // Each page that is brought in is freed at once.
    let _reserve = EmergencyReserve::begin();
    let mut failed = Ok(());
    // From the top: a damaged page that refers to itself, or up, then leads to a page that does not
    // exist.
    let mut rest = vec![subtree];
    while let Some(subtree) = rest.pop() {
        match subtree.free_top(pool, release) {
            Ok(below) => rest.extend(below),
            Err(error) => failed = failed.and(Err(error)),
        }
    }
    failed
}

/// A page of a large value, with all below it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LargeSubtree {
    pub(super) shape: Shape,
    pub(super) top: Place,
}

impl LargeSubtree {
    /// A whole value.
    #[must_use]
    pub fn whole(pool: &Pool, reference: &LargeReference) -> LargeSubtree {
        let shape = Shape::new(pool, reference.len);
        LargeSubtree { shape, top: root_of(shape, reference) }
    }

    /// Has `release` free the page at the top, and returns what was below it.
    ///
    /// # Errors
    /// As [`free`]: nothing was freed.
    pub fn free_top(
        self,
        pool: &Pool,
        release: &mut dyn FnMut(ExclusiveGuard<'_>),
    ) -> Result<Vec<LargeSubtree>> {
        let LargeSubtree { shape, top } = self;
        let guard = pool.exclusive(top.page)?;
        if !is_at(guard.bytes(), shape, top) {
            return Err(misplaced(top.page));
        }
        let below = if top.level > 0 { children(guard.bytes(), shape, top) } else { Vec::new() };
        // Subtrees are freed from the last to the first, so the beginning of the value comes last.
        let is_last = top.level == 0 && top.first == 0;
        if !(is_last && planted::is(Bug::OverflowPageLeaked)) {
            release(guard);
        }
        Ok(below.into_iter().map(|top| LargeSubtree { shape, top }).collect())
    }
}

/// Frees a value as [`free`], but loses no page that cannot be read now. The inner result names the
/// damage. Pages that could not be read are appended to `left`; nothing else refers to them.
///
/// # Errors
/// An index page cannot be read, or there is no memory for it: nothing was freed.
pub fn free_or_keep(pool: &Pool, reference: &LargeReference, left: &mut Vec<PageId>) -> Result<Result<()>> {
    let shape = Shape::new(pool, reference.len);
    // The places of all pages first: pages below an index page that turns out to be unreadable
    // could not be found when those above it are free. At most 6 MiB for the longest value, while
    // it is freed.
    let mut all = vec![root_of(shape, reference)];
    let mut next = 0;
    while let Some(place) = all.get(next).copied() {
        next += 1;
        if place.level > 0 {
            match look(pool, shape, place, |page| children(page, shape, place)) {
                Ok(below) => all.extend(below),
                Err(error) if error.kind() == ErrorKind::Corruption => return Ok(free(pool, reference)),
                Err(error) => return Err(error),
            }
        }
    }
    let mut failed = Ok(());
    for top in all {
        // The index page that names it is sound, so its content does not have to be read.
        if top.level == 0 && !planted::is(Bug::OverflowPageLeaked) && pool.free_evicted(top.page) {
            continue;
        }
        match (LargeSubtree { shape, top }).free_top(pool, &mut |guard| pool.free(guard)) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Corruption => failed = failed.and(Err(error)),
            Err(_) => left.push(top.page),
        }
    }
    Ok(failed)
}
