//! A store of objects in a directory, for trying and testing without a service: `file:///path`.
//!
//! Each object is a file that is written under another name, made durable, and then linked or
//! renamed, so it appears as a whole. Objects take no appends. An object is replaced on a condition
//! under a lock of the directory, which the operating system releases when a process ends. All
//! processes must run on one machine, or share a file system with working locks.

use super::request::{Condition, Failure, FailureKind, Listed, Reply, Request, Version};
use super::store::{Done, ObjectStore, Outcome, StoreFacts};
use crate::base::{Error, Result};
use crate::device::descriptors::take_standard;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Event, Mutex, thread};
use bytes::Bytes;
use rustix::fs::FlockOperation;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Requests that are performed at the same time.
const THREADS: usize = 8;
/// The lock of conditional replacements.
const LOCK: &str = ".lock";
/// Files that are being written.
const UNFINISHED: &str = ".unfinished";

#[derive(Default)]
struct Waiting {
    requests: VecDeque<(Request, Done)>,
    is_closed: bool,
}

struct Shared {
    root: PathBuf,
    waiting: Mutex<Waiting>,
    arrived: Event,
    /// Distinguishes the unfinished files of this process.
    next: AtomicU64,
}

/// See the module's text.
pub struct DirectoryStore {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for DirectoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DirectoryStore").field(&self.shared.root).finish()
    }
}

impl DirectoryStore {
    /// Opens a store. The first put creates a missing directory.
    ///
    /// # Errors
    /// I/O.
    pub fn open(root: &Path) -> Result<DirectoryStore> {
        let failed = |error| Error::io(format!("cannot use {} as a store of objects", root.display()), error);
        let waiting = Mutex::default();
        let (arrived, next) = (Event::new(), AtomicU64::new(0));
        let shared = Arc::new(Shared { root: root.to_path_buf(), waiting, arrived, next });
        let store = DirectoryStore { shared: shared.clone() };
        for _ in 0..THREADS {
            let shared = shared.clone();
            thread::spawn("quench-objects", move || shared.serve()).map_err(failed)?;
        }
        Ok(store)
    }
}

impl Drop for DirectoryStore {
    fn drop(&mut self) {
        self.shared.waiting.lock().is_closed = true;
        self.shared.arrived.notify_all();
    }
}

impl ObjectStore for DirectoryStore {
    fn start(&self, request: Request, done: Done) {
        self.shared.waiting.lock().requests.push_back((request, done));
        self.shared.arrived.notify_all();
    }

    fn facts(&self) -> StoreFacts {
        let name = format!("file://{}", self.shared.root.display());
        StoreFacts {
            name,
            endpoint: String::new(),
            appends: false,
            parts_max: 1,
            appends_check_version: false,
            streams: false,
        }
    }
}

fn refused(kind: FailureKind, what: &str) -> Failure {
    Failure { kind, what: what.to_string() }
}

/// Returns the failure for a local error before the change took effect, or while it did.
fn failed(error: &io::Error) -> Failure {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => FailureKind::Absent,
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::StorageFull
        | io::ErrorKind::QuotaExceeded
        | io::ErrorKind::ReadOnlyFilesystem => FailureKind::Forbidden,
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => FailureKind::Denied,
        _ => FailureKind::Unknown,
    };
    Failure { kind, what: error.to_string() }
}

fn version_of(metadata: &fs::Metadata) -> Version {
    let changed = (metadata.mtime(), metadata.mtime_nsec());
    Version(format!("{}-{}.{:09}-{}", metadata.ino(), changed.0, changed.1, metadata.len()))
}

impl Shared {
    fn serve(&self) {
        loop {
            let ticket = self.arrived.ticket();
            let next = {
                let mut waiting = self.waiting.lock();
                let next = waiting.requests.pop_front();
                if next.is_none() && waiting.is_closed {
                    return;
                }
                next
            };
            match next {
                Some((request, done)) => done(self.perform(request)),
                None => self.arrived.wait(ticket, None),
            }
        }
    }

