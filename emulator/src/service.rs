//! The operations of S3, on the store, with latency and faults.

use crate::checksums::Expected;
use crate::counts::Counter;
use crate::ending::{End, Ending};
use crate::fate::{Fate, Fates};
use crate::mistakes::Mistake;
use crate::refusal::Refusal;
use crate::sessions::Sessions;
use crate::signature::Signed;
use crate::store::{Demands, Store, Write, is_directory_bucket, modified};
use crate::uploads::Uploads;
use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use hyper::header::HeaderMap;
use hyper::http::Extensions;
use quenchdb::internals::device::objects::simulated::{FaultKind, SimulatedObject};
use quenchdb::internals::device::objects::{Failure, Reply, Version};
use s3s::access::{S3Access, S3AccessContext};
use s3s::dto::*;
use s3s::{Body, S3, S3Error, S3Request, S3Response, S3Result, s3_error};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// Most bytes of a body: it is kept in memory until all of it is there.
const BODY_BYTES_MAX: usize = 1 << 30;
/// Time between the two steps of a write, by a mistake.
const OVERLAP: Duration = Duration::from_millis(2);
/// Most names in a part of a list.
const LIST_MAX: i32 = 1000;

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub store: Store,
    pub uploads: Uploads,
    pub sessions: Sessions,
    pub counter: Counter,
    pub fates: Fates,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub(crate) struct Service(pub Arc<Shared>);

/// A request for objects, before it is carried out.
struct Call {
    operation: &'static str,
    writes: bool,
    /// Bytes that it moves.
    bytes: u64,
    ending: Ending,
}

impl Call {
    fn new(operation: &'static str, extensions: &Extensions) -> Call {
        let ending = extensions.get::<Ending>().cloned().unwrap_or_default();
        Call { operation, writes: false, bytes: 0, ending }
    }

    fn writes(self, bytes: usize) -> Call {
        Call { writes: true, bytes: bytes as u64, ..self }
    }

    fn reads(self, bytes: u64) -> Call {
        Call { bytes, ..self }
    }
}

impl Service {
    /// Carries a request out with what was drawn for it. It takes effect in the middle of its time.
    async fn run<T, F>(&self, call: Call, act: F) -> S3Result<T>
    where
        T: Send + 'static,
        F: Fn(&Shared) -> Result<T, Refusal> + Send + Sync + 'static,
    {
        let began = Instant::now();
        let Fate { takes, fault } = self.0.fates.draw(call.writes, call.bytes);
        self.0.counter.change(|counts| {
            *counts.requests.entry(call.operation).or_default() += 1;
            counts.faults += u64::from(fault.is_some());
            let moved = if call.writes { &mut counts.bytes_in } else { &mut counts.bytes_out };
            *moved += call.bytes;
        });
        pause(takes / 2).await;
        let (kind, end) = fault.map_or((None, End::Answer), |fault| fault.of(call.writes));
        call.ending.set(end);
        let act = Arc::new(act);
        if let (Some(FaultKind::Late), Some(fault)) = (kind, fault) {
            let (shared, act) = (self.0.clone(), act.clone());
            tokio::spawn(async move {
                sleep(fault.time).await;
                drop(act(&shared));
            });
        }
        let outcome = match kind.map_or_else(|| Ok(act(&self.0)), |kind| kind.meet(|| act(&self.0))) {
            Ok(answer) => self.answer(answer),
            Err(kind) => Err(Refusal::from(Failure { kind, what: "a fault of the emulator".into() }).into()),
        };
        if end == End::Close {
            return outcome;
        }
        if !takes.is_zero() {
            sleep_until(began + takes).await;
        }
        outcome
    }

    fn answer<T>(&self, outcome: Result<T, Refusal>) -> S3Result<T> {
        outcome.map_err(|refusal| {
            self.0.counter.change(|counts| counts.refused += 1);
            S3Error::from(refusal)
        })
    }

