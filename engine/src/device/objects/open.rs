//! From a URL to a storage.

use super::body::MANIFEST_NAME;
#[cfg(any(feature = "azure", feature = "gcs"))]
use super::cloud::{CloudOptions, CloudStore};
use super::directory::DirectoryStore;
use super::options::Options;
use super::probe::probe_to_open;
#[cfg(feature = "gcs-rapid")]
use super::rapid::RapidStore;
use super::request::{FailureKind, Request};
use super::routed::RoutedStore;
#[cfg(feature = "s3")]
use super::s3::{S3Options, S3Store};
use super::storage::ObjectStorage;
use super::store::{ObjectStore, Outcome};
use super::url::{ObjectUrl, Scheme};
use crate::base::clock::{Clock, Nanos};
use crate::base::{Error, ErrorKind, Result};
use crate::sync::thread;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Connects to the store that a URL names.
///
/// # Errors
/// `InvalidArgument` for a wrong URL; `Unsupported` if this build has no client for the store; I/O.
pub fn connect(url: &str) -> Result<Arc<dyn ObjectStore>> {
    connect_within(url, None)
}

/// Connects to the store that a URL names. `reads` is for how long a read is sent again, if not for
/// as long as the client does by itself.
fn connect_within(url: &str, reads: Option<Duration>) -> Result<Arc<dyn ObjectStore>> {
    connect_to(&ObjectUrl::parse(url)?, reads)
}

fn connect_to(url: &ObjectUrl, reads: Option<Duration>) -> Result<Arc<dyn ObjectStore>> {
    if let Some(rest) = &url.rest {
        let log = connect_log(&ObjectUrl { rest: None, ..url.clone() }, reads)?;
        return Ok(Arc::new(RoutedStore::new(log, connect_to(rest, reads)?)));
    }
    match url.scheme {
        Scheme::File => Ok(Arc::new(DirectoryStore::open(&Path::new("/").join(&url.prefix))?)),
        #[cfg(feature = "s3")]
        Scheme::S3 => {
            let mut options = S3Options::default();
            options.read_deadline = reads.unwrap_or(options.read_deadline);
            Ok(Arc::new(S3Store::connect(url, &options)?))
        }
        #[cfg(feature = "azure")]
        Scheme::Azure => cloud(url, reads),
        #[cfg(feature = "gcs")]
        Scheme::Google => cloud(url, reads),
        #[cfg(not(all(feature = "s3", feature = "azure", feature = "gcs")))]
        _ => {
            let _ = reads;
            let name = url.scheme.name();
            let what = format!("this build has no client for {name}://: compile it with a feature that has");
            Err(Error::new(ErrorKind::Unsupported, what))
        }
    }
}

/// Connects to a store that takes the log only.
#[cfg(feature = "gcs-rapid")]
fn connect_log(url: &ObjectUrl, reads: Option<Duration>) -> Result<Arc<dyn ObjectStore>> {
    let mut options = CloudOptions::default();
    options.read_deadline = reads.unwrap_or(options.read_deadline);
    Ok(Arc::new(RapidStore::connect(url, &options)?))
}

#[cfg(not(feature = "gcs-rapid"))]
fn connect_log(_url: &ObjectUrl, _reads: Option<Duration>) -> Result<Arc<dyn ObjectStore>> {
    let what = "this build has no client for zonal buckets: compile it with the feature `gcs-rapid`";
    Err(Error::new(ErrorKind::Unsupported, what))
}

#[cfg(any(feature = "azure", feature = "gcs"))]
fn cloud(url: &ObjectUrl, reads: Option<Duration>) -> Result<Arc<dyn ObjectStore>> {
    let mut options = CloudOptions::default();
    options.read_deadline = reads.unwrap_or(options.read_deadline);
    Ok(Arc::new(CloudStore::connect(url, &options)?))
}

/// Returns the storage of the database that a URL names, or a list of URLs with commas between
/// them. Unless it is opened for reading, probes the stores first, so that a server that ignores an
/// offset or a condition is refused.
///
/// # Errors
/// As [`connect`] and [`probe_to_open`]; of several stores a minority may be out of reach.
pub fn open_url(url: &str, read_only: bool, options: Options) -> Result<ObjectStorage> {
    let urls = ObjectUrl::split(url);
    if urls.len() > 1 {
        return open_several(&urls, None, read_only, options, None);
    }
    let store = connect(url)?;
    if read_only {
        refuse_zonal(&[(url.to_string(), store.clone())])?;
        let facts = store.facts();
        return Ok(ObjectStorage::unprobed(store, facts, options));
    }
    let facts = probe_to_open(&*store).map_err(|error| explain_zonal(url, error))?;
    Ok(ObjectStorage::new(store, facts, options))
}

