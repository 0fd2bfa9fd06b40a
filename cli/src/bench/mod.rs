//! `bench`: workloads of the crate `quench-bench` with a database opened as the flags say.
//!
//! ```text
//!   write floor ─▶ open, load, run ─▶ close, or kill ─▶ read floor ─▶ reopen, check ─▶ report
//!                      └── in this process, or in a child that is killed ──┘
//! ```

mod workload_name;
pub mod help;
mod protocol_options;
mod workload_options;
mod model_options;
mod engine_options;
mod concurrency_options;
mod figures_options;
mod instructions_options;
mod options;
mod turns;
mod checks;
mod workloads;
mod work;
mod pictures;
mod peer;
mod kill;
mod child;
mod compare;
mod ablation;
mod figures;
mod model;
mod instructions;

pub use options::BenchArgs;
pub use pictures::{ReportArgs, report};

use crate::commands::{is_url, require_empty};
use crate::errors::complain;
use crate::live::{self, Live};
use crate::output::{Outcome, Progress};
use crate::scratch::Scratch;
use anyhow::{Result, bail};
use options::Reopen;
use quench_bench::checked::Checked;
use quench_bench::driver;
use quench_bench::engine::{Engine, Tier};
use quench_bench::peers::Peers;
use quench_bench::place::Place;
use quench_bench::plan::Plan;
use quench_bench::process::MemoryWatch;
use quench_bench::reads::{self, Pattern, SEQUENTIAL_BYTES};
use quench_bench::reopen::{self, Ending, Expected};
use quench_bench::report::{Floor, Report};
use quench_bench::soak::{self, Space, Written};
use quench_bench::traffic::BlockDevice;
use quench_bench::workload::Acknowledged;
use quench_bench::{bulk, device, ledger, scan, sweep};
use quenchdb::{Database, DeviceTrust, Survives};
use serde::Serialize;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Instant;
use work::{Left, outcome, print, watch, work};
use workload_name::Workload;
use workloads::{Chosen, Setting};

/// Bytes of the read that a fault makes.
const FAULT_BYTES: usize = 4096;

/// A file that exists only during this run.
struct RemovedAtEnd(PathBuf);

impl Drop for RemovedAtEnd {
    fn drop(&mut self) {
        // What is left is found by the next run, and refused by name.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs the benchmark that the flags describe.
///
/// # Errors
/// The flags contradict each other, or the run failed.
pub fn run(args: BenchArgs, json: bool, peers: &impl Peers) -> Result<Outcome> {
    let args = args.resolved();
    let json = json || args.engines.is_turn();
    if args.engines.is_turn() || args.figures.point {
        // A parent that is killed cannot end this process.
        let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    } else if args.workload == Workload::Compare {
        return compare::run(&args, json, peers);
    }
    if args.workload == Workload::Instructions {
        return instructions::run(&args, json, peers);
    }
    run_one(&args.in_its_turn()?, json, peers)
}

/// One workload on one engine.
fn run_one(args: &BenchArgs, json: bool, peers: &impl Peers) -> Result<Outcome> {
    args.check(peers)?;
    if args.live {
        live::check_terminal()?;
    }
    if let Some(directory) = &args.child {
        return kill::child(args, directory);
    }
    if args.workload == Workload::Ablation {
        return ablation::run(args, json);
    }
    if args.workload == Workload::Figures {
        return figures::run(args, json);
    }
    if args.workload == Workload::Model {
        return model::run(args, json);
    }
    if args.workload == Workload::Device {
        return run_device(args, json);
    }
    let _memory = args.protocol.new_memory().map(|path| RemovedAtEnd(path.to_path_buf()));
    let scratch = if args.needs_scratch() { Some(Scratch::new("bench")?) } else { None };
    let directory = args.path.as_deref().or(scratch.as_ref().map(Scratch::path));
    if let Some(directory) = directory
        && !(args.reuse && (is_url(directory) || directory.join("MANIFEST").exists()))
    {
        require_empty(directory)?;
    }
    let outcome = match (args.engines.chosen(), directory) {
        (Some(engine), Some(directory)) if engine != Engine::QuenchDb => {
            peer::run(args, peers, engine, directory, json)
        }
        _ => run_here(args, directory, json),
    };
    if args.keep
        && let Some(scratch) = scratch
    {
        complain(&format!("the database is kept in {}", scratch.keep().display()));
    }
    outcome
}

/// On QuenchDB.
fn run_here(args: &BenchArgs, directory: Option<&Path>, json: bool) -> Result<Outcome> {
    let place = args.place(directory)?;
    let (plan, watched) = (args.plan(), watch(args)?);
    let bar = Progress::watched(watched.as_ref());
    let chosen = Chosen::of(args, &plan)?;
    let counted = place.path().filter(|_| args.engines.chosen().is_some());
    let block_device = counted.map(BlockDevice::of).transpose()?.flatten();
    let ledger = args.keeps_ledger().then(|| Scratch::new("ledger")).transpose()?;
    let ledger = ledger.as_ref().map(Scratch::path);
    let bench = Bench {
        args,
        place: &place,
        plan,
        chosen: chosen.as_ref(),
        bar: &bar,
        block_device,
        live: watched.as_ref(),
        ledger,
    };
    let outcome = bench.run(json);
    if let Some(live) = &watched {
        live.stop();
    }
    bar.finish();
    outcome
}

fn run_device(args: &BenchArgs, json: bool) -> Result<Outcome> {
    let parent = args.path.as_deref().or(args.needs_scratch().then_some(Path::new(".")));
    if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
        bail!("{} is not a directory", parent.display());
    }
    let scratch = parent.map(|parent| Scratch::within(parent, "bench")).transpose()?;
    let place = args.place(scratch.as_ref().map(Scratch::path))?;
    let (plan, bar) = (args.plan(), Progress::new());
    let progress = |what: &str, done: u64, total: u64| bar.at(what, done, total);
    if args.sweep {
        let report = sweep::measure(&place, plan.duration, &progress)?;
        bar.finish();
        print(&report, json)?;
    } else {
        let report = device::measure(&place, plan.threads, plan.duration, &progress)?;
        bar.finish();
        print(&report, json)?;
    }
    Ok(Outcome::Done)
}

struct Bench<'a> {
    args: &'a BenchArgs,
    place: &'a Place,
    plan: Plan,
    chosen: Option<&'a Chosen>,
    bar: &'a Progress,
    block_device: Option<BlockDevice>,
    live: Option<&'a Live>,
    /// The directory in which a killed child records acknowledgments.
    ledger: Option<&'a Path>,
}

