//! Asynchronous writes of a modelled device: the queue inside writes, and a completion is held back
//! until the device would have completed it. So completions come in the model's order, not in that
//! of submission.

use super::schedule::Device;
use super::shared::Shared;
use super::wait::wait_until;
use quenchdb::internals::base::clock::Nanos;
use quenchdb::internals::base::{Error, Result};
use quenchdb::internals::device::{Completion, WriteQueue, WriteRequest};
use std::sync::Arc;

/// A write whose completion was not yet delivered.
#[derive(Debug)]
struct Flight {
    /// The token of the caller.
    token: u64,
    /// When the modelled device completes it.
    done: Nanos,
    /// The completion of the queue inside.
    completion: Option<Completion>,
}

/// See the module.
pub(super) struct ModelledQueue {
    inner: Box<dyn WriteQueue>,
    shared: Arc<Shared>,
    depth: usize,
    /// Writes by the token of the inner queue; a place is reused after the delivery of its
    /// completion.
    flights: Vec<Option<Flight>>,
    completions: Vec<Completion>,
}

impl std::fmt::Debug for ModelledQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let device: &Device = &self.shared.device;
        write!(f, "ModelledQueue({}, {} writes in flight)", device.figures().name, self.in_flight())
    }
}

impl ModelledQueue {
    pub(super) fn new(inner: Box<dyn WriteQueue>, shared: Arc<Shared>, depth: usize) -> ModelledQueue {
        ModelledQueue { inner, shared, depth: depth.max(1), flights: Vec::new(), completions: Vec::new() }
    }

    fn flying(&self) -> impl Iterator<Item = &Flight> {
        self.flights.iter().flatten()
    }

    /// Returns the number of writes that the modelled device has not finished.
    fn busy(&self) -> usize {
        let now = self.shared.clock.now();
        self.flying().filter(|flight| flight.done > now).count()
    }

    /// Takes completions from the queue inside; with `wait` at least one, if a write is in flight.
    fn take(&mut self, wait: bool) -> Result<()> {
        let taken = self.inner.reap(wait, &mut self.completions);
        for completion in self.completions.drain(..) {
            let flight = self.flights.get_mut(completion.token as usize).and_then(Option::as_mut);
            if let Some(flight) = flight {
                flight.completion = Some(completion);
            }
        }
        taken
    }

    /// Delivers completed writes. A failed write does not wait for its time.
    fn hand_out(&mut self, done: &mut Vec<Completion>) {
        let now = self.shared.clock.now();
        for place in &mut self.flights {
            let ready = |flight: &mut Flight| match &flight.completion {
                Some(completion) => completion.result.is_err() || flight.done <= now,
                None => false,
            };
            let Some(Flight { token, completion: Some(completion), .. }) = place.take_if(ready) else {
                continue;
            };
            done.push(Completion { token, ..completion });
        }
    }

    /// Returns the earliest completion of the modelled device among writes that are complete
    /// inside.
    fn earliest(&self) -> Option<Nanos> {
        self.flying().filter(|flight| flight.completion.is_some()).map(|flight| flight.done).min()
    }
}

impl WriteQueue for ModelledQueue {
    fn submit(&mut self, request: WriteRequest) -> Result<()> {
        while self.busy() >= self.depth {
            let earliest =
                self.flying().map(|flight| flight.done).filter(|done| *done > self.shared.clock.now());
            if let Some(earliest) = earliest.min() {
                wait_until(&self.shared.clock, earliest);
            }
        }
        let Some(file) = self.shared.inside(&*request.file) else {
            return Err(Error::invalid("this queue writes only files of its own storage"));
        };
        let done = self.shared.written(self.shared.clock.now(), request.len, request.durable);
        let index = self.flights.iter().position(Option::is_none).unwrap_or_else(|| {
            self.flights.push(None);
            self.flights.len() - 1
        });
        self.flights[index] = Some(Flight { token: request.token, done, completion: None });
        let submitted = self.inner.submit(WriteRequest { file, token: index as u64, ..request });
        if submitted.is_err() {
            self.flights[index] = None;
        }
        submitted
    }

    fn reap(&mut self, wait: bool, done: &mut Vec<Completion>) -> Result<()> {
        let before = done.len();
        self.take(false)?;
        self.hand_out(done);
        while wait && done.len() == before && self.in_flight() > 0 {
            match self.earliest() {
                Some(moment) => wait_until(&self.shared.clock, moment),
                None => self.take(true)?,
            }
            self.hand_out(done);
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.flying().count()
    }
}
