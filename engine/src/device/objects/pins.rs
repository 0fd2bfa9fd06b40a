//! Pins of readers on other machines: each keeps the extents of one manifest.
//!
//! ```text
//!   reader                                    writer
//!   1. read the manifest                      a. put a manifest that names some extents no longer
//!   2. put a pin                              b. list the pins, after the put is confirmed
//!   3. read the manifest again: if it still   c. delete those of these extents that no pin may need
//!      names all extents of the first, the
//!      first is pinned; if not, back to 2
//!      with the second and another pin
//! ```
//!
//! *Why no extent of a pinned manifest is deleted.* Let a confirmed put drop the extent. If that
//! put takes effect after step 3, the pin was there before b, and every later list has it. If
//! before, step 3 finds a manifest without the extent, because what is dropped stays dropped (O26).
//! The same holds for a claim in place of the put: its holder looks for orphans after it, and an
//! extent that the claimed manifest does not name was dropped before.
//!
//! A pin's name says all that a writer needs, so that a list is enough: the newest object that the
//! pinned manifest names. Within a writer epoch numbers rise, so an object with a higher name is
//! not in that manifest. All others are kept while the pin is there: those of the manifest, and
//! those that were already dropped when the pin was made.
//!
//! A reader that dies leaves its pin. So a pin ends: a writer removes a pin whose time has passed
//! by the writer's calendar. A calendar that is wrong, or a pin that a person removes, costs a live
//! reader its extents. Then the reader finds a name without an object, never another content (O1).
//!
//! Names: `pins/<epoch>-<number>-<end in seconds since 1970>-<random>`. The content is for people.

use super::body::{Body, ObjectId, WriterEpoch};
use super::options::Options;
use super::patience::{error_of, persist, place, read_all};
use super::register::{Stored, look_up, no_database};
use super::request::{Condition, FailureKind, Request};
use super::store::ObjectStore;
use super::waiting::wait_at_most;
use crate::base::clock::Clock;
use crate::base::planted::{self, Bug};
use crate::base::random::Random;
use crate::base::{Error, ErrorKind, Result};
use crate::device::Pin;
use crate::sync::thread;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The beginning of the names of pins.
pub(super) const PREFIX: &str = "pins/";

/// Each repetition costs a manifest that came in between and dropped an extent.
const ATTEMPTS_MAX: u32 = 100;

/// The longest time that a reader waits for the removal of its pin.
const REMOVAL: Duration = Duration::from_secs(2);

/// What the name of a pin says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PinName {
    /// The newest object that the pinned manifest names.
    newest: ObjectId,
    /// Seconds since 1970.
    expires: u64,
    random: u64,
}

impl PinName {
    fn name(self) -> String {
        let PinName { newest: ObjectId { epoch, number }, expires, random } = self;
        format!("{PREFIX}{:06}-{number:08}-{expires}-{random:016x}", epoch.0)
    }

    /// Returns what a name says; `None` if it is none of this version.
    fn parse(name: &str) -> Option<PinName> {
        let parts: Vec<&str> = name.strip_prefix(PREFIX)?.split('-').collect();
        let [epoch, number, expires, random] = parts[..] else { return None };
        let newest = ObjectId { epoch: WriterEpoch(epoch.parse().ok()?), number: number.parse().ok()? };
        let (expires, random) = (expires.parse().ok()?, u64::from_str_radix(random, 16).ok()?);
        Some(PinName { newest, expires, random })
    }
}

/// Returns the newest object that a pin of this name keeps; `None` if the name is none of this
/// version.
pub(super) fn newest_of(name: &str) -> Option<ObjectId> {
    PinName::parse(name).map(|pin| pin.newest)
}

/// The pins that a list found.
#[derive(Debug, Default)]
pub(super) struct FoundPins {
    /// The newest object that any of them may need.
    newest: Option<ObjectId>,
    /// Names of pins whose time has passed. Such a pin still keeps what it kept, until a list no
    /// longer has it: so a reader that misses an object finds no pin either.
    pub(super) expired: Vec<String>,
}

impl FoundPins {
    /// Returns what these names say. A name that is none of this version keeps everything.
    pub(super) fn of<'a>(names: impl Iterator<Item = &'a str>) -> FoundPins {
        let now = Clock::real().unix_seconds();
        let mut found = FoundPins::default();
        for name in names.filter(|_| !planted::is(Bug::PinIgnored)) {
            let pin = PinName::parse(name);
            if pin.is_some_and(|pin| pin.expires <= now) {
                found.expired.push(name.into());
            }
            let all = ObjectId { epoch: WriterEpoch(u64::MAX), number: u64::MAX };
            found.newest = found.newest.max(Some(pin.map_or(all, |pin| pin.newest)));
        }
        found
    }

    /// Returns whether a reader may need an object that the newest manifest does not name.
    pub(super) fn keep(&self, object: ObjectId) -> bool {
        self.newest.is_some_and(|newest| object <= newest)
    }
}

/// A manifest, and the pin that keeps its extents until it is dropped.
#[derive(Debug)]
pub(super) struct PinnedBody {
    pub(super) body: Body,
    store: Arc<dyn ObjectStore>,
    name: String,
    patience: Duration,
}

