//! A file system that passes everything on to a directory and, by order, gets in the way: a FUSE
//! device in this process.
//!
//! What is written is in the page cache of the directory's file system. That outlives a killed
//! program, so a flush has nothing to do here: it is counted, and may fail. No power cut is
//! simulated.

use super::trouble::{Fate, Kind, Orders, Trouble};
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

/// Nobody but the kernel changes what is behind a mount while it is used, so it may remember for a
/// while.
const REMEMBERED: Duration = Duration::from_secs(1);
/// More bytes in one call are several requests, of which one may fail.
const REQUEST_BYTES: u32 = 256 << 10;
/// A request that takes its time must not hold up the others.
const THREADS: usize = 4;

/// A mounted file system; unmounted when it is dropped.
pub struct Disk {
    path: PathBuf,
    orders: Arc<Mutex<Orders>>,
    _session: fuser::BackgroundSession,
}

impl Disk {
    /// Mounts it in `directory`; `None`, and says so, where that is not possible. Whether files can
    /// be opened with `O_DIRECT` is `direct`; the kernel keeps nothing of them in its cache in any
    /// case.
    pub fn mount(directory: &Path, direct: bool) -> Option<Disk> {
        let (path, behind) = (directory.join("disk"), directory.join("behind"));
        for made in [&path, &behind] {
            std::fs::create_dir_all(made).expect("a directory of our own");
        }
        let orders = Arc::new(Mutex::new(Orders::default()));
        let files = Passed {
            behind,
            direct,
            orders: orders.clone(),
            nodes: Mutex::default(),
            open: Mutex::default(),
        };
        let mut config = Config::default();
        config.n_threads = Some(THREADS);
        match fuser::spawn_mount(files, &path, &config) {
            Ok(session) => Some(Disk { path, orders, _session: session }),
            Err(error) => {
                crate::support::skip(&format!("no FUSE file system can be mounted here: {error}"));
                None
            }
        }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// From now on. Counting begins again.
    pub fn order(&self, trouble: Trouble) {
        *locked(&self.orders) = Orders::new(trouble);
    }

    /// The disk is well again. Returns how often there was trouble.
    pub fn heal(&self) -> u64 {
        std::mem::take(&mut *locked(&self.orders)).fired()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The numbers by which the kernel knows paths. A name that is removed and made again gets another.
#[derive(Default)]
struct Nodes {
    paths: Vec<PathBuf>,
    numbers: HashMap<PathBuf, u64>,
}

/// The number of the topmost directory, whose path is empty; the others follow.
const TOP: u64 = INodeNo::ROOT.0;

impl Nodes {
    fn number(&mut self, path: PathBuf) -> INodeNo {
        let next = TOP + 1 + self.paths.len() as u64;
        let paths = &mut self.paths;
        INodeNo(*self.numbers.entry(path).or_insert_with_key(|path| {
            paths.push(path.clone());
            next
        }))
    }
}

struct Passed {
    behind: PathBuf,
    direct: bool,
    orders: Arc<Mutex<Orders>>,
    nodes: Mutex<Nodes>,
    open: Mutex<HashMap<u64, Arc<File>>>,
}

impl Passed {
    /// A path below the directory behind.
    fn relative(&self, node: INodeNo) -> PathBuf {
        let above = node.0 - TOP;
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

    /// What becomes of a request for `len` bytes at `offset` of a file that has a handle.
    fn fate_of_bytes(&self, kind: Kind, handle: FileHandle, offset: u64, len: u64) -> Fate {
        let grows_from = self.file(handle).and_then(|file| file.metadata()).map_or(0, |about| {
            // Reserved space counts as used.
            about.len().max(about.blocks() * 512)
        });
        let fate = locked(&self.orders).fate(kind, len, (offset + len).saturating_sub(grows_from));
        std::thread::sleep(fate.pause);
        fate
    }

    /// Carries out a request without bytes, or not.
    fn carry_out<T>(&self, request: &Request, kind: Kind, what: impl FnOnce() -> Result<T>) -> Result<T> {
        let fate = locked(&self.orders).fate(kind, 1, 0);
        std::thread::sleep(fate.pause);
        let done = (fate.bytes > 0).then(what);
        finish(request, &fate, done)
    }

    /// Whether a file may be opened with these flags.
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

/// Ends the one who asked, if that is ordered, and says what to reply.
fn finish<T>(request: &Request, fate: &Fate, done: Option<Result<T>>) -> Result<T> {
    if fate.kills
        && let Some(thread) = rustix::process::Pid::from_raw(request.pid() as i32)
    {
        // The signal goes to the whole process.
        let _ = rustix::process::kill_process(thread, rustix::process::Signal::KILL);
    }
    match (fate.error, done) {
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

/// Nothing of a file stays in the kernel's page cache, and its writes need not wait for each other.
fn opened() -> FopenFlags {
    FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
}

macro_rules! answer {
    ($reply:ident, $result:expr, $done:pat => $answer:expr) => {
        match $result {
            Ok($done) => $answer,
            Err(error) => $reply.error(error.into()),
        }
    };
}

impl Filesystem for Passed {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> Result<()> {
        config.set_max_write(REQUEST_BYTES).map(drop).map_err(|_| std::io::ErrorKind::InvalidInput.into())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer!(reply, self.found(parent, name), about => reply.entry(&REMEMBERED, &about, Generation(0)));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let about = match handle {
            Some(handle) => self.file(handle).and_then(|file| file.metadata()),
            None => std::fs::symlink_metadata(self.path(ino)),
        };
        answer!(reply, about, about => reply.attr(&REMEMBERED, &attributes(ino, &about)));
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
        answer!(reply, about, about => reply.attr(&REMEMBERED, &attributes(ino, &about)));
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        let made = self.carry_out(request, Kind::Create, || {
            std::fs::create_dir(self.path(parent).join(name)).and_then(|()| self.found(parent, name))
        });
        answer!(reply, made, about => reply.entry(&REMEMBERED, &about, Generation(0)));
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
            reply.created(&REMEMBERED, &about, Generation(0), handle, opened()));
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
        let fate = self.fate_of_bytes(Kind::Read, handle, offset, size.into());
        let mut bytes = vec![0; fate.bytes as usize];
        let read = self.file(handle).and_then(|file| file.read_at(&mut bytes, offset));
        answer!(reply, finish(request, &fate, Some(read)), read => reply.data(&bytes[..read]));
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
        let fate = self.fate_of_bytes(Kind::Write, handle, offset, data.len() as u64);
        let written =
            self.file(handle).and_then(|file| file.write_all_at(&data[..fate.bytes as usize], offset));
        answer!(reply, finish(request, &fate, Some(written)), () => reply.written(fate.bytes as u32));
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
        let fate = self.fate_of_bytes(Kind::Reserve, handle, offset, length);
        let reserve = || {
            let flags = FallocateFlags::from_bits_retain(mode as u32);
            Ok(rustix::fs::fallocate(self.file(handle)?, flags, offset, length)?)
        };
        // All of it or nothing.
        let done = (fate.bytes == length).then(reserve);
        answer!(reply, finish(request, &fate, done), () => reply.ok());
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
