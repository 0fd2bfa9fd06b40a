//! The directory of an emulator: all changes in their order, for the next emulator.
//!
//! ```text
//!   record:  length of the change, u32 │ of the body, u64 │ CRC-32C of both, u32 │ change (JSON) │ body
//! ```
//!
//! The emulator reads the files in the order of their numbers, and writes to the last. If too much
//! is dead, a new file begins with all objects, and the older files go. Objects that an older file
//! still has after a crash are the same.

use bytes::Bytes;
use quenchdb::internals::device::objects::Version;
use quenchdb::internals::device::objects::simulated::{Change, SimulatedObject};
use rustix::fs::FlockOperation;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const HEADER_BYTES: usize = 16;
/// So many dead bytes are left alone.
const DEAD_BYTES: u64 = 1 << 30;

/// A change of the store, as text. The body stands behind it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Record {
    CreateBucket { bucket: String },
    DeleteBucket { bucket: String },
    Put { bucket: String, key: String, tag: u64, parts: u64 },
    Append { bucket: String, key: String, tag: u64 },
    Delete { bucket: String, key: String },
}

/// Returns the version with this number, as a bucket names it.
pub(crate) fn version_of(tag: u64) -> Version {
    Version(format!("v{tag}"))
}

/// Returns the number of a version: the time at which it was written, in nanoseconds since 1970.
pub(crate) fn tag_of(version: &Version) -> u64 {
    version.0.trim_start_matches('v').parse().unwrap_or_default()
}

impl Record {
    /// Returns the record of a bucket's change, and its body.
    pub fn of(bucket: &str, change: &Change) -> (Record, Bytes) {
        let bucket = bucket.to_string();
        match change {
            Change::Put { name, object } => {
                let (tag, parts) = (tag_of(object.version()), object.parts());
                (Record::Put { bucket, key: name.clone(), tag, parts }, object.body())
            }
            Change::Append { name, body, version } => {
                (Record::Append { bucket, key: name.clone(), tag: tag_of(version) }, body.clone())
            }
            Change::Remove { name } => (Record::Delete { bucket, key: name.clone() }, Bytes::new()),
        }
    }

    /// Returns the bucket, and the change of it unless it is created or deleted itself.
    pub fn change(self, body: Bytes) -> (String, Option<Change>) {
        match self {
            Record::CreateBucket { bucket } | Record::DeleteBucket { bucket } => (bucket, None),
            Record::Put { bucket, key, tag, parts } => {
                let object = Arc::new(SimulatedObject::restored(body, version_of(tag), parts));
                (bucket, Some(Change::Put { name: key, object }))
            }
            Record::Append { bucket, key, tag } => {
                (bucket, Some(Change::Append { name: key, body, version: version_of(tag) }))
            }
            Record::Delete { bucket, key } => (bucket, Some(Change::Remove { name: key })),
        }
    }
}

/// Returns the bytes of a record and its body.
fn to_bytes(record: &impl Serialize, body: &[u8]) -> io::Result<Vec<u8>> {
    let text = serde_json::to_vec(record)?;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + text.len() + body.len());
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c_append(crc32c::crc32c(&text), body).to_le_bytes());
    bytes.extend_from_slice(&text);
    bytes.extend_from_slice(body);
    Ok(bytes)
}

/// Returns the record at the beginning of `bytes`, if it is whole, its body, and the rest.
fn parse<R: DeserializeOwned>(bytes: &[u8]) -> Option<(R, &[u8], &[u8])> {
    let (text_len, rest) = bytes.split_first_chunk::<4>()?;
    let (body_len, rest) = rest.split_first_chunk::<8>()?;
    let (crc, rest) = rest.split_first_chunk::<4>()?;
    let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*text_len) as usize)?;
    let (body, rest) = rest.split_at_checked(u64::from_le_bytes(*body_len) as usize)?;
    if crc32c::crc32c_append(crc32c::crc32c(text), body) != u32::from_le_bytes(*crc) {
        return None;
    }
    Some((serde_json::from_slice(text).ok()?, body, rest))
}

