//! `demo`: the main job, live. Measure the device, commit transfers in a child, kill it, recover,
//! prove, compare.
//!
//! Every figure printed is measured in this run.

pub mod child;
mod standby;

use crate::bank::{self, ACCOUNTS, Entry, INITIAL};
use crate::commands::{is_url, require_empty};
use crate::output::{Outcome, Progress, fitted, print_json, print_text};
use crate::parse::positive_seconds;
use crate::scratch::Scratch;
use anyhow::{Context, Result, bail};
use quench_bench::device::{DeviceLine, measure_one};
use quench_bench::place::Place;
use quench_bench::requests::{Prices, RequestReport};
use quenchdb::{Database, DeviceTrust, ObjectRequests};
use serde::Serialize;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// `quench demo`
#[derive(clap::Args)]
pub struct DemoArgs {
    /// A new or empty directory on the disk to try, or the URL of a store of objects; default: a
    /// temporary directory in the current one, removed afterwards
    directory: Option<PathBuf>,
    /// A standby takes the place of the writer, which is killed, or comes back: in a store of
    /// objects, by default one in a temporary directory
    #[arg(long)]
    standby: bool,
    /// Approximate duration
    #[arg(long, hide = true, default_value_t = 15.0, value_parser = positive_seconds)]
    seconds: f64,
    /// JSON file with prices of a store of objects, as for `bench`
    #[arg(long, value_name = "FILE", value_parser = crate::parse::prices)]
    prices: Option<Prices>,
    /// Threads that transfer
    #[arg(long, hide = true, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
}

/// Kills of one demo.
const ROUNDS: u32 = 3;

/// One round: the acknowledgments that the child received, and the content after the kill.
#[derive(Debug, Serialize)]
struct Round {
    seconds: f64,
    acknowledged: u64,
    transfers_per_second: f64,
    recovery_seconds: f64,
    replayed: u64,
    found: u64,
    missing: u64,
    sum: Option<i64>,
    problems: Vec<String>,
    commit_latency_us: Value,
}

#[derive(Debug, Serialize)]
struct DemoReport {
    database: String,
    device: Vec<DeviceLine>,
    threads: u32,
    accounts: u32,
    expected_sum: i64,
    rounds: Vec<Round>,
    acknowledged: u64,
    missing: u64,
    commit_latency_us: Value,
    /// Requests of the children to a store of objects, each until its last report before its kill.
    requests: Option<RequestReport>,
    /// Those of this process, which recovers, checks and closes the database after each kill.
    recovery_requests: Option<RequestReport>,
    kept: bool,
}

/// The output of the child before the kill.
#[derive(Debug, Default)]
struct Heard {
    setup: bool,
    transfers: Vec<Entry>,
    latency: Value,
    /// The last report of requests, and the transfers before it.
    requests: Option<(ObjectRequests, u64)>,
    strange: Vec<String>,
}

impl Heard {
    fn line(&mut self, line: &str) {
        if line == "S" {
            self.setup = true;
            return;
        }
        if let Some(json) = line.strip_prefix("L ")
            && let Ok(latency) = serde_json::from_str(json)
        {
            self.latency = latency;
            return;
        }
        if let Some(json) = line.strip_prefix("R ")
            && let Ok(report) = serde_json::from_str::<RequestReport>(json)
        {
            self.requests = Some((report.requests, self.transfers.len() as u64));
            return;
        }
        let entry = line
            .strip_prefix("T ")
            .and_then(|rest| rest.split_once(' '))
            .and_then(|(w, s)| Some(Entry { writer: w.parse().ok()?, sequence: s.parse().ok()? }));
        match entry {
            Some(entry) => self.transfers.push(entry),
            None => self.strange.push(format!("the child wrote `{line}`")),
        }
    }
}

struct Demo<'a> {
    args: &'a DemoArgs,
    directory: &'a Path,
    json: bool,
    progress: Progress,
    /// All acknowledgments so far: a later round must not lose them.
    acknowledged: Vec<Entry>,
    setup: bool,
    costs: Costs,
}

