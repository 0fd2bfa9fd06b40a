//! What is done when a memory bound is near or met. Where the last quarter of the memory for versions is in use, who begins a transaction waits a
//! little, so that what is given back keeps up with what is written. A writer that meets the bound gives back what nobody needs, and waits
//! for who is about to need it no more. Who evicts pages first sees whether the memory is charged to versions that are gone.

use super::garbage::Pruning;
use super::system::TransactionSystem;
use crate::base::Csn;
use crate::base::clock::Nanos;
use crate::buffer::free_memory_to_system;
use crate::sync::atomic::Ordering;
use crate::sync::epoch::pin;
use crate::sync::thread;
use std::time::Duration;

/// Epochs to pass before everything that was retired is freed, and a few more for threads that are in one.
const RELIEF_ROUNDS: usize = 16;
/// And if that was not enough, how often is waited for these threads, and how long.
const RELIEF_WAITS: usize = 1000;
const RELIEF_WAIT: Duration = Duration::from_millis(1);
/// How often for transactions of other threads to end, whose snapshots keep versions.
const WAITS_FOR_OTHERS: usize = 100;
/// How long a writer waits for what a checkpoint holds that does not go on.
const CHECKPOINT_WAIT: Duration = Duration::from_secs(60);

/// Frees what no thread can be looking at any more, and lets threads go on that are in an epoch. Each flush frees some hundred pieces.
fn free_retired() {
    for _ in 0..RELIEF_ROUNDS {
        pin().flush();
        thread::yield_now();
    }
}

/// Charges fall when this much is charged and free, and at least half of what is charged, but not again before this time is over: the
/// allocator searches everything that the program has allocated.
const SURPLUS_BYTES: u64 = 128 << 10;
const LOWER_EVERY: Duration = Duration::from_secs(1);

/// Steps that who begins a transaction waits at most, where the memory for versions is all but full, and how long one takes.
const SLOW_STEPS: u64 = 16;
const SLOW_STEP: Duration = Duration::from_millis(1);

impl TransactionSystem {
    /// Before a transaction begins, so that it has no snapshot yet that would keep what it waits for.
    #[inline]
    pub(super) fn slow_down(&self) {
        let used = self.versions.part_of_last_quarter();
        if used > 0 {
            self.await_purge(used);
        }
    }

    /// Waits until the last quarter of the memory for versions is free: the longer the more of it is used.
    #[cold]
    fn await_purge(&self, used: u64) {
        let steps = 1 + used * (SLOW_STEPS - 1) / 256;
        let oldest = self.descriptors.oldest_pin(self.horizon().bound);
        for step in 0..steps {
            self.collect_some(Nanos(self.clock.now().0 + SLOW_STEP.as_nanos() as u64));
            free_retired();
            if self.versions.part_of_last_quarter() == 0 || !self.may_advance() {
                return;
            }
            if step == 0 {
                self.counters().version_waits.add(1);
            }
            thread::sleep(SLOW_STEP);
        }
        self.waited_in_vain(oldest);
    }

    /// Whether more may soon be given back: what keeps versions is what is not durable yet, or a snapshot of another thread that nobody
    /// has waited for in vain.
    fn may_advance(&self) -> bool {
        let bound = self.horizon().bound;
        let oldest = self.descriptors.oldest_pin(bound);
        oldest == bound
            || !self.descriptors.is_own_pin(oldest) && self.outwaited.load(Ordering::Relaxed) != oldest.0
    }

    /// Somebody waited when `oldest` was the oldest snapshot.
    fn waited_in_vain(&self, oldest: Csn) {
        if self.descriptors.oldest_pin(self.horizon().bound) == oldest {
            self.outwaited.store(oldest.0, Ordering::Relaxed);
        }
    }

    /// Gives back at once what would be given back soon: a memory bound was met. Returns how many checkpoints had ended before, for
    /// [`TransactionSystem::relieve_after_checkpoint`].
    pub(super) fn relieve(&self) -> u64 {
        let ended = self.views_ended.load(Ordering::SeqCst);
        self.collect_all_pruning(Pruning::Now);
        free_retired();
        if self.has_version_room() {
            return ended;
        }
        // Versions of what is not durable yet are kept, and asynchronous commits may be far ahead of the device.
        let newest = self.newest_drawn();
        if let Err(error) = self.wait_committed_up_to(newest) {
            tracing::debug!(%error, "versions stay: what they are of cannot become durable");
        }
        let oldest = self.descriptors.oldest_pin(newest);
        for wait in 0..RELIEF_WAITS {
            // What is acknowledged first, lest it be acknowledged after the last look.
            let up_to_date = self.horizon().bound >= newest;
            self.collect_all_pruning(Pruning::Now);
            free_retired();
            let all_done = up_to_date && self.versions.given_back_later() == 0;
            if self.has_version_room() || all_done && (wait >= WAITS_FOR_OTHERS || !self.may_advance()) {
                break;
            }
            // A thread that is in an epoch may not be running: others need its processor.
            thread::sleep(RELIEF_WAIT);
        }
        if !self.has_version_room() {
            self.waited_in_vain(oldest);
        }
        ended
    }

    fn has_version_room(&self) -> bool {
        let (bytes, most) = self.versions.bytes();
        bytes <= most - most / 8
    }

    /// The same if it did not help when `before` checkpoints had ended: what is missing may be held by one that is being made, so waits
    /// for its end. `None` if there is none, or it makes no progress.
    pub(super) fn relieve_after_checkpoint(&self, before: u64) -> Option<u64> {
        let (mut progress, mut since) = (0, self.clock.now());
        loop {
            let ticket = self.view_ended.ticket();
            let none = self.views_open.load(Ordering::SeqCst) == 0;
            if self.views_ended.load(Ordering::SeqCst) != before {
                break;
            }
            let now = self.views_progress.load(Ordering::Relaxed);
            if now != progress {
                (progress, since) = (now, self.clock.now());
            }
            let waited = self.clock.now().since(since);
            if none || waited >= CHECKPOINT_WAIT {
                return None;
            }
            self.view_ended.wait(ticket, Some(CHECKPOINT_WAIT - waited));
        }
        Some(self.relieve())
    }

    /// Lowers the charges for versions and for pages of large values in progress to what there is, if they are much higher: after
    /// a long snapshot, say. Pages get what becomes free.
    pub fn lower_charges(&self) {
        let (versions, charged) = self.versions.surplus();
        let (pages, charged_pages) = self.unfinished.surplus();
        let least = ((charged + charged_pages) / 2).max(SURPLUS_BYTES);
        let (now, last) = (self.clock.now(), Nanos(self.charges_lowered.load(Ordering::Relaxed)));
        if versions + pages < least || now.since(last) < LOWER_EVERY && last != Nanos(0) {
            return;
        }
        self.charges_lowered.store(now.0, Ordering::Relaxed);
        self.garbage.shrink();
        self.versions.begin_charge_anew();
        self.unfinished.begin_charge_anew();
        if free_memory_to_system() {
            self.versions.settle_charge();
            self.unfinished.settle_charge();
            self.pool.eviction().budget_grew();
        }
    }
}
