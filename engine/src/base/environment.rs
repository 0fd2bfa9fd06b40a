//! What a simulation replaces of the machine: time, randomness of the operating system, failures.
//!
//! Only with the feature `simulation`. A thread of a simulation has its environment in a
//! thread-local; all other threads use the machine.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The simulated machine. The threads of one simulation share it.
#[derive(Debug)]
pub struct Environment {
    /// Nanoseconds since the simulation began.
    now: AtomicU64,
    entropy: AtomicU64,
    /// See [`Environment::preemptions`].
    preemptions: AtomicU64,
    allocations: Mutex<PlannedFailures>,
    thread_starts: Mutex<PlannedFailures>,
}

/// Which requests for a resource fail.
#[derive(Debug, Default)]
struct PlannedFailures {
    /// Requests that still succeed.
    after: u64,
    /// Requests that fail then.
    times: u64,
    /// Requests that have failed.
    failed: u64,
}

impl PlannedFailures {
    fn plan(planned: &Mutex<PlannedFailures>, after: u64, times: u64) {
        let mut planned = planned.lock().unwrap_or_else(PoisonError::into_inner);
        (planned.after, planned.times) = (after, times);
    }

    /// Counts a request. Returns true if the request fails.
    fn strike(planned: &Mutex<PlannedFailures>) -> bool {
        let mut planned = planned.lock().unwrap_or_else(PoisonError::into_inner);
        if planned.times == 0 {
            return false;
        }
        if planned.after > 0 {
            planned.after -= 1;
            return false;
        }
        planned.times -= 1;
        planned.failed += 1;
        true
    }

    fn failed(planned: &Mutex<PlannedFailures>) -> u64 {
        planned.lock().unwrap_or_else(PoisonError::into_inner).failed
    }
}

/// Nanoseconds that reading the clock takes, so that a thread which polls the clock sees time pass.
const CLOCK_READ_NS: u64 = 20;

thread_local! {
    static ENVIRONMENT: RefCell<Option<Arc<Environment>>> = const { RefCell::new(None) };
}

impl Environment {
    /// Returns an environment at time zero. Its entropy follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Arc<Environment> {
        Arc::new(Environment {
            now: AtomicU64::new(0),
            entropy: AtomicU64::new(seed),
            preemptions: AtomicU64::new(0),
            allocations: Mutex::default(),
            thread_starts: Mutex::default(),
        })
    }

    /// Sets the environment of the calling thread; `None` is the real machine.
    pub fn enter(environment: Option<Arc<Environment>>) {
        ENVIRONMENT.set(environment);
    }

    /// Returns the environment of the calling thread if the thread belongs to a simulation.
    #[must_use]
    pub fn current() -> Option<Arc<Environment>> {
        ENVIRONMENT.try_with(|own| own.borrow().clone()).ok().flatten()
    }

    /// Returns the nanoseconds since the simulation began.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Returns the nanoseconds since the simulation began, after the time that the reading takes.
    #[must_use]
    pub fn read_clock(&self) -> u64 {
        self.now.fetch_add(CLOCK_READ_NS, Ordering::Relaxed) + CLOCK_READ_NS
    }

    /// Advances the time by `nanos`.
    pub fn advance(&self, nanos: u64) {
        self.now.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Advances the time to `nanos`. Does nothing if that moment has passed.
    pub fn advance_to(&self, nanos: u64) {
        self.now.fetch_max(nanos, Ordering::Relaxed);
    }

    /// Counts a preemption.
    pub fn count_preemption(&self) {
        self.preemptions.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often time has passed although threads were ready, as if they had been off the
    /// CPU.
    #[must_use]
    pub fn preemptions(&self) -> u64 {
        self.preemptions.load(Ordering::Relaxed)
    }

    /// Lets `after` more requests for memory succeed; the `times` requests after those fail.
    pub fn fail_allocations(&self, after: u64, times: u64) {
        PlannedFailures::plan(&self.allocations, after, times);
    }

    /// Counts a request for memory. Returns true if the request fails.
    #[must_use]
    pub fn fails_allocation(&self) -> bool {
        PlannedFailures::strike(&self.allocations)
    }

    /// Returns the number of failed requests for memory.
    #[must_use]
    pub fn allocations_failed(&self) -> u64 {
        PlannedFailures::failed(&self.allocations)
    }

    /// Lets `after` more threads start; the `times` starts after those fail.
    pub fn fail_thread_starts(&self, after: u64, times: u64) {
        PlannedFailures::plan(&self.thread_starts, after, times);
    }

    /// Counts the start of a thread. Returns true if the start fails.
    #[must_use]
    pub fn fails_thread_start(&self) -> bool {
        PlannedFailures::strike(&self.thread_starts)
    }

    /// Returns the number of failed thread starts.
    #[must_use]
    pub fn thread_starts_failed(&self) -> u64 {
        PlannedFailures::failed(&self.thread_starts)
    }

    /// Returns the next seed in the place of the operating system's randomness.
    #[must_use]
    pub fn draw_seed(&self) -> u64 {
        self.entropy.fetch_add(1, Ordering::Relaxed)
    }
}
