//! The flusher threads as other threads see them: asleep until some moment, to be woken for an
//! earlier one.
//!
//! While a flusher runs, `wakes_at` is zero, and handing work over costs a committer one load.
//! While it sleeps, a committer wakes it only if it made some log due before `wakes_at`; only the
//! first to see that pays the system call.

use super::levels;
use super::log_writer::LogWriter;
use crate::base::clock::Nanos;
use crate::sync::Event;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const RUNNING: u64 = 0;

/// The state of a flusher thread that other threads see.
#[derive(Debug)]
pub struct Flusher {
    event: Event,
    /// When it will look again; zero while it runs. Stored by the thread, and zeroed by the thread
    /// that wakes it.
    wakes_at: AtomicU64,
    stop: AtomicBool,
    alive: AtomicBool,
}

impl Flusher {
    fn new() -> Flusher {
        let (wakes_at, stop) = (AtomicU64::new(RUNNING), AtomicBool::new(false));
        Flusher { event: Event::new(), wakes_at, stop, alive: AtomicBool::new(false) }
    }

    /// Wakes the thread if it would sleep past `due`.
    pub fn wake_for(&self, due: Nanos) {
        if self.wakes_at.load(Ordering::SeqCst) > due.0
            && self.wakes_at.swap(RUNNING, Ordering::SeqCst) != RUNNING
        {
            self.event.notify_all();
        }
    }

    /// Sleeps until the moment that `plan` returns, if that is after `now`. Returns whether it
    /// slept.
    ///
    /// No due time is missed: a committer lowers a due time, then loads `wakes_at`; this stores
    /// `wakes_at`, then loads all due times. All four are sequentially consistent, so one of the
    /// two sees the other.
    pub fn sleep(&self, now: Nanos, plan: impl FnOnce() -> Nanos) -> bool {
        let woken = self.event.ticket();
        self.wakes_at.store(levels::NEVER.0, Ordering::SeqCst);
        let due = plan();
        let sleeps = due > now && self.is_running();
        if sleeps {
            self.wakes_at.store(due.0, Ordering::SeqCst);
            self.event.wait(woken, (due != levels::NEVER).then(|| due.since(now)));
        }
        self.wakes_at.store(RUNNING, Ordering::SeqCst);
        sleeps
    }

    /// Asks the thread to end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.event.notify_all();
    }

    /// Its thread is about to be started.
    pub fn begins(&self) {
        self.alive.store(true, Ordering::SeqCst);
    }

    /// Its thread ends, or could not be started.
    pub fn ends(&self) {
        self.alive.store(false, Ordering::SeqCst);
    }

    /// Returns whether its thread has ended, or was never started.
    pub fn has_ended(&self) -> bool {
        !self.alive.load(Ordering::SeqCst)
    }

    /// Returns false once the thread was asked to end: waiters then write for themselves.
    pub fn is_running(&self) -> bool {
        !self.stop.load(Ordering::SeqCst)
    }
}

/// All flushers: one, or one for each log.
pub struct Flushers(Box<[Flusher]>);

impl std::ops::Deref for Flushers {
    type Target = [Flusher];

    fn deref(&self) -> &[Flusher] {
        &self.0
    }
}

impl Flushers {
    pub fn new(count: usize) -> Flushers {
        Flushers((0..count).map(|_| Flusher::new()).collect())
    }

    /// Returns the flusher that writes `log`.
    pub fn of(&self, log: &LogWriter) -> &Flusher {
        &self.0[log.id.0 as usize % self.0.len()]
    }

    /// Returns false once the flushers were asked to end.
    pub fn are_running(&self) -> bool {
        self.0[0].is_running()
    }

    /// Wakes all, now.
    pub fn wake_all(&self) {
        self.0.iter().for_each(|flusher| flusher.wake_for(levels::NOW));
    }

    /// Has the flusher of `log` write it at `by`, unless it does so earlier.
    pub fn delegate(&self, log: &LogWriter, by: Nanos) {
        log.flush_request.lower_due(by);
        self.of(log).wake_for(by);
    }
}
