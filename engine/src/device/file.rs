//! A database in a real directory.
//!
//! Log and page files are opened with `O_DIRECT`, so that a completed write is in the device and
//! not in the page cache; durable writes carry `RWF_DSYNC`. If the file system refuses either, the
//! engine does without, and the [`DeviceFacts`] give the reason.

use super::blocking_queue::BlockingQueue;
use super::buffer::AlignedBuffer;
use super::descriptors;
use super::direct_probe::{is_direct, probe_direct};
use super::directory::{MANIFEST_PATH, PAGES_DIRECTORY};
use super::directory_lock::{DirectoryLock, LOCK_PATH, epoch_of, holder_note, leave_note, note_of};
use super::durability_method::DurabilityMethod;
use super::facts::{self, DeviceFacts};
use super::file_system;
use super::monitor::{MONITOR_PATH, MonitorSocket};
use super::segment_names::LOG_DIRECTORY;
use super::storage::{Directory, EntryKind, File, OpenMode, ReadDone, ReadRequest, Storage, WriteQueue};
use super::thread_queue::ThreadQueue;
use super::uring::UringQueue;
use super::uring_read::ManyReads;
use crate::base::planted::{self, Bug};
use crate::base::settings::DeviceTrust;
use crate::base::{Error, ErrorKind, Location, Result};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, NotInherited, Process};
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Bytes of zeros in one write when space is reserved.
const ZERO_CHUNK_BYTES: usize = 1 << 20;
/// Bytes of zeros in one write beside commits: a commit's write waits for less than its own time.
const SMALL_ZERO_CHUNK_BYTES: usize = 64 << 10;

/// Directories in the database's. Each may be a mount point, or a link to a directory of another
/// disk.
const PARTS: [&str; 2] = [LOG_DIRECTORY, PAGES_DIRECTORY];

/// See the module's text.
#[derive(Debug)]
pub struct FileStorage {
    directory: PathBuf,
    /// All but direct I/O, which is probed at its first use: by then the open has checked
    /// whether the directory is a database's.
    facts: DeviceFacts,
    direct_io: OnceLock<std::result::Result<(), String>>,
    /// Why a file is written through the page cache although direct I/O works in the directory: a
    /// part of it is elsewhere.
    buffered: OnceLock<String>,
    /// A ring could not be made since.
    ring_refused: AtomicBool,
    create: bool,
    /// The content of the lock file, when the lock was taken.
    note_found: Mutex<Vec<u8>>,
    /// The method that suits the file system.
    method: DurabilityMethod,
    /// RWF_DSYNC was refused: flush after the write instead.
    dsync_refused: Arc<AtomicBool>,
}

impl FileStorage {
    /// Opens `directory`; with `create`, makes it (and its parents) if it is missing.
    ///
    /// # Errors
    /// `NotFound` without `create`; `InvalidArgument` if it is a file; I/O.
    pub fn open(directory: &Path, trust: DeviceTrust, io_uring: bool, create: bool) -> Result<FileStorage> {
        descriptors::take_standard();
        if create && !directory.exists() {
            create_durably(directory)
                .map_err(|e| Error::io(format!("cannot create the directory {}", directory.display()), e))?;
        }
        let metadata = std::fs::metadata(directory)
            .map_err(|e| Error::io(format!("cannot open the directory {}", directory.display()), e))?;
        if !metadata.is_dir() {
            return Err(Error::invalid(format!("{} is not a directory", directory.display())));
        }
        let directory = directory
            .canonicalize()
            .map_err(|e| Error::io(format!("cannot open the directory {}", directory.display()), e))?;
        let mut facts = facts::of_database(&directory, &PARTS, trust);
        facts.io_uring = if io_uring { super::uring::available() } else { Err("switched off".into()) };
        let log = directory.join(PARTS[0]);
        let log = if log.exists() { &log } else { &directory };
        let method = file_system::durability_method(log, facts.volatile_cache);
        Ok(FileStorage {
            directory,
            facts,
            direct_io: OnceLock::new(),
            buffered: OnceLock::new(),
            ring_refused: AtomicBool::new(false),
            create,
            note_found: Mutex::default(),
            method,
            dsync_refused: Arc::new(AtomicBool::new(false)),
        })
    }

    fn direct_io(&self) -> &std::result::Result<(), String> {
        self.direct_io.get_or_init(|| probe_direct(&self.directory, self.create))
    }

    fn path_of(&self, path: &str) -> PathBuf {
        self.directory.join(path)
    }

