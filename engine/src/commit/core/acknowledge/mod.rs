//! Acknowledgment: which thread acknowledges which transaction, and when.
//!
//! ```text
//!   publish       W is scanned once                                                        per batch of writes
//!   acknowledge   entries are popped as far as records are durable and dependencies allow   see below
//!   wake          futures whose transaction is committed                                    per batch
//! ```
//!
//! Queued transactions are acknowledged by the thread that completed the write (`leader`), by the
//! first flusher, woken for it (`background`), or by workers between two transactions, each for the
//! logs of its group (`workers`). Threads and futures that wait look for themselves. A committer
//! that finds its queue full acknowledges, whatever the setting.
//!
//! **False waits.** A transaction is *held up* if its record is durable and the rule makes it wait.
//! It waits *falsely* if at that moment all its direct predecessors, and theirs, are committed by
//! the same rule: exact dependencies would commit it. A transaction with too many predecessors to
//! list, or whose predecessor itself waits falsely, is not counted. So the count is a lower bound.
//!
//! Once commits have stopped, nothing is popped: what was durable before stays acknowledged, the
//! rest is unknown.

pub mod queue;
pub mod out_of_order;

use super::durability::Durability;
use super::environment::Environment;
use super::failure::Failure;
use super::flushers::Flushers;
use super::levels;
use super::log_writer::LogWriter;
use super::metrics::Moments;
use super::pending::{Pending, Ticket};
use super::predecessors::Predecessors;
use super::waiters::Wakers;
use crate::base::clock::Nanos;
use crate::base::planted::{self, Bug};
use crate::base::settings::{Acknowledger, Axes, Dependency};
use crate::base::{Csn, LogId};
use crate::log::LogGuard;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use out_of_order::OutOfOrder;
use queue::{Entry, PendingQueue};
use std::sync::Arc;
use std::time::Duration;

/// Entries popped and counted at a time: bounds the memory of one acknowledgment.
pub const BATCH: usize = 256;
/// Time for which the first flusher leaves committed transactions to the workers, if workers
/// acknowledge.
pub const GRACE: Duration = Duration::from_millis(1);

/// The transactions of one log that wait to be acknowledged.
struct Waiting {
    queue: PendingQueue,
    out_of_order: OutOfOrder,
    /// This log's durable CSN when a worker last looked.
    durable_csn_seen: AtomicU64,
    /// The version of all logs when a worker last looked.
    version_seen: AtomicU64,
    /// The newest CSN that was acknowledged before it was durable, at a level that allows it.
    returned_early: AtomicU64,
}

/// The result of a pass over a queue.
struct Pass {
    any: bool,
    /// A transaction is left whose record is durable and that needs a higher W.
    blocked: bool,
}

/// See the module's text.
pub struct Acknowledgments {
    environment: Arc<Environment>,
    durability: Arc<Durability>,
    flushers: Arc<Flushers>,
    wakers: Arc<Wakers>,
    /// By log.
    waiting: Box<[Waiting]>,
    acknowledger: Acknowledger,
    /// Logs that workers acknowledge for each other.
    group: usize,
    passes_out_of_order: bool,
    /// When the first flusher has to acknowledge. Lowered by any thread, raised by the flusher.
    due: AtomicU64,
    /// The newest CSN acknowledged as committed.
    newest: AtomicU64,
    /// A commit returned before it was durable, at least once.
    any_returned_early: AtomicBool,
    /// The writing thread acknowledges the next write's commits, although workers acknowledge.
    forced: AtomicBool,
}

impl Acknowledgments {
    /// The acknowledgments of the logs that `failure` stops, with `entries` in the queue of each.
    pub fn new(failure: &Failure, axes: &Axes, entries: usize) -> Acknowledgments {
        let Failure { environment, durability, flushers, wakers } = failure;
        let waiting = || Waiting {
            queue: PendingQueue::new(axes.queue, entries),
            out_of_order: OutOfOrder::default(),
            durable_csn_seen: AtomicU64::new(0),
            version_seen: AtomicU64::new(0),
            returned_early: AtomicU64::new(0),
        };
        Acknowledgments {
            waiting: durability.logs.iter().map(|_| waiting()).collect(),
            newest: AtomicU64::new(durability.watermark.get().0.saturating_sub(1)),
            environment: environment.clone(),
            durability: durability.clone(),
            flushers: flushers.clone(),
            wakers: wakers.clone(),
            acknowledger: axes.acknowledger.kind(),
            group: axes.acknowledgment().group,
            passes_out_of_order: axes.rule() == Dependency::Exact,
            due: AtomicU64::new(levels::NEVER.0),
            any_returned_early: AtomicBool::new(false),
            forced: AtomicBool::new(false),
        }
    }

