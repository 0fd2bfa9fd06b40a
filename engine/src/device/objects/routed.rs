//! Two stores for one database: the log in one of them, everything else in the other.
//!
//! | names | store |
//! |---|---|
//! | `log/…`, and `probe/log-…` of a probe | the log's |
//! | all others | the other |
//!
//! A list joins both. The manifest is in the other store, so a database is there when that store
//! says so, and a claim needs no promise of the log's store.

use super::request::{Listed, Reply, Request};
use super::store::{Done, ObjectStore, Outcome, StoreFacts};
use crate::sync::Mutex;
use std::sync::Arc;

/// The beginning of names that a probe uses in the log's store.
pub(super) const PROBED: &str = "probe/log-";

/// See the module's text.
#[derive(Debug)]
pub struct RoutedStore {
    log: Arc<dyn ObjectStore>,
    rest: Arc<dyn ObjectStore>,
}

/// The parts of a list that joins both stores.
struct Joined {
    listed: Vec<Listed>,
    done: Option<Done>,
    left: usize,
}

impl Joined {
    /// Takes one part. Returns what is to be called, after the last part or a failure.
    fn take(&mut self, outcome: Outcome) -> Option<(Done, Outcome)> {
        self.left -= 1;
        match outcome {
            Err(failure) => Some((self.done.take()?, Err(failure))),
            Ok(reply) => {
                self.listed.extend(reply.listed);
                if self.left > 0 {
                    return None;
                }
                let mut listed = std::mem::take(&mut self.listed);
                listed.sort_unstable_by(|a, b| a.name.cmp(&b.name));
                Some((self.done.take()?, Ok(Reply { listed, ..Reply::default() })))
            }
        }
    }
}

impl RoutedStore {
    /// Returns a store that sends the log to `log` and everything else to `rest`.
    #[must_use]
    pub fn new(log: Arc<dyn ObjectStore>, rest: Arc<dyn ObjectStore>) -> RoutedStore {
        RoutedStore { log, rest }
    }

    fn is_of_log(name: &str) -> bool {
        name.starts_with("log/") || name.starts_with(PROBED)
    }

    fn list_both(&self, prefix: &str, done: Done) {
        let joined = Joined { listed: Vec::new(), done: Some(done), left: 2 };
        let joined = Arc::new(Mutex::new(joined));
        for store in [&self.log, &self.rest] {
            let joined = joined.clone();
            let part = move |outcome| {
                let ended = joined.lock().take(outcome);
                if let Some((done, outcome)) = ended {
                    done(outcome);
                }
            };
            store.start(Request::List { prefix: prefix.to_string() }, Box::new(part));
        }
    }
}

impl ObjectStore for RoutedStore {
    fn start(&self, request: Request, done: Done) {
        match &request {
            Request::List { prefix } if "log/".starts_with(&prefix[..]) || prefix == "probe/" => {
                self.list_both(prefix, done);
            }
            _ if RoutedStore::is_of_log(request.name()) => self.log.start(request, done),
            _ => self.rest.start(request, done),
        }
    }

    fn facts(&self) -> StoreFacts {
        let rest = self.rest.facts();
        let name = format!("{}?rest={}", self.log.facts().name, rest.name);
        StoreFacts { name, endpoint: rest.endpoint, ..self.log.facts() }
    }

    fn another(&self) -> Option<Arc<dyn ObjectStore>> {
        Some(Arc::new(RoutedStore { log: self.log.another()?, rest: self.rest.clone() }))
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