/// See the module's text. `R` is a change as text.
#[derive(Debug)]
pub(crate) struct Log<R> {
    directory: PathBuf,
    /// The last file.
    file: File,
    number: u64,
    len: u64,
    /// With more bytes the log is written again.
    len_max: u64,
    /// Held as long as the log is.
    _lock: File,
    records: PhantomData<R>,
}

impl<R: Serialize + DeserializeOwned> Log<R> {
    /// Opens the directory, and calls `replay` for each record in it, oldest first.
    ///
    /// # Errors
    /// Another emulator has the directory; a file cannot be read, or is damaged in the middle.
    pub fn open(directory: &Path, mut replay: impl FnMut(R, Bytes)) -> io::Result<Log<R>> {
        fs::create_dir_all(directory).map_err(|error| named(directory, &error))?;
        let mut options = OpenOptions::new();
        let lock = options.create(true).truncate(false).write(true).open(directory.join("lock"))?;
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let what = format!("another emulator has the directory {}", directory.display());
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, what));
        }
        let numbers = numbers(directory)?;
        let (number, mut len) = (numbers.last().copied().unwrap_or(1), 0);
        let file = options.open(path(directory, number))?;
        for at in numbers {
            let path = path(directory, at);
            let bytes = fs::read(&path).map_err(|error| named(&path, &error))?;
            let mut rest = &bytes[..];
            while let Some((record, body, behind)) = parse(rest) {
                replay(record, Bytes::copy_from_slice(body));
                rest = behind;
            }
            len = (bytes.len() - rest.len()) as u64;
            if !rest.is_empty() && at != number {
                let what = format!("{} is damaged at byte {len}", path.display());
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        }
        // Behind it is the end of a record that was never acknowledged.
        file.set_len(len)?;
        let (directory, len_max, records) = (directory.into(), DEAD_BYTES, PhantomData);
        Ok(Log { directory, file, number, len, len_max, _lock: lock, records })
    }

    /// Writes a record with its body.
    ///
    /// # Errors
    /// The file cannot be written: nothing happened.
    pub fn add(&mut self, record: &R, body: &[u8]) -> io::Result<()> {
        let bytes = to_bytes(record, body)?;
        let written = self.file.seek(SeekFrom::Start(self.len)).and_then(|_| self.file.write_all(&bytes));
        if let Err(error) = written {
            self.file.set_len(self.len)?;
            return Err(named(&path(&self.directory, self.number), &error));
        }
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Returns whether the log is to be written again.
    pub fn is_wasteful(&self) -> bool {
        self.len > self.len_max
    }

    /// Begins a new file with these records, and removes the older ones.
    ///
    /// # Errors
    /// The file cannot be written: nothing happened.
    pub fn rewrite(&mut self, records: impl Iterator<Item = (R, Bytes)>) -> io::Result<()> {
        // If this fails, it is tried again later.
        self.len_max = self.len + DEAD_BYTES;
        let (unnamed, number) = (self.directory.join("new"), self.number + 1);
        let (mut file, mut len) = (io::BufWriter::new(File::create(&unnamed)?), 0);
        for (record, body) in records {
            let bytes = to_bytes(&record, &body)?;
            file.write_all(&bytes)?;
            len += bytes.len() as u64;
        }
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        fs::rename(&unnamed, path(&self.directory, number))?;
        (self.file, self.number) = (file, number);
        (self.len, self.len_max) = (len, 2 * len + DEAD_BYTES);
        for old in numbers(&self.directory)?.into_iter().filter(|old| *old < number) {
            fs::remove_file(path(&self.directory, old))?;
        }
        Ok(())
    }
}

fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:08}.log"))
}

/// Returns the numbers of the files, in order.
fn numbers(directory: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".log")).map(str::parse::<u64>);
        numbers.extend(number.and_then(Result::ok));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
