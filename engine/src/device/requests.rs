//! What a database has asked of a store of objects.

/// Requests to a store of objects since the open, by kind, the repeated ones included. The store
/// bills them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct ObjectRequests {
    /// Objects put: pages, manifests, and blocks of the log where a store takes no appends. In a
    /// zonal bucket also log objects opened and finalized.
    pub puts: u64,
    /// Blocks of the log appended.
    pub appends: u64,
    /// Objects or parts of objects read.
    pub gets: u64,
    /// Objects looked up.
    pub heads: u64,
    /// Lists of names, whatever their number of pages.
    pub lists: u64,
    /// Objects deleted.
    pub deletes: u64,
    /// Bytes put and appended.
    pub sent_bytes: u64,
    /// Bytes read.
    pub received_bytes: u64,
    /// Requests after which the store asked for fewer of them (503, 429).
    pub throttled: u64,
    /// Requests without a known outcome: time-outs, lost connections, errors of the store.
    pub unknown: u64,
}

impl ObjectRequests {
    /// Returns the number of requests of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.puts + self.appends + self.gets + self.heads + self.lists + self.deletes
    }

    /// Returns what was asked since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &ObjectRequests) -> ObjectRequests {
        ObjectRequests {
            puts: self.puts - earlier.puts,
            appends: self.appends - earlier.appends,
            gets: self.gets - earlier.gets,
            heads: self.heads - earlier.heads,
            lists: self.lists - earlier.lists,
            deletes: self.deletes - earlier.deletes,
            sent_bytes: self.sent_bytes - earlier.sent_bytes,
            received_bytes: self.received_bytes - earlier.received_bytes,
            throttled: self.throttled - earlier.throttled,
            unknown: self.unknown - earlier.unknown,
        }
    }
    /// Returns what was asked by both.
    #[must_use]
    pub fn plus(&self, other: &ObjectRequests) -> ObjectRequests {
        ObjectRequests {
            puts: self.puts + other.puts,
            appends: self.appends + other.appends,
            gets: self.gets + other.gets,
            heads: self.heads + other.heads,
            lists: self.lists + other.lists,
            deletes: self.deletes + other.deletes,
            sent_bytes: self.sent_bytes + other.sent_bytes,
            received_bytes: self.received_bytes + other.received_bytes,
            throttled: self.throttled + other.throttled,
            unknown: self.unknown + other.unknown,
        }
    }
}
