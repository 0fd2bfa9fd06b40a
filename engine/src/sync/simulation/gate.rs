//! Where a thread that has not got the baton sleeps.

use std::sync::atomic::{AtomicBool, Ordering};

/// Where a thread without the baton sleeps.
#[derive(Debug, Default)]
pub(super) struct Gate {
    open: AtomicBool,
    thread: std::sync::OnceLock<std::thread::Thread>,
}

impl Gate {
    /// It is opened before it is asked who waits, and who waits says so before looking: one of the two sees the other.
    pub(super) fn open(&self) {
        self.open.swap(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// By its thread, which has said who it is before anybody could open the gate or finds it open now.
    pub(super) fn pass(&self) {
        self.thread.get_or_init(std::thread::current);
        while !self.open.swap(false, Ordering::SeqCst) {
            std::thread::park();
        }
    }
}
