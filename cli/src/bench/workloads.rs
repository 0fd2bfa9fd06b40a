//! The workloads that implement [`Workload`]: one way to fill, run and check all of them.
//!
//! ```text
//!   fill, or find filled ─▶ checkpoint, if asked for ─▶ run, --runs times ─▶ check, if asked for
//! ```

use super::options::BenchArgs;
use super::workload_name::Workload as Name;
use crate::live::Live;
use crate::output::Progress;
use anyhow::{Context, Result, bail};
use quench_bench::checked::Checked;
use quench_bench::counter::Counter;
use quench_bench::driver::{Finished, Run, WhileWorking};
use quench_bench::ledger::Ledger;
use quench_bench::mixed::Mixed;
use quench_bench::plan::Plan;
use quench_bench::population;
use quench_bench::queue::Queue;
use quench_bench::report::Report;
use quench_bench::store::Store;
use quench_bench::tatp::Tatp;
use quench_bench::tpcb::Tpcb;
use quench_bench::tpcc::Tpcc;
use quench_bench::traffic::BlockDevice;
use quench_bench::watch::Watch;
use quench_bench::workload::{Acknowledged, Seat, Workload};
use quench_bench::ycsb::Ycsb;
use std::time::Instant;

/// The workload that the flags name.
pub(super) enum Chosen {
    Ycsb(Ycsb),
    Tpcc(Tpcc),
    Tpcb(Tpcb),
    Tatp(Tatp),
    Mixed(Mixed),
    Counter(Counter),
    Queue(Queue),
}

/// The inputs of a run besides its workload.
pub(super) struct Setting<'a, S> {
    pub args: &'a BenchArgs,
    pub plan: &'a Plan,
    pub store: &'a S,
    pub bar: &'a Progress,
    /// The block device whose writes are counted.
    pub block_device: Option<&'a BlockDevice>,
    /// The screen of `--live`.
    pub live: Option<&'a Live>,
    /// The record of acknowledgments, if the process will be killed.
    pub ledger: Option<&'a Ledger>,
}

macro_rules! each_kind {
    ($chosen:expr, $workload:ident => $result:expr) => {
        match $chosen {
            Chosen::Ycsb($workload) => $result,
            Chosen::Tpcc($workload) => $result,
            Chosen::Tpcb($workload) => $result,
            Chosen::Tatp($workload) => $result,
            Chosen::Mixed($workload) => $result,
            Chosen::Counter($workload) => $result,
            Chosen::Queue($workload) => $result,
        }
    };
}

impl Chosen {
    /// As the flags say; nothing for a workload of another kind.
    pub(super) fn of(args: &BenchArgs, plan: &Plan) -> Result<Option<Chosen>> {
        let only = args.only.as_deref();
        Ok(Some(match args.workload {
            Name::Ycsb => Chosen::Ycsb(args.ycsb.workload(plan, args.zipf)?),
            Name::Tpcc => Chosen::Tpcc(args.tpcc.workload(plan.threads, args.seed, only)?),
            Name::Tpcb => Chosen::Tpcb(args.tpcb.workload(args.seed)),
            Name::Tatp => Chosen::Tatp(args.tatp.workload(args.seed, only)?),
            Name::Mixed => {
                let tpcc = args.tpcc.workload(plan.threads.div_ceil(2), args.seed, only)?;
                Chosen::Mixed(Mixed { tpcc, ycsb: args.ycsb.workload(plan, args.zipf)? })
            }
            Name::Counter => Chosen::Counter(args.counter.workload()),
            Name::Queue => Chosen::Queue(args.queue.workload(plan)),
            _ => return Ok(None),
        }))
    }

    /// Fills the database and runs.
    pub(super) fn run<S: Store>(
        &self,
        setting: &Setting<'_, S>,
        while_working: Option<WhileWorking<'_>>,
    ) -> Result<Finished> {
        each_kind!(self, workload => setting.run(workload, while_working))
    }

    /// Checks the database.
    pub(super) fn check<S: Store>(
        &self,
        setting: &Setting<'_, S>,
        acknowledged: &Acknowledged,
    ) -> Result<Checked> {
        each_kind!(self, workload => setting.check(workload, acknowledged))
    }
}

impl<S: Store> Setting<'_, S> {
    /// Returns the watch of `--live`.
    pub(super) fn watch(&self) -> Option<&dyn Watch> {
        self.live.map(|live| -> &dyn Watch { &**live.shared() })
    }

    fn run<W: Workload>(&self, workload: &W, while_working: Option<WhileWorking<'_>>) -> Result<Finished> {
        let (args, plan, store) = (self.args, self.plan, self.store);
        let progress = |what: &str, done: u64, total: u64| self.bar.at(what, done, total);
        population::prepare(workload, store, plan.threads, args.reuse, &progress)?;
        if args.checkpoint_when_loaded() {
            progress("checkpoint", 0, 1);
            store.checkpoint(false)?;
        }
        workload.begin(store)?;
        let parameters = workload.parameters();
        let run = Run {
            workload: workload.name(),
            parameters: &parameters,
            kinds: workload.kinds(),
            store,
            plan,
            progress: &progress,
            block_device: self.block_device,
            while_working,
            watch: self.watch(),
            ledger: self.ledger,
        };
        let first = population::begin_runs(store, args.runs())?;
        workload.around(store, || {
            let mut all = Vec::new();
            for run_number in first..first + args.runs() {
                let worker = |index| workload.worker(store, Seat { run: run_number, index });
                all.push(run.drive((0..plan.threads).map(worker).collect::<Result<_>>()?)?);
                if self.watch().is_some_and(Watch::ends) {
                    break;
                }
            }
            summed(all).context("no run")
        })
    }

    fn check<W: Workload>(&self, workload: &W, acknowledged: &Acknowledged) -> Result<Checked> {
        let progress = |what: &str, done: u64, total: u64| self.bar.at(what, done, total);
        if population::found(self.store)?.is_none() {
            bail!("the database has no complete population; run without --reuse on an empty directory");
        }
        let began = Instant::now();
        let checked = workload.check(self.store, self.plan.threads, acknowledged, &progress)?;
        Ok(Checked { seconds: began.elapsed().as_secs_f64(), ..checked })
    }
}

/// One result of several runs: what they did together, and the report of the median.
fn summed(all: Vec<Finished>) -> Option<Finished> {
    let mut sum = Finished::default();
    let mut reports = Vec::new();
    for finished in all {
        reports.push(finished.report);
        sum.written_bytes += finished.written_bytes;
        for (kind, count) in finished.acknowledged {
            *sum.acknowledged.entry(kind).or_default() += count;
        }
        let workers = finished.committed_by_worker;
        sum.committed_by_worker.resize(workers.len(), 0);
        sum.committed_by_worker.iter_mut().zip(workers).for_each(|(sum, count)| *sum += count);
    }
    let report: Report = Report::median_of(reports)?;
    Some(Finished { report, ..sum })
}
