//! A FUSE file system in this process that passes requests to a directory and injects faults.
//!
//! Written data is in the page cache of the directory's file system, which outlives a killed
//! program. So a flush does nothing here, except that it counts as a request and may fail. Power
//! cuts are not simulated.

use super::faults::{Fault, Handling, Injector, Kind};
use fuser::{
    BsdFileFlags, Config, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::Result;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// Time for which the kernel may cache attributes: nothing else changes the directory during a
/// test.
const ATTRIBUTE_CACHE: Duration = Duration::from_secs(1);
/// Bytes of the largest request. A larger call becomes several requests, of which one may fail.
const REQUEST_BYTES: u32 = 256 << 10;
/// Threads that serve requests, so that a slow request does not delay others.
const THREADS: usize = 4;

/// A mounted file system; its drop unmounts it.
pub struct Disk {
    path: PathBuf,
    injector: Arc<Mutex<Injector>>,
    _session: fuser::BackgroundSession,
}

impl Disk {
    /// Mounts the file system in `directory`. Prints the reason and returns `None` if that fails.
    /// Files can be opened with `O_DIRECT` if `direct` is true; the kernel caches no file data
    /// either way.
    pub fn mount(directory: &Path, direct: bool) -> Option<Disk> {
        let (path, behind) = (directory.join("disk"), directory.join("behind"));
        for made in [&path, &behind] {
            std::fs::create_dir_all(made).expect("a directory of our own");
        }
        let injector = Arc::new(Mutex::new(Injector::default()));
        let files = Passthrough {
            behind,
            direct,
            injector: injector.clone(),
            nodes: Mutex::default(),
            open: Mutex::default(),
        };
        let mut config = Config::default();
        config.n_threads = Some(THREADS);
        match fuser::spawn_mount(files, &path, &config) {
            Ok(session) => Some(Disk { path, injector, _session: session }),
            Err(error) => {
                crate::support::skip(&format!("no FUSE file system can be mounted here: {error}"));
                None
            }
        }
    }

    /// Returns the mount point.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Injects a fault from now on, and resets the counters.
    pub fn inject(&self, fault: Fault) {
        *locked(&self.injector) = Injector::new(fault);
    }

    /// Removes the fault. Returns how often it occurred.
    pub fn clear_fault(&self) -> u64 {
        std::mem::take(&mut *locked(&self.injector)).fired()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Inode numbers of paths. A name that is removed and created again gets a new number.
#[derive(Default)]
struct Nodes {
    paths: Vec<PathBuf>,
    numbers: HashMap<PathBuf, u64>,
}

/// The number of the root directory, whose path is empty. All other numbers are above it.
const ROOT: u64 = INodeNo::ROOT.0;

impl Nodes {
    fn number(&mut self, path: PathBuf) -> INodeNo {
        let next = ROOT + 1 + self.paths.len() as u64;
        let paths = &mut self.paths;
        INodeNo(*self.numbers.entry(path).or_insert_with_key(|path| {
            paths.push(path.clone());
            next
        }))
    }
}

/// The file system: passes requests to the directory `behind`.
struct Passthrough {
    behind: PathBuf,
    direct: bool,
    injector: Arc<Mutex<Injector>>,
    nodes: Mutex<Nodes>,
    open: Mutex<HashMap<u64, Arc<File>>>,
}

impl Passthrough {
    /// Returns the path of a node below the directory `behind`.
    fn relative(&self, node: INodeNo) -> PathBuf {
        let above = node.0 - ROOT;
        if above == 0 { PathBuf::new() } else { locked(&self.nodes).paths[above as usize - 1].clone() }
    }

    fn path(&self, node: INodeNo) -> PathBuf {
        self.behind.join(self.relative(node))
    }

    fn file(&self, handle: FileHandle) -> Result<Arc<File>> {
        let file = locked(&self.open).get(&handle.0).cloned();
        file.ok_or_else(|| Errno::BADF.into())
    }

    fn keep_open(&self, file: File) -> FileHandle {
        use std::os::fd::AsRawFd;
        let handle = file.as_raw_fd() as u64;
        locked(&self.open).insert(handle, Arc::new(file));
        FileHandle(handle)
    }

    /// Counts a request for `len` bytes at `offset` of an open file. Returns how to handle it.
    fn handling_of_bytes(&self, kind: Kind, handle: FileHandle, offset: u64, len: u64) -> Handling {
        let grows_from = self.file(handle).and_then(|file| file.metadata()).map_or(0, |about| {
            // Reserved space counts as part of the file.
            about.len().max(about.blocks() * 512)
        });
        let handling = locked(&self.injector).handling(kind, len, (offset + len).saturating_sub(grows_from));
        std::thread::sleep(handling.pause);
        handling
    }

    /// Carries out a request without bytes, unless a fault prevents that.
    fn carry_out<T>(&self, request: &Request, kind: Kind, what: impl FnOnce() -> Result<T>) -> Result<T> {
        let handling = locked(&self.injector).handling(kind, 1, 0);
        std::thread::sleep(handling.pause);
        let done = (handling.bytes > 0).then(what);
        finish(request, &handling, done)
    }

    /// Returns an error if a file must not be opened with these flags.
    fn allows(&self, flags: i32) -> Result<()> {
        let wants_direct = OFlags::from_bits_retain(flags as u32).contains(OFlags::DIRECT);
        if wants_direct && !self.direct { Err(Errno::INVAL.into()) } else { Ok(()) }
    }

    fn remove(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        how: fn(PathBuf) -> Result<()>,
    ) -> Result<()> {
        self.carry_out(request, Kind::Remove, || {
            let relative = self.relative(parent).join(name);
            how(self.behind.join(&relative))?;
            locked(&self.nodes).numbers.remove(&relative);
            Ok(())
        })
    }

    fn found(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr> {
        let relative = self.relative(parent).join(name);
        let about = std::fs::symlink_metadata(self.behind.join(&relative))?;
        Ok(attributes(locked(&self.nodes).number(relative), &about))
    }
}

/// Kills the requesting process if the fault says so. Returns the reply.
fn finish<T>(request: &Request, handling: &Handling, done: Option<Result<T>>) -> Result<T> {
    if handling.kills
        && let Some(thread) = rustix::process::Pid::from_raw(request.pid() as i32)
    {
        // The signal goes to the whole process.
        let _ = rustix::process::kill_process(thread, rustix::process::Signal::KILL);
    }
    match (handling.error, done) {
        (None, Some(done)) => done,
        (error, _) => Err(error.unwrap_or(Errno::IO).into()),
    }
}

fn attributes(ino: INodeNo, about: &Metadata) -> FileAttr {
    let changed = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    FileAttr {
        ino,
        size: about.len(),
        blocks: about.blocks(),
        atime: changed,
        mtime: changed,
        ctime: changed,
        crtime: changed,
        kind: if about.is_dir() { FileType::Directory } else { FileType::RegularFile },
        perm: (about.mode() & 0o7777) as u16,
        nlink: about.nlink() as u32,
        uid: about.uid(),
        gid: about.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// Returns flags of an open file: no data in the kernel's page cache, and parallel writes.
fn opened() -> FopenFlags {
    FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
}

/// Replies with the result or its error.
macro_rules! answer {
    ($reply:ident, $result:expr, $done:pat => $answer:expr) => {
        match $result {
            Ok($done) => $answer,
            Err(error) => $reply.error(error.into()),
        }
    };
}

impl Filesystem for Passthrough {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> Result<()> {
        config.set_max_write(REQUEST_BYTES).map(drop).map_err(|_| std::io::ErrorKind::InvalidInput.into())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer!(reply, self.found(parent, name), about => reply.entry(&ATTRIBUTE_CACHE, &about, Generation(0)));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let about = match handle {
            Some(handle) => self.file(handle).and_then(|file| file.metadata()),
            None => std::fs::symlink_metadata(self.path(ino)),
        };
        answer!(reply, about, about => reply.attr(&ATTRIBUTE_CACHE, &attributes(ino, &about)));
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let path = self.path(ino);
        let set = size.map_or(Ok(()), |size| {
            self.carry_out(request, Kind::Length, || {
                File::options().write(true).open(&path).and_then(|file| file.set_len(size))
            })
        });
        let about = set.and_then(|()| std::fs::symlink_metadata(&path));
        answer!(reply, about, about => reply.attr(&ATTRIBUTE_CACHE, &attributes(ino, &about)));
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        let made = self.carry_out(request, Kind::Create, || {
            std::fs::create_dir(self.path(parent).join(name)).and_then(|()| self.found(parent, name))
        });
        answer!(reply, made, about => reply.entry(&ATTRIBUTE_CACHE, &about, Generation(0)));
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.remove(request, parent, name, std::fs::remove_file), () => reply.ok());
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.remove(request, parent, name, std::fs::remove_dir), () => reply.ok());
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let allowed = self.allows(flags.0);
        let file = allowed.and_then(|()| File::options().read(true).write(true).open(self.path(ino)));
        answer!(reply, file, file => reply.opened(self.keep_open(file), opened()));
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let created = self.carry_out(request, Kind::Create, || {
            self.allows(flags)?;
            let path = self.path(parent).join(name);
            let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
            Ok((self.found(parent, name)?, self.keep_open(file)))
        });
        answer!(reply, created, (about, handle) =>
            reply.created(&ATTRIBUTE_CACHE, &about, Generation(0), handle, opened()));
    }

    fn read(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let handling = self.handling_of_bytes(Kind::Read, handle, offset, size.into());
        let mut bytes = vec![0; handling.bytes as usize];
        let read = self.file(handle).and_then(|file| file.read_at(&mut bytes, offset));
        answer!(reply, finish(request, &handling, Some(read)), read => reply.data(&bytes[..read]));
    }

    fn write(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let handling = self.handling_of_bytes(Kind::Write, handle, offset, data.len() as u64);
        let written =
            self.file(handle).and_then(|file| file.write_all_at(&data[..handling.bytes as usize], offset));
        answer!(reply, finish(request, &handling, Some(written)), () => reply.written(handling.bytes as u32));
    }

    fn fallocate(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let handling = self.handling_of_bytes(Kind::Reserve, handle, offset, length);
        let reserve = || {
            let flags = FallocateFlags::from_bits_retain(mode as u32);
            Ok(rustix::fs::fallocate(self.file(handle)?, flags, offset, length)?)
        };
        // Carried out as a whole or not at all.
        let done = (handling.bytes == length).then(reserve);
        answer!(reply, finish(request, &handling, done), () => reply.ok());
    }

    fn fsync(&self, request: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer!(reply, self.carry_out(request, Kind::Flush, || Ok(())), () => reply.ok());
    }

    fn fsyncdir(&self, request: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer!(reply, self.carry_out(request, Kind::Flush, || Ok(())), () => reply.ok());
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        locked(&self.open).remove(&handle.0);
        reply.ok();
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listed = std::fs::read_dir(self.path(ino)).and_then(|entries| {
            let mut names = entries.map(|entry| Ok(entry?.file_name())).collect::<Result<Vec<_>>>()?;
            names.sort();
            Ok(names)
        });
        answer!(reply, listed, names => {
            for (position, name) in (1..).zip(names).skip(offset as usize) {
                let Ok(about) = self.found(ino, &name) else { continue };
                if reply.add(about.ino, position, about.kind, name) {
                    break;
                }
            }
            reply.ok();
        });
    }
}
