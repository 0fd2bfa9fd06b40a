//! Buckets and objects: simulated buckets, whose changes are kept in the log. Each operation takes
//! effect as a whole.

use crate::log::{Log, Record, tag_of, version_of};
use crate::mistakes::{self, Mistake};
use crate::options::{Options, Place};
use crate::refusal::Refusal;
use bytes::Bytes;
use quenchdb::internals::device::objects::simulated::{Bucket, Change, SimulatedObject, StoreOptions};
use quenchdb::internals::device::objects::{Condition, FailureKind, Reply, Request, Version};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    buckets: BTreeMap<String, Bucket>,
    log: Option<Log<Record>>,
    last_tag: u64,
}

/// What a request demands of the object that it changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Demands {
    pub absent: bool,
    pub version: Option<Version>,
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

/// Returns the time at which an object was written.
pub(crate) fn modified(object: &SimulatedObject) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(tag_of(object.version()))
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
            state.log = Some(Log::open(directory, |record, body| state.replay(record, body))?);
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

    fn mistakes(&self) -> MutexGuard<'_, Vec<Mistake>> {
        self.mistakes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether this server breaks the promise.
    pub fn makes(&self, mistake: Mistake) -> bool {
        self.mistakes().contains(&mistake)
    }

    /// Changes the promises that this server breaks from now on.
    pub fn set_mistakes(&self, mistakes: Vec<Mistake>) {
        *self.mistakes() = mistakes;
    }

    /// Returns what the bucket of this name can do.
    fn options(&self, bucket: &str) -> StoreOptions {
        StoreOptions {
            appends: is_directory_bucket(bucket),
            appends_apart: false,
            parts_max: self.parts_max,
            broken: mistakes::broken(&self.mistakes()),
            ..StoreOptions::new(0)
        }
    }

    /// Returns what is left to check of a write that begins now, by a server that checks a
    /// condition before it writes: nothing, if the condition holds now.
    pub fn check_early(&self, bucket: &str, key: &str, write: Write) -> Write {
        let Write { offset, demands } = &write;
        let races = (demands.absent && self.makes(Mistake::RacesIfNoneMatch))
            || (demands.version.is_some() && self.makes(Mistake::RacesIfMatch))
            || (offset.is_some_and(|offset| offset > 0) && self.makes(Mistake::RacesOffset));
        let state = self.lock();
        let is_at_end = offset.is_none_or(|at| at == state.len(bucket, key).unwrap_or(0));
        if !races || !is_at_end || self.check(&state, bucket, key, demands).is_err() {
            return write;
        }
        // An offset of 0 would create the object.
        Write { offset: offset.map(|at| if at > 0 { AT_END } else { 0 }), demands: Demands::default() }
    }

    /// Shows a part of `body` to reads until the object is replaced, if the demands hold now.
    pub fn tear(&self, name: &str, key: &str, body: &Bytes, demands: &Demands) {
        let mut state = self.lock();
        if self.check(&state, name, key, demands).is_err() {
            return;
        }
        let Some(bucket) = state.buckets.get_mut(name) else { return };
        let Some(object) = bucket.objects().get(key) else { return };
        let half = body.slice(..(body.len() / 2).min(object.len() as usize));
        let torn = [&half[..], &object.body()[half.len()..]].concat();
        let object = Arc::new(object.with_body(torn.into()));
        bucket.apply(&Change::Put { name: key.into(), object });
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
        state.record(&Record::CreateBucket { bucket: bucket.into() })?;
        state.buckets.insert(bucket.into(), Bucket::default());
        Ok(())
    }

    /// Deletes an empty bucket.
    ///
    /// # Errors
    /// There is none, or it is not empty; the log cannot be written.
    pub fn delete_bucket(&self, bucket: &str) -> Result<(), Refusal> {
        let mut state = self.lock();
        if !state.bucket(bucket)?.objects().is_empty() {
            return Err(Refusal::new("BucketNotEmpty", 409, format!("the bucket {bucket} holds objects")));
        }
        state.record(&Record::DeleteBucket { bucket: bucket.into() })?;
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

    /// Creates or replaces an object, or adds bytes to one that ends at the offset. The reply has
    /// version and length.
    ///
    /// # Errors
    /// A demand or the offset does not hold; there is no such bucket; the object takes no more
    /// appends; the log cannot be written.
    pub fn write(&self, bucket: &str, key: &str, body: Bytes, write: &Write) -> Result<Reply, Refusal> {
        let mut state = self.lock();
        self.check(&state, bucket, key, &write.demands)?;
        let name = key.to_string();
        let request = match write.offset {
            None => Request::Put { name, body, condition: Condition::Always },
            Some(offset) => {
                let end = state.len(bucket, key).filter(|_| offset == AT_END);
                Request::Append { name, offset: end.unwrap_or(offset), body, version: None }
            }
        };
        state.perform(bucket, &self.options(bucket), &request)
    }

    /// Deletes an object; an absent one is no error.
    ///
    /// # Errors
    /// A demand does not hold; there is no such bucket; the log cannot be written.
    pub fn delete(&self, bucket: &str, key: &str, demands: &Demands) -> Result<(), Refusal> {
        let mut state = self.lock();
        self.check(&state, bucket, key, demands)?;
        state.perform(bucket, &self.options(bucket), &Request::Delete { name: key.into() }).map(drop)
    }

    /// Finds an object.
    ///
    /// # Errors
    /// There is none, or no such bucket.
    pub fn find(&self, bucket: &str, key: &str) -> Result<Arc<SimulatedObject>, Refusal> {
        let state = self.lock();
        state.bucket(bucket)?.objects().get(key).cloned().ok_or_else(|| Refusal::no_key(key))
    }

    /// Returns the objects whose keys begin with `prefix`, in order.
    ///
    /// # Errors
    /// There is no such bucket.
    pub fn list(&self, bucket: &str, prefix: &str) -> Result<Vec<(String, Arc<SimulatedObject>)>, Refusal> {
        let state = self.lock();
        let objects = state.bucket(bucket)?.objects().range(prefix.to_string()..);
        let late = self.makes(Mistake::ListsLate);
        let is_young = |object| modified(object).elapsed().is_ok_and(|elapsed| elapsed < LISTS_LATE);
        Ok(objects
            .take_while(|(key, _)| key.starts_with(prefix))
            .filter(|(_, object)| !late || !is_young(object))
            .map(|(key, object)| (key.clone(), object.clone()))
            .collect())
    }

    fn check(&self, state: &State, bucket: &str, key: &str, demands: &Demands) -> Result<(), Refusal> {
        let (bucket, broken) = (state.bucket(bucket)?, mistakes::broken(&self.mistakes()));
        let Demands { absent, version, present } = demands;
        if *absent {
            bucket.check(&broken, key, &Condition::Absent)?;
        }
        // The version of an object that is there holds.
        let current = bucket.objects().get(key).map(|object| object.version().clone());
        let wanted = version.clone().or(present.then(|| current.unwrap_or_else(|| version_of(0))));
        wanted.map_or(Ok(()), |wanted| bucket.check(&broken, key, &Condition::Unchanged(wanted)))?;
        Ok(())
    }
}

