//! What a store promises, asked for with one request at a time.
//!
//! A server that ignores a condition or an offset answers "success" and overwrites. So this asks
//! for what must be refused, and then reads what is there.

use super::super::request::{Condition, Failure, FailureKind, Request, Version};
use super::streams::StreamPromises;
use super::trial::{Answer, IS_STALE, Stop, Trial};
use bytes::Bytes;

/// Contents of the objects. The first has another length than the others, so that a length reveals
/// an overwrite, too.
pub(super) const CREATED: &[u8] = b"created by the probe of QuenchDB";
pub(super) const REPLACED: &[u8] = b"replaced by the probe of QuenchDB";
const APPENDED: &[u8] = b", and appended to";
const WRONG: &[u8] = b"WRITTEN ALTHOUGH IT HAD TO BE REFUSED";

/// What an object must hold after all requests.
struct Expected<'a> {
    name: &'a str,
    content: Vec<u8>,
    version: Version,
}

/// One pass over all promises, with an object that is replaced and one that is appended to: some
/// stores know no object that takes both.
pub(super) struct Promises<'a> {
    trial: &'a Trial<'a>,
    name: String,
    appended: String,
}

impl<'a> Promises<'a> {
    /// Creates a pass. Sends nothing.
    pub(super) fn new(trial: &'a Trial<'a>) -> Promises<'a> {
        Promises { trial, appended: trial.name("appended"), name: trial.name("object") }
    }
}

