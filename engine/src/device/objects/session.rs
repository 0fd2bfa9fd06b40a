//! What a writer holds from its claim to the next one: the register, its segments, its pages.

use super::accepted::{self, Decided};
use super::appended::AppendedSegment;
use super::body::{Body, FileEntry, Form, ObjectId, SegmentEntry};
use super::buckets::{Acceptors, Bucket, Buckets, CountedBucket};
use super::collect::{Collector, fences_that_stay};
use super::extents::Extents;
use super::fence::{Ended, fence_all, peek};
use super::files::Files;
use super::frame::{Frame, FrameKind};
use super::numbered::NumberedSegment;
use super::numbered::number_of;
use super::open_segment::{OpenSegment, OpenSegmentFile, Writer};
use super::options::Options;
use super::page_cache::PageCache;
use super::patience::{error_of, persist, place};
use super::register::{Register, look_up};
use super::repair::{Repair, Repaired};
use super::request::{Condition, Request};
use super::segment_reader::{Part, SegmentReader};
use super::spread_segment::SpreadSegment;
use super::store::{ObjectStore, StoreFacts};
use super::streamed::StreamedSegment;
use super::watch::Watch;
use crate::base::planted::{self, Bug};
use crate::base::{Error, ErrorKind, Result};
use crate::device::{File, LogPosition};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// See the module's text.
#[derive(Debug)]
pub(super) struct Session {
    store: Arc<dyn ObjectStore>,
    options: Options,
    pub(super) register: Register,
    writer: Arc<Writer>,
    /// Numbers for the names of this writer's objects (O1).
    next_number: Arc<AtomicU64>,
    segments: Mutex<Segments>,
    pub(super) extents: Arc<Extents>,
    files: Mutex<Files>,
    /// One of each bucket.
    collectors: Vec<Arc<Collector>>,
    /// Of a database in several buckets.
    acceptors: Option<Arc<Acceptors>>,
    repair: Mutex<Option<Arc<Repair>>>,
    /// There are many fences that stay, so this writer looks at the manifest before it reports a
    /// block, and will leave none (O29).
    watches: bool,
}

#[derive(Debug, Default)]
struct Segments {
    /// Those of earlier writers that were not removed.
    earlier: BTreeMap<u64, SegmentEntry>,
    /// Those that this writer fills.
    own: BTreeMap<u64, Arc<dyn OpenSegment>>,
    /// Those of earlier writers, up to their fences.
    ended: BTreeMap<u64, Ended>,
    /// Objects of segments that were removed since the last put.
    removed: Vec<String>,
    /// Of several buckets, segments that this takeover has fenced.
    fenced: Vec<(ObjectId, u64)>,
    /// What precedes these positions is left out of `ended`.
    left_out: Vec<LogPosition>,
}

impl Segments {
    /// Begins with the segments of earlier writers.
    fn of(Decided { entries, ended, fenced }: Decided) -> Segments {
        Segments { earlier: entries, ended, fenced, ..Segments::default() }
    }

    /// Puts the segments of earlier writers into the first body of a writer in several buckets.
    fn describe(&self, body: &mut Body) {
        body.segments = self.entries();
        body.fenced.extend_from_slice(&self.fenced);
    }

    /// Returns what the register says of all segments that were not removed, in their order.
    fn entries(&self) -> Vec<SegmentEntry> {
        let mut all = self.earlier.clone();
        all.extend(self.own.iter().map(|(number, own)| (*number, own.entry(*number))));
        all.into_values().collect()
    }
}

impl Session {
    /// Claims the database for a new writer, and ends all earlier ones; or creates it, if `is_new`.
    ///
    /// # Errors
    /// As [`Register::claim`] and [`fence_all`].
    pub(super) fn begin(
        store: &Arc<dyn ObjectStore>,
        facts: &StoreFacts,
        options: Options,
        buckets: Option<&Buckets>,
        cache: Option<&PageCache>,
        is_new: bool,
    ) -> Result<Arc<Session>> {
        let acceptors = buckets.map(|buckets| Acceptors::new(buckets.clone(), options.patience));
        let begun = Session::begin_with(store, facts, options, acceptors.clone(), cache, is_new);
        let begun = begun.and_then(|session| session.start_repair().map(|()| session));
        if begun.is_err() {
            acceptors.iter().for_each(|acceptors| acceptors.end());
        }
        begun
    }

