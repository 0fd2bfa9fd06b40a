//! A scheduler that runs one thread at a time, chosen by a seed: whole runs of the engine can be
//! repeated.
//!
//! ```text
//!   thread:    ── op ── op ── op ──┐ decision            ┌─ op ── op ──
//!                                  │  ready? which?      │
//!   another:                       └──▶ baton ── op ── op┘
//!
//!   op        an operation on an atomic, a lock or an event of `sync`. After a number of operations, drawn
//!             from the seed, there is a decision; also when a thread blocks, sleeps, yields or ends
//!   baton     the thread with the baton runs; the other threads sleep in the kernel
//! ```
//!
//! Threads are real, so thread-locals, panics and stacks behave as usual. Only the order is decided
//! here.
//!
//! 1. One thread of a simulation runs at a time. The next thread, and its number of operations
//!    until the next decision, follow from the seed and from what the threads do.
//! 2. The next thread joins an ended thread first, so that destructors of thread-locals have their
//!    place in the order, too.
//! 3. Time passes by operations, by reading the clock, and, if no thread is ready, to the next end
//!    of a sleep. Now and then time passes to that moment although threads are ready, as if they
//!    had been off the CPU.
//! 4. If no thread is ready and none sleeps until a time, the threads are deadlocked. The report
//!    names them, and the process ends, because nothing can stop the threads.
//!
//! Random choice among ready threads, and priorities that change a few times: Burckhardt and
//! others, "A randomized scheduler with probabilistic guarantees of finding bugs", 2010.

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

/// Sleeps while `word` is `expected`, until a thread calls [`wake_all`] with it, or for `timeout`:
/// a futex.
pub fn wait_while(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    may_strike();
    point();
    if word.real().load(Ordering::SeqCst) == expected {
        wait(std::ptr::from_ref(word) as usize, timeout);
    }
}

/// Wakes the threads that sleep on `word`.
pub fn wake_all(word: &AtomicU32) {
    wake(std::ptr::from_ref(word) as usize);
}

/// Enters an epoch of the calling thread's simulation. Returns `None` if the thread takes part in
/// none.
pub(super) fn pin() -> Option<Guard> {
    // A thread that leaves frees memory that other threads may use: it is retired in the
    // simulation, and not in the epochs of the process.
    epochs::pin_own().or_else(|| in_simulation(|simulation, _| simulation.epochs.pin()))
}

#[cfg(test)]
mod tests;
