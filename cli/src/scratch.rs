//! A directory of our own, removed when it is dropped, and when the program is interrupted or asked to end.

use crate::errors::complain;
use crate::signals::{self, known, remove};
use anyhow::{Context, Result};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Names that are tried for one directory.
const NAMES_MAX: u32 = 1000;

/// See the module. A SIGKILL of this process leaves it behind; its name says whose it was.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Creates `./quench-<purpose>-<pid>`.
    pub fn new(purpose: &str) -> Result<Scratch> {
        Scratch::within(&std::env::current_dir().context("no current directory")?, purpose)
    }

    /// Creates `<parent>/quench-<purpose>-<pid>`, with a number behind it if that is there: in a container every program has the same
    /// process id, and one that was killed has left it, or one in another container has it. Nobody else may look into it, also if it is left.
    pub fn within(parent: &Path, purpose: &str) -> Result<Scratch> {
        signals::handle();
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
            complain(&format!("{left} is there: remove it if whoever made it was killed"));
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