    fn begin_with(
        store: &Arc<dyn ObjectStore>,
        facts: &StoreFacts,
        options: Options,
        acceptors: Option<Arc<Acceptors>>,
        cache: Option<&PageCache>,
        is_new: bool,
    ) -> Result<Arc<Session>> {
        let buckets = acceptors.as_ref().map(|acceptors| acceptors.buckets());
        let (register, was_closed) = match &acceptors {
            Some(several) => Register::claim_several(several, is_new, options.patience, options.claim_rest)?,
            None => Register::claim(store.clone(), is_new, options.patience, options.claim_rest)?,
        };
        let body = register.body();
        let (identity, epoch, nonce) = (body.identity, register.epoch(), register.nonce());
        let fence = Frame { kind: FrameKind::Fence, identity, epoch, nonce };
        let next_number = Arc::new(AtomicU64::new(1));
        let is_needed = !was_closed && !planted::is(Bug::WriterNotFenced);
        let next = || ObjectId { epoch, number: next_number.fetch_add(1, Ordering::Relaxed) };
        let segments = match buckets {
            None => end_segments(&**store, &body, is_needed.then_some(&fence), options),
            Some(buckets) => {
                accepted::decide(buckets, &body.segments, is_needed.then_some(fence), &next, options.patience)
                    .map(Segments::of)
            }
        };
        let segments = segments.map_err(|error| overtaken(&**store, &register, options, error))?;
        if buckets.is_some() {
            // From here on the log of earlier writers is as fixed as in one bucket (O33, O34).
            register.update(|body| segments.describe(body))?;
        }
        let (body, segments) = (register.body(), Mutex::new(segments));
        let header = Frame { kind: FrameKind::Header, ..fence };
        let writer = Arc::new(Writer {
            store: store.clone(),
            facts: facts.clone(),
            header,
            patience: options.patience,
            lanes: options.lanes,
            watch: Watch::new(store.clone(), epoch, options.watch),
            failure: OnceLock::new(),
        });
        let pages = match cache {
            Some(cache) => cache.before(store.clone(), identity),
            None => store.clone(),
        };
        let extents = Extents::new(pages, &body, next_number.clone(), options.extent_bytes, options.patience);
        let files = Mutex::new(Files::of(&body));
        let watches = !facts.appends && buckets.is_none() && {
            let fences = fences_that_stay(&**store, options.patience)?.count();
            fences >= options.fences_max
        };
        let collectors = collectors(store, buckets);
        collectors.iter().for_each(|collector| collector.collect_orphans(&body));
        let (store, repair) = (store.clone(), Mutex::default());
        Ok(Arc::new(Session {
            store,
            options,
            register,
            writer,
            next_number,
            segments,
            extents,
            files,
            collectors,
            acceptors,
            repair,
            watches,
        }))
    }

    /// Starts to repair buckets that lack something.
    fn start_repair(self: &Arc<Self>) -> Result<()> {
        let Some(acceptors) = &self.acceptors else { return Ok(()) };
        let owner: Arc<dyn Repaired> = self.clone();
        let Options { patience, repair_pause, .. } = self.options;
        let repair = Repair::start(acceptors, &Arc::downgrade(&owner), patience, repair_pause)?;
        *self.repair.lock() = Some(repair);
        Ok(())
    }

    /// Puts a manifest that names the present segments and confirmed pages, and `contents` if there
    /// are any. Then deletes what it no longer names.
    ///
    /// # Errors
    /// As [`Register::update`].
    pub(super) fn publish(&self, contents: Option<Bytes>) -> Result<()> {
        let (mut dropped, mut registered) = (Vec::new(), Vec::new());
        let put = self.register.update(|body| {
            let mut segments = self.segments.lock();
            dropped.append(&mut segments.removed);
            registered.extend(segments.own.values().cloned());
            body.segments = segments.entries();
            drop(segments);
            dropped.append(&mut self.files.lock().describe(body));
            dropped.extend(self.extents.describe(body).into_iter().map(ObjectId::pages_name));
            if planted::is(Bug::ExtentDeletedEarly) {
                dropped.drain(..).for_each(|name| self.collectors[0].delete(name));
            }
            if let Some(contents) = contents {
                body.contents = contents;
            }
        });
        if let Err(error) = put {
            // If nothing was put, the next put drops them, too.
            self.segments.lock().removed.append(&mut dropped);
            self.files.lock().mark_changed();
            return Err(error);
        }
        registered.iter().for_each(|segment| segment.registered());
        // What stays because of a failure is an orphan, which a later writer collects.
        self.collectors.iter().for_each(|collector| collector.collect(dropped.clone()));
        Ok(())
    }

