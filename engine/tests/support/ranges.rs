//! Transactions that scan ranges and change rows in them, recorded for the checker of phantoms.

use super::lists::{SOME_TIME, Ticks};
use super::modes::{Acknowledged, Mode, commit_somehow, get_somehow, lock_table_rarely};
use quench_checker::{Observed, versions};
use quenchdb::internals::base::random::Random;
use quenchdb::{Csn, Database, Durability, Reads, Result, Snapshot, Table, Transaction};
use std::sync::atomic::{AtomicU64, Ordering};

/// Rows from this number on are marker rows.
const MARKS: u64 = 1 << 32;

/// The rows of a run, and the next value to write.
#[derive(Debug)]
pub struct Ranges {
    pub ticks: Ticks,
    value: AtomicU64,
    rows: u64,
    /// Maximum number of rows in a scan.
    width: u64,
    /// Whether each writing transaction adds a marker row, which no other transaction writes. If
    /// the row is found, the transaction has committed.
    marks: bool,
}

impl Ranges {
    pub fn of(rows: u64, width: u64, marks: bool) -> Ranges {
        Ranges { ticks: Ticks::default(), value: AtomicU64::new(1), rows, width, marks }
    }

    fn any(&self, random: &mut Random) -> (u64, u64) {
        let first = random.below(self.rows);
        (first, first + random.below(self.width))
    }

    fn new_value(&self) -> u64 {
        self.value.fetch_add(1, Ordering::Relaxed)
    }
}

impl Clone for Ranges {
    /// Returns an independent copy, for another continuation of the same run.
    fn clone(&self) -> Ranges {
        let value = AtomicU64::new(self.value.load(Ordering::Relaxed));
        Ranges { ticks: self.ticks.clone(), value, ..*self }
    }
}

/// Returns the marker row of a transaction.
pub fn mark_of(transaction: &Observed) -> Option<u64> {
    transaction.writes.iter().map(|(row, _)| *row).find(|row| *row >= MARKS)
}

/// A transaction that has committed.
pub struct Committed {
    pub observed: Observed,
    /// The commit was acknowledged as durable, so it must survive a crash.
    pub durable: bool,
}

/// The transaction or snapshot that reads.
#[derive(Clone, Copy)]
enum View<'a> {
    Transaction(&'a Transaction),
    Snapshot(&'a Snapshot),
}

impl View<'_> {
    fn scan(self, table: &Table, ends: (u64, u64), backwards: bool, limit: usize) -> Result<versions::Scan> {
        match self {
            View::Transaction(tx) => scan(tx, table, ends, backwards, limit),
            View::Snapshot(snapshot) => scan(snapshot, table, ends, backwards, limit),
        }
    }
}

/// Scans a range from one end, at most `limit` rows of it.
fn scan(
    reader: &impl Reads,
    table: &Table,
    (first, last): (u64, u64),
    backwards: bool,
    limit: usize,
) -> Result<versions::Scan> {
    let rows = reader.range(table, first.to_be_bytes()..=last.to_be_bytes());
    let numbers = |row: Result<(Vec<u8>, Vec<u8>)>| row.map(|(key, value)| (number(key), number(value)));
    let mut scan = versions::Scan { first, last, rows: Vec::new() };
    if backwards {
        scan.rows = rows.rev().map(numbers).take(limit).collect::<Result<_>>()?;
        scan.rows.reverse();
    } else {
        scan.rows = rows.map(numbers).take(limit).collect::<Result<_>>()?;
    }
    // A scan that stops early knows nothing of the rest.
    match (scan.rows.first(), scan.rows.last()) {
        (Some((lowest, _)), _) if scan.rows.len() == limit && backwards => scan.first = *lowest,
        (_, Some((highest, _))) if scan.rows.len() == limit => scan.last = *highest,
        _ => {}
    }
    Ok(scan)
}

/// Decodes a key or a value.
pub fn number(bytes: Vec<u8>) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
}

/// Scans ranges, and inserts and deletes rows in one of them. Returns `None` after an abort; an
/// error may be a conflict.
pub fn range_transaction(
    db: &Database,
    table: &Table,
    ranges: &Ranges,
    modes: &[Mode],
    random: &mut Random,
) -> Result<Option<Committed>> {
    let mode = Mode::any(modes, random);
    let begun = ranges.ticks.next();
    let mut observed = Observed { level: mode.level(), begun, ..Observed::default() };
    if random.chance(1, 4) {
        only_scan(db, table, ranges, mode, &mut observed, random)?;
        observed.ended = ranges.ticks.next();
        return Ok(Some(Committed { observed, durable: true }));
    }
    let durability = match random.below(8) {
        0 => Durability::Durable,
        1 | 2 => Durability::Lazy,
        _ => Durability::BoundedLoss,
    };
    let mut tx = db.begin_with(mode.options(durability))?;
    let range = ranges.any(random);
    scan_somehow(&tx, table, range, &mut observed, random)?;
    for _ in 0..random.below(3) {
        access_any_row(&mut tx, table, ranges, &mut observed, random)?;
    }
    change_rows(&mut tx, table, ranges, range, &mut observed, random)?;
    if random.chance(1, 3) {
        scan_somehow(&tx, table, ranges.any(random), &mut observed, random)?;
    }
    if random.chance(1, 20) {
        tx.abort();
        return Ok(None);
    }
    let (csn, acknowledged) = commit_somehow(tx, mode, durability, random)?;
    observed.ended = if acknowledged == Acknowledged::Never { SOME_TIME } else { ranges.ticks.next() };
    observed.csn = (csn != Csn::ZERO).then_some(csn.0);
    assert_eq!(observed.csn.is_some(), !observed.writes.is_empty());
    Ok(Some(Committed { observed, durable: acknowledged == Acknowledged::Durable }))
}

