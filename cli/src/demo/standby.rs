//! `demo --standby`: a writer is stopped under load, a standby takes its place, and the old writer
//! comes back without knowing.

use super::{DemoArgs, Heard, listen};
use crate::bank::{self, Bank, Entry};
use crate::output::{Outcome, fitted, print_json, print_text};
use anyhow::{Context, Result, bail};
use quenchdb::internals::base::random::Random;
use quenchdb::{Database, Standby};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Takeovers of one demo. Every other writer comes back.
const TAKEOVERS: u32 = 4;
/// A child that was ended by its successor has so long to notice.
const NOTICE: Duration = Duration::from_secs(60);
/// Numbers of the writers in this process begin here.
const OWN_WRITERS: u32 = 1 << 30;

#[derive(Debug, Serialize)]
struct Takeover {
    /// The writer was stopped and continued, instead of killed.
    zombie: bool,
    acknowledged: u64,
    /// Acknowledged by the old writer after it came back.
    acknowledged_late: u64,
    found: u64,
    missing: u64,
    /// CSNs that the standby had not applied yet when the writer stopped.
    lag_csns: u64,
    /// From the end of the writer to the first commit of its successor.
    seconds_without_service: f64,
    problems: Vec<String>,
}

struct StandbyDemo<'a> {
    args: &'a DemoArgs,
    place: &'a Path,
    json: bool,
    acknowledged: Vec<Entry>,
}

