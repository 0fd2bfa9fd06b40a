//! Where a database lies: `s3://bucket/prefix` and its like, as a typed value.

use crate::base::{Error, Result};
use std::fmt;

/// The kinds of stores that a URL can name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// `s3://bucket/prefix`: Amazon S3, or a server that speaks its protocol.
    S3,
    /// `az://container/prefix`: Azure Blob Storage.
    Azure,
    /// `gs://bucket/prefix`: Google Cloud Storage.
    Google,
    /// `file:///path`: a directory, used as a store of objects.
    File,
}

impl Scheme {
    /// All schemes.
    pub const ALL: [Scheme; 4] = [Scheme::S3, Scheme::Azure, Scheme::Google, Scheme::File];

    /// The name before `://`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Scheme::S3 => "s3",
            Scheme::Azure => "az",
            Scheme::Google => "gs",
            Scheme::File => "file",
        }
    }
}

/// The place of a database in a store of objects. It holds no secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectUrl {
    /// The kind of store.
    pub scheme: Scheme,
    /// The bucket, or container; empty for `file`.
    pub bucket: String,
    /// The beginning of all names, without a slash at either end; empty for a whole bucket. For
    /// `file`, the absolute path without its first slash.
    pub prefix: String,
    /// Where everything but the log lies, if it lies elsewhere: `gs://zonal/prefix?rest=URL`.
    pub rest: Option<Box<ObjectUrl>>,
}

/// The only query that a URL may have.
const REST: &str = "?rest=";

/// S3 takes names of 1,024 bytes; the engine's own names need the rest.
const PREFIX_BYTES_MAX: usize = 900;

const BUCKET_BYTES_MAX: usize = 255;

impl ObjectUrl {
    /// Returns whether `text` is meant as a URL, not as the path of a directory.
    #[must_use]
    pub fn is_url(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| {
            let starts = scheme.starts_with(|letter: char| letter.is_ascii_alphabetic());
            starts && scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter))
        })
    }

    /// Returns the URLs in a list with commas between them. A comma inside a prefix stays, because
    /// no scheme follows it.
    #[must_use]
    pub fn split(text: &str) -> Vec<&str> {
        let (mut urls, mut begin) = (Vec::new(), 0);
        for (comma, _) in text.match_indices(',') {
            if ObjectUrl::is_url(&text[comma + 1..]) {
                urls.push(&text[begin..comma]);
                begin = comma + 1;
            }
        }
        urls.push(&text[begin..]);
        urls
    }

    /// Returns the place that `text` names. Errors never quote more than the scheme, because the
    /// rest may hold a password.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::base::ErrorKind::InvalidArgument): an unknown scheme,
    /// no bucket, credentials or a query, or a prefix with a part that is empty, `.` or `..`.
    pub fn parse(text: &str) -> Result<ObjectUrl> {
        if ObjectUrl::split(text).len() > 1 {
            return Err(Error::invalid("this is a list of several buckets, and one URL is needed here")
                .with_advice("name one of the buckets"));
        }
        let (scheme, rest) = text.split_once("://").ok_or_else(|| {
            Error::invalid("an object URL begins with a scheme: s3://, az://, gs:// or file://")
        })?;
        let scheme = Scheme::ALL.into_iter().find(|known| known.name() == scheme).ok_or_else(|| {
            Error::invalid("the scheme of the URL is unknown")
                .with_advice("use s3://, az://, gs:// or file://")
        })?;
        let wrong = |what: &str| Error::invalid(format!("the {}:// URL {what}", scheme.name()));
        if let (Scheme::Google, Some((zonal, rest))) = (scheme, text.split_once(REST)) {
            let rest = ObjectUrl::parse(rest)?;
            if rest.rest.is_some() {
                return Err(wrong("has `rest=` twice: name one bucket for the log and one for the rest"));
            }
            let zonal = ObjectUrl::parse(zonal)?;
            if (zonal.scheme, &zonal.bucket) == (rest.scheme, &rest.bucket) {
                return Err(wrong("names its own bucket after `rest=`: name a regional one there"));
            }
            return Ok(ObjectUrl { rest: Some(Box::new(rest)), ..zonal });
        }
        if rest.contains(['?', '#']) {
            return Err(wrong("has a query or fragment: set options in the environment instead"));
        }
        if rest.contains('%') {
            return Err(wrong("contains `%`: write each character as it is, because nothing is decoded"));
        }
        if rest.contains(|letter: char| letter.is_control() || letter == '\\') {
            return Err(wrong("contains a control character or a backslash: use other characters"));
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        check_bucket(scheme, bucket, rest).map_err(|what| wrong(&what))?;
        let prefix = match prefix.strip_suffix('/') {
            Some("") | None => prefix,
            Some(trimmed) => trimmed,
        };
        check_prefix(scheme, prefix).map_err(wrong)?;
        Ok(ObjectUrl { scheme, bucket: bucket.into(), prefix: prefix.into(), rest: None })
    }
}

fn check_bucket(scheme: Scheme, bucket: &str, rest: &str) -> std::result::Result<(), String> {
    if scheme == Scheme::File {
        return match bucket {
            "" => Ok(()),
            _ => Err("names a host: write file:/// and the absolute path".into()),
        };
    }
    let name = scheme.name();
    // A key may contain slashes, so its bucket ends in the middle of it.
    if rest.contains('@') && rest.split('@').next().is_some_and(|before| before.contains(':')) {
        return Err("contains credentials: set them in the environment instead".into());
    }
    if bucket.contains('@') {
        return Err("contains a user: set credentials in the environment instead".into());
    }
    if bucket.contains(':') {
        return Err(format!(
            "names a server or port: write {name}://bucket/prefix, the endpoint has a setting"
        ));
    }
    if bucket.is_empty() {
        return Err(format!("has no bucket: write {name}://bucket/prefix"));
    }
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
    if !bucket.chars().all(plain) || bucket.starts_with('.') || bucket.len() > BUCKET_BYTES_MAX {
        return Err("has a bucket that cannot exist: use letters, digits, `-`, `.` and `_`".into());
    }
    Ok(())
}

fn check_prefix(scheme: Scheme, prefix: &str) -> std::result::Result<(), &'static str> {
    if prefix.is_empty() {
        return match scheme {
            Scheme::File => Err("has no path: write file:/// and the absolute path"),
            _ => Ok(()),
        };
    }
    if prefix.len() > PREFIX_BYTES_MAX {
        return Err("has a prefix of more than 900 bytes: shorten it");
    }
    for part in prefix.split('/') {
        match part {
            "" => return Err("has an empty part between two slashes: remove one slash"),
            "." | ".." => return Err("has a part `.` or `..`: write the whole path"),
            _ => {}
        }
    }
    Ok(())
}

impl fmt::Display for ObjectUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.name(), self.bucket)?;
        if !self.prefix.is_empty() {
            write!(f, "/{}", self.prefix)?;
        }
        if let Some(rest) = &self.rest {
            write!(f, "{REST}{rest}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
