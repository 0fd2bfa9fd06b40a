//! What becomes of a transaction when a thread panics in the middle of it?
//!
//! 1. A panic of the user's code, between two calls or in code that the engine calls: the transaction is dropped, so it is taken back.
//! 2. One inside a call is a bug of the engine, or of a device that the user brought: what the call was doing is half done, and nobody knows which
//!    half. The commit room is poisoned, so nothing more is acknowledged or written to a checkpoint, and who waits is told. The transaction is
//!    not taken back, which would need to know what it did: it stays in progress for good, so that others see what was before it. So it does
//!    if somebody catches the panic and asks it to commit or abort. The next open finds what was durable.
//! 3. One between the draw of the CSN and the end of the commit, too: the record may be durable, so whether it is committed is unknown.

use super::active::ActiveTransaction;
use super::descriptor::{Progress, Stamp};
use super::system::TransactionSystem;
use crate::base::Result;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

impl ActiveTransaction {
    /// Calls `f`. If it panics nobody knows what is half done: the commit room is poisoned at once, for whoever catches the panic may keep the
    /// transaction, and that is remembered.
    #[inline]
    pub fn guarded<T>(&self, f: impl FnOnce(&ActiveTransaction) -> T) -> T {
        let before = self.inside.replace(true);
        let result = catch_unwind(AssertUnwindSafe(|| f(self)));
        self.ended(before, result)
    }

    /// [`ActiveTransaction::guarded`] for what changes something.
    #[inline]
    pub fn guarded_mut<T>(&mut self, f: impl FnOnce(&mut ActiveTransaction) -> T) -> T {
        let before = self.inside.replace(true);
        let result = catch_unwind(AssertUnwindSafe(|| f(self)));
        self.ended(before, result)
    }

    #[inline]
    fn ended<T>(&self, before: bool, result: std::thread::Result<T>) -> T {
        match result {
            Ok(result) => {
                self.inside.set(before);
                result
            }
            Err(panic) => {
                self.stay_in_progress();
                resume_unwind(panic)
            }
        }
    }

    /// A panic inside one of its calls.
    #[cold]
    pub(super) fn stay_in_progress(&self) {
        self.system.panicked("a thread");
    }

    /// A panic between the draw of the CSN and the end: what is in the log may be replayed by the next open, so nothing is acknowledged from
    /// here on, before anybody sees what becomes of the rows.
    #[cold]
    pub(super) fn end_after_panic(&mut self, progress: Progress) {
        self.system.panicked("a thread that committed");
        if let Progress::Ready(csn) = progress {
            // Others may have seen it. What is stamped already may have been given back, and be somebody else's.
            let (own, stamp, versions) = (self.own, Stamp::committed(csn), &self.system.versions);
            self.scratch.changes.iter().for_each(|change| versions.change_stamp(change.version, own, stamp));
            self.scratch.values.iter().for_each(|value| versions.change_stamp(value.owner, own, stamp));
            self.end();
        } else {
            self.system.descriptors.set_active_again(self.id);
        }
    }
}

impl TransactionSystem {
    /// `who` panicked inside the engine: nothing is acknowledged again. Before there is a commit room nothing is in any case.
    pub fn panicked(&self, who: &str) {
        if let Some(commit) = self.commit.get() {
            commit.panicked(who);
        }
    }

    /// Refuses what could wait for a transaction that stays in progress for good.
    ///
    /// # Errors
    /// `Poisoned`.
    pub(super) fn check_whole(&self) -> Result<()> {
        self.commit.get().map_or(Ok(()), |commit| commit.check_whole())
    }
}
