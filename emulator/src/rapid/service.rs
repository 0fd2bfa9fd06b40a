//! Which method is which: requests of HTTP/2 on one side, messages on the other.

use super::appends::Appends;
use super::shared::Shared;
use hyper::body::Incoming;
use hyper::{Request as HttpRequest, Response as HttpResponse};
use quenchdb::internals::device::objects::rapid::{
    BidiReadObjectRequest, BidiReadObjectResponse, BidiWriteObjectRequest, BidiWriteObjectResponse,
    DeleteObjectRequest, Empty, GetBucketRequest, GetObjectRequest, ListObjectsRequest, ListObjectsResponse,
    Object, SERVICE,
};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::mpsc::unbounded_channel;
use tonic::body::Body;
use tonic::codegen::tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::server::{Grpc, StreamingService, UnaryService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

/// Answers a request.
pub(super) async fn answer(shared: Arc<Shared>, request: HttpRequest<Incoming>) -> HttpResponse<Body> {
    let path = request.uri().path().to_string();
    let method = path.strip_prefix(SERVICE).unwrap_or_default();
    shared.count(method);
    match method {
        "BidiWriteObject" => {
            let mut grpc = Grpc::new(ProstCodec::default()).max_decoding_message_size(MESSAGE_BYTES_MAX);
            grpc.streaming(Writes(shared), request).await
        }
        "BidiReadObject" => Grpc::new(ProstCodec::default()).streaming(Reads(shared), request).await,
        "GetBucket" => unary(request, move |message: GetBucketRequest| shared.bucket(message)).await,
        "GetObject" => {
            let get = move |message: GetObjectRequest| async move { shared.get_object(&message) };
            unary::<_, Object, _, _>(request, get).await
        }
        "ListObjects" => {
            let list = move |message: ListObjectsRequest| async move { shared.list(&message).await };
            unary::<_, ListObjectsResponse, _, _>(request, list).await
        }
        "DeleteObject" => {
            let delete = move |message: DeleteObjectRequest| async move { shared.delete(&message).await };
            unary::<_, Empty, _, _>(request, delete).await
        }
        _ => Status::unimplemented(format!("the emulator does not know {path}")).into_http(),
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
