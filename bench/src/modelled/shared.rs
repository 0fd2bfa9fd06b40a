//! The state that a modelled storage shares with its files and queues.

use super::schedule::{Access, Device};
use super::wait::wait_until;
use quenchdb::internals::base::Result;
use quenchdb::internals::base::clock::{Clock, Nanos};
use quenchdb::internals::device::{DurabilityMethod, File};
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// State that a storage shares with its files and queues.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) device: Device,
    pub(super) clock: Clock,
    pub(super) method: DurabilityMethod,
    pub(super) files: Mutex<Files>,
}

/// Open files by the number that replaces a descriptor, so that a queue finds the inner file
/// through any wrapper.
pub(super) type Files = HashMap<RawFd, Weak<dyn File>>;

/// Larger than any descriptor of a real file.
const FIRST_NUMBER: RawFd = 1 << 24;

/// Returns a number that no other file of this process has.
pub(super) fn new_number() -> RawFd {
    static NEXT: AtomicI32 = AtomicI32::new(FIRST_NUMBER);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Shared {
    /// Returns when a write that begins `now` completes.
    pub(super) fn written(&self, now: Nanos, bytes: usize, durable: bool) -> Nanos {
        if durable && self.method != DurabilityMethod::Plain {
            self.device.durable(now, bytes as u64)
        } else {
            self.device.completion(now, Access::Write, bytes as u64)
        }
    }

    /// Returns the file inside `file`.
    pub(super) fn inside(&self, file: &dyn File) -> Option<Arc<dyn File>> {
        locked(&self.files).get(&file.descriptor()?)?.upgrade()
    }

    /// Calls `act`, then waits until `moment`.
    pub(super) fn until<T>(&self, moment: Nanos, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let value = act()?;
        wait_until(&self.clock, moment);
        Ok(value)
    }
}
