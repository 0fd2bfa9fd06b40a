//! Connections to the service: HTTP/2, encrypted unless it is a server for tests.

use super::super::client::Place;
use super::super::cloud::{CloudOptions, Connector, Google};
use super::super::request::{Failure, FailureKind, RequestKind};
use super::super::url::ObjectUrl;
use super::errors::failure;
use super::messages::SERVICE;
use crate::base::{Error, Result};
use prost::Message;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

/// The server that takes the place of Google's; without encryption and credentials.
const EMULATOR: &str = "STORAGE_EMULATOR_HOST_GRPC";
const SERVER: &str = "https://storage.googleapis.com";

/// A connection takes a limited number of streams, and each open lane has one.
const CONNECTIONS: usize = 4;

/// A connection with an open stream is tried so often, and is lost without an answer for so long.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_MAX: Duration = Duration::from_secs(10);

/// Bytes that the service may send ahead.
const WINDOW_BYTES: u32 = 4 << 20;
/// Data of 2 MiB and what is around it.
const MESSAGE_BYTES_MAX: usize = 8 << 20;

/// The routing parameters of a request.
const PARAMETERS: &str = "x-goog-request-params";

/// See the module's text.
pub(super) struct Connection {
    /// Finds credentials; none for a server for tests.
    google: Option<Google>,
    pub place: Place,
    /// `projects/_/buckets/NAME`.
    pub bucket: String,
    /// Empty, or ends with a slash.
    prefix: String,
    channels: Vec<Channel>,
    next: AtomicUsize,
}

/// An open stream: what comes.
pub(super) type Answers<R> = std::result::Result<Response<Streaming<R>>, Status>;

impl Connection {
    /// Makes connections, which are established when they are used.
    ///
    /// # Errors
    /// The settings are wrong or incomplete.
    pub fn new(url: &ObjectUrl, options: &CloudOptions) -> Result<Connection> {
        let emulator = options.with_environment(EMULATOR).into_iter().last().map(|(_, host)| host);
        let (google, server) = match emulator {
            Some(host) if host.contains("://") => (None, host),
            Some(host) => (None, format!("http://{host}")),
            None => (Some(Google::new(url, options, Connector::new(options)?)?), SERVER.to_string()),
        };
        let wrong = |error: &dyn std::fmt::Display| {
            Error::invalid(format!("no connection to Google's store can be made: {error}"))
                .with_advice("set STORAGE_EMULATOR_HOST_GRPC to host:port, or remove it")
        };
        let mut endpoint = Endpoint::from_shared(server.clone())
            .and_then(|endpoint| endpoint.user_agent(concat!("quenchdb/", env!("CARGO_PKG_VERSION"))))
            .map_err(|error| wrong(&error))?
            .connect_timeout(options.connect_timeout)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE_MAX)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES);
        if server.starts_with("https://") {
            let encryption = ClientTlsConfig::new().with_native_roots();
            endpoint = endpoint.tls_config(encryption).map_err(|error| wrong(&error))?;
        }
        Ok(Connection {
            google,
            place: Place { bucket: url.bucket.clone(), endpoint: server },
            bucket: format!("projects/_/buckets/{}", url.bucket),
            prefix: if url.prefix.is_empty() { String::new() } else { format!("{}/", url.prefix) },
            channels: (0..CONNECTIONS).map(|_| endpoint.connect_lazy()).collect(),
            next: AtomicUsize::new(0),
        })
    }

    /// Returns an object's key.
    pub fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Returns the name of the object with this key, if it is below the prefix.
    pub fn name<'a>(&self, key: &'a str) -> Option<&'a str> {
        key.strip_prefix(&self.prefix)
    }

    /// Looks for credentials, or finds those of before that are still valid.
    pub async fn find_credentials(&self) -> object_store::Result<Option<String>> {
        match &self.google {
            Some(google) if !google.is_open => {
                Ok(Some(google.store.credentials().get_credential().await?.bearer.clone()))
            }
            _ => Ok(None),
        }
    }

    /// Returns a request with its credentials and the parameters that route it.
    async fn request<M>(
        &self,
        kind: RequestKind,
        name: &str,
        message: M,
        token: Option<&str>,
    ) -> std::result::Result<Request<M>, Failure> {
        let bearer = self.find_credentials().await.map_err(|error| {
            let why = format!("{}, while looking for credentials", super::super::client::root(&error));
            self.place.say(FailureKind::Again, kind, name, &why)
        })?;
        let mut request = Request::new(message);
        let mut parameters = format!("bucket={}", self.bucket.replace('/', "%2F"));
        if let Some(token) = token {
            parameters.push_str("&routing_token=");
            parameters.push_str(token);
        }
        let headers =
            [(PARAMETERS, Some(parameters)), ("authorization", bearer.map(|it| format!("Bearer {it}")))];
        for (header, value) in headers {
            let Some(value) = value else { continue };
            let value = MetadataValue::try_from(value).map_err(|_| {
                let why = format!("the header {header} has a character that no header takes");
                self.place.say(FailureKind::Denied, kind, name, &why)
            })?;
            request.metadata_mut().insert(header, value);
        }
        Ok(request)
    }

    /// Returns a client of one of the connections.
    async fn grpc(&self) -> std::result::Result<Grpc<Channel>, Status> {
        let next = self.next.fetch_add(1, Ordering::Relaxed) % self.channels.len();
        let mut grpc = Grpc::new(self.channels[next].clone()).max_decoding_message_size(MESSAGE_BYTES_MAX);
        grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
        Ok(grpc)
    }

    /// Sends a message and returns the answer.
    pub async fn unary<M, R>(
        &self,
        method: &'static str,
        (kind, name): (RequestKind, &str),
        message: M,
    ) -> std::result::Result<R, Failure>
    where
        M: Message + 'static,
        R: Message + Default + 'static,
    {
        let request = self.request(kind, name, message, None).await?;
        let sent = async {
            let mut grpc = self.grpc().await?;
            grpc.unary(request, path(method), ProstCodec::<M, R>::default()).await
        };
        let answered = sent.await.map(Response::into_inner);
        answered.map_err(|status| failure(&self.place, kind, name, &status))
    }

    /// Opens a stream on which `messages` are sent, and returns the answers.
    ///
    /// # Errors
    /// The outer one: there are no credentials, and nothing was sent.
    pub async fn streaming<M, R>(
        &self,
        method: &'static str,
        (kind, name): (RequestKind, &str),
        messages: UnboundedReceiver<M>,
        token: Option<&str>,
    ) -> std::result::Result<Answers<R>, Failure>
    where
        M: Message + 'static,
        R: Message + Default + 'static,
    {
        let request = self.request(kind, name, UnboundedReceiverStream::new(messages), token).await?;
        let sent = async {
            let mut grpc = self.grpc().await?;
            grpc.streaming(request, path(method), ProstCodec::<M, R>::default()).await
        };
        Ok(sent.await)
    }
}

fn path(method: &'static str) -> PathAndQuery {
    PathAndQuery::try_from(format!("{SERVICE}{method}")).unwrap_or_else(|_| PathAndQuery::from_static("/"))
}
