//! Calls that are due some time later: for requests to a bucket that does not answer.

use crate::base::clock::{Clock, Nanos};
use crate::sync::{Event, Mutex, thread};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Something that may have ended when its time has come.
pub trait Late: Send + Sync {
    /// Its time has come.
    fn is_late(self: Arc<Self>);
}

#[derive(Default)]
struct Queue {
    /// By the time at which each is due, and by a number.
    waiting: BTreeMap<(Nanos, u64), Weak<dyn Late>>,
    next: u64,
    has_thread: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Event,
    clock: Clock,
}

/// Calls that are due later. The thread that makes them lives as long as some are due.
pub struct Delays(Arc<Shared>);

impl std::fmt::Debug for Delays {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("calls that are due later")
    }
}

impl Drop for Delays {
    fn drop(&mut self) {
        self.0.queue.lock().waiting.clear();
        self.0.changed.notify_all();
    }
}

impl Delays {
    pub fn new() -> Delays {
        Delays(Arc::new(Shared { queue: Mutex::default(), changed: Event::new(), clock: Clock::real() }))
    }

    /// Calls `late` after `delay` if it is still held then. Without a thread nothing is
    /// called.
    pub fn add(&self, late: Weak<dyn Late>, delay: Duration) {
        let starts = {
            let mut queue = self.0.queue.lock();
            let at = Nanos(self.0.clock.now().0 + delay.as_nanos() as u64);
            let number = queue.next;
            queue.next += 1;
            queue.waiting.insert((at, number), late);
            !std::mem::replace(&mut queue.has_thread, true)
        };
        if !starts {
            self.0.changed.notify_all();
            return;
        }
        let shared = self.0.clone();
        let run = move || {
            while let Some(late) = shared.next_late() {
                late.upgrade().into_iter().for_each(|late| late.is_late());
            }
        };
        if thread::spawn("quench-delays", run).is_err() {
            self.0.queue.lock().has_thread = false;
        }
    }
}

impl Shared {
    /// Waits for a call that is due; `None` if none is left.
    fn next_late(&self) -> Option<Weak<dyn Late>> {
        loop {
            let (ticket, now) = (self.changed.ticket(), self.clock.now());
            let until = {
                let mut queue = self.queue.lock();
                match queue.waiting.first_key_value().map(|((at, _), _)| *at) {
                    Some(at) if at <= now => return queue.waiting.pop_first().map(|(_, late)| late),
                    Some(at) => at,
                    None => {
                        // Under the same lock, so that the next call that is added starts another.
                        queue.has_thread = false;
                        return None;
                    }
                }
            };
            self.changed.wait(ticket, Some(until.since(now)));
        }
    }
}
