//! Connections: HTTP on one side, the service on the other.

use crate::ending::{End, Ending};
use crate::faults::Faults;
use crate::mistakes;
use crate::refusal::Refusal;
use crate::service::{Access, Service, Shared};
use crate::signature;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Body as HttpBody, Frame, Incoming};
use hyper::header::AUTHORIZATION;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use s3s::auth::{S3Auth, SecretKey};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, S3Error, S3Result};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};

/// Requests for the emulator itself: `GET` for counts, `PUT` of a specification for faults, and of
/// names for mistakes.
const COUNTS_PATH: &str = "/.emulator/counts";
const FAULTS_PATH: &str = "/.emulator/faults";
const MISTAKES_PATH: &str = "/.emulator/mistakes";

/// Answers connections until it is dropped.
pub(crate) struct Server {
    shared: Arc<Shared>,
    service: S3Service,
    key: (String, String),
}

/// The only key for general purpose buckets.
struct OneKey {
    key_id: String,
    secret: SecretKey,
}

#[async_trait::async_trait]
impl S3Auth for OneKey {
    async fn get_secret_key(&self, key_id: &str) -> S3Result<SecretKey> {
        if key_id == self.key_id {
            return Ok(self.secret.clone());
        }
        let what = format!("there is no access key {key_id}");
        Err(Refusal::new("InvalidAccessKeyId", 403, what).into())
    }
}

type Answer = Result<Response<Body>, io::Error>;

impl Server {
    pub fn new(shared: Arc<Shared>, key_id: &str, secret: &str) -> Server {
        let mut builder = S3ServiceBuilder::new(Service(shared.clone()));
        builder.set_auth(OneKey { key_id: key_id.into(), secret: secret.into() });
        builder.set_access(Access);
        Server { shared, service: builder.build(), key: (key_id.into(), secret.into()) }
    }

    /// Accepts connections for ever.
    pub async fn run(self, listener: TcpListener) -> Infallible {
        let server = Arc::new(self);
        loop {
            // A connection that ended before it was accepted is no reason to stop.
            if let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(connection(server.clone(), stream));
            }
        }
    }

    async fn answer(self: Arc<Server>, request: Request<Incoming>) -> Answer {
        if request.uri().path().starts_with("/.emulator/") {
            return Ok(self.administer(request).await);
        }
        let ending = Ending::default();
        let mut request = request.map(Body::from);
        request.extensions_mut().insert(ending.clone());
        if signature::is_express(request.headers()) {
            let key = (&*self.key.0, &*self.key.1);
            let (method, uri, headers) = (request.method(), request.uri(), request.headers());
            match signature::check(method, uri, headers, key, &self.shared.sessions) {
                Ok(signed) => {
                    request.headers_mut().remove(AUTHORIZATION);
                    request.extensions_mut().insert(signed);
                }
                Err(refusal) => return refused(refusal),
            }
        }
        let response = self.service.call(request).await;
        let response = response.map_err(|error| io::Error::other(format!("{error:?}")))?;
        match ending.get() {
            End::Answer => Ok(response),
            End::Close => Err(io::ErrorKind::ConnectionAborted.into()),
            End::Cut => Ok(cut(response).await),
        }
    }

    async fn administer(&self, request: Request<Incoming>) -> Response<Body> {
        match (request.method(), request.uri().path()) {
            (&Method::GET, COUNTS_PATH) => {
                let text = serde_json::to_string_pretty(&self.shared.counter.read());
                said(StatusCode::OK, text.unwrap_or_default() + "\n")
            }
            (&Method::PUT, FAULTS_PATH) => match text_of(request).await.trim().parse::<Faults>() {
                Ok(faults) => {
                    let text = format!("faults: {faults}\n");
                    self.shared.fates.set_faults(faults);
                    said(StatusCode::OK, text)
                }
                Err(what) => said(StatusCode::BAD_REQUEST, what + "\n"),
            },
            (&Method::PUT, MISTAKES_PATH) => match mistakes::parse_all(&text_of(request).await) {
                Ok(mistakes) => {
                    let text = format!("mistakes: {mistakes:?}\n");
                    self.shared.store.set_mistakes(mistakes);
                    said(StatusCode::OK, text)
                }
                Err(what) => said(StatusCode::BAD_REQUEST, what + "\n"),
            },
            _ => {
                let what = format!(
                    "the emulator knows GET {COUNTS_PATH}, PUT {FAULTS_PATH} and PUT {MISTAKES_PATH}\n"
                );
                said(StatusCode::NOT_FOUND, what)
            }
        }
    }
}

async fn text_of(request: Request<Incoming>) -> String {
    let body = request.into_body().collect().await;
    let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    String::from_utf8_lossy(&body).into_owned()
}

async fn connection(server: Arc<Server>, stream: TcpStream) {
    // It only makes small answers wait.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let answer = server.clone().answer(request);
        // A request that has begun takes effect, even if its client has gone.
        async move { tokio::spawn(answer).await.map_err(io::Error::other)? }
    });
    // How a connection ends is the client's business.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// Returns the answer that S3 would give.
fn refused(refusal: Refusal) -> Answer {
    let response = S3Error::from(refusal).to_http_response();
    response.map_err(|error| io::Error::other(format!("{error:?}")))
}

fn said(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
}

/// Returns a response that ends in the middle of its body, although it has announced all of it.
async fn cut(response: Response<Body>) -> Response<Body> {
    let (parts, body) = response.into_parts();
    let len = body.size_hint().exact();
    let whole = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    if len == Some(0) || whole.is_empty() {
        return Response::from_parts(parts, Body::http_body(Full::new(whole)));
    }
    let half: Result<Frame<Bytes>, io::Error> = Ok(Frame::data(whole.slice(..whole.len() / 2)));
    let end = Err(io::ErrorKind::ConnectionAborted.into());
    let stream = futures_util::stream::iter([half, end]);
    Response::from_parts(parts, Body::http_body(StreamBody::new(stream)))
}
