//! A store that counts the requests of one database.

use super::request::{FailureKind, Request, RequestKind};
use super::store::{Done, ObjectStore, StoreFacts};
use crate::device::ObjectRequests;
use crate::sync::Mutex;
use std::sync::Arc;

/// See the module's text.
#[derive(Debug)]
pub(super) struct CountedStore {
    inner: Arc<dyn ObjectStore>,
    requests: Arc<Mutex<ObjectRequests>>,
}

impl CountedStore {
    /// Returns a store whose requests count in `requests`.
    pub(super) fn new(inner: Arc<dyn ObjectStore>, requests: Arc<Mutex<ObjectRequests>>) -> CountedStore {
        CountedStore { inner, requests }
    }
}

impl ObjectStore for CountedStore {
    fn start(&self, request: Request, done: Done) {
        {
            let mut requests = self.requests.lock();
            let of_kind = match request.kind() {
                RequestKind::Put => &mut requests.puts,
                RequestKind::Append => &mut requests.appends,
                RequestKind::Get => &mut requests.gets,
                RequestKind::Head => &mut requests.heads,
                RequestKind::List => &mut requests.lists,
                RequestKind::Delete => &mut requests.deletes,
            };
            *of_kind += 1;
            if let Request::Put { body, .. } | Request::Create { body, .. } | Request::Append { body, .. } =
                &request
            {
                requests.sent_bytes += body.len() as u64;
            }
        }
        let requests = self.requests.clone();
        let counted: Done = Box::new(move |outcome| {
            let kind = outcome.as_ref().err().map(|failure| failure.kind);
            let received = outcome.as_ref().map_or(0, |reply| reply.body.len() as u64);
            {
                let mut requests = requests.lock();
                requests.received_bytes += received;
                requests.throttled += u64::from(kind == Some(FailureKind::Throttled));
                requests.unknown += u64::from(kind == Some(FailureKind::Unknown));
            }
            done(outcome);
        });
        self.inner.start(request, counted);
    }

    fn facts(&self) -> StoreFacts {
        self.inner.facts()
    }
}
