//! The connections: HTTP/1.1, encrypted by rustls and ring, without redirects and repetitions.

use super::failure::Refusal;
use super::options::CloudOptions;
use crate::base::Error;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::{ClientOptions, RetryConfig};
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use std::time::Duration;

/// Gives the same connections to requests and to the search for credentials.
#[derive(Clone, Debug)]
pub(in super::super) struct Connector(reqwest::Client);

impl Connector {
    /// # Errors
    /// The system refuses what a client needs.
    pub fn new(options: &CloudOptions) -> crate::base::Result<Connector> {
        let wrong = |what: String| Error::invalid(format!("no encrypted connection can be made: {what}"));
        let mut trusted = RootCertStore::empty();
        // Without certificates only connections without encryption work, and the failure says so.
        trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let encryption = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(error.to_string()))?
            .with_root_certificates(trusted)
            .with_no_client_auth();
        reqwest::Client::builder()
            .tls_backend_preconfigured(encryption)
            .user_agent(concat!("quenchdb/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(options.connect_timeout)
            .http1_only()
            // A second copy of a write is the caller's decision.
            .retry(reqwest::retry::never())
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map(Connector)
            .map_err(|error| wrong(error.to_string()))
    }

    /// Returns a client for requests.
    pub fn client(&self) -> HttpClient {
        HttpClient::new(self.clone())
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(self.client())
    }
}

/// The name of Azure's error, also in answers without a body.
const CODE: &str = "x-ms-error-code";

#[async_trait::async_trait]
impl HttpService for Connector {
    /// An answer that is no success becomes a [`Refusal`].
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = self.0.call(request).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let code = response.headers().get(CODE).and_then(|code| code.to_str().ok()).map(String::from);
        // Without its text the answer still has its status.
        let text = response.into_body().bytes().await.unwrap_or_default();
        let mut refusal = Refusal::of_body(status.as_u16(), &String::from_utf8_lossy(&text));
        refusal.code = code.unwrap_or(refusal.code);
        Err(HttpError::new(HttpErrorKind::Decode, refusal))
    }
}

/// A write is sent once, and reads are repeated elsewhere.
pub(super) fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, retry_timeout: Duration::ZERO, ..RetryConfig::default() }
}
