//! Ending earlier writers: a fence in every log object to which one of them may still append.
//!
//! The claim stops an earlier writer's puts of the manifest, not its appends. A fence moves the end
//! of an object, so every later append at the earlier writer's own offset is refused. What lies
//! below the fence is all that this writer may ever have acknowledged, so an object is read after
//! its fence is confirmed (O13, O15).
//!
//! Where appends go over streams, a fence is no bytes: the object is taken over and finalized. So
//! no writer ever sends data to the object of another, and no offset meets foreign bytes.

use super::body::{Form, ObjectId, SegmentEntry};
use super::frame::{Frame, FrameKind, is_fence};
use super::numbered::block_name;
use super::patience::{Patience, error_of, may_end, persist, place, read};
use super::register::{fenced, look_up};
use super::request::{Condition, Failure, FailureKind, Request, Version};
use super::segment_reader::Part;
use super::store::{ObjectStore, perform};
use crate::base::planted::{self, Bug};
use crate::base::{Error, ErrorKind, Result};
use crate::sync::thread;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Objects that are fenced at the same time.
const TOGETHER: usize = 16;

/// What counts of a segment of an earlier writer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Ended {
    /// The bytes that count, in objects.
    pub(super) parts: Vec<Part>,
    /// The fence, if it is an object. If the segment's writer reports blocks without a look at the
    /// manifest, the fence must stay when the segment is deleted (O23).
    pub(super) fence: Option<String>,
}

/// Fences the segments of earlier writers.
///
/// # Errors
/// `NotFound` if an object is missing; `Busy` if an earlier writer keeps it busy; I/O.
pub(super) fn fence_all(
    store: &dyn ObjectStore,
    segments: &[SegmentEntry],
    fence: &Frame,
    patience: Duration,
) -> Result<BTreeMap<u64, Ended>> {
    let objects = segments.iter().flat_map(|entry| entry.streams().map(move |lane| (entry, lane)));
    let objects: Vec<(&SegmentEntry, (ObjectId, u64))> = objects.collect();
    let next = AtomicUsize::new(0);
    let fence_some = |_| {
        let mut ends = Vec::new();
        while let Some((entry, (id, generation))) = objects.get(next.fetch_add(1, Ordering::Relaxed)) {
            let ended = match entry.form {
                Form::Lanes => fence_lane(store, &id.log_name(), fence, patience)?,
                Form::Streams => fence_stream(store, (*id, *generation), fence, patience)?,
                Form::Numbered => fence_numbered(store, *id, &fence.encode_short(true), patience)?,
                Form::Watched => fence_numbered(store, *id, &fence.encode_short(false), patience)?,
            };
            ends.push((entry.number, *id, ended));
        }
        Ok(ends)
    };
    let mut all = Vec::new();
    for ends in thread::fan_out(TOGETHER.min(objects.len().max(1)), fence_some).into_iter().flatten() {
        all.extend(ends?);
    }
    all.sort_by_key(|(_, id, _)| *id);
    let mut by_segment: BTreeMap<u64, Ended> = BTreeMap::new();
    for (number, _, ended) in all {
        let segment = by_segment.entry(number).or_default();
        segment.parts.extend(ended.parts);
        segment.fence = segment.fence.take().or(ended.fence);
    }
    Ok(by_segment)
}

/// Appends a fence at the end of an object, wherever that is. An object that takes no more appends
/// needs no fence (O12).
fn fence_lane(store: &dyn ObjectStore, name: &str, fence: &Frame, most: Duration) -> Result<Ended> {
    let (mut patience, mut first) = (Patience::new(most), None);
    loop {
        let mut head = persist(store, &Request::Head { name: name.to_string() }, most)
            .map_err(|failure| error_of(&failure, "a log object cannot be looked up", name))?;
        let end = head.len;
        if planted::is(Bug::LogReadBeforeFence) {
            head.len = *first.get_or_insert(end);
        }
        let ended = || Ended { parts: vec![Part::of_lane(name.to_string(), head.len)], fence: None };
        let body = fence.encode();
        let append = Request::Append { name: name.to_string(), offset: end, body, version: None };
        match perform(store, append) {
            Ok(_) => return Ok(ended()),
            Err(failure) if failure.kind == FailureKind::Full => return Ok(ended()),
            // The earlier writer is busy, or an earlier copy was applied: the end is elsewhere now.
            Err(failure) if failure.kind == FailureKind::Refused && !patience.is_over() => {}
            Err(failure) if may_end(failure.kind) && patience.pause() => {}
            Err(failure) => return Err(not_fenced(&failure, name)),
        }
    }
}

