//! The floors, straight from the device, without a database: aligned durable writes under commits,
//! random and sequential reads under faults and scans, sequential writes under checkpoints.

use crate::objects;
use crate::place::Place;
use crate::progress::Progress;
use crate::raw_writes::{RawWrites, SCRATCH, raw_durable_write};
use crate::reads::{self, Pattern, ReadLine, SEQUENTIAL_BYTES};
use crate::report::Floor;
use crate::rows::fill;
use anyhow::Result;
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::{AlignedBuffer, File, OpenMode, Storage};
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceLine {
    /// Bytes of a write.
    pub bytes: usize,
    /// Threads that write.
    pub writers: usize,
    /// Median latency.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Writes per second of all writers together.
    pub writes_per_second: f64,
}

/// Sequential writes of one thread with a flush at the end, as a checkpoint writes.
#[derive(Clone, Debug, Serialize)]
pub struct SequentialWrites {
    /// Bytes of a write.
    pub bytes: usize,
    /// Bytes per second, including the flush.
    pub bytes_per_second: f64,
}

/// The device under a directory, or a modelled one.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceReport {
    /// Name of the device.
    pub device: String,
    /// True if the device has a volatile cache.
    pub volatile_cache: bool,
    /// Durable writes, by size and number of writers.
    pub writes: Vec<DeviceLine>,
    /// Writes that only the last flush makes durable.
    pub sequential_writes: SequentialWrites,
    /// Reads, by pattern and number of readers, of a file of `file_bytes`.
    pub reads: Vec<ReadLine>,
    /// Length of the file that was read.
    pub file_bytes: u64,
}

fn line(bytes: usize, writers: usize, raw: &RawWrites) -> DeviceLine {
    let us = |quantile| raw.latency.value_at_quantile(quantile) as f64 / 1e3;
    DeviceLine {
        bytes,
        writers,
        p50_us: us(0.5),
        p90_us: us(0.9),
        p99_us: us(0.99),
        p999_us: us(0.999),
        writes_per_second: raw.writes_per_second,
    }
}

fn raw(place: &Place, bytes: usize, writers: usize, duration: Duration) -> Result<RawWrites> {
    match place.url() {
        Some(url) => objects::raw_durable_write(url, bytes, writers, duration),
        None => Ok(raw_durable_write(&place.log_storage()?, bytes, writers, duration)?),
    }
}

/// Measures durable writes of `bytes` by `writers` threads for `duration`.
///
/// # Errors
/// Those of the device.
pub fn measure_one(place: &Place, bytes: usize, writers: usize, duration: Duration) -> Result<DeviceLine> {
    Ok(line(bytes, writers, &raw(place, bytes, writers, duration)?))
}

/// Measures the floor of a commit: durable writes of 4 KiB by `writers` threads.
///
/// # Errors
/// Those of the device.
pub fn floor(place: &Place, writers: usize, duration: Duration) -> Result<Floor> {
    let latency = raw(place, 4096, writers, duration)?.latency;
    let us = |part| latency.value_at_quantile(part) as f64 / 1e3;
    Ok(Floor { p50: us(0.5), p90: us(0.9), p99: us(0.99), p999: us(0.999), p9999: us(0.9999) })
}

/// A temporary file of random bits.
pub(crate) struct Scratch<'a> {
    storage: &'a Arc<dyn Storage>,
    pub(crate) file: Arc<dyn File>,
}

impl<'a> Scratch<'a> {
    /// Not zeros: a device may store zeros without any write.
    pub(crate) fn new(
        storage: &'a Arc<dyn Storage>,
        bytes: u64,
        progress: Progress<'_>,
    ) -> Result<Scratch<'a>> {
        let file = storage.small_file(SCRATCH, OpenMode { create: true, read_only: false, direct: true })?;
        let scratch = Scratch { storage, file };
        let mut buffer = AlignedBuffer::zeroed(SEQUENTIAL_BYTES);
        let mut random = Random::from_seed(1);
        for offset in (0..bytes).step_by(SEQUENTIAL_BYTES) {
            fill(&mut random, &mut buffer);
            scratch.file.write_at(offset, &buffer)?;
            progress("writing a file to read", offset, bytes);
        }
        scratch.file.flush()?;
        Ok(scratch)
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        // The next measurement overwrites a file that stays.
        let _ = self.storage.remove_small_file(SCRATCH);
    }
}

/// Bytes of a sequential write.
const WRITE_BYTES: usize = 256 << 10;

