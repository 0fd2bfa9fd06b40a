//! The traits through which the engine uses a device, and the requests of their queues.

use super::buckets::BucketStatistics;
use super::buffer::{AlignedBuffer, SECTOR_BYTES};
use super::durability_method::DurabilityMethod;
use super::facts::DeviceFacts;
use super::mapped::{self, MapOptions, MappedMemory};
use super::monitor::MonitorSocket;
use super::requests::ObjectRequests;
use crate::base::{Account, Location, Result, SegmentId};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How a file is going to be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenMode {
    /// Create a missing file.
    pub create: bool,
    /// Refuse writes.
    pub read_only: bool,
    /// Bypass the page cache where the storage can: offsets, lengths and buffers are then multiples
    /// of [`SECTOR_BYTES`]. Callers obey that on every storage.
    pub direct: bool,
}

/// The kind of an entry of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryKind {
    /// An ordinary file.
    File,
    /// A symbolic link to an ordinary file.
    Link,
    /// A directory, or a symbolic link to one.
    Directory,
    /// A socket, a device, a link to nothing.
    Other,
}

/// What holds one database: its parts, by what they are for, and the device below them.
pub trait Storage: Roles + Send + Sync + std::fmt::Debug {
    /// Takes the database's lock, until the returned value is dropped: exclusive for a writer,
    /// shared for readers.
    ///
    /// # Errors
    /// `Busy` if another process (or another handle of this one) holds it.
    fn lock(&self, exclusive: bool) -> Result<Box<dyn Send + Sync>>;

    /// Notes, for the next holder of the exclusive lock, that all writes to the manifest are
    /// durable. The caller has the lock, and writes to the manifest no more. If the note cannot be
    /// made or is lost, nothing is wrong.
    fn note_durable(&self) {}

    /// Returns whether the previous holder of the exclusive lock, which the caller has, made such a
    /// note, and nothing was written to the manifest since.
    fn is_noted_durable(&self) -> bool {
        false
    }

    /// Notes a number for processes that follow the log, until there is another holder of the
    /// exclusive lock, which the caller has. If the note cannot be made, nothing is wrong.
    fn note_epoch(&self, epoch: u32) {
        let _ = epoch;
    }

    /// Returns the number that the newest holder of the exclusive lock has noted. `None` if the
    /// holder has noted none, or has left. A next holder removes the note before it does anything
    /// else.
    ///
    /// # Errors
    /// I/O.
    fn noted_epoch(&self) -> Result<Option<u32>> {
        Ok(None)
    }

    /// Returns what is known of the device.
    fn facts(&self) -> DeviceFacts;

    /// Returns how `write_durable_at` makes bytes durable.
    fn durability(&self) -> DurabilityMethod;

    /// Returns a queue of at most `depth` writes in flight, for one user at a time. If resources
    /// for a queue are short, the queue performs each write while it is submitted.
    ///
    /// # Errors
    /// I/O.
    fn write_queue(&self, depth: usize) -> Result<Box<dyn WriteQueue>>;

    /// Returns a queue as [`Storage::write_queue`] does, for a few durable writes beside threads
    /// that compute.
    ///
    /// # Errors
    /// I/O.
    fn durable_queue(&self, depth: usize) -> Result<Box<dyn WriteQueue>> {
        self.write_queue(depth)
    }

    /// Returns whether [`Storage::flush_together`] is one flush for any number of segments.
    fn shares_flush(&self) -> bool {
        false
    }

    /// Makes the completed writes to segments durable.
    ///
    /// # Errors
    /// I/O; then none of these writes counts as durable.
    fn flush_together(&self, files: &[Arc<dyn File>]) -> Result<()> {
        files.iter().try_for_each(|file| file.flush())
    }

    /// Returns the path of the built-in mapped memory of a storage without a directory.
    fn own_memory(&self) -> Option<PathBuf> {
        None
    }

    /// Returns the requests to the store of objects that holds the database; `None` if none does.
    fn requests(&self) -> Option<ObjectRequests> {
        None
    }

    /// Returns what is known of the buckets of a database in several; none of any other.
    fn buckets(&self) -> Vec<BucketStatistics> {
        Vec::new()
    }

    /// Charges what the storage has in memory to `account` from now on, and lets it have a part of
    /// `memory_bytes`. To be called after [`Storage::lock`].
    fn charge_to(&self, account: &Arc<Account>, memory_bytes: u64) {
        let _ = (account, memory_bytes);
    }

