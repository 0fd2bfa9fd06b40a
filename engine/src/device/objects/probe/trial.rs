//! Sending requests of a probe, and what their answers say.

use super::super::request::{Failure, FailureKind, Reply, Request, Version};
use super::super::routed::PROBED;
use super::super::store::{ObjectStore, StoreFacts, perform};
use super::super::waiting::wait_for_all;
use crate::base::clock::Clock;
use crate::base::random::Random;
use crate::base::{Error, ErrorKind, Result};
use crate::sync::{Mutex, thread};
use std::time::Duration;

/// For so long a probe begins again after outcomes that prove nothing.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// So often a probe begins again after a refusal that a request carried out twice explains.
const REFUSED_MAX: u32 = 2;

const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The fault that one request does not see at once what another wrote.
pub(super) const IS_STALE: &str = "is not consistent";

/// Why a trial ended early.
pub(super) enum Stop {
    /// The outcome of a request proves nothing.
    Unclear(Failure),
    /// A request that had to succeed was refused. The store cannot be used, or something between
    /// here and there sent the request twice: then the second copy was refused.
    Refused(Error),
    /// The store cannot be used.
    Final(Error),
}

/// What the store answered to a request that has to succeed or be refused.
pub(super) enum Answer {
    Done(Reply),
    Refused,
    Absent,
    Denied(Failure),
}

/// One pass of a probe over objects that no other pass uses.
pub(super) struct Trial<'a> {
    pub(super) store: &'a dyn ObjectStore,
    pub(super) facts: StoreFacts,
    /// `probe/<random>/`.
    pub(super) folder: String,
    /// Names of objects to remove.
    names: Mutex<Vec<String>>,
}

/// Calls `run` with a trial until its outcome is clear. A failure that proves nothing (a timeout, a
/// lost connection, a throttled request) starts another trial, for as long as `patience`; so does a
/// refusal, twice. Removes the objects of a trial that failed.
///
/// # Errors
/// Those of the last trial; [`ErrorKind::Io`] if the outcome stays unclear.
pub(super) fn try_until_clear<T>(
    store: &dyn ObjectStore,
    clock: &Clock,
    patience: Duration,
    run: impl Fn(&Trial<'_>) -> Result<T, Stop>,
) -> Result<T> {
    let mut random = Random::from_entropy();
    let began = clock.now();
    let (mut pause, mut refused) = (PAUSE_FIRST, 0);
    loop {
        let folder = format!("probe/{:016x}{:016x}/", random.next_u64(), random.next_u64());
        let trial = Trial { store, facts: store.facts(), folder, names: Mutex::default() };
        let outcome = run(&trial);
        // After a failure the objects may be there, or may still come. No others are named so.
        if outcome.is_err() {
            trial.remove_all();
        }
        match outcome {
            Ok(result) => return Ok(result),
            Err(Stop::Final(error)) => return Err(error),
            Err(Stop::Refused(_)) if refused < REFUSED_MAX => refused += 1,
            Err(Stop::Refused(error)) => return Err(error),
            Err(Stop::Unclear(failure)) if clock.now().since(began) + pause > patience => {
                return Err(Error::new(
                    ErrorKind::Io,
                    format!(
                        "the store {} cannot be probed, because it does not answer reliably: {}",
                        trial.facts.name, failure.what
                    ),
                )
                .with_advice("check that the store is up and can be reached"));
            }
            Err(Stop::Unclear(_)) => {
                let half = pause.as_micros() as u64 / 2;
                thread::sleep(Duration::from_micros(half + random.below(half)));
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

impl Trial<'_> {
    /// Returns the name of an object of this trial.
    pub(super) fn name(&self, name: &str) -> String {
        let name = format!("{}{name}", self.folder);
        self.names.lock().push(name.clone());
        name
    }

    /// Returns the name of an object of this trial in the store that has the log. It has no folder
    /// of its own, because folders of a zonal bucket stay.
    pub(super) fn name_in_log(&self, name: &str) -> String {
        let random = self.folder.trim_start_matches("probe/").trim_end_matches('/');
        let name = format!("{PROBED}{random}-{name}");
        self.names.lock().push(name.clone());
        name
    }

    /// Removes all objects of this trial, as far as the store lets it.
    pub(super) fn remove_all(&self) {
        let names = std::mem::take(&mut *self.names.lock());
        let remove = |at: usize, done| self.store.start(Request::Delete { name: names[at].clone() }, done);
        drop(wait_for_all(names.len(), remove));
    }

    /// Returns the version that the reply to a write must have.
    pub(super) fn version_of(&self, reply: Reply, what: &str) -> Result<Version, Stop> {
        reply.version.ok_or_else(|| self.fails(what, "the reply has no version (ETag)"))
    }

    /// Checks that a read returned the version of the write before.
    pub(super) fn same_version(&self, read: Option<&Version>, written: &Version) -> Result<(), Stop> {
        if read == Some(written) {
            return Ok(());
        }
        Err(self.fails("a read", "it returns another version (ETag) than the write before"))
    }

    /// Sends a request.
    pub(super) fn send(&self, request: Request) -> Result<Reply, Failure> {
        perform(self.store, request)
    }

    /// Sends a request that has to succeed or be refused.
    pub(super) fn ask(&self, request: Request) -> Result<Answer, Stop> {
        let kind = request.kind();
        match self.send(request) {
            Ok(reply) => Ok(Answer::Done(reply)),
            Err(failure) => match failure.kind {
                FailureKind::Refused => Ok(Answer::Refused),
                FailureKind::Absent => Ok(Answer::Absent),
                FailureKind::Denied | FailureKind::Forbidden => Ok(Answer::Denied(failure)),
                FailureKind::Full => Err(self.fails(
                    &format!("a request ({})", kind.name()),
                    "the store takes no more appends to a new object",
                )),
                FailureKind::Again | FailureKind::Throttled | FailureKind::Unknown => {
                    Err(Stop::Unclear(failure))
                }
            },
        }
    }

    /// Returns the error that the store breaks a promise and says nothing; `fault` says which.
    pub(super) fn breaks(&self, fault: &str, shown: &str) -> Stop {
        Stop::Final(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the store {} {fault}: {shown}; use another store, or a newer version of this one",
                self.facts.name
            ),
        ))
    }

    /// Returns the error that the store cannot do what a database needs.
    pub(super) fn fails(&self, what: &str, why: &str) -> Stop {
        Stop::Refused(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the store {} cannot keep a database, because {what} fails: {why}; use another store, or \
                 a newer version of this one",
                self.facts.name
            ),
        ))
    }

    /// Returns the error that the store refuses all requests.
    pub(super) fn denied(&self, failure: &Failure) -> Stop {
        Stop::Final(Error::invalid(format!("the store {}: {}", self.facts.name, failure.what)))
    }
}
