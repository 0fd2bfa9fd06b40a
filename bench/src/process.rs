//! Processor time, memory and written bytes of this process, as the kernel counts them.

use anyhow::{Context, Result, bail};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Restricts the calling thread, number `index`, to one of the processors that it may use: round
/// robin, so that threads beyond the number of processors share them.
///
/// # Errors
/// The system refuses it.
pub fn pin(index: usize) -> Result<()> {
    let allowed = sched_getaffinity(None).context("cannot ask for the processors of a thread")?;
    let processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number)).collect();
    if processors.is_empty() {
        bail!("the process may use no processor");
    }
    let mut one = CpuSet::new();
    one.set(processors[index % processors.len()]);
    sched_setaffinity(None, &one).context("cannot pin a thread to a processor")
}

/// Returns the user and system time of this process so far, in seconds.
#[must_use]
pub fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the numbers of lines `name: number ...` of a file of `/proc/self`; 0 for a missing line.
fn numbers<const N: usize>(file: &str, names: [&str; N]) -> [u64; N] {
    let text = std::fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
    names.map(|name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    })
}

/// Memory of this process that is not backed by files: `RssAnon` and `RssShmem` of
/// `/proc/self/status`, in bytes.
#[must_use]
pub fn resident_bytes() -> u64 {
    numbers("status", ["RssAnon", "RssShmem"]).iter().sum::<u64>() * 1024
}

/// Memory of this process, what is backed by files included, in bytes: the second number of
/// `/proc/self/statm`.
fn resident_with_files() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Bytes that the kernel passed to the block layer for all threads of this process: `write_bytes`
/// of `/proc/self/io`. 0 where the kernel does not say.
#[must_use]
pub fn written_bytes() -> u64 {
    numbers("io", ["write_bytes"])[0]
}

const EVERY: Duration = Duration::from_millis(20);

/// A thread that reads [`resident_bytes`] every 20 ms. It may miss shorter peaks.
///
/// It counts the whole process: pages, versions, log buffers and histograms of the engine, and 35
/// KB of latencies a worker. It excludes code and other mapped files, except for parts first used
/// after the start.
#[derive(Debug)]
pub struct MemoryWatch {
    shared: Arc<(AtomicU64, AtomicBool)>,
    thread: Option<JoinHandle<()>>,
}

impl MemoryWatch {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start() -> std::io::Result<MemoryWatch> {
        let shared = Arc::new((AtomicU64::new(resident_bytes()), AtomicBool::new(false)));
        let theirs = shared.clone();
        // The kernel needs 100 us for `status`, as long as a commit takes, and 15 us for this sum.
        let of_files = resident_with_files().saturating_sub(resident_bytes());
        let thread = std::thread::Builder::new().name("bench-memory".into()).spawn(move || {
            while !theirs.1.load(Ordering::Acquire) {
                theirs.0.fetch_max(resident_with_files().saturating_sub(of_files), Ordering::Relaxed);
                std::thread::park_timeout(EVERY);
            }
        })?;
        Ok(MemoryWatch { shared, thread: Some(thread) })
    }

    /// Returns the largest value so far.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        self.shared
            .0
            .fetch_max(resident_bytes(), Ordering::Relaxed)
            .max(self.shared.0.load(Ordering::Relaxed))
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        self.shared.1.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // After a panic of the thread only the memory figure is wrong.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
