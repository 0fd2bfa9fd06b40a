//! Fills a table, and runs operations of one kind on it.
//!
//! | key, big-endian | row |
//! |---|---|
//! | 2 n, below 2 × rows | filled |
//! | 2 n + 1 | inserted between others |
//! | from 2 × rows on | inserted behind the last one |
//!
//! Each operation has a function of its own, which a profile shows by its name.

use super::meter::{Measured, Meter};
use super::operation::{Operation, ROWS_OF_ONE};
use crate::store::{Error, Level, Reader, Result, Session, Store, Transaction};
use crate::tpcc::{Kind, Selection, Tpcc};
use crate::workload::{Ending, Seat, Worker, Workload};
use anyhow::Context;
use quenchdb::{Database, Snapshot};
use std::hint::black_box;

const TABLE: &str = "instructions";
/// Rows of one transaction of the fill.
const BATCH: u64 = 1000;
/// The byte of filled values; no update writes it.
const FILLED: u8 = u8::MAX;

/// The rows of the table.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// Their number.
    pub count: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
}

fn key(row: u64) -> [u8; 8] {
    (2 * row).to_be_bytes()
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

impl Rows {
    /// Returns numbers of rows in an order that visits each row once, far from the one before.
    fn scattered(self, count: u64) -> impl Iterator<Item = u64> {
        let rows = self.count;
        let golden = (rows as f64 * 0.618) as u64;
        let step = (1..=golden.max(1)).rev().find(|step| greatest_common_divisor(*step, rows) == 1);
        let step = step.unwrap_or(1);
        (0..count).map(move |n| n * step % rows)
    }

    fn fill<S: Store>(self, store: &S, table: &S::Table) -> anyhow::Result<()> {
        let (mut session, value) = (store.session(Level::Lazy)?, vec![FILLED; self.value_bytes]);
        for first in (0..self.count).step_by(BATCH as usize) {
            let rows = (first..(first + BATCH).min(self.count)).map(|row| (key(row), &value));
            let mut fill = || -> Result<()> {
                let mut transaction = session.begin()?;
                transaction.insert_all(table, rows.clone())?;
                transaction.commit()
            };
            fill().map_err(Error::into_failure).context("cannot fill the table")?;
        }
        store.make_durable()
    }
}

/// Sets `value` to what the update number `n` writes.
#[inline]
fn set(value: &mut [u8], n: u64) {
    value.fill((n % u64::from(FILLED)) as u8);
}

#[inline(never)]
fn get<R: Reader>(snapshot: &mut R, table: &R::Table, rows: impl Iterator<Item = u64>) -> Result<()> {
    for row in rows {
        found(snapshot.get_with(table, &key(row), |value| black_box(value).len())?.is_some())?;
    }
    Ok(())
}

#[inline(never)]
fn open_get<S: Session>(session: &mut S, table: &S::Table, rows: impl Iterator<Item = u64>) -> Result<()> {
    for row in rows {
        let mut snapshot = session.begin_read()?;
        found(snapshot.get_with(table, &key(row), |value| black_box(value).len())?.is_some())?;
    }
    Ok(())
}

/// What a scan has seen.
#[derive(Default)]
struct Seen {
    rows: u64,
    bytes: usize,
}

impl Seen {
    #[inline]
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.rows += 1;
        self.bytes += black_box(key).len() + black_box(value).len();
    }

    fn are(&self, rows: u64) -> Result<()> {
        black_box(self.bytes);
        if self.rows == rows { Ok(()) } else { Err(Error::wrong("a scan has not seen each row once")) }
    }
}

#[inline(never)]
fn scan<R: Reader>(snapshot: &mut R, table: &R::Table, rows: u64) -> Result<()> {
    let mut seen = Seen::default();
    snapshot.for_each(table, &key(0), &[u8::MAX; 9], |key, value| seen.add(key, value))?;
    seen.are(rows)
}

#[inline(never)]
fn scan_owned(snapshot: &Snapshot, table: &quenchdb::Table, rows: u64) -> Result<()> {
    let mut seen = Seen::default();
    for row in snapshot.iter(table) {
        let (key, value) = row?;
        seen.add(&key, &value);
    }
    seen.are(rows)
}