    /// A ring takes a descriptor and memory, which may be short for a while: then the writes are
    /// done one by one, and nothing fails.
    fn queue_of(&self, ring: Result<UringQueue>) -> Box<dyn WriteQueue> {
        match ring {
            Ok(queue) => Box::new(queue),
            Err(error) => {
                if !self.ring_refused.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "writes are done one by one");
                }
                Box::new(BlockingQueue::new())
            }
        }
    }

    fn error(&self, what: &str, path: &str, error: std::io::Error) -> Error {
        if error.kind() == std::io::ErrorKind::NotFound && !self.directory.exists() {
            let what =
                format!("cannot {what}: the directory was moved or removed while the database is open");
            let error = Error::io(what, error).with_kind(ErrorKind::Io).at(self.location(path));
            return error
                .with_advice("put the directory back, or close the database and open it where it is now");
        }
        let hint = match error.kind() {
            std::io::ErrorKind::PermissionDenied => describe_access(&self.path_of(path)),
            _ => String::new(),
        };
        Error::io(format!("cannot {what}{hint}"), error).at(self.location(path))
    }

    fn location(&self, path: &str) -> Location {
        Location::File { path: self.path_of(path).display().to_string(), offset: 0 }
    }
}

/// Returns the user of this process, and owner and mode of a file to which access was refused, or
/// of the innermost directory of its path that can be looked at.
fn describe_access(path: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    let user = rustix::process::geteuid().as_raw();
    let seen = path.ancestors().find_map(|path| Some((path.display(), path.metadata().ok()?)));
    let owned = seen.map_or(String::new(), |(path, metadata)| {
        format!("; {path} has the owner {} and the mode {:o}", metadata.uid(), metadata.mode() & 0o7777)
    });
    format!(" (this process has the uid {user}{owned})")
}

/// Makes a directory and its missing parents, so that a power cut does not take them away.
fn create_durably(directory: &Path) -> std::io::Result<()> {
    let missing: Vec<&Path> = directory.ancestors().take_while(|path| !path.exists()).collect();
    std::fs::create_dir_all(directory)?;
    for made in missing {
        let parent = made.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
        descriptors::open_to_read(parent)?.sync_all()?;
    }
    Ok(())
}

impl FileStorage {
    /// Opens a file with `O_DIRECT`, if it works and is wanted.
    fn open_with(&self, path: &str, flags: OFlags, direct: bool) -> Result<Arc<dyn File>> {
        let direct = direct && self.direct_io().is_ok();
        let open = |flags| descriptors::open(&self.path_of(path), flags, Mode::from_raw_mode(0o644));
        let opened = match direct {
            true => open(flags | OFlags::DIRECT).and_then(is_direct).map(|fd| (fd, true)),
            false => Err(Errno::INVAL),
        };
        let (fd, direct) = opened
            .or_else(|why| {
                if why == Errno::EXIST {
                    return Err(why);
                }
                // A new file is there if the file system refused `O_DIRECT` after it made the file.
                let may_be_made = direct && flags.contains(OFlags::EXCL);
                let fd = open(if may_be_made { (flags - OFlags::EXCL) | OFlags::NOFOLLOW } else { flags })?;
                if direct {
                    let _ = self.buffered.set(format!("{path} could not be opened with O_DIRECT: {why}"));
                }
                Ok((fd, false))
            })
            .map_err(|error: Errno| match error {
                Errno::EXIST => {
                    self.error("create a file", path, error.into()).with_kind(ErrorKind::AlreadyExists)
                }
                error => self.error("open a file", path, error.into()),
            })?;
        Ok(Arc::new(RealFile {
            not_inherited: OnceLock::new(),
            process: Process::current(),
            fd,
            path: path.to_string(),
            direct,
            failed: Mutex::new(false),
            method: self.method,
            dsync_refused: self.dsync_refused.clone(),
            many: self.facts.io_uring.is_ok().then(ManyReads::default),
        }))
    }
}

impl Directory for FileStorage {
    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        let access = if mode.read_only { OFlags::RDONLY } else { OFlags::RDWR };
        let create = if mode.create { OFlags::CREATE } else { OFlags::empty() };
        self.open_with(path, access | create, mode.direct)
    }

    fn create_new(&self, path: &str) -> Result<Arc<dyn File>> {
        self.open_with(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, true)
    }

    fn remove(&self, path: &str) -> Result<()> {
        match std::fs::remove_file(self.path_of(path)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(self.error("remove a file", path, e)),
            _ => Ok(()),
        }
    }

    fn entries(&self, directory: &str) -> Result<Vec<(String, EntryKind)>> {
        let failed = |error| self.error("list a directory", directory, error);
        descriptors::take_standard();
        let entries = match std::fs::read_dir(self.path_of(directory)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(failed)?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            found.push((entry.file_name().to_string_lossy().into_owned(), kind_of(&entry).map_err(failed)?));
        }
        found.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(found)
    }

    fn create_directory(&self, path: &str) -> Result<()> {
        match std::fs::create_dir(self.path_of(path)) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(self.error("create a directory", path, e))
            }
            _ => Ok(()),
        }
    }

    fn remove_directory(&self, path: &str) -> Result<()> {
        match std::fs::remove_dir(self.path_of(path)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(self.error("remove a directory", path, e))
            }
            _ => Ok(()),
        }
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.directory)
    }

    fn flush_directory(&self, directory: &str) -> Result<()> {
        descriptors::open_to_read(&self.path_of(directory))
            .and_then(|file| file.sync_all())
            .map_err(|e| self.error("flush a directory", directory, e))
    }
}

