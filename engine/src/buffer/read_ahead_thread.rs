//! The thread that reads ahead.

use super::pool::Pool;
use crate::base::{Error, Result};
use crate::sync::{Mutex, thread};
use std::sync::Arc;

/// The thread `quench-read-ahead`; ends when this is dropped.
#[derive(Debug)]
pub struct ReadAheadThread {
    pool: Arc<Pool>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

impl ReadAheadThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(pool: &Arc<Pool>) -> Result<ReadAheadThread> {
        ReadAheadThread::start_by(pool, |work| thread::spawn("quench-read-ahead", work))
    }

    fn start_by(
        pool: &Arc<Pool>,
        spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> std::io::Result<thread::JoinHandle<()>>,
    ) -> Result<ReadAheadThread> {
        let attached = Attached(pool.clone());
        // Before the thread starts, because it ends when it finds itself detached.
        pool.read_ahead.attach();
        let serve = move || attached.0.read_ahead.serve(&attached.0.memory, &attached.0.loader);
        let thread = spawn(Box::new(serve))
            .map_err(|error| Error::io("cannot start the thread that reads ahead", error))?;
        Ok(ReadAheadThread { pool: pool.clone(), thread: Mutex::new(Some(thread)) })
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.pool.read_ahead.stop();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

impl Drop for ReadAheadThread {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Detaches the thread when it ends, also by a panic, and when it is not started at all.
struct Attached(Arc<Pool>);

impl Drop for Attached {
    fn drop(&mut self) {
        self.0.read_ahead.detach();
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
