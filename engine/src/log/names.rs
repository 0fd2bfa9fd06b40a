//! What are segments called?

use super::DIRECTORY;
use crate::base::{Result, SegmentId};
use crate::device::Storage;

/// The path of a segment.
pub(super) fn path_of(id: SegmentId) -> String {
    format!("{DIRECTORY}/{}", name_of(id))
}

/// The segment number in a file name, if it is one.
#[must_use]
pub fn id_of(name: &str) -> Option<SegmentId> {
    let id = SegmentId(name.strip_suffix(".seg")?.parse().ok()?);
    // Not another way to write the number: the file would not be found.
    (name == name_of(id)).then_some(id)
}

fn name_of(id: SegmentId) -> String {
    format!("{:08}.seg", id.0)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_that_is_given_to_a_segment_is_one() {
        for id in [0, 1, 99_999_999, 100_000_000] {
            let name = name_of(SegmentId(id));
            assert_eq!(id_of(&name), Some(SegmentId(id)), "{name}");
        }
        for name in ["1.seg", "+0000001.seg", "000000001.seg", "0000000x.seg", "00000001"] {
            assert_eq!(id_of(name), None, "{name}");
        }
    }
}
