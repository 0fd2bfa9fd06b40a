//! Stores behind Azure's and Google's own protocols, through Apache's client `object_store`.
//!
//! The client finds credentials and endpoint by each provider's standard variables. Its own retries
//! are off, because a second copy of a put or an append is the caller's decision. It knows no
//! append blobs of Azure: those requests are in `azure`, signed by it.

mod options;
mod failure;
mod connector;
#[cfg(feature = "azure")]
mod azure;
#[cfg(feature = "gcs")]
mod google;
mod operations;
mod store;

pub use options::CloudOptions;
pub use store::CloudStore;
