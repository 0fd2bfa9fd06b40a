//! Redo: applies the selected records to the trees, in parallel.
//!
//! Row operations are independent between keys; within a key they must come in CSN order, since a patch changes bytes of
//! what was there. So operations become *steps*, which are divided into ranges of keys; whichever thread is free takes the
//! next range, sorts it by (table, key, CSN) and walks the leaves once from left to right. Of a row only what came after
//! its last put or delete needs doing. Creating and dropping tables are barriers: operations before and after them in CSN
//! order are in different batches. So is a transaction with chunks: it is applied part by part (`in_order`).
//!
//! ```text
//!   records, by CSN   │ r1 r2 r3 … r9 │ create │ r11 r12 … │      batches: at most `steps_max` steps, or to a barrier
//!   threads decode    │ r1…r5 │ r6…r9 │
//!   ranges of keys      a..g  g..n  n..t  t..                     each taken by one thread: sort, apply
//! ```
//!
//! **Memory.** A step is [`STEP_BYTES`] long and points into the log's bytes. A batch has at most `steps_max` steps, and
//! each thread a copy of one range: together about `STEP_BYTES * steps_max * (1.25 + 1 / RANGES_PER_THREAD)` if keys spread. If all are
//! equal it is one range and its copy, and each may have grown to twice what is in it: four times as much at the most. A transaction may be divided between batches.

use super::chunks::Earlier;
use super::threads;
use crate::base::planted::{self, Bug};
use crate::base::{Csn, Error, Location, Result};
use crate::buffer::prefetch;
use crate::log::{Operation, begins_with_catalog_change, first_operation};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::transaction::{Replay, TableState, TransactionSystem};
use in_order::apply_in_order;
use std::collections::HashMap;
use std::sync::Arc;

mod in_order;
#[cfg(test)]
mod tests;

/// A selected record: its CSN and its operations.
#[derive(Clone, Copy, Debug)]
pub struct Redo<'a> {
    /// Its transaction.
    pub csn: Csn,
    /// How many operations its header says it has; [`OPERATIONS_UNKNOWN`] for as many or more.
    pub operations: u32,
    /// The encoded operations, of a long transaction those of its last part.
    pub body: &'a [u8],
    /// What comes before them.
    pub earlier: Option<&'a Earlier>,
}

/// Records with so many operations do not say how many they have.
const OPERATIONS_UNKNOWN: u32 = 0xffff;

/// How much redo may use.
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
const PARALLEL_AT: usize = if cfg!(test) { 16 } else { 4096 };
/// So many steps ahead the processor is told what will be read.
const PREFETCH_STEPS: usize = 12;
/// Bytes of a step.
pub const STEP_BYTES: usize = 40;
const _: () = assert!(STEP_BYTES == size_of::<Step<'_>>());

/// One row operation, with what it is sorted by in front.
#[derive(Clone, Copy)]
struct Step<'a> {
    table: u32,
    /// Its record in the batch.
    record: u32,
    /// First eight bytes of the key, big-endian: decides nearly every comparison.
    prefix: u64,
    /// The operation and what follows it in its record. So of two operations of a record the first has more bytes.
    bytes: &'a [u8],
    key_at: u32,
    key_len: u32,
}

impl<'a> Step<'a> {
    /// `bytes` begin with the encoded `operation`, which is the record's. `None` for a change of the catalog.
    fn new(record: usize, operation: &Operation<'a>, bytes: &'a [u8]) -> Option<Step<'a>> {
        let (table, key) = operation.row()?;
        let key_at = key.as_ptr().addr() - bytes.as_ptr().addr();
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
    fn key(&self) -> &'a [u8] {
        &self.bytes[self.key_at as usize..][..self.key_len as usize]
    }

    #[inline]
    fn compare_row(&self, table: u32, prefix: u64, key: &[u8]) -> std::cmp::Ordering {
        (self.table, self.prefix).cmp(&(table, prefix)).then_with(|| self.key().cmp(key))
    }

    #[inline]
    fn compare(&self, other: &Step<'_>) -> std::cmp::Ordering {
        (self.table, self.prefix)
            .cmp(&(other.table, other.prefix))
            .then_with(|| self.key().cmp(other.key()))
            .then_with(|| match planted::is(Bug::RedoOutOfOrder) {
                true => other.record.cmp(&self.record),
                false => self.record.cmp(&other.record),
            })
            .then_with(|| other.bytes.len().cmp(&self.bytes.len()))
    }

    fn is_same_row(&self, other: &Step<'_>) -> bool {
        self.table == other.table && self.prefix == other.prefix && self.key() == other.key()
    }
}

