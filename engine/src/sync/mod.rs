//! Rank 1: how threads synchronize.
//!
//! The only door to the standard library's threads and primitives. Under `--cfg loom` or the
//! feature `shuttle` the same names come from the model checker, so that it controls every
//! interleaving of the code above. With the feature `simulation` they are those of our own
//! scheduler, which repeats a whole run from a seed. Nothing here allocates on a hot path.
//!
//! A panic of a user's closure must not make a lock unusable, so [`Mutex`] has no poisoning: the
//! holder keeps the data consistent at every point where code of the caller could run.

pub mod backoff;
pub mod consolidation;
pub mod fork;
pub mod epoch;
pub mod event;
pub mod priority_lock;
#[cfg(feature = "simulation")]
pub mod simulation;
mod sleeps;
mod slices;

pub use backoff::Backoff;
pub use consolidation::ConsolidationArray;
pub use event::Event;
pub use fork::{NotInherited, Ours, PerProcess, Process};
pub use priority_lock::PriorityLock;

#[cfg(loom)]
use loom as imp;
#[cfg(all(feature = "shuttle", not(loom)))]
use shuttle as imp;
#[cfg(all(feature = "simulation", not(any(loom, feature = "shuttle"))))]
use simulation::primitives as imp;
#[cfg(not(any(loom, feature = "shuttle", feature = "simulation")))]
use std as imp;

#[cfg(test)]
pub use imp::sync::Arc;
pub use imp::sync::MutexGuard;

/// Atomic integers and fences of the current scheduler.
pub mod atomic {
    pub use super::imp::sync::atomic::{
        AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}

/// Threads of the current scheduler.
pub mod thread {
    pub use super::imp::thread::{JoinHandle, yield_now};
    pub use super::sleeps::times_slept;
    pub use super::slices::ask_for_short_slices;

    /// Sleeps for about `time`. Under a model checker, which has no time, it only yields.
    pub fn sleep(time: std::time::Duration) {
        #[cfg(feature = "simulation")]
        if super::simulation::is_simulated() {
            return super::simulation::sleep(time);
        }
        if cfg!(any(loom, feature = "shuttle")) {
            yield_now();
        } else {
            std::thread::sleep(time);
        }
    }

    /// Returns the number of CPUs that this process may use, at least 1. Read once, because the
    /// system reads several files for it.
    #[must_use]
    pub fn processors() -> usize {
        #[cfg(feature = "simulation")]
        if super::simulation::is_simulated() {
            return 2;
        }
        static COUNT: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
        *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
    }

    /// Returns the CPU that the calling thread runs on, or ran on a moment ago.
    #[must_use]
    pub fn current_cpu() -> usize {
        #[cfg(feature = "simulation")]
        if let Some(task) = super::simulation::task() {
            return task % 2;
        }
        rustix::thread::sched_getcpu()
    }

    /// Returns a number that no other thread has, from 1.
    #[must_use]
    pub fn number() -> u64 {
        // The threads of shuttle and of loom are tasks of one system thread.
        #[cfg(all(feature = "shuttle", not(loom)))]
        return 1 + usize::from(super::imp::thread::current().id()) as u64;
        #[cfg(not(all(feature = "shuttle", not(loom))))]
        {
            #[cfg(loom)]
            use loom::thread_local;
            use std::sync::atomic::{AtomicU64, Ordering};
            static NEXT: AtomicU64 = AtomicU64::new(1);
            thread_local! {
                static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
            }
            NUMBER.with(|number| *number)
        }
    }

    /// Returns the id of the calling process.
    #[must_use]
    pub fn process_id() -> u32 {
        #[cfg(feature = "simulation")]
        if super::simulation::is_simulated() {
            return 1;
        }
        std::process::id()
    }

    /// Calls `f` with each number below `count`, and returns the results; `None` is a panic in
    /// another thread.
    ///
    /// Each call has its own thread, except the first, and those for which the system has no thread
    /// left. These run in the calling thread, and their panics resume when all threads have ended.
    /// Under a controlled scheduler all calls run in the calling thread.
    pub fn fan_out<T: Send>(count: usize, f: impl Fn(usize) -> T + Sync) -> Vec<Option<T>> {
        #[cfg(feature = "simulation")]
        if super::simulation::is_simulated() {
            return (0..count).map(|i| Some(f(i))).collect();
        }
        std::thread::scope(|scope| {
            let f = &f;
            let spawn = |i| std::thread::Builder::new().spawn_scoped(scope, move || f(i)).map_err(|_| i);
            let others: Vec<_> = (1..count).map(spawn).collect();
            let first = (count > 0).then(|| Some(f(0)));
            let others = others.into_iter().map(|thread| match thread {
                Ok(thread) => thread.join().ok(),
                Err(i) => Some(f(i)),
            });
            first.into_iter().chain(others).collect()
        })
    }

    /// Starts a thread called `name`.
    ///
    /// # Errors
    /// The operating system's, if it has no thread left.
    pub fn spawn<F>(name: &str, f: F) -> std::io::Result<JoinHandle<()>>
    where
        F: FnOnce() + Send + 'static,
    {
        super::imp::thread::Builder::new().name(name.to_string()).spawn(f)
    }
}

/// Mutual exclusion without poisoning; a futex underneath, so waiting costs nothing.
#[derive(Debug, Default)]
pub struct Mutex<T> {
    inner: imp::sync::Mutex<T>,
}

impl<T> Mutex<T> {
    /// Returns an unlocked mutex.
    pub fn new(value: T) -> Self {
        Mutex { inner: imp::sync::Mutex::new(value) }
    }

    /// Waits for the lock and returns it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.inner.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }
}