impl PinnedBody {
    /// Pins the newest manifest.
    ///
    /// # Errors
    /// `NotFound` if there is none; `Busy` if manifests come faster than one can be pinned; I/O.
    pub(super) fn newest(store: &Arc<dyn ObjectStore>, options: Options) -> Result<PinnedBody> {
        let look_up = || {
            let found = look_up(&**store, options.patience)?;
            found.map(|Stored { body, .. }| body).ok_or_else(no_database)
        };
        let mut body = look_up()?;
        for _ in 0..ATTEMPTS_MAX {
            let pinned = PinnedBody::put(store, body, options)?;
            let again = look_up()?;
            if planted::is(Bug::PinNotChecked) || names_all(&again, &pinned.body) {
                return Ok(pinned);
            }
            body = again;
        }
        Err(Error::new(ErrorKind::Busy, "checkpoints come faster than one can be opened"))
    }

    fn put(store: &Arc<dyn ObjectStore>, body: Body, options: Options) -> Result<PinnedBody> {
        let expires = Clock::real().unix_seconds().saturating_add(options.pin_lifetime.as_secs());
        let newest = body.runs.iter().map(|run| run.object).max().unwrap_or_default();
        let name = PinName { newest, expires, random: Random::from_entropy().next_u64() }.name();
        debug_assert!(newest_of(&name) == Some(newest), "the name of a pin says what it keeps");
        let pinned = PinnedBody { body, store: store.clone(), name, patience: options.patience };
        // Only this reader uses the name, and always with these bytes.
        let (name, note) = (pinned.name.clone(), Bytes::from(owner()));
        let request = Request::Put { name, body: note, condition: Condition::Always };
        // If that fails, a copy may still arrive: the drop of `pinned` tries to remove it.
        persist(&**store, &request, options.patience)
            .map_err(|failure| error_of(&failure, "the pin of a reader cannot be put", &pinned.name))?;
        Ok(pinned)
    }

    /// Returns the error of a read: why an object is missing.
    pub(super) fn explain(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::NotFound {
            return error;
        }
        let head = Request::Head { name: self.name.clone() };
        match persist(&*self.store, &head, self.patience).map_err(|failure| failure.kind) {
            Ok(_) => {
                let what = "an object of a pinned checkpoint is missing";
                Error::after(ErrorKind::Corruption, what, &error)
            }
            Err(FailureKind::Absent) => {
                let what =
                    "the pin of this reader has expired or was removed, and a page that it needs was deleted";
                Error::after(ErrorKind::Poisoned, what, &error)
            }
            Err(_) => error,
        }
    }
}

impl PinnedBody {
    /// Removes the pin.
    pub(super) fn end(&self) {
        let request = Request::Delete { name: self.name.clone() };
        // Without a reply the pin ends by itself.
        let _ = wait_at_most(REMOVAL, |done| self.store.start(request, done));
    }
}

impl Drop for PinnedBody {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns whether `newer` names all extents of `older`, a manifest of the same database.
fn names_all(newer: &Body, older: &Body) -> bool {
    let named: BTreeSet<ObjectId> = newer.runs.iter().map(|run| run.object).collect();
    newer.identity == older.identity && older.runs.iter().all(|run| named.contains(&run.object))
}

/// Returns the content of a pin.
fn owner() -> String {
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("process {} on {machine}", thread::process_id())
}

/// Returns all pins.
///
/// # Errors
/// I/O.
pub(super) fn list(store: &dyn ObjectStore, most: Duration) -> Result<Vec<Pin>> {
    let request = Request::List { prefix: PREFIX.into() };
    let listed = persist(store, &request, most)
        .map_err(|failure| error_of(&failure, "the pins cannot be listed", PREFIX))?
        .listed;
    let wanted: Vec<_> = listed.iter().map(|object| (object.name.clone(), None)).collect();
    let notes = read_all(store, &wanted, most);
    let mut pins = Vec::new();
    for (object, note) in listed.into_iter().zip(notes) {
        let owner = match note {
            // It was removed meanwhile.
            Err(failure) if failure.kind == FailureKind::Absent => continue,
            Err(failure) => return Err(error_of(&failure, "a pin cannot be read", &object.name)),
            Ok(reply) => String::from_utf8_lossy(&reply.body).into_owned(),
        };
        let expires = PinName::parse(&object.name).map_or(u64::MAX, |pin| pin.expires);
        pins.push(Pin { name: object.name, owner, expires });
    }
    Ok(pins)
}

/// Removes a pin.
///
/// # Errors
/// `NotFound` if there is none of this name; I/O.
pub(super) fn remove(store: &dyn ObjectStore, name: &str, most: Duration) -> Result<()> {
    if !name.starts_with(PREFIX) {
        return Err(Error::invalid("this is not the name of a pin"));
    }
    let failed = |failure| error_of(&failure, "the pin cannot be removed", name);
    persist(store, &Request::Head { name: name.into() }, most).map_err(|failure| match failure.kind {
        FailureKind::Absent => {
            Error::new(ErrorKind::NotFound, "there is no pin of this name").at(place(name, 0))
        }
        _ => failed(failure),
    })?;
    persist(store, &Request::Delete { name: name.into() }, most).map_err(failed)?;
    Ok(())
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