/// A bucket that refuses a read does so in this time.
const REFUSAL_MAX: Duration = Duration::from_secs(2);

/// Refuses a zonal bucket without a bucket for the rest, which a reader does not probe: it refuses
/// every read, too. `stores` has the one of a database, or several.
fn refuse_zonal(stores: &[(String, Arc<dyn ObjectStore>)]) -> Result<()> {
    let may_be_zonal =
        |url: &str| ObjectUrl::parse(url).is_ok_and(|url| url.scheme == Scheme::Google && url.rest.is_none());
    if !cfg!(feature = "gcs-rapid") {
        return Ok(());
    }
    let (send, receive) = mpsc::channel();
    for (url, store) in stores.iter().filter(|(url, _)| may_be_zonal(url)) {
        let (send, url) = (send.clone(), url.clone());
        let done = move |outcome: Outcome| {
            // The caller may have waited long enough.
            let _ = send.send((url, outcome));
        };
        store.start(Request::Head { name: MANIFEST_NAME.into() }, Box::new(done));
    }
    drop(send);
    let clock = Clock::real();
    let until = Nanos(clock.now().0 + REFUSAL_MAX.as_nanos() as u64);
    // The open reports a store that does not answer, or refuses for another reason.
    while let Ok((url, outcome)) = receive.recv_timeout(until.since(clock.now())) {
        let is_refused = outcome.is_err_and(|failure| failure.kind == FailureKind::Denied);
        if is_refused && let Some(error) = zonal_error(&url, stores.len() > 1) {
            return Err(error);
        }
    }
    Ok(())
}

/// Returns the error of a store that refused the requests for `url` with `error`: a zonal bucket
/// takes none of the requests of other buckets.
#[must_use]
pub fn explain_zonal(url: &str, error: Error) -> Error {
    explain(url, error, false)
}

/// As [`explain_zonal`]; of a bucket that is one of several of a database, the advice is another.
fn explain(url: &str, error: Error, is_one_of_several: bool) -> Error {
    let is_refusal = matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::Unsupported);
    let zonal = if is_refusal { zonal_error(url, is_one_of_several) } else { None };
    zonal.unwrap_or(error)
}

/// Asks for the description of a bucket that has refused a request. Returns an error if the bucket
/// is zonal.
fn zonal_error(url: &str, is_one_of_several: bool) -> Option<Error> {
    #[cfg(feature = "gcs-rapid")]
    if let Ok(parsed) = ObjectUrl::parse(url)
        && (parsed.scheme, &parsed.rest) == (Scheme::Google, &None)
        && super::rapid::is_zonal(&parsed)
    {
        let what = format!("the bucket {} is zonal (class RAPID)", parsed.bucket);
        let (why, advice) = if is_one_of_several {
            let advice = format!("name a regional bucket instead of {parsed}");
            ("it cannot be one of several buckets of a database", advice)
        } else {
            let advice = format!("name a regional bucket for the rest: {parsed}?rest=gs://BUCKET/PREFIX");
            ("it takes the log of a database, and nothing else", advice)
        };
        return Some(Error::new(ErrorKind::Unsupported, format!("{what}: {why}")).with_advice(advice));
    }
    let _ = (url, is_one_of_several);
    None
}

/// Returns the storage of the database that a URL names, for people that look at it: it is only
/// read, and a store that does not answer is given up after `most`.
///
/// # Errors
/// As [`connect`].
pub fn open_url_to_look(url: &str, most: Duration) -> Result<ObjectStorage> {
    let urls = ObjectUrl::split(url);
    if urls.len() > 1 {
        let options = Options { patience: most, ..Options::default() };
        return open_several(&urls, None, true, options, Some(most / 2));
    }
    // A read that the client has given up is sent once more.
    let store = connect_within(url, Some(most / 2))?;
    refuse_zonal(&[(url.to_string(), store.clone())])?;
    let facts = store.facts();
    Ok(ObjectStorage::unprobed(store, facts, Options { patience: most, ..Options::default() }))
}

/// Most buckets of a database.
const BUCKETS_MAX: usize = 9;