    fn of(&self, log: LogId) -> &Waiting {
        &self.waiting[log.0 as usize]
    }

    /// Returns whether `log`'s queue has room for an entry until the latch is released.
    pub fn has_room(&self, log: LogId, latch: &LogGuard<'_>) -> bool {
        self.of(log).queue.has_room(latch)
    }

    /// Returns whether a queued transaction of `log` waits.
    pub fn has_queued(&self, log: LogId) -> bool {
        let waiting = self.of(log);
        !waiting.queue.is_empty() || !waiting.out_of_order.is_empty()
    }

    /// Queues a transaction without a thread. The caller has asked for room.
    pub fn push(&self, log: LogId, csn: Csn, dsn: Csn, pending: &Pending, latch: &LogGuard<'_>) {
        debug_assert!(csn == Csn::ZERO || dsn < csn, "a transaction depends on earlier ones");
        let Pending { predecessors, begun, ready, .. } = *pending;
        self.of(log).queue.push(Entry { csn, dsn, begun, ready, predecessors }, latch);
    }

    /// The commit of `csn` returns before it is durable. Under the latch.
    pub fn returns_early(&self, log: LogId, csn: Csn, _latch: &LogGuard<'_>) {
        debug_assert!(csn.0 > self.of(log).returned_early.load(Ordering::Relaxed), "CSNs rise within a log");
        self.of(log).returned_early.store(csn.0, Ordering::SeqCst);
        if !self.any_returned_early.load(Ordering::Relaxed) {
            self.any_returned_early.store(true, Ordering::SeqCst);
        }
    }

    /// After completions: scans W, and has committed transactions acknowledged.
    pub fn publish(&self) {
        if self.environment.poison.is_raised() {
            return;
        }
        let w = self.durability.rescan();
        self.acknowledged_up_to(Csn(w.0 - 1));
        match self.acknowledger {
            Acknowledger::Leader => {
                self.acknowledge_all(true);
            }
            Acknowledger::Background => self.schedule(levels::NOW),
            Acknowledger::Workers if self.forced.swap(false, Ordering::SeqCst) => {
                self.acknowledge_all(true);
            }
            Acknowledger::Workers => self.schedule(levels::after(self.environment.clock.now(), GRACE)),
        }
        self.wake_futures();
    }

    /// Has the thread that completes the next write acknowledge, for workers that are idle.
    pub fn force(&self) {
        self.forced.store(true, Ordering::SeqCst);
    }

    /// Wakes futures whose transaction is committed.
    pub fn wake_futures(&self) {
        self.wakers.wake(|ticket| self.is_committed(ticket));
    }

    /// Has the first flusher acknowledge at `due` what is left by then.
    pub fn schedule(&self, due: Nanos) {
        if self.durability.logs.iter().any(|log| self.has_queued(log.id)) {
            self.due.fetch_min(due.0, Ordering::SeqCst);
            self.flushers[0].wake_for(due);
        }
    }

    /// Returns when the first flusher has to acknowledge.
    pub fn due(&self) -> Nanos {
        Nanos(self.due.load(Ordering::SeqCst))
    }

    /// Acknowledges what was left to the first flusher, and resets `due`.
    pub fn acknowledge_overdue(&self) {
        self.due.store(levels::NEVER.0, Ordering::SeqCst);
        // Not every thread that makes W rise has it computed.
        self.durability.rescan();
        if self.acknowledge_all(true) {
            // A committer may have waited for room.
            self.environment.progress.notify_all();
        }
        self.wake_futures();
    }

    /// Acknowledges committed transactions of all logs. Returns whether there were any. Without
    /// `wait`, queues are left out from which another thread pops.
    pub fn acknowledge_all(&self, wait: bool) -> bool {
        self.acknowledge_logs(&self.durability.logs, wait)
    }

    /// Acknowledges at the end of a transaction of `log`. Returns false if that is left to the
    /// first flusher.
    pub fn acknowledge_as_worker(&self, log: LogId) -> bool {
        match self.acknowledger {
            Acknowledger::Workers => self.acknowledge_group(log),
            Acknowledger::Leader => self.acknowledge_all(false),
            Acknowledger::Background => {
                self.schedule(levels::NOW);
                return false;
            }
        };
        true
    }

    /// Acknowledges committed transactions of the logs of `log`'s group. Returns whether there were
    /// any.
    pub fn acknowledge_group(&self, log: LogId) -> bool {
        let first = log.0 as usize / self.group * self.group;
        let last = self.durability.logs.len().min(first + self.group);
        debug_assert!(first < last, "the group of a log has that log");
        let group = &self.durability.logs[first..last];
        // A transaction that is committed now and was not at the last look became so because the
        // log is durable further, or the version has changed.
        let version = self.durability.version();
        let has_news = |log: &LogWriter| self.has_queued(log.id) && self.has_changed(log, version);
        group.iter().any(has_news) && self.acknowledge_logs(group, false)
    }