/// Requests to a store of objects so far; `None` for a directory.
#[derive(Debug, Default)]
struct Costs {
    /// Those of the children.
    work: Option<ObjectRequests>,
    /// Transfers that the children acknowledged meanwhile.
    transfers: u64,
    /// Those of this process.
    recoveries: Option<ObjectRequests>,
}

impl Costs {
    fn add(sum: &mut Option<ObjectRequests>, more: ObjectRequests) {
        *sum = Some(sum.unwrap_or_default().plus(&more));
    }

    /// Closes the database, and adds what this process has asked for it.
    fn close(&mut self, database: Database) -> Result<()> {
        let closed = database.clone();
        database.close()?;
        let requests = closed.statistics().object_requests;
        requests.into_iter().for_each(|requests| Costs::add(&mut self.recoveries, requests));
        Ok(())
    }
}

/// Reads the pipe to its end, which follows the kill, and counts the lines.
fn listen(pipe: ChildStdout, count: &AtomicU64, ready: &AtomicBool) -> Heard {
    let mut heard = Heard::default();
    let mut lines = BufReader::with_capacity(1 << 16, pipe);
    let mut line = String::new();
    while lines.read_line(&mut line).is_ok_and(|read| read > 0) {
        // A last line without its newline was cut by the kill.
        if let Some(whole) = line.strip_suffix('\n') {
            heard.line(whole);
            count.store(heard.transfers.len() as u64, Ordering::Relaxed);
            ready.store(heard.setup, Ordering::Relaxed);
        }
        line.clear();
    }
    heard
}

