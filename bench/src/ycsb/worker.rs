//! One thread of YCSB.

use super::mix::{Mix, Operation};
use super::settings::{Inserted, Ycsb, inserted_key};
use crate::distribution::{Access, Choice, Zipfian};
use crate::rows::{KEY_BYTES, Shape};
use crate::store::{Error, Reader, Result, Step, Transaction};
use crate::workload::{Ending, Intent, Worker};
use quenchdb::internals::base::random::Random;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Rows of a scan, at most; at least one; all numbers are equally frequent.
const SCAN_ROWS_MAX: u64 = 100;

/// Operation, key, and for a scan how many rows.
type Planned = (Operation, u64, u64);

/// See the module.
pub struct YcsbWorker<T> {
    table: T,
    index: usize,
    mix: Mix,
    choice: Choice,
    /// Ranks, if the newest rows are the most frequent.
    latest: Option<Zipfian>,
    rows: u64,
    random: Random,
    shape: Shape,
    inserted: Arc<Inserted>,
    /// Rows inserted by the transactions before the one in progress: a retry inserts the same keys.
    next: u64,
    /// The operations of the transaction in progress, and of those ahead.
    planned: Vec<Planned>,
    /// Operations of a transaction.
    operations: usize,
    /// Where those of the transaction in progress are.
    at: usize,
    /// True if the worker announces the rows of planned transactions to the store.
    announces: bool,
    keys: Vec<[u8; KEY_BYTES]>,
    kind_is_operation: bool,
    mix_per_transaction: bool,
    value: Vec<u8>,
}

impl<T> YcsbWorker<T> {
    pub(super) fn new(ycsb: &Ycsb, table: T, index: usize, random: Random) -> YcsbWorker<T> {
        let plan = &ycsb.plan;
        let latest = (ycsb.access == Access::Latest).then(|| Zipfian::new(plan.rows, plan.zipf));
        YcsbWorker {
            table,
            index,
            mix: ycsb.mix,
            choice: ycsb.choice.clone(),
            latest,
            rows: plan.rows,
            random,
            shape: ycsb.shape(),
            inserted: ycsb.inserted.clone(),
            next: ycsb.inserted.by_worker[index].load(Ordering::Relaxed),
            planned: vec![(Operation::Read, 0, 0); plan.operations * ycsb.ahead.max(1)],
            operations: plan.operations,
            at: usize::MAX,
            announces: ycsb.ahead > 0,
            keys: Vec::new(),
            kind_is_operation: plan.operations == 1 || ycsb.mix_per_transaction,
            mix_per_transaction: ycsb.mix_per_transaction,
            value: vec![0; plan.value_bytes],
        }
    }

    /// Chooses a row that exists.
    fn choose(&mut self) -> u64 {
        let Some(latest) = &self.latest else { return self.choice.row(&mut self.random) };
        // The newest rows of all workers, taken in turn; behind them the loaded ones, the last
        // first.
        let (rank, workers) = (latest.rank(&mut self.random), &self.inserted.by_worker);
        let worker = (rank as usize) % workers.len();
        let (back, inserted) = (rank / workers.len() as u64, workers[worker].load(Ordering::Acquire));
        match inserted.checked_sub(back + 1) {
            Some(n) => inserted_key(self.inserted.run.load(Ordering::Relaxed), worker, n),
            None => self.rows - 1 - (back - inserted) % self.rows,
        }
    }

    fn plan_one(&mut self, operation: Operation, new_rows: &mut u64) -> Planned {
        if operation == Operation::Insert {
            let run = self.inserted.run.load(Ordering::Relaxed);
            let key = inserted_key(run, self.index, self.next + *new_rows);
            *new_rows += 1;
            return (operation, key, 0);
        }
        let key = self.choose();
        let length = if operation == Operation::Scan { 1 + self.random.below(SCAN_ROWS_MAX) } else { 0 };
        (operation, key, length)
    }

    /// Reads a row that exists.
    fn find<R: Reader<Table = T>>(&mut self, reader: &mut R, key: u64) -> Result<()> {
        let exists = reader.get(&self.table, &key.to_be_bytes(), &mut self.value)?;
        must_exist(exists, key)
    }

    /// Reads a row and writes it back with a field, or all of it, changed.
    fn change<X: Transaction<Table = T>>(&mut self, transaction: &mut X, key: u64) -> Result<()> {
        let exists = transaction.get_for_update(&self.table, &key.to_be_bytes(), &mut self.value)?;
        must_exist(exists, key)?;
        self.shape.change(&mut self.random, key, &mut self.value);
        transaction.insert(&self.table, &key.to_be_bytes(), &self.value)
    }

