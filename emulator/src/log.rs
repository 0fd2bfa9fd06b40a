//! The directory of an emulator: all changes in their order, in files of 256 MiB.
//!
//! ```text
//!   record:  length of the change, u32 │ of the body, u64 │ CRC-32C of both, u32 │ change (JSON) │ body
//! ```
//!
//! The bodies stay where they were written; objects point at them. The oldest file goes when no
//! object points into it. If too much is dead, the store writes the oldest file's live objects
//! again.

use crate::content::{At, Chunk};
use bytes::Bytes;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const HEADER_BYTES: u64 = 16;
/// A new file begins when the last has so many bytes.
const FILE_BYTES: u64 = 256 << 20;
/// So many dead bytes are left alone.
const DEAD_BYTES: u64 = 1 << 30;
/// No change is longer: keys have at most 1,024 bytes.
const CHANGE_BYTES_MAX: u32 = 64 << 10;

/// A change of the store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Change {
    CreateBucket { bucket: String },
    DeleteBucket { bucket: String },
    Put { bucket: String, key: String, tag: u64, parts: u64, modified_ms: u64 },
    Append { bucket: String, key: String, tag: u64, modified_ms: u64 },
    Delete { bucket: String, key: String },
}

#[derive(Debug)]
struct LogFile {
    file: Arc<File>,
    path: PathBuf,
    len: u64,
    /// Bytes of bodies to which objects point.
    live: u64,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Log {
    directory: PathBuf,
    files: BTreeMap<u64, LogFile>,
    /// Each file begins with them, because older files go.
    buckets: BTreeSet<String>,
    /// Held as long as the log is.
    _lock: File,
}

impl Log {
    /// Opens the directory, and calls `replay` for each change in it, oldest first.
    ///
    /// # Errors
    /// Another emulator has the directory; a file cannot be read, or is damaged in the middle.
    pub fn open(directory: &Path, mut replay: impl FnMut(Change, Chunk)) -> io::Result<Log> {
        fs::create_dir_all(directory).map_err(|error| named(directory, &error))?;
        let lock =
            OpenOptions::new().create(true).truncate(false).write(true).open(directory.join("lock"))?;
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let what = format!("another emulator has the directory {}", directory.display());
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, what));
        }
        let mut log = Log {
            directory: directory.into(),
            files: BTreeMap::new(),
            buckets: BTreeSet::new(),
            _lock: lock,
        };
        let mut numbers = Vec::new();
        for entry in fs::read_dir(directory)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".log")).map(str::parse::<u64>);
            numbers.extend(number.and_then(Result::ok));
        }
        numbers.sort_unstable();
        let last = numbers.last().copied();
        for number in numbers {
            let path = log.path(number);
            let file = OpenOptions::new().read(true).write(true).open(&path)?;
            let file = Arc::new(file);
            let replay = &mut |change: Change, chunk| {
                log.count_bucket(&change);
                replay(change, chunk);
            };
            let len = read_all(&file, number, replay).map_err(|error| named(&path, &error))?;
            if len < file.metadata()?.len() {
                if Some(number) != last {
                    let what = format!("{} is damaged at byte {len}", path.display());
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
                // The end of a record that was never acknowledged.
                file.set_len(len)?;
            }
            log.files.insert(number, LogFile { file, path, len, live: 0 });
        }
        Ok(log)
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{number:08}.log"))
    }

    fn count_bucket(&mut self, change: &Change) {
        match change {
            Change::CreateBucket { bucket } => drop(self.buckets.insert(bucket.clone())),
            Change::DeleteBucket { bucket } => drop(self.buckets.remove(bucket)),
            Change::Put { .. } | Change::Append { .. } | Change::Delete { .. } => {}
        }
    }

    /// Writes a change with its body, and returns where the body is.
    ///
    /// # Errors
    /// The file cannot be written: nothing happened.
    pub fn add(&mut self, change: &Change, body: &[u8]) -> io::Result<Chunk> {
        let number = self.file_to_write()?;
        let chunk = self.write(number, change, body)?;
        self.count_bucket(change);
        Ok(chunk)
    }

    fn write(&mut self, number: u64, change: &Change, body: &[u8]) -> io::Result<Chunk> {
        let text = serde_json::to_vec(change)?;
        let mut record = Vec::with_capacity(HEADER_BYTES as usize + text.len() + body.len());
        record.extend_from_slice(&(text.len() as u32).to_le_bytes());
        record.extend_from_slice(&(body.len() as u64).to_le_bytes());
        record.extend_from_slice(&crc32c::crc32c_append(crc32c::crc32c(&text), body).to_le_bytes());
        record.extend_from_slice(&text);
        let offset = record.len() as u64;
        record.extend_from_slice(body);
        let Some(last) = self.files.get_mut(&number) else {
            return Err(io::Error::other("the log has no file"));
        };
        let start = last.len;
        let mut file = &*last.file;
        let written = file.seek(SeekFrom::Start(start)).and_then(|_| file.write_all(&record));
        if let Err(error) = written {
            file.set_len(start)?;
            return Err(named(&last.path, &error));
        }
        last.len += record.len() as u64;
        last.live += body.len() as u64;
        let at = At::File { file: last.file.clone(), number, offset: start + offset };
        Ok(Chunk { at, len: body.len() as u64 })
    }

    /// Returns the number of the last file; begins a new one if the last is full.
    fn file_to_write(&mut self) -> io::Result<u64> {
        let number = match self.files.last_key_value() {
            Some((number, file)) if file.len < FILE_BYTES => return Ok(*number),
            Some((number, _)) => number + 1,
            None => 1,
        };
        let path = self.path(number);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = Arc::new(file.map_err(|error| named(&path, &error))?);
        self.files.insert(number, LogFile { file, path, len: 0, live: 0 });
        for bucket in self.buckets.clone() {
            self.write(number, &Change::CreateBucket { bucket }, &[])?;
        }
        Ok(number)
    }

    /// Counts a chunk of an object that was read from the directory.
    pub fn keep(&mut self, chunk: &Chunk) {
        if let Some(file) = self.file_of(chunk) {
            file.live += chunk.len;
        }
    }

    /// Forgets a chunk to which no object points any more.
    pub fn release(&mut self, chunk: &Chunk) {
        if let Some(file) = self.file_of(chunk) {
            file.live = file.live.saturating_sub(chunk.len);
        }
        while self.files.len() > 1
            && let Some(oldest) = self.files.first_entry()
            && oldest.get().live == 0
        {
            // A file that stays because of a failure is read and dropped by the next emulator.
            let _ = fs::remove_file(&oldest.remove().path);
        }
    }

    fn file_of(&mut self, chunk: &Chunk) -> Option<&mut LogFile> {
        match &chunk.at {
            At::File { number, .. } => self.files.get_mut(number),
            At::Memory(_) => None,
        }
    }

    /// Returns the number of the oldest file, if too many bytes are dead.
    pub fn to_clean(&self) -> Option<u64> {
        let (len, live) = self.files.values().fold((0, 0), |sum, file| (sum.0 + file.len, sum.1 + file.live));
        let is_wasteful = len > 2 * live + DEAD_BYTES && self.files.len() > 1;
        self.files.keys().next().copied().filter(|_| is_wasteful)
    }
}

