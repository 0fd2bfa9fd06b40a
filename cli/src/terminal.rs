//! The terminal while `--live` draws: in raw mode on the alternate screen, and restored on every
//! way out.
//!
//! Ways out: [`Screen`] is dropped, in order or by a panic of its thread; a panic elsewhere (its
//! hook calls [`restore`] before it prints); a signal (so does the handler in `signals`). Restoring
//! twice does nothing the second time.

use anyhow::{Context, Result};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::{Frame, Terminal};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use std::cell::Cell;
use std::io::{Stderr, stderr, stdin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// True while this program draws. Changed under the lock.
static ON: AtomicBool = AtomicBool::new(false);
/// Held during a frame, so that no frame follows the end.
static DRAWING: Mutex<()> = Mutex::new(());

/// Settings of the terminal before another library changed them.
static REMEMBERED: Mutex<Option<Termios>> = Mutex::new(None);

/// Remembers the settings of the terminal at standard input, so that [`restore`] restores them.
pub fn remember() {
    *REMEMBERED.lock().unwrap_or_else(PoisonError::into_inner) = tcgetattr(stdin()).ok();
}

thread_local! {
    static IS_DRAWING: Cell<bool> = const { Cell::new(false) };
}

fn lock() -> MutexGuard<'static, ()> {
    DRAWING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Restores the terminal. Any thread may call it at any time.
pub fn restore() {
    // A panic while drawing calls this in the thread that has the lock.
    let _lock = (!IS_DRAWING.get()).then(lock);
    if ON.swap(false, Ordering::SeqCst) {
        give_back();
    }
    if let Some(settings) = &*REMEMBERED.lock().unwrap_or_else(PoisonError::into_inner) {
        let _ = tcsetattr(stdin(), OptionalActions::Now, settings);
    }
}

/// Ignores errors: the terminal may be gone.
fn give_back() {
    let _ = execute!(stderr(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// Prepares the terminal for a child that draws. If the child is killed, [`restore`] restores the
/// terminal.
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
    /// The terminal cannot be drawn on.
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

    /// Draws, unless the terminal was restored meanwhile.
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
