//! What are segments called?

use super::storage::Segments;
use crate::base::{Error, Location, Result, SegmentId};

/// The directory of the segments.
pub const LOG_DIRECTORY: &str = "log";

/// Numbers of segments are below this. Counting from 1 never gets there, and arithmetic on numbers
/// that are found cannot overflow.
const LIMIT: u64 = 1 << 62;

/// The path of a segment.
#[must_use]
pub fn path_of(id: SegmentId) -> String {
    format!("{LOG_DIRECTORY}/{}", name_of(id))
}

/// The segment number in a file name, if it is one.
///
/// # Errors
/// `Corruption` that names the file if no segment has such a number.
pub fn id_of(name: &str) -> Result<Option<SegmentId>> {
    let Some(id) = name.strip_suffix(".seg").and_then(|number| number.parse().ok()).map(SegmentId) else {
        return Ok(None);
    };
    // Not another way to write the number: the file would not be found.
    if name != name_of(id) {
        return Ok(None);
    }
    check(id, name)?;
    Ok(Some(id))
}

fn name_of(id: SegmentId) -> String {
    format!("{:08}.seg", id.0)
}

/// A number that a segment is about to get.
///
/// # Errors
/// As [`id_of`].
pub fn check_new(id: SegmentId) -> Result<()> {
    check(id, &name_of(id))
}

fn check(id: SegmentId, name: &str) -> Result<()> {
    if id.0 < LIMIT {
        return Ok(());
    }
    let what = "no log segment gets so high a number: a file was renamed, or is not of this database";
    Err(Error::corruption(what).at(Location::File { path: format!("{LOG_DIRECTORY}/{name}"), offset: 0 }))
}

/// A number that no segment has.
///
/// # Errors
/// As [`id_of`]; I/O.
pub fn next_id(segments: &dyn Segments) -> Result<SegmentId> {
    let next = segments.list()?.into_iter().map(|id| SegmentId(id.0 + 1)).max().unwrap_or(SegmentId(1));
    check_new(next)?;
    Ok(next)
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
