//! Work in parts that threads claim one after the other.

use crate::progress::Progress;
use anyhow::{Result, anyhow};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs the parts `0 .. parts` in `threads` threads and returns their results in no particular
/// order. After an error no further part begins.
///
/// # Errors
/// The first error of a part; a panic.
pub fn in_parallel<R: Send>(
    threads: usize,
    parts: u64,
    what: &str,
    progress: Progress<'_>,
    part: impl Fn(u64) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let results = Mutex::new(Vec::new());
    let claim = || -> Result<()> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= parts {
                return Ok(());
            }
            let result = part(index).inspect_err(|_| next.store(parts, Ordering::Relaxed))?;
            results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(result);
            progress(what, done.fetch_add(1, Ordering::Relaxed) + 1, parts);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(claim)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked while {what}"))?)
    })?;
    Ok(results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}

#[cfg(test)]
mod tests;
