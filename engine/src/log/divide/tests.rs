//! Fragments are divided by log and read back.

use super::*;
use crate::log::RedoBuffer;

const TABLE: TableId = TableId(3);

fn keys(body: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut rest = &body[FRAGMENT_BYTES..];
    let mut keys = Vec::new();
    while let Some((operation, after)) = first_operation(rest).expect("well formed") {
        let kind = rest[0];
        keys.push((kind, operation.row().expect("a row").1.to_vec()));
        rest = after;
    }
    keys
}

fn redo() -> RedoBuffer {
    let mut redo = RedoBuffer::default();
    for (log, key) in [(1, "a"), (0, "b"), (0, "c"), (1, "d"), (2, "e")] {
        redo.in_log(LogId(log));
        redo.put(TABLE, key.as_bytes(), b"value");
    }
    redo
}

#[test]
fn operations_go_to_the_logs_of_their_pages_in_their_order() {
    let fragments = redo().divide().expect("well formed").expect("several");
    assert_eq!(fragments.len(), 3);
    let found: Vec<_> = fragments.bodies().collect();
    let logs: Vec<_> = found.iter().map(|(log, _, _, operations)| (log.0, *operations)).collect();
    assert_eq!(logs, [(0, 2), (1, 2), (2, 1)]);
    for (number, (_, body, check, _)) in (0..).zip(&found) {
        let fragment = Fragment::decode(body, Csn(10)).expect("says which it is");
        assert_eq!((fragment, *check), (Fragment { number, count: 3 }, crc(body)));
        assert_eq!(
            (fragment.first_of(Csn(10 + u64::from(number))), Csn(12)),
            (Csn(10), fragment.last_of(Csn(10 + u64::from(number))))
        );
    }
    let rows: Vec<_> = keys(found[1].1).into_iter().map(|(_, key)| key).collect();
    assert_eq!(rows, [b"a".to_vec(), b"d".to_vec()]);
}

#[test]
fn redo_of_one_log_is_not_divided_and_truncated_does_not_count() {
    let mut redo = RedoBuffer::default();
    redo.in_log(LogId(2));
    redo.put(TABLE, b"a", b"");
    let mark = redo.mark();
    redo.in_log(LogId(0));
    redo.put(TABLE, b"b", b"");
    assert!(redo.divide().expect("well formed").is_some());
    redo.truncate(mark);
    assert!(redo.divide().expect("well formed").is_none());
    assert_eq!(redo.first_log(), Some(LogId(2)));
    redo.in_log(LogId(2));
    redo.put(TABLE, b"c", b"");
    assert!(redo.divide().expect("well formed").is_none());
    redo.clear();
    assert_eq!(redo.first_log(), None);
}

#[test]
fn a_row_moved_to_another_log_stays_in_the_log_it_began_in() {
    let mut redo = redo();
    redo.in_log(LogId(2));
    redo.changes_again();
    redo.delete(TABLE, b"a");
    redo.put(TABLE, b"f", b"");
    let fragments = redo.divide().expect("well formed").expect("several");
    let found: Vec<_> = fragments.bodies().collect();
    let rows = keys(found[1].1);
    let (put, delete) = (rows[0].0, rows[2].0);
    assert_eq!(rows, [(put, b"a".to_vec()), (put, b"d".to_vec()), (delete, b"a".to_vec())]);
    assert_eq!(keys(found[2].1).len(), 2);
    assert_eq!(found.iter().map(|(_, _, _, operations)| operations).sum::<u32>(), redo.op_count());
}

#[test]
fn what_cannot_be_a_fragment_is_none() {
    let decode = |number, count, csn| Fragment::decode(&Fragment { number, count }.encode(), Csn(csn));
    assert!(decode(0, 2, 1).is_some() && decode(255, 256, 256).is_some());
    for (number, count, csn) in [(0, 1, 5), (0, 0, 5), (2, 2, 5), (0, 257, 5), (5, 6, 5)] {
        assert_eq!(decode(number, count, csn), None);
    }
    assert_eq!(Fragment::decode(&[0; 7], Csn(9)), None);
}
