//! Azure Blob Storage: its settings, and the requests of append blobs.
//!
//! An append blob is created empty, and the first append goes to offset 0 on condition that it is
//! empty. So the creation of an object is that append: an empty blob counts as no object, and of
//! several writers the one whose append came first has created it. A blob stays empty if the second
//! request is never sent. That does no harm: lists show it, and it is collected as an orphan.
//!
//! Source: Azure's reference of Put Blob, Append Block and their conditional headers.

use super::super::client::Place;
use super::super::request::{Failure, FailureKind, Reply, RequestKind, Version};
use super::super::store::Outcome;
use super::super::url::ObjectUrl;
use super::connector::{Connector, no_retries};
use super::failure::{failure, wrong_settings};
use super::options::CloudOptions;
use crate::base::{Error, Result};
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, ETAG, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderName, HeaderValue, Method, Request};
use object_store::ClientOptions;
use object_store::azure::{AzureAuthorizer, AzureConfigKey, MicrosoftAzure, MicrosoftAzureBuilder};
use object_store::client::{HttpClient, HttpRequest, HttpRequestBody};
use object_store::path::Path;
use reqwest::Url;

/// The account and the server of Azurite, Microsoft's emulator.
const EMULATOR_ACCOUNT: &str = "devstoreaccount1";
const EMULATOR_SERVER: &str = "http://127.0.0.1:10000";

const BLOB_TYPE: HeaderName = HeaderName::from_static("x-ms-blob-type");
const OFFSET: HeaderName = HeaderName::from_static("x-ms-blob-condition-appendpos");

/// Azure's store, and what the requests of our own need.
#[derive(Debug)]
pub(super) struct Azure {
    pub store: MicrosoftAzure,
    http: HttpClient,
    account: String,
    /// The server; with the account if that stands in the path.
    pub endpoint: String,
    container: Url,
    /// Requests carry no signature, so no credentials are looked for.
    pub is_open: bool,
}

/// An object, and where it lies.
pub(super) struct Object<'a> {
    pub place: &'a Place,
    pub name: &'a str,
    pub path: Path,
}

/// A request of our own.
struct Own<'a> {
    kind: RequestKind,
    name: &'a str,
    path: &'a Path,
    method: Method,
    query: Option<&'a str>,
    headers: Vec<(HeaderName, String)>,
    body: Bytes,
}

impl Azure {
    /// # Errors
    /// The settings are wrong or incomplete.
    pub fn new(url: &ObjectUrl, options: &CloudOptions, connector: Connector) -> Result<Azure> {
        let http = connector.client();
        let mut builder = MicrosoftAzureBuilder::new()
            .with_container_name(&url.bucket)
            .with_client_options(ClientOptions::new().with_allow_http(true))
            .with_retry(no_retries())
            .with_http_connector(connector);
        let settings = options.with_environment("AZURE_");
        let connection = settings.iter().rev().find(|(name, _)| name == "AZURE_STORAGE_CONNECTION_STRING");
        let of_connection = connection.map(|(_, text)| of_connection_string(text)).transpose()?;
        for (key, value) in of_connection.into_iter().flatten() {
            builder = builder.with_config(key, value);
        }
        for (name, value) in &settings {
            if let Ok(key) = name.to_ascii_lowercase().parse::<AzureConfigKey>()
                && key != AzureConfigKey::ContainerName
            {
                builder = builder.with_config(key, value.trim_end_matches('/'));
            }
        }
        let is_true = |key| builder.get_config_value(&key).as_deref() == Some("true");
        let (is_open, is_emulator) =
            (is_true(AzureConfigKey::SkipSignature), is_true(AzureConfigKey::UseEmulator));
        let account = builder.get_config_value(&AzureConfigKey::AccountName);
        let account = account.or_else(|| is_emulator.then(|| EMULATOR_ACCOUNT.into())).ok_or_else(|| {
            Error::invalid(format!(
                "the account of {url} is unknown: set AZURE_STORAGE_ACCOUNT_NAME, or \
                 AZURE_STORAGE_CONNECTION_STRING"
            ))
        })?;
        let endpoint = match builder.get_config_value(&AzureConfigKey::Endpoint) {
            _ if is_emulator => {
                let server = options.with_environment("AZURITE_BLOB_STORAGE_URL").pop();
                let server = server.map_or_else(|| EMULATOR_SERVER.into(), |(_, server)| server);
                format!("{}/{account}", server.trim_end_matches('/'))
            }
            Some(endpoint) => endpoint,
            None => format!("https://{account}.blob.core.windows.net"),
        };
        let mut container = Url::parse(&endpoint)
            .ok()
            .filter(|server| server.password().is_none() && server.username().is_empty())
            .ok_or_else(|| {
                Error::invalid(
                    "the endpoint of Azure's store is no URL: write https://host or http://host:port",
                )
            })?;
        if let Ok(mut segments) = container.path_segments_mut() {
            segments.pop_if_empty().push(&url.bucket);
        }
        let store = builder.build().map_err(|error| {
            wrong_settings(url, &error, "check AZURE_STORAGE_ACCOUNT_KEY and the other variables AZURE_*")
        })?;
        Ok(Azure { store, http, account, endpoint, container, is_open })
    }

