//! Unit tests of `body`.

use super::*;

fn body() -> Body {
    let object = |epoch, number| ObjectId { epoch: WriterEpoch(epoch), number };
    Body {
        identity: 0x0123_4567_89ab_cdef,
        generation: 77,
        epoch: WriterEpoch(300),
        nonce: Nonce(std::array::from_fn(|n| n as u8)),
        closed: true,
        segments: vec![
            SegmentEntry {
                number: 1,
                epoch: WriterEpoch(2),
                form: Form::Lanes,
                objects: vec![4, 5],
                generations: Vec::new(),
                accepted: None,
            },
            SegmentEntry {
                number: 9,
                epoch: WriterEpoch(300),
                form: Form::Numbered,
                objects: vec![1 << 40],
                generations: Vec::new(),
                accepted: None,
            },
            SegmentEntry {
                number: 10,
                epoch: WriterEpoch(300),
                form: Form::Watched,
                objects: vec![3],
                generations: Vec::new(),
                accepted: None,
            },
        ],
        runs: vec![
            Run { start: 0, len: 4096, object: object(2, 7), offset: 0 },
            Run { start: 8192, len: 1 << 33, object: object(300, 1), offset: 4096 },
        ],
        pages_len: 1 << 34,
        files: vec![
            FileEntry { path: "BACKUP".into(), len: 1 << 20, object: object(300, 8) },
            FileEntry { path: "RESTORING".into(), ..FileEntry::default() },
        ],
        fenced: Vec::new(),
        contents: Bytes::from_static(b"the engine's"),
    }
}

/// One in several buckets, of which a takeover has ended a segment.
fn fenced() -> Body {
    Body { fenced: vec![(ObjectId { epoch: WriterEpoch(299), number: 6 }, 1 << 20)], ..body() }
}

#[test]
fn a_body_is_read_as_it_was_written() {
    for body in [body(), fenced(), Body::default()] {
        assert_eq!(Body::decode(&body.encode()).expect("whole"), body);
    }
}

#[test]
fn every_changed_or_missing_byte_is_refused() {
    let bytes = fenced().encode();
    for end in 0..bytes.len() {
        Body::decode(&bytes[..end]).expect_err("it is cut");
        let mut changed = bytes.to_vec();
        changed[end] ^= 0x10;
        let error = Body::decode(&changed).expect_err("it is changed");
        // Byte 8 becomes a version that does not exist.
        let is_version = (8..12).contains(&end);
        let wanted = if is_version { ErrorKind::Unsupported } else { ErrorKind::Corruption };
        assert_eq!(error.kind(), wanted, "byte {end}: {error}");
    }
    Body::decode(&[&bytes[..], b"x"].concat()).expect_err("it is too long");
}

#[test]
fn first_bytes_name_the_owner() {
    let largest = Body { epoch: WriterEpoch(u64::MAX), generation: u64::MAX, ..body() };
    for body in [body(), largest, Body::default()] {
        let bytes = body.encode();
        let first = &bytes[..bytes.len().min(OWNER_BYTES as usize)];
        assert_eq!(owner(first), Some((body.identity, body.epoch)));
    }
    assert_eq!(owner(b"QNCHOBJ"), None);
    assert_eq!(owner(&[0; OWNER_BYTES as usize]), None);
}

#[test]
fn version_is_the_first_unless_a_segment_needs_the_second() {
    let version = |body: &Body| u32::from_le_bytes(body.encode()[8..12].try_into().expect("4 bytes"));
    assert_eq!(version(&body()), 2);
    let mut first = body();
    first.segments.retain(|segment| segment.form != Form::Watched);
    assert_eq!(version(&first), 1);
}

#[test]
fn generations_of_streams_are_kept_in_a_version_of_their_own() {
    let mut body = body();
    body.segments.push(SegmentEntry {
        number: 11,
        epoch: WriterEpoch(300),
        form: Form::Streams,
        objects: vec![6, 7],
        generations: vec![1 << 50, 3],
        accepted: None,
    });
    let bytes = body.encode();
    assert_eq!(bytes[8..12], 5_u32.to_le_bytes());
    assert_eq!(Body::decode(&bytes).expect("whole"), body);
    let streams: Vec<_> =
        body.segments[3].streams().map(|(id, generation)| (id.number, generation)).collect();
    assert_eq!(streams, [(6, 1 << 50), (7, 3)]);
}
