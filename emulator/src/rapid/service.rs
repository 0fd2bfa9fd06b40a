//! Which method is which: requests of HTTP/2 on one side, messages on the other.

use super::appends::Appends;
use super::faults::{RapidFault, RapidFaults, RapidStep};
use super::objects::Objects;
use super::options::{RapidLatency, RapidOptions};
use hyper::body::Incoming;
use hyper::{Request as HttpRequest, Response as HttpResponse};
use quenchdb::internals::device::objects::rapid::{
    BidiReadObjectRequest, BidiReadObjectResponse, BidiWriteObjectRequest, BidiWriteObjectResponse, Bucket,
    DeleteObjectRequest, Empty, GetBucketRequest, GetObjectRequest, ListObjectsRequest, ListObjectsResponse,
    Object, SERVICE,
};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::unbounded_channel;
use tonic::body::Body;
use tonic::codegen::tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::server::{Grpc, StreamingService, UnaryService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

/// What all requests share.
#[derive(Debug)]
pub(super) struct Shared {
    pub options: RapidOptions,
    objects: Mutex<Objects>,
    random: Mutex<(fastrand::Rng, RapidFaults)>,
    /// Requests by method, and faults.
    counts: Mutex<BTreeMap<String, u64>>,
}

impl Shared {
    pub fn new(options: RapidOptions) -> Shared {
        let objects = Mutex::new(Objects::new(&options));
        let random = Mutex::new((fastrand::Rng::with_seed(options.seed), options.faults.clone()));
        Shared { options, objects, random, counts: Mutex::default() }
    }

    pub fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn random(&self) -> MutexGuard<'_, (fastrand::Rng, RapidFaults)> {
        self.random.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_faults(&self, faults: RapidFaults) {
        self.random().1 = faults;
    }

    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn count(&self, what: &str) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(what.into()).or_default() += 1;
    }

    /// Draws what goes wrong at a step.
    pub fn draw(&self, step: RapidStep) -> Option<RapidFault> {
        let fault = {
            let mut guard = self.random();
            let (random, faults) = &mut *guard;
            faults.draw(step, random)
        };
        if fault.is_some() {
            self.count("faults");
        }
        fault
    }

    pub fn chance(&self) -> bool {
        self.random().0.bool()
    }

    pub fn below(&self, end: usize) -> usize {
        self.random().0.usize(..end.max(1))
    }

    /// Returns how many of some unflushed bytes stay when their stream ends: all, none, or a part.
    pub fn keeps_unflushed(&self) -> impl FnOnce(usize) -> usize {
        let (which, part) = {
            let mut random = self.random();
            (random.0.u8(..3), random.0.f64())
        };
        let loses = self.objects().makes(super::options::RapidMistake::UnflushedReported);
        move |bytes| match which {
            _ if loses => 0,
            0 => 0,
            1 => bytes,
            _ => (bytes as f64 * part) as usize,
        }
    }

    pub fn open_time(&self) -> Duration {
        self.options.latency.open(&mut self.random().0)
    }

    pub fn read_time(&self) -> Duration {
        self.options.latency.read(&mut self.random().0)
    }

    pub fn flush_time(&self, bytes: usize) -> Duration {
        self.options.latency.flush(bytes, &mut self.random().0)
    }

    pub async fn rest(&self, time: Duration) {
        if self.options.latency != RapidLatency::None {
            tokio::time::sleep(time).await;
        }
    }

    /// # Errors
    /// It is not the bucket of this server.
    pub fn check_bucket(&self, name: &str) -> Result<(), Status> {
        match name.strip_prefix("projects/_/buckets/") {
            Some(bucket) if bucket == self.options.bucket => Ok(()),
            Some(bucket) => Err(Status::not_found(format!("there is no bucket {bucket}"))),
            None => Err(Status::invalid_argument("the name of the bucket begins with projects/_/buckets/")),
        }
    }

    /// Answers a request.
    pub async fn answer(self: Arc<Self>, request: HttpRequest<Incoming>) -> HttpResponse<Body> {
        let path = request.uri().path().to_string();
        let method = path.strip_prefix(SERVICE).unwrap_or_default();
        self.count(method);
        match method {
            "BidiWriteObject" => {
                let mut grpc = Grpc::new(ProstCodec::default()).max_decoding_message_size(MESSAGE_BYTES_MAX);
                grpc.streaming(Writes(self), request).await
            }
            "BidiReadObject" => Grpc::new(ProstCodec::default()).streaming(Reads(self), request).await,
            "GetBucket" => unary(request, move |message: GetBucketRequest| self.bucket(message)).await,
            "GetObject" => {
                let get = move |message: GetObjectRequest| async move { self.get_object(&message) };
                unary::<_, Object, _, _>(request, get).await
            }
            "ListObjects" => {
                let list = move |message: ListObjectsRequest| async move { self.list(&message).await };
                unary::<_, ListObjectsResponse, _, _>(request, list).await
            }
            "DeleteObject" => {
                let delete = move |message: DeleteObjectRequest| async move { self.delete(&message).await };
                unary::<_, Empty, _, _>(request, delete).await
            }
            _ => Status::unimplemented(format!("the emulator does not know {path}")).into_http(),
        }
    }

    async fn bucket(self: Arc<Self>, message: GetBucketRequest) -> Result<Bucket, Status> {
        self.check_bucket(&message.name)?;
        let (location, location_type) = ("us-central1".into(), "zone".into());
        let storage_class = self.options.class.clone();
        Ok(Bucket { name: message.name, location, location_type, storage_class })
    }
}

