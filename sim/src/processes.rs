//! Runs many seeds, each in a process of its own: a panic, hang or leak does not affect other
//! seeds, and every seed begins with the same process state.

use crate::figures::Figures;
use anyhow::{Context, Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use quenchdb::internals::base::planted::Bug;
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A failed seed.
#[derive(Clone, Debug)]
pub struct Failure {
    pub seed: u64,
    /// The first lines of the process's output.
    pub said: String,
    /// True if the second run failed with the same output.
    pub replays: bool,
}

/// Which seeds to run, and until when.
#[derive(Clone, Debug)]
pub struct Batch {
    pub seeds: Range<u64>,
    /// No seed starts after this moment.
    pub until: Option<Instant>,
    /// Number of processes at a time.
    pub processes: usize,
    /// Number of seeds, from the first on, that run twice and must not differ.
    pub twice: u64,
    /// Crashes of each seed's first run.
    pub points: u64,
    /// A seed that takes longer has failed.
    pub patience: Duration,
    /// The bug to plant.
    pub planted: Option<Bug>,
    /// Threads are interrupted.
    pub interrupts: bool,
}

impl Batch {
    fn runs_twice(&self, seed: u64) -> bool {
        seed - self.seeds.start < self.twice
    }
}

/// The results of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Done {
    pub figures: Figures,
    pub failures: Vec<Failure>,
    /// Number of seeds that ran twice without a difference.
    pub twice: u64,
}

/// Runs the seeds and totals their figures.
///
/// # Errors
/// This program cannot be started.
pub fn run(batch: &Batch) -> Result<Done> {
    let mut done = Done::default();
    run_each(batch, |seed, outcome| match outcome {
        Ok(own) => {
            done.figures.merge(&own);
            done.twice += u64::from(batch.runs_twice(seed));
        }
        Err(failure) => done.failures.push(failure),
    })?;
    Ok(done)
}

/// Runs the seeds and hands over the outcome of each, in the order in which they end.
///
/// # Errors
/// This program cannot be started.
pub fn run_each(batch: &Batch, take: impl FnMut(u64, Result<Figures, Failure>) + Send) -> Result<()> {
    let program = std::env::current_exe().context("this program's own path")?;
    let next = AtomicU64::new(batch.seeds.start);
    let taking = Mutex::new((take, 0));
    let bar = ProgressBar::new(batch.seeds.end - batch.seeds.start);
    let style =
        ProgressStyle::with_template("{elapsed_precise} {wide_bar} {pos} of {len} seeds, {eta} left {msg}");
    bar.set_style(style?);
    let worker = |processor: usize| -> Result<()> {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= batch.seeds.end || batch.until.is_some_and(|until| Instant::now() > until) {
                return Ok(());
            }
            let outcome = once_or_twice(&program, seed, processor, batch)?;
            let (take, failed) = &mut *taking.lock().unwrap_or_else(PoisonError::into_inner);
            if outcome.is_err() {
                *failed += 1;
                bar.set_message(format!("({failed} failed)"));
            }
            take(seed, outcome);
            bar.inc(1);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..batch.processes).map(|processor| scope.spawn(move || worker(processor))).collect();
        workers.into_iter().try_for_each(|worker| {
            worker.join().unwrap_or_else(|_| Err(anyhow!("a thread that waits for processes panicked")))
        })
    })?;
    bar.finish_and_clear();
    Ok(())
}

/// Runs a seed, and once more if planned or if it failed.
fn once_or_twice(
    program: &Path,
    seed: u64,
    processor: usize,
    batch: &Batch,
) -> Result<Result<Figures, Failure>> {
    let first = one(program, seed, processor, batch)?;
    match first {
        Ok(figures) if !batch.runs_twice(seed) => Ok(Ok(figures)),
        first => Ok(compare(seed, first, one(program, seed, processor, batch)?)),
    }
}

