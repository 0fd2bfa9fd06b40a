//! What the device below the disk is like, and how far a write gets on it by itself.
//!
//! | device | a completed write | a durable write |
//! |---|---|---|
//! | volatile cache, the default | is in the cache | and a flush, which takes what else of the file is in the cache along |
//! | with FUA | is in the cache | goes through the cache alone: what else is there stays there |
//! | cache that is durable, or none | is durable | is a completed write |
//! | any, without direct I/O | is in the page cache | and a flush of the file, one after the other |
//!
//! A change of a file's length is metadata, which is durable after a flush, whatever the device is: so is what was written behind the old
//! end. A DSYNC write sees to that by itself.

use crate::base::random::Random;
use crate::device::facts::{DeviceFacts, DurabilityMethod};

/// The cache of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Cache {
    /// A power cut empties it.
    #[default]
    Volatile,
    /// The same, and a write can go through it (FUA).
    VolatileWithFua,
    /// A power cut leaves it as it is.
    Durable,
}

/// See the module's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Device {
    /// What a power cut leaves.
    pub cache: Cache,
    /// Whether the file system lets writes go past the page cache.
    pub direct_io: bool,
}

impl Default for Device {
    fn default() -> Device {
        Device { cache: Cache::default(), direct_io: true }
    }
}

/// How far a write gets by itself, in a power cut that comes after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reach {
    /// Into a cache.
    Cache,
    /// To where it is durable; the file's length does not.
    Device,
    /// The same, and what it changes of the file's length does.
    Through,
    /// There, with all that the file had in the cache.
    Flushed,
}

impl Device {
    /// Any of them.
    #[must_use]
    pub fn any(random: &mut Random) -> Device {
        let caches = [Cache::Volatile, Cache::Volatile, Cache::VolatileWithFua, Cache::Durable];
        let cache = caches[random.below(caches.len() as u64) as usize];
        Device { cache, direct_io: random.chance(3, 4) }
    }

    pub(super) fn facts(self) -> DeviceFacts {
        DeviceFacts {
            name: "simulated".into(),
            volatile_cache: self.cache != Cache::Durable,
            fua: self.cache == Cache::VolatileWithFua,
            direct_io: if self.direct_io { Ok(()) } else { Err("simulated".into()) },
            io_uring: Err("simulated".into()),
            device_number: 0,
        }
    }

    /// What is chosen where nothing is said.
    pub(super) fn method(self) -> DurabilityMethod {
        if self.cache == Cache::Durable { DurabilityMethod::Plain } else { DurabilityMethod::Dsync }
    }

    /// Of a write that goes past the page cache, or does not.
    pub(super) fn reach(self, direct: bool) -> Reach {
        if direct && self.cache == Cache::Durable { Reach::Device } else { Reach::Cache }
    }

    /// Of one past the page cache that carries DSYNC.
    pub(super) fn reach_of_dsync(self) -> Reach {
        if self.cache == Cache::Volatile { Reach::Flushed } else { Reach::Through }
    }
}
