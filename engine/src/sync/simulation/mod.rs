//! A scheduler that runs one thread at a time and decides by a seed which: whole runs of the engine that can be repeated.
//!
//! ```text
//!   thread:    ── op ── op ── op ──┐ decision            ┌─ op ── op ──
//!                                  │  ready? which?      │
//!   another:                       └──▶ baton ── op ── op┘
//!
//!   op        an operation on an atomic, a lock or an event of `sync`: counted, and after a number of them, drawn from
//!             the seed, there is a decision; another when a thread cannot go on, sleeps, yields or ends
//!   baton     who has it runs; the others sleep in the kernel
//! ```
//!
//! Threads are real ones, so thread-locals, panics and stacks are what they always are; only who runs is decided here.
//!
//! 1. One thread of a simulation runs at a time. Who gets the baton, and after how many operations it is asked again,
//!    follows from the seed and from what the threads do.
//! 2. A thread that has ended is joined by whoever runs next before it does anything, so that what its thread-locals do at
//!    their end has its place in the order, too.
//! 3. Time passes by operations, by looking at the clock, and, when nobody can go on, to the next moment somebody sleeps until.
//!    Now and then to that moment although others could go on: as if they had been off the CPU.
//! 4. If nobody can go on and nobody sleeps until some time, threads wait for each other: the report names them, and the
//!    process ends, since nothing can stop them.
//!
//! Random choice among ready threads, and priorities that change a few times: Burckhardt and others, "A randomized scheduler
//! with probabilistic guarantees of finding bugs", 2010.

mod gate;
mod epochs;
mod planned_panic;
mod tasks;
mod scheduler;
pub mod primitives;

pub use planned_panic::PlannedPanic;
pub use scheduler::{
    STUCK, SimulatedJoinHandle, aside, is_simulated, jump, panic_later, planned_panic, point, preemptions,
    remember_places, run, sleep, task, yield_now,
};
pub use tasks::{Plan, Summary};

use crossbeam_epoch::Guard;
use primitives::AtomicU32;
use scheduler::{in_simulation, may_strike, wait, wake};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Sleeps while `word` is `expected`, until somebody calls [`wake_all`] with it, or for `timeout`: a futex.
pub fn wait_while(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    may_strike();
    point();
    if word.real().load(Ordering::SeqCst) == expected {
        wait(std::ptr::from_ref(word) as usize, timeout);
    }
}

/// Whoever sleeps on `word` can go on.
pub fn wake_all(word: &AtomicU32) {
    wake(std::ptr::from_ref(word) as usize);
}

/// Enters an epoch of the calling thread's simulation. Returns `None` if the thread takes part in none.
pub(super) fn pin() -> Option<Guard> {
    // A thread that leaves frees memory that other threads may use: it is retired in the simulation, and
    // not in the epochs of the process.
    epochs::pin_own().or_else(|| in_simulation(|simulation, _| simulation.epochs.pin()))
}

#[cfg(test)]
mod tests;
