//! A directory of our own in the current directory, removed when it is dropped.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// See the module. A kill of this process leaves it behind; its name says whose it was.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Creates `./quench-<purpose>-<pid>`.
    pub fn new(purpose: &str) -> Result<Scratch> {
        let path = std::env::current_dir()
            .context("no current directory")?
            .join(format!("quench-{purpose}-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Scratch { path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
