//! Buckets and objects. Each operation takes effect as a whole.

use crate::content::{self, At, Chunk};
use crate::log::{Change, Log, record};
use crate::mistakes::Mistake;
use crate::options::{Options, Place};
use crate::refusal::Refusal;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::io;
use std::ops::{Bound, Range};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A list that is late lacks what is younger than this.
const LISTS_LATE: Duration = Duration::from_secs(1);

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Store {
    mistakes: Mutex<Vec<Mistake>>,
    parts_max: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    buckets: BTreeMap<String, BTreeMap<String, Object>>,
    log: Option<Log>,
    last_tag: u64,
}

#[derive(Clone, Debug)]
struct Object {
    chunks: Vec<Chunk>,
    len: u64,
    tag: u64,
    parts: u64,
    modified: SystemTime,
    /// The first bytes as reads see them, by [`Mistake::TearsReads`].
    torn: Option<Bytes>,
}

/// What a request demands of the object that it changes. A version is the text of an ETag.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Demands {
    pub absent: bool,
    pub version: Option<String>,
    /// Any version, but some: `If-Match: *`.
    pub present: bool,
}

/// What a write demands: of an append also the offset.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub offset: Option<u64>,
    pub demands: Demands,
}

/// An append at this offset takes place at the end of the object.
const AT_END: u64 = u64::MAX;

/// An object as a request found it.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub key: String,
    pub len: u64,
    pub version: String,
    pub modified: SystemTime,
}

/// An object and its bytes.
#[derive(Debug)]
pub(crate) struct Content {
    pub found: Found,
    chunks: Vec<Chunk>,
    /// Bytes that stand in for the first ones.
    torn: Bytes,
}

impl Content {
    /// Reads a range of the bytes.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn read(&self, range: &Range<u64>) -> io::Result<Bytes> {
        let bytes = content::read(&self.chunks, range.start, range.end)?;
        let torn = self.torn.iter().skip(range.start as usize).take(bytes.len());
        if torn.len() == 0 {
            return Ok(bytes);
        }
        let mut bytes = bytes.to_vec();
        bytes.iter_mut().zip(torn).for_each(|(byte, torn)| *byte = *torn);
        Ok(bytes.into())
    }
}

impl Object {
    fn found(&self, key: &str) -> Found {
        Found { key: key.into(), len: self.len, version: version(self.tag), modified: self.modified }
    }
}

fn version(tag: u64) -> String {
    format!("{tag:016x}")
}

/// Returns whether the bucket of this name is a directory bucket: only its objects take appends.
pub(crate) fn is_directory_bucket(bucket: &str) -> bool {
    bucket.ends_with("--x-s3")
}

impl Store {
    /// Opens the store of an emulator with these options.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn open(options: &Options) -> io::Result<Store> {
        let mut state = State::default();
        if let Place::Directory(directory) = &options.place {
            let mut log = Log::open(directory, |change, chunk| state.replay(change, chunk))?;
            let objects = state.buckets.values().flat_map(BTreeMap::values);
            objects.flat_map(|object| &object.chunks).for_each(|chunk| log.keep(chunk));
            state.log = Some(log);
        }
        let store = Store {
            mistakes: Mutex::new(options.mistakes.clone()),
            parts_max: options.parts_max,
            state: Mutex::new(state),
        };
        for bucket in &options.buckets {
            if !store.has_bucket(bucket) {
                store.create_bucket(bucket).map_err(|refusal| io::Error::other(refusal.message))?;
            }
        }
        Ok(store)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether this server breaks the promise.
    pub fn makes(&self, mistake: Mistake) -> bool {
        self.mistakes.lock().unwrap_or_else(PoisonError::into_inner).contains(&mistake)
    }

    /// Changes the promises that this server breaks from now on.
    pub fn set_mistakes(&self, mistakes: Vec<Mistake>) {
        *self.mistakes.lock().unwrap_or_else(PoisonError::into_inner) = mistakes;
    }

