//! Freeing the pages of a large value.

use super::{LargeReference, Place, Shape, children, is_at, look, misplaced, root_of};
use crate::base::planted::{self, Bug};
use crate::base::{ErrorKind, PageId, Result};
use crate::buffer::{ExclusiveGuard, Pool};

/// Frees the pages of a value that nobody refers to.
///
/// # Errors
/// A page is not what belongs there, or cannot be read: it and those below it stay allocated.
pub fn free(pool: &Pool, reference: &LargeReference) -> Result<()> {
    free_by(pool, reference, &mut |guard| pool.free(guard))
}

/// [`free`], with `release` freeing each page.
///
/// # Errors
/// The same.
pub fn free_by(
    pool: &Pool,
    reference: &LargeReference,
    release: &mut dyn FnMut(ExclusiveGuard<'_>),
) -> Result<()> {
    let shape = Shape::new(pool, reference.len);
    let mut failed = Ok(());
    // From the top: a damaged page that refers to itself, or up, meets a page that is not there.
    let mut rest = vec![root_of(shape, reference)];
    while let Some(place) = rest.pop() {
        match take(pool, shape, place) {
            Ok(_) if planted::is(Bug::OverflowPageLeaked) && rest.is_empty() => {}
            Ok((below, guard)) => {
                release(guard);
                rest.extend(below);
            }
            Err(error) => failed = failed.and(Err(error)),
        }
    }
    failed
}

/// [`free`] for a value of which nothing may be lost because a page cannot be read now. The inner result says what was damaged; pages
/// that could not be read are appended to `left`, and are nobody's else.
///
/// # Errors
/// An index page cannot be read, or there is no memory for it: nothing was freed.
pub fn free_or_keep(pool: &Pool, reference: &LargeReference, left: &mut Vec<PageId>) -> Result<Result<()>> {
    let shape = Shape::new(pool, reference.len);
    // All of them first: nobody could find what is below an index page that turns out to be unreadable when those above it are free. At most 6 MiB
    // for the longest value, while it is freed.
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
    let (mut failed, last) = (Ok(()), all.len() - 1);
    for (n, place) in all.into_iter().enumerate() {
        match take(pool, shape, place) {
            Ok(_) if planted::is(Bug::OverflowPageLeaked) && n == last => {}
            Ok((_, guard)) => pool.free(guard),
            Err(error) if error.kind() == ErrorKind::Corruption => failed = failed.and(Err(error)),
            Err(_) => left.push(place.page),
        }
    }
    Ok(failed)
}

fn take(pool: &Pool, shape: Shape, place: Place) -> Result<(Vec<Place>, ExclusiveGuard<'_>)> {
    let guard = pool.exclusive(place.page)?;
    if !is_at(guard.bytes(), shape, place) {
        return Err(misplaced(place.page));
    }
    let below = if place.level > 0 { children(guard.bytes(), shape, place) } else { Vec::new() };
    Ok((below, guard))
}
