//! Redo: applies the selected records to the trees, in parallel.
//!
//! Row operations are independent between keys; within a key they must come in CSN order, since a patch changes bytes of
//! what was there. So operations are partitioned by ranges of keys, one thread a range, and each thread sorts its part
//! by (table, key, CSN): redo then walks every tree once from left to right. Creating and dropping tables are barriers:
//! operations before and after them in CSN order are separate phases.

use crate::base::{Csn, Error, Location, Result, TableId};
use crate::log::{Operation, begins_with_catalog_change, operations};
use crate::transaction::{Replay, TableState, TransactionSystem};
use std::collections::HashMap;
use std::sync::Arc;

/// A selected record: its CSN and the bytes of its operations.
#[derive(Clone, Copy, Debug)]
pub struct Redo<'a> {
    /// Its transaction.
    pub csn: Csn,
    /// The encoded operations.
    pub body: &'a [u8],
}

/// One row operation, with what it is sorted by in front.
struct Step<'a> {
    table: u32,
    /// First eight bytes of the key, big-endian: decides nearly every comparison.
    prefix: u64,
    csn: Csn,
    /// Position in its record: operations of one transaction on one key keep their order.
    position: u32,
    operation: Operation<'a>,
}

impl<'a> Step<'a> {
    fn new(csn: Csn, position: u32, operation: Operation<'a>) -> Option<Step<'a>> {
        let (table, key) = row_of(&operation)?;
        let mut first = [0; 8];
        let len = key.len().min(8);
        first[..len].copy_from_slice(&key[..len]);
        Some(Step { table: table.0, prefix: u64::from_be_bytes(first), csn, position, operation })
    }

    fn key(&self) -> &'a [u8] {
        row_of(&self.operation).map_or(&[], |(_, key)| key)
    }

    fn compare(&self, other: &Step<'_>) -> std::cmp::Ordering {
        (self.table, self.prefix)
            .cmp(&(other.table, other.prefix))
            .then_with(|| self.key().cmp(other.key()))
            .then_with(|| (self.csn, self.position).cmp(&(other.csn, other.position)))
    }

    fn compare_row(&self, other: &Step<'_>) -> std::cmp::Ordering {
        (self.table, self.prefix).cmp(&(other.table, other.prefix)).then_with(|| self.key().cmp(other.key()))
    }
}

fn row_of<'a>(operation: &Operation<'a>) -> Option<(TableId, &'a [u8])> {
    match *operation {
        Operation::Put { table, key, .. }
        | Operation::Patch { table, key, .. }
        | Operation::Delete { table, key } => Some((table, key)),
        Operation::CreateTable { .. } | Operation::DropTable { .. } => None,
    }
}

/// Applies `records`, which are in CSN order. `progress` hears how many records are done.
///
/// # Errors
/// `Corruption` with the CSN for records that do not fit together; `OutOfMemory`; I/O.
pub fn redo(
    system: &TransactionSystem,
    records: &[Redo<'_>],
    threads: usize,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    let mut done = 0;
    while done < records.len() {
        // Everything up to the next change of the catalog can be decoded and applied in parallel. Such changes are records
        // of their own, so looking at how records begin finds them; `decode` finds any other, which only costs time.
        let rest = &records[done..];
        let end = rest
            .iter()
            .skip(1)
            .position(|r| begins_with_catalog_change(r.body))
            .map_or(rest.len(), |i| i + 1);
        let phase = &rest[..end];
        let (steps, barrier) = decode(phase, threads)?;
        apply(system, steps, threads)?;
        done += barrier.as_ref().map_or(phase.len(), |barrier| barrier.record);
        progress(done as u64);
        if let Some(barrier) = barrier {
            apply_barrier(system, &records[done], barrier.position)?;
            done += 1;
        }
    }
    progress(records.len() as u64);
    Ok(())
}

/// A record that changes the catalog.
struct Barrier {
    /// Its index.
    record: usize,
    /// Row operations before the first change of the catalog in it, all of which are in the steps.
    position: u32,
}

/// The row operations of `records` up to the first change of the catalog, in parts that nobody has sorted.
fn decode<'a>(records: &[Redo<'a>], threads: usize) -> Result<(Vec<Vec<Step<'a>>>, Option<Barrier>)> {
    let size = records.len().div_ceil(threads.max(1)).max(PARALLEL_AT);
    let parts: Vec<Result<(Vec<Step<'a>>, Option<Barrier>)>> = std::thread::scope(|scope| {
        let workers: Vec<_> =
            records.chunks(size).map(|chunk| scope.spawn(move || decode_part(chunk))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| Err(panicked()))).collect()
    });
    let (mut steps, mut before) = (Vec::new(), 0);
    for (part, chunk) in parts.into_iter().zip(records.chunks(size)) {
        let (part, barrier) = part?;
        steps.push(part);
        if let Some(barrier) = barrier {
            return Ok((steps, Some(Barrier { record: before + barrier.record, ..barrier })));
        }
        before += chunk.len();
    }
    Ok((steps, None))
}

