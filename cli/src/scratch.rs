//! A temporary directory, removed when it is dropped and when a signal ends the program.

use crate::errors::complain;
use crate::signals::{self, known, remove};
use anyhow::{Context, Result};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Most names that are tried for one directory.
const NAMES_MAX: u32 = 1000;

/// See the module. A SIGKILL leaves the directory behind; its name contains the process id.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Creates `./quench-<purpose>-<pid>`.
    pub fn new(purpose: &str) -> Result<Scratch> {
        Scratch::within(&std::env::current_dir().context("no current directory")?, purpose)
    }

    /// Creates `<parent>/quench-<purpose>-<pid>`, readable by its owner only. Adds a number to a
    /// name that exists: in containers programs may have the same process id.
    pub fn within(parent: &Path, purpose: &str) -> Result<Scratch> {
        signals::handle();
        let name = format!("quench-{purpose}-{}", std::process::id());
        let mut path = parent.join(&name);
        let create = |path: &Path| DirBuilder::new().mode(0o700).create(path);
        let mut left = Vec::new();
        // Creates the directory under the lock, so that a signal handler finds it in the list.
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
            complain(&format!("{left} exists: remove it if the program that created it was killed"));
        }
        created.with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Scratch { path })
    }

    /// Keeps the directory. Returns its path.
    pub fn keep(self) -> PathBuf {
        known().retain(|path| *path != self.path);
        let mut kept = std::mem::ManuallyDrop::new(self);
        std::mem::take(&mut kept.path)
    }

    /// Returns the path.
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
