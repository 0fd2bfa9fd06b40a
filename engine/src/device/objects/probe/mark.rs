//! The mark that a store has passed the races: an object, so that the next open need not race.
//!
//! Its name says which races, of which server. So a newer version of the races runs them again, and
//! so does the first open of a bucket that was copied to another server. Its content says when: a
//! server may have been replaced, so the races run again after a month.

use super::super::request::{Condition, Request};
use super::super::store::{ObjectStore, StoreFacts, perform};
use crate::base::checksum;
use crate::base::clock::Clock;

/// Rises when the races find more.
const VERSION: u32 = 1;

/// For so many seconds a mark is believed.
const LIFETIME: u64 = 30 * 24 * 3600;

fn name(facts: &StoreFacts) -> String {
    let server = format!("{} {} {}", facts.endpoint, facts.name, facts.appends);
    format!("probe/raced-{VERSION}-{:08x}", checksum::crc(server.as_bytes()))
}

/// Returns whether this store has passed the races within the last month.
pub(super) fn is_there(store: &dyn ObjectStore, facts: &StoreFacts, clock: &Clock) -> bool {
    let Ok(reply) = perform(store, Request::Get { name: name(facts), range: None }) else { return false };
    let text = String::from_utf8_lossy(&reply.body);
    let passed = text.split(' ').next().and_then(|seconds| seconds.parse::<u64>().ok());
    let now = clock.unix_seconds();
    // A mark of the future is of a wrong calendar.
    passed.is_some_and(|passed| (passed..passed.saturating_add(LIFETIME)).contains(&now))
}

/// Notes that this store has passed. Without the note the next open races again.
pub(super) fn put(store: &dyn ObjectStore, facts: &StoreFacts, clock: &Clock) {
    let server = &facts.endpoint;
    let text =
        format!("{} seconds since 1970: the races of a probe at {server} passed\n", clock.unix_seconds());
    let (name, body) = (name(facts), text.into_bytes().into());
    let _ = perform(store, Request::Put { name, body, condition: Condition::Always });
}
