//! The settings of a run of YCSB, and the keys of its rows.

use super::mix::{Mix, Operation};
use crate::distribution::{Access, Choice, SCATTER};
use crate::plan::Plan;
use crate::rows::Shape;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The table of the rows.
pub const TABLE: &str = "ycsb";

/// Keys from here on are inserted ones.
pub(super) const INSERTED: u64 = 1 << 63;

const WORKER_SHIFT: u32 = 36;

const RUN_SHIFT: u32 = 47;

/// The key of the `n`th row that worker `index` inserts in run `run`; at most 65,536 runs of 2,048
/// workers with 2^36 rows.
#[must_use]
pub fn inserted_key(run: u64, index: usize, n: u64) -> u64 {
    let number = (run << RUN_SHIFT) | ((index as u64) << WORKER_SHIFT) | n;
    INSERTED | number.wrapping_mul(SCATTER)
}

/// What the workers of a run have inserted.
#[derive(Debug, Default)]
pub(super) struct Inserted {
    pub(super) run: AtomicU64,
    /// Rows of each worker that others can see; raised by it alone.
    pub(super) by_worker: Vec<AtomicU64>,
}

/// See the module.
#[derive(Debug)]
pub struct Ycsb {
    pub(super) plan: Plan,
    pub(super) mix: Mix,
    pub(super) access: Access,
    pub(super) choice: Choice,
    /// For the report.
    pub(super) mix_name: String,
    /// Transactions whose rows a worker announces to the store at once; 0: none.
    pub(super) ahead: usize,
    /// All operations of a transaction are of one kind.
    pub(super) mix_per_transaction: bool,
    pub(super) inserted: Arc<Inserted>,
}

impl Ycsb {
    /// `mix_name` is for the report. `access` chooses rows, with the plan's skew.
    #[must_use]
    pub fn new(plan: &Plan, mix_name: &str, mix: Mix, access: Access) -> Ycsb {
        let choice = Choice::new(plan.rows, if access == Access::Uniform { 0.0 } else { plan.zipf });
        let by_worker = (0..plan.threads).map(|_| AtomicU64::new(0)).collect();
        let inserted = Arc::new(Inserted { run: AtomicU64::new(0), by_worker });
        let (plan, mix_name, mix_per_transaction) = (plan.clone(), mix_name.into(), false);
        Ycsb { plan, mix, access, choice, mix_name, ahead: 0, mix_per_transaction, inserted }
    }

    /// Draws the kind of operation once for each transaction instead of for each operation.
    #[must_use]
    pub fn with_mix_per_transaction(self, mix_per_transaction: bool) -> Ycsb {
        Ycsb { mix_per_transaction, ..self }
    }

    /// Makes workers choose the rows of this many transactions in advance and announce them to the
    /// store. Has no effect on a mix with inserts.
    #[must_use]
    pub fn with_ahead(mut self, transactions: usize) -> Ycsb {
        self.ahead = if self.mix.insert == 0 { transactions } else { 0 };
        self
    }

    /// Reads and updates as the plan says.
    #[must_use]
    pub fn of_plan(plan: &Plan) -> Ycsb {
        let access = if plan.zipf == 0.0 { Access::Uniform } else { Access::Zipfian };
        Ycsb::new(plan, "", Mix::reads_and_updates(plan.read_percent), access)
    }

    /// Returns the types of transactions: with one operation each, the operations; otherwise a
    /// single type.
    #[must_use]
    pub fn kinds_of(plan: &Plan) -> &'static [&'static str] {
        if plan.operations == 1 { &Operation::NAMES } else { &["transaction"] }
    }

    pub(super) fn shape(&self) -> Shape {
        self.plan.shape()
    }
}
