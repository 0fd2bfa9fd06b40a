//! Runs one workload, in this process or in a child that is killed, and prints its report.

use super::options::{BenchArgs, Reopen};
use super::workload_name::Workload;
use super::workloads::{Chosen, Setting};
use crate::live::Live;
use crate::output::{Outcome, print_json, print_text};
use anyhow::{Result, bail};
use quench_bench::driver::{Finished, Run, WhileWorking};
use quench_bench::reopen::Ending;
use quench_bench::store::{Configured, Store};
use quench_bench::ycsb::{self, Ycsb};
use quench_bench::{put, scan};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Display;

/// Takes the terminal, if `--live` draws in this process.
pub(super) fn watch(args: &BenchArgs) -> Result<Option<Live>> {
    // A child that will be killed draws itself, and its parent restores the terminal.
    let here = args.live && (args.reopen != Some(Reopen::Kill) || args.child.is_some());
    here.then(|| Live::start(args.title(), args.plan().interval)).transpose()
}

pub(super) fn print(report: &(impl Serialize + Display), json: bool) -> Result<()> {
    if json { print_json(report) } else { print_text(&report.to_string()) }
}

pub(super) fn outcome(sound: bool) -> Outcome {
    if sound { Outcome::Done } else { Outcome::Wrong }
}

/// Runs one workload, in this process or in a child.
pub(super) fn work(
    setting: &Setting<'_, Configured<'_>>,
    chosen: Option<&Chosen>,
    while_working: Option<WhileWorking<'_>>,
) -> Result<Finished> {
    let finished = work_watched(setting, chosen, while_working);
    // `--live` ends here; a signal ends the program again.
    if let Some(live) = setting.live {
        live.stop();
    }
    finished
}

pub(super) fn work_watched(
    setting: &Setting<'_, Configured<'_>>,
    chosen: Option<&Chosen>,
    while_working: Option<WhileWorking<'_>>,
) -> Result<Finished> {
    let Setting { args, plan, store, bar, .. } = *setting;
    let progress = |what: &str, done: u64, total: u64| bar.at(what, done, total);
    match args.workload {
        Workload::Put if args.counts_rows() => put::fill_log(store.database, plan, while_working, &progress),
        Workload::Scan => scan::prepare(store.database, plan, while_working, &progress),
        _ => work_on(setting, chosen, while_working),
    }
}

/// Runs a workload that is available on every engine.
pub(super) fn work_on<S: Store>(
    setting: &Setting<'_, S>,
    chosen: Option<&Chosen>,
    while_working: Option<WhileWorking<'_>>,
) -> Result<Finished> {
    let Setting { args, plan, store, bar, block_device, .. } = *setting;
    if let Some(chosen) = chosen {
        return chosen.run(setting, while_working);
    }
    let progress = |what: &str, done: u64, total: u64| bar.at(what, done, total);
    let parameters = BTreeMap::new();
    let run = |workload, kinds| Run {
        workload,
        parameters: &parameters,
        kinds,
        store,
        plan,
        progress: &progress,
        block_device,
        while_working,
        watch: setting.watch(),
        ledger: None,
    };
    match args.workload {
        Workload::Put => put::run(&run("put", put::KINDS)),
        Workload::Soak => ycsb::run(&run("soak", Ycsb::kinds_of(plan)), args.checkpoint_when_loaded()),
        _ => bail!("this is no workload"),
    }
}

/// The result of a workload, and how it ended.
pub(super) struct Left {
    pub(super) finished: Finished,
    pub(super) ending: Ending,
    pub(super) close_seconds: Option<f64>,
}
