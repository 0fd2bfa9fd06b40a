//! A cache of pages in a local directory.
//!
//! Objects with pages never change, so what was read of them stays right, and nothing is ever
//! invalidated. Files are filled one after the other with pieces of objects; the oldest file is
//! removed when all together would exceed the limit. A piece has a checksum: a piece that is
//! damaged, and whatever is not there, is read from the store. Nothing is flushed, and an error
//! while a file is written ends only the filling.
//!
//! | offset | bytes | field of a piece |
//! |---|---|---|
//! | 0 | 8 | magic, `QNCHPC01` |
//! | 8 | 8 | database: its identity and its URL, as a number |
//! | 16 | 16 | epoch and number of the object |
//! | 32 | 8 | offset in the object |
//! | 40 | 4 | length in bytes |
//! | 44 | 4 | CRC-32C of the bytes |
//! | 48 | 4 | CRC-32C of the fields above |
//! | 52 | | the bytes |

use super::body::group_of;
use super::request::{Reply, Request};
use super::store::{Done, ObjectStore, StoreFacts};
use crate::base::encoding::Reader;
use crate::base::{Account, Charge, Error, ErrorKind, Location, Result, checksum};
use crate::device::descriptors::{open_to_read, open_with};
use crate::sync::{Event, Mutex, thread};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, TryLockError};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: [u8; 8] = *b"QNCHPC01";
const HEADER_BYTES: usize = 52;
/// Pieces end at multiples of this offset of their object.
const PIECE_BYTES: u64 = 32 << 10;
/// Files of a full cache.
const FILES: u64 = 16;
/// Bytes that wait to be written; what comes then is not kept.
const WAITING_BYTES_MAX: usize = 4 << 20;
/// Memory of a piece in the index.
const INDEX_BYTES: u64 = 128;
const FILE_PREFIX: &str = "quench-pages-";
const LOCK_NAME: &str = "quench-pages.lock";

/// The place of bytes in the stores.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    database: u64,
    epoch: u64,
    number: u64,
    offset: u64,
}

/// The place of a piece in the cache.
#[derive(Clone, Copy, Debug)]
struct Piece {
    file: u64,
    /// Offset of its bytes.
    at: u64,
    len: u32,
    crc: u32,
}

#[derive(Debug)]
struct CacheFile {
    file: Arc<fs::File>,
    len: u64,
}

#[derive(Debug, Default)]
struct State {
    index: BTreeMap<Key, Piece>,
    /// By number; the oldest one is first.
    files: BTreeMap<u64, CacheFile>,
    /// The file that is filled.
    current: Option<u64>,
    next_file: u64,
    waiting: VecDeque<(Key, Bytes)>,
    waiting_bytes: usize,
    is_closed: bool,
    /// A file could not be written.
    is_broken: bool,
    charge: Option<Charge>,
}

#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    bytes_max: u64,
    state: Mutex<State>,
    /// Happens when something waits to be written, and at the end.
    work: Event,
}

/// See the module's text.
#[derive(Debug)]
pub struct PageCache {
    shared: Arc<Shared>,
    writer: Mutex<Option<thread::JoinHandle<()>>>,
    /// Locked as long as the cache is open.
    _lock: fs::File,
}

impl PageCache {
    /// Opens the cache in `directory`, and creates what is missing. The cache takes at most
    /// `bytes_max` bytes.
    ///
    /// # Errors
    /// `Busy` if the cache is open already; I/O.
    pub fn open(directory: &Path, bytes_max: u64) -> Result<Arc<PageCache>> {
        let shown = directory.display();
        let fail = |what: &str, error| {
            Error::io(format!("{what} {shown}"), error).at(Location::Setting("object_cache"))
        };
        fs::create_dir_all(directory)
            .map_err(|error| fail("cannot make the directory of the page cache", error))?;
        let mut options = fs::OpenOptions::new();
        options.create(true).truncate(false).write(true);
        let lock = open_with(&options, &directory.join(LOCK_NAME))
            .map_err(|error| fail("cannot write to the directory of the page cache", error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let what = format!("another open database uses the page cache {shown}");
                return Err(Error::new(ErrorKind::Busy, what)
                    .with_advice("name another directory")
                    .at(Location::Setting("object_cache")));
            }
            Err(TryLockError::Error(error)) => return Err(fail("cannot lock the page cache", error)),
        }
        let mut state = State::load(directory)
            .map_err(|error| fail("cannot read the directory of the page cache", error))?;
        state.make_room(directory, bytes_max, 0);
        let directory = directory.to_path_buf();
        let shared = Arc::new(Shared { directory, bytes_max, state: Mutex::new(state), work: Event::new() });
        let writing = shared.clone();
        let writer = thread::spawn("quench-page-cache", move || writing.write_all())
            .map_err(|error| fail("no thread for the page cache", error))?;
        Ok(Arc::new(PageCache { shared, writer: Mutex::new(Some(writer)), _lock: lock }))
    }

