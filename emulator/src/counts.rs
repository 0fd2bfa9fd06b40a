//! How many requests came, by kind, and what became of them.

use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// What happened since the emulator started.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    /// Requests by the name of their operation (`PutObject`, `AppendObject`, `GetObject`, ...).
    pub requests: BTreeMap<&'static str, u64>,
    /// Bytes of bodies that came.
    pub bytes_in: u64,
    /// Bytes of bodies that were sent.
    pub bytes_out: u64,
    /// Requests with a fault.
    pub faults: u64,
    /// Requests that were refused: a condition, an offset, an absent object.
    pub refused: u64,
}

/// Counts that requests share.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    counts: Mutex<Counts>,
}

impl Counter {
    pub fn change(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub fn read(&self) -> Counts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