impl Storage for FileStorage {
    fn lock(&self, exclusive: bool) -> Result<Box<dyn Send + Sync>> {
        let lock = DirectoryLock::take(&self.directory, exclusive)?;
        (*self.note_found.lock()).clone_from(&lock.found);
        Ok(Box::new(lock))
    }

    fn note_durable(&self) {
        let noted = note_of(&self.path_of(MANIFEST_PATH)).and_then(|note| leave_note(&self.directory, &note));
        if let Err(error) = noted {
            tracing::debug!(%error, "the next open writes the manifest again");
        }
    }

    fn is_noted_durable(&self) -> bool {
        let found = self.note_found.lock();
        note_of(&self.path_of(MANIFEST_PATH))
            .is_ok_and(|note| found.as_slice() == format!("{note}\n").as_bytes())
    }

    fn note_epoch(&self, epoch: u32) {
        let note = holder_note(std::process::id(), epoch);
        if let Err(error) = leave_note(&self.directory, &note) {
            tracing::debug!(%error, "other processes cannot follow the log");
        }
    }

    fn noted_epoch(&self) -> Result<Option<u32>> {
        let read = std::fs::read(self.path_of(LOCK_PATH));
        match read {
            Ok(content) => Ok(epoch_of(&content)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.error("read a file", LOCK_PATH, error)),
        }
    }

    fn monitor(&self) -> Result<Option<MonitorSocket>> {
        let bound = MonitorSocket::bind(&self.directory);
        bound.map(Some).map_err(|e| self.error("listen on a socket", MONITOR_PATH, e))
    }

    fn facts(&self) -> DeviceFacts {
        let refused = self.ring_refused.load(Ordering::Relaxed);
        let io_uring =
            if refused { Err("a ring could not be made".into()) } else { self.facts.io_uring.clone() };
        let buffered = self.buffered.get().map_or(Ok(()), |why| Err(why.clone()));
        DeviceFacts { direct_io: self.direct_io().clone().and(buffered), io_uring, ..self.facts.clone() }
    }

    fn durability(&self) -> DurabilityMethod {
        self.method
    }

    /// On ext4 a flush of any file empties the cache of the device, and a write over what is there
    /// changes nothing else. On XFS it may, if the file shares blocks with a copy.
    fn shares_flush(&self) -> bool {
        let known = file_system::magic(&self.path_of(LOG_DIRECTORY)) == file_system::EXT4_MAGIC;
        known && self.direct_io().is_ok() && self.durability() != DurabilityMethod::Plain
    }

    fn flush_together(&self, files: &[Arc<dyn File>]) -> Result<()> {
        // What one of them has in the page cache no flush of another brings to the device.
        let (direct, others): (Vec<_>, Vec<_>) = files.iter().partition(|file| file.is_direct());
        others.into_iter().chain(direct.into_iter().take(1)).try_for_each(|file| file.flush())
    }

    fn write_queue(&self, depth: usize) -> Result<Box<dyn WriteQueue>> {
        if self.facts.io_uring.is_ok() && !self.dsync_refused.load(Ordering::Relaxed) {
            return Ok(self.queue_of(UringQueue::new(depth, self.durability())));
        }
        Ok(Box::new(BlockingQueue::new()))
    }

    /// Where no flush follows, a write completes without a thread of the kernel.
    fn durable_queue(&self, depth: usize) -> Result<Box<dyn WriteQueue>> {
        match self.durability() {
            DurabilityMethod::Plain => self.write_queue(depth),
            _ => Ok(Box::new(ThreadQueue::new(depth))),
        }
    }
}

