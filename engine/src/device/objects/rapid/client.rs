//! The store: which message is which request.

use super::super::client::{Client, Connect, Page, Place, Protocol, empty_read};
use super::super::cloud::CloudOptions;
use super::super::request::{Failure, FailureKind, Listed, Reply, Request, RequestKind, Version};
use super::super::store::{Done, ObjectStore, Outcome, StoreFacts};
use super::super::url::ObjectUrl;
use super::connection::Connection;
use super::errors::{failure, redirect};
use super::lanes::{Lanes, Opening};
use super::messages::{
    BidiReadObjectRedirectedError, BidiReadObjectRequest, BidiReadObjectResponse, BidiReadObjectSpec, Bucket,
    DeleteObjectRequest, Empty, GetBucketRequest, ListObjectsRequest, ListObjectsResponse, Object,
    ObjectRangeData, RAPID_CLASS, ReadRange,
};
use super::stream::{length, reply_of};
use crate::base::{Error, Result};
use bytes::{Bytes, BytesMut};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::mpsc::unbounded_channel;
use tonic::Status;

/// Redirects that a read follows.
const REDIRECTS_MAX: usize = 5;

/// Time to read the description of the bucket.
const DESCRIBE_MAX: Duration = Duration::from_secs(5);

const ADVICE: &str = "set GOOGLE_APPLICATION_CREDENTIALS, or give the machine a service account";

/// The log of a database in a zonal bucket.
#[derive(Debug)]
pub struct RapidStore {
    client: Client<Rapid>,
    place: Place,
    shared: Arc<Shared>,
}

/// What the connections of a store share.
#[derive(Debug)]
struct Shared {
    url: ObjectUrl,
    options: CloudOptions,
    lanes: Lanes,
    /// Where the bucket is, if its description says that it is zonal.
    zone: OnceLock<String>,
}

/// The requests of one database.
struct Rapid {
    connection: Connection,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lanes").finish_non_exhaustive()
    }
}

impl RapidStore {
    /// Returns the store that `url` names. Asks for the description of the bucket, if that is
    /// permitted.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidArgument`](crate::base::ErrorKind::InvalidArgument): the URL, the
    ///   settings or the credentials; the bucket is not zonal.
    /// - [`ErrorKind::Io`](crate::base::ErrorKind::Io): the system refuses a thread, or the
    ///   credentials cannot be found in time.
    pub fn connect(url: &ObjectUrl, options: &CloudOptions) -> Result<RapidStore> {
        let facts = StoreFacts {
            name: url.to_string(),
            endpoint: String::new(),
            appends: true,
            parts_max: u64::MAX,
            appends_check_version: false,
            streams: true,
        };
        let (lanes, zone) = (Lanes::default(), OnceLock::new());
        let shared = Arc::new(Shared { url: url.clone(), options: options.clone(), lanes, zone });
        let of_connections = shared.clone();
        let connect: Connect<Rapid> = Box::new(move || {
            let shared = of_connections.clone();
            Box::pin(async move {
                let url = &shared.url;
                let connection = Connection::new(url, &shared.options)?;
                connection.find_credentials().await.map_err(|error| {
                    let why = super::super::client::root(&error);
                    Error::invalid(format!("there are no credentials for {url}: {why}")).with_advice(ADVICE)
                })?;
                if let Some(zone) = check_class(url, &connection).await? {
                    // Another connection may have found it.
                    let _ = shared.zone.set(zone);
                }
                Ok(Rapid { connection, shared })
            })
        });
        let client = Client::connect(facts, options.effort(), ADVICE, connect)?;
        let facts = client.facts();
        let place = Place { bucket: facts.name, endpoint: facts.endpoint };
        Ok(RapidStore { client, place, shared })
    }

    /// Returns where the bucket is, if its description may be read and says that it is zonal.
    #[must_use]
    pub fn zone(&self) -> Option<&str> {
        self.shared.zone.get().map(String::as_str)
    }
}

/// Returns whether the description of a bucket says that it is zonal.
pub fn is_zonal(url: &ObjectUrl) -> bool {
    let store = RapidStore::connect(url, &CloudOptions::default());
    store.is_ok_and(|store| store.zone().is_some())
}

impl ObjectStore for RapidStore {
    fn start(&self, request: Request, done: Done) {
        match request {
            // In the caller's thread, because appends to a lane have an order.
            Request::Append { name, offset, body, .. } => {
                self.shared.lanes.append(&self.place, &name, offset, body, done);
            }
            request => self.client.start(request, done),
        }
    }

    fn facts(&self) -> StoreFacts {
        self.client.facts()
    }

    fn another(&self) -> Option<Arc<dyn ObjectStore>> {
        let another = RapidStore::connect(&self.shared.url, &self.shared.options).ok()?;
        Some(Arc::new(another))
    }
}

