//! Fragments: a transaction that changed pages of several logs has a record in each of them.
//!
//! ```text
//!   CSN     70        71        72                 one transaction, CSN 72: the last of its fragments
//!   log 0   [0 of 3]
//!   log 1             [1 of 3]
//!   log 2                       [2 of 3]
//! ```
//!
//! 1. The CSNs of the fragments of a transaction follow one another without a gap: they are drawn at once. The last one is the transaction's. So
//!    no checkpoint, snapshot or watermark chosen by the newest CSN drawn lies between them, and who depends on the transaction depends on a CSN
//!    above all of them.
//! 2. Each fragment says which it is and how many there are. The transaction is there only if all are.
//! 3. All fragments have the transaction's DSN. The first one lists its predecessors, if the rule does.
//! 4. All operations on a row are in one fragment, in their order. So fragments can be redone in the order of CSNs, each alone.
//!
//! The body of a fragment begins with:
//!
//! | offset | bytes | content (little-endian) |
//! |---|---|---|
//! | 0 | 4 | number of the fragment, from 0 |
//! | 4 | 4 | how many there are, 2 to [`FRAGMENTS_MAX`] |
//! | 8 | | operations; in the first one the predecessors |

use super::record::first_operation;
use crate::base::checksum::crc;
use crate::base::encoding::Reader;
use crate::base::{Csn, LogId, Result, TableId};
use std::collections::HashMap;

/// Bytes in front of the operations of a fragment.
pub const FRAGMENT_BYTES: usize = 8;
/// Fragments of a transaction: as many as there can be logs.
pub const FRAGMENTS_MAX: u32 = 256;

/// Which fragment of its transaction a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// From 0.
    pub number: u32,
    /// How many there are.
    pub count: u32,
}

impl Fragment {
    /// The stored form.
    #[must_use]
    pub fn encode(self) -> [u8; FRAGMENT_BYTES] {
        let mut out = [0; FRAGMENT_BYTES];
        out[..4].copy_from_slice(&self.number.to_le_bytes());
        out[4..].copy_from_slice(&self.count.to_le_bytes());
        out
    }

    /// The fragment at the start of the body of a record with `csn`, if it can be one.
    pub(super) fn decode(body: &[u8], csn: Csn) -> Option<Fragment> {
        let mut reader = Reader::new(body.get(..FRAGMENT_BYTES)?);
        let fragment = Fragment { number: reader.u32()?, count: reader.u32()? };
        let possible = (2..=FRAGMENTS_MAX).contains(&fragment.count)
            && fragment.number < fragment.count
            && u64::from(fragment.number) < csn.0;
        possible.then_some(fragment)
    }

    /// The CSN of the transaction's first fragment, if this one has `csn`.
    #[must_use]
    pub fn first_of(self, csn: Csn) -> Csn {
        Csn(csn.0 - u64::from(self.number))
    }

    /// The CSN of its last one, which is the transaction's.
    #[must_use]
    pub fn last_of(self, csn: Csn) -> Csn {
        Csn(csn.0 + u64::from(self.count - 1 - self.number))
    }
}

/// Operations that follow one another and belong to one log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Where in the redo they begin.
    pub at: usize,
    /// Operations before them.
    pub operations: u32,
    pub log: LogId,
}

/// The redo of a transaction by log, each with room in front for what says which fragment it is.
#[derive(Debug, Default)]
pub struct Fragments {
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    log: LogId,
    body: Vec<u8>,
    operations: u32,
}

impl Fragments {
    /// Divides `body`, encoded operations, as `runs` say, which begin at 0. With `rows_again` a row may have several operations in it, and goes
    /// where its first one does.
    pub(super) fn divide(body: &[u8], count: u32, runs: &[Run], rows_again: bool) -> Result<Fragments> {
        let mut fragments = Fragments::default();
        let mut first_log: HashMap<(TableId, &[u8]), LogId> = HashMap::new();
        for (index, run) in runs.iter().enumerate() {
            let (end, operations) =
                runs.get(index + 1).map_or((body.len(), count), |next| (next.at, next.operations));
            let mut rest = &body[run.at..end];
            if !rows_again {
                fragments.add(run.log, rest, operations - run.operations);
                continue;
            }
            while let Some((operation, after)) = first_operation(rest)? {
                let log = match operation.row() {
                    Some(row) => *first_log.entry(row).or_insert(run.log),
                    None => run.log,
                };
                fragments.add(log, &rest[..rest.len() - after.len()], 1);
                rest = after;
            }
        }
        fragments.parts.sort_by_key(|part| part.log);
        let count = fragments.parts.len() as u32;
        for (number, part) in (0..).zip(&mut fragments.parts) {
            part.body[..FRAGMENT_BYTES].copy_from_slice(&Fragment { number, count }.encode());
        }
        Ok(fragments)
    }

    fn add(&mut self, log: LogId, bytes: &[u8], operations: u32) {
        if operations == 0 {
            return;
        }
        let at = self.parts.iter().position(|part| part.log == log).unwrap_or_else(|| {
            self.parts.push(Part { log, body: vec![0; FRAGMENT_BYTES], operations: 0 });
            self.parts.len() - 1
        });
        self.parts[at].body.extend_from_slice(bytes);
        self.parts[at].operations += operations;
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// True if there is no operation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Lists predecessors in the first one: the last thing before they are committed.
    pub fn list_predecessors(&mut self, csns: &[Csn]) {
        if let Some(first) = self.parts.first_mut() {
            csns.iter().for_each(|csn| first.body.extend_from_slice(&csn.0.to_le_bytes()));
        }
    }

    /// Of each its log, its body, the body's checksum and how many operations it has, ascending by log.
    pub fn bodies(&self) -> impl Iterator<Item = (LogId, &[u8], u32, u32)> {
        self.parts.iter().map(|part| (part.log, &part.body[..], crc(&part.body), part.operations))
    }
}

#[cfg(test)]
mod tests {
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
    fn what_is_in_one_log_is_not_divided_and_what_was_taken_back_does_not_count() {
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
    fn a_row_that_moved_to_a_page_of_another_log_stays_in_the_log_of_its_first_operation() {
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
}
