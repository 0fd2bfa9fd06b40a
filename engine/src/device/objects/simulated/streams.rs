//! Appends over streams, as in a zonal bucket.
//!
//! 1. An append at an offset below the length is taken for a repetition: what overlaps is dropped
//!    unread, the rest is appended, and the answer is success. One behind the end is refused.
//! 2. The client that opened an object last is its only writer, unless the store does not revoke
//!    streams.
//! 3. A finalized object never changes again.
//! 4. The version of an object stays the same over all appends.
//!
//! A machine's appends to one object arrive in their order, as long as the machine lives.

use super::bucket::{Bucket, Change, Judged, SimulatedObject, failure};
use super::options::StoreOptions;
use crate::device::objects::{FailureKind, Reply, Request, Version};
use std::sync::Arc;

impl Bucket {
    pub(super) fn judge_stream(&self, options: &StoreOptions, request: &Request, client: usize) -> Judged {
        let name = request.name();
        let wanted = match request {
            Request::Open { version, .. } | Request::Finalize { version, .. } => Some(version),
            Request::Append { version, .. } => version.as_ref(),
            _ => None,
        };
        let is_wanted = |version: &Version| wanted.is_none_or(|wanted| wanted == version);
        let found = self.objects().get(name).filter(|object| is_wanted(object.version()));
        let Some(object) = found else { return failure(FailureKind::Absent, "no such object") };
        if object.is_final {
            return failure(FailureKind::Refused, "the object is finalized");
        }
        let reply = |len| Reply { version: Some(object.version().clone()), len, ..Reply::default() };
        let is_holder = object.holder == client;
        match request {
            Request::Open { takes_over: false, .. } if !is_holder => {
                failure(FailureKind::Refused, "a different writer has become the exclusive writer")
            }
            Request::Open { .. } => {
                let held = SimulatedObject { holder: client, ..(**object).clone() };
                let hold = Change::Put { name: name.into(), object: Arc::new(held) };
                Ok(((!is_holder).then_some(hold), reply(object.len())))
            }
            _ if !is_holder && options.revokes => {
                failure(FailureKind::Refused, "a different writer has become the exclusive writer")
            }
            Request::Append { offset, body, .. } => {
                let Some(known) = object.len().checked_sub(*offset) else {
                    return failure(FailureKind::Refused, "the offset is behind the end");
                };
                let new = body.slice((known as usize).min(body.len())..);
                let len = object.len() + new.len() as u64;
                let (name, version) = (name.into(), object.version().clone());
                let append = Change::Append { name, body: new.clone(), version };
                Ok(((!new.is_empty()).then_some(append), reply(len)))
            }
            Request::Finalize { len, .. } if *len > object.len() => {
                failure(FailureKind::Refused, "the offset is behind the end")
            }
            _ => {
                let ended = SimulatedObject { is_final: true, ..(**object).clone() };
                let finalize = Change::Put { name: name.into(), object: Arc::new(ended) };
                Ok((Some(finalize), Reply { is_final: true, ..reply(object.len()) }))
            }
        }
    }
}

/// Returns the beginning of an append, as it may be torn: `part` of 256.
pub(super) fn torn(request: &Request, part: u64) -> Option<Request> {
    let Request::Append { name, offset, body, version } = request else { return None };
    let (name, offset, version) = (name.clone(), *offset, version.clone());
    let body = body.slice(..body.len() * part as usize / 256);
    Some(Request::Append { name, offset, body, version })
}