impl State {
    fn bucket(&self, name: &str) -> Result<&Bucket, Refusal> {
        self.buckets.get(name).ok_or_else(|| Refusal::no_bucket(name))
    }

    fn len(&self, bucket: &str, key: &str) -> Option<u64> {
        self.buckets.get(bucket)?.objects().get(key).map(|object| object.len())
    }

    /// Carries a request out, with a version that no object had before, not even before a restart.
    fn perform(&mut self, name: &str, options: &StoreOptions, request: &Request) -> Result<Reply, Refusal> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        self.last_tag = now.max(self.last_tag + 1);
        let bucket = self.buckets.get_mut(name).ok_or_else(|| Refusal::no_bucket(name))?;
        bucket.skip_versions(self.last_tag);
        // The demands were checked before, so that only an offset can be wrong.
        let (change, reply) = bucket.judge(options, request).map_err(|failure| match failure.kind {
            FailureKind::Refused => Refusal::new("InvalidWriteOffset", 400, failure.what),
            _ => Refusal::from(failure),
        })?;
        let Some(change) = change else { return Ok(reply) };
        let (record, body) = Record::of(name, &change);
        self.log.as_mut().map_or(Ok(()), |log| log.add(&record, &body)).map_err(Refusal::internal)?;
        bucket.apply(&change);
        if self.log.as_ref().is_some_and(Log::is_wasteful) {
            // Otherwise the log stays as it is.
            let _ = self.rewrite_log();
        }
        Ok(reply)
    }

    fn record(&mut self, record: &Record) -> Result<(), Refusal> {
        self.log.as_mut().map_or(Ok(()), |log| log.add(record, &[])).map_err(Refusal::internal)
    }

    /// Writes all buckets and objects to a new log.
    fn rewrite_log(&mut self) -> io::Result<()> {
        let records = self.buckets.iter().flat_map(|(name, bucket)| {
            let created = (Record::CreateBucket { bucket: name.clone() }, Bytes::new());
            let put = |(key, object): (&String, &Arc<SimulatedObject>)| {
                Record::of(name, &Change::Put { name: key.clone(), object: object.clone() })
            };
            std::iter::once(created).chain(bucket.objects().iter().map(put))
        });
        self.log.as_mut().map_or(Ok(()), |log| log.rewrite(records))
    }

    fn replay(&mut self, record: Record, body: Bytes) {
        if let Record::Put { tag, .. } | Record::Append { tag, .. } = record {
            self.last_tag = self.last_tag.max(tag);
        }
        let is_deleted = matches!(record, Record::DeleteBucket { .. });
        let (name, change) = record.change(body);
        let bucket = self.buckets.entry(name.clone()).or_default();
        change.iter().for_each(|change| bucket.apply(change));
        if is_deleted {
            self.buckets.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests;