    /// Puts or appends, as the headers say.
    async fn write(&self, request: S3Request<PutObjectInput>, body: Bytes) -> S3Result<PutObjectOutput> {
        let S3Request { input, headers, extensions, .. } = request;
        let offset = write_offset(&headers)?;
        let demands = demands(input.if_match.as_ref(), input.if_none_match.as_ref())?;
        let PutObjectInput { bucket, key, .. } = input;
        let operation = if offset.is_some() { "AppendObject" } else { "PutObject" };
        let call = Call::new(operation, &extensions).writes(body.len());
        let write = self.begin(&bucket, &key, &body, Write { offset, demands }).await;
        let size = |len| offset.map(|_| len as i64);
        let reply = self.run(call, move |shared| shared.store.write(&bucket, &key, body.clone(), &write));
        let Reply { version, len, .. } = reply.await?;
        Ok(PutObjectOutput { e_tag: version.map(tag_of), size: size(len), ..PutObjectOutput::default() })
    }

    /// Does what a server with a mistake does before it writes. Returns what is left to check.
    async fn begin(&self, bucket: &str, key: &str, body: &Bytes, write: Write) -> Write {
        let store = &self.0.store;
        if !Mistake::OF_OVERLAP.iter().any(|mistake| store.makes(*mistake)) {
            return write;
        }
        if store.makes(Mistake::TearsReads) && write.offset.is_none() {
            store.tear(bucket, key, body, &write.demands);
        }
        let write = store.check_early(bucket, key, write);
        sleep(OVERLAP).await;
        write
    }

    /// Returns what is to be read of an object: the whole, or a range.
    fn to_read(
        &self,
        input: &GetObjectInput,
        found: &SimulatedObject,
    ) -> Result<std::ops::Range<u64>, Refusal> {
        check_read(found, input.if_match.as_ref(), input.if_none_match.as_ref())?;
        Ok(match input.range {
            Some(range) if !self.0.store.makes(Mistake::IgnoresRange) => {
                let range = range.check(found.len());
                range.map_err(|_| Refusal::new("InvalidRange", 416, "the range begins behind the end"))?
            }
            _ => 0..found.len(),
        })
    }
}

async fn pause(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}

fn write_offset(headers: &HeaderMap) -> Result<Option<u64>, Refusal> {
    let Some(value) = headers.get("x-amz-write-offset-bytes") else { return Ok(None) };
    let offset = value.to_str().ok().and_then(|text| text.parse().ok());
    let wrong = || Refusal::new("InvalidArgument", 400, "x-amz-write-offset-bytes is no number");
    offset.map(Some).ok_or_else(wrong)
}

fn demands(
    if_match: Option<&ETagCondition>,
    if_none_match: Option<&ETagCondition>,
) -> Result<Demands, Refusal> {
    let absent = match if_none_match {
        None => false,
        Some(ETagCondition::Any) => true,
        Some(ETagCondition::ETag(_)) => {
            return Err(Refusal::not_implemented("If-None-Match of a write takes only `*`"));
        }
    };
    let version = if_match.and_then(ETagCondition::as_etag).map(|tag| Version(tag.value().to_string()));
    let present = if_match.is_some_and(ETagCondition::is_any);
    Ok(Demands { absent, version, present })
}

/// Checks the conditions of a read.
fn check_read(
    found: &SimulatedObject,
    if_match: Option<&ETagCondition>,
    if_none_match: Option<&ETagCondition>,
) -> Result<(), Refusal> {
    let is_same = |condition: &ETagCondition| {
        condition.is_any() || condition.as_etag().is_some_and(|tag| tag.value() == found.version().0)
    };
    if if_match.is_some_and(|condition| !is_same(condition)) {
        return Err(Refusal::precondition("If-Match"));
    }
    if if_none_match.is_some_and(is_same) {
        return Err(Refusal::new("NotModified", 304, "the object is the same"));
    }
    Ok(())
}

/// Reads a whole body.
async fn collect(body: Option<StreamingBlob>) -> S3Result<Bytes> {
    let Some(mut body) = body else { return Ok(Bytes::new()) };
    let mut first: Option<Bytes> = None;
    let mut whole = BytesMut::new();
    let ended = |_| s3_error!(IncompleteBody, "the connection ended within the body");
    while let Some(part) = body.try_next().await.map_err(ended)? {
        if whole.len() + part.len() > BODY_BYTES_MAX {
            return Err(s3_error!(EntityTooLarge, "the emulator takes bodies up to 1 GiB"));
        }
        match (&first, whole.is_empty()) {
            (None, true) => first = Some(part),
            (Some(before), true) => {
                whole.extend_from_slice(before);
                whole.extend_from_slice(&part);
            }
            _ => whole.extend_from_slice(&part),
        }
    }
    Ok(if whole.is_empty() { first.unwrap_or_default() } else { whole.freeze() })
}