/// Reads the records of a file up to the first that is not whole. Returns the end of the last whole
/// one.
fn read_all(file: &Arc<File>, number: u64, replay: &mut impl FnMut(Change, Chunk)) -> io::Result<u64> {
    let len = file.metadata()?.len();
    let mut reader = io::BufReader::with_capacity(1 << 20, &**file);
    let mut end = 0;
    loop {
        let mut header = [0; HEADER_BYTES as usize];
        if len - end < HEADER_BYTES {
            return Ok(end);
        }
        reader.read_exact(&mut header)?;
        let text_len = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let mut word = [0; 8];
        word.copy_from_slice(&header[4..12]);
        let body_len = u64::from_le_bytes(word);
        let crc = u32::from_le_bytes([header[12], header[13], header[14], header[15]]);
        let rest = len - end - HEADER_BYTES;
        if text_len > CHANGE_BYTES_MAX || u64::from(text_len).saturating_add(body_len) > rest {
            return Ok(end);
        }
        let mut text = vec![0; text_len as usize];
        reader.read_exact(&mut text)?;
        let mut body = vec![0; body_len as usize];
        reader.read_exact(&mut body)?;
        let found = crc32c::crc32c_append(crc32c::crc32c(&text), &body);
        let Some(change) = serde_json::from_slice(&text).ok().filter(|_| found == crc) else {
            return Ok(end);
        };
        let offset = end + HEADER_BYTES + u64::from(text_len);
        end = offset + body_len;
        replay(change, Chunk { at: At::File { file: file.clone(), number, offset }, len: body_len });
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Returns a chunk with `body`, in the log if there is one.
///
/// # Errors
/// As [`Log::add`].
pub(crate) fn record(log: Option<&mut Log>, change: &Change, body: Bytes) -> io::Result<Chunk> {
    match log {
        Some(log) => log.add(change, &body),
        None => Ok(Chunk::in_memory(body)),
    }
}

#[cfg(test)]
mod tests;
