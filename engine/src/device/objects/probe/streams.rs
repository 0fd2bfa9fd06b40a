//! What a store promises whose objects take appends over streams.
//!
//! Two clients use one object, as two machines do. A promise that every takeover relies on: a
//! finalized object never changes again, not even by a stream that was open before.

use super::super::request::{FailureKind, Reply, Request, Version};
use super::super::store::{ObjectStore, perform};
use super::super::waiting::{wait_at_most, wait_for_all};
use super::trial::{Answer, IS_STALE, Stop, Trial};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

const CREATED: &[u8] = b"created by the probe of QuenchDB, over a stream";
const APPENDED: [&[u8]; 2] = [b", and appended to", b", twice at the same time"];
const WRONG: &[u8] = b"APPENDED ALTHOUGH IT HAD TO BE REFUSED";

/// Between the end of an object and an append that is to be refused.
const GAP_BYTES: u64 = 100;
/// A refusal comes at once. A server that appends at the end confirms less than was sent.
const GAP_ANSWER_MAX: Duration = Duration::from_secs(5);

/// One pass over all promises of streams.
pub(super) struct StreamPromises<'a> {
    trial: &'a Trial<'a>,
    name: String,
    /// Another client of the store.
    other: Option<Arc<dyn ObjectStore>>,
}

