//! Redo: applies the selected records to the trees, in parallel.
//!
//! Row operations are independent between keys; within a key they must come in CSN order, since a
//! patch changes bytes of what was there. So operations become *steps*, which are divided into
//! ranges of keys; whichever thread is free takes the next range, sorts it by (table, key, CSN) and
//! walks the leaves once from left to right. Of a row only what came after its last put or delete
//! needs doing. Creating and dropping tables are barriers: operations before and after them in CSN
//! order are in different batches. So is a transaction with chunks: it is applied part by part
//! (`in_order`).
//!
//! ```text
//!   records, by CSN   │ r1 r2 r3 … r9 │ create │ r11 r12 … │   batches: to a limit or a barrier
//!   threads decode    │ r1…r5 │ r6…r9 │
//!   ranges of keys      a..g  g..n  n..t  t..              each by one thread: sort, apply
//! ```
//!
//! **Memory.** A step is [`STEP_BYTES`] long and points into the log's bytes. A batch has at most
//! `steps_max` steps, and each thread a copy of one range: together about `STEP_BYTES * steps_max *
//! (1.25 + 1 / RANGES_PER_THREAD)` if keys spread. If all are equal it is one range and its copy,
//! and each may have grown to twice what is in it: four times as much at the most. A transaction
//! may be divided between batches.

mod step;
mod apply;
mod in_order;
#[cfg(test)]
mod tests;

pub use step::{Effort, Redo, STEP_BYTES};

use super::threads;
use crate::base::{Error, Location, Result};
use crate::log::{begins_with_catalog_change, first_operation};
use crate::transaction::TransactionSystem;
use apply::apply_ranges;
use in_order::apply_in_order;
use step::{OPERATIONS_UNKNOWN, PARALLEL_AT, Splitter, Step, range_of, splitters};

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
        debug_assert!(applied <= batch.len(), "a batch is replayed once");
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
        // Changes of the catalog are records of their own; decoding finds any other, which only
        // costs time.
        steps > steps_max
            || record.earlier.is_some()
            || record.operations >= OPERATIONS_UNKNOWN
            || begins_with_catalog_change(record.body)
    });
    &records[..end.unwrap_or(records.len())]
}

/// Applies records in any order, and returns how many: all, or those before one that changes the
/// catalog.
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
