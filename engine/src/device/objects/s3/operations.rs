//! One attempt of each request, with the SDK's types on one side and ours on the other.

use super::super::client::{Page, Place, Protocol, age_of, empty_read};
use super::super::request::{Condition, Failure, FailureKind, Listed, Reply, Request, RequestKind, Version};
use super::super::store::Outcome;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::get_object::{GetObjectError, GetObjectOutput};
use aws_sdk_s3::operation::put_object::PutObjectOutput;
use aws_sdk_s3::operation::put_object::builders::PutObjectFluentBuilder;
use aws_sdk_s3::primitives::ByteStream;
use aws_smithy_types::base64;
use bytes::Bytes;
use std::ops::Range;

/// The requests of one database.
#[derive(Debug)]
pub(super) struct Operations {
    pub client: Client,
    pub place: Place,
    /// Empty, or ends with a slash.
    pub prefix: String,
}

impl Protocol for Operations {
    fn once(&self, request: &Request) -> impl Future<Output = Outcome> + Send {
        self.send(request)
    }

    fn page(
        &self,
        prefix: &str,
        after: Option<String>,
    ) -> impl Future<Output = Result<Page, Failure>> + Send {
        self.list(prefix, after)
    }

    fn place(&self) -> &Place {
        &self.place
    }
}

