//! Rows and ranges of rows against all their versions: no phantoms.
//!
//! Every writing commit has a number, its CSN. The state after a number is known: the writes of all
//! commits up to it. A transaction under snapshot isolation saw the state after one number, in all
//! its reads:
//!
//! ```text
//!   CSN        4        5        6        7        8        9
//!   row a    ──┤ 10 ├───────────────┤ 11 ├──────────────────       read a: 11                → 7 or later
//!   row c                  ┤ 3 ├─────────────┤ gone ├───────       scanned a..z: a 11, no c  → 8 or later
//!   began after 5 was acknowledged, wrote row b as 9, and b was written before as 6:            6 to 8
//!                                                                                              ──────
//!                                                                                               8: fine
//! ```
//!
//! 1. Each row that was read, and each present or absent row of a scanned range, allows some
//!    numbers.
//! 2. A snapshot contains every commit acknowledged before the begin, and not the transaction's
//!    own.
//! 3. No other commit that wrote one of its rows lies between its snapshot and its own commit: the
//!    first updater wins.
//!
//! 4. A serializable transaction that wrote saw the state directly before its own commit: the order
//!    of numbers is the serial order.
//! 5. Real time: no transaction is before one that had ended when it began. A transaction that only
//!    read has its place at the lowest number that its reads allow.
//!
//! If no number is left, the transaction was not isolated. Transactions are judged by their begin,
//! so long histories are cheap and a violation names its transaction. The reads must agree with the
//! numbers.

use crate::{Kind, Level, Verdict};
use std::collections::BTreeMap;

/// A row or its absence.
pub type Value = Option<u64>;

/// A scanned range.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// Its first row.
    pub first: u64,
    /// Its last row.
    pub last: u64,
    /// The rows found, in order, with their values.
    pub rows: Vec<(u64, u64)>,
}

/// The reads and writes of a committed transaction. Reads of its own writes are left out.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The promised level.
    pub level: Level,
    /// Time before the begin, from one clock of all threads.
    pub begun: u64,
    /// Time after the end.
    pub ended: u64,
    /// CSN of the commit, if the transaction wrote.
    pub csn: Option<u64>,
    /// CSN of the snapshot, if the database reported it.
    pub snapshot: Option<u64>,
    /// Rows read, with their values.
    pub reads: Vec<(u64, Value)>,
    /// Ranges scanned.
    pub scans: Vec<Scan>,
    /// Rows written or deleted, each once, with the final value.
    pub writes: Vec<(u64, Value)>,
}

/// First and last allowed number of each interval; intervals are disjoint and ascending.
type Interval = (u64, u64);

/// All versions of all rows: by row, by number.
struct Versions(BTreeMap<u64, Vec<(u64, Value)>>);

impl Versions {
    fn of(history: &[Observed]) -> Versions {
        let mut rows: BTreeMap<u64, Vec<(u64, Value)>> = BTreeMap::new();
        for transaction in history {
            let Some(csn) = transaction.csn else { continue };
            for (row, value) in &transaction.writes {
                rows.entry(*row).or_default().push((csn, *value));
            }
        }
        rows.values_mut().for_each(|versions| versions.sort_unstable_by_key(|(csn, _)| *csn));
        Versions(rows)
    }

    /// Restricts `allowed` to the numbers after which `row` is `value`.
    fn narrow(&self, row: u64, value: Value, allowed: &mut Vec<Interval>) {
        static NONE: Vec<(u64, Value)> = Vec::new();
        narrow(self.0.get(&row).unwrap_or(&NONE), value, allowed);
    }
}

fn narrow(versions: &[(u64, Value)], value: Value, allowed: &mut Vec<Interval>) {
    let mut left = Vec::with_capacity(allowed.len());
    for (first, last) in allowed.iter() {
        // Start at the version valid at `first`; index 0 is the row before its first write.
        let mut index = versions.partition_point(|(csn, _)| csn <= first);
        loop {
            let from = index.checked_sub(1).map_or((0, None), |before| versions[before]);
            if from.0 > *last {
                break;
            }
            let until = versions.get(index).map_or(u64::MAX, |(csn, _)| csn - 1);
            if from.1 == value && from.0.max(*first) <= until.min(*last) {
                left.push((from.0.max(*first), until.min(*last)));
            }
            if until >= *last {
                break;
            }
            index += 1;
        }
    }
    *allowed = left;
}