#[inline(never)]
fn range<R: Reader>(snapshot: &mut R, table: &R::Table, rows: impl Iterator<Item = u64>) -> Result<()> {
    for row in rows {
        let mut seen = Seen::default();
        snapshot.for_each(table, &key(row), &key(row + ROWS_OF_ONE), |key, value| seen.add(key, value))?;
        seen.are(ROWS_OF_ONE)?;
    }
    Ok(())
}

#[inline(always)]
fn without_wait<X: Transaction>(transaction: X) -> Result<()> {
    black_box(transaction.commit_async()?);
    Ok(())
}

fn found(found: bool) -> Result<()> {
    if found { Ok(()) } else { Err(Error::wrong("a row is missing")) }
}

#[inline(never)]
fn update<S: Session>(
    session: &mut S,
    table: &S::Table,
    value: &mut [u8],
    rows: impl Iterator<Item = u64>,
) -> Result<()> {
    for (n, row) in (0..).zip(rows) {
        let mut transaction = session.begin()?;
        set(value, n);
        transaction.insert(table, &key(row), value)?;
        without_wait(transaction)?;
    }
    Ok(())
}

#[inline(never)]
fn update_durable<S: Session>(
    session: &mut S,
    table: &S::Table,
    value: &mut [u8],
    rows: impl Iterator<Item = u64>,
) -> Result<()> {
    for (n, row) in (0..).zip(rows) {
        let mut transaction = session.begin()?;
        set(value, n);
        transaction.insert(table, &key(row), value)?;
        transaction.commit()?;
    }
    Ok(())
}

#[inline(never)]
fn insert_in_order<S: Session>(
    session: &mut S,
    table: &S::Table,
    value: &[u8],
    rows: impl Iterator<Item = u64>,
) -> Result<()> {
    for row in rows {
        let mut transaction = session.begin()?;
        transaction.insert(table, &key(row), value)?;
        without_wait(transaction)?;
    }
    Ok(())
}

#[inline(never)]
fn insert_at_random<S: Session>(
    session: &mut S,
    table: &S::Table,
    value: &[u8],
    rows: impl Iterator<Item = u64>,
) -> Result<()> {
    for row in rows {
        let mut transaction = session.begin()?;
        transaction.insert(table, &(2 * row + 1).to_be_bytes(), value)?;
        without_wait(transaction)?;
    }
    Ok(())
}

#[inline(never)]
fn delete<S: Session>(session: &mut S, table: &S::Table, rows: impl Iterator<Item = u64>) -> Result<()> {
    for row in rows {
        let mut transaction = session.begin()?;
        found(transaction.remove(table, &key(row))?)?;
        without_wait(transaction)?;
    }
    Ok(())
}

#[inline(never)]
fn pop_first<S: Session>(session: &mut S, table: &S::Table, count: u64) -> Result<()> {
    for _ in 0..count {
        let mut transaction = session.begin()?;
        found(transaction.pop_first(table)?)?;
        without_wait(transaction)?;
    }
    Ok(())
}

#[inline(never)]
fn transaction<S: Session>(
    session: &mut S,
    table: &S::Table,
    value: &mut [u8],
    mut rows: impl Iterator<Item = u64>,
    count: u64,
) -> Result<()> {
    for n in 0..count {
        let mut transaction = session.begin()?;
        set(value, n);
        let rows = rows.by_ref().take(ROWS_OF_ONE as usize);
        transaction.insert_all(table, rows.map(|row| (key(row), &*value)))?;
        without_wait(transaction)?;
    }
    Ok(())
}

#[inline(never)]
fn roll_back<S: Session>(session: &mut S, count: u64) -> Result<()> {
    for _ in 0..count {
        session.begin()?.abort();
    }
    Ok(())
}

#[inline(never)]
fn terminal<S: Session, W: Worker<S::Table>>(session: &mut S, worker: &mut W) -> Result<()> {
    let mut transaction = session.begin()?;
    match worker.run(&mut transaction)? {
        Ending::Commit { .. } => without_wait(transaction),
        Ending::RollBack => {
            transaction.abort();
            Ok(())
        }
    }
}

