//! How a completed write becomes durable.

/// How a completed write becomes durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum DurabilityMethod {
    /// It is durable at completion: the device's cache is not volatile, or the caller said so.
    Plain = 0,
    /// Each write carries DSYNC: the kernel adds FUA or a flush.
    Dsync = 1,
    /// A write, then a flush of the device.
    WriteThenFlush = 2,
}

impl DurabilityMethod {
    pub(super) fn from_code(code: u8) -> DurabilityMethod {
        match code {
            0 => DurabilityMethod::Plain,
            2 => DurabilityMethod::WriteThenFlush,
            _ => DurabilityMethod::Dsync,
        }
    }

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
