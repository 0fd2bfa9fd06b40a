//! The objects of a simulated store, and the effects of requests on them.

use super::options::{BrokenPromises, StoreOptions};
use crate::base::checksum::crc;
use crate::device::objects::{Condition, Failure, FailureKind, Listed, Outcome, Reply, Request, Version};
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// An object of a simulated store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SimulatedObject {
    /// The bytes as they were written.
    pub(super) pieces: Vec<Bytes>,
    pub(super) len: u64,
    /// Appends, the creation included.
    pub(super) parts: u64,
    pub(super) version: Version,
    /// The object was created for appends, so it is never replaced.
    pub(super) takes_appends: bool,
    /// The client with the newest stream.
    pub(super) holder: usize,
    /// The object never changes again.
    pub(super) is_final: bool,
}

impl SimulatedObject {
    fn new(body: Bytes, version: Version, takes_appends: bool) -> SimulatedObject {
        let (len, pieces, parts) = (body.len() as u64, vec![body], 1);
        SimulatedObject { len, pieces, parts, version, takes_appends, holder: 0, is_final: false }
    }

    /// Returns an object of a store in which any object takes appends, as it was before a restart.
    #[must_use]
    pub fn restored(body: Bytes, version: Version, parts: u64) -> SimulatedObject {
        SimulatedObject { parts, ..SimulatedObject::new(body, version, false) }
    }

    /// Returns the object with other bytes and the same version, as a store that tears reads shows
    /// it.
    #[must_use]
    pub fn with_body(&self, body: Bytes) -> SimulatedObject {
        SimulatedObject { len: body.len() as u64, pieces: vec![body], version: self.version.clone(), ..*self }
    }

    /// Returns the version.
    #[must_use]
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// Returns the number of bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a length, not a collection")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns the number of appends, the creation included.
    #[must_use]
    pub fn parts(&self) -> u64 {
        self.parts
    }

    /// Returns all bytes.
    #[must_use]
    pub fn body(&self) -> Bytes {
        self.read(0..self.len)
    }

    fn append(&mut self, body: Bytes, version: Version) {
        self.len += body.len() as u64;
        self.parts += 1;
        self.pieces.push(body);
        self.version = version;
    }

    /// Returns a range of the bytes, cut at the end.
    #[must_use]
    pub fn read(&self, range: Range<u64>) -> Bytes {
        let (from, to) = (range.start.min(self.len), range.end.min(self.len));
        if from >= to {
            return Bytes::new();
        }
        if let [only] = &self.pieces[..] {
            return only.slice(from as usize..to as usize);
        }
        let (mut bytes, mut at) = (BytesMut::with_capacity((to - from) as usize), 0);
        for piece in &self.pieces {
            let end = at + piece.len() as u64;
            if at < to && end > from {
                let cut = (from.max(at) - at) as usize..(to.min(end) - at) as usize;
                bytes.extend_from_slice(&piece[cut]);
            }
            at = end;
        }
        bytes.freeze()
    }

    fn reply(&self, body: Bytes) -> Reply {
        let (version, is_final) = (Some(self.version.clone()), self.is_final);
        Reply { version, len: self.len, body, is_final, ..Reply::default() }
    }
}

/// A change of one object.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "a request that took effect, without its condition")]
pub enum Change {
    Put { name: String, object: Arc<SimulatedObject> },
    Append { name: String, body: Bytes, version: Version },
    Remove { name: String },
}

/// What a request does, or the store's refusal.
pub type Judged = Result<(Option<Change>, Reply), Failure>;

/// All objects of a store at one moment. Cloning shares the bodies.
#[derive(Clone, Debug, Default)]
pub struct Bucket {
    objects: BTreeMap<String, Arc<SimulatedObject>>,
    /// Versions given so far.
    versions: u64,
}

pub(super) fn failure<T>(kind: FailureKind, what: impl Into<String>) -> Result<T, Failure> {
    Err(Failure { kind, what: what.into() })
}

impl Bucket {
    /// Returns the objects by their names.
    #[must_use]
    pub fn objects(&self) -> &BTreeMap<String, Arc<SimulatedObject>> {
        &self.objects
    }

    /// Gives the next version at least this number.
    pub fn skip_versions(&mut self, next: u64) {
        self.versions = self.versions.max(next.saturating_sub(1));
    }

    /// Returns the change that a request makes if it takes effect now, and the reply.
    ///
    /// # Errors
    /// The store's refusal.
    pub fn judge(&self, options: &StoreOptions, request: &Request) -> Judged {
        self.judge_of(options, request, 0)
    }

    /// As [`Bucket::judge`], of a request of this client.
    ///
    /// # Errors
    /// The store's refusal.
    pub fn judge_of(&self, options: &StoreOptions, request: &Request, client: usize) -> Judged {
        match request {
            Request::Put { name, body, condition } => {
                if name.is_empty() {
                    return failure(FailureKind::Denied, "a name is empty");
                }
                self.check(&options.broken, name, condition)?;
                if self.objects.get(name).is_some_and(|object| object.takes_appends) {
                    return failure(FailureKind::Denied, "an object that takes appends is not replaced");
                }
                Ok(self.put(options, name, body, false))
            }
            Request::Create { name, body } => {
                if body.is_empty() {
                    return failure(FailureKind::Denied, "an object that takes appends has a first byte");
                }
                self.check(&options.broken, name, &Condition::Absent)?;
                let (change, reply) = self.put(options, name, body, options.appends && options.appends_apart);
                Ok((change.map(|change| change.held_by(client)), reply))
            }
            Request::Append { .. } | Request::Open { .. } | Request::Finalize { .. } if options.streams => {
                self.judge_stream(options, request, client)
            }
            Request::Append { .. } => self.judge_append(options, request),
            Request::Open { .. } | Request::Finalize { .. } => {
                failure(FailureKind::Denied, "the store does not know streams")
            }
            Request::Delete { name } => {
                let change = self.objects.contains_key(name).then(|| Change::Remove { name: name.clone() });
                Ok((change, Reply::default()))
            }
            read => self.read(read).map(|reply| (None, reply)),
        }
    }

