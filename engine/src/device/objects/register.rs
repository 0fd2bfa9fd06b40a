//! The object `manifest`: one register that all writers share.
//!
//! 1. Every put is conditional on the version that its body was derived from, and no two bodies are
//!    equal (O2): each has a higher generation, and the nonce of its writer.
//! 2. A put without a reply is sent again, the same bytes on the same condition, until one copy is
//!    confirmed or the version has changed (O3). A read shows whether it was this writer that
//!    changed it.
//! 3. A claim raises the writer epoch and changes nothing else (O14). From then on no put of an
//!    earlier writer succeeds.
//! 4. After a put a writer leaves the register alone for twice as long as the put took, so that a
//!    claim, which is a read and a put, comes through beside a writer that has much to put.
//! 5. What a confirmed body no longer names is never named again (O26), so it may be deleted at any
//!    later time.

use super::body::{Body, Nonce, WriterEpoch};
use super::frame::Frame;
use super::patience::{Patience, error_of, may_end, place, read};
use super::request::{Condition, Failure, FailureKind, Request, Version};
use super::store::{ObjectStore, perform};
use crate::base::clock::{Clock, Nanos};
use crate::base::planted::{self, Bug};
use crate::base::random::Random;
use crate::base::{Error, ErrorKind, Result};
use crate::sync::{Mutex, thread};
use std::sync::Arc;
use std::time::Duration;

/// The name of the register.
pub const MANIFEST_NAME: &str = "manifest";

/// The longest time that a writer leaves the register alone after a put.
const REST_MAX: Duration = Duration::from_millis(100);

/// A body, and the version of the object that holds it.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The body.
    pub body: Body,
    /// The version.
    pub version: Version,
}

/// Reads the register; `None` if there is no object of its name.
///
/// # Errors
/// I/O; `Corruption`; `Unsupported`.
pub fn look_up(store: &dyn ObjectStore, most: Duration) -> Result<Option<Stored>> {
    let reply = match read(store, MANIFEST_NAME, None, most) {
        Ok(reply) => reply,
        Err(failure) if failure.kind == FailureKind::Absent => return Ok(None),
        Err(failure) => return Err(error_of(&failure, "the manifest cannot be read", MANIFEST_NAME)),
    };
    let body = Body::decode(&reply.body).map_err(|error| error.at(place(MANIFEST_NAME, 0)))?;
    let version = reply.version.ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, "the store names no version of the manifest")
            .at(place(MANIFEST_NAME, 0))
    })?;
    Ok(Some(Stored { body, version }))
}

/// Returns the error of a writer that finds a later claim.
pub(super) fn fenced(own: WriterEpoch, by: WriterEpoch) -> Error {
    let what = format!(
        "another process has opened the database for writing (writer epoch {}), which ended this one (writer epoch {})",
        by.0, own.0
    );
    Error::new(ErrorKind::Fenced, what).at(place(MANIFEST_NAME, 0))
}

/// Returns the error of a writer whose object is missing because a later writer has deleted it;
/// `None` if there is no later claim.
pub(super) fn later_claim(
    store: &dyn ObjectStore,
    own: &Frame,
    failure: &Failure,
    most: Duration,
) -> Option<Error> {
    if failure.kind != FailureKind::Absent {
        return None;
    }
    let newest = look_up(store, most).ok()??.body.epoch;
    (newest > own.epoch).then(|| fenced(own.epoch, newest))
}

/// The register in the hands of the writer that claimed it.
#[derive(Debug)]
pub struct Register {
    store: Arc<dyn ObjectStore>,
    epoch: WriterEpoch,
    nonce: Nonce,
    /// How long a put without a reply is sent again.
    patience: Duration,
    newest: Mutex<Newest>,
}

#[derive(Debug)]
struct Newest {
    stored: Stored,
    /// When the next put may begin.
    free_at: Nanos,
    /// The outcome of a put is unknown: nothing more is put or deleted.
    failure: Option<Error>,
}

/// How a put ended.
enum Decided {
    Put(Version),
    /// Another body is there, and this put never took effect.
    Overtaken(Box<Stored>),
}

