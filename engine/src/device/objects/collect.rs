//! Deleting what no manifest names any more.
//!
//! The holder of writer epoch e deletes objects of epochs below e that the claimed manifest does
//! not name. No put of an earlier writer can succeed any more, so no manifest will ever name them
//! (O25). Of its own epoch it deletes only what its confirmed puts dropped. A fence in a store
//! without appends stays: its absence would let an earlier writer continue (O23), unless that
//! writer looks at the manifest before it reports a block (O29).
//!
//! Extents and small files stay while the pin of a reader may need them (O27): see `pins`. The pins
//! are listed for each batch, after the put that drops it is confirmed. A later batch takes along
//! what a pin kept. When this writer ends, the next one finds the rest as orphans.
//!
//! In several buckets each has a collector, because a name may be a fence in one and a block in
//! another. Pins are those of a majority.

use super::body::{Body, ObjectId, SegmentEntry, group_of};
use super::frame::SHORT_BYTES;
use super::patience::{error_of, persist};
use super::pins::{FoundPins, PREFIX as PINS};
use super::register::look_up;
use super::request::Request;
use super::store::{ObjectStore, Outcome};
use crate::base::{Error, ErrorKind, Result};
use crate::sync::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// See the module's text. Nothing here waits: what cannot be deleted now is left to a later batch,
/// or to the next writer.
#[derive(Debug)]
pub(super) struct Collector {
    store: Arc<dyn ObjectStore>,
    /// Where pins are listed.
    pins: Arc<dyn ObjectStore>,
    /// Objects that no manifest names and a pin keeps.
    kept: Mutex<Vec<String>>,
}

impl Collector {
    pub(super) fn new(store: Arc<dyn ObjectStore>, pins: Arc<dyn ObjectStore>) -> Arc<Collector> {
        Arc::new(Collector { store, pins, kept: Mutex::default() })
    }

    /// Starts to delete objects that no confirmed manifest names any more, and those that a pin has
    /// kept so far. A name that ends with a slash stands for all that begin with it.
    pub(super) fn collect(self: &Arc<Self>, names: Vec<String>) {
        let (mut pinnable, others): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| is_pinnable(name));
        for name in others {
            if name.ends_with('/') { self.delete_blocks(name) } else { self.delete(name) }
        }
        pinnable.append(&mut self.kept.lock());
        if pinnable.is_empty() {
            return;
        }
        let this = self.clone();
        let list = Request::List { prefix: PINS.into() };
        self.pins.start(list, Box::new(move |outcome| this.collect_unpinned(pinnable, outcome)));
    }

    /// Deletes the blocks of a segment, but no fence that stays (O23). A fence that comes later
    /// takes a name that is free then, and stays, too.
    fn delete_blocks(self: &Arc<Self>, prefix: String) {
        let this = self.clone();
        let delete = move |outcome: Outcome| {
            let listed = outcome.map(|reply| reply.listed).unwrap_or_default();
            let blocks = listed.into_iter().filter(|object| object.len != SHORT_BYTES);
            blocks.for_each(|object| this.delete(object.name));
        };
        self.store.start(Request::List { prefix }, Box::new(delete));
    }

    fn collect_unpinned(&self, names: Vec<String>, pins: Outcome) {
        let Ok(pins) = pins else {
            self.kept.lock().extend(names);
            return;
        };
        let mut pins = FoundPins::of(pins.listed.iter().map(|object| &object.name[..]));
        std::mem::take(&mut pins.expired).into_iter().for_each(|name| self.delete(name));
        let keeps = |name: &String| group_of(name).is_some_and(|(_, object)| pins.keep(object));
        let (kept, to_delete): (Vec<_>, Vec<_>) = names.into_iter().partition(keeps);
        self.kept.lock().extend(kept);
        to_delete.into_iter().for_each(|name| self.delete(name));
    }

    /// Starts to delete an object.
    pub(super) fn delete(&self, name: String) {
        self.store.start(Request::Delete { name }, Box::new(|_| ()));
    }

    /// Starts to delete the orphans of epochs below that of `body`, which is claimed.
    pub(super) fn collect_orphans(self: &Arc<Self>, body: &Body) {
        let segments = body.segments.iter().flat_map(|segment| segment.ids().chain(segment.tails()));
        let segments = segments.map(ObjectId::log_name);
        let extents = body.runs.iter().map(|run| run.object.pages_name());
        let files = body.files.iter().map(|file| file.object.file_name());
        let named: Arc<BTreeSet<String>> = Arc::new(segments.chain(extents).chain(files).collect());
        for prefix in ["log/", "pages/", "files/"] {
            let (this, named, own) = (self.clone(), named.clone(), body.epoch);
            let collect = move |outcome: Outcome| {
                let listed = outcome.map(|reply| reply.listed).unwrap_or_default();
                let orphans = listed.into_iter().filter(|listed| {
                    let is_orphan = |(group, object): (&str, ObjectId)| {
                        object.epoch < own && !named.contains(group) && listed.len != SHORT_BYTES
                    };
                    group_of(&listed.name).is_some_and(is_orphan)
                });
                this.collect(orphans.map(|listed| listed.name).collect());
            };
            self.store.start(Request::List { prefix: prefix.into() }, Box::new(collect));
        }
    }
}

/// Returns the fences in a store without appends that are not deleted with their segments (O23), of
/// which the newest manifest may still name some.
///
/// # Errors
/// I/O.
pub(super) fn fences_that_stay(
    store: &dyn ObjectStore,
    most: Duration,
) -> Result<impl Iterator<Item = String> + use<>> {
    let request = Request::List { prefix: "log/".into() };
    let listed = persist(store, &request, most)
        .map_err(|failure| error_of(&failure, "log objects cannot be listed", "log/"))?
        .listed;
    Ok(listed.into_iter().filter(|object| object.len == SHORT_BYTES).map(|object| object.name))
}

/// Deletes the fences that stay, except those of segments that the newest manifest names. Returns
/// how many. Afterwards an earlier writer that is still alive could report what is lost.
///
/// # Errors
/// `NotFound` if there is no database; I/O.
pub(super) fn remove_fences(store: &dyn ObjectStore, most: Duration) -> Result<u64> {
    let missing = || Error::new(ErrorKind::NotFound, "there is no database at this URL");
    let body = look_up(store, most)?.ok_or_else(missing)?.body;
    let named: BTreeSet<String> =
        body.segments.iter().flat_map(SegmentEntry::ids).map(|id| id.log_name()).collect();
    let mut removed = 0;
    for name in fences_that_stay(store, most)? {
        // A segment of a later manifest has a later epoch.
        let passes = |(group, id): (&str, ObjectId)| id.epoch <= body.epoch && !named.contains(group);
        if group_of(&name).is_some_and(passes) {
            persist(store, &Request::Delete { name: name.clone() }, most)
                .map_err(|failure| error_of(&failure, "a fence cannot be deleted", &name))?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Returns whether a reader of a checkpoint may need the object.
fn is_pinnable(name: &str) -> bool {
    !name.starts_with("log/")
}
