//! When an access of a modelled device completes.
//!
//! An access takes the slot that is free first, and there as long as its curve says, with noise. Beside that it takes its
//! part of what all accesses share, bandwidth or requests per second, in the order of arrival; it is done when both are:
//!
//! ```text
//!   slot    ────────[ waits for a slot ][ curve x noise ]─┐
//!                                                         ├─▶ done at the later one
//!   shared  ──[ those before ][ bytes, or requests ]──────┘
//! ```
//!
//! Flushes run one at a time. Those that arrive while one runs share the next, as in the kernel's block layer.

use super::figures::{Figures, transfer_ns};
use quenchdb::internals::base::clock::Nanos;
use quenchdb::internals::base::random::Random;
use std::sync::{Mutex, PoisonError};

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// From the device.
    Read,
    /// To it.
    Write,
}

/// A device with some figures. It has no clock: the caller passes the time.
#[derive(Debug)]
pub struct Device {
    figures: &'static Figures,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    random: Random,
    /// Until when each slot is taken.
    slots: Vec<u64>,
    /// Until when what is shared is taken.
    shared: u64,
    /// Beginning and end of the flushes that have not ended: at most one that runs and one after it, if time passes between
    /// the questions.
    flushes: Vec<(u64, u64)>,
}

impl State {
    /// How much longer, or shorter, than its figure an access is.
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
    /// Idle since ever. The same seed and the same questions give the same answers.
    #[must_use]
    pub fn new(figures: &'static Figures, seed: u64) -> Device {
        let state = State {
            random: Random::from_seed(seed),
            slots: vec![0; figures.slots.max(1)],
            shared: 0,
            flushes: Vec::new(),
        };
        Device { figures, state: Mutex::new(state) }
    }

    /// What it is made of.
    #[must_use]
    pub fn figures(&self) -> &'static Figures {
        self.figures
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // Nothing in it is ever half changed when a panic could come.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When an access to `bytes` that arrives `now` is done.
    pub fn completion(&self, now: Nanos, access: Access, bytes: u64) -> Nanos {
        let figures = self.figures;
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

    /// When a flush that arrives `now` is done: at once where completed writes are durable.
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

    /// When a write that arrives `now` is done, and flushed.
    pub fn durable(&self, now: Nanos, bytes: u64) -> Nanos {
        self.flushed(self.completion(now, Access::Write, bytes))
    }
}

#[cfg(test)]
mod tests;
