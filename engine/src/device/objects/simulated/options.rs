//! What a simulated store can do, and which promises it breaks.

use std::time::Duration;

/// When requests take effect and replies arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// A request takes effect and ends inside `start`, on the caller's stack. For tests of one
    /// thread.
    Immediate,
    /// Nothing happens until the test calls `SimulatedStore::step`.
    Stepped,
    /// A thread delivers requests and replies, in random order, while a client is alive.
    Network,
}

/// Promises of `ObjectStore` that a store breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BrokenPromises {
    /// The store ignores the offset of an append, and replaces the object by the appended bytes.
    pub appends_overwrite: bool,
    /// A put takes effect although its condition says that the object must be absent.
    pub creations_overwrite: bool,
    /// Puts and appends take effect although the object has another version.
    pub versions_ignored: bool,
    /// An append at a wrong offset adds its bytes to the end.
    pub offsets_ignored: bool,
    /// A list shows the names as they were before the last change.
    pub lists_are_stale: bool,
    /// A get or head shows the object as it was before the last change of the store.
    pub reads_are_stale: bool,
    /// Objects with equal bytes have equal versions, as ETags that are hashes of the content.
    pub versions_repeat: bool,
}

/// The properties of a simulated store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreOptions {
    /// Decides the order of requests and replies, their delays, and faults by odds.
    pub seed: u64,
    /// When requests take effect.
    pub delivery: Delivery,
    /// Objects take appends.
    pub appends: bool,
    /// Objects that take appends are created for it, and are never replaced. Otherwise appends and
    /// puts may change any object, and an append at offset 0 may create one, as in a directory
    /// bucket of S3.
    pub appends_apart: bool,
    /// Most appends that an object takes, its creation included.
    pub parts_max: u64,
    /// An append may also name the version that the object must have.
    pub appends_check_version: bool,
    /// Objects that are created for appends take them over streams: see `streams`.
    pub streams: bool,
    /// A stream that another one has taken over from is refused. A store that breaks this promise
    /// lets both append.
    pub revokes: bool,
    /// The mean time from the start of a request to its end; zero = the network adds no time. Used
    /// by [`Delivery::Network`] only.
    pub latency: Duration,
    /// The promises that the store breaks.
    pub broken: BrokenPromises,
    /// Most entries of the journal. Later requests are not recorded.
    pub journal_max: usize,
}

impl StoreOptions {
    /// Returns a store that keeps its promises, takes 10,000 appends to an object that was created
    /// for them, checks versions of appends, and has a network without latency.
    #[must_use]
    pub fn new(seed: u64) -> StoreOptions {
        StoreOptions {
            seed,
            delivery: Delivery::Network,
            appends: true,
            appends_apart: true,
            parts_max: 10_000,
            appends_check_version: true,
            streams: false,
            revokes: true,
            latency: Duration::ZERO,
            broken: BrokenPromises::default(),
            journal_max: 1_000_000,
        }
    }
}