    fn overwrite<X: Transaction<Table = T>>(&mut self, transaction: &mut X, key: u64) -> Result<()> {
        self.value.resize(self.shape.bytes, 0);
        self.shape.fill(&mut self.random, key, &mut self.value);
        transaction.insert(&self.table, &key.to_be_bytes(), &self.value)
    }

    /// Announces the planned rows to the store, before the first planned transaction.
    fn announce<R: Reader<Table = T>>(&mut self, reader: &mut R) -> Result<()> {
        if !self.announces || self.at > 0 {
            return Ok(());
        }
        self.keys.clear();
        self.keys.extend(self.planned.iter().map(|(_, key, _)| key.to_be_bytes()));
        reader.prefetch(&self.table, &self.keys)
    }

    fn new_rows(&self) -> u64 {
        self.planned.iter().filter(|planned| planned.0 == Operation::Insert).count() as u64
    }
}

#[cfg(test)]
impl<T> YcsbWorker<T> {
    pub(super) fn planned(&self) -> &[Planned] {
        &self.planned
    }

    pub(super) fn inserted(&self) -> u64 {
        self.next
    }
}

fn must_exist(exists: bool, key: u64) -> Result<()> {
    match exists {
        true => Ok(()),
        false => Err(Error::wrong(format!("row {key}, which was committed, is not there"))),
    }
}

/// Reads `length` rows from `from` on.
fn scan<R: Reader>(reader: &mut R, table: &R::Table, from: u64, length: u64) -> Result<()> {
    let mut left = length;
    reader.scan(table, &from.to_be_bytes(), &[u8::MAX; KEY_BYTES + 1], |_, value| {
        std::hint::black_box(value);
        left -= 1;
        if left == 0 { Step::Break(()) } else { Step::Continue(()) }
    })
}

impl<T: Clone + Send + Sync> Worker<T> for YcsbWorker<T> {
    fn prepare(&mut self) -> Intent {
        self.at = self.at.saturating_add(self.operations);
        if self.at >= self.planned.len() {
            self.at = 0;
            let (mut new_rows, mut operation) = (0, Operation::Read);
            for place in 0..self.planned.len() {
                if !self.mix_per_transaction || place.is_multiple_of(self.operations) {
                    operation = self.mix.draw(&mut self.random);
                }
                self.planned[place] = self.plan_one(operation, &mut new_rows);
            }
        }
        let planned = &self.planned[self.at..self.at + self.operations];
        let reads_only = planned.iter().all(|planned| matches!(planned.0, Operation::Read | Operation::Scan));
        let kind = if self.kind_is_operation { planned[0].0 as usize } else { 0 };
        Intent { kind, reads_only }
    }

    fn run<X: Transaction<Table = T>>(&mut self, transaction: &mut X) -> Result<Ending> {
        let mut written_bytes = 0;
        self.announce(transaction)?;
        for place in self.at..self.at + self.operations {
            let (operation, key, length) = self.planned[place];
            match operation {
                Operation::Scan => scan(transaction, &self.table, key, length)?,
                Operation::Read => self.find(transaction, key)?,
                Operation::Modify => self.change(transaction, key)?,
                Operation::Update if self.shape.field_bytes.is_some() => self.change(transaction, key)?,
                Operation::Update | Operation::Insert => self.overwrite(transaction, key)?,
            }
            let writes = !matches!(operation, Operation::Read | Operation::Scan);
            written_bytes += u64::from(writes) * (KEY_BYTES + self.shape.bytes) as u64;
        }
        Ok(Ending::Commit { written_bytes })
    }

    fn read<R: Reader<Table = T>>(&mut self, snapshot: &mut R) -> Result<()> {
        self.announce(snapshot)?;
        for place in self.at..self.at + self.operations {
            let (operation, key, length) = self.planned[place];
            if operation == Operation::Scan {
                scan(snapshot, &self.table, key, length)?;
            } else {
                self.find(snapshot, key)?;
            }
        }
        Ok(())
    }

    fn committed(&mut self) {
        let new_rows = self.new_rows();
        if new_rows > 0 {
            self.next += new_rows;
            // A worker that reads the number finds the rows: they committed before.
            self.inserted.by_worker[self.index].store(self.next, Ordering::Release);
        }
    }
}
