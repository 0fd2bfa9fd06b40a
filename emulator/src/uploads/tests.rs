//! Unit tests of multipart uploads.

use super::*;

const BIG: usize = PART_BYTES_MIN;

#[test]
fn parts_become_one_body_in_their_order() {
    let uploads = Uploads::default();
    let id = uploads.begin("b", "k");
    let second = uploads.add("b", "k", &id, 2, Bytes::from_static(b"end")).unwrap();
    let first = uploads.add("b", "k", &id, 1, vec![7; BIG].into()).unwrap();
    let body = uploads.body("b", "k", &id, &[(1, first), (2, second)]).unwrap();
    assert_eq!(body.len(), BIG + 3);
    assert!(body.ends_with(b"end"));
    uploads.end("b", "k", &id).unwrap();
    assert_eq!(uploads.end("b", "k", &id).unwrap_err().code, "NoSuchUpload");
}

#[test]
fn wrong_parts_are_refused() {
    let uploads = Uploads::default();
    let id = uploads.begin("b", "k");
    let small = uploads.add("b", "k", &id, 1, Bytes::from_static(b"small")).unwrap();
    let end = uploads.add("b", "k", &id, 2, Bytes::from_static(b"end")).unwrap();
    let code = |parts: &[(i32, String)]| uploads.body("b", "k", &id, parts).unwrap_err().code;
    assert_eq!(code(&[(1, small.clone()), (2, end.clone())]), "EntityTooSmall");
    assert_eq!(code(&[(2, end.clone()), (1, small.clone())]), "InvalidPartOrder");
    assert_eq!(code(&[(1, end)]), "InvalidPart");
    assert_eq!(code(&[]), "InvalidPartOrder");
    assert_eq!(uploads.add("b", "other", &id, 1, Bytes::new()).unwrap_err().code, "NoSuchUpload");
    assert_eq!(uploads.add("b", "k", &id, 0, Bytes::new()).unwrap_err().code, "InvalidArgument");
}