/// Refuses a bucket that says that it is not zonal. Returns where the bucket is, if it says that it
/// is zonal; what its description does not say, the probe finds out.
async fn check_class(url: &ObjectUrl, connection: &Connection) -> Result<Option<String>> {
    let message = GetBucketRequest { name: connection.bucket.clone() };
    let described = connection.unary("GetBucket", (RequestKind::Head, ""), message);
    let bucket: Bucket = match tokio::time::timeout(DESCRIBE_MAX, described).await {
        Ok(Ok(bucket)) => bucket,
        Ok(Err(failure)) if failure.kind == FailureKind::Absent => {
            let what = format!("there is no bucket {}", url.bucket);
            return Err(Error::invalid(what).with_advice("create the bucket, or correct its name"));
        }
        // Without the permission, or at a time without an answer, the probe says more.
        _ => return Ok(None),
    };
    if bucket.storage_class.eq_ignore_ascii_case(RAPID_CLASS) {
        return Ok(Some(bucket.location));
    }
    let what = format!(
        "the bucket {} is not zonal: its class is {}, and `rest=` needs the class {RAPID_CLASS}",
        url.bucket, bucket.storage_class
    );
    Err(Error::invalid(what).with_advice("leave out `?rest=`, or name a zonal bucket before it"))
}

impl Protocol for Rapid {
    async fn once(&self, request: &Request) -> Outcome {
        let (connection, lanes, name) = (&self.connection, &self.shared.lanes, request.name());
        let place = &connection.place;
        match request {
            Request::Create { body, .. } => {
                let created = lanes.open(connection, name, Opening::Create(body.clone())).await;
                // A creation needs nothing but the bucket.
                created.map_err(|failure| match failure.kind {
                    FailureKind::Absent => Failure { kind: FailureKind::Denied, ..failure },
                    _ => failure,
                })
            }
            Request::Open { version, takes_over, .. } => {
                let Some(generation) = generation_of(version) else {
                    return Err(place.say(FailureKind::Denied, RequestKind::Open, name, "no generation"));
                };
                let opening =
                    if *takes_over { Opening::TakeOver(generation) } else { Opening::Resume(generation) };
                lanes.open(connection, name, opening).await
            }
            Request::Finalize { len, .. } => lanes.finalize(place, name, *len).await,
            Request::Get { range, .. } => self.get(name, range.clone()).await,
            Request::Head { .. } => self.describe(RequestKind::Head, name).await,
            Request::Delete { .. } => self.delete(name).await,
            Request::List { prefix } => {
                let page = self.page(prefix, None).await?;
                Ok(Reply { listed: page.listed, ..Reply::default() })
            }
            Request::Put { .. } | Request::Append { .. } => {
                let why = "a zonal bucket takes objects by streams only";
                Err(place.say(FailureKind::Denied, request.kind(), name, why))
            }
        }
    }

    async fn page(&self, prefix: &str, after: Option<String>) -> std::result::Result<Page, Failure> {
        let connection = &self.connection;
        let message = ListObjectsRequest {
            parent: connection.bucket.clone(),
            prefix: connection.key(prefix),
            page_token: after.unwrap_or_default(),
        };
        let about = (RequestKind::List, prefix);
        let answer: ListObjectsResponse = connection.unary("ListObjects", about, message).await?;
        let mut listed = Vec::with_capacity(answer.objects.len());
        for object in answer.objects {
            let name = connection.name(&object.name).filter(|name| name.starts_with(prefix));
            let name = name.ok_or_else(|| {
                let why = "the server ignores the prefix of a list; use another store";
                connection.place.say(FailureKind::Denied, about.0, prefix, why)
            })?;
            // A list has old lengths of objects that are not finalized.
            let len = match object.finalize_time {
                Some(_) => Some(length(object.size)),
                None => match self.describe(RequestKind::List, name).await {
                    Ok(reply) => Some(reply.len),
                    Err(failure) if failure.kind == FailureKind::Absent => None,
                    Err(failure) => return Err(failure),
                },
            };
            listed.extend(len.map(|len| Listed { name: name.into(), len }));
        }
        Ok(Page { listed, next: Some(answer.next_page_token).filter(|token| !token.is_empty()) })
    }

    fn place(&self) -> &Place {
        &self.connection.place
    }
}

fn generation_of(version: &Version) -> Option<i64> {
    // The service takes 0 for the newest one, or refuses it.
    version.0.parse().ok().filter(|generation| *generation > 0)
}

