//! Unit tests of `pins`.

use super::*;
use crate::device::objects::body::Run;

fn object(epoch: u64, number: u64) -> ObjectId {
    ObjectId { epoch: WriterEpoch(epoch), number }
}

#[test]
fn the_name_of_a_pin_is_read_as_it_was_made() {
    let pin = PinName { newest: object(7, 12345), expires: 1_800_000_000, random: 0x0123_4567_89ab_cdef };
    assert_eq!(pin.name(), "pins/000007-00012345-1800000000-0123456789abcdef");
    assert_eq!(PinName::parse(&pin.name()), Some(pin));
    for other in ["pins/", "pins/x", "pins/1-2-3", "pins/1-2-3-4-5", "pages/1-2-3-4", "pins/1-2-x-4"] {
        assert_eq!(PinName::parse(other), None, "{other}");
    }
}

#[test]
fn pins_keep_what_is_not_newer_than_they_are() {
    let name = |epoch, number, expires| PinName { newest: object(epoch, number), expires, random: 1 }.name();
    let found = |names: &[String]| FoundPins::of(names.iter().map(String::as_str));
    assert!(!found(&[]).keep(object(0, 0)));
    let two = found(&[name(3, 9, u64::MAX), name(2, 50, u64::MAX)]);
    assert!(two.expired.is_empty());
    for (kept, object) in
        [(true, object(2, 51)), (true, object(3, 9)), (false, object(3, 10)), (false, object(4, 1))]
    {
        assert_eq!(two.keep(object), kept, "{object:?}");
    }
    let expired = found(&[name(9, 9, 1)]);
    assert_eq!(expired.expired, [name(9, 9, 1)]);
    assert!(expired.keep(object(9, 9)), "until a list does not have it");
    assert!(found(&["pins/of a newer version".into()]).keep(object(99, 99)));
}

#[test]
fn a_manifest_names_all_of_another_by_object() {
    let run = |start, id| Run { start, len: 10, object: id, offset: 0 };
    let body = |runs: &[Run]| Body { identity: 5, runs: runs.to_vec(), ..Body::default() };
    let older = body(&[run(0, object(1, 1)), run(10, object(1, 2))]);
    assert!(names_all(&body(&[run(70, object(1, 2)), run(80, object(1, 1)), run(90, object(2, 1))]), &older));
    assert!(!names_all(&body(&[run(0, object(1, 1)), run(10, object(1, 3))]), &older));
    assert!(!names_all(&Body { identity: 6, ..older.clone() }, &older));
}
