//! What the connection does at the end of a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// What the connection does with the answer of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// It sends it.
    Answer = 0,
    /// It is closed without one.
    Close = 1,
    /// It sends half of the answer's body, and is closed.
    Cut = 2,
}

/// Set by the service, read by the connection when the service is done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending(Arc<AtomicU8>);

impl Ending {
    pub fn set(&self, end: End) {
        self.0.store(end as u8, Ordering::Relaxed);
    }

    pub fn get(&self) -> End {
        match self.0.load(Ordering::Relaxed) {
            0 => End::Answer,
            1 => End::Close,
            _ => End::Cut,
        }
    }
}
