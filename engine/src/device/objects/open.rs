//! From a URL to a storage.

#[cfg(any(feature = "azure", feature = "gcs"))]
use super::cloud::{CloudOptions, CloudStore};
use super::directory::DirectoryStore;
use super::options::Options;
use super::probe::probe_to_open;
#[cfg(feature = "s3")]
use super::s3::{S3Options, S3Store};
use super::storage::ObjectStorage;
use super::store::ObjectStore;
use super::url::{ObjectUrl, Scheme};
use crate::base::Result;
#[cfg(not(all(feature = "s3", feature = "azure", feature = "gcs")))]
use crate::base::{Error, ErrorKind};
use std::path::Path;
use std::sync::Arc;
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
    let url = ObjectUrl::parse(url)?;
    match url.scheme {
        Scheme::File => Ok(Arc::new(DirectoryStore::open(&Path::new("/").join(&url.prefix))?)),
        #[cfg(feature = "s3")]
        Scheme::S3 => {
            let mut options = S3Options::default();
            options.read_deadline = reads.unwrap_or(options.read_deadline);
            Ok(Arc::new(S3Store::connect(&url, &options)?))
        }
        #[cfg(feature = "azure")]
        Scheme::Azure => cloud(&url, reads),
        #[cfg(feature = "gcs")]
        Scheme::Google => cloud(&url, reads),
        #[cfg(not(all(feature = "s3", feature = "azure", feature = "gcs")))]
        _ => {
            let _ = reads;
            let name = url.scheme.name();
            let what = format!("this build has no client for {name}://: compile it with a feature that has");
            Err(Error::new(ErrorKind::Unsupported, what))
        }
    }
}

#[cfg(any(feature = "azure", feature = "gcs"))]
fn cloud(url: &ObjectUrl, reads: Option<Duration>) -> Result<Arc<dyn ObjectStore>> {
    let mut options = CloudOptions::default();
    options.read_deadline = reads.unwrap_or(options.read_deadline);
    Ok(Arc::new(CloudStore::connect(url, &options)?))
}

/// Returns the storage of the database that a URL names. Unless it is opened for reading, probes
/// the store first, so that a server that ignores an offset or a condition is refused.
///
/// # Errors
/// As [`connect`] and [`probe_to_open`].
pub fn open_url(url: &str, read_only: bool, options: Options) -> Result<ObjectStorage> {
    let store = connect(url)?;
    if read_only {
        let facts = store.facts();
        return Ok(ObjectStorage::unprobed(store, facts, options));
    }
    let facts = probe_to_open(&*store)?;
    Ok(ObjectStorage::new(store, facts, options))
}

/// Returns the storage of the database that a URL names, for people that look at it: it is only
/// read, and a store that does not answer is given up after `most`.
///
/// # Errors
/// As [`connect`].
pub fn open_url_to_look(url: &str, most: Duration) -> Result<ObjectStorage> {
    // A read that the client has given up is sent once more.
    let store = connect_within(url, Some(most / 2))?;
    let facts = store.facts();
    Ok(ObjectStorage::unprobed(store, facts, Options { patience: most, ..Options::default() }))
}
