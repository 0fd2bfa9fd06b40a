//! The floor of reads: what the device gives to threads that read a file, without a database.
//! Direct I/O where the file system has it, so that the page cache does not answer.

use crate::latencies::{Counted, Latencies};
use crate::place::Place;
use anyhow::{Result, anyhow};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::{AlignedBuffer, File, OpenMode, SECTOR_BYTES, Storage};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Bytes of a sequential read.
pub const SEQUENTIAL_BYTES: usize = 1 << 20;

/// The position of the next read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// At random.
    Random,
    /// After the previous one; each reader repeats its own part of the file.
    Sequential,
}

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct ReadLine {
    /// `random` or `sequential`.
    pub pattern: &'static str,
    /// Bytes of a read.
    pub bytes: usize,
    /// Threads that read, each one read at a time.
    pub readers: usize,
    /// Median latency.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// All readers together.
    pub reads_per_second: f64,
    /// All readers together.
    pub bytes_per_second: f64,
}

impl ReadLine {
    /// The line with another speed.
    fn at(self, bytes_per_second: f64) -> ReadLine {
        ReadLine { reads_per_second: bytes_per_second / self.bytes as f64, bytes_per_second, ..self }
    }
}

/// The part of a file that reader `index` of `readers` reads: whole reads only.
struct Part {
    first: u64,
    reads: u64,
    bytes: u64,
}

impl Part {
    fn of(file_reads: u64, bytes: usize, readers: usize, index: usize) -> Part {
        let share = (file_reads / readers as u64).max(1);
        let first = (index as u64 * share).min(file_reads - 1);
        Part { first, reads: share.min(file_reads - first), bytes: bytes as u64 }
    }

    fn offset(&self, n: u64) -> u64 {
        (self.first + n % self.reads) * self.bytes
    }
}

fn read(
    file: &dyn File,
    part: &Part,
    pattern: Pattern,
    seed: u64,
    duration: Duration,
) -> quenchdb::Result<Latencies> {
    let latencies = Latencies::default();
    let mut random = Random::from_seed(seed);
    let mut buffer = AlignedBuffer::zeroed(part.bytes as usize);
    let began = Instant::now();
    for n in 0.. {
        let offset = part.offset(if pattern == Pattern::Random { random.below(part.reads) } else { n });
        let begun = Instant::now();
        file.read_at(offset, &mut buffer)?;
        latencies.record_ns(begun.elapsed().as_nanos() as u64);
        if began.elapsed() >= duration {
            break;
        }
    }
    Ok(latencies)
}

/// Reads `file` with `readers` threads for `duration`, `bytes` at a time. A file shorter than one
/// such read is read in shorter ones.
///
/// # Errors
/// Those of the device; the file is shorter than a sector.
pub fn measure(
    file: &dyn File,
    pattern: Pattern,
    bytes: usize,
    readers: usize,
    duration: Duration,
) -> Result<ReadLine> {
    let sectors = file.len()? / SECTOR_BYTES as u64;
    if sectors == 0 {
        return Err(anyhow!("there is nothing to read at {}", file.location(0)));
    }
    let bytes = bytes.next_multiple_of(SECTOR_BYTES).min(sectors as usize * SECTOR_BYTES);
    let file_reads = sectors * SECTOR_BYTES as u64 / bytes as u64;
    let began = Instant::now();
    let read_by: Vec<Result<Latencies>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..readers)
            .map(|index| {
                scope.spawn(move || {
                    let part = match pattern {
                        Pattern::Random => Part::of(file_reads, bytes, 1, 0),
                        Pattern::Sequential => Part::of(file_reads, bytes, readers, index),
                    };
                    read(file, &part, pattern, index as u64 + 1, duration)
                })
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, quenchdb::Result<Latencies>>| {
            Ok(thread.join().map_err(|_| anyhow!("a reader panicked"))??)
        };
        threads.into_iter().map(join).collect()
    });
    let seconds = began.elapsed().as_secs_f64();
    let latencies = read_by.into_iter().collect::<Result<Vec<_>>>()?;
    let counted = Counted::of(latencies.iter());
    let reads_per_second = counted.count() as f64 / seconds;
    Ok(ReadLine {
        pattern: if pattern == Pattern::Random { "random" } else { "sequential" },
        bytes,
        readers,
        p50_us: counted.quantile_us(0.5),
        p90_us: counted.quantile_us(0.9),
        p99_us: counted.quantile_us(0.99),
        p999_us: counted.quantile_us(0.999),
        reads_per_second,
        bytes_per_second: reads_per_second * bytes as f64,
    })
}

/// The floor of reads of pages: the file of pages of the database in `place`, which may be open, is
/// read as `pattern` says, `bytes` at a time, by as many threads as the run had.
///
/// # Errors
/// Those of the device; there is no such file.
pub fn floor(
    place: &Place,
    pattern: Pattern,
    bytes: usize,
    readers: usize,
    duration: Duration,
) -> Result<ReadLine> {
    floor_of(&*place.storage()?, pattern, bytes, readers, duration)
}

fn floor_of(
    storage: &dyn Storage,
    pattern: Pattern,
    bytes: usize,
    readers: usize,
    duration: Duration,
) -> Result<ReadLine> {
    let file = storage.pages(OpenMode { create: false, read_only: true, direct: true })?;
    let (before, began) = (storage.requests(), Instant::now());
    let line = measure(&*file, pattern, bytes, readers, duration)?;
    let received = storage.requests().zip(before).map(|(now, then)| now.since(&then).received_bytes);
    Ok(match received {
        // What was never written reads as zero, without a request.
        Some(received) => line.at(received as f64 / began.elapsed().as_secs_f64()),
        None => line,
    })
}

#[cfg(test)]
mod tests;
