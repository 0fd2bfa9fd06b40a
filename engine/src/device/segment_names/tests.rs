//! Names of segment files.

use super::*;
use crate::base::ErrorKind;
use crate::device::memory::MemoryStorage;
use crate::device::storage::Roles;

#[test]
fn a_number_beyond_the_limit_is_refused_with_the_file_name() {
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
    assert_eq!(next_id(storage.segments()).expect("no file"), SegmentId(1));
    let make = |id| {
        storage.segments().create(SegmentId(id)).expect("memory");
    };
    make(3);
    make(LIMIT - 2);
    assert_eq!(next_id(storage.segments()).expect("the last one"), SegmentId(LIMIT - 1));
    make(LIMIT - 1);
    let error = next_id(storage.segments()).expect_err("a file that the next open would refuse");
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