    /// Returns what is left to check of a write that begins now, by a server that checks a
    /// condition before it writes: nothing, if the condition holds now.
    pub fn check_early(&self, bucket: &str, key: &str, write: Write) -> Write {
        let Write { offset, demands } = &write;
        let races = (demands.absent && self.makes(Mistake::RacesIfNoneMatch))
            || (demands.version.is_some() && self.makes(Mistake::RacesIfMatch))
            || (offset.is_some_and(|offset| offset > 0) && self.makes(Mistake::RacesOffset));
        let state = self.lock();
        let object = state.objects(bucket).ok().and_then(|objects| objects.get(key));
        let is_at_end = offset.is_none_or(|at| at == object.map_or(0, |object| object.len));
        if !races || !is_at_end || self.check(object, key, demands).is_err() {
            return write;
        }
        // An offset of 0 would create the object.
        Write { offset: offset.map(|at| if at > 0 { AT_END } else { 0 }), demands: Demands::default() }
    }

    /// Shows a part of `body` to reads until the object is replaced, if the demands hold now.
    pub fn tear(&self, bucket: &str, key: &str, body: &Bytes, demands: &Demands) {
        let mut state = self.lock();
        let object = state.objects(bucket).ok().and_then(|objects| objects.get(key));
        if self.check(object, key, demands).is_err() {
            return;
        }
        if let Some(object) = state.buckets.get_mut(bucket).and_then(|objects| objects.get_mut(key)) {
            object.torn = Some(body.slice(..body.len() / 2));
        }
    }

    /// Creates a bucket.
    ///
    /// # Errors
    /// It exists; the log cannot be written.
    pub fn create_bucket(&self, bucket: &str) -> Result<(), Refusal> {
        let mut state = self.lock();
        if state.buckets.contains_key(bucket) {
            return Err(Refusal::new("BucketAlreadyOwnedByYou", 409, format!("the bucket {bucket} exists")));
        }
        state.write(&Change::CreateBucket { bucket: bucket.into() }, Bytes::new())?;
        state.buckets.insert(bucket.into(), BTreeMap::new());
        Ok(())
    }

    /// Deletes an empty bucket.
    ///
    /// # Errors
    /// There is none, or it is not empty; the log cannot be written.
    pub fn delete_bucket(&self, bucket: &str) -> Result<(), Refusal> {
        let mut state = self.lock();
        if !state.objects(bucket)?.is_empty() {
            return Err(Refusal::new("BucketNotEmpty", 409, format!("the bucket {bucket} holds objects")));
        }
        state.write(&Change::DeleteBucket { bucket: bucket.into() }, Bytes::new())?;
        state.buckets.remove(bucket);
        Ok(())
    }

    /// Returns the names of all buckets.
    pub fn buckets(&self) -> Vec<String> {
        self.lock().buckets.keys().cloned().collect()
    }

    /// Returns whether there is such a bucket.
    pub fn has_bucket(&self, bucket: &str) -> bool {
        self.lock().buckets.contains_key(bucket)
    }

    /// Creates or replaces an object. Returns its version.
    ///
    /// # Errors
    /// A demand does not hold; there is no such bucket; the log cannot be written.
    pub fn put(&self, bucket: &str, key: &str, body: Bytes, demands: &Demands) -> Result<String, Refusal> {
        let mut state = self.lock();
        self.check(state.objects(bucket)?.get(key), key, demands)?;
        let (tag, modified) = state.next_tag();
        let (len, parts) = (body.len() as u64, 1);
        let (bucket, key) = (bucket.to_string(), key.to_string());
        let change = Change::Put {
            bucket: bucket.clone(),
            key: key.clone(),
            tag,
            parts,
            modified_ms: milliseconds(modified),
        };
        let chunk = state.write(&change, body)?;
        let object = Object { chunks: vec![chunk], len, tag, parts, modified, torn: None };
        let before = state.buckets.entry(bucket).or_default().insert(key, object);
        state.release(before);
        Ok(version(tag))
    }

