//! A client of a store: a runtime of its own, reads that are sent again, writes that are not, and
//! new credentials after a refusal.
//!
//! Nothing asynchronous shows above it. What a protocol adds is one attempt of each request.

use super::request::{Failure, FailureKind, Listed, Reply, Request, RequestKind};
use super::store::{Done, ObjectStore, Outcome, StoreFacts};
#[cfg(any(feature = "s3", feature = "azure"))]
use crate::base::clock::Clock;
use crate::base::random::Random;
use crate::base::{Error, ErrorKind, Result};
use crate::device::descriptors::take_standard;
use crate::sync::Mutex;
use std::error::Error as StdError;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use std::{fmt, io};
use tokio::runtime::{Builder, Runtime};

/// Time to find credentials and the server.
const CONNECT_MAX: Duration = Duration::from_secs(30);

/// The least time between two times that the settings are read again.
const RENEWAL_PAUSE: Duration = Duration::from_millis(500);

/// A longer range is meant to have no end, and says nothing about the time of its transfer.
const RANGE_MAX: u64 = 64 << 20;

/// Pauses before a read is sent again: at first, and at most. Each is shortened at random by up to
/// its half.
const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Most characters of a message of the store that a failure repeats.
pub(super) const MESSAGE_CHARACTERS_MAX: usize = 200;

/// Where requests go, for people.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub bucket: String,
    /// Without user and password.
    pub endpoint: String,
}

impl Place {
    /// Returns a failure with a sentence that names the request and the store.
    pub fn say(&self, kind: FailureKind, request: RequestKind, name: &str, why: &str) -> Failure {
        let (request, bucket, endpoint) = (request.name(), &self.bucket, &self.endpoint);
        Failure { kind, what: format!("{request} `{name}` in bucket `{bucket}` at {endpoint}: {why}") }
    }
}

/// Returns the beginning of a message that is not ours, on one line.
pub(super) fn shortened(text: &str) -> String {
    let plain = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    plain.take(MESSAGE_CHARACTERS_MAX).collect()
}

