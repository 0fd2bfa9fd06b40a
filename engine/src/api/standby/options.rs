//! How to make the copies of a standby.

use crate::api::open::{Progress, or_ignore};
use crate::base::clock::Clock;
use crate::base::settings::Settings;
use crate::sync::{Mutex, MutexGuard};
use std::path::PathBuf;
use std::sync::Arc;

/// How to make copies.
#[derive(Clone, Debug)]
pub(super) struct CopyOptions {
    pub(super) settings: Settings,
    /// A newer checkpoint is taken when the log has so many bytes above it.
    pub(super) base_log_bytes: u64,
    pub(super) scratch: PathBuf,
    /// Where the copy is, if it outlives the process.
    pub(super) directory: Option<PathBuf>,
    pub(super) progress: SharedProgress,
    pub(super) clock: Clock,
}

/// The callback for the pages that are copied to a directory.
#[derive(Clone)]
pub(super) struct SharedProgress(Arc<Mutex<Progress>>);

impl SharedProgress {
    pub(super) fn new(progress: Option<Progress>) -> SharedProgress {
        SharedProgress(Arc::new(Mutex::new(or_ignore(progress))))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Progress> {
        self.0.lock()
    }
}

impl std::fmt::Debug for SharedProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedProgress")
    }
}
