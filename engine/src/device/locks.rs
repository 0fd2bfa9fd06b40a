//! Locks of files that are private to this process, as `flock` is for real files.

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The handle that has each file locked.
#[derive(Debug, Default)]
pub(super) struct FileLocks {
    holders: Mutex<BTreeMap<String, u64>>,
    handles: AtomicU64,
}

impl FileLocks {
    /// Returns a new handle of the file `path`.
    pub(super) fn handle(self: &Arc<FileLocks>, path: &str) -> LockHandle {
        let id = self.handles.fetch_add(1, Ordering::Relaxed);
        LockHandle { locks: self.clone(), path: path.to_string(), id }
    }
}

/// One handle of a file. Dropping it releases its lock.
#[derive(Debug)]
pub(super) struct LockHandle {
    locks: Arc<FileLocks>,
    path: String,
    id: u64,
}

impl LockHandle {
    pub(super) fn try_lock(&self) -> bool {
        let mut holders = self.locks.holders.lock();
        *holders.entry(self.path.clone()).or_insert(self.id) == self.id
    }

    pub(super) fn is_locked(&self) -> bool {
        self.locks.holders.lock().get(&self.path).is_some_and(|holder| *holder != self.id)
    }
}

impl Drop for LockHandle {
    fn drop(&mut self) {
        let mut holders = self.locks.holders.lock();
        if holders.get(&self.path) == Some(&self.id) {
            holders.remove(&self.path);
        }
    }
}
