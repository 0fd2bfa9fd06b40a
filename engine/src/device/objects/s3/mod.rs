//! A store of objects behind Amazon's S3 protocol.
//!
//! The SDK finds credentials, region and endpoint by its standard chain and signs requests. Its own
//! retries are off, because a second copy of a put or an append is the caller's decision.

mod options;
mod failure;
mod operations;
mod connection;
mod store;

#[cfg(feature = "internals")]
pub use options::S3Credentials;
pub use options::S3Options;
pub use store::S3Store;
