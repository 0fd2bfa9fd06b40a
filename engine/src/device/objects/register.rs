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
//! 5. A claim leaves the writer before it some time to end: it waits until the manifest is closed,
//!    or was not changed for about a second. So several programs that write a little each take
//!    turns instead of ending each other. The wait is bounded, and nothing else depends on it.
//! 6. In several buckets the register is one of each bucket: see `buckets::acceptors`.
//! 7. What a confirmed body no longer names is never named again (O26), so it may be deleted at any
//!    later time.

use super::body::{Body, MANIFEST_NAME, Nonce, WriterEpoch};
use super::buckets::{Acceptors, Ballot, Claimed};
use super::frame::Frame;
use super::patience::{Patience, error_of, may_end, place, read};
use super::request::{Condition, Failure, FailureKind, Reply, Request, Version};
use super::store::{ObjectStore, perform};
use crate::base::clock::{Clock, Nanos};
use crate::base::planted::{self, Bug};
use crate::base::random::Random;
use crate::base::{Error, ErrorKind, Result};
use crate::sync::{Mutex, thread};
use std::sync::Arc;
use std::time::Duration;

/// The pause before a manifest that fails its check is read again, and for how long that is done if
/// each read returns other bytes.
const TORN_PAUSE: Duration = Duration::from_millis(200);
const TORN_MAX: Duration = Duration::from_secs(10);

/// A claim waits for the writer before it for at most so long.
const CLAIM_WAIT_MAX: Duration = Duration::from_secs(10);

/// The pause between two looks at a manifest that is too young to claim.
const CLAIM_PAUSE: Duration = Duration::from_millis(150);

/// The longest time that a writer leaves the register alone after a put.
const REST_MAX: Duration = Duration::from_millis(100);

/// A body, and the version of the object that holds it.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The body.
    pub body: Body,
    /// The version.
    pub version: Version,
    /// How long ago the body had been put, if the store says so; see [`Reply::age`].
    age: Option<Duration>,
}

/// Returns the error of a place that has no manifest.
pub(super) fn no_database() -> Error {
    Error::new(ErrorKind::NotFound, "there is no database at this place")
}

/// Reads the register; `None` if there is no object of its name.
///
/// Some servers answer a read of an object that is being replaced with bytes of both contents. So a
/// body that fails its check is read again, until one is whole or the same bytes come twice.
///
/// # Errors
/// I/O; `Corruption`; `Unsupported`.
pub fn look_up(store: &dyn ObjectStore, most: Duration) -> Result<Option<Stored>> {
    let clock = Clock::real();
    let (begun, mut random, mut before, mut reads) = (clock.now(), Random::from_entropy(), None, 0);
    loop {
        let reply = match read(store, MANIFEST_NAME, None, most) {
            Ok(reply) => reply,
            Err(failure) if failure.kind == FailureKind::Absent => return Ok(None),
            Err(failure) => return Err(error_of(&failure, "the manifest cannot be read", MANIFEST_NAME)),
        };
        reads += 1;
        let error = match Body::decode(&reply.body) {
            Ok(body) => return stored(body, &reply).map(Some),
            Err(error) => error,
        };
        let is_final = error.kind() != ErrorKind::Corruption
            || before.as_ref() == Some(&reply.body)
            || clock.now().since(begun) >= TORN_MAX.min(most);
        if is_final {
            return Err(not_whole(&error, &reply, reads).at(place(MANIFEST_NAME, 0)));
        }
        before = Some(reply.body);
        let half = TORN_PAUSE / 2;
        thread::sleep(half + Duration::from_nanos(random.below(half.as_nanos() as u64)));
    }
}

fn stored(body: Body, reply: &Reply) -> Result<Stored> {
    match &reply.version {
        Some(version) => Ok(Stored { body, version: version.clone(), age: reply.age }),
        None => {
            let what =
                "the store names no version (ETag, generation) of the manifest: it cannot keep a database";
            Err(Error::new(ErrorKind::Unsupported, what).at(place(MANIFEST_NAME, 0)))
        }
    }
}

