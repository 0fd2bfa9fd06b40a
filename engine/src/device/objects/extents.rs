//! The file of pages: ranges of bytes, each in an object that was written once.
//!
//! ```text
//!   write ──▶ pending ──(an extent's worth, or a flush)──▶ uploading ──confirmed──▶ runs
//!             in memory                                    in memory               in an object
//! ```
//!
//! 1. A write shadows what was at its place. An object of which nothing is left is dead: it is
//!    deleted after a manifest without it is confirmed (O24, O25). Which objects die is the
//!    allocator's business: it frees whole extents, and moves the last blocks out of them.
//! 2. A read finds the newest bytes, wherever they are.
//! 3. Bytes in memory are bounded: a write waits while too many are pending. They are charged to
//!    the account of the database, and a small memory leaves them less room.
//! 4. A failed upload fails all later writes and flushes: which bytes are in the store is unknown.

use super::body::{Body, ObjectId, Run, WriterEpoch};
use super::patience::{error_of, may_end, persist, place};
use super::request::{Condition, Request};
use super::segment_reader::read_ranges;
use super::store::{ObjectStore, Outcome};
use crate::base::planted::{self, Bug};
use crate::base::{Account, Charge, Error, ErrorKind, Result};
use crate::device::ReadRequest;
use crate::sync::{Event, Mutex, MutexGuard, thread};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The bytes of an object that is to be uploaded.
struct Upload {
    number: u64,
    body: Bytes,
}

/// The engine's name for the file.
const PATH: &str = "pages/data";
/// Pending bytes, in extents, at which a write waits.
const PENDING_EXTENTS_MAX: u64 = 4;
/// Pending bytes are at most this part of the memory of the database. Uploads have copies of them.
const MEMORY_PART: u64 = 8;

/// Bytes that are not confirmed in an object yet.
#[derive(Clone, Debug)]
struct Pending {
    bytes: Bytes,
    /// The upload that has them, and their offset in its object.
    upload: Option<(u64, u64)>,
}

#[derive(Debug, Default)]
struct State {
    /// Confirmed ranges by their first byte; they do not overlap.
    runs: BTreeMap<u64, Run>,
    /// Newer bytes by their first byte; they do not overlap, and shadow runs.
    pending: BTreeMap<u64, Pending>,
    /// Pending bytes, and those of them that no upload has.
    pending_bytes: u64,
    idle_bytes: u64,
    /// Numbers of the uploads in flight, and their bytes, which are copies of pending ones.
    uploads: BTreeMap<u64, u64>,
    /// The charge for all bytes in memory.
    charge: Option<Charge>,
    /// The memory of the database.
    memory_bytes: Option<u64>,
    /// Bytes of runs in each object.
    objects: HashMap<ObjectId, u64>,
    /// Objects without runs, which a manifest may still name.
    dead: Vec<ObjectId>,
    len: u64,
    /// How many uploads have failed, and why the last one did.
    failures: u64,
    failure: Option<Error>,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Extents {
    store: Arc<dyn ObjectStore>,
    epoch: WriterEpoch,
    /// Gives each object of this writer its number.
    next_number: Arc<crate::sync::atomic::AtomicU64>,
    extent_bytes: u64,
    patience: Duration,
    state: Mutex<State>,
    /// Happens when an upload ends.
    ended: Event,
}

impl Extents {
    pub(super) fn new(
        store: Arc<dyn ObjectStore>,
        body: &Body,
        next_number: Arc<crate::sync::atomic::AtomicU64>,
        extent_bytes: u64,
        patience: Duration,
    ) -> Arc<Extents> {
        let mut state = State { len: body.pages_len, ..State::default() };
        for run in &body.runs {
            state.runs.insert(run.start, *run);
            state.count(run);
        }
        let (epoch, state) = (body.epoch, Mutex::new(state));
        Arc::new(Extents { store, epoch, next_number, extent_bytes, patience, state, ended: Event::new() })
    }

