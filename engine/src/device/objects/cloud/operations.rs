//! One attempt of each request, with the client's types on one side and ours on the other.

use super::super::client::{Page, Place, Protocol, empty_read};
use super::super::request::{Condition, Failure, FailureKind, Listed, Reply, Request, RequestKind, Version};
use super::super::store::Outcome;
#[cfg(feature = "azure")]
use super::azure::Azure;
use super::failure::{failure, may_be_behind_the_end};
#[cfg(feature = "gcs")]
use super::google::Google;
use bytes::Bytes;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, ObjectMeta, ObjectStore, PutMode, PutOptions, PutPayload, UpdateVersion,
};
use std::ops::Range;

/// The store of one provider.
pub(super) enum Provider {
    #[cfg(feature = "azure")]
    Azure(Azure),
    #[cfg(feature = "gcs")]
    Google(Google),
}

/// The requests of one database.
pub(super) struct Operations {
    pub provider: Provider,
    pub place: Place,
    /// Empty, or ends with a slash.
    pub prefix: String,
}

impl Protocol for Operations {
    async fn once(&self, request: &Request) -> Outcome {
        self.find_credentials(request.kind(), request.name()).await?;
        match request {
            Request::Put { name, body, condition } => self.put(name, body, condition).await,
            Request::Create { name, body } => self.create(name, body).await,
            Request::Append { name, offset, body, version } => {
                self.append(name, *offset, body, version.as_ref()).await
            }
            Request::Get { name, range } => self.get(name, range.clone()).await,
            Request::Head { name } => self.head(name, RequestKind::Head).await,
            Request::Delete { name } => self.delete(name).await,
            Request::List { prefix } => {
                let page = self.page(prefix, None).await?;
                Ok(Reply { listed: page.listed, ..Reply::default() })
            }
        }
    }

    async fn page(&self, prefix: &str, after: Option<String>) -> Result<Page, Failure> {
        self.find_credentials(RequestKind::List, prefix).await?;
        let key = format!("{}{prefix}", self.prefix);
        let options = PaginatedListOptions { page_token: after, ..PaginatedListOptions::default() };
        let listed = self.provider.lists().list_paginated(Some(&key), options).await;
        let found = listed.map_err(|error| self.failure(RequestKind::List, prefix, &error))?;
        let mut listed = Vec::with_capacity(found.result.objects.len());
        for object in found.result.objects {
            let name = object.location.as_ref().strip_prefix(&self.prefix);
            let name = name.filter(|name| name.starts_with(prefix)).ok_or_else(|| {
                let why = "the server ignores the prefix of a list; use another store";
                self.place.say(FailureKind::Denied, RequestKind::List, prefix, why)
            })?;
            listed.push(Listed { name: name.into(), len: object.size });
        }
        Ok(Page { listed, next: found.page_token.filter(|token| !token.is_empty()) })
    }

    fn place(&self) -> &Place {
        &self.place
    }
}

impl Provider {
    fn store(&self) -> &dyn ObjectStore {
        match self {
            #[cfg(feature = "azure")]
            Provider::Azure(azure) => &azure.store,
            #[cfg(feature = "gcs")]
            Provider::Google(google) => &google.store,
        }
    }

    fn lists(&self) -> &dyn PaginatedListStore {
        match self {
            #[cfg(feature = "azure")]
            Provider::Azure(azure) => &azure.store,
            #[cfg(feature = "gcs")]
            Provider::Google(google) => &google.store,
        }
    }

