//! `--live`: shows a run in the terminal.
//!
//! ```text
//!   driver, loaders ── samples, progress ──▶ Shared ◀── a thread: keys, five frames a second
//!          ▲                                   │
//!          └─────── ends now (q, Esc, Ctrl-C, a signal) ─┘
//! ```
//! It draws on standard error, so that standard output may be a file. It restores the terminal when
//! the measurement ends, before the report is printed.

pub mod view;

use crate::signals::{self, Interruptible};
use crate::terminal::{self, Screen};
use anyhow::{Context, Result, bail};
use quench_bench::watch::{History, Sample, Watch};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use view::{Doing, Scene};

/// Time between two frames.
const DRAW_EVERY: Duration = Duration::from_millis(200);

fn unpoisoned<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// State that the run and the screen share.
#[derive(Debug)]
pub struct Shared {
    state: Mutex<State>,
    /// True if the run must end.
    ends: AtomicBool,
    /// True if the screen must restore the terminal.
    over: AtomicBool,
}

#[derive(Debug)]
struct State {
    doing: Doing,
    began: Instant,
    history: History,
}

impl Shared {
    fn new(interval: Duration) -> Shared {
        let state = State {
            doing: Doing { what: "starting".into(), done: 0, total: 0 },
            began: Instant::now(),
            history: History::new(interval),
        };
        Shared { state: Mutex::new(state), ends: AtomicBool::new(false), over: AtomicBool::new(false) }
    }

    /// Shows progress. Returns false if the screen has ended.
    pub fn at(&self, what: &str, done: u64, total: u64) -> bool {
        if self.over.load(Ordering::Acquire) {
            return false;
        }
        let mut state = unpoisoned(&self.state);
        if state.doing.what != what {
            (state.doing.what, state.began) = (what.into(), Instant::now());
        }
        (state.doing.done, state.doing.total) = (done, total);
        true
    }
}

impl Interruptible for Shared {
    /// Returns false before anything is measured: then there is no result.
    fn interrupt(&self) -> bool {
        let measured = unpoisoned(&self.state).history.newest().is_some();
        let first = !self.ends.swap(true, Ordering::SeqCst);
        first && measured && !self.over.load(Ordering::Acquire)
    }
}

impl Watch for Shared {
    fn sampled(&self, sample: Sample) {
        unpoisoned(&self.state).history.push(sample);
    }

    fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }
}

/// Checks that standard error is a terminal that can be drawn on.
///
/// # Errors
/// Standard error is no such terminal, or the trace writes to it.
pub fn check_terminal() -> Result<()> {
    if !std::io::stderr().is_terminal() {
        bail!("--live draws on standard error, which is not a terminal; leave --live out, or use --plot");
    }
    if std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty()) {
        bail!("--live needs a terminal that can move its cursor; set TERM to the type of this terminal");
    }
    if std::env::var_os("QUENCH_TRACE").is_some() {
        bail!("--live draws where QUENCH_TRACE writes; unset it, or leave --live out");
    }
    Ok(())
}

/// A screen that shows a run.
pub struct Live {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<Result<()>>>>,
}

impl Live {
    /// Takes the terminal and draws `title` at its top.
    ///
    /// # Errors
    /// The terminal cannot be used.
    pub fn start(title: String, interval: Duration) -> Result<Live> {
        check_terminal()?;
        signals::handle();
        let shared = Arc::new(Shared::new(interval));
        signals::interrupt_first(&shared);
        let screen = Screen::take()?;
        let theirs = shared.clone();
        let thread = std::thread::Builder::new().name("bench-live".into());
        let thread = thread.spawn(move || show(screen, &theirs, &title)).context("cannot watch")?;
        Ok(Live { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Returns the state for the run.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Restores the terminal.
    pub fn stop(&self) {
        self.shared.over.store(true, Ordering::Release);
        if let Some(thread) = unpoisoned(&self.thread).take() {
            // An error of the last frame does not matter.
            let _ = thread.join();
        }
        terminal::restore();
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The terminal while a child draws on it: raw, so that keys reach the child and do not become
/// signals.
pub struct Borrowed;

impl Borrowed {
    /// Lends the terminal until the result is dropped.
    pub fn lend() -> Borrowed {
        terminal::lend();
        Borrowed
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        terminal::restore();
    }
}

/// Returns whether a key ends the run.
pub fn quits(key: KeyEvent) -> bool {
    let control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind != KeyEventKind::Release
        && (control_c || matches!(key.code, KeyCode::Char('q' | 'Q') | KeyCode::Esc))
}

/// Draws frames and reads keys until the screen must end.
fn show(mut screen: Screen, shared: &Shared, title: &str) -> Result<()> {
    while !shared.over.load(Ordering::Acquire) {
        screen.draw(|frame| {
            let state = unpoisoned(&shared.state);
            let ends = shared.ends();
            let (doing, history) = (&state.doing, &state.history);
            view::draw(frame, &Scene { title, doing, elapsed: state.began.elapsed(), history, ends });
        })?;
        let drawn = Instant::now();
        while let Some(left) = DRAW_EVERY.checked_sub(drawn.elapsed())
            && !shared.over.load(Ordering::Acquire)
        {
            // A short wait, so that the end of the run shows soon.
            if !event::poll(left.min(DRAW_EVERY / 4))? {
                continue;
            }
            if let Event::Key(key) = event::read()?
                && quits(key)
                && !shared.interrupt()
            {
                drop(screen);
                signals::end_interrupted();
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