    /// Returns how readers beside a writer keep what they read; `None` if they lock files.
    fn pins(&self) -> Option<&dyn Pins> {
        None
    }

    /// Returns the log for a reader beside the process that writes it. `None` if the storage cannot
    /// be followed.
    fn followed_log(&self) -> Option<Box<dyn FollowedLog>> {
        None
    }

    /// Leaves out what precedes these positions, of segments of earlier writers that are opened
    /// from now on. A storage that cannot be followed does nothing.
    fn leave_out(&self, read: &[LogPosition]) {
        let _ = read;
    }

    /// Removes the pin that keeps this view, before the view is dropped. Reads of the view fail
    /// from then on, as soon as something that they need is gone.
    fn end_pin(&self) {}

    /// Listens on a socket in the directory, whose lock the caller has. `None` without a real
    /// directory.
    ///
    /// # Errors
    /// I/O.
    fn monitor(&self) -> Result<Option<MonitorSocket>> {
        Ok(None)
    }

    /// Maps persistent memory at a path of the machine, outside the database directory.
    ///
    /// # Errors
    /// As [`mapped::map_file`].
    fn map_memory(&self, path: &Path, options: MapOptions) -> Result<Arc<dyn MappedMemory>> {
        mapped::map_file(path, options)
    }
}

/// The parts of a database, by what they are for.
pub trait Roles {
    /// Opens the manifest, or with `create` makes one.
    ///
    /// # Errors
    /// `NotFound` without `create`; I/O.
    fn manifest(&self, mode: OpenMode) -> Result<ManifestStore>;

    /// Returns the segments of the log.
    fn segments(&self) -> &dyn Segments;

    /// Opens the pages, or with `create` makes a place for them.
    ///
    /// # Errors
    /// `NotFound` without `create`; I/O.
    fn pages(&self, mode: OpenMode) -> Result<Arc<dyn File>>;

    /// Opens a small file that says something of the whole, or with `create` makes one: the
    /// description of a backup, the mark of a restore.
    ///
    /// # Errors
    /// `NotFound` without `create`; I/O.
    fn small_file(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>>;

    /// Removes a small file; a missing one is not an error.
    ///
    /// # Errors
    /// I/O.
    fn remove_small_file(&self, name: &str) -> Result<()>;

    /// Returns the names of the manifest and of the small files that are there, sorted. In a
    /// directory these are all entries, so that a foreign directory can be refused.
    ///
    /// # Errors
    /// I/O.
    fn names(&self) -> Result<Vec<String>>;

    /// Makes creations and removals durable.
    ///
    /// # Errors
    /// I/O; not to be retried and believed.
    fn flush_names(&self, of: Names) -> Result<()>;

    /// Returns the directory that has the parts as files; `None` of a store of objects.
    fn directory(&self) -> Option<&dyn Directory>;
}

/// Which names [`Roles::flush_names`] makes durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Names {
    /// The manifest, the small files, and what holds segments and pages.
    Root,
    /// The segments.
    Segments,
    /// The file of pages.
    Pages,
}

/// How a storage keeps the manifest.
#[derive(Clone, Debug)]
pub enum ManifestStore {
    /// In a file, whose user makes sure that it is never half of a manifest.
    File(Arc<dyn File>),
    /// In a register.
    Register(Arc<dyn Register>),
}

impl ManifestStore {
    /// Returns the place of its first byte, for error messages.
    #[must_use]
    pub fn location(&self) -> Location {
        match self {
            ManifestStore::File(file) => file.location(0),
            ManifestStore::Register(register) => register.location(),
        }
    }
}

/// A few bytes that are replaced in one step, durably.
pub trait Register: Send + Sync + std::fmt::Debug {
    /// Returns its place, for error messages.
    fn location(&self) -> Location;

    /// Returns what was put last.
    ///
    /// # Errors
    /// I/O.
    fn read(&self) -> Result<Vec<u8>>;

    /// Replaces the content.
    ///
    /// # Errors
    /// `Io` if nothing was replaced, and never will be; others say nothing about the content.
    fn replace(&self, bytes: &[u8]) -> Result<()>;
}

/// The segments of the log.
pub trait Segments {
    /// Makes a place for segments; an existing one is not an error.
    ///
    /// # Errors
    /// I/O.
    fn prepare(&self) -> Result<()>;

    /// Returns the numbers of all segments.
    ///
    /// # Errors
    /// `Corruption` for a number that no segment gets; I/O.
    fn list(&self) -> Result<Vec<SegmentId>>;