/// Judges committed transactions. Every writer must be in the list: a missing one counts as never
/// run.
#[must_use]
pub fn check(history: &[Observed]) -> Verdict {
    let mut verdict = Verdict { judged: history.len(), ..Verdict::default() };
    let versions = Versions::of(history);
    let by = |time: fn(&Observed) -> u64| {
        let mut order: Vec<usize> = (0..history.len()).collect();
        order.sort_by_key(|index| time(&history[*index]));
        order
    };
    let mut ends = by(|transaction| transaction.ended).into_iter().peekable();
    // For each transaction its lowest place among the numbers, and the highest that had ended.
    let (mut places, mut acknowledged) = (vec![0; history.len()], 0);
    for index in by(|transaction| transaction.begun) {
        let transaction = &history[index];
        while let Some(ended) = ends.next_if(|ended| history[*ended].ended < transaction.begun) {
            acknowledged = places[ended].max(acknowledged);
        }
        places[index] = transaction.csn.unwrap_or(0);
        match judge(&versions, acknowledged, transaction) {
            Ok(place) => places[index] = place,
            Err(what) => verdict.add(Kind::NoSnapshot, vec![index], what),
        }
    }
    verdict
}

/// Returns the lowest place that the transaction may have.
fn judge(versions: &Versions, acknowledged: u64, transaction: &Observed) -> Result<u64, String> {
    let before_own = transaction.csn.map_or(u64::MAX, |csn| csn - 1);
    let last = transaction.snapshot.map_or(before_own, |snapshot| before_own.min(snapshot));
    let is_at_commit = transaction.level == Level::Serializable && transaction.csn.is_some();
    let first = if is_at_commit { acknowledged.max(before_own) } else { acknowledged };
    let mut allowed = vec![(first, last)];
    allowed.retain(|(first, last)| first <= last);
    if allowed.is_empty() {
        let (snapshot, csn) = (transaction.snapshot, transaction.csn);
        return Err(format!(
            "{acknowledged} was acknowledged before it began, its snapshot is {snapshot:?}, its commit {csn:?}"
        ));
    }
    for (row, value) in &transaction.reads {
        let before = allowed.clone();
        versions.narrow(*row, *value, &mut allowed);
        none_left(&allowed, || {
            format!("row {row} was read as {value:?}, which it is after none of {before:?}")
        })?;
    }
    for scanned in &transaction.scans {
        scan(versions, scanned, &mut allowed)?;
    }
    for (row, _) in &transaction.writes {
        let Some(csn) = transaction.csn else { return Err("it wrote, and its commit has no number".into()) };
        let written = versions.0.get(row).map_or(&[][..], Vec::as_slice);
        let at = written.partition_point(|(other, _)| *other < csn);
        let newest = at.checked_sub(1).map_or(0, |before| written[before].0);
        let before = allowed.clone();
        allowed.retain_mut(|(first, last)| {
            *first = newest.max(*first);
            first <= last
        });
        none_left(&allowed, || {
            format!("row {row} was written by {newest}, and its snapshot is one of {before:?}")
        })?;
    }
    let place = allowed.first().map_or(0, |(first, _)| *first);
    match transaction.snapshot {
        Some(snapshot) if allowed.last().is_none_or(|(_, last)| *last < snapshot) => {
            Err(format!("its snapshot is {snapshot}, and it saw one of {allowed:?}"))
        }
        _ => Ok(transaction.csn.unwrap_or(place)),
    }
}

fn scan(versions: &Versions, scanned: &Scan, allowed: &mut Vec<Interval>) -> Result<(), String> {
    let Scan { first, last, rows } = scanned;
    let inside = rows.iter().all(|(row, _)| (first..=last).contains(&row));
    if !inside || !rows.is_sorted_by(|a, b| a.0 < b.0) {
        return Err(format!("the rows of {first}..={last} are not in it, or not in order: {rows:?}"));
    }
    let mut there = rows.iter().peekable();
    for (row, written) in versions.0.range(*first..=*last) {
        if let Some((stranger, value)) = there.next_if(|(next, _)| next < row) {
            return Err(format!("row {stranger} was found as {value}, and nobody wrote it"));
        }
        let value = there.next_if(|(next, _)| next == row).map(|(_, value)| *value);
        let before = allowed.clone();
        narrow(written, value, allowed);
        none_left(allowed, || {
            format!(
                "row {row} of {first}..={last} was found as {value:?}, which it is after none of {before:?}"
            )
        })?;
    }
    match there.next() {
        Some((stranger, value)) => Err(format!("row {stranger} was found as {value}, and nobody wrote it")),
        None => Ok(()),
    }
}

fn none_left(allowed: &[Interval], what: impl FnOnce() -> String) -> Result<(), String> {
    if allowed.is_empty() { Err(what()) } else { Ok(()) }
}
