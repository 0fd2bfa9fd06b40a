//! A mapped file: on a DAX file system it is the memory itself; on tmpfs, or in the page cache, it
//! stands for it.
//!
//! | the file is on | mapped with | fenced stores survive |
//! |---|---|---|
//! | a file system on non-volatile memory, mounted with DAX | MAP_SYNC: the kernel refuses it elsewhere | a power cut |
//! | tmpfs | | a crash of the process |
//! | any other file system: the page cache | | a crash of the process |
//!
//! MAP_SYNC also means that a store which the processor accepted needs no `fsync` for the file's
//! own metadata. A processor whose write-back this build does not know gives a crash of the process
//! only, wherever the file is.
//!
//! All blocks of the file are allocated before it is mapped: a store to a hole of a full file
//! system would kill the process. A new file has no length before it has its blocks.

use super::memory::{MapOptions, MappedMemory, MemoryFacts, Survives, WORD_BYTES, absolute};
use super::primitive::Primitive;
use crate::base::{Error, ErrorKind, Location, Result};
use crate::device::{descriptors, topology};
use crate::sync::NotInherited;
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::thread::MembarrierCommand;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;

#[derive(Debug)]
struct MappedFile {
    start: NonNull<u8>,
    len: usize,
    primitive: Primitive,
    latency: Duration,
    read_only: bool,
    facts: MemoryFacts,
    _not_inherited: NotInherited,
    /// Keeps the lock.
    fd: OwnedFd,
}

// SAFETY: the mapping belongs to this value alone and lives as long as it; what threads may do with
// its bytes is said at the trait.
unsafe impl Send for MappedFile {}
// SAFETY: as above.
unsafe impl Sync for MappedFile {}

fn place(path: &Path) -> Location {
    Location::File { path: path.display().to_string(), offset: 0 }
}

fn failed(what: &str, path: &Path, error: rustix::io::Errno) -> Error {
    Error::io(format!("cannot {what} the memory-mapped log"), error.into()).at(place(path))
}

/// Maps the file at `path`.
///
/// # Errors
/// `NotFound` without `create`; `Busy` while another has it; `InvalidArgument` if it is no ordinary
/// file or has another length than was said; `OutOfSpace`; `Unsupported` where the kernel or the
/// processor lacks what is needed; I/O.
pub fn map_file(path: &Path, options: MapOptions) -> Result<Arc<dyn MappedMemory>> {
    let path = absolute(path);
    let primitive = Primitive::choose(options.cache, options.store)?;
    if !options.read_only {
        register_barrier()?;
    }
    let access = if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let create = if options.create { OFlags::CREATE } else { OFlags::empty() };
    let flags = access | create | OFlags::NONBLOCK;
    let fd =
        descriptors::open(&path, flags, Mode::from_raw_mode(0o600)).map_err(|e| failed("open", &path, e))?;
    let lock = if options.read_only {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    rustix::fs::flock(&fd, lock).map_err(|error| match error {
        rustix::io::Errno::WOULDBLOCK => {
            let what = "another database, or another process, has the memory-mapped log open";
            Error::new(ErrorKind::Busy, what).at(place(&path))
        }
        error => failed("lock", &path, error),
    })?;
    let len = settle_length(&fd, &path, options)?;
    let (start, dax) = map(&fd, len, options.read_only).map_err(|error| failed("map", &path, error))?;
    // A mapping in a forked child would keep the lock there.
    // SAFETY: exactly what was mapped; a child uses nothing of its parent's database.
    if let Err(error) = unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxDontFork) } {
        tracing::warn!(%error, "a forked child keeps the lock of the memory-mapped log");
    }
    let (survives, reason) = what_it_survives(&fd, dax, primitive);
    let facts =
        MemoryFacts { path, bytes: len as u64, survives, reason, primitive, latency: options.latency };
    Ok(Arc::new(MappedFile {
        start,
        len,
        primitive,
        latency: options.latency,
        read_only: options.read_only,
        facts,
        _not_inherited: NotInherited::new(&fd),
        fd,
    }))
}

