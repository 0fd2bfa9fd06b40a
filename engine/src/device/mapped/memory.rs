//! The trait of mapped memory, and what is known of an implementation.

use super::primitive::Primitive;
use crate::base::settings::{MemoryCache, MemoryStore};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How to map.
#[derive(Clone, Copy, Debug)]
pub struct MapOptions {
    /// Make the file if it is missing.
    pub create: bool,
    /// Load only.
    pub read_only: bool,
    /// Length in bytes; 0: as long as it is.
    pub bytes: u64,
    /// Length of a new one, if none was said.
    pub new_bytes: u64,
    /// What a power cut leaves of caches.
    pub cache: MemoryCache,
    /// How cache lines reach the memory; none: as the processor does it best.
    pub store: Option<MemoryStore>,
    /// Each store takes so much longer than the copy.
    pub latency: Duration,
}

/// What fenced stores survive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Survives {
    /// The end of the process, however it comes; not of the machine.
    ProcessCrash,
    /// A power cut, too.
    PowerCut,
}

impl fmt::Display for Survives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Survives::ProcessCrash => "a crash of the process only",
            Survives::PowerCut => "a power cut",
        })
    }
}

/// The properties of mapped memory.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryFacts {
    /// Where it is.
    pub path: PathBuf,
    /// Bytes.
    pub bytes: u64,
    /// What a fenced store survives.
    pub survives: Survives,
    /// Why so: `tmpfs`, `DAX, mapped with MAP_SYNC`, ...
    pub reason: String,
    /// How cache lines are written back.
    pub primitive: Primitive,
    /// Each store is made to take so much longer than the copy.
    pub latency: Duration,
}

#[cfg(feature = "serde")]
impl serde::Serialize for Survives {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for MemoryFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemoryFacts { path, bytes, survives, reason, primitive, latency } = self;
        write!(f, "{} ({bytes} bytes, {reason}): commits survive {survives}; {primitive}", path.display())?;
        if !latency.is_zero() {
            write!(f, ", {latency:?} added to an insertion")?;
        }
        Ok(())
    }
}

/// See the module's text. Offsets and lengths of stores are multiples of [`WORD_BYTES`]. Two
/// threads never store to the same bytes at the same time.
pub trait MappedMemory: Send + Sync + fmt::Debug {
    /// Returns the properties of the memory.
    fn facts(&self) -> MemoryFacts;

    /// Length in bytes, a multiple of 4096.
    fn bytes(&self) -> u64;

    /// Fills `into` with the bytes at `offset`, which must lie within the memory.
    fn load(&self, offset: u64, into: &mut [u8]);

    /// Copies `bytes` to `offset`, and starts the write-back. The place must lie within the memory,
    /// which must be mapped for writing.
    fn store(&self, offset: u64, bytes: &[u8]);

    /// Returns whether a store is durable as soon as a later store of the same thread is visible to
    /// other threads, so that records need no fence: durable caches.
    fn is_durable_when_stored(&self) -> bool {
        false
    }

    /// Makes everything that the calling thread has stored durable.
    fn fence(&self);

    /// Makes everything that any thread of the process has stored durable.
    fn barrier(&self);

    /// Makes everything that is visible durable.
    fn flush(&self);

    /// Asks for `bytes` bytes at `offset` to be kept in the memory of the NUMA node with this
    /// number. Changes no content.
    fn place(&self, _offset: u64, _bytes: u64, _node: u32) {}

    /// Lets another owner map the memory before this mapping ends. The caller stores nothing more.
    fn release(&self) {}
}

/// The unit that is never torn.
pub const WORD_BYTES: usize = 8;

/// The path of a mapped file as it is kept: absolute, so that it means the same whatever the
/// current directory is.
#[must_use]
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}
