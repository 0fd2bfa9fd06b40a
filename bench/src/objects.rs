//! The floor of a store of objects: appends or puts, one after the other, without a database.

use crate::raw_writes::{RawWrites, time_writes};
use anyhow::{Context, Result, anyhow};
use quenchdb::internals::base::random::Random;
use quenchdb::internals::device::Storage;
use quenchdb::internals::device::objects::{
    MANIFEST_NAME, ObjectStore, Options, Request, StoreFacts, connect, open_url, perform,
};
use quenchdb::{Error, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

/// Opens the database at `url` for reading, as a storage. Claims nothing.
///
/// # Errors
/// The URL is wrong, or the store does not answer.
pub fn storage(url: &str) -> Result<Arc<dyn Storage>> {
    Ok(Arc::new(open_url(url, true, Options::default())?))
}

/// Returns whether a store has no object at `url`, not even one that is no database's. What a probe
/// has left does not count.
///
/// # Errors
/// The URL is wrong, or the store does not answer.
pub fn is_empty(url: &str) -> Result<bool> {
    let store = connect(url)?;
    Ok(list(&*store)?.iter().all(|name| name.starts_with("probe/")))
}

/// Removes all objects at `url`. The manifest goes first: without it there is no database.
///
/// # Errors
/// The URL is wrong, or the store does not answer.
pub fn remove_all(url: &str) -> Result<()> {
    let store = connect(url)?;
    let mut names = list(&*store)?;
    names.sort_by_key(|name| name != MANIFEST_NAME);
    for name in names {
        let request = Request::Delete { name: name.clone() };
        perform(&*store, request).map_err(|failure| anyhow!("cannot remove {name}: {}", failure.what))?;
    }
    Ok(())
}

fn list(store: &dyn ObjectStore) -> Result<Vec<String>> {
    let listed = perform(store, Request::List { prefix: String::new() });
    let reply = listed.map_err(|failure| anyhow!("cannot list objects: {}", failure.what))?;
    Ok(reply.listed.into_iter().map(|object| object.name).collect())
}

/// One writer's objects, below `probe/`, which a database ignores.
struct Writer<'a> {
    store: &'a dyn ObjectStore,
    facts: StoreFacts,
    /// The beginning of the names.
    folder: String,
    /// Objects that were created, and parts and bytes of the last.
    objects: u64,
    parts: u64,
    len: u64,
}

impl Writer<'_> {
    fn name(&self, number: u64) -> String {
        format!("{}{number}", self.folder)
    }

    /// Writes `body` as a commit does: an append, or a new object where no more are taken.
    fn write(&mut self, body: &bytes::Bytes) -> quenchdb::Result<()> {
        let body = body.clone();
        let bytes = body.len() as u64;
        let appends = self.facts.appends && self.objects > 0 && self.parts < self.facts.parts_max;
        let request = if appends {
            let (name, offset) = (self.name(self.objects - 1), self.len);
            (self.parts, self.len) = (self.parts + 1, self.len + bytes);
            Request::Append { name, offset, body, version: None }
        } else {
            let name = self.name(self.objects);
            (self.objects, self.parts, self.len) = (self.objects + 1, 1, bytes);
            Request::Create { name, body }
        };
        perform(self.store, request).map_err(|failure| Error::new(ErrorKind::Io, failure.what))?;
        Ok(())
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        for number in 0..self.objects {
            // An object that stays is one of a probe.
            let _ = perform(self.store, Request::Delete { name: self.name(number) });
        }
    }
}

/// Measures durable writes of `bytes` by `writers` threads for `duration`.
///
/// # Errors
/// The store fails; the floor is measured without retries.
pub fn raw_durable_write(url: &str, bytes: usize, writers: usize, duration: Duration) -> Result<RawWrites> {
    let store = connect(url)?;
    let (body, run) = (bytes::Bytes::from(vec![7; bytes]), Random::from_entropy().next_u64());
    let measured = time_writes(writers, duration, |writer| {
        let (facts, body) = (store.facts(), body.clone());
        // Streams have no folders, and their names lead to the store that has the log.
        let folder = match facts.streams {
            true => format!("probe/log-floor-{run:016x}-{writer}-"),
            false => format!("probe/floor-{run:016x}-{writer}/"),
        };
        let mut writer = Writer { store: &*store, facts, folder, objects: 0, parts: 0, len: 0 };
        move || writer.write(&body)
    });
    measured.with_context(|| format!("the floor of {url} cannot be measured"))
}
