//! The process that holds one engine, and the other end of its pipes.
//!
//! | command | answer |
//! |---|---|
//! | `open`, `put KEY VALUE`, `close` | `ok`, or `error` and the engine's text |
//! | `again` (open the same database a second time) | the same |
//! | `get KEY` | `value` and the value, `absent`, or `error` |

use super::engines::{self, Opened};
use super::{Mode, Subject};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

/// Serves `engine` until standard input ends.
pub(super) fn serve(engine: &str, mode: Mode, directory: &Path) -> Result<()> {
    let mut database: Option<Box<dyn Opened>> = None;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match (words.as_slice(), &mut database) {
            (["open"], None) => engines::open(engine, mode, directory).map(|opened| {
                database = Some(opened);
                "ok".into()
            }),
            (["again"], Some(_)) => engines::open(engine, mode, directory).map(|_| "ok".into()),
            (["put", key, value], Some(database)) => database.put(key, value).map(|()| "ok".into()),
            (["get", key], Some(database)) => {
                database.get(key).map(|value| value.map_or("absent".into(), |value| format!("value {value}")))
            }
            (["close"], Some(_)) => {
                database.take().map_or(Ok(()), |database| database.close()).map(|()| "ok".into())
            }
            _ => bail!("`{line}` is no command here"),
        };
        let answer = answer.unwrap_or_else(|error| format!("error {error:#}").replace('\n', " "));
        let mut out = std::io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

/// What a process answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    Done,
    Value(String),
    Absent,
    /// The engine's text.
    Refused(String),
    /// No answer within [`PATIENCE`].
    Waits,
    /// The process ended.
    Gone,
}

/// How long an answer may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// A running process.
pub(super) struct Process {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

impl Process {
    /// Starts the subject's program, below `before` (a tracer with its flags) if that is not empty.
    pub(super) fn start(
        subject: &Subject,
        mode: Mode,
        directory: &Path,
        before: &[String],
    ) -> Result<Process> {
        let directory = directory.display().to_string();
        let words: Vec<&str> = before
            .iter()
            .chain(&subject.command)
            .map(String::as_str)
            .chain([mode.name(), directory.as_str()])
            .collect();
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", words[0]))?;
        let input = child.stdin.take().expect("piped above");
        let output = std::io::BufReader::new(child.stdout.take().expect("piped above"));
        let (send, answers) = mpsc::channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Ok(Process { child, input, answers })
    }

    /// Sends a command and waits for its answer.
    pub(super) fn ask(&mut self, command: &str) -> Answer {
        if writeln!(self.input, "{command}").and_then(|()| self.input.flush()).is_err() {
            return Answer::Gone;
        }
        match self.answers.recv_timeout(PATIENCE) {
            Ok(line) => match line.split_once(' ') {
                Some(("value", value)) => Answer::Value(value.into()),
                Some(("error", text)) => Answer::Refused(text.into()),
                _ if line == "absent" => Answer::Absent,
                _ if line == "ok" => Answer::Done,
                _ => Answer::Refused(line),
            },
            Err(RecvTimeoutError::Timeout) => Answer::Waits,
            Err(RecvTimeoutError::Disconnected) => Answer::Gone,
        }
    }

    /// As [`Process::ask`], for a command that must succeed.
    pub(super) fn must(&mut self, command: &str) -> Result<()> {
        match self.ask(command) {
            Answer::Done => Ok(()),
            other => bail!("`{command}` was answered with {other:?}"),
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    /// Kills the process, if it has not ended.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
