//! Finds out what a store of objects really does, before a database relies on it.
//!
//! `promises` sends one request at a time; each open for writing does. A server that checks a
//! condition and then writes, in two steps, passes that. So `race` sends many requests at the same
//! time. It costs some hundred requests, so a `mark` in the store says where it has passed.

mod trial;
mod streams;
mod promises;
mod race;
mod mark;

use super::store::{ObjectStore, StoreFacts};
use crate::base::Result;
use crate::base::clock::Clock;
use promises::Promises;
use race::Race;
pub use race::Rounds;
use std::time::Duration;
use trial::{PATIENCE, try_until_clear};

/// Finds out what `store` really does, with about 18 requests on two objects `probe/<random>/...`,
/// which it removes. Returns the store's facts; `appends` is false if the store has no appends and
/// says so. Where appends go over streams, about 18 requests more, on two objects `probe/log-...`.
///
/// A failure that proves nothing (a timeout, a lost connection, a throttled request) starts the
/// probe again with another name, for up to half a minute; so does a refusal, twice.
///
/// # Errors
/// - [`ErrorKind::Unsupported`](crate::base::ErrorKind::Unsupported) names the condition or offset
///   that the store ignores.
/// - [`ErrorKind::InvalidArgument`](crate::base::ErrorKind::InvalidArgument): the store refuses all
///   requests; the text says why.
/// - [`ErrorKind::Io`](crate::base::ErrorKind::Io): the store does not answer.
pub fn probe(store: &dyn ObjectStore) -> Result<StoreFacts> {
    probe_within(store, &Clock::real(), PATIENCE)
}

fn probe_within(store: &dyn ObjectStore, clock: &Clock, patience: Duration) -> Result<StoreFacts> {
    let appends = try_until_clear(store, clock, patience, |trial| Promises::new(trial).run())?;
    Ok(StoreFacts { appends, ..store.facts() })
}

/// A server that shows its fault in a fifth of the races, or in a twentieth of the replacements,
/// is found in 99 of 100 probes.
const ROUNDS: Rounds = Rounds { races: 24, reads: 96 };

/// Probes `store` as [`probe`] does, and races requests unless a mark in the store says that it has
/// passed them. What is no server, but a directory, does not race.
///
/// # Errors
/// As [`probe`] and [`probe_races`].
pub fn probe_to_open(store: &dyn ObjectStore) -> Result<StoreFacts> {
    let facts = probe(store)?;
    let clock = Clock::real();
    if !facts.endpoint.is_empty() && !mark::is_there(store, &facts, &clock) {
        probe_races(store, &facts, ROUNDS)?;
        mark::put(store, &facts, &clock);
    }
    Ok(facts)
}

/// Sends requests to `store` that race each other, on objects `probe/<random>/...`, which it
/// removes. `facts` are those that [`probe`] returned.
///
/// # Errors
/// [`ErrorKind::Unsupported`](crate::base::ErrorKind::Unsupported): two requests succeeded of which
/// one may, or a read returned bytes that no request wrote so. Otherwise as [`probe`].
pub fn probe_races(store: &dyn ObjectStore, facts: &StoreFacts, rounds: Rounds) -> Result<()> {
    try_until_clear(store, &Clock::real(), PATIENCE, |trial| {
        // A stream has one writer, so its appends do not race.
        Race::new(trial, facts.appends && !facts.streams, rounds).run()
    })
}

#[cfg(test)]
mod tests;
