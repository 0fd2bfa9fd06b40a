//! Visits and checks all pages of a large value.

use super::format::{
    CONTENT_OFFSET, LargeReference, Shape, check_page, children, is_at, look, misplaced, root_of,
};
use super::free::LargeSubtree;
use crate::base::checksum::crc_append;
use crate::base::{Error, PageId, Result};
use crate::buffer::Pool;
use std::collections::HashSet;

/// Calls `visit` with every page of a value, or of a part of it, which must not be freed meanwhile.
/// Content pages are not read.
///
/// # Errors
/// `Corruption` for an index page that is not what belongs there; I/O.
pub fn visit_pages(pool: &Pool, subtree: LargeSubtree, visit: &mut dyn FnMut(PageId)) -> Result<()> {
    let LargeSubtree { shape, top } = subtree;
    let mut rest = vec![top];
    while let Some(place) = rest.pop() {
        visit(place.page);
        if place.level > 0 {
            rest.extend(look(pool, shape, place, |page| children(page, shape, place))?);
        }
    }
    Ok(())
}

/// Checks every page of a value and its checksum, and adds its pages to `pages`. The value must not
/// be freed meanwhile.
///
/// # Errors
/// `Corruption`: a page is not what belongs there, or belongs to something else as well; I/O.
pub fn check(pool: &Pool, reference: &LargeReference, pages: &mut HashSet<PageId>) -> Result<()> {
    let shape = Shape::new(pool, reference.len);
    let mut crc = 0;
    let mut rest = vec![root_of(shape, reference)];
    while let Some(place) = rest.pop() {
        if !pages.insert(place.page) {
            return Err(Error::corruption(format!("{} is in use twice", place.page)));
        }
        let guard = pool.shared(place.page)?;
        check_page(guard.bytes()).map_err(|what| Error::corruption(format!("{}: {what}", place.page)))?;
        if !is_at(guard.bytes(), shape, place) {
            return Err(misplaced(place.page));
        }
        if place.level > 0 {
            rest.extend(children(guard.bytes(), shape, place).into_iter().rev());
        } else {
            let mut content = Vec::new();
            guard.bytes().append_to(CONTENT_OFFSET, shape.used(0, place.first) as usize, &mut content);
            crc = crc_append(crc, &content);
        }
    }
    if crc != reference.crc {
        return Err(Error::corruption(format!("the large value at {} has a wrong checksum", reference.root)));
    }
    Ok(())
}
