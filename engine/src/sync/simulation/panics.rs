//! A panic to order, at some operation of some thread.
//!
//! It stands for a bug of the engine, or of a device that a user brought along, in whatever the thread does there: also between two operations
//! that belong together. A thread that is unwinding already is spared: a second panic would end the process.

use super::me;

/// What a planned panic carries, for who joins the thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlannedPanic;

/// The next panic to order.
#[derive(Debug, Default)]
pub(super) struct Planned {
    armed: Option<Armed>,
    /// The thread that it struck.
    struck: Option<String>,
}

#[derive(Debug)]
struct Armed {
    /// Threads whose names begin with this.
    threads: &'static str,
    /// Operations that they have left.
    after: u64,
}

impl Planned {
    /// How many operations a thread may be given.
    pub(super) fn limit(&self, thread: &str, given: u32) -> u32 {
        match self.of(thread) {
            Some(armed) => u64::from(given).min(armed.after.max(1)) as u32,
            None => given,
        }
    }

    /// A thread has done so many operations.
    pub(super) fn count(&mut self, thread: &str, operations: u32) {
        if let Some(armed) = self.armed.as_mut().filter(|armed| thread.starts_with(armed.threads)) {
            armed.after = armed.after.saturating_sub(operations.into());
        }
    }

    /// Whether the calling thread, called `thread`, is to panic now.
    pub(super) fn strikes(&mut self, thread: &str) -> bool {
        let due = self.of(thread).is_some_and(|armed| armed.after == 0) && !std::thread::panicking();
        if due {
            self.armed = None;
            self.struck = Some(thread.into());
        }
        due
    }

    fn of(&self, thread: &str) -> Option<&Armed> {
        self.armed.as_ref().filter(|armed| thread.starts_with(armed.threads))
    }
}

/// After `after` more operations of threads whose names begin with `threads`, whoever of them does the next one panics with [`PlannedPanic`].
pub fn panic_later(threads: &'static str, after: u64) {
    if let Some((simulation, _)) = me() {
        simulation.lock().panic.armed = Some(Armed { threads, after });
    }
}

/// The thread that a planned panic has struck in this simulation.
#[must_use]
pub fn planned_panic() -> Option<String> {
    me().and_then(|(simulation, _)| simulation.lock().panic.struck.clone())
}