    /// Puts the confirmed state into a body, and returns the objects that it no longer names.
    pub(super) fn describe(&self, body: &mut Body) -> Vec<ObjectId> {
        let mut state = self.state.lock();
        body.runs = state.runs.values().copied().collect();
        debug_assert!(
            state.pending_bytes
                == state.pending.values().map(|pending| pending.bytes.len() as u64).sum::<u64>(),
            "pending bytes are those of the pieces"
        );
        body.pages_len = state.len;
        std::mem::take(&mut state.dead)
    }

    /// Charges bytes in memory to `account`, of a database with `memory_bytes`.
    pub(super) fn charge_to(&self, account: &Arc<Account>, memory_bytes: u64) {
        let mut state = self.state.lock();
        (state.charge, state.memory_bytes) = (Some(account.charge(0)), Some(memory_bytes));
        state.count_memory();
    }

    pub(super) fn len(&self) -> u64 {
        self.state.lock().len
    }

    /// Makes the file at least `len` bytes long.
    pub(super) fn extend(&self, len: u64) {
        let mut state = self.state.lock();
        state.len = state.len.max(len);
    }

    /// Cuts or extends the file.
    pub(super) fn set_len(&self, len: u64) {
        let mut state = self.state.lock();
        state.forget(len..u64::MAX);
        state.len = len;
        state.count_memory();
    }

    /// The bytes of `range` are not needed any more.
    pub(super) fn discard(&self, range: Range<u64>) {
        let mut state = self.state.lock();
        state.forget(range);
        state.count_memory();
    }

    /// Takes over bytes of the file.
    ///
    /// # Errors
    /// The error of an upload that was waited for.
    pub(super) fn write(self: &Arc<Self>, offset: u64, bytes: &[u8]) -> Result<()> {
        let copy = Bytes::copy_from_slice(bytes);
        let end = offset + bytes.len() as u64;
        debug_assert!(!bytes.is_empty(), "a piece has bytes");
        let mut state = self.wait_for_room()?;
        state.cut_pending(offset..end);
        state.pending_bytes += copy.len() as u64;
        state.idle_bytes += copy.len() as u64;
        state.pending.insert(offset, Pending { bytes: copy, upload: None });
        state.len = state.len.max(end);
        let is_enough = state.idle_bytes >= self.object_bytes(&state);
        let upload = is_enough.then(|| self.assemble(&mut state)).flatten();
        state.count_memory();
        drop(state);
        upload.into_iter().for_each(|upload| self.start(upload));
        Ok(())
    }

    /// Returns the pending bytes from which on a write waits.
    fn pending_bytes_most(&self, state: &State) -> u64 {
        let most = PENDING_EXTENTS_MAX * self.extent_bytes;
        state.memory_bytes.map_or(most, |memory| most.min(memory / MEMORY_PART))
    }

    /// Returns the length of an object: an extent, or less in a small memory.
    fn object_bytes(&self, state: &State) -> u64 {
        self.pending_bytes_most(state) / PENDING_EXTENTS_MAX
    }

    fn wait_for_room(self: &Arc<Self>) -> Result<MutexGuard<'_, State>> {
        let failures = self.state.lock().failures;
        loop {
            let ticket = self.ended.ticket();
            let mut state = self.state.lock();
            state.check(failures)?;
            if state.pending_bytes < self.pending_bytes_most(&state) {
                return Ok(state);
            }
            // Without an upload in flight nothing would ever end.
            let upload = if state.uploads.is_empty() { self.assemble(&mut state) } else { None };
            state.count_memory();
            drop(state);
            match upload {
                Some(upload) => self.start(upload),
                None => self.ended.wait(ticket, None),
            }
        }
    }