/// Overwrites `file` from its beginning, again and again, for `duration`, and flushes it.
fn sequential_writes(file: &dyn File, duration: Duration) -> Result<SequentialWrites> {
    let places = (file.len()? / WRITE_BYTES as u64).max(1);
    let mut buffer = AlignedBuffer::zeroed(WRITE_BYTES);
    fill(&mut Random::from_seed(2), &mut buffer);
    let (began, mut written) = (Instant::now(), 0u64);
    while began.elapsed() < duration {
        buffer[..8].copy_from_slice(&written.to_le_bytes());
        file.write_at(written % places * WRITE_BYTES as u64, &buffer)?;
        written += 1;
    }
    file.flush()?;
    let bytes_per_second = (written * WRITE_BYTES as u64) as f64 / began.elapsed().as_secs_f64();
    Ok(SequentialWrites { bytes: WRITE_BYTES, bytes_per_second })
}

/// Returns the length of the file to read: as much as a disk reads in the time, within limits; in
/// memory the minimum.
fn file_bytes(place: &Place, duration: Duration) -> u64 {
    let wanted = (duration.as_secs_f64() * 64e6) as u64;
    let most = if place.path().is_some() { 1 << 30 } else { 16 << 20 };
    wanted.clamp(16 << 20, most).next_multiple_of(SEQUENTIAL_BYTES as u64)
}

/// Durable writes of 4 and 16 KiB by one writer and `threads` of them, sequential writes of 256
/// KiB, random reads of 4 KiB by 1, 2 and `threads` readers, sequential reads of 1 MiB by 1 and
/// `threads`. The measurements share `duration`.
///
/// # Errors
/// Those of the device.
pub fn measure(
    place: &Place,
    threads: usize,
    duration: Duration,
    progress: Progress<'_>,
) -> Result<DeviceReport> {
    let storage = place.storage()?;
    let distinct = |mut counts: Vec<usize>| {
        counts.sort_unstable();
        counts.dedup();
        counts
    };
    let one_and_all = distinct(vec![1, threads]);
    let random_readers = distinct(vec![1, 2, threads]);
    let cases = 2 * one_and_all.len() + 1 + random_readers.len() + one_and_all.len();
    let share = duration / cases as u32;
    let done = std::cell::Cell::new(0);
    let next = |what: &str| progress(what, done.replace(done.get() + 1), cases as u64);
    let mut writes = Vec::new();
    for bytes in [4096, 16384] {
        for &writers in &one_and_all {
            next("durable writes");
            writes.push(line(bytes, writers, &raw_durable_write(&storage, bytes, writers, share)?));
        }
    }
    let scratch = Scratch::new(&storage, file_bytes(place, duration), progress)?;
    next("sequential writes");
    let sequential_writes = sequential_writes(&*scratch.file, share)?;
    let mut reads = Vec::new();
    for readers in random_readers {
        next("random reads");
        reads.push(reads::measure(&*scratch.file, Pattern::Random, 4096, readers, share)?);
    }
    for readers in one_and_all {
        next("sequential reads");
        let pattern = Pattern::Sequential;
        reads.push(reads::measure(&*scratch.file, pattern, SEQUENTIAL_BYTES, readers, share)?);
    }
    let (facts, file_bytes) = (storage.facts(), scratch.file.len()?);
    Ok(DeviceReport {
        device: facts.name,
        volatile_cache: facts.volatile_cache,
        writes,
        sequential_writes,
        reads,
        file_bytes,
    })
}

impl std::fmt::Display for DeviceReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cache = if self.volatile_cache { "volatile cache" } else { "durable cache" };
        writeln!(f, "{}, {cache}: durable writes", self.device)?;
        writeln!(
            f,
            "{:>8} {:>8} {:>10} {:>10} {:>10} {:>10} {:>12}",
            "KiB", "writers", "p50 us", "p90 us", "p99 us", "p99.9 us", "writes/s"
        )?;
        for l in &self.writes {
            writeln!(
                f,
                "{:>8} {:>8} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>12.0}",
                l.bytes / 1024,
                l.writers,
                l.p50_us,
                l.p90_us,
                l.p99_us,
                l.p999_us,
                l.writes_per_second
            )?;
        }
        writeln!(
            f,
            "sequential writes of {} KiB, one flush at the end: {:.0} MB/s",
            self.sequential_writes.bytes / 1024,
            self.sequential_writes.bytes_per_second / 1e6
        )?;
        writeln!(f, "reads of a file of {} MB", self.file_bytes / 1_000_000)?;
        writeln!(
            f,
            "{:>8} {:>8} {:>10} {:>10} {:>10} {:>10} {:>12} {:>8}",
            "KiB", "readers", "p50 us", "p90 us", "p99 us", "p99.9 us", "reads/s", "MB/s"
        )?;
        for l in &self.reads {
            writeln!(
                f,
                "{:>8} {:>8} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>12.0} {:>8.0}  {}",
                l.bytes / 1024,
                l.readers,
                l.p50_us,
                l.p90_us,
                l.p99_us,
                l.p999_us,
                l.reads_per_second,
                l.bytes_per_second / 1e6,
                l.pattern
            )?;
        }
        Ok(())
    }
}
