//! A list of all objects of a database that says why each is there: see [`ObjectList`].
//!
//! It claims and writes nothing, so a writer may work at the same time. The manifest is read before
//! and after the objects are listed:
//!
//! 1. An object that both manifests name was named all the time, because what is dropped stays
//!    dropped (O26). If it is not in the list, it is missing.
//! 2. An object that only the second manifest names may have been created after the list.
//! 3. Everything that was listed is judged by the second manifest.
//!
//! What the next writer will delete is what `collect` says.

use super::body::{Body, MANIFEST_NAME, ObjectId, group_of};
use super::frame::{FRAME_BYTES, Frame, FrameKind, SHORT_BYTES, is_fence};
use super::patience::{error_of, persist, read_all};
use super::pins::{self, FoundPins};
use super::register::look_up;
use super::request::{FailureKind, Listed, Request};
use super::store::ObjectStore;
use crate::base::Result;
use crate::device::{LogObject, LogRecords, ObjectContent, ObjectList, ObjectState, Pin, StoredObject};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Returns the list; `None` if there is no manifest.
///
/// # Errors
/// `Corruption` or `Unsupported` for the manifest; I/O.
pub(super) fn list_objects(store: &dyn ObjectStore, most: Duration) -> Result<Option<ObjectList>> {
    let Some(before) = look_up(store, most)? else { return Ok(None) };
    let mut listed = persist(store, &Request::List { prefix: String::new() }, most)
        .map_err(|failure| error_of(&failure, "the objects cannot be listed", ""))?
        .listed;
    let pins = if listed.iter().any(is_pin) { pins::list(store, most)? } else { Vec::new() };
    // Its reader may have ended meanwhile.
    listed.retain(|object| !is_pin(object) || pins.iter().any(|pin| pin.name == object.name));
    let Some(after) = look_up(store, most)? else { return Ok(None) };
    let fences = fences(store, &listed, after.body.identity, most)?;
    let found = Found::new(&after.body, &listed, pins, fences);
    let objects: Vec<StoredObject> = listed.iter().map(|object| found.judge(object)).collect();
    let there: BTreeSet<&str> = listed.iter().map(|object| &object.name[..]).collect();
    let (first, second) = (names(&before.body), names(&after.body));
    let missing = second.intersection(&first).filter(|name| !there.contains(&name[..])).cloned().collect();
    let Body { epoch, generation, closed, .. } = after.body;
    let store = store.facts().name;
    Ok(Some(ObjectList { store, writer_epoch: epoch.0, generation, closed, objects, missing }))
}

fn is_pin(object: &Listed) -> bool {
    object.name.starts_with(pins::PREFIX)
}

/// Returns the names of the objects that must be there as long as a manifest names them. A segment
/// without appends has none before its first block.
fn names(body: &Body) -> BTreeSet<String> {
    let lanes = body.segments.iter().filter(|segment| segment.form.has_lanes());
    let lanes = lanes.flat_map(|segment| segment.ids()).map(ObjectId::log_name);
    let extents = body.runs.iter().map(|run| run.object.pages_name());
    let files = body.files.iter().filter(|file| file.len > 0).map(|file| file.object.file_name());
    lanes.chain(extents).chain(files).collect()
}

/// Returns the epochs of the fences at the ends of log objects, by name.
fn fences(
    store: &dyn ObjectStore,
    listed: &[Listed],
    identity: u64,
    most: Duration,
) -> Result<BTreeMap<String, u64>> {
    // A header is no fence. A block that is an object of its own has none at its end.
    let may_be = |object: &&Listed| {
        let Some((group, _)) = group_of(&object.name) else { return false };
        let is_lane = group == object.name && object.len > FRAME_BYTES;
        object.name.starts_with("log/") && (is_lane || is_fence(object.len))
    };
    let asked: Vec<&Listed> = listed.iter().filter(may_be).collect();
    let end =
        |object: &&Listed| (object.name.clone(), Some(object.len.saturating_sub(FRAME_BYTES)..object.len));
    let replies = read_all(store, &asked.iter().map(end).collect::<Vec<_>>(), most);
    let mut fences = BTreeMap::new();
    for (object, reply) in asked.into_iter().zip(replies) {
        match reply {
            Ok(reply) => {
                let frame = Frame::decode(&reply.body).filter(|frame| frame.kind == FrameKind::Fence);
                let frame = frame.filter(|frame| frame.identity == identity);
                fences.extend(frame.map(|frame| (object.name.clone(), frame.epoch.0)));
            }
            // It was deleted meanwhile.
            Err(failure) if failure.kind == FailureKind::Absent => {}
            Err(failure) => return Err(error_of(&failure, "a log object cannot be read", &object.name)),
        }
    }
    Ok(fences)
}

/// What is known of all objects, to judge each of them.
struct Found<'a> {
    body: &'a Body,
    /// For each object with pages that the manifest names, the bytes that it refers to.
    live: BTreeMap<ObjectId, u64>,
    /// For each log object, or for the common beginning of the names of a segment's blocks: the
    /// segment, and the lane.
    lanes: BTreeMap<ObjectId, (u64, u64)>,
    /// For each segment without appends, the lowest number of which there is no block.
    ends: BTreeMap<ObjectId, u64>,
    paths: BTreeMap<ObjectId, &'a str>,
    pins: BTreeMap<String, Pin>,
    kept: FoundPins,
    fences: BTreeMap<String, u64>,
}

