//! The gate at which a thread without the baton sleeps.

use std::sync::atomic::{AtomicBool, Ordering};

/// The gate of one thread.
#[derive(Debug, Default)]
pub(super) struct Gate {
    open: AtomicBool,
    thread: std::sync::OnceLock<std::thread::Thread>,
}

impl Gate {
    /// Opens the gate. The gate opens before the waiter is read, and the waiter registers before it
    /// checks the gate, so one of the two sees the other.
    pub(super) fn open(&self) {
        self.open.swap(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Waits until the gate is open, and closes it. Only the gate's thread calls this.
    pub(super) fn pass(&self) {
        self.thread.get_or_init(std::thread::current);
        while !self.open.swap(false, Ordering::SeqCst) {
            std::thread::park();
        }
    }
}
