//! Signals that end the program: they remove its temporary directories and restore the terminal
//! first.

use crate::errors::complain;
use crate::terminal;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};

/// A run that the first signal ends, instead of the program.
pub trait Interruptible: Send + Sync {
    /// Asks the run to end. Returns true if the run then ends by itself, with a result.
    fn interrupt(&self) -> bool;
}

static RUN: Mutex<Option<Weak<dyn Interruptible>>> = Mutex::new(None);

/// Makes the first signal interrupt `run`, as long as `run` exists.
pub fn interrupt_first(run: &Arc<impl Interruptible + 'static>) {
    let run: Arc<dyn Interruptible> = run.clone();
    *RUN.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::downgrade(&run));
}

/// Directories to remove when a signal ends the program.
static SCRATCHES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

static HANDLER: Once = Once::new();

/// The exit code that a shell reports for SIGINT.
const INTERRUPTED: i32 = 130;

/// Most attempts: other threads may create files in a directory while it is removed.
const REMOVALS: u32 = 20;

/// Locks the list of directories to remove.
pub fn known() -> MutexGuard<'static, Vec<PathBuf>> {
    SCRATCHES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes a directory and all that is in it.
pub fn remove(path: &Path) {
    for _ in 0..REMOVALS {
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => {}
            // Removed, or a retry would fail too.
            _ => return,
        }
    }
}

/// Removes the directories and ends the program, as a signal does.
pub fn end_interrupted() -> ! {
    terminal::restore();
    known().iter().for_each(|path| remove(path));
    std::process::exit(INTERRUPTED)
}

/// Installs a handler for SIGINT, SIGTERM and SIGHUP, which removes the directories and ends the
/// program. The first signal during a watched run ends only that run.
pub fn handle() {
    HANDLER.call_once(|| {
        let handler = || {
            let run = RUN.lock().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(Weak::upgrade);
            if !run.is_some_and(|run| run.interrupt()) {
                end_interrupted();
            }
        };
        if let Err(error) = ctrlc::set_handler(handler) {
            complain(&format!("an interrupt will leave temporary directories: {error}"));
        }
    });
}