impl Register {
    /// Claims the register for a new writer, or creates it: with `is_new` only that. Also returns
    /// whether the writer before has closed it.
    ///
    /// # Errors
    /// I/O; `Corruption`; `Unsupported`; `Busy` if other writers claim it again and again, or if
    /// another one has just created it.
    pub fn claim(store: Arc<dyn ObjectStore>, is_new: bool, patience: Duration) -> Result<(Register, bool)> {
        let mut random = Random::from_entropy();
        let nonce = Nonce(std::array::from_fn(|_| random.next_u64() as u8));
        let tries = Patience::new(patience);
        let mut found = if is_new { None } else { look_up(&*store, patience)? };
        loop {
            let (body, condition) = match &found {
                None => {
                    let identity = random.next_u64();
                    let first = Body { identity, epoch: WriterEpoch(1), generation: 1, ..Body::default() };
                    (Body { nonce, ..first }, Condition::Absent)
                }
                Some(Stored { body, version }) => {
                    let (epoch, generation) = (WriterEpoch(body.epoch.0 + 1), body.generation + 1);
                    let closed = false;
                    (
                        Body { epoch, generation, nonce, closed, ..body.clone() },
                        Condition::Unchanged(version.clone()),
                    )
                }
            };
            match decide(&*store, &body, condition, patience)? {
                Decided::Put(version) => {
                    let epoch = body.epoch;
                    let newest = Mutex::new(Newest {
                        stored: Stored { body, version },
                        free_at: Nanos::default(),
                        failure: None,
                    });
                    let was_closed = found.is_none_or(|before| before.body.closed);
                    return Ok((Register { store, epoch, nonce, patience, newest }, was_closed));
                }
                Decided::Overtaken(other) if is_new && !other.body.is_blank() => {
                    let what = "another process has just created something here: look at that first";
                    return Err(Error::new(ErrorKind::Busy, what).at(place(MANIFEST_NAME, 0)));
                }
                Decided::Overtaken(stored) => found = Some(*stored),
            }
            // At once, with what was just read: a pause would let the busy writer put again.
            if tries.is_over() {
                let what = "other processes claim the database again and again";
                return Err(Error::new(ErrorKind::Busy, what).at(place(MANIFEST_NAME, 0)));
            }
        }
    }

    /// Returns the epoch of this writer.
    #[must_use]
    pub fn epoch(&self) -> WriterEpoch {
        self.epoch
    }

    /// Returns the nonce of this writer.
    #[must_use]
    pub fn nonce(&self) -> Nonce {
        self.nonce
    }

    /// Returns the newest confirmed body.
    #[must_use]
    pub fn body(&self) -> Body {
        self.newest.lock().stored.body.clone()
    }

    /// Puts the body that `change` makes of the newest one. When it returns `Ok`, the change is
    /// durable and counts.
    ///
    /// # Errors
    /// `Fenced`; `OutcomeUnknown` after the patience has ended: from then on every call fails.
    pub fn update(&self, change: impl FnOnce(&mut Body)) -> Result<()> {
        let mut newest = self.newest.lock();
        if let Some(failure) = &newest.failure {
            return Err(failure.duplicate());
        }
        let clock = Clock::real();
        thread::sleep(newest.free_at.since(clock.now()));
        let begun = clock.now();
        let Stored { body, version } = &newest.stored;
        let mut body = Body { generation: body.generation + 1, ..body.clone() };
        change(&mut body);
        let ended = match decide(&*self.store, &body, Condition::Unchanged(version.clone()), self.patience) {
            Ok(Decided::Put(version)) => {
                newest.stored = Stored { body, version };
                let now = clock.now();
                newest.free_at = Nanos(now.0 + (2 * now.since(begun)).min(REST_MAX).as_nanos() as u64);
                return Ok(());
            }
            Ok(Decided::Overtaken(other)) => fenced(self.epoch, other.body.epoch),
            Err(error) => error,
        };
        newest.failure = Some(ended.duplicate());
        Err(ended)
    }
}

/// Puts `body` and returns what came of it.
fn decide(store: &dyn ObjectStore, body: &Body, condition: Condition, most: Duration) -> Result<Decided> {
    let condition = if planted::is(Bug::ManifestPutAlways) { Condition::Always } else { condition };
    let request = Request::Put { name: MANIFEST_NAME.into(), body: body.encode(), condition };
    let (mut patience, mut is_ambiguous) = (Patience::new(most), false);
    loop {
        let failure = match perform(store, request.clone()) {
            Ok(reply) => match reply.version {
                Some(version) => return Ok(Decided::Put(version)),
                None => no_version(),
            },
            Err(failure) => failure,
        };
        is_ambiguous |= failure.kind.is_ambiguous();
        match failure.kind {
            FailureKind::Refused | FailureKind::Absent => match look_up(store, most)? {
                Some(Stored { body: there, version })
                    if (there.generation, there.nonce) == (body.generation, body.nonce) =>
                {
                    return Ok(Decided::Put(version));
                }
                Some(other) => return Ok(Decided::Overtaken(Box::new(other))),
                None => {
                    let what = "the manifest has disappeared from the store";
                    return Err(Error::corruption(what).at(place(MANIFEST_NAME, 0)));
                }
            },
            kind if may_end(kind) && patience.pause() => {}
            _ if is_ambiguous => {
                let error = error_of(&failure, "whether the manifest was put is unknown", MANIFEST_NAME);
                return Err(error.with_kind(ErrorKind::OutcomeUnknown));
            }
            _ => return Err(error_of(&failure, "the manifest cannot be put", MANIFEST_NAME)),
        }
    }
}

fn no_version() -> Failure {
    Failure { kind: FailureKind::Denied, what: "the store names no version of what was put".into() }
}