impl Promises<'_> {
    /// Returns whether the store appends.
    pub(super) fn run(&self) -> Result<bool, Stop> {
        let first = self.create()?;
        let replaced = self.replace(&first)?;
        let mut expected = Vec::new();
        let streams = self.trial.facts.streams;
        if streams {
            StreamPromises::new(self.trial).run()?;
        } else if self.trial.facts.appends
            && let Some(version) = self.append()?
        {
            let content = [CREATED, APPENDED].concat();
            expected.push(Expected { name: &self.appended, content, version });
        }
        let appends = !expected.is_empty();
        expected.push(Expected { name: &self.name, content: REPLACED.to_vec(), version: replaced });
        for object in &expected {
            self.read_whole(object)?;
        }
        self.list(&expected)?;
        for object in &expected {
            self.delete(object.name)?;
        }
        if appends {
            self.append_to_absent()?;
        }
        Ok(appends || streams)
    }

    /// Creates the object, once with success. Returns its version.
    fn create(&self) -> Result<Version, Stop> {
        let version = self.put(Condition::Absent, CREATED, "the creation of an object")?;
        match self.trial.ask(self.put_request(Condition::Absent, WRONG))? {
            Answer::Done(_) => {
                return Err(self.trial.breaks(
                    "ignores the condition `create if absent` (If-None-Match: *)",
                    "a second creation of the same object succeeded",
                ));
            }
            Answer::Denied(failure) => return Err(self.trial.denied(&failure)),
            Answer::Refused | Answer::Absent => {}
        }
        self.read_range(&version)?;
        Ok(version)
    }

    /// Reads a range in the middle. It also shows what the refused creation did.
    fn read_range(&self, version: &Version) -> Result<(), Stop> {
        let get = Request::Get { name: self.name.clone(), range: Some(8..24) };
        let reply = match self.trial.ask(get)? {
            Answer::Done(reply) => reply,
            Answer::Absent => return Err(self.trial.breaks(IS_STALE, "an object just created is absent")),
            Answer::Refused => return Err(self.trial.fails("a ranged read", "it is refused")),
            Answer::Denied(failure) => return Err(self.trial.denied(&failure)),
        };
        if reply.body == CREATED || reply.body.len() != 16 {
            return Err(self
                .trial
                .breaks("ignores the range of a read", "a read of 16 bytes returned another length"));
        }
        let right = &reply.body[..] == CREATED.get(8..24).unwrap_or_default();
        if !right || reply.len != CREATED.len() as u64 {
            return Err(self.trial.breaks(
                "ignores the condition `create if absent` (If-None-Match: *), or the range of a read",
                "after a refused creation, a ranged read returned other bytes than the first creation wrote",
            ));
        }
        self.trial.same_version(reply.version.as_ref(), version)
    }

    /// Replaces the object, once with success. Returns its version.
    fn replace(&self, first: &Version) -> Result<Version, Stop> {
        let unchanged = || Condition::Unchanged(first.clone());
        let second = self.put(unchanged(), REPLACED, "the replacement of an unchanged object")?;
        if second == *first {
            return Err(self
                .trial
                .fails("a replacement", "the object has the same version (ETag) as before"));
        }
        match self.trial.ask(self.put_request(unchanged(), WRONG))? {
            Answer::Done(_) => Err(self.trial.breaks(
                "ignores the condition `replace if unchanged` (If-Match)",
                "a replacement on condition of an old version succeeded",
            )),
            Answer::Absent => Err(self.trial.breaks(IS_STALE, "an object just replaced is absent")),
            Answer::Denied(failure) => Err(self.trial.denied(&failure)),
            Answer::Refused => Ok(second),
        }
    }

    /// Appends at wrong offsets and at the right one. Returns the newest version, or nothing if the
    /// store says that it has no appends.
    fn append(&self) -> Result<Option<Version>, Stop> {
        let create = |body| Request::Create { name: self.appended.clone(), body: Bytes::from_static(body) };
        // Puts succeeded, so it is not a matter of permissions if one of these is denied.
        let first = match self.trial.ask(create(CREATED))? {
            Answer::Done(reply) => {
                self.trial.version_of(reply, "the creation of an object that takes appends")?
            }
            Answer::Denied(_) => return Ok(None),
            Answer::Refused | Answer::Absent => {
                let what = "the creation of an object that takes appends";
                return Err(self.refused(what, &self.appended, CREATED));
            }
        };
        let before = CREATED.len() as u64;
        let newest = match self.trial.ask(self.append_request(before, APPENDED, None))? {
            Answer::Done(reply) => self.trial.version_of(reply, "an append")?,
            Answer::Denied(_) => {
                self.delete(&self.appended)?;
                return Ok(None);
            }
            Answer::Refused | Answer::Absent => {
                let applied = [CREATED, APPENDED].concat();
                return Err(self.refused("an append at the end of the object", &self.appended, &applied));
            }
        };
        match self.trial.ask(create(WRONG))? {
            Answer::Done(_) => {
                return Err(self.trial.breaks(
                    "ignores the condition `create if absent` (If-None-Match: *)",
                    "a second creation of an object that takes appends succeeded",
                ));
            }
            Answer::Denied(failure) => return Err(self.trial.denied(&failure)),
            Answer::Refused | Answer::Absent => {}
        }
        let end = before + APPENDED.len() as u64;
        for (offset, which) in [(before, "below"), (end + 7, "above")] {
            self.must_refuse_append(offset, None, "ignores the offset of an append", || {
                format!("an append at an offset {which} the object's length succeeded")
            })?;
        }
        if self.trial.facts.appends_check_version {
            self.must_refuse_append(
                end,
                Some(&first),
                "ignores the version in an append (If-Match)",
                || "an append on condition of an old version succeeded".into(),
            )?;
        }
        Ok(Some(newest))
    }

    fn must_refuse_append(
        &self,
        offset: u64,
        version: Option<&Version>,
        fault: &str,
        shown: impl Fn() -> String,
    ) -> Result<(), Stop> {
        match self.trial.ask(self.append_request(offset, WRONG, version))? {
            Answer::Done(_) => Err(self.trial.breaks(fault, &shown())),
            Answer::Absent => Err(self.trial.breaks(IS_STALE, "an object just appended to is absent")),
            Answer::Denied(failure) => Err(self.trial.denied(&failure)),
            Answer::Refused => Ok(()),
        }
    }

    /// Reads a whole object after all the requests that the store should have refused.
    fn read_whole(&self, expected: &Expected<'_>) -> Result<(), Stop> {
        let Expected { name, content, version } = expected;
        let reply = match self.trial.ask(Request::Get { name: (*name).into(), range: None })? {
            Answer::Done(reply) => reply,
            Answer::Absent => return Err(self.trial.breaks(IS_STALE, "an object just written is absent")),
            Answer::Refused => return Err(self.trial.fails("a read", "it is refused")),
            Answer::Denied(failure) => return Err(self.trial.denied(&failure)),
        };
        if reply.body == *content && reply.len == content.len() as u64 {
            return self.trial.same_version(reply.version.as_ref(), version);
        }
        let (body, appended) = (&reply.body[..], content.ends_with(APPENDED));
        let holds = |part: &[u8]| body.windows(part.len()).any(|window| window == part);
        if holds(WRONG) {
            return Err(self.trial.breaks(
                "ignores a condition or an offset",
                "a request was refused, and yet its bytes are in the object",
            ));
        }
        if appended && !holds(CREATED) && holds(APPENDED) {
            return Err(self
                .trial
                .breaks("ignores the offset of an append", "an append replaced the object"));
        }
        if appended && holds(CREATED) && !holds(APPENDED) {
            return Err(self
                .trial
                .breaks("ignores an append", "an append succeeded, and yet its bytes are absent"));
        }
        Err(self.trial.breaks(IS_STALE, "a read did not return the bytes just written"))
    }

    /// Lists the objects, which `expected` has in order of their names.
    fn list(&self, expected: &[Expected<'_>]) -> Result<(), Stop> {
        let reply = match self.trial.ask(Request::List { prefix: self.trial.folder.clone() })? {
            Answer::Done(reply) => reply,
            Answer::Denied(failure) => return Err(self.trial.denied(&failure)),
            Answer::Refused | Answer::Absent => return Err(self.trial.fails("a list", "it is refused")),
        };
        if reply.listed.iter().any(|object| expected.iter().all(|known| object.name != known.name)) {
            let shown = "a list has other names than those asked for";
            return Err(self.trial.breaks("ignores the prefix of a list", shown));
        }
        for object in expected {
            match reply.listed.iter().find(|listed| listed.name == object.name) {
                Some(listed) if listed.len == object.content.len() as u64 => {}
                Some(_) => return Err(self.trial.breaks(IS_STALE, "a list has an old length of an object")),
                None => return Err(self.trial.breaks(IS_STALE, "a list lacks an object just written")),
            }
        }
        Ok(())
    }

    /// Deletes an object; afterwards it must be absent.
    fn delete(&self, name: &str) -> Result<(), Stop> {
        match self.trial.ask(Request::Delete { name: name.into() })? {
            Answer::Done(_) => {}
            Answer::Denied(failure) => return Err(self.trial.denied(&failure)),
            Answer::Refused | Answer::Absent => return Err(self.trial.fails("a delete", "it is refused")),
        }
        match self.trial.ask(Request::Head { name: name.into() })? {
            Answer::Absent => Ok(()),
            Answer::Denied(failure) => Err(self.trial.denied(&failure)),
            Answer::Done(_) => Err(self.trial.breaks(IS_STALE, "an object just deleted is still there")),
            Answer::Refused => Err(self.trial.fails("a head", "it is refused")),
        }
    }

    /// Appends to the object that was removed.
    fn append_to_absent(&self) -> Result<(), Stop> {
        let len = (CREATED.len() + APPENDED.len()) as u64;
        match self.trial.ask(self.append_request(len, WRONG, None))? {
            Answer::Refused | Answer::Absent => Ok(()),
            Answer::Denied(failure) => Err(self.trial.denied(&failure)),
            Answer::Done(_) => Err(self.trial.breaks(
                "ignores the offset of an append to an absent object",
                "an append at an offset above 0 created an object",
            )),
        }
    }

    /// Sends a put that has to succeed. Returns the new version.
    fn put(&self, condition: Condition, body: &'static [u8], what: &str) -> Result<Version, Stop> {
        match self.trial.ask(self.put_request(condition, body))? {
            Answer::Done(reply) => self.trial.version_of(reply, what),
            Answer::Denied(failure) => Err(self.trial.denied(&failure)),
            Answer::Refused | Answer::Absent => Err(self.refused(what, &self.name, body)),
        }
    }

    /// Returns what follows from the refusal of a write that has to succeed. Only this probe uses
    /// the name, so if the object holds `applied`, the answer is that to a second copy.
    fn refused(&self, what: &str, name: &str, applied: &[u8]) -> Stop {
        match self.trial.send(Request::Get { name: name.into(), range: None }) {
            Ok(reply) if reply.body == applied => {
                let what = format!("{what} was carried out twice");
                Stop::Unclear(Failure { kind: FailureKind::Again, what })
            }
            Err(failure) if failure.kind.is_ambiguous() => Stop::Unclear(failure),
            _ => self.trial.fails(what, "it is refused"),
        }
    }

    fn put_request(&self, condition: Condition, body: &'static [u8]) -> Request {
        Request::Put { name: self.name.clone(), body: Bytes::from_static(body), condition }
    }

    fn append_request(&self, offset: u64, body: &'static [u8], version: Option<&Version>) -> Request {
        let (name, body) = (self.appended.clone(), Bytes::from_static(body));
        Request::Append { name, offset, body, version: version.cloned() }
    }
}
