//! Many seeds, each in a process of its own, so that one that panics, hangs or leaks leaves the others alone, and every one
//! begins with the same state of the process.

use crate::figures::Figures;
use anyhow::{Context, Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use quenchdb::base::planted::Bug;
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A seed that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    pub seed: u64,
    /// What its process said, the last lines.
    pub said: String,
}

/// Which seeds, and until when.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub seeds: Range<u64>,
    /// No further seed is begun after this.
    pub until: Option<Instant>,
    /// Processes at a time.
    pub processes: usize,
    /// So many of them, the first, are run twice, and must go the same way.
    pub twice: u64,
    /// Crashes of each seed's first life.
    pub points: u64,
    /// A seed that takes longer has failed.
    pub patience: Duration,
    /// A bug to plant.
    pub planted: Option<Bug>,
}

/// What seeds did.
#[derive(Clone, Debug, Default)]
pub struct Done {
    pub figures: Figures,
    pub failures: Vec<Failure>,
    /// Seeds that were run twice, and went the same way.
    pub twice: u64,
}

/// Runs them, and adds up what they did.
///
/// # Errors
/// This program cannot be started.
pub fn run(wanted: &Wanted) -> Result<Done> {
    let program = std::env::current_exe().context("this program's own path")?;
    let next = AtomicU64::new(wanted.seeds.start);
    let done = Mutex::new(Done::default());
    let bar = ProgressBar::new(wanted.seeds.end - wanted.seeds.start);
    let style =
        ProgressStyle::with_template("{elapsed_precise} {wide_bar} {pos} of {len} seeds, {eta} left {msg}");
    bar.set_style(style?);
    let worker = |processor: usize| -> Result<()> {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= wanted.seeds.end || wanted.until.is_some_and(|until| Instant::now() > until) {
                return Ok(());
            }
            let twice = seed - wanted.seeds.start < wanted.twice;
            let outcome = once_or_twice(&program, seed, processor, wanted, twice)?;
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            match outcome {
                Ok(own) => {
                    done.figures.merge(&own);
                    done.twice += u64::from(twice);
                }
                Err(said) => {
                    done.failures.push(Failure { seed, said });
                    bar.set_message(format!("({} failed)", done.failures.len()));
                }
            }
            drop(done);
            bar.inc(1);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..wanted.processes).map(|processor| scope.spawn(move || worker(processor))).collect();
        workers.into_iter().try_for_each(|worker| {
            worker.join().unwrap_or_else(|_| Err(anyhow!("a thread that waits for processes panicked")))
        })
    })?;
    bar.finish_and_clear();
    Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn once_or_twice(
    program: &Path,
    seed: u64,
    processor: usize,
    wanted: &Wanted,
    twice: bool,
) -> Result<Result<Figures, String>> {
    let first = one(program, seed, processor, wanted)?;
    let Some(figures) = first.as_ref().ok().filter(|_| twice) else { return Ok(first) };
    let second = one(program, seed, processor, wanted)?;
    if second.as_ref() == Ok(figures) {
        return Ok(second);
    }
    Ok(Err(format!("goes another way the second time:\n{figures:?}\n{second:?}")))
}

/// One seed: its figures, or what its process said when it failed.
pub fn one(program: &Path, seed: u64, processor: usize, wanted: &Wanted) -> Result<Result<Figures, String>> {
    let child = Command::new(program)
        .args(["run", &seed.to_string(), "--points", &wanted.points.to_string()])
        .args(["--processor", &processor.to_string()])
        .env("QUENCH_PLANTED", wanted.planted.map_or("", Bug::name))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let output = match wait_at_most(child, wanted.patience)? {
        Some(output) => output,
        None => return Ok(Err(format!("no end after {} seconds", wanted.patience.as_secs()))),
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).take(SAID_LINES).collect();
        return Ok(Err(format!("{}: {}", output.status, lines.join("\n"))));
    }
    Ok(serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("figures that cannot be read: {error}")))
}

/// Lines that are kept of what a process said.
const SAID_LINES: usize = 40;

/// `None` if it did not end in time; then it is ended.
pub fn wait_at_most(mut child: Child, patience: Duration) -> Result<Option<std::process::Output>> {
    let (done, ended) = std::sync::mpsc::channel();
    let pid = child.id();
    std::thread::scope(|scope| {
        let watch = scope.spawn(move || {
            if ended.recv_timeout(patience).is_err() {
                // It is our child, and has not been waited for.
                let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
                return true;
            }
            false
        });
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let errors = scope.spawn(move || read_all(stderr));
        let stdout = read_all(stdout);
        let stderr = errors.join().unwrap_or_default();
        let status = child.wait().context("waiting for a seed's process")?;
        let _ = done.send(());
        let overdue = watch.join().unwrap_or(false);
        Ok((!overdue).then_some(std::process::Output { status, stdout, stderr }))
    })
}

fn read_all(pipe: Option<impl std::io::Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        let _ = pipe.read_to_end(&mut bytes);
    }
    bytes
}