    /// Adds bytes to an object that ends at `offset`. Returns its version and length.
    ///
    /// # Errors
    /// As [`Store::put`]; the offset is another; the object has too many parts.
    pub fn append(
        &self,
        bucket: &str,
        key: &str,
        offset: u64,
        body: Bytes,
        demands: &Demands,
    ) -> Result<(String, u64), Refusal> {
        if !is_directory_bucket(bucket) {
            let what = "only objects of a directory bucket take appends (x-amz-write-offset-bytes)";
            return Err(Refusal::not_implemented(what));
        }
        if self.makes(Mistake::IgnoresOffset) {
            let len = body.len() as u64;
            return self.put(bucket, key, body, demands).map(|version| (version, len));
        }
        let mut state = self.lock();
        let object = state.objects(bucket)?.get(key);
        self.check(object, key, demands)?;
        let Some(object) = object else {
            drop(state);
            return match offset {
                0 => {
                    let len = body.len() as u64;
                    self.put(bucket, key, body, demands).map(|version| (version, len))
                }
                _ => Err(Refusal::no_key(key)),
            };
        };
        if object.len != offset && offset != AT_END {
            let what = format!("the object has {} bytes, and the offset is {offset}", object.len);
            return Err(Refusal::new("InvalidWriteOffset", 400, what));
        }
        if object.parts >= self.parts_max {
            let what = format!("the object has {} parts, and takes no more", object.parts);
            return Err(Refusal::new("TooManyParts", 400, what));
        }
        let (tag, modified) = state.next_tag();
        let change = Change::Append {
            bucket: bucket.into(),
            key: key.into(),
            tag,
            modified_ms: milliseconds(modified),
        };
        let chunk = state.write(&change, body)?;
        let object = state.buckets.get_mut(bucket).and_then(|objects| objects.get_mut(key));
        let object = object.ok_or_else(|| Refusal::no_key(key))?;
        object.append(chunk, tag, modified);
        Ok((version(tag), object.len))
    }

    /// Deletes an object; an absent one is no error.
    ///
    /// # Errors
    /// A demand does not hold; there is no such bucket; the log cannot be written.
    pub fn delete(&self, bucket: &str, key: &str, demands: &Demands) -> Result<(), Refusal> {
        let mut state = self.lock();
        let object = state.objects(bucket)?.get(key);
        self.check(object, key, demands)?;
        if object.is_some() {
            state.write(&Change::Delete { bucket: bucket.into(), key: key.into() }, Bytes::new())?;
            let before = state.buckets.get_mut(bucket).and_then(|objects| objects.remove(key));
            state.release(before);
        }
        Ok(())
    }

    /// Finds an object.
    ///
    /// # Errors
    /// There is none, or no such bucket.
    pub fn find(&self, bucket: &str, key: &str) -> Result<Found, Refusal> {
        Ok(self.lock().object(bucket, key)?.found(key))
    }

    /// Finds an object and its bytes.
    ///
    /// # Errors
    /// As [`Store::find`].
    pub fn content(&self, bucket: &str, key: &str) -> Result<Content, Refusal> {
        let state = self.lock();
        let object = state.object(bucket, key)?;
        Ok(Content {
            found: object.found(key),
            chunks: object.chunks.clone(),
            torn: object.torn.clone().unwrap_or_default(),
        })
    }

    /// Returns the objects whose keys begin with `prefix`, in order.
    ///
    /// # Errors
    /// There is no such bucket.
    pub fn list(&self, bucket: &str, prefix: &str) -> Result<Vec<Found>, Refusal> {
        let state = self.lock();
        let objects = state.objects(bucket)?.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        let objects = objects.take_while(|(key, _)| key.starts_with(prefix));
        let late = self.makes(Mistake::ListsLate);
        let is_young = |object: &Object| object.modified.elapsed().is_ok_and(|elapsed| elapsed < LISTS_LATE);
        Ok(objects
            .filter(|(_, object)| !late || !is_young(object))
            .map(|(key, object)| object.found(key))
            .collect())
    }

