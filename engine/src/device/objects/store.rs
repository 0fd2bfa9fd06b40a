//! The trait through which the engine uses a store of objects.

use super::request::{Failure, Reply, Request};
use super::waiting::wait_for;
use std::sync::Arc;

/// How a request ended.
pub type Outcome = Result<Reply, Failure>;

/// Called once, from any thread, with the outcome of a request. It must not block.
pub type Done = Box<dyn FnOnce(Outcome) + Send>;

/// The properties of a store, from its client or from the probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreFacts {
    /// For people: `s3://bucket/prefix`. Holds no secret.
    pub name: String,
    /// The server, for people; empty if the name says it. Holds no secret.
    pub endpoint: String,
    /// Objects take appends.
    pub appends: bool,
    /// Most appends that an object takes, its creation included.
    pub parts_max: u64,
    /// An append may also name the version that the object must have.
    pub appends_check_version: bool,
    /// Appends go over streams: several are in flight on an object, an append takes effect as a
    /// prefix, and an object is ended by finalizing it.
    pub streams: bool,
}

/// A store of objects under one prefix. It reads and lists at once what was written.
///
/// Requests are started and end later; any number may be under way. A client sends reads again by
/// itself until its deadline has passed. It never sends a put, append or delete twice: only the
/// caller knows whether that is safe.
pub trait ObjectStore: Send + Sync + std::fmt::Debug {
    /// Starts a request and returns at once. Calls `done` when it has ended.
    fn start(&self, request: Request, done: Done);

    /// Returns the properties of the store.
    fn facts(&self) -> StoreFacts;

    /// Connects another client of the same store, as another machine does; `None` if that makes no
    /// difference, or fails.
    fn another(&self) -> Option<Arc<dyn ObjectStore>> {
        None
    }
}

/// Performs a request and waits for its end.
///
/// # Errors
/// See [`FailureKind`](super::request::FailureKind).
pub fn perform(store: &dyn ObjectStore, request: Request) -> Outcome {
    wait_for(|done| store.start(request, done))
}
