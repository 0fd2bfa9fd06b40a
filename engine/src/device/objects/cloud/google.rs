//! Google Cloud Storage: its settings, and its requests.
//!
//! The requests are those of the JSON interface, which Google's store has beside the one that
//! resembles S3, and which its emulators have, too. An object's version is its generation.
//!
//! | request | |
//! |---|---|
//! | put | `POST /upload/storage/v1/b/BUCKET/o?uploadType=media&name=KEY&ifGenerationMatch=N` |
//! | get | `GET /storage/v1/b/BUCKET/o/KEY?alt=media`, the generation in a header |
//! | head | `GET /storage/v1/b/BUCKET/o/KEY`, a description in JSON |
//! | list | `GET /storage/v1/b/BUCKET/o?prefix=PREFIX&pageToken=TOKEN` |
//! | delete | `DELETE /storage/v1/b/BUCKET/o/KEY` |
//!
//! Source: Google's reference of Objects: insert, get, list, delete, and of their preconditions.

use super::super::client::{Page, Place, empty_read};
use super::super::request::{Condition, Failure, FailureKind, Listed, Reply, RequestKind, Version};
use super::super::store::Outcome;
use super::super::url::ObjectUrl;
use super::connector::{Connector, no_retries};
use super::failure::{failure, refusal, wrong_settings};
use super::options::CloudOptions;
use crate::base::{Error, Result};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, LAST_MODIFIED, RANGE};
use http::{HeaderName, HeaderValue, Method, Request};
use object_store::client::{HttpClient, HttpRequest, HttpRequestBody, HttpResponse};
use object_store::gcp::{GcpCredential, GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{ClientOptions, StaticCredentialProvider};
use reqwest::Url;
use serde_json::Value;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The server that Google's own programs ask instead of Google's.
const EMULATOR: &str = "STORAGE_EMULATOR_HOST";

const SERVER: &str = "https://storage.googleapis.com";

const GENERATION: HeaderName = HeaderName::from_static("x-goog-generation");

/// Google's store, and how to name it.
pub(in super::super) struct Google {
    /// Finds credentials.
    pub store: GoogleCloudStorage,
    http: HttpClient,
    pub endpoint: String,
    /// The server, as a URL.
    server: Url,
    bucket: String,
    /// Requests carry no signature, so no credentials are looked for.
    pub is_open: bool,
}

/// What a request is about, for the text of its failure.
#[derive(Clone, Copy)]
struct What<'a> {
    kind: RequestKind,
    name: &'a str,
}

impl Google {
    /// # Errors
    /// The settings are wrong or incomplete.
    pub fn new(url: &ObjectUrl, options: &CloudOptions, connector: Connector) -> Result<Google> {
        let http = connector.client();
        let mut builder = GoogleCloudStorageBuilder::new()
            .with_bucket_name(&url.bucket)
            .with_client_options(ClientOptions::new().with_allow_http(true))
            .with_retry(no_retries())
            .with_http_connector(connector);
        for (name, value) in options.with_environment("GOOGLE_") {
            if let Ok(key) = name.to_ascii_lowercase().parse::<GoogleConfigKey>()
                && key != GoogleConfigKey::Bucket
            {
                builder = builder.with_config(key, value);
            }
        }
        // Other variables begin with the same name.
        let named = options.with_environment(EMULATOR).into_iter().filter(|(name, _)| name == EMULATOR);
        for (_, host) in named {
            let server = if host.contains("://") { host } else { format!("http://{host}") };
            let server = server.trim_end_matches('/');
            builder = builder
                .with_config(GoogleConfigKey::BaseUrl, server)
                .with_config(GoogleConfigKey::SkipSignature, "true");
        }
        let is_open = builder.get_config_value(&GoogleConfigKey::SkipSignature).as_deref() == Some("true");
        if is_open {
            // The client's puts look for credentials all the same.
            let none = GcpCredential { bearer: String::new() };
            builder = builder.with_credentials(Arc::new(StaticCredentialProvider::new(none)));
        }
        let endpoint = builder.get_config_value(&GoogleConfigKey::BaseUrl).unwrap_or_else(|| SERVER.into());
        if endpoint.contains('@') {
            return Err(
                Error::invalid("the endpoint of Google's store holds credentials").with_advice("remove them")
            );
        }
        let store = builder.build().map_err(|error| {
            wrong_settings(url, &error, "check GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT_KEY")
        })?;
        let server = Url::parse(&endpoint).map_err(|_| {
            Error::invalid("the endpoint of Google's store is no URL: write https://host or http://host:port")
        })?;
        Ok(Google { store, http, endpoint, server, bucket: url.bucket.clone(), is_open })
    }