    fn check(&self, object: Option<&Object>, key: &str, demands: &Demands) -> Result<(), Refusal> {
        if demands.absent && object.is_some() && !self.makes(Mistake::IgnoresIfNoneMatch) {
            return Err(Refusal::precondition("If-None-Match"));
        }
        if self.makes(Mistake::IgnoresIfMatch) || (demands.version.is_none() && !demands.present) {
            return Ok(());
        }
        let object = object.ok_or_else(|| Refusal::no_key(key))?;
        match &demands.version {
            Some(wanted) if *wanted != version(object.tag) => Err(Refusal::precondition("If-Match")),
            _ => Ok(()),
        }
    }
}

impl Object {
    fn append(&mut self, chunk: Chunk, tag: u64, modified: SystemTime) {
        self.len += chunk.len;
        self.chunks.push(chunk);
        self.parts += 1;
        (self.tag, self.modified) = (tag, modified);
    }
}

impl State {
    fn objects(&self, bucket: &str) -> Result<&BTreeMap<String, Object>, Refusal> {
        self.buckets.get(bucket).ok_or_else(|| Refusal::no_bucket(bucket))
    }

    fn object(&self, bucket: &str, key: &str) -> Result<&Object, Refusal> {
        self.objects(bucket)?.get(key).ok_or_else(|| Refusal::no_key(key))
    }

    /// Returns a tag that no version had before, not even before a restart, and the time.
    fn next_tag(&mut self) -> (u64, SystemTime) {
        let now = SystemTime::now();
        let nanoseconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        self.last_tag = nanoseconds.max(self.last_tag + 1);
        (self.last_tag, now)
    }

    fn write(&mut self, change: &Change, body: Bytes) -> Result<Chunk, Refusal> {
        record(self.log.as_mut(), change, body).map_err(Refusal::internal)
    }

    /// Forgets an object's bytes. Then moves live objects, if too much of the log is dead.
    fn release(&mut self, object: Option<Object>) {
        let Some(log) = &mut self.log else { return };
        object.iter().flat_map(|object| &object.chunks).for_each(|chunk| log.release(chunk));
        if let Some(number) = log.to_clean() {
            // What cannot be moved stays where it is.
            let _ = self.clean(number);
        }
    }

    /// Writes the objects with bytes in a file of the log again, so that the file can go.
    fn clean(&mut self, number: u64) -> io::Result<()> {
        let Some(log) = &mut self.log else { return Ok(()) };
        let is_in = |chunk: &Chunk| matches!(chunk.at, At::File { number: at, .. } if at == number);
        for (bucket, objects) in &mut self.buckets {
            let live = objects.iter_mut().filter(|(_, object)| object.chunks.iter().any(is_in));
            for (key, object) in live {
                let body = crate::content::read(&object.chunks, 0, object.len)?;
                let change = Change::Put {
                    bucket: bucket.clone(),
                    key: key.clone(),
                    tag: object.tag,
                    parts: object.parts,
                    modified_ms: milliseconds(object.modified),
                };
                let moved = log.add(&change, &body)?;
                let before = std::mem::replace(&mut object.chunks, vec![moved]);
                before.iter().for_each(|chunk| log.release(chunk));
            }
        }
        Ok(())
    }

    fn replay(&mut self, change: Change, chunk: Chunk) {
        match change {
            Change::CreateBucket { bucket } => drop(self.buckets.entry(bucket).or_default()),
            Change::DeleteBucket { bucket } => drop(self.buckets.remove(&bucket)),
            Change::Put { bucket, key, tag, parts, modified_ms } => {
                self.last_tag = self.last_tag.max(tag);
                let (len, modified) = (chunk.len, time(modified_ms));
                let object = Object { chunks: vec![chunk], len, tag, parts, modified, torn: None };
                self.buckets.entry(bucket).or_default().insert(key, object);
            }
            Change::Append { bucket, key, tag, modified_ms } => {
                self.last_tag = self.last_tag.max(tag);
                let object = self.buckets.get_mut(&bucket).and_then(|objects| objects.get_mut(&key));
                if let Some(object) = object {
                    object.append(chunk, tag, time(modified_ms));
                }
            }
            Change::Delete { bucket, key } => {
                self.buckets.get_mut(&bucket).and_then(|objects| objects.remove(&key));
            }
        }
    }
}

fn milliseconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

fn time(milliseconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(milliseconds)
}

#[cfg(test)]
mod tests;
