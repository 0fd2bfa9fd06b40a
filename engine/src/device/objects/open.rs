//! From a URL to a storage.

use super::directory::DirectoryStore;
use super::options::Options;
use super::probe::probe;
#[cfg(feature = "s3")]
use super::s3::{S3Options, S3Store};
use super::storage::ObjectStorage;
use super::store::ObjectStore;
use super::url::{ObjectUrl, Scheme};
use crate::base::{Error, ErrorKind, Result};
use std::path::Path;
use std::sync::Arc;

/// Connects to the store that a URL names.
///
/// # Errors
/// `InvalidArgument` for a wrong URL; `Unsupported` if this build has no client for the store; I/O.
pub fn connect(url: &str) -> Result<Arc<dyn ObjectStore>> {
    let url = ObjectUrl::parse(url)?;
    match url.scheme {
        Scheme::File => Ok(Arc::new(DirectoryStore::open(&Path::new("/").join(&url.prefix))?)),
        #[cfg(feature = "s3")]
        Scheme::S3 => Ok(Arc::new(S3Store::connect(&url, &S3Options::default())?)),
        _ => {
            let what = format!("this build has no client for {}://", url.scheme.name());
            Err(Error::new(ErrorKind::Unsupported, what))
        }
    }
}

/// Returns the storage of the database that a URL names. Unless it is opened for reading, probes
/// the store first, so that a server that ignores an offset or a condition is refused.
///
/// # Errors
/// As [`connect`] and [`probe`].
pub fn open_url(url: &str, read_only: bool, options: Options) -> Result<ObjectStorage> {
    let store = connect(url)?;
    let facts = if read_only { store.facts() } else { probe(&*store)? };
    Ok(ObjectStorage::new(store, facts, options))
}
