//! A panic to order, of some thread, at some operation that may wait: it locks a mutex, waits for an event, sleeps, or uses a device (whose disk is
//! behind a mutex).
//!
//! It stands for a bug of the engine, or of a device that a user brought along, in whatever the thread does there. Operations on atomics and
//! releases of locks are left out: nothing can fail in them, and what belongs together could not be written down otherwise. A thread that is
//! unwinding already is spared: a second panic would end the process; and one that leaves the simulation, where nobody would catch it.

use std::backtrace::Backtrace;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a planned panic carries, for who joins the thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlannedPanic;

/// The next panic to order in a simulation.
#[derive(Debug, Default)]
pub(super) struct Planned {
    armed: Option<Armed>,
    /// The thread that it struck.
    pub(super) struck: Option<(String, Backtrace)>,
}

#[derive(Debug)]
pub(super) struct Armed {
    /// Threads whose names begin with this.
    pub(super) threads: &'static str,
    /// Operations that they have left.
    pub(super) after: u64,
}

/// Panics that are armed, in all simulations of the process.
pub(super) static ARMED: AtomicUsize = AtomicUsize::new(0);

impl Planned {
    pub(super) fn arm(&mut self, armed: Armed) {
        self.disarm();
        self.armed = Some(armed);
        ARMED.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn disarm(&mut self) {
        if self.armed.take().is_some() {
            ARMED.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether the calling thread, called `thread`, is to panic now.
    pub(super) fn strikes(&mut self, thread: &str) -> bool {
        let Some(armed) = self.armed.as_mut().filter(|armed| thread.starts_with(armed.threads)) else {
            return false;
        };
        if armed.after > 0 {
            armed.after -= 1;
            return false;
        }
        self.disarm();
        self.struck = Some((thread.into(), Backtrace::force_capture()));
        true
    }
}