impl Demo<'_> {
    fn say(&self, text: &str) -> Result<()> {
        if !self.json {
            print_text(&fitted(text))?;
        }
        Ok(())
    }

    fn spawn(&self, round: u32, interval: f64) -> Result<Child> {
        Command::new(std::env::current_exe()?)
            .arg("demo-child")
            .arg(self.directory)
            .args(["--threads", &self.args.threads.to_string(), "--round", &round.to_string()])
            .args(["--interval", &interval.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the child")
    }

    /// Runs the child for `time` once it is ready, kills it, and returns its acknowledgments.
    fn work_and_kill(&self, round: u32, time: Duration) -> Result<(Heard, f64)> {
        let mut child = self.spawn(round, (time.as_secs_f64() / 5.0).clamp(0.02, 0.2))?;
        let pipe = child.stdout.take().context("the child has no standard output")?;
        let (count, ready) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| listen(pipe, &count, &ready));
            let watched = self.watch(&mut child, &count, &ready, time);
            // The reader ends with the pipe.
            let killed = child.kill();
            let status = child.wait();
            let heard = reader.join().unwrap_or_default();
            self.progress.finish();
            let seconds = watched?;
            killed.context("cannot kill the child")?;
            status?;
            Ok((heard, seconds))
        })
    }

    fn watch(&self, child: &mut Child, count: &AtomicU64, ready: &AtomicBool, time: Duration) -> Result<f64> {
        let spawned = Instant::now();
        let mut began = None;
        loop {
            if let Some(status) = child.try_wait()? {
                bail!("the child stopped by itself: {status}");
            }
            if began.is_none() && ready.load(Ordering::Relaxed) {
                began = Some(Instant::now());
            }
            let passed = began.map_or(Duration::ZERO, |began| began.elapsed());
            if passed >= time {
                return Ok(passed.as_secs_f64());
            }
            if began.is_none() && spawned.elapsed() > Duration::from_secs(60) {
                bail!("the child did not open the database within a minute");
            }
            let what = format!("{} transfers acknowledged", count.load(Ordering::Relaxed));
            self.progress.counting(what, passed.as_millis() as u64, time.as_millis() as u64);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn round(&mut self, round: u32, time: Duration) -> Result<Round> {
        let (heard, seconds) = self.work_and_kill(round, time)?;
        self.setup |= heard.setup;
        let new = heard.transfers.len() as u64;
        self.acknowledged.extend(&heard.transfers);
        if let Some((requests, transfers)) = heard.requests {
            Costs::add(&mut self.costs.work, requests);
            self.costs.transfers += transfers;
        }
        self.say(&format!(
            "  {new} transfers acknowledged as durable in {seconds:.1} s, then SIGKILL in the middle"
        ))?;
        let began = Instant::now();
        let database = Database::open(self.directory).context("reopening after the kill")?;
        let recovery_seconds = began.elapsed().as_secs_f64();
        let replayed = database.recovery().replayed;
        let state = bank::check(&database)?;
        self.costs.close(database)?;
        let missing = self.acknowledged.iter().filter(|entry| !state.journal.contains(entry)).count() as u64;
        let mut problems = state.problems;
        problems.extend(heard.strange);
        if missing > 0 {
            problems.push(format!("{missing} acknowledged transfers are missing"));
        }
        if self.setup && state.sum.is_none() {
            problems.push("the accounts are missing".into());
        }
        let found = state.journal.len() as u64;
        self.say(&format!(
            "  reopened in {:.0} ms, {replayed} transactions replayed from the log",
            recovery_seconds * 1e3
        ))?;
        self.say(&format!(
            "  acknowledged {}, found {found} (those beyond were in flight), missing {missing}",
            self.acknowledged.len()
        ))?;
        self.say(&format!(
            "  balances add up to {} of {}; {}",
            state.sum.map_or("nothing".to_string(), |sum| sum.to_string()),
            i64::from(ACCOUNTS) * INITIAL,
            if problems.is_empty() { "each equals what the journal implies" } else { "BROKEN" }
        ))?;
        for problem in problems.iter().take(10) {
            self.say(&format!("  BROKEN: {problem}"))?;
        }
        Ok(Round {
            seconds,
            acknowledged: new,
            transfers_per_second: new as f64 / seconds,
            recovery_seconds,
            replayed,
            found,
            missing,
            sum: state.sum,
            problems,
            commit_latency_us: heard.latency,
        })
    }

    fn device(&self, time: Duration) -> Result<Vec<DeviceLine>> {
        let mut lines = Vec::new();
        let place = match is_url(self.directory) {
            true => Place::objects(&self.directory.to_string_lossy()),
            false => Place::directory(self.directory, DeviceTrust::Auto),
        };
        for writers in [1, self.args.threads as usize] {
            self.progress.at("measuring the device", lines.len() as u64, 2);
            lines.push(measure_one(&place, 4096, writers, time)?);
        }
        self.progress.finish();
        Ok(lines)
    }
}

/// Returns a figure as a bar; `full` has the longest bar.
fn bar(figure: f64, full: f64) -> String {
    const WIDTH: f64 = 30.0;
    let length = if full > 0.0 { (figure / full * WIDTH).round().clamp(1.0, WIDTH) } else { 0.0 };
    "#".repeat(length as usize)
}

/// Prints the commit latency beside the latency of the raw device.
fn picture(latency: &Value, device: &[DeviceLine], threads: u32) -> String {
    let commit = |name: &str| latency[name].as_f64().unwrap_or(0.0);
    let mut rows: Vec<(String, f64)> = Vec::new();
    for (name, figure) in [("p50", "p50"), ("p99", "p99"), ("p99.9", "p999")] {
        for line in device {
            let raw = match figure {
                "p50" => line.p50_us,
                "p99" => line.p99_us,
                _ => line.p999_us,
            };
            rows.push((format!("{name:<6} raw 4 KiB write, {:>2} writers", line.writers), raw));
        }
        rows.push((format!("{name:<6} commit,          {threads:>2} threads"), commit(figure)));
    }
    let mut text = String::from("Commit latency beside the raw device's (us):\n");
    let mut group_max = 0.0;
    let size = device.len() + 1;
    for (i, (label, figure)) in rows.iter().enumerate() {
        if i % size == 0 {
            group_max = rows[i..i + size].iter().map(|(_, f)| *f).fold(0.0, f64::max);
        }
        text += &format!("  {label:<35} {figure:>9.0}  {}\n", bar(*figure, group_max));
    }
    text
}

/// Returns the URL of the store of objects in a directory.
fn store_in(directory: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(directory)?;
    Ok(format!("file://{}", absolute.display()).into())
}

/// Runs `demo`.
pub fn run(args: &DemoArgs, json: bool) -> Result<Outcome> {
    let scratch = if args.directory.is_none() { Some(Scratch::new("demo")?) } else { None };
    let directory = match (&args.directory, &scratch) {
        (Some(directory), _) => directory.as_path(),
        (None, Some(scratch)) => scratch.path(),
        (None, None) => bail!("no directory"),
    };
    let in_store = (args.standby && !is_url(directory)).then(|| store_in(directory)).transpose()?;
    let directory = in_store.as_deref().unwrap_or(directory);
    require_empty(directory)?;
    if args.standby {
        return standby::run(args, directory, json);
    }
    let (progress, acknowledged, costs) = (Progress::new(), Vec::new(), Costs::default());
    let mut demo = Demo { args, directory, json, progress, acknowledged, setup: false, costs };
    let share = |part: f64| Duration::from_secs_f64(args.seconds * part);

    demo.say("1. The device, without a database: durable writes of 4 KiB")?;
    let device = demo.device(share(0.06))?;
    for line in &device {
        demo.say(&format!(
            "  {:>2} writers: p50 {:.0} us, p99 {:.0} us, {:.0} writes/s",
            line.writers, line.p50_us, line.p99_us, line.writes_per_second
        ))?;
    }
    demo.say(&format!(
        "2. {} threads of a child transfer money between {ACCOUNTS} accounts, durably",
        args.threads
    ))?;
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        demo.say(&format!("  -- kill {} of {ROUNDS}", round + 1))?;
        let found = demo.round(round, share(0.22))?;
        let broken = !found.problems.is_empty();
        rounds.push(found);
        if broken {
            break;
        }
    }
    let database = Database::open(directory)?;
    let open_line = database.open_line();
    demo.costs.close(database)?;
    finish(&demo, device, rounds, open_line)
}

