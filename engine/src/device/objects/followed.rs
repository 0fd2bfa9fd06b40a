//! The log for a reader beside its writer: what was added to the objects since the last look.
//!
//! *Why what is there survives every takeover.* In a lane everything below the present end lies
//! below each later fence (O13). Of numbered blocks those count that have no gap before them: a
//! later fence takes the first free number (O22), which is above them. A watched block that its
//! writer has not reported yet is found by the list that follows the next claim (O29).
//!
//! Blocks of a writer that has been ended are found as its successor finds them. Whether their
//! records count, the manifest of that successor says.

use super::body::{Body, Form, MANIFEST_NAME, ObjectId, SegmentEntry};
use super::fence::peek;
use super::frame::{FRAME_BYTES, is_fence};
use super::numbered::block_name;
use super::patience::{error_of, place};
use super::register::{look_up, no_database};
use super::request::{FailureKind, Request};
use super::segment_reader::{Part, SegmentReader, whole_sectors};
use super::store::{ObjectStore, Outcome};
use super::waiting::wait_for_all;
use crate::base::{Error, Result, SegmentId};
use crate::device::{FollowedLog, LogPosition, NewBytes, path_of};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Looks without a find after which an object is looked at only with all others.
pub(super) const IDLE_LOOKS: u32 = 32;
/// Numbered blocks that are asked for together, once one was there.
pub(super) const BLOCKS_TOGETHER: u64 = 8;

/// Returns the error of a follower that finds a manifest with another identity.
pub(super) fn another_database() -> Error {
    let what = "another database has taken the place of the one that is followed";
    Error::invalid(what).at(place(MANIFEST_NAME, 0))
}

/// How far an object, or a series of numbered objects, was read.
#[derive(Debug)]
struct Reached {
    segment: u64,
    form: Form,
    /// Of a lane the bytes up to the last known end, otherwise the number of the last known block.
    at: u64,
    /// Lengths of numbered blocks that were found and not returned yet.
    lens: Vec<u64>,
    /// Looks since something came.
    idle: u32,
    /// A fence was found, or the object is gone: nothing more will come.
    has_ended: bool,
}

impl Reached {
    fn new(entry: &SegmentEntry) -> Reached {
        let at = if entry.form.has_lanes() { FRAME_BYTES } else { 0 };
        Reached { segment: entry.number, form: entry.form, at, lens: Vec::new(), idle: 0, has_ended: false }
    }

    fn is_blank(&self) -> bool {
        self.at == if self.form.has_lanes() { FRAME_BYTES } else { 0 }
    }

