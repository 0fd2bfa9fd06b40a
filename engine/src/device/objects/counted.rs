//! A store that counts the requests of one database.

use super::request::{FailureKind, Request, RequestKind};
use super::store::{Done, ObjectStore, StoreFacts};
use crate::base::metrics::Counter;
use crate::device::ObjectRequests;
use std::sync::Arc;

#[derive(Debug, Default)]
struct Counters {
    puts: Counter,
    appends: Counter,
    gets: Counter,
    heads: Counter,
    lists: Counter,
    deletes: Counter,
    sent_bytes: Counter,
    received_bytes: Counter,
    throttled: Counter,
    unknown: Counter,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct CountedStore {
    inner: Arc<dyn ObjectStore>,
    counters: Arc<Counters>,
}

impl CountedStore {
    pub(super) fn new(inner: Arc<dyn ObjectStore>) -> Arc<CountedStore> {
        Arc::new(CountedStore { inner, counters: Arc::default() })
    }

    pub(super) fn requests(&self) -> ObjectRequests {
        let counters = &*self.counters;
        ObjectRequests {
            puts: counters.puts.get(),
            appends: counters.appends.get(),
            gets: counters.gets.get(),
            heads: counters.heads.get(),
            lists: counters.lists.get(),
            deletes: counters.deletes.get(),
            sent_bytes: counters.sent_bytes.get(),
            received_bytes: counters.received_bytes.get(),
            throttled: counters.throttled.get(),
            unknown: counters.unknown.get(),
        }
    }
}

impl ObjectStore for CountedStore {
    fn start(&self, request: Request, done: Done) {
        let counters = self.counters.clone();
        let of_kind = match request.kind() {
            RequestKind::Put => &counters.puts,
            RequestKind::Append => &counters.appends,
            RequestKind::Get => &counters.gets,
            RequestKind::Head => &counters.heads,
            RequestKind::List => &counters.lists,
            RequestKind::Delete => &counters.deletes,
        };
        of_kind.add(1);
        if let Request::Put { body, .. } | Request::Append { body, .. } = &request {
            counters.sent_bytes.add(body.len() as u64);
        }
        let counted: Done = Box::new(move |outcome| {
            match &outcome {
                Ok(reply) => counters.received_bytes.add(reply.body.len() as u64),
                Err(failure) => match failure.kind {
                    FailureKind::Throttled => counters.throttled.add(1),
                    FailureKind::Unknown => counters.unknown.add(1),
                    _ => {}
                },
            }
            done(outcome);
        });
        self.inner.start(request, counted);
    }

    fn facts(&self) -> StoreFacts {
        self.inner.facts()
    }
}
