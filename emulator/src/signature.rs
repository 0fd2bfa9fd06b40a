//! Checks signatures for directory buckets: AWS Signature Version 4 with the service `s3express`.
//!
//! The service `s3` is checked by `s3s`, which does not know `s3express` and its sessions. The
//! algorithm is "AWS Signature Version 4" in the documentation of AWS.

use crate::refusal::Refusal;
use crate::sessions::{Session, Sessions};
use aws_sigv4::sign::v4::{calculate_signature, generate_signing_key};
use aws_smithy_types::date_time::{DateTime, Format};
use hyper::header::{AUTHORIZATION, HeaderMap};
use hyper::{Method, Uri};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::time::{Duration, SystemTime};

const SERVICE: &str = "s3express";
/// A request's time may differ by so much from ours.
const SKEW_MAX: Duration = Duration::from_mins(15);

/// The credentials of a request whose signature was checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Signed {
    /// With the long-lived key: only for requests that concern buckets.
    Key,
    /// With the credentials of a session.
    Session(Session),
}

/// The parts of the header `authorization`.
struct Authorization<'a> {
    key_id: &'a str,
    date: &'a str,
    region: &'a str,
    signed_headers: Vec<&'a str>,
    signature: &'a str,
}

/// Returns whether the request is signed for a directory bucket.
pub(crate) fn is_express(headers: &HeaderMap) -> bool {
    header(headers, AUTHORIZATION.as_str()).is_some_and(|text| text.contains("/s3express/aws4_request"))
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Checks the signature of a request. `key` has the id and the secret of the long-lived key.
///
/// # Errors
/// Its credentials are unknown or have expired; its time is wrong; it was changed.
pub(crate) fn check(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    key: (&str, &str),
    sessions: &Sessions,
) -> Result<Signed, Refusal> {
    let malformed = |what: &str| Refusal::new("AuthorizationHeaderMalformed", 400, what);
    let text = header(headers, AUTHORIZATION.as_str()).unwrap_or_default();
    let authorization = parse(text).ok_or_else(|| malformed("the authorization makes no sense"))?;
    let date = header(headers, "x-amz-date").ok_or_else(|| malformed("there is no x-amz-date"))?;
    let time = parse_date(date).ok_or_else(|| malformed("x-amz-date makes no sense"))?;
    let now = SystemTime::now();
    let skew = now.duration_since(time).or_else(|_| time.duration_since(now)).unwrap_or_default();
    if skew > SKEW_MAX {
        let what = format!("the request's time differs by {} s from the server's", skew.as_secs());
        return Err(Refusal::new("RequestTimeTooSkewed", 403, what));
    }
    if !date.starts_with(authorization.date) {
        return Err(malformed("the credential's date is not the request's"));
    }
    let (signed, secret) = match header(headers, "x-amz-s3session-token") {
        Some(token) => {
            let session = sessions.find(token)?;
            let secret = session.secret.clone();
            if session.key_id != authorization.key_id {
                return Err(Refusal::new("InvalidAccessKeyId", 403, "the session has another key"));
            }
            (Signed::Session(session), secret)
        }
        None if authorization.key_id == key.0 => (Signed::Key, key.1.to_string()),
        None => {
            let what = format!("there is no access key {}", authorization.key_id);
            return Err(Refusal::new("InvalidAccessKeyId", 403, what));
        }
    };
    let hashed = hex(&Sha256::digest(canonical(method, uri, headers, &authorization.signed_headers)));
    let Authorization { date: day, region, .. } = authorization;
    let to_sign = format!("AWS4-HMAC-SHA256\n{date}\n{day}/{region}/{SERVICE}/aws4_request\n{hashed}");
    let signing_key = generate_signing_key(&secret, time, region, SERVICE);
    if calculate_signature(signing_key, to_sign.as_bytes()) != authorization.signature {
        let what = "the signature is not the one that follows from the secret key";
        return Err(Refusal::new("SignatureDoesNotMatch", 403, what));
    }
    if header(headers, "x-amz-content-sha256").is_some_and(|hash| hash.starts_with("STREAMING-")) {
        return Err(Refusal::not_implemented("bodies in signed chunks for directory buckets"));
    }
    Ok(signed)
}

/// Returns the request as it was signed. Client and server agree on the encoding of path and query,
/// because a signature that was made over another one does not match.
fn canonical(method: &Method, uri: &Uri, headers: &HeaderMap, signed_headers: &[&str]) -> String {
    let mut query: Vec<String> = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| if pair.contains('=') { pair.into() } else { format!("{pair}=") })
        .collect();
    query.sort_unstable();
    let mut text = format!("{method}\n{}\n{}\n", uri.path(), query.join("&"));
    for name in signed_headers {
        let values: Vec<String> = headers
            .get_all(*name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .map(|value| value.split_ascii_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name}:{}", values.join(","));
    }
    let payload = header(headers, "x-amz-content-sha256").unwrap_or("UNSIGNED-PAYLOAD");
    let _ = write!(text, "\n{}\n{payload}", signed_headers.join(";"));
    text
}

fn parse(text: &str) -> Option<Authorization<'_>> {
    let rest = text.strip_prefix("AWS4-HMAC-SHA256")?;
    let (mut credential, mut signed_headers, mut signature) = (None, None, None);
    for part in rest.split(',') {
        match part.trim().split_once('=')? {
            ("Credential", value) => credential = Some(value),
            ("SignedHeaders", value) => signed_headers = Some(value),
            ("Signature", value) => signature = Some(value),
            _ => return None,
        }
    }
    let mut parts = credential?.split('/');
    let (key_id, date, region) = (parts.next()?, parts.next()?, parts.next()?);
    let signed_headers = signed_headers?.split(';').collect();
    Some(Authorization { key_id, date, region, signed_headers, signature: signature? })
}

/// Parses `20261125T101500Z`.
fn parse_date(text: &str) -> Option<SystemTime> {
    let part = |from: usize, to: usize| text.get(from..to);
    let (day, time) = ((part(0, 4)?, part(4, 6)?, part(6, 8)?), (part(9, 11)?, part(11, 13)?, part(13, 15)?));
    let long = format!("{}-{}-{}T{}:{}:{}Z", day.0, day.1, day.2, time.0, time.1, time.2);
    let parsed = DateTime::from_str(&long, Format::DateTime).ok()?;
    SystemTime::try_from(parsed).ok()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
