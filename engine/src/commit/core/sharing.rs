//! Does one flush serve the writes of several logs?
//!
//! A thread that writes several logs can make each write durable by itself, side by side; or write
//! them all, wait until all have completed, and flush the device once. On a disk with a volatile
//! cache and without FUA the first is a flush for each block.
//!
//! ```text
//!   each for itself   write 0 --> flush          shared   write 0 -->|
//!                     write 1 --> flush                   write 1 -->|--> one flush --> all are durable
//!                     write 2 --> flush                   write 2 -->|
//! ```
//!
//! Which is shorter depends on the device and on how many logs there are, so it is measured, for
//! each class of counts by itself. A running average of the time of a block is kept for both ways.
//! The way in use changes only if the other one is *clearly* shorter, and the other one is tried
//! again once in [`TRY_EVERY`] passes, because the device may change.
//!
//! # Why it is sound
//! 1. A flush covers only writes that had completed when it was issued: all are reaped before.
//! 2. It covers another file only on the same device, past the page cache, and where the file
//!    system is known to pass a flush on:
//!    [`Storage::shares_flush`](crate::device::Storage::shares_flush).
//! 3. If the flush or one of the writes fails, nothing of the pass is believed, and commits stop.

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Classes of counts: 2, 3 to 4, 5 to 8, more.
const CLASSES: usize = 4;
/// Rounds at the beginning in which both ways take turns.
const FIRST: u64 = 16;
/// Later the other way is tried once in so many rounds.
const TRY_EVERY: u64 = 64;
/// The newest value counts for one part in so many in a running average.
const WEIGHT: u64 = 8;
/// The other way is taken up if it takes less than this part of the time, in percent.
const CLEARLY: u64 = 85;

/// See the module's text. Written by the threads that write several logs, read by any thread.
#[derive(Debug, Default)]
pub struct Sharing {
    /// The storage can, and the settings allow it.
    possible: bool,
    /// The settings say always.
    always: bool,
    classes: [Class; CLASSES],
}

#[derive(Debug, Default)]
struct Class {
    rounds: AtomicU64,
    shares: AtomicBool,
    /// Mean time until a block is durable, ns: flushed by itself, with others. 0: never tried.
    average: [AtomicU64; 2],
}

impl Sharing {
    /// `wanted`: always, never, or as it is measured.
    pub fn new(wanted: Option<bool>, can: bool) -> Sharing {
        let always = wanted == Some(true);
        Sharing { possible: can && wanted != Some(false), always, ..Sharing::default() }
    }

    fn class(&self, blocks: usize) -> &Class {
        let class = blocks.next_power_of_two().ilog2() as usize;
        &self.classes[class.clamp(1, CLASSES) - 1]
    }

    /// Returns whether the next round, of `blocks` blocks, shares its flush.
    pub fn decide(&self, blocks: usize) -> bool {
        if !self.possible || blocks < 2 {
            return false;
        }
        let class = self.class(blocks);
        let round = class.rounds.fetch_add(1, Ordering::Relaxed);
        let usual = class.shares.load(Ordering::Relaxed);
        let tries_other =
            if round < FIRST { !round.is_multiple_of(2) } else { round.is_multiple_of(TRY_EVERY) };
        self.always || usual != tries_other
    }

    /// In a round of `blocks` blocks, which `shared` their flush or not, a block took `took` on
    /// average.
    pub fn note(&self, blocks: usize, shared: bool, took: Duration) {
        debug_assert!(blocks > 0, "a round has blocks");
        debug_assert!(!shared || self.possible && blocks >= 2, "a flush that is shared serves several");
        let class = self.class(blocks);
        let average = &class.average[usize::from(shared)];
        let (old, new) = (average.load(Ordering::Relaxed), (took.as_nanos() as u64).max(1));
        average.store(if old == 0 { new } else { (old * (WEIGHT - 1) + new) / WEIGHT }, Ordering::Relaxed);
        let usual = class.shares.load(Ordering::Relaxed);
        let [this, other] =
            [usual, !usual].map(|way| class.average[usize::from(way)].load(Ordering::Relaxed));
        if class.rounds.load(Ordering::Relaxed) >= FIRST && other != 0 && other * 100 < this * CLEARLY {
            class.shares.store(!usual, Ordering::Relaxed);
        }
    }

    /// Whether rounds share their flush at the moment, those of the class that there were most of;
    /// none if there was none. False where no round could.
    pub fn usual(&self) -> Option<bool> {
        if !self.possible {
            return Some(false);
        }
        let rounds = |class: &&Class| class.rounds.load(Ordering::Relaxed);
        let most = self.classes.iter().filter(|class| rounds(class) > 0).max_by_key(rounds)?;
        Some(self.always || most.shares.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