/// Fills a table and runs `operation` on it, with commits of this level.
///
/// # Errors
/// Those of the store; an operation that is QuenchDB's only.
pub fn run<S: Store>(store: &S, operation: Operation, level: Level, rows: Rows) -> anyhow::Result<Measured> {
    let table = store.table(TABLE)?;
    rows.fill(store, &table)?;
    if !operation.writes() {
        store.checkpoint(false)?;
    }
    let mut session = store.session(level)?;
    let mut meter = Meter::default();
    run_counted(&mut session, &table, operation, rows, &mut meter).map_err(Error::into_failure)?;
    Ok(meter.measured())
}

fn run_counted<S: Session>(
    session: &mut S,
    table: &S::Table,
    operation: Operation,
    rows: Rows,
    meter: &mut Meter,
) -> Result<()> {
    let count = operation.count(rows.count);
    let mut value = vec![FILLED; rows.value_bytes];
    let scattered = || rows.scattered(count);
    match operation {
        Operation::Get => {
            let mut snapshot = session.begin_read()?;
            meter.count(count, || get(&mut snapshot, table, scattered()))
        }
        Operation::OpenGet => meter.count(count, || open_get(session, table, scattered())),
        Operation::Scan => {
            let mut snapshot = session.begin_read()?;
            meter.count(count, || scan(&mut snapshot, table, count))
        }
        Operation::Range => {
            let mut snapshot = session.begin_read()?;
            let last = rows.count.saturating_sub(ROWS_OF_ONE);
            meter.count(count, || range(&mut snapshot, table, scattered().map(|row| row.min(last))))
        }
        Operation::Update => meter.count(count, || update(session, table, &mut value, scattered())),
        Operation::UpdateDurable => {
            meter.count(count, || update_durable(session, table, &mut value, scattered()))
        }
        Operation::InsertInOrder => {
            let behind = rows.count..rows.count + count;
            meter.count(count, || insert_in_order(session, table, &value, behind.clone()))
        }
        Operation::InsertAtRandom => {
            meter.count(count, || insert_at_random(session, table, &value, scattered()))
        }
        Operation::Delete => meter.count(count, || delete(session, table, scattered())),
        Operation::PopFirst => meter.count(count, || pop_first(session, table, count)),
        Operation::Transaction => {
            let all = || rows.scattered(count * ROWS_OF_ONE);
            meter.count(count, || transaction(session, table, &mut value, all(), count))
        }
        Operation::RollBack => meter.count(count, || roll_back(session, count)),
        Operation::ScanOwned | Operation::NewOrder | Operation::Payment => {
            Err(Error::wrong(format!("only quenchdb has the operation {}", operation.name())))
        }
    }
}

/// Fills a table, or the warehouses of `tpcc`, and runs `operation` on it.
///
/// # Errors
/// Those of the engine.
pub fn run_own(
    database: &Database,
    operation: Operation,
    rows: Rows,
    tpcc: &Tpcc,
) -> anyhow::Result<Measured> {
    let kind = match operation {
        Operation::ScanOwned => return run_scan_owned(database, rows),
        Operation::NewOrder => Kind::NewOrder,
        Operation::Payment => Kind::Payment,
        _ => return run(database, operation, Level::Durable, rows),
    };
    let tpcc = Tpcc { selection: Selection::Only(kind), ..tpcc.clone() };
    tpcc.populate(database, 1, &|_, _, _| ())?;
    let (mut worker, mut session) = (tpcc.worker(database, Seat::of(0))?, database.session(Level::Durable)?);
    let mut meter = Meter::default();
    for _ in 0..operation.count(rows.count) {
        worker.prepare();
        let counted = meter.count(1, || terminal(&mut session, &mut worker));
        counted.map_err(Error::into_failure)?;
        worker.committed();
    }
    Ok(meter.measured())
}

fn run_scan_owned(database: &Database, rows: Rows) -> anyhow::Result<Measured> {
    let table = Store::table(database, TABLE)?;
    rows.fill(database, &table)?;
    Store::checkpoint(database, false)?;
    let (snapshot, mut meter) = (database.begin_read()?, Meter::default());
    let counted = meter.count(rows.count, || scan_owned(&snapshot, &table, rows.count));
    counted.map_err(Error::into_failure)?;
    Ok(meter.measured())
}