/// Returns the innermost cause, on one line.
pub(super) fn root(error: &(dyn StdError + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    shortened(&causes.last().map(ToString::to_string).unwrap_or_default())
}

/// Returns what follows from a cause that proves that nothing was sent, and how to say it.
pub(super) fn not_sent(cause: &(dyn StdError + 'static)) -> Option<(FailureKind, String)> {
    let os = cause.downcast_ref::<io::Error>();
    if os.is_some_and(|os| os.kind() == io::ErrorKind::ConnectionRefused) {
        // Only establishing a connection fails so.
        return Some((FailureKind::Again, "connection refused".into()));
    }
    // Of the encryption's own error, whose type the clients hide.
    let text = cause.to_string();
    let is_untrusted = text.starts_with("invalid peer certificate");
    is_untrusted.then(|| {
        let advice = "name the file of trusted certificates in SSL_CERT_FILE";
        (FailureKind::Denied, format!("{}; {advice}", shortened(&text)))
    })
}

/// What to do if there is no such bucket.
pub(super) const ADVICE_BUCKET: &str = "create the bucket, or correct its name and the endpoint";

/// What to do if the store does not know a request.
pub(super) const ADVICE_REQUEST: &str = "use a store that knows this request and its conditions";

/// What to do if the store refuses everything for a reason that it does not say.
pub(super) const ADVICE_CHECK: &str = "check the bucket, the endpoint and the credentials";

/// Returns what follows from the status of an answer, if no code says more, and what to do if the
/// store refuses everything: `access` if it refuses the credentials.
pub(super) fn classify_status(status: u16, access: &'static str) -> (FailureKind, &'static str) {
    match status {
        401 | 403 | 407 => (FailureKind::Forbidden, access),
        412 => (FailureKind::Refused, ""),
        404 => (FailureKind::Absent, ""),
        409 => (FailureKind::Again, ""),
        429 | 503 => (FailureKind::Throttled, ""),
        501 => (FailureKind::Denied, ADVICE_REQUEST),
        408 | 500.. => (FailureKind::Unknown, ""),
        300.. => (FailureKind::Denied, ADVICE_CHECK),
        _ => (FailureKind::Unknown, ""),
    }
}

/// Returns what a store answered, for people. It may have named no code and no message.
pub(super) fn answer(status: u16, code: &str, message: &str) -> String {
    let text = match code {
        "" => format!("HTTP {status}"),
        code => format!("{} (HTTP {status})", shortened(code)),
    };
    if message.is_empty() { text } else { format!("{text}, {}", shortened(message)) }
}

/// Returns what is known of a request without an answer.
pub(super) fn no_answer(error: &(dyn StdError + 'static)) -> (FailureKind, String) {
    (FailureKind::Unknown, format!("no answer: {}", root(error)))
}

/// Returns how long ago, by the clock of this machine, the second `written` of the calendar was.
#[cfg(any(feature = "s3", feature = "azure"))]
pub(super) fn age_of(written: i64) -> Duration {
    let now = Clock::real().unix_seconds();
    Duration::from_secs(now.saturating_sub(u64::try_from(written).unwrap_or(0)))
}

/// Returns the reply to a read that begins at `start`, which the store puts at the end of the
/// object or behind it. `head` is what a head said afterwards.
///
/// # Errors
/// That of the head; `Again` if the object has grown meanwhile.
pub(super) fn empty_read(place: &Place, name: &str, start: u64, head: Outcome) -> Outcome {
    match head {
        Ok(reply) if reply.len > start => {
            Err(place.say(FailureKind::Again, RequestKind::Get, name, "the object grew while it was read"))
        }
        head => head,
    }
}

/// A part of a list, and how to ask for the next.
pub(super) struct Page {
    pub listed: Vec<Listed>,
    pub next: Option<String>,
}

/// One attempt of each request.
pub(super) trait Protocol: Send + Sync + 'static {
    /// Sends a request once. Lists have [`Protocol::page`].
    fn once(&self, request: &Request) -> impl Future<Output = Outcome> + Send;

    /// Lists the next names below `prefix`, in the store's order.
    fn page(
        &self,
        prefix: &str,
        after: Option<String>,
    ) -> impl Future<Output = std::result::Result<Page, Failure>> + Send;

    /// Returns where requests go.
    fn place(&self) -> &Place;
}

/// Times and threads of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Time of one attempt; an attempt has a second more for each MiB that it transfers. A write
    /// has one attempt.
    pub attempt_timeout: Duration,
    /// For so long a read is sent again after failures that may pass.
    pub read_deadline: Duration,
    /// Threads of the client.
    pub threads: usize,
}

/// Makes a protocol from the settings as they are now.
pub(super) type Connect<P> = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<P>> + Send>> + Send + Sync>;

/// See the module's text.
pub(super) struct Client<P> {
    facts: StoreFacts,
    requests: Arc<Requests<P>>,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

impl<P: Protocol> Client<P> {
    /// Starts the threads and makes the protocol in them. `advice` says what to do if that takes
    /// too long. The protocol is made again after a refusal.
    ///
    /// # Errors
    /// Those of `connect`; [`ErrorKind::Io`]: the system refuses a thread, or the settings
    /// cannot be found in time.
    pub fn connect(
        mut facts: StoreFacts,
        effort: Effort,
        advice: &str,
        connect: Connect<P>,
    ) -> Result<Client<P>> {
        take_standard();
        let runtime = Builder::new_multi_thread()
            .worker_threads(effort.threads.max(1))
            .thread_name("quench-client")
            .enable_all()
            .build()
            .map_err(|error| Error::io(format!("cannot start the threads of {}", facts.name), error))?;
        // Not `block_on`: the caller may be a thread of another runtime.
        let (send, receive) = mpsc::channel();
        let connecting = connect();
        runtime.spawn(async move {
            // The caller may have given up.
            let _ = send.send(connecting.await);
        });
        let protocol = match receive.recv_timeout(CONNECT_MAX) {
            Ok(Ok(protocol)) => protocol,
            other => {
                runtime.shutdown_background();
                return Err(match other {
                    Ok(Err(error)) => error,
                    _ => {
                        let what = format!("credentials for {} cannot be found in time", facts.name);
                        Error::new(ErrorKind::Io, what).with_advice(advice.to_string())
                    }
                });
            }
        };
        facts.endpoint.clone_from(&protocol.place().endpoint);
        let random = Mutex::new(Random::from_entropy());
        let newest = Newest { protocol: Arc::new(protocol), made: Instant::now(), is_refused: false };
        let requests = Arc::new(Requests { newest: Mutex::new(newest), connect, effort, random });
        Ok(Client { facts, requests, runtime: Some(runtime) })
    }
}

#[cfg(all(test, feature = "s3"))]
impl<P: Protocol> Client<P> {
    /// Returns the time of one attempt.
    pub fn time_for(&self, request: &Request) -> Duration {
        self.requests.time_for(request)
    }
}

impl<P> fmt::Debug for Client<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("facts", &self.facts).finish_non_exhaustive()
    }
}

impl<P: Protocol> ObjectStore for Client<P> {
    fn start(&self, request: Request, done: Done) {
        let requests = self.requests.clone();
        let mut ended =
            Ended { done: Some(done), about: (request.kind(), request.name().to_string()), requests };
        let Some(runtime) = &self.runtime else { return };
        runtime.spawn(async move {
            let outcome = ended.requests.run(&request).await;
            ended.call(outcome);
        });
    }

