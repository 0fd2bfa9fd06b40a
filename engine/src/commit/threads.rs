//! Which threads has the room of its own? The flushers, and one that looks for writes that hang.

use super::Commit;
use super::flusher::Flusher;
use crate::base::{Error, Result};
use crate::sync::thread;

impl Commit {
    /// # Errors
    /// I/O if a thread cannot be started.
    pub(super) fn start_threads(&self) -> Result<()> {
        for number in 0..self.core.flushers.len() {
            let core = self.core.clone();
            let thread = thread::spawn("quench-flusher", move || core.run_flusher(number))
                .map_err(|error| Error::io("cannot start a flusher thread", error))?;
            self.threads.lock().push(thread);
        }
        if self.core.deadline.is_set() {
            let core = self.core.clone();
            let thread = thread::spawn("quench-deadline", move || core.watch_writes())
                .map_err(|error| Error::io("cannot start the thread that looks at writes", error))?;
            self.threads.lock().push(thread);
        }
        Ok(())
    }

    /// Ends all threads, but for what a hanging write holds.
    pub(super) fn end_threads(&self) {
        self.core.flushers.iter().for_each(Flusher::stop);
        self.core.deadline.stop();
        let threads = std::mem::take(&mut *self.threads.lock());
        if self.core.deadline.is_missed() {
            // One of them may be inside that write, and a queue that is dropped waits for its writes.
            std::mem::forget(self.core.clone());
            self.core.segments.close(false);
        } else {
            for thread in threads {
                let _ = thread.join();
            }
            self.core.segments.close(true);
        }
    }
}

impl Drop for Commit {
    fn drop(&mut self) {
        // A caller who wants to know called `close`; what failed is in every waiter's hands already.
        let _ = self.close();
    }
}

impl std::fmt::Debug for Commit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Commit").field("axes", &self.core.axes).field("w", &self.watermark()).finish()
    }
}
