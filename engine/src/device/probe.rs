//! Measuring a device: the raw floor that commits are compared with, and which durability method
//! suits it.
//!
//! On an idle machine a DSYNC write through io_uring looks best; beside busy threads its completion
//! may wait for a scheduler tick, because it is delivered to the busy thread. So the methods are
//! compared **beside computing threads**, by what they cost those threads and how long their tail
//! is.

use super::buffer::{AlignedBuffer, SECTOR_BYTES};
use super::durability_method::DurabilityMethod;
use super::ownership::{METHOD_PROBE, is_method_probe};
use super::storage::{File, OpenMode, Storage, WriteRequest};
use crate::base::settings::MethodSetting;
use crate::base::{Error, ErrorKind, Location, Result};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use hdrhistogram::Histogram;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Durable writes without a database around them.
#[cfg(feature = "internals")]
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

impl Scratch {
    /// Overwrites what a killed probe left, and no other file.
    fn new(storage: &Arc<dyn Storage>, len: u64) -> Result<Scratch> {
        let file = match storage.create_new(METHOD_PROBE) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => open_stale(&**storage)?,
            made => made?,
        };
        let scratch = Scratch { storage: storage.clone(), file };
        scratch.file.zero_extend(len)?;
        Ok(scratch)
    }
}

/// Opens the file that a killed probe left.
fn open_stale(storage: &dyn Storage) -> Result<Arc<dyn File>> {
    if !is_method_probe(storage)? {
        let what = "the file has the name of a probe, and another content";
        let place = Location::File { path: METHOD_PROBE.into(), offset: 0 };
        return Err(Error::invalid(what).with_advice("move it away").at(place));
    }
    storage.open(METHOD_PROBE, OpenMode { create: false, read_only: false, direct: true })
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A probe file that stays behind is overwritten by the next probe.
        let _ = self.storage.remove(METHOD_PROBE);
    }
}

/// `writers` threads overwrite `bytes` at a time, durably, each in its own part of a file, for
/// `duration`.
///
/// # Errors
/// `OutOfSpace`, I/O.
#[cfg(feature = "internals")]
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
#[cfg(feature = "internals")]
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

#[cfg(feature = "internals")]
fn panicked() -> Error {
    Error::invalid("a thread of the probe panicked")
}

/// One method beside busy threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MethodMeasured {
    /// The method.
    pub method: MethodSetting,
    /// Median of a write, microseconds.
    pub p50_us: f64,
    /// 99th percentile, microseconds.
    pub p99_us: f64,
    /// Computation left to the busy threads, relative to no writes at all.
    pub computation_left: f64,
}

/// The result of a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeReport {
    /// Every method that was tried.
    pub measured: Vec<MethodMeasured>,
    /// The one to use.
    pub chosen: MethodSetting,
}

impl ProbeReport {
    /// The choice, as it is kept with a database on the device with this number.
    #[must_use]
    pub fn encode(&self, device_number: u64) -> Vec<u8> {
        let index = MethodSetting::ALL.iter().position(|(method, _)| *method == self.chosen).unwrap_or(0);
        let mut out = vec![index as u8];
        out.extend(device_number.to_le_bytes());
        out
    }

    /// The choice that was kept, unless it was made for another device.
    #[must_use]
    pub fn decode(bytes: &[u8], device_number: u64) -> Option<MethodSetting> {
        let (index, number) = bytes.split_first()?;
        if number != device_number.to_le_bytes() {
            return None;
        }
        MethodSetting::ALL.get(usize::from(*index)).map(|(method, _)| *method)
    }
}

/// Computation done by busy threads: rounds of arithmetic.
struct Busy<'s> {
    stop: &'s AtomicBool,
    rounds: &'s AtomicU64,
}

impl Busy<'_> {
    fn run(&self) {
        let mut x = 1u64;
        while !self.stop.load(Ordering::Relaxed) {
            for _ in 0..200 {
                x = std::hint::black_box(x.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7));
            }
            self.rounds.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Rounds of computation in `duration` while `beside` runs on this thread.
fn beside_busy<T>(threads: usize, beside: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let start = Instant::now();
    let value = std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| Busy { stop: &stop, rounds: &rounds }.run());
        }
        let value = beside();
        stop.store(true, Ordering::Relaxed);
        value
    })?;
    Ok((rounds.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64(), value))
}

