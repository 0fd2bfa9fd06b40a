//! What is drawn for a request: how long it takes, and what goes wrong.

use crate::faults::{Fault, Faults};
use crate::latency::Latency;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

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
        let delay = fault.map_or(Duration::ZERO, |fault| fault.delay());
        Fate { takes: takes + delay, fault }
    }
}