    /// Uploads everything that was written before, and waits until it is confirmed.
    ///
    /// # Errors
    /// The error of an upload.
    pub(super) fn upload_all(self: &Arc<Self>) -> Result<()> {
        let failures = self.state.lock().failures;
        let awaited = loop {
            let mut state = self.state.lock();
            // What has failed waits to be sent again: not by this call.
            state.check(failures)?;
            let Some(upload) = self.assemble(&mut state) else {
                break state.uploads.keys().copied().collect::<Vec<u64>>();
            };
            state.count_memory();
            drop(state);
            self.start(upload);
        };
        loop {
            let ticket = self.ended.ticket();
            {
                let state = self.state.lock();
                state.check(failures)?;
                if !awaited.iter().any(|number| state.uploads.contains_key(number)) {
                    return Ok(());
                }
            }
            self.ended.wait(ticket, None);
        }
    }

    /// Waits until no upload is in flight. Returns false if one has failed.
    pub(super) fn wait_idle(&self) -> bool {
        loop {
            let ticket = self.ended.ticket();
            {
                let state = self.state.lock();
                if state.uploads.is_empty() {
                    return state.failures == 0;
                }
            }
            self.ended.wait(ticket, None);
        }
    }

    /// Makes an object of pending bytes that no upload has, at most about an extent's worth.
    fn assemble(&self, state: &mut State) -> Option<Upload> {
        if state.idle_bytes == 0 {
            return None;
        }
        let number = self.next_number.fetch_add(1, crate::sync::atomic::Ordering::Relaxed);
        let most = self.object_bytes(state);
        let mut body = Vec::with_capacity(state.idle_bytes.min(most) as usize);
        for pending in state.pending.values_mut().filter(|pending| pending.upload.is_none()) {
            if !body.is_empty() && (body.len() + pending.bytes.len()) as u64 > most {
                break;
            }
            pending.upload = Some((number, body.len() as u64));
            body.extend_from_slice(&pending.bytes);
        }
        debug_assert!(!body.is_empty(), "idle bytes belong to a piece without an upload");
        state.idle_bytes -= body.len() as u64;
        state.uploads.insert(number, body.len() as u64);
        Some(Upload { number, body: body.into() })
    }

    fn start(self: &Arc<Self>, Upload { number, body }: Upload) {
        let id = ObjectId { epoch: self.epoch, number };
        if planted::is(Bug::ExtentNamedEarly) {
            let request = Request::Put { name: id.pages_name(), body, condition: Condition::Always };
            self.store.start(request, Box::new(|_| ()));
            return self.uploaded(id, Ok(super::request::Reply::default()));
        }
        // Only this writer uses the name, and always with these bytes.
        let request = Request::Put { name: id.pages_name(), body, condition: Condition::Always };
        let (this, again) = (self.clone(), request.clone());
        self.store.start(
            request,
            Box::new(move |outcome| match outcome {
                Err(failure) if may_end(failure.kind) => this.send_again(id, again),
                ended => this.uploaded(id, ended),
            }),
        );
    }

    fn send_again(self: &Arc<Self>, id: ObjectId, request: Request) {
        let this = self.clone();
        let spawned = thread::spawn("quench-upload", move || {
            let outcome = persist(&*this.store, &request, this.patience);
            this.uploaded(id, outcome);
        });
        if let Err(error) = spawned {
            self.fail(id.number, Error::io("no thread to upload pages again", error));
        }
    }

    fn uploaded(&self, id: ObjectId, outcome: Outcome) {
        if let Err(failure) = outcome {
            return self.fail(id.number, error_of(&failure, "pages cannot be uploaded", &id.pages_name()));
        }
        let mut state = self.state.lock();
        let of_upload = |pending: &Pending| pending.upload.is_some_and(|(number, _)| number == id.number);
        let starts: Vec<u64> =
            state.pending.iter().filter(|(_, pending)| of_upload(pending)).map(|(start, _)| *start).collect();
        for start in &starts {
            let Some(Pending { bytes, upload: Some((_, offset)) }) = state.pending.remove(start) else {
                continue;
            };
            state.pending_bytes -= bytes.len() as u64;
            state.add_run(Run { start: *start, len: bytes.len() as u64, object: id, offset });
        }
        if starts.is_empty() {
            state.dead.push(id);
        }
        let upload = state.uploads.remove(&id.number);
        debug_assert!(upload.is_some(), "an upload ends once");
        state.count_memory();
        drop(state);
        self.ended.notify_all();
    }