fn finish(demo: &Demo<'_>, device: Vec<DeviceLine>, rounds: Vec<Round>, database: String) -> Result<Outcome> {
    let missing = rounds.last().map_or(0, |round| round.missing);
    let kept = !rounds.is_empty() && rounds.iter().all(|round| round.problems.is_empty());
    let latency = rounds.iter().rev().map(|round| &round.commit_latency_us).find(|l| !l.is_null());
    let prices = demo.args.prices.unwrap_or_default();
    let Costs { work, transfers, recoveries } = &demo.costs;
    let report = DemoReport {
        requests: work.map(|requests| RequestReport::of(&requests, &prices, *transfers)),
        recovery_requests: recoveries.map(|requests| RequestReport::of(&requests, &prices, 0)),
        database,
        threads: demo.args.threads,
        accounts: ACCOUNTS,
        expected_sum: i64::from(ACCOUNTS) * INITIAL,
        acknowledged: demo.acknowledged.len() as u64,
        missing,
        commit_latency_us: latency.cloned().unwrap_or(Value::Null),
        device,
        rounds,
        kept,
    };
    if demo.json {
        print_json(&report)?;
    } else {
        let per_second: f64 = report.rounds.iter().map(|r| r.transfers_per_second).fold(0.0, f64::max);
        let picture = format!("3. {}", picture(&report.commit_latency_us, &report.device, report.threads));
        let mut text = format!("  {per_second:.0} durable transfers/s in the best round\n");
        text += &format!("  {}\n", report.database);
        for (of, requests) in [("work", &report.requests), ("recovery", &report.recovery_requests)] {
            text += &requests.as_ref().map_or(String::new(), |requests| format!("  {of} {requests}\n"));
        }
        text += &if kept {
            format!(
                "Kept: all {} acknowledged transfers survived {} kills.\n",
                report.acknowledged,
                report.rounds.len()
            )
        } else {
            "BROKEN: an acknowledged transfer or an invariant was lost; see above.\n".to_string()
        };
        print_text(&(picture + &fitted(&text)))?;
    }
    Ok(if kept { Outcome::Done } else { Outcome::Wrong })
}
