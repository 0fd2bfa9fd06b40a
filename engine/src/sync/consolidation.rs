//! A consolidation array: threads that find a latch taken join a group, and the holder works for
//! all of them.
//!
//! ```text
//!   A   latch ── own work ───────────── work of B ── work of C ── unlatch
//!   B        taken: work in a place ┈┈┈┈ waits ┈┈┈┘ returns
//!   C             taken: work in a place ┈┈┈┈┈┈┈ waits ┈┈┈┈┈┈┈┘ returns
//! ```
//!
//! 1. Work runs once, under the latch, and its thread returns afterwards.
//! 2. No thread is stranded. A holder looks at each place once before it releases the latch, and
//!    may miss what comes later. So a waiting thread tries the latch, and after some pauses it
//!    waits for the latch. Then it is the holder, and serves all places, its own included.
//! 3. Work runs under the mutex of its place, and its thread leaves the place under that mutex. So
//!    no work runs when its thread has returned or unwound.
//! 4. The order is latch, then place: a thread with the mutex of a place never waits for the latch.
//! 5. Work that panics counts as run. Its own thread finds it half done, and has to notice that.
//!
//! Sources: R. Johnson et al., *Aether: A Scalable Approach to Logging*, VLDB 2010, for groups that
//! form in an array while a log is latched; D. Hendler et al., *Flat Combining and the
//! Synchronization-Parallelism Tradeoff*, SPAA 2010, for the holder that does their work. In Aether
//! the first thread of a group takes the latch and reserves space for all; the others then copy
//! their records into it at the same time, and the last one releases the latch.

use super::atomic::{AtomicBool, AtomicU32, Ordering};
use super::{Backoff, Mutex, thread};
use crate::base::scale::SCALE;
use crossbeam_utils::CachePadded;
use std::ptr::NonNull;

/// Threads whose work may wait for the same holder. Others wait for the latch.
const PLACES: usize = 4;

/// Pauses of a waiting thread before it waits for the latch.
const PAUSES: u32 = SCALE.consolidation_pauses;

/// A latch with a consolidation array.
pub trait Latch: 'static {
    /// The latch while it is held.
    type Guard<'a>
    where
        Self: 'a;

    /// Waits for the latch and returns it.
    fn lock(&self) -> Self::Guard<'_>;

    /// Returns the latch if it is free.
    fn try_lock(&self) -> Option<Self::Guard<'_>>;
}

/// What a thread wants done under a latch of type `L`.
pub trait Work<L: Latch> {
    /// Does the work. It is called once.
    fn run(&mut self, latch: &mut L::Guard<'_>);
}

/// Work of a waiting thread, without its type.
struct Published<L: Latch> {
    /// The work.
    work: NonNull<()>,
    /// [`Work::run`] of its type.
    run: unsafe fn(NonNull<()>, &mut L::Guard<'_>),
}

// SAFETY: the work is `Send`, and its own thread does not use it while it is published.
unsafe impl<L: Latch> Send for Published<L> {}

struct Place<L: Latch> {
    /// There is work, as far as can be seen without the mutex.
    is_taken: AtomicBool,
    /// Raised when work has been run. Written under the mutex.
    runs: AtomicU32,
    published: Mutex<Option<Published<L>>>,
}

/// See the module's text.
pub struct ConsolidationArray<L: Latch> {
    places: [CachePadded<Place<L>>; PLACES],
}

impl<L: Latch> Default for ConsolidationArray<L> {
    fn default() -> Self {
        ConsolidationArray::new()
    }
}

impl<L: Latch> ConsolidationArray<L> {
    /// Returns an array without work.
    #[must_use]
    pub fn new() -> Self {
        let place = |_| {
            let (is_taken, runs) = (AtomicBool::new(false), AtomicU32::new(0));
            CachePadded::new(Place { is_taken, runs, published: Mutex::new(None) })
        };
        ConsolidationArray { places: std::array::from_fn(place) }
    }

    /// Runs `work` under `latch`, in this thread or in that of a holder. Returns true if it was
    /// another thread.
    pub fn run<W: Work<L> + Send>(&self, latch: &L, work: &mut W) -> bool {
        if let Some(mut guard) = latch.try_lock() {
            work.run(&mut guard);
            self.serve(&mut guard);
            return false;
        }
        let Some(member) = self.join(work) else {
            let mut guard = latch.lock();
            work.run(&mut guard);
            self.serve(&mut guard);
            return false;
        };
        let (mut backoff, mut by_other) = (Backoff::new(), true);
        while !member.has_run() {
            let guard = if backoff.steps() < PAUSES { latch.try_lock() } else { Some(latch.lock()) };
            let Some(mut guard) = guard else {
                backoff.pause();
                continue;
            };
            by_other = member.has_run();
            self.serve(&mut guard);
        }
        by_other
    }

    /// Puts `work` into a place; `None` if all are taken.
    fn join<'a, W: Work<L> + Send>(&'a self, work: &'a mut W) -> Option<Member<'a, L>> {
        // Loom wants each execution to use the same places.
        let first = if cfg!(loom) { 0 } else { thread::number() as usize % PLACES };
        (first..first + PLACES).find_map(|at| {
            let place = &*self.places[at % PLACES];
            // A holder that runs the work of another thread has the mutex.
            let mut published = place.published.try_lock().filter(|published| published.is_none())?;
            *published = Some(Published { work: NonNull::from(&mut *work).cast(), run: run_as::<L, W> });
            place.is_taken.store(true, Ordering::Release);
            Some(Member { place, runs: place.runs.load(Ordering::Relaxed) })
        })
    }

    /// Runs the work in all places. The caller holds the latch.
    fn serve(&self, latch: &mut L::Guard<'_>) {
        for place in self.places.iter().filter(|place| place.is_taken.load(Ordering::Acquire)) {
            let mut place_held = place.published.lock();
            let Some(Published { work, run }) = place_held.take() else { continue };
            // Dropped before the mutex is free, also if the work panics.
            let _run = Run(place);
            // SAFETY: `run` is for the type of `work`, which exists, and is used by this thread
            // only, until its own thread has had the mutex (`Member`).
            unsafe { run(work, latch) };
        }
    }

    /// Returns the number of threads whose work waits.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.places.iter().filter(|place| place.is_taken.load(Ordering::Acquire)).count()
    }
}

/// Runs the work at `work`.
///
/// # Safety
/// There is a `W` that no other thread uses.
unsafe fn run_as<L: Latch, W: Work<L>>(work: NonNull<()>, latch: &mut L::Guard<'_>) {
    // SAFETY: as the caller promises.
    unsafe { work.cast::<W>().as_mut() }.run(latch);
}

/// Work that a holder has begun to run.
struct Run<'a, L: Latch>(&'a Place<L>);

impl<L: Latch> Drop for Run<'_, L> {
    fn drop(&mut self) {
        self.0.is_taken.store(false, Ordering::Relaxed);
        self.0.runs.fetch_add(1, Ordering::Release);
    }
}

/// A thread whose work is in a place, and which does not use it meanwhile.
struct Member<'a, L: Latch> {
    place: &'a Place<L>,
    /// `Place::runs` before.
    runs: u32,
}

impl<L: Latch> Member<'_, L> {
    fn has_run(&self) -> bool {
        self.place.runs.load(Ordering::Acquire) != self.runs
    }
}

impl<L: Latch> Drop for Member<'_, L> {
    /// Waits for a holder that runs the work, and takes back work that was not run.
    fn drop(&mut self) {
        let mut published = self.place.published.lock();
        if !self.has_run() {
            *published = None;
            self.place.is_taken.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
