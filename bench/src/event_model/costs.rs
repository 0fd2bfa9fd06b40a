//! The costs of the steps of a commit, in nanoseconds.

use serde::{Deserialize, Serialize};

/// See the module. The defaults are for a virtual machine with 2 cores of an Intel Xeon (family 6,
/// model 207, 2.1 GHz); `quench bench model --calibrate` measures those of another one.
///
/// On 2026-11-26, beside other processes, a calibration with one worker measured there about 2.9 us
/// of execution and commit call, 5.1 us a write, 2.5 us a wake-up, 56 us of lateness of timers and
/// 1.3 us a switch. The defaults are somewhat lower, as without other processes. Look, transfer and
/// `beside_slowdown` are what asynchronous runs with one and two workers differ by: with a log for
/// each, 2.8 to 3.2 us a transaction and 3.8 to 4.2 us; with one log, 1.9 to 2.7 us and 4.2 to 5
/// us. Not measured but assumed: acknowledgment, pass, scan, draw, queue, fence, row lock, the
/// spread, a wake-up of several threads, 20 us until an idle core runs a woken thread, and that
/// another log on a core costs nothing.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Costs {
    /// Begin and operations of a transaction.
    pub execute_ns: f64,
    /// Share of the execution that varies, exponentially distributed.
    pub execute_spread: f64,
    /// The call that commits, without the log's latch.
    pub append_ns: f64,
    /// A record in the log's buffer, under the log's latch.
    pub latch_ns: f64,
    /// A latch or counter that comes from the cache of another core.
    pub transfer_ns: f64,
    /// A CSN from the counter that all logs share.
    pub draw_ns: f64,
    /// A push or pop under the latch of a latched queue.
    pub enqueue_ns: f64,
    /// Sealing and submitting a write, without its bytes.
    pub submit_ns: f64,
    /// The same for each KiB: checksum and copy.
    pub submit_kib_ns: f64,
    /// Taking a completed write.
    pub complete_ns: f64,
    /// Acknowledging a transaction.
    pub acknowledge_ns: f64,
    /// What it takes more where another thread than the worker does it: the transaction's entry
    /// comes from another cache.
    pub remote_ns: f64,
    /// The look of a worker at its log and its queue after each transaction, where workers write.
    pub look_ns: f64,
    /// A pass over the queues of acknowledgments.
    pub pass_ns: f64,
    /// Reading the durable position of one log.
    pub scan_ns: f64,
    /// Waking a thread for an idle core, as its waker pays it.
    pub wake_ns: f64,
    /// The same while all cores compute, for each thread of a call that wakes several.
    pub wake_busy_ns: f64,
    /// A thread that was woken until it runs on an idle core.
    pub wake_late_ns: f64,
    /// A thread that slept for a time until it runs, beyond that time.
    pub timer_late_ns: f64,
    /// Another thread on a core.
    pub switch_ns: f64,
    /// Another log on a core: its buffer, its queue and its counters come from other caches.
    pub cold_ns: f64,
    /// Factor of all computation while every other core computes, too; less in proportion to the
    /// share of them that does. Measured between one core and all cores of a small machine: caches
    /// and memory that cores share. On a larger machine that is an assumption.
    pub beside_slowdown: f64,
    /// Time after which a worker yields that has not slept.
    pub yield_every_ns: f64,
    /// Threads that wait for a device compute this last part of the wait; at most half of the cores
    /// do so at a time. Zero: threads sleep.
    pub spin_ns: f64,
    /// A store in memory that keeps it: copy, write-back and fence.
    pub fence_ns: f64,
    /// What slow memory adds to an insertion.
    pub insertion_ns: f64,
    /// Taking and releasing a row lock.
    pub lock_ns: f64,
}

impl Default for Costs {
    fn default() -> Costs {
        Costs {
            execute_ns: 1600.0,
            execute_spread: 0.3,
            append_ns: 450.0,
            latch_ns: 150.0,
            transfer_ns: 500.0,
            draw_ns: 10.0,
            enqueue_ns: 40.0,
            submit_ns: 2500.0,
            submit_kib_ns: 60.0,
            complete_ns: 1000.0,
            acknowledge_ns: 120.0,
            remote_ns: 120.0,
            look_ns: 600.0,
            pass_ns: 150.0,
            scan_ns: 3.0,
            wake_ns: 2000.0,
            wake_busy_ns: 1000.0,
            wake_late_ns: 20_000.0,
            timer_late_ns: 50_000.0,
            switch_ns: 1500.0,
            cold_ns: 0.0,
            beside_slowdown: 1.3,
            yield_every_ns: 50_000.0,
            spin_ns: 0.0,
            fence_ns: 150.0,
            insertion_ns: 0.0,
            lock_ns: 100.0,
        }
    }
}

impl Costs {
    /// Returns costs of zero, for comparisons with closed forms.
    #[must_use]
    pub fn none() -> Costs {
        Costs {
            execute_ns: 0.0,
            execute_spread: 0.0,
            append_ns: 0.0,
            latch_ns: 0.0,
            transfer_ns: 0.0,
            draw_ns: 0.0,
            enqueue_ns: 0.0,
            submit_ns: 0.0,
            submit_kib_ns: 0.0,
            complete_ns: 0.0,
            acknowledge_ns: 0.0,
            remote_ns: 0.0,
            look_ns: 0.0,
            pass_ns: 0.0,
            scan_ns: 0.0,
            wake_ns: 0.0,
            wake_busy_ns: 0.0,
            wake_late_ns: 0.0,
            timer_late_ns: 0.0,
            switch_ns: 0.0,
            cold_ns: 0.0,
            beside_slowdown: 1.0,
            yield_every_ns: 1e18,
            spin_ns: 0.0,
            fence_ns: 0.0,
            insertion_ns: 0.0,
            lock_ns: 0.0,
        }
    }
}
