//! A database in a store of objects.
//!
//! | part | objects |
//! |---|---|
//! | the manifest | `manifest`, with what the device must know: see `body` |
//! | the segments | `log/<epoch>-<number>`, several for each segment |
//! | the pages | `pages/<epoch>-<number>`: see `extents` |
//! | a small file | `files/<epoch>-<number>`: see `files` |
//!
//! The lock of a database is a claim. It is never refused: a writer that is still alive ends at its
//! next append or put. See [`Session`].

use super::body::{Body, FileEntry, MANIFEST_NAME};
use super::buckets::{BucketSet, Buckets};
use super::callback_queue::CallbackQueue;
use super::collect::remove_fences;
use super::counted::CountedStore;
use super::extents::{Extents, read_only};
use super::fence::peek;
use super::followed::ObjectLog;
use super::followed_several::SpreadLog;
use super::listing::list_objects;
use super::options::Options;
use super::page_cache::PageCache;
use super::patience::{error_of, persist, place};
use super::pins::{self, PinnedBody};
use super::register::look_up;
use super::request::Request;
use super::segment_reader::{Part, SegmentReader};
use super::session::Session;
use super::small_file::SmallFile;
use super::store::{ObjectStore, StoreFacts};
use crate::base::planted::{self, Bug};
use crate::base::{Account, Error, ErrorKind, Location, Result, SegmentId};
use crate::device::{
    BucketStatistics, DeviceFacts, Directory, DurabilityMethod, File, FollowedLog, LogPosition,
    MANIFEST_PATH, ManifestStore, Names, ObjectList, ObjectRequests, OpenMode, PAGES_PATH, Pin, Pins,
    ReadDone, ReadRequest, Register, Roles, Segments, Storage, WriteQueue, check_new, path_of,
};
use crate::sync::{Mutex, thread};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How often, and after which pause, a look waits for buckets that have not answered.
const LATE_ANSWERS: u32 = 100;
const LATE_PAUSE: Duration = Duration::from_millis(20);

/// See the module's text. Clones share it.
#[derive(Clone, Debug)]
pub struct ObjectStorage {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Counts in `requests`.
    store: Arc<dyn ObjectStore>,
    requests: Arc<Mutex<ObjectRequests>>,
    facts: StoreFacts,
    options: Options,
    lock: Mutex<Locked>,
    /// Keeps pages that were read.
    cache: Option<Arc<PageCache>>,
    /// The only manifest that is read, and the pin that keeps it.
    pinned: Option<PinnedBody>,
    /// Of a database in several buckets.
    buckets: Option<Buckets>,
}

#[derive(Debug, Default)]
struct Locked {
    /// The database is locked for writing.
    for_writing: bool,
    /// None before the first claim, which creates the register of a new database.
    session: Option<Arc<Session>>,
    read: Option<Reading>,
}

/// What a reader without a pin reads.
#[derive(Debug)]
struct Reading {
    /// Its only manifest, so that log and pages are of one moment.
    body: Body,
    /// Lengths of segments when they were looked up first.
    lens: BTreeMap<u64, u64>,
}

/// The lock of a writer. A later claim ends the writer, whether it is dropped or not.
#[derive(Debug)]
struct Lock {
    shared: Arc<Shared>,
    exclusive: bool,
}

impl Drop for Lock {
    fn drop(&mut self) {
        if !self.exclusive {
            self.shared.lock.lock().read = None;
            return;
        }
        let session = {
            let mut locked = self.shared.lock.lock();
            locked.for_writing = false;
            locked.session.take()
        };
        session.into_iter().for_each(|session| session.close());
    }
}

impl ObjectStorage {
    /// Opens a store of objects with these properties, which a probe has found. Reads and writes
    /// nothing.
    #[must_use]
    pub fn new(store: Arc<dyn ObjectStore>, facts: StoreFacts, options: Options) -> ObjectStorage {
        ObjectStorage::open(store, facts, options, true)
    }