impl Operations {
    async fn send(&self, request: &Request) -> Outcome {
        match request {
            Request::Put { name, body, condition } => self.put(name, body, condition).await,
            Request::Create { name, body } => self.put(name, body, &Condition::Absent).await,
            Request::Append { name, offset, body, version } => {
                self.append(name, *offset, body, version.as_ref()).await
            }
            Request::Get { name, range } => self.get(name, range.clone()).await,
            Request::Head { name } => self.head(name, RequestKind::Head).await,
            Request::Delete { name } => self.delete(name).await,
            Request::Open { .. } | Request::Finalize { .. } => {
                let why = "objects of S3 have no streams";
                Err(self.place.say(FailureKind::Denied, request.kind(), request.name(), why))
            }
            Request::List { prefix } => {
                let page = self.list(prefix, None).await?;
                Ok(Reply { listed: page.listed, ..Reply::default() })
            }
        }
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Returns a put of `body` with its checksum. The checksum protects the body, so the signature
    /// does not have to.
    fn write(&self, name: &str, body: &Bytes) -> PutObjectFluentBuilder {
        let checksum = base64::encode(crc32c::crc32c(body).to_be_bytes());
        self.client
            .put_object()
            .bucket(&self.place.bucket)
            .key(self.key(name))
            .content_length(i64::try_from(body.len()).unwrap_or(i64::MAX))
            .checksum_crc32_c(checksum)
            .body(ByteStream::from(body.clone()))
    }

    async fn put(&self, name: &str, body: &Bytes, condition: &Condition) -> Outcome {
        let put = self.write(name, body);
        let put = match condition {
            Condition::Always => put,
            Condition::Absent => put.if_none_match("*"),
            Condition::Unchanged(version) => put.if_match(&version.0),
        };
        let output = self.written(RequestKind::Put, name, put).await?;
        Ok(Reply { version: version(output.e_tag()), len: body.len() as u64, ..Reply::default() })
    }

    async fn append(&self, name: &str, offset: u64, body: &Bytes, unchanged: Option<&Version>) -> Outcome {
        let Ok(write_offset) = i64::try_from(offset) else {
            let why = "the object is longer than an object can be";
            return Err(self.place.say(FailureKind::Full, RequestKind::Append, name, why));
        };
        let put = self.write(name, body).write_offset_bytes(write_offset);
        let put = put.set_if_match(unchanged.map(|version| version.0.clone()));
        let output = self.written(RequestKind::Append, name, put).await?;
        let len = output.size().and_then(|size| u64::try_from(size).ok());
        let len = len.unwrap_or(offset + body.len() as u64);
        Ok(Reply { version: version(output.e_tag()), len, ..Reply::default() })
    }

    async fn written(
        &self,
        kind: RequestKind,
        name: &str,
        put: PutObjectFluentBuilder,
    ) -> Result<PutObjectOutput, Failure> {
        let sent = put.customize().disable_payload_signing().send().await;
        sent.map_err(|error| self.place.failure(kind, name, &error))
    }

    async fn get(&self, name: &str, range: Option<Range<u64>>) -> Outcome {
        if range.as_ref().is_some_and(Range::is_empty) {
            // No range header asks for nothing.
            return self.head(name, RequestKind::Get).await;
        }
        let header = range.as_ref().map(|range| {
            let last = (range.end - 1).min(i64::MAX as u64);
            format!("bytes={}-{last}", range.start)
        });
        let get = self.client.get_object().bucket(&self.place.bucket).key(self.key(name)).set_range(header);
        match get.send().await {
            Ok(output) => self.read(name, range, output).await,
            Err(error) => match range {
                Some(range) if is_behind_the_end(&error) => {
                    empty_read(&self.place, name, range.start, self.head(name, RequestKind::Get).await)
                }
                _ => Err(self.place.failure(RequestKind::Get, name, &error)),
            },
        }
    }

    /// Returns the body of an answer if it holds exactly the range.
    async fn read(&self, name: &str, range: Option<Range<u64>>, output: GetObjectOutput) -> Outcome {
        let fail = |kind, why: &str| Err(self.place.say(kind, RequestKind::Get, name, why));
        let version = version(output.e_tag());
        let age = output.last_modified().map(|written| age_of(written.secs()));
        let sent = output.content_range().map(content_range);
        let body = match output.body.collect().await {
            Ok(body) => body.into_bytes(),
            Err(_) => return fail(FailureKind::Unknown, "the connection ended before the last byte"),
        };
        let read = body.len() as u64;
        let asked = range.unwrap_or(0..u64::MAX);
        let (first, len) = match sent {
            Some(Some(sent)) => sent,
            Some(None) => return fail(FailureKind::Unknown, "the answer's range makes no sense"),
            // The whole object.
            None => (0, read),
        };
        let expected = asked.end.min(len).saturating_sub(first);
        if first == asked.start && read == expected {
            return Ok(Reply { version, len, body, age, ..Reply::default() });
        }
        match sent {
            None => fail(
                FailureKind::Denied,
                "the server ignores the range of a read; use another store, or a newer version of this one",
            ),
            Some(_) => fail(FailureKind::Unknown, "the answer holds another range"),
        }
    }

    async fn head(&self, name: &str, kind: RequestKind) -> Outcome {
        let head = self.client.head_object().bucket(&self.place.bucket).key(self.key(name));
        let output = head.send().await.map_err(|error| self.place.failure(kind, name, &error))?;
        let Some(len) = output.content_length().and_then(|len| u64::try_from(len).ok()) else {
            return Err(self.place.say(FailureKind::Unknown, kind, name, "the answer has no length"));
        };
        Ok(Reply { version: version(output.e_tag()), len, ..Reply::default() })
    }

    async fn delete(&self, name: &str) -> Outcome {
        let delete = self.client.delete_object().bucket(&self.place.bucket).key(self.key(name));
        match delete.send().await {
            Ok(_) => Ok(Reply::default()),
            Err(error) => match self.place.failure(RequestKind::Delete, name, &error) {
                failure if failure.kind == FailureKind::Absent => Ok(Reply::default()),
                failure => Err(failure),
            },
        }
    }

    async fn list(&self, prefix: &str, after: Option<String>) -> Result<Page, Failure> {
        let list = self.client.list_objects_v2().bucket(&self.place.bucket);
        let list = list.prefix(self.key(prefix)).set_continuation_token(after);
        let output =
            list.send().await.map_err(|error| self.place.failure(RequestKind::List, prefix, &error))?;
        let wrong = |why| self.place.say(FailureKind::Unknown, RequestKind::List, prefix, why);
        let mut listed = Vec::with_capacity(output.contents().len());
        for object in output.contents() {
            let key = object.key().ok_or_else(|| wrong("an object in the list has no name"))?;
            let len = object.size().and_then(|size| u64::try_from(size).ok());
            let len = len.ok_or_else(|| wrong("an object in the list has no length"))?;
            let name = key.strip_prefix(&self.prefix).filter(|name| name.starts_with(prefix));
            let name = name.ok_or_else(|| {
                let why = "the server ignores the prefix of a list; use another store";
                self.place.say(FailureKind::Denied, RequestKind::List, prefix, why)
            })?;
            listed.push(Listed { name: name.into(), len });
        }
        if output.is_truncated() != Some(true) {
            return Ok(Page { listed, next: None });
        }
        let next = output.next_continuation_token().ok_or_else(|| wrong("the list ends in the middle"))?;
        Ok(Page { listed, next: Some(next.into()) })
    }
}

fn version(tag: Option<&str>) -> Option<Version> {
    tag.map(|tag| Version(tag.into()))
}

/// Returns whether the store says that the range begins at the end or behind it.
fn is_behind_the_end(error: &SdkError<GetObjectError, HttpResponse>) -> bool {
    let status = error.raw_response().map(|raw| raw.status().as_u16());
    let code = error.as_service_error().and_then(ProvideErrorMetadata::code);
    status == Some(416) || code == Some("InvalidRange")
}

/// Returns the first byte and the object's length of `bytes first-last/length`.
fn content_range(header: &str) -> Option<(u64, u64)> {
    let (range, len) = header.strip_prefix("bytes ")?.split_once('/')?;
    let (first, _) = range.split_once('-')?;
    Some((first.parse().ok()?, len.parse().ok()?))
}