/// Returns the result of a seed from its two runs.
fn compare(
    seed: u64,
    first: Result<Figures, String>,
    second: Result<Figures, String>,
) -> Result<Figures, Failure> {
    let failure = |said, replays| Failure { seed, said, replays };
    match (first, second) {
        (Ok(figures), Ok(again)) if figures == again => Ok(figures),
        (Err(said), Err(again)) if without_thread_numbers(&said) == without_thread_numbers(&again) => {
            Err(failure(said, true))
        }
        (first, second) => {
            let describe =
                |run: Result<Figures, String>| run.map_or_else(|said| said, |own| format!("{own:?}"));
            Err(failure(
                format!("differs in the second run:\n{}\n{}", describe(first), describe(second)),
                false,
            ))
        }
    }
}

/// Removes thread numbers of the system from a panic message: `thread 'main' (4711) panicked`.
pub fn without_thread_numbers(said: &str) -> String {
    let mut parts = said.split("thread '");
    let mut text = parts.next().unwrap_or_default().to_string();
    for part in parts {
        text += "thread '";
        let number = part.split_once("' (").and_then(|(name, rest)| Some((name, rest.split_once(')')?)));
        match number {
            Some((name, (digits, rest)))
                if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) =>
            {
                text += &format!("{name}'{rest}");
            }
            _ => text += part,
        }
    }
    text
}

/// Returns the figures of one seed, or the output of its failed process.
pub fn one(program: &Path, seed: u64, processor: usize, batch: &Batch) -> Result<Result<Figures, String>> {
    let child = Command::new(program)
        .args(["run", &seed.to_string(), "--points", &batch.points.to_string()])
        .args(["--processor", &processor.to_string()])
        .args((!batch.interrupts).then_some("--uninterrupted"))
        .env("QUENCH_PLANTED", batch.planted.map_or("", Bug::name))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let output = match wait_at_most(child, batch.patience)? {
        Some(output) => output,
        None => return Ok(Err(format!("no end after {} seconds", batch.patience.as_secs()))),
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).take(SAID_LINES).collect();
        return Ok(Err(format!("{}: {}", output.status, lines.join("\n"))));
    }
    Ok(serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("figures that cannot be read: {error}")))
}

/// Most lines of output kept.
const SAID_LINES: usize = 40;

/// Returns `None` after killing a process that did not end in time.
pub fn wait_at_most(mut child: Child, patience: Duration) -> Result<Option<std::process::Output>> {
    let (done, ended) = std::sync::mpsc::channel();
    let pid = child.id();
    std::thread::scope(|scope| {
        let watch = scope.spawn(move || {
            if ended.recv_timeout(patience).is_err() {
                // The process is our child and has not been waited for.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn said(thread: u32, what: &str) -> Result<Figures, String> {
        Err(format!(
            "exit status: 101: \nthread 'worker' ({thread}) panicked at sim/src/run.rs:1:2:\n{what} (7)"
        ))
    }

    #[test]
    fn a_failure_replays_if_it_differs_only_in_thread_numbers() {
        let replays = |first, second| compare(7, first, second).expect_err("it failed").replays;
        assert!(replays(said(1, "lost"), said(2, "lost")));
        assert!(!replays(said(1, "lost"), said(1, "there")));
        assert!(!replays(said(1, "lost"), Ok(Figures::default())));
        assert!(!replays(Ok(Figures::default()), said(1, "lost")));
        let other = Figures { runs: 1, ..Figures::default() };
        assert!(!replays(Ok(Figures::default()), Ok(other.clone())));
        assert_eq!(compare(7, Ok(other.clone()), Ok(other.clone())).expect("the same twice"), other);
    }

    #[test]
    fn only_numbers_of_threads_are_left_out() {
        assert_eq!(without_thread_numbers("a thread 'b' (12) c (12)"), "a thread 'b' c (12)");
        for same in
            ["", "thread 'main' panicked (1)", "thread '", "thread 'a' (b) c", "thread 'a' ()", "'a' (1)"]
        {
            assert_eq!(without_thread_numbers(same), same);
        }
    }
}
