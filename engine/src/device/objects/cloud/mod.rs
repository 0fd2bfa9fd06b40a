//! Stores behind Azure's and Google's own protocols, through Apache's client `object_store`.
//!
//! The client finds credentials and endpoint by each provider's standard variables. Its own retries
//! are off, because a second copy of a put or an append is the caller's decision. It knows no
//! append blobs of Azure: those requests are in `azure`, signed by it. Of Google's client only the
//! search for credentials is used: it speaks an interface that Google's emulators do not have.

mod options;
mod failure;
mod connector;
#[cfg(feature = "azure")]
mod azure;
#[cfg(feature = "azure")]
mod azure_objects;
#[cfg(feature = "gcs")]
mod google;
mod operations;
mod store;

#[cfg(feature = "gcs-rapid")]
pub(super) use connector::Connector;
#[cfg(feature = "gcs-rapid")]
pub(super) use google::Google;
pub use options::CloudOptions;
pub use store::CloudStore;