/// Returns `error` with what was read.
fn not_whole(error: &Error, reply: &Reply, reads: u32) -> Error {
    if error.kind() != ErrorKind::Corruption {
        return error.duplicate();
    }
    let (len, version) = (reply.body.len(), reply.version.as_ref().map_or("none", |version| &version.0));
    let how = match reads {
        1 => "read once".to_string(),
        _ => format!("read {reads} times"),
    };
    Error::corruption(format!("{}; {how}: {len} bytes, version {version}", error.message()))
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

/// Where the register is.
#[derive(Debug)]
enum Keeper {
    One(Arc<dyn ObjectStore>),
    Several(Arc<Acceptors>),
}

impl Keeper {
    /// Puts the next body of a writer. Returns the version of the object, if there is one object.
    fn put(&self, body: &Body, before: &Version, most: Duration) -> Result<Decided> {
        match self {
            Keeper::One(store) => decide(&**store, body, Condition::Unchanged(before.clone()), most),
            Keeper::Several(acceptors) => Ok(match acceptors.accept(body)? {
                None => Decided::Put(before.clone()),
                Some(later) => Decided::Overtaken(Box::new(Stored {
                    body: Body { epoch: later.epoch, nonce: later.nonce, ..body.clone() },
                    version: before.clone(),
                    age: None,
                })),
            }),
        }
    }
}

/// The register in the hands of the writer that claimed it.
#[derive(Debug)]
pub struct Register {
    keeper: Keeper,
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
    pub fn claim(
        store: Arc<dyn ObjectStore>,
        is_new: bool,
        patience: Duration,
        rest: Duration,
    ) -> Result<(Register, bool)> {
        let mut random = Random::from_entropy();
        let nonce = Nonce(std::array::from_fn(|_| random.next_u64() as u8));
        let tries = Patience::new(patience);
        let mut found = if is_new { None } else { look_up(&*store, patience)? };
        let mut turn = Turn::new(rest, &mut random);
        loop {
            found = turn.wait(&*store, found, patience)?;
            if is_new && found.as_ref().is_some_and(|found| !found.body.is_blank()) {
                return Err(just_created());
            }
            let (body, condition) = match &found {
                None => {
                    let identity = random.next_u64();
                    let first = Body { identity, epoch: WriterEpoch(1), generation: 1, ..Body::default() };
                    (Body { nonce, ..first }, Condition::Absent)
                }
                Some(Stored { body, version, .. }) => {
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
                        stored: Stored { body, version, age: None },
                        free_at: Nanos::default(),
                        failure: None,
                    });
                    let was_closed = found.is_none_or(|before| before.body.closed);
                    let keeper = Keeper::One(store);
                    return Ok((Register { keeper, epoch, nonce, patience, newest }, was_closed));
                }
                Decided::Overtaken(other) if is_new && !other.body.is_blank() => {
                    return Err(just_created());
                }
                Decided::Overtaken(stored) => {
                    turn.overtaken(found.as_ref(), &stored);
                    found = Some(*stored);
                }
            }
            // Beside a busy writer at once, with what was just read: a pause would let that writer
            // put again.
            if tries.is_over() {
                return Err(claimed_again_and_again());
            }
        }
    }

    /// As [`Register::claim`], in several buckets: a claim that a majority has promised.
    ///
    /// # Errors
    /// As [`Register::claim`].
    pub fn claim_several(
        acceptors: &Arc<Acceptors>,
        is_new: bool,
        patience: Duration,
        rest: Duration,
    ) -> Result<(Register, bool)> {
        let mut random = Random::from_entropy();
        let nonce = Nonce(std::array::from_fn(|_| random.next_u64() as u8));
        let mut tries = Patience::new(patience);
        let store = acceptors.buckets().clone();
        if is_new {
            acceptors.create()?;
        }
        let mut found = look_up(&store, patience)?;
        let mut turn = Turn::new(rest, &mut random);
        loop {
            found = turn.wait(&store, found, patience)?;
            let Some(before) = &found else {
                let what = "the manifest has disappeared from the buckets";
                return Err(Error::corruption(what).at(place(MANIFEST_NAME, 0)));
            };
            if is_new && !before.body.is_blank() {
                return Err(just_created());
            }
            let ballot = Ballot { epoch: WriterEpoch(before.body.epoch.0 + 1), nonce };
            if let Claimed::Confirmed(body) = acceptors.claim(ballot)? {
                debug_assert!(
                    (body.epoch, body.nonce) == (ballot.epoch, ballot.nonce),
                    "the writer of the body is the one that has claimed it"
                );
                let was_closed = body.closed;
                let body = Body { closed: false, ..*body };
                let stored = Stored { body, version: before.version.clone(), age: None };
                let newest = Mutex::new(Newest { stored, free_at: Nanos::default(), failure: None });
                let (epoch, keeper) = (ballot.epoch, Keeper::Several(acceptors.clone()));
                return Ok((Register { keeper, epoch, nonce, patience, newest }, was_closed));
            }
            // Two that claim at the same time may each have some buckets, so one waits longer.
            if !tries.pause() {
                return Err(claimed_again_and_again());
            }
            if let Some(later) = look_up(&store, patience)? {
                turn.overtaken(found.as_ref(), &later);
                found = Some(later);
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
    /// `Fenced`; `OutcomeUnknown` after the patience has ended: from then on every call fails. `Io`
    /// if the store refuses the put: nothing was put, and a later call may succeed.
    pub fn update(&self, change: impl FnOnce(&mut Body)) -> Result<()> {
        let mut newest = self.newest.lock();
        if let Some(failure) = &newest.failure {
            return Err(failure.duplicate());
        }
        let clock = Clock::real();
        thread::sleep(newest.free_at.since(clock.now()));
        let begun = clock.now();
        let Stored { body, version, .. } = &newest.stored;
        let (mut body, before) = (Body { generation: body.generation + 1, ..body.clone() }, version.clone());
        change(&mut body);
        debug_assert!(
            body.epoch == self.epoch && body.nonce == self.nonce,
            "only the newest writer changes the manifest"
        );
        debug_assert!(
            body.identity == newest.stored.body.identity
                && body.generation == newest.stored.body.generation + 1,
            "each change of the manifest has a generation"
        );
        let ended = match self.keeper.put(&body, &before, self.patience) {
            Ok(Decided::Put(version)) => {
                newest.stored = Stored { body, version, age: None };
                let now = clock.now();
                newest.free_at = Nanos(now.0 + (2 * now.since(begun)).min(REST_MAX).as_nanos() as u64);
                return Ok(());
            }
            Ok(Decided::Overtaken(other)) => fenced(self.epoch, other.body.epoch),
            // The store has refused it for certain: the next put may succeed.
            Err(error) if error.kind() == ErrorKind::Io => return Err(error),
            Err(error) => error,
        };
        newest.failure = Some(ended.duplicate());
        Err(ended)
    }
}

fn claimed_again_and_again() -> Error {
    let what = "other processes claim the database again and again";
    Error::new(ErrorKind::Busy, what).at(place(MANIFEST_NAME, 0))
}

fn just_created() -> Error {
    let what = "another process has just created something here: look at that first";
    Error::new(ErrorKind::Busy, what).at(place(MANIFEST_NAME, 0))
}

/// The wait of a claim for its turn.
struct Turn {
    clock: Clock,
    begun: Nanos,
    /// For so long a manifest must be unchanged.
    rest: Duration,
    /// When this process saw the manifest change, or saw it first.
    seen: Nanos,
    /// This process saw it change.
    has_changed: bool,
}

impl Turn {
    /// The time of rest differs from claim to claim, so that of several that wait one is the first.
    fn new(rest: Duration, random: &mut Random) -> Turn {
        let clock = Clock::real();
        let now = clock.now();
        let rest = rest + Duration::from_nanos(random.below(rest.as_nanos() as u64 / 2 + 1));
        Turn { clock, begun: now, rest, seen: now, has_changed: false }
    }

    /// Waits until the manifest may be claimed. Returns it as it is then.
    fn wait(
        &mut self,
        store: &dyn ObjectStore,
        mut found: Option<Stored>,
        most: Duration,
    ) -> Result<Option<Stored>> {
        while let Some(stored) = &found
            && !self.is_over(stored)
        {
            thread::sleep(CLAIM_PAUSE.min(self.rest));
            let newest = look_up(store, most)?;
            if newest.as_ref().is_none_or(|newest| newest.version != stored.version) {
                (self.seen, self.has_changed) = (self.clock.now(), true);
            }
            found = newest;
        }
        Ok(found)
    }

    fn is_over(&self, stored: &Stored) -> bool {
        let now = self.clock.now();
        // Seconds of a calendar, so up to one more may have passed.
        let is_old = stored.age.is_none_or(|age| age >= self.rest + Duration::from_secs(1));
        stored.body.closed
            || now.since(self.seen) >= self.rest
            || (is_old && !self.has_changed)
            || now.since(self.begun) >= CLAIM_WAIT_MAX
    }

    /// Another put came first. If it was a claim, that writer has its turn now.
    fn overtaken(&mut self, before: Option<&Stored>, by: &Stored) {
        if before.is_none_or(|before| before.body.epoch != by.body.epoch) {
            (self.seen, self.has_changed) = (self.clock.now(), true);
        }
    }
}

/// Puts `body` and returns what came of it.
///
/// # Errors
/// `Io` if the store has refused every copy for certain; `OutcomeUnknown`; `Corruption`.
fn decide(store: &dyn ObjectStore, body: &Body, condition: Condition, most: Duration) -> Result<Decided> {
    let condition = if planted::is(Bug::ManifestPutAlways) { Condition::Always } else { condition };
    let request = Request::Put { name: MANIFEST_NAME.into(), body: body.encode(), condition };
    let (mut patience, mut is_ambiguous) = (Patience::new(most), false);
    let unknown = |error: Error| match error.kind() {
        ErrorKind::Io => error.with_kind(ErrorKind::OutcomeUnknown),
        _ => error,
    };
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
            FailureKind::Refused | FailureKind::Absent => match look_up(store, most).map_err(unknown)? {
                Some(Stored { body: there, version, .. })
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
                return Err(unknown(error));
            }
            _ => return Err(error_of(&failure, "the manifest cannot be put", MANIFEST_NAME)),
        }
    }
}

fn no_version() -> Failure {
    Failure { kind: FailureKind::Denied, what: "the store names no version of what was put".into() }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
