//! TPC-C (TPC Benchmark C, standard specification, revision 5.11): order entry at the warehouses of
//! a wholesaler.
//!
//! ```text
//!   input     what a terminal enters    random   NURand, names, texts
//!   transactions   the five             schema   tables, keys, rows
//!   worker    mix, homes, pauses        populate, check
//! ```
//!
//! As specified: schema, population, inputs, transactions, consistency conditions. Deviations: the
//! process of the engine calls the transactions, without terminals; without `--think-times` a
//! warehouse has many more transactions than allowed; Delivery runs at once instead of from a
//! queue. So a result is not a TPC-C result, and tpmC is not claimed.

pub mod random;
pub mod schema;
pub mod input;
mod settings;
mod populate;
mod transactions;
mod worker;
mod check;
#[cfg(test)]
mod tests;

pub use input::Kind;
pub use settings::{Home, Selection, Tpcc};
pub use transactions::Terminal;
pub use worker::TpccWorker;

use crate::checked::Checked;
use crate::progress::Progress;
use crate::store::Store;
use crate::workload::{Acknowledged, Seat, Workload};
use anyhow::Result;
use random::Constants;
use schema::{Scale, Tables};
use std::collections::BTreeMap;

impl Workload for Tpcc {
    type Worker<T: Clone + Send + Sync> = TpccWorker<T>;

    fn name(&self) -> &'static str {
        "tpcc"
    }

    fn kinds(&self) -> &'static [&'static str] {
        input::KINDS
    }

    fn population(&self) -> String {
        let Scale { customers, items, .. } = self.scale;
        let (warehouses, seed) = (self.warehouses, self.population_seed);
        format!("tpcc, {warehouses} warehouses, {customers} customers a district, {items} items, seed {seed}")
    }

    fn parameters(&self) -> BTreeMap<String, String> {
        let mix = match self.selection {
            Selection::Weighted => "weighted",
            Selection::Deck => "deck",
            Selection::Only(kind) => input::KINDS[kind as usize],
        };
        let home = if self.home == Home::Fixed { "fixed" } else { "random" };
        let mut parameters = BTreeMap::from([
            ("warehouses".into(), self.warehouses.to_string()),
            ("mix".into(), mix.into()),
            ("home".into(), home.into()),
        ]);
        if self.pace > 0.0 {
            parameters.insert("think_times".into(), self.pace.to_string());
        }
        if self.scale != Scale::SPECIFICATION {
            parameters.insert("scale".into(), "small".into());
        }
        parameters
    }

    fn populate<S: Store>(&self, store: &S, threads: usize, progress: Progress<'_>) -> Result<()> {
        populate::populate(store, self.warehouses, self.scale, self.population_seed, threads, progress)
    }

    fn worker<S: Store>(&self, store: &S, seat: Seat) -> Result<TpccWorker<S::Table>> {
        let tables = Tables::open(|name| store.table(name))?;
        let constants = Constants::of_population(self.population_seed).of_run(self.run_seed);
        Ok(TpccWorker::new(self, tables, constants, seat))
    }

    fn check<S: Store>(
        &self,
        store: &S,
        threads: usize,
        acknowledged: &Acknowledged,
        progress: Progress<'_>,
    ) -> Result<Checked> {
        check::check(self, store, threads, acknowledged, progress)
    }
}
