//! A database in a store of objects: log, pages and manifest without a disk.
//!
//! Everything above sees a [`Storage`](super::Storage) as for a directory. Below it stands one
//! trait, [`ObjectStore`], with requests that take effect as a whole, possibly late, or never.

mod request;
mod store;
mod url;
mod probe;

pub use probe::probe;
pub use request::{Condition, Failure, FailureKind, Listed, Reply, Request, RequestKind, Version};
pub use store::{Done, ObjectStore, Outcome, StoreFacts, perform};
pub use url::{ObjectUrl, Scheme};
