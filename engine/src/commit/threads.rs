//! Which threads has the room of its own? The flushers, and one that looks for writes that hang.

use super::flusher::Flusher;
use super::{Commit, Core};
use crate::base::{Error, ErrorKind, Result};
use crate::sync::thread;
use std::time::Duration;

/// Poisons the room if it is dropped by a panic that began after it was made: what the engine was doing is half done, and nobody knows which
/// half. A panic of the user's own code is no matter of it.
#[must_use]
pub struct PoisonOnPanic<'a> {
    core: &'a Core,
    who: &'static str,
    unwinding: bool,
}

impl PoisonOnPanic<'_> {
    pub(super) fn new<'a>(core: &'a Core, who: &'static str) -> PoisonOnPanic<'a> {
        PoisonOnPanic { core, who, unwinding: std::thread::panicking() }
    }
}

impl Drop for PoisonOnPanic<'_> {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() && !self.unwinding {
            self.core.panicked(self.who);
        }
    }
}

/// Poisons the room if it is dropped and not forgotten. As [`PoisonOnPanic`], under the latch of a log: who waits is told, and so is the log of the
/// program, by the [`PoisonOnPanic`] around it. Either may run a user's code, which may wait for the latch.
struct PoisonUnlessFinished<'a>(&'a Core);

impl Drop for PoisonUnlessFinished<'_> {
    #[cold]
    fn drop(&mut self) {
        self.0.poison.note_panic();
        self.0.poison.raise(panic_of("who appended to a log"));
    }
}

impl Core {
    /// What is done by whoever has the latch of a log, or of several. If `step` panics the room is poisoned before another has the latch, who
    /// would append behind what is not in the log, or not fenced, or wait for a CSN that has no record (rule 2).
    #[inline]
    pub(super) fn latched<T>(&self, step: impl FnOnce() -> T) -> T {
        let poison = PoisonUnlessFinished(self);
        let done = step();
        std::mem::forget(poison);
        done
    }

    #[cold]
    pub(super) fn panicked(&self, who: &str) {
        self.poison.note_panic();
        self.fail(panic_of(who));
    }
}

fn panic_of(who: &str) -> Error {
    Error::new(ErrorKind::Poisoned, format!("{who} panicked inside the engine: this is a bug"))
}

/// How often `close` looks for writes of a poisoned room that nobody reaps.
const REAP_EVERY: Duration = Duration::from_millis(1);

impl Core {
    /// Waits until the flushers have ended, and the queues of workers their writes. False if one hangs: then nothing is to be waited for.
    fn await_end_of_writes(&self) -> bool {
        loop {
            let over = self.deadline.over().ticket();
            if self.deadline.is_missed() {
                return false;
            }
            let mut in_queues = false;
            for writer in self.writers.iter().filter(|writer| writer.in_flight() > 0) {
                if let Some(_lead) = writer.try_become_leader(self) {
                    self.reap(writer, false);
                }
                in_queues |= writer.in_flight() > 0;
            }
            if !in_queues && self.flushers.iter().all(Flusher::has_ended) {
                return true;
            }
            self.deadline.over().wait(over, in_queues.then_some(REAP_EVERY));
        }
    }
}

impl Commit {
    /// The calling thread works inside the engine until the result is dropped. `who` is named if that is by a panic.
    #[inline]
    pub fn inside(&self, who: &'static str) -> PoisonOnPanic<'_> {
        PoisonOnPanic::new(&self.core, who)
    }

    /// `who` panicked inside the engine: nothing is acknowledged again.
    pub fn panicked(&self, who: &str) {
        self.core.panicked(who);
    }

    /// What is in memory may be half of something after a panic inside the engine: nothing of it may be made durable then.
    ///
    /// # Errors
    /// `Poisoned`.
    pub fn check_whole(&self) -> Result<()> {
        self.core.poison.check_whole()
    }

    /// # Errors
    /// I/O if a thread cannot be started.
    pub(super) fn start_threads(&self) -> Result<()> {
        for number in 0..self.core.flushers.len() {
            let core = self.core.clone();
            core.flushers[number].begins();
            let thread = thread::spawn("quench-flusher", move || core.run_flusher(number));
            let thread = thread.map_err(|error| {
                self.core.flushers[number].ends();
                Error::io("cannot start a flusher thread", error)
            })?;
            self.threads.lock().push(thread);
        }
        if self.core.deadline.is_set() {
            let core = self.core.clone();
            let thread = thread::spawn("quench-deadline", move || core.watch_writes())
                .map_err(|error| Error::io("cannot start the thread that looks at writes", error))?;
            self.threads.lock().push(thread);
        }
        Ok(())
    }

    /// Ends all threads, but for what a hanging write holds.
    pub(super) fn end_threads(&self) {
        self.core.flushers.iter().for_each(Flusher::stop);
        let threads = std::mem::take(&mut *self.threads.lock());
        let is_first = !threads.is_empty();
        // Once a write has hung nothing is waited for, by nobody who comes after that either.
        let hangs = self.core.deadline.is_missed() || is_first && !self.core.await_end_of_writes();
        self.core.deadline.stop();
        if hangs {
            if is_first {
                // One of them may be inside that write, and a queue that is dropped waits for its writes.
                std::mem::forget(self.core.clone());
            }
            self.core.segments.close(false);
        } else {
            for thread in threads {
                let _ = thread.join();
            }
            self.core.segments.close(true);
        }
    }
}

impl Drop for Commit {
    fn drop(&mut self) {
        // A caller who wants to know called `close`; what failed is in every waiter's hands already.
        let _ = self.close();
    }
}

impl std::fmt::Debug for Commit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Commit").field("axes", &self.core.axes).field("w", &self.watermark()).finish()
    }
}