    /// Returns a store that reads pages of the database `identity` from the cache, and the others
    /// from `inner`.
    pub(super) fn before(&self, inner: Arc<dyn ObjectStore>, identity: u64) -> Arc<dyn ObjectStore> {
        let name = u64::from(checksum::crc(inner.facts().name.as_bytes()));
        let database = identity.rotate_left(32) ^ name;
        Arc::new(CachedStore { inner, cache: self.shared.clone(), database })
    }

    /// Charges the cache's memory to `account`.
    pub(super) fn charge_to(&self, account: &Arc<Account>) {
        let mut state = self.shared.state.lock();
        state.charge = Some(account.charge(0));
        state.count_memory();
    }
}

impl Drop for PageCache {
    fn drop(&mut self) {
        self.shared.state.lock().is_closed = true;
        self.shared.work.notify_all();
        if let Some(writer) = self.writer.lock().take() {
            let _ = writer.join();
        }
    }
}

impl State {
    /// Finds the pieces in the files of `directory`.
    fn load(directory: &Path) -> std::io::Result<State> {
        let mut state = State::default();
        for entry in fs::read_dir(directory)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(FILE_PREFIX)?.parse().ok());
            // A file that cannot be opened has nothing for this process.
            if let Some(number) = number
                && let Ok(file) = open_to_read(&directory.join(&name))
            {
                state.next_file = state.next_file.max(number + 1);
                let len = file.metadata()?.len();
                // A file of others is not removed, and its number not used.
                if len == 0 || begins_with_piece(&file) {
                    state.files.insert(number, CacheFile { file: Arc::new(file), len });
                }
            }
        }
        for (number, CacheFile { file, len }) in &state.files {
            let mut at = 0;
            while let Some((key, piece)) = read_header(file, *number, at)
                && piece.at + u64::from(piece.len) <= *len
            {
                at = piece.at + u64::from(piece.len);
                state.index.insert(key, piece);
            }
        }
        Ok(state)
    }

    /// Removes the oldest files until there is room for `more` bytes.
    fn make_room(&mut self, directory: &Path, bytes_max: u64, more: u64) {
        while self.files.values().map(|file| file.len).sum::<u64>() + more > bytes_max
            && let Some((number, _)) = self.files.pop_first()
        {
            // Without the index the file is useless, whether it is there or not.
            let _ = fs::remove_file(directory.join(file_name(number)));
            self.index.retain(|_, piece| piece.file != number);
            self.current = self.current.filter(|current| *current != number);
        }
    }

    fn count_memory(&self) {
        if let Some(charge) = &self.charge {
            charge.set(self.index.len() as u64 * INDEX_BYTES + self.waiting_bytes as u64);
        }
    }
}

fn file_name(number: u64) -> String {
    format!("{FILE_PREFIX}{number:08}")
}

fn header(key: Key, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES + bytes.len());
    out.extend_from_slice(&MAGIC);
    for number in [key.database, key.epoch, key.number, key.offset] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(&checksum::crc(bytes).to_le_bytes());
    out.extend_from_slice(&checksum::crc(&out).to_le_bytes());
    out
}

fn begins_with_piece(file: &fs::File) -> bool {
    let mut magic = [0; MAGIC.len()];
    file.read_exact_at(&mut magic, 0).is_ok() && magic == MAGIC
}

/// Reads the header of the piece at byte `at` of a file; `None` if there is no whole one.
fn read_header(file: &fs::File, number: u64, at: u64) -> Option<(Key, Piece)> {
    let mut bytes = [0; HEADER_BYTES];
    file.read_exact_at(&mut bytes, at).ok()?;
    let mut reader = Reader::new(&bytes);
    let magic = reader.take(8)?;
    let key =
        Key { database: reader.u64()?, epoch: reader.u64()?, number: reader.u64()?, offset: reader.u64()? };
    let (len, crc, own) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let is_whole = magic == MAGIC && own == checksum::crc(&bytes[..HEADER_BYTES - 4]);
    is_whole.then_some((key, Piece { file: number, at: at + HEADER_BYTES as u64, len, crc }))
}

impl Shared {
    /// Returns bytes of an object; `None` if not all of them are there and whole.
    fn find(&self, object: Key, range: Range<u64>) -> Option<Bytes> {
        let mut pieces = Vec::new();
        {
            let (state, mut at) = (self.state.lock(), range.start);
            while at < range.end {
                let upto = Key { offset: at, ..object };
                let (key, piece) = state.index.range(Key { offset: 0, ..object }..=upto).next_back()?;
                let end = key.offset + u64::from(piece.len);
                if end <= at {
                    return None;
                }
                pieces.push((*key, *piece, at, state.files.get(&piece.file)?.file.clone()));
                at = end;
            }
        }
        let mut found = Vec::with_capacity((range.end - range.start) as usize);
        for (key, piece, from, file) in pieces {
            let mut bytes = vec![0; piece.len as usize];
            let is_read = file.read_exact_at(&mut bytes, piece.at).is_ok();
            if !is_read || checksum::crc(&bytes) != piece.crc {
                self.state.lock().index.remove(&key);
                return None;
            }
            let end = range.end.min(key.offset + u64::from(piece.len));
            // Pieces of different reads overlap.
            found.extend_from_slice(&bytes[(from - key.offset) as usize..(end - key.offset) as usize]);
        }
        debug_assert!(found.len() as u64 == range.end - range.start, "pieces give each byte once");
        Some(found.into())
    }

