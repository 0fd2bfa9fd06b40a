//! The two traits through which the engine uses a device, and the requests of their queues.

use super::buffer::AlignedBuffer;
use super::facts::{DeviceFacts, DurabilityMethod};
use super::mapped::{self, MapOptions, MappedMemory};
use crate::base::{Location, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How a file is going to be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenMode {
    /// Create the file if it is missing.
    pub create: bool,
    /// Refuse writes.
    pub read_only: bool,
    /// Bypass the page cache where the storage can: offsets, lengths and buffers are then multiples of
    /// [`SECTOR_BYTES`](super::SECTOR_BYTES). Callers that ask for it always obey that, on every storage.
    pub direct: bool,
}

/// A directory that holds one database. Paths are relative, with `/`, of at most two parts (`log/000001.seg`).
pub trait Storage: Send + Sync + std::fmt::Debug {
    /// Opens or creates a file. A created file's existence is durable after [`Storage::flush_directory`].
    ///
    /// # Errors
    /// `NotFound` without `create`; I/O.
    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>>;

    /// Removes a file; a missing one is not an error.
    ///
    /// # Errors
    /// I/O.
    fn remove(&self, path: &str) -> Result<()>;

    /// Names (not paths) of the files in `directory` (`""` is the root), sorted. A missing directory is empty. In the root
    /// of a real directory all else that is there is named too, so that it can be refused as foreign.
    ///
    /// # Errors
    /// I/O.
    fn list(&self, directory: &str) -> Result<Vec<String>>;

    /// Creates a directory; an existing one is not an error.
    ///
    /// # Errors
    /// I/O.
    fn create_directory(&self, path: &str) -> Result<()>;

    /// Makes creations and removals in `directory` durable.
    ///
    /// # Errors
    /// I/O; not to be retried and believed.
    fn flush_directory(&self, directory: &str) -> Result<()>;

    /// Takes the database's lock, until the returned value is dropped: exclusive for a writer, shared for readers.
    ///
    /// # Errors
    /// `Busy` if another process (or another handle of this one) holds it.
    fn lock(&self, exclusive: bool) -> Result<Box<dyn Send + Sync>>;

    /// What is known of the device.
    fn facts(&self) -> DeviceFacts;

    /// How `write_durable_at` makes bytes durable.
    fn durability(&self) -> DurabilityMethod;

    /// Changes the method, before files are opened for writing.
    fn set_durability(&self, method: DurabilityMethod);

    /// A queue for at most `depth` writes at a time, for one user at a time. Where what a queue takes is short, it is one that does each
    /// write while it is submitted.
    ///
    /// # Errors
    /// I/O.
    fn write_queue(&self, depth: usize) -> Result<Box<dyn WriteQueue>>;

    /// Whether [`Storage::flush_together`] is one flush, however many files of `directory` there are.
    fn shares_flush(&self, _directory: &str) -> bool {
        false
    }

    /// Makes durable what had been written to `files`, all of one directory, before the call began.
    ///
    /// # Errors
    /// I/O; then none of these writes may be believed.
    fn flush_together(&self, files: &[Arc<dyn File>]) -> Result<()> {
        files.iter().try_for_each(|file| file.flush())
    }

    /// The path of mapped memory that a storage without a directory brings with it.
    fn own_memory(&self) -> Option<PathBuf> {
        None
    }

    /// Maps memory that keeps what is in it. It lies beside the database, at a path of the machine's.
    ///
    /// # Errors
    /// As [`mapped::map_file`].
    fn map_memory(&self, path: &Path, options: MapOptions) -> Result<Arc<dyn MappedMemory>> {
        mapped::map_file(path, options)
    }
}

/// Is told of a read, by its index, that it is done.
pub type ReadDone<'d> = dyn FnMut(usize, &mut ReadRequest<'_>) + 'd;

/// One file. All methods may be called from many threads.
pub trait File: Send + Sync + std::fmt::Debug {
    /// Where byte `offset` is, for error messages.
    fn location(&self, offset: u64) -> Location;

    /// Length in bytes.
    ///
    /// # Errors
    /// I/O.
    fn len(&self) -> Result<u64>;

