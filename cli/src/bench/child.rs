//! Runs of this program as child processes.

use super::kill::Killed;
use anyhow::{Context, Result};
use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Returns this program with the arguments that stand before `workload`, without `--json`: the
/// program `quench` has `bench` there; other programs have nothing.
pub(super) fn program(workload: &str) -> Result<Command> {
    let before = std::env::args().skip(1).take_while(|arg| arg != workload).filter(|arg| arg != "--json");
    let mut command = Command::new(std::env::current_exe()?);
    command.args(before);
    Ok(command)
}

/// How a child ended, and what it wrote.
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) out: String,
    pub(super) errors: String,
}

/// Runs a child to its end, and calls `wait` with the time that has passed, every `every`. An error
/// of `wait` kills the child.
pub(super) fn run(
    command: &mut Command,
    every: Duration,
    mut wait: impl FnMut(Duration) -> Result<()>,
) -> Result<Ended> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Killed(command.spawn().context("cannot start this program again")?);
    let (out, errors) = (read_all(child.0.stdout.take()), read_all(child.0.stderr.take()));
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.0.try_wait().context("cannot wait for a run of this program")? {
            break status;
        }
        wait(began.elapsed())?;
        std::thread::sleep(every);
    };
    Ok(Ended { status, out: out.join().unwrap_or_default(), errors: errors.join().unwrap_or_default() })
}

/// Reads a pipe to its end on a thread of its own, so that the child never waits for it.
fn read_all(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        // What could not be read is missed by the caller.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut text));
        String::from_utf8_lossy(&text).into_owned()
    })
}