    /// Looks for credentials, or finds those of before that are still valid.
    pub async fn find_credentials(&self) -> object_store::Result<()> {
        match self {
            #[cfg(feature = "azure")]
            Provider::Azure(azure) if !azure.is_open => {
                azure.store.credentials().get_credential().await.map(drop)
            }
            #[cfg(feature = "gcs")]
            Provider::Google(google) if !google.is_open => {
                google.store.credentials().get_credential().await.map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Returns the version of an object: on Azure its tag, on Google its generation.
    fn version(&self, tag: Option<String>, generation: Option<String>) -> Option<Version> {
        match self {
            #[cfg(feature = "azure")]
            Provider::Azure(_) => {
                let _ = generation;
                tag.map(Version)
            }
            #[cfg(feature = "gcs")]
            Provider::Google(_) => {
                let _ = tag;
                generation.map(Version)
            }
        }
    }
}

impl Operations {
    /// # Errors
    /// There are none at the moment. Nothing was sent.
    async fn find_credentials(&self, kind: RequestKind, name: &str) -> Result<(), Failure> {
        self.provider.find_credentials().await.map_err(|error| {
            let failure = self.failure(kind, name, &error);
            Failure {
                kind: FailureKind::Again,
                what: format!("{}, while looking for credentials", failure.what),
            }
        })
    }

    fn path(&self, name: &str) -> Path {
        // The prefix is encoded already, and the engine's own names need no encoding.
        Path::parse(format!("{}{name}", self.prefix)).unwrap_or_else(|_| Path::from(name))
    }

    fn failure(&self, kind: RequestKind, name: &str, error: &object_store::Error) -> Failure {
        failure(&self.place, kind, name, error)
    }

    async fn put(&self, name: &str, body: &Bytes, condition: &Condition) -> Outcome {
        let mode = match condition {
            Condition::Always => PutMode::Overwrite,
            Condition::Absent => PutMode::Create,
            Condition::Unchanged(Version(version)) => {
                let version = Some(version.clone());
                PutMode::Update(UpdateVersion { e_tag: version.clone(), version })
            }
        };
        let options = PutOptions { mode, ..PutOptions::default() };
        let payload = PutPayload::from_bytes(body.clone());
        let put = self.provider.store().put_opts(&self.path(name), payload, options).await;
        let put = put.map_err(|error| self.failure(RequestKind::Put, name, &error))?;
        let version = self.provider.version(put.e_tag, put.version);
        Ok(Reply { version, len: body.len() as u64, ..Reply::default() })
    }

    async fn create(&self, name: &str, body: &Bytes) -> Outcome {
        match &self.provider {
            #[cfg(feature = "azure")]
            Provider::Azure(azure) => azure.create(&self.place, name, &self.path(name), body).await,
            #[cfg(feature = "gcs")]
            Provider::Google(_) => self.put(name, body, &Condition::Absent).await,
        }
    }

    async fn append(&self, name: &str, offset: u64, body: &Bytes, version: Option<&Version>) -> Outcome {
        match &self.provider {
            #[cfg(feature = "azure")]
            Provider::Azure(azure) => {
                let path = self.path(name);
                azure.append(&self.place, RequestKind::Append, (name, &path), offset, body, version).await
            }
            #[cfg(feature = "gcs")]
            Provider::Google(_) => {
                let _ = (offset, body, version);
                let why = "objects of Google's store take no appends";
                Err(self.place.say(FailureKind::Denied, RequestKind::Append, name, why))
            }
        }
    }

    async fn get(&self, name: &str, range: Option<Range<u64>>) -> Outcome {
        if range.as_ref().is_some_and(Range::is_empty) {
            return self.head(name, RequestKind::Get).await;
        }
        let bounded =
            range.clone().map(|range| GetRange::Bounded(range.start..range.end.min(i64::MAX as u64)));
        let options = GetOptions { range: bounded, ..GetOptions::default() };
        let found = match self.provider.store().get_opts(&self.path(name), options).await {
            Ok(found) => found,
            Err(error) => match range.clone().filter(|_| may_be_behind_the_end(&error)) {
                Some(range) => {
                    let head = self.head(name, RequestKind::Get).await;
                    return empty_read(&self.place, name, range.start, head);
                }
                None => return Err(self.failure(RequestKind::Get, name, &error)),
            },
        };
        let fail = |why| Err(self.place.say(FailureKind::Unknown, RequestKind::Get, name, why));
        let (reply, sent) = (self.found(found.meta.clone()), found.range.clone());
        let Ok(body) = found.bytes().await else {
            return fail("the connection ended before the last byte");
        };
        let asked = range.unwrap_or(0..u64::MAX);
        let whole = asked.start..asked.end.min(reply.len);
        if sent != whole || body.len() as u64 != whole.end.saturating_sub(whole.start) {
            return fail("the answer holds another range");
        }
        self.present(RequestKind::Get, name, Reply { body, ..reply })
    }

    async fn head(&self, name: &str, kind: RequestKind) -> Outcome {
        let options = GetOptions { head: true, ..GetOptions::default() };
        let found = self.provider.store().get_opts(&self.path(name), options).await;
        let found = found.map_err(|error| self.failure(kind, name, &error))?;
        self.present(kind, name, self.found(found.meta))
    }

    fn found(&self, meta: ObjectMeta) -> Reply {
        let version = self.provider.version(meta.e_tag, meta.version);
        Reply { version, len: meta.size, ..Reply::default() }
    }

    /// An empty blob of Azure is an object whose creation has not come to its end, and the engine
    /// puts no empty objects.
    fn present(&self, kind: RequestKind, name: &str, reply: Reply) -> Outcome {
        if reply.len == 0 {
            return Err(self.place.say(FailureKind::Absent, kind, name, "the object is empty"));
        }
        Ok(reply)
    }

    async fn delete(&self, name: &str) -> Outcome {
        let path = self.path(name);
        match &self.provider {
            #[cfg(feature = "azure")]
            Provider::Azure(azure) => azure.delete(&self.place, name, &path).await,
            #[cfg(feature = "gcs")]
            Provider::Google(google) => {
                use object_store::ObjectStoreExt;
                match google.store.delete(&path).await {
                    Ok(()) => Ok(Reply::default()),
                    Err(error) => match self.failure(RequestKind::Delete, name, &error) {
                        failure if failure.kind == FailureKind::Absent => Ok(Reply::default()),
                        failure => Err(failure),
                    },
                }
            }
        }
    }
}
