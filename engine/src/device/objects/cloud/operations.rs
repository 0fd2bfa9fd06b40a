//! One attempt of each request, with the client's types on one side and ours on the other.

use super::super::client::{Page, Place, Protocol};
#[cfg(feature = "gcs")]
use super::super::request::Condition;
use super::super::request::{Failure, FailureKind, Listed, Reply, Request, RequestKind};
use super::super::store::Outcome;
#[cfg(feature = "azure")]
use super::azure::Azure;
use super::failure::failure;
#[cfg(feature = "gcs")]
use super::google::Google;

/// The store of one provider.
pub(super) enum Provider {
    #[cfg(feature = "azure")]
    Azure(Azure),
    #[cfg(feature = "gcs")]
    Google(Google),
}

/// The requests of one database.
pub(super) struct Operations {
    pub provider: Provider,
    pub place: Place,
    /// Empty, or ends with a slash.
    pub prefix: String,
}

impl Protocol for Operations {
    async fn once(&self, request: &Request) -> Outcome {
        self.find_credentials(request.kind(), request.name()).await?;
        match (&self.provider, request) {
            (_, Request::List { prefix }) => {
                let page = self.page(prefix, None).await?;
                Ok(Reply { listed: page.listed, ..Reply::default() })
            }
            #[cfg(feature = "azure")]
            (Provider::Azure(azure), _) => azure.once(&self.place, &self.key(request.name()), request).await,
            #[cfg(feature = "gcs")]
            (Provider::Google(google), _) => self.ask_google(google, request).await,
        }
    }

    async fn page(&self, prefix: &str, after: Option<String>) -> Result<Page, Failure> {
        self.find_credentials(RequestKind::List, prefix).await?;
        let (place, key) = (&self.place, self.key(prefix));
        let page = match &self.provider {
            #[cfg(feature = "azure")]
            Provider::Azure(azure) => azure.page(place, prefix, &key, after).await?,
            #[cfg(feature = "gcs")]
            Provider::Google(google) => google.page(place, prefix, &key, after.as_deref()).await?,
        };
        let mut listed = Vec::with_capacity(page.listed.len());
        for object in page.listed {
            let name = object.name.strip_prefix(&self.prefix);
            let name = name.filter(|name| name.starts_with(prefix)).ok_or_else(|| {
                let why = "the server ignores the prefix of a list; use another store";
                self.place.say(FailureKind::Denied, RequestKind::List, prefix, why)
            })?;
            listed.push(Listed { name: name.into(), len: object.len });
        }
        Ok(Page { listed, next: page.next.filter(|token| !token.is_empty()) })
    }

    fn place(&self) -> &Place {
        &self.place
    }
}

impl Provider {
    /// Looks for credentials, or finds those of before that are still valid.
    pub async fn find_credentials(&self) -> object_store::Result<()> {
        match self {
            #[cfg(feature = "azure")]
            Provider::Azure(azure) if !azure.is_open => {
                azure.store.credentials().get_credential().await.map(drop)
            }
            #[cfg(feature = "gcs")]
            Provider::Google(google) if !google.is_open => {
                google.store.credentials().get_credential().await.map(drop)
            }
            _ => Ok(()),
        }
    }
}

impl Operations {
    /// # Errors
    /// There are none at the moment. Nothing was sent.
    async fn find_credentials(&self, kind: RequestKind, name: &str) -> Result<(), Failure> {
        self.provider.find_credentials().await.map_err(|error| {
            let failure = failure(&self.place, kind, name, &error);
            Failure {
                kind: FailureKind::Again,
                what: format!("{}, while looking for credentials", failure.what),
            }
        })
    }

    /// Returns an object's key. The prefix is encoded already, and the engine's own names need no
    /// encoding.
    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    #[cfg(feature = "gcs")]
    async fn ask_google(&self, google: &Google, request: &Request) -> Outcome {
        let (place, name) = (&self.place, request.name());
        let key = self.key(name);
        match request {
            Request::Put { body, condition, .. } => google.put(place, name, &key, body, condition).await,
            Request::Create { body, .. } => google.put(place, name, &key, body, &Condition::Absent).await,
            Request::Get { range, .. } => google.get(place, name, &key, range.clone()).await,
            Request::Head { .. } => google.head(place, RequestKind::Head, name, &key).await,
            Request::Delete { .. } => google.delete(place, name, &key).await,
            Request::Append { .. }
            | Request::Open { .. }
            | Request::Finalize { .. }
            | Request::List { .. } => {
                let why = "objects of Google's store take no appends";
                Err(place.say(FailureKind::Denied, request.kind(), name, why))
            }
        }
    }
}