    /// Creates a segment. Nothing is written to it before [`Session::publish`].
    ///
    /// # Errors
    /// I/O.
    pub(super) fn create_segment(&self, number: u64, path: &str) -> Result<Arc<dyn File>> {
        let epoch = self.register.epoch();
        let numbers = self.next_number.clone();
        let next = move || ObjectId { epoch, number: numbers.fetch_add(1, Ordering::Relaxed) };
        let segment: Arc<dyn OpenSegment> = if let Some(acceptors) = &self.acceptors {
            Arc::new(SpreadSegment::create(path, next(), &self.writer, acceptors.buckets())?)
        } else if self.writer.facts.streams {
            Arc::new(StreamedSegment::create(path, self.writer.clone(), next)?)
        } else if self.writer.facts.appends {
            Arc::new(AppendedSegment::create(path, self.writer.clone(), next)?)
        } else {
            let form = if self.watches { Form::Watched } else { Form::Numbered };
            Arc::new(NumberedSegment::new(path, next(), form, self.writer.clone()))
        };
        let before = self.segments.lock().own.insert(number, segment.clone());
        debug_assert!(before.is_none(), "a segment number has one segment");
        Ok(Arc::new(OpenSegmentFile::new(segment, self.writer.clone())))
    }

    /// Opens a segment to read what is confirmed of it at the moment; `None` if there is none.
    pub(super) fn open_segment(&self, number: u64, path: &str) -> Option<Arc<dyn File>> {
        let segments = self.segments.lock();
        let parts = match segments.own.get(&number) {
            Some(own) => own.parts(),
            None => without(&segments.ended.get(&number)?.parts, &segments.left_out),
        };
        drop(segments);
        let (store, path, patience) = (self.store.clone(), path.to_string(), self.options.patience);
        Some(Arc::new(SegmentReader { store, path, parts, patience }))
    }

    /// Leaves out what precedes these positions, of segments of earlier writers that are opened
    /// from now on.
    pub(super) fn leave_out(&self, read: &[LogPosition]) {
        self.segments.lock().left_out = read.to_vec();
    }

    /// Removes a segment from the next manifest that is put; its objects are deleted after that.
    pub(super) fn remove_segment(&self, number: u64) {
        let mut segments = self.segments.lock();
        let own = segments.own.remove(&number);
        let entry = own.as_ref().map(|own| own.entry(number)).or_else(|| segments.earlier.remove(&number));
        let Some(entry) = entry else { return };
        let own = own.map(|own| own.parts());
        let Ended { parts, fence } = segments.ended.remove(&number).unwrap_or_default();
        let parts = own.unwrap_or(parts);
        let mut names: Vec<String> = match entry.form {
            // Each bucket has blocks and fences of its own.
            _ if self.acceptors.is_some() => {
                let blocks = entry.ids().map(|id| format!("{}/", id.log_name()));
                blocks.chain(entry.tails().map(ObjectId::log_name)).collect()
            }
            Form::Lanes | Form::Streams => entry.ids().map(ObjectId::log_name).collect(),
            Form::Numbered | Form::Watched => parts.into_iter().map(|part| part.name).collect(),
        };
        if self.acceptors.is_none() && entry.form == Form::Watched || planted::is(Bug::NumberedFenceDeleted) {
            names.extend(fence);
        }
        segments.removed.append(&mut names);
    }

    /// Creates an empty file, which exists after [`Session::publish`].
    pub(super) fn create_file(&self, path: &str) {
        self.files.lock().create(path);
    }

    /// Returns a file.
    pub(super) fn file(&self, path: &str) -> Option<FileEntry> {
        self.files.lock().find(path)
    }

    /// Returns the paths of all files.
    pub(super) fn file_paths(&self) -> Vec<String> {
        self.files.lock().paths()
    }

    /// Removes a file. It is gone after [`Session::publish`].
    pub(super) fn remove_file(&self, path: &str) {
        self.files.lock().remove(path);
    }

    /// Replaces the content of a file, durably and in one step.
    ///
    /// # Errors
    /// I/O; as [`Session::publish`].
    pub(super) fn replace_file(&self, path: &str, content: Bytes) -> Result<()> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let object = ObjectId { epoch: self.register.epoch(), number };
        let entry = FileEntry { path: path.into(), len: content.len() as u64, object };
        if !content.is_empty() {
            // Only this writer uses the name, and always with these bytes.
            let name = object.file_name();
            let request = Request::Put { name: name.clone(), body: content, condition: Condition::Always };
            persist(&*self.store, &request, self.options.patience)
                .map_err(|failure| error_of(&failure, "the file cannot be put", &name))?;
        }
        self.files.lock().replace(entry);
        self.publish(None)
    }

    /// Makes files that were created or removed so.
    ///
    /// # Errors
    /// As [`Session::publish`].
    pub(super) fn publish_files(&self) -> Result<()> {
        if self.files.lock().is_changed() { self.publish(None) } else { Ok(()) }
    }

    /// Returns the numbers of all segments.
    pub(super) fn segment_numbers(&self) -> Vec<u64> {
        self.segments.lock().entries().iter().map(|entry| entry.number).collect()
    }

    /// Returns the error of a read that failed with `error`.
    pub(super) fn explain(&self, error: Error) -> Error {
        match error.kind() {
            ErrorKind::NotFound => overtaken(&*self.store, &self.register, self.options, error),
            _ => error,
        }
    }

    /// Ends the writer: waits until none of its requests is in flight, and says so in the manifest
    /// (O20). After a failure it does not, and the next writer fences what is left.
    pub(super) fn close(&self) {
        let repair = self.repair.lock().take();
        let is_repaired = repair.is_none_or(|repair| repair.end());
        let own: Vec<_> = self.segments.lock().own.values().cloned().collect();
        let are_whole = own.iter().filter(|segment| !segment.wait_idle()).count() == 0;
        let uploaded = self.extents.wait_idle();
        if are_whole && uploaded && is_repaired {
            // After a failure the next writer fences what is left, or has done so already.
            let _ = self.register.update(|body| body.closed = true);
        }
        self.acceptors.iter().for_each(|acceptors| acceptors.end());
    }
}

