//! What if a write of the log never completes?
//!
//! A device that fails answers with an error, and commits stop. A device that hangs does not
//! answer: waiters would wait for ever, and so would `close`. So a thread looks, [`LOOKS`] times in
//! `write_deadline`, at the logs with writes in flight. If a log had writes in flight at so many
//! looks in a row and none of them has completed meanwhile, commits stop as after a failed write:
//! waiters get `OutcomeUnknown`, and reopening finds out what is durable.
//!
//! ```text
//!   looks       |     |     |     |     |
//!   write    ======================= ... a whole deadline at least, a look more at most
//!                                       ^ poisoned
//! ```
//!
//! 1. A process that was stopped for long (a debugger, a suspended machine) finds one look missed,
//!    not a deadline.
//! 2. While no write is in flight the thread sleeps without a timeout. It says so, then looks once
//!    more, then sleeps; a writer counts its write first and then looks whether the thread sleeps.
//!    All four are sequentially consistent, so one of the two sees the other.
//! 3. A thread inside a hanging write stays there, with what belongs to it. So the commit layer is
//!    **abandoned**: its threads are not waited for, and its queues are not dropped, which would
//!    wait. The process may end.
//! 4. The thread continues when commits have stopped for another reason, say because the same
//!    device has failed another write: `close` waits for the other threads and queues, or for this
//!    one to say that a write hangs.
//! 5. A hanging write may arrive later all the same. Its block is of this epoch, behind the end
//!    that the next recovery accepts.
//!
//! Left out: reads, and writes of pages. A checkpoint that hangs stops no commit before the log is
//! full.

use super::durability::Durability;
use super::failure::Failure;
use super::log_writer::LogWriter;
use crate::base::{Error, ErrorKind};
use crate::sync::Event;
use crate::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Looks in a deadline.
const LOOKS: u32 = 4;

/// See the module's text.
#[derive(Debug)]
pub struct WriteDeadline {
    /// Zero: no thread looks.
    patience: Duration,
    event: Event,
    /// Stored by the thread before it sleeps without a timeout, and reset by the thread that wakes
    /// it.
    asleep: AtomicBool,
    stop: AtomicBool,
    /// A write has hung: do not wait for threads and queues.
    missed: AtomicBool,
    /// Notified when a write has hung, or when a thread of the commit layer has ended.
    over: Event,
}

/// The last observation of a log: the number of completed writes, and the number of looks in a row
/// at which that number stood still with writes in flight.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    ended: u64,
    looks: u32,
}

impl WriteDeadline {
    pub fn new(patience: Duration) -> WriteDeadline {
        let (asleep, stop, missed) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
        WriteDeadline { patience, event: Event::new(), asleep, stop, missed, over: Event::new() }
    }

    /// Returns whether a thread is to look. A scheduler that explores has no time.
    pub fn is_set(&self) -> bool {
        !self.patience.is_zero() && !cfg!(any(loom, feature = "shuttle"))
    }

    /// A write begins, and has been counted.
    pub fn write_begins(&self) {
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            self.event.notify_all();
        }
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.event.notify_all();
    }

    /// Returns true if a write has hung.
    pub fn is_missed(&self) -> bool {
        self.missed.load(Ordering::SeqCst)
    }

    /// Returns the event of a hanging write or of an ended thread.
    pub fn over(&self) -> &Event {
        &self.over
    }

    /// Runs the thread that looks.
    pub fn watch(&self, durability: &Durability, failure: &Failure) {
        let _guard = failure.guard("the thread that looks for writes that hang");
        let logs = &durability.logs;
        let mut seen = vec![Seen::default(); logs.len()];
        loop {
            let woken = self.event.ticket();
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            if !any_in_flight(logs) {
                seen.fill(Seen::default());
                self.asleep.store(true, Ordering::SeqCst);
                if !any_in_flight(logs) {
                    self.event.wait(woken, None);
                }
                self.asleep.store(false, Ordering::SeqCst);
                continue;
            }
            self.event.wait(woken, Some(self.patience / LOOKS));
            for (log, seen) in logs.iter().zip(&mut seen) {
                let (begun, ended) = log.writes();
                let hangs = begun > ended && ended == seen.ended;
                *seen = Seen { ended, looks: if hangs { seen.looks + 1 } else { 0 } };
                if seen.looks > LOOKS {
                    self.missed.store(true, Ordering::SeqCst);
                    let what = format!(
                        "a write of log {} has not completed for {} ms (`write_deadline`): the device does not answer",
                        log.id,
                        self.patience.as_millis()
                    );
                    failure.fail(Error::new(ErrorKind::Io, what));
                    self.over.notify_all();
                    return;
                }
            }
        }
    }
}

fn any_in_flight(logs: &[LogWriter]) -> bool {
    logs.iter().any(|log| {
        let (begun, ended) = log.writes();
        begun > ended
    })
}
