//! What is known of the buckets of a database in several of them.

use std::time::Duration;

/// One of the buckets of a database in several, at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct BucketStatistics {
    /// Its URL, without secrets.
    pub name: String,
    /// Whether what it confirms counts. False before its manifest was read, and after it came back
    /// old or empty.
    pub is_counted: bool,
    /// Whether it counts and lacks nothing that the writer knows of.
    pub is_whole: bool,
    /// Why it does not count, if that is known.
    pub problem: Option<String>,
    /// Objects that it is known to lack; they are being copied.
    pub missing_objects: u64,
    /// Objects, blocks of the log included, that were copied to it since the open.
    pub copied_objects: u64,
    /// Bytes of these objects.
    pub copied_bytes: u64,
    /// Bytes that were sent to it, or wait to be, and are not confirmed; at most 32 MiB unless too
    /// few others take them.
    pub waiting_bytes: u64,
    /// How long its reads take; `None` before the first, and after a failed one.
    pub read_latency: Option<Duration>,
}