    /// Opens a store of objects of which only these properties are known. Reads and writes nothing.
    #[must_use]
    pub fn unprobed(store: Arc<dyn ObjectStore>, facts: StoreFacts, options: Options) -> ObjectStorage {
        ObjectStorage::open(store, facts, options, false)
    }

    fn open(
        store: Arc<dyn ObjectStore>,
        facts: StoreFacts,
        options: Options,
        is_probed: bool,
    ) -> ObjectStorage {
        let (lock, cache, pinned, requests) = (Mutex::default(), None, None, Arc::default());
        let store = Arc::new(CountedStore::new(store, Arc::clone(&requests), is_probed));
        let shared = Shared { store, requests, facts, options, lock, cache, pinned, buckets: None };
        ObjectStorage { shared: Arc::new(shared) }
    }

    /// Opens several stores of objects, each with its URL, that hold a database together. `replace`
    /// names a bucket of the database, and one of these stores that takes its place when it has
    /// everything. Reads and writes nothing. `is_probed` says of all stores what a probe has found.
    #[must_use]
    pub fn several(
        stores: Vec<(String, Arc<dyn ObjectStore>)>,
        replace: Option<&(String, String)>,
        options: Options,
        is_probed: bool,
    ) -> ObjectStorage {
        let requests: Arc<Mutex<ObjectRequests>> = Arc::default();
        let count = |(name, store): (String, Arc<dyn ObjectStore>)| {
            let counted = CountedStore::new(store, Arc::clone(&requests), is_probed);
            (name, Arc::new(counted) as Arc<dyn ObjectStore>)
        };
        let set = BucketSet::new(stores.into_iter().map(count).collect(), options.all_buckets, replace);
        let buckets = Buckets::new(set);
        let (facts, store) = (buckets.facts(), Arc::new(buckets.clone()));
        let (lock, cache, pinned, buckets) = (Mutex::default(), None, None, Some(buckets));
        let shared = Shared { store, requests, facts, options, lock, cache, pinned, buckets };
        ObjectStorage { shared: Arc::new(shared) }
    }

    /// Returns the same storage, not locked yet, with a cache of pages in a local directory.
    #[must_use]
    pub fn with_cache(&self, cache: Arc<PageCache>) -> ObjectStorage {
        let Shared { store, requests, facts, options, buckets, .. } = &*self.shared;
        let (store, requests, facts, options) = (store.clone(), requests.clone(), facts.clone(), *options);
        let (lock, cache, pinned, buckets) = (Mutex::default(), Some(cache), None, buckets.clone());
        let shared = Shared { store, requests, facts, options, lock, cache, pinned, buckets };
        ObjectStorage { shared: Arc::new(shared) }
    }

    /// Deletes the fences that stay in a store without appends, except those that the manifest
    /// still needs. Returns how many. A writer that was ended by one of them must not be alive any
    /// more.
    ///
    /// # Errors
    /// `NotFound` if there is no database; `Corruption` or `Unsupported` for its manifest; I/O.
    pub fn remove_fences(&self) -> Result<u64> {
        remove_fences(&*self.shared.store, self.shared.options.patience)
    }

    /// Looks at each of several buckets, and returns what is known of them. A bucket that does not
    /// answer has a problem.
    ///
    /// # Errors
    /// `NotFound` if there is no database; I/O if too few of them answer.
    pub fn look_at_buckets(&self) -> Result<Vec<BucketStatistics>> {
        if self.shared.body()?.identity == 0 {
            return Err(missing(MANIFEST_PATH));
        }
        // A majority has answered; the others may need a little longer.
        for _ in 0..LATE_ANSWERS {
            if self.buckets().iter().all(|bucket| bucket.is_counted || bucket.problem.is_some()) {
                break;
            }
            thread::sleep(LATE_PAUSE);
        }
        Ok(self.buckets())
    }

