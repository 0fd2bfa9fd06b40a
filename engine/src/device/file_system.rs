//! The file system under a directory, and the block devices below it.
//!
//! The number of the device that `stat` reports is enough on ext4 and XFS. File systems with
//! subvolumes or several devices (btrfs) and those without a device (overlayfs, FUSE, tmpfs) report
//! a number that no block device has. The mount table names their source.

use super::durability_method::DurabilityMethod;
use rustix::fs::IFlags;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// ext2 and ext3, which the same driver serves, have it too.
pub(super) const EXT4_MAGIC: u64 = 0xef53;
const XFS_MAGIC: u64 = 0x5846_5342;
pub(super) const BTRFS_MAGIC: u64 = 0x9123_683e;
const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;

const MOUNT_TABLE: &str = "/proc/self/mountinfo";

/// Returns the magic number of the file system that holds `path`; 0 if it is not known.
pub(super) fn magic(path: &Path) -> u64 {
    rustix::fs::statfs(path).map_or(0, |about| about.f_type as u64)
}

/// Returns how a write in `directory` becomes durable.
///
/// Where a write over what is there changes nothing else, the device alone decides. Elsewhere the
/// write is lost without the metadata that says where it went, so each needs a flush of the file,
/// whatever the device's cache keeps. On btrfs a DSYNC write to a file that is overwritten in place
/// costs four flushes of the device, and a write with `fdatasync` two.
pub(super) fn durability_method(directory: &Path, volatile_cache: bool) -> DurabilityMethod {
    match magic(directory) {
        EXT4_MAGIC | XFS_MAGIC | TMPFS_MAGIC | RAMFS_MAGIC if !volatile_cache => DurabilityMethod::Plain,
        BTRFS_MAGIC => DurabilityMethod::WriteThenFlush,
        _ => DurabilityMethod::Dsync,
    }
}

/// Asks the file system to overwrite an empty file in place. Only btrfs has such a switch; the file
/// then has no checksums of the file system's and is not compressed.
pub(super) fn overwrite_in_place(file: &OwnedFd) {
    if rustix::fs::fstatfs(file).is_ok_and(|about| about.f_type as u64 == BTRFS_MAGIC) {
        let flags = rustix::fs::ioctl_getflags(file).unwrap_or(IFlags::empty());
        if let Err(error) = rustix::fs::ioctl_setflags(file, flags | IFlags::NOCOW) {
            tracing::debug!(%error, "btrfs copies a log segment on each write");
        }
    }
}

/// See the module's text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FileSystem {
    /// `ext4`, `fuse.sshfs`; `file system 0x6969` without a mount table.
    kind: String,
    /// What was mounted: a device, `overlay`, `pool/dataset`. Empty if it is not known.
    source: String,
    /// The file system lives in memory: a power cut takes all of it.
    is_memory: bool,
    /// Directories of the block devices in sysfs, each a whole disk. Empty if none is known.
    devices: Vec<PathBuf>,
}

impl FileSystem {
    /// Looks at the file system that holds `directory`.
    pub(super) fn of_directory(directory: &Path) -> FileSystem {
        let magic = magic(directory);
        let table = std::fs::read_to_string(MOUNT_TABLE).unwrap_or_default();
        let absolute = directory.canonicalize().unwrap_or_else(|_| directory.to_path_buf());
        let mounted = mount_of(&table, &absolute);
        let (kind, source) = mounted.unwrap_or_else(|| (format!("file system {magic:#x}"), String::new()));
        let number = std::fs::metadata(directory).map_or(0, |metadata| metadata.dev());
        let devices = match disk(number) {
            Some(disk) => vec![disk],
            None => disks_of_source(&source),
        };
        FileSystem { kind, source, is_memory: [TMPFS_MAGIC, RAMFS_MAGIC].contains(&magic), devices }
    }

    /// Returns the name for people, such as `ext4 on vda`.
    pub(super) fn name(&self) -> String {
        let kind = &self.kind;
        if self.is_memory {
            return format!("{kind} (memory: a power cut or a reboot loses everything)");
        }
        let names: Vec<_> =
            self.devices.iter().filter_map(|disk| Some(disk.file_name()?.to_string_lossy())).collect();
        match names.is_empty() {
            false => format!("{kind} on {}", names.join(" and ")),
            true if self.source.is_empty() || self.source == *kind => format!("{kind} on an unknown device"),
            true => format!("{kind} on {}, an unknown device", self.source),
        }
    }

    /// Returns whether some device has a cache that a power cut empties. What is not known has one.
    pub(super) fn has_volatile_cache(&self) -> bool {
        let is_durable =
            |disk: &PathBuf| queue(disk, "write_cache").is_some_and(|cache| cache == "write through");
        self.devices.is_empty() || !self.devices.iter().all(is_durable)
    }

    /// Returns whether all devices can write through their cache.
    pub(super) fn has_fua(&self) -> bool {
        let writes_through = |disk: &PathBuf| queue(disk, "fua").is_some_and(|fua| fua == "1");
        !self.devices.is_empty() && self.devices.iter().all(writes_through)
    }
}

fn queue(disk: &Path, property: &str) -> Option<String> {
    let text = std::fs::read_to_string(disk.join("queue").join(property)).ok()?;
    Some(text.trim().to_string())
}

/// Returns type and source of the mount that holds the absolute `path`: the innermost, and of
/// several at one place the newest.
///
/// A line of the table has a variable number of fields before ` - `: see proc_pid_mountinfo(5).
fn mount_of(table: &str, path: &Path) -> Option<(String, String)> {
    let mounts = table.lines().filter_map(|line| {
        let (place, what) = line.split_once(" - ")?;
        let point = PathBuf::from(unescape(place.split(' ').nth(4)?));
        let mut what = what.split(' ');
        Some((point, unescape(what.next()?), unescape(what.next()?)))
    });
    let around = mounts.filter(|(point, ..)| path.starts_with(point));
    around.max_by_key(|(point, ..)| point.components().count()).map(|(_, kind, source)| (kind, source))
}

/// The kernel writes space, tab, newline and backslash as a backslash and three octal digits.
fn unescape(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut text = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                text.push(char::from(code));
                text.push_str(&part[3..]);
            }
            None => text.push_str(part),
        }
    }
    text
}

/// Returns the sysfs directory of the whole disk with this device number: a partition's parent.
fn disk(number: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let path = PathBuf::from(format!("/sys/dev/block/{major}:{minor}")).canonicalize().ok()?;
    if path.join("partition").exists() { path.parent().map(Path::to_path_buf) } else { Some(path) }
}

/// Returns the disks below a mount's source. A file system of several devices is mounted by one of
/// them; btrfs lists the others.
fn disks_of_source(source: &str) -> Vec<PathBuf> {
    let Some(metadata) =
        std::fs::metadata(source).ok().filter(|metadata| metadata.file_type().is_block_device())
    else {
        return Vec::new();
    };
    let number = metadata.rdev();
    let others = std::fs::read_dir("/sys/fs/btrfs").ok().into_iter().flatten().flatten().find_map(|volume| {
        let devices = std::fs::read_dir(volume.path().join("devices")).ok()?.flatten();
        let numbers: Vec<_> = devices.filter_map(|device| device_number(&device.path())).collect();
        numbers.contains(&number).then_some(numbers)
    });
    let mut disks: Vec<_> = others.unwrap_or_else(|| vec![number]).into_iter().filter_map(disk).collect();
    disks.sort();
    disks.dedup();
    disks
}

/// Returns the number in the file `dev` of a device's directory in sysfs.
fn device_number(directory: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(directory.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(all(test, not(miri)))]
mod tests;
