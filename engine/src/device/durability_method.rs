//! How a completed write becomes durable.

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

impl DurabilityMethod {
    /// The name used in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            DurabilityMethod::Plain => "plain completion",
            DurabilityMethod::Dsync => "DSYNC",
            DurabilityMethod::WriteThenFlush => "write then flush",
        }
    }
}
