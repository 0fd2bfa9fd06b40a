//! The store: what it can do, and how its client is made.

use super::super::client::{Client, Connect, Place};
use super::super::request::Request;
use super::super::store::{Done, ObjectStore, StoreFacts};
use super::super::url::{ObjectUrl, Scheme};
#[cfg(feature = "azure")]
use super::azure::Azure;
use super::connector::Connector;
use super::failure::wrong_settings;
#[cfg(feature = "gcs")]
use super::google::Google;
use super::operations::{Operations, Provider};
use super::options::CloudOptions;
use crate::base::{Error, Result};
use object_store::path::Path;

/// An append blob takes so many appends.
const PARTS_MAX: u64 = 50_000;

/// A store of objects of Azure or Google.
#[derive(Debug)]
pub struct CloudStore(Client<Operations>);

impl CloudStore {
    /// Returns the store that `url` names. Sends nothing to it: [`probe`](super::super::probe) says
    /// whether it is there and what it does.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidArgument`](crate::base::ErrorKind::InvalidArgument): the URL, the
    ///   settings or the credentials.
    /// - [`ErrorKind::Io`](crate::base::ErrorKind::Io): the system refuses a thread, or the
    ///   credentials cannot be found in time.
    pub fn connect(url: &ObjectUrl, options: &CloudOptions) -> Result<CloudStore> {
        let appends = url.scheme == Scheme::Azure;
        let parts_max = if appends { PARTS_MAX } else { 1 };
        let facts = StoreFacts {
            name: url.to_string(),
            endpoint: String::new(),
            appends,
            parts_max,
            appends_check_version: appends,
            streams: false,
        };
        let effort = options.effort();
        let advice = match url.scheme {
            Scheme::Azure => "set AZURE_STORAGE_ACCOUNT_KEY, or give the machine an identity",
            _ => "set GOOGLE_APPLICATION_CREDENTIALS, or give the machine a service account",
        };
        let (url, options) = (url.clone(), options.clone());
        let connect: Connect<Operations> = Box::new(move || {
            let (url, options) = (url.clone(), options.clone());
            Box::pin(async move {
                let (provider, endpoint) = connect(&url, &options)?;
                provider.find_credentials().await.map_err(|error| wrong_settings(&url, &error, advice))?;
                let place = Place { bucket: url.bucket.clone(), endpoint };
                let encoded = Path::from(&*url.prefix);
                let prefix = if url.prefix.is_empty() { String::new() } else { format!("{encoded}/") };
                Ok(Operations { provider, place, prefix })
            })
        });
        Client::connect(facts, effort, advice, connect).map(CloudStore)
    }
}

impl ObjectStore for CloudStore {
    fn start(&self, request: Request, done: Done) {
        self.0.start(request, done);
    }

    fn facts(&self) -> StoreFacts {
        self.0.facts()
    }
}

/// Returns the provider's store and its server.
fn connect(url: &ObjectUrl, options: &CloudOptions) -> Result<(Provider, String)> {
    let connector = Connector::new(options)?;
    match url.scheme {
        #[cfg(feature = "azure")]
        Scheme::Azure => {
            let azure = Azure::new(url, options, connector)?;
            let endpoint = azure.endpoint.clone();
            Ok((Provider::Azure(azure), endpoint))
        }
        #[cfg(feature = "gcs")]
        Scheme::Google => {
            let google = Google::new(url, options, connector)?;
            let endpoint = google.endpoint.clone();
            Ok((Provider::Google(google), endpoint))
        }
        _ => Err(Error::invalid(format!("{url} names no store of this client: write az:// or gs://"))),
    }
}

#[cfg(test)]
mod tests;