/// Applies `records`, which are in CSN order. `progress` hears how many records are done.
///
/// # Errors
/// `Corruption` with the CSN for records that do not fit together; `OutOfMemory`; I/O.
pub fn redo(
    system: &TransactionSystem,
    records: &[Redo<'_>],
    effort: Effort,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    let mut done = 0;
    while done < records.len() {
        let batch = batch_at(&records[done..], effort.steps_max);
        let applied = apply_batch(system, batch, effort)?;
        done += applied;
        if applied < batch.len() || batch.is_empty() {
            apply_in_order(system, &records[done], effort)?;
            done += 1;
        }
        progress(done as u64);
    }
    Ok(())
}

/// The records that can be applied together: up to a change of the catalog, up to the limit.
fn batch_at<'r, 'a>(records: &'r [Redo<'a>], steps_max: usize) -> &'r [Redo<'a>] {
    let mut steps = 0;
    let end = records.iter().position(|record| {
        steps += record.operations as usize;
        // Changes of the catalog are records of their own; decoding finds any other, which only costs time.
        steps > steps_max
            || record.earlier.is_some()
            || record.operations >= OPERATIONS_UNKNOWN
            || begins_with_catalog_change(record.body)
    });
    &records[..end.unwrap_or(records.len())]
}

/// Applies records in any order, and returns how many: all, or those before one that changes the catalog.
fn apply_batch(system: &TransactionSystem, batch: &[Redo<'_>], effort: Effort) -> Result<usize> {
    if batch.is_empty() {
        return Ok(0);
    }
    let workers = if batch.len() < PARALLEL_AT { 1 } else { effort.threads };
    let splitters = splitters_of(batch, workers)?;
    let size = batch.len().div_ceil(workers);
    let parts = threads::each(batch.chunks(size).enumerate(), |(part, chunk)| {
        decode(chunk, part * size, &splitters)
    })?;
    if let Some(barrier) = parts.iter().filter_map(|part| part.barrier).min() {
        drop(parts);
        return apply_batch(system, &batch[..barrier], effort);
    }
    let ranges = parts.iter().map(|part| part.ranges.as_slice()).collect::<Vec<_>>();
    apply_ranges(system, batch, &ranges, workers)?;
    Ok(batch.len())
}

/// The first row of each range but the first.
type Splitter<'a> = (u32, u64, &'a [u8]);

/// Rows that split the operations of a batch into ranges of about equal size, found by sampling.
fn splitters_of<'a>(batch: &[Redo<'a>], threads: usize) -> Result<Vec<Splitter<'a>>> {
    const SAMPLES: usize = 1024;
    let mut sample = Vec::new();
    if threads > 1 {
        for record in batch.iter().step_by(batch.len().div_ceil(SAMPLES)) {
            if let Some((operation, _)) = first_operation(record.body).map_err(at(record))?
                && let Some(step) = Step::new(0, &operation, record.body)
            {
                sample.push(step);
            }
        }
    }
    Ok(splitters(sample, threads))
}

fn splitters<'a>(mut sample: Vec<Step<'a>>, threads: usize) -> Vec<Splitter<'a>> {
    let ranges = if threads > 1 && !sample.is_empty() { threads * RANGES_PER_THREAD } else { 1 };
    sample.sort_unstable_by(Step::compare);
    (1..ranges)
        .map(|i| sample[i * sample.len() / ranges])
        .map(|step| (step.table, step.prefix, step.key()))
        .collect()
}

fn range_of(step: &Step<'_>, splitters: &[Splitter<'_>]) -> usize {
    splitters.partition_point(|(table, prefix, key)| step.compare_row(*table, *prefix, key).is_ge())
}

/// Whose step it is. Not inlined: in key order records come at random, and each look waits for memory, so nobody is to look
/// before he has to.
#[inline(never)]
fn csn_of(batch: &[Redo<'_>], step: &Step<'_>) -> Csn {
    batch[step.record as usize].csn
}

fn at<'r, 'a>(record: &'r Redo<'a>) -> impl FnOnce(Error) -> Error + use<'r, 'a> {
    move |error| error.at(Location::Transaction(record.csn))
}

/// Steps of some records of a batch.
struct Decoded<'a> {
    /// By range.
    ranges: Vec<Vec<Step<'a>>>,
    /// The first record that changes the catalog.
    barrier: Option<usize>,
}