    fn has_changed(&self, log: &LogWriter, version: u64) -> bool {
        let (seen, durable_csn) = (self.of(log.id), log.log.durable_csn().0);
        let has_changed = seen.durable_csn_seen.load(Ordering::Relaxed) != durable_csn
            || seen.version_seen.load(Ordering::Relaxed) != version;
        if has_changed {
            seen.durable_csn_seen.store(durable_csn, Ordering::Relaxed);
            seen.version_seen.store(version, Ordering::Relaxed);
        }
        has_changed
    }

    fn acknowledge_logs(&self, logs: &[LogWriter], wait: bool) -> bool {
        let watermark = &self.durability.watermark;
        let mut any = false;
        loop {
            let w = watermark.get();
            let mut blocked = false;
            for log in logs.iter().filter(|log| self.has_queued(log.id)) {
                let pass = self.acknowledge(log, w, wait);
                any |= pass.any;
                blocked |= pass.blocked;
            }
            if blocked && self.durability.rule().waits_for_all_drawn() {
                self.durability.require_watermark(&self.durability.logs[0], watermark.newest_drawn());
            }
            if !blocked {
                return any;
            }
            if self.durability.rule().waits_for_time() {
                // No write and no thread reports that the time is over.
                self.schedule(levels::after(self.environment.clock.now(), GRACE));
            }
            match self.required() {
                // An asynchronous transaction waits for another log's CSN: the flushers know how to
                // get it.
                Some(required) => self.wake_flushers_behind(required),
                // W has risen meanwhile, and no other thread may have reason to look again.
                None if watermark.get() != w => continue,
                None => {}
            }
            return any;
        }
    }

    /// Pops committed transactions of `log`'s queue.
    fn acknowledge(&self, log: &LogWriter, w: Csn, wait: bool) -> Pass {
        let mut pass = Pass { any: false, blocked: false };
        self.acknowledge_out_of_order(log, w, wait, &mut pass);
        let mut moments = Vec::with_capacity(BATCH);
        loop {
            let durable = log.log.durable_csn();
            let durable = if planted::is(Bug::QueueTellsEarly) { durable.next() } else { durable };
            let (write, committed) = (log.last_ended_write(), self.environment.clock.now());
            let mut newest = Csn::ZERO;
            let popped = self.of(log.id).queue.pop_while(
                wait,
                |entry| {
                    let hardened = entry.csn <= durable;
                    if moments.len() == BATCH || !hardened || self.environment.poison.is_raised() {
                        return false;
                    }
                    if !self.are_satisfied(&entry, w) {
                        pass.blocked = true;
                        return self.set_out_of_order(log.id, entry);
                    }
                    debug_assert!(entry.csn < durable.next(), "only what is durable is acknowledged");
                    debug_assert!(
                        newest < entry.csn || entry.csn == Csn::ZERO,
                        "entries leave in the order of CSNs"
                    );
                    self.durability.mark_committed(entry.csn);
                    newest = newest.max(entry.csn);
                    let Entry { begun, ready, .. } = entry;
                    moments.push(Moments { begun, ready, write, committed, csn: entry.csn });
                    true
                },
                |entry| {
                    let hardened = entry.csn <= durable;
                    if hardened && !self.are_satisfied(&entry, w) {
                        self.count_held_up_entry(&entry);
                    }
                    // W never falls: an entry that is not held up now, but only behind others,
                    // never will be.
                    hardened
                },
            );
            self.acknowledged_up_to(newest);
            self.environment.metrics.count_committed(&moments);
            pass.any |= popped.is_some_and(|popped| popped.count > 0);
            if moments.len() < BATCH {
                return pass;
            }
            moments.clear();
        }
    }

    fn are_satisfied(&self, entry: &Entry, w: Csn) -> bool {
        self.durability.are_satisfied_for_queued(entry.csn, entry.dsn, &entry.predecessors, w)
            && !self.durability.rule().holds_queued(entry.csn, entry.ready, &self.environment)
    }

    /// Moves `entry`, which is held up, out of the way of those behind it, if that is worth it.
    /// Returns whether it did.
    fn set_out_of_order(&self, log: LogId, entry: Entry) -> bool {
        let passed = self.passes_out_of_order && self.of(log).out_of_order.put(entry);
        if passed {
            self.count_held_up_entry(&entry);
        }
        passed
    }

