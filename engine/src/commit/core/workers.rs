//! A worker's tasks between two transactions, with every protocol: it acknowledges, if workers do
//! that, and yields the CPU now and then.
//!
//! With more threads than cores, a thread that is preempted while it holds the latch of a shared
//! log stalls all others for a scheduler's tick or more. A thread that has just yielded at the end
//! of a transaction has a fresh time slice for the next latch. Measured: without this, half of the
//! time at 16 threads on 2 cores is stall. A thread that waits for its commits sleeps often enough;
//! to yield as well would only let other processes keep it waiting.

use super::acknowledge::Acknowledgments;
use super::dice::dice;
use super::environment::Environment;
use super::protocol::Protocol;
use crate::base::LogId;
use crate::base::clock::Nanos;
use crate::base::settings::{Acknowledger, Axes, Writer};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::thread;
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A thread that waited so long for its commit has slept.
pub const SLEPT: Duration = Duration::from_micros(20);
/// Time that a thread computes before it yields, in ns. Measured with 64 threads on 2 cores: with
/// 200 us the flusher comes too late, and commits take twice as long; with less than 50 switching
/// costs more than it saves.
const YIELD_EVERY_NS: u64 = 50_000;

thread_local! {
    static YIELDED_AT: Cell<u64> = const { Cell::new(0) };
    static ATTACHED: RefCell<Attached> = const { RefCell::new(Attached(Vec::new())) };
}

/// The threads that have ended a transaction and still run, as far as they were counted.
#[derive(Default)]
pub struct Workers {
    count: Arc<AtomicUsize>,
}

/// The counts in which a thread is included; it leaves them when it ends.
struct Attached(Vec<Weak<AtomicUsize>>);

impl Drop for Attached {
    fn drop(&mut self) {
        self.0.iter().filter_map(Weak::upgrade).for_each(|count| {
            count.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

impl Workers {
    /// Counts the calling thread, once. Returns how many threads are counted.
    fn attach(&self) -> usize {
        ATTACHED.with_borrow_mut(|attached| {
            if !attached.0.iter().any(|count| count.as_ptr() == Arc::as_ptr(&self.count)) {
                attached.0.retain(|count| count.strong_count() > 0);
                attached.0.push(Arc::downgrade(&self.count));
                self.count.fetch_add(1, Ordering::Relaxed);
            }
        });
        self.count.load(Ordering::Relaxed)
    }

    /// Acknowledges for the group of `log`, if this is a transaction after which its worker does
    /// that.
    pub fn acknowledge(&self, acknowledgments: &Acknowledgments, axes: &Axes, log: LogId) {
        if axes.acknowledger.kind() != Acknowledger::Workers || axes.writer.kind() == Writer::Memory {
            return;
        }
        let odds = match axes.acknowledgment().odds {
            0 => self.attach().max(1).ilog2().max(1),
            set => set,
        };
        if (odds == 1 || dice().is_multiple_of(odds.into())) && acknowledgments.acknowledge_group(log) {
            acknowledgments.wake_futures();
        }
    }
}

/// Gives up the CPU now and then, unless the thread has slept since it asked to commit at `ready`:
/// then it waited until `committed`.
pub fn yield_now_and_then(
    environment: &Environment,
    protocol: &dyn Protocol,
    log: LogId,
    ready: Nanos,
    committed: Option<Nanos>,
) {
    // A wait shorter than that was none: the device answered at once.
    let slept = committed.is_some_and(|committed| committed.since(ready) >= SLEPT);
    let yielded_at = YIELDED_AT.get();
    if slept || ready.0.wrapping_sub(yielded_at) < YIELD_EVERY_NS {
        return;
    }
    protocol.yields(log);
    // The first call of a thread only starts its clock.
    if yielded_at != 0 {
        thread::yield_now();
    }
    // Not the time before: among many threads it would be past by then, and every transaction would
    // yield.
    YIELDED_AT.set(environment.clock.now().0);
}
