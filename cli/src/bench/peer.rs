//! A workload on an engine other than QuenchDB: fill, run, check, report.

use super::options::BenchArgs;
use super::pictures;
use super::work::{outcome, print, work_on};
use super::workloads::{Chosen, Setting};
use crate::output::{Outcome, Progress};
use anyhow::Result;
use quench_bench::driver::Finished;
use quench_bench::engine::Engine;
use quench_bench::peers::{Peers, Settings, Visit};
use quench_bench::place::Place;
use quench_bench::process::MemoryWatch;
use quench_bench::report::Report;
use quench_bench::store::Store;
use quench_bench::traffic::BlockDevice;
use std::path::Path;

/// Measures while the engine is open.
struct Measure<'a> {
    args: &'a BenchArgs,
    directory: &'a Path,
    bar: &'a Progress,
}

impl Visit for Measure<'_> {
    type Output = Finished;

    fn visit<S: Store>(self, store: &S) -> Result<Finished> {
        let Measure { args, directory, bar } = self;
        let (plan, device) = (args.plan(), BlockDevice::of(directory)?);
        let block_device = device.as_ref();
        let setting = Setting { args, plan: &plan, store, bar, block_device, live: None, ledger: None };
        let chosen = Chosen::of(args, &plan)?;
        let mut finished = work_on(&setting, chosen.as_ref(), None)?;
        if let Some(chosen) = chosen.filter(|_| args.check) {
            finished.report.check = Some(chosen.check(&setting, &finished.acknowledged)?);
        }
        Ok(finished)
    }
}

/// Measures `engine` in `directory`, which is empty.
pub(super) fn run(
    args: &BenchArgs,
    peers: &impl Peers,
    engine: Engine,
    directory: &Path,
    json: bool,
) -> Result<Outcome> {
    let (plan, bar, watch) = (args.plan(), Progress::new(), MemoryWatch::start()?);
    let settings = Settings {
        memory_bytes: plan.memory_bytes,
        bounded: args.bounds_memory(),
        threads: plan.threads,
        tables: Settings::TABLES,
    };
    let finished = peers.open(engine, directory, &settings, Measure { args, directory, bar: &bar });
    bar.finish();
    let report = Report {
        engine: engine.name().into(),
        tier: engine.tier(plan.level).name().into(),
        durability: engine.commit_settings(plan.level).into(),
        device: Place::directory(directory, args.trust()).device_name()?,
        rss_bytes_max: watch.bytes_max(),
        ..finished?.report
    };
    pictures::draw(args, &report)?;
    print(&report, json)?;
    Ok(outcome(report.is_sound()))
}