/// The kernel must know beforehand which process will ask for barriers.
fn register_barrier() -> Result<()> {
    rustix::thread::membarrier(MembarrierCommand::RegisterPrivateExpedited).map_err(|error| {
        let what = format!("the kernel refuses membarrier(2), which draining stragglers needs: {error}");
        Error::new(ErrorKind::Unsupported, what).at(Location::Setting("log_memory"))
    })
}

/// Makes a new file long enough, with all its blocks, and durable; refuses one of another length.
fn settle_length(fd: &OwnedFd, path: &Path, options: MapOptions) -> Result<usize> {
    let stat = rustix::fs::fstat(fd).map_err(|e| failed("look at", path, e))?;
    if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
        let what =
            "the memory-mapped log has to be an ordinary file; on a DAX file system it is the memory itself";
        return Err(Error::invalid(what).at(place(path)));
    }
    let there = stat.st_size.cast_unsigned();
    let wanted = match (there, options.bytes) {
        (0, 0) => options.new_bytes,
        (0, said) => said,
        (there, _) => there,
    };
    if there != 0 && options.bytes != 0 && there != options.bytes {
        let what = format!("log_memory_bytes = {} but the file has {there} bytes", options.bytes);
        return Err(Error::invalid(what)
            .with_advice("set log_memory_bytes to its length, or close the database and remove the file")
            .at(place(path)));
    }
    if there == 0 && options.read_only || !wanted.is_multiple_of(4096) {
        let what = format!("the memory-mapped log has {there} bytes, which is no multiple of 4096 above 0");
        return Err(Error::corruption(what).at(place(path)));
    }
    if !options.read_only {
        allocate(fd, there, wanted, |flags| rustix::fs::fallocate(fd, flags, 0, wanted))
            .map_err(|e| failed("allocate", path, e))?;
        rustix::fs::fsync(fd).map_err(|e| failed("flush", path, e))?;
        let parent = path.parent().unwrap_or(Path::new("/"));
        let flushed = descriptors::open_to_read(parent).and_then(|directory| directory.sync_all());
        flushed.map_err(|e| {
            Error::io("cannot flush the directory of the memory-mapped log", e).at(place(path))
        })?;
    }
    usize::try_from(wanted).map_err(|_| Error::invalid("more bytes than addresses").at(place(path)))
}

/// Makes a file of `there` bytes, none or `wanted`, one of `wanted` bytes and with all its blocks.
/// The length is set at the end and at once: one that a full disk, a kill or a power cut had left
/// halfway would be taken for the memory's at the next open.
fn allocate(
    fd: &OwnedFd,
    there: u64,
    wanted: u64,
    fallocate: impl Fn(FallocateFlags) -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    let allocated = loop {
        match fallocate(FallocateFlags::KEEP_SIZE) {
            // A signal, for which large files give time.
            Err(rustix::io::Errno::INTR) => {}
            other => break other,
        }
    };
    let grown =
        allocated.and_then(|()| if there < wanted { rustix::fs::ftruncate(fd, wanted) } else { Ok(()) });
    if grown.is_err() {
        // Gives back blocks that will not be used. The length is what it was, whether this succeeds
        // or not.
        let _ = rustix::fs::ftruncate(fd, there);
    }
    grown
}

/// The address, and whether the mapping is synchronous.
fn map(fd: &OwnedFd, len: usize, read_only: bool) -> rustix::io::Result<(NonNull<u8>, bool)> {
    let access = if read_only { ProtFlags::READ } else { ProtFlags::READ | ProtFlags::WRITE };
    let map = |flags| {
        // SAFETY: a new mapping at an address of the system's choice overlaps nothing. That other
        // processes do not change the file is not relied on: its bytes are only copied, never
        // borrowed.
        unsafe { mmap(std::ptr::null_mut(), len, access, flags | MapFlags::POPULATE, fd, 0) }
    };
    let (start, dax) = match map(MapFlags::SHARED_VALIDATE | MapFlags::SYNC) {
        Ok(start) => (start, true),
        Err(_) => (map(MapFlags::SHARED)?, false),
    };
    NonNull::new(start.cast()).map(|start| (start, dax)).ok_or(rustix::io::Errno::NOMEM)
}

