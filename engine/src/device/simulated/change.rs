//! The operations that change the simulated disk, as its journal keeps them.

use super::device::Reach;
use std::sync::Arc;

/// An operation that changes the disk.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Create {
        path: Arc<str>,
    },
    Remove {
        path: Arc<str>,
    },
    FlushDirectory {
        directory: Arc<str>,
    },
    Write {
        path: Arc<str>,
        offset: u64,
        bytes: Arc<[u8]>,
        reach: Reach,
    },
    /// The file is claimed: its writes in flight end with their process.
    Claim {
        path: Arc<str>,
    },
    /// A write was submitted; its completion follows as a `Write`.
    InFlight {
        path: Arc<str>,
        offset: u64,
        bytes: Arc<[u8]>,
    },
    Extend {
        path: Arc<str>,
        len: u64,
    },
    SetLen {
        path: Arc<str>,
        len: u64,
    },
    /// One flush, for one file or several.
    Flush {
        paths: Arc<[Arc<str>]>,
    },
    FailedFlush {
        paths: Arc<[Arc<str>]>,
    },
    /// A write will be repeated at some later time.
    Again {
        path: Arc<str>,
        offset: u64,
        bytes: Arc<[u8]>,
    },
    /// A write in flight was reported as done and will never be done.
    Gone {
        path: Arc<str>,
        offset: u64,
        bytes: Arc<[u8]>,
    },
    /// A bit of a file flips.
    Rot {
        path: Arc<str>,
        byte: u64,
        bit: u8,
    },
    /// The mapped memory gets this length, in bytes.
    MapMemory {
        len: u64,
    },
    Store {
        thread: u64,
        offset: u64,
        bytes: Arc<[u8]>,
    },
    /// A fence of one thread, or with `None` of all threads.
    Fence {
        thread: Option<u64>,
    },
    FlushMemory,
}

/// Writes one line, with a checksum in the place of the bytes.
impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let crc = crate::base::checksum::crc;
        match self {
            Change::Create { path } => write!(f, "create {path}"),
            Change::Remove { path } => write!(f, "remove {path}"),
            Change::FlushDirectory { directory } => write!(f, "flush directory {directory:?}"),
            Change::Write { path, offset, bytes, reach } => {
                let how = match reach {
                    Reach::Cache => "write",
                    Reach::Device => "write to the device",
                    Reach::Through => "write through the cache",
                    Reach::Flushed => "durable write",
                };
                write!(f, "{how} {path} at {offset}, {} bytes, crc {:08x}", bytes.len(), crc(bytes))
            }
            Change::InFlight { path, offset, bytes } => {
                write!(f, "submitted {path} at {offset}, {} bytes, crc {:08x}", bytes.len(), crc(bytes))
            }
            Change::Store { thread, offset, bytes } => {
                write!(
                    f,
                    "store by thread {thread} at {offset}, {} bytes, crc {:08x}",
                    bytes.len(),
                    crc(bytes)
                )
            }
            Change::Again { path, offset, bytes } => {
                write!(f, "will be written again: {path} at {offset}, {} bytes", bytes.len())
            }
            Change::Gone { path, offset, bytes } => {
                write!(f, "will never be written: {path} at {offset}, {} bytes", bytes.len())
            }
            other => write!(f, "{other:?}"),
        }
    }
}

impl Change {
    /// Returns the number of bytes that the operation moves.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Change::Write { bytes, .. } | Change::Store { bytes, .. } => bytes.len(),
            _ => 0,
        }
    }

    /// Returns whether the device empties its cache for the operation.
    pub(super) fn flushes(&self) -> bool {
        matches!(
            self,
            Change::Write { reach: Reach::Flushed, .. }
                | Change::Flush { .. }
                | Change::FlushDirectory { .. }
        )
    }

    pub(super) fn is_write(&self, path: &str, offset: u64, bytes: &[u8]) -> bool {
        matches!(self, Change::Write { path: p, offset: o, bytes: b, .. } if &**p == path && *o == offset && &**b == bytes)
    }
}

/// Returns the log of a block, by the block's header (`log::block`).
pub(super) fn log_of(bytes: &[u8]) -> Option<u32> {
    let is_block = bytes.get(4..8) == Some(b"QLOG");
    let log = bytes.get(12..16).filter(|_| is_block)?;
    log.try_into().ok().map(u32::from_le_bytes)
}