impl StandbyDemo<'_> {
    fn say(&self, text: &str) -> Result<()> {
        if self.json { Ok(()) } else { print_text(&fitted(text)) }
    }

    fn spawn(&self, round: u32) -> Result<Child> {
        Command::new(std::env::current_exe()?)
            .arg("demo-child")
            .arg(self.place)
            .args(["--threads", &self.args.threads.to_string(), "--round", &round.to_string()])
            .args(["--interval", "0.2"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // A writer that was ended says so.
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start the child")
    }

    /// Waits until the child has acknowledged something, opens a standby, and lets both work.
    fn begin(&self, count: &AtomicU64, ready: &AtomicBool, time: Duration) -> Result<Standby> {
        let spawned = Instant::now();
        while !ready.load(Ordering::Relaxed) || count.load(Ordering::Relaxed) == 0 {
            if spawned.elapsed() > NOTICE {
                bail!("the writer did not commit within a minute");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let standby = Database::builder().open_standby(self.place).context("opening the standby")?;
        std::thread::sleep(time);
        Ok(standby)
    }

    fn takeover(&mut self, round: u32, time: Duration) -> Result<Takeover> {
        let zombie = round % 2 == 1;
        let mut child = self.spawn(round)?;
        let pipe = child.stdout.take().context("the child has no standard output")?;
        let (count, ready) = (AtomicU64::new(0), AtomicBool::new(false));
        let signal = if zombie { Signal::STOP } else { Signal::KILL };
        let outcome = std::thread::scope(|scope| {
            let reader = scope.spawn(|| listen(pipe, &count, &ready));
            let took = self.begin(&count, &ready, time).and_then(|standby| {
                kill_process(Pid::from_child(&child), signal).context("cannot stop the writer")?;
                let stopped = Instant::now();
                // What was in the pipe when the writer stopped was acknowledged before.
                let (before, lag) = (count.load(Ordering::Relaxed), standby.statistics().lag_csns);
                let database = standby.promote().context("promoting the standby")?;
                self.first_commit(&database, round)?;
                Ok((database, before, lag, stopped.elapsed()))
            });
            if zombie && took.is_ok() {
                kill_process(Pid::from_child(&child), Signal::CONT)?;
                await_end(&mut child)?;
            }
            let _ = child.kill();
            child.wait()?;
            let heard = reader.join().unwrap_or_default();
            took.map(|(database, before, lag, without)| (database, before, lag, without, heard))
        });
        let (database, before, lag, without, heard) = outcome?;
        self.judge(zombie, &database, (before, lag, without), heard).inspect(|_| drop(database))
    }

    fn first_commit(&self, database: &Database, round: u32) -> Result<()> {
        let bank = Bank::open(database)?;
        let entry = Entry { writer: OWN_WRITERS + round, sequence: 1 };
        let mut random = Random::from_entropy();
        database.transact(|tx| bank.transfer(tx, entry, &mut random))?;
        Ok(())
    }

    fn judge(
        &mut self,
        zombie: bool,
        database: &Database,
        (before, lag_csns, without): (u64, u64, Duration),
        heard: Heard,
    ) -> Result<Takeover> {
        let new = heard.transfers.len() as u64;
        self.acknowledged.extend(&heard.transfers);
        let state = bank::check(database)?;
        let missing = self.acknowledged.iter().filter(|entry| !state.journal.contains(entry)).count() as u64;
        let mut problems = state.problems;
        problems.extend(heard.strange);
        if missing > 0 {
            problems.push(format!("{missing} acknowledged transfers are missing"));
        }
        let found = state.journal.len() as u64;
        let how = if zombie { "stopped, and continued after the takeover" } else { "killed" };
        self.say(&format!("  the writer is {how}; {new} transfers acknowledged"))?;
        self.say(&format!(
            "  {:.0} ms without service, until the successor's first commit was durable",
            without.as_secs_f64() * 1e3
        ))?;
        self.say(&format!(
            "  acknowledged so far {}, found {found}, missing {missing}; {}",
            self.acknowledged.len(),
            if problems.is_empty() { "each balance equals what the journal implies" } else { "BROKEN" }
        ))?;
        for problem in problems.iter().take(10) {
            self.say(&format!("  BROKEN: {problem}"))?;
        }
        Ok(Takeover {
            zombie,
            acknowledged: new,
            acknowledged_late: new.saturating_sub(before),
            found,
            missing,
            lag_csns,
            seconds_without_service: without.as_secs_f64(),
            problems,
        })
    }
}

/// Waits until a writer has noticed that it was ended.
fn await_end(child: &mut Child) -> Result<()> {
    let continued = Instant::now();
    while child.try_wait()?.is_none() {
        if continued.elapsed() > NOTICE {
            bail!("the old writer did not notice the takeover within a minute");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Runs `demo --standby` in an empty store of objects.
pub(super) fn run(args: &DemoArgs, place: &Path, json: bool) -> Result<Outcome> {
    let mut demo = StandbyDemo { args, place, json, acknowledged: Vec::new() };
    demo.say(&format!(
        "{} threads of a writer transfer money, durably; a standby follows it in another process",
        args.threads
    ))?;
    let mut takeovers = Vec::new();
    for round in 0..TAKEOVERS {
        demo.say(&format!("-- takeover {} of {TAKEOVERS}", round + 1))?;
        let time = Duration::from_secs_f64(args.seconds / f64::from(TAKEOVERS) / 2.0);
        let took = demo.takeover(round, time)?;
        let is_broken = !took.problems.is_empty();
        takeovers.push(took);
        if is_broken {
            break;
        }
    }
    let kept = takeovers.iter().all(|took| took.problems.is_empty());
    let longest = takeovers.iter().map(|took| took.seconds_without_service).fold(0.0, f64::max);
    if json {
        print_json(&serde_json::json!({
            "acknowledged": demo.acknowledged.len(),
            "missing": takeovers.last().map_or(0, |took| took.missing),
            "seconds_without_service": longest,
            "takeovers": takeovers,
            "kept": kept,
        }))?;
    } else {
        let (all, times) = (demo.acknowledged.len(), takeovers.len());
        demo.say(&match kept {
            true => format!("Kept: all {all} acknowledged transfers are there after {times} takeovers."),
            false => "BROKEN: see above.".to_string(),
        })?;
        demo.say(&format!("Longest time without service: {:.0} ms", longest * 1e3))?;
    }
    Ok(if kept { Outcome::Done } else { Outcome::Wrong })
}
