//! The properties of the device under a database.

use crate::base::settings::DeviceTrust;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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

/// The properties of the device.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct DeviceFacts {
    /// For people: `vda`, `memory`, `simulated`; `vda, log on sdb`.
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
        if other.device_number == self.device_number {
            return;
        }
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
        if !matches!(path.try_exists(), Ok(false)) {
            facts.join(part, &of_directory(&path, trust));
        }
    }
    facts
}

/// Looks up the block device under `directory`. Where nothing is known the cache counts as
/// volatile.
fn of_directory(directory: &Path, trust: DeviceTrust) -> DeviceFacts {
    let number = std::fs::metadata(directory).map_or(0, |metadata| metadata.dev());
    let device = block_device(number);
    let read = |name: &str| {
        let path = device.as_ref()?.join("queue").join(name);
        std::fs::read_to_string(path).ok().map(|text| text.trim().to_string())
    };
    let asked = read("write_cache").is_none_or(|cache| cache != "write through");
    let name = match &device {
        Some(path) => path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned()),
        None => "no block device (nothing here survives a power cut if this is a memory file system)".into(),
    };
    DeviceFacts {
        name,
        volatile_cache: match trust {
            DeviceTrust::Auto => asked,
            DeviceTrust::Flush => true,
            DeviceTrust::Device => false,
        },
        fua: read("fua").is_some_and(|fua| fua == "1"),
        direct_io: Ok(()),
        io_uring: Ok(()),
        append_only: false,
        extent_bytes: None,
        device_number: number,
    }
}

/// The sysfs directory of the whole disk with this device number; a partition's parent.
fn block_device(number: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let path = PathBuf::from(format!("/sys/dev/block/{major}:{minor}")).canonicalize().ok()?;
    if path.join("partition").exists() { path.parent().map(Path::to_path_buf) } else { Some(path) }
}

#[cfg(all(test, not(miri)))]
mod tests;
