//! What if a write of the log never completes?
//!
//! A device that fails answers, with an error, and the room is poisoned. One that hangs does not: whoever waits would wait for ever, and
//! so would `close`. So a thread looks, [`LOOKS`] times in `write_deadline`, at the logs that have writes under way. If one has had writes under way
//! at so many looks in a row and none of them has ended meanwhile, the room is poisoned as after a failed write: waiters get
//! `OutcomeUnknown`, nothing is acknowledged any more, reopening finds out what is there.
//!
//! ```text
//!   looks       |     |     |     |     |
//!   write    ======================= ... a whole deadline at least, a look more at most
//!                                       ^ poisoned
//! ```
//!
//! 1. A process that was stopped for long (a debugger, a suspended machine) finds one look missed, not a deadline.
//! 2. While nothing is under way the thread sleeps without a timeout. It says so, then looks once more, then sleeps; whoever begins a write counts
//!    it first and then looks whether the thread sleeps. All four are sequentially consistent, so one of the two sees the other.
//! 3. A thread that is inside the hanging write stays there: nothing can call it back. What belongs to it stays with it, so the room is
//!    **abandoned**: its threads are not waited for, and its queues are not dropped, which would wait. The process may end.
//! 4. It looks on when the room is poisoned for another reason, say because the same device has answered another write with an error: `close`
//!    waits for the room's threads and queues, or for this one to say that a write hangs.
//! 5. What hangs may arrive later all the same. Its block is of this epoch, behind the end that the next recovery accepts.
//!
//! Left out: reads, and writes of pages. A checkpoint that hangs stops no commit before the log is full.

use super::Core;
use super::threads::PoisonOnPanic;
use crate::base::{Error, ErrorKind};
use crate::sync::Event;
use crate::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Looks in a deadline.
const LOOKS: u32 = 4;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Deadline {
    /// Zero: nobody looks.
    patience: Duration,
    event: Event,
    /// Stored by the thread before it sleeps without a timeout, and taken back by whoever wakes it.
    asleep: AtomicBool,
    stop: AtomicBool,
    /// A write has hung: do not wait for threads and queues.
    missed: AtomicBool,
    /// That is so now, or one of the room's threads has ended.
    over: Event,
}

/// What was seen of a log: how many of its writes had ended, and at how many looks in a row that was so with others under way.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    ended: u64,
    looks: u32,
}

impl Deadline {
    pub(super) fn new(patience: Duration) -> Deadline {
        let (asleep, stop, missed) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
        Deadline { patience, event: Event::new(), asleep, stop, missed, over: Event::new() }
    }

    /// True if somebody is to look. A scheduler that explores has no time.
    pub(super) fn is_set(&self) -> bool {
        !self.patience.is_zero() && !cfg!(any(loom, feature = "shuttle"))
    }

    /// A write begins, and has been counted.
    pub(super) fn write_begins(&self) {
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            self.event.notify_all();
        }
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.event.notify_all();
    }

    /// True if a write has hung.
    pub(super) fn is_missed(&self) -> bool {
        self.missed.load(Ordering::SeqCst)
    }

    /// Happens when a write has hung, or one of the room's threads has ended.
    pub(super) fn over(&self) -> &Event {
        &self.over
    }
}

impl Core {
    /// The thread.
    pub(super) fn watch_writes(&self) {
        let _alive = PoisonOnPanic::new(self, "the thread that looks for writes that hang");
        let mut seen = vec![Seen::default(); self.writers.len()];
        let deadline = &self.deadline;
        loop {
            let woken = deadline.event.ticket();
            if deadline.stop.load(Ordering::SeqCst) {
                return;
            }
            if !self.writes_are_under_way() {
                seen.fill(Seen::default());
                deadline.asleep.store(true, Ordering::SeqCst);
                if !self.writes_are_under_way() {
                    deadline.event.wait(woken, None);
                }
                deadline.asleep.store(false, Ordering::SeqCst);
                continue;
            }
            deadline.event.wait(woken, Some(deadline.patience / LOOKS));
            for (writer, seen) in self.writers.iter().zip(&mut seen) {
                let (begun, ended) = writer.writes();
                let hangs = begun > ended && ended == seen.ended;
                *seen = Seen { ended, looks: if hangs { seen.looks + 1 } else { 0 } };
                if seen.looks > LOOKS {
                    deadline.missed.store(true, Ordering::SeqCst);
                    let what = format!(
                        "a write of log {} has not completed for {} ms (`write_deadline`): the device does not answer",
                        writer.id,
                        deadline.patience.as_millis()
                    );
                    self.fail(Error::new(ErrorKind::Io, what));
                    deadline.over.notify_all();
                    return;
                }
            }
        }
    }

    fn writes_are_under_way(&self) -> bool {
        self.writers.iter().any(|writer| {
            let (begun, ended) = writer.writes();
            begun > ended
        })
    }
}
