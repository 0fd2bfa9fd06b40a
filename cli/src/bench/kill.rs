//! A workload in a child process that is killed while it works.
//!
//! The child is this program with the same flags and `--child`. When the measured time is over, and
//! its workers still work, it writes one line of JSON; the parent reads it and sends SIGKILL.

use super::options::BenchArgs;
use super::work::{Left, watch, work};
use super::workloads::{Chosen, Setting};
use crate::errors::one_line;
use crate::live;
use crate::output::{Outcome, Progress};
use anyhow::{Context, Result, bail};
use quench_bench::driver::Finished;
use quench_bench::ledger::Ledger;
use quench_bench::process::MemoryWatch;
use quench_bench::reopen::Ending;
use quench_bench::report::Report;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The child's line.
#[derive(Serialize, Deserialize)]
enum Message {
    Finished(Box<Finished>),
    /// One line that says why not.
    Failed(String),
}

impl Message {
    fn write(&self) -> Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string(self)?)?;
        Ok(out.flush()?)
    }
}

/// How long a child waits for its kill.
const ABANDONED: Duration = Duration::from_secs(60);

/// Ends the child with the parent's work, however that ends.
pub(super) struct Killed(pub(super) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the workload of this process's flags in a child, and kills it.
///
/// A child that is watched draws on the terminal itself. Whatever becomes of it, the terminal is
/// given back here.
pub(super) fn work_and_kill(
    directory: &Path,
    ledger: Option<&Path>,
    live: bool,
    bar: &Progress,
) -> Result<Left> {
    let _terminal = live.then(live::Borrowed::lend);
    if !live {
        bar.at("working in a child", 0, 1);
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).arg("--child").arg(directory).stdout(Stdio::piped());
    if let Some(ledger) = ledger {
        command.arg("--ledger").arg(ledger);
    }
    let mut child = Killed(command.spawn().context("cannot start the child")?);
    let mut line = String::new();
    if let Some(stdout) = child.0.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).context("cannot read what the child says")?;
    }
    drop(child);
    match serde_json::from_str(&line) {
        Ok(Message::Finished(finished)) => {
            Ok(Left { finished: *finished, ending: Ending::Killed, close_seconds: None })
        }
        Ok(Message::Failed(why)) => bail!("the child: {why}"),
        Err(_) => bail!("the child ended without a word"),
    }
}

/// Works, says so, waits to be killed.
pub(super) fn child(args: &BenchArgs, directory: &Path) -> Result<Outcome> {
    // A parent that is killed itself cannot kill this one.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let Err(error) = child_works(args, directory) else { bail!("a child's work has no end but a kill") };
    Message::Failed(one_line(&error)).write()?;
    Ok(Outcome::Wrong)
}

fn child_works(args: &BenchArgs, directory: &Path) -> Result<()> {
    let memory = MemoryWatch::start()?;
    let place = args.place(Some(directory))?;
    let watched = watch(args)?;
    let (database, bar) = (args.open(&place)?, Progress::watched(watched.as_ref()));
    let report_to = |finished: &Finished| -> Result<()> {
        bar.finish();
        if let Some(live) = &watched {
            live.stop();
        }
        let report = Report { rss_bytes_max: memory.bytes_max(), ..finished.report.clone() };
        Message::Finished(Box::new(Finished { report, ..finished.clone() })).write()?;
        std::thread::sleep(ABANDONED);
        bail!("the parent did not kill this child")
    };
    let plan = args.plan();
    let (chosen, ledger) = (Chosen::of(args, &plan)?, args.ledger.as_deref().map(Ledger::open).transpose()?);
    let (live, ledger) = (watched.as_ref(), ledger.as_ref());
    let store = &args.configured(&database);
    let setting = Setting { args, plan: &plan, store, bar: &bar, block_device: None, live, ledger };
    work(&setting, chosen.as_ref(), Some(&report_to)).map(drop)
}