    /// Returns all objects of the database. Claims and writes nothing, so a writer may work at the
    /// same time. Whether records are needed is [`LogRecords::Unknown`](crate::device::LogRecords)
    /// as far as that depends on the content of the log.
    ///
    /// # Errors
    /// `NotFound` if there is no database; `Corruption` or `Unsupported` for its manifest; I/O.
    pub fn list_objects(&self) -> Result<ObjectList> {
        let Shared { store, options, .. } = &*self.shared;
        if let Some(list) = list_objects(&**store, options.patience)? {
            return Ok(list);
        }
        self.shared.refuse_foreign_objects()?;
        let what = "there is no database at this URL";
        Err(Error::new(ErrorKind::NotFound, what).at(place(MANIFEST_NAME, 0)))
    }
}

impl Shared {
    /// Returns the writer's session, if the database is locked for writing and was claimed.
    fn session(&self) -> Option<Arc<Session>> {
        self.lock.lock().session.clone()
    }

    /// Returns the writer's session. Claims a database that does not exist yet.
    fn to_write(&self) -> Result<Arc<Session>> {
        let mut locked = self.lock.lock();
        if let Some(session) = &locked.session {
            return Ok(session.clone());
        }
        if !locked.for_writing {
            return Err(read_only());
        }
        let session = self.begin(true)?;
        locked.session = Some(session.clone());
        Ok(session)
    }

    /// Claims the database, or creates it if `is_new`.
    fn begin(&self, is_new: bool) -> Result<Arc<Session>> {
        let Shared { store, facts, options, buckets, cache, .. } = self;
        Session::begin(store, facts, *options, buckets.as_ref(), cache.as_deref(), is_new)
    }

    /// Finds out which of several buckets count.
    fn find_buckets(&self) -> Result<()> {
        if self.buckets.is_some() { self.body().map(|_| ()) } else { Ok(()) }
    }

    /// Returns the newest body, or that of a reader; an empty one if there is no manifest.
    fn body(&self) -> Result<Body> {
        if let Some(pinned) = &self.pinned {
            return Ok(pinned.body.clone());
        }
        let read = self.lock.lock().read.as_ref().map(|read| read.body.clone());
        match (self.session(), read) {
            (Some(session), _) => Ok(session.register.body()),
            (None, Some(read)) => Ok(read),
            (None, None) => {
                let found = look_up(&*self.store, self.options.patience)?;
                Ok(found.map(|stored| stored.body).unwrap_or_default())
            }
        }
    }

    /// Returns the error of a read of pages: why an object is missing.
    fn explain(&self, error: Error) -> Error {
        if let Some(pinned) = &self.pinned {
            return pinned.explain(error);
        }
        if let Some(session) = self.session() {
            return session.explain(error);
        }
        match error.kind() {
            ErrorKind::NotFound => {
                let what = "a writer has deleted a page that this reader needs: open the database again";
                Error::after(ErrorKind::Poisoned, what, &error)
            }
            _ => error,
        }
    }

    fn refuse_foreign_objects(&self) -> Result<()> {
        let request = Request::List { prefix: String::new() };
        let listed = persist(&*self.store, &request, self.options.patience)
            .map_err(|failure| error_of(&failure, "the objects cannot be listed", ""))?
            .listed;
        // Another process has created a database meanwhile: the claim finds out.
        if listed.iter().any(|object| object.name == MANIFEST_NAME) {
            return Ok(());
        }
        let is_ours = |name: &str| ["probe/", "pins/"].iter().any(|prefix| name.starts_with(prefix));
        match listed.iter().find(|object| !is_ours(&object.name)) {
            None => Ok(()),
            // A list is not of one moment: another process may have created a database while it was
            // made.
            Some(_) if look_up(&*self.store, self.options.patience)?.is_some() => Ok(()),
            Some(object) => {
                let is_ours = |prefix: &&str| object.name.starts_with(prefix);
                let error = match ["log/", "pages/", "files/"].iter().any(is_ours) {
                    true => Error::corruption("there is no manifest, but objects of a database")
                        .with_advice("restore the manifest"),
                    false => Error::invalid("there are other objects, and no database")
                        .with_advice("choose an empty prefix"),
                };
                Err(error.at(place(&object.name, 0)))
            }
        }
    }

