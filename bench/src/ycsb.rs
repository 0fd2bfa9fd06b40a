//! Reads and whole-value updates of existing rows, after YCSB (Cooper et al., SoCC 2010).

use crate::Progress;
use crate::distribution::Choice;
use crate::driver::{self, Plan, Worker, fill};
use crate::report::{Floor, Report};
use anyhow::Result;
use quenchdb::base::random::Random;
use quenchdb::{Database, Table, Transaction};

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

impl Worker for YcsbWorker {
    fn prepare(&mut self) {
        for operation in &mut self.operations {
            *operation = (self.choice.row(&mut self.random), self.random.chance(self.read_percent, 100));
        }
    }

    fn run(&mut self, transaction: &mut Transaction) -> quenchdb::Result<()> {
        for &(row, reads) in &self.operations {
            let key = row.to_be_bytes();
            if reads {
                let found = transaction.get_into(&self.table, key, &mut self.read)?;
                debug_assert!(found, "row {row} was loaded");
            } else {
                fill(&mut self.random, &mut self.value);
                transaction.insert(&self.table, key, &self.value)?;
            }
        }
        Ok(())
    }
}

/// Loads the rows, checkpoints if asked to, and measures.
///
/// # Errors
/// Those of the engine.
pub fn run(
    database: &Database,
    plan: &Plan,
    floor: Floor,
    checkpoint: bool,
    progress: Progress<'_>,
) -> Result<Report> {
    let table = database.table_or_create(TABLE)?;
    driver::load(database, &table, plan, progress)?;
    if checkpoint {
        progress("checkpoint", 0, 1);
        database.checkpoint()?;
    }
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
    driver::run("ycsb", database, plan, floor, workers, progress)
}
