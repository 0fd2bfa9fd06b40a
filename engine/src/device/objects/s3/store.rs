//! The store: a runtime of its own, reads that are sent again, writes that are not.

use super::super::request::{Failure, FailureKind, Listed, Reply, Request, RequestKind};
use super::super::store::{Done, ObjectStore, Outcome, StoreFacts};
use super::super::url::ObjectUrl;
use super::connection::{connect, is_directory_bucket};
use super::operations::Operations;
use super::options::S3Options;
use crate::base::random::Random;
use crate::base::{Error, ErrorKind, Result};
use crate::sync::Mutex;
use std::fmt;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// Time to find credentials, region and endpoint.
const CONNECT_MAX: Duration = Duration::from_secs(30);

/// A longer range is meant to have no end, and says nothing about the time of its transfer.
const RANGE_MAX: u64 = 64 << 20;

/// An object takes so many parts, its creation included.
const PARTS_MAX: u64 = 10_000;

/// Pauses before a read is sent again: at first, and at most. Each is shortened at random by up to
/// its half.
const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// A store of objects behind Amazon's S3 protocol: Amazon S3, S3 Express One Zone, or a server that
/// speaks it.
pub struct S3Store {
    facts: StoreFacts,
    client: Arc<Requests>,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

impl S3Store {
    /// Returns the store that `url` names. Sends nothing to it: [`probe`](super::super::probe) says
    /// whether it is there and what it does.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidArgument`]: the URL, the endpoint, the region or the credentials.
    /// - [`ErrorKind::Io`]: the system refuses a thread, or the settings cannot be found in time.
    pub fn connect(url: &ObjectUrl, options: &S3Options) -> Result<S3Store> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(options.threads.max(1))
            .thread_name("quench-s3")
            .enable_all()
            .build()
            .map_err(|error| Error::io("cannot start the threads of the S3 client", error))?;
        // Not `block_on`: the caller may be a thread of another runtime.
        let (send, receive) = mpsc::channel();
        let asked = (url.clone(), options.clone());
        runtime.spawn(async move {
            // The caller may have given up.
            let _ = send.send(connect(&asked.0, &asked.1).await);
        });
        let connected = receive.recv_timeout(CONNECT_MAX);
        let name = url.to_string();
        let operations = match connected {
            Ok(Ok(operations)) => operations,
            other => {
                runtime.shutdown_background();
                return Err(match other {
                    Ok(Err(error)) => error,
                    _ => Error::new(
                        ErrorKind::Io,
                        format!("credentials and region for {name} cannot be found in time; set AWS_REGION"),
                    ),
                });
            }
        };
        let appends = is_directory_bucket(&url.bucket);
        let parts_max = if appends { PARTS_MAX } else { 1 };
        let facts = StoreFacts { name, appends, parts_max, appends_check_version: appends };
        let client = Requests {
            operations,
            attempt_timeout: options.attempt_timeout,
            read_deadline: options.read_deadline,
            random: Mutex::new(Random::from_entropy()),
        };
        Ok(S3Store { facts, client: Arc::new(client), runtime: Some(runtime) })
    }
}

impl fmt::Debug for S3Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Store").field("facts", &self.facts).finish_non_exhaustive()
    }
}

impl ObjectStore for S3Store {
    fn start(&self, request: Request, done: Done) {
        let client = self.client.clone();
        let mut ended =
            Ended { done: Some(done), about: (request.kind(), request.name().to_string()), client };
        let Some(runtime) = &self.runtime else { return };
        runtime.spawn(async move {
            let outcome = ended.client.run(&request).await;
            ended.call(outcome);
        });
    }

    fn facts(&self) -> StoreFacts {
        self.facts.clone()
    }
}

impl Drop for S3Store {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Does not wait, so a thread of any runtime may drop the store.
            runtime.shutdown_background();
        }
    }
}

/// Calls `done` exactly once, also if the runtime ends before the request.
struct Ended {
    done: Option<Done>,
    about: (RequestKind, String),
    client: Arc<Requests>,
}

impl Ended {
    fn call(&mut self, outcome: Outcome) {
        if let Some(done) = self.done.take() {
            done(outcome);
        }
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let why = "the client was closed before the answer";
        let failure =
            self.client.operations.place.say(FailureKind::Unknown, self.about.0, &self.about.1, why);
        self.call(Err(failure));
    }
}

/// Sends requests, reads again and again.
struct Requests {
    operations: Operations,
    attempt_timeout: Duration,
    read_deadline: Duration,
    random: Mutex<Random>,
}

impl Requests {
    async fn run(&self, request: &Request) -> Outcome {
        let (kind, name) = (request.kind(), request.name());
        match request {
            Request::Put { .. } | Request::Append { .. } | Request::Delete { .. } => {
                self.attempt(kind, name, self.time_for(request), self.operations.once(request)).await
            }
            Request::Get { .. } | Request::Head { .. } => {
                self.again(kind, name, self.time_for(request), || self.operations.once(request)).await
            }
            Request::List { prefix } => self.list(prefix).await,
        }
    }

    /// Returns the time of one attempt.
    fn time_for(&self, request: &Request) -> Duration {
        let bytes = match request {
            Request::Put { body, .. } | Request::Append { body, .. } => body.len() as u64,
            Request::Get { range: Some(range), .. } => range.end.saturating_sub(range.start),
            _ => 0,
        };
        self.attempt_timeout + Duration::from_secs(if bytes > RANGE_MAX { 0 } else { bytes >> 20 })
    }

    async fn list(&self, prefix: &str) -> Outcome {
        let mut listed: Vec<Listed> = Vec::new();
        let mut after = None;
        loop {
            let page = || self.operations.page(prefix, after.clone());
            let page = self.again(RequestKind::List, prefix, self.attempt_timeout, page).await?;
            listed.extend(page.listed);
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        // Directory buckets list in no order.
        listed.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        listed.dedup_by(|a, b| a.name == b.name);
        Ok(Reply { listed, ..Reply::default() })
    }

    /// Tries until an attempt succeeds, fails for good, or the deadline has passed. Returns the
    /// last failure.
    async fn again<T, F>(
        &self,
        kind: RequestKind,
        name: &str,
        within: Duration,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let deadline = Instant::now() + self.read_deadline;
        let mut pause = PAUSE_FIRST;
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            let failure = match self.attempt(kind, name, within.min(remaining), attempt()).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            let passes = failure.kind.is_ambiguous() || failure.kind == FailureKind::Again;
            if !passes || Instant::now() + pause >= deadline {
                return Err(failure);
            }
            let half = pause.as_micros() as u64 / 2;
            let shorter = Duration::from_micros(half + self.random.lock().below(half + 1));
            tokio::time::sleep(shorter).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn attempt<T>(
        &self,
        kind: RequestKind,
        name: &str,
        within: Duration,
        attempt: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(within, attempt).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let why = format!("no answer within {within:?}");
                Err(self.operations.place.say(FailureKind::Unknown, kind, name, &why))
            }
        }
    }
}

#[cfg(test)]
mod tests;
