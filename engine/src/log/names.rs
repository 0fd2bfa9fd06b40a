//! What are segments called?

use super::DIRECTORY;
use crate::base::{Result, SegmentId};
use crate::device::Storage;

/// The path of a segment.
pub(super) fn path_of(id: SegmentId) -> String {
    format!("{DIRECTORY}/{:08}.seg", id.0)
}

/// The segment number in a file name, if it is one.
#[must_use]
pub fn id_of(name: &str) -> Option<SegmentId> {
    name.strip_suffix(".seg")?.parse().ok().map(SegmentId)
}

/// A number that no segment has.
///
/// # Errors
/// I/O.
pub fn next_id(storage: &dyn Storage) -> Result<SegmentId> {
    let names = storage.list(DIRECTORY)?;
    let most = names.iter().filter_map(|name| id_of(name)).max();
    Ok(SegmentId(most.map_or(1, |most| most.0 + 1)))
}
