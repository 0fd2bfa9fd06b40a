//! Transactions that scan ranges and change rows in them, recorded for the checker of phantoms.

use super::lists::{SOME_TIME, Ticks};
use quench_checker::{Observed, versions};
use quenchdb::internals::base::random::Random;
use quenchdb::{Csn, Database, Durability, Result, Snapshot, Table, Transaction};
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
    fn scan(self, table: &Table, (first, last): (u64, u64), backwards: bool) -> Result<versions::Scan> {
        let range = first.to_be_bytes()..=last.to_be_bytes();
        let rows = match self {
            View::Transaction(tx) => tx.range(table, range),
            View::Snapshot(snapshot) => snapshot.range(table, range),
        };
        let numbers = |(key, value): (Vec<u8>, Vec<u8>)| (number(key), number(value));
        let rows = if backwards {
            let mut rows = rows.rev().map(|row| row.map(numbers)).collect::<Result<Vec<_>>>()?;
            rows.reverse();
            rows
        } else {
            rows.map(|row| row.map(numbers)).collect::<Result<_>>()?
        };
        Ok(versions::Scan { first, last, rows })
    }
}

/// Decodes a key or a value.
pub fn number(bytes: Vec<u8>) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
}

/// Scans a range, then inserts and deletes rows in it. Returns `None` after an abort; an error may
/// be a conflict.
pub fn range_transaction(
    db: &Database,
    table: &Table,
    ranges: &Ranges,
    random: &mut Random,
) -> Result<Option<Committed>> {
    let mut observed = Observed { begun: ranges.ticks.next(), ..Observed::default() };
    if random.chance(1, 4) {
        let snapshot = db.begin_read()?;
        observed.snapshot = Some(snapshot.csn().0);
        for _ in 0..2 {
            observed.scans.push(View::Snapshot(&snapshot).scan(table, ranges.any(random), false)?);
        }
        observed.ended = ranges.ticks.next();
        return Ok(Some(Committed { observed, durable: true }));
    }
    let durability = match random.below(8) {
        0 => Durability::Durable,
        1 | 2 => Durability::Lazy,
        _ => Durability::BoundedLoss,
    };
    let mut tx = db.begin_with(durability)?;
    let range = ranges.any(random);
    observed.scans.push(View::Transaction(&tx).scan(table, range, random.chance(1, 4))?);
    change_rows(&mut tx, table, ranges, range, &mut observed, random)?;
    if random.chance(1, 20) {
        tx.abort();
        return Ok(None);
    }
    let (csn, is_durable) = match random.below(16) {
        // Visible to other transactions, but never acknowledged.
        0 => (tx.commit_async()?.csn(), None),
        1 => {
            let handle = tx.commit_async()?;
            handle.wait()?;
            (handle.csn(), Some(true))
        }
        _ => (tx.commit()?, Some(durability == Durability::Durable)),
    };
    observed.ended = if is_durable.is_some() { ranges.ticks.next() } else { SOME_TIME };
    observed.csn = (csn != Csn::ZERO).then_some(csn.0);
    assert_eq!(observed.csn.is_some(), !observed.writes.is_empty());
    Ok(Some(Committed { observed, durable: is_durable == Some(true) }))
}

/// Inserts and deletes rows of a range that was scanned.
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
        let was_there = observed.scans[0].rows.iter().any(|(there, _)| *there == row);
        match new {
            Some(new) => tx.insert(table, row.to_be_bytes(), new.to_be_bytes())?,
            // Deleting a row that does not exist writes nothing.
            None if tx.remove(table, row.to_be_bytes())? => {}
            None => {
                assert!(!was_there, "row {row} was seen and could not be deleted");
                continue;
            }
        }
        observed.writes.push((row, new));
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
    let scans = vec![View::Snapshot(&snapshot).scan(table, (0, u64::MAX), false)?];
    let (ended, snapshot) = (ranges.ticks.next(), Some(snapshot.csn().0));
    Ok(Observed { begun, ended, snapshot, scans, ..Observed::default() })
}
