//! The simulated disk's write queue: writes are in flight until they are reaped, and complete in
//! any order.

use super::change::Change;
use super::faults::OperationKind;
use super::storage::SimulatedStorage;
use crate::base::{Error, Location, Result};
use crate::device::storage::{Completion, WriteQueue, WriteRequest};
use std::sync::Arc;

pub(super) struct SimulatedQueue {
    storage: SimulatedStorage,
    depth: usize,
    waiting: Vec<WriteRequest>,
}

impl SimulatedQueue {
    pub(super) fn new(storage: SimulatedStorage, depth: usize) -> SimulatedQueue {
        SimulatedQueue { storage, depth: depth.max(1), waiting: Vec::new() }
    }

    fn path_of(request: &WriteRequest) -> Result<Arc<str>> {
        match request.file.location(request.offset) {
            Location::File { path, .. } => Ok(path.into()),
            _ => Err(Error::invalid("the simulated queue was given a file of another storage")),
        }
    }

    fn complete_one(&mut self) -> Option<Completion> {
        if self.waiting.is_empty() {
            return None;
        }
        let chosen = {
            let mut disk = self.storage.shared.disk.lock();
            let chosen = disk.random.below(self.waiting.len() as u64) as usize;
            if chosen > 0 {
                disk.faults.counts.count("out-of-order completion");
            }
            chosen
        };
        let request = self.waiting.swap_remove(chosen);
        let bytes = &request.buffer[..request.len];
        let result = if request.durable {
            request.file.write_durable_at(request.offset, bytes)
        } else {
            request.file.write_at(request.offset, bytes)
        };
        Some(Completion { token: request.token, buffer: request.buffer, result })
    }
}

impl WriteQueue for SimulatedQueue {
    fn submit(&mut self, request: WriteRequest) -> Result<()> {
        if self.waiting.len() >= self.depth {
            return Err(Error::invalid("the simulated queue is full: reap first"));
        }
        let path = Self::path_of(&request)?;
        let bytes = request.buffer[..request.len].into();
        let start = Change::InFlight { path: path.clone(), offset: request.offset, bytes };
        self.storage.change(OperationKind::Open, &path, request.offset, start)?;
        self.waiting.push(request);
        Ok(())
    }

    fn reap(&mut self, wait: bool, done: &mut Vec<Completion>) -> Result<()> {
        let count = if wait { 1 } else { 0 };
        let more = self.storage.shared.disk.lock().random.below(self.waiting.len() as u64 + 1) as usize;
        for _ in 0..count.max(more) {
            done.extend(self.complete_one());
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.waiting.len()
    }
}

impl Drop for SimulatedQueue {
    fn drop(&mut self) {
        while self.complete_one().is_some() {}
    }
}
