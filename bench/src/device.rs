//! The floor: aligned durable writes straight to the device, without a database.

use crate::Progress;
use crate::report::Floor;
use anyhow::Result;
use quenchdb::DeviceTrust;
use quenchdb::device::Storage;
use quenchdb::device::file::FileStorage;
use quenchdb::device::probe::{RawWrites, raw_durable_write};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceLine {
    /// Bytes of a write.
    pub bytes: usize,
    /// Threads that write.
    pub writers: usize,
    /// Median latency.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// All writers together.
    pub writes_per_second: f64,
}

/// The device under a directory.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceReport {
    /// For people.
    pub device: String,
    /// A power cut empties its cache.
    pub volatile_cache: bool,
    /// Writes, by size and number of writers.
    pub writes: Vec<DeviceLine>,
}

fn storage(directory: &Path, trust: DeviceTrust) -> Result<Arc<dyn Storage>> {
    Ok(Arc::new(FileStorage::open(directory, trust, true, true)?))
}

fn line(bytes: usize, writers: usize, raw: &RawWrites) -> DeviceLine {
    let us = |quantile| raw.latency.value_at_quantile(quantile) as f64 / 1e3;
    DeviceLine {
        bytes,
        writers,
        p50_us: us(0.5),
        p99_us: us(0.99),
        p999_us: us(0.999),
        writes_per_second: raw.writes_per_second,
    }
}

/// Measures writes of `bytes` by `writers` threads for `duration`.
///
/// # Errors
/// Those of the device.
pub fn measure_one(
    directory: &Path,
    trust: DeviceTrust,
    bytes: usize,
    writers: usize,
    duration: Duration,
) -> Result<DeviceLine> {
    Ok(line(bytes, writers, &raw_durable_write(&storage(directory, trust)?, bytes, writers, duration)?))
}

/// The floor of a commit: one writer, 4 KiB.
///
/// # Errors
/// Those of the device.
pub fn floor(directory: &Path, trust: DeviceTrust, duration: Duration) -> Result<Floor> {
    let line = measure_one(directory, trust, 4096, 1, duration)?;
    Ok(Floor { p50: line.p50_us, p99: line.p99_us })
}

/// 4 and 16 KiB, one writer and `writers` of them; `duration` is shared by the four.
///
/// # Errors
/// Those of the device.
pub fn measure(
    directory: &Path,
    trust: DeviceTrust,
    writers: usize,
    duration: Duration,
    progress: Progress<'_>,
) -> Result<DeviceReport> {
    let storage = storage(directory, trust)?;
    let mut cases: Vec<(usize, usize)> = Vec::new();
    for bytes in [4096, 16384] {
        cases.push((bytes, 1));
        if writers > 1 {
            cases.push((bytes, writers));
        }
    }
    let share = duration / cases.len() as u32;
    let mut writes = Vec::new();
    for (done, &(bytes, writers)) in cases.iter().enumerate() {
        progress("measuring the device", done as u64, cases.len() as u64);
        writes.push(line(bytes, writers, &raw_durable_write(&storage, bytes, writers, share)?));
    }
    let facts = storage.facts();
    Ok(DeviceReport { device: facts.name, volatile_cache: facts.volatile_cache, writes })
}

impl std::fmt::Display for DeviceReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cache = if self.volatile_cache { "volatile cache" } else { "durable cache" };
        writeln!(f, "{}, {cache}: durable writes", self.device)?;
        writeln!(
            f,
            "{:>8} {:>8} {:>10} {:>10} {:>10} {:>12}",
            "KiB", "writers", "p50 us", "p99 us", "p99.9 us", "writes/s"
        )?;
        for l in &self.writes {
            writeln!(
                f,
                "{:>8} {:>8} {:>10.1} {:>10.1} {:>10.1} {:>12.0}",
                l.bytes / 1024,
                l.writers,
                l.p50_us,
                l.p99_us,
                l.p999_us,
                l.writes_per_second
            )?;
        }
        Ok(())
    }
}
