//! Deleting what earlier writers left.
//!
//! The holder of writer epoch e deletes objects of epochs below e that the claimed manifest does
//! not name. No put of an earlier writer can succeed any more, so no manifest will ever name them
//! (O25). Of its own epoch it deletes only what its confirmed puts dropped. A fence in a store
//! without appends stays: its absence would let an earlier writer continue (O23).

use super::body::{Body, SegmentEntry, WriterEpoch};
use super::frame::SHORT_BYTES;
use super::request::{Listed, Request};
use super::store::ObjectStore;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Starts to delete the orphans of epochs below that of `body`, and does not wait. What cannot be
/// deleted now is left to the next writer.
pub(super) fn collect_orphans(store: &Arc<dyn ObjectStore>, body: &Body) {
    let segments = body.segments.iter().flat_map(SegmentEntry::ids).map(|id| id.log_name());
    let extents = body.runs.iter().map(|run| run.object.pages_name());
    let files = body.files.iter().map(|file| file.object.file_name());
    let named: Arc<BTreeSet<String>> = Arc::new(segments.chain(extents).chain(files).collect());
    for prefix in ["log/", "pages/", "files/"] {
        let (to_delete, named, own) = (store.clone(), named.clone(), body.epoch);
        let collect = move |listed: Vec<Listed>| {
            for Listed { name, len } in listed {
                let is_orphan =
                    group_of(&name).is_some_and(|(group, epoch)| epoch < own && !named.contains(group));
                if is_orphan && len != SHORT_BYTES {
                    to_delete.start(Request::Delete { name }, Box::new(|_| ()));
                }
            }
        };
        let list = Request::List { prefix: prefix.into() };
        store.start(
            list,
            Box::new(move |outcome| outcome.into_iter().for_each(|reply| collect(reply.listed))),
        );
    }
}

/// Returns the part of an object's name that a manifest would name, and the writer epoch in it.
fn group_of(name: &str) -> Option<(&str, WriterEpoch)> {
    let (directory, rest) = name.split_once('/')?;
    let file = rest.split('/').next()?;
    let (epoch, number) = file.split_once('-')?;
    number.parse::<u64>().ok()?;
    let group = &name[..directory.len() + 1 + file.len()];
    Some((group, WriterEpoch(epoch.parse().ok()?)))
}
