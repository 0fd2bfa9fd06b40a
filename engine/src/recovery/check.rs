//! Checks the log against what must be in it, with or without writers beside.
//!
//! 1. Every CSN above what the checkpoint covers and below the watermark is in a record or void:
//!    what is in neither is lost.
//! 2. Of the running epoch each log is dense from the checkpoint to its end. While the database
//!    runs the logs know their ends. Otherwise stored watermarks vouch for them: what they do not
//!    reach may be a torn tail, and is no damage.
//! 3. Of an earlier epoch the blocks up to the accepted ends count. A hole there is a damage if a
//!    CSN of rule 1 is lost with it; else it held only what a recovery discarded.
//!
//! What is known is taken before the segments are read, what is covered after it: see
//! [`crate::log::ChainEnd`].

use super::report::ProgressFn;
use crate::base::account::Account;
use crate::base::{Csn, Epoch, Error, Location, LogId, Result};
use crate::device::Storage;
use crate::log::{ChainEnd, DIRECTORY, LogContents, Segment, Wanted, read_contents};
use crate::store::{CsnSet, Manifest};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The ends of the logs of a running database. Taken before the log is read, the watermark first.
#[derive(Clone, Debug)]
pub struct Running {
    /// Every CSN below is durable in a segment.
    pub watermark: Csn,
    /// The durable end of each log in segments.
    pub ends: Vec<ChainEnd>,
}

/// The checked blocks and the problems found.
#[derive(Clone, Debug, Default)]
pub struct LogReport {
    /// Whole blocks above the checkpoint.
    pub blocks: u64,
    /// Records in them.
    pub records: u64,
    /// Each damage with its place.
    pub problems: Vec<String>,
    /// The system refused access to a segment.
    pub denied: bool,
}

/// Reads the whole log, and `memory`, which is what mapped memory holds and segments may lack.
/// Buffers are charged to `account`. `running` is `None` if no process has the database open for
/// writing; `covered` gives up to where the newest durable checkpoint covers the log at the moment.
///
/// # Errors
/// The log's directory cannot be listed.
pub fn check_log(
    storage: &dyn Storage,
    memory: Option<&Segment>,
    account: Option<&Arc<Account>>,
    manifest: &Manifest,
    running: Option<&Running>,
    covered: &dyn Fn() -> Csn,
    progress: ProgressFn<'_>,
) -> Result<LogReport> {
    if manifest.clean {
        // Everything is in the checkpoint: the log is not needed.
        return Ok(LogReport::default());
    }
    let mut present = Present::above(manifest.covered);
    let wanted = Wanted {
        database: manifest.database,
        covered: manifest.covered,
        memory: account,
        last_sequence: &|log, epoch| last_sequence(manifest, running, log, epoch),
    };
    let contents = read_contents(
        storage,
        memory,
        &wanted,
        &mut |epoch, record| {
            present.insert(record.csn);
            if epoch == manifest.epoch && record.watermark <= record.csn && record.csn < Csn::LIMIT {
                present.watermark = present.watermark.max(record.watermark);
            }
        },
        &mut |done, total| progress("log bytes checked", done, total),
    )?;
    let covered = covered().max(manifest.covered);
    let watermark = running.map_or(present.watermark, |running| running.watermark).max(manifest.first_csn);
    let lost = present.lost(covered, watermark, &manifest.voids());
    let ends = ends(manifest, running, &contents, watermark);
    let mut report = LogReport { blocks: contents.blocks, records: contents.records, ..LogReport::default() };
    if contents.is_gone() {
        report.problems.push(missing_log().as_problem());
    }
    report.problems.extend(contents.unreadable().iter().map(unreadable_log));
    report.denied = contents.unreadable().iter().any(Error::is_denied);
    for damage in contents.damages(&ends, covered) {
        let (lower, upper) = damage.csns;
        if !damage.conditional || lost.iter().any(|(first, last)| *last > lower && *first < upper) {
            report.problems.push(damage.to_string());
        }
    }
    report.problems.extend(describe(&lost));
    Ok(report)
}

/// Returns the error for a log without segments.
pub(super) fn missing_log() -> Error {
    let what = "all log segments are missing, and the database was not closed";
    Error::corruption(what)
        .with_advice("put them back, or restore from a backup")
        .at(Location::File { path: DIRECTORY.into(), offset: 0 })
}

