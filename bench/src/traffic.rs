//! The writes of the block device under a directory, as the kernel counts them: through the page
//! cache or past it, and including the journal of the file system.
//!
//! The counters are those of the whole device and include other processes: measure on an idle
//! machine. A `syncfs` precedes each reading, so that a run pays for its own data in the page
//! cache, and not for data of an earlier run.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes of a sector in `/sys/dev/block/*/stat`.
const SECTOR_BYTES: u64 = 512;

/// See the module.
#[derive(Debug)]
pub struct BlockDevice {
    name: String,
    stat: PathBuf,
    directory: File,
}

/// Counters since the machine started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Bytes written.
    pub written_bytes: u64,
    /// Writes that completed.
    pub writes: u64,
    /// Flushes of its cache that completed. Not counted for a partition.
    pub flushes: u64,
}

/// The writes between two readings, and the transactions that caused them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// The device's name in `/sys/block`.
    pub device: String,
    /// Bytes written.
    pub written_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Transactions that committed from the start of the workers to their end, including the
    /// warm-up.
    pub committed: u64,
    /// Bytes for each of these transactions.
    pub bytes_per_transaction: f64,
    /// Writes.
    pub writes_per_transaction: f64,
    /// Flushes.
    pub flushes_per_transaction: f64,
}

impl BlockDevice {
    /// Returns the device of `directory`, or `None` for a file system without one.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn of(directory: &Path) -> Result<Option<BlockDevice>> {
        let describe = || format!("cannot open {}", directory.display());
        let opened = File::open(directory).with_context(describe)?;
        let number = opened.metadata().with_context(describe)?.dev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let link = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let Ok(path) = link.canonicalize() else { return Ok(None) };
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        Ok(Some(BlockDevice { name, stat: path.join("stat"), directory: opened }))
    }

    /// Syncs the file system, then reads the counters.
    ///
    /// # Errors
    /// The sync or the reading fails.
    pub fn synced(&self) -> Result<Counters> {
        rustix::fs::syncfs(&self.directory).context("cannot sync the file system")?;
        let text = std::fs::read_to_string(&self.stat)
            .with_context(|| format!("cannot read {}", self.stat.display()))?;
        Ok(counters(&text))
    }

    /// Syncs, and returns the writes since `before` for `committed` transactions.
    ///
    /// # Errors
    /// As [`BlockDevice::synced`].
    pub fn since(&self, before: Counters, committed: u64) -> Result<Traffic> {
        let now = self.synced()?;
        let (written_bytes, writes, flushes) = (
            now.written_bytes.saturating_sub(before.written_bytes),
            now.writes.saturating_sub(before.writes),
            now.flushes.saturating_sub(before.flushes),
        );
        let each = |count: u64| count as f64 / committed.max(1) as f64;
        Ok(Traffic {
            device: self.name.clone(),
            written_bytes,
            writes,
            flushes,
            committed,
            bytes_per_transaction: each(written_bytes),
            writes_per_transaction: each(writes),
            flushes_per_transaction: each(flushes),
        })
    }
}

/// Parses the line that the kernel documents in `Documentation/block/stat.rst`.
fn counters(line: &str) -> Counters {
    let numbers: Vec<u64> = line.split_whitespace().map(|number| number.parse().unwrap_or(0)).collect();
    let at = |place: usize| numbers.get(place).copied().unwrap_or(0);
    Counters { written_bytes: at(6) * SECTOR_BYTES, writes: at(4), flushes: at(15) }
}

#[cfg(test)]
mod tests;
