//! What are segments called?

use super::DIRECTORY;
use crate::base::{Error, Location, Result, SegmentId};
use crate::device::Storage;

/// Numbers are below this: counting from 1 nobody gets there, and no arithmetic on those that are found overflows.
const LIMIT: u64 = 1 << 62;

/// The path of a segment.
pub(super) fn path_of(id: SegmentId) -> String {
    format!("{DIRECTORY}/{}", name_of(id))
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
pub(super) fn check_new(id: SegmentId) -> Result<()> {
    check(id, &name_of(id))
}

fn check(id: SegmentId, name: &str) -> Result<()> {
    if id.0 < LIMIT {
        return Ok(());
    }
    let what = "no log segment gets so high a number: a file was renamed, or is not of this database";
    Err(Error::corruption(what).at(Location::File { path: format!("{DIRECTORY}/{name}"), offset: 0 }))
}

/// A number that no segment has.
///
/// # Errors
/// As [`id_of`]; I/O.
pub fn next_id(storage: &dyn Storage) -> Result<SegmentId> {
    let mut next = SegmentId(1);
    for name in storage.list(DIRECTORY)? {
        if let Some(id) = id_of(&name)? {
            next = next.max(SegmentId(id.0 + 1));
        }
    }
    check_new(next)?;
    Ok(next)
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;
    use crate::base::ErrorKind;
    use crate::device::OpenMode;
    use crate::device::memory::MemoryStorage;

    #[test]
    fn a_number_that_cannot_be_counted_on_from_is_refused_with_the_name_of_the_file() {
        assert_eq!(id_of("00000007.seg").expect("a segment"), Some(SegmentId(7)));
        assert_eq!(id_of("123456789.seg").expect("a segment"), Some(SegmentId(123_456_789)));
        for other in ["7", "x.seg", ".seg", "99999999999999999999.seg"] {
            assert_eq!(id_of(other).expect("no segment's"), None, "{other}");
        }
        let highest = format!("{}.seg", u64::MAX);
        for name in [highest.as_str(), "4611686018427387904.seg"] {
            let error = id_of(name).expect_err("too high");
            assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
            assert!(error.to_string().contains(&format!("log/{name}")), "{error}");
        }
        let storage = MemoryStorage::new();
        assert_eq!(next_id(&storage).expect("no file"), SegmentId(1));
        let make = |id| {
            let mode = OpenMode { create: true, read_only: false, direct: false };
            storage.open(&path_of(SegmentId(id)), mode).expect("memory");
        };
        make(3);
        make(LIMIT - 2);
        assert_eq!(next_id(&storage).expect("the last one"), SegmentId(LIMIT - 1));
        make(LIMIT - 1);
        let error = next_id(&storage).expect_err("a file that the next open would refuse");
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    }

    #[test]
    fn only_the_name_that_is_given_to_a_segment_is_one() {
        for id in [0, 1, 99_999_999, 100_000_000] {
            let name = name_of(SegmentId(id));
            assert_eq!(id_of(&name).expect("a segment"), Some(SegmentId(id)), "{name}");
        }
        for name in ["1.seg", "+0000001.seg", "000000001.seg", "0000000x.seg", "00000001"] {
            assert_eq!(id_of(name).expect("no segment's"), None, "{name}");
        }
    }
}