    /// Acknowledges out-of-order transactions that are committed now.
    fn acknowledge_out_of_order(&self, log: &LogWriter, w: Csn, wait: bool, pass: &mut Pass) {
        let (write, committed) = (log.last_ended_write(), self.environment.clock.now());
        let mut moments = Vec::new();
        self.of(log.id).out_of_order.take(wait, |entry| {
            if self.environment.poison.is_raised() || !self.are_satisfied(entry, w) {
                pass.blocked = true;
                return false;
            }
            self.acknowledged_up_to(entry.csn);
            let Entry { begun, ready, .. } = *entry;
            moments.push(Moments { begun, ready, write, committed, csn: entry.csn });
            true
        });
        self.environment.metrics.count_committed(&moments);
        pass.any |= !moments.is_empty();
    }

    /// Returns the highest CSN at or above W that a queued transaction waits for.
    pub fn required(&self) -> Option<Csn> {
        let w = self.durability.watermark.get();
        let waiting = self.durability.logs.iter().filter(|log| self.has_queued(log.id));
        waiting.map(|log| log.flush_request.required_watermark()).max().filter(|csn| *csn >= w)
    }

    /// Wakes the flushers of logs that hold W back at or below `csn`. The first flusher looks at
    /// acknowledgments again soon: a log that has announced itself below may be about to draw
    /// above, or to be fenced, and no thread reports that.
    pub fn wake_flushers_behind(&self, csn: Csn) {
        self.schedule(levels::after(self.environment.clock.now(), GRACE));
        if let [the_only] = &**self.flushers {
            return the_only.wake_for(levels::NOW);
        }
        let durability = &self.durability;
        for log in durability.logs.iter().filter(|log| durability.watermark.holds_back(log.id, csn)) {
            self.flushers.of(log).wake_for(levels::NOW);
        }
    }

    /// Counts a transaction whose record is durable and that the rule has held up, once, and
    /// whether it waits falsely.
    pub fn count_held_up(&self, csn: Csn, predecessors: &Predecessors, is_satisfied: impl FnOnce() -> bool) {
        if !self.durability.has_durable_fragments(csn) {
            return;
        }
        let metrics = &self.environment.metrics;
        metrics.rule_waits.add(1);
        // In this order: what the rule waited for may have come since it was asked.
        if self.durability.is_exactly_committed(csn, predecessors) && !is_satisfied() {
            metrics.false_waits.add(1);
        }
    }

    fn count_held_up_entry(&self, entry: &Entry) {
        let is_satisfied = || self.are_satisfied(entry, self.durability.watermark.get());
        self.count_held_up(entry.csn, &entry.predecessors, is_satisfied);
    }

    /// Counts the transaction of `ticket`, whose thread waits, and which the dependency rule holds
    /// up.
    pub fn count_rule_wait(&self, ticket: Ticket, pending: &Pending) {
        self.count_held_up(ticket.csn, &pending.predecessors, || self.durability.are_satisfied(ticket));
    }

    /// Counts a transaction that its own thread acknowledges. Returns the time.
    pub fn count_one(&self, log: &LogWriter, pending: &Pending, csn: Csn) -> Nanos {
        let Pending { begun, ready, .. } = *pending;
        let (write, committed) = (log.last_ended_write(), self.environment.clock.now());
        self.environment.metrics.count_committed(&[Moments { begun, ready, write, committed, csn }]);
        committed
    }

    /// Returns whether the transaction of `ticket` is committed. If so, it counts as acknowledged.
    pub fn is_committed(&self, ticket: Ticket) -> bool {
        let committed = self.durability.is_hardened(ticket) && self.durability.are_satisfied(ticket);
        if committed {
            // Before the caller knows, because a transaction that begins after that has to find it
            // acknowledged (rule 10).
            self.durability.mark_committed(ticket.csn);
            self.acknowledged_up_to(ticket.csn);
        }
        committed
    }

    /// Notes that a caller has learned, or may learn, that `csn` is committed.
    pub fn acknowledged_up_to(&self, csn: Csn) {
        debug_assert!(
            csn <= self.durability.watermark.newest_drawn(),
            "nobody has drawn what is acknowledged"
        );
        if csn.0 > self.newest.load(Ordering::Relaxed) {
            self.newest.fetch_max(csn.0, Ordering::SeqCst);
        }
    }

    /// Returns a CSN at or above every one whose commit was acknowledged, early returns included.
    pub fn newest_acknowledged(&self) -> Csn {
        let mut newest = Csn(self.newest.load(Ordering::SeqCst));
        if !planted::is(Bug::FlushNotAcknowledged) {
            // A thread that looked at W may have reported it, although its writer has not come to
            // acknowledging it.
            newest = newest.max(self.durability.watermark.newest_settled());
        }
        if self.any_returned_early.load(Ordering::SeqCst) {
            let early = |waiting: &Waiting| Csn(waiting.returned_early.load(Ordering::SeqCst));
            newest = self.waiting.iter().map(early).fold(newest, Csn::max);
        }
        newest
    }
}
