//! What is known of the device under a database.

/// How a completed write becomes durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum DurabilityMethod {
    /// It is durable at completion: the device's cache is not volatile, or the caller said so.
    Plain,
    /// Each write carries DSYNC: the kernel adds FUA or a flush.
    Dsync,
    /// A write, then a flush of the device.
    WriteThenFlush,
}

/// What is known of the device.
#[derive(Clone, Debug)]
pub struct DeviceFacts {
    /// For people: `ext4 on vda`, `memory`, `simulated`.
    pub name: String,
    /// The device has a cache that a power cut empties.
    pub volatile_cache: bool,
    /// The device can write through its cache (FUA).
    pub fua: bool,
    /// Direct I/O is in use; else the reason why not.
    pub direct_io: std::result::Result<(), String>,
    /// io_uring is in use; else the reason why not.
    pub io_uring: std::result::Result<(), String>,
    /// Block devices share a flush only if this is equal.
    pub device_number: u64,
}