    /// Checks a condition of an object, unless the store ignores it.
    ///
    /// # Errors
    /// The condition does not hold.
    pub fn check(&self, broken: &BrokenPromises, name: &str, condition: &Condition) -> Result<(), Failure> {
        match (condition, self.objects.get(name)) {
            (Condition::Absent, Some(_)) if !broken.creations_overwrite => {
                failure(FailureKind::Refused, "the object exists")
            }
            (Condition::Unchanged(_), _) if broken.versions_ignored => Ok(()),
            (Condition::Unchanged(_), None) => failure(FailureKind::Absent, "no such object"),
            (Condition::Unchanged(version), Some(object)) if object.version != *version => {
                failure(FailureKind::Refused, "the object has another version")
            }
            _ => Ok(()),
        }
    }

    fn judge_append(&self, options: &StoreOptions, request: &Request) -> Judged {
        let Request::Append { name, offset, body, version } = request else {
            return failure(FailureKind::Denied, "the request is no append");
        };
        if !options.appends {
            return failure(FailureKind::Denied, "the store does not know appends");
        }
        if *offset == 0 && options.appends_apart {
            return failure(FailureKind::Denied, "an append at offset 0 creates objects");
        }
        if options.broken.appends_overwrite {
            return Ok(self.put(options, name, body, options.appends_apart));
        }
        let Some(object) = self.objects.get(name) else {
            return match *offset {
                0 => Ok(self.put(options, name, body, false)),
                _ => failure(FailureKind::Absent, "no such object"),
            };
        };
        if options.appends_apart && !object.takes_appends {
            return failure(FailureKind::Denied, "the object was not created for appends");
        }
        if object.len != *offset && !options.broken.offsets_ignored {
            let what = format!("the object has {} bytes, and the offset is {offset}", object.len);
            return failure(FailureKind::Refused, what);
        }
        if let Some(version) = version.as_ref().filter(|_| options.appends_check_version) {
            self.check(&options.broken, name, &Condition::Unchanged(version.clone()))?;
        }
        if object.parts() >= options.parts_max {
            let what = format!("the object has {} parts, and takes no more", object.parts);
            return failure(FailureKind::Full, what);
        }
        let len = object.len + body.len() as u64;
        let version = if options.broken.versions_repeat {
            version_of_bytes(&[object.body(), body.clone()].concat())
        } else {
            self.next_version(options)
        };
        let reply = Reply { version: Some(version.clone()), len, ..Reply::default() };
        Ok((Some(Change::Append { name: name.clone(), body: body.clone(), version }), reply))
    }

    /// Returns the change that creates or replaces an object, and its reply.
    pub(super) fn put(
        &self,
        options: &StoreOptions,
        name: &str,
        body: &Bytes,
        takes_appends: bool,
    ) -> (Option<Change>, Reply) {
        let version =
            if options.broken.versions_repeat { version_of_bytes(body) } else { self.next_version(options) };
        let object = SimulatedObject::new(body.clone(), version, takes_appends);
        let reply = object.reply(Bytes::new());
        (Some(Change::Put { name: name.into(), object: Arc::new(object) }), reply)
    }

    fn next_version(&self, options: &StoreOptions) -> Version {
        let number = self.versions + 1;
        Version(if options.streams { number.to_string() } else { format!("v{number}") })
    }

    fn read(&self, request: &Request) -> Outcome {
        if let Request::List { prefix } = request {
            if !prefix.is_empty() && !prefix.ends_with('/') {
                return failure(FailureKind::Denied, "a prefix does not end with `/`");
            }
            let from = self.objects.range(prefix.clone()..);
            let found = from.take_while(|(name, _)| name.starts_with(prefix.as_str()));
            let listed = found.map(|(name, object)| Listed { name: name.clone(), len: object.len }).collect();
            return Ok(Reply { listed, ..Reply::default() });
        }
        let Some(object) = self.objects.get(request.name()) else {
            return failure(FailureKind::Absent, "no such object");
        };
        let body = match request {
            Request::Get { range: Some(range), .. } => object.read(range.clone()),
            Request::Get { range: None, .. } => object.body(),
            _ => Bytes::new(),
        };
        Ok(object.reply(body))
    }

    /// Makes a change that was judged on these objects.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Put { name, object } => {
                self.versions += 1;
                self.objects.insert(name.clone(), object.clone());
            }
            Change::Append { name, body, version } => {
                self.versions += 1;
                if let Some(object) = self.objects.get_mut(name) {
                    Arc::make_mut(object).append(body.clone(), version.clone());
                }
            }
            Change::Remove { name } => drop(self.objects.remove(name)),
        }
    }
}

impl Change {
    /// Returns the change, if it is a creation with this client as the holder of the stream.
    fn held_by(self, client: usize) -> Change {
        match self {
            Change::Put { name, object } => {
                let object = SimulatedObject { holder: client, ..(*object).clone() };
                Change::Put { name, object: Arc::new(object) }
            }
            other => other,
        }
    }
}

fn version_of_bytes(bytes: &[u8]) -> Version {
    Version(format!("h{:08x}", crc(bytes)))
}