impl<'a> StreamPromises<'a> {
    /// Creates a pass. Connects another client.
    pub(super) fn new(trial: &'a Trial<'a>) -> StreamPromises<'a> {
        StreamPromises { trial, name: trial.name_in_log("object"), other: trial.store.another() }
    }

    pub(super) fn run(&self) -> Result<(), Stop> {
        let version = self.create()?;
        let len = self.append_twice()?;
        self.repeat(len)?;
        self.refuse_gap()?;
        self.end_by_another(&version, len)?;
        self.refuse_all(&version, len)?;
        self.read_whole()?;
        match self.trial.ask(Request::Delete { name: self.name.clone() })? {
            Answer::Done(_) => {}
            Answer::Denied(failure) => return Err(self.trial.denied(&failure)),
            Answer::Refused | Answer::Absent => return Err(self.trial.fails("a delete", "it is refused")),
        }
        match self.trial.ask(self.open(&version, true))? {
            Answer::Absent => Ok(()),
            Answer::Done(_) => Err(self.trial.breaks(IS_STALE, "an object just deleted was opened")),
            Answer::Denied(failure) => Err(self.trial.denied(&failure)),
            Answer::Refused => {
                Err(self.trial.fails("an open", "a deleted object is refused as a present one"))
            }
        }
    }

    /// Creates the object, once with success. Returns its generation.
    fn create(&self) -> Result<Version, Stop> {
        let create = || Request::Create { name: self.name.clone(), body: Bytes::from_static(CREATED) };
        let created = self.done(create(), "the creation of an object that takes appends")?;
        match self.trial.ask(create())? {
            Answer::Done(_) => Err(self.trial.breaks(
                "ignores the generation of a creation",
                "a second creation of an object that takes appends succeeded",
            )),
            Answer::Denied(failure) => Err(self.trial.denied(&failure)),
            Answer::Refused | Answer::Absent => {
                self.trial.version_of(created, "the creation of an object that takes appends")
            }
        }
    }

    /// Appends twice, with both in flight. Returns the length.
    fn append_twice(&self) -> Result<u64, Stop> {
        let mut offset = CREATED.len() as u64;
        let requests = APPENDED.map(|body| {
            let begin = offset;
            offset += body.len() as u64;
            Request::Append {
                name: self.name.clone(),
                offset: begin,
                body: Bytes::from_static(body),
                version: None,
            }
        });
        let ended = wait_for_all(requests.len(), |at: usize, done| {
            self.trial.store.start(requests[at].clone(), done);
        });
        for outcome in ended {
            outcome.map_err(|failure| match failure.kind {
                FailureKind::Refused | FailureKind::Absent => self.trial.fails("an append", &failure.what),
                FailureKind::Denied | FailureKind::Forbidden => self.trial.denied(&failure),
                _ => Stop::Unclear(failure),
            })?;
        }
        Ok(offset)
    }

    /// Sends the second append again. Nothing may be added, because its bytes are there: a lost
    /// stream may leave a copy of an append that arrives after the next one.
    fn repeat(&self, len: u64) -> Result<(), Stop> {
        let (name, body) = (self.name.clone(), Bytes::from_static(APPENDED[1]));
        let offset = len - body.len() as u64;
        let outcome = self.trial.send(Request::Append { name, offset, body, version: None });
        if self.done(Request::Head { name: self.name.clone() }, "a head")?.len != len {
            let shown = "an append that was sent again made the object longer";
            return Err(self.trial.breaks("appends what it has already", shown));
        }
        match outcome {
            // Whether it is refused does not matter.
            Ok(_) => Ok(()),
            Err(failure) if failure.kind == FailureKind::Refused => Ok(()),
            Err(failure) => Err(Stop::Unclear(failure)),
        }
    }

    /// Appends behind the end of another object. Otherwise a block would come into the place of an
    /// earlier one that was lost with its stream.
    fn refuse_gap(&self) -> Result<(), Stop> {
        let name = self.trial.name_in_log("gap");
        let create = Request::Create { name: name.clone(), body: Bytes::from_static(CREATED) };
        self.done(create, "the creation of an object that takes appends")?;
        let (len, body) = (CREATED.len() as u64, Bytes::from_static(WRONG));
        let gap = Request::Append { name: name.clone(), offset: len + GAP_BYTES, body, version: None };
        let outcome = wait_at_most(GAP_ANSWER_MAX, |done| self.trial.store.start(gap, done));
        let is_longer = self.done(Request::Head { name: name.clone() }, "a head")?.len != len;
        match outcome {
            _ if is_longer => {
                let shown = "an append behind the end of an object became a part of it";
                return Err(self.trial.breaks("ignores the offset of an append", shown));
            }
            Some(Ok(_)) => {
                let shown = "an append behind the end of an object was confirmed";
                return Err(self.trial.breaks("confirms what it does not keep", shown));
            }
            Some(Err(failure)) if failure.kind == FailureKind::Refused => {}
            Some(Err(failure)) => return Err(Stop::Unclear(failure)),
            None => return Err(self.trial.fails("an append behind the end", "it is not answered")),
        }
        self.done(Request::Delete { name }, "a delete").map(drop)
    }

    /// Another client takes the object over and finalizes it.
    fn end_by_another(&self, version: &Version, len: u64) -> Result<(), Stop> {
        let other: &dyn ObjectStore = match &self.other {
            Some(other) => &**other,
            None => self.trial.store,
        };
        let asked = |request, what: &str| {
            let outcome = perform(other, request);
            outcome.map_err(|failure| match failure.kind {
                FailureKind::Refused | FailureKind::Absent => self.trial.fails(what, &failure.what),
                FailureKind::Denied | FailureKind::Forbidden => self.trial.denied(&failure),
                _ => Stop::Unclear(failure),
            })
        };
        let opened: Reply = asked(self.open(version, true), "the takeover of an object")?;
        if opened.len != len {
            let shown = "a takeover answers another length than that of what is durable";
            return Err(self.trial.breaks(IS_STALE, shown));
        }
        // Whether a stream that was overtaken is refused does not matter, if the end is final.
        let finalize = Request::Finalize { name: self.name.clone(), version: version.clone(), len };
        let ended = asked(finalize, "the end of an object")?;
        if ended.len != len {
            let shown = "an object was finalized at another length than that of what was durable";
            return Err(self.trial.breaks("loses or adds bytes when it finalizes", shown));
        }
        Ok(())
    }

    /// Tries to change the finalized object.
    fn refuse_all(&self, version: &Version, len: u64) -> Result<(), Stop> {
        let (name, body) = (self.name.clone(), Bytes::from_static(WRONG));
        let append = Request::Append { name, offset: len, body, version: None };
        let grows = "lets a finalized object grow";
        // Any failure will do: the stream may have been closed.
        if self.trial.send(append).is_ok() {
            return Err(self.trial.breaks(grows, "an append on a stream that was open before succeeded"));
        }
        for takes_over in [false, true] {
            match self.trial.ask(self.open(version, takes_over))? {
                Answer::Refused => {}
                Answer::Done(_) => return Err(self.trial.breaks(grows, "it was opened for appends")),
                Answer::Absent => return Err(self.trial.breaks(IS_STALE, "a finalized object is absent")),
                Answer::Denied(failure) => return Err(self.trial.denied(&failure)),
            }
        }
        Ok(())
    }

    fn read_whole(&self) -> Result<(), Stop> {
        let content = [CREATED, APPENDED[0], APPENDED[1]].concat();
        let reply = self.done(Request::Get { name: self.name.clone(), range: None }, "a read")?;
        if reply.body != content || reply.len != content.len() as u64 {
            let shown = "a finalized object has other bytes than those that were confirmed";
            return Err(self.trial.breaks(IS_STALE, shown));
        }
        let head = self.done(Request::Head { name: self.name.clone() }, "a head")?;
        if !head.is_final || head.len != content.len() as u64 {
            let shown = "a finalized object is described as one that is not, or with another length";
            return Err(self.trial.breaks(IS_STALE, shown));
        }
        Ok(())
    }

    /// Sends a request that has to succeed.
    fn done(&self, request: Request, what: &str) -> Result<Reply, Stop> {
        match self.trial.ask(request)? {
            Answer::Done(reply) => Ok(reply),
            Answer::Denied(failure) => Err(self.trial.denied(&failure)),
            Answer::Refused | Answer::Absent => Err(self.trial.fails(what, "it is refused")),
        }
    }

    fn open(&self, version: &Version, takes_over: bool) -> Request {
        Request::Open { name: self.name.clone(), version: version.clone(), takes_over }
    }
}
