//! A planned panic of a thread at a blocking operation: locking a mutex, waiting for an event,
//! sleeping, or using a device, whose disk is behind a mutex.
//!
//! The panic stands for a bug of the engine, or of a device of the user. Operations on atomics and
//! releases of locks never panic: they cannot fail, and invariants rely on that. An unwinding
//! thread is spared, because a second panic would end the process; so is a thread that leaves the
//! simulation, where nothing would catch the panic.

use std::backtrace::Backtrace;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The payload of a planned panic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlannedPanic;

/// The next planned panic of a simulation.
#[derive(Debug, Default)]
pub(super) struct Planned {
    armed: Option<Armed>,
    /// The thread that the panic struck.
    pub(super) struck: Option<(String, Backtrace)>,
}

#[derive(Debug)]
pub(super) struct Armed {
    /// Strikes threads whose names begin with this.
    pub(super) threads: &'static str,
    /// Blocking operations that still succeed.
    pub(super) after: u64,
}

/// Number of armed panics in all simulations of the process.
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

    /// Counts a blocking operation of `thread`. Returns true if the thread panics now.
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