    /// Keeps bytes of an object from `offset` on, unless too many wait to be written.
    fn keep(&self, object: Key, offset: u64, bytes: &Bytes) {
        let mut state = self.state.lock();
        if state.is_broken || state.waiting_bytes + bytes.len() > WAITING_BYTES_MAX {
            return;
        }
        let (mut at, end) = (offset, offset + bytes.len() as u64);
        while at < end {
            let until = end.min((at / PIECE_BYTES + 1) * PIECE_BYTES);
            let piece = bytes.slice((at - offset) as usize..(until - offset) as usize);
            state.waiting_bytes += piece.len();
            state.waiting.push_back((Key { offset: at, ..object }, piece));
            at = until;
        }
        state.count_memory();
        drop(state);
        self.work.notify_all();
    }

    /// Writes what waits, until the cache is closed.
    fn write_all(&self) {
        loop {
            let ticket = self.work.ticket();
            let (next, is_closed) = {
                let mut state = self.state.lock();
                (state.waiting.pop_front(), state.is_closed)
            };
            let Some((key, bytes)) = next else {
                if is_closed {
                    return;
                }
                self.work.wait(ticket, None);
                continue;
            };
            let written = self.write(key, &bytes);
            let mut state = self.state.lock();
            state.waiting_bytes -= bytes.len();
            if let Err(error) = written {
                tracing::warn!(%error, directory = %self.directory.display(), "the page cache takes no more");
                state.is_broken = true;
                state.waiting.clear();
                state.waiting_bytes = 0;
            }
            state.count_memory();
        }
    }

    fn write(&self, key: Key, bytes: &[u8]) -> std::io::Result<()> {
        let mut whole = header(key, bytes);
        whole.extend_from_slice(bytes);
        let (number, file, at) = {
            let mut state = self.state.lock();
            if state.index.get(&key).is_some_and(|piece| piece.len as usize >= bytes.len()) {
                return Ok(());
            }
            state.make_room(&self.directory, self.bytes_max, whole.len() as u64);
            let full = (self.bytes_max / FILES).saturating_sub(whole.len() as u64);
            let current = state.current.filter(|number| state.files[number].len <= full);
            let number = match current {
                Some(number) => number,
                None => {
                    let number = state.next_file;
                    let path = self.directory.join(file_name(number));
                    let mut options = fs::File::options();
                    let file = open_with(options.read(true).write(true).create_new(true), &path)?;
                    state.files.insert(number, CacheFile { file: Arc::new(file), len: 0 });
                    (state.current, state.next_file) = (Some(number), number + 1);
                    number
                }
            };
            (number, state.files[&number].file.clone(), state.files[&number].len)
        };
        file.write_all_at(&whole, at)?;
        let (len, crc) = (bytes.len() as u32, checksum::crc(bytes));
        let mut state = self.state.lock();
        if let Some(file) = state.files.get_mut(&number) {
            debug_assert!(file.len == at, "one thread fills the files");
            file.len = at + whole.len() as u64;
        }
        state.index.insert(key, Piece { file: number, at: at + HEADER_BYTES as u64, len, crc });
        Ok(())
    }
}

/// Reads pages from the cache, and everything else from a store.
#[derive(Debug)]
struct CachedStore {
    inner: Arc<dyn ObjectStore>,
    cache: Arc<Shared>,
    database: u64,
}

impl CachedStore {
    /// Returns the key of the object that holds pages.
    fn object(&self, name: &str) -> Option<Key> {
        let (_, id) = group_of(name).filter(|(group, _)| *group == name && name.starts_with("pages/"))?;
        Some(Key { database: self.database, epoch: id.epoch.0, number: id.number, offset: 0 })
    }
}

impl ObjectStore for CachedStore {
    fn start(&self, request: Request, done: Done) {
        let Request::Get { name, range: Some(range) } = &request else {
            return self.inner.start(request, done);
        };
        let Some(object) = self.object(name) else { return self.inner.start(request, done) };
        if let Some(body) = self.cache.find(object, range.clone()) {
            return done(Ok(Reply { body, ..Reply::default() }));
        }
        let (cache, offset) = (self.cache.clone(), range.start);
        let keep: Done = Box::new(move |outcome| {
            if let Ok(reply) = &outcome {
                cache.keep(object, offset, &reply.body);
            }
            done(outcome);
        });
        self.inner.start(request, keep);
    }

    fn facts(&self) -> StoreFacts {
        self.inner.facts()
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