    /// Opens a segment as it is in the store now, without a claim.
    fn peek_segment(&self, number: u64, path: &str) -> Result<Option<Arc<dyn File>>> {
        let body = self.body()?;
        let Some(entry) = body.segments.into_iter().find(|entry| entry.number == number) else {
            return Ok(None);
        };
        if self.buckets.is_some() && entry.accepted.is_none() && !body.closed {
            // What one bucket has may not be in a majority, and so may still be lost.
            let what = "the log of a database in several buckets is read by its writer only";
            return Err(Error::new(ErrorKind::Unsupported, what)
                .with_advice("open its newest checkpoint, or open it for writing")
                .at(place(path, 0)));
        }
        let parts = peek(&*self.store, &entry, self.options.patience)?.parts;
        if let Some(read) = &mut self.lock.lock().read {
            read.lens.entry(number).or_insert(parts.iter().map(Part::len).sum());
        }
        let (store, path, patience) = (self.store.clone(), path.to_string(), self.options.patience);
        Ok(Some(Arc::new(SegmentReader { store, path, parts, patience })))
    }

    fn open_file(&self, path: &str, create: bool) -> Result<Arc<dyn File>> {
        let session = if create { Some(self.to_write()?) } else { self.session() };
        if let (true, Some(session)) = (create, &session) {
            session.create_file(path);
        }
        let found = match &session {
            Some(session) => session.file(path),
            None => self.body()?.files.into_iter().find(|file| file.path == path),
        };
        let found: FileEntry = found.ok_or_else(|| missing(path))?;
        let (store, patience) = (self.store.clone(), self.options.patience);
        Ok(Arc::new(SmallFile { store, patience, session, found, written: Mutex::default() }))
    }

    fn extents(&self) -> Result<Arc<Extents>> {
        match self.session() {
            Some(session) => Ok(session.extents.clone()),
            None => {
                let Options { extent_bytes, patience, .. } = self.options;
                let (body, store) = (self.body()?, self.store.clone());
                let store = match &self.cache {
                    Some(cache) => cache.before(store, body.identity),
                    None => store,
                };
                Ok(Extents::new(store, &body, Arc::default(), extent_bytes, patience))
            }
        }
    }
}

fn missing(path: &str) -> Error {
    Error::new(ErrorKind::NotFound, "the file does not exist").at(place(path, 0))
}

impl Roles for ObjectStorage {
    fn manifest(&self, mode: OpenMode) -> Result<ManifestStore> {
        if !mode.create && self.shared.body()?.contents.is_empty() {
            return Err(missing(MANIFEST_PATH));
        }
        Ok(ManifestStore::Register(Arc::new(ManifestObject { shared: self.shared.clone() })))
    }

    fn segments(&self) -> &dyn Segments {
        self
    }

    fn pages(&self, mode: OpenMode) -> Result<Arc<dyn File>> {
        if mode.create {
            self.shared.to_write()?;
        }
        let extents = self.shared.extents()?;
        if !mode.create && extents.len() == 0 {
            return Err(missing(PAGES_PATH));
        }
        Ok(Arc::new(PagesObject { shared: self.shared.clone(), extents }))
    }

    fn small_file(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        self.shared.open_file(name, mode.create)
    }

    fn remove_small_file(&self, name: &str) -> Result<()> {
        self.shared.to_write()?.remove_file(name);
        Ok(())
    }