/// When a majority has passed the probe, the others have this time.
const PROBE_GRACE: Duration = Duration::from_secs(2);

/// Returns the storage of a database in several buckets, in which the bucket `new` is to take the
/// place of `old`. `url` is the list with `new`.
///
/// # Errors
/// `InvalidArgument` if the list does not name `new`, or names `old`; as [`open_url`].
pub fn open_url_replacing(url: &str, (old, new): (&str, &str), options: Options) -> Result<ObjectStorage> {
    let urls = ObjectUrl::split(url);
    let mut names = Vec::new();
    for url in &urls {
        names.push(ObjectUrl::parse(url)?.to_string());
    }
    let replace = (ObjectUrl::parse(old)?.to_string(), ObjectUrl::parse(new)?.to_string());
    let wrong = if replace.0 == replace.1 {
        Some(
            "a bucket takes the place of another one; one that was emptied is filled without a replacement"
                .into(),
        )
    } else if !names.contains(&replace.1) {
        Some(format!("the list of buckets does not name {}, which is to be one of them", replace.1))
    } else if names.contains(&replace.0) {
        Some(format!("the list of buckets names {}, which is to be replaced", replace.0))
    } else {
        None
    };
    match wrong {
        Some(what) => Err(Error::invalid(what).with_advice("name the buckets as they are to be")),
        None => open_several(&urls, Some(&replace), false, options, None),
    }
}

/// Returns the storage of a database in several buckets.
fn open_several(
    urls: &[&str],
    replace: Option<&(String, String)>,
    read_only: bool,
    options: Options,
    reads: Option<Duration>,
) -> Result<ObjectStorage> {
    let mut stores: Vec<(String, Arc<dyn ObjectStore>)> = Vec::new();
    if urls.len() > BUCKETS_MAX {
        let what = format!("{} buckets are named; a database has at most {BUCKETS_MAX}", urls.len());
        return Err(Error::invalid(what).with_advice("name three or five buckets"));
    }
    for url in urls {
        let parsed = ObjectUrl::parse(url)?;
        if parsed.rest.is_some() {
            let what = "a zonal bucket cannot be one of several buckets of a database";
            return Err(Error::invalid(what).with_advice("name regional buckets, without `?rest=`"));
        }
        let name = parsed.to_string();
        if stores.iter().any(|(other, _)| *other == name) {
            let what = format!("the list of buckets names {name} twice");
            return Err(Error::invalid(what).with_advice("name each bucket once"));
        }
        let store = connect_within(url, reads)?;
        if store.facts().streams {
            let what = format!("{name} is a zonal bucket, which cannot be one of several");
            return Err(Error::new(ErrorKind::Unsupported, what)
                .with_advice("use one zonal bucket alone, or several other ones"));
        }
        stores.push((name, store));
    }
    if read_only {
        refuse_zonal(&stores)?;
    } else {
        probe_majority(&stores)?;
    }
    Ok(ObjectStorage::several(stores, replace, options, !read_only))
}

/// Probes all stores at the same time. Fails if one of them breaks a promise, or if a majority does
/// not answer; what answers later is used without a probe, as a store that was away.
fn probe_majority(stores: &[(String, Arc<dyn ObjectStore>)]) -> Result<()> {
    let (send, receive) = mpsc::channel();
    for (url, store) in stores {
        let (url, store, send) = (url.clone(), store.clone(), send.clone());
        let probe = move || {
            let probed = probe_to_open(&*store).map(|_| ());
            // The caller may have all that it needs.
            let _ = send.send(probed.map_err(|error| explain(&url, error, true)));
        };
        thread::spawn("quench-probe", probe)
            .map_err(|error| Error::io("no thread to probe a bucket", error))?;
    }
    drop(send);
    let (mut passed, mut failure) = (0, None);
    loop {
        let is_enough = passed > stores.len() / 2;
        let result = match is_enough {
            true => receive.recv_timeout(PROBE_GRACE).ok(),
            false => receive.recv().ok(),
        };
        match result {
            Some(Ok(())) => passed += 1,
            Some(Err(error)) if error.kind() == ErrorKind::Io => failure = Some(error),
            Some(Err(error)) => return Err(error),
            None if is_enough => return Ok(()),
            None => {
                let error = failure.unwrap_or_else(|| Error::new(ErrorKind::Io, "no bucket answers"));
                let what = "too few buckets can be reached: a majority is needed";
                return Err(Error::after(ErrorKind::Io, what, &error));
            }
        }
    }
}
