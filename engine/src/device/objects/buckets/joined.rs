//! Several buckets as one store: immutable objects in a majority, reads from whichever has them.

use super::super::body::MANIFEST_NAME;
use super::super::request::{Condition, Failure, FailureKind, Request};
use super::super::store::{Done, ObjectStore, StoreFacts};
use super::delays::Delays;
use super::reads;
use super::set::BucketSet;
use std::ops::Deref;
use std::sync::Arc;

/// See the module's text. Clones share the buckets.
#[derive(Clone, Debug)]
pub struct Buckets {
    set: BucketSet,
    delays: Arc<Delays>,
}

impl Buckets {
    /// Joins buckets.
    #[must_use]
    pub fn new(set: BucketSet) -> Buckets {
        Buckets { set, delays: Arc::new(Delays::new()) }
    }
}

impl Deref for Buckets {
    type Target = BucketSet;

    fn deref(&self) -> &BucketSet {
        &self.set
    }
}

impl ObjectStore for Buckets {
    fn start(&self, request: Request, done: Done) {
        match &request {
            Request::Get { name, range } if name == MANIFEST_NAME => self.set.look(range.clone(), done),
            Request::Get { .. } | Request::Head { .. } => {
                reads::read(&self.set, &self.delays, request, done);
            }
            Request::Put { name, body, condition: Condition::Always } if name != MANIFEST_NAME => {
                let bytes = body.len() as u64;
                self.set.put(&request, bytes, done);
            }
            Request::List { .. } => self.set.list(&request, done),
            Request::Delete { .. } => self.set.delete(&request, done),
            Request::Put { .. }
            | Request::Create { .. }
            | Request::Append { .. }
            | Request::Open { .. }
            | Request::Finalize { .. } => {
                let what = "several buckets take no conditional puts together".into();
                done(Err(Failure { kind: FailureKind::Denied, what }));
            }
        }
    }

    /// A block is an object of its own.
    fn facts(&self) -> StoreFacts {
        let names: Vec<&str> = self.all().iter().map(|bucket| &bucket.name[..]).collect();
        StoreFacts {
            name: names.join(","),
            endpoint: String::new(),
            appends: false,
            parts_max: 0,
            appends_check_version: false,
            streams: false,
        }
    }
}
