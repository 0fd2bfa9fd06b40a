//! The description of a run, its result, and the state that its threads share.

use crate::activity::Activity;
use crate::ledger::Ledger;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::report::Report;
use crate::traffic::BlockDevice;
use crate::watch::Watch;
use crate::workload::Acknowledged;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

/// The result of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Finished {
    /// The figures of the measured time.
    pub report: Report,
    /// Transactions that each worker had committed, from its start on, when the measured time was
    /// over.
    pub committed_by_worker: Vec<u64>,
    /// Bytes of keys and values that they had written, from their start on.
    pub written_bytes: u64,
    /// Transactions that they knew to be durable, by type.
    #[serde(default)]
    pub acknowledged: Acknowledged,
}

/// Called when the measured time is over and the workers still work.
pub type WhileWorking<'a> = &'a (dyn Fn(&Finished) -> Result<()> + Sync);

/// A run of a workload on a store.
pub struct Run<'a, S> {
    /// Name of the workload.
    pub workload: &'a str,
    /// Parameters of the workload, for the report.
    pub parameters: &'a BTreeMap<String, String>,
    /// The types of its transactions.
    pub kinds: &'static [&'static str],
    /// The store to measure.
    pub store: &'a S,
    /// The plan of the run.
    pub plan: &'a Plan,
    /// Receives the progress.
    pub progress: Progress<'a>,
    /// If given, its traffic during the run is counted.
    pub block_device: Option<&'a BlockDevice>,
    /// If given, the workers do not stop before it returns.
    pub while_working: Option<WhileWorking<'a>>,
    /// Receives samples, and may end the run.
    pub watch: Option<&'a dyn Watch>,
    /// The file in which workers record acknowledgments.
    pub ledger: Option<&'a Ledger>,
}

/// State that the threads of a run share.
pub(super) struct Shared {
    pub(super) stop: AtomicBool,
    pub(super) failed: AtomicBool,
    pub(super) activity: Activity,
    pub(super) start: Barrier,
}

impl Shared {
    pub(super) fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
