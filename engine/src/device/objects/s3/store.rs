//! The store: what it can do, and how its client is made.

use super::super::client::{Client, Connect, Effort};
use super::super::request::Request;
use super::super::store::{Done, ObjectStore, StoreFacts};
use super::super::url::ObjectUrl;
use super::connection::{connect, is_directory_bucket};
use super::operations::Operations;
use super::options::S3Options;
use crate::base::Result;

/// An object takes so many parts, its creation included.
const PARTS_MAX: u64 = 10_000;

/// A store of objects behind Amazon's S3 protocol: Amazon S3, S3 Express One Zone, or a server that
/// speaks it.
#[derive(Debug)]
pub struct S3Store(Client<Operations>);

impl S3Store {
    /// Returns the store that `url` names. Sends nothing to it: [`probe`](super::super::probe) says
    /// whether it is there and what it does.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidArgument`](crate::base::ErrorKind::InvalidArgument): the URL, the
    ///   endpoint, the region or the credentials.
    /// - [`ErrorKind::Io`](crate::base::ErrorKind::Io): the system refuses a thread, or the
    ///   settings cannot be found in time.
    pub fn connect(url: &ObjectUrl, options: &S3Options) -> Result<S3Store> {
        let appends = is_directory_bucket(&url.bucket);
        let parts_max = if appends { PARTS_MAX } else { 1 };
        let facts = StoreFacts {
            name: url.to_string(),
            endpoint: String::new(),
            appends,
            parts_max,
            appends_check_version: appends,
            streams: false,
        };
        let effort = Effort {
            attempt_timeout: options.attempt_timeout,
            read_deadline: options.read_deadline,
            threads: options.threads,
        };
        let (url, options) = (url.clone(), options.clone());
        let connect: Connect<Operations> = Box::new(move || {
            let (url, options) = (url.clone(), options.clone());
            Box::pin(async move { connect(&url, &options).await })
        });
        Client::connect(facts, effort, "set AWS_REGION", connect).map(S3Store)
    }
}

impl ObjectStore for S3Store {
    fn start(&self, request: Request, done: Done) {
        self.0.start(request, done);
    }

    fn facts(&self) -> StoreFacts {
        self.0.facts()
    }
}

#[cfg(test)]
mod tests;
