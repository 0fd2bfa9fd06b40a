//! Redo: applies the selected records to the trees, in parallel.
//!
//! Row operations are independent between keys; within a key they must come in CSN order, since a patch changes bytes of
//! what was there. So operations are partitioned by ranges of keys, one thread a range, and each thread sorts its part
//! by (table, key, CSN): redo then walks every tree once from left to right. Creating and dropping tables are barriers:
//! operations before and after them in CSN order are separate phases.

use crate::base::{Csn, Error, Location, Result, TableId};
use crate::log::{Operation, operations};
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
    let mut steps = Vec::with_capacity(records.len());
    for (index, record) in records.iter().enumerate() {
        let mut position = 0;
        for operation in operations(record.body) {
            let operation = operation.map_err(|error| error.at(Location::Transaction(record.csn)))?;
            if let Some(step) = Step::new(record.csn, position, operation) {
                steps.push(step);
                position += 1;
                continue;
            }
            apply(system, std::mem::take(&mut steps), threads)?;
            progress(index as u64);
            apply_catalog(system, &operation, record.csn)?;
        }
    }
    apply(system, steps, threads)?;
    progress(records.len() as u64);
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

fn apply(system: &TransactionSystem, steps: Vec<Step<'_>>, threads: usize) -> Result<()> {
    let tables = tables_of(system);
    if steps.len() < PARALLEL_AT || threads < 2 {
        return apply_part(&tables, steps);
    }
    let parts = partition(steps, threads);
    std::thread::scope(|scope| {
        let workers: Vec<_> = parts
            .into_iter()
            .map(|part| {
                scope.spawn(|| apply_part(&tables, part))
            })
            .collect();
        workers.into_iter().try_for_each(|worker| {
            worker.join().unwrap_or_else(|_| Err(Error::corruption("a redo thread panicked")))
        })
    })
}

fn tables_of(system: &TransactionSystem) -> HashMap<u32, Arc<TableState>> {
    system.catalog().lock().tables().into_iter().map(|table| (table.id.0, table)).collect()
}

/// Splits operations into ranges of rows of about equal size, by sampling.
fn partition(steps: Vec<Step<'_>>, parts: usize) -> Vec<Vec<Step<'_>>> {
    const SAMPLES: usize = 1024;
    let stride = (steps.len() / SAMPLES).max(1);
    let mut sample: Vec<usize> = (0..steps.len()).step_by(stride).collect();
    sample.sort_unstable_by(|a, b| steps[*a].compare_row(&steps[*b]));
    let splitters: Vec<(u32, u64, Vec<u8>)> = (1..parts)
        .map(|i| &steps[sample[i * sample.len() / parts]])
        .map(|step| (step.table, step.prefix, step.key().to_vec()))
        .collect();
    let mut out: Vec<Vec<Step<'_>>> = (0..parts).map(|_| Vec::with_capacity(steps.len() / parts)).collect();
    for step in steps {
        let part = splitters.partition_point(|(table, prefix, key)| {
            (*table, *prefix, key.as_slice()) <= (step.table, step.prefix, step.key())
        });
        out[part].push(step);
    }
    out
}

fn apply_part(tables: &HashMap<u32, Arc<TableState>>, mut steps: Vec<Step<'_>>) -> Result<()> {
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