/// Takes a stream's object over and finalizes it, whatever its length then is. An object that is
/// finalized already needs no fence. If another writer takes the object over meanwhile, the
/// manifest says whether that is a later claim.
fn fence_stream(
    store: &dyn ObjectStore,
    (id, generation): (ObjectId, u64),
    fence: &Frame,
    most: Duration,
) -> Result<Ended> {
    let (name, version) = (id.log_name(), Version(generation.to_string()));
    let ended = |len| Ended { parts: vec![Part::of_lane(name.clone(), len)], fence: None };
    let mut patience = Patience::new(most);
    loop {
        let (name, version) = (name.clone(), version.clone());
        let open = Request::Open { name: name.clone(), version: version.clone(), takes_over: true };
        let finalized = perform(store, open).and_then(|opened| {
            if planted::is(Bug::StreamNotFinalized) || planted::is(Bug::StreamReadBeforeFinalize) {
                return Ok(opened);
            }
            perform(store, Request::Finalize { name: name.clone(), version, len: opened.len })
        });
        let failure = match finalized {
            Ok(reply) => {
                if planted::is(Bug::StreamReadBeforeFinalize) {
                    let (name, version) = (name.clone(), Version(generation.to_string()));
                    // The mistake is that its outcome, and its length, are not looked at.
                    let _ = perform(store, Request::Finalize { name, version, len: reply.len });
                }
                return Ok(ended(reply.len));
            }
            Err(failure) => failure,
        };
        match failure.kind {
            FailureKind::Refused => {
                let there = persist(store, &Request::Head { name: name.clone() }, most)
                    .map_err(|failure| error_of(&failure, "a log object cannot be looked up", &name))?;
                if there.is_final {
                    return Ok(ended(there.len));
                }
                if let Some(later) = look_up(store, most)?.map(|stored| stored.body.epoch)
                    && later > fence.epoch
                {
                    return Err(fenced(fence.epoch, later));
                }
                if !patience.pause() {
                    return Err(not_fenced(&failure, &name));
                }
            }
            kind if may_end(kind) && patience.pause() => {}
            _ => return Err(not_fenced(&failure, &name)),
        }
    }
}

fn not_fenced(failure: &Failure, name: &str) -> Error {
    let error = error_of(failure, "an earlier writer's log object cannot be fenced", name);
    if failure.kind == FailureKind::Refused { error.with_kind(ErrorKind::Busy) } else { error }
}

/// Creates a fence at the first free number of a segment (O22). The list is made after the claim,
/// so each number that it shows as taken stays taken.
fn fence_numbered(store: &dyn ObjectStore, id: ObjectId, fence: &Bytes, most: Duration) -> Result<Ended> {
    let lens = list_blocks(store, id, most)?;
    let (mut parts, mut patience) = (Vec::new(), Patience::new(most));
    for number in 1.. {
        let name = block_name(id, number);
        if let Some(len) = lens.get(&name).filter(|len| !is_fence(**len)) {
            parts.push(Part { name, range: 0..*len });
            continue;
        }
        match create_fence(store, &name, fence, &mut patience, most)? {
            None => return Ok(Ended { parts, fence: Some(name) }),
            Some(len) => parts.push(Part { name, range: 0..len }),
        }
    }
    Ok(Ended::default())
}