/// A part of a list, with the prefixes that stand for several names.
struct Page {
    objects: Vec<(String, Arc<SimulatedObject>)>,
    prefixes: BTreeSet<String>,
    next: Option<String>,
}

/// Returns the part of a list that follows the key `after`.
fn page(
    store: &Store,
    bucket: &str,
    prefix: &str,
    delimiter: Option<&str>,
    after: Option<&str>,
    max: usize,
) -> Result<Page, Refusal> {
    let mut all = store.list(bucket, prefix)?;
    // A directory bucket promises no order: show that.
    let backwards = is_directory_bucket(bucket);
    if backwards {
        if !prefix.is_empty() && !prefix.ends_with('/') {
            let what = "the prefix of a list in a directory bucket ends with `/`";
            return Err(Refusal::new("InvalidArgument", 400, what));
        }
        all.reverse();
    }
    let mut page = Page { objects: Vec::new(), prefixes: BTreeSet::new(), next: None };
    let mut last = None;
    for (key, found) in all {
        let is_next = after.is_none_or(|after| if backwards { *key < *after } else { *key > *after });
        if !is_next {
            continue;
        }
        let rest = &key[prefix.len()..];
        let common = delimiter.and_then(|delimiter| rest.find(delimiter).map(|at| at + delimiter.len()));
        let common = common.map(|end| key[..prefix.len() + end].to_string());
        let is_new = common.as_ref().is_none_or(|common| !page.prefixes.contains(common));
        if is_new && page.objects.len() + page.prefixes.len() == max {
            page.next = last;
            break;
        }
        last = Some(key.clone());
        match common {
            Some(common) => drop(page.prefixes.insert(common)),
            None => page.objects.push((key, found)),
        }
    }
    Ok(page)
}

fn tag_of(version: Version) -> ETag {
    ETag::Strong(version.0)
}

fn bucket(name: String) -> Bucket {
    Bucket { name: Some(name), creation_date: None, bucket_region: None }
}