    /// The pages of an upload wait for the next one, which has another name: the object of this one
    /// may still come, but no manifest will name it (O24).
    fn fail(&self, number: u64, error: Error) {
        let mut state = self.state.lock();
        let mut idle = 0;
        for pending in state.pending.values_mut() {
            if pending.upload.is_some_and(|(upload, _)| upload == number) {
                pending.upload = None;
                idle += pending.bytes.len() as u64;
            }
        }
        state.idle_bytes += idle;
        let upload = state.uploads.remove(&number);
        debug_assert!(upload.is_some(), "an upload ends once");
        state.count_memory();
        state.failures += 1;
        state.failure = Some(error);
        drop(state);
        self.ended.notify_all();
    }

    /// Fills `buffer` from byte `offset`.
    ///
    /// # Errors
    /// `Corruption` if the file ends before; I/O.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let mut reads = [ReadRequest { offset, buffer, result: Ok(()) }];
        self.read_all(&mut reads);
        let [read] = reads;
        read.result
    }

    /// Performs reads, all their requests in flight together.
    pub(super) fn read_all(&self, reads: &mut [ReadRequest<'_>]) {
        let (mut wanted, mut places) = (Vec::new(), Vec::new());
        {
            let state = self.state.lock();
            for (index, read) in reads.iter_mut().enumerate() {
                let before = wanted.len();
                read.result = state.plan(read.offset, read.buffer, &mut wanted);
                places.extend((before..wanted.len()).map(|_| index));
            }
        }
        let ranges: Vec<_> =
            wanted.iter().map(|want| (want.object.pages_name(), want.from.clone())).collect();
        let mut fetched = vec![0; wanted.iter().map(|want| want.to.len()).sum()];
        let outcome = read_ranges(&self.store, ranges, &mut fetched, self.patience);
        let mut rest = &fetched[..];
        for (want, index) in wanted.iter().zip(places) {
            let (bytes, behind) = rest.split_at(want.to.len());
            rest = behind;
            match &outcome {
                Ok(()) => reads[index].buffer[want.to.clone()].copy_from_slice(bytes),
                Err(error) => reads[index].result = Err(error.duplicate()),
            }
        }
    }
}

/// A piece of a read that is in an object.
struct Want {
    object: ObjectId,
    /// Bytes of the object.
    from: Range<u64>,
    /// Bytes of the buffer.
    to: Range<usize>,
}

impl State {
    /// Fails if an upload has failed since the count of failures was `before`.
    fn check(&self, before: u64) -> Result<()> {
        match &self.failure {
            Some(failure) if self.failures > before => Err(failure.duplicate()),
            _ => Ok(()),
        }
    }

    /// Sets the charge to the bytes in memory.
    fn count_memory(&self) {
        debug_assert!(self.idle_bytes <= self.pending_bytes, "idle bytes are pending bytes");
        if let Some(charge) = &self.charge {
            charge.set(self.pending_bytes + self.uploads.values().sum::<u64>());
        }
    }