impl Rapid {
    async fn get(&self, name: &str, range: Option<Range<u64>>) -> Outcome {
        let asked = range.clone().unwrap_or(0..u64::MAX);
        if asked.is_empty() {
            return self.describe(RequestKind::Get, name).await;
        }
        let read_length = range.map_or(0, |range| i64::try_from(range.end - range.start).unwrap_or(0));
        let read_offset = i64::try_from(asked.start).unwrap_or(i64::MAX);
        let read = ReadRange { read_offset, read_length, read_id: 1 };
        match self.read(RequestKind::Get, name, Some(read)).await {
            Ok((object, body)) => {
                let mut reply = reply_of(&object);
                reply.len = reply.len.max(asked.start + body.len() as u64);
                if body.len() as u64 != asked.end.min(reply.len).saturating_sub(asked.start) {
                    let why = "the answer holds another range";
                    let place = &self.connection.place;
                    return Err(place.say(FailureKind::Unknown, RequestKind::Get, name, why));
                }
                Ok(Reply { body, ..reply })
            }
            Err(failure) if failure.kind == FailureKind::Refused => {
                // It begins at the end, or behind it.
                let head = self.describe(RequestKind::Get, name).await;
                empty_read(&self.connection.place, name, asked.start, head)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Asks for length and version.
    async fn describe(&self, kind: RequestKind, name: &str) -> Outcome {
        self.read(kind, name, None).await.map(|(object, _)| reply_of(&object))
    }

    /// Reads a range, or only the description of an object.
    async fn read(
        &self,
        kind: RequestKind,
        name: &str,
        range: Option<ReadRange>,
    ) -> std::result::Result<(Object, Bytes), Failure> {
        let connection = &self.connection;
        let mut spec = BidiReadObjectSpec {
            bucket: connection.bucket.clone(),
            object: connection.key(name),
            ..BidiReadObjectSpec::default()
        };
        for _ in 0..=REDIRECTS_MAX {
            let (messages, receiver) = unbounded_channel();
            let (read_object_spec, read_ranges) = (Some(spec.clone()), range.into_iter().collect());
            // The receiver is there.
            let _ = messages.send(BidiReadObjectRequest { read_object_spec, read_ranges });
            let token = spec.routing_token.clone();
            let sent = connection.streaming("BidiReadObject", (kind, name), receiver, token.as_deref());
            let status = match sent.await? {
                Err(status) => status,
                Ok(response) => match gather(response.into_inner(), range).await {
                    Ok(Some(read)) => return Ok(read),
                    Ok(None) => {
                        let why = "the answer is damaged, or ends early";
                        return Err(connection.place.say(FailureKind::Unknown, kind, name, why));
                    }
                    Err(status) => status,
                },
            };
            drop(messages);
            let redirect: Option<BidiReadObjectRedirectedError> =
                redirect(&status, "BidiReadObjectRedirectedError");
            let Some(redirect) = redirect else {
                return Err(failure(&connection.place, kind, name, &status));
            };
            (spec.read_handle, spec.routing_token) = (redirect.read_handle, redirect.routing_token);
        }
        let why = "the service redirects again and again";
        Err(connection.place.say(FailureKind::Again, kind, name, why))
    }

    /// Removes an object; if the service refuses that of an object that is not finalized, after
    /// finalizing it.
    async fn delete(&self, name: &str) -> Outcome {
        let refused = match self.delete_once(name).await {
            Err(failure) if failure.kind == FailureKind::Refused => failure,
            ended => return ended,
        };
        let described = match self.describe(RequestKind::Delete, name).await {
            Err(failure) if failure.kind == FailureKind::Absent => return Ok(Reply::default()),
            described => described?,
        };
        let generation = described.version.as_ref().and_then(generation_of);
        let (Some(generation), false) = (generation, described.is_final) else { return Err(refused) };
        let lanes = &self.shared.lanes;
        let opened = lanes.open(&self.connection, name, Opening::TakeOver(generation)).await?;
        lanes.finalize(&self.connection.place, name, opened.len).await?;
        self.delete_once(name).await
    }

    async fn delete_once(&self, name: &str) -> Outcome {
        let connection = &self.connection;
        let (bucket, object) = (connection.bucket.clone(), connection.key(name));
        let message = DeleteObjectRequest { bucket, object, generation: 0 };
        match connection.unary("DeleteObject", (RequestKind::Delete, name), message).await {
            Err(failure) if failure.kind != FailureKind::Absent => Err(failure),
            Ok(Empty {}) | Err(_) => {
                self.shared.lanes.forget(name);
                Ok(Reply::default())
            }
        }
    }
}

/// Takes the answers to a read. `None` if they make no sense.
async fn gather(
    mut answers: tonic::Streaming<BidiReadObjectResponse>,
    range: Option<ReadRange>,
) -> std::result::Result<Option<(Object, Bytes)>, Status> {
    let (mut object, mut body) = (None, BytesMut::new());
    while let Some(answer) = answers.message().await? {
        object = answer.metadata.or(object);
        let Some(range) = range else {
            if let Some(object) = object {
                return Ok(Some((object, Bytes::new())));
            }
            continue;
        };
        for ObjectRangeData { checksummed_data, read_range, range_end } in answer.object_data_ranges {
            let data = checksummed_data.unwrap_or_default();
            let at = read_range.map_or(i64::MIN, |piece| piece.read_offset - range.read_offset);
            if !data.is_whole() || (at != body.len() as i64 && !data.content.is_empty()) {
                return Ok(None);
            }
            body.extend_from_slice(&data.content);
            if range_end {
                return Ok(object.map(|object| (object, body.freeze())));
            }
        }
    }
    Ok(None)
}