/// Creates a fence if there is no object of this name. Returns the length of the object if it is
/// data.
fn create_fence(
    store: &dyn ObjectStore,
    name: &str,
    fence: &Bytes,
    patience: &mut Patience,
    most: Duration,
) -> Result<Option<u64>> {
    loop {
        let (body, condition) = (fence.clone(), Condition::Absent);
        match perform(store, Request::Put { name: name.to_string(), body, condition }) {
            Ok(_) => return Ok(None),
            Err(failure) if failure.kind == FailureKind::Refused => {
                let there = read(store, name, None, most)
                    .map_err(|failure| error_of(&failure, "a log object cannot be read", name))?;
                let frame = Frame::decode(&there.body).filter(|frame| frame.kind == FrameKind::Fence);
                // A fence of any earlier claim will do.
                let own = Frame::decode(fence).map(|own| own.identity);
                let is_fence = frame.is_some_and(|frame| Some(frame.identity) == own);
                return Ok((!is_fence).then_some(there.len));
            }
            Err(failure) if may_end(failure.kind) && patience.pause() => {}
            Err(failure) => return Err(not_fenced(&failure, name)),
        }
    }
}

/// Returns what counts of a segment at the moment, and fences nothing. Its writer may add to it.
///
/// # Errors
/// `NotFound` if an object is missing; I/O.
pub(super) fn peek(store: &dyn ObjectStore, entry: &SegmentEntry, most: Duration) -> Result<Ended> {
    if entry.accepted.is_some() {
        return accepted_parts(store, entry, most);
    }
    let mut ended = Ended::default();
    for (id, generation) in entry.streams() {
        let name = id.log_name();
        match entry.form {
            Form::Lanes | Form::Streams => {
                let head = persist(store, &Request::Head { name: name.clone() }, most)
                    .map_err(|failure| error_of(&failure, "a log object cannot be looked up", &name))?;
                let version = Version(generation.to_string());
                if entry.form == Form::Streams && head.version.is_some_and(|there| there != version) {
                    let what = "the log object was replaced by another one of its name";
                    return Err(Error::corruption(what).at(place(&name, 0)));
                }
                ended.parts.push(Part::of_lane(name, head.len));
            }
            Form::Numbered | Form::Watched => {
                let lens = list_blocks(store, id, most)?;
                for number in 1.. {
                    let name = block_name(id, number);
                    match lens.get(&name) {
                        Some(&len) if is_fence(len) => ended.fence = Some(name),
                        Some(len) => {
                            ended.parts.push(Part { name, range: 0..*len });
                            continue;
                        }
                        None => {}
                    }
                    break;
                }
            }
        }
    }
    Ok(ended)
}

/// Returns the lengths of the objects of a segment without appends.
fn list_blocks(store: &dyn ObjectStore, id: ObjectId, most: Duration) -> Result<BTreeMap<String, u64>> {
    let prefix = format!("{}/", id.log_name());
    let listed = persist(store, &Request::List { prefix: prefix.clone() }, most)
        .map_err(|failure| error_of(&failure, "log objects cannot be listed", &prefix))?
        .listed;
    Ok(listed.into_iter().map(|object| (object.name, object.len)).collect())
}

/// Returns the objects that hold an accepted segment.
///
/// # Errors
/// `NotFound` if a block is missing; I/O.
pub(super) fn accepted_parts(store: &dyn ObjectStore, entry: &SegmentEntry, most: Duration) -> Result<Ended> {
    let mut ended = Ended::default();
    let Some(accepted) = &entry.accepted else { return Ok(ended) };
    for id in entry.ids() {
        let lens = list_blocks(store, id, most)?;
        for number in 1..=accepted.blocks {
            let name = block_name(id, number);
            let Some(len) = lens.get(&name).filter(|len| !is_fence(**len)) else {
                let what = "a block of the log is in none of the buckets that answer";
                return Err(Error::new(ErrorKind::NotFound, what).at(place(&name, 0)));
            };
            ended.parts.push(Part { name, range: 0..*len });
        }
    }
    let tails = accepted.tails.iter().map(|(id, len)| Part { name: id.log_name(), range: 0..*len });
    ended.parts.extend(tails);
    Ok(ended)
}
