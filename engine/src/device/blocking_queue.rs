//! A write queue without asynchronous I/O: each write runs while it is submitted.

use super::storage::{Completion, WriteQueue, WriteRequest};
use crate::base::Result;

/// A queue that writes at submission.
#[derive(Debug, Default)]
pub(super) struct BlockingQueue {
    done: Vec<Completion>,
}

impl BlockingQueue {
    pub(super) fn new() -> BlockingQueue {
        BlockingQueue::default()
    }
}

impl WriteQueue for BlockingQueue {
    fn submit(&mut self, request: WriteRequest) -> Result<()> {
        debug_assert!(request.is_sound(), "a write of whole sectors, from its buffer");
        let bytes = &request.buffer[..request.len];
        let result = if request.durable {
            request.file.write_durable_at(request.offset, bytes)
        } else {
            request.file.write_at(request.offset, bytes)
        };
        self.done.push(Completion { token: request.token, buffer: request.buffer, result });
        Ok(())
    }

    fn reap(&mut self, _wait: bool, done: &mut Vec<Completion>) -> Result<()> {
        done.append(&mut self.done);
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }
}
