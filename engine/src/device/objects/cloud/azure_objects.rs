//! Azure Blob Storage: requests that its client makes, and those of append blobs.

use super::super::client::{Page, Place, age_of, empty_read};
use super::super::request::{Condition, Failure, FailureKind, Listed, Reply, Request, RequestKind, Version};
use super::super::store::Outcome;
use super::azure::{Azure, Object};
use super::failure::{failure, may_be_behind_the_end};
use bytes::Bytes;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, ObjectMeta, ObjectStore, PutMode, PutOptions, PutPayload, UpdateVersion,
};
use std::ops::Range;

impl Azure {
    /// Sends a request once. Lists have [`Azure::page`].
    pub async fn once(&self, place: &Place, key: &str, request: &Request) -> Outcome {
        let name = request.name();
        let path = Path::parse(key).unwrap_or_else(|_| Path::from(name));
        let object = Object { place, name, path };
        let (name, path) = (object.name, &object.path);
        match request {
            Request::Put { body, condition, .. } => self.put(&object, body, condition).await,
            Request::Create { body, .. } => self.create(&object, body).await,
            Request::Append { offset, body, version, .. } => {
                self.append(&object, RequestKind::Append, *offset, body, version.as_ref()).await
            }
            Request::Get { range, .. } => self.get(&object, range.clone()).await,
            Request::Head { .. } => self.head(&object, RequestKind::Head).await,
            Request::Delete { .. } => self.delete(place, name, path).await,
            Request::Open { .. } | Request::Finalize { .. } => {
                let why = "blobs have no streams";
                Err(place.say(FailureKind::Denied, request.kind(), name, why))
            }
            Request::List { .. } => {
                Err(place.say(FailureKind::Denied, request.kind(), name, "a list is asked for in pages"))
            }
        }
    }

    /// Lists the next objects whose keys begin with `key`, with their keys as names.
    pub async fn page(
        &self,
        place: &Place,
        name: &str,
        key: &str,
        after: Option<String>,
    ) -> Result<Page, Failure> {
        let options = PaginatedListOptions { page_token: after, ..PaginatedListOptions::default() };
        let listed = self.store.list_paginated(Some(key), options).await;
        let found = listed.map_err(|error| failure(place, RequestKind::List, name, &error))?;
        let listed = found.result.objects.into_iter();
        let listed =
            listed.map(|object| Listed { name: object.location.as_ref().into(), len: object.size }).collect();
        Ok(Page { listed, next: found.page_token })
    }

    async fn put(&self, object: &Object<'_>, body: &Bytes, condition: &Condition) -> Outcome {
        let mode = match condition {
            Condition::Always => PutMode::Overwrite,
            Condition::Absent => PutMode::Create,
            Condition::Unchanged(Version(version)) => {
                PutMode::Update(UpdateVersion { e_tag: Some(version.clone()), version: None })
            }
        };
        let options = PutOptions { mode, ..PutOptions::default() };
        let put = self.store.put_opts(&object.path, PutPayload::from_bytes(body.clone()), options).await;
        let put = put.map_err(|error| failure(object.place, RequestKind::Put, object.name, &error))?;
        Ok(Reply { version: put.e_tag.map(Version), len: body.len() as u64, ..Reply::default() })
    }

    async fn get(&self, object: &Object<'_>, range: Option<Range<u64>>) -> Outcome {
        let kind = RequestKind::Get;
        if range.as_ref().is_some_and(Range::is_empty) {
            return self.head(object, kind).await;
        }
        let bounded =
            range.clone().map(|range| GetRange::Bounded(range.start..range.end.min(i64::MAX as u64)));
        let options = GetOptions { range: bounded, ..GetOptions::default() };
        let found = match self.store.get_opts(&object.path, options).await {
            Ok(found) => found,
            Err(error) => match range.clone().filter(|_| may_be_behind_the_end(&error)) {
                Some(range) => {
                    let head = self.head(object, kind).await;
                    return empty_read(object.place, object.name, range.start, head);
                }
                None => return Err(failure(object.place, kind, object.name, &error)),
            },
        };
        let fail = |why| Err(object.place.say(FailureKind::Unknown, kind, object.name, why));
        let (reply, sent) = (reply_of(found.meta.clone()), found.range.clone());
        let Ok(body) = found.bytes().await else {
            return fail("the connection ended before the last byte");
        };
        let asked = range.unwrap_or(0..u64::MAX);
        let whole = asked.start..asked.end.min(reply.len);
        if sent != whole || body.len() as u64 != whole.end.saturating_sub(whole.start) {
            return fail("the answer holds another range");
        }
        present(object, kind, Reply { body, ..reply })
    }

    async fn head(&self, object: &Object<'_>, kind: RequestKind) -> Outcome {
        let options = GetOptions { head: true, ..GetOptions::default() };
        let found = self.store.get_opts(&object.path, options).await;
        let found = found.map_err(|error| failure(object.place, kind, object.name, &error))?;
        present(object, kind, reply_of(found.meta))
    }
}

fn reply_of(meta: ObjectMeta) -> Reply {
    let age = Some(age_of(meta.last_modified.timestamp()));
    Reply { version: meta.e_tag.map(Version), len: meta.size, age, ..Reply::default() }
}

/// An empty blob is an object whose creation has not come to its end, and the engine puts no empty
/// objects.
fn present(object: &Object<'_>, kind: RequestKind, reply: Reply) -> Outcome {
    if reply.len == 0 {
        return Err(object.place.say(FailureKind::Absent, kind, object.name, "the object is empty"));
    }
    Ok(reply)
}