fn decode_part<'a>(records: &[Redo<'a>]) -> Result<(Vec<Step<'a>>, Option<Barrier>)> {
    let mut steps = Vec::with_capacity(records.len());
    for (index, record) in records.iter().enumerate() {
        let mut position = 0;
        for operation in operations(record.body) {
            let operation = operation.map_err(|error| error.at(Location::Transaction(record.csn)))?;
            let Some(step) = Step::new(record.csn, position, operation) else {
                return Ok((steps, Some(Barrier { record: index, position })));
            };
            steps.push(step);
            position += 1;
        }
    }
    Ok((steps, None))
}

fn panicked() -> Error {
    Error::corruption("a redo thread panicked")
}

/// Applies a record with changes of the catalog from its operation `from` on, one by one.
fn apply_barrier(system: &TransactionSystem, record: &Redo<'_>, from: u32) -> Result<()> {
    for (position, operation) in operations(record.body).enumerate().skip(from as usize) {
        let operation = operation.map_err(|error| error.at(Location::Transaction(record.csn)))?;
        match Step::new(record.csn, position as u32, operation) {
            Some(step) => apply(system, vec![vec![step]], 1)?,
            None => apply_catalog(system, &operation, record.csn)?,
        }
    }
    Ok(())
}

fn apply_catalog(system: &TransactionSystem, operation: &Operation<'_>, csn: Csn) -> Result<()> {
    match *operation {
        Operation::CreateTable { table, name } => system.replay_create(table, name, csn),
        Operation::DropTable { table } => system.replay_drop(table, csn),
        _ => Ok(()),
    }
}

/// Below this many operations threads cost more than they save.
const PARALLEL_AT: usize = 4096;

fn apply(system: &TransactionSystem, steps: Vec<Vec<Step<'_>>>, threads: usize) -> Result<()> {
    let tables = tables_of(system);
    let count: usize = steps.iter().map(Vec::len).sum();
    if count < PARALLEL_AT || threads < 2 {
        return apply_part(&tables, steps);
    }
    let splitters = splitters(&steps, count, threads);
    // Each thread of the first stage splits its part by ranges; each thread of the second takes one range of all.
    let split: Vec<Vec<Vec<Step<'_>>>> = std::thread::scope(|scope| {
        let splitters = &splitters;
        let workers: Vec<_> =
            steps.into_iter().map(|part| scope.spawn(move || split_part(part, splitters))).collect();
        workers.into_iter().map(|worker| worker.join().map_err(|_| panicked())).collect::<Result<_>>()
    })?;
    let mut ranges: Vec<Vec<Vec<Step<'_>>>> = (0..threads).map(|_| Vec::new()).collect();
    for part in split {
        ranges.iter_mut().zip(part).for_each(|(range, steps)| range.push(steps));
    }
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            ranges.into_iter().map(|range| scope.spawn(|| apply_part(&tables, range))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|_| Err(panicked())))
    })
}

fn tables_of(system: &TransactionSystem) -> HashMap<u32, Arc<TableState>> {
    system.catalog().lock().tables().into_iter().map(|table| (table.id.0, table)).collect()
}

/// The first row of each range but the first.
type Splitter = (u32, u64, Vec<u8>);

/// Rows that split the operations into ranges of about equal size, found by sampling.
fn splitters(steps: &[Vec<Step<'_>>], count: usize, ranges: usize) -> Vec<Splitter> {
    const SAMPLES: usize = 1024;
    let stride = (count / SAMPLES).max(1);
    let mut sample: Vec<&Step<'_>> = steps.iter().flatten().step_by(stride).collect();
    sample.sort_unstable_by(|a, b| a.compare_row(b));
    (1..ranges)
        .map(|i| sample[i * sample.len() / ranges])
        .map(|step| (step.table, step.prefix, step.key().to_vec()))
        .collect()
}

fn split_part<'a>(steps: Vec<Step<'a>>, splitters: &[Splitter]) -> Vec<Vec<Step<'a>>> {
    let ranges = splitters.len() + 1;
    let mut out: Vec<Vec<Step<'_>>> = (0..ranges).map(|_| Vec::with_capacity(steps.len() / ranges)).collect();
    for step in steps {
        let range = splitters.partition_point(|(table, prefix, key)| {
            (*table, *prefix, key.as_slice()) <= (step.table, step.prefix, step.key())
        });
        out[range].push(step);
    }
    out
}

fn apply_part(tables: &HashMap<u32, Arc<TableState>>, parts: Vec<Vec<Step<'_>>>) -> Result<()> {
    let mut steps: Vec<Step<'_>> = parts.into_iter().flatten().collect();
    steps.sort_unstable_by(Step::compare);
    let mut replay = Replay::default();
    for step in &steps {
        let table = tables.get(&step.table).ok_or_else(|| {
            Error::corruption(format!("the log changes table {}, which does not exist", step.table))
                .at(Location::Transaction(step.csn))
        })?;
        replay.apply(table, &step.operation, step.csn)?;
    }
    Ok(())
}
