//! Steps: row operations with the key that they are sorted by.

use crate::base::Csn;
use crate::base::planted::{self, Bug};
use crate::base::scale::SCALE;
use crate::log::Operation;
use crate::recovery::chunks::Earlier;

/// A selected record: its CSN and its operations.
#[derive(Clone, Copy, Debug)]
pub struct Redo<'a> {
    /// Its transaction.
    pub csn: Csn,
    /// Number of operations as in its header; [`OPERATIONS_UNKNOWN`] for as many or more.
    pub operations: u32,
    /// The encoded operations, of a long transaction those of its last part.
    pub body: &'a [u8],
    /// The chunks before the body.
    pub earlier: Option<&'a Earlier>,
}

/// Records with so many operations do not say how many they have.
pub(super) const OPERATIONS_UNKNOWN: u32 = 0xffff;

/// Limits of redo.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Threads.
    pub threads: usize,
    /// Most steps in memory, at least 1.
    pub steps_max: usize,
}

/// Ranges of keys for each thread: enough that none waits long for the others at the end.
const RANGES_PER_THREAD: usize = 8;
/// Below this many operations threads cost more than they save.
pub(super) const PARALLEL_AT: usize = SCALE.parallel_redo_min;
/// Bytes of a step.
pub const STEP_BYTES: usize = 40;
const _: () = assert!(STEP_BYTES == size_of::<Step<'_>>());

/// One row operation, with what it is sorted by in front.
#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub(super) table: u32,
    /// Its record in the batch.
    pub(super) record: u32,
    /// First eight bytes of the key, big-endian: decides nearly every comparison.
    pub(super) prefix: u64,
    /// The operation and what follows it in its record. So of two operations of a record the first
    /// has more bytes.
    pub(super) bytes: &'a [u8],
    pub(super) key_at: u32,
    pub(super) key_len: u32,
}

impl<'a> Step<'a> {
    /// `bytes` begin with the encoded `operation`, which is the record's. `None` for a change of
    /// the catalog.
    pub(super) fn new(record: usize, operation: &Operation<'a>, bytes: &'a [u8]) -> Option<Step<'a>> {
        let (table, key) = operation.row()?;
        let key_at = key.as_ptr().addr() - bytes.as_ptr().addr();
        debug_assert!(key_at + key.len() <= bytes.len(), "the key lies in its operation");
        let prefix = match key.first_chunk::<8>() {
            Some(first) => u64::from_be_bytes(*first),
            None => {
                let mut first = [0; 8];
                first[..key.len()].copy_from_slice(key);
                u64::from_be_bytes(first)
            }
        };
        let (record, key_at, key_len) = (record as u32, key_at as u32, key.len() as u32);
        Some(Step { table: table.0, record, prefix, bytes, key_at, key_len })
    }

    #[inline]
    pub(super) fn key(&self) -> &'a [u8] {
        &self.bytes[self.key_at as usize..][..self.key_len as usize]
    }

    #[inline]
    fn compare_row(&self, table: u32, prefix: u64, key: &[u8]) -> std::cmp::Ordering {
        (self.table, self.prefix).cmp(&(table, prefix)).then_with(|| self.key().cmp(key))
    }

    #[inline]
    pub(super) fn compare(&self, other: &Step<'_>) -> std::cmp::Ordering {
        (self.table, self.prefix)
            .cmp(&(other.table, other.prefix))
            .then_with(|| self.key().cmp(other.key()))
            .then_with(|| match planted::is(Bug::RedoOutOfOrder) {
                true => other.record.cmp(&self.record),
                false => self.record.cmp(&other.record),
            })
            .then_with(|| other.bytes.len().cmp(&self.bytes.len()))
    }

    pub(super) fn is_same_row(&self, other: &Step<'_>) -> bool {
        self.table == other.table && self.prefix == other.prefix && self.key() == other.key()
    }
}

/// The first row of each range but the first.
pub(super) type Splitter<'a> = (u32, u64, &'a [u8]);

pub(super) fn splitters<'a>(mut sample: Vec<Step<'a>>, threads: usize) -> Vec<Splitter<'a>> {
    let ranges = if threads > 1 && !sample.is_empty() { threads * RANGES_PER_THREAD } else { 1 };
    sample.sort_unstable_by(Step::compare);
    debug_assert!(ranges == 1 || !sample.is_empty(), "rows are divided by some of them");
    (1..ranges)
        .map(|i| sample[i * sample.len() / ranges])
        .map(|step| (step.table, step.prefix, step.key()))
        .collect()
}

pub(super) fn range_of(step: &Step<'_>, splitters: &[Splitter<'_>]) -> usize {
    debug_assert!(splitters.is_sorted(), "ranges are searched by halving");
    splitters.partition_point(|(table, prefix, key)| step.compare_row(*table, *prefix, key).is_ge())
}
