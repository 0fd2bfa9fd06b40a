//! The journal of a simulated store: what happened to each request, and the objects at every
//! earlier moment.

use super::bucket::{Bucket, Change};
use crate::device::objects::{FailureKind, Request, RequestKind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What happened to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A client sent the request.
    Sent,
    /// A second copy of the request is in flight.
    Copied,
    /// The store took the request or a copy; with the store's refusal, if any.
    Effect(Option<FailureKind>),
    /// The client heard of the end; with the failure, if any.
    Reply(Option<FailureKind>),
    /// The request will never take effect.
    Lost,
}

/// An entry of the journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The number of the request, from 0.
    pub number: u64,
    /// The number of its client, from 0.
    pub client: usize,
    /// The request.
    pub request: Arc<Request>,
    /// What happened.
    pub event: Event,
    /// The number of changes of the store so far, those of this event included.
    pub changes: usize,
}

/// Returns whether a request may change an object.
pub(super) fn changes_objects(request: &Request) -> bool {
    use RequestKind::{Append, Delete, Finalize, Open, Put};
    matches!(request.kind(), Put | Append | Open | Finalize | Delete)
}

/// A copy of all objects is kept after about this many changes.
const COPY_INTERVAL: usize = 64;

/// All changes of a store since its beginning.
#[derive(Debug)]
pub(super) struct Journal {
    records: Vec<Record>,
    records_max: usize,
    changes: Vec<Change>,
    /// The objects after a number of changes; the entry 0 is always there.
    past: BTreeMap<usize, Bucket>,
    /// The number of changes, recorded or not.
    total: usize,
}

impl Journal {
    pub(super) fn new(base: Bucket, records_max: usize) -> Journal {
        Journal {
            records: Vec::new(),
            records_max,
            changes: Vec::new(),
            past: BTreeMap::from([(0, base)]),
            total: 0,
        }
    }

    /// Returns the number of changes so far.
    pub(super) fn changes(&self) -> usize {
        self.total
    }

    /// Returns the number of changes that are recorded.
    pub(super) fn recorded(&self) -> usize {
        self.changes.len()
    }

    pub(super) fn records(&self) -> &[Record] {
        &self.records
    }

    pub(super) fn record(&mut self, mut record: Record) {
        if self.records.len() < self.records_max {
            record.changes = self.total;
            self.records.push(record);
        }
    }

    /// Adds a change.
    pub(super) fn change(&mut self, change: Change) {
        if self.changes.len() == self.total && self.records.len() < self.records_max {
            self.changes.push(change);
        }
        self.total += 1;
    }

    /// Returns the objects after the first `changes` changes.
    pub(super) fn after(&mut self, changes: usize) -> Bucket {
        let changes = changes.min(self.changes.len());
        let nearest = self.past.range(..=changes).next_back();
        let (from, mut bucket) = nearest.map(|(from, bucket)| (*from, bucket.clone())).unwrap_or_default();
        for change in &self.changes[from..changes] {
            bucket.apply(change);
        }
        if changes - from >= COPY_INTERVAL {
            self.past.insert(changes, bucket.clone());
        }
        bucket
    }

    /// Returns the requests that change something and were in flight after the first `changes`
    /// changes: their number, client and text.
    pub(super) fn in_flight(&self, changes: usize) -> Vec<(u64, usize, Arc<Request>)> {
        let mut found = BTreeMap::new();
        for record in &self.records {
            if record.changes > changes {
                break;
            }
            match record.event {
                Event::Sent | Event::Copied if changes_objects(&record.request) => {
                    found.insert(record.number, (record.client, record.request.clone()));
                }
                Event::Effect(_) | Event::Lost => drop(found.remove(&record.number)),
                _ => {}
            }
        }
        found.into_iter().map(|(number, (client, request))| (number, client, request)).collect()
    }
}
