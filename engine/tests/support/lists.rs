//! Transactions that append to lists and read them, recorded for checkers that are independent of
//! the engine.

use super::modes::{Acknowledged, Mode, commit_somehow, get_somehow, lock_table_rarely};
use quench_checker::{History, Level, Outcome};
use quenchdb::internals::base::random::Random;
use quenchdb::{Database, Durability, Error, Result, Table, Transaction};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A clock for histories, which never returns a number twice.
#[derive(Debug, Default)]
pub struct Ticks(AtomicU64);

impl Ticks {
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

impl Clone for Ticks {
    /// Returns an independent clock that continues at the same number.
    fn clone(&self) -> Ticks {
        Ticks(AtomicU64::new(self.0.load(Ordering::SeqCst)))
    }
}

/// The time of a commit that happened at an unknown time.
pub const SOME_TIME: u64 = u64::MAX;

/// Maximum length of a list. Full lists are no longer appended to, and are read only at the end.
pub const LIST_MAX: u32 = 32;
pub const LISTS: u32 = 8;

/// The lists of a run and the next value to append.
#[derive(Debug, Default)]
pub struct Lists {
    pub ticks: Ticks,
    value: AtomicU32,
}

impl Lists {
    /// Returns a list of the current generation, or sometimes of the previous one.
    fn pick(&self, random: &mut Random) -> u32 {
        let generation = self.value.load(Ordering::Relaxed) / (LISTS * LIST_MAX);
        let old = u32::from(random.chance(1, 8));
        generation.saturating_sub(old) * LISTS + random.below(LISTS.into()) as u32
    }

    pub fn keys(&self) -> std::ops::Range<u32> {
        0..(self.value.load(Ordering::Relaxed) / (LISTS * LIST_MAX) + 1) * LISTS
    }
}

impl Clone for Lists {
    /// Returns an independent copy, for another continuation of the same run.
    fn clone(&self) -> Lists {
        Lists { ticks: self.ticks.clone(), value: AtomicU32::new(self.value.load(Ordering::Relaxed)) }
    }
}

/// Returns the elements in a row.
pub fn elements(bytes: Option<&[u8]>) -> impl Iterator<Item = u32> {
    let words = bytes.unwrap_or_default().chunks_exact(4);
    words.map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")))
}

/// How a transaction ended: the outcome and its time.
pub struct Ended {
    /// The promised isolation.
    pub level: Level,
    pub outcome: Outcome,
    pub at: u64,
    /// The outcome was acknowledged as durable, so it must survive a crash.
    pub durable: bool,
}

/// Reads lists, appends to some, and returns how the transaction ended. Conflicts count as aborts.
pub fn list_transaction(
    db: &Database,
    table: &Table,
    lists: &Lists,
    modes: &[Mode],
    record: &mut History,
    random: &mut Random,
) -> Result<Ended> {
    let mode = Mode::any(modes, random);
    let ended = |outcome, at, durable| Ok(Ended { level: mode.level(), outcome, at, durable });
    let aborted = || ended(Outcome::Aborted, lists.ticks.next(), true);
    let or_aborted = |error: Error| if error.is_retryable() { aborted() } else { Err(error) };
    if random.chance(1, 5) {
        only_read(db, table, lists, mode, record, random)?;
        return ended(Outcome::Committed, lists.ticks.next(), true);
    }
    let durability = match random.below(8) {
        0 | 1 => Durability::Durable,
        2..5 => Durability::BoundedLoss,
        _ => Durability::Lazy,
    };
    let mut tx = db.begin_with(mode.options(durability))?;
    if let Err(error) = access_lists(&mut tx, table, lists, record, random) {
        return or_aborted(error);
    }
    if random.chance(1, 20) {
        tx.abort();
        return aborted();
    }
    match commit_somehow(tx, mode, durability, random) {
        Err(error) => or_aborted(error),
        Ok((_, Acknowledged::Never)) => ended(Outcome::Committed, SOME_TIME, false),
        Ok((_, acknowledged)) => {
            ended(Outcome::Committed, lists.ticks.next(), acknowledged == Acknowledged::Durable)
        }
    }
}

/// Reads lists in a snapshot, or in a transaction that is declared read-only.
fn only_read(
    db: &Database,
    table: &Table,
    lists: &Lists,
    mode: Mode,
    record: &mut History,
    random: &mut Random,
) -> Result<()> {
    let keys: Vec<u32> = (0..1 + random.below(4)).map(|_| lists.pick(random)).collect();
    if random.chance(1, 2) {
        let snapshot = db.begin_read()?;
        for key in keys {
            record.read(key, elements(snapshot.get(table, key.to_be_bytes())?.as_deref()));
        }
        return Ok(());
    }
    let tx = db.begin_with(mode.read_only())?;
    for key in keys {
        record.read(key, elements(tx.get(table, key.to_be_bytes())?.as_deref()));
    }
    tx.commit().map(drop)
}

fn access_lists(
    tx: &mut Transaction,
    table: &Table,
    lists: &Lists,
    record: &mut History,
    random: &mut Random,
) -> Result<()> {
    for _ in 0..1 + random.below(4) {
        let key = lists.pick(random);
        let bytes = key.to_be_bytes();
        lock_table_rarely(tx, table, random)?;
        let savepoint = tx.savepoint();
        let old = get_somehow(tx, table, bytes, random)?;
        record.read(key, elements(old.as_deref()));
        let is_full = old.as_ref().is_some_and(|old| old.len() >= 4 * LIST_MAX as usize);
        if random.chance(1, 2) || is_full {
            if random.chance(1, 4) {
                // A lock may be taken back, the read not.
                tx.rollback_to(savepoint)?;
            }
            continue;
        }
        let value = lists.value.fetch_add(1, Ordering::Relaxed);
        let mut list = old.unwrap_or_default();
        list.extend(value.to_le_bytes());
        tx.insert(table, bytes, list)?;
        if random.chance(1, 8) {
            // The append never happened; the read did.
            tx.rollback_to(savepoint)?;
        } else {
            record.append(key, value);
        }
    }
    Ok(())
}

/// Reads all lists in one snapshot, as the last transaction of the history.
pub fn read_all(db: &Database, table: &Table, lists: &Lists, record: &mut History) {
    let begun = lists.ticks.next();
    let snapshot = db.begin_read().expect("free");
    let mut rows: std::collections::HashMap<Vec<u8>, Vec<u8>> =
        snapshot.range(table, ..).map(|row| row.expect("readable")).collect();
    for key in lists.keys() {
        record.read(key, elements(rows.remove(&key.to_be_bytes()[..]).as_deref()));
    }
    assert!(rows.is_empty(), "lists without a writer");
    record.end(begun, lists.ticks.next(), Outcome::Committed);
}
