//! Counters that many threads increment without sharing a cache line, and latency histograms.

use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Threads are spread over this many cells.
const CELLS: usize = 16;

static NEXT_CELL: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static CELL: usize = NEXT_CELL.fetch_add(1, Ordering::Relaxed) % CELLS;
}

fn cell() -> usize {
    CELL.try_with(|c| *c).unwrap_or(0)
}

/// A number that only grows. Adding is one relaxed increment of a mostly private cache line.
#[derive(Debug, Default)]
pub struct Counter {
    cells: [CachePadded<AtomicU64>; CELLS],
}

impl Counter {
    /// Adds `amount`.
    pub fn add(&self, amount: u64) {
        self.cells[cell()].fetch_add(amount, Ordering::Relaxed);
    }

    /// Resets to zero. Concurrent additions may be lost.
    pub fn reset(&self) {
        self.cells.iter().for_each(|cell| cell.store(0, Ordering::Relaxed));
    }

    /// The sum over all threads; not a snapshot of one moment.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.cells.iter().map(|c| c.load(Ordering::Relaxed)).sum()
    }
}

/// A histogram of nanoseconds, exact to 1 %, up to 100 s; larger values count as 100 s. A cell
/// takes 30 KiB from its first value on; another digit would take ten times as much.
pub type LatencyHistogram = LatencyHistograms<1>;

/// Histograms as [`LatencyHistogram`], of which each event counts in several: one lock for all.
#[derive(Debug)]
pub struct LatencyHistograms<const N: usize> {
    cells: [CachePadded<HistogramCell<N>>; HISTOGRAM_CELLS],
}

type HistogramCell<const N: usize> = Mutex<Option<[Histogram<u64>; N]>>;

const HISTOGRAM_CELLS: usize = 4;

const LONGEST_NS: u64 = 100_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 2;

fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, SIGNIFICANT_DIGITS)
        .expect("the bounds are constants that the library accepts")
}

impl<const N: usize> Default for LatencyHistograms<N> {
    fn default() -> Self {
        LatencyHistograms { cells: std::array::from_fn(|_| CachePadded::default()) }
    }
}

impl LatencyHistogram {
    /// Counts one value.
    pub fn record_ns(&self, ns: u64) {
        self.record_all(std::iter::once([Some(ns)]));
    }

    /// Everything counted so far, merged.
    #[must_use]
    pub fn merged(&self) -> Histogram<u64> {
        self.merged_of(0)
    }
}

impl<const N: usize> LatencyHistograms<N> {
    /// Counts events, each with a value for some of the histograms.
    pub fn record_all(&self, events: impl IntoIterator<Item = [Option<u64>; N]>) {
        let mut cell = self.cells[cell() % HISTOGRAM_CELLS].lock().unwrap_or_else(PoisonError::into_inner);
        let histograms = cell.get_or_insert_with(|| std::array::from_fn(|_| empty()));
        for event in events {
            for (histogram, ns) in histograms.iter_mut().zip(event) {
                if let Some(ns) = ns {
                    histogram.saturating_record(ns.clamp(1, LONGEST_NS));
                }
            }
        }
    }

    /// Everything that the histogram with this number has counted so far, merged.
    #[must_use]
    pub fn merged_of(&self, number: usize) -> Histogram<u64> {
        let mut all = empty();
        for cell in &self.cells {
            if let Some(histograms) = &*cell.lock().unwrap_or_else(PoisonError::into_inner) {
                all.add(&histograms[number]).expect("equal bounds add");
            }
        }
        all
    }

    /// Forgets everything (between a warm-up and a measurement).
    pub fn reset(&self) {
        for cell in &self.cells {
            if let Some(histograms) = &mut *cell.lock().unwrap_or_else(PoisonError::into_inner) {
                histograms.iter_mut().for_each(Histogram::reset);
            }
        }
    }
}

#[cfg(test)]
mod tests;