/// Returns the problem of a part of the log that cannot be read.
pub fn unreadable_log(error: &Error) -> String {
    format!("the log cannot be read: {}", error.without_advice())
}

fn last_sequence(manifest: &Manifest, running: Option<&Running>, log: LogId, epoch: Epoch) -> u64 {
    if epoch == manifest.epoch {
        let end =
            |running: &Running| running.ends.iter().find(|end| end.log == log).map_or(0, |e| e.sequence);
        return running.map_or(u64::MAX, end);
    }
    let entry = manifest.epochs.iter().find(|entry| entry.epoch == epoch);
    entry.and_then(|entry| entry.accepted_end(log)).unwrap_or(0)
}

/// Rules 2 and 3.
fn ends(
    manifest: &Manifest,
    running: Option<&Running>,
    contents: &LogContents,
    watermark: Csn,
) -> Vec<ChainEnd> {
    let mut ends = match running {
        Some(running) => running.ends.clone(),
        None => {
            let logs = contents.logs_of(manifest.epoch);
            logs.filter_map(|log| contents.end_below(log, manifest.epoch, watermark)).collect()
        }
    };
    for entry in &manifest.epochs {
        ends.extend(entry.accepted.iter().map(|end| ChainEnd {
            log: end.log,
            epoch: entry.epoch,
            sequence: end.sequence,
            last_csn: entry.last_csn,
            dense: false,
        }));
    }
    ends
}

/// The most ranges of lost CSNs that are listed.
const LISTED: usize = 8;

fn describe(lost: &[(Csn, Csn)]) -> Option<String> {
    let count: u64 = lost.iter().map(|(first, last)| last.0 - first.0 + 1).sum();
    let range = |(first, last): &(Csn, Csn)| {
        if first == last { first.to_string() } else { format!("{first} to {last}") }
    };
    let mut listed: Vec<String> = lost.iter().take(LISTED).map(range).collect();
    if lost.len() > LISTED {
        listed.push("…".into());
    }
    (count > 0).then(|| {
        format!(
            "{count} committed transactions are in no whole block of the log and not in the checkpoint: CSN {}",
            listed.join(", ")
        )
    })
}

/// Which CSNs above the checkpoint have a record.
struct Present {
    checkpoint: Csn,
    /// A bit for each CSN, 64 to a word; words without any are not there, whatever a record claims.
    words: BTreeMap<u64, u64>,
    /// The highest that a record of the running epoch stores.
    watermark: Csn,
}

impl Present {
    fn above(checkpoint: Csn) -> Present {
        Present { checkpoint, words: BTreeMap::new(), watermark: Csn::ZERO }
    }

    fn insert(&mut self, csn: Csn) {
        if csn > self.checkpoint && csn < Csn::LIMIT {
            *self.words.entry(csn.0 / 64).or_default() |= 1 << (csn.0 % 64);
        }
    }

    /// Rule 1: the CSNs above `checkpoint` and below `watermark` that are neither there nor void,
    /// as ranges.
    fn lost(&self, checkpoint: Csn, watermark: Csn, voids: &CsnSet) -> Vec<(Csn, Csn)> {
        let mut there: Vec<(Csn, Csn)> = voids.ranges().to_vec();
        for (index, word) in &self.words {
            let mut bits = *word;
            while bits != 0 {
                let first = bits.trailing_zeros();
                let ones = (bits >> first).trailing_ones();
                let start = index * 64 + u64::from(first);
                there.push((Csn(start), Csn(start + u64::from(ones) - 1)));
                bits &= if first + ones == 64 { 0 } else { u64::MAX << (first + ones) };
            }
        }
        let mut lost = Vec::new();
        let mut next = checkpoint.next();
        for (first, last) in CsnSet::from_ranges(there).above(checkpoint).ranges() {
            let end = (*first).min(watermark);
            if next < end {
                lost.push((next, Csn(end.0 - 1)));
            }
            next = last.next();
        }
        if next < watermark {
            lost.push((next, Csn(watermark.0 - 1)));
        }
        lost
    }
}

#[cfg(test)]
mod tests;