/// Returns the kind of an entry, which may be gone.
fn kind_of(entry: &std::fs::DirEntry) -> std::io::Result<EntryKind> {
    let is_link = entry.file_type()?.is_symlink();
    Ok(match std::fs::metadata(entry.path()) {
        Ok(metadata) if metadata.is_dir() => EntryKind::Directory,
        Ok(metadata) if metadata.is_file() && is_link => EntryKind::Link,
        Ok(metadata) if metadata.is_file() => EntryKind::File,
        Ok(_) | Err(_) => EntryKind::Other,
    })
}

/// One file of a real directory.
#[derive(Debug)]
struct RealFile {
    /// Set with the first lock: it ends with this process, whatever a forked child does.
    not_inherited: OnceLock<NotInherited>,
    process: Process,
    fd: OwnedFd,
    path: String,
    /// Writes go to the device, not to the page cache.
    direct: bool,
    /// A durable write through the page cache has failed: see [`RealFile::flush_cache`].
    failed: Mutex<bool>,
    method: DurabilityMethod,
    dsync_refused: Arc<AtomicBool>,
    /// `None` without io_uring.
    many: Option<ManyReads>,
}

impl RealFile {
    fn error(&self, what: &str, offset: u64, error: Errno) -> Error {
        Error::io(format!("cannot {what}"), error.into()).at(self.location(offset))
    }

    /// Refuses a change in a forked child. The calls of users are refused before; this is for user
    /// code that forks inside a call, and returns in both processes.
    fn check_process(&self) -> Result<()> {
        self.process.check().map_err(|forked| forked.at(self.location(0)))
    }

    /// Allocates `from..to`; false if the file system cannot do that.
    fn allocate(&self, flags: FallocateFlags, from: u64, to: u64) -> Result<bool> {
        self.check_process()?;
        loop {
            match rustix::fs::fallocate(&self.fd, flags, from, to - from) {
                Ok(()) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => return Ok(false),
                Err(error) => return Err(self.error("allocate space", from, error)),
            }
        }
    }

    /// False if another open file has a lock in the way.
    fn flock(&self, operation: FlockOperation) -> Result<bool> {
        loop {
            match rustix::fs::flock(&self.fd, operation) {
                Ok(()) => {
                    self.not_inherited.get_or_init(|| NotInherited::new(&self.fd));
                    return Ok(true);
                }
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => return Ok(false),
                Err(error) => return Err(self.error("lock the file", 0, error)),
            }
        }
    }

    /// Makes what was written through the page cache durable. Linux does not say
    /// which write an error belongs to: it reports the error to the first flush and then treats the
    /// lost bytes as clean. So flushes run one after the other, and after the first error all fail.
    fn flush_cache(&self) -> Result<()> {
        let mut failed = self.failed.lock();
        if *failed {
            let what = "an earlier durable write of the file failed, so this write may be lost";
            return Err(Error::new(ErrorKind::Io, what).at(self.location(0)));
        }
        let flushed = self.flush();
        *failed = flushed.is_err();
        flushed
    }

    fn write_zeros(
        &self,
        from: u64,
        to: u64,
        chunk_bytes: usize,
        rest: &mut dyn FnMut(Duration),
    ) -> Result<()> {
        let zeros = AlignedBuffer::zeroed(chunk_bytes);
        let mut offset = from;
        while offset < to {
            let begun = Instant::now();
            let count = (to - offset).min(zeros.len() as u64) as usize;
            self.write_at(offset, &zeros[..count])?;
            offset += count as u64;
            rest(begun.elapsed());
        }
        Ok(())
    }

    fn write_all(
        &self,
        mut offset: u64,
        mut bytes: &[u8],
        flags: ReadWriteFlags,
    ) -> Result<(), (u64, Errno)> {
        while !bytes.is_empty() {
            match rustix::io::pwritev2(&self.fd, &[IoSlice::new(bytes)], offset, flags) {
                Ok(0) => return Err((offset, Errno::IO)),
                Ok(_) if planted::is(Bug::ShortWriteIgnored) => return Ok(()),
                Ok(written) => {
                    bytes = &bytes[written..];
                    offset += written as u64;
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err((offset, error)),
            }
        }
        Ok(())
    }
}

/// How long the writes of a killed owner may take to end.
const CLAIM_WAIT: Duration = Duration::from_secs(5);
const CLAIM_STEP: Duration = Duration::from_millis(1);

impl File for RealFile {
    /// The lock belongs to the open file description, which every request of an io_uring that is in
    /// flight keeps alive: the kernel gives it up when the last of them has ended, however the
    /// process did.
    fn claim(&self) -> Result<()> {
        let begun = Instant::now();
        while !self.flock(FlockOperation::NonBlockingLockExclusive)? {
            if begun.elapsed() >= CLAIM_WAIT {
                let what = "another process has the file open, or writes of a killed process do not end";
                return Err(Error::new(ErrorKind::Busy, what).at(self.location(0)));
            }
            std::thread::sleep(CLAIM_STEP);
        }
        Ok(())
    }