    fn perform(&self, request: Request) -> Outcome {
        take_standard();
        match request {
            Request::Put { name, body, condition } => self.put(&name, &body, &condition),
            Request::Create { name, body } => self.put(&name, &body, &Condition::Absent),
            Request::Append { .. } | Request::Open { .. } | Request::Finalize { .. } => {
                Err(refused(FailureKind::Denied, "objects in a directory take no appends"))
            }
            Request::Get { name, range } => self.get(&name, range).map_err(|error| failed(&error)),
            Request::Head { name } => {
                let metadata = fs::metadata(self.root.join(name)).map_err(|error| failed(&error))?;
                Ok(Reply { version: Some(version_of(&metadata)), len: metadata.len(), ..Reply::default() })
            }
            Request::List { prefix } => {
                let mut listed = Vec::new();
                self.list(&prefix, &mut listed).map_err(|error| failed(&error))?;
                listed.sort_by(|a: &Listed, b| a.name.cmp(&b.name));
                Ok(Reply { listed, ..Reply::default() })
            }
            Request::Delete { name } => match fs::remove_file(self.root.join(&name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&error)),
                _ => Ok(Reply::default()),
            },
        }
    }

    fn put(&self, name: &str, body: &[u8], condition: &Condition) -> Outcome {
        let path = self.root.join(name);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let unfinished = self.root.join(UNFINISHED).join(format!("{}-{number}", thread::process_id()));
        let done = self.put_through(&unfinished, &path, body, condition);
        // It is gone already if it was renamed.
        let _ = fs::remove_file(&unfinished);
        done
    }

    fn put_through(&self, unfinished: &Path, path: &Path, body: &[u8], condition: &Condition) -> Outcome {
        let failed = |error| failed(&error);
        fs::create_dir_all(self.root.join(UNFINISHED)).map_err(failed)?;
        let mut file = File::create(unfinished).map_err(failed)?;
        file.write_all(body).and_then(|()| file.sync_all()).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let directory = path.parent().unwrap_or(&self.root);
        fs::create_dir_all(directory).map_err(failed)?;
        match condition {
            Condition::Always => fs::rename(unfinished, path).map_err(failed)?,
            Condition::Absent => match fs::hard_link(unfinished, path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(refused(FailureKind::Refused, "there is an object of this name"));
                }
                linked => linked.map_err(failed)?,
            },
            Condition::Unchanged(version) => {
                let lock = File::create(self.root.join(LOCK)).map_err(failed)?;
                rustix::fs::flock(&lock, FlockOperation::LockExclusive)
                    .map_err(|error| failed(error.into()))?;
                let there = fs::metadata(path).map_err(failed)?;
                if version_of(&there) != *version {
                    return Err(refused(FailureKind::Refused, "the object has changed"));
                }
                fs::rename(unfinished, path).map_err(failed)?;
            }
        }
        // The object is there, but a power cut may undo that.
        let half_done = |error: io::Error| refused(FailureKind::Unknown, &error.to_string());
        self.flush_directories(directory).map_err(half_done)?;
        Ok(Reply { version: Some(version_of(&metadata)), len: metadata.len(), ..Reply::default() })
    }

    /// Makes a name durable, and those of the directories above it.
    fn flush_directories(&self, directory: &Path) -> io::Result<()> {
        for above in directory.ancestors() {
            File::open(above)?.sync_all()?;
            if above == self.root {
                break;
            }
        }
        Ok(())
    }

    fn get(&self, name: &str, range: Option<Range<u64>>) -> io::Result<Reply> {
        let mut file = File::open(self.root.join(name))?;
        let metadata = file.metadata()?;
        let len = metadata.len();
        let range = range.unwrap_or(0..len);
        let (from, to) = (range.start.min(len), range.end.min(len));
        let mut body = vec![0; to.saturating_sub(from) as usize];
        file.seek(SeekFrom::Start(from))?;
        file.read_exact(&mut body)?;
        let (version, body) = (Some(version_of(&metadata)), Bytes::from(body));
        let age = metadata.modified().ok().and_then(|written| written.elapsed().ok());
        Ok(Reply { version, len, body, age, ..Reply::default() })
    }

    fn list(&self, prefix: &str, listed: &mut Vec<Listed>) -> io::Result<()> {
        let entries = match fs::read_dir(self.root.join(prefix)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if prefix.is_empty() && name.starts_with('.') {
                continue;
            }
            let metadata = match entry.metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                metadata => metadata?,
            };
            let name = format!("{prefix}{name}");
            if metadata.is_dir() {
                self.list(&format!("{name}/"), listed)?;
            } else {
                listed.push(Listed { name, len: metadata.len() });
            }
        }
        Ok(())
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle", miri))))]
mod tests;
