//! An event: threads sleep until it happens. The notifier makes a system call only if a thread
//! sleeps.
//!
//! ```text
//!   waiter                                notifier
//!   ticket = event.ticket()               condition := true
//!   if condition { return }               event.notify_all()      generation += 1; sleepers > 0 ? wake
//!   event.wait(ticket, ..)
//! ```
//!
//! 1. No wake-up is lost: the waiter takes its ticket before it looks at the condition, and sleeps
//!    only while the generation is still the ticket. It counts itself in `sleepers` before the
//!    kernel compares the generation, and the notifier raises the generation before it reads
//!    `sleepers`; all four are sequentially consistent, so at least one of them sees the other.
//! 2. Wake-ups may be spurious. Callers loop.

use super::atomic::{AtomicU32, Ordering};
#[cfg(any(loom, feature = "shuttle"))]
use super::{Mutex, imp};
use std::time::Duration;

/// An event: see the text of this file.
#[derive(Debug)]
pub struct Event {
    /// Raised by notifiers, compared by waiters and the kernel.
    generation: AtomicU32,
    /// Threads inside [`Event::wait`].
    sleepers: AtomicU32,
    #[cfg(any(loom, feature = "shuttle"))]
    door: (Mutex<()>, imp::sync::Condvar),
}

/// The generation of the event before a waiter reads its condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket(u32);

impl Default for Event {
    fn default() -> Self {
        Event::new()
    }
}

impl Event {
    /// Returns an event that has not happened.
    #[must_use]
    pub fn new() -> Event {
        Event {
            generation: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            #[cfg(any(loom, feature = "shuttle"))]
            door: (Mutex::new(()), imp::sync::Condvar::new()),
        }
    }

    /// Returns a ticket. A waiter takes it before it reads the condition.
    pub fn ticket(&self) -> Ticket {
        Ticket(self.generation.load(Ordering::SeqCst))
    }

    /// Wakes every sleeper. Returns true if that took a system call.
    pub fn notify_all(&self) -> bool {
        self.generation.fetch_add(1, Ordering::SeqCst);
        order_for_loom();
        if self.sleepers.load(Ordering::SeqCst) == 0 {
            return false;
        }
        self.wake();
        true
    }

    /// Sleeps until the event happens after `ticket` was taken, or `timeout` has passed. May return
    /// early.
    pub fn wait(&self, ticket: Ticket, timeout: Option<Duration>) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        order_for_loom();
        self.sleep(ticket, timeout);
        let sleepers = self.sleepers.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(sleepers > 0, "each thread that sleeps is counted");
    }

    /// Returns the word that the kernel compares.
    #[cfg(not(any(loom, feature = "shuttle")))]
    fn word(&self) -> &std::sync::atomic::AtomicU32 {
        #[cfg(feature = "simulation")]
        return self.generation.real();
        #[cfg(not(feature = "simulation"))]
        &self.generation
    }

    #[cfg(not(any(loom, feature = "shuttle")))]
    fn wake(&self) {
        use rustix::thread::futex;
        #[cfg(feature = "simulation")]
        if super::simulation::is_simulated() {
            return super::simulation::wake_all(&self.generation);
        }
        // The only possible error is a bad address.
        let _ = futex::wake(self.word(), futex::Flags::PRIVATE, i32::MAX as u32);
    }

    #[cfg(not(any(loom, feature = "shuttle")))]
    fn sleep(&self, ticket: Ticket, timeout: Option<Duration>) {
        use rustix::thread::futex;
        #[cfg(feature = "simulation")]
        if super::simulation::is_simulated() {
            return super::simulation::wait_while(&self.generation, ticket.0, timeout);
        }
        let timeout = timeout.map(|t| futex::Timespec {
            tv_sec: t.as_secs().min(i64::MAX as u64) as i64,
            tv_nsec: t.subsec_nanos().into(),
        });
        // Every outcome (woken, generation moved on, timed out, interrupted) means: read the
        // condition again.
        let _ = futex::wait(self.word(), futex::Flags::PRIVATE, ticket.0, timeout.as_ref());
    }

    #[cfg(any(loom, feature = "shuttle"))]
    fn wake(&self) {
        let _door = self.door.0.lock();
        self.door.1.notify_all();
    }

    #[cfg(any(loom, feature = "shuttle"))]
    fn sleep(&self, ticket: Ticket, timeout: Option<Duration>) {
        // A controlled scheduler has no time: a timed sleep is a yield, and the caller reads the
        // condition again.
        if timeout.is_some() {
            super::thread::yield_now();
            return;
        }
        let mut door = self.door.0.lock();
        while self.generation.load(Ordering::SeqCst) == ticket.0 {
            door = self.door.1.wait(door).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

/// Loom takes sequentially consistent accesses for acquire and release only, and would find a lost
/// wake-up that the language rules out; it does model fences.
fn order_for_loom() {
    #[cfg(loom)]
    super::atomic::fence(Ordering::SeqCst);
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;

    #[test]
    fn no_wakeup_is_lost() {
        loom::model(|| {
            let shared = Arc::new((Event::new(), AtomicBool::new(false)));
            let other = shared.clone();
            let waiter = loom::thread::spawn(move || {
                loop {
                    let ticket = other.0.ticket();
                    if other.1.load(Ordering::SeqCst) {
                        return;
                    }
                    other.0.wait(ticket, None);
                }
            });
            shared.1.store(true, Ordering::SeqCst);
            shared.0.notify_all();
            waiter.join().expect("no panic");
        });
    }
}
