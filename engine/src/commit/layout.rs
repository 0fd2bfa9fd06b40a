//! How many logs are there, and which threads share one?
//!
//! | layout | logs |
//! |---|---|
//! | one | 1 |
//! | per thread | as many as cores |
//! | threads per log | cores / `threads_per_log`, rounded up; at least two with `restricted` |
//! | by page | as many as cores, at least two |
//!
//! `logs` overrides the number. Threads are spread over the logs in the order of their first use;
//! with `restricted` the first `threads_per_log` of them share the first log, and so on. A
//! transaction has all its records in its thread's log, except by page: then each change is in the
//! log of the page that it changed ([`super::fragments`]). A log takes its first segment and buffer
//! when it is first used.

use super::protocol;
use crate::base::settings::{Layout, Preset, Settings};
use crate::base::{Error, Location, Result};

const LOGS_MOST: usize = 256;

/// Returns the number of logs of a database with `settings` on a machine with `cores` cores.
#[must_use]
pub fn log_count(settings: &Settings, cores: usize) -> usize {
    if settings.logs > 0 {
        return settings.logs;
    }
    let by_threads = || cores.div_ceil(settings.threads_per_log.max(1));
    let wanted = match settings.layout.unwrap_or(protocol::choices(settings).layout) {
        Layout::One => return 1,
        Layout::PerThread => cores,
        Layout::ByPage => cores.max(2),
        // With one log it would be another protocol.
        Layout::ThreadsPerLog if settings.preset == Preset::Restricted => by_threads().max(2),
        Layout::ThreadsPerLog => by_threads(),
    };
    wanted.clamp(1, LOGS_MOST).min(logs_with_room(settings))
}

/// As many as have room in the log beside a large transaction.
fn logs_with_room(settings: &Settings) -> usize {
    let transaction = match settings.transaction_bytes_max as u64 {
        0 => settings.log_bytes_max / 16,
        said => said,
    };
    let room = settings.log_bytes_max.saturating_sub(transaction.max(settings.segment_bytes));
    (room / settings.bytes_of_segments_in_use(1).max(1)).max(1) as usize
}

/// Refuses more logs than the log has segments for.
pub(super) fn check_room(settings: &Settings, logs: usize) -> Result<()> {
    let needed = settings.bytes_of_segments_in_use(logs) + settings.segment_bytes;
    if settings.log_bytes_max >= needed {
        return Ok(());
    }
    let what = format!("{} is too little for {logs} logs, which need {needed}", settings.log_bytes_max);
    Err(Error::invalid(what).at(Location::Setting("log_bytes_max")))
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
