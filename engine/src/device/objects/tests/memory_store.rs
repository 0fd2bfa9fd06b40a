//! The smallest store that keeps its promises: a map in memory. Requests take effect at once.

use super::super::{
    Condition, Done, Failure, FailureKind, Listed, ObjectStore, Outcome, Reply, Request, StoreFacts, Version,
};
use crate::sync::Mutex;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
struct Object {
    bytes: Vec<u8>,
    version: u64,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Object>,
    versions: u64,
}

#[derive(Clone, Debug)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    appends: bool,
}

fn refused(kind: FailureKind) -> Failure {
    Failure { kind, what: format!("{kind:?}") }
}

impl State {
    fn perform(&mut self, request: Request) -> Outcome {
        let there = self.objects.get(request.name()).cloned();
        let version = |object: &Object| Some(Version(object.version.to_string()));
        let absent = || refused(FailureKind::Absent);
        self.versions += 1;
        let next = self.versions;
        match request {
            Request::Create { name, body } => {
                self.perform(Request::Put { name, body, condition: Condition::Absent })
            }
            Request::Put { name, body, condition } => {
                let holds = match condition {
                    Condition::Always => true,
                    Condition::Absent => there.is_none(),
                    Condition::Unchanged(wanted) => there.as_ref().and_then(version) == Some(wanted),
                };
                if !holds {
                    return Err(refused(FailureKind::Refused));
                }
                let object = Object { bytes: body.to_vec(), version: next };
                let reply = Reply { version: version(&object), len: body.len() as u64, ..Reply::default() };
                self.objects.insert(name, object);
                Ok(reply)
            }
            Request::Append { name, offset, body, version: wanted } => {
                let object = self.objects.get_mut(&name).ok_or_else(absent)?;
                if object.bytes.len() as u64 != offset
                    || wanted.is_some_and(|wanted| version(object) != Some(wanted))
                {
                    return Err(refused(FailureKind::Refused));
                }
                object.bytes.extend_from_slice(&body);
                object.version = next;
                Ok(Reply { version: version(object), len: object.bytes.len() as u64, ..Reply::default() })
            }
            Request::Get { range, .. } => {
                let object = there.ok_or_else(absent)?;
                let len = object.bytes.len() as u64;
                let range = range.unwrap_or(0..len);
                let (from, to) = (range.start.min(len) as usize, range.end.min(len) as usize);
                let body = Bytes::copy_from_slice(&object.bytes[from..to]);
                Ok(Reply { version: version(&object), len, body, ..Reply::default() })
            }
            Request::Head { .. } => {
                let object = there.ok_or_else(absent)?;
                Ok(Reply { version: version(&object), len: object.bytes.len() as u64, ..Reply::default() })
            }
            Request::List { prefix } => {
                let inside = self.objects.iter().filter(|(name, _)| name.starts_with(&prefix));
                let listed = inside
                    .map(|(name, object)| Listed { name: name.clone(), len: object.bytes.len() as u64 });
                Ok(Reply { listed: listed.collect(), ..Reply::default() })
            }
            Request::Delete { name } => {
                self.objects.remove(&name);
                Ok(Reply::default())
            }
        }
    }
}

impl ObjectStore for MemoryStore {
    fn start(&self, request: Request, done: Done) {
        let outcome = self.state.lock().perform(request);
        done(outcome);
    }

    fn facts(&self) -> StoreFacts {
        StoreFacts {
            name: "memory".into(),
            endpoint: String::new(),
            appends: self.appends,
            parts_max: 10_000,
            appends_check_version: true,
        }
    }
}

impl MemoryStore {
    /// Returns an empty store.
    pub fn new(appends: bool) -> MemoryStore {
        MemoryStore { state: Arc::default(), appends }
    }

    /// Returns the names of all objects.
    pub fn names(&self) -> Vec<String> {
        self.state.lock().objects.keys().cloned().collect()
    }

    /// Removes an object.
    pub fn remove(&self, name: &str) {
        self.state.lock().objects.remove(name);
    }
}