impl<'a> Found<'a> {
    fn new(body: &'a Body, listed: &[Listed], pins: Vec<Pin>, fences: BTreeMap<String, u64>) -> Found<'a> {
        let (mut live, mut lanes, mut ends) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for run in &body.runs {
            *live.entry(run.object).or_default() += run.len;
        }
        for segment in &body.segments {
            for (lane, id) in (0..).zip(segment.ids()) {
                lanes.insert(id, (segment.number, lane));
                if !segment.form.has_lanes() {
                    ends.insert(id, 1);
                }
            }
        }
        // The names are in order, so the numbers of each segment rise.
        for object in listed.iter().filter(|object| !is_fence(object.len)) {
            if let Some((id, Some(block))) = log_name(&object.name)
                && let Some(end) = ends.get_mut(&id).filter(|end| **end == block)
            {
                *end += 1;
            }
        }
        let files = body.files.iter().filter(|file| file.len > 0);
        let paths = files.map(|file| (file.object, &file.path[..])).collect();
        let kept =
            FoundPins::of(listed.iter().filter(|object| is_pin(object)).map(|object| &object.name[..]));
        let pins = pins.into_iter().map(|pin| (pin.name.clone(), pin)).collect();
        Found { body, live, lanes, ends, paths, pins, kept, fences }
    }

    fn judge(&self, object: &Listed) -> StoredObject {
        let id = group_of(&object.name).filter(|(group, _)| *group == object.name).map(|(_, id)| id);
        let (name, folder) = (&object.name[..], object.name.split('/').next().unwrap_or_default());
        let (content, state, id) = match (folder, id) {
            _ if name == MANIFEST_NAME => (ObjectContent::Manifest, ObjectState::Used, None),
            ("pages", Some(id)) => {
                let live_bytes = self.live.get(&id).copied();
                let state = self.state_of(id, live_bytes.is_some());
                (ObjectContent::Pages { live_bytes: live_bytes.unwrap_or(0) }, state, Some(id))
            }
            ("files", Some(id)) => {
                let path = self.paths.get(&id).map(ToString::to_string);
                let state = self.state_of(id, path.is_some());
                (ObjectContent::File { path }, state, Some(id))
            }
            ("pins", _) => match self.pins.get(name) {
                Some(pin) => (ObjectContent::Pin(pin.clone()), ObjectState::Used, pins::newest_of(name)),
                None => (ObjectContent::Unknown, ObjectState::Foreign, None),
            },
            ("probe", _) => (ObjectContent::Probe, ObjectState::Foreign, None),
            _ => match log_name(name) {
                Some((id, block)) => {
                    let (log, state) = self.judge_log(object, id, block);
                    (ObjectContent::Log(log), state, Some(id))
                }
                None => (ObjectContent::Unknown, ObjectState::Foreign, None),
            },
        };
        let (epoch, number) = (id.map(|id| id.epoch.0), id.map(|id| id.number));
        StoredObject { name: object.name.clone(), bytes: object.len, epoch, number, content, state }
    }

    fn judge_log(&self, object: &Listed, id: ObjectId, block: Option<u64>) -> (LogObject, ObjectState) {
        let place = self.lanes.get(&id).copied();
        let fenced_by = self.fences.get(&object.name).copied();
        let is_fence = is_fence(object.len);
        let state = match self.state_of_log(id, place.is_some()) {
            ObjectState::Orphan if object.len == SHORT_BYTES => ObjectState::Fence,
            state => state,
        };
        // Of a lane, the header and a fence.
        let blank = FRAME_BYTES + if fenced_by.is_some() { FRAME_BYTES } else { 0 };
        let is_ignored = self.ends.get(&id).is_some_and(|end| block.is_none_or(|block| block >= *end));
        let records = match place {
            None => LogRecords::Unnamed,
            Some(_) if is_fence || (block.is_none() && object.len <= blank) => LogRecords::Absent,
            Some(_) if is_ignored => LogRecords::Ignored,
            Some(_) => LogRecords::Unknown,
        };
        let (segment, lane) = (place.map(|place| place.0), place.map(|place| place.1));
        (LogObject { segment, lane: lane.filter(|_| block.is_none()), block, fenced_by, records }, state)
    }

    /// Returns the state of an object of the log, which no pin keeps.
    fn state_of_log(&self, id: ObjectId, is_named: bool) -> ObjectState {
        match is_named {
            true => ObjectState::Used,
            // The last writer has ended, so the next one deletes what it has left.
            false if id.epoch < self.body.epoch || self.body.closed => ObjectState::Orphan,
            false => ObjectState::Recent,
        }
    }

    /// Returns the state of an object that pins keep.
    fn state_of(&self, id: ObjectId, is_named: bool) -> ObjectState {
        match self.state_of_log(id, is_named) {
            ObjectState::Orphan | ObjectState::Recent if self.kept.keep(id) => ObjectState::Pinned,
            state => state,
        }
    }
}

/// Returns what the name of a log object says: what a manifest may name, and the number of the
/// block, if each block is an object.
fn log_name(name: &str) -> Option<(ObjectId, Option<u64>)> {
    let (group, id) = group_of(name).filter(|(group, _)| group.starts_with("log/"))?;
    match name[group.len()..].strip_prefix('/') {
        None => Some((id, None)),
        Some(block) => Some((id, Some(block.parse().ok()?))),
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
