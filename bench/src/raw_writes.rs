//! Durable writes straight to the device, without a database: the floor of a commit.

use hdrhistogram::Histogram;
use quenchdb::internals::device::{AlignedBuffer, File, OpenMode, SECTOR_BYTES, Storage};
use quenchdb::{Error, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Durable writes without a database around them.
#[derive(Clone, Debug)]
pub struct RawWrites {
    /// Latency of a write, in nanoseconds.
    pub latency: Histogram<u64>,
    /// Writes per second of all writers together.
    pub writes_per_second: f64,
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("constant bounds that the library accepts")
}

/// A preallocated, zero-filled file that is removed again.
struct Scratch {
    storage: Arc<dyn Storage>,
    file: Arc<dyn File>,
}

/// Also the name of the file that `device` reads.
pub(crate) const SCRATCH: &str = "quench-bench.tmp";

impl Scratch {
    fn new(storage: &Arc<dyn Storage>, len: u64) -> Result<Scratch> {
        let file = storage.small_file(SCRATCH, OpenMode { create: true, read_only: false, direct: true })?;
        let scratch = Scratch { storage: storage.clone(), file };
        scratch.file.zero_extend(len, &mut |_| ())?;
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The next measurement overwrites a file that stays.
        let _ = self.storage.remove_small_file(SCRATCH);
    }
}

/// `writers` threads overwrite `bytes` at a time, durably, each in its own part of a file, for
/// `duration`.
///
/// # Errors
/// `OutOfSpace`, I/O.
pub fn raw_durable_write(
    storage: &Arc<dyn Storage>,
    bytes: usize,
    writers: usize,
    duration: Duration,
) -> Result<RawWrites> {
    const PLACES: u64 = 64;
    let bytes = bytes.next_multiple_of(SECTOR_BYTES);
    let part = PLACES * bytes as u64;
    let scratch = Scratch::new(storage, part * writers as u64)?;
    time_writes(writers, duration, |writer| {
        let (file, mut buffer, mut n) = (scratch.file.clone(), AlignedBuffer::zeroed(bytes), 0u64);
        move || {
            buffer[..8].copy_from_slice(&n.to_le_bytes());
            let offset = writer * part + n % PLACES * bytes as u64;
            n += 1;
            file.write_durable_at(offset, &buffer)
        }
    })
}

/// `writers` threads write durably for `duration`, each with the function that `start` returns for
/// its number, at least once.
///
/// # Errors
/// The first error of a write.
pub fn time_writes<W>(
    writers: usize,
    duration: Duration,
    start: impl Fn(u64) -> W + Sync,
) -> Result<RawWrites>
where
    W: FnMut() -> Result<()>,
{
    let begun_all = Instant::now();
    let worker = &|writer: u64| -> Result<Histogram<u64>> {
        let (mut latency, mut write) = (histogram(), start(writer));
        loop {
            let begun = Instant::now();
            write()?;
            latency.saturating_record(begun.elapsed().as_nanos() as u64);
            if begun_all.elapsed() >= duration {
                return Ok(latency);
            }
        }
    };
    let results: Vec<Result<Histogram<u64>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..writers as u64).map(|w| scope.spawn(move || worker(w))).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err(panicked()))).collect()
    });
    let mut latency = histogram();
    for result in results {
        latency.add(result?).map_err(|e| Error::invalid(format!("cannot merge histograms: {e}")))?;
    }
    let writes_per_second = latency.len() as f64 / begun_all.elapsed().as_secs_f64();
    Ok(RawWrites { latency, writes_per_second })
}

fn panicked() -> Error {
    Error::invalid("a thread that writes panicked")
}

#[cfg(test)]
mod tests {
    use super::*;
    use quenchdb::internals::device::memory::MemoryStorage;

    #[test]
    fn raw_writes_are_counted_and_leave_no_file() {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let raw = raw_durable_write(&storage, 5000, 3, Duration::from_millis(5)).expect("memory");
        assert!(raw.latency.len() >= 3 && raw.writes_per_second > 0.0);
        assert!(storage.names().expect("memory").is_empty());
    }
}