#[async_trait::async_trait]
impl S3 for Service {
    async fn put_object(
        &self,
        mut request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let body = collect(request.input.body.take()).await?;
        let expected = Expected::from(&request.input).with_trailers(request.trailing_headers.as_ref());
        expected.check(&body)?;
        Ok(S3Response::new(self.write(request, body).await?))
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let S3Request { input, extensions, .. } = request;
        // Of the object as it is now: it only decides how long the answer takes.
        let found = self.0.store.find(&input.bucket, &input.key);
        let range = found.and_then(|found| self.to_read(&input, &found));
        let bytes = range.map_or(0, |range| range.end - range.start);
        let ranged = input.range.is_some() && !self.0.store.makes(Mistake::IgnoresRange);
        let service = self.clone();
        let (found, range) = self
            .run(Call::new("GetObject", &extensions).reads(bytes), move |shared| {
                let found = shared.store.find(&input.bucket, &input.key)?;
                let range = service.to_read(&input, &found)?;
                Ok((found, range))
            })
            .await?;
        let bytes = found.read(range.clone());
        let content_range =
            ranged.then(|| format!("bytes {}-{}/{}", range.start, range.end.saturating_sub(1), found.len()));
        Ok(S3Response::new(GetObjectOutput {
            accept_ranges: Some("bytes".into()),
            content_length: Some(bytes.len() as i64),
            content_range,
            body: Some(StreamingBlob::from(Body::from(bytes))),
            e_tag: Some(tag_of(found.version().clone())),
            last_modified: Some(modified(&found).into()),
            ..GetObjectOutput::default()
        }))
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let S3Request { input, extensions, .. } = request;
        let found = self
            .run(Call::new("HeadObject", &extensions), move |shared| {
                let found = shared.store.find(&input.bucket, &input.key)?;
                check_read(&found, input.if_match.as_ref(), input.if_none_match.as_ref())?;
                Ok(found)
            })
            .await?;
        Ok(S3Response::new(HeadObjectOutput {
            accept_ranges: Some("bytes".into()),
            content_length: Some(found.len() as i64),
            e_tag: Some(tag_of(found.version().clone())),
            last_modified: Some(modified(&found).into()),
            ..HeadObjectOutput::default()
        }))
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let S3Request { input, extensions, .. } = request;
        let demands = demands(input.if_match.as_ref(), None)?;
        self.run(Call::new("DeleteObject", &extensions).writes(0), move |shared| {
            shared.store.delete(&input.bucket, &input.key, &demands)
        })
        .await?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let S3Request { input, extensions, .. } = request;
        let deleted = self
            .run(Call::new("DeleteObjects", &extensions).writes(0), move |shared| {
                let mut deleted = Vec::new();
                for object in &input.delete.objects {
                    shared.store.delete(&input.bucket, &object.key, &Demands::default())?;
                    deleted.push(DeletedObject { key: Some(object.key.clone()), ..DeletedObject::default() });
                }
                Ok(deleted)
            })
            .await?;
        Ok(S3Response::new(DeleteObjectsOutput { deleted: Some(deleted), ..DeleteObjectsOutput::default() }))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let S3Request { input, extensions, .. } = request;
        let max = input.max_keys.unwrap_or(LIST_MAX).clamp(0, LIST_MAX);
        let wanted = input.clone();
        let page = self
            .run(Call::new("ListObjectsV2", &extensions), move |shared| {
                let after = wanted.continuation_token.as_deref().or(wanted.start_after.as_deref());
                let prefix = wanted.prefix.as_deref().unwrap_or("");
                page(&shared.store, &wanted.bucket, prefix, wanted.delimiter.as_deref(), after, max as usize)
            })
            .await?;
        let contents: Vec<Object> = page
            .objects
            .into_iter()
            .map(|(key, found)| Object {
                key: Some(key),
                size: Some(found.len() as i64),
                e_tag: Some(tag_of(found.version().clone())),
                last_modified: Some(modified(&found).into()),
                ..Object::default()
            })
            .collect();
        let prefixes = page.prefixes.into_iter();
        let prefixes: Vec<_> = prefixes.map(|prefix| CommonPrefix { prefix: Some(prefix) }).collect();
        Ok(S3Response::new(ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: input.prefix,
            delimiter: input.delimiter,
            max_keys: Some(max),
            key_count: Some((contents.len() + prefixes.len()) as i32),
            is_truncated: Some(page.next.is_some()),
            continuation_token: input.continuation_token,
            next_continuation_token: page.next,
            contents: Some(contents),
            common_prefixes: Some(prefixes),
            ..ListObjectsV2Output::default()
        }))
    }

    async fn create_session(
        &self,
        request: S3Request<CreateSessionInput>,
    ) -> S3Result<S3Response<CreateSessionOutput>> {
        let name = &request.input.bucket;
        if !self.0.store.has_bucket(name) {
            return Err(Refusal::no_bucket(name).into());
        }
        if !is_directory_bucket(name) {
            return Err(Refusal::not_implemented("only directory buckets have sessions").into());
        }
        self.0.counter.change(|counts| *counts.requests.entry("CreateSession").or_default() += 1);
        let mode = request.input.session_mode.as_ref().map(SessionMode::as_str);
        let session = self.0.sessions.begin(name, mode == Some(SessionMode::READ_ONLY));
        let credentials = SessionCredentials {
            access_key_id: session.key_id,
            secret_access_key: session.secret,
            session_token: session.token,
            expiration: session.expires.into(),
        };
        let output = CreateSessionOutput {
            credentials,
            bucket_key_enabled: None,
            ssekms_encryption_context: None,
            ssekms_key_id: None,
            server_side_encryption: None,
        };
        Ok(S3Response::new(output))
    }

    async fn create_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> S3Result<S3Response<CreateBucketOutput>> {
        self.0.store.create_bucket(&request.input.bucket)?;
        let location = Some(format!("/{}", request.input.bucket));
        Ok(S3Response::new(CreateBucketOutput { location }))
    }

    async fn delete_bucket(
        &self,
        request: S3Request<DeleteBucketInput>,
    ) -> S3Result<S3Response<DeleteBucketOutput>> {
        self.0.store.delete_bucket(&request.input.bucket)?;
        Ok(S3Response::new(DeleteBucketOutput::default()))
    }

    async fn head_bucket(
        &self,
        request: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        match self.0.store.has_bucket(&request.input.bucket) {
            true => Ok(S3Response::new(HeadBucketOutput::default())),
            false => Err(Refusal::no_bucket(&request.input.bucket).into()),
        }
    }

    async fn list_buckets(&self, _: S3Request<ListBucketsInput>) -> S3Result<S3Response<ListBucketsOutput>> {
        let names = self.0.store.buckets().into_iter().filter(|name| !is_directory_bucket(name));
        let buckets = Some(names.map(bucket).collect());
        Ok(S3Response::new(ListBucketsOutput { buckets, ..ListBucketsOutput::default() }))
    }

    async fn list_directory_buckets(
        &self,
        _: S3Request<ListDirectoryBucketsInput>,
    ) -> S3Result<S3Response<ListDirectoryBucketsOutput>> {
        let names = self.0.store.buckets().into_iter().filter(|name| is_directory_bucket(name));
        let buckets = Some(names.map(bucket).collect());
        Ok(S3Response::new(ListDirectoryBucketsOutput { buckets, continuation_token: None }))
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let S3Request { input, extensions, .. } = request;
        let (name, key) = (input.bucket.clone(), input.key.clone());
        let call = Call::new("CreateMultipartUpload", &extensions).writes(0);
        let id = self
            .run(call, move |shared| match shared.store.has_bucket(&name) {
                true => Ok(shared.uploads.begin(&name, &key)),
                false => Err(Refusal::no_bucket(&name)),
            })
            .await?;
        Ok(S3Response::new(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(id),
            ..CreateMultipartUploadOutput::default()
        }))
    }

    async fn upload_part(
        &self,
        mut request: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        let body = collect(request.input.body.take()).await?;
        let expected = Expected::from(&request.input).with_trailers(request.trailing_headers.as_ref());
        expected.check(&body)?;
        let S3Request { input, extensions, .. } = request;
        let call = Call::new("UploadPart", &extensions).writes(body.len());
        let tag = self
            .run(call, move |shared| {
                let UploadPartInput { bucket, key, upload_id, part_number, .. } = &input;
                shared.uploads.add(bucket, key, upload_id, *part_number, body.clone())
            })
            .await?;
        let e_tag = Some(ETag::Strong(tag));
        Ok(S3Response::new(UploadPartOutput { e_tag, ..UploadPartOutput::default() }))
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let S3Request { input, extensions, .. } = request;
        let demands = demands(input.if_match.as_ref(), input.if_none_match.as_ref())?;
        let write = Write { offset: None, demands };
        let parts = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        let parts: Vec<(i32, String)> = parts
            .into_iter()
            .filter_map(|part| Some((part.part_number?, part.e_tag?.value().to_string())))
            .collect();
        let (name, key, id) = (input.bucket.clone(), input.key.clone(), input.upload_id);
        let reply = self
            .run(Call::new("CompleteMultipartUpload", &extensions).writes(0), move |shared| {
                let body = shared.uploads.body(&name, &key, &id, &parts)?;
                let reply = shared.store.write(&name, &key, body, &write)?;
                shared.uploads.end(&name, &key, &id)?;
                Ok(reply)
            })
            .await?;
        Ok(S3Response::new(CompleteMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: reply.version.map(tag_of),
            ..CompleteMultipartUploadOutput::default()
        }))
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let S3Request { input, extensions, .. } = request;
        self.run(Call::new("AbortMultipartUpload", &extensions).writes(0), move |shared| {
            shared.uploads.end(&input.bucket, &input.key, &input.upload_id)
        })
        .await?;
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }
}

/// Lets signed requests pass, those of a session only to its bucket.
pub(crate) struct Access;

#[async_trait::async_trait]
impl S3Access for Access {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        let signed = context.extensions_mut().get::<Signed>().cloned();
        let bucket = context.s3_path().get_bucket_name().unwrap_or_default();
        match signed {
            Some(Signed::Session(session)) => {
                let operation = context.s3_op().name();
                let reads = ["Get", "Head", "List"].iter().any(|verb| operation.starts_with(verb));
                if session.bucket != bucket {
                    return Err(s3_error!(AccessDenied, "the session is for the bucket {}", session.bucket));
                }
                if session.read_only && !reads {
                    return Err(s3_error!(AccessDenied, "the session is for reading only"));
                }
                Ok(())
            }
            Some(Signed::Key) => Ok(()),
            None if context.credentials().is_some() => Ok(()),
            None => Err(s3_error!(AccessDenied, "the request is not signed")),
        }
    }
}