    /// Opens a segment.
    ///
    /// # Errors
    /// `NotFound`; I/O.
    fn open(&self, id: SegmentId, mode: OpenMode) -> Result<Arc<dyn File>>;

    /// Creates a segment, for direct I/O, which must not exist. A storage that no other program
    /// writes to need not check that.
    ///
    /// # Errors
    /// `AlreadyExists` for anything of this name, which stays as it is; I/O.
    fn create(&self, id: SegmentId) -> Result<Arc<dyn File>>;

    /// Removes a segment; a missing one is not an error.
    ///
    /// # Errors
    /// I/O.
    fn remove(&self, id: SegmentId) -> Result<()>;
}

/// A directory that holds one database: see `directory` for its files. Paths are relative, with
/// `/`, of at most two parts (`log/000001.seg`).
pub trait Directory: Storage {
    /// Opens or creates a file. A created file's existence is durable after
    /// [`Directory::flush_directory`].
    ///
    /// # Errors
    /// `NotFound` without `create`; I/O.
    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>>;

    /// Creates a file, for direct I/O, which must not exist. A directory that no other program
    /// writes to need not check that.
    ///
    /// # Errors
    /// `AlreadyExists` for anything of this name, which stays as it is; I/O.
    fn create_new(&self, path: &str) -> Result<Arc<dyn File>> {
        self.open(path, OpenMode { create: true, read_only: false, direct: true })
    }

    /// Removes a file; a missing one is not an error.
    ///
    /// # Errors
    /// I/O.
    fn remove(&self, path: &str) -> Result<()>;

    /// Returns names (not paths) and kinds of all entries of `directory` (`""` is the root), sorted
    /// by name. A missing directory is empty. A storage without subdirectories has files only.
    ///
    /// # Errors
    /// I/O.
    fn entries(&self, directory: &str) -> Result<Vec<(String, EntryKind)>>;

    /// Returns the names of the files in `directory`, sorted; in the root of all entries.
    ///
    /// # Errors
    /// I/O.
    fn list(&self, directory: &str) -> Result<Vec<String>> {
        let mut entries = self.entries(directory)?;
        entries.retain(|(_, kind)| directory.is_empty() || *kind == EntryKind::File);
        Ok(entries.into_iter().map(|(name, _)| name).collect())
    }

    /// Creates a directory; an existing one is not an error.
    ///
    /// # Errors
    /// I/O.
    fn create_directory(&self, path: &str) -> Result<()>;

    /// Removes an empty directory. Storages without subdirectories do nothing.
    ///
    /// # Errors
    /// I/O.
    fn remove_directory(&self, _path: &str) -> Result<()> {
        Ok(())
    }

    /// Returns the path of the real directory, if it is one.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Makes creations and removals in `directory` durable.
    ///
    /// # Errors
    /// I/O; not to be retried and believed.
    fn flush_directory(&self, directory: &str) -> Result<()>;
}

/// A pin: it keeps the content of one moment for a reader, while a writer continues.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Pin {
    /// Its name, which no other pin ever has.
    pub name: String,
    /// The process that made it, for people.
    pub owner: String,
    /// When it ends, in seconds since 1970.
    pub expires: u64,
}

/// The pins of a storage whose readers are on other machines.
pub trait Pins: Send + Sync {
    /// Returns a view of the newest durable content. It stays as it is until the view and its files
    /// are dropped.
    ///
    /// # Errors
    /// `NotFound` if there is no database; `Busy` if the writer is too fast for a pin; I/O.
    fn hold(&self) -> Result<Arc<dyn Storage>>;

    /// Returns whether another process has written since the lock for reading was taken, which
    /// keeps none out. Then what was read may be of different moments.
    ///
    /// # Errors
    /// I/O.
    fn has_changed(&self) -> Result<bool>;

    /// Returns the pins of all readers.
    ///
    /// # Errors
    /// I/O.
    fn list_pins(&self) -> Result<Vec<Pin>>;

    /// Removes a pin. A reader that still needs it fails from now on.
    ///
    /// # Errors
    /// `NotFound` if there is no pin of this name; I/O.
    fn remove_pin(&self, name: &str) -> Result<()>;
}

/// How far a part of a log was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogPosition {
    /// The name of the part.
    pub part: String,
    /// What precedes it was read, in a unit of the storage.
    pub at: u64,
}

