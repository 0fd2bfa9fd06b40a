//! When an access of a modelled device completes.
//!
//! An access takes the slot that is free first, and there as long as its curve says, with noise.
//! Beside that it takes its part of what all accesses share, bandwidth or requests per second, in
//! the order of arrival; it is done when both are:
//!
//! ```text
//!   slot    ────────[ waits for a slot ][ curve x noise ]─┐
//!                                                         ├─▶ done at the later one
//!   shared  ──[ those before ][ bytes, or requests ]──────┘
//! ```
//!
//! Flushes run one at a time. Those that arrive while one runs share the next, as in the kernel's
//! block layer.

use super::figures::{Figures, transfer_ns};
use quenchdb::internals::base::clock::Nanos;
use quenchdb::internals::base::random::Random;
use std::sync::{Mutex, PoisonError};

/// The direction of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A read.
    Read,
    /// A write.
    Write,
}

/// A device with some figures. It has no clock: the caller passes the time.
#[derive(Debug)]
pub struct Device {
    figures: Figures,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    random: Random,
    /// When each slot becomes free.
    slots: Vec<u64>,
    /// When the shared rate becomes free.
    shared: u64,
    /// Beginning and end of the flushes that have not ended: at most one that runs and one after
    /// it, if time passes between the calls.
    flushes: Vec<(u64, u64)>,
}

impl State {
    /// Returns the factor between the time of an access and its figure.
    fn noise(&mut self, figures: &Figures) -> f64 {
        let jitter = 1.0 + figures.jitter * (2.0 * self.random.unit() - 1.0);
        match figures.tail {
            Some(tail) if self.random.chance(1, tail.one_in) => {
                let uniform = 1.0 - self.random.unit();
                jitter * uniform.powf(-tail.exponent).min(tail.factor_max)
            }
            _ => jitter,
        }
    }
}

impl Device {
    /// Creates an idle device. The same seed and the same calls give the same results.
    #[must_use]
    pub fn new(figures: &Figures, seed: u64) -> Device {
        let state = State {
            random: Random::from_seed(seed),
            slots: vec![0; figures.slots.max(1)],
            shared: 0,
            flushes: Vec::new(),
        };
        Device { figures: *figures, state: Mutex::new(state) }
    }

    /// Returns the figures.
    #[must_use]
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // A panic cannot leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when an access to `bytes` that arrives `now` completes.
    pub fn completion(&self, now: Nanos, access: Access, bytes: u64) -> Nanos {
        let figures = &self.figures;
        let (curve, rate) = match access {
            Access::Read => (figures.read, figures.read_bytes_per_second),
            Access::Write => (figures.write, figures.write_bytes_per_second),
        };
        let requests_ns = figures
            .requests
            .map_or(0, |limit| bytes.div_ceil(limit.bytes).max(1) * 1_000_000_000 / limit.per_second);
        let mut state = self.state();
        let taken_ns = (curve.ns(bytes) as f64 * state.noise(figures)) as u64;
        let shared_ns = transfer_ns(bytes, rate).max(requests_ns);
        state.shared = state.shared.max(now.0) + shared_ns;
        let shared = state.shared;
        let Some(slot) = state.slots.iter_mut().min() else { return now };
        *slot = (*slot).max(now.0) + taken_ns;
        Nanos((*slot).max(shared))
    }

    /// Returns when a flush that arrives `now` completes: at once if completed writes are durable.
    pub fn flushed(&self, now: Nanos) -> Nanos {
        let Some((shortest, longest)) = self.figures.flush_ns else { return now };
        let mut state = self.state();
        state.flushes.retain(|(_, end)| *end > now.0);
        if let Some((_, end)) = state.flushes.iter().find(|(begin, _)| *begin >= now.0) {
            return Nanos(*end);
        }
        let ratio = longest as f64 / shortest as f64;
        let taken = (shortest as f64 * ratio.powf(state.random.unit())) as u64;
        let begin = state.flushes.last().map_or(now.0, |(_, end)| *end);
        state.flushes.push((begin, begin + taken));
        Nanos(begin + taken)
    }

    /// Returns when a write that arrives `now` is complete and flushed.
    pub fn durable(&self, now: Nanos, bytes: u64) -> Nanos {
        self.flushed(self.completion(now, Access::Write, bytes))
    }
}

#[cfg(test)]
mod tests;