fn what_it_survives(fd: &OwnedFd, dax: bool, primitive: Primitive) -> (Survives, String) {
    let reason = match rustix::fs::fstatfs(fd).map(|found| found.f_type as u64) {
        _ if dax && primitive == Primitive::Unknown => {
            "DAX, but this processor cannot write its cache back as far as this build knows"
        }
        _ if dax => return (Survives::PowerCut, "DAX, mapped with MAP_SYNC".into()),
        Ok(TMPFS) => "tmpfs: gone with the machine",
        Ok(RAMFS) => "ramfs: gone with the machine",
        _ => "page cache of a file system without DAX",
    };
    (Survives::ProcessCrash, reason.into())
}

impl MappedFile {
    fn range(&self, offset: u64, len: usize) -> *mut u8 {
        let inside =
            usize::try_from(offset).ok().filter(|at| at.checked_add(len).is_some_and(|e| e <= self.len));
        let offset = inside.expect("inside the mapping");
        // SAFETY: inside the mapping, as was just checked.
        unsafe { self.start.as_ptr().add(offset) }
    }
}

impl MappedMemory for MappedFile {
    /// Pages of tmpfs and of the page cache move; DAX memory stays on its node.
    fn place(&self, offset: u64, bytes: u64, node: u32) {
        let len = bytes as usize;
        let Some(start) = NonNull::new(self.range(offset, len)) else { return };
        if let Err(error) = topology::place_on(node, start, len) {
            tracing::debug!(node, %error, "mapped log buffers stay where the system has put them");
        }
    }

    fn release(&self) {
        if let Err(error) = rustix::fs::flock(&self.fd, FlockOperation::Unlock) {
            tracing::debug!(%error, "the memory-mapped log stays locked until it is dropped");
        }
    }

    fn facts(&self) -> MemoryFacts {
        self.facts.clone()
    }

    fn bytes(&self) -> u64 {
        self.len as u64
    }

    fn load(&self, offset: u64, into: &mut [u8]) {
        let from = self.range(offset, into.len());
        // SAFETY: `from` is valid for that many bytes, and `into` is memory of our own.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    }

    fn store(&self, offset: u64, bytes: &[u8]) {
        assert!(!self.read_only, "mapped for loads only");
        assert!(
            offset.is_multiple_of(WORD_BYTES as u64) && bytes.len().is_multiple_of(WORD_BYTES),
            "whole words"
        );
        let to = self.range(offset, bytes.len());
        // SAFETY: inside the mapping, which begins at a page, aligned, and no other thread stores
        // there now (the trait).
        unsafe { self.primitive.store(to, bytes) };
        if !self.latency.is_zero() {
            // On top of the copy, whose own time counts as that of faster media.
            let begun = Instant::now();
            while begun.elapsed() < self.latency {
                std::hint::spin_loop();
            }
        }
    }

    fn is_durable_when_stored(&self) -> bool {
        self.primitive.is_durable_when_stored()
    }

    fn fence(&self) {
        self.primitive.fence();
    }

    fn barrier(&self) {
        self.primitive.fence();
        // Interrupts every running thread of the process with a full barrier; one that is not
        // running has passed one.
        let done = rustix::thread::membarrier(MembarrierCommand::PrivateExpedited);
        debug_assert!(done.is_ok(), "registered when the file was mapped");
    }

    fn flush(&self) {
        // SAFETY: all of the mapping.
        unsafe { self.primitive.write_back(self.start.as_ptr(), self.len) };
        self.primitive.fence();
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped; no pointer into it outlives this value.
        let done = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(done.is_ok(), "the mapping is ours");
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
