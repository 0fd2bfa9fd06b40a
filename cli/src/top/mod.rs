//! `top`: what a database does that another process has open.
//!
//! ```text
//!   the other process ◀── a request each interval, on the socket in the directory
//!          └─ its counters ──▶ differences ──▶ a screen, lines or JSON objects
//! ```
//! It opens nothing and reads no file of the database, so it disturbs no transaction and also works
//! during a checkpoint.

pub mod figures;
mod view;

use crate::live;
use crate::output::{Outcome, pause, print_json, print_text};
use crate::signals::{self, Interruptible};
use crate::terminal::Screen;
use anyhow::{Result, bail};
use figures::{Answer, Figures};
use quenchdb::ErrorKind;
use ratatui::crossterm::event::{self, Event};
use std::collections::VecDeque;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use view::Scene;

/// Arguments of `top`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  quench top mydb                 a screen; q ends it\n  \
                        quench top mydb --count 5 | cat  five lines, a second apart\n  \
                        quench top mydb --json           a JSON object each second")]
pub struct TopArgs {
    /// Database directory; another process has it open for writing
    directory: PathBuf,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = crate::parse::positive_seconds)]
    interval: f64,
    /// End after so many intervals
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

/// Columns of the history that the screen can show.
const HISTORY: usize = 1000;
/// Lines between two headings.
const LINES_A_HEADING: u64 = 20;

pub fn run(args: &TopArgs, json: bool) -> Result<Outcome> {
    if crate::commands::is_url(&args.directory) {
        bail!(
            "only a process that has a database in a directory open answers: a store of objects has no socket"
        );
    }
    let first = Answer::ask(&args.directory)?;
    let draws = !json && std::io::stdout().is_terminal() && live::check_terminal().is_ok();
    if draws { show(args, first) } else { print(args, first, json) }
}

/// Prints a line each interval.
fn print(args: &TopArgs, mut before: Answer, json: bool) -> Result<Outcome> {
    for number in 0..args.count.unwrap_or(u64::MAX) {
        if !pause(Duration::from_secs_f64(args.interval))? {
            break;
        }
        let now = Answer::ask(&args.directory)?;
        let figures = Figures::between(&before, &now);
        if json {
            print_json(&figures)?;
        } else {
            if number % LINES_A_HEADING == 0 {
                print_text(&view::heading())?;
            }
            print_text(&view::line(&figures))?;
        }
        before = now;
    }
    Ok(Outcome::Done)
}

/// A signal ends the program at once: nothing has to be saved.
struct NothingToSave;

impl Interruptible for NothingToSave {
    fn interrupt(&self) -> bool {
        false
    }
}

/// Draws a screen until a key or a signal ends it.
fn show(args: &TopArgs, mut before: Answer) -> Result<Outcome> {
    signals::handle();
    signals::interrupt_first(&Arc::new(NothingToSave));
    let mut screen = Screen::take()?;
    let (mut history, mut notice, mut looks) = (VecDeque::new(), None, 0);
    let interval = Duration::from_secs_f64(args.interval);
    while looks < args.count.unwrap_or(u64::MAX) {
        let scene = Scene { directory: &args.directory, history: &history, notice: notice.as_deref() };
        screen.draw(|frame| view::draw(frame, &scene))?;
        if !await_look(interval, || screen.draw(|frame| view::draw(frame, &scene)))? {
            break;
        }
        match Answer::ask(&args.directory) {
            Ok(now) => {
                history.push_back(Figures::between(&before, &now));
                history.drain(..history.len().saturating_sub(HISTORY));
                (before, notice) = (now, None);
                looks += 1;
            }
            Err(error) => {
                let kind = error.downcast_ref::<quenchdb::Error>().map(quenchdb::Error::kind);
                let is_closed = kind == Some(ErrorKind::NotFound);
                notice = Some(if is_closed {
                    "closed; waiting for a process that opens it".into()
                } else {
                    error.to_string()
                });
            }
        }
    }
    Ok(Outcome::Done)
}

/// Waits until the next look is due. Calls `redraw` when the terminal has another size. Returns
/// false if a key ends the program.
fn await_look(interval: Duration, mut redraw: impl FnMut() -> Result<()>) -> Result<bool> {
    let begun = Instant::now();
    while let Some(left) = interval.checked_sub(begun.elapsed()) {
        if event::poll(left)? {
            match event::read()? {
                Event::Key(key) if live::quits(key) => return Ok(false),
                Event::Resize(..) => redraw()?,
                _ => {}
            }
        }
    }
    Ok(true)
}