/// Scans two ranges in a snapshot, or in a transaction that is declared read-only.
fn only_scan(
    db: &Database,
    table: &Table,
    ranges: &Ranges,
    mode: Mode,
    observed: &mut Observed,
    random: &mut Random,
) -> Result<()> {
    let both = [ranges.any(random), ranges.any(random)];
    if random.chance(1, 2) {
        let snapshot = db.begin_read()?;
        observed.snapshot = Some(snapshot.csn().0);
        for range in both {
            observed.scans.push(View::Snapshot(&snapshot).scan(table, range, false, usize::MAX)?);
        }
        return Ok(());
    }
    let tx = db.begin_with(mode.read_only())?;
    for range in both {
        scan_somehow(&tx, table, range, observed, random)?;
    }
    tx.commit().map(drop)
}

/// Scans from one end, sometimes not to the other end. A scan that has found rows of the
/// transaction itself, or might have, is not recorded.
fn scan_somehow(
    tx: &Transaction,
    table: &Table,
    range: (u64, u64),
    observed: &mut Observed,
    random: &mut Random,
) -> Result<()> {
    let limit = if random.chance(1, 4) { 1 + random.below(4) as usize } else { usize::MAX };
    let scan = View::Transaction(tx).scan(table, range, random.chance(1, 4), limit)?;
    if observed.writes.iter().all(|(row, _)| !(range.0..=range.1).contains(row)) {
        observed.scans.push(scan);
    }
    Ok(())
}

/// Reads or deletes a row that need not have been scanned. A lock may be taken back, the read not.
fn access_any_row(
    tx: &mut Transaction,
    table: &Table,
    ranges: &Ranges,
    observed: &mut Observed,
    random: &mut Random,
) -> Result<()> {
    lock_table_rarely(tx, table, random)?;
    let row = random.below(ranges.rows);
    if observed.writes.iter().any(|(written, _)| *written == row) {
        return Ok(());
    }
    let savepoint = tx.savepoint();
    if random.chance(1, 4) {
        if tx.remove(table, row.to_be_bytes())? {
            observed.writes.push((row, None));
        } else {
            // The answer that no row exists is a read.
            observed.reads.push((row, None));
        }
        return Ok(());
    }
    let value = get_somehow(tx, table, row.to_be_bytes(), random)?;
    observed.reads.push((row, value.map(number)));
    if random.chance(1, 3) {
        tx.rollback_to(savepoint)?;
    }
    Ok(())
}

/// Inserts and deletes rows of a range that was scanned, and takes some of the changes back.
fn change_rows(
    tx: &mut Transaction,
    table: &Table,
    ranges: &Ranges,
    (first, last): (u64, u64),
    observed: &mut Observed,
    random: &mut Random,
) -> Result<()> {
    for _ in 0..random.below(3) {
        let row = first + random.below(last - first + 1);
        if observed.writes.iter().any(|(written, _)| *written == row) {
            continue;
        }
        let new = (!random.chance(1, 3)).then(|| ranges.new_value());
        let seen = &observed.scans[0];
        let was_there = seen.rows.iter().any(|(there, _)| *there == row);
        let savepoint = tx.savepoint();
        match new {
            Some(new) => tx.insert(table, row.to_be_bytes(), new.to_be_bytes())?,
            None if tx.remove(table, row.to_be_bytes())? => {
                let was_absent = (seen.first..=seen.last).contains(&row) && !was_there;
                assert!(!was_absent, "row {row} was absent and could be deleted");
            }
            None => {
                assert!(!was_there, "row {row} was seen and could not be deleted");
                observed.reads.push((row, None));
                continue;
            }
        }
        if random.chance(1, 8) {
            tx.rollback_to(savepoint)?;
        } else {
            observed.writes.push((row, new));
        }
    }
    if ranges.marks && !observed.writes.is_empty() {
        let new = ranges.new_value();
        tx.insert(table, (MARKS + new).to_be_bytes(), new.to_be_bytes())?;
        observed.writes.push((MARKS + new, Some(new)));
    }
    Ok(())
}

/// Scans all rows, including marker rows.
pub fn scan_all(db: &Database, table: &Table, ranges: &Ranges) -> Result<Observed> {
    let begun = ranges.ticks.next();
    let snapshot = db.begin_read()?;
    let scans = vec![View::Snapshot(&snapshot).scan(table, (0, u64::MAX), false, usize::MAX)?];
    let (ended, snapshot) = (ranges.ticks.next(), Some(snapshot.csn().0));
    Ok(Observed { begun, ended, snapshot, scans, ..Observed::default() })
}