    /// Creates or replaces an object.
    pub async fn put(
        &self,
        place: &Place,
        name: &str,
        key: &str,
        body: &Bytes,
        condition: &Condition,
    ) -> Outcome {
        let generation = match condition {
            Condition::Always => None,
            Condition::Absent => Some("0"),
            Condition::Unchanged(Version(generation)) => Some(&generation[..]),
        };
        let mut query = vec![("uploadType", "media"), ("name", key)];
        query.extend(generation.map(|generation| ("ifGenerationMatch", generation)));
        let url = self.url(Some("upload"), None, &query);
        let headers = vec![
            (CONTENT_TYPE, "application/octet-stream".to_string()),
            (CONTENT_LENGTH, body.len().to_string()),
        ];
        let what = What { kind: RequestKind::Put, name };
        let sent = self.send(place, what, Method::POST, url, headers, body.clone()).await;
        // A put needs nothing but the bucket.
        let response = sent.map_err(|failure| no_bucket(place, what, failure))?;
        let described = described(response).await;
        let described = described.ok_or_else(|| place.say(FailureKind::Unknown, what.kind, name, NO_JSON))?;
        Ok(Reply { len: body.len() as u64, ..reply_of(&described) })
    }

    /// Reads an object, or a range of it.
    pub async fn get(&self, place: &Place, name: &str, key: &str, range: Option<Range<u64>>) -> Outcome {
        if range.as_ref().is_some_and(Range::is_empty) {
            return self.head(place, RequestKind::Get, name, key).await;
        }
        let url = self.url(None, Some(key), &[("alt", "media")]);
        let headers = range.iter().map(|range| {
            let last = range.end.min(i64::MAX as u64).saturating_sub(1);
            (RANGE, format!("bytes={}-{last}", range.start))
        });
        let what = What { kind: RequestKind::Get, name };
        let sent = self.request(place, what, Method::GET, url, headers.collect(), Bytes::new()).await?;
        let response = match self.http.execute(sent).await {
            Ok(response) => response,
            Err(error) => {
                let is_behind = refusal(&error).is_some_and(|answer| answer.status == 416);
                return match range.filter(|_| is_behind) {
                    Some(range) => {
                        let head = self.head(place, RequestKind::Get, name, key).await;
                        empty_read(place, name, range.start, head)
                    }
                    None => Err(failure(place, what.kind, name, &error)),
                };
            }
        };
        let header = |name: HeaderName| response.headers().get(name)?.to_str().ok().map(String::from);
        let (version, sent) = (header(GENERATION).map(Version), header(CONTENT_RANGE));
        let written = header(LAST_MODIFIED).and_then(|text| seconds_of(&text));
        let age =
            header(DATE).and_then(|text| seconds_of(&text)).zip(written).map(|(now, written)| now - written);
        let age = age.map(|age| Duration::from_secs(u64::try_from(age).unwrap_or(0)));
        let fail = |why| Err(place.say(FailureKind::Unknown, what.kind, name, why));
        let Ok(body) = response.into_body().bytes().await else {
            return fail("the connection ended before the last byte");
        };
        let (first, len) = match sent.as_deref().map(first_and_len) {
            None => (0, body.len() as u64),
            Some(Some(sent)) => sent,
            Some(None) => return fail("the answer's range makes no sense"),
        };
        let asked = range.unwrap_or(0..u64::MAX);
        if first != asked.start || body.len() as u64 != asked.end.min(len).saturating_sub(first) {
            return fail("the answer holds another range");
        }
        Ok(Reply { version, len, body, age, ..Reply::default() })
    }

    /// Asks for length and version.
    pub async fn head(&self, place: &Place, kind: RequestKind, name: &str, key: &str) -> Outcome {
        let url = self.url(None, Some(key), &[]);
        let sent = self.send(place, What { kind, name }, Method::GET, url, Vec::new(), Bytes::new()).await?;
        let described = described(sent).await;
        let described = described.ok_or_else(|| place.say(FailureKind::Unknown, kind, name, NO_JSON))?;
        Ok(reply_of(&described))
    }

    /// Removes an object; an absent one is no failure.
    pub async fn delete(&self, place: &Place, name: &str, key: &str) -> Outcome {
        let url = self.url(None, Some(key), &[]);
        let what = What { kind: RequestKind::Delete, name };
        match self.send(place, what, Method::DELETE, url, Vec::new(), Bytes::new()).await {
            Err(failure) if failure.kind != FailureKind::Absent => Err(failure),
            _ => Ok(Reply::default()),
        }
    }

