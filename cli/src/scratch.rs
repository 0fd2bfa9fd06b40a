//! A directory of our own, removed when it is dropped, and when the program is interrupted or asked to end.

use crate::bench::live;
use anyhow::{Context, Result};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};

/// Directories to remove when a signal ends the program.
static SCRATCHES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static HANDLER: Once = Once::new();

/// As a shell reports a program that SIGINT ended.
const INTERRUPTED: i32 = 130;
/// Other threads work until the program ends, and may make a file in a directory that is being removed.
const REMOVALS: u32 = 20;

/// Names that are tried for one directory.
const NAMES_MAX: u32 = 1000;

/// See the module. A SIGKILL of this process leaves it behind; its name says whose it was.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

fn known() -> std::sync::MutexGuard<'static, Vec<PathBuf>> {
    SCRATCHES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remove(path: &Path) {
    for _ in 0..REMOVALS {
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => {}
            // Gone, or what keeps it will keep it.
            _ => return,
        }
    }
}

/// Removes the directories and ends the program, as a signal does.
pub fn end_interrupted() -> ! {
    live::restore();
    known().iter().for_each(|path| remove(path));
    std::process::exit(INTERRUPTED)
}

/// SIGINT, SIGTERM and SIGHUP remove the directories and end the program; the first of them during a run that is being watched ends
/// that.
pub fn handle_signals() {
    HANDLER.call_once(|| {
        let handler = || {
            if !live::stopped_by_signal() {
                end_interrupted();
            }
        };
        if let Err(error) = ctrlc::set_handler(handler) {
            crate::output::complain(&format!("an interrupt will leave temporary directories: {error}"));
        }
    });
}

impl Scratch {
    /// Creates `./quench-<purpose>-<pid>`.
    pub fn new(purpose: &str) -> Result<Scratch> {
        Scratch::within(&std::env::current_dir().context("no current directory")?, purpose)
    }

    /// Creates `<parent>/quench-<purpose>-<pid>`, with a number behind it if that is there: in a container every program has the same
    /// process id, and one that was killed has left it, or one in another container has it. Nobody else may look into it, also if it is left.
    pub fn within(parent: &Path, purpose: &str) -> Result<Scratch> {
        handle_signals();
        let name = format!("quench-{purpose}-{}", std::process::id());
        let mut path = parent.join(&name);
        let create = |path: &Path| DirBuilder::new().mode(0o700).create(path);
        let mut left = Vec::new();
        // Under the lock, so that a signal finds it known as soon as it is there.
        let mut known = known();
        let mut created = create(&path);
        for number in 1..NAMES_MAX {
            if !matches!(&created, Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists) {
                break;
            }
            if !known.contains(&path) {
                left.push(path);
            }
            path = parent.join(format!("{name}-{number}"));
            created = create(&path);
        }
        if created.is_ok() {
            known.push(path.clone());
        }
        drop(known);
        for left in left {
            let left = left.display();
            crate::output::complain(&format!("{left} is there: remove it if whoever made it was killed"));
        }
        created.with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Scratch { path })
    }

    /// It stays; where it is.
    pub fn keep(self) -> PathBuf {
        known().retain(|path| *path != self.path);
        let mut kept = std::mem::ManuallyDrop::new(self);
        std::mem::take(&mut kept.path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.path);
        known().retain(|path| *path != self.path);
    }
}

#[cfg(test)]
mod tests;
