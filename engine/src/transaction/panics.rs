//! What becomes of a transaction when a thread panics in the middle of it?
//!
//! 1. A panic of the user's code, between two calls or in code that the engine calls: the transaction is dropped, so it is taken back.
//! 2. One inside a call is a bug of the engine, or of a device that the user brought: what the call was doing is half done, and nobody knows which
//!    half. The commit room is poisoned, so nothing more is acknowledged or written to a checkpoint, and who waits is told. The next open finds
//!    what was durable.
//! 3. One between the draw of the CSN and the end of the commit, too: the record may be durable, so whether it is committed is unknown.

use super::active::ActiveTransaction;
use super::descriptor::{Progress, Stamp};

impl ActiveTransaction {
    /// Calls `f`, and remembers if it panics: then nobody knows what is half done.
    #[inline]
    pub fn guarded<T>(&self, f: impl FnOnce(&ActiveTransaction) -> T) -> T {
        self.inside.set(true);
        let result = f(self);
        self.inside.set(false);
        result
    }

    /// [`ActiveTransaction::guarded`] for what changes something.
    #[inline]
    pub fn guarded_mut<T>(&mut self, f: impl FnOnce(&mut ActiveTransaction) -> T) -> T {
        self.inside.set(true);
        let result = f(self);
        self.inside.set(false);
        result
    }

    /// A panic between the draw of the CSN and the end: what is in the log may be replayed by the next open, so nothing is acknowledged from
    /// here on, before anybody sees what becomes of the rows.
    #[cold]
    pub(super) fn end_after_panic(&mut self, progress: Progress) {
        self.system.panicked("a thread that committed");
        if let Progress::Ready(csn) = progress {
            // Others may have seen it. Stamps are set once more where they have been.
            let stamp = Stamp::committed(csn);
            self.scratch
                .changes
                .iter()
                .for_each(|change| self.system.versions.set_stamp(change.version, stamp));
            self.scratch.values.iter().for_each(|value| self.system.versions.set_stamp(value.owner, stamp));
            self.end();
        } else {
            self.system.descriptors.set_active_again(self.id);
            self.abort_open();
        }
    }
}