/// The service refuses a longer message.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Answers a request of one message.
async fn unary<M, R, F, A>(request: HttpRequest<Incoming>, answer: F) -> HttpResponse<Body>
where
    M: prost::Message + Default + 'static,
    R: prost::Message + Default + 'static,
    F: FnOnce(M) -> A + Send + 'static,
    A: Future<Output = Result<R, Status>> + Send + 'static,
{
    Grpc::new(ProstCodec::<R, M>::default()).unary(Unary(Some(answer)), request).await
}

type Answering<R> = Pin<Box<dyn Future<Output = Result<Response<R>, Status>> + Send>>;

struct Unary<F>(Option<F>);

impl<M, R, F, A> UnaryService<M> for Unary<F>
where
    M: prost::Message + Default + 'static,
    R: prost::Message + Default + 'static,
    F: FnOnce(M) -> A + Send + 'static,
    A: Future<Output = Result<R, Status>> + Send + 'static,
{
    type Response = R;
    type Future = Answering<R>;

    fn call(&mut self, request: Request<M>) -> Self::Future {
        let answer = self.0.take();
        Box::pin(async move {
            let answer = answer.ok_or_else(|| Status::internal("a request is answered once"))?;
            answer(request.into_inner()).await.map(Response::new)
        })
    }
}

fn token_of<M>(request: &Request<M>) -> Option<String> {
    let parameters = request.metadata().get("x-goog-request-params")?.to_str().ok()?;
    parameters.split('&').find_map(|one| one.strip_prefix("routing_token=")).map(String::from)
}

struct Writes(Arc<Shared>);

impl StreamingService<BidiWriteObjectRequest> for Writes {
    type Response = BidiWriteObjectResponse;
    type ResponseStream = UnboundedReceiverStream<Result<BidiWriteObjectResponse, Status>>;
    type Future = Answering<Self::ResponseStream>;

    fn call(&mut self, request: Request<Streaming<BidiWriteObjectRequest>>) -> Self::Future {
        let (answers, stream) = unbounded_channel();
        let appends = Appends { shared: self.0.clone(), answers, token: token_of(&request) };
        tokio::spawn(appends.run(request.into_inner()));
        Box::pin(async move { Ok(Response::new(UnboundedReceiverStream::new(stream))) })
    }
}

struct Reads(Arc<Shared>);

impl StreamingService<BidiReadObjectRequest> for Reads {
    type Response = BidiReadObjectResponse;
    type ResponseStream = UnboundedReceiverStream<Result<BidiReadObjectResponse, Status>>;
    type Future = Answering<Self::ResponseStream>;

    fn call(&mut self, request: Request<Streaming<BidiReadObjectRequest>>) -> Self::Future {
        let (answers, stream) = unbounded_channel();
        let (shared, token) = (self.0.clone(), token_of(&request));
        tokio::spawn(shared.read(token, request.into_inner(), answers));
        Box::pin(async move { Ok(Response::new(UnboundedReceiverStream::new(stream))) })
    }
}
