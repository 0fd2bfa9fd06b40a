//! The latency of random writes, by the size of a write and the number of threads.
//!
//! Each size is measured twice: plain writes past the page cache, which a drive with power-loss
//! protection makes durable, and durable ones, as a commit needs them on this device. A commit per
//! flush cannot be faster than one over the latency.

use crate::device::Scratch;
use crate::place::Place;
use crate::progress::Progress;
use crate::raw_writes::time_writes;
use crate::rows::fill;
use anyhow::{Result, bail};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::AlignedBuffer;
use serde::Serialize;
use std::time::Duration;

/// Sizes of a write in bytes.
const SIZES: [usize; 10] =
    [4 << 10, 16 << 10, 64 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 16 << 20, 128 << 20, 512 << 20];
/// Numbers of threads.
const WRITERS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Places in the file for each size: writes at random places are not sequential.
const PLACES: u64 = 4;

/// Writes of one size by some threads.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SweepLine {
    /// Bytes of a write.
    pub bytes: usize,
    /// Threads that write, each one write at a time.
    pub writers: usize,
    /// True if each write is durable when it ends.
    pub durable: bool,
    /// Number of writes.
    pub writes: u64,
    /// Mean latency.
    pub mean_us: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// All threads together.
    pub writes_per_second: f64,
    /// All threads together.
    pub bytes_per_second: f64,
}

/// Random writes of a device.
#[derive(Clone, Debug, Serialize)]
pub struct SweepReport {
    /// Name of the device.
    pub device: String,
    /// True if the device has a volatile cache.
    pub volatile_cache: bool,
    /// How a write is made durable.
    pub durability: &'static str,
    /// Length of the file that was overwritten.
    pub file_bytes: u64,
    /// By size, then by threads; plain before durable.
    pub writes: Vec<SweepLine>,
}

/// Returns the sizes and numbers of threads whose buffers, and a file with [`PLACES`] for the
/// longest write, fit into `bytes`.
fn cases(bytes: u64) -> Vec<(usize, usize)> {
    let fits = |(size, writers): &(usize, usize)| {
        *size as u64 * PLACES <= bytes && (*size * *writers) as u64 <= bytes / 2
    };
    SIZES.into_iter().flat_map(|size| WRITERS.map(|writers| (size, writers))).filter(fits).collect()
}

/// Measures random writes of 4 KiB to 512 MiB by 1 to 64 threads. In memory the longest are left
/// out. The measurements share `duration`; each makes at least one write a thread.
///
/// # Errors
/// A store of objects, which has no random writes; those of the device.
pub fn measure(place: &Place, duration: Duration, progress: Progress<'_>) -> Result<SweepReport> {
    if place.url().is_some() {
        bail!("--sweep measures random writes, which a store of objects does not have");
    }
    let storage = place.storage()?;
    let file_bytes = if place.path().is_some() { 2 << 30 } else { 64 << 20 };
    let scratch = Scratch::new(&storage, file_bytes, progress)?;
    let cases = cases(file_bytes);
    let (share, all) = (duration / (2 * cases.len() as u32), 2 * cases.len() as u64);
    let mut writes: Vec<SweepLine> = Vec::new();
    for (bytes, writers) in cases {
        for durable in [false, true] {
            progress("random writes", writes.len() as u64, all);
            let raw = time_writes(writers, share, |writer| {
                let (file, mut random) = (scratch.file.clone(), Random::from_seed(writer));
                let mut buffer = AlignedBuffer::zeroed(bytes);
                fill(&mut random, &mut buffer);
                move || {
                    let offset = random.below(file_bytes / bytes as u64) * bytes as u64;
                    match durable {
                        true => file.write_durable_at(offset, &buffer),
                        false => file.write_at(offset, &buffer),
                    }
                }
            })?;
            let us = |part| raw.latency.value_at_quantile(part) as f64 / 1e3;
            writes.push(SweepLine {
                bytes,
                writers,
                durable,
                writes: raw.latency.len(),
                mean_us: raw.latency.mean() / 1e3,
                p50_us: us(0.5),
                p90_us: us(0.9),
                p99_us: us(0.99),
                writes_per_second: raw.writes_per_second,
                bytes_per_second: raw.writes_per_second * bytes as f64,
            });
        }
    }
    let (facts, durability) = (storage.facts(), storage.durability().name());
    let (device, volatile_cache) = (facts.name, facts.volatile_cache);
    Ok(SweepReport { device, volatile_cache, durability, file_bytes, writes })
}

impl std::fmt::Display for SweepReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cache = if self.volatile_cache { "volatile cache" } else { "durable cache" };
        let megabytes = self.file_bytes / 1_000_000;
        writeln!(
            f,
            "{}, {cache}, durable by {}: random writes in a file of {megabytes} MB",
            self.device, self.durability
        )?;
        let titles =
            ["KiB", "threads", "mean us", "p50 us", "p99 us", "MB/s", "mean us", "p50 us", "p99 us", "MB/s"];
        writeln!(f, "{:>16} {:^43} {:^43}", "", "plain", "durable")?;
        writeln!(f, "{}", titles.map(|title| format!("{title:>10}")).join(" "))?;
        for pair in self.writes.chunks_exact(2) {
            write!(f, "{:>10} {:>10}", pair[0].bytes >> 10, pair[0].writers)?;
            for line in pair {
                let speed = line.bytes_per_second / 1e6;
                write!(
                    f,
                    " {:>10.1} {:>10.1} {:>10.1} {speed:>10.0}",
                    line.mean_us, line.p50_us, line.p99_us
                )?;
            }
            writeln!(f)?;
        }
        let one = self.writes.iter().find(|line| line.durable && line.writers == 1);
        let Some(one) = one else { return Ok(()) };
        writeln!(
            f,
            "one commit per flush of {} KiB, one after the other: at most {:.0} a second",
            one.bytes >> 10,
            1e6 / one.mean_us
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modelled::Figures;
    use quenchdb::DeviceTrust;

    #[test]
    fn cases_fit_into_the_file_and_the_memory() {
        let all = cases(2 << 30);
        assert!(all.contains(&(512 << 20, 2)) && !all.contains(&(512 << 20, 4)));
        assert!(all.contains(&(4096, 64)) && all.contains(&(16 << 20, 64)));
        assert_eq!(cases(64 << 20).iter().map(|case| case.0).max(), Some(16 << 20));
    }

    #[test]
    fn sweep_measures_each_case_plain_and_durable() {
        let figures = Figures::named("sim:memory-1.2us").expect("known");
        let place = Place::modelled(figures, None, DeviceTrust::Auto, 1).expect("memory");
        let report = measure(&place, Duration::from_millis(300), &|_, _, _| ()).expect("memory");
        let cases = cases(64 << 20);
        assert_eq!(report.writes.len(), 2 * cases.len());
        for (pair, case) in report.writes.chunks_exact(2).zip(cases) {
            assert!(!pair[0].durable && pair[1].durable);
            assert!(pair.iter().all(|line| (line.bytes, line.writers) == case));
            assert!(pair.iter().all(|line| line.writes >= case.1 as u64 && line.mean_us > 0.0), "{pair:?}");
        }
        let text = report.to_string();
        assert_eq!(text.lines().count(), 4 + report.writes.len() / 2, "{text}");
    }
}
