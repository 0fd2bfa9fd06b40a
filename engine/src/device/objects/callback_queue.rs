//! A queue over files that report the end of a write by a call.

use super::super::storage::{Completion, WriteQueue, WriteRequest};
use crate::base::Result;
use crate::sync::{Event, Mutex};
use std::sync::Arc;

/// See the module's text.
#[derive(Debug)]
pub(super) struct CallbackQueue {
    depth: usize,
    in_flight: usize,
    ended: Arc<(Mutex<Vec<Completion>>, Event)>,
    /// Ended, and not asked for yet.
    reaped: Vec<Completion>,
}

impl CallbackQueue {
    pub(super) fn new(depth: usize) -> CallbackQueue {
        let ended = Arc::new((Mutex::new(Vec::new()), Event::new()));
        CallbackQueue { depth: depth.max(1), in_flight: 0, ended, reaped: Vec::new() }
    }

    /// Takes what has ended; with `wait` at least one write, if any is in flight.
    fn take(&mut self, wait: bool) {
        loop {
            let ticket = self.ended.1.ticket();
            let ended = std::mem::take(&mut *self.ended.0.lock());
            self.in_flight -= ended.len();
            let any = !ended.is_empty();
            self.reaped.extend(ended);
            if any || !wait || self.in_flight == 0 {
                return;
            }
            self.ended.1.wait(ticket, None);
        }
    }
}

impl WriteQueue for CallbackQueue {
    fn submit(&mut self, request: WriteRequest) -> Result<()> {
        let WriteRequest { file, offset, buffer, len, token, durable } = request;
        if !durable {
            // It returns at once, and a flush makes many such writes durable together.
            let result = file.write_at(offset, &buffer[..len]);
            self.reaped.push(Completion { token, buffer, result });
            return Ok(());
        }
        while self.in_flight >= self.depth {
            self.take(true);
        }
        self.in_flight += 1;
        let ended = self.ended.clone();
        let slot = Arc::new(Mutex::new(Some(buffer)));
        let kept = slot.clone();
        let told = move |result| {
            let buffer = kept.lock().take();
            if let Some(buffer) = buffer {
                ended.0.lock().push(Completion { token, buffer, result });
                ended.1.notify_all();
            }
        };
        // The file copies the bytes before it returns.
        let bytes = slot.lock().as_ref().map(|buffer| bytes::Bytes::copy_from_slice(&buffer[..len]));
        file.write_then(offset, &bytes.unwrap_or_default(), Box::new(told));
        Ok(())
    }

    fn reap(&mut self, wait: bool, done: &mut Vec<Completion>) -> Result<()> {
        self.take(wait && self.reaped.is_empty());
        done.append(&mut self.reaped);
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.in_flight + self.reaped.len()
    }
}

impl Drop for CallbackQueue {
    fn drop(&mut self) {
        while self.in_flight > 0 {
            self.take(true);
        }
    }
}
