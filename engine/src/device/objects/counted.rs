//! A store that counts the requests of one database, and judges refusals.

use super::access::Access;
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
    access: Arc<Access>,
}

impl CountedStore {
    /// Returns a store whose requests count in `requests`. `is_probed` says that it is known to
    /// accept all kinds of requests.
    pub(super) fn new(
        inner: Arc<dyn ObjectStore>,
        requests: Arc<Mutex<ObjectRequests>>,
        is_probed: bool,
    ) -> CountedStore {
        let access = Arc::new(Access::new(&inner.facts().name, is_probed));
        CountedStore { inner, requests, access }
    }
}

impl ObjectStore for CountedStore {
    fn start(&self, request: Request, done: Done) {
        let kind = request.kind();
        {
            let mut requests = self.requests.lock();
            let of_kind = match kind {
                // A store bills an open and an end as a creation.
                RequestKind::Put | RequestKind::Open | RequestKind::Finalize => &mut requests.puts,
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
        let (requests, access) = (self.requests.clone(), self.access.clone());
        let counted: Done = Box::new(move |outcome| {
            let outcome = access.judge(kind, outcome);
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
