//! Sending a request until its outcome is known.

use super::request::{Failure, FailureKind, Reply, Request};
use super::store::{ObjectStore, Outcome, perform};
use super::waiting::wait_for_all;
use crate::base::clock::{Clock, Nanos};
use crate::base::random::Random;
use crate::base::{Error, ErrorKind, Location};
use crate::sync::thread;
use std::time::Duration;

/// The first pause between two copies of a request, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(5), Duration::from_secs(2)];

/// Pauses between the copies of one request, with jitter, until a deadline.
#[derive(Debug)]
pub(super) struct Patience {
    clock: Clock,
    until: Nanos,
    next: Duration,
    random: Random,
}

impl Patience {
    /// Begins now and ends after `most`.
    pub(super) fn new(most: Duration) -> Patience {
        let clock = Clock::real();
        let until = Nanos(clock.now().0.saturating_add(most.as_nanos() as u64));
        Patience { clock, until, next: PAUSES[0], random: Random::from_entropy() }
    }

    /// Returns whether the deadline has passed.
    pub(super) fn is_over(&self) -> bool {
        self.clock.now() >= self.until
    }

    /// Sleeps for half the present pause and a random part of the other half. Returns false,
    /// without sleeping, if the deadline has passed.
    pub(super) fn pause(&mut self) -> bool {
        if self.is_over() {
            return false;
        }
        let half = self.next / 2;
        thread::sleep(half + Duration::from_nanos(self.random.below(half.as_nanos() as u64 + 1)));
        self.next = (self.next * 2).min(PAUSES[1]);
        true
    }
}

/// Performs a request that may be sent again whatever happened to an earlier copy: one that only
/// reads, or writes the same bytes under a name that only this writer uses.
///
/// # Errors
/// Any failure that does not end by itself; the last one if it does not end within `most`.
pub(super) fn persist(store: &dyn ObjectStore, request: &Request, most: Duration) -> Outcome {
    let mut patience = Patience::new(most);
    loop {
        match perform(store, request.clone()) {
            Err(failure) if may_end(failure.kind) && patience.pause() => {}
            ended => return ended,
        }
    }
}

/// Returns whether a later copy of the request may have another outcome.
pub(super) fn may_end(kind: FailureKind) -> bool {
    use FailureKind::{Again, Forbidden, Throttled, Unknown};
    matches!(kind, Again | Throttled | Unknown | Forbidden)
}

/// Returns the error for a failed request on the object `name`.
pub(super) fn error_of(failure: &Failure, what: &str, name: &str) -> Error {
    let kind = match failure.kind {
        FailureKind::Absent => ErrorKind::NotFound,
        _ => ErrorKind::Io,
    };
    let error = Error::new(kind, format!("{what}: {}", failure.what)).at(place(name, 0));
    match failure.kind {
        FailureKind::Absent => error,
        FailureKind::Forbidden => error.with_advice("check credentials, permissions and the clock"),
        FailureKind::Denied => {
            error.with_advice("check the name of the bucket and the settings of the store")
        }
        _ => error.with_advice("check that the store is up and can be reached"),
    }
}

/// Returns the place of a byte of an object.
pub(super) fn place(name: &str, offset: u64) -> Location {
    Location::File { path: name.to_string(), offset }
}

/// Returns the object's bytes in `range`, or all of them.
///
/// # Errors
/// As [`persist`].
pub(super) fn read(
    store: &dyn ObjectStore,
    name: &str,
    range: Option<std::ops::Range<u64>>,
    most: Duration,
) -> Result<Reply, Failure> {
    persist(store, &Request::Get { name: name.to_string(), range }, most)
}

/// Reads objects, each in its range or all of it, in flight together. Returns the outcomes in the
/// same order; what may pass is asked again, one after the other, each for at most `most`.
pub(super) fn read_all(
    store: &dyn ObjectStore,
    wanted: &[(String, Option<std::ops::Range<u64>>)],
    most: Duration,
) -> Vec<Outcome> {
    let first = wait_for_all(wanted.len(), |index, done| {
        let (name, range) = wanted[index].clone();
        store.start(Request::Get { name, range }, done);
    });
    let again = |((name, range), outcome): (&(String, Option<std::ops::Range<u64>>), Outcome)| match outcome {
        Err(failure) if may_end(failure.kind) => read(store, name, range.clone(), most),
        ended => ended,
    };
    wanted.iter().zip(first).map(again).collect()
}

#[cfg(test)]
mod tests;