    /// Copies what is in memory into `buffer`, and adds what is in objects to `wanted`. What was
    /// never written reads as zero.
    fn plan(&self, offset: u64, buffer: &mut [u8], wanted: &mut Vec<Want>) -> Result<()> {
        let end = offset + buffer.len() as u64;
        if end > self.len {
            let what = format!("the file ends {} bytes early", end - self.len.max(offset));
            return Err(Error::corruption(what).at(place(PATH, offset)));
        }
        buffer.fill(0);
        let mut gaps = Vec::new();
        let mut at = offset;
        let first = self.pending.range(..=offset).next_back().map_or(offset, |(start, _)| *start);
        for (start, pending) in self.pending.range(first..end) {
            let (from, to) = (offset.max(*start), end.min(start + pending.bytes.len() as u64));
            if from < to {
                gaps.push(at..from);
                let bytes = &pending.bytes[(from - start) as usize..(to - start) as usize];
                buffer[(from - offset) as usize..(to - offset) as usize].copy_from_slice(bytes);
                at = to;
            }
        }
        gaps.push(at..end);
        for gap in gaps.into_iter().filter(|gap| gap.start < gap.end) {
            let first = self.runs.range(..=gap.start).next_back().map_or(gap.start, |(start, _)| *start);
            for (start, run) in self.runs.range(first..gap.end) {
                let (from, to) = (gap.start.max(*start), gap.end.min(start + run.len));
                if from < to {
                    let in_object = run.offset + (from - start);
                    wanted.push(Want {
                        object: run.object,
                        from: in_object..in_object + (to - from),
                        to: (from - offset) as usize..(to - offset) as usize,
                    });
                }
            }
        }
        Ok(())
    }

    /// Removes pending bytes in `range`; what surrounds them stays with its upload.
    fn cut_pending(&mut self, range: Range<u64>) {
        let first = self.pending.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
        let hit: Vec<u64> = self.pending.range(first..range.end).map(|(start, _)| *start).collect();
        for start in hit {
            let Some(pending) = self.pending.get(&start).cloned() else { continue };
            let end = start + pending.bytes.len() as u64;
            if end <= range.start {
                continue;
            }
            self.pending.remove(&start);
            let (from, to) = (start.max(range.start), end.min(range.end));
            self.pending_bytes -= to - from;
            if pending.upload.is_none() {
                self.idle_bytes -= to - from;
            }
            for (from, to) in [(start, from), (to, end)].into_iter().filter(|(from, to)| from < to) {
                let skipped = from - start;
                let bytes = pending.bytes.slice(skipped as usize..(to - start) as usize);
                let upload = pending.upload.map(|(number, offset)| (number, offset + skipped));
                self.pending.insert(from, Pending { bytes, upload });
            }
        }
    }

    fn count(&mut self, run: &Run) {
        *self.objects.entry(run.object).or_default() += run.len;
    }

    /// Removes runs in `range`; objects without runs become dead.
    fn cut_runs(&mut self, range: Range<u64>) {
        let first = self.runs.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
        let hit: Vec<Run> = self.runs.range(first..range.end).map(|(_, run)| *run).collect();
        for run in hit {
            let end = run.start + run.len;
            if end <= range.start {
                continue;
            }
            self.runs.remove(&run.start);
            let (from, to) = (run.start.max(range.start), end.min(range.end));
            for (from, to) in [(run.start, from), (to, end)].into_iter().filter(|(from, to)| from < to) {
                let offset = run.offset + (from - run.start);
                self.runs.insert(from, Run { start: from, len: to - from, offset, ..run });
            }
            if let Some(live) = self.objects.get_mut(&run.object) {
                *live -= to - from;
                if *live == 0 {
                    self.objects.remove(&run.object);
                    self.dead.push(run.object);
                }
            }
        }
    }

    /// Adds a confirmed range; a run that continues the one before is joined to it.
    fn add_run(&mut self, run: Run) {
        self.count(&run);
        self.cut_runs(run.start..run.start + run.len);
        debug_assert!(
            self.runs.range(run.start..run.start + run.len).next().is_none(),
            "no older run is left where a new one comes"
        );
        debug_assert!(run.len > 0, "a run has bytes");
        if let Some((_, before)) = self.runs.range_mut(..run.start).next_back()
            && before.object == run.object
            && before.start + before.len == run.start
            && before.offset + before.len == run.offset
        {
            before.len += run.len;
            return;
        }
        self.runs.insert(run.start, run);
    }

    fn forget(&mut self, range: Range<u64>) {
        self.cut_pending(range.clone());
        self.cut_runs(range);
    }
}

/// The error of a file of pages whose writer has no epoch.
pub(super) fn read_only() -> Error {
    let what = "the database is open without the right to write";
    Error::new(ErrorKind::Unsupported, what).at(place(PATH, 0))
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
