//! The simulated disk's write queue: writes are in flight until they are reaped, and complete in any order.

use super::device::Reach;
use super::journal::{Change, log_of};
use super::{OperationKind, SimulatedStorage};
use crate::base::{Error, Location, Result};
use crate::device::{Completion, WriteQueue, WriteRequest};
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) struct SimulatedQueue {
    storage: SimulatedStorage,
    depth: usize,
    waiting: Vec<WriteRequest>,
}

impl SimulatedStorage {
    /// After how many operations blocks of several logs were written, or on their way, and not durable: where a power cut can take one and
    /// leave the other.
    #[must_use]
    pub fn moments_of_several_logs(&self) -> Vec<usize> {
        let world = self.shared.world.lock();
        let mut in_flight: Vec<(&Arc<str>, u64, u32)> = Vec::new();
        let mut pending: Vec<(&Arc<str>, u32)> = Vec::new();
        let mut moments = Vec::new();
        for (number, change) in world.journal.iter().enumerate() {
            match change {
                Change::InFlight { path, offset, bytes } => {
                    in_flight.extend(log_of(bytes).map(|log| (path, *offset, log)));
                }
                Change::Write { path, offset, bytes, reach } => {
                    in_flight.retain(|(file, at, _)| *file != path || at != offset);
                    match reach {
                        Reach::Flushed => pending.retain(|(file, _)| *file != path),
                        Reach::Cache => pending.extend(log_of(bytes).map(|log| (path, log))),
                        Reach::Device | Reach::Through => {}
                    }
                }
                Change::Flush { paths } => pending.retain(|(file, _)| !paths.contains(file)),
                _ => {}
            }
            let logs = in_flight.iter().map(|(.., log)| log).chain(pending.iter().map(|(_, log)| log));
            if logs.collect::<BTreeSet<_>>().len() > 1 {
                moments.push(number + 1);
            }
        }
        moments
    }
}

impl SimulatedQueue {
    pub(super) fn new(storage: SimulatedStorage, depth: usize) -> SimulatedQueue {
        SimulatedQueue { storage, depth: depth.max(1), waiting: Vec::new() }
    }

    fn path_of(request: &WriteRequest) -> Result<Arc<str>> {
        match request.file.location(request.offset) {
            Location::File { path, .. } => Ok(path.into()),
            _ => Err(Error::invalid("this queue writes only files of its own storage")),
        }
    }

    fn complete_one(&mut self) -> Option<Completion> {
        if self.waiting.is_empty() {
            return None;
        }
        let chosen = {
            let mut world = self.storage.shared.world.lock();
            let chosen = world.random.below(self.waiting.len() as u64) as usize;
            if chosen > 0 {
                world.faults.counts.count("out-of-order completion");
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
        let more = self.storage.shared.world.lock().random.below(self.waiting.len() as u64 + 1) as usize;
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