    fn names(&self) -> Result<Vec<String>> {
        let body = self.shared.body()?;
        let mut names: Vec<String> = match self.shared.session() {
            Some(session) => session.file_paths(),
            None => body.files.into_iter().map(|file| file.path).collect(),
        };
        if !body.contents.is_empty() {
            names.push(MANIFEST_PATH.into());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn flush_names(&self, of: Names) -> Result<()> {
        match of {
            Names::Segments if !planted::is(Bug::UnregisteredSegment) => {
                self.shared.to_write()?.publish(None)
            }
            Names::Root => self.shared.session().map_or(Ok(()), |session| session.publish_files()),
            Names::Segments | Names::Pages => Ok(()),
        }
    }

    fn directory(&self) -> Option<&dyn Directory> {
        None
    }
}

impl Segments for ObjectStorage {
    fn prepare(&self) -> Result<()> {
        Ok(())
    }

    fn list(&self) -> Result<Vec<SegmentId>> {
        let numbers = match self.shared.session() {
            Some(session) => session.segment_numbers(),
            None => self.shared.body()?.segments.iter().map(|entry| entry.number).collect(),
        };
        let checked = |number| check_new(SegmentId(number)).map(|()| SegmentId(number));
        numbers.into_iter().map(checked).collect()
    }

    fn open(&self, id: SegmentId, _mode: OpenMode) -> Result<Arc<dyn File>> {
        let path = path_of(id);
        let found = match self.shared.session() {
            Some(session) => session.open_segment(id.0, &path),
            None => self.shared.peek_segment(id.0, &path)?,
        };
        found.ok_or_else(|| missing(&path))
    }

    fn create(&self, id: SegmentId) -> Result<Arc<dyn File>> {
        let (path, session) = (path_of(id), self.shared.to_write()?);
        match session.open_segment(id.0, &path) {
            Some(file) => Ok(file),
            None => session.create_segment(id.0, &path),
        }
    }

    fn remove(&self, id: SegmentId) -> Result<()> {
        self.shared.to_write()?.remove_segment(id.0);
        Ok(())
    }
}

impl Storage for ObjectStorage {
    fn lock(&self, exclusive: bool) -> Result<Box<dyn Send + Sync>> {
        let shared = self.shared.clone();
        if exclusive {
            let exists = look_up(&*shared.store, shared.options.patience)?.is_some();
            if !exists {
                shared.refuse_foreign_objects()?;
            }
            let session = if exists { Some(shared.begin(false)?) } else { None };
            *shared.lock.lock() = Locked { for_writing: true, session, read: None };
        } else if shared.session().is_none() {
            let body = shared.body()?;
            shared.lock.lock().read = Some(Reading { body, lens: BTreeMap::new() });
        }
        Ok(Box::new(Lock { shared, exclusive }))
    }

    fn facts(&self) -> DeviceFacts {
        DeviceFacts {
            name: self.shared.facts.name.clone(),
            volatile_cache: false,
            fua: false,
            direct_io: Err("a store of objects has no page cache".into()),
            io_uring: Err("requests to a store of objects go over the network".into()),
            append_only: true,
            extent_bytes: Some(self.shared.options.extent_bytes),
            device_number: 0,
        }
    }

    fn durability(&self) -> DurabilityMethod {
        DurabilityMethod::Plain
    }

    fn requests(&self) -> Option<ObjectRequests> {
        Some(*self.shared.requests.lock())
    }

    fn buckets(&self) -> Vec<BucketStatistics> {
        let all = self.shared.buckets.iter().flat_map(|buckets| buckets.all());
        all.map(|bucket| bucket.statistics()).collect()
    }

    fn charge_to(&self, account: &Arc<Account>, memory_bytes: u64) {
        if let Some(session) = self.shared.session() {
            session.extents.charge_to(account, memory_bytes);
        }
        if let Some(cache) = &self.shared.cache {
            cache.charge_to(account);
        }
    }

    fn pins(&self) -> Option<&dyn Pins> {
        Some(self)
    }

    fn followed_log(&self) -> Option<Box<dyn FollowedLog>> {
        let Shared { store, options, buckets, .. } = &*self.shared;
        Some(match buckets {
            None => Box::new(ObjectLog::new(store.clone(), options.patience)),
            // What a reader finds out of the buckets is not for a writer.
            Some(buckets) => Box::new(SpreadLog::new(Buckets::new(buckets.again()), options.patience)),
        })
    }

    fn leave_out(&self, read: &[LogPosition]) {
        if let Some(session) = self.shared.session() {
            session.leave_out(read);
        }
    }

    fn end_pin(&self) {
        if let Some(pinned) = &self.shared.pinned {
            pinned.end();
        }
    }

    fn write_queue(&self, depth: usize) -> Result<Box<dyn WriteQueue>> {
        Ok(Box::new(CallbackQueue::new(depth)))
    }
}

impl Pins for ObjectStorage {
    fn hold(&self) -> Result<Arc<dyn Storage>> {
        let Shared { store, requests, facts, options, cache, buckets, .. } = &*self.shared;
        // A bucket that was excluded long ago may count again.
        let buckets = buckets.as_ref().map(|buckets| Buckets::new(buckets.again()));
        let store = match &buckets {
            Some(buckets) => Arc::new(buckets.clone()),
            None => store.clone(),
        };
        let pinned = Some(PinnedBody::newest(&store, *options)?);
        let (requests, lock) = (requests.clone(), Mutex::default());
        let (facts, options, cache) = (facts.clone(), *options, cache.clone());
        let shared = Shared { store, requests, facts, options, lock, cache, pinned, buckets };
        Ok(Arc::new(ObjectStorage { shared: Arc::new(shared) }))
    }

    fn has_changed(&self) -> Result<bool> {
        let Shared { store, options, lock, .. } = &*self.shared;
        let (body, lens) = match &lock.lock().read {
            Some(Reading { body, lens }) => (body.clone(), lens.clone()),
            None => return Ok(false),
        };
        let newest = look_up(&**store, options.patience)?;
        if newest.is_none_or(|newest| newest.body.generation != body.generation) {
            return Ok(true);
        }
        for entry in body.segments {
            let Some(len) = lens.get(&entry.number) else { continue };
            let parts = peek(&**store, &entry, options.patience)?.parts;
            if parts.iter().map(Part::len).sum::<u64>() != *len {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn list_pins(&self) -> Result<Vec<Pin>> {
        self.shared.find_buckets()?;
        pins::list(&*self.shared.store, self.shared.options.patience)
    }

    fn remove_pin(&self, name: &str) -> Result<()> {
        self.shared.find_buckets()?;
        pins::remove(&*self.shared.store, name, self.shared.options.patience)
    }
}

/// The manifest without what the device keeps beside it.
#[derive(Debug)]
struct ManifestObject {
    shared: Arc<Shared>,
}

impl Register for ManifestObject {
    fn location(&self) -> Location {
        place(MANIFEST_NAME, 0)
    }

    fn read(&self) -> Result<Vec<u8>> {
        Ok(self.shared.body()?.contents.to_vec())
    }

    /// Fails with `OutcomeUnknown` if the put may have taken effect, or may still.
    fn replace(&self, bytes: &[u8]) -> Result<()> {
        self.shared.to_write()?.publish(Some(Bytes::copy_from_slice(bytes)))
    }
}

/// The pages as a file.
#[derive(Debug)]
struct PagesObject {
    shared: Arc<Shared>,
    extents: Arc<Extents>,
}

impl File for PagesObject {
    fn location(&self, offset: u64) -> Location {
        place(PAGES_PATH, offset)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.extents.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.extents.read(offset, buffer).map_err(|error| self.shared.explain(error))
    }

    fn read_many(&self, reads: &mut [ReadRequest<'_>], done: &mut ReadDone<'_>) {
        self.extents.read_all(reads);
        for read in reads.iter_mut() {
            let result = std::mem::replace(&mut read.result, Ok(()));
            read.result = result.map_err(|error| self.shared.explain(error));
        }
        reads.iter_mut().enumerate().for_each(|(index, read)| done(index, read));
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.extents.write(offset, bytes)
    }

    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.extents.write(offset, bytes)?;
        self.flush()
    }

    /// What could not be uploaded waits for the next flush.
    fn knows_outcome(&self) -> bool {
        true
    }

    fn flush(&self) -> Result<()> {
        self.extents.upload_all()?;
        self.shared.to_write()?.publish(None)
    }

    fn zero_extend(&self, len: u64, _rest: &mut dyn FnMut(Duration)) -> Result<()> {
        self.extents.extend(len);
        Ok(())
    }

    fn discard(&self, from: u64, to: u64) -> Result<()> {
        self.extents.discard(from..to);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.extents.set_len(len);
        Ok(())
    }
}