    /// Lists the next objects whose keys begin with `prefix`, with their keys as names.
    pub async fn page(
        &self,
        place: &Place,
        name: &str,
        prefix: &str,
        after: Option<&str>,
    ) -> std::result::Result<Page, Failure> {
        let mut query = vec![("prefix", prefix), ("fields", "items(name,size),nextPageToken")];
        query.extend(after.map(|token| ("pageToken", token)));
        let what = What { kind: RequestKind::List, name };
        let url = self.url(None, None, &query);
        let sent = self.send(place, what, Method::GET, url, Vec::new(), Bytes::new()).await;
        let response = sent.map_err(|failure| no_bucket(place, what, failure))?;
        let unclear = || place.say(FailureKind::Unknown, what.kind, name, NO_JSON);
        let described = described(response).await.ok_or_else(unclear)?;
        let listed = described["items"].as_array().into_iter().flatten().map(|item| {
            let key = item["name"].as_str().ok_or_else(unclear)?;
            Ok(Listed { name: key.into(), len: number(&item["size"]).ok_or_else(unclear)? })
        });
        let next = described["nextPageToken"].as_str().filter(|token| !token.is_empty());
        Ok(Page {
            listed: listed.collect::<std::result::Result<_, Failure>>()?,
            next: next.map(String::from),
        })
    }

    /// Returns the URL of an object, or of all; none if the server's URL cannot have a path.
    fn url(&self, before: Option<&str>, key: Option<&str>, query: &[(&str, &str)]) -> Option<Url> {
        let mut url = self.server.clone();
        {
            let mut path = url.path_segments_mut().ok()?;
            path.pop_if_empty().extend(before).extend(["storage", "v1", "b", &self.bucket, "o"]).extend(key);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Some(url)
    }

    async fn request(
        &self,
        place: &Place,
        What { kind, name }: What<'_>,
        method: Method,
        url: Option<Url>,
        headers: Vec<(HeaderName, String)>,
        body: Bytes,
    ) -> std::result::Result<HttpRequest, Failure> {
        let unmade =
            || place.say(FailureKind::Denied, kind, name, "the request cannot be made; check the endpoint");
        let mut request = Request::builder().method(method).uri(url.ok_or_else(unmade)?.as_str());
        if !self.is_open {
            let credential = self.store.credentials().get_credential().await;
            let credential = credential.map_err(|error| failure(place, kind, name, &error))?;
            request = request.header(AUTHORIZATION, format!("Bearer {}", credential.bearer));
        }
        for (name, value) in headers {
            request = request.header(name, HeaderValue::try_from(value).map_err(|_| unmade())?);
        }
        request.body(HttpRequestBody::from(body)).map_err(|_| unmade())
    }

    /// Sends a request once.
    async fn send(
        &self,
        place: &Place,
        what: What<'_>,
        method: Method,
        url: Option<Url>,
        headers: Vec<(HeaderName, String)>,
        body: Bytes,
    ) -> std::result::Result<HttpResponse, Failure> {
        let request = self.request(place, what, method, url, headers, body).await?;
        self.http.execute(request).await.map_err(|error| failure(place, what.kind, what.name, &error))
    }
}

const NO_JSON: &str = "the answer is no description of an object";

/// A put or a list that misses something misses the bucket.
fn no_bucket(place: &Place, what: What<'_>, failure: Failure) -> Failure {
    match failure.kind {
        FailureKind::Absent => {
            let why = "there is no such bucket; create the bucket, or correct its name and the endpoint";
            place.say(FailureKind::Denied, what.kind, what.name, why)
        }
        _ => failure,
    }
}

async fn described(response: HttpResponse) -> Option<Value> {
    serde_json::from_slice(&response.into_body().bytes().await.ok()?).ok()
}

/// Returns the seconds since 1970 of a date in a header: `Fri, 27 Nov 2026 10:34:19 GMT`.
fn seconds_of(date: &str) -> Option<i64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = date.split_once(", ")?.1.split([' ', ':']);
    let day = words.next()?.parse::<i64>().ok()?;
    let name = words.next()?;
    let month = MONTHS.iter().position(|month| *month == name)? as i64;
    let year = words.next()?.parse::<i64>().ok().filter(|year| (1970..10_000).contains(year))?;
    let mut next = || words.next()?.parse::<i64>().ok();
    let (hours, minutes, seconds) = (next()?, next()?, next()?);
    // A year that begins with March has its leap day at its end.
    let (year, month) = if month < 2 { (year - 1, month + 10) } else { (year, month - 2) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
}

/// Numbers of 64 bits are texts in Google's answers.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

fn reply_of(described: &Value) -> Reply {
    let version = number(&described["generation"]).map(|generation| Version(generation.to_string()));
    Reply { version, len: number(&described["size"]).unwrap_or(0), ..Reply::default() }
}

/// Returns the first byte of `bytes 0-9/100`, and the length of the object.
fn first_and_len(range: &str) -> Option<(u64, u64)> {
    let (range, len) = range.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.parse().ok()?, len.parse().ok()?))
}

#[cfg(test)]
mod tests;
