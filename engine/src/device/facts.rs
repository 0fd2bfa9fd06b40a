//! The properties of the device under a database.

use super::file_system::FileSystem;
use crate::base::settings::DeviceTrust;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The properties of the device.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct DeviceFacts {
    /// For people: `ext4 on vda`, `memory`, `simulated`; `ext4 on vda, log on xfs on sdb`.
    pub name: String,
    /// The device, or one of them, has a cache that a power cut empties.
    pub volatile_cache: bool,
    /// The device can write through its cache (FUA).
    pub fua: bool,
    /// Direct I/O is in use; else the reason why not.
    pub direct_io: std::result::Result<(), String>,
    /// io_uring is in use; else the reason why not.
    pub io_uring: std::result::Result<(), String>,
    /// Log segments are not written a second time: what was appended to them stays until they are
    /// removed.
    pub append_only: bool,
    /// The device stores the file of pages in extents of about so many bytes, each written once:
    /// free blocks between used ones cost space there until all of an extent is discarded. `None`:
    /// overwriting in place is cheap.
    pub extent_bytes: Option<u64>,
    /// Block devices share a flush only if this is equal. That of the database's own directory.
    pub device_number: u64,
}

impl DeviceFacts {
    /// Part of the database is on this device. Durable is only what is durable on each of them.
    fn join(&mut self, part: &str, other: &DeviceFacts) {
        if other.name != self.name {
            self.name = format!("{}, {part} on {}", self.name, other.name);
        }
        self.volatile_cache |= other.volatile_cache;
        self.fua &= other.fua;
    }
}

/// Looks up the block devices under `directory` and under those of its `parts` that are there. One
/// that is made later is where the directory is.
pub(super) fn of_database(directory: &Path, parts: &[&str], trust: DeviceTrust) -> DeviceFacts {
    let mut facts = of_directory(directory, trust);
    for part in parts {
        let path = directory.join(part);
        match std::fs::metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // The same device, about which all is known.
            Ok(metadata) if metadata.dev() == facts.device_number => {}
            _ => facts.join(part, &of_directory(&path, trust)),
        }
    }
    facts
}

/// Looks up the devices under `directory`. Where nothing is known the cache counts as volatile.
fn of_directory(directory: &Path, trust: DeviceTrust) -> DeviceFacts {
    let file_system = FileSystem::of_directory(directory);
    DeviceFacts {
        name: file_system.name(),
        volatile_cache: match trust {
            DeviceTrust::Auto => file_system.has_volatile_cache(),
            DeviceTrust::Flush => true,
            DeviceTrust::Device => false,
        },
        fua: file_system.has_fua(),
        direct_io: Ok(()),
        io_uring: Ok(()),
        append_only: false,
        extent_bytes: None,
        device_number: std::fs::metadata(directory).map_or(0, |metadata| metadata.dev()),
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