impl Repaired for Session {
    fn body(&self) -> Body {
        self.register.body()
    }

    fn own_segments(&self) -> Vec<Arc<dyn OpenSegment>> {
        self.segments.lock().own.values().cloned().collect()
    }

    fn publish_body(&self) -> Result<()> {
        self.publish(None)
    }

    fn shorten(&self, segment: u64, blocks: u64) -> Result<()> {
        let Some(acceptors) = &self.acceptors else { return Ok(()) };
        let Some(entry) = self.segments.lock().earlier.get(&segment).cloned() else { return Ok(()) };
        let (epoch, numbers) = (self.register.epoch(), &self.next_number);
        let next = || ObjectId { epoch, number: numbers.fetch_add(1, Ordering::Relaxed) };
        let shorter = accepted::shorten(acceptors.buckets(), &entry, blocks, &next, self.options.patience)?;
        {
            let mut segments = self.segments.lock();
            // It may have been removed, or another bucket's repair was faster.
            if segments.earlier.get(&segment) == Some(&entry) {
                segments.earlier.insert(segment, shorter.0);
                segments.ended.insert(segment, shorter.1);
            }
        }
        self.publish(None)
    }
}

/// Returns the parts without what precedes the positions: bytes of a lane, or numbered blocks.
fn without(parts: &[Part], read: &[LogPosition]) -> Vec<Part> {
    let rest = |part: &Part| {
        let lane = read.iter().find(|position| position.part == part.name);
        if let Some(position) = lane {
            let start = position.at.clamp(part.range.start, part.range.end);
            return Some(Part { range: start..part.range.end, ..part.clone() });
        }
        let is_read = read.iter().any(|position| {
            number_of(&position.part, &part.name).is_some_and(|number| number <= position.at)
        });
        (!is_read).then(|| part.clone())
    };
    parts.iter().filter_map(rest).collect()
}

/// Returns a collector of each bucket.
fn collectors(store: &Arc<dyn ObjectStore>, buckets: Option<&Buckets>) -> Vec<Arc<Collector>> {
    let Some(buckets) = buckets else { return vec![Collector::new(store.clone(), store.clone())] };
    let collector =
        |bucket: &Arc<Bucket>| Collector::new(Arc::new(CountedBucket(bucket.clone())), store.clone());
    buckets.all().iter().map(collector).collect()
}

/// Ends the segments of earlier writers in one bucket; with `fence` as long as one may be alive.
fn end_segments(
    store: &dyn ObjectStore,
    body: &Body,
    fence: Option<&Frame>,
    options: Options,
) -> Result<Segments> {
    let peek = |entry: &SegmentEntry| Ok((entry.number, peek(store, entry, options.patience)?));
    let ended = match fence {
        None => body.segments.iter().map(peek).collect::<Result<_>>()?,
        Some(fence) => fence_all(store, &body.segments, fence, options.patience)?,
    };
    let earlier = body.segments.iter().map(|entry| (entry.number, entry.clone())).collect();
    Ok(Segments { earlier, ended, ..Segments::default() })
}

/// A writer that misses an object may have been overtaken: then that is the error.
fn overtaken(store: &dyn ObjectStore, register: &Register, options: Options, error: Error) -> Error {
    match look_up(store, options.patience) {
        Ok(Some(newest)) if newest.body.epoch != register.epoch() => {
            super::register::fenced(register.epoch(), newest.body.epoch)
        }
        Ok(_) if error.kind() == ErrorKind::NotFound => {
            let what = "an object that the manifest names is missing";
            let place = error.location().cloned().unwrap_or_else(|| place("manifest", 0));
            Error::corruption(what).at(place)
        }
        _ => error,
    }
}
