//! What every command prints: outcomes, progress on a terminal, JSON on standard output.

use crate::live;
use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a command that could be done ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The command succeeded.
    Done,
    /// The command found something wrong: a missing key, damage, a broken promise.
    Wrong,
}

/// Prints `value` as one JSON object on a line of its own.
pub fn print_json(value: &impl Serialize) -> Result<()> {
    print_text(&serde_json::to_string(value)?)
}

/// Prints text to standard output. Ignores a closed pipe: the command continues, because its exit
/// code has the result too.
pub fn print_text(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let mut print = || {
        out.write_all(text.as_bytes())?;
        out.write_all(end.as_bytes())?;
        out.flush()
    };
    match print() {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        printed => Ok(printed?),
    }
}

/// Waits before the next report of a command that repeats. Returns false at once if standard
/// output has no reader any more: its pipe is closed, or its terminal is gone.
pub fn pause(duration: Duration) -> Result<bool> {
    let end = Instant::now() + duration;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let stdout = std::io::stdout();
        // Without events of interest the system reports only that the other end is gone.
        let mut asked = [PollFd::new(&stdout, PollFlags::empty())];
        match poll(&mut asked, Some(&Timespec::try_from(left)?)) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
            Ok(0) => return Ok(true),
            Ok(_) if asked[0].revents().contains(PollFlags::NVAL) => {
                std::thread::sleep(left);
                return Ok(true);
            }
            Ok(_) => return Ok(false),
        }
    }
}

/// Columns of a terminal that every terminal has.
const COLUMNS: usize = 80;

/// Returns text whose lines fit [`COLUMNS`], as far as they have blanks. What follows a break is
/// indented.
pub fn fitted(text: &str) -> String {
    const INDENT: &str = "    ";
    let mut out = String::new();
    for line in text.lines() {
        let blanks = line.len() - line.trim_start().len();
        let mut row = line[..blanks].to_string();
        let mut is_empty = true;
        for word in line[blanks..].split(' ') {
            let width = row.chars().count() + usize::from(!is_empty) + word.chars().count();
            if width > COLUMNS && !is_empty {
                out.push_str(&row);
                out.push('\n');
                row = INDENT.to_string();
            } else if !is_empty {
                row.push(' ');
            }
            row.push_str(word);
            is_empty = false;
        }
        out.push_str(&row);
        out.push('\n');
    }
    out
}

/// Rows between two updates of the progress.
const ROWS_A_STEP: u64 = 4096;

/// Progress of long work, drawn only when standard error is a terminal.
#[derive(Clone)]
pub struct Progress {
    bar: ProgressBar,
    /// Shows the progress instead, while `--live` draws.
    live: Option<Arc<live::Shared>>,
}

impl Progress {
    /// Nothing is drawn until the first [`Progress::at`].
    pub fn new() -> Progress {
        if !std::io::stderr().is_terminal() {
            return Progress::hidden();
        }
        let bar = ProgressBar::new(0);
        if let Ok(style) =
            ProgressStyle::with_template("{msg:<28} {wide_bar} {percent:>3} % {elapsed:>4} (left {eta})")
        {
            bar.set_style(style);
        }
        Progress { bar, live: None }
    }

    /// Shows the number of rows of `table` that have passed. Their total is unknown.
    pub fn rows<T>(&self, table: &str, rows: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
        let shown = !self.bar.is_hidden();
        if let Ok(style) = ProgressStyle::with_template("{msg:<28} {elapsed:>4}") {
            self.bar.set_style(style);
        }
        (0u64..).zip(rows).map(move |(number, row)| {
            if shown && number.is_multiple_of(ROWS_A_STEP) {
                self.bar.set_message(format!("{table}: {number} rows"));
            }
            row
        })
    }

    /// Returns the progress for a command that writes rows to standard output: hidden if that is a
    /// terminal.
    pub fn beside_output() -> Progress {
        if std::io::stdout().is_terminal() { Progress::hidden() } else { Progress::new() }
    }

    fn hidden() -> Progress {
        Progress { bar: ProgressBar::hidden(), live: None }
    }

    /// Returns the progress of a run that `--live` may show.
    pub fn watched(live: Option<&live::Live>) -> Progress {
        Progress { live: live.map(|live| live.shared().clone()), ..Progress::new() }
    }

    /// Shows `done` of `total` of `what`.
    pub fn at(&self, what: &str, done: u64, total: u64) {
        let watched = self.live.as_ref().is_some_and(|live| live.at(what, done, total));
        if watched || self.bar.is_hidden() {
            return;
        }
        if self.bar.message() != what {
            self.bar.set_message(what.to_string());
            self.bar.reset_elapsed();
            self.bar.reset_eta();
        }
        self.bar.set_length(total);
        self.bar.set_position(done.min(total));
    }

    /// The same with a text that changes during the work.
    pub fn counting(&self, text: String, done: u64, total: u64) {
        if !self.bar.is_hidden() {
            self.bar.set_message(text);
            self.bar.set_length(total);
            self.bar.set_position(done.min(total));
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Returns a callback for long work of the engine.
    pub fn callback(&self) -> quenchdb::Progress {
        let progress = self.clone();
        Box::new(move |what, done, total| progress.at(what, done, total))
    }
}

#[cfg(test)]
mod tests;