    /// True if the file has no bytes.
    ///
    /// # Errors
    /// I/O.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// `Corruption` if the file ends before; I/O.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// Does several reads, as many at a time as the storage can, and leaves each one's result in it. `done` is called with each and its index, as soon as
    /// it is done, while others may be on their way. The order is open.
    fn read_many(&self, reads: &mut [ReadRequest<'_>], done: &mut ReadDone<'_>) {
        for (index, read) in reads.iter_mut().enumerate() {
            read.result = self.read_at(read.offset, read.buffer);
            done(index, read);
        }
    }

    /// Writes all of `bytes`; visible to readers, not durable.
    ///
    /// # Errors
    /// `OutOfSpace`; I/O.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Writes all of `bytes`; durable when it returns.
    ///
    /// # Errors
    /// `OutOfSpace`; I/O: then the bytes may or may not be there, now or later.
    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Makes every write that completed before this call durable, the file's length included.
    ///
    /// # Errors
    /// I/O: then no completed write that was not yet durable may be believed.
    fn flush(&self) -> Result<()>;

    /// Makes the file `len` bytes long with zeros written (not just allocated) from its old end, durably, so that a
    /// later overwrite changes no metadata.
    ///
    /// # Errors
    /// `OutOfSpace`; I/O.
    fn zero_extend(&self, len: u64) -> Result<()>;

    /// The same beside commits: writes a little at a time, and calls `rest` after each with the time that it took, so that the caller
    /// leaves the device to others as long as it likes. A storage that has nothing to write need not call it.
    ///
    /// # Errors
    /// As [`File::zero_extend`].
    fn zero_extend_paced(&self, len: u64, rest: &mut dyn FnMut(Duration)) -> Result<()> {
        let _ = rest;
        self.zero_extend(len)
    }

    /// Has the storage set space aside for the bytes `from..to`, so that a later write there cannot meet a full disk, and makes
    /// the file at least `to` bytes long. Bytes that are there stay; those that never were written read as zero. Nothing of
    /// `from..to` behind the old end is durable before a flush. After a failure the file is as long as before.
    ///
    /// # Errors
    /// `OutOfSpace`; I/O.
    fn reserve(&self, from: u64, to: u64) -> Result<()>;

    /// Cuts or extends the file (extended bytes read as zero, and no space is set aside for them).
    ///
    /// # Errors
    /// I/O.
    fn set_len(&self, len: u64) -> Result<()>;

    /// Keeps the file for this handle alone until it is dropped *and* no write through it is in flight any more; waits a few
    /// seconds for the writes of an owner that was killed. So a write of an earlier owner never arrives after this returned.
    ///
    /// # Errors
    /// `Busy`; I/O.
    fn claim(&self) -> Result<()> {
        Ok(())
    }

    /// Locks the file for this handle, until it is dropped or the process ends, however it does; false if another handle, of this or
    /// another process, has it locked. The lock keeps nobody from reading or writing, and has nothing to do with
    /// [`File::claim`], which is for another file. Lock, reads and writes of one thread are seen by others in their order.
    ///
    /// # Errors
    /// I/O.
    fn try_lock(&self) -> Result<bool>;

    /// Whether another handle has the file locked. May for a moment keep others from locking it.
    ///
    /// # Errors
    /// I/O.
    fn is_locked(&self) -> Result<bool>;

    /// Ends [`File::claim`] before the handle is dropped. The caller has no write in flight, and will write no more.
    fn unclaim(&self) {}

    /// Writes go past the page cache: on a device whose cache is durable they need no flush.
    fn is_direct(&self) -> bool {
        false
    }

    /// The descriptor, for the queue of the same storage. Not to be used above this module.
    #[doc(hidden)]
    fn descriptor(&self) -> Option<std::os::fd::RawFd> {
        None
    }
}

/// One of the reads of [`File::read_many`].
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// Where from.
    pub offset: u64,
    /// Filled, if the result is `Ok`.
    pub buffer: &'a mut [u8],
    /// As of [`File::read_at`].
    pub result: Result<()>,
}

/// A write for a [`WriteQueue`]. The buffer comes back with the completion.
#[derive(Debug)]
pub struct WriteRequest {
    /// Where to.
    pub file: Arc<dyn File>,
    /// Byte offset, a multiple of [`SECTOR_BYTES`](super::SECTOR_BYTES).
    pub offset: u64,
    /// The bytes; the first `len` of them are written.
    pub buffer: AlignedBuffer,
    /// A multiple of [`SECTOR_BYTES`](super::SECTOR_BYTES).
    pub len: usize,
    /// Durable at completion, by the storage's method; otherwise only visible.
    pub durable: bool,
    /// The caller's name for it.
    pub token: u64,
}

/// A finished write.
#[derive(Debug)]
pub struct Completion {
    /// From the request.
    pub token: u64,
    /// The request's buffer.
    pub buffer: AlignedBuffer,
    /// `Ok` if all bytes were written (and are durable, if that was asked for).
    pub result: Result<()>,
}

/// Writes in flight, without a thread that waits for each. Completions come in any order.
///
/// Dropping a queue waits for everything in flight: the kernel may still read the buffers.
pub trait WriteQueue: Send {
    /// Starts a write. Blocks only if `depth` writes are in flight already.
    ///
    /// # Errors
    /// I/O, when nothing could be started; the request is then dropped.
    fn submit(&mut self, request: WriteRequest) -> Result<()>;

    /// Adds finished writes to `done`; with `wait` blocks until there is at least one, if any is in flight.
    ///
    /// # Errors
    /// I/O of the queue itself; results of writes are in the completions.
    fn reap(&mut self, wait: bool, done: &mut Vec<Completion>) -> Result<()>;

    /// Writes in flight.
    fn in_flight(&self) -> usize;
}
