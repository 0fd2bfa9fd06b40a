//! What a simulation puts in the place of the machine: time, the operating system's randomness, the process's number.
//!
//! Only with the feature `simulation`. A thread that takes part in a simulation has its surroundings in a thread-local;
//! all others have the machine's.

use super::random::Random;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Shared by the threads of one simulation.
#[derive(Debug)]
pub struct Surroundings {
    /// Nanoseconds since the simulation began.
    now: AtomicU64,
    entropy: AtomicU64,
    /// See [`Surroundings::leaps`].
    leaps: AtomicU64,
    memory: Mutex<Refusals>,
    threads: Mutex<Refusals>,
}

/// Which requests for something are refused.
#[derive(Debug, Default)]
struct Refusals {
    /// So many are not,
    after: u64,
    /// and then so many are.
    left: u64,
    refused: u64,
}

impl Refusals {
    fn order(refusals: &Mutex<Refusals>, after: u64, times: u64) {
        let mut refusals = refusals.lock().unwrap_or_else(PoisonError::into_inner);
        (refusals.after, refusals.left) = (after, times);
    }

    /// A request is made; true if it is refused.
    fn refuse(refusals: &Mutex<Refusals>) -> bool {
        let mut refusals = refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if refusals.left == 0 {
            return false;
        }
        if refusals.after > 0 {
            refusals.after -= 1;
            return false;
        }
        refusals.left -= 1;
        refusals.refused += 1;
        true
    }

    fn refused(refusals: &Mutex<Refusals>) -> u64 {
        refusals.lock().unwrap_or_else(PoisonError::into_inner).refused
    }
}

/// Looking at the clock takes this long, so that whoever waits by looking sees time pass.
const LOOK_NS: u64 = 20;

thread_local! {
    static SURROUNDINGS: RefCell<Option<Arc<Surroundings>>> = const { RefCell::new(None) };
}

impl Surroundings {
    /// At time zero. What is drawn from the operating system follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Arc<Surroundings> {
        Arc::new(Surroundings {
            now: AtomicU64::new(0),
            entropy: AtomicU64::new(seed),
            leaps: AtomicU64::new(0),
            memory: Mutex::default(),
            threads: Mutex::default(),
        })
    }

    /// Makes these the calling thread's, or gives it the machine back.
    pub fn enter(surroundings: Option<Arc<Surroundings>>) {
        SURROUNDINGS.set(surroundings);
    }

    /// The calling thread's, if it takes part in a simulation.
    #[must_use]
    pub fn of_this_thread() -> Option<Arc<Surroundings>> {
        SURROUNDINGS.try_with(|own| own.borrow().clone()).ok().flatten()
    }

    /// Nanoseconds since the simulation began.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// The same, by a thread that looks at the clock.
    #[must_use]
    pub fn look(&self) -> u64 {
        self.now.fetch_add(LOOK_NS, Ordering::Relaxed) + LOOK_NS
    }

    /// Lets time pass.
    pub fn pass(&self, nanos: u64) {
        self.now.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Lets time pass until `nanos`, if that is still to come.
    pub fn pass_until(&self, nanos: u64) {
        self.now.fetch_max(nanos, Ordering::Relaxed);
    }

    /// Time passed although threads could have gone on.
    pub fn note_leap(&self) {
        self.leaps.fetch_add(1, Ordering::Relaxed);
    }

    /// How often time has passed although threads could have gone on, as if they had been off the processor.
    #[must_use]
    pub fn leaps(&self) -> u64 {
        self.leaps.load(Ordering::Relaxed)
    }

    /// Has requests for memory refused: `after` more are not, and then so many `times`.
    pub fn refuse_memory(&self, after: u64, times: u64) {
        Refusals::order(&self.memory, after, times);
    }

    /// A request for memory is made; true if it is refused.
    #[must_use]
    pub fn refuses_memory(&self) -> bool {
        Refusals::refuse(&self.memory)
    }

    /// Requests for memory that were refused.
    #[must_use]
    pub fn memory_refused(&self) -> u64 {
        Refusals::refused(&self.memory)
    }

    /// Has threads refused, likewise.
    pub fn refuse_threads(&self, after: u64, times: u64) {
        Refusals::order(&self.threads, after, times);
    }

    /// A thread is to be started; true if that is refused.
    #[must_use]
    pub fn refuses_thread(&self) -> bool {
        Refusals::refuse(&self.threads)
    }

    /// Threads that were refused.
    #[must_use]
    pub fn threads_refused(&self) -> u64 {
        Refusals::refused(&self.threads)
    }

    /// What the operating system would have drawn.
    #[must_use]
    pub fn draw(&self) -> u64 {
        let seed = self.entropy.fetch_add(1, Ordering::Relaxed);
        Random::from_seed(seed).next_u64()
    }
}