    /// Creates an object that takes appends: see the module's text.
    pub async fn create(&self, object: &Object<'_>, body: &Bytes) -> Outcome {
        let Object { place, name, ref path } = *object;
        let kind = RequestKind::Put;
        let headers =
            vec![(BLOB_TYPE, "AppendBlob".into()), (IF_NONE_MATCH, "*".into()), (CONTENT_LENGTH, "0".into())];
        let empty = Own { kind, name, path, method: Method::PUT, query: None, headers, body: Bytes::new() };
        match self.send(place, empty).await {
            Err(failure) if failure.kind.is_ambiguous() => {
                // As long as the blob is empty, nothing has happened.
                return Err(Failure { kind: FailureKind::Again, ..failure });
            }
            Err(failure) if failure.kind != FailureKind::Refused => return Err(failure),
            Err(_) | Ok(_) => {}
        }
        match self.append(object, kind, 0, body, None).await {
            // Another one has removed it in between.
            Err(failure) if failure.kind == FailureKind::Absent => {
                Err(Failure { kind: FailureKind::Again, ..failure })
            }
            appended => appended,
        }
    }

    /// Appends to an object that has exactly `offset` bytes. `kind` is for the text of a failure.
    pub async fn append(
        &self,
        object: &Object<'_>,
        kind: RequestKind,
        offset: u64,
        body: &Bytes,
        version: Option<&Version>,
    ) -> Outcome {
        let Object { place, name, ref path } = *object;
        let mut headers = vec![(OFFSET, offset.to_string()), (CONTENT_LENGTH, body.len().to_string())];
        headers.extend(version.map(|version| (IF_MATCH, version.0.clone())));
        let query = Some("comp=appendblock");
        let own = Own { kind, name, path, method: Method::PUT, query, headers, body: body.clone() };
        let version = self.send(place, own).await?;
        Ok(Reply { version, len: offset + body.len() as u64, ..Reply::default() })
    }

    /// Removes an object. The client's own request is one for many objects and needs more rights.
    pub async fn delete(&self, place: &Place, name: &str, path: &Path) -> Outcome {
        let kind = RequestKind::Delete;
        let (method, headers, body) = (Method::DELETE, Vec::new(), Bytes::new());
        let own = Own { kind, name, path, method, query: None, headers, body };
        match self.send(place, own).await {
            Err(failure) if failure.kind != FailureKind::Absent => Err(failure),
            _ => Ok(Reply::default()),
        }
    }

    /// Signs a request and sends it once. Returns the object's version.
    async fn send(&self, place: &Place, own: Own<'_>) -> std::result::Result<Option<Version>, Failure> {
        let (kind, name) = (own.kind, own.name);
        let unsigned = |why: &str| place.say(FailureKind::Denied, kind, name, why);
        let mut request = self.request(own).ok_or_else(|| unsigned("the request cannot be made"))?;
        if !self.is_open {
            let credential = self.store.credentials().get_credential().await;
            let credential = credential.map_err(|error| failure(place, kind, name, &error))?;
            AzureAuthorizer::new(&credential, &self.account)
                .try_authorize(&mut request)
                .map_err(|_| unsigned("the request cannot be signed; check the account key"))?;
        }
        let response = self.http.execute(request).await;
        let response = response.map_err(|error| failure(place, kind, name, &error))?;
        let version = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok());
        Ok(version.map(|tag| Version(tag.into())))
    }

    fn request(&self, own: Own<'_>) -> Option<HttpRequest> {
        let mut url = self.container.clone();
        url.path_segments_mut().ok()?.extend(own.path.parts());
        url.set_query(own.query);
        let mut request = Request::builder().method(own.method).uri(url.as_str());
        for (name, value) in own.headers {
            request = request.header(name, HeaderValue::try_from(value).ok()?);
        }
        request.body(HttpRequestBody::from(own.body)).ok()
    }
}

/// Returns the settings of a connection string, as the portal of Azure shows it. Errors never quote
/// it, because it holds a key.
fn of_connection_string(text: &str) -> Result<Vec<(AzureConfigKey, String)>> {
    let wrong = || {
        Error::invalid(
            "AZURE_STORAGE_CONNECTION_STRING is wrong: write AccountName=...;AccountKey=...;BlobEndpoint=...",
        )
    };
    let mut settings = Vec::new();
    let (mut protocol, mut suffix, mut account, mut endpoint) = ("https", "core.windows.net", None, None);
    for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').ok_or_else(wrong)?;
        match name {
            "AccountName" => {
                account = Some(value);
                settings.push((AzureConfigKey::AccountName, value.to_string()));
            }
            "AccountKey" => settings.push((AzureConfigKey::AccessKey, value.to_string())),
            "SharedAccessSignature" => settings.push((AzureConfigKey::SasKey, value.to_string())),
            "BlobEndpoint" => endpoint = Some(value.trim_end_matches('/').to_string()),
            "DefaultEndpointsProtocol" => protocol = value,
            "EndpointSuffix" => suffix = value,
            "UseDevelopmentStorage" => settings.push((AzureConfigKey::UseEmulator, value.to_string())),
            _ => {}
        }
    }
    let named = || account.map(|account| format!("{protocol}://{account}.blob.{suffix}"));
    settings.extend(endpoint.or_else(named).map(|endpoint| (AzureConfigKey::Endpoint, endpoint)));
    if settings.is_empty() { Err(wrong()) } else { Ok(settings) }
}

#[cfg(test)]
mod tests;
