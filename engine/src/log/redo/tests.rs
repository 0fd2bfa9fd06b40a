//! The redo buffer encodes what is decoded again.

use super::super::record::{Operation, Record, RecordHeader};
use super::*;
use crate::base::{Epoch, Error};

const TABLE: TableId = TableId(3);

fn record(redo: &RedoBuffer, kind: RecordKind, csn: u64) -> Vec<u8> {
    let header = RecordHeader {
        epoch: Epoch(1),
        csn: Csn(csn),
        body_crc: redo.crc(),
        op_count: redo.op_count(),
        kind,
        ..RecordHeader::default()
    };
    let mut bytes = header.encode(redo.body().len()).to_vec();
    bytes.extend_from_slice(redo.body());
    bytes.resize(super::super::record_bytes(redo.body().len()), 0);
    bytes
}

fn keys(record: &Record<'_>) -> Vec<Vec<u8>> {
    let operations = record.operations().map(|operation| operation.expect("whole"));
    let keys = operations.map(|operation| match operation {
        Operation::Put { key, .. } | Operation::PutLarge { key, .. } | Operation::LargePart { key, .. } => {
            key.to_vec()
        }
        other => panic!("{other:?}"),
    });
    keys.collect()
}

/// Writes a chunk and returns the record.
fn chunk(redo: &mut RedoBuffer, csn: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let written = redo.write_chunk(|redo| {
        bytes = record(redo, RecordKind::Chunk, csn);
        Ok(Csn(csn))
    });
    written.expect("room");
    bytes
}

#[test]
fn parts_say_where_they_begin_and_a_rollback_lowers_that() {
    let mut redo = RedoBuffer::default();
    redo.put(TABLE, b"a", &[1; 50]);
    let early = redo.mark();
    redo.put(TABLE, b"b", &[2; 50]);
    assert_eq!(redo.op_count(), 2);
    let first = chunk(&mut redo, 7);
    redo.put(TABLE, b"c", &[3; 50]);
    let second = chunk(&mut redo, 9);
    redo.put(TABLE, b"d", &[4; 50]);
    redo.truncate(early);
    assert_eq!((redo.unwritten_len(), redo.op_count()), (0, 0));
    redo.put(TABLE, b"e", b"5");
    redo.seal_part();
    assert_eq!((redo.last_kind(), redo.op_count()), (RecordKind::Last, 1));
    let last = record(&redo, RecordKind::Last, 12);
    let records = [&first, &second, &last].map(|bytes| Record::decode(bytes).expect("whole"));
    let parts = records.map(|record| record.part.expect("a part"));
    let put = records[0].body.len() as u64 / 2;
    assert_eq!(parts[0], Part { first: Csn::ZERO, start: 0, number: 0 });
    assert_eq!(parts[1], Part { first: Csn(7), start: 2 * put, number: 1 });
    assert_eq!(parts[2], Part { first: Csn(7), start: put, number: 2 });
    assert_eq!(records.map(|record| keys(&record).concat()), [b"ab".to_vec(), b"c".to_vec(), b"e".to_vec()]);
}

#[test]
fn a_chunk_that_cannot_be_written_leaves_everything_as_it_was() {
    let mut redo = RedoBuffer::default();
    redo.put(TABLE, b"a", b"1");
    let before = redo.body().to_vec();
    redo.write_chunk(|_| Err(Error::invalid("no"))).expect_err("refused");
    assert_eq!((redo.body(), redo.last_kind()), (&before[..], RecordKind::Whole));
    chunk(&mut redo, 1);
    redo.put(TABLE, b"b", b"2");
    let before = (redo.len(), redo.unwritten_len());
    redo.write_chunk(|_| Err(Error::invalid("no"))).expect_err("refused");
    assert_eq!((redo.len(), redo.unwritten_len(), redo.op_count()), (before.0, before.1, 1));
    redo.clear();
    assert_eq!((redo.len(), redo.last_kind(), redo.body()), (0, RecordKind::Whole, &[][..]));
}

#[test]
fn a_large_value_goes_on_in_the_next_part() {
    let mut redo = RedoBuffer::default();
    redo.put(TABLE, b"a", b"1");
    let at = redo.begin_large(TABLE, b"k");
    redo.large_piece(b"one");
    redo.end_large_part(at);
    let first = chunk(&mut redo, 4);
    redo.begin_large(TABLE, b"k");
    redo.large_piece(b"two");
    redo.end_large();
    redo.seal_part();
    let last = record(&redo, RecordKind::Last, 5);
    let first = Record::decode(&first).expect("whole");
    let operations: Vec<_> = first.operations().map(|operation| operation.expect("whole")).collect();
    assert!(matches!(operations[1], Operation::LargePart { pieces, .. } if pieces.len() == 3));
    assert_eq!(keys(&Record::decode(&last).expect("whole")), [b"k"]);
}

#[test]
fn damaged_parts_are_refused() {
    let mut redo = RedoBuffer::default();
    redo.put(TABLE, b"a", b"1");
    let good = chunk(&mut redo, 4);
    assert!(Record::decode(&good).is_ok());
    // A last part or whole record may not have the body of a first chunk, and an unknown kind is
    // recognised.
    let refused = |kind: RecordKind, part: Part, csn: u64| {
        let mut redo = RedoBuffer { prefix: PART_BYTES, ..RedoBuffer::default() };
        redo.body.extend_from_slice(&part.encode());
        Record::decode(&record(&redo, kind, csn)).is_err()
    };
    assert!(refused(RecordKind::Last, Part::default(), 4));
    assert!(refused(RecordKind::Chunk, Part { start: 1, ..Part::default() }, 4));
    assert!(refused(RecordKind::Last, Part { first: Csn(4), start: 0, number: 1 }, 4));
    assert!(!refused(RecordKind::Last, Part { first: Csn(3), start: 0, number: 1 }, 4));
    let mut unknown = good.clone();
    unknown[21] = 9;
    let crc = crate::base::checksum::crc(&unknown[4..56]);
    unknown[..4].copy_from_slice(&crc.to_le_bytes());
    let error = Record::decode(&unknown).expect_err("unknown");
    assert_eq!(error.kind(), crate::base::ErrorKind::Unsupported);
    let short = RecordHeader { csn: Csn(4), kind: RecordKind::Last, ..RecordHeader::default() };
    assert!(Record::decode(&short.encode(0)).is_err());
}