/// Bytes of a log that a reader has not seen before: whole blocks, and nothing else that counts.
#[derive(Debug)]
pub struct NewBytes {
    /// The segment that the bytes belong to.
    pub segment: SegmentId,
    /// The position behind the bytes.
    pub position: LogPosition,
    /// The bytes, from offset 0 to its end. They stay as they are for as long as the segment
    /// exists; then a read fails with `NotFound`.
    pub file: Arc<dyn File>,
}

/// The log of a database that another process writes. Everything that it returns is durable, and
/// every later recovery finds it, until a checkpoint covers it.
pub trait FollowedLog: Send + std::fmt::Debug {
    /// Reads the manifest again, with the list of segments. Returns its content.
    ///
    /// # Errors
    /// `NotFound` if there is no database any more; `InvalidArgument` if another one has taken its
    /// place; I/O.
    fn read_manifest(&mut self) -> Result<Vec<u8>>;

    /// Returns what was written since the last call to the segments of the last manifest. With
    /// `all` looks at all of them, otherwise only where something came lately, or where nothing was
    /// ever written.
    ///
    /// # Errors
    /// I/O: then nothing is forgotten, and the next call returns what this one did not.
    fn poll(&mut self, all: bool) -> Result<Vec<NewBytes>>;
}

/// Takes the result of a write, from any thread.
pub type WriteEnded = Box<dyn FnOnce(Result<()>) + Send>;

/// Called with each completed read and its index.
pub type ReadDone<'d> = dyn FnMut(usize, &mut ReadRequest<'_>) + 'd;

/// One file. All methods may be called from many threads.
#[allow(clippy::len_without_is_empty)]
pub trait File: Send + Sync + std::fmt::Debug {
    /// Returns the place of byte `offset`, for error messages.
    fn location(&self, offset: u64) -> Location;

    /// Length in bytes.
    ///
    /// # Errors
    /// I/O.
    fn len(&self) -> Result<u64>;

