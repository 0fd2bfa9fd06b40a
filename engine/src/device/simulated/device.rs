//! The device below the disk: its cache, and how far a write gets by itself.
//!
//! | device | a completed write | a durable write |
//! |---|---|---|
//! | volatile cache, the default | is in the cache | is followed by a flush, which also makes the file's other cached writes durable |
//! | with FUA | is in the cache | goes through the cache alone: other cached writes stay volatile |
//! | cache that is durable, or none | is durable | is the same as a completed write |
//! | any, without direct I/O | is in the page cache | is a write, then a flush of the file |
//! | any, with `flushes_each_write` | as above | is a write, then a flush of the file |
//!
//! A file's length is metadata: on any device it is durable only after a flush, as are bytes beyond
//! the old end. A DSYNC write makes both durable by itself.

use crate::base::random::Random;
use crate::device::{DeviceFacts, DurabilityMethod};

/// Bytes that a power cut keeps or loses at a time.
pub(super) const SECTOR: usize = 512;

/// The cache of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Cache {
    /// A power cut empties it.
    #[default]
    Volatile,
    /// A power cut empties it, and a write can go through it (FUA).
    VolatileWithFua,
    /// A power cut does not change it.
    Durable,
}

/// A device: see the text of this file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Device {
    /// What a power cut does to the cache.
    pub cache: Cache,
    /// Whether the file system supports direct I/O.
    pub direct_io: bool,
    /// The device stores the file of pages in extents of so many bytes. Then a write to bytes of
    /// that file that were written before and not discarded since is an error.
    pub extent_bytes: Option<u64>,
    /// Each durable write is followed by a flush of the file, as on btrfs.
    pub flushes_each_write: bool,
}

impl Default for Device {
    fn default() -> Device {
        Device { cache: Cache::default(), direct_io: true, extent_bytes: None, flushes_each_write: false }
    }
}

/// How far a write gets by itself: what a later power cut finds of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reach {
    /// Into a cache.
    Cache,
    /// Into durable media; a new file length stays volatile.
    Device,
    /// Into durable media, with a new file length.
    Through,
    /// Into durable media, with all cached writes of the file.
    Flushed,
}

impl Device {
    /// Returns a random device.
    #[must_use]
    pub fn any(random: &mut Random) -> Device {
        let caches = [Cache::Volatile, Cache::Volatile, Cache::VolatileWithFua, Cache::Durable];
        let cache = caches[random.below(caches.len() as u64) as usize];
        Device { cache, direct_io: random.chance(3, 4), ..Device::default() }
    }

    pub(super) fn facts(self) -> DeviceFacts {
        DeviceFacts {
            name: "simulated".into(),
            volatile_cache: self.cache != Cache::Durable,
            fua: self.cache == Cache::VolatileWithFua,
            direct_io: if self.direct_io { Ok(()) } else { Err("simulated".into()) },
            io_uring: Err("simulated".into()),
            append_only: false,
            extent_bytes: self.extent_bytes,
            device_number: 0,
        }
    }

    /// Returns how a write becomes durable, as `device::file_system` chooses it.
    pub(super) fn method(self) -> DurabilityMethod {
        match self.cache {
            _ if self.flushes_each_write => DurabilityMethod::WriteThenFlush,
            Cache::Durable => DurabilityMethod::Plain,
            Cache::Volatile | Cache::VolatileWithFua => DurabilityMethod::Dsync,
        }
    }

    /// Returns the reach of a plain write, direct or through the page cache.
    pub(super) fn reach(self, direct: bool) -> Reach {
        if direct && self.cache == Cache::Durable { Reach::Device } else { Reach::Cache }
    }

    /// Returns the reach of a direct write with DSYNC.
    pub(super) fn reach_of_dsync(self) -> Reach {
        if self.cache == Cache::Volatile { Reach::Flushed } else { Reach::Through }
    }
}