/// The steps of `records`, the first of which is the batch's `first`th.
fn decode<'a>(records: &[Redo<'a>], first: usize, splitters: &[Splitter<'_>]) -> Result<Decoded<'a>> {
    let ranges = splitters.len() + 1;
    let expected = records.iter().map(|record| record.operations as usize).sum::<usize>() / ranges;
    // A little more than its share: so most ranges are not copied once more.
    let room = if ranges > 1 { expected + expected / 4 } else { expected };
    let mut ranges: Vec<_> = (0..ranges).map(|_| Vec::with_capacity(room)).collect();
    for (index, record) in (first..).zip(records) {
        let mut rest = record.body;
        while let Some((operation, after)) = first_operation(rest).map_err(at(record))? {
            let Some(step) = Step::new(index, &operation, rest) else {
                return Ok(Decoded { ranges: Vec::new(), barrier: Some(index) });
            };
            ranges[range_of(&step, splitters)].push(step);
            rest = after;
        }
    }
    Ok(Decoded { ranges, barrier: None })
}

/// Applies the ranges, each of which is the sum of what the parts have of it.
fn apply_ranges(
    system: &TransactionSystem,
    batch: &[Redo<'_>],
    parts: &[&[Vec<Step<'_>>]],
    threads: usize,
) -> Result<()> {
    let tables = tables_of(system);
    let next = AtomicUsize::new(0);
    let ranges = parts.iter().map(|part| part.len()).max().unwrap_or(0);
    threads::each(0..threads, |_| {
        let mut steps = Vec::new();
        loop {
            let range = next.fetch_add(1, Ordering::Relaxed);
            if range >= ranges {
                return Ok(());
            }
            steps.clear();
            parts.iter().filter_map(|part| part.get(range)).for_each(|part| steps.extend_from_slice(part));
            steps.sort_unstable_by(Step::compare);
            apply_sorted(&tables, batch, &steps)?;
        }
    })?;
    Ok(())
}

fn tables_of(system: &TransactionSystem) -> HashMap<u32, Arc<TableState>> {
    system.catalog.lock().tables().into_iter().map(|table| (table.id.0, table)).collect()
}

/// How far the leaves of steps have been asked for: of two windows, so that one is brought in while the other is worked on.
#[derive(Default)]
struct ReadAhead {
    /// Steps before the last window, and to its end.
    window: (usize, usize),
}

/// Leaves of a window: enough reads at a time for any device.
const WINDOW_LEAVES: usize = 64;

impl ReadAhead {
    /// Whether work on the last window is about to begin.
    #[inline]
    fn is_due(&self, done: usize) -> bool {
        done >= self.window.0
    }

    #[cold]
    fn advance(&mut self, table: &TableState, steps: &[Step<'_>]) -> Result<()> {
        let keys = steps[self.window.1..].iter().map(Step::key);
        let covered = table.tree.read_ahead_for(keys, WINDOW_LEAVES)?;
        let end = self.window.1 + covered;
        // With nothing left to ask for, nothing is due any more.
        self.window = (if covered == 0 { usize::MAX } else { self.window.1 }, end);
        Ok(())
    }
}

fn apply_sorted(
    tables: &HashMap<u32, Arc<TableState>>,
    batch: &[Redo<'_>],
    steps: &[Step<'_>],
) -> Result<()> {
    let mut ahead = steps.iter().skip(PREFETCH_STEPS);
    steps.iter().take(PREFETCH_STEPS).for_each(|step| prefetch(step.bytes));
    for of_table in steps.chunk_by(|a, b| a.table == b.table) {
        let table = tables.get(&of_table[0].table).ok_or_else(|| {
            Error::corruption(format!("the log changes table {}, which does not exist", of_table[0].table))
                .at(Location::Transaction(batch[of_table[0].record as usize].csn))
        })?;
        let mut replay = Replay::new(table);
        let mut ahead_of = ReadAhead::default();
        let mut done = 0;
        for row in of_table.chunk_by(Step::is_same_row) {
            if ahead_of.is_due(done) {
                // The descent may wait for a page.
                replay.release_leaf();
                ahead_of.advance(table, of_table)?;
            }
            done += row.len();
            for step in row {
                ahead.next().inspect(|step| prefetch(step.bytes));
                let csn = || csn_of(batch, step);
                let located = |error: Error| error.at(Location::Transaction(csn()));
                if let Some((operation, _)) = first_operation(step.bytes).map_err(located)? {
                    replay.change(&operation, csn)?;
                }
            }
            replay.finish_row(row[0].key())?;
        }
    }
    Ok(())
}
