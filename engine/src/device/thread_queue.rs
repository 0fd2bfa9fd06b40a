//! A write queue with a thread for each write in flight.
//!
//! io_uring needs no threads. But where a durable write ends with a flush of the device, the kernel
//! issues that flush on a thread of its own, whose slices are milliseconds long. Beside busy
//! workers it waits for the end of theirs, and with it all commits of the log. These threads ask
//! for short slices, so they run as soon as the device answers.
//!
//! ```text
//!   user     submit: request into the mailbox of an idle thread, wake .......... reap: take `ended`
//!   thread                 sleep | take, write ==== durable | into `ended`, wake | sleep
//! ```
//!
//! No wake-up is lost: both sides take their ticket of the [`Event`] before they look.

use super::storage::{Completion, WriteQueue, WriteRequest};
use crate::base::{Error, ErrorKind, Result};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread::{self, JoinHandle, ask_for_short_slices};
use crate::sync::{Event, Mutex, Process};
use std::sync::Arc;

/// What one thread shares with the queue.
#[derive(Debug, Default)]
struct Mailbox {
    request: Mutex<Option<WriteRequest>>,
    is_over: AtomicBool,
    /// A request has arrived, or it is over.
    arrived: Event,
}

/// What all threads share with the queue.
#[derive(Debug, Default)]
struct Ended {
    completions: Mutex<Vec<(usize, Completion)>>,
    event: Event,
}

#[derive(Debug)]
struct Writer {
    mailbox: Arc<Mailbox>,
    is_busy: bool,
    thread: Option<JoinHandle<()>>,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct ThreadQueue {
    depth: usize,
    writers: Vec<Writer>,
    ended: Arc<Ended>,
    in_flight: usize,
    process: Process,
    /// Ended, and not asked for yet.
    reaped: Vec<Completion>,
}

impl ThreadQueue {
    /// Returns a queue of at most `depth` writes in flight. It starts a thread when all others are
    /// busy.
    pub(super) fn new(depth: usize) -> ThreadQueue {
        ThreadQueue {
            depth: depth.max(1),
            writers: Vec::new(),
            ended: Arc::default(),
            process: Process::current(),
            in_flight: 0,
            reaped: Vec::new(),
        }
    }

    /// Returns a writer that is idle; waits for one if all writes that are allowed are in flight.
    /// `None` if the system has no thread left.
    fn idle_writer(&mut self) -> Option<&mut Writer> {
        while self.in_flight == self.depth {
            self.take(true);
        }
        if let Some(idle) = self.writers.iter().position(|writer| !writer.is_busy) {
            return self.writers.get_mut(idle);
        }
        let (number, mailbox, ended) = (self.writers.len(), Arc::new(Mailbox::default()), self.ended.clone());
        let own = mailbox.clone();
        let thread = thread::spawn("quench-writer", move || run(number, &own, &ended)).ok()?;
        self.writers.push(Writer { mailbox, is_busy: false, thread: Some(thread) });
        self.writers.last_mut()
    }

    /// Takes what has ended; with `wait` at least one write, if any is in flight.
    fn take(&mut self, wait: bool) {
        loop {
            let ticket = self.ended.event.ticket();
            let ended = std::mem::take(&mut *self.ended.completions.lock());
            let any = !ended.is_empty();
            self.in_flight -= ended.len();
            for (writer, completion) in ended {
                debug_assert!(self.writers[writer].is_busy, "a write ends once");
                self.writers[writer].is_busy = false;
                self.reaped.push(completion);
            }
            if any || !wait || self.in_flight == 0 {
                return;
            }
            self.ended.event.wait(ticket, None);
        }
    }
}

/// Runs writer `number`.
fn run(number: usize, mailbox: &Mailbox, ended: &Ended) {
    ask_for_short_slices();
    loop {
        let ticket = mailbox.arrived.ticket();
        // Read first: a queue that is dropped submits nothing more.
        let is_over = mailbox.is_over.load(Ordering::Acquire);
        let request = mailbox.request.lock().take();
        match request {
            Some(request) => {
                let completion = write(request);
                ended.completions.lock().push((number, completion));
                ended.event.notify_all();
            }
            None if is_over => return,
            None => mailbox.arrived.wait(ticket, None),
        }
    }
}

/// A panic ends as an error, for which the user of the queue waits.
fn write(request: WriteRequest) -> Completion {
    let WriteRequest { file, offset, buffer, len, durable, token } = request;
    let write = || match durable {
        true => file.write_durable_at(offset, &buffer[..len]),
        false => file.write_at(offset, &buffer[..len]),
    };
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(write)).unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Io, "a thread that wrote the log panicked").at(file.location(offset)))
    });
    Completion { token, buffer, result }
}

impl WriteQueue for ThreadQueue {
    fn submit(&mut self, request: WriteRequest) -> Result<()> {
        self.process.check()?;
        let Some(writer) = self.idle_writer() else {
            self.reaped.push(write(request));
            return Ok(());
        };
        writer.is_busy = true;
        let before = writer.mailbox.request.lock().replace(request);
        debug_assert!(before.is_none(), "an idle writer has no request");
        writer.mailbox.arrived.notify_all();
        self.in_flight += 1;
        debug_assert!(
            self.in_flight == self.writers.iter().filter(|writer| writer.is_busy).count(),
            "each busy writer has a write in flight"
        );
        Ok(())
    }

    fn reap(&mut self, wait: bool, done: &mut Vec<Completion>) -> Result<()> {
        self.process.check()?;
        self.take(wait && self.reaped.is_empty());
        done.append(&mut self.reaped);
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.in_flight + self.reaped.len()
    }
}

impl Drop for ThreadQueue {
    /// Waits for the writes in flight.
    fn drop(&mut self) {
        // A forked child has none of these threads.
        if self.process.is_forked() {
            return;
        }
        for writer in &self.writers {
            writer.mailbox.is_over.store(true, Ordering::Release);
            writer.mailbox.arrived.notify_all();
        }
        for writer in &mut self.writers {
            let _ = writer.thread.take().map(JoinHandle::join);
        }
    }
}

#[cfg(all(test, not(any(miri, loom, feature = "shuttle"))))]
mod tests;