impl Bench<'_> {
    fn run(&self, json: bool) -> Result<Outcome> {
        let (args, plan) = (self.args, &self.plan);
        let floors = driver::floors(self.place, plan, &self.progress())?;
        if args.workload == Workload::Load {
            return self.load(floors.alone, json);
        }
        let written = Written::now();
        let mut left = match self.place.location() {
            Some(directory) if args.reopen == Some(Reopen::Kill) => {
                kill::work_and_kill(directory, self.ledger, args.live, self.bar)?
            }
            _ => self.work_and_close()?,
        };
        if args.workload == Workload::Scan {
            return self.scan(json);
        }
        let logical = soak::loaded_bytes(plan) + left.finished.written_bytes;
        // The kernel sees no writes to memory.
        let counted = left.ending == Ending::Closed && self.place.path().is_some();
        let amplification = written.amplification(logical).filter(|_| counted);
        let report = &mut left.finished.report;
        (report.floor_us, report.device) = (floors.alone, self.place.device_name()?);
        report.floor_of_threads_us = floors.together;
        let mapped = report.durability.contains(&Survives::ProcessCrash.to_string());
        let tier = if mapped { self.tier()?.max(Tier::Process) } else { self.tier()? };
        report.judge_floor(plan.promises() && !mapped);
        (report.engine, report.tier) = (Engine::QuenchDb.name().into(), tier.name().into());
        report.add_group_model(args.protocol.window_us());
        if report.device_reads > 0 {
            report.read_floor = Some(self.read_floor(Pattern::Random, FAULT_BYTES)?.reads_per_second);
        }
        if args.workload == Workload::Soak {
            return self.judge(left, amplification, json);
        }
        if args.reopen.is_some() {
            let acknowledged = left.finished.acknowledged.clone();
            let (database, mut report) = self.reopen(left)?;
            report.check = self.check(&database, &acknowledged)?;
            database.close()?;
            return self.print_report(&report, &report, report.is_sound(), json);
        }
        let report = &left.finished.report;
        self.print_report(report, report, report.is_sound(), json)
    }

    fn setting<'a, S>(&'a self, store: &'a S) -> Setting<'a, S> {
        let Bench { args, ref plan, bar, live, .. } = *self;
        let block_device = self.block_device.as_ref();
        Setting { args, plan, store, bar, block_device, live, ledger: None }
    }

    /// What an acknowledged commit is worth here.
    fn tier(&self) -> Result<Tier> {
        let tier = Engine::QuenchDb.tier(self.plan.level);
        if self.place.is_memory() {
            return Ok(Tier::Nothing);
        }
        let believed =
            self.args.trust() == DeviceTrust::Device && self.place.storage()?.facts().volatile_cache;
        Ok(if believed { tier.max(Tier::Machine) } else { tier })
    }

    /// Whether everything that must hold does, if that was asked for.
    fn check(&self, database: &Database, acknowledged: &Acknowledged) -> Result<Option<Checked>> {
        match self.chosen {
            Some(chosen) if self.args.check => {
                let mut checked = chosen.check(&self.setting(database), acknowledged)?;
                if let Some(directory) = self.ledger {
                    checked.add(ledger::check(directory, database)?);
                }
                Ok(Some(checked))
            }
            _ => Ok(None),
        }
    }

    fn progress(&self) -> impl Fn(&str, u64, u64) + Sync + '_ {
        |what, done, total| self.bar.at(what, done, total)
    }

    fn work_and_close(&self) -> Result<Left> {
        let watch = MemoryWatch::start()?;
        let database = self.args.open(self.place)?;
        let mut finished = work(&self.setting(&self.args.configured(&database)), self.chosen, None)?;
        finished.report.rss_bytes_max = watch.bytes_max();
        if self.args.reopen.is_none() {
            finished.report.check = self.check(&database, &finished.acknowledged)?;
        }
        self.bar.at("closing", 0, 1);
        let began = Instant::now();
        database.close()?;
        let close_seconds = Some(began.elapsed().as_secs_f64());
        Ok(Left { finished, ending: Ending::Closed, close_seconds })
    }

    fn read_floor(&self, pattern: Pattern, bytes: usize) -> Result<reads::ReadLine> {
        self.bar.at("measuring the device", 0, 1);
        reads::floor(self.place, pattern, bytes, self.plan.threads, self.plan.floor_time())
    }

    fn scan(&self, json: bool) -> Result<Outcome> {
        let floor = || self.read_floor(Pattern::Sequential, SEQUENTIAL_BYTES);
        let report =
            scan::run(self.args.builder(self.place)?, self.place, &self.plan, floor, &self.progress())?;
        self.bar.finish();
        print(&report, json)?;
        Ok(outcome(report.is_sound()))
    }

    fn load(&self, floor_us: Floor, json: bool) -> Result<Outcome> {
        let (args, plan) = (self.args, &self.plan);
        let (watch, bulk) = (MemoryWatch::start()?, args.load.bulk());
        let database = args.open(self.place)?;
        let mut report = bulk::run(&database, plan, bulk, &self.progress())?;
        (report.floor_us, report.device) = (floor_us, self.place.device_name()?);
        report.rss_bytes_max = watch.bytes_max();
        let check = args.check.then(|| bulk::check(&database, plan, bulk.order, &self.progress()));
        report.check = check.transpose()?;
        self.bar.at("closing", 0, 1);
        database.close()?;
        self.bar.finish();
        print(&report, json)?;
        Ok(outcome(report.check.as_ref().is_none_or(Checked::is_sound)))
    }

    /// Opens what the workload left behind, and adds to its report what that showed.
    fn reopen(&self, left: Left) -> Result<(Database, Report)> {
        let (plan, durable) = (&self.plan, left.ending == Ending::Closed || self.args.counts_rows());
        let rows = |committed: &u64| match self.args.counts_rows() {
            true => *committed,
            false => committed * plan.operations as u64,
        };
        let by_worker: Vec<u64> = left.finished.committed_by_worker.iter().map(rows).collect();
        let expected = match self.args.workload {
            Workload::Put => {
                Expected::Inserted { by_worker: &by_worker, durable: durable || plan.promises() }
            }
            Workload::Ycsb | Workload::Scan | Workload::Soak => Expected::Loaded,
            _ => Expected::Unknown,
        };
        let (database, mut reopened) = reopen::reopen(
            self.args.builder(self.place)?,
            self.place,
            plan,
            left.ending,
            expected,
            &self.progress(),
        )?;
        reopened.close_seconds = left.close_seconds;
        let mut report = left.finished.report;
        report.add_reopened(reopened);
        Ok((database, report))
    }

    fn judge(&self, left: Left, amplification: Option<f64>, json: bool) -> Result<Outcome> {
        let space = Space::of(self.place)?;
        let (database, report) = self.reopen(left)?;
        let verify = Some(self.bar.callback());
        let report =
            soak::judge(&database, &self.plan, report, space, amplification, verify, &self.progress())?;
        database.close()?;
        self.print_report(&report, &report.run, report.problems.is_empty(), json)
    }

    /// Draws the picture if asked to, prints the report, and returns the outcome.
    fn print_report(
        &self,
        report: &(impl Serialize + Display),
        run: &Report,
        sound: bool,
        json: bool,
    ) -> Result<Outcome> {
        self.bar.finish();
        pictures::draw(self.args, run)?;
        print(report, json)?;
        Ok(outcome(sound))
    }
}