    fn facts(&self) -> StoreFacts {
        self.facts.clone()
    }
}

impl<P> Drop for Client<P> {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Does not wait, so a thread of any runtime may drop the store.
            runtime.shutdown_background();
        }
    }
}

/// Calls `done` exactly once, also if the runtime ends before the request.
struct Ended<P: Protocol> {
    done: Option<Done>,
    about: (RequestKind, String),
    requests: Arc<Requests<P>>,
}

impl<P: Protocol> Ended<P> {
    fn call(&mut self, outcome: Outcome) {
        if let Some(done) = self.done.take() {
            done(outcome);
        }
    }
}

impl<P: Protocol> Drop for Ended<P> {
    fn drop(&mut self) {
        let why = "the client was closed before the answer";
        let protocol = self.requests.protocol();
        let failure = protocol.place().say(FailureKind::Unknown, self.about.0, &self.about.1, why);
        self.call(Err(failure));
    }
}

/// The protocol in use.
struct Newest<P> {
    protocol: Arc<P>,
    made: Instant,
    /// The store has refused a request of it.
    is_refused: bool,
}

/// Sends requests, reads again and again.
struct Requests<P> {
    newest: Mutex<Newest<P>>,
    connect: Connect<P>,
    effort: Effort,
    random: Mutex<Random>,
}

impl<P: Protocol> Requests<P> {
    async fn run(&self, request: &Request) -> Outcome {
        let (kind, name) = (request.kind(), request.name());
        self.renew().await;
        match request {
            Request::Put { .. }
            | Request::Create { .. }
            | Request::Append { .. }
            | Request::Open { .. }
            | Request::Finalize { .. }
            | Request::Delete { .. } => {
                let protocol = self.protocol();
                self.attempt(kind, name, self.time_for(request), protocol.once(request)).await
            }
            Request::Get { .. } | Request::Head { .. } => {
                let protocol = self.protocol();
                self.again(kind, name, self.time_for(request), || protocol.once(request)).await
            }
            Request::List { prefix } => self.list(prefix).await,
        }
    }

    fn protocol(&self) -> Arc<P> {
        self.newest.lock().protocol.clone()
    }

    /// After a refusal, makes the protocol again: with the credentials, the token or the session
    /// that the environment has now. Requests that come meanwhile use the old one.
    async fn renew(&self) {
        {
            let mut newest = self.newest.lock();
            if !newest.is_refused || newest.made.elapsed() < RENEWAL_PAUSE {
                return;
            }
            (newest.made, newest.is_refused) = (Instant::now(), false);
        }
        // Without a new one the old one is used: its next refusal says what is wrong.
        if let Ok(Ok(protocol)) = tokio::time::timeout(CONNECT_MAX, (self.connect)()).await {
            self.newest.lock().protocol = Arc::new(protocol);
        }
    }

    /// Returns the time of one attempt.
    fn time_for(&self, request: &Request) -> Duration {
        let bytes = match request {
            Request::Put { body, .. } | Request::Create { body, .. } | Request::Append { body, .. } => {
                body.len() as u64
            }
            Request::Get { range: Some(range), .. } => range.end.saturating_sub(range.start),
            _ => 0,
        };
        self.effort.attempt_timeout + Duration::from_secs(if bytes > RANGE_MAX { 0 } else { bytes >> 20 })
    }

    async fn list(&self, prefix: &str) -> Outcome {
        let mut listed: Vec<Listed> = Vec::new();
        let mut after = None;
        loop {
            let protocol = self.protocol();
            let page = || protocol.page(prefix, after.clone());
            let page = self.again(RequestKind::List, prefix, self.effort.attempt_timeout, page).await?;
            listed.extend(page.listed);
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        // Directory buckets of S3 list in no order.
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
    ) -> std::result::Result<T, Failure>
    where
        F: Future<Output = std::result::Result<T, Failure>>,
    {
        let deadline = Instant::now() + self.effort.read_deadline;
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
        attempt: impl Future<Output = std::result::Result<T, Failure>>,
    ) -> std::result::Result<T, Failure> {
        // An attempt may make a connection.
        take_standard();
        match tokio::time::timeout(within, attempt).await {
            Ok(outcome) => {
                if matches!(&outcome, Err(failure) if failure.kind == FailureKind::Forbidden) {
                    self.newest.lock().is_refused = true;
                }
                outcome
            }
            Err(_) => {
                let why = format!("no answer within {within:?}");
                Err(self.protocol().place().say(FailureKind::Unknown, kind, name, &why))
            }
        }
    }
}

#[cfg(test)]
#[cfg_attr(not(all(feature = "s3", feature = "azure")), allow(dead_code, reason = "for other clients"))]
pub(super) mod test_server;

#[cfg(test)]
mod tests;
