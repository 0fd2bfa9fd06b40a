//! YCSB (Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC 2010): single-row
//! operations on one table.
//!
//! Mixes A to F, and what papers on commit protocols make of it: several operations in a
//! transaction, or transactions that read a row, change one field of it, and write it back.
//!
//! | key, big-endian | row |
//! |---|---|
//! | 0 to `rows` | loaded |
//! | 2^63 and above | inserted: numbers of run, worker and row, permuted |

mod mix;
mod settings;
#[cfg(test)]
mod tests;
mod worker;

pub use mix::{Mix, Operation};
pub use settings::{TABLE, Ycsb, inserted_key};
pub use worker::YcsbWorker;

use crate::checked::Checked;
use crate::driver::{Finished, Run};
use crate::load;
use crate::parallel::in_parallel;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::store::{Error, Level, Reader, Session, Step, Store, Transaction};
use crate::workload::{Acknowledged, Seat, Workload};
use anyhow::{Context, Result, bail};
use quenchdb::internals::base::random::Random;
use settings::INSERTED;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// The table that counts runs that insert.
const RUNS_TABLE: &str = "ycsb.runs";
const RUNS_KEY: &[u8] = b"runs";

impl Ycsb {
    /// Reads the rows of one part of the keys.
    fn check_part<S: Store>(&self, store: &S, from: u64, to: Option<u64>) -> Result<(Checked, u64, u64)> {
        let (table, shape) = (store.table(TABLE)?, self.shape());
        let (mut checked, mut loaded, mut inserted) = (Checked::default(), 0, 0);
        let to = to.map_or(vec![u8::MAX; 9], |to| to.to_be_bytes().to_vec());
        let mut each = |key: &[u8], value: &[u8]| {
            checked.rows += 1;
            match <[u8; 8]>::try_from(key).map(u64::from_be_bytes) {
                Ok(key) if shape.is_value_of(key, value) => {
                    *if key < INSERTED { &mut loaded } else { &mut inserted } += 1;
                }
                _ => checked.problem(|| format!("row {key:x?} has a value that no transaction wrote")),
            }
            Step::Continue(())
        };
        let mut session = store.session(Level::Durable)?;
        let scanned = session
            .begin_read()
            .and_then(|mut snapshot| snapshot.scan(&table, &from.to_be_bytes(), &to, &mut each));
        scanned.map_err(Error::into_failure)?;
        Ok((checked, loaded, inserted))
    }
}

impl Workload for Ycsb {
    type Worker<T: Clone + Send + Sync> = YcsbWorker<T>;

    fn name(&self) -> &'static str {
        "ycsb"
    }

    fn kinds(&self) -> &'static [&'static str] {
        if self.mix_per_transaction { &Operation::NAMES } else { Ycsb::kinds_of(&self.plan) }
    }

    fn population(&self) -> String {
        let Plan { rows, value_bytes, .. } = self.plan;
        let fields = self.plan.field_bytes.map_or(String::new(), |bytes| format!(" in fields of {bytes}"));
        format!("ycsb, {rows} rows of {value_bytes} bytes{fields}")
    }

    fn parameters(&self) -> BTreeMap<String, String> {
        let mut parameters = BTreeMap::from([("distribution".into(), self.access.name().into())]);
        if self.mix_per_transaction {
            parameters.insert("mix_per".into(), "transaction".into());
        }
        if !self.mix_name.is_empty() {
            parameters.insert("mix".into(), self.mix_name.clone());
        }
        if let Some(bytes) = self.plan.field_bytes {
            parameters.insert("field_bytes".into(), bytes.to_string());
        }
        if self.ahead > 0 {
            parameters.insert("ahead".into(), self.ahead.to_string());
        }
        parameters
    }

    fn populate<S: Store>(&self, store: &S, _: usize, progress: Progress<'_>) -> Result<()> {
        let table = store.table(TABLE)?;
        load::load(store, &table, &self.plan, progress)
    }

    fn begin<S: Store>(&self, store: &S) -> Result<()> {
        if self.mix.insert == 0 {
            return Ok(());
        }
        let table = store.table(RUNS_TABLE)?;
        let mut session = store.session(Level::Durable)?;
        let mut count = || -> crate::store::Result<u64> {
            let (mut transaction, mut value) = (session.begin()?, Vec::new());
            let there = transaction.get(&table, RUNS_KEY, &mut value)?;
            let before = value.try_into().ok().filter(|_| there).map_or(0, u64::from_be_bytes);
            transaction.insert(&table, RUNS_KEY, &(before + 1).to_be_bytes())?;
            transaction.commit().map(|()| before)
        };
        self.inserted.run.store(count().map_err(Error::into_failure)?, Ordering::Relaxed);
        Ok(())
    }

    fn worker<S: Store>(&self, store: &S, seat: Seat) -> Result<YcsbWorker<S::Table>> {
        let table = store.table(TABLE)?;
        let random = Random::from_seed(seat.seed(self.plan.seed));
        Ok(YcsbWorker::new(self, table, seat.index, random))
    }

    fn check<S: Store>(
        &self,
        store: &S,
        threads: usize,
        acknowledged: &Acknowledged,
        progress: Progress<'_>,
    ) -> Result<Checked> {
        let (parts, rows) = (8 * threads as u64, self.plan.rows);
        let share = rows.div_ceil(parts).max(1);
        let part = |part: u64| {
            let to = (part + 1 < parts).then_some((part + 1) * share);
            self.check_part(store, part * share, to)
        };
        let (mut checked, mut loaded, mut inserted) = (Checked::default(), 0, 0);
        for part in in_parallel(threads, parts, "checking rows", progress, part)? {
            checked.add(part.0);
            loaded += part.1;
            inserted += part.2;
        }
        checked.same(loaded, rows, || "loaded rows there, and to be there".into());
        let promised = acknowledged.get("insert").copied().unwrap_or(0);
        if inserted < promised {
            checked.problem(|| format!("{inserted} inserted rows, but {promised} were acknowledged"));
        }
        Ok(checked)
    }
}

/// Refuses what makes no sense together.
///
/// # Errors
/// It says what.
pub fn check_fields(plan: &Plan) -> Result<()> {
    if let Some(bytes) = plan.field_bytes
        && (bytes < 8 || !plan.value_bytes.is_multiple_of(bytes))
    {
        bail!(
            "fields have at least 8 bytes, and a value of {} bytes has no whole number of them",
            plan.value_bytes
        );
    }
    Ok(())
}

/// Loads the rows and checkpoints if asked to.
///
/// # Errors
/// Those of the store.
pub fn prepare<S: Store>(
    store: &S,
    plan: &Plan,
    checkpoint: bool,
    progress: Progress<'_>,
) -> Result<S::Table> {
    Ycsb::of_plan(plan).populate(store, plan.threads, progress)?;
    if checkpoint {
        progress("checkpoint", 0, 1);
        store.checkpoint(false).context("the checkpoint failed")?;
    }
    store.table(TABLE)
}

/// Loads the rows, checkpoints if asked to, and measures reads and updates.
///
/// # Errors
/// Those of the store.
pub fn run<S: Store>(run: &Run<'_, S>, checkpoint: bool) -> Result<Finished> {
    let plan = run.plan;
    prepare(run.store, plan, checkpoint, run.progress)?;
    let ycsb = Ycsb::of_plan(plan);
    let workers: Result<_> = (0..plan.threads).map(|index| ycsb.worker(run.store, Seat::of(index))).collect();
    run.drive(workers?)
}