/// Measures each method for `each` beside `threads` computing threads and chooses. Where the cache
/// is durable, or there is no io_uring, there is nothing to choose: the flusher thread serves.
///
/// # Errors
/// `OutOfSpace`, I/O; `Busy` if a ring could not be made, so that something else was measured. The
/// storage's method is as before.
pub fn choose(storage: &Arc<dyn Storage>, threads: usize, each: Duration) -> Result<ProbeReport> {
    let only = ProbeReport { measured: Vec::new(), chosen: MethodSetting::Flusher };
    if !storage.facts().volatile_cache || storage.facts().io_uring.is_err() {
        return Ok(only);
    }
    let before = storage.durability();
    let measured = measure(storage, threads, each);
    storage.set_durability(before);
    let measured = measured?;
    if let Err(why) = storage.facts().io_uring {
        return Err(Error::new(ErrorKind::Busy, why));
    }
    Ok(ProbeReport { chosen: best(&measured), measured })
}

/// Leaves the storage with the method that it tried last.
fn measure(storage: &Arc<dyn Storage>, threads: usize, each: Duration) -> Result<Vec<MethodMeasured>> {
    let scratch = Scratch::new(storage, 64 * SECTOR_BYTES as u64)?;
    let (undisturbed, ()) = beside_busy(threads, || {
        std::thread::sleep(each);
        Ok(())
    })?;
    let mut measured = Vec::new();
    for (method, _) in MethodSetting::ALL {
        storage.set_durability(match method {
            MethodSetting::WorkerFlush => DurabilityMethod::WriteThenFlush,
            _ => DurabilityMethod::Dsync,
        });
        let (left, latency) = match method {
            MethodSetting::Flusher => beside_busy(threads, || sleeping_writer(&scratch, each))?,
            _ => beside_busy(threads.saturating_sub(1), || computing_writer(storage, &scratch, each))?,
        };
        measured.push(MethodMeasured {
            method,
            p50_us: latency.value_at_quantile(0.5) as f64 / 1000.0,
            p99_us: latency.value_at_quantile(0.99) as f64 / 1000.0,
            computation_left: left / undisturbed,
        });
    }
    Ok(measured)
}

/// A worker's method has to be this much shorter than the flusher's: the flusher serves idle logs
/// as well, its completions do not wait for a busy thread, and a short probe on a noisy machine
/// errs.
const CLEARLY: f64 = 0.7;

/// The flusher, unless a worker's method is clearly shorter; of those the one that leaves most
/// computation.
fn best(measured: &[MethodMeasured]) -> MethodSetting {
    let cost = |m: &MethodMeasured| m.p50_us + m.p99_us / 10.0;
    let flusher = measured
        .iter()
        .filter(|m| m.method == MethodSetting::Flusher)
        .map(cost)
        .fold(f64::INFINITY, f64::min);
    measured
        .iter()
        .filter(|m| cost(m) < CLEARLY * flusher)
        .max_by(|a, b| a.computation_left.total_cmp(&b.computation_left))
        .map_or(MethodSetting::Flusher, |m| m.method)
}

/// One thread that sleeps in each write, as the flusher does.
fn sleeping_writer(scratch: &Scratch, each: Duration) -> Result<Histogram<u64>> {
    let (start, mut latency, buffer) = (Instant::now(), histogram(), AlignedBuffer::zeroed(SECTOR_BYTES));
    for n in 0u64.. {
        let begun = Instant::now();
        scratch.file.write_durable_at(n % 64 * SECTOR_BYTES as u64, &buffer)?;
        latency.saturating_record(begun.elapsed().as_nanos() as u64);
        if start.elapsed() >= each {
            break;
        }
    }
    Ok(latency)
}

/// A worker that computes and looks for its completions now and then.
fn computing_writer(storage: &Arc<dyn Storage>, scratch: &Scratch, each: Duration) -> Result<Histogram<u64>> {
    let mut queue = storage.durable_queue(1)?;
    let (start, mut latency, mut done) = (Instant::now(), histogram(), Vec::new());
    let mut spare = Some(AlignedBuffer::zeroed(SECTOR_BYTES));
    let (mut begun, mut n, mut x) = (start, 0u64, 1u64);
    while start.elapsed() < each {
        if let Some(buffer) = spare.take() {
            begun = Instant::now();
            n += 1;
            let offset = n % 64 * SECTOR_BYTES as u64;
            let file = scratch.file.clone();
            queue.submit(WriteRequest {
                file,
                offset,
                buffer,
                len: SECTOR_BYTES,
                durable: true,
                token: n,
            })?;
        }
        for _ in 0..2000 {
            x = std::hint::black_box(x.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7));
        }
        queue.reap(false, &mut done)?;
        for completion in done.drain(..) {
            completion.result?;
            latency.saturating_record(begun.elapsed().as_nanos() as u64);
            spare = Some(completion.buffer);
        }
    }
    Ok(latency)
}

#[cfg(test)]
mod tests;
