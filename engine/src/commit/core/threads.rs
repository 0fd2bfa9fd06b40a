//! The threads of the commit layer: the flushers, and one that looks for writes that hang.

use super::flusher::{self, FlusherThread};
use super::flushers::Flusher;
use super::medium::Medium;
use super::sharing::Sharing;
use super::side_by_side::SideBySide;
use super::writes::Writes;
use crate::base::{Error, Result};
use crate::sync::{Mutex, thread};
use std::sync::Arc;
use std::time::Duration;

/// Time between two looks of `close` for writes in workers' queues, which no thread reaps any more.
const REAP_EVERY: Duration = Duration::from_millis(1);

/// See the module's text.
pub struct Threads {
    writes: Arc<Writes>,
    running: Mutex<Vec<thread::JoinHandle<()>>>,
}

impl Threads {
    pub fn new(writes: Arc<Writes>) -> Threads {
        Threads { writes, running: Mutex::new(Vec::new()) }
    }

    /// Starts all threads.
    ///
    /// # Errors
    /// I/O if a thread cannot be started.
    pub fn start(&self, medium: &Arc<dyn Medium>, sharing: &Arc<Sharing>) -> Result<()> {
        for (number, flusher) in self.writes.flushers.iter().enumerate() {
            let (writes, medium, sharing) = (self.writes.clone(), medium.clone(), sharing.clone());
            let flusher_thread =
                FlusherThread { number, writes, medium, sharing, queue: SideBySide::default() };
            flusher.begins();
            let thread = thread::spawn("quench-flusher", move || flusher::run(flusher_thread));
            let thread = thread.map_err(|error| {
                flusher.ends();
                Error::io("cannot start a flusher thread", error)
            })?;
            self.running.lock().push(thread);
        }
        if self.writes.deadline.is_set() {
            let writes = self.writes.clone();
            let watch = move || writes.deadline.watch(&writes.durability, &writes.failure);
            let thread = thread::spawn("quench-deadline", watch)
                .map_err(|error| Error::io("cannot start the thread that looks at writes", error))?;
            self.running.lock().push(thread);
        }
        Ok(())
    }

    /// Ends all threads, except those inside a hanging write.
    pub fn end(&self) {
        let Writes { flushers, deadline, environment, .. } = &*self.writes;
        flushers.iter().for_each(Flusher::stop);
        let threads = std::mem::take(&mut *self.running.lock());
        let is_first = !threads.is_empty();
        // Once a write has hung no thread is waited for, by later callers either.
        let hangs = deadline.is_missed() || is_first && !self.await_end_of_writes();
        deadline.stop();
        if hangs {
            if is_first {
                // A thread may be inside that write, and dropping a queue waits for its writes.
                std::mem::forget(self.writes.clone());
            }
            environment.segments.close(false);
        } else {
            for thread in threads {
                let _ = thread.join();
            }
            environment.segments.close(true);
        }
    }

    /// Waits until the flushers have ended, and the writes in the queues of workers. Returns false
    /// if one hangs: then nothing is to be waited for.
    fn await_end_of_writes(&self) -> bool {
        let Writes { flushers, deadline, durability, .. } = &*self.writes;
        loop {
            let over = deadline.over().ticket();
            if deadline.is_missed() {
                return false;
            }
            let mut in_queues = false;
            for log in durability.logs.iter().filter(|log| log.in_flight() > 0) {
                if let Some(_leader) = self.writes.try_become_leader(log) {
                    self.writes.reap(log, false);
                }
                in_queues |= log.in_flight() > 0;
            }
            if !in_queues && flushers.iter().all(Flusher::has_ended) {
                return true;
            }
            deadline.over().wait(over, in_queues.then_some(REAP_EVERY));
        }
    }
}