    fn try_lock(&self) -> Result<bool> {
        self.flock(FlockOperation::NonBlockingLockExclusive)
    }

    fn is_locked(&self) -> Result<bool> {
        let free = self.flock(FlockOperation::NonBlockingLockShared)?;
        if free {
            self.flock(FlockOperation::Unlock)?;
        }
        Ok(!free)
    }

    fn unclaim(&self) {
        if let Err(error) = rustix::fs::flock(&self.fd, FlockOperation::Unlock) {
            tracing::debug!(%error, path = self.path, "the lock stays until the file is closed");
        }
    }

    fn location(&self, offset: u64) -> Location {
        Location::File { path: self.path.clone(), offset }
    }

    fn is_direct(&self) -> bool {
        self.direct
    }

    fn len(&self) -> Result<u64> {
        let stat = rustix::fs::fstat(&self.fd).map_err(|e| self.error("look at the file", 0, e))?;
        Ok(stat.st_size as u64)
    }

    fn read_at(&self, mut offset: u64, mut buffer: &mut [u8]) -> Result<()> {
        while !buffer.is_empty() {
            match rustix::io::pread(self.fd.as_fd(), &mut *buffer, offset) {
                Ok(0) => {
                    return Err(Error::corruption(format!(
                        "the file is truncated: {} bytes are missing",
                        buffer.len()
                    ))
                    .at(self.location(offset)));
                }
                Ok(read) => {
                    buffer = &mut buffer[read..];
                    offset += read as u64;
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(self.error("read", offset, error)),
            }
        }
        Ok(())
    }

    fn read_many(&self, reads: &mut [ReadRequest<'_>], done: &mut ReadDone<'_>) {
        // A forked child does not have the memory of the rings.
        let unread = match self.many.as_ref().filter(|_| !self.process.is_forked()) {
            Some(many) if reads.len() > 1 => many.read(self.fd.as_raw_fd(), reads, done),
            _ => (0..reads.len()).collect(),
        };
        for index in unread {
            let read = &mut reads[index];
            read.result = self.read_at(read.offset, read.buffer);
            done(index, read);
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check_process()?;
        self.write_all(offset, bytes, ReadWriteFlags::empty())
            .map_err(|(at, error)| self.error("write", at, error))
    }

    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check_process()?;
        if !self.direct {
            // Whatever is trusted about the device's cache says nothing about the page cache.
            self.write_at(offset, bytes)?;
            return self.flush_cache();
        }
        let method = self.method;
        if method == DurabilityMethod::Dsync && !self.dsync_refused.load(Ordering::Relaxed) {
            match self.write_all(offset, bytes, ReadWriteFlags::DSYNC) {
                // Refused before anything was written: the flag is not known here.
                Err((at, Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS)) if at == offset => {
                    self.dsync_refused.store(true, Ordering::Relaxed);
                }
                result => return result.map_err(|(at, error)| self.error("write durably", at, error)),
            }
        }
        self.write_at(offset, bytes)?;
        if method == DurabilityMethod::Plain { Ok(()) } else { self.flush() }
    }

    fn flush(&self) -> Result<()> {
        loop {
            match rustix::fs::fdatasync(&self.fd) {
                Ok(()) => return Ok(()),
                // Interrupted before it did anything; every other error is final: a failed flush is
                // not retried.
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.error("flush", 0, error)),
            }
        }
    }

    fn zero_extend(&self, len: u64, rest: &mut dyn FnMut(Duration)) -> Result<()> {
        let old = self.len()?;
        if old == 0 {
            file_system::overwrite_in_place(&self.fd);
        }
        if old < len {
            // A full disk says so at once, and not after it has been filled with zeros.
            self.allocate(FallocateFlags::KEEP_SIZE, old, len)?;
        }
        self.write_zeros(old, len, SMALL_ZERO_CHUNK_BYTES, rest)?;
        self.flush()
    }

    fn reserve(&self, from: u64, to: u64) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let old = self.len()?;
        let result = match self.allocate(FallocateFlags::empty(), from, to) {
            Ok(false) => self.write_zeros(old.max(from), to, ZERO_CHUNK_BYTES, &mut |_| ()),
            other => other.map(drop),
        };
        if result.is_err() && self.len()? > old {
            self.set_len(old)?;
        }
        result
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.check_process()?;
        rustix::fs::ftruncate(&self.fd, len).map_err(|e| self.error("change the length", len, e))
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.fd.as_raw_fd())
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
