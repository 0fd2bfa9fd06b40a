//! The measurement of one engine.

use super::child::{Answer, Process};
use super::trace::{self, Injection, Syncs};
use super::{Mode, Subject};
use anyhow::{Context, Result};
use std::path::Path;

/// What was seen of one engine.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) engine: String,
    /// Syncs of [`trace::WRITES`] puts as the first example shows, and with the durable option.
    pub(super) by_default: Syncs,
    pub(super) durable: Syncs,
    pub(super) survives_kill: bool,
    /// `None` if the durable option syncs nothing that could fail.
    pub(super) failed_sync: Option<FailedSync>,
    pub(super) second_open_same_process: Answer,
    pub(super) second_open_other_process: Answer,
    pub(super) bytes: u64,
}

/// What followed a put whose syncs failed.
#[derive(Debug)]
pub(super) struct FailedSync {
    pub(super) said: Answer,
    pub(super) later_write: Answer,
    pub(super) row_in_the_process: Answer,
    pub(super) row_after_close: Answer,
    pub(super) row_after_kill: Answer,
}

/// Measures `subject` with databases below `parent`, which are removed.
pub(super) fn measure(subject: &Subject, parent: &Path) -> Result<Row> {
    let base = tempfile::Builder::new()
        .prefix("durability-")
        .tempdir_in(parent)
        .with_context(|| format!("cannot make a directory in {}", parent.display()))?;
    let base = base.path().canonicalize()?;
    let fresh = |name: &str| -> Result<_> {
        let directory = base.join(name);
        std::fs::create_dir(&directory)?;
        Ok(directory)
    };
    let what = |what: &'static str| move || format!("{}: {what}", subject.name);
    let trace_file = base.join("trace");
    let by_default = trace::count(subject, Mode::Default, &fresh("default")?, &trace_file)
        .with_context(what("counting syncs by default"))?;
    let durable = trace::count(subject, Mode::Durable, &fresh("durable")?, &trace_file)
        .with_context(what("counting syncs with the durable option"))?;
    let failed_sync = match durable.is_empty() {
        true => None,
        false => Some(
            failed_sync(subject, &durable, &fresh("closed")?, &fresh("killed")?)
                .with_context(what("failing syncs"))?,
        ),
    };
    let (second_open_same_process, second_open_other_process) =
        second_open(subject, &fresh("twice")?).with_context(what("a second open"))?;
    Ok(Row {
        engine: subject.name.clone(),
        by_default,
        durable,
        survives_kill: survives_kill(subject, &fresh("kill")?).with_context(what("a kill"))?,
        failed_sync,
        second_open_same_process,
        second_open_other_process,
        bytes: bytes(subject, &fresh("bytes")?).with_context(what("one row"))?,
    })
}

fn open(subject: &Subject, mode: Mode, directory: &Path) -> Result<Process> {
    let mut process = Process::start(subject, mode, directory, &[])?;
    process.must("open")?;
    Ok(process)
}

/// Returns the row as a new process finds it.
fn read_again(subject: &Subject, mode: Mode, directory: &Path, key: &str) -> Result<Answer> {
    let mut process = Process::start(subject, mode, directory, &[])?;
    Ok(match process.ask("open") {
        Answer::Done => process.ask(&format!("get {key}")),
        refused => refused,
    })
}

fn survives_kill(subject: &Subject, directory: &Path) -> Result<bool> {
    let mut process = open(subject, Mode::Default, directory)?;
    process.must("put row 1")?;
    drop(process);
    Ok(read_again(subject, Mode::Default, directory, "row")? == Answer::Value("1".into()))
}

fn failed_sync(subject: &Subject, syncs: &Syncs, closed: &Path, killed: &Path) -> Result<FailedSync> {
    let put_that_fails = |directory: &Path| -> Result<_> {
        let mut process = open(subject, Mode::Durable, directory)?;
        process.must("put before 1")?;
        let injection = Injection::start(process.id(), syncs)?;
        let said = process.ask("put row 1");
        drop(injection);
        Ok((said, process))
    };
    let (said, mut process) = put_that_fails(closed)?;
    let row_in_the_process = process.ask("get row");
    let later_write = process.ask("put later 1");
    process.ask("close");
    drop(process);
    let row_after_close = read_again(subject, Mode::Durable, closed, "row")?;
    let (_, process) = put_that_fails(killed)?;
    drop(process);
    let row_after_kill = read_again(subject, Mode::Durable, killed, "row")?;
    Ok(FailedSync { said, later_write, row_in_the_process, row_after_close, row_after_kill })
}

fn second_open(subject: &Subject, directory: &Path) -> Result<(Answer, Answer)> {
    let mut first = open(subject, Mode::Default, directory)?;
    first.must("put row 1")?;
    let other = Process::start(subject, Mode::Default, directory, &[])?.ask("open");
    Ok((first.ask("again"), other))
}

fn bytes(subject: &Subject, directory: &Path) -> Result<u64> {
    let mut process = open(subject, Mode::Default, directory)?;
    process.must("put row 1")?;
    process.must("close")?;
    drop(process);
    apparent_bytes(directory)
}

fn apparent_bytes(directory: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        sum += if metadata.is_dir() { apparent_bytes(&entry.path())? } else { metadata.len() };
    }
    Ok(sum)
}
