//! How a request ends: what was drawn for it, and what the connection is to do.

use crate::faults::{Fault, Faults};
use crate::latency::Latency;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What the connection does with the answer of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// It sends it.
    Answer = 0,
    /// It is closed without one.
    Close = 1,
    /// It sends half of the answer's body, and is closed.
    Cut = 2,
}

/// Set by the service, read by the connection when the service is done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending(Arc<AtomicU8>);

impl Ending {
    pub fn set(&self, end: End) {
        self.0.store(end as u8, Ordering::Relaxed);
    }

    pub fn get(&self) -> End {
        match self.0.load(Ordering::Relaxed) {
            0 => End::Answer,
            1 => End::Close,
            _ => End::Cut,
        }
    }
}

/// Draws the fates of requests.
#[derive(Debug)]
pub(crate) struct Fates {
    latency: Latency,
    state: Mutex<(fastrand::Rng, Faults)>,
}

/// What was drawn for a request.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Fate {
    pub takes: Duration,
    pub fault: Option<Fault>,
}

impl Fates {
    pub fn new(latency: Latency, faults: Faults, seed: u64) -> Fates {
        Fates { latency, state: Mutex::new((fastrand::Rng::with_seed(seed), faults)) }
    }

    /// Changes what goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1 = faults;
    }

    /// Draws the fate of a request that moves so many bytes.
    pub fn draw(&self, writes: bool, bytes: u64) -> Fate {
        let mut guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (random, faults) = &mut *guard;
        let takes = self.latency.draw(writes, bytes, random);
        let fault = if faults.are_none() { None } else { faults.draw(random.f64()) };
        match fault {
            Some(Fault::Slow(more)) => Fate { takes: takes + more, fault },
            _ => Fate { takes, fault },
        }
    }
}
