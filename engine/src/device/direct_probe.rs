//! Does direct I/O work in a directory?

use super::buffer::{AlignedBuffer, SECTOR_BYTES};
use super::descriptors;
use super::ownership::DIRECT_PROBE;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Returns a file that was opened with `O_DIRECT` if its writes pass by the page cache.
///
/// ext4 takes the flag where it journals data, and writes to the page cache all the same. So a
/// completed write would not be in the device. `statx` says so since Linux 6.1.
pub(super) fn is_direct(file: OwnedFd) -> rustix::io::Result<OwnedFd> {
    let asked = rustix::fs::statx(&file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let is_cached = asked
        .is_ok_and(|said| said.stx_mask & StatxFlags::DIOALIGN.bits() != 0 && said.stx_dio_offset_align == 0);
    if is_cached { Err(Errno::OPNOTSUPP) } else { Ok(file) }
}

/// Whether `O_DIRECT` works in `directory`. Where there is a file it is read; only in an empty
/// directory, and only if a database is to be created there, something is written: to a file
/// without a name if the file system knows such.
pub(super) fn probe_direct(directory: &Path, create: bool) -> std::result::Result<(), String> {
    if create {
        remove_stale_probe(&directory.join(DIRECT_PROBE));
    }
    let result = match any_file(directory) {
        Some(file) => descriptors::open(&file, OFlags::RDONLY | OFlags::DIRECT, Mode::empty())
            .and_then(is_direct)
            .and_then(|fd| rustix::io::pread(&fd, &mut *AlignedBuffer::zeroed(1), 0)),
        None if create => write_nameless(directory).unwrap_or_else(|| write_named(directory)),
        None => return Ok(()),
    };
    result.map(drop).map_err(|error| format!("the file system refuses O_DIRECT: {error}"))
}

/// Removes what a process that was killed while it probed has left, if anything. A file of others
/// has not only zeros.
fn remove_stale_probe(probe: &Path) {
    let is_short = |file: &std::fs::Metadata| file.is_file() && file.len() <= SECTOR_BYTES as u64;
    if std::fs::symlink_metadata(probe).is_ok_and(|file| is_short(&file))
        && std::fs::read(probe).is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0))
    {
        let _ = std::fs::remove_file(probe);
    }
}

/// A file of at least a sector.
fn any_file(directory: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(directory).ok()?.flatten();
    let large = |entry: &std::fs::DirEntry| {
        entry.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() >= SECTOR_BYTES as u64)
    };
    entries.filter(large).map(|entry| entry.path()).next()
}

const PROBE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

fn write_sector(fd: OwnedFd) -> rustix::io::Result<usize> {
    rustix::io::pwrite(is_direct(fd)?, &AlignedBuffer::zeroed(1), 0)
}

/// `None` if the file system has no files without a name.
fn write_nameless(directory: &Path) -> Option<rustix::io::Result<usize>> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    match descriptors::open(directory, flags | OFlags::DIRECT, PROBE_MODE) {
        Ok(fd) => Some(write_sector(fd)),
        Err(error) => descriptors::open(directory, flags, PROBE_MODE).ok().map(|_| Err(error)),
    }
}

fn write_named(directory: &Path) -> rustix::io::Result<usize> {
    let path = directory.join(DIRECT_PROBE);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::DIRECT | OFlags::CLOEXEC;
    match descriptors::open(&path, flags, PROBE_MODE) {
        Ok(fd) => {
            let result = write_sector(fd);
            let _ = std::fs::remove_file(&path);
            result
        }
        // Some file systems make the file before they refuse the flag.
        Err(error) => {
            if error != Errno::EXIST {
                remove_stale_probe(&path);
            }
            Err(error)
        }
    }
}