    /// Returns the name of the lane, or of the block `behind` the next one.
    fn name(&self, id: ObjectId, behind: u64) -> String {
        match self.form {
            Form::Lanes | Form::Streams => id.log_name(),
            Form::Numbered | Form::Watched => block_name(id, self.at + self.lens.len() as u64 + 1 + behind),
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct ObjectLog {
    store: Arc<dyn ObjectStore>,
    patience: Duration,
    /// The identity of the database's objects, and the generation of the newest manifest.
    newest: Option<(u64, u64)>,
    contents: Vec<u8>,
    objects: BTreeMap<ObjectId, Reached>,
}

impl ObjectLog {
    pub(super) fn new(store: Arc<dyn ObjectStore>, patience: Duration) -> ObjectLog {
        ObjectLog { store, patience, newest: None, contents: Vec::new(), objects: BTreeMap::new() }
    }

    fn note_segments(&mut self, body: &Body) -> Result<()> {
        let named: Vec<_> =
            body.segments.iter().flat_map(|entry| entry.ids().map(move |id| (id, entry))).collect();
        let mut begun = Vec::new();
        for (id, entry) in named.iter().filter(|(id, _)| !self.objects.contains_key(id)) {
            begun.push((*id, self.begin(entry)?));
        }
        self.objects.retain(|id, _| named.iter().any(|(other, _)| other == id));
        self.objects.extend(begun);
        Ok(())
    }

    /// Begins with an object. The numbered blocks that are there already are found by one list.
    fn begin(&self, entry: &SegmentEntry) -> Result<Reached> {
        let mut reached = Reached::new(entry);
        if !entry.form.has_lanes() {
            let found = peek(&*self.store, entry, self.patience)?;
            reached.lens = found.parts.iter().map(Part::len).collect();
        }
        Ok(reached)
    }

    /// Looks at these objects, `together` blocks of a series. Returns those where something came.
    fn look(&mut self, ids: &[ObjectId], together: u64) -> Result<Vec<ObjectId>> {
        let looks = |id: &ObjectId| {
            let reached = self.objects.get(id)?;
            let count = if reached.form.has_lanes() { 1 } else { together };
            Some((0..count).map(|behind| (*id, reached.name(*id, behind))).collect::<Vec<_>>())
        };
        let looks: Vec<(ObjectId, String)> = ids.iter().filter_map(looks).flatten().collect();
        let outcomes = wait_for_all(looks.len(), |index, done| {
            self.store.start(Request::Head { name: looks[index].1.clone() }, done);
        });
        let mut found = Vec::new();
        let mut gaps = Vec::new();
        for ((id, name), outcome) in looks.into_iter().zip(outcomes) {
            if gaps.contains(&id) {
                continue;
            }
            if self.looked(id, &name, outcome)? {
                found.push(id);
            } else {
                gaps.push(id);
            }
        }
        found.dedup();
        Ok(found)
    }

    /// Notes the outcome of a look. Returns whether something came.
    fn looked(&mut self, id: ObjectId, name: &str, outcome: Outcome) -> Result<bool> {
        let Some(reached) = self.objects.get_mut(&id) else { return Ok(false) };
        let is_lane = reached.form.has_lanes();
        let len = match outcome {
            Ok(reply) => reply.len,
            Err(failure) if failure.kind == FailureKind::Absent => {
                // A lane is there from its registration to its removal.
                reached.has_ended |= is_lane;
                return Ok(false);
            }
            Err(failure) => return Err(error_of(&failure, "a log object cannot be looked up", name)),
        };
        match is_lane {
            true => {
                // The rest of a torn block may follow.
                let len = whole_sectors(len);
                let has_grown = len > reached.at;
                if has_grown {
                    reached.lens = vec![len];
                }
                Ok(has_grown)
            }
            false if is_fence(len) => {
                reached.has_ended = true;
                Ok(false)
            }
            false => {
                reached.lens.push(len);
                Ok(true)
            }
        }
    }

    /// Returns what was found and not returned yet.
    fn take_found(&mut self) -> Vec<NewBytes> {
        let mut new = Vec::new();
        for (id, reached) in &mut self.objects {
            let lens = std::mem::take(&mut reached.lens);
            let Some(last) = lens.last() else {
                reached.idle = reached.idle.saturating_add(1);
                continue;
            };
            reached.idle = 0;
            let parts = match reached.form {
                Form::Lanes | Form::Streams => {
                    let from = std::mem::replace(&mut reached.at, *last);
                    vec![Part { name: id.log_name(), range: from..*last }]
                }
                Form::Numbered | Form::Watched => {
                    let first = reached.at + 1;
                    reached.at += lens.len() as u64;
                    let part = |(number, len)| Part { name: block_name(*id, number), range: 0..len };
                    (first..).zip(lens).map(part).collect()
                }
            };
            let segment = SegmentId(reached.segment);
            let position = LogPosition { part: id.log_name(), at: reached.at };
            let (store, path, patience) = (self.store.clone(), path_of(segment), self.patience);
            let file = Arc::new(SegmentReader { store, path, parts, patience });
            new.push(NewBytes { segment, position, file });
        }
        new
    }
}

impl FollowedLog for ObjectLog {
    fn read_manifest(&mut self) -> Result<Vec<u8>> {
        let body = look_up(&*self.store, self.patience)?.ok_or_else(no_database)?.body;
        if self.newest.is_some_and(|(identity, _)| identity != body.identity) {
            return Err(another_database());
        }
        if self.newest != Some((body.identity, body.generation)) {
            self.note_segments(&body)?;
            self.newest = Some((body.identity, body.generation));
            self.contents = body.contents.to_vec();
        }
        Ok(self.contents.clone())
    }

    fn poll(&mut self, all: bool) -> Result<Vec<NewBytes>> {
        let is_looked_at = |reached: &Reached| {
            !reached.has_ended && (all || reached.idle < IDLE_LOOKS || reached.is_blank())
        };
        let objects = self.objects.iter().filter(|(_, reached)| is_looked_at(reached));
        let ids: Vec<ObjectId> = objects.map(|(id, _)| *id).collect();
        let mut more = self.look(&ids, 1)?;
        more.retain(|id| self.objects.get(id).is_some_and(|reached| !reached.form.has_lanes()));
        while !more.is_empty() {
            more = self.look(&more, BLOCKS_TOGETHER)?;
        }
        Ok(self.take_found())
    }
}
