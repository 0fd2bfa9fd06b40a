//! The terminal while a run is watched: raw, on its other screen, and back again on every way out.
//!
//! Ways out: [`Screen`] is dropped, in order or by a panic of its thread; a panic elsewhere (its hook calls
//! [`restore`] before it prints); a signal (so does the handler in `signals`). Restoring twice does nothing the second time.

use anyhow::{Context, Result};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::{Frame, Terminal};
use std::cell::Cell;
use std::io::{Stderr, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The terminal is ours. Changed under the lock.
static ON: AtomicBool = AtomicBool::new(false);
/// Held while something is drawn, so that nothing is drawn after the end.
static DRAWING: Mutex<()> = Mutex::new(());

thread_local! {
    static IS_DRAWING: Cell<bool> = const { Cell::new(false) };
}

fn lock() -> MutexGuard<'static, ()> {
    DRAWING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the terminal back as it was. May be called by anybody at any time.
pub fn restore() {
    // A panic while drawing calls this in the thread that has the lock.
    let _lock = (!IS_DRAWING.get()).then(lock);
    if ON.swap(false, Ordering::SeqCst) {
        give_back();
    }
}

/// A terminal that is gone cannot be given back.
fn give_back() {
    let _ = execute!(stderr(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// A child is going to take the terminal. If it is killed before it gives it back, [`restore`] does.
pub fn lend() {
    let _lock = lock();
    if enable_raw_mode().is_ok() {
        ON.store(true, Ordering::SeqCst);
    }
}

/// See the module. There is one at a time.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Stderr>>,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// It is none that can be drawn on.
    pub fn take() -> Result<Screen> {
        let _lock = lock();
        enable_raw_mode().context("cannot watch: the terminal cannot be made raw")?;
        ON.store(true, Ordering::SeqCst);
        let begin = || -> Result<Screen> {
            execute!(stderr(), EnterAlternateScreen)?;
            Ok(Screen { terminal: Terminal::new(CrosstermBackend::new(stderr()))? })
        };
        begin().inspect_err(|_| {
            ON.store(false, Ordering::SeqCst);
            give_back();
        })
    }

    /// Draws, unless the terminal was given back meanwhile.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn draw(&mut self, scene: impl FnOnce(&mut Frame<'_>)) -> Result<()> {
        let _lock = lock();
        if !ON.load(Ordering::SeqCst) {
            return Ok(());
        }
        IS_DRAWING.set(true);
        let drawn = self.terminal.draw(scene).map(drop);
        IS_DRAWING.set(false);
        Ok(drawn?)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        IS_DRAWING.set(false);
        restore();
    }
}
