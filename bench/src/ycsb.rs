//! Reads and whole-value updates of existing rows, after YCSB (Cooper et al., SoCC 2010).

use crate::Progress;
use crate::activity::Intent;
use crate::distribution::Choice;
use crate::driver::{Finished, Run, Worker};
use crate::load;
use crate::plan::Plan;
use crate::rows::{KEY_BYTES, fill_value};
use anyhow::Result;
use quenchdb::base::random::Random;
use quenchdb::{Database, Error, Snapshot, Table, Transaction};

/// The table of the rows.
pub const TABLE: &str = "ycsb";

struct YcsbWorker {
    table: Table,
    choice: Choice,
    random: Random,
    read_percent: u64,
    /// Row and whether it is read, for each operation of the transaction in progress.
    operations: Vec<(u64, bool)>,
    value: Vec<u8>,
    read: Vec<u8>,
}

fn found(found: bool, row: u64) -> quenchdb::Result<()> {
    if found { Ok(()) } else { Err(Error::corruption(format!("row {row}, which was loaded, is not there"))) }
}

impl Worker for YcsbWorker {
    fn prepare(&mut self) -> Intent {
        let mut writes = 0;
        for operation in &mut self.operations {
            *operation = (self.choice.row(&mut self.random), self.random.chance(self.read_percent, 100));
            writes += u64::from(!operation.1);
        }
        let row = (KEY_BYTES + self.value.len()) as u64;
        Intent { reads_only: writes == 0, written_bytes: writes * row }
    }

    fn run(&mut self, transaction: &mut Transaction) -> quenchdb::Result<()> {
        for &(row, reads) in &self.operations {
            let key = row.to_be_bytes();
            if reads {
                found(transaction.get_into(&self.table, key, &mut self.read)?, row)?;
            } else {
                fill_value(&mut self.random, row, &mut self.value);
                transaction.insert(&self.table, key, &self.value)?;
            }
        }
        Ok(())
    }

    fn read(&mut self, snapshot: &Snapshot) -> quenchdb::Result<()> {
        for &(row, _) in &self.operations {
            found(snapshot.get_into(&self.table, row.to_be_bytes(), &mut self.read)?, row)?;
        }
        Ok(())
    }
}

/// Loads the rows and checkpoints if asked to.
///
/// # Errors
/// Those of the engine.
pub fn prepare(database: &Database, plan: &Plan, checkpoint: bool, progress: Progress<'_>) -> Result<Table> {
    let table = database.table_or_create(TABLE)?;
    load::load(database, &table, plan, progress)?;
    if checkpoint {
        progress("checkpoint", 0, 1);
        database.checkpoint()?;
    }
    Ok(table)
}

/// Loads the rows, checkpoints if asked to, and measures.
///
/// # Errors
/// Those of the engine.
pub fn run(run: &Run<'_>, checkpoint: bool) -> Result<Finished> {
    let plan = run.plan;
    let table = prepare(run.database, plan, checkpoint, run.progress)?;
    let choice = Choice::new(plan.rows, plan.zipf);
    let workers = (0..plan.threads)
        .map(|index| {
            Box::new(YcsbWorker {
                table: table.clone(),
                choice: choice.clone(),
                random: Random::from_seed(plan.seed.wrapping_add(index as u64 + 1)),
                read_percent: plan.read_percent.into(),
                operations: vec![(0, false); plan.operations],
                value: vec![0; plan.value_bytes],
                read: Vec::with_capacity(plan.value_bytes),
            }) as Box<dyn Worker>
        })
        .collect();
    run.drive(workers)
}