    /// Returns what is written so far, of a file that is in several places while it is written: a
    /// file for each place, whose bytes keep their offsets when more is written. `None` if the
    /// offsets of the file itself do not change.
    fn written_parts(&self) -> Option<Vec<Arc<dyn File>>> {
        None
    }

    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// `Corruption` if the file ends before; I/O.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// Performs several reads, as many at a time as the storage can, and stores the result in each.
    /// Calls `done` with each completed read and its index, in any order, while other reads are in
    /// flight.
    fn read_many(&self, reads: &mut [ReadRequest<'_>], done: &mut ReadDone<'_>) {
        for (index, read) in reads.iter_mut().enumerate() {
            read.result = self.read_at(read.offset, read.buffer);
            done(index, read);
        }
    }

    /// Starts to read `ranges` and returns at once. The bytes take memory until they are taken or
    /// dropped. `None` if the storage starts no reads before they are needed.
    fn read_ahead(&self, ranges: &[Range<u64>]) -> Option<Box<dyn ReadAhead>> {
        let _ = ranges;
        None
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

    /// Writes all of `bytes`, and calls `done` when they are durable, or with the error. The bytes
    /// are copied before this returns. A file that performs writes itself calls `done` before it
    /// returns.
    fn write_then(&self, offset: u64, bytes: &[u8], done: WriteEnded) {
        done(self.write_durable_at(offset, bytes));
    }

    /// No write will come any more; each that came has completed, or its caller has given up. A
    /// storage may then end the file for good, in a thread of its own. This returns at once.
    fn end_writes(&self) {}

    /// Returns whether an error of kind [`Io`](crate::base::ErrorKind::Io) of a write says that
    /// nothing was written, and never will be, and of a flush, that the bytes are still known and
    /// the next flush may make them durable. Of other files, an error says nothing about the bytes.
    fn knows_outcome(&self) -> bool {
        false
    }

    /// Makes every write that completed before this call durable, the file's length included.
    ///
    /// # Errors
    /// I/O: then no completed write that was not yet durable counts as durable.
    fn flush(&self) -> Result<()>;

    /// Makes the file `len` bytes long with zeros written (not just allocated) from its old end,
    /// durably, so that a later overwrite changes no metadata. The writes are small, beside
    /// commits; calls `rest` after each with the time that it took, so that the caller can pause. A
    /// storage without writes need not call it.
    ///
    /// # Errors
    /// `OutOfSpace`; I/O.
    fn zero_extend(&self, len: u64, rest: &mut dyn FnMut(Duration)) -> Result<()>;

    /// Reserves space for the bytes `from..to`, so that a later write there cannot fail on a full
    /// disk, and makes the file at least `to` bytes long. Existing bytes stay; new bytes read as
    /// zero and are durable after a flush. After a failure the file has its old length.
    ///
    /// # Errors
    /// `OutOfSpace`; I/O.
    fn reserve(&self, from: u64, to: u64) -> Result<()> {
        let _ = from;
        self.zero_extend(to, &mut |_| ())
    }

    /// The bytes `from..to` are not needed any more: until they are written again, a read may
    /// return anything. Not durable by itself. Lets a storage free space.
    ///
    /// # Errors
    /// I/O.
    fn discard(&self, from: u64, to: u64) -> Result<()> {
        let _ = (from, to);
        Ok(())
    }

    /// Cuts or extends the file (extended bytes read as zero, and no space is set aside for them).
    ///
    /// # Errors
    /// I/O.
    fn set_len(&self, len: u64) -> Result<()>;

    /// Claims the file for this handle until the handle is dropped *and* none of its writes is in
    /// flight. Waits a few seconds for the writes of a killed owner, so that no earlier owner
    /// writes after this returned.
    ///
    /// # Errors
    /// `Busy`; I/O.
    fn claim(&self) -> Result<()> {
        Ok(())
    }

    /// Locks the file until the handle is dropped or the process ends. Returns false if another
    /// handle, of this or another process, has the lock. The lock is advisory and independent of
    /// [`File::claim`]. Other processes see the lock, reads and writes of one thread in their
    /// order. Only files of a [`Directory`] can be locked.
    ///
    /// # Errors
    /// I/O.
    fn try_lock(&self) -> Result<bool> {
        Ok(true)
    }

    /// Returns whether another handle has the file locked. May briefly block other attempts to
    /// lock.
    ///
    /// # Errors
    /// I/O.
    fn is_locked(&self) -> Result<bool> {
        Ok(false)
    }

    /// Ends [`File::claim`] before the handle is dropped. The caller has no write in flight and
    /// writes no more.
    fn unclaim(&self) {}

    /// Returns whether writes bypass the page cache: then a durable device cache makes flushes
    /// unnecessary.
    fn is_direct(&self) -> bool {
        false
    }

    /// Returns the descriptor, for the queue of the same storage only.
    #[doc(hidden)]
    fn descriptor(&self) -> Option<std::os::fd::RawFd> {
        None
    }
}

/// Reads that [`File::read_ahead`] has started.
pub trait ReadAhead: Send + std::fmt::Debug {
    /// Fills `buffer` with the next bytes of the ranges, which stand one behind the other.
    ///
    /// # Errors
    /// As [`File::read_at`]. Then the other bytes are not to be taken any more.
    fn read(&mut self, buffer: &mut [u8]) -> Result<()>;
}

/// One of the reads of [`File::read_many`].
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// Byte offset.
    pub offset: u64,
    /// Filled if the result is `Ok`.
    pub buffer: &'a mut [u8],
    /// The result, as of [`File::read_at`].
    pub result: Result<()>,
}

/// A write for a [`WriteQueue`]. The buffer comes back with the completion.
#[derive(Debug)]
pub struct WriteRequest {
    /// The file.
    pub file: Arc<dyn File>,
    /// Byte offset, a multiple of [`SECTOR_BYTES`].
    pub offset: u64,
    /// The bytes; the first `len` of them are written.
    pub buffer: AlignedBuffer,
    /// A multiple of [`SECTOR_BYTES`].
    pub len: usize,
    /// Durable at completion, by the storage's method; otherwise only visible.
    pub durable: bool,
    /// A number that the caller chooses.
    pub token: u64,
}

impl WriteRequest {
    /// Returns whether it writes whole sectors from its buffer.
    pub(super) fn is_sound(&self) -> bool {
        let are_sectors =
            self.offset.is_multiple_of(SECTOR_BYTES as u64) && self.len.is_multiple_of(SECTOR_BYTES);
        are_sectors && self.len > 0 && self.len <= self.buffer.len()
    }
}

/// A finished write.
#[derive(Debug)]
pub struct Completion {
    /// From the request.
    pub token: u64,
    /// The request's buffer.
    pub buffer: AlignedBuffer,
    /// `Ok` if all bytes were written, and are durable if requested.
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

    /// Adds finished writes to `done`; with `wait` blocks until there is at least one, if any is in
    /// flight.
    ///
    /// # Errors
    /// I/O of the queue itself; results of writes are in the completions.
    fn reap(&mut self, wait: bool, done: &mut Vec<Completion>) -> Result<()>;

    /// Writes in flight.
    fn in_flight(&self) -> usize;
}
