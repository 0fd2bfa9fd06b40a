//! TPC-C and YCSB on one database: workers with even numbers run TPC-C, the others YCSB.
//!
//! Short and long transactions share logs, flushes and acknowledgments.

use crate::checked::Checked;
use crate::progress::Progress;
use crate::store::{Reader, Result, Store, Transaction};
use crate::tpcc::{Tpcc, TpccWorker};
use crate::workload::{Acknowledged, Ending, Intent, Seat, Worker, Workload};
use crate::ycsb::{Ycsb, YcsbWorker};
use std::collections::BTreeMap;
use std::time::Duration;

/// See the module.
#[derive(Debug)]
pub struct Mixed {
    /// Workload of the workers with even numbers.
    pub tpcc: Tpcc,
    /// Workload of the others.
    pub ycsb: Ycsb,
}

const KINDS: &[&str] = &["new-order", "payment", "order-status", "delivery", "stock-level", "ycsb"];
const YCSB_KIND: usize = 5;

/// A worker of one of the two workloads.
pub enum MixedWorker<T> {
    /// A worker with an even number.
    Tpcc(Box<TpccWorker<T>>),
    /// A worker with an odd number.
    Ycsb(Box<YcsbWorker<T>>),
}

impl<T: Clone + Send + Sync> Worker<T> for MixedWorker<T> {
    fn prepare(&mut self) -> Intent {
        match self {
            MixedWorker::Tpcc(worker) => worker.prepare(),
            MixedWorker::Ycsb(worker) => Intent { kind: YCSB_KIND, ..worker.prepare() },
        }
    }

    fn run<X: Transaction<Table = T>>(&mut self, transaction: &mut X) -> Result<Ending> {
        match self {
            MixedWorker::Tpcc(worker) => worker.run(transaction),
            MixedWorker::Ycsb(worker) => worker.run(transaction),
        }
    }

    fn read<R: Reader<Table = T>>(&mut self, snapshot: &mut R) -> Result<()> {
        match self {
            MixedWorker::Tpcc(worker) => worker.read(snapshot),
            MixedWorker::Ycsb(worker) => worker.read(snapshot),
        }
    }

    fn committed(&mut self) {
        match self {
            MixedWorker::Tpcc(worker) => worker.committed(),
            MixedWorker::Ycsb(worker) => worker.committed(),
        }
    }

    fn rest(&mut self) -> Duration {
        match self {
            MixedWorker::Tpcc(worker) => worker.rest(),
            MixedWorker::Ycsb(worker) => worker.rest(),
        }
    }
}

impl Workload for Mixed {
    type Worker<T: Clone + Send + Sync> = MixedWorker<T>;

    fn name(&self) -> &'static str {
        "mixed"
    }

    fn kinds(&self) -> &'static [&'static str] {
        KINDS
    }

    fn population(&self) -> String {
        format!("{}; {}", self.tpcc.population(), self.ycsb.population())
    }

    fn parameters(&self) -> BTreeMap<String, String> {
        let named = |name: &str, parameters: BTreeMap<String, String>| -> Vec<(String, String)> {
            parameters.into_iter().map(|(key, value)| (format!("{name}.{key}"), value)).collect()
        };
        let tpcc = named("tpcc", self.tpcc.parameters());
        tpcc.into_iter().chain(named("ycsb", self.ycsb.parameters())).collect()
    }

    fn populate<S: Store>(&self, store: &S, threads: usize, progress: Progress<'_>) -> anyhow::Result<()> {
        self.tpcc.populate(store, threads, progress)?;
        self.ycsb.populate(store, threads, progress)
    }

    fn begin<S: Store>(&self, store: &S) -> anyhow::Result<()> {
        self.ycsb.begin(store)
    }

    fn worker<S: Store>(&self, store: &S, seat: Seat) -> anyhow::Result<MixedWorker<S::Table>> {
        let half = Seat { index: seat.index / 2, ..seat };
        Ok(if seat.index.is_multiple_of(2) {
            MixedWorker::Tpcc(Box::new(self.tpcc.worker(store, half)?))
        } else {
            MixedWorker::Ycsb(Box::new(self.ycsb.worker(store, half)?))
        })
    }

    fn check<S: Store>(
        &self,
        store: &S,
        threads: usize,
        acknowledged: &Acknowledged,
        progress: Progress<'_>,
    ) -> anyhow::Result<Checked> {
        let mut checked = self.tpcc.check(store, threads, acknowledged, progress)?;
        checked.add(self.ycsb.check(store, threads, acknowledged, progress)?);
        Ok(checked)
    }
}
