//! What a writer does that found a memory bound met: it gives back what nobody needs, and waits for who is about to need it no more.

use super::system::TransactionSystem;
use crate::sync::atomic::Ordering;
use crate::sync::epoch::pin;
use crate::sync::thread;
use std::time::Duration;

/// Epochs to pass before everything that was retired is freed, and a few more for threads that are in one.
const RELIEF_ROUNDS: usize = 16;
/// And if that was not enough, how often is waited for these threads, and how long.
const RELIEF_WAITS: usize = 1000;
const RELIEF_WAIT: Duration = Duration::from_millis(1);
/// How long a writer waits for what a checkpoint holds.
const CHECKPOINT_WAIT: Duration = Duration::from_secs(60);

impl TransactionSystem {
    /// Gives back at once what would be given back soon: a memory bound was met. Returns how many checkpoints had ended before, for
    /// [`TransactionSystem::relieve_after_checkpoint`].
    pub(super) fn relieve(&self) -> u64 {
        let ended = self.views_ended.load(Ordering::SeqCst);
        self.collect_all();
        for _ in 0..RELIEF_ROUNDS {
            pin().flush();
            thread::yield_now();
        }
        if self.has_version_room() {
            return ended;
        }
        // Versions of what is not durable yet are kept, and asynchronous commits may be far ahead of the device.
        let newest = self.newest_drawn();
        if let Err(error) = self.wait_committed_up_to(newest) {
            tracing::debug!(%error, "versions stay: what they are of cannot become durable");
        }
        for _ in 0..RELIEF_WAITS {
            // What is acknowledged first, lest it be acknowledged after the last look.
            let up_to_date = self.horizon().bound >= newest;
            self.collect_all();
            pin().flush();
            if self.has_version_room() || (up_to_date && self.versions.given_back_later() == 0) {
                break;
            }
            // A thread that is in an epoch may not be running: others need its processor.
            thread::sleep(RELIEF_WAIT);
        }
        ended
    }

    fn has_version_room(&self) -> bool {
        let (bytes, most) = self.versions.bytes();
        bytes <= most - most / 8
    }

    /// The same if it did not help when `before` checkpoints had ended: what is missing may be held by one that is being made, so waits
    /// for its end. `None` if there is none, or it takes too long.
    pub(super) fn relieve_after_checkpoint(&self, before: u64) -> Option<u64> {
        let begun = self.clock.now();
        loop {
            let ticket = self.view_ended.ticket();
            let none = self.views_open.load(Ordering::SeqCst) == 0;
            if self.views_ended.load(Ordering::SeqCst) != before {
                break;
            }
            let waited = self.clock.now().since(begun);
            if none || waited >= CHECKPOINT_WAIT {
                return None;
            }
            self.view_ended.wait(ticket, Some(CHECKPOINT_WAIT - waited));
        }
        Some(self.relieve())
    }
}
